//! The order in which loops are enumerated soonest.

use super::{Step, Together};
use einloom_tile::{Affine, Kernel, Predicate};
use std::borrow::Cow;
use std::sync::Arc;

/// One that is added up, of many windows, stands outside the last one only, for two loops are summed without a walk. It passes those whose ranges
/// do not depend on it, and of which not only the largest counts. A condition of one that it passes may be about it and others and not about
/// that one's own positions: then it bounds those of the loop that passes, which leaves the lengths of its windows as they are if it cuts
/// whole windows from the beginning, or all have one position.
pub(super) fn in_turn<'s>(kernel: &Kernel, steps: &'s [Step]) -> Cow<'s, [Step]> {
    // Guards need the windows that they depend on.
    let guarded = steps.iter().any(|s| !s.guards.is_empty());
    let Some(place) = steps.len().checked_sub(2).filter(|&p| p > 0 && !guarded) else { return Cow::Borrowed(steps) };
    let tile = |k: usize| kernel.axis(steps[k].axis).tile;
    let count = |k: usize| steps[k].extent.div_ceil(tile(k));
    let goes_along = |k: usize, s: &Step, c: &Affine| {
        c.coefficient(s.axis) == 0 && (tile(k) == 1 || c.coefficient(steps[k].axis) > 0)
    };
    let passes = |k: usize| {
        let past = |s: &Step| s.together != Together::Largest && about(&steps[k], s).all(|c| goes_along(k, s, c));
        steps[k].together == Together::Each && steps[k + 1..=place].iter().all(past)
    };
    let most = (0..place).filter(|&k| passes(k)).max_by_key(|&k| count(k)).filter(|&k| count(k) > count(place));
    let Some(k) = most else { return Cow::Borrowed(steps) };
    let mut steps = steps.to_vec();
    steps[k..=place].rotate_left(1);
    let (before, own) = steps[k..=place].split_at_mut(place - k);
    let own = &mut own[0];
    for s in before {
        let along: Vec<Affine> = about(own, s).cloned().collect();
        if along.is_empty() {
            continue;
        }
        let rest = s.within.iter().flat_map(|w| &w.all).filter(|c| !along.contains(c)).cloned().collect();
        s.within = Some(Arc::new(Predicate { all: rest }));
        let all = own.within.iter().flat_map(|w| w.all.clone()).chain(along).collect();
        own.within = Some(Arc::new(Predicate { all }));
    }
    Cow::Owned(steps)
}

/// The conditions of a loop that are about another one.
fn about<'s>(other: &Step, of: &'s Step) -> impl Iterator<Item = &'s Affine> + use<'s> {
    let axis = other.axis;
    of.within.iter().flat_map(|w| &w.all).filter(move |c| c.coefficient(axis) != 0)
}
