//! Number types.

use std::fmt;

/// A number type of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DType {
    F64,
    F32,
    /// f32 storage, 10 explicit bits of mantissa.
    Tf32,
    Bf16,
    F16,
    /// 1-4-3, no infinities, largest 448 (OCP FP8).
    E4m3,
    /// 1-5-2 (OCP FP8).
    E5m2,
    I32,
    I16,
    I8,
    I4,
    U8,
    U4,
    /// A truth value.
    B1,
}

impl DType {
    /// All of them, in the order of the language page.
    pub const ALL: [DType; 14] = [
        Self::F64,
        Self::F32,
        Self::Tf32,
        Self::Bf16,
        Self::F16,
        Self::E4m3,
        Self::E5m2,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::I4,
        Self::U8,
        Self::U4,
        Self::B1,
    ];

    /// The spelling in source text.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::I4 => "i4",
            Self::U8 => "u8",
            Self::U4 => "u4",
            Self::B1 => "b1",
        }
    }

    /// The type with this spelling.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes one element takes in memory. i4, u4 and b1 take a whole byte each: nothing here packs them.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::Tf32 | Self::I32 => 4,
            Self::Bf16 | Self::F16 | Self::I16 => 2,
            Self::E4m3 | Self::E5m2 | Self::I8 | Self::I4 | Self::U8 | Self::U4 | Self::B1 => 1,
        }
    }

    /// i32, i16, i8, i4, u8 or u4; not b1.
    pub fn is_integer(self) -> bool {
        self.integer_range().is_some()
    }

    /// A floating-point type.
    pub fn is_float(self) -> bool {
        !self.is_integer() && self != Self::B1
    }

    /// Smallest and largest value of an integer type.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        match self {
            Self::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            Self::I16 => Some((i16::MIN as i64, i16::MAX as i64)),
            Self::I8 => Some((i8::MIN as i64, i8::MAX as i64)),
            Self::I4 => Some((-8, 7)),
            Self::U8 => Some((0, 255)),
            Self::U4 => Some((0, 15)),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
