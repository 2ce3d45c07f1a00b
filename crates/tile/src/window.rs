//! Windows: where every axis stands while a kernel runs. The executor, the model and any emitter walk a kernel
//! through these functions, so that what is predicted and what is done cannot drift apart.

use crate::{Affine, Axis, AxisId, AxisKind, Kernel, Predicate};

/// The current window of an axis: positions `base..base + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// First position.
    pub base: usize,
    /// Number of positions.
    pub len: usize,
}

/// Windows of all axes of `kernel` before its body: whole axes stand, others are empty.
pub fn initial_windows(kernel: &Kernel) -> Vec<Window> {
    let whole = |a: &Axis| if a.kind == AxisKind::Whole { a.extent } else { 0 };
    kernel.axes.iter().map(|a| Window { base: 0, len: whole(a) }).collect()
}

/// Number of windows an axis of the grid takes.
pub fn grid_steps(axis: &Axis) -> usize {
    axis.extent.div_ceil(axis.tile)
}

/// Number of points of the grid. 1 for a grid without axes; 0 if an axis is empty.
pub fn grid_points(kernel: &Kernel) -> usize {
    kernel.grid.iter().map(|&a| grid_steps(kernel.axis(a))).product()
}

/// Sets the grid axes' windows for point number `point` (row-major, the last axis fastest).
pub fn set_grid_point(kernel: &Kernel, mut point: usize, windows: &mut [Window]) {
    for &id in kernel.grid.iter().rev() {
        let axis = kernel.axis(id);
        let steps = grid_steps(axis);
        windows[id.at()] = chunk(axis, (point % steps) * axis.tile, axis.extent);
        point /= steps;
    }
}

/// The chunks of a stream over `axis`, given every other axis's window: multiples of the tile size, less those in
/// which `within` holds nowhere (as far as one axis at a time can tell), the last one clipped.
pub fn chunks<'a>(
    kernel: &'a Kernel,
    axis: AxisId,
    within: &Predicate,
    windows: &[Window],
) -> impl Iterator<Item = Window> + Clone + use<'a> {
    let decl = kernel.axis(axis);
    let (lo, hi) = stream_range(decl.extent, axis, within, windows);
    let first = lo - lo % decl.tile;
    (first..hi).step_by(decl.tile).map(move |base| chunk(decl, base, hi))
}

/// Whether a window is all of its chunk, as far as the axis goes: not if it ends before, where a condition holds no more. Such a one
/// may be another where the other axes' windows are others.
pub fn is_whole(axis: &Axis, window: Window) -> bool {
    window == chunk(axis, window.base, axis.extent)
}

fn chunk(axis: &Axis, base: usize, end: usize) -> Window {
    Window { base, len: axis.tile.min(end - base) }
}

/// The positions of `axis` at which `within` can hold for some position of the other axes' windows.
pub fn stream_range(extent: usize, axis: AxisId, within: &Predicate, windows: &[Window]) -> (usize, usize) {
    let (mut lo, mut hi) = (0i64, extent as i64);
    for affine in &within.all {
        let own: i64 = affine.terms.iter().filter(|t| t.1 == axis).map(|t| t.0).sum();
        let mut rest = affine.constant;
        for &(c, other) in affine.terms.iter().filter(|t| t.1 != axis) {
            rest += extreme(c, windows[other.at()], true);
        }
        match own {
            0 if rest < 0 => return (0, 0),
            0 => {}
            c if c > 0 => lo = lo.max((-rest).div_euclid(c) + i64::from((-rest).rem_euclid(c) != 0)),
            c => hi = hi.min(rest.div_euclid(-c) + 1),
        }
    }
    if lo >= hi { (0, 0) } else { (lo as usize, hi as usize) }
}

/// How a predicate stands over the current windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coverage {
    /// Holds at every element: no test is needed.
    Full,
    /// Must be tested.
    Partial,
    /// Holds nowhere.
    Empty,
}

/// Whether `predicate` holds everywhere, somewhere or nowhere in the windows (each conjunct on its own).
pub fn coverage(predicate: &Predicate, windows: &[Window]) -> Coverage {
    let mut result = Coverage::Full;
    for affine in &predicate.all {
        if bound(affine, windows, true) < 0 {
            return Coverage::Empty;
        }
        if bound(affine, windows, false) < 0 {
            result = Coverage::Partial;
        }
    }
    result
}

/// Largest (`upper`) or smallest value of an affine expression over the windows.
pub fn bound(affine: &Affine, windows: &[Window], upper: bool) -> i64 {
    affine.constant + affine.terms.iter().map(|&(c, a)| extreme(c, windows[a.at()], upper)).sum::<i64>()
}

fn extreme(c: i64, w: Window, upper: bool) -> i64 {
    let last = (w.base + w.len).saturating_sub(1) as i64;
    if (c > 0) == upper { c * last } else { c * w.base as i64 }
}
