//! Runs tile programs on the CPU.
//!
//! [`Executable::new`] checks a [`einloom_tile::Program`] and plans its kernels; [`Executable::run`] runs it on arrays
//! that the caller lends. Points of a kernel's grid run in parallel, each with a few tiles of memory; what a point
//! computes does not depend on the thread, so that results are the same bits for every number of threads.
//!
//! It knows nothing about where a program comes from.

mod compile;
mod error;
mod executable;
mod execute;
mod kernels;
mod measure;
mod options;
mod report;
mod stretches;
mod team;
mod view;

pub use error::{BuildError, RunError};
pub use executable::Executable;
pub use kernels::contract::{ProductRates, UnitRates};
pub use kernels::isa::Isa;
pub use measure::{copied_per_second, multiplied_per_second};
pub use options::{Bf16Products, Options, RunOptions};
pub use report::{KernelReport, Report, TensorTraffic};
pub use view::{View, ViewMut};
