//! Tiles that are rounded and summed as they come into being: a map whose result is only added up, part by part, and
//! packed for a product takes no registers of its own.

use super::facts::{Facts, Use, each_use, leaves, written};
use super::frames::Frames;
use super::partial::Partial;
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// What is done in the loop that packs a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// The map that it is made from.
    pub source: ValueId,
    /// The reduction of that map.
    pub reduction: ValueId,
}

/// By packed tile.
pub(super) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    packed: &BTreeSet<ValueId>,
    inlined: &BTreeSet<ValueId>,
    partial: &BTreeMap<ValueId, Partial>,
) -> BTreeMap<ValueId, Fused> {
    let mut out = BTreeMap::new();
    block(&facts.kernel.body, &mut |body, at| {
        let Op::Map { dst: b, expr } = &body[at] else { return };
        if !packed.contains(b) {
            return;
        }
        let mut candidates = vec![];
        leaves(expr, &mut |v| candidates.push(v));
        for v in candidates {
            let reduction = match facts.uses[v.at()].as_slice() {
                [Use::Reduced(d), Use::Leaf(x)] | [Use::Leaf(x), Use::Reduced(d)] if x == b => *d,
                _ => continue,
            };
            let place = |v: ValueId| body[..at].iter().position(|op| written(op) == Some(v));
            let (Some(made), Some(summed)) = (place(v), place(reduction)) else { continue };
            let map = matches!(body[made], Op::Map { .. }) && !inlined.contains(&v);
            let alike = facts.axes(v) == facts.axes(*b) && frames.of.get(&v) == frames.of.get(b);
            let parts = partial.values().any(|p| p.reductions.contains(&reduction));
            // Nothing that the map reads, or that reads the sum, comes in between.
            let mut moved = BTreeSet::from([reduction]);
            each_use(&body[made], &mut |x, _| {
                moved.insert(x);
            });
            let between = body[made + 1..at].iter().enumerate().any(|(k, op)| {
                let mut reads = false;
                each_use(op, &mut |x, _| reads |= x == reduction);
                let writes = written(op).is_some_and(|w| moved.contains(&w) && w != reduction);
                made + 1 + k != summed && (reads || writes || matches!(op, Op::Stream { .. } | Op::SkipUnless { .. }))
            });
            if map && alike && parts && !between {
                out.insert(*b, Fused { source: v, reduction });
                return;
            }
        }
    });
    out
}

fn block(body: &[Op], f: &mut dyn FnMut(&[Op], usize)) {
    for at in 0..body.len() {
        if let Op::Stream { body, .. } = &body[at] {
            block(body, f);
        }
        f(body, at);
    }
}
