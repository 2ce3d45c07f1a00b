//! The anchored exponential with AVX-512, whose instructions for rounding and scaling save half of the work of
//! [`super::math::exp`]. Everything else of the language is left to the compiler's vectoriser.

use super::isa::Instructions;
#[cfg(target_arch = "x86_64")]
use super::math::{EXP, EXP_LEAST, EXP_MOST, LN2_HIGH, LN2_LOW};

/// `d[i] = exp(d[i] * by - less)`, each operation rounded; `less` has one element, or as many as `d`. The errors are
/// those of [`super::math::exp`]. False if the instructions are not there: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], by: f32, less: &[f32]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe { avx512(d, by, less) };
        return true;
    }
    let _ = (d, by, less);
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn avx512(d: &mut [f32], by: f32, less: &[f32]) {
    use std::arch::x86_64::*;

    let exp = |x: __m512| {
        // The comparisons of these instructions keep a NaN that is their second operand.
        let x = _mm512_min_ps(_mm512_set1_ps(EXP_MOST), _mm512_max_ps(_mm512_set1_ps(EXP_LEAST), x));
        let n = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
        let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT }>(n);
        let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HIGH), x);
        let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LOW), r);
        let mut p = _mm512_set1_ps(EXP[5]);
        for k in (0..5).rev() {
            p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP[k]));
        }
        let e = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
        _mm512_scalef_ps(_mm512_add_ps(e, _mm512_set1_ps(1.0)), n)
    };
    let by = _mm512_set1_ps(by);
    if let &[less] = less {
        let less = _mm512_set1_ps(less);
        each(d, |x, _| exp(_mm512_sub_ps(_mm512_mul_ps(x, by), less)));
    } else {
        each(d, |x, rest| exp(_mm512_sub_ps(_mm512_mul_ps(x, by), load(&less[rest..]))));
    }
}

/// The first 16 elements, or all that there are and zeros.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[f32]) -> std::arch::x86_64::__m512 {
    use std::arch::x86_64::*;
    if from.len() >= 16 {
        // SAFETY: 16 elements are there.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    } else {
        // SAFETY: the mask has a bit per element that is there.
        unsafe { _mm512_maskz_loadu_ps((1u16 << from.len()) - 1, from.as_ptr()) }
    }
}

/// Replaces every 16 elements, and the last fewer, by what `f` makes of them and of the number of the first.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn each(d: &mut [f32], f: impl Fn(std::arch::x86_64::__m512, usize) -> std::arch::x86_64::__m512) {
    use std::arch::x86_64::*;
    let mut at = 0;
    while d.len() - at >= 16 {
        let y = f(load(&d[at..]), at);
        // SAFETY: 16 elements are left.
        unsafe { _mm512_storeu_ps(d[at..].as_mut_ptr(), y) };
        at += 16;
    }
    if at < d.len() {
        let y = f(load(&d[at..]), at);
        let mask = (1u16 << (d.len() - at)) - 1;
        // SAFETY: the mask has a bit per element that is left.
        unsafe { _mm512_mask_storeu_ps(d[at..].as_mut_ptr(), mask, y) };
    }
}
