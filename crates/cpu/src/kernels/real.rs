//! The two number types that tile expressions are computed in.

use super::isa::Instructions;
use super::math;
use super::strip::{self, Data};
use einloom_cascade::numeric::{
    bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32, f32_to_bf16, f32_to_e4m3, f32_to_e5m2, f32_to_f16, round,
};
use einloom_cascade::{DType, UnaryOp};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `f32` or `f64`. Functions follow [`UnaryOp::apply`] and [`einloom_cascade::BinaryOp::apply`].
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// 1.
    const ONE: Self;
    /// Rounded to this type.
    fn from_f64(x: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
    /// Exact where this type is f64 or `|x| <= 2^24`, as the program's number types ensure.
    fn from_i32(x: i32) -> Self;
    /// To nearest even, within the range; 0 for a NaN.
    fn to_i32(self, low: Self, high: Self) -> i32;
    /// Exact from f32.
    fn from_f32(x: f32) -> Self;
    /// To nearest even.
    fn to_f32(self) -> f32;
    /// To a power.
    fn pow(self, exponent: Self) -> Self;
    /// Rounded to a number type.
    fn rounded(self, dtype: DType) -> Self;
    /// A function whose branch-free form is worth a loop of its own.
    fn function<I: Instructions>(self, op: UnaryOp) -> Self;
    /// `d[i] = exp(x[i] * by - less)`, the argument rounded once, if there is a kernel for it; false if there is none. `x`
    /// is `from`, or `d` itself; `less` has one element, or as many as `d`. 0 where the argument is less than `least`.
    fn exp_kernel<I: Instructions>(d: &mut [Self], from: Option<&[Self]>, by: Self, less: &[Self], least: f32) -> bool {
        let _ = (d, from, by, less, least);
        false
    }
    /// `d[i] = tanh(x[i] / over) * times`, each operation rounded, if there is a kernel for it; false if there is none.
    /// `x` is `from`, or `d` itself.
    fn tanh_kernel<I: Instructions>(_d: &mut [Self], _from: Option<&[Self]>, _over: f64, _times: f64) -> bool {
        false
    }
    /// `d[i] = 1 / (1 + exp(-d[i]))`, if there is a kernel for it; false if there is none.
    fn sigmoid_kernel<I: Instructions>(_d: &mut [Self]) -> bool {
        false
    }
    /// `d[i] = d[i] / by`, if there is something faster than dividing; false if there is not.
    fn quotient_kernel<I: Instructions>(_d: &mut [Self], _from: Option<&[Self]>, _by: Self) -> bool {
        false
    }
    /// `d[i] = mask[i] ? d[i] : other[i]`, or the other way round if `flipped`, of as many first elements as it says: none if there is no
    /// kernel for it.
    fn chosen_kernel<I: Instructions>(
        _d: &mut [Self],
        _mask: &[Self],
        _other: Data<'_, Self>,
        _flipped: bool,
    ) -> usize {
        0
    }
    /// The elements themselves if this type is f32.
    fn floats(_x: &[Self]) -> Option<&[f32]> {
        None
    }
    /// The same, to be written.
    fn floats_mut(_x: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
    /// The square root.
    fn root(self) -> Self;
    /// To the integer below.
    fn down(self) -> Self;
    /// To the nearest integer, ties to even.
    fn nearest(self) -> Self;
    /// Without its sign.
    fn magnitude(self) -> Self;
}

impl Real for f32 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_i32(x: i32) -> Self {
        x as f32
    }
    #[inline(always)]
    fn to_i32(self, low: Self, high: Self) -> i32 {
        // The cast saturates and takes NaN to 0; the comparisons keep a NaN.
        let x = self.round_ties_even();
        let x = if x < low { low } else { x };
        (if x > high { high } else { x }) as i32
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        self.powf(exponent)
    }
    #[inline(always)]
    fn rounded(self, dtype: DType) -> Self {
        match dtype {
            DType::F64 | DType::F32 => self,
            DType::Bf16 => bf16_to_f32(f32_to_bf16(self)),
            DType::F16 => f16_to_f32(f32_to_f16(self)),
            DType::E4m3 => e4m3_to_f32(f32_to_e4m3(self)),
            DType::E5m2 => e5m2_to_f32(f32_to_e5m2(self)),
            DType::Tf32 => round_tf32(self),
            DType::B1 => f32::from(u8::from(self != 0.0)),
            _ => round(dtype, f64::from(self)) as f32,
        }
    }
    #[inline(always)]
    fn function<I: Instructions>(self, op: UnaryOp) -> Self {
        match op {
            UnaryOp::Exp => math::exp::<I>(self),
            UnaryOp::Exp2 => math::exp2::<I>(self),
            UnaryOp::Log => math::log::<I>(self),
            UnaryOp::Log2 => math::log2::<I>(self),
            UnaryOp::Log1p => math::log1p::<I>(self),
            UnaryOp::Tanh => math::tanh::<I>(self),
            UnaryOp::Sigmoid => math::sigmoid::<I>(self),
            UnaryOp::Silu => self * math::sigmoid::<I>(self),
            UnaryOp::Erf => math::erf::<I>(self),
            UnaryOp::Gelu => math::gelu::<I>(self),
            UnaryOp::Sin => math::sin::<I>(self),
            UnaryOp::Cos => math::cos::<I>(self),
            _ => op.apply(f64::from(self)) as f32,
        }
    }
    #[inline(always)]
    fn exp_kernel<I: Instructions>(d: &mut [Self], from: Option<&[Self]>, by: Self, less: &[Self], least: f32) -> bool {
        super::exp::run::<I>(d, from, by, less, least)
    }
    #[inline(always)]
    fn tanh_kernel<I: Instructions>(d: &mut [Self], from: Option<&[Self]>, over: f64, times: f64) -> bool {
        super::tanh::run::<I>(d, from, over as f32, times as f32)
    }
    #[inline(always)]
    fn sigmoid_kernel<I: Instructions>(d: &mut [Self]) -> bool {
        super::logistic::run::<I>(d, 1.0, 0.0)
    }
    #[inline(always)]
    fn quotient_kernel<I: Instructions>(d: &mut [Self], from: Option<&[Self]>, by: Self) -> bool {
        math::quotients::<I>(d, from, by)
    }
    #[inline(always)]
    fn chosen_kernel<I: Instructions>(d: &mut [Self], mask: &[Self], other: Data<'_, Self>, flipped: bool) -> usize {
        strip::chosen::<I>(d, mask, other, flipped)
    }
    #[inline(always)]
    fn floats(x: &[Self]) -> Option<&[f32]> {
        Some(x)
    }
    #[inline(always)]
    fn floats_mut(x: &mut [Self]) -> Option<&mut [f32]> {
        Some(x)
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn down(self) -> Self {
        self.floor()
    }
    #[inline(always)]
    fn nearest(self) -> Self {
        self.round_ties_even()
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.abs()
    }
}

/// To 10 bits of mantissa, ties to even.
#[inline(always)]
pub(crate) fn round_tf32(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff;
    if x.is_nan() { x } else { f32::from_bits(rounded) }
}

impl Real for f64 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_i32(x: i32) -> Self {
        f64::from(x)
    }
    #[inline(always)]
    fn to_i32(self, low: Self, high: Self) -> i32 {
        let x = self.round_ties_even();
        let x = if x < low { low } else { x };
        (if x > high { high } else { x }) as i32
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        f64::from(x)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        self.powf(exponent)
    }
    #[inline(always)]
    fn rounded(self, dtype: DType) -> Self {
        round(dtype, self)
    }
    #[inline(always)]
    fn function<I: Instructions>(self, op: UnaryOp) -> Self {
        op.apply(self)
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn down(self) -> Self {
        self.floor()
    }
    #[inline(always)]
    fn nearest(self) -> Self {
        self.round_ties_even()
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.abs()
    }
}
