//! Specialised kernels as CUDA C++: one branch for the producer, one for the consumers, each with its list of steps.

mod consumer;
mod kernel;
mod multiply;
mod producer;
mod rings;

pub(super) use kernel::emit;

/// The functions that are sm_90a's own PTX instructions.
pub(super) const PTX: &str = include_str!("ptx.cuh");

/// The functions that only blocks of a cluster use.
pub(super) const CLUSTER: &str = include_str!("cluster.cuh");
