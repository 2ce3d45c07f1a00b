//! Sixteen f32 at a time, in whatever registers the processor has for them: one of AVX-512 or two of AVX2. Maps and reductions of
//! tiles are written once for both.
//!
//! Every method is `unsafe` as those of [`Lanes`] are.

use super::isa::Instructions;
use super::lanes::Floats;
#[cfg(target_arch = "x86_64")]
use super::lanes::x86::F32x16;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::F32x8x2;

/// What maps need of a vector beyond arithmetic.
pub(super) trait Wide: Floats {
    /// What [`Wide::exps`] looks up.
    type Table: Copy;

    /// Runs `work` with the instructions, as a function of its own.
    unsafe fn apart<W: WideWork<Self>>(work: W) -> bool;
    /// Elements where the mask has a bit, zeros elsewhere. Reads no others.
    unsafe fn load_where(mask: u16, from: *const f32) -> Self;
    /// Writes the elements for which the mask has a bit, and no others.
    unsafe fn store_where(self, mask: u16, to: *mut f32);
    /// Writes a line past the caches.
    unsafe fn store_past(self, to: *mut f32);
    /// These where the mask has a bit, the others elsewhere.
    unsafe fn or_elsewhere(self, mask: u16, other: Self) -> Self;
    /// Numbers of bf16 where the mask has a bit, zeros elsewhere. Reads no others.
    unsafe fn load_bf16(mask: u16, from: *const u16) -> Self;
    /// Numbers of f16 where the mask has a bit, zeros elsewhere. Reads no others.
    unsafe fn load_f16(mask: u16, from: *const u16) -> Self;
    /// `self * by - less`, rounded once.
    unsafe fn times_less(self, by: Self, less: Self) -> Self;
    /// `self` with the other signs where `sign` is `-0.0`.
    unsafe fn signed(self, sign: Self) -> Self;
    /// Between bounds; a NaN stays.
    unsafe fn between(self, least: Self, most: Self) -> Self;
    /// `self / by` within 1.5 ulp, with the sign of `self` for a zero.
    unsafe fn over(self, by: Self) -> Self;
    /// `1 / self` within a relative error of `2^-11.4`: 0 of an infinity, and where that is not normal.
    unsafe fn inverse_roughly(self) -> Self;
    /// `self / by`.
    unsafe fn divided(self, by: Self) -> Self;
    /// The same as [`super::math::quotients`] has it, to the bit, of a number and its rounded inverse.
    unsafe fn quotient(self, by: Self, inverse: Self) -> Self;
    /// `self - other`.
    unsafe fn minus(self, other: Self) -> Self;
    /// Without its sign.
    unsafe fn magnitude(self) -> Self;
    /// These where `x` has a minus sign, the others elsewhere.
    unsafe fn where_minus(self, x: Self, other: Self) -> Self;
    /// A bit for each of 32 bytes that is not 0.
    unsafe fn some_bytes(from: *const u8) -> u32;
    /// A bit for each lane in which both hold the same, as integers.
    unsafe fn equals(self, other: Self) -> u16;
    /// A bit for each lane in which this one holds more, as integers.
    unsafe fn exceeds(self, other: Self) -> u16;
    /// Rounds two vectors to bf16, to nearest, ties to even; a NaN becomes quiet and keeps its sign. Writes those for which
    /// the masks have a bit, and no others.
    unsafe fn store_bf16(pair: [Self; 2], masks: [u16; 2], to: *mut u16);
    /// Of [`Wide::exps`].
    unsafe fn table() -> Self::Table;
    /// Whether [`Wide::exps`] gives 0 below this, or below a lower number that is one of normal exponentials.
    fn ends_at(least: f32) -> bool;
    /// The exponentials of several vectors, operation by operation: the processor does not look far enough ahead to find the next
    /// vector's behind a chain of them. 0 where they are less than `least`, for which [`Wide::ends_at`] holds.
    unsafe fn exps<const N: usize>(x: [Self; N], least: Self, table: Self::Table) -> [Self; N];
}

/// Work with such vectors. `run` must be `#[inline(always)]`, and so must everything in it: that is what gives it the instructions.
pub(super) trait WideWork<V> {
    /// Does it; false, and nothing done, if these vectors do not serve.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn run(self) -> bool;
}

/// Does it with the widest vectors that there are; false, and nothing done, if there are none or they do not serve.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn with_wide<I: Instructions, W: WideWork<F32x16> + WideWork<F32x8x2>>(work: W) -> bool {
    if I::AVX512 {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        return unsafe { F32x16::apart(work) };
    }
    // SAFETY: likewise for AVX2, FMA and F16C on this architecture.
    I::FMA && unsafe { F32x8x2::apart(work) }
}

/// Other processors have none.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn with_wide<I: Instructions, W>(_: W) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Wide, WideWork};
    use crate::kernels::exp;
    use crate::kernels::lanes::x86::{F32x8, F32x16};
    use crate::kernels::lanes::{Floats, Lanes};
    use crate::kernels::math::{EXP_MOST, LN2_HIGH, LN2_LOW, TWICE};
    use crate::kernels::strip::LEAST_NORMAL;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn avx512<W: WideWork<F32x16>>(work: W) -> bool {
        // SAFETY: the features above.
        unsafe { work.run() }
    }

    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn avx2<W: WideWork<F32x8x2>>(work: W) -> bool {
        // SAFETY: the features above.
        unsafe { work.run() }
    }

    /// Where the upper halves of the elements of two registers are.
    static UPPER: [u16; 32] = {
        let (mut at, mut i) = ([0; 32], 0);
        while i < 32 {
            at[i] = 2 * i as u16 + 1;
            i += 1;
        }
        at
    };

    /// Codes of bf16 in the upper halves of the elements.
    #[inline(always)]
    unsafe fn encoded(x: __m512) -> __m512i {
        // SAFETY: the caller has the instructions.
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            let unordered = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            _mm512_mask_or_epi32(rounded, unordered, bits, _mm512_set1_epi32(0x40_0000))
        }
    }

    /// The same in the lower halves, of eight.
    #[inline(always)]
    unsafe fn encoded_below(x: __m256) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe {
            let bits = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let unordered = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, unordered))
        }
    }

    // SAFETY of every body: the trait's contract.
    impl Wide for F32x16 {
        type Table = __m512;

        #[inline(always)]
        unsafe fn apart<W: WideWork<Self>>(work: W) -> bool {
            unsafe { avx512(work) }
        }
        #[inline(always)]
        unsafe fn load_where(mask: u16, from: *const f32) -> Self {
            Self(unsafe { _mm512_maskz_loadu_ps(mask, from) })
        }
        #[inline(always)]
        unsafe fn store_where(self, mask: u16, to: *mut f32) {
            unsafe { _mm512_mask_storeu_ps(to, mask, self.0) }
        }
        #[inline(always)]
        unsafe fn store_past(self, to: *mut f32) {
            unsafe { _mm512_stream_ps(to, self.0) }
        }
        #[inline(always)]
        unsafe fn or_elsewhere(self, mask: u16, other: Self) -> Self {
            Self(unsafe { _mm512_mask_mov_ps(other.0, mask, self.0) })
        }
        #[inline(always)]
        unsafe fn load_bf16(mask: u16, from: *const u16) -> Self {
            unsafe {
                let codes = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
                Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(codes)))
            }
        }
        #[inline(always)]
        unsafe fn load_f16(mask: u16, from: *const u16) -> Self {
            Self(unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())) })
        }
        #[inline(always)]
        unsafe fn times_less(self, by: Self, less: Self) -> Self {
            Self(unsafe { _mm512_fmsub_ps(self.0, by.0, less.0) })
        }
        #[inline(always)]
        unsafe fn signed(self, sign: Self) -> Self {
            Self(unsafe { _mm512_xor_ps(self.0, sign.0) })
        }
        // Both keep a NaN that is their second operand.
        #[inline(always)]
        unsafe fn between(self, least: Self, most: Self) -> Self {
            Self(unsafe { _mm512_max_ps(least.0, _mm512_min_ps(most.0, self.0)) })
        }
        // By an approximate inverse, corrected once, such that a zero keeps its sign.
        #[inline(always)]
        unsafe fn over(self, by: Self) -> Self {
            unsafe {
                let inverse = _mm512_rcp14_ps(by.0);
                let about = _mm512_mul_ps(self.0, inverse);
                let more = _mm512_fmsub_ps(about, by.0, self.0);
                Self(_mm512_fnmadd_ps(more, inverse, about))
            }
        }
        #[inline(always)]
        unsafe fn inverse_roughly(self) -> Self {
            Self(unsafe { _mm512_rcp14_ps(self.0) })
        }
        #[inline(always)]
        unsafe fn divided(self, by: Self) -> Self {
            Self(unsafe { _mm512_div_ps(self.0, by.0) })
        }
        #[inline(always)]
        unsafe fn quotient(self, by: Self, inverse: Self) -> Self {
            /// NaNs, infinities and zeros.
            const NOTHING: i32 = 0x9f;
            unsafe {
                let about = _mm512_mul_ps(self.0, inverse.0);
                let left = _mm512_fnmadd_ps(about, by.0, self.0);
                let some = !_mm512_fpclass_ps_mask::<NOTHING>(left);
                Self(_mm512_mask3_fmadd_ps(left, inverse.0, about, some))
            }
        }
        #[inline(always)]
        unsafe fn minus(self, other: Self) -> Self {
            Self(unsafe { _mm512_sub_ps(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn magnitude(self) -> Self {
            Self(unsafe { _mm512_abs_ps(self.0) })
        }
        #[inline(always)]
        unsafe fn where_minus(self, x: Self, other: Self) -> Self {
            Self(unsafe { _mm512_mask_mov_ps(other.0, _mm512_movepi32_mask(_mm512_castps_si512(x.0)), self.0) })
        }
        #[inline(always)]
        unsafe fn some_bytes(from: *const u8) -> u32 {
            unsafe {
                let bytes = _mm256_loadu_si256(from.cast());
                _mm256_test_epi8_mask(bytes, bytes)
            }
        }
        #[inline(always)]
        unsafe fn equals(self, other: Self) -> u16 {
            unsafe { _mm512_cmpeq_epi32_mask(_mm512_castps_si512(self.0), _mm512_castps_si512(other.0)) }
        }
        #[inline(always)]
        unsafe fn exceeds(self, other: Self) -> u16 {
            unsafe { _mm512_cmpgt_epi32_mask(_mm512_castps_si512(self.0), _mm512_castps_si512(other.0)) }
        }
        #[inline(always)]
        unsafe fn store_bf16(pair: [Self; 2], masks: [u16; 2], to: *mut u16) {
            let mask = u32::from(masks[0]) | u32::from(masks[1]) << 16;
            unsafe {
                let upper = _mm512_loadu_si512(UPPER.as_ptr().cast());
                let [x, y] = [encoded(pair[0].0), encoded(pair[1].0)];
                _mm512_mask_storeu_epi16(to.cast(), mask, _mm512_permutex2var_epi16(x, upper, y));
            }
        }
        #[inline(always)]
        unsafe fn table() -> __m512 {
            // The table has 16 entries.
            unsafe { _mm512_loadu_ps(exp::SIXTEENTHS.as_ptr()) }
        }
        #[inline(always)]
        fn ends_at(_: f32) -> bool {
            true
        }
        #[inline(always)]
        unsafe fn exps<const N: usize>(x: [Self; N], least: Self, table: __m512) -> [Self; N] {
            unsafe { exp::exps(x.map(|x| x.0), least.0, table) }.map(Self)
        }
    }

    /// Two registers.
    #[derive(Clone, Copy)]
    pub(in crate::kernels) struct F32x8x2([F32x8; 2]);

    /// The lower and the upper half of each.
    macro_rules! halves {
        ($half:ident => $of:expr) => {
            F32x8x2([
                F32x8({
                    let $half = 0;
                    $of
                }),
                F32x8({
                    let $half = 1;
                    $of
                }),
            ])
        };
    }

    /// Ones where the mask's lower or upper byte has a bit.
    #[inline(always)]
    unsafe fn lanes(mask: u16, half: usize) -> __m256i {
        // SAFETY: the caller has the instructions.
        unsafe {
            let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let all = _mm256_set1_epi32(i32::from(mask >> (8 * half)));
            _mm256_cmpeq_epi32(_mm256_and_si256(all, bits), bits)
        }
    }

    /// Eight codes of 16 bits where the mask's byte has a bit, zeros elsewhere. Reads no others.
    #[inline(always)]
    unsafe fn codes(mask: u16, half: usize, from: *const u16) -> __m128i {
        let (from, mask) = (from.wrapping_add(8 * half), mask >> (8 * half) & 0xff);
        // SAFETY: the caller promises those that have a bit.
        unsafe {
            if mask == 0xff {
                return _mm_loadu_si128(from.cast());
            }
            let mut some = [0u16; 8];
            for (i, code) in some.iter_mut().enumerate() {
                if mask >> i & 1 == 1 {
                    *code = *from.wrapping_add(i);
                }
            }
            _mm_loadu_si128(some.as_ptr().cast())
        }
    }

    // SAFETY of every body: the trait's contract.
    impl Lanes for F32x8x2 {
        type Element = f32;
        const LANES: usize = 16;
        const WIDE: bool = false;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Self([F32x8::splat(x); 2]) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Self([F32x8::load(from), F32x8::load(from.wrapping_add(8))]) }
        }
        #[inline(always)]
        unsafe fn load_first(from: *const f32, n: usize) -> Self {
            let second = n.saturating_sub(8);
            unsafe { Self([F32x8::load_first(from, n.min(8)), F32x8::load_first(from.wrapping_add(8), second)]) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                self.0[0].store(to);
                self.0[1].store(to.wrapping_add(8));
            }
        }
        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, n: usize) {
            unsafe {
                self.0[0].store_first(to, n.min(8));
                self.0[1].store_first(to.wrapping_add(8), n.saturating_sub(8));
            }
        }
        #[inline(always)]
        unsafe fn fused(self, a: Self, b: Self) -> Self {
            halves!(h => unsafe { _mm256_fmadd_ps(a.0[h].0, b.0[h].0, self.0[h].0) })
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            halves!(h => unsafe { _mm256_add_ps(self.0[h].0, other.0[h].0) })
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            halves!(h => unsafe { _mm256_mul_ps(self.0[h].0, other.0[h].0) })
        }
    }

    // SAFETY of every body: the trait's contract.
    impl Floats for F32x8x2 {
        #[inline(always)]
        unsafe fn larger(self, other: Self) -> Self {
            unsafe { Self([self.0[0].larger(other.0[0]), self.0[1].larger(other.0[1])]) }
        }
        #[inline(always)]
        unsafe fn smaller(self, other: Self) -> Self {
            unsafe { Self([self.0[0].smaller(other.0[0]), self.0[1].smaller(other.0[1])]) }
        }
    }

    /// Adding it rounds to an integer, and leaves that and 126 in the lowest bits: the exponent of half its power of two.
    const ROUND: f32 = 12_582_912.0 + 126.0; // 1.5 * 2^23

    // SAFETY of every body: the trait's contract.
    impl Wide for F32x8x2 {
        type Table = ();

        #[inline(always)]
        unsafe fn apart<W: WideWork<Self>>(work: W) -> bool {
            unsafe { avx2(work) }
        }
        #[inline(always)]
        unsafe fn load_where(mask: u16, from: *const f32) -> Self {
            halves!(h => unsafe { _mm256_maskload_ps(from.wrapping_add(8 * h), lanes(mask, h)) })
        }
        #[inline(always)]
        unsafe fn store_where(self, mask: u16, to: *mut f32) {
            // A store under a mask takes an AMD processor some twenty cycles.
            if mask == u16::MAX {
                return unsafe { self.store(to) };
            }
            unsafe {
                _mm256_maskstore_ps(to, lanes(mask, 0), self.0[0].0);
                _mm256_maskstore_ps(to.wrapping_add(8), lanes(mask, 1), self.0[1].0);
            }
        }
        #[inline(always)]
        unsafe fn store_past(self, to: *mut f32) {
            unsafe {
                _mm256_stream_ps(to, self.0[0].0);
                _mm256_stream_ps(to.wrapping_add(8), self.0[1].0);
            }
        }
        #[inline(always)]
        unsafe fn or_elsewhere(self, mask: u16, other: Self) -> Self {
            halves!(h => unsafe { _mm256_blendv_ps(other.0[h].0, self.0[h].0, _mm256_castsi256_ps(lanes(mask, h))) })
        }
        #[inline(always)]
        unsafe fn load_bf16(mask: u16, from: *const u16) -> Self {
            halves!(h => unsafe {
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(codes(mask, h, from))))
            })
        }
        #[inline(always)]
        unsafe fn load_f16(mask: u16, from: *const u16) -> Self {
            halves!(h => unsafe { _mm256_cvtph_ps(codes(mask, h, from)) })
        }
        #[inline(always)]
        unsafe fn times_less(self, by: Self, less: Self) -> Self {
            halves!(h => unsafe { _mm256_fmsub_ps(self.0[h].0, by.0[h].0, less.0[h].0) })
        }
        #[inline(always)]
        unsafe fn signed(self, sign: Self) -> Self {
            halves!(h => unsafe { _mm256_xor_ps(self.0[h].0, sign.0[h].0) })
        }
        // Both keep a NaN that is their second operand.
        #[inline(always)]
        unsafe fn between(self, least: Self, most: Self) -> Self {
            halves!(h => unsafe { _mm256_max_ps(least.0[h].0, _mm256_min_ps(most.0[h].0, self.0[h].0)) })
        }
        // The approximate inverse has 12 bits only: correcting it takes as long as dividing.
        #[inline(always)]
        unsafe fn over(self, by: Self) -> Self {
            halves!(h => unsafe { _mm256_div_ps(self.0[h].0, by.0[h].0) })
        }
        #[inline(always)]
        unsafe fn inverse_roughly(self) -> Self {
            halves!(h => unsafe { _mm256_rcp_ps(self.0[h].0) })
        }
        #[inline(always)]
        unsafe fn divided(self, by: Self) -> Self {
            halves!(h => unsafe { _mm256_div_ps(self.0[h].0, by.0[h].0) })
        }
        #[inline(always)]
        unsafe fn quotient(self, by: Self, inverse: Self) -> Self {
            halves!(h => unsafe {
                let (x, by, inverse) = (self.0[h].0, by.0[h].0, inverse.0[h].0);
                let about = _mm256_mul_ps(x, inverse);
                let left = _mm256_fnmadd_ps(about, by, x);
                // One less than a magnitude that is some number's is less than the infinity's; compared with signs, as there is no other comparison.
                let magnitude = _mm256_and_si256(_mm256_castps_si256(left), _mm256_set1_epi32(i32::MAX));
                let less = _mm256_add_epi32(magnitude, _mm256_set1_epi32(i32::MAX));
                let some = _mm256_cmpgt_epi32(_mm256_set1_epi32(0xff7f_ffff_u32 as i32), less);
                _mm256_blendv_ps(about, _mm256_fmadd_ps(left, inverse, about), _mm256_castsi256_ps(some))
            })
        }
        #[inline(always)]
        unsafe fn minus(self, other: Self) -> Self {
            halves!(h => unsafe { _mm256_sub_ps(self.0[h].0, other.0[h].0) })
        }
        #[inline(always)]
        unsafe fn magnitude(self) -> Self {
            halves!(h => unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0[h].0) })
        }
        #[inline(always)]
        unsafe fn where_minus(self, x: Self, other: Self) -> Self {
            halves!(h => unsafe { _mm256_blendv_ps(other.0[h].0, self.0[h].0, x.0[h].0) })
        }
        #[inline(always)]
        unsafe fn some_bytes(from: *const u8) -> u32 {
            unsafe {
                let none = _mm256_cmpeq_epi8(_mm256_loadu_si256(from.cast()), _mm256_setzero_si256());
                !_mm256_movemask_epi8(none) as u32
            }
        }
        #[inline(always)]
        unsafe fn equals(self, other: Self) -> u16 {
            let mut bits = 0;
            for h in 0..2 {
                unsafe {
                    let (x, y) = (_mm256_castps_si256(self.0[h].0), _mm256_castps_si256(other.0[h].0));
                    bits |= _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, y))) << (8 * h);
                }
            }
            bits as u16
        }
        #[inline(always)]
        unsafe fn exceeds(self, other: Self) -> u16 {
            let mut bits = 0;
            for h in 0..2 {
                unsafe {
                    let (x, y) = (_mm256_castps_si256(self.0[h].0), _mm256_castps_si256(other.0[h].0));
                    bits |= _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, y))) << (8 * h);
                }
            }
            bits as u16
        }
        #[inline(always)]
        unsafe fn store_bf16(pair: [Self; 2], masks: [u16; 2], to: *mut u16) {
            for (i, (x, mask)) in pair.into_iter().zip(masks).enumerate() {
                let to = to.wrapping_add(16 * i);
                unsafe {
                    let [low, high] = [encoded_below(x.0[0].0), encoded_below(x.0[1].0)];
                    // Quarters of either in turns, put in order.
                    let codes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
                    if mask == u16::MAX {
                        _mm256_storeu_si256(to.cast(), codes);
                        continue;
                    }
                    let mut all = [0u16; 16];
                    _mm256_storeu_si256(all.as_mut_ptr().cast(), codes);
                    for (lane, code) in all.into_iter().enumerate() {
                        if mask >> lane & 1 == 1 {
                            *to.wrapping_add(lane) = code;
                        }
                    }
                }
            }
        }
        #[inline(always)]
        unsafe fn table() {}
        // There the power of two has no exponent any more: half of it, by which all is multiplied, is 0.
        #[inline(always)]
        fn ends_at(least: f32) -> bool {
            least >= LEAST_NORMAL
        }
        /// Within 1.07 ulp, and 0 below `2^-125.5`, wherever they may be.
        #[inline(always)]
        unsafe fn exps<const N: usize>(x: [Self; N], least: Self, (): ()) -> [Self; N] {
            // Both halves of every vector, operation by operation.
            macro_rules! all {
                ($i:ident, $h:ident => $of:expr) => {
                    each!($i => [
                        {
                            let $h = 0;
                            $of
                        },
                        {
                            let $h = 1;
                            $of
                        },
                    ])
                };
            }
            unsafe {
                let set = |x: f32| _mm256_set1_ps(x);
                let (most, least) = (set(EXP_MOST), _mm256_min_ps(least.0[0].0, set(LEAST_NORMAL)));
                let x = all!(i, h => _mm256_max_ps(least, _mm256_min_ps(most, x[i].0[h].0)));
                let (log2, round) = (set(std::f32::consts::LOG2_E), set(ROUND));
                let shifted = all!(i, h => _mm256_fmadd_ps(x[i][h], log2, round));
                let n = all!(i, h => _mm256_sub_ps(shifted[i][h], round));
                let (high, low) = (set(LN2_HIGH), set(LN2_LOW));
                let r = all!(i, h => _mm256_fnmadd_ps(n[i][h], high, x[i][h]));
                let r = all!(i, h => _mm256_fnmadd_ps(n[i][h], low, r[i][h]));
                let [p0, p1, p2, p3, p4] = TWICE.map(|x| _mm256_set1_ps(x));
                let two = set(2.0);
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p4, p3));
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p[i][h], p2));
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p[i][h], p1));
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p[i][h], p0));
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p[i][h], two));
                let p = all!(i, h => _mm256_fmadd_ps(r[i][h], p[i][h], two));
                let half =
                    all!(i, h => _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(shifted[i][h]))));
                let e = all!(i, h => _mm256_mul_ps(p[i][h], half[i][h]));
                each!(i => Self([F32x8(e[i][0]), F32x8(e[i][1])]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Wide, WideWork, with_wide};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use crate::kernels::strip::LEAST_NORMAL;

    struct Exp<'a>(&'a [f32; 16], &'a mut [f32; 16]);

    impl<V: Wide> WideWork<V> for Exp<'_> {
        #[inline(always)]
        unsafe fn run(self) -> bool {
            // SAFETY: there are 16 elements each.
            unsafe {
                let [y] = V::exps([V::load(self.0.as_ptr())], V::splat(LEAST_NORMAL), V::table());
                y.store(self.1.as_mut_ptr());
            }
            true
        }
    }

    struct RunExp<'a>(&'a [f32; 16], &'a mut [f32; 16]);

    impl Work for RunExp<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            with_wide::<I, _>(Exp(self.0, self.1))
        }
    }

    /// Every 331st number of f32 from the least to beyond the largest that has a finite exponential.
    #[test]
    fn exponentials_are_within_an_ulp_or_so_and_end_where_they_are_subnormal() {
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            let magnitudes = (0..90.0f32.to_bits()).step_by(331).map(f32::from_bits);
            let numbers: Vec<f32> = magnitudes.flat_map(|x| [x, -x]).collect();
            for x in numbers.as_chunks::<16>().0 {
                let mut found = [f32::NAN; 16];
                if !dispatch(token, RunExp(x, &mut found)) {
                    continue;
                }
                for (&x, found) in x.iter().zip(found) {
                    let want = f64::from(x).exp();
                    if want < f64::from(f32::MIN_POSITIVE) * std::f64::consts::SQRT_2 {
                        assert!(
                            f64::from(found) <= 1.000_001 * want && (found == 0.0 || x >= LEAST_NORMAL),
                            "exp({x})"
                        );
                        continue;
                    }
                    if want as f32 == f32::INFINITY || found == f32::INFINITY {
                        assert!(
                            want >= 0.999_999_9 * f64::from(f32::MAX) && found >= 0.999_999_9 * f32::MAX,
                            "exp({x})"
                        );
                        continue;
                    }
                    let near = want as f32;
                    let ulp = f64::from(near) - f64::from(near.next_down());
                    let error = (f64::from(found) - want).abs() / ulp;
                    assert!(error <= 1.07, "exp({x}) is {want:e}, found {found:e}, {error} ulp");
                }
            }
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 200.0, -200.0, -87.4, 0.0, -0.0];
            let x = std::array::from_fn(|i| special[i % 8]);
            let mut found = [7.0; 16];
            if dispatch(token, RunExp(&x, &mut found)) {
                assert!(found[0].is_nan() && found[1] == f32::INFINITY && found[3] == f32::INFINITY);
                assert_eq!([found[2], found[4], found[5], found[6], found[7]], [0.0, 0.0, 0.0, 1.0, 1.0]);
            }
        }
    }

    struct Masked<'a>(u16, &'a [f32], &'a [u16], &'a mut [[f32; 16]; 4]);

    impl<V: Wide> WideWork<V> for Masked<'_> {
        #[inline(always)]
        unsafe fn run(self) -> bool {
            let Self(mask, x, codes, to) = self;
            // SAFETY: those that the mask tells are there, and room for all.
            unsafe {
                V::load_where(mask, x.as_ptr()).store(to[0].as_mut_ptr());
                V::load_where(mask, x.as_ptr()).or_elsewhere(mask, V::splat(9.0)).store(to[1].as_mut_ptr());
                V::load_bf16(mask, codes.as_ptr()).store(to[2].as_mut_ptr());
                V::splat(5.0).store_where(mask, to[3].as_mut_ptr());
            }
            true
        }
    }

    struct RunMasked<'a>(Masked<'a>);

    impl Work for RunMasked<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            with_wide::<I, _>(self.0)
        }
    }

    #[test]
    fn masks_tell_what_is_read_and_written() {
        let x: Vec<f32> = (1..=16).map(|i| i as f32).collect();
        let codes: Vec<u16> = x.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for mask in (0..=u16::MAX).step_by(77).chain([u16::MAX, 0xff, 0xff00]) {
                // No more than the last that is there.
                let len = 16 - mask.leading_zeros() as usize;
                let mut to = [[3.0; 16]; 4];
                if !dispatch(token, RunMasked(Masked(mask, &x[..len], &codes[..len], &mut to))) {
                    continue;
                }
                for i in 0..16 {
                    let there = mask >> i & 1 == 1;
                    let want = if there { [x[i], x[i], x[i], 5.0] } else { [0.0, 9.0, 0.0, 3.0] };
                    assert_eq!(to.map(|row| row[i]), want, "{mask:b}");
                }
            }
        }
    }
}
