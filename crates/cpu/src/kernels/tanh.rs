//! The hyperbolic tangent with AVX-512, from `exp(2|x|) - 1` as [`super::exp`] computes the exponential: by a table of
//! sixteenths of powers of two.

use super::isa::Instructions;
#[cfg(target_arch = "x86_64")]
use super::{exp::SIXTEENTHS, math::LN2_HIGH, math::LN2_LOW};

/// What the entries of [`SIXTEENTHS`] lack, in parts of them.
#[cfg(target_arch = "x86_64")]
static LACKING: [f32; 16] = [
    0.0,
    4.628_547e-8,
    -1.199_215_8e-8,
    4.729_782_4e-8,
    3.193_418e-8,
    3.621_057_2e-8,
    -3.099_072e-8,
    -7.475_213e-9,
    1.711_427_1e-8,
    -3.047_683_4e-8,
    5.233_334e-9,
    6.107_591_8e-9,
    -1.471_960_5e-8,
    -5.258_795e-9,
    -6.128_259_7e-9,
    5.140_609_3e-9,
];

/// `d[i] = tanh(x[i] / over) * times`, each operation rounded, where `x` is `from`, or `d` itself; `from` has as many
/// elements as `d`. The tangent is within 3 ulp, the quotient the rounded one wherever the tangent depends on it. False
/// if the instructions are not there, or `over` and its inverse are not normal: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 && over.is_normal() && (1.0 / over).is_normal() {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe { avx512(d, from, over, times) };
        return true;
    }
    let _ = (d, from, over, times);
    false
}

/// One loop for all elements, two vectors at a time: each is a long chain of operations.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn avx512(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) {
    use std::arch::x86_64::*;

    let n = d.len();
    assert!(from.is_none_or(|x| x.len() >= n), "an operand is too short");
    let to = d.as_mut_ptr();
    let from = from.map_or(to.cast_const(), <[f32]>::as_ptr);
    // SAFETY: the tables have 16 entries.
    let tables = unsafe { [_mm512_loadu_ps(SIXTEENTHS.as_ptr()), _mm512_loadu_ps(LACKING.as_ptr())] };
    let (by, inverse, times) = (_mm512_set1_ps(over), _mm512_set1_ps(1.0 / over), _mm512_set1_ps(times));
    let scaled = over != 1.0;
    let one = |x: __m512| {
        let x = if scaled { quotient(x, by, inverse) } else { x };
        _mm512_mul_ps(tanh(x, tables), times)
    };
    let mut at = 0;
    while at + 32 <= n {
        // SAFETY: 32 elements are there.
        unsafe {
            let (x, y) = (_mm512_loadu_ps(from.add(at)), _mm512_loadu_ps(from.add(at + 16)));
            _mm512_storeu_ps(to.add(at), one(x));
            _mm512_storeu_ps(to.add(at + 16), one(y));
        }
        at += 32;
    }
    while at < n {
        let mask = 0xffffu16 >> (16 - (n - at).min(16));
        // SAFETY: the mask has a bit per element that is there.
        unsafe { _mm512_mask_storeu_ps(to.add(at), mask, one(_mm512_maskz_loadu_ps(mask, from.add(at)))) };
        at += 16;
    }
}

#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m512;

/// As [`super::math::quotients`]; infinities stay.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn quotient(x: Vector, by: Vector, inverse: Vector) -> Vector {
    use std::arch::x86_64::*;

    let q = _mm512_mul_ps(x, inverse);
    let left = _mm512_fnmadd_ps(q, by, x);
    /// Infinities and NaN. (Intel 64 and IA-32 Architectures Software Developer's Manual, `VFPCLASSPS`.)
    const NO_NUMBER: i32 = 0x99;
    let number = !_mm512_fpclass_ps_mask::<NO_NUMBER>(left);
    _mm512_mask3_fmadd_ps(left, inverse, q, number)
}

/// The tangents of 16 numbers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn tanh(x: Vector, [sixteenths, lacking]: [Vector; 2]) -> Vector {
    use std::arch::x86_64::*;

    // From 10 on the result rounds to 1; the minimum keeps a NaN that is its second operand.
    let a = _mm512_min_ps(_mm512_set1_ps(10.0), _mm512_abs_ps(x));
    let a = _mm512_add_ps(a, a);
    // To the nearest sixteenth of a power of two, as the exponential.
    let magic = _mm512_set1_ps(786_432.0); // 1.5 * 2^(23 - 4)
    let shifted = _mm512_fmadd_ps(a, _mm512_set1_ps(std::f32::consts::LOG2_E), magic);
    let n = _mm512_sub_ps(shifted, magic);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HIGH), a);
    let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LOW), r);
    // `exp(r) - 1` for `|r| <= ln(2)/32`, with the relative precision that small results need.
    let p = _mm512_fmadd_ps(r, _mm512_set1_ps(1.0 / 24.0), _mm512_set1_ps(1.0 / 6.0));
    let p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.5));
    let e = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
    let number = _mm512_castps_si512(shifted);
    let power = _mm512_scalef_ps(_mm512_permutexvar_ps(number, sixteenths), n);
    let e = _mm512_add_ps(e, _mm512_permutexvar_ps(number, lacking));
    // `exp(a) - 1`; the power less 1 is exact where that matters.
    let most = _mm512_fmadd_ps(power, e, _mm512_sub_ps(power, _mm512_set1_ps(1.0)));
    // `most / (most + 2)`: by an approximate inverse, corrected once.
    let over = _mm512_add_ps(most, _mm512_set1_ps(2.0));
    let inverse = _mm512_rcp14_ps(over);
    let q = _mm512_mul_ps(most, inverse);
    let q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, over, most), inverse, q);
    // Where the third operand has a bit, the second's; else the first's.
    let sign = _mm512_castps_si512(_mm512_set1_ps(-0.0));
    let bits = _mm512_ternarylogic_epi32::<0xd8>(_mm512_castps_si512(q), _mm512_castps_si512(x), sign);
    _mm512_castsi512_ps(bits)
}

#[cfg(test)]
mod tests {
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    /// `d = tanh(from / over) * times`, or of `d` itself.
    struct Capped<'a>(&'a mut [f32], Option<&'a [f32]>, f32, f32);

    impl Work for Capped<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            super::run::<I>(self.0, self.1, self.2, self.3)
        }
    }

    /// A soft cap of numbers whose quotient is beyond f32: the tangent of an infinity is 1, not NaN, and what is beside it in the
    /// row is what it would be alone. Lengths with and without a tail.
    #[test]
    fn a_cap_by_a_shared_divisor_that_overflows_is_the_cap() {
        let mut ran = false;
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for over in [1e-20f32, -1e-20, 3e-10, 1.0, 30.0] {
                let row = [1e30, -1e30, f32::MAX, f32::MIN, 1e19, 0.5e-20, -0.7e-10, 0.25, -8.0, 40.0];
                let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0];
                let all: Vec<f32> = row.iter().chain(&special).copied().cycle().take(45).collect();
                for n in [1, 15, 32, 45] {
                    let x = &all[..n];
                    let (mut apart, mut in_place) = (vec![9.0; n], x.to_vec());
                    let done = dispatch(token, Capped(&mut apart, Some(x), over, 50.0));
                    assert_eq!(done, dispatch(token, Capped(&mut in_place, None, over, 50.0)));
                    if !done {
                        continue;
                    }
                    ran = true;
                    for ((&x, &found), &other) in x.iter().zip(&apart).zip(&in_place) {
                        assert_eq!(found.to_bits(), other.to_bits(), "{x:e} / {over:e}");
                        let want = f64::from(x / over).tanh() * 50.0;
                        let same = if want.is_nan() {
                            found.is_nan()
                        } else {
                            (f64::from(found) - want).abs() <= 3e-7 * want.abs()
                        };
                        assert!(same, "tanh({x:e} / {over:e}) * 50 is {want:e}, found {found:e}");
                    }
                }
            }
        }
        assert_eq!(ran, Token::new(Isa::Avx512).is_some(), "only AVX-512 has it");
    }
}
