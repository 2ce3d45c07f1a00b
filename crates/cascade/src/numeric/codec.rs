//! Arrays of a number type as bytes.

use super::{float, round};
use crate::DType;

/// Appends the values that little-endian `bytes` hold. Elements take [`DType::bytes`] bytes; trailing bytes that do not
/// make an element are ignored. A byte that is no value of i4, u4 or b1 counts as the nearest one.
pub fn decode(dtype: DType, bytes: &[u8], out: &mut Vec<f64>) {
    match dtype {
        DType::F64 => out.extend(chunks(bytes).map(f64::from_le_bytes)),
        DType::F32 => out.extend(chunks(bytes).map(|b| f64::from(f32::from_le_bytes(b)))),
        DType::Tf32 => out.extend(chunks(bytes).map(|b| round(dtype, f64::from(f32::from_le_bytes(b))))),
        DType::Bf16 => out.extend(chunks(bytes).map(|b| f64::from(float::bf16_to_f32(u16::from_le_bytes(b))))),
        DType::F16 => out.extend(chunks(bytes).map(|b| f64::from(float::f16_to_f32(u16::from_le_bytes(b))))),
        DType::E4m3 => out.extend(bytes.iter().map(|&b| f64::from(float::e4m3_to_f32(b)))),
        DType::E5m2 => out.extend(bytes.iter().map(|&b| f64::from(float::e5m2_to_f32(b)))),
        DType::I32 => out.extend(chunks(bytes).map(|b| f64::from(i32::from_le_bytes(b)))),
        DType::I16 => out.extend(chunks(bytes).map(|b| f64::from(i16::from_le_bytes(b)))),
        DType::I8 | DType::I4 => out.extend(bytes.iter().map(|&b| round(dtype, f64::from(b as i8)))),
        DType::U8 | DType::U4 | DType::B1 => out.extend(bytes.iter().map(|&b| round(dtype, f64::from(b)))),
    }
}

/// The little-endian bytes of `values`, each rounded to `dtype` first.
pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * dtype.bytes());
    for &value in values {
        let x = round(dtype, value);
        // `x` is a value of the type, so that no conversion below rounds.
        match dtype {
            DType::F64 => out.extend(x.to_le_bytes()),
            DType::F32 | DType::Tf32 => out.extend((x as f32).to_le_bytes()),
            DType::Bf16 => out.extend(float::f32_to_bf16(x as f32).to_le_bytes()),
            DType::F16 => out.extend(float::f32_to_f16(x as f32).to_le_bytes()),
            DType::E4m3 => out.push(float::f32_to_e4m3(x as f32)),
            DType::E5m2 => out.push(float::f32_to_e5m2(x as f32)),
            DType::I32 => out.extend((x as i32).to_le_bytes()),
            DType::I16 => out.extend((x as i16).to_le_bytes()),
            DType::I8 | DType::I4 => out.push(x as i8 as u8),
            DType::U8 | DType::U4 | DType::B1 => out.push(x as u8),
        }
    }
    out
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}
