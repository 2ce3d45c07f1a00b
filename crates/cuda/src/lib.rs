//! Tile programs on NVIDIA GPUs.
//!
//! [`schedule`] decides how a kernel is executed (which tiles live in registers and which in shared memory, who holds
//! which element, which instructions multiply) as a value that can be printed; [`emit()`] turns it into CUDA C++.
//! Both are pure. [`runtime`] loads the driver and the compiler when they are present.

pub mod emit;
pub mod hopper;
mod rewrite;
pub mod runtime;
pub mod schedule;

pub use emit::{EmitError, LaunchInfo, Pieces, Source, Template, TensorMapSpec, TmaSwizzle, emit};
pub use schedule::{Arch, Clusters, Fallback, Refusal, Schedule, Target};
