//! Squares by instructions that multiply pairs of bf16 and add to f32 (AVX512-BF16): eight rows by two registers of columns at
//! a time, so that as many sums are on their way as two multipliers of several cycles need.

use super::{SIDE, Square, TERMS, TILE};
use std::arch::x86_64::*;

/// Rows that are computed at once.
const ROWS: usize = 8;
/// Pairs of terms in a tile's rows.
const PAIRS: usize = TERMS / 2;

/// See [`Square::multiply`].
///
/// # Safety
/// Likewise; the processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn multiply(square: Square, parts: [usize; 2]) {
    // SAFETY: the caller's.
    unsafe {
        match parts {
            [1, 1] => single(square),
            _ => parts_of(square, parts),
        }
    }
}

/// Of one part.
///
/// # Safety
/// As of [`multiply`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn single(square: Square) {
    let Square { a, b, blocks, c, c_bytes, kept } = square;
    let halves = if a[0] == a[1] { 1 } else { 2 };
    for eight in 0..halves * (SIDE / ROWS) {
        let a = a[eight * ROWS / SIDE].wrapping_add(eight * ROWS % SIDE * (TILE / SIDE));
        let c = c.wrapping_add(eight * ROWS * c_bytes);
        // SAFETY: the caller's.
        unsafe {
            let mut sums = begun(kept, c, c_bytes);
            let [mut a, mut b0, mut b1] = [a, b[0], b[1]];
            for _ in 0..blocks {
                block(&mut sums, a, [b0, b1]);
                a = a.wrapping_add(TILE);
                [b0, b1] = [b0, b1].map(|b| b.wrapping_add(TILE));
            }
            store(&sums, c, c_bytes);
        }
    }
}

/// Of several parts: the same products as the matrix unit makes.
///
/// # Safety
/// As of [`multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn parts_of(square: Square, [left, right]: [usize; 2]) {
    let Square { a, b, blocks, c, c_bytes, kept } = square;
    for eight in 0..2 * (SIDE / ROWS) {
        let a = a[eight * ROWS / SIDE].wrapping_add(eight * ROWS % SIDE * (TILE / SIDE));
        let c = c.wrapping_add(eight * ROWS * c_bytes);
        // SAFETY: the caller's.
        unsafe {
            let mut sums = begun(kept, c, c_bytes);
            for at in 0..blocks {
                let part = |from: *const u8, parts: usize, part: usize| from.wrapping_add((at * parts + part) * TILE);
                // The small ones first.
                for order in (0..3).rev() {
                    for i in (0..left.min(order + 1)).rev().filter(|i| order - i < right) {
                        block(&mut sums, part(a, left, i), b.map(|b| part(b, right, order - i)));
                    }
                }
            }
            store(&sums, c, c_bytes);
        }
    }
}

/// # Safety
/// The processor has the instructions, and the tiles are there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn block(sums: &mut [[__m512; 2]; ROWS], a: *const u8, b: [*const u8; 2]) {
    for pair in 0..PAIRS {
        // SAFETY: the caller's.
        unsafe {
            let right = b.map(|b| bf16(_mm512_loadu_ps(b.wrapping_add(pair * 64).cast())));
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = _mm512_set1_ps(*a.wrapping_add(row * (TILE / SIDE) + pair * 4).cast());
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm512_dpbf16_ps(*sum, bf16(left), right);
                }
            }
        }
    }
}

/// The sums that a block begins with.
///
/// # Safety
/// The rows are there, if they are kept.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn begun(kept: bool, c: *const u8, c_bytes: usize) -> [[__m512; 2]; ROWS] {
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    if kept {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (half, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the caller's.
                *sum = unsafe { _mm512_loadu_ps(c.wrapping_add(row * c_bytes + half * 64).cast()) };
            }
        }
    }
    sums
}

/// # Safety
/// The rows are there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn store(sums: &[[__m512; 2]; ROWS], c: *mut u8, c_bytes: usize) {
    for (row, sums) in sums.iter().enumerate() {
        for (half, sum) in sums.iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { _mm512_storeu_ps(c.wrapping_add(row * c_bytes + half * 64).cast(), *sum) };
        }
    }
}

/// The same bits, as pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn bf16(x: __m512) -> __m512bh {
    // SAFETY: both are 64 bytes of which all values are there.
    unsafe { std::mem::transmute::<__m512, __m512bh>(x) }
}

/// See [`super::sum_lanes`].
///
/// # Safety
/// Likewise; the processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn sum_lanes(a: [*const u8; 2], blocks: usize, sums: *mut f32) {
    let ones = bf16(_mm512_castsi512_ps(_mm512_set1_epi32(0x3f80_3f80)));
    for (half, a) in a.into_iter().enumerate() {
        for row in 0..SIDE {
            let to = sums.wrapping_add((half * SIDE + row) * SIDE);
            // SAFETY: the caller's.
            unsafe {
                let mut sum = _mm512_loadu_ps(to);
                for block in 0..blocks {
                    let terms = _mm512_loadu_ps(a.wrapping_add(block * TILE + row * (TILE / SIDE)).cast());
                    sum = _mm512_dpbf16_ps(sum, bf16(terms), ones);
                }
                _mm512_storeu_ps(to, sum);
            }
        }
    }
}
