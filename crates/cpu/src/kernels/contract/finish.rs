//! What becomes of a square's sums on their way to the result, when the matrix unit has stored them.

use super::Scale;
use super::tiles::SQUARE;
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::live::Live;
use crate::kernels::unit::SIDE;

/// What the start's elements are multiplied by.
#[derive(Clone, Copy)]
pub(super) enum Factor {
    One,
    /// None, and the start is added to what has been multiplied in the end.
    Apart,
    Same(f32),
    Rows(*const f32),
    Columns(*const f32),
}

impl Factor {
    /// Those of a result's elements from a row and a column on.
    pub(super) fn at(scale: Scale<'_, f32>, [row, column]: [usize; 2]) -> Self {
        match scale {
            Scale::One => Self::One,
            Scale::Apart => Self::Apart,
            Scale::Same(x) => Self::Same(x),
            Scale::Rows(rows) => Self::Rows(rows[row..].as_ptr()),
            Scale::Columns(columns) => Self::Columns(columns[column..].as_ptr()),
        }
    }
}

/// What becomes of the results besides.
#[cfg(target_arch = "x86_64")]
pub(super) const NOTHING: u8 = 0;
/// The largest of each row.
#[cfg(target_arch = "x86_64")]
pub(super) const MOST: u8 = 1;
/// The least of each row.
#[cfg(target_arch = "x86_64")]
pub(super) const LEAST: u8 = 2;

/// Sums on their way to the result: `to = (acc · factor + sums) · times`, or `acc + sums · times`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) struct Finish<'l> {
    pub sums: *const f32,
    /// Elements from row to row.
    pub pitch: usize,
    pub rows: usize,
    pub columns: usize,
    /// `None` if the sums are the result already: whole squares of them are only reduced.
    pub to: Option<*mut f32>,
    pub to_i: usize,
    /// Null if the start is 0.
    pub acc: *const f32,
    pub acc_i: usize,
    pub factor: Factor,
    pub times: f32,
    /// Partial results of the rows; null if there are none.
    pub fold: *mut Partial,
    /// Which elements are reduced, of a tile in which the sums lie from a row and a column on; all if that is not told.
    pub live: Option<(&'l Live, [usize; 2])>,
}

impl Finish<'_> {
    /// A whole square of sums that are the result already, and are reduced only.
    pub(super) fn of_square(sums: *const f32, pitch: usize, fold: *mut Partial) -> Self {
        let (rows, columns, to, to_i) = (SQUARE, SQUARE, None, 0);
        let (acc, acc_i, factor, times, live) = (std::ptr::null(), 0, Factor::One, 1.0, None);
        Self { sums, pitch, rows, columns, to, to_i, acc, acc_i, factor, times, fold, live }
    }

    /// # Safety
    /// The instructions are there, and the rows and columns.
    pub(super) unsafe fn finish(self, monoid: Monoid) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's.
        unsafe {
            match monoid {
                _ if self.fold.is_null() => self.run::<NOTHING>(),
                Monoid::Min => self.run::<LEAST>(),
                _ => self.run::<MOST>(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = monoid;
    }
}

#[cfg(target_arch = "x86_64")]
impl Finish<'_> {
    /// # Safety
    /// The instructions are there, and the rows and columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
    unsafe fn run<const FOLD: u8>(self) {
        use crate::kernels::live::bits;
        use std::arch::x86_64::*;

        let Self { sums, pitch, rows, columns, to, to_i, acc, acc_i, factor, times, fold, live } = self;
        let Some(to) = to else {
            // SAFETY: the caller's.
            return unsafe { reduce::<FOLD>(sums, pitch, fold) };
        };
        let times = _mm512_set1_ps(times);
        let masks = [columns.min(SIDE), columns.saturating_sub(SIDE)].map(|n| ((1u32 << n) - 1) as u16);
        let each = |x: f32| [_mm512_set1_ps(x); 2];
        // SAFETY: `columns` factors, rows and columns are there, and the masks have a bit for each column.
        unsafe {
            let mut by = match factor {
                Factor::Same(x) => each(x),
                Factor::Columns(x) => {
                    [_mm512_maskz_loadu_ps(masks[0], x), _mm512_maskz_loadu_ps(masks[1], x.wrapping_add(SIDE))]
                }
                Factor::One | Factor::Apart | Factor::Rows(_) => each(1.0),
            };
            for row in 0..rows {
                let at = sums.add(row * pitch);
                let mut result = [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(SIDE))];
                if !acc.is_null() {
                    if let Factor::Rows(x) = factor {
                        by = each(*x.add(row));
                    }
                    let at = acc.wrapping_add(row * acc_i);
                    let before =
                        [_mm512_maskz_loadu_ps(masks[0], at), _mm512_maskz_loadu_ps(masks[1], at.wrapping_add(SIDE))];
                    for ((result, before), by) in result.iter_mut().zip(before).zip(by) {
                        *result = match factor {
                            Factor::Apart => _mm512_fmadd_ps(*result, times, before),
                            _ => _mm512_mul_ps(_mm512_fmadd_ps(before, by, *result), times),
                        };
                    }
                } else {
                    result = [_mm512_mul_ps(result[0], times), _mm512_mul_ps(result[1], times)];
                }
                let to = to.wrapping_add(row * to_i);
                _mm512_mask_storeu_ps(to, masks[0], result[0]);
                _mm512_mask_storeu_ps(to.wrapping_add(SIDE), masks[1], result[1]);
                if FOLD != NOTHING {
                    let at = fold.add(row).cast::<f32>();
                    let mut all = _mm512_loadu_ps(at);
                    let there = live.map_or(u32::MAX, |(live, [i, j])| bits(&live.row(i + row), j));
                    for (half, (mask, result)) in masks.into_iter().zip(result).enumerate() {
                        // A NaN stays.
                        let mask = mask & (there >> (SIDE * half)) as u16 & _mm512_cmp_ps_mask::<_CMP_ORD_Q>(all, all);
                        all = match FOLD {
                            MOST => _mm512_mask_max_ps(all, mask, all, result),
                            _ => _mm512_mask_min_ps(all, mask, all, result),
                        };
                    }
                    _mm512_storeu_ps(at, all);
                }
            }
        }
    }
}

/// Reduces the rows of a square.
///
/// # Safety
/// The instructions are there, and a square's rows, so far apart, and partial results.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn reduce<const FOLD: u8>(rows: *const f32, pitch: usize, fold: *mut Partial) {
    use std::arch::x86_64::*;

    // SAFETY: the caller's.
    unsafe {
        let two = |row: usize| {
            let at = rows.wrapping_add(row * pitch);
            [_mm512_loadu_ps(at), _mm512_loadu_ps(at.wrapping_add(SIDE))]
        };
        let mut unordered = 0;
        for row in 0..SQUARE {
            let [x, y] = two(row);
            unordered |= _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y);
            let at = fold.add(row).cast::<f32>();
            // Of two of which one is no number, the second is taken.
            let before = _mm512_load_ps(at);
            let all = match FOLD {
                LEAST => _mm512_min_ps(_mm512_min_ps(x, y), before),
                _ => _mm512_max_ps(_mm512_max_ps(x, y), before),
            };
            _mm512_store_ps(at, all);
        }
        if unordered == 0 {
            return;
        }
        for row in 0..SQUARE {
            let at = fold.add(row).cast::<f32>();
            for x in two(row) {
                let all = _mm512_load_ps(at);
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x) & _mm512_cmp_ps_mask::<_CMP_ORD_Q>(all, all);
                _mm512_store_ps(at, _mm512_mask_mov_ps(all, nan, x));
            }
        }
    }
}
