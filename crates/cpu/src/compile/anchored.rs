//! Contractions whose results only become exponentials below an anchor, of which any number will do ([`einloom_tile::anchors`]).
//! If the anchor is not what the results' maximum is, but what an earlier one was, it is known beforehand: the results are
//! exponentiated while they are near, and are never in memory as a whole. Whether the exponentials stay small enough for that
//! shows when they are computed.

use super::{Ends, Fold, Leaf, Passing, Step, Tile, reads, writes};
use crate::compile::ElementKind;
use crate::kernels::fold::Monoid;
use einloom_tile::ValueId;
use std::collections::BTreeSet;

/// What follows a contraction.
#[derive(Clone, Debug)]
pub(crate) struct Anchored {
    /// The map that follows at once, if it changes the results first, and the reduction of what it makes of them.
    pub between: Option<Passing>,
    /// Steps from the contraction to the map that takes the exponentials, and packs and sums them.
    pub map: usize,
    /// The same to the maps that make what is subtracted out of the reduction's result, in their order.
    pub less: Vec<usize>,
    /// Results of the maps that have run, or need not, if the exponentials are made at once.
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
pub(super) fn find(tiles: &[Tile], anchors: &BTreeSet<ValueId>, steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            find(tiles, anchors, body, uses);
        }
        if let Some(to) = changed(tiles, &steps[at..], uses)
            && !packs(&steps[at + to])
        {
            // What the map reads besides has to be there.
            steps[at..at + to].rotate_left(1);
        }
        let found = follows(tiles, anchors, &steps[at..], uses);
        if let Step::Contract(c) = &mut steps[at] {
            c.anchored = found;
        }
    }
}

/// Steps from the first of these, a contraction that only one map reads, first and element by element, to that map, which could follow
/// at once.
pub(super) fn changed(tiles: &[Tile], steps: &[Step], uses: &[usize]) -> Option<usize> {
    let Some(Step::Contract(c)) = steps.first() else { return None };
    if c.fold.is_some() || c.parts != Some([1, 1]) || c.start.is_some() || c.scale.is_some() || uses[c.dst.at()] != 1 {
        return None;
    }
    let to = steps.iter().skip(1).position(|s| reads(s).contains(&c.dst))? + 1;
    let Step::Map { dst, plan, ends } = &steps[to] else { return None };
    let sides = |v: ValueId| (tiles[v.at()].outer, tiles[v.at()].inner, tiles[v.at()].carrier);
    let plain = ends.store.is_none() && !ends.dropped && ends.passed.is_none();
    let fits = plan.reads_first(c.dst) && sides(*dst) == sides(c.dst) && plain && c.times.is_normal();
    (fits && !steps[1..to].iter().any(moves)).then_some(to)
}

fn packs(step: &Step) -> bool {
    matches!(step, Step::Map { ends, .. } if ends.packed.is_some())
}

fn moves(step: &Step) -> bool {
    matches!(step, Step::SkipUnless { .. } | Step::Stream { .. })
}

/// The map that follows at once and changes the results of the first step, which nothing else reads, if there is one: its result, and
/// the reduction of its rows, which it or the map after it makes; and the latter's result.
fn between(tiles: &[Tile], steps: &[Step], uses: &[usize]) -> Option<(ValueId, Passing, Option<ValueId>)> {
    if changed(tiles, steps, uses) != Some(1) || packs(&steps[1]) {
        return None;
    }
    let Step::Map { dst, ends, .. } = &steps[1] else { return None };
    let passing = |fold: &Fold, unless| Passing { fold: fold.clone(), times: 1.0, unless, only: false };
    match (ends.folds.as_slice(), steps.get(2)) {
        ([fold], _) if !fold.across => Some((*dst, passing(fold, None), None)),
        ([], Some(Step::Map { dst: other, plan, ends })) => {
            let [fold] = ends.folds.as_slice() else { return None };
            let only = ends.dropped && ends.store.is_none() && !fold.across && fold.start != Some(*dst);
            (only && plan.reads_first(*dst)).then(|| (*dst, passing(fold, Some(plan.clone())), Some(*other)))
        }
        _ => None,
    }
}

/// What follows the first of these steps.
fn follows(tiles: &[Tile], anchors: &BTreeSet<ValueId>, steps: &[Step], uses: &[usize]) -> Option<Anchored> {
    let Some(Step::Contract(c)) = steps.first() else { return None };
    let between = between(tiles, steps, uses);
    let passing = between.as_ref().map(|(_, passing, _)| passing).or(c.fold.as_ref())?;
    let of = between.as_ref().map_or(c.dst, |(of, ..)| *of);
    let looks_on = between.as_ref().and_then(|(.., other)| *other);
    // An earlier anchor is there to go on with.
    let fits = passing.fold.monoid == Monoid::Max && passing.fold.start.is_some() && passing.times > 0.0;
    if !fits
        || !anchors.contains(&passing.fold.dst)
        || c.parts.is_none()
        || c.start.is_some()
        || c.scale.is_some()
        || between.is_none() && c.times != 1.0
    {
        return None;
    }
    let mut readers = vec![];
    for (at, step) in steps.iter().enumerate().skip(1) {
        match step {
            _ if !reads(step).contains(&of) => {}
            Step::Map { dst, .. } if looks_on == Some(*dst) => {}
            Step::Map { ends, .. } if ends.passed != Some(of) => readers.push(at),
            Step::Map { .. } => {}
            _ => return None,
        }
    }
    let &[map] = readers.as_slice() else { return None };
    let passed = steps[1..map].iter().filter(|s| reads(s).contains(&of)).count();
    let Step::Map { plan, ends, .. } = &steps[map] else { return None };
    let makes = weighs(c.parts, ends.packed) && !ends.dropped && ends.store.is_none() && summed(ends).is_some();
    if uses[of.at()] != 1 + passed || steps[1..map].iter().any(moves) || !makes || !plan.exponentiates() {
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
    let mut ready: Vec<ValueId> = less.iter().flat_map(|at| writes(&steps[*at])).collect();
    if let Some((of, _, other)) = &between {
        ready.extend(other.iter().chain([of]));
    }
    Some(Anchored { between: between.map(|(_, passing, _)| passing), map, less, ready })
}

/// Leaves out those whose maps cannot run twice, since they overwrite what they read.
pub(super) fn check(tiles: &[Tile], steps: &mut [Step]) {
    for at in 0..steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            check(tiles, body);
        }
        let (before, rest) = steps.split_at_mut(at + 1);
        let Step::Contract(c) = &mut before[at] else { continue };
        let Some(Anchored { less, between, .. }) = &c.anchored else { continue };
        // What steps read that come before such a map, and run after it, has to stay.
        let (mut own, mut kept) = (vec![], vec![c.left, c.right]);
        let apart = |made: &[ValueId], kept: &[ValueId]| {
            made.iter().all(|w| kept.iter().all(|v| v == w || tiles[w.at()].slot != tiles[v.at()].slot))
        };
        if let (Some(passing), Some(step)) = (between, rest.first()) {
            kept.extend(reads(step).into_iter().filter(|v| Some(*v) != passing.fold.start && *v != c.dst));
        }
        let mut twice = between.as_ref().is_none_or(|passing| apart(&[passing.fold.dst], &kept));
        for (number, step) in rest.iter().enumerate().take_while(|(number, _)| Some(number + 1) <= less.last().copied())
        {
            let made = writes(step);
            if !less.contains(&(number + 1)) {
                kept.extend(reads(step).into_iter().filter(|v| *v != c.dst));
                continue;
            }
            own.extend(&made);
            let others: Vec<ValueId> = reads(step).into_iter().filter(|v| !own.contains(v)).collect();
            twice &= apart(&made, &others) && apart(&made, &kept);
        }
        if !twice {
            c.anchored = None;
        }
    }
}
