//! Lines of exponentials, one after the other, in registers between the matrix unit's instructions.

use super::packed::x86::{exp, larger, table};
use super::strips::{ROWS, Strips};
use crate::kernels::amx::{Beside, SIDE, TERMS, TILE};
use crate::kernels::contract::{Range, put_parts};
use crate::kernels::fold::Partial;
use std::arch::x86_64::*;

type Vector = __m512;

/// Lines of 32 exponentials of 32 rows, so many for so many products.
pub(crate) struct Lines<const PARTS: usize> {
    row: usize,
    at: usize,
    rows: usize,
    range: Range,
    columns: usize,
    /// The row's elements.
    from: *const f32,
    pitch: usize,
    by: Vector,
    less: *const f32,
    anchor: Vector,
    table: [Vector; 2],
    /// Where the first row's lines go, and the next line.
    first: *mut u8,
    to: *mut u8,
    /// Null if nothing is summed.
    sums: *mut Partial,
    all: [Vector; 2],
    most: Vector,
    lines: usize,
    products: usize,
    /// Lines that are due, times `products`.
    due: usize,
}

impl<const PARTS: usize> Lines<PARTS> {
    /// Those of the rows from one on, spread over so many products.
    ///
    /// # Panics
    /// If `to` is shorter than [`Strips::len`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) fn begin(strips: &mut Strips<'_>, first: usize, to: &mut [f32], products: usize) -> Self {
        assert!(to.len() >= strips.len(PARTS), "32 rows");
        let rows = ROWS.min(strips.less.len() - first);
        let mut this = Self {
            row: 0,
            at: 0,
            rows,
            range: Range::NONE,
            columns: strips.columns,
            from: strips.from[first * strips.pitch..].as_ptr(),
            pitch: strips.pitch,
            by: _mm512_set1_ps(strips.by),
            less: strips.less[first..].as_ptr(),
            anchor: _mm512_setzero_ps(),
            table: table(),
            first: to.as_mut_ptr().cast(),
            to: to.as_mut_ptr().cast(),
            sums: strips.sums.as_mut().map_or(std::ptr::null_mut(), |sums| sums[first..].as_mut_ptr()),
            all: [_mm512_setzero_ps(); 2],
            most: _mm512_setzero_ps(),
            lines: rows * strips.columns.div_ceil(TERMS),
            products,
            due: 0,
        };
        this.turn();
        this
    }

    /// Computes those that are left; the range of all, none if there is one part.
    ///
    /// # Safety
    /// The processor rounds to bf16; what these were begun with is still borrowed.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) unsafe fn rest(&mut self) -> Range {
        while self.row < self.rows {
            // SAFETY: the caller's.
            unsafe { self.of_row((self.columns - self.at).div_ceil(TERMS)) };
        }
        self.range
    }

    /// What belongs to the row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn turn(&mut self) {
        if self.row < self.rows {
            let blocks = self.columns.div_ceil(TERMS);
            let tile = (self.row / SIDE * blocks + self.at / TERMS) * PARTS;
            self.to = self.first.wrapping_add(tile * TILE + self.row % SIDE * (TILE / SIDE));
            // SAFETY: each row has an anchor.
            self.anchor = unsafe { _mm512_set1_ps(*self.less.add(self.row)) };
        }
    }

    /// Computes so many lines of the row.
    ///
    /// # Safety
    /// There are so many left; as of [`Lines::rest`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn of_row(&mut self, lines: usize) {
        let (table, by, anchor) = (self.table, self.by, self.anchor);
        let exp = |x| exp(_mm512_fmsub_ps(x, by, anchor), table);
        let ([mut x_sum, mut y_sum], mut most, mut to) = (self.all, self.most, self.to);
        let mut from = self.from.wrapping_add(self.at);
        let whole = lines.min((self.columns - self.at) / TERMS);
        // SAFETY: the row has so many elements, of the last the masks have a bit per element; there is a line for each part
        // of 32 of them.
        unsafe {
            for _ in 0..whole {
                let (x, y) = (exp(_mm512_loadu_ps(from)), exp(_mm512_loadu_ps(from.add(SIDE))));
                (x_sum, y_sum) = (_mm512_add_ps(x_sum, x), _mm512_add_ps(y_sum, y));
                put_parts::<PARTS>(x, y, to);
                if PARTS > 1 {
                    most = larger(larger(x, y), most);
                }
                (from, to) = (from.wrapping_add(TERMS), to.wrapping_add(PARTS * TILE));
            }
            if whole < lines {
                let there = (1u32 << (self.columns % TERMS)) - 1;
                let half =
                    |mask: u16, from: *const f32| _mm512_maskz_mov_ps(mask, exp(_mm512_maskz_loadu_ps(mask, from)));
                let (x, y) = (half(there as u16, from), half((there >> 16) as u16, from.wrapping_add(SIDE)));
                (x_sum, y_sum) = (_mm512_add_ps(x_sum, x), _mm512_add_ps(y_sum, y));
                put_parts::<PARTS>(x, y, to);
                most = larger(larger(x, y), most);
            }
        }
        (self.all, self.most, self.to) = ([x_sum, y_sum], most, to);
        self.at += lines * TERMS;
        if self.at >= self.columns {
            // SAFETY: there is a sum for each row.
            unsafe { self.end() };
        }
    }

    /// Ends a row.
    ///
    /// # Safety
    /// As of [`Lines::of_row`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn end(&mut self) {
        if !self.sums.is_null() {
            // SAFETY: the caller's.
            unsafe {
                let sum = self.sums.add(self.row).cast::<f32>();
                let all = _mm512_add_ps(self.all[0], self.all[1]);
                _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), all));
            }
        }
        self.all = [_mm512_setzero_ps(); 2];
        if PARTS > 1 {
            self.range = self.range.with(_mm512_reduce_max_epu32(_mm512_castps_si512(self.most)));
            self.most = _mm512_setzero_ps();
        }
        (self.at, self.row) = (0, self.row + 1);
        self.from = self.from.wrapping_add(self.pitch);
        self.turn();
    }
}

impl<const PARTS: usize> Beside for Lines<PARTS> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn some(&mut self) {
        self.due += self.lines;
        while self.due >= self.products && self.row < self.rows {
            let lines = (self.due / self.products).min((self.columns - self.at).div_ceil(TERMS));
            self.due -= lines * self.products;
            // SAFETY: the caller's, and of who has begun them.
            unsafe { self.of_row(lines) };
        }
    }
}
