//! Elementary functions on `f32`, written without branches so that a loop over them vectorises.
//!
//! The polynomials are minimax fits (Remez exchange in 40 digits) made for this file; the reductions are textbook
//! (J.-M. Muller, "Elementary Functions", 3rd edition, chapters 3, 4 and 11). `tests` bounds every error.

use super::isa::Instructions;
use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

/// `a * b + c`, fused where that is one instruction.
#[inline(always)]
pub(crate) fn fma<I: Instructions>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn polynomial<I: Instructions, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = fma::<I>(sum, x, coefficients[i]);
    }
    sum
}

/// `d[i] = d[i] / by` by one division; false, and nothing done, where that would not be right or not be fast.
///
/// A product with the rounded inverse, corrected by what it leaves of the dividend: P. Markstein, "Computation of
/// elementary functions on the IBM RISC System/6000 processor", 1990, theorem 7. The result is the rounded quotient
/// where neither it nor what is left underflows, so for dividends and quotients from `2^-100` on, else within 1.5 ulp.
#[inline(always)]
pub(crate) fn quotients<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, by: f32) -> bool {
    let inverse = 1.0 / by;
    if !I::FMA || !by.is_normal() || !inverse.is_normal() {
        return false;
    }
    // No closures: they would not have the instructions.
    match from {
        Some(from) => {
            for (d, &x) in d.iter_mut().zip(from) {
                *d = quotient(x, by, inverse);
            }
        }
        None => {
            for x in d {
                *x = quotient(*x, by, inverse);
            }
        }
    }
    true
}

#[inline(always)]
fn quotient(x: f32, by: f32, inverse: f32) -> f32 {
    let q = x * inverse;
    let left = (-q).mul_add(by, x);
    // Infinities and NaNs leave a NaN, quotients that overflow an infinity; a zero has its sign already. One comparison for all.
    let some = left.abs().to_bits().wrapping_sub(1) < f32::INFINITY.to_bits() - 1;
    if some { left.mul_add(inverse, q) } else { q }
}

/// Adding and subtracting it rounds to the nearest integer; the low bits of the sum are that integer.
const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23

/// `x * 2^n` for `n` in `-252..=252`, in two steps so that neither factor leaves the range.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    x * power(half) * power(n - half)
}

/// `x` between bounds; a NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `ln 2` in two parts, the first with few enough bits that `n * LN2_HIGH` is exact.
pub(super) const LN2_HIGH: f32 = 355.0 / 512.0;
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;

/// Beyond these `exp` is 0 and infinity.
pub(super) const EXP_LEAST: f32 = -104.0;
pub(super) const EXP_MOST: f32 = 89.0;

/// `(2 exp(r) - 2 - 2 r) / r²` for `|r| <= ln(2)/2`: least in relative error, 3.8e-9 of the exponential, by weighted least squares
/// whose weights were raised where the error was large (Lawson, 1961).
pub(super) const TWICE: [f32; 5] = [0.999_999_9, 0.333_330_4, 0.083_336_78, 0.016_737_434, 0.002_762_919_3];

/// Within 1.07 ulp where the result is normal, else within 1 ulp of the least subnormal. Normal results are those of AVX2's vectors
/// ([`super::wide`]) to the bit: what is computed again is found again.
#[inline(always)]
pub(crate) fn exp<I: Instructions>(x: f32) -> f32 {
    let x = clamp(x, EXP_LEAST, EXP_MOST);
    let shifted = fma::<I>(x, LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<I>(n, -LN2_HIGH, x);
    let r = fma::<I>(n, -LN2_LOW, r);
    let [p0, p1, p2, p3, p4] = TWICE;
    let twice = polynomial::<I, 7>(r, [2.0, 2.0, p0, p1, p2, p3, p4]);
    scale(twice, (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32) - 1)
}

/// As [`exp`], within 1.5 ulp.
#[inline(always)]
pub(crate) fn exp2<I: Instructions>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let shifted = x + MAGIC;
    let r = x - (shifted - MAGIC);
    let p = polynomial::<I, 6>(
        r,
        [std::f32::consts::LN_2, 0.240_226_48, 0.055_503_324, 0.009_618_438, 0.001_339_890_1, 0.000_153_533_42],
    );
    scale(fma::<I>(r, p, 1.0), (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32))
}

/// `x = m * 2^e` with `m` between `sqrt(1/2)` and `sqrt(2)`: `(m - 1, e)`.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    let e = bits.wrapping_sub(FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub(e << 23) as u32);
    (m - 1.0, (if subnormal { e - 23 } else { e }) as f32)
}

/// `ln(1 + f) - f` for `f` as [`split`] gives it.
#[inline(always)]
fn log_tail<I: Instructions>(f: f32) -> f32 {
    let p = polynomial::<I, 9>(
        f,
        [
            0.333_333_13,
            -0.250_000_1,
            0.200_021_2,
            -0.166_679_96,
            0.142_195_55,
            -0.124_055_89,
            0.118_881_45,
            -0.116_756_4,
            0.067_466_63,
        ],
    );
    let f2 = f * f;
    fma::<I>(f2, -0.5, f * f2 * p)
}

/// What a logarithm is outside the positive finite numbers.
#[inline(always)]
fn log_ends(x: f32, inside: f32) -> f32 {
    let y = if x == f32::INFINITY { x } else { inside };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    // NaN too.
    if x >= 0.0 { y } else { f32::NAN }
}

/// Within 1 ulp.
#[inline(always)]
pub(crate) fn log<I: Instructions>(x: f32) -> f32 {
    let (f, e) = split(x);
    let y = fma::<I>(e, LN2_LOW, log_tail::<I>(f));
    log_ends(x, fma::<I>(e, LN2_HIGH, f + y))
}

/// Within 1.5 ulp.
#[inline(always)]
pub(crate) fn log2<I: Instructions>(x: f32) -> f32 {
    let (f, e) = split(x);
    let y = log_tail::<I>(f);
    // `LOG2_E` is 1 + 0.44…: the larger part of the product is exact.
    const LESS_ONE: f32 = LOG2_E - 1.0;
    let small = fma::<I>(f, LESS_ONE, fma::<I>(y, LESS_ONE, y));
    log_ends(x, (small + f) + e)
}

/// Within 2.5 ulp.
#[inline(always)]
pub(crate) fn log1p<I: Instructions>(x: f32) -> f32 {
    // W. Kahan's correction of the rounding of `1 + x`.
    let u = 1.0 + x;
    let y = log::<I>(u) * (x / (u - 1.0));
    let y = if u == 1.0 { x } else { y };
    if u == f32::INFINITY { u } else { y }
}

/// Within 1.5 ulp.
#[inline(always)]
pub(crate) fn tanh<I: Instructions>(x: f32) -> f32 {
    let u = x * x;
    let p = polynomial::<I, 5>(u, [-0.333_332_84, 0.133_314_91, -0.053_743_497, 0.020_650_584, -0.005_717_042]);
    let small = fma::<I>(x * u, p, x);
    let a = x.abs();
    let large = (1.0 - 2.0 / (exp::<I>(a + a) + 1.0)).copysign(x);
    if a > 0.625 { large } else { small }
}

/// `1 / (1 + exp(-x))`: within 2.5 ulp down to -87, below which `exp(-x)` overflows and it is 0.
#[inline(always)]
pub(crate) fn sigmoid<I: Instructions>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<I>(-x))
}

/// Within 1.5 ulp.
#[inline(always)]
pub(crate) fn erf<I: Instructions>(x: f32) -> f32 {
    let u = x * x;
    let p = polynomial::<I, 7>(
        u,
        [0.128_379_17, -0.376_126_32, 0.112_836_86, -0.026_858_851, 0.005_199_599_5, -0.000_812_580_46, 8.296_603_5e-5],
    );
    let small = fma::<I>(x, p, x);
    let a = x.abs();
    // From 4 on the result rounds to 1; the fit ends there.
    let a = if a > 4.0 { 4.0 } else { a };
    let q = polynomial::<I, 8>(
        a,
        [
            0.128_544_93,
            0.635_656_4,
            0.105_203_144,
            -0.022_612_262,
            0.002_892_460_7,
            -3.612_369_3e-5,
            -4.819_046_4e-5,
            5.149_899e-6,
        ],
    );
    let large = (1.0 - exp::<I>(-fma::<I>(a, q, a))).copysign(x);
    if x.abs() > 0.9375 { large } else { small }
}

/// `x/2 * (1 + erf(x/√2))`: the error is a few ulp of `x`, not of the result, where `erf` is near -1.
#[inline(always)]
pub(crate) fn gelu<I: Instructions>(x: f32) -> f32 {
    0.5 * x * (1.0 + erf::<I>(x * FRAC_1_SQRT_2))
}

/// `sin(x + quarter·π/2)` for `|x| <=` [`WAVE_LIMIT`].
#[inline(always)]
fn wave<I: Instructions>(x: f32, quarter: i32) -> f32 {
    // In f64 the nearest multiple of π/2 leaves 50 good bits of the remainder less those of the multiple.
    let wide = f64::from(x);
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let shifted = wide * std::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    const PI_2_LOW: f64 = 6.123_233_995_736_766e-17;
    let r = ((wide - n * std::f64::consts::FRAC_PI_2) - n * PI_2_LOW) as f32;
    let turn = (shifted.to_bits() as i32).wrapping_add(quarter);
    let u = r * r;
    let s = polynomial::<I, 4>(u, [-0.166_666_67, 0.008_333_329, -0.000_198_393_3, 2.718_274_3e-6]);
    let sin = fma::<I>(r * u, s, r);
    let c = polynomial::<I, 4>(u, [0.041_666_668, -0.001_388_888_3, 2.479_951_6e-5, -2.720_989_3e-7]);
    let cos = fma::<I>(u * u, c, fma::<I>(u, -0.5, 1.0));
    let y = if turn & 1 == 0 { sin } else { cos };
    if turn & 2 == 0 { y } else { -y }
}

/// The largest magnitude for which [`sin`] and [`cos`] hold.
pub(crate) const WAVE_LIMIT: f32 = 131_072.0;

/// Within 0.501 ulp up to [`WAVE_LIMIT`].
#[inline(always)]
pub(crate) fn sin<I: Instructions>(x: f32) -> f32 {
    wave::<I>(x, 0)
}

/// Within 0.501 ulp up to [`WAVE_LIMIT`].
#[inline(always)]
pub(crate) fn cos<I: Instructions>(x: f32) -> f32 {
    wave::<I>(x, 1)
}

/// The value of an IEEE half, as [`einloom_cascade::numeric::f16_to_f32`], without branches. Exact.
#[inline(always)]
pub(crate) fn f16_to_f32(code: u16) -> f32 {
    let code = u32::from(code);
    let magnitude = (code & 0x7fff) << 13;
    // Multiplying by 2^112 moves the exponent from the bias 15 to 127, subnormals included.
    let finite = f32::from_bits(magnitude) * f32::from_bits(239 << 23);
    // Infinities and NaN: the exponent's field is full in both formats.
    let rest = f32::from_bits(magnitude | 0x7f80_0000);
    let value = if magnitude >= 0x0f80_0000 { rest } else { finite };
    f32::from_bits(value.to_bits() | (code & 0x8000) << 16)
}

#[cfg(test)]
mod tests;
