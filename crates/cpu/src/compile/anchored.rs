//! Contractions whose results only become exponentials below an anchor, of which any number will do ([`einloom_tile::anchors`]).
//! If the anchor is not what the results' maximum is, but what an earlier one was, it is known beforehand: the results are
//! exponentiated while they are near, and are never in memory as a whole. Whether the exponentials stay small enough for that
//! shows when they are computed.

use super::{Ends, Leaf, Step, Tile, reads, writes};
use crate::compile::ElementKind;
use crate::kernels::fold::Monoid;
use einloom_tile::ValueId;
use std::collections::BTreeSet;

/// What follows a contraction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Anchored {
    /// Steps from the contraction to the map that takes the exponentials, and packs and sums them.
    pub map: usize,
    /// The same to the maps that make what is subtracted out of the reduction's result, in their order.
    pub less: Vec<usize>,
    /// Their results.
    pub ready: Vec<ValueId>,
}

/// Whether the rows are summed, if nothing else is wanted of them besides.
pub(crate) fn summed(ends: &Ends) -> Option<bool> {
    match ends.folds.as_slice() {
        [] => Some(false),
        [fold] if fold.monoid == Monoid::Sum && !fold.across => Some(true),
        _ => None,
    }
}

/// Whether scores of factors of so many parts become weights of so many.
fn weighs(scores: Option<[usize; 2]>, weights: Option<usize>) -> bool {
    matches!((scores, weights), (Some([1, 1]), Some(1)) | (Some([2 | 3, _]), Some(3)))
}

/// Finds such contractions; `anchors` are the reductions of which any result will do.
pub(super) fn find(anchors: &BTreeSet<ValueId>, steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            find(anchors, body, uses);
        }
        let found = follows(anchors, &steps[at..], uses);
        if let Step::Contract(c) = &mut steps[at] {
            c.anchored = found;
        }
    }
}

/// What follows the first of these steps.
fn follows(anchors: &BTreeSet<ValueId>, steps: &[Step], uses: &[usize]) -> Option<Anchored> {
    let Some(Step::Contract(c)) = steps.first() else { return None };
    let passing = c.fold.as_ref()?;
    // An earlier anchor is there to go on with.
    let fits = passing.fold.monoid == Monoid::Max && passing.fold.start.is_some() && passing.times > 0.0;
    if !fits
        || !anchors.contains(&passing.fold.dst)
        || c.parts.is_none()
        || c.start.is_some()
        || c.scale.is_some()
        || c.times != 1.0
    {
        return None;
    }
    let mut readers = vec![];
    for (at, step) in steps.iter().enumerate().skip(1) {
        match step {
            Step::Map { ends, .. } if reads(step).contains(&c.dst) && ends.passed != Some(c.dst) => readers.push(at),
            Step::Map { .. } if reads(step).contains(&c.dst) => {}
            _ if reads(step).contains(&c.dst) => return None,
            _ => {}
        }
    }
    let &[map] = readers.as_slice() else { return None };
    let between = &steps[1..map];
    let passed = between.iter().filter(|s| reads(s).contains(&c.dst)).count();
    let moves = |s: &Step| matches!(s, Step::SkipUnless { .. } | Step::Stream { .. });
    let Step::Map { plan, ends, .. } = &steps[map] else { return None };
    let makes = weighs(c.parts, ends.packed) && !ends.dropped && ends.store.is_none() && summed(ends).is_some();
    if uses[c.dst.at()] != 1 + passed || between.iter().any(moves) || !makes || !plan.exponentiates() {
        return None;
    }
    let mut wanted: BTreeSet<ValueId> = BTreeSet::new();
    for leaf in plan.variants.iter().flat_map(|v| &v.leaves) {
        if let Leaf::Tile(v, ElementKind::Outer) = leaf {
            wanted.insert(*v);
        }
    }
    let mut less = vec![];
    for at in (1..map).rev() {
        let step = &steps[at];
        let made = writes(step);
        if made.contains(&passing.fold.dst) || !made.iter().any(|v| wanted.contains(v)) {
            continue;
        }
        match step {
            Step::Map { ends, .. } if ends.is_empty() => {
                wanted.extend(reads(step));
                less.push(at);
            }
            _ => return None,
        }
    }
    less.reverse();
    let ready = less.iter().flat_map(|at| writes(&steps[*at])).collect();
    Some(Anchored { map, less, ready })
}

/// Leaves out those whose maps cannot run twice, since they overwrite what they read.
pub(super) fn check(tiles: &[Tile], steps: &mut [Step]) {
    for at in 0..steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            check(tiles, body);
        }
        let (before, rest) = steps.split_at_mut(at + 1);
        let Step::Contract(c) = &mut before[at] else { continue };
        let Some(Anchored { less, .. }) = &c.anchored else { continue };
        let mut own = vec![];
        let twice = less.iter().all(|more| {
            let step = &rest[more - 1];
            own.extend(writes(step));
            let kept =
                |v: &ValueId| own.contains(v) || writes(step).iter().all(|w| tiles[w.at()].slot != tiles[v.at()].slot);
            reads(step).iter().all(kept)
        });
        if !twice {
            c.anchored = None;
        }
    }
}
