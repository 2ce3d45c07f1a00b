//! Who computes which points, in which order: the loop over tasks that every role of a kernel runs.

use super::{Specialised, roster};
use crate::schedule::Order;
use einloom_tile::{Kernel, Window, initial_windows};

/// The places of the schedule's order that blocks take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Of each cluster, in turn; of each block, where there are no clusters.
    pub clusters: Vec<Vec<usize>>,
    /// Whether roles go on counting a ring's fillings from point to point. They do: a ring whose stages are not all used
    /// an even number of times at every point would otherwise be awaited in the wrong phase.
    pub counts_run_on: bool,
}

/// The walk of a kernel that is launched on this many blocks, or as many whole clusters as there are among them (one at
/// least): after its roster if it has one, else in strides.
pub fn walk(kernel: &Kernel, s: &Specialised, blocks: usize) -> Walk {
    let (order, size) = (&s.layout.order, s.blocks());
    let clusters = (blocks / size).max(1);
    let of = |c: usize| match roster(kernel, order, clusters * size) {
        Some(roster) => roster.of(c * size).collect(),
        None => (c..order.points()).step_by(clusters).collect(),
    };
    Walk { clusters: (0..clusters).map(of).collect(), counts_run_on: true }
}

/// Where the kernel's axes stand for one block of the cluster that takes this place of the order.
pub(super) fn windows(kernel: &Kernel, order: &Order, place: usize, block: usize) -> Vec<Window> {
    let mut out = initial_windows(kernel);
    for (axis, step) in order.windows_of(place, block) {
        let decl = kernel.axis(axis);
        let base = step * decl.tile;
        out[axis.at()] = Window { base, len: decl.tile.min(decl.extent.saturating_sub(base)) };
    }
    out
}
