//! How many elements of tiles must be in a memory at once, if a program places them as tightly as it can.

use crate::gpu::registers::peak;
use crate::gpu::uses::{fused, reads};
use crate::nest::sides;
use einloom_tile::{Kernel, Op, ValueId};
use std::collections::BTreeSet;

/// The most elements of tiles that are alive at once at one point of the grid. Accumulators are updated in place, and so
/// are tiles by maps that are their last reader; a map that is read once is computed where it is read. Clipped tiles
/// count as full ones.
///
/// ```
/// use einloom_cascade::DType::F32;
/// // Three tiles: 64 x 128 sums, 64 x 32 of one factor and 32 x 128 of the other.
/// let program = einloom_tile::by_hand::matmul([256, 256, 256], [64, 128, 32], F32).expect("well-formed");
/// assert_eq!(einloom_model::held_elements(&program.kernels[0]), 64 * 128 + 64 * 32 + 32 * 128);
/// ```
pub fn held_elements(kernel: &Kernel) -> u64 {
    held_with(kernel, &BTreeSet::new())
}

/// The same where some tiles stay from one point of the grid, or one chunk, to the next: nothing takes their place meanwhile.
pub(crate) fn held_with(kernel: &Kernel, kept: &BTreeSet<ValueId>) -> u64 {
    let size = |v: ValueId| {
        let each = sides(kernel, v).into_iter().map(|a| kernel.axis(a).tile.min(kernel.axis(a).extent) as f64);
        each.product::<f64>()
    };
    // Other operations still read their operands while they write.
    let replaces = |op: &Op, v: ValueId| match op {
        Op::Map { .. } => true,
        Op::Mma { acc, .. } | Op::Reduce { acc, .. } => acc.is_some_and(|a| a == v),
        other => reads(other).is_empty(),
    };
    peak(kernel, &fused(kernel), &size, &replaces, kept) as u64
}
