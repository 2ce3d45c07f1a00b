//! An abstract machine that executes specialised schedules on the CPU.
//!
//! The producer and each consumer are threads of control, of which a [`Policy`] lets one go on at a time. Copies land and
//! products complete when the policy says, as late as the next step that waits for them: a stage is poison until its
//! copies have landed, and registers belong to a product until it has completed. What a GPU would do wrong on some days is
//! therefore an error here: a [`Hazard`] that names the role, the step, the stage and the chunk.
//!
//! Numbers are those of the tile program (see [`evaluate`]), so that results can be compared with [`interpret`] bit by
//! bit. What products read beyond a window is what the hardware would read: zeros beyond the tensor, whatever the tensor
//! holds inside of it, and zeros in registers.
//!
//! Not modelled: addresses inside a stage (swizzles), proxies and fences, and time.

mod arrays;
mod barrier;
mod block;
mod consumer;
mod contract;
pub mod evaluate;
mod hazard;
mod interpret;
mod layout;
mod policy;
mod product;
mod registers;
mod rings;
mod trace;

pub use arrays::Arrays;
pub use hazard::{Hazard, HazardKind, Place};
pub use interpret::interpret;
pub use policy::{Completion, Policy, Preference};

use super::Specialised;
use block::Block;
use einloom_tile::{Kernel, Program, Window, grid_points};

/// Rows of one consumer. PTX ISA, wgmma: M is 64.
const ROWS: usize = 64;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Grid points.
    pub points: usize,
    /// Steps of all roles.
    pub steps: usize,
    /// Stages filled.
    pub fillings: usize,
    /// Products started, by all consumers.
    pub products: usize,
    /// Most stages of one ring that were filled and not yet released by everyone.
    pub most_stages: usize,
    /// Most products of one consumer in flight.
    pub most_products: usize,
}

/// Executes a kernel as scheduled on this many persistent blocks: block `b` takes grid points `b`, `b + blocks`, … .
/// Blocks do not depend on each other and run one after the other; within a block barriers, rings and counts go on from
/// one grid point to the next.
///
/// # Errors
/// The first hazard that this policy meets.
pub fn execute(
    program: &Program,
    kernel: &Kernel,
    s: &Specialised,
    memory: &mut Arrays,
    blocks: usize,
    policy: Policy,
) -> Result<Statistics, Hazard> {
    layout::check(s)?;
    let rows = kernel.axis(s.rows);
    if rows.tile.min(rows.extent) > ROWS * s.consumers {
        return Err(Hazard::malformed(format!("{} consumers do not hold a tile of {}", s.consumers, rows.name)));
    }
    let mut total = Statistics::default();
    let points = grid_points(kernel);
    for number in 0..blocks.max(1) {
        let block = Block::new(program, kernel, s, memory, number, (number..points).step_by(blocks.max(1)))?;
        let one = block.run(policy)?;
        total.points += one.points;
        total.steps += one.steps;
        total.fillings += one.fillings;
        total.products += one.products;
        total.most_stages = total.most_stages.max(one.most_stages);
        total.most_products = total.most_products.max(one.most_products);
    }
    Ok(total)
}

/// A consumer's windows: its 64 positions of the shared axis, all of every other.
fn narrow(s: &Specialised, windows: &[Window], consumer: usize) -> Vec<Window> {
    let mut own = windows.to_vec();
    if let Some(w) = own.get_mut(s.rows.at()) {
        let skip = (ROWS * consumer).min(w.len);
        *w = Window { base: w.base + skip, len: (w.len - skip).min(ROWS) };
    }
    own
}
