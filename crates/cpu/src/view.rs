//! Arrays that a caller lends to a run.

use einloom_cascade::DType;

/// An array to read, dense and row-major unless its tensor has a layout. Elements are in the machine's byte order and
/// take [`DType::bytes`] each.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Number type.
    pub dtype: DType,
    /// Elements per dimension.
    pub dims: &'a [usize],
    /// From the first element to the last. They are copied first if they do not begin at a multiple of the element's
    /// size.
    pub bytes: &'a [u8],
}

/// An array to write, dense and row-major unless its tensor has a layout. Elements are in the machine's byte order and take [`DType::bytes`] each.
#[derive(Debug)]
pub struct ViewMut<'a> {
    /// Number type.
    pub dtype: DType,
    /// Elements per dimension.
    pub dims: &'a [usize],
    /// The elements. They must begin at a multiple of the element's size.
    pub bytes: &'a mut [u8],
}
