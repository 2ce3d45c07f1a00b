//! Tiles that are never held: a map that one operation reads, element by element, is computed where it is read. That
//! saves the registers of a whole tile, and loops over rows of any length stay one loop.

use super::facts::{Facts, Use, each_use, leaves, written};
use super::frames::Frames;
use einloom_tile::{Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The tiles that are computed where they are read.
pub(super) fn choose(facts: &Facts<'_>, frames: &Frames, in_place: &BTreeMap<ValueId, ValueId>) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    // Registers whose contents change between an operation and a later one.
    let changing: BTreeSet<ValueId> = in_place.iter().flat_map(|(v, state)| [*v, *state]).collect();
    block(facts, frames, &changing, &facts.kernel.body, &mut out);
    out
}

fn block(facts: &Facts<'_>, frames: &Frames, changing: &BTreeSet<ValueId>, body: &[Op], out: &mut BTreeSet<ValueId>) {
    for (at, op) in body.iter().enumerate() {
        match op {
            Op::Stream { body, .. } => block(facts, frames, changing, body, out),
            Op::Map { dst, expr } => {
                let mut stays = !changing.contains(dst);
                leaves(expr, &mut |v| stays &= !changing.contains(&v));
                if stays && reader(facts, frames, &body[at + 1..], *dst) {
                    out.insert(*dst);
                }
            }
            _ => {}
        }
    }
}

/// Whether exactly one operation, one of these, reads the tile, once per element.
fn reader(facts: &Facts<'_>, frames: &Frames, later: &[Op], v: ValueId) -> bool {
    let [only] = facts.uses[v.at()].as_slice() else { return false };
    if facts.axes(v).is_empty() {
        return false;
    }
    let here = later.iter().any(|op| {
        let mut reads = false;
        each_use(op, &mut |x, _| reads |= x == v);
        reads
    });
    here && match only {
        Use::Leaf(d) => facts.axes(*d) == facts.axes(v) && frames.of.get(d) == frames.of.get(&v),
        Use::Reduced(_) | Use::Stored(_) => true,
        _ => false,
    }
}

/// The tiles that an operation reads once what it reads is computed there.
pub(crate) fn operands(facts: &Facts<'_>, inlined: &BTreeSet<ValueId>, op: &Op) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    let mut open = vec![];
    each_use(op, &mut |v, u| {
        if !matches!(u, Use::Next(_)) {
            open.push(v);
        }
    });
    while let Some(v) = open.pop() {
        match inlined.contains(&v).then(|| definition(facts, v)).flatten() {
            Some(expr) => leaves(expr, &mut |x| open.push(x)),
            None => {
                out.insert(v);
            }
        }
    }
    out
}

/// What the map that writes the tile computes.
pub(crate) fn definition<'a>(facts: &Facts<'a>, v: ValueId) -> Option<&'a Scalar> {
    find(&facts.kernel.body, v)
}

fn find(body: &[Op], v: ValueId) -> Option<&Scalar> {
    body.iter().find_map(|op| match op {
        Op::Stream { body, .. } => find(body, v),
        Op::Map { expr, .. } if written(op) == Some(v) => Some(expr),
        _ => None,
    })
}
