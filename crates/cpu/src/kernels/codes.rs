//! Anchored exponentials of bf16 and quotients that become bf16, between code and number in registers: a strip for each step
//! would be written and read again as often.

use crate::kernels::fold::Partial;
use crate::kernels::isa::Instructions;

/// `to[i] = exp(x[i] * by - less)` of `x` in bf16, each as of [`super::exp::run`], 0 where the argument is less than `least`; all of
/// them are added to `sum`. False if the instructions are not there: nothing is done then.
#[inline(always)]
pub(crate) fn exponentials<I: Instructions>(
    from: &[u16],
    [by, less, least]: [f32; 3],
    to: &mut [f32],
    sum: &mut Partial,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe { x86::exponentials(from, [by, less, least], to, sum) };
        return true;
    }
    let _ = (from, by, less, least, to, sum);
    false
}

/// Whether a product with the inverse tells the quotient.
pub(crate) fn divides(over: f32) -> bool {
    over.is_normal() && (1.0 / over).is_normal()
}

/// `to[i] = x[i] / over` in bf16, the quotients as of [`crate::kernels::math::quotients`]. False if the instructions are not
/// there, or if the inverse does not tell quotients: nothing is done then.
#[inline(always)]
pub(crate) fn quotients<I: Instructions>(from: &[f32], over: f32, to: &mut [u16]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 && divides(over) {
        // SAFETY: as above.
        unsafe { x86::quotients(from, over, to) };
        return true;
    }
    let _ = (from, over, to);
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::kernels::exp::{SIXTEENTHS, exp};
    use crate::kernels::fold::Partial;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn exponentials(from: &[u16], [by, less, least]: [f32; 3], to: &mut [f32], partial: &mut Partial) {
        assert!(to.len() >= from.len(), "a number for each");
        let (from, count, to) = (from.as_ptr(), from.len(), to.as_mut_ptr());
        // SAFETY: the table has 16 entries.
        let sixteenths = unsafe { _mm512_loadu_ps(SIXTEENTHS.as_ptr()) };
        let [by, less, least] = [by, less, least].map(|x| _mm512_set1_ps(x));
        let exp = |codes: __m256i| {
            let x = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(codes)));
            exp(_mm512_fmsub_ps(x, by, less), least, sixteenths)
        };
        // Two, because each waits for the one before.
        let (mut even, mut odd) = (_mm512_setzero_ps(), _mm512_setzero_ps());
        let mut at = 0;
        // SAFETY: so many codes and numbers are there; the mask has a bit for each.
        unsafe {
            while at + 32 <= count {
                let x = exp(_mm256_loadu_si256(from.add(at).cast()));
                let y = exp(_mm256_loadu_si256(from.add(at + 16).cast()));
                _mm512_storeu_ps(to.add(at), x);
                _mm512_storeu_ps(to.add(at + 16), y);
                (even, odd) = (_mm512_add_ps(even, x), _mm512_add_ps(odd, y));
                at += 32;
            }
            while at < count {
                let mask = ((1u32 << (count - at).min(16)) - 1) as u16;
                let x = exp(_mm256_maskz_loadu_epi16(mask, from.add(at).cast()));
                _mm512_mask_storeu_ps(to.add(at), mask, x);
                even = _mm512_mask_add_ps(even, mask, even, x);
                at += 16;
            }
            let all = _mm512_add_ps(_mm512_loadu_ps(partial.as_ptr()), _mm512_add_ps(even, odd));
            _mm512_storeu_ps(partial.as_mut_ptr(), all);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn quotients(from: &[f32], over: f32, to: &mut [u16]) {
        assert!(to.len() >= from.len(), "a quotient for each");
        let (from, count, to) = (from.as_ptr(), from.len(), to.as_mut_ptr());
        let [by, inverse] = [over, 1.0 / over].map(|x| _mm512_set1_ps(x));
        for at in (0..count).step_by(16) {
            let mask = ((1u32 << (count - at).min(16)) - 1) as u16;
            // SAFETY: the mask has a bit for each that is there.
            let x = unsafe { _mm512_maskz_loadu_ps(mask, from.add(at)) };
            let q = _mm512_mul_ps(x, inverse);
            let left = _mm512_fnmadd_ps(q, by, x);
            // Infinities stay.
            let q = _mm512_mask3_fmadd_ps(left, inverse, q, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(left, left));
            // To nearest, ties to even; a NaN becomes quiet and keeps its sign.
            let bits = _mm512_castps_si512(q);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
            let code = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(q, q), quiet);
            let code = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(code));
            // SAFETY: as above.
            unsafe { _mm256_mask_storeu_epi16(to.add(at).cast(), mask, code) };
        }
    }
}
