//! A tensor as a file holds it, before it is matched with a declaration.

use std::fmt;

/// The number types that files spell. More than the language has (I64 is what PyTorch stores labels in), and one
/// that is only a width: NumPy writes bfloat16 and fp8 arrays as opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StoredType {
    F64,
    F32,
    F16,
    Bf16,
    E4m3,
    E5m2,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    /// This many bytes an element (1 or 2), meaning unknown.
    Raw(u8),
}

impl StoredType {
    /// Bytes an element takes in the file.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::E4m3 | Self::E5m2 | Self::I8 | Self::U8 | Self::Bool => 1,
            Self::Raw(bytes) => bytes as usize,
        }
    }
}

/// As a message spells it: like the language's own number types where it has one.
impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::Raw(bytes) => return write!(f, "raw {bytes}-byte values"),
        };
        f.write_str(name)
    }
}

/// A tensor read from a file: dense, row-major, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Number type in the file.
    pub dtype: StoredType,
    /// Elements per dimension.
    pub dims: Vec<usize>,
    /// The elements; as many bytes as `dtype` and `dims` say.
    pub bytes: Vec<u8>,
}

/// Bytes that a tensor of these dimensions takes; `None` when no computer could hold it.
pub(crate) fn size_in_bytes(dims: &[usize], element: usize) -> Option<usize> {
    // A zero anywhere makes the product 0, but the other factors must be representable all the same: a header
    // with dimensions like `[0, 2^63]` is a lie.
    let product = dims.iter().try_fold(element.max(1), |n, &d| n.checked_mul(d.max(1)))?;
    if isize::try_from(product).is_err() {
        return None;
    }
    Some(if dims.contains(&0) { 0 } else { product })
}
