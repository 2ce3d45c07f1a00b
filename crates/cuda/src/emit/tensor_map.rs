//! Descriptions of tensors for the bulk tensor copy unit (TMA), which the run time encodes before a launch.

use einloom_cascade::DType;
use einloom_tile::TensorId;

/// What a kernel wants to copy by the bulk tensor copy unit: boxes of one tensor, at coordinates that it gives.
///
/// Limits and meanings are those of `cuTensorMapEncodeTiled` (CUDA Driver API reference, "Tensor Map Object Management").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// The tensor; its first element is at the start of its memory.
    pub tensor: TensorId,
    /// The type of its elements.
    pub element: DType,
    /// Elements per dimension, innermost first; one to five dimensions.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next along dimensions 1 and up; multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of a box per dimension, innermost first, each at most 256. Elements outside the tensor are filled with 0
    /// or not written.
    pub tile_box: Vec<u32>,
    /// How a box lies in shared memory.
    pub swizzle: TmaSwizzle,
}

/// The pattern in which rows of a box are permuted in shared memory, in chunks of 16 bytes. The innermost extent of the box
/// may not be longer than the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TmaSwizzle {
    /// Rows lie one after the other.
    None,
    /// Over 32 bytes.
    B32,
    /// Over 64 bytes.
    B64,
    /// Over 128 bytes.
    B128,
}
