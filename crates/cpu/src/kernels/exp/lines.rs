//! Lines of exponentials, one after the other, in registers between the matrix unit's instructions.

use super::packed::x86::{exp, larger, table};
use super::strips::{ROWS, Strips, blocks};
use crate::kernels::contract::{Range, put_parts};
use crate::kernels::fold::Partial;
use crate::kernels::live::{Live, bits};
use crate::kernels::unit::{Beside, SIDE, TERMS, TILE};
use std::arch::x86_64::*;
use std::ops::Range as Columns;

type Vector = __m512;

/// Lines of 32 exponentials of 32 rows, so many for so many products.
pub(crate) struct Lines<const PARTS: usize> {
    row: usize,
    at: usize,
    rows: usize,
    range: Range,
    /// Which elements are there: null if all are.
    live: *const Live,
    /// The number of the first row.
    number: usize,
    /// Those of the row.
    there: Columns<usize>,
    /// The first block of columns that is computed, and how many are.
    blocks: [usize; 2],
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
        let blocks = blocks(strips.live, first, rows, strips.columns);
        let mut this = Self {
            row: 0,
            at: blocks[0] * TERMS,
            rows,
            range: Range::NONE,
            live: strips.live.map_or(std::ptr::null(), std::ptr::from_ref),
            number: first,
            there: 0..strips.columns,
            blocks,
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
            lines: rows * blocks[1],
            products,
            due: 0,
        };
        this.turn();
        this
    }

    /// The blocks of columns that hold all that is not 0: the first, and how many.
    pub(crate) fn blocks(&self) -> [usize; 2] {
        self.blocks
    }

    /// Lines of the row that are left.
    #[inline(always)]
    fn left(&self) -> usize {
        self.blocks[0] + self.blocks[1] - self.at / TERMS
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
            unsafe { self.of_row(self.left()) };
        }
        self.range
    }

    /// What belongs to the row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn turn(&mut self) {
        if self.row < self.rows {
            let tile = (self.row / SIDE * self.blocks[1] + self.at / TERMS - self.blocks[0]) * PARTS;
            self.to = self.first.wrapping_add(tile * TILE + self.row % SIDE * (TILE / SIDE));
            // SAFETY: each row has an anchor.
            self.anchor = unsafe { _mm512_set1_ps(*self.less.add(self.row)) };
            // SAFETY: what these were begun with is still borrowed.
            if let Some(live) = unsafe { self.live.as_ref() } {
                self.there = live.row(self.number + self.row);
            }
        }
    }

    /// Computes so many lines of the row.
    ///
    /// # Safety
    /// There are so many left; as of [`Lines::rest`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn of_row(&mut self, lines: usize) {
        let end = self.at + lines * TERMS;
        if self.at < self.there.start {
            // SAFETY: the caller's.
            unsafe { self.edge(end.min(self.there.start)) };
        }
        let (table, by, anchor) = (self.table, self.by, self.anchor);
        let exp = |x| exp(_mm512_fmsub_ps(x, by, anchor), table);
        let ([mut x_sum, mut y_sum], mut most, mut to) = (self.all, self.most, self.to);
        let mut from = self.from.wrapping_add(self.at);
        let whole = self.there.end.min(end).saturating_sub(self.at) / TERMS;
        // SAFETY: the row has so many elements, and there is a line for each part of 32 of them.
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
        }
        (self.all, self.most, self.to) = ([x_sum, y_sum], most, to);
        self.at += whole * TERMS;
        if self.at < end {
            // SAFETY: the caller's.
            unsafe { self.edge(end) };
        }
        if self.left() == 0 {
            // SAFETY: there is a sum for each row.
            unsafe { self.end() };
        }
    }

    /// Computes the row's lines up to a column, of which only some elements are there.
    ///
    /// # Safety
    /// As of [`Lines::of_row`].
    #[cold]
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn edge(&mut self, end: usize) {
        while self.at < end {
            let there = bits(&self.there, self.at);
            let from = self.from.wrapping_add(self.at);
            let half = |mask: u16, from: *const f32| {
                // SAFETY: the mask has a bit for each element that is there.
                let x = unsafe { _mm512_maskz_loadu_ps(mask, from) };
                _mm512_maskz_mov_ps(mask, exp(_mm512_fmsub_ps(x, self.by, self.anchor), self.table))
            };
            let (x, y) = (half(there as u16, from), half((there >> 16) as u16, from.wrapping_add(SIDE)));
            self.all = [_mm512_add_ps(self.all[0], x), _mm512_add_ps(self.all[1], y)];
            // SAFETY: there is a line for each part of 32 elements.
            unsafe { put_parts::<PARTS>(x, y, self.to) };
            self.most = larger(larger(x, y), self.most);
            (self.at, self.to) = (self.at + TERMS, self.to.wrapping_add(PARTS * TILE));
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
        (self.at, self.row) = (self.blocks[0] * TERMS, self.row + 1);
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
            let lines = (self.due / self.products).min(self.left());
            self.due -= lines * self.products;
            // SAFETY: the caller's, and of who has begun them.
            unsafe { self.of_row(lines) };
        }
    }
}
