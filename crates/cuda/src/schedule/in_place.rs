//! Pass 5: states in place. Where a state's next value is made from the state element by element (scaled, added to),
//! every tile on the way takes over the state's registers, so that no copy is needed at the end of a chunk.

use super::facts::{Facts, Use, leaves, written};
use super::frames::Frames;
use einloom_tile::{Op, State, ValueId};
use std::collections::BTreeMap;

/// For every tile that lives in another's registers, which one's.
pub(crate) fn choose(facts: &Facts<'_>, frames: &Frames) -> BTreeMap<ValueId, ValueId> {
    let mut out = BTreeMap::new();
    streams(facts, frames, &facts.kernel.body, &mut out);
    out
}

fn streams(facts: &Facts<'_>, frames: &Frames, ops: &[Op], out: &mut BTreeMap<ValueId, ValueId>) {
    for op in ops {
        if let Op::Stream { states, body, .. } = op {
            streams(facts, frames, body, out);
            let shared_next = |s: &State| states.iter().filter(|o| o.next == s.next).count() > 1;
            for s in states.iter().filter(|s| !shared_next(s)) {
                if let Some(chain) = chain(facts, frames, body, s) {
                    out.extend(chain.into_iter().map(|v| (v, s.value)));
                }
            }
        }
    }
}

/// The tiles from the next value back to the state, if each replaces the one before it for good.
fn chain(facts: &Facts<'_>, frames: &Frames, body: &[Op], state: &State) -> Option<Vec<ValueId>> {
    let mut links = vec![];
    let mut at = state.next;
    while at != state.value {
        let place = body.iter().position(|op| written(op) == Some(at))?;
        // A chunk that is skipped leaves the state as it was.
        if body[place..].iter().any(|op| matches!(op, Op::SkipUnless { .. })) {
            return None;
        }
        links.push(at);
        let mut candidates = replaced(facts, frames, &body[place], at);
        // Other operands may die here too; they lead back to the state only by chance.
        candidates.sort_by_key(|&v| v != state.value);
        at = candidates.into_iter().find(|&v| dies_here(facts, body, place, v) && made_here(body, place, v, state))?;
    }
    Some(links)
}

/// Tiles of the same layout that the operation reads element by element.
fn replaced(facts: &Facts<'_>, frames: &Frames, op: &Op, dst: ValueId) -> Vec<ValueId> {
    let mut out = vec![];
    match op {
        Op::Map { expr, .. } => leaves(expr, &mut |v| out.push(v)),
        Op::Mma { acc: Some(acc), .. } | Op::Reduce { acc: Some(acc), .. } => out.push(*acc),
        _ => {}
    }
    out.retain(|&v| {
        frames.of.get(&v) == frames.of.get(&dst)
            && facts.axes(v) == facts.axes(dst)
            && facts.carrier(v) == facts.carrier(dst)
    });
    out
}

/// Whether nothing after `place` in the stream's body, nor a nested stream, reads the tile.
fn dies_here(facts: &Facts<'_>, body: &[Op], place: usize, v: ValueId) -> bool {
    let mut later = false;
    let mut look = |op: &Op| super::facts::each_use(op, &mut |x, u| later |= x == v && !matches!(u, Use::Next(_)));
    super::facts::each_op(&body[place + 1..], &mut look);
    // Another state's next value is read after the body.
    !later && facts.uses[v.at()].iter().filter(|u| matches!(u, Use::Next(_))).count() == 0
}

/// The state itself, or a tile that this body made before.
fn made_here(body: &[Op], place: usize, v: ValueId, state: &State) -> bool {
    v == state.value || body[..place].iter().any(|op| written(op) == Some(v) && !matches!(op, Op::Load { .. }))
}
