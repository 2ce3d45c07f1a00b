//! Arrays that a caller lends to a run.

use einloom_cascade::DType;

/// A dense row-major array to read. Elements are in the machine's byte order and take [`DType::bytes`] each.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Number type.
    pub dtype: DType,
    /// Elements per dimension.
    pub dims: &'a [usize],
    /// The elements.
    pub bytes: &'a [u8],
}

/// A dense row-major array to write. Elements are in the machine's byte order and take [`DType::bytes`] each.
#[derive(Debug)]
pub struct ViewMut<'a> {
    /// Number type.
    pub dtype: DType,
    /// Elements per dimension.
    pub dims: &'a [usize],
    /// The elements.
    pub bytes: &'a mut [u8],
}
