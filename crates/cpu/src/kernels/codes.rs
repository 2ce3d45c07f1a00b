//! Anchored exponentials of bf16 and quotients that become bf16, between code and number in registers: a strip for each step
//! would be written and read again as often.

use crate::kernels::fold::Partial;
use crate::kernels::isa::Instructions;
use crate::kernels::wide::{Wide, WideWork, with_wide};
use einloom_cascade::numeric::bf16_to_f32;

/// `to[i] = exp(x[i] * by - less)` of `x` in bf16, each as of [`super::exp::run`], 0 where the argument is less than `least`; all of
/// them are added to `sum`. False if the instructions are not there: nothing is done then.
#[inline(always)]
pub(crate) fn exponentials<I: Instructions>(
    from: &[u16],
    [by, less, least]: [f32; 3],
    to: &mut [f32],
    sum: &mut Partial,
) -> bool {
    with_wide::<I, _>(Exponentials { from, argument: [by, less, least], to, sum })
}

struct Exponentials<'a> {
    from: &'a [u16],
    argument: [f32; 3],
    to: &'a mut [f32],
    sum: &'a mut Partial,
}

impl<V: Wide> WideWork<V> for Exponentials<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        /// Vectors side by side.
        const SIDE: usize = 2;
        let Self { from, argument: [by, less, least], to, sum } = self;
        if !V::ends_at(least) {
            return false;
        }
        assert!(to.len() >= from.len(), "a number for each");
        let (from, count, to) = (from.as_ptr(), from.len(), to.as_mut_ptr());
        // SAFETY: the caller has the instructions; so many codes and numbers are there, and a mask has a bit for each.
        unsafe {
            let (table, by, less, least) = (V::table(), V::splat(by), V::splat(less), V::splat(least));
            // Several, because each waits for the one before.
            let mut sums = [V::splat(0.0); 2 * SIDE];
            let mut at = 0;
            while at + 32 * SIDE <= count {
                for half in 0..2 {
                    let mut x = [less; SIDE];
                    for (i, x) in x.iter_mut().enumerate() {
                        let from = from.add(at + 16 * (SIDE * half + i));
                        *x = V::load_bf16(u16::MAX, from).times_less(by, less);
                    }
                    for (i, e) in V::exps::<SIDE>(x, least, table).into_iter().enumerate() {
                        e.store(to.add(at + 16 * (SIDE * half + i)));
                        sums[SIDE * half + i] = sums[SIDE * half + i].add(e);
                    }
                }
                at += 32 * SIDE;
            }
            while at < count {
                let mask = ((1u32 << (count - at).min(16)) - 1) as u16;
                let [e] = V::exps([V::load_bf16(mask, from.add(at)).times_less(by, less)], least, table);
                e.store_where(mask, to.add(at));
                sums[0] = sums[0].add(e.or_elsewhere(mask, V::splat(0.0)));
                at += 16;
            }
            let [even, odd] = [sums[0].add(sums[2]), sums[1].add(sums[3])];
            V::load(sum.as_ptr()).add(even.add(odd)).store(sum.as_mut_ptr());
        }
        true
    }
}

/// The least and the largest of numbers of bf16, of which there is one at least. `None` if one of them is no number, or if the
/// instructions are not there.
#[inline(always)]
pub(crate) fn extremes<I: Instructions>(from: &[u16]) -> Option<[f32; 2]> {
    #[cfg(target_arch = "x86_64")]
    if I::FMA && !from.is_empty() {
        /// Of infinity.
        const MOST: i16 = 0x7f80;
        // SAFETY: the types that say so are only named by code that runs where the instructions are.
        let ordered = unsafe { if I::AVX512 { avx512::extremes(from) } else { avx2::extremes(from) } };
        let numbers = ordered[0] >= !MOST && ordered[1] <= MOST;
        return numbers.then(|| ordered.map(|x| bf16_to_f32(in_order(x) as u16)));
    }
    let _ = from;
    None
}

/// Codes as integers that are in the order of the numbers, and back: a magnitude whose sign is there counts down.
#[cfg(target_arch = "x86_64")]
fn in_order(code: i16) -> i16 {
    code ^ (code >> 15 & 0x7fff)
}

/// Whether a product with the inverse tells the quotient.
pub(crate) fn divides(over: f32) -> bool {
    over.is_normal() && (1.0 / over).is_normal()
}

/// `to[i] = x[i] / over` in bf16, of the rounded quotient. False if the instructions are not
/// there, or if the inverse does not tell quotients: nothing is done then.
#[inline(always)]
pub(crate) fn quotients<I: Instructions>(from: &[f32], over: f32, to: &mut [u16]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::FMA && divides(over) {
        // SAFETY: as above.
        unsafe { if I::AVX512 { avx512::quotients(from, over, to) } else { avx2::quotients(from, over, to) } };
        return true;
    }
    let _ = (from, over, to);
    false
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// The least and the largest, as [`super::in_order`] has them; there is one at least.
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn extremes(from: &[u16]) -> [i16; 2] {
        // Two of each, because each waits for the one before.
        let (mut least, mut most) = ([_mm256_set1_epi16(i16::MAX); 2], [_mm256_set1_epi16(i16::MIN); 2]);
        let magnitude = _mm256_set1_epi16(0x7fff);
        let ordered = |codes| _mm256_xor_si256(codes, _mm256_and_si256(_mm256_srai_epi16::<15>(codes), magnitude));
        let (pairs, rest) = from.as_chunks::<32>();
        for pair in pairs {
            for turn in 0..2 {
                // SAFETY: 16 of 32 codes, and 16 more.
                let codes = ordered(unsafe { _mm256_loadu_si256(pair.as_ptr().add(16 * turn).cast()) });
                least[turn] = _mm256_min_epi16(least[turn], codes);
                most[turn] = _mm256_max_epi16(most[turn], codes);
            }
        }
        let mut lanes = [[0i16; 16]; 2];
        // SAFETY: 16 lanes each.
        unsafe {
            _mm256_storeu_si256(lanes[0].as_mut_ptr().cast(), _mm256_min_epi16(least[0], least[1]));
            _mm256_storeu_si256(lanes[1].as_mut_ptr().cast(), _mm256_max_epi16(most[0], most[1]));
        }
        let rest = || rest.iter().map(|&code| super::in_order(code as i16));
        let [least, most] = lanes;
        [
            least.into_iter().chain(rest()).fold(i16::MAX, i16::min),
            most.into_iter().chain(rest()).fold(i16::MIN, i16::max),
        ]
    }

    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn quotients(from: &[f32], over: f32, to: &mut [u16]) {
        assert!(to.len() >= from.len(), "a quotient for each");
        let by = _mm256_set1_ps(over);
        // In the lower halves of the elements: to nearest, ties to even; a NaN becomes quiet and keeps its sign.
        let rounded = |x: __m256| {
            let q = _mm256_div_ps(x, by);
            let bits = _mm256_castps_si256(q);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let unordered = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(q, q));
            _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, unordered))
        };
        // SAFETY: 16 numbers and as many codes are there.
        let sixteen = |from: *const f32, to: *mut u16| unsafe {
            let [x, y] = [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))];
            // Quarters of either in turns, put in order.
            let codes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(rounded(x), rounded(y)));
            _mm256_storeu_si256(to.cast(), codes);
        };
        let (whole, rest) = from.as_chunks::<16>();
        let (to, last) = to[..from.len()].split_at_mut(16 * whole.len());
        for (from, to) in whole.iter().zip(to.as_chunks_mut::<16>().0) {
            sixteen(from.as_ptr(), to.as_mut_ptr());
        }
        let (mut some, mut codes) = ([0.0; 16], [0; 16]);
        some[..rest.len()].copy_from_slice(rest);
        sixteen(some.as_ptr(), codes.as_mut_ptr());
        last.copy_from_slice(&codes[..rest.len()]);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    /// The least and the largest, as [`super::in_order`] has them.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn extremes(from: &[u16]) -> [i16; 2] {
        // Two of each, because each waits for the one before.
        let (mut least, mut most) = ([_mm512_set1_epi16(i16::MAX); 2], [_mm512_set1_epi16(i16::MIN); 2]);
        let magnitude = _mm512_set1_epi16(0x7fff);
        // Codes, unless the sign is there and the bit is one of the magnitude's.
        let ordered = |codes| _mm512_ternarylogic_epi32::<0x78>(codes, _mm512_srai_epi16::<15>(codes), magnitude);
        let (pairs, rest) = from.as_chunks::<64>();
        for pair in pairs {
            for turn in 0..2 {
                // SAFETY: 32 of 64 codes, and 32 more.
                let codes = ordered(unsafe { _mm512_loadu_si512(pair.as_ptr().add(32 * turn).cast()) });
                least[turn] = _mm512_min_epi16(least[turn], codes);
                most[turn] = _mm512_max_epi16(most[turn], codes);
            }
        }
        for codes in rest.chunks(32) {
            let mask = u32::MAX >> (32 - codes.len());
            // SAFETY: the mask has a bit for each that is there.
            let codes = ordered(unsafe { _mm512_maskz_loadu_epi16(mask, codes.as_ptr().cast()) });
            least[0] = _mm512_mask_min_epi16(least[0], mask, least[0], codes);
            most[0] = _mm512_mask_max_epi16(most[0], mask, most[0], codes);
        }
        let mut lanes = [[0i16; 32]; 2];
        // SAFETY: 32 lanes each.
        unsafe {
            _mm512_storeu_si512(lanes[0].as_mut_ptr().cast(), _mm512_min_epi16(least[0], least[1]));
            _mm512_storeu_si512(lanes[1].as_mut_ptr().cast(), _mm512_max_epi16(most[0], most[1]));
        }
        let [least, most] = lanes;
        [least.into_iter().fold(i16::MAX, i16::min), most.into_iter().fold(i16::MIN, i16::max)]
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn quotients(from: &[f32], over: f32, to: &mut [u16]) {
        assert!(to.len() >= from.len(), "a quotient for each");
        let (from, count, to) = (from.as_ptr(), from.len(), to.as_mut_ptr());
        let [by, inverse] = [over, 1.0 / over].map(|x| _mm512_set1_ps(x));
        // SAFETY: each table has 32 entries.
        let [lower, upper] =
            [const { halves(0) }, const { halves(1) }].map(|t| unsafe { _mm512_loadu_si512(t.as_ptr().cast()) });
        let [half, below, around] = [_mm512_set1_epi32(0x8000), _mm512_set1_epi16(0x7ffe), _mm512_set1_epi16(4)];
        // In the upper halves of the elements.
        let rounded = |x: __m512| {
            let q = _mm512_div_ps(x, by);
            // To nearest, ties to even; a NaN becomes quiet and keeps its sign.
            let bits = _mm512_castps_si512(q);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            let unordered = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(q, q);
            _mm512_mask_or_epi32(rounded, unordered, bits, _mm512_set1_epi32(0x40_0000))
        };
        for at in (0..count).step_by(32) {
            let mask = u32::MAX >> (32 - (count - at).min(32));
            // SAFETY: the masks have a bit for each that is there.
            let (x, y) = unsafe {
                let x = _mm512_maskz_loadu_ps(mask as u16, from.add(at));
                (x, _mm512_maskz_loadu_ps((mask >> 16) as u16, from.wrapping_add(at + 16)))
            };
            // The inverse is off by half an ulp, and so is the product: it is no more than 2 ulp from the rounded quotient, which tells
            // all but what is as close to the middle of two codes.
            let [q, r] = [x, y].map(|x| _mm512_mul_ps(x, inverse));
            let [a, b] = [q, r].map(|q| _mm512_castps_si512(q));
            let from_middle = _mm512_sub_epi16(_mm512_permutex2var_epi16(a, lower, b), below);
            let close = _mm512_cmple_epu16_mask(from_middle, around);
            let codes = if close == 0 && _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(q, r) == 0 {
                _mm512_permutex2var_epi16(_mm512_add_epi32(a, half), upper, _mm512_add_epi32(b, half))
            } else {
                _mm512_permutex2var_epi16(rounded(x), upper, rounded(y))
            };
            // SAFETY: as above.
            unsafe { _mm512_mask_storeu_epi16(to.add(at).cast(), mask, codes) };
        }
    }

    /// Where one half of every element of a register is, then of another: 0 the lower one, 1 the upper.
    const fn halves(which: u16) -> [u16; 32] {
        let mut at = [0; 32];
        let mut i = 0;
        while i < 32 {
            at[i] = 2 * i as u16 + which;
            i += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use einloom_cascade::numeric::{bf16_to_f32, f32_to_bf16};

    struct Extremes<'a>(&'a [u16]);

    impl Work for Extremes<'_> {
        type Output = Option<[f32; 2]>;

        #[inline(always)]
        fn run<I: Instructions>(self) -> Option<[f32; 2]> {
            super::extremes::<I>(self.0)
        }
    }

    #[test]
    fn extremes_of_codes_are_those_of_numbers_unless_one_is_none() {
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            extremes_with(token);
        }
    }

    fn extremes_with(token: Token) {
        // Every code that is a number somewhere, next to others far away from it.
        let codes: Vec<u16> = (0..=u16::MAX).map(|code| code.wrapping_mul(40503)).collect();
        let numbers: Vec<u16> = codes.into_iter().filter(|code| !bf16_to_f32(*code).is_nan()).collect();
        for (len, step) in [(1, 7), (2, 5), (31, 64), (32, 97), (33, 101), (64, 500), (1000, 333)] {
            for piece in (0..numbers.len() - len).step_by(step).map(|at| &numbers[at..][..len]) {
                let of = |first: f32, f: fn(f32, f32) -> f32| piece.iter().fold(first, |x, y| f(x, bf16_to_f32(*y)));
                let expected = [of(f32::INFINITY, f32::min), of(f32::NEG_INFINITY, f32::max)];
                assert_eq!(dispatch(token, Extremes(piece)), Some(expected));
            }
        }
        for none in [0x7f81, 0x7fff, 0xff81, 0xffc0, 0xffff] {
            for at in 0..70 {
                let mut codes = [f32_to_bf16(-1.5); 70];
                codes[at] = none;
                assert_eq!(dispatch(token, Extremes(&codes)), None);
            }
        }
        assert_eq!(dispatch(token, Extremes(&[])), None);
    }

    struct Quotients<'a>(&'a [f32], f32, &'a mut [u16]);

    impl Work for Quotients<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            super::quotients::<I>(self.0, self.1, self.2)
        }
    }

    #[test]
    fn quotients_are_rounded_as_divisions_are() {
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            quotients_with(token);
        }
    }

    fn quotients_with(token: Token) {
        let mut from: Vec<f32> = (0..203).map(|i| (i as f32 * 0.37 - 20.0).exp()).collect();
        from.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, -3.0, f32::MAX]);
        for len in [0, 1, 15, 16, 17, 31, 32, 33, 100, from.len()] {
            for over in [1.0, 3.0, -0.7, 1e20, 1e-20] {
                let mut to = vec![0xdead; len + 1];
                assert!(dispatch(token, Quotients(&from[from.len() - len..], over, &mut to[..len])));
                let from = &from[from.len() - len..];
                for (&x, &code) in from.iter().zip(&to) {
                    assert_eq!(code, f32_to_bf16(x / over), "{x} over {over}");
                }
                assert_eq!(to[len], 0xdead);
            }
        }
        // Quotients in the middle of two codes, and some ulps beside it.
        for over in [1.0, 3.0, -0.7, 1.999_999_9, 8e37, 1.3e-38] {
            for at in (0..0x7f80_8000u32).step_by(0x53_0000) {
                let from: Vec<f32> =
                    (0..64).map(|ulps| f32::from_bits((at & !0xffff) + 0x8000 - 32 + ulps) * over).collect();
                let mut to = [0; 64];
                assert!(dispatch(token, Quotients(&from, over, &mut to)));
                assert_eq!(to.to_vec(), from.iter().map(|x| f32_to_bf16(x / over)).collect::<Vec<_>>(), "{over}");
            }
        }
        let mut to = [0; 2];
        assert!(dispatch(token, Quotients(&[f32::NAN, -f32::NAN], 2.0, &mut to)));
        assert_eq!(to, [0x7fc0, 0xffc0]);
    }
}
