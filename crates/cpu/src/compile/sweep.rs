//! Joins what only looks at a map's elements to the map: reductions along its rows and a store of its rows see each
//! strip while it is in the first-level cache, and a tile that nothing else reads is never in memory. Tiles that are
//! only read strip by strip need not be copied or converted first either: they are read where the tensor is.

use super::{Access, Carrier, Ends, ExpressionPlan, Fold, Leaf, Step, Tile, Viewable, each_step, reads, writes};
use crate::compile::ElementKind;
use crate::kernels::fold::Monoid;
use einloom_cascade::DType;
use einloom_tile::{Kernel, Program, Scalar, TensorId, TileMonoid, ValueDecl, ValueId};
use std::collections::BTreeSet;

/// Joins what can be joined in all of `steps`.
pub(super) fn join(program: &Program, kernel: &mut Kernel, tiles: &mut Vec<Tile>, steps: &mut Vec<Step>) {
    let mut uses = super::uses(tiles, steps);
    let encoded = encoded(program, tiles, steps);
    read_where_they_are(kernel, tiles, steps, &encoded, &mut uses);
    body(program, tiles, steps, &mut uses);
    for (v, encoded) in encoded.iter().enumerate() {
        let rows = only_rows(tiles, steps, ValueId(v as u32));
        if *encoded || rows {
            allow(steps, ValueId(v as u32), *encoded);
        }
    }
}

/// The reduction of a row that a strip's elements can be added to.
fn built_in(monoid: &TileMonoid) -> Option<Monoid> {
    match monoid {
        TileMonoid::Sum => Some(Monoid::Sum),
        TileMonoid::Prod => Some(Monoid::Prod),
        TileMonoid::Max => Some(Monoid::Max),
        TileMonoid::Min => Some(Monoid::Min),
        TileMonoid::Custom { .. } => None,
    }
}

/// The reduction, if it is one along rows in f32.
pub(super) fn fold(tiles: &[Tile], step: &Step) -> Option<(ValueId, Fold)> {
    let Step::Reduce { dst, src, axis, monoid, start } = step else { return None };
    let floats = |v: ValueId| tiles[v.at()].carrier == Carrier::F32;
    let along = tiles[src.at()].inner == Some(*axis);
    let fold = Fold { dst: *dst, monoid: built_in(monoid)?, start: *start, across: false };
    (along && floats(*src) && floats(*dst) && start.is_none_or(floats)).then_some((*src, fold))
}

/// The same for one across rows, whose results are a row.
fn fold_across(tiles: &[Tile], step: &Step) -> Option<(ValueId, Fold)> {
    let Step::Reduce { dst, src, axis, monoid, start } = step else { return None };
    let floats = |v: ValueId| tiles[v.at()].carrier == Carrier::F32;
    let across = tiles[src.at()].outer == Some(*axis);
    let fold = Fold { dst: *dst, monoid: built_in(monoid)?, start: *start, across };
    (across && floats(*src) && floats(*dst) && start.is_none_or(floats)).then_some((*src, fold))
}

/// The store, if its rows are adjacent in memory and need at most a rounding.
fn stored<'a>(program: &Program, step: &'a Step) -> Option<(ValueId, TensorId, &'a Access)> {
    let Step::Store { tensor, access, src } = step else { return None };
    let adjacent = access.dimensions.iter().map(|d| d.inner * d.stride as i64).sum::<i64>() == 1;
    let plain = matches!(program.tensor(*tensor).dtype, DType::F32 | DType::Bf16 | DType::F16);
    (adjacent && plain).then_some((*src, *tensor, access))
}

/// Moves reductions of what maps make before what else reads it, with the maps that they need for that, so that they see its strips.
fn reduce_first(tiles: &[Tile], steps: &mut [Step]) {
    let mut at = 0;
    while at < steps.len() {
        if let Some(dst) = joinable(tiles, &steps[at])
            && let Some(first) = steps[at + 1..].iter().position(|s| reads_in(s, dst)).map(|k| at + 1 + k)
            && fold(tiles, &steps[first]).is_none()
            && let Some(moved) = before(tiles, steps, first, dst)
        {
            for (number, from) in moved.into_iter().enumerate() {
                steps[first + number..=from].rotate_right(1);
            }
        }
        at += 1;
    }
}

/// Where the steps are, in their order, that would have to go before the step at `first` for a reduction of `dst` to go there; `None` if there is
/// none, or if it cannot.
fn before(tiles: &[Tile], steps: &[Step], first: usize, dst: ValueId) -> Option<Vec<usize>> {
    let stays = |s: &Step| matches!(s, Step::Stream { .. } | Step::SkipUnless { .. });
    let end = steps[first..].iter().position(stays).map_or(steps.len(), |k| first + k);
    let reduction = (first..end).find(|&k| fold(tiles, &steps[k]).is_some_and(|(src, _)| src == dst))?;
    let (mut needed, mut moved) = (BTreeSet::from_iter(reads(&steps[reduction])), vec![reduction]);
    for k in (first..reduction).rev() {
        if !writes(&steps[k]).iter().any(|v| needed.contains(v)) {
            continue;
        }
        match &steps[k] {
            Step::Map { ends, .. } if ends.is_empty() => {}
            _ => return None,
        }
        needed.extend(reads(&steps[k]));
        moved.push(k);
    }
    moved.reverse();
    Some(moved)
}

fn body(program: &Program, tiles: &[Tile], steps: &mut Vec<Step>, uses: &mut [usize]) {
    reduce_first(tiles, steps);
    let mut at = 0;
    while at < steps.len() {
        if let Step::Stream { body: inner, .. } = &mut steps[at] {
            body(program, tiles, inner, uses);
        }
        // What nobody reads is not computed.
        if let Step::Map { dst, plan: _, ends } = &steps[at]
            && ends.is_empty()
            && uses[dst.at()] == 0
        {
            steps.remove(at);
            continue;
        }
        // The map moves to where its elements are first needed: nothing in between reads or writes them.
        let first = joinable(tiles, &steps[at]).and_then(|dst| {
            let after = steps[at + 1..].iter().position(|s| reads_in(s, dst))?;
            Some((dst, at + 1 + after))
        });
        if let Some((dst, first)) = first {
            let mut ends = Ends::default();
            let mut end = first;
            while end < steps.len() && ends.store.is_none() {
                let fold = fold(tiles, &steps[end]).or_else(|| fold_across(tiles, &steps[end]));
                match (fold, stored(program, &steps[end])) {
                    (Some((src, fold)), _) if src == dst && fold.start != Some(dst) => ends.folds.push(fold),
                    (_, Some((src, tensor, access))) if src == dst => ends.store = Some((tensor, access.clone())),
                    _ => break,
                }
                end += 1;
                uses[dst.at()] -= 1;
            }
            if end > first {
                ends.dropped = uses[dst.at()] == 0;
                let mut map = steps.remove(at);
                if let Step::Map { ends: place, plan, .. } = &mut map {
                    // What is stored and nothing else is rounded when it is encoded.
                    if let Some((tensor, _)) = ends.store.as_ref().filter(|_| ends.dropped && ends.folds.is_empty()) {
                        plan.leave_rounding(program.tensor(*tensor).dtype);
                    }
                    *place = ends;
                }
                steps.splice(first - 1..end - 1, [map]);
                // What is at `at` now has not been looked at, unless it is the map itself.
                at += usize::from(first == at + 1);
                continue;
            }
        }
        at += 1;
    }
}

/// The result of a map that strips of f32 are computed for.
fn joinable(tiles: &[Tile], step: &Step) -> Option<ValueId> {
    match step {
        Step::Map { dst, plan, ends } if !plan.wide && ends.is_empty() => {
            let tile = tiles[dst.at()];
            (tile.carrier == Carrier::F32 && tile.inner.is_some()).then_some(*dst)
        }
        _ => None,
    }
}

fn reads_in(step: &Step, v: ValueId) -> bool {
    let mut found = false;
    each_step(std::slice::from_ref(step), &mut |s| {
        found |= reads(s).contains(&v);
        if let Step::Stream { states, .. } = s {
            found |= states.iter().any(|s| s.value == v || s.next == v);
        }
    });
    found
}

/// Whether a strip can be converted where it is read: every value of `dtype` is an f32.
fn converts(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::F16)
}

/// Which values are loads whose elements are converted, and are only read row by row in f32.
fn encoded(program: &Program, tiles: &[Tile], steps: &[Step]) -> Vec<bool> {
    let mut loaded = vec![false; tiles.len()];
    each_step(steps, &mut |step| {
        if let Step::Load { dst, tensor, .. } = step {
            let (from, to) = (program.tensor(*tensor).dtype, tiles[dst.at()].dtype);
            loaded[dst.at()] = converts(from) && (to == from || to == DType::F32);
        }
    });
    (0..tiles.len()).map(|v| loaded[v] && only_rows(tiles, steps, ValueId(v as u32))).collect()
}

/// Whether everything that reads `v`, if anything does, goes through it row by row in f32.
fn only_rows(tiles: &[Tile], steps: &[Step], v: ValueId) -> bool {
    let (mut rows, mut any) = (tiles[v.at()].inner.is_some(), false);
    each_step(steps, &mut |step| {
        let count = reads(step).iter().filter(|r| **r == v).count();
        any |= count > 0;
        rows &= match step {
            Step::Map { plan, ends, .. } if count > 0 => {
                let leaf = |l: &Leaf| match l {
                    Leaf::Tile(t, kind) if *t == v => matches!(kind, ElementKind::Full | ElementKind::Inner),
                    _ => true,
                };
                !plan.wide
                    && plan.variants.iter().flat_map(|s| &s.leaves).all(leaf)
                    && ends.folds.iter().all(|f| f.start != Some(v))
            }
            Step::Reduce { start, .. } if count > 0 => *start != Some(v) && fold(tiles, step).is_some(),
            Step::Stream { states, .. } => count == 0 && states.iter().all(|s| s.value != v && s.next != v),
            _ => count == 0,
        };
    });
    rows && any
}

/// Lets the load of `v` leave the elements where they are.
fn allow(steps: &mut [Step], v: ValueId, encoded: bool) {
    for step in steps {
        match step {
            Step::Load { dst, view, .. } if *dst == v => match (*view, encoded) {
                (_, true) => *view = Viewable::Encoded,
                (Viewable::Near, false) => *view = Viewable::Rows,
                _ => {}
            },
            Step::Stream { body, .. } => allow(body, v, encoded),
            _ => {}
        }
    }
}

/// Reductions of encoded tiles become maps that change nothing, whose strips are reduced.
fn read_where_they_are(
    kernel: &mut Kernel,
    tiles: &mut Vec<Tile>,
    steps: &mut [Step],
    encoded: &[bool],
    uses: &mut Vec<usize>,
) {
    for step in steps {
        if let Step::Stream { body, .. } = step {
            read_where_they_are(kernel, tiles, body, encoded, uses);
        }
        let Some((src, fold)) = fold(tiles, step) else { continue };
        if encoded.get(src.at()) != Some(&true) {
            continue;
        }
        let (dst, from) = (ValueId(tiles.len() as u32), tiles[src.at()]);
        let name = kernel.value(src).name.clone();
        kernel.values.push(ValueDecl { name, rows: from.outer, cols: from.inner, dtype: DType::F32 });
        tiles.push(Tile { dtype: DType::F32, ..from });
        uses.push(0);
        let plan = ExpressionPlan::new(tiles[dst.at()], &Scalar::Tile(src), false, tiles);
        *step = Step::Map { dst, plan, ends: Ends { folds: vec![fold], dropped: true, ..Ends::default() } };
    }
}
