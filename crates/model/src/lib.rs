//! What a tile program costs on a machine: bytes per tensor and level, arithmetic, time, and bounds.
//!
//! One reuse analysis over the program gives every number; nothing here is a stored cost of an operator. The
//! innermost counts are exact: they are what an executor that counts its loads and stores finds. Programs must be
//! well-formed ([`einloom_tile::verify`] finds nothing); sums saturate instead of overflowing.

mod again;
mod blocks;
pub mod bounds;
mod by_rows;
pub mod calculus;
mod count;
mod counts;
mod element;
mod energy;
mod gpu;
mod guarded;
mod held;
mod kept;
mod kinds;
mod levels;
mod loads;
mod nest;
mod on_demand;
mod parallel;
mod ranges;
mod region;
mod resident;
mod transfers;
mod work;

pub use again::passed_again;
pub use blocks::block_elements;
pub use counts::Counts;
pub use energy::Energy;
pub use gpu::{Below, ByLanes, ByOrder, Depth, Misfit, OnGpu, Structure, by_lanes, by_lanes_of, on_gpu, on_gpu_below};
pub use guarded::counts_what_guards_leave;
pub use held::{Held, held_elements};
pub use loads::Factors;
pub use parallel::of_each;
pub use resident::resident_but_passing;
pub use transfers::{
    KernelTransfers, KnownBounds, LevelTransfers, TensorTransfer, compute_seconds, compute_seconds_counted,
    kernel_transfers, kernel_transfers_counted, level_transfers, moved_bytes, transfers, transfers_of_blocks,
};
