//! What a schedule is made for.

use std::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// Ampere: cp.async, ldmatrix, mma.sync. Also the common path of every later card.
    Sm80,
    /// Hopper with its architecture-specific instructions.
    Sm90a,
}

/// A kind of GPU, as far as schedules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Instructions that may be used.
    pub arch: Arch,
    /// Most bytes of shared memory one block may ask for.
    pub shared_bytes: usize,
    /// Most registers of one thread.
    pub registers: usize,
    /// Which clusters of blocks to form, where the architecture has clusters.
    pub clusters: Clusters,
}

/// Which clusters of blocks share what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clusters {
    /// Those that are faster by the cost rule of [`crate::hopper::Cluster`].
    #[default]
    ByCost,
    /// Of this many blocks wherever that can be done; 1 for none.
    Of(usize),
}

impl Target {
    /// A100 and, with its instructions alone, every card since. 163 KiB per block (CUDA C++ Programming Guide,
    /// "Compute Capability 8.x").
    pub const SM_80: Self =
        Self { arch: Arch::Sm80, shared_bytes: 163 * 1024, registers: 255, clusters: Clusters::ByCost };
    /// H100, H200: 227 KiB per block (CUDA C++ Programming Guide, "Compute Capability 9.0").
    pub const SM_90A: Self =
        Self { arch: Arch::Sm90a, shared_bytes: 227 * 1024, registers: 255, clusters: Clusters::ByCost };
}

impl Target {
    /// Multiprocessors of the usual card: A100 108, H100 and H200 SXM 132 (their data sheets). Orders of work depend on
    /// it, results do not.
    pub fn multiprocessors(&self) -> usize {
        match self.arch {
            Arch::Sm80 => 108,
            Arch::Sm90a => 132,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        })
    }
}
