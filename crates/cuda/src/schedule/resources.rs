//! Pass 8: whether a schedule fits its target, known before anything is compiled.

use super::facts::{Facts, each_op};
use super::frames::Frames;
use super::target::Target;
use super::{Arch, Fallback};
use einloom_tile::{Kernel, Op, grid_points};
use std::fmt;

/// Why a kernel cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its tiles need more shared memory than a block can have. Smaller tiles need less.
    SharedMemory {
        /// The kernel's name.
        kernel: String,
        /// Bytes needed, with one stage.
        needed: usize,
        /// Bytes there are.
        limit: usize,
        /// Of what.
        arch: Arch,
    },
    /// Its tiles are so large that a thread would hold most of them in memory. Smaller tiles need less.
    Registers {
        /// The kernel's name.
        kernel: String,
        /// Registers per thread needed.
        needed: usize,
        /// More than this is refused.
        limit: usize,
    },
    /// More points than a grid can have.
    Grid {
        /// The kernel's name.
        kernel: String,
        /// Points.
        points: usize,
    },
    /// An axis with more positions than its 32-bit positions can count.
    Extent {
        /// The kernel's name.
        kernel: String,
        /// The axis.
        axis: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedMemory { kernel, needed, limit, arch } => {
                write!(
                    f,
                    "kernel {kernel}: its tiles need {needed} bytes of shared memory, {arch} has {limit} per block"
                )
            }
            Self::Registers { kernel, needed, limit } => {
                write!(
                    f,
                    "kernel {kernel}: its tiles need {needed} registers per thread, of which {limit} are bearable"
                )
            }
            Self::Grid { kernel, points } => write!(f, "kernel {kernel}: a grid cannot have {points} points"),
            Self::Extent { kernel, axis } => {
                write!(f, "kernel {kernel}: axis {axis} has more positions than 32 bits count")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Registers beyond the machine's go to memory that the first-level cache holds; this many times as many do not.
const SPILLED: usize = 4;

pub(super) fn positions(facts: &Facts<'_>) -> Result<(), Refusal> {
    let kernel = facts.kernel;
    for axis in &kernel.axes {
        if axis.extent > (i32::MAX - (1 << 20)) as usize {
            return Err(Refusal::Extent { kernel: kernel.name.clone(), axis: axis.name.clone() });
        }
    }
    let points = kernel.grid.iter().try_fold(1usize, |n, &a| n.checked_mul(einloom_tile::grid_steps(kernel.axis(a))));
    match points {
        Some(n) if n <= i32::MAX as usize => Ok(()),
        _ => Err(Refusal::Grid { kernel: kernel.name.clone(), points: points.unwrap_or_else(|| grid_points(kernel)) }),
    }
}

/// Bytes through which one reduction passes from warp to warp, at most; where its parts are more, warps take turns.
const PLACE_BYTES: usize = 48 << 10;

/// Rows of partial results, each of so many positions: one for each of `parts` if they fit, else fewer, each for several
/// parts in turn.
pub(crate) fn rows(parts: usize, positions: usize, wide: bool) -> usize {
    let fitting = (PLACE_BYTES / (positions * number_bytes(wide)).max(1)).clamp(1, parts);
    parts.div_ceil(parts.div_ceil(fitting))
}

fn number_bytes(wide: bool) -> usize {
    if wide { 8 } else { 4 }
}

/// Bytes through which reductions pass from warp to warp: two places that take turns.
pub(super) fn scratch(facts: &Facts<'_>, frames: &Frames) -> usize {
    let mut most = 0;
    each_op(&facts.kernel.body, &mut |op| {
        let Op::Reduce { dst, src, axis, acc, .. } = op else { return };
        let Some(frame) = frames.of.get(src).map(|f| &frames.frames[f.0]) else { return };
        let Some(&side) = frame.sides.get(axis) else { return };
        let parts = frame.warp_part(side).modulus;
        if parts > 1 {
            let kept = facts.axes(*src).into_iter().find(|a| a != axis);
            let positions = kept.map_or(1, |a| frame.span(side.other(), facts.size(a)).cover);
            debug_assert!(kept.is_none_or(|a| frame.sides.get(&a) == Some(&side.other())));
            let wide = facts.reduces_wide(*dst, *src, *acc);
            most = most.max(rows(parts, positions, wide) * positions * number_bytes(wide));
        }
    });
    2 * most.next_multiple_of(16)
}

pub(super) fn check(
    kernel: &Kernel,
    target: &Target,
    shared_bytes: usize,
    registers: usize,
    fallbacks: &mut Vec<Fallback>,
) -> Result<(), Refusal> {
    if shared_bytes > target.shared_bytes {
        let (needed, limit) = (shared_bytes, target.shared_bytes);
        return Err(Refusal::SharedMemory { kernel: kernel.name.clone(), needed, limit, arch: target.arch });
    }
    let limit = SPILLED * target.registers;
    if registers > limit {
        return Err(Refusal::Registers { kernel: kernel.name.clone(), needed: registers, limit });
    }
    if registers > target.registers {
        fallbacks.push(Fallback {
            op: format!("kernel {}", kernel.name),
            reason: format!(
                "about {registers} registers per thread, of {}: some tiles will be kept in memory",
                target.registers
            ),
        });
    }
    Ok(())
}
