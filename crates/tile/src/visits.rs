//! In which order the points of a kernel's grid are visited.
//!
//! The blocks of the outermost memory that keeps some come one after the other, and in each of them its points; both in the order
//! of the grid's axes, the last one fastest. See [`Block`](crate::Block).

use crate::{AxisId, Kernel, Op, Predicate, grid_steps};

/// An axis of the grid on the way through its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The axis.
    pub axis: AxisId,
    /// Windows that it has.
    pub steps: usize,
    /// Windows in a block; the last block may have fewer.
    pub side: usize,
}

/// The axes of the grid, outermost first. A kernel without blocks is one block.
pub fn visits(kernel: &Kernel) -> Vec<Visit> {
    let block = kernel.blocks.first();
    let visit = |&axis: &AxisId| {
        let decl = kernel.axis(axis);
        let steps = grid_steps(decl);
        let side = block.map_or(steps, |b| {
            let own = b.sides.iter().find(|s| s.0 == axis).map_or(decl.tile, |s| s.1);
            own.div_ceil(decl.tile.max(1))
        });
        Visit { axis, steps, side: side.clamp(1, steps.max(1)) }
    };
    kernel.grid.iter().map(visit).collect()
}

/// Per axis whether streams are longer (positive) or shorter (negative) at its later windows.
///
/// Both bounds of a stream's range are affine in the other axes: the upper one grows with those whose coefficient is
/// positive, and the lower one falls.
pub fn lengthens(kernel: &Kernel) -> Vec<i64> {
    fn of(ops: &[Op], out: &mut [i64]) {
        for op in ops {
            if let Op::Stream { axis, within, body, .. } = op {
                bounds(*axis, within, out);
                of(body, out);
            }
        }
    }
    fn bounds(axis: AxisId, within: &Predicate, out: &mut [i64]) {
        for affine in within.all.iter().filter(|a| a.terms.iter().any(|t| t.1 == axis)) {
            affine.terms.iter().filter(|t| t.1 != axis).for_each(|&(c, other)| out[other.at()] += c.signum());
        }
    }
    let mut out = vec![0; kernel.axes.len()];
    of(&kernel.body, &mut out);
    out
}
