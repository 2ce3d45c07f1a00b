//! Loads that wait until they are needed: a vector of numbers that only scales what is stored (the weights of a
//! normalisation) is loaded piece by piece where the result is stored, and takes no registers before.

use super::access::{adjacent, affine};
use super::facts::{Facts, Use, leaves};
use super::frames::Frames;
use super::inline::definition;
use super::packing::in_vectors;
use super::{Arrangement, Side};
use einloom_tile::{Coord, Op, TensorId, ValueId};
use std::collections::BTreeSet;

/// Adds the loads to the tiles that are computed where they are read.
pub(super) fn choose(facts: &Facts<'_>, frames: &Frames, inlined: &mut BTreeSet<ValueId>) {
    for op in &facts.kernel.body {
        if let Op::Store { src, tensor, at } = op
            && inlined.contains(src)
            && vectors(facts, frames, *src, *tensor, at)
        {
            let mut late = vec![];
            each_leaf(facts, inlined, *src, &mut |v| late.push(v));
            late.retain(|&v| waits(facts, frames, inlined, *src, v));
            inlined.extend(late);
        }
    }
}

/// Calls `f` with every held tile that an inlined one is computed from.
pub(crate) fn each_leaf(facts: &Facts<'_>, inlined: &BTreeSet<ValueId>, v: ValueId, f: &mut dyn FnMut(ValueId)) {
    match definition(facts, v) {
        Some(expr) if inlined.contains(&v) => leaves(expr, &mut |x| each_leaf(facts, inlined, x, f)),
        _ => f(v),
    }
}

/// Whether a store moves whole vectors of neighbours only: see `Emitter::store`.
fn vectors(facts: &Facts<'_>, frames: &Frames, src: ValueId, tensor: TensorId, at: &[Coord]) -> bool {
    let Some(frame) = frames.of.get(&src).map(|f| &frames.frames[f.0]) else { return false };
    let Arrangement::Blocked { vector, .. } = frame.arrangement else { return false };
    let across = facts.axes(src).into_iter().find(|a| frame.sides.get(a) == Some(&Side::Across));
    across.is_some_and(|a| {
        let extent = facts.kernel.axis(a).extent;
        affine(facts, at, &facts.axes(src))
            && adjacent(facts, tensor, at, a).is_multiple_of(vector)
            && extent.is_multiple_of(vector)
    })
}

/// Whether the tile is loaded in vectors, read by this store alone, and by each thread once.
fn waits(facts: &Facts<'_>, frames: &Frames, inlined: &BTreeSet<ValueId>, src: ValueId, v: ValueId) -> bool {
    let [Use::Leaf(d)] = facts.uses[v.at()].as_slice() else { return false };
    let Some(f) = frames.of.get(&src) else { return false };
    let frame = &frames.frames[f.0];
    let along = |v: ValueId, side| facts.axes(v).into_iter().find(|a| frame.sides.get(a) == Some(&side));
    let rows = along(src, Side::Down).map_or(1, |a| frame.span(Side::Down, facts.size(a)).count);
    let same = along(v, Side::Across).is_some() && along(v, Side::Across) == along(src, Side::Across);
    let once = facts.axes(v) == facts.axes(src) || rows == 1;
    let loaded = facts.kernel.body.iter().any(|op| match op {
        Op::Load { dst, tensor, at, fill: None } => *dst == v && in_vectors(facts, frames, v, *tensor, at),
        _ => false,
    });
    loaded && inlined.contains(d) && frames.of.get(&v) == Some(f) && same && once
}
