//! What the number types do to a value: rounding, and the bytes that hold it.
//!
//! | type | nearest, ties to | too large | NaN |
//! |---|---|---|---|
//! | f32 tf32 bf16 f16 e5m2 | even | ±inf | NaN |
//! | e4m3 | even | finite: ±448, ±inf: NaN | NaN |
//! | i32 i16 i8 i4 u8 u4 | even | the nearest bound | 0 |
//! | b1 | 1 unless it is 0 | 1 | 1 |

mod codec;
mod float;

pub use codec::{decode, encode};
pub use float::{bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_bf16, f32_to_e4m3, f32_to_e5m2, f32_to_f16};

use crate::DType;

/// The value of `dtype` that stands for `x`: rounded once, directly from `f64`.
pub fn round(dtype: DType, x: f64) -> f64 {
    if let Some((low, high)) = dtype.integer_range() {
        // Adding zero turns -0 into the only zero that integers have.
        return if x.is_nan() { 0.0 } else { x.round_ties_even().clamp(low as f64, high as f64) + 0.0 };
    }
    match dtype {
        DType::B1 => f64::from(x != 0.0),
        DType::F32 => f64::from(x as f32),
        DType::Tf32 => float::round(float::TF32, x),
        DType::Bf16 => float::round(float::BF16, x),
        DType::F16 => float::round(float::F16, x),
        DType::E5m2 => float::round(float::E5M2, x),
        DType::E4m3 if x.is_infinite() => f64::NAN,
        DType::E4m3 => float::round(float::E4M3, x).clamp(-float::E4M3_MAX, float::E4M3_MAX),
        _ => x,
    }
}
