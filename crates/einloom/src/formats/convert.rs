//! What a declared number type accepts from a file, and what is written for it.
//!
//! Nothing changes silently: the same type is taken as it is, integers of another width are taken if every value
//! fits (PyTorch stores labels as i64), and everything else is refused unless the caller asks for a cast.

use super::{Stored, StoredType};
use einloom_cascade::{DType, numeric};

/// Why a file's tensor was not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// What does not fit.
    pub message: String,
    /// What to do instead.
    pub hint: String,
}

/// The little-endian bytes of `stored` as `declared`, in [`DType::bytes`] bytes an element. With `cast`, other types
/// are rounded to nearest even (integers also saturate).
pub fn from_stored(stored: Stored, declared: DType, cast: bool) -> Result<Vec<u8>, Mismatch> {
    if let Some(dtype) = stored_as(stored.dtype, declared) {
        return match dtype {
            // f32 in memory: taken if nothing would be lost.
            DType::Tf32 if !cast => exactly(stored, declared),
            DType::B1 => flags(stored),
            _ => Ok(cast_bytes_of(stored, declared, dtype)),
        };
    }
    if let Some(values) = integers(&stored) {
        let range = match declared {
            DType::B1 => Some((0, 1)),
            _ => declared.integer_range(),
        };
        if let Some((low, high)) = range {
            let outside = |v: &i128| !(i128::from(low)..=i128::from(high)).contains(v);
            if !cast && let Some(at) = values.iter().position(outside) {
                let (bad, place) = (values[at], index_of(at, &stored.dims));
                return Err(Mismatch {
                    message: format!(
                        "the file holds {} and its element at {place:?} is {bad}, which {declared} cannot hold",
                        stored.dtype
                    ),
                    hint: format!("declare a wider type than {declared}, or give --cast to saturate"),
                });
            }
            let clamped: Vec<f64> = values.iter().map(|&v| v.clamp(low.into(), high.into()) as f64).collect();
            return Ok(numeric::encode(declared, &clamped));
        }
    }
    let values = if cast { floats(&stored) } else { None };
    match values {
        Some(values) => Ok(numeric::encode(declared, &values)),
        None => Err(refused(stored.dtype, declared)),
    }
}

/// What a file shall hold for an array of a number type: types that no format knows are stored as the wider type
/// that they live in.
pub fn to_stored(dtype: DType, dims: &[usize], bytes: Vec<u8>) -> Stored {
    let dtype = match dtype {
        DType::F64 => StoredType::F64,
        DType::F32 | DType::Tf32 => StoredType::F32,
        DType::Bf16 => StoredType::Bf16,
        DType::F16 => StoredType::F16,
        DType::E4m3 => StoredType::E4m3,
        DType::E5m2 => StoredType::E5m2,
        DType::I32 => StoredType::I32,
        DType::I16 => StoredType::I16,
        DType::I8 | DType::I4 => StoredType::I8,
        DType::U8 | DType::U4 => StoredType::U8,
        DType::B1 => StoredType::Bool,
    };
    Stored { dtype, dims: dims.to_vec(), bytes }
}

/// The language's type whose bytes the file holds, if that is the declared one.
fn stored_as(stored: StoredType, declared: DType) -> Option<DType> {
    let same = match (stored, declared) {
        (StoredType::Raw(2), DType::Bf16) | (StoredType::Raw(1), DType::E4m3 | DType::E5m2) => true,
        // Not every i8 is an i4: their values are looked at.
        (_, DType::I4 | DType::U4) => false,
        _ => to_stored(declared, &[], vec![]).dtype == stored,
    };
    same.then_some(declared)
}

fn cast_bytes_of(stored: Stored, declared: DType, dtype: DType) -> Vec<u8> {
    if dtype != DType::Tf32 {
        return stored.bytes;
    }
    let mut values = vec![];
    numeric::decode(DType::F32, &stored.bytes, &mut values);
    numeric::encode(declared, &values)
}

fn exactly(stored: Stored, declared: DType) -> Result<Vec<u8>, Mismatch> {
    let mut values = vec![];
    numeric::decode(DType::F32, &stored.bytes, &mut values);
    if values.iter().all(|&v| v.is_nan() || numeric::round(declared, v) == v) {
        Ok(stored.bytes)
    } else {
        Err(Mismatch {
            message: format!("the file holds {} and some of its values are not values of {declared}", stored.dtype),
            hint: format!("give --cast to round to {declared}, or declare {}", stored.dtype),
        })
    }
}

fn flags(stored: Stored) -> Result<Vec<u8>, Mismatch> {
    match stored.bytes.iter().find(|&&b| b > 1) {
        None => Ok(stored.bytes),
        Some(b) => Err(Mismatch {
            message: format!("the file holds bool and one of its bytes is {b}, neither 0 nor 1"),
            hint: "the file is damaged, or its bytes are not truth values".into(),
        }),
    }
}

fn refused(stored: StoredType, declared: DType) -> Mismatch {
    let hint = match stored {
        StoredType::Raw(_) => {
            "NumPy does not know bfloat16 and fp8: store them in a .safetensors file, or declare bf16 \
                               for 2-byte and e4m3 or e5m2 for 1-byte values"
                .to_string()
        }
        _ => match DType::from_name(&stored.to_string()) {
            Some(dtype) => format!("give --cast to convert, or declare the input as the file has it: {dtype}"),
            None => "give --cast to convert".to_string(),
        },
    };
    Mismatch { message: format!("the file holds {stored}, the program declares {declared}"), hint }
}

/// Where element number `at` is, counted row by row.
fn index_of(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (i, &dim) in index.iter_mut().zip(dims).rev() {
        (*i, at) = (at % dim.max(1), at / dim.max(1));
    }
    index
}

/// Its values, if it holds integers or truth values.
fn integers(stored: &Stored) -> Option<Vec<i128>> {
    fn each<const N: usize, T: Into<i128>>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Option<Vec<i128>> {
        Some(bytes.as_chunks::<N>().0.iter().map(|&b| from(b).into()).collect())
    }
    let bytes = &stored.bytes;
    match stored.dtype {
        StoredType::I64 => each(bytes, i64::from_le_bytes),
        StoredType::I32 => each(bytes, i32::from_le_bytes),
        StoredType::I16 => each(bytes, i16::from_le_bytes),
        StoredType::I8 => each(bytes, i8::from_le_bytes),
        StoredType::U64 => each(bytes, u64::from_le_bytes),
        StoredType::U32 => each(bytes, u32::from_le_bytes),
        StoredType::U16 => each(bytes, u16::from_le_bytes),
        StoredType::U8 | StoredType::Bool => each(bytes, u8::from_le_bytes),
        _ => None,
    }
}

/// Its values, if its type says what they are.
fn floats(stored: &Stored) -> Option<Vec<f64>> {
    let dtype = match stored.dtype {
        StoredType::F64 => DType::F64,
        StoredType::F32 => DType::F32,
        StoredType::F16 => DType::F16,
        StoredType::Bf16 => DType::Bf16,
        StoredType::E4m3 => DType::E4m3,
        StoredType::E5m2 => DType::E5m2,
        _ => return integers(stored).map(|v| v.into_iter().map(|v| v as f64).collect()),
    };
    let mut values = vec![];
    numeric::decode(dtype, &stored.bytes, &mut values);
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(dtype: StoredType, bytes: Vec<u8>) -> Stored {
        Stored { dtype, dims: vec![bytes.len() / dtype.bytes()], bytes }
    }

    fn f32s(values: &[f32]) -> Stored {
        stored(StoredType::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    fn i64s(values: &[i64]) -> Stored {
        stored(StoredType::I64, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    fn values(dtype: DType, bytes: Result<Vec<u8>, Mismatch>) -> Result<Vec<f64>, String> {
        let mut out = vec![];
        numeric::decode(dtype, &bytes.map_err(|e| e.message)?, &mut out);
        Ok(out)
    }

    #[test]
    fn floats_of_another_type_need_a_cast() {
        let x = || f32s(&[1.0, 1.0 + 2f32.powi(-12)]);
        assert_eq!(values(DType::F32, from_stored(x(), DType::F32, false)).unwrap()[1], 1.0 + 2f64.powi(-12));
        for dtype in [DType::Bf16, DType::F16, DType::E4m3, DType::F64] {
            assert_eq!(
                values(dtype, from_stored(x(), dtype, false)),
                Err(format!("the file holds f32, the program declares {dtype}"))
            );
        }
        assert_eq!(values(DType::Bf16, from_stored(x(), DType::Bf16, true)), Ok(vec![1.0, 1.0]));
    }

    #[test]
    fn tf32_is_f32_without_the_last_bits() {
        assert_eq!(values(DType::Tf32, from_stored(f32s(&[0.5, f32::NAN]), DType::Tf32, false)).unwrap()[0], 0.5);
        let fine = || f32s(&[1.0 + 2f32.powi(-12)]);
        assert!(from_stored(fine(), DType::Tf32, false).is_err());
        assert_eq!(values(DType::Tf32, from_stored(fine(), DType::Tf32, true)), Ok(vec![1.0]));
    }

    #[test]
    fn integers_of_another_width_are_taken_if_they_fit() {
        assert_eq!(values(DType::I32, from_stored(i64s(&[-1, 7]), DType::I32, false)), Ok(vec![-1.0, 7.0]));
        assert_eq!(
            values(DType::I32, from_stored(i64s(&[0, 1 << 31]), DType::I32, false)),
            Err("the file holds i64 and its element at [1] is 2147483648, which i32 cannot hold".into())
        );
        let table =
            Stored { dims: vec![2, 3], ..stored(StoredType::I8, [0i8, 7, -8, -9, 1, 8].map(|v| v as u8).to_vec()) };
        assert_eq!(
            values(DType::I4, from_stored(table, DType::I4, false)),
            Err("the file holds i8 and its element at [1, 0] is -9, which i4 cannot hold".into())
        );
        assert_eq!(values(DType::I4, from_stored(i64s(&[-9, 8]), DType::I4, true)), Ok(vec![-8.0, 7.0]));
        assert_eq!(values(DType::B1, from_stored(i64s(&[0, 1]), DType::B1, false)), Ok(vec![0.0, 1.0]));
        // Not representable in f64: the check must not go through it.
        assert!(from_stored(i64s(&[(1 << 53) + 1]), DType::I32, false).is_err());
    }

    #[test]
    fn integers_are_no_floats() {
        assert!(from_stored(i64s(&[1]), DType::F32, false).is_err());
        assert_eq!(values(DType::F32, from_stored(i64s(&[3]), DType::F32, true)), Ok(vec![3.0]));
        assert!(from_stored(f32s(&[1.0]), DType::I8, false).is_err());
        assert_eq!(values(DType::I8, from_stored(f32s(&[1.5, 1e9]), DType::I8, true)), Ok(vec![2.0, 127.0]));
    }

    #[test]
    fn opaque_bytes_are_what_the_declaration_says() {
        let one = || stored(StoredType::Raw(2), vec![0x80, 0x3f]);
        assert_eq!(values(DType::Bf16, from_stored(one(), DType::Bf16, false)), Ok(vec![1.0]));
        assert!(from_stored(one(), DType::F16, false).is_err());
        assert!(from_stored(one(), DType::F32, true).is_err());
        assert!(from_stored(stored(StoredType::Bool, vec![2]), DType::B1, false).is_err());
    }
}
