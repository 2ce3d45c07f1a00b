//! Tiles of truth values that are held as bits: comparisons of integers, and what is loaded as truth values, of which nothing is wanted but
//! what maps choose by them and whether there is any.

use super::{Carrier, ElementKind, Leaf, Step, Tile, Viewable, each_step, reads};
use crate::kernels::strip::{self, Operand};
use einloom_cascade::DType;
use einloom_tile::{Program, ValueId};
use std::collections::BTreeSet;

/// Finds them.
pub(super) fn find(program: &Program, tiles: &[Tile], steps: &mut [Step], uses: &[usize]) {
    let mut found = BTreeSet::new();
    each_step(steps, &mut |step| found.extend(compared(tiles, step).or_else(|| loaded(program, tiles, step))));
    found.retain(|v| {
        let mut readers = 0;
        each_step(steps, &mut |step| readers += usize::from(reads(step).contains(v) && chooses(step, *v)));
        readers == uses[v.at()]
    });
    mark(steps, &found);
}

fn mark(steps: &mut [Step], found: &BTreeSet<ValueId>) {
    for step in steps {
        match step {
            Step::Map { dst, ends, .. } => ends.bits = found.contains(dst),
            Step::Load { dst, view, .. } if found.contains(dst) => *view = Viewable::Bits,
            Step::Stream { body, .. } => mark(body, found),
            _ => {}
        }
    }
}

/// The tile of two axes that is loaded as truth values.
fn loaded(program: &Program, tiles: &[Tile], step: &Step) -> Option<ValueId> {
    let Step::Load { dst, tensor, access, .. } = step else { return None };
    let tile = tiles[dst.at()];
    let truths = program.tensor(*tensor).dtype == DType::B1 && tile.dtype == DType::B1;
    (truths && access.is_adjacent() && tile.outer.is_some() && tile.inner.is_some()).then_some(*dst)
}

/// The tile of two axes that a map makes, if it compares two tiles of integers, and no more.
fn compared(tiles: &[Tile], step: &Step) -> Option<ValueId> {
    let Step::Map { dst, plan, ends } = step else { return None };
    let tile = tiles[dst.at()];
    let compares = plan.variants.iter().all(|strips| match *strips.steps.as_slice() {
        [
            strip::Step::Copy { d: 0, from: Operand::Leaf(x) },
            strip::Step::Binary { op, d: 0, with: Operand::Leaf(y), .. },
        ] => {
            let integers = |leaf: u16| match strips.leaves[usize::from(leaf)] {
                Leaf::Tile(v, _) => tiles[v.at()].carrier == Carrier::I32,
                _ => false,
            };
            op.is_comparison() && integers(x) && integers(y)
        }
        _ => false,
    });
    let plain = ends.is_empty() && !ends.dropped && ends.packed.is_none() && ends.passed.is_none();
    let both = tile.outer.is_some() && tile.inner.is_some();
    (compares && plain && both && tile.dtype == DType::B1).then_some(*dst)
}

/// Whether a step skips by it, or reads it element by element and its result does not take its place.
fn chooses(step: &Step, v: ValueId) -> bool {
    match step {
        Step::SkipUnless { .. } => true,
        Step::Map { plan, ends, .. } => {
            let is = |leaf: &Leaf| matches!(leaf, Leaf::Tile(of, _) if *of == v);
            let beside = ends.folds.iter().all(|f| f.start != Some(v));
            beside
                && plan.variants.iter().all(|strips| {
                    let full = |leaf: &Leaf| !is(leaf) || *leaf == Leaf::Tile(v, ElementKind::Full);
                    let first = strips.first.is_some_and(|first| is(&strips.leaves[usize::from(first)]));
                    strips.leaves.iter().all(full) && !first
                })
        }
        _ => false,
    }
}
