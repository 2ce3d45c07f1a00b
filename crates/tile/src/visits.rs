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

/// The number of a point in the order of the grid's axes alone, row-major, of the one that is visited after so many others.
pub fn row_major(visits: &[Visit], mut number: usize) -> usize {
    if visits.iter().all(|v| v.side >= v.steps) {
        return number;
    }
    // Blocks come first: along each axis they have so many points, those along the axes further in being whole.
    let mut inside: usize = visits.iter().map(|v| v.steps).product();
    let mut wide = 1;
    let mut blocks = vec![];
    for v in visits {
        inside /= v.steps.max(1);
        let all = wide * v.side * inside;
        let block = number / all.max(1);
        number -= block * all;
        let width = v.side.min(v.steps - block * v.side);
        wide *= width;
        blocks.push((block * v.side, width));
    }
    let mut out = 0;
    for (v, (first, width)) in visits.iter().zip(blocks) {
        wide /= width.max(1);
        out = out * v.steps + first + number / wide.max(1);
        number %= wide.max(1);
    }
    out
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

#[cfg(test)]
mod tests {
    use super::{Visit, row_major};
    use crate::AxisId;

    fn numbers(visits: &[[usize; 2]]) -> Vec<usize> {
        let visit = |(k, &[steps, side]): (usize, &[usize; 2])| Visit { axis: AxisId(k as u32), steps, side };
        let visits: Vec<Visit> = visits.iter().enumerate().map(visit).collect();
        (0..visits.iter().map(|v| v.steps).product()).map(|n| row_major(&visits, n)).collect()
    }

    #[test]
    fn blocks_come_one_after_the_other() {
        assert_eq!(numbers(&[[2, 2], [3, 3]]), [0, 1, 2, 3, 4, 5]);
        // Two rows of the first two columns, then of the last one.
        assert_eq!(numbers(&[[2, 2], [3, 2]]), [0, 1, 3, 4, 2, 5]);
        assert_eq!(numbers(&[[3, 2], [3, 2]]), [0, 1, 3, 4, 2, 5, 6, 7, 8]);
        assert_eq!(numbers(&[[3, 2], [2, 1]]), [0, 2, 1, 3, 4, 5]);
    }

    #[test]
    fn every_point_is_visited_once() {
        for sides in [[1, 1, 1], [2, 3, 4], [3, 2, 5], [1, 4, 2], [5, 7, 9]] {
            let steps = [5, 7, 9];
            let mut all = numbers(&[0, 1, 2].map(|k| [steps[k], sides[k]]));
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..5 * 7 * 9), "{sides:?}");
        }
    }
}
