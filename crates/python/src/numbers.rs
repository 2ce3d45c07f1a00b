//! Number types of frameworks and of the language.

use crate::dlpack::DataType;
use einloom_cascade::DType;

/// The language's type of DLPack's, if there is one. 64-bit integers have none: see [`crate::signature`].
pub(crate) fn of_dlpack(dtype: DataType) -> Option<DType> {
    if dtype.lanes != 1 {
        return None;
    }
    // Codes of DLDataTypeCode.
    Some(match (dtype.code, dtype.bits) {
        (0, 8) => DType::I8,
        (0, 16) => DType::I16,
        (0, 32) => DType::I32,
        (1, 8) => DType::U8,
        (2, 16) => DType::F16,
        (2, 32) => DType::F32,
        (2, 64) => DType::F64,
        (4, 16) => DType::Bf16,
        (6, 8) => DType::B1,
        (10, 8) => DType::E4m3,
        (12, 8) => DType::E5m2,
        _ => return None,
    })
}

/// What DLPack calls a type in memory. `i4` and `u4` take a whole byte, which frameworks call 8-bit integers.
pub(crate) fn to_dlpack(dtype: DType) -> DataType {
    let (code, bits) = match dtype {
        DType::I8 | DType::I4 => (0, 8),
        DType::I16 => (0, 16),
        DType::I32 => (0, 32),
        DType::U8 | DType::U4 => (1, 8),
        DType::F16 => (2, 16),
        DType::F32 | DType::Tf32 => (2, 32),
        DType::F64 => (2, 64),
        DType::Bf16 => (4, 16),
        DType::B1 => (6, 8),
        DType::E4m3 => (10, 8),
        DType::E5m2 => (12, 8),
    };
    DataType { code, bits, lanes: 1 }
}

/// A 64-bit signed integer: what frameworks index with.
pub(crate) const INT64: DataType = DataType { code: 0, bits: 64, lanes: 1 };

/// What frameworks call the type, for messages and for making arrays.
pub(crate) fn framework_name(dtype: DataType) -> String {
    let DataType { code, bits, lanes } = dtype;
    let name = match code {
        0 => format!("int{bits}"),
        1 => format!("uint{bits}"),
        2 => format!("float{bits}"),
        4 => format!("bfloat{bits}"),
        5 => format!("complex{bits}"),
        6 => "bool".to_string(),
        10 => "float8_e4m3fn".to_string(),
        12 => "float8_e5m2".to_string(),
        _ => format!("DLPack type {code} of {bits} bits"),
    };
    if lanes == 1 { name } else { format!("{name}x{lanes}") }
}

/// What [`framework_name`] calls so, of the types that are taken.
pub(crate) fn of_framework(name: &str) -> Option<DataType> {
    let all = DType::ALL.into_iter().map(to_dlpack).chain([INT64]);
    all.into_iter().find(|&d| framework_name(d) == name)
}

/// A type that only the package `ml_dtypes` gives NumPy, by NumPy's name for it.
pub(crate) fn of_extension(name: &str) -> Option<DataType> {
    Some(match name {
        "bfloat16" => to_dlpack(DType::Bf16),
        "float8_e4m3fn" => to_dlpack(DType::E4m3),
        "float8_e5m2" => to_dlpack(DType::E5m2),
        "int4" => to_dlpack(DType::I8),
        "uint4" => to_dlpack(DType::U8),
        _ => return None,
    })
}

/// Whether a declared type may be replaced by that of a caller's array: both are floating-point types, in which nothing
/// but precision and range differ.
pub(crate) fn may_follow(declared: DType, given: DType) -> bool {
    declared.is_float() && given.is_float()
}

/// Whether an array of type `given` holds what is declared as it is.
pub(crate) fn holds(declared: DType, given: DType) -> bool {
    declared == given
        || matches!((declared, given), (DType::Tf32, DType::F32) | (DType::I4, DType::I8) | (DType::U4, DType::U8))
}
