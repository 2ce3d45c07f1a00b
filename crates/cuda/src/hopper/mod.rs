//! Kernels for sm_90a as roles that run at the same time: one producer that copies tiles into shared memory, and consumer
//! warpgroups that multiply them with `wgmma` and compute on the results in registers.
//!
//! [`Specialised`] is the schedule as data. Passes make it from a tile kernel ([`specialise()`]), [`print()`] shows it, the
//! abstract machine in [`machine`] executes it on the CPU with copies and products that complete late, and [`crate::emit()`]
//! spells it as CUDA C++. A kernel that does not meet the conditions of a pass is refused with the [`Reason`], and takes
//! the `mma.sync` path instead.

pub(crate) mod beyond;
mod bulk;
mod descriptor;
pub(crate) mod epilogue;
pub(crate) mod fit;
pub mod machine;
pub mod mutate;
mod overlap;
mod pieces;
mod print;
mod reason;
mod roster;
mod rows;
mod sequence;
mod share;
mod specialise;
mod steps;
mod walk;

pub use descriptor::{Descriptor, descriptors};
pub use epilogue::Epilogue;
pub use pieces::{Piece, pieces};
pub use print::print;
pub use reason::Reason;
pub use roster::{Roster, roster};
pub use specialise::specialise;
pub use steps::{
    Cluster, Cut, OpAt, Registers, Ring, RingId, RingTile, Role, Share, Specialised, Step, SwizzleBytes, TURN_BARRIER,
    Turns,
};
pub use walk::{Walk, walk};
