//! How many elements of tiles must be in a memory at once, if a program places them as tightly as it can.

use crate::gpu::registers::Moments;
use crate::gpu::uses::{fused, reads};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
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
    Held::new(kernel).elements(kernel)
}

/// What a kernel holds, found once for all sizes of its tiles.
#[derive(Clone, Debug)]
pub struct Held {
    moments: Moments,
    /// By tile.
    sides: Vec<Vec<AxisId>>,
}

impl Held {
    /// Of this kernel, and of all that differ from it in extents and tiles alone.
    pub fn new(kernel: &Kernel) -> Self {
        // Other operations still read their operands while they write.
        let replaces = |op: &Op, v: ValueId| match op {
            Op::Map { .. } => true,
            Op::Mma { acc, .. } | Op::Reduce { acc, .. } => acc.is_some_and(|a| a == v),
            other => reads(other).is_empty(),
        };
        let all = (0..kernel.values.len() as u32).map(ValueId);
        Self {
            moments: Moments::new(kernel, &fused(kernel), &replaces).distinct(),
            sides: all.map(|v| sides(kernel, v).into_iter().collect()).collect(),
        }
    }

    /// [`held_elements`] of a kernel with these tiles.
    pub fn elements(&self, kernel: &Kernel) -> u64 {
        self.with(kernel, &BTreeSet::new())
    }

    /// The same where some tiles stay from one point of the grid, or one chunk, to the next: nothing takes their place
    /// meanwhile.
    pub(crate) fn with(&self, kernel: &Kernel, kept: &BTreeSet<ValueId>) -> u64 {
        let side = |a: &AxisId| kernel.axis(*a).tile.min(kernel.axis(*a).extent) as f64;
        let size = |v: ValueId| self.sides[v.at()].iter().map(side).product::<f64>();
        self.moments.most(kernel, &size, kept) as u64
    }
}
