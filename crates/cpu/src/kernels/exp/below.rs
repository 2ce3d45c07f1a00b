//! Exponentials of a piece of some rows, in several parts, below an anchor that is known before the rows' maxima are: one row
//! after the other in registers, between the matrix unit's instructions.

use super::MOST_WEIGHT;
use super::packed::x86::{scaled, table};
use crate::kernels::contract::{ODD, PackedLeft};
use crate::kernels::fold::Partial;
use crate::kernels::live::{Live, bits};
use crate::kernels::strip::LEAST_NORMAL;
use crate::kernels::unit::{Beside, SIDE, TERMS, TILE};
use std::arch::x86_64::*;
use std::ops::Range;

type Vector = __m512;

/// Bytes of a tile's row.
const LINE: usize = TILE / SIDE;

/// Which exponentials: `exp(x * by - less)`, 0 where they are subnormal or not live. They are as exact as of
/// [`super::packed::rows`] before they become parts, each of which is cut off, not rounded. One that is infinite or no number
/// makes its row's sum so.
pub(crate) struct Below<'a> {
    /// The first of the elements, that of the first row and column.
    pub from: *const f32,
    /// Elements from row to row.
    pub pitch: usize,
    /// At most 32, from a multiple of 32 on.
    pub rows: Range<usize>,
    /// The first is a multiple of 32, the last one too unless it is the last of the rows.
    pub columns: Range<usize>,
    /// Columns of whole rows.
    pub all: usize,
    /// All are, if that is not told.
    pub live: Option<&'a Live>,
    pub by: f32,
    /// One per row, from row 0 on.
    pub less: &'a [f32],
}

/// The same, begun.
pub(crate) struct Begun<const PARTS: usize> {
    row: usize,
    end: usize,
    columns: Range<usize>,
    /// Whether all elements are there; if not, null if all columns are live.
    whole: bool,
    live: *const Live,
    from: *const f32,
    pitch: usize,
    by: Vector,
    /// The row's number and its sum.
    less: *const f32,
    sum: *mut f32,
    /// Where the lines of the row go, and of the first row of the second tiles.
    to: *mut u8,
    second: *mut u8,
    table: [Vector; 2],
    products: usize,
    /// Rows that are due, times `products`.
    due: usize,
    /// A bit for each lane in which some sum is too large or no number.
    bad: u16,
}

impl Below<'_> {
    /// Those are spread over so many products, packed to where they belong in whole rows, and added to the rows' sums, one for
    /// each row from row 0 on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) fn begin<const PARTS: usize>(
        self,
        to: &mut PackedLeft<'_>,
        sums: &mut [Partial],
        products: usize,
    ) -> Begun<PARTS> {
        let Self { from, pitch, rows, columns, all, live, by, less } = self;
        assert!(to.parts() == PARTS && rows.len() <= 2 * SIDE && rows.start.is_multiple_of(2 * SIDE), "32 rows");
        let whole = live.is_none_or(|live| {
            let there = &live.rows(rows.clone())[1];
            there.start <= columns.start && columns.end <= there.end
        });
        let whole = whole && columns.len().is_multiple_of(TERMS);
        let (block, rest) = (columns.start / TERMS, columns.start..all);
        let second = rows.start + SIDE;
        let first = to.from(rows.start, block, rest.len());
        let second = if second < rows.end { to.from(second, block, rest.len()) } else { first };
        Begun {
            row: rows.start,
            end: rows.end,
            whole,
            live: live.map_or(std::ptr::null(), std::ptr::from_ref),
            from,
            pitch,
            by: _mm512_set1_ps(by),
            less: less[rows.clone()].as_ptr(),
            sum: sums[rows].as_mut_ptr().cast(),
            columns,
            to: first,
            second,
            table: table(),
            products,
            due: 0,
            bad: 0,
        }
    }
}

impl<const PARTS: usize> Begun<PARTS> {
    /// Computes the rows that are left; false if some exponential is [`MOST_WEIGHT`] or more, or no number.
    ///
    /// # Safety
    /// What these were begun with is still there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) unsafe fn rest(&mut self) -> bool {
        while self.row < self.end {
            // SAFETY: the caller's.
            unsafe { self.one() };
        }
        self.bad == 0
    }

    /// Computes a row.
    ///
    /// # Safety
    /// As of [`Begun::rest`]; there is one.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn one(&mut self) {
        let (from, mut to, by, table) = (self.from, self.to, self.by, self.table);
        // SAFETY: the caller's: there are a number less and a sum for each row, so many columns, and a line for each part of 32 of
        // them.
        unsafe {
            let less = _mm512_set1_ps(*self.less);
            let sum = if self.whole {
                let mut all = [_mm512_load_ps(self.sum), _mm512_setzero_ps()];
                for at in (0..self.columns.len()).step_by(TERMS) {
                    let from = from.wrapping_add(at);
                    let exp = |x| exp(_mm512_fmsub_ps(x, by, less), table);
                    let (x, y) = (exp(_mm512_loadu_ps(from)), exp(_mm512_loadu_ps(from.wrapping_add(SIDE))));
                    all = [_mm512_add_ps(all[0], x), _mm512_add_ps(all[1], y)];
                    cut::<PARTS>(x, y, to);
                    to = to.wrapping_add(PARTS * TILE);
                }
                _mm512_add_ps(all[0], all[1])
            } else {
                self.edge(less)
            };
            self.bad |= _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(sum, _mm512_set1_ps(MOST_WEIGHT));
            _mm512_store_ps(self.sum, sum);
        }
        self.row += 1;
        self.from = from.wrapping_add(self.pitch);
        self.less = self.less.wrapping_add(1);
        self.sum = self.sum.wrapping_add(SIDE);
        self.to = if self.row.is_multiple_of(SIDE) { self.second } else { self.to.wrapping_add(LINE) };
    }

    /// Computes a row of which not all elements are live; its sum.
    ///
    /// # Safety
    /// As of [`Begun::one`].
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn edge(&self, less: Vector) -> Vector {
        // SAFETY: the caller's; the masks have a bit for each element that is there.
        unsafe {
            let there = self.live.as_ref().map_or(self.columns.clone(), |live| live.row(self.row));
            let there = there.start..there.end.min(self.columns.end);
            let mut to = self.to;
            let mut sum = _mm512_load_ps(self.sum);
            for at in self.columns.clone().step_by(TERMS) {
                let from = self.from.wrapping_add(at - self.columns.start);
                let mask = bits(&there, at);
                let half = |mask: u16, from: *const f32| {
                    let x = _mm512_maskz_loadu_ps(mask, from);
                    _mm512_maskz_mov_ps(mask, exp(_mm512_fmsub_ps(x, self.by, less), self.table))
                };
                let (x, y) = (half(mask as u16, from), half((mask >> 16) as u16, from.wrapping_add(SIDE)));
                sum = _mm512_add_ps(sum, _mm512_add_ps(x, y));
                cut::<PARTS>(x, y, to);
                to = to.wrapping_add(PARTS * TILE);
            }
            sum
        }
    }
}

impl<const PARTS: usize> Beside for Begun<PARTS> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn some(&mut self) {
        self.due += 2 * SIDE;
        while self.due >= self.products && self.row < self.end {
            self.due -= self.products;
            // SAFETY: the caller's, and of who has begun them.
            unsafe { self.one() };
        }
    }
}

/// The exponentials of 16 numbers; 0 where they are subnormal, infinite or no number where they are no f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn exp(x: Vector, table: [Vector; 2]) -> Vector {
    // A NaN is not less. What is not there is not scaled either: numbers that are subnormal take hundreds of cycles.
    let there = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(LEAST_NORMAL));
    scaled(x, there, table)
}

/// 32 numbers in parts, a tile's bytes apart, each what is left cut off after 8 bits.
///
/// # Safety
/// 64 bytes are there for each part.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
unsafe fn cut<const PARTS: usize>(mut x: Vector, mut y: Vector, to: *mut u8) {
    let high = _mm512_castsi512_ps(_mm512_set1_epi32(0xffff_0000_u32 as i32));
    // SAFETY: the caller's.
    unsafe {
        let odd = _mm512_loadu_si512(ODD.as_ptr().cast());
        for part in 0..PARTS {
            let both = _mm512_permutex2var_epi16(_mm512_castps_si512(x), odd, _mm512_castps_si512(y));
            _mm512_storeu_si512(to.wrapping_add(part * TILE).cast(), both);
            if part + 1 < PARTS {
                x = _mm512_sub_ps(x, _mm512_and_ps(x, high));
                y = _mm512_sub_ps(y, _mm512_and_ps(y, high));
            }
        }
    }
}
