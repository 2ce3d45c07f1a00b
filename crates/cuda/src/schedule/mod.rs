//! Schedules: how a kernel is executed, as data.
//!
//! A schedule is made by passes over a tile kernel, each one idea in one file:
//!
//! | pass | decides |
//! |---|---|
//! | `product` | the instruction of every product |
//! | `frames` | which axes lie down and which across in registers |
//! | `operands` | which factor is the left operand, and whether it stays in registers |
//! | `in_place` | states that are updated in place |
//! | `inline` | tiles that are computed where they are read |
//! | `threads` | warps, and their arrangement over tiles |
//! | `late` | loads that are made where their tile is stored |
//! | `partial` | states that every thread sums for itself |
//! | `placement` | which tiles live in registers and which in shared memory, and how loads get there |
//! | `pipeline` | stages of copies in flight, addresses in shared memory |
//! | `resources` | whether it all fits |
//! | `hold` | operands that stay in registers through a stream |
//! | `packing` | tiles kept as 16-bit operands |
//! | `fuse` | tiles that are packed and summed as they come into being |
//! | `ahead` | loops whose loads are on their way for several positions |
//! | `order` | in which order the grid's points are visited |

mod access;
mod ahead;
pub(crate) mod facts;
mod frame;
pub(crate) mod frames;
mod fuse;
mod hold;
pub(crate) mod in_place;
pub(crate) mod inline;
pub(crate) mod late;
pub(crate) mod operands;
pub(crate) mod order;
pub(crate) mod packing;
pub(crate) mod partial;
mod pipeline;
mod placement;
mod print;
pub(crate) mod product;
pub(crate) mod registers;
mod resources;
mod shared;
mod target;
mod threads;
mod tolerance;

pub(crate) use access::{adjacent, affine};
pub(crate) use ahead::ahead;
pub use facts::Carrier;
pub(crate) use facts::{Facts, gathers};
pub use frame::{Arrangement, Digit, Frame, FrameId, Side, Span};
pub use fuse::Fused;
pub use order::{Order, Turn};
pub use partial::Partial;
pub use pipeline::Pipeline;
pub use placement::{Copy, Home, Made};
pub use print::print;
pub use product::{Instruction, Operand, Product, left_element};
pub use resources::Refusal;
pub(crate) use resources::rows;
pub use shared::{SharedTile, Swizzle};
pub use target::{Arch, Clusters, Target};
pub(crate) use threads::resident;
pub(crate) use tolerance::narrow;

use einloom_tile::{Kernel, Program, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A slower way taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The operation.
    pub op: String,
    /// Which condition of the faster way it does not meet.
    pub reason: String,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.op, self.reason)
    }
}

/// How one kernel is executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The kernel's name.
    pub kernel: String,
    /// What it is made for.
    pub target: Target,
    /// Warps per block.
    pub warps: usize,
    /// Arrangements of tiles in registers.
    pub frames: Vec<Frame>,
    /// Where each tile of the kernel lives.
    pub homes: Vec<Home>,
    /// How each product is computed, by result.
    pub products: BTreeMap<ValueId, Product>,
    /// How loads get into shared memory, for those that are made there.
    pub copies: BTreeMap<ValueId, Copy>,
    /// For tiles that take over a state's registers: the state.
    pub in_place: BTreeMap<ValueId, ValueId>,
    /// Tiles that are kept as pairs of 16-bit numbers.
    pub packed: BTreeSet<ValueId>,
    /// Tiles that are computed where they are read.
    pub inlined: BTreeSet<ValueId>,
    /// States of which every thread holds a part until their stream is over.
    pub partial: BTreeMap<ValueId, Partial>,
    /// For packed tiles, what is computed in the loop that packs them.
    pub fused: BTreeMap<ValueId, Fused>,
    /// Products in streams whose left operand is read into registers once, before the stream.
    pub held: BTreeSet<ValueId>,
    /// In which order the grid's points are visited.
    pub order: Order,
    /// One per stream, outer ones first, in program order.
    pub pipelines: Vec<Pipeline>,
    /// Bytes at the start of shared memory through which reductions pass from warp to warp.
    pub scratch_bytes: usize,
    /// Bytes of shared memory.
    pub shared_bytes: usize,
    /// Estimated registers per thread.
    pub registers: usize,
    /// Slower ways taken.
    pub fallbacks: Vec<Fallback>,
}

/// Schedules a kernel of a well-formed program.
///
/// # Errors
/// If it cannot fit the target, whatever the schedule: see [`Refusal`].
pub fn schedule(program: &Program, kernel: &Kernel, target: &Target) -> Result<Schedule, Refusal> {
    let facts = Facts::new(program, kernel);
    resources::positions(&facts)?;
    let mut fallbacks = vec![];
    let mut products = product::choose(&facts, &mut fallbacks);
    let mut frames = frames::choose(&facts, &products);
    operands::orient(&facts, &frames, &mut products, &mut fallbacks);
    let in_place = in_place::choose(&facts, &frames);
    let mut inlined = inline::choose(&facts, &frames, &in_place);
    let tiles = threads::Tiles { in_place: &in_place, inlined: &inlined };
    let warps = threads::arrange(&facts, &mut frames, &products, &tiles, target.registers);
    late::choose(&facts, &frames, &mut inlined);
    let partial = partial::choose(&facts, &frames, &in_place);
    let packed = packing::choose(&facts, &frames, &products, &in_place);
    let fused = fuse::choose(&facts, &frames, &packed, &inlined, &partial);
    let (mut homes, copies) = placement::choose(&facts, &frames, &products, &mut fallbacks);
    let scratch = resources::scratch(&facts, &frames);
    let (pipelines, shared_bytes) =
        pipeline::choose(&facts, &mut homes, &copies, scratch, target.shared_bytes, kernel.stages);
    let registers = registers::pressure_without(&facts, &frames, &packed, &inlined) + threads::OVERHEAD;
    let budget = hold::Budget { target, warps, registers, shared_bytes };
    let (held, more) = hold::choose(&facts, &frames, &homes, &products, &budget);
    let registers = registers + more;
    resources::check(kernel, target, shared_bytes, registers, &mut fallbacks)?;
    Ok(Schedule {
        kernel: kernel.name.clone(),
        target: *target,
        warps,
        frames: frames.frames,
        homes,
        products,
        copies,
        in_place,
        packed,
        inlined,
        partial,
        fused,
        held,
        order: order::choose(&facts),
        pipelines,
        scratch_bytes: scratch,
        shared_bytes,
        registers,
        fallbacks,
    })
}

impl Schedule {
    /// Threads per block.
    pub fn threads(&self) -> usize {
        32 * self.warps
    }

    /// The frame.
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0]
    }

    /// Where the tile lives.
    pub fn home(&self, v: ValueId) -> &Home {
        &self.homes[v.at()]
    }
}
