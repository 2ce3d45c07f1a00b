//! Blocks of a matrix with rows and columns exchanged, with AVX-512: sixteen registers in, sixteen out.

use super::isa::Instructions;
use bytemuck::Pod;

/// Side of a block.
pub(crate) const SIDE: usize = 16;

/// `to[j, i] = from[i, j]` for a block of [`SIDE`] rows and columns of elements of four bytes, whose rows are so many
/// elements apart. False if there are no instructions for it, or the slices are too short: nothing is done then.
#[inline(always)]
pub(crate) fn block<I: Instructions, T: Pod>(from: &[T], from_pitch: usize, to: &mut [T], to_pitch: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let reach = |pitch: usize| (SIDE - 1).checked_mul(pitch).and_then(|n| n.checked_add(SIDE));
        let holds = |len: usize, pitch: usize| reach(pitch).is_some_and(|n| n <= len);
        if I::AVX512 && size_of::<T>() == 4 && holds(from.len(), from_pitch) && holds(to.len(), to_pitch) {
            // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are; all rows
            // lie in the slices, whose elements are plain 32 bits.
            unsafe { avx512(from.as_ptr().cast(), 4 * from_pitch, to.as_mut_ptr().cast(), to_pitch) };
            return true;
        }
    }
    let _ = (from, from_pitch, to, to_pitch);
    false
}

/// The same for pairs of elements of two bytes: `to[j, i]` is the `j`th pair of the `i`th row, both halves as they were.
#[inline(always)]
pub(crate) fn pairs<I: Instructions>(from: &[u16], from_pitch: usize, to: &mut [u32; SIDE * SIDE]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 && (SIDE - 1).checked_mul(from_pitch).is_some_and(|last| last + 2 * SIDE <= from.len()) {
        // SAFETY: as in `block`; nothing is asked of the elements' alignment.
        unsafe { avx512(from.as_ptr().cast(), 2 * from_pitch, to.as_mut_ptr().cast(), SIDE) };
        return true;
    }
    let _ = (from, from_pitch, to);
    false
}

/// The rows of `from` are so many bytes apart.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
unsafe fn avx512(from: *const i32, from_bytes: usize, to: *mut i32, to_pitch: usize) {
    use std::arch::x86_64::*;

    // SAFETY: the caller promises the instructions and the rows.
    unsafe {
        let mut x = [_mm512_setzero_si512(); SIDE];
        for (i, x) in x.iter_mut().enumerate() {
            *x = _mm512_loadu_si512(from.byte_add(i * from_bytes).cast());
        }
        // Pairs of rows, then fours: each quarter of a register holds four rows of one column.
        let mut y = x;
        for i in 0..8 {
            y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
            y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
        }
        for i in 0..4 {
            for half in 0..2 {
                let (a, b) = (y[4 * i + half], y[4 * i + 2 + half]);
                x[4 * i + 2 * half] = _mm512_unpacklo_epi64(a, b);
                x[4 * i + 2 * half + 1] = _mm512_unpackhi_epi64(a, b);
            }
        }
        // `x[4 i + c]` holds rows `4 i..4 i + 4` of the columns `c`, `c + 4`, `c + 8` and `c + 12`.
        for c in 0..4 {
            let low = _mm512_shuffle_i32x4::<0x88>(x[c], x[4 + c]);
            let high = _mm512_shuffle_i32x4::<0xdd>(x[c], x[4 + c]);
            let low2 = _mm512_shuffle_i32x4::<0x88>(x[8 + c], x[12 + c]);
            let high2 = _mm512_shuffle_i32x4::<0xdd>(x[8 + c], x[12 + c]);
            y[c] = _mm512_shuffle_i32x4::<0x88>(low, low2);
            y[c + 8] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
            y[c + 4] = _mm512_shuffle_i32x4::<0x88>(high, high2);
            y[c + 12] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
        }
        for (j, y) in y.iter().enumerate() {
            _mm512_storeu_si512(to.add(j * to_pitch).cast(), *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SIDE, block};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    struct Run<'a>(&'a [f32], usize, &'a mut [f32], usize);

    impl Work for Run<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            block::<I, f32>(self.0, self.1, self.2, self.3)
        }
    }

    #[test]
    fn rows_become_columns_and_short_slices_are_left_alone() {
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for (from_pitch, to_pitch) in [(16, 16), (20, 37), (64, 16)] {
                let from: Vec<f32> = (0..(SIDE - 1) * from_pitch + SIDE).map(|x| x as f32).collect();
                let mut to = vec![-1.0; (SIDE - 1) * to_pitch + SIDE];
                let done = dispatch(token, Run(&from, from_pitch, &mut to, to_pitch));
                assert_eq!(done, token.isa() == Isa::Avx512);
                let expected = |i: usize, j: usize| if done { from[i * from_pitch + j] } else { -1.0 };
                assert!((0..SIDE * SIDE).all(|k| to[k % SIDE * to_pitch + k / SIDE] == expected(k / SIDE, k % SIDE)));
                assert!(!dispatch(token, Run(&from[1..], from_pitch, &mut to, to_pitch)));
                assert!(!dispatch(token, Run(&from, from_pitch, &mut to[1..], to_pitch)));
            }
        }
    }
}
