//! Elements of loads that a program needs, where conditions on positions put some aside.

use super::flow::Flow;
use crate::gpu::uses::each;
use crate::nest::{Access, Loop};
use einloom_tile::{Affine, AxisId, CoordAtom, Kernel, Op, Scalar};
use std::collections::BTreeSet;

/// Positions are gone through one by one up to this many.
const COUNTED: usize = 1 << 16;

/// Of each load of which not everything is known to be needed, by its place, how many elements are at least.
pub(crate) fn needed_elements(kernel: &Kernel, depends: &[BTreeSet<AxisId>], accesses: &[Access]) -> Vec<(usize, u64)> {
    let mut chooses = false;
    each(&kernel.body, &mut |op| chooses |= matches!(op, Op::Map { expr, .. } if has_choice(expr)));
    if !chooses {
        return vec![];
    }
    let flow = Flow::new(kernel, depends);
    let loads = accesses.iter().enumerate().filter(|(_, a)| !a.store);
    let one = |(k, a): (usize, &Access)| match flow.needed(a.tile) {
        Some(conditions) => {
            let left = beyond(conditions, &a.loops);
            (!left.is_empty()).then(|| (k, elements(kernel, a, left)))
        }
        None => Some((k, 0)),
    };
    loads.filter_map(one).collect()
}

/// Conditions that loops do not have already.
pub(super) fn beyond(conditions: Vec<Affine>, loops: &[Loop]) -> Vec<Affine> {
    let sorted = |e: &Affine| {
        let mut terms = e.terms.clone();
        terms.sort_by_key(|t| t.1);
        (terms, e.constant)
    };
    let there: Vec<_> = loops.iter().flat_map(Loop::conditions).map(sorted).collect();
    conditions.into_iter().filter(|e| !there.contains(&sorted(e))).collect()
}

/// Elements of a load for which conditions hold somewhere, at least: none where that is not simple.
fn elements(kernel: &Kernel, access: &Access, conditions: Vec<Affine>) -> u64 {
    let mut own = BTreeSet::new();
    for coord in &access.at {
        match coord.terms.as_slice() {
            [] => {}
            [(_, CoordAtom::Axis(a))] if own.insert(*a) => {}
            _ => return 0,
        }
    }
    if access.filled || access.loops.iter().any(|l| !l.conditions().is_empty()) {
        return 0;
    }
    let extent = |a: AxisId| kernel.axis(a).extent;
    // Of an element it is enough that a condition holds at one position of the axes that it lacks; of several conditions that would be several positions.
    let mut others = 0;
    let mut of_own = vec![];
    for mut e in conditions {
        let most: i64 =
            e.terms.iter().filter(|t| !own.contains(&t.1)).map(|t| (t.0 * (extent(t.1) as i64 - 1)).max(0)).sum();
        let all = e.terms.len();
        e.terms.retain(|t| own.contains(&t.1));
        others += usize::from(e.terms.len() < all);
        e.constant += most;
        of_own.push(e);
    }
    let axes: Vec<AxisId> =
        of_own.iter().flat_map(|e| &e.terms).map(|t| t.1).collect::<BTreeSet<_>>().into_iter().collect();
    let count = axes.iter().map(|&a| extent(a)).try_fold(1usize, usize::checked_mul);
    let Some(count) = count.filter(|&n| n <= COUNTED && others < 2) else { return 0 };
    let holds = |mut place: usize| {
        let at: Vec<(AxisId, i64)> = axes
            .iter()
            .map(|&a| {
                let position = place % extent(a);
                place /= extent(a);
                (a, position as i64)
            })
            .collect();
        let position = |a: AxisId| at.iter().find(|p| p.0 == a).map_or(0, |p| p.1);
        of_own.iter().all(|e| e.terms.iter().map(|t| t.0 * position(t.1)).sum::<i64>() + e.constant >= 0)
    };
    let met = (0..count).filter(|&place| holds(place)).count() as u64;
    let free = own.iter().filter(|a| !axes.contains(a)).map(|&a| extent(a) as u64);
    free.fold(met, u64::saturating_mul)
}

fn has_choice(expr: &Scalar) -> bool {
    match expr {
        Scalar::Select(..) => true,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => has_choice(x),
        Scalar::Binary(_, x, y) => has_choice(x) || has_choice(y),
        _ => false,
    }
}
