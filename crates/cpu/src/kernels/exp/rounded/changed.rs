//! Rows that are changed on their way, in registers.

use super::{LINE, MOST, ONE, SOME, STEPS_PER_ONE, Table, powers};
use crate::kernels::add::Of;
use crate::kernels::exp::passing::InPassing;
use crate::kernels::truths::WORD;
use crate::kernels::unit::TILE;
use std::arch::x86_64::*;

/// What is done to them.
const NOTHING: u8 = 0;
const ADDED: u8 = 1;
const ADDED_BF16: u8 = 2;
const SCALED: u8 = 3;
const KEPT: u8 = 4;

/// What it is done with: rows that are bytes apart, for every element, or every 32nd if it is bits.
#[derive(Clone, Copy)]
struct With {
    from: *const u8,
    step: isize,
    /// What each is multiplied by that is added.
    times: f32,
    /// What elements are multiplied by, for each row.
    by: [f32; SOME],
    /// Bits that are turned.
    flip: u32,
}

/// Four rows of a tile from one on, pitch elements apart, that are not summed: exponentials of elements times a number less one for each
/// row; whether all arguments lie below [`MOST`].
///
/// # Safety
/// The rows have so many blocks, and there is a line for each, and a number less for each row; what is done to them was checked.
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
pub(super) unsafe fn four_rows(
    (from, pitch): (*const f32, usize),
    blocks: usize,
    (by, less): (f32, *const f32),
    (changed, row): (Option<(f32, InPassing<'_>)>, usize),
    to: *mut u8,
    table: Table,
) -> bool {
    // SAFETY: the caller's.
    let own: [f32; SOME] = std::array::from_fn(|row| unsafe { *less.add(row) });
    let none = With { from: std::ptr::null(), step: 0, times: 0.0, by: [by; SOME], flip: 0 };
    // SAFETY: the caller's.
    unsafe {
        match changed {
            None => rows::<NOTHING>((from, pitch), blocks, own, none, to, table),
            Some((times, InPassing::Added(addend))) => {
                let (with, step) = addend.row(row);
                let added = if addend.less { -by } else { by };
                let with = With { from: with, step, times: added, by: [by * times; SOME], ..none };
                let own = std::array::from_fn(|number| (-by).mul_add(addend.plus(row + number), own[number]));
                match addend.of {
                    Of::Floats(_) => rows::<ADDED>((from, pitch), blocks, own, with, to, table),
                    Of::Bf16(_) => rows::<ADDED_BF16>((from, pitch), blocks, own, with, to, table),
                }
            }
            Some((times, InPassing::Scaled(factors))) => {
                let scaled = |number: usize| by * times * factors.rows.map_or(1.0, |rows| rows[row + number]);
                let scaled: [f32; SOME] = std::array::from_fn(scaled);
                match factors.columns {
                    Some(columns) => {
                        let with = With { from: columns.as_ptr().cast(), by: scaled, ..none };
                        rows::<SCALED>((from, pitch), blocks, own, with, to, table)
                    }
                    None => rows::<NOTHING>((from, pitch), blocks, own, With { by: scaled, ..none }, to, table),
                }
            }
            Some((times, InPassing::Kept { bits, flipped, at })) => {
                let words = bits.row(at[0] + row, at[1]).as_ptr().cast();
                let flip = if flipped { u32::MAX } else { 0 };
                let step = (bits.pitch * WORD / 8) as isize;
                let with = With { from: words, step, by: [by * times; SOME], flip, ..none };
                rows::<KEPT>((from, pitch), blocks, own, with, to, table)
            }
        }
    }
}

/// # Safety
/// As of [`four_rows`].
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
unsafe fn rows<const CHANGED: u8>(
    (from, pitch): (*const f32, usize),
    blocks: usize,
    less: [f32; SOME],
    with: With,
    to: *mut u8,
    table: Table,
) -> bool {
    let most = _mm512_set1_ps(MOST);
    let times = _mm512_set1_ps(with.times * STEPS_PER_ONE);
    let by: [__m512; SOME] = std::array::from_fn(|row| _mm512_set1_ps(with.by[row] * STEPS_PER_ONE));
    let mut finite = [u16::MAX; SOME];
    // SAFETY: the caller's.
    unsafe {
        let less: [__m512; SOME] = std::array::from_fn(|row| _mm512_set1_ps(less[row].mul_add(STEPS_PER_ONE, -ONE)));
        for block in 0..blocks {
            for row in 0..SOME {
                let from = from.wrapping_add(row * pitch + 32 * block);
                let with_row = with.from.wrapping_offset(row as isize * with.step);
                let (x, y) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.wrapping_add(16)));
                let (mut of_x, mut of_y) = (by[row], by[row]);
                if CHANGED == SCALED {
                    let factors = with_row.cast::<f32>().wrapping_add(32 * block);
                    of_x = _mm512_mul_ps(of_x, _mm512_loadu_ps(factors));
                    of_y = _mm512_mul_ps(of_y, _mm512_loadu_ps(factors.wrapping_add(16)));
                }
                let (x, y) = if CHANGED == ADDED || CHANGED == ADDED_BF16 {
                    let [u, v] = if CHANGED == ADDED {
                        let with = with_row.cast::<f32>().wrapping_add(32 * block);
                        [_mm512_loadu_ps(with), _mm512_loadu_ps(with.wrapping_add(16))]
                    } else {
                        let with = with_row.cast::<u16>().wrapping_add(32 * block);
                        [widened(with), widened(with.wrapping_add(16))]
                    };
                    // Large ones may leave little of each other.
                    let (u, v) = (_mm512_fmsub_ps(u, times, less[row]), _mm512_fmsub_ps(v, times, less[row]));
                    (_mm512_fmadd_ps(x, of_x, u), _mm512_fmadd_ps(y, of_y, v))
                } else {
                    (_mm512_fmsub_ps(x, of_x, less[row]), _mm512_fmsub_ps(y, of_y, less[row]))
                };
                let mut packed = powers(x, y, table);
                if CHANGED == KEPT {
                    let bits = with_row.cast::<u32>().wrapping_add(block).read_unaligned() ^ with.flip;
                    packed = _mm512_maskz_mov_epi16(bits, packed);
                    finite[row] &= !(bits as u16) | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, most);
                    finite[row] &= !((bits >> 16) as u16) | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(y, most);
                } else {
                    finite[row] = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(finite[row], x, most);
                    finite[row] = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(finite[row], y, most);
                }
                _mm512_storeu_si512(to.wrapping_add(block * TILE + row * LINE).cast(), packed);
            }
        }
    }
    finite == [u16::MAX; SOME]
}

/// Sixteen numbers of bf16 in f32.
///
/// # Safety
/// They are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn widened(from: *const u16) -> __m512 {
    // SAFETY: the caller's.
    let codes = unsafe { _mm256_loadu_si256(from.cast()) };
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(codes)))
}
