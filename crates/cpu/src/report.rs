//! What a run tells about itself.

use einloom_tile::TensorId;

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Wall-clock time of the run.
    pub seconds: f64,
    /// One per kernel, in order.
    pub kernels: Vec<KernelReport>,
    /// The instructions used: "avx512", "avx2" or "portable".
    pub isa: &'static str,
}

/// A kernel of a finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Wall-clock time.
    pub seconds: f64,
    /// Bytes moved, for every tensor that was loaded from or stored to, in the order of the program's tensors. Empty
    /// unless [`crate::RunOptions::count`] is set.
    pub traffic: Vec<TensorTraffic>,
    /// Chunks that [`einloom_tile::Op::SkipUnless`] left.
    pub skipped_chunks: u64,
    /// Why its grid ran on one thread, if it had to.
    pub serial: Option<&'static str>,
}

/// What a kernel moved of one tensor: elements of the tiles that it loaded or stored, as often as it did so, times the
/// bytes of an element. Elements outside the tensor, which loads fill in, do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorTraffic {
    /// The tensor.
    pub tensor: TensorId,
    /// Read.
    pub loaded_bytes: u64,
    /// Written.
    pub stored_bytes: u64,
}
