//! Tiles for which a core has no room, although the model finds some: what a backend said of an earlier plan.
//!
//! A backend knows what it allocates to the byte, the model what most kernels take. Where they differ the road plans again, and
//! every tiling of that kernel that is as large along all its axes is left out.

use einloom_tile::{AxisKind, Kernel, Op, Program};
use std::collections::BTreeSet;
use std::fmt;

/// A kernel that a backend has refused for want of room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// The tensors that it writes, by name: they tell it from others, which need not have the same names in another plan.
    writes: BTreeSet<String>,
    /// Its axes in the kernel's order, each with the positions of a tile.
    axes: Vec<(String, AxisKind, usize)>,
    room: Room,
    reason: String,
}

/// Which room was wanting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Shared memory of a block.
    SharedMemory,
    /// Registers of a thread.
    Registers,
}

impl TooLarge {
    /// A kernel of this program, and why it was refused, for people.
    pub fn new(program: &Program, kernel: &Kernel, room: Room, reason: String) -> Self {
        Self { writes: writes(program, kernel), axes: axes(kernel), room, reason }
    }

    /// Whether the kernel computes the same, in the same loops, by tiles that are smaller along no axis.
    pub fn covers(&self, program: &Program, kernel: &Kernel) -> bool {
        let axes = axes(kernel);
        let no_smaller =
            |(a, b): (&(String, AxisKind, usize), &(String, AxisKind, usize))| (&a.0, a.1) == (&b.0, b.1) && a.2 >= b.2;
        axes.len() == self.axes.len()
            && axes.iter().zip(&self.axes).all(no_smaller)
            && writes(program, kernel) == self.writes
    }

    /// Whether the kernel writes the same tensors, whatever its loops.
    pub fn is_of(&self, program: &Program, kernel: &Kernel) -> bool {
        writes(program, kernel) == self.writes
    }

    pub(crate) fn lacks(&self, room: Room) -> bool {
        self.room == room
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tiles: Vec<String> = self.axes.iter().map(|(name, _, tile)| format!("{name}:{tile}")).collect();
        tiles.dedup();
        write!(f, "no room for tiles {}: {}", tiles.join(" "), self.reason)
    }
}

fn axes(kernel: &Kernel) -> Vec<(String, AxisKind, usize)> {
    kernel.axes.iter().map(|a| (a.name.clone(), a.kind, a.tile.min(a.extent).max(1))).collect()
}

fn writes(program: &Program, kernel: &Kernel) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    each_store(&kernel.body, &mut |op| {
        if let Op::Store { tensor, .. } = op {
            out.insert(program.tensor(*tensor).name.clone());
        }
    });
    out
}

fn each_store(ops: &[Op], f: &mut dyn FnMut(&Op)) {
    for op in ops {
        match op {
            Op::Stream { body, .. } => each_store(body, f),
            op => f(op),
        }
    }
}
