//! Numbers as sums of bf16, packed for the processor's matrix unit.
//!
//! A number of `p` bits of mantissa is exactly the sum of `p / 8`, rounded up, numbers of bf16: the first is it rounded,
//! the next what that lacks, rounded, and so on. The unit multiplies bf16 exactly and adds in f32, but takes what is
//! subnormal for 0. [`Range`] tells where that does not matter.

use super::ahead::Elements;
use crate::kernels::isa::{Instructions, Work};
use crate::kernels::memory::Line;
use crate::kernels::transpose;
use crate::kernels::unit::{SIDE, TERMS, TILE};
use einloom_cascade::DType;

/// How many numbers of bf16 every number of this type is the sum of, if it is held in f32.
pub(crate) fn parts(dtype: DType) -> usize {
    match dtype {
        DType::Bf16 | DType::E4m3 | DType::E5m2 | DType::B1 => 1,
        DType::F16 | DType::Tf32 => 2,
        _ => 3,
    }
}

/// Magnitudes, as the bits of f32: the smallest of the largest elements of each row (or column) that is not 0, and the
/// largest of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub least: u32,
    pub most: u32,
}

impl Range {
    pub(crate) const NONE: Self = Self { least: u32::MAX, most: 0 };
    /// What is larger, or no number, may not be the sum of its parts.
    const MOST: u32 = (127 + 100) << 23;

    pub(crate) fn and(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// With a row, or a column, whose largest magnitude is this.
    pub(crate) fn with(self, most: u32) -> Self {
        if most == 0 { self } else { self.and(Self { least: most, most }) }
    }

    /// Whether all elements are the sums of their parts.
    pub(crate) fn is_all(self) -> bool {
        self.most < Self::MOST
    }

    /// Whether it is far from what [`Range::multiplies`] minds.
    fn is_ample(self) -> bool {
        self.least >= (127 - 40) << 23 && self.most < Self::MOST
    }

    /// Whether sums of products of such factors are those of f32: all is finite, and what is taken for 0 is at most a
    /// rounding error of the product of a row's largest element and a column's.
    pub(crate) fn multiplies(self, other: Self) -> bool {
        /// Parts and products below 2^-126 are lost, each times the other factor; 2^-90 leaves 36 bits for the 24 of
        /// the result and as many terms as anybody sums.
        const LEAST: i64 = -90;
        let exponent = |bits: u32| i64::from(bits >> 23) - 127;
        let (a, b) = (exponent(self.least), exponent(other.least));
        self.most < Self::MOST && other.most < Self::MOST && a >= LEAST && b >= LEAST && a + b >= LEAST
    }
}

/// How a right factor lies that is packed: columns 16 by 16, of these the terms 32 by 32, of these the parts, each a
/// tile whose rows are pairs of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub parts: u8,
    pub range: Range,
}

impl Packed {
    /// Of so many parts, to be packed.
    pub(crate) fn new(parts: u8) -> Self {
        Self { parts, range: Range::NONE }
    }

    /// Whether the elements are the sums of their parts.
    pub(crate) fn is_all(self) -> bool {
        self.parts == 1 || self.range.is_all()
    }

    /// Lines that a factor of so many terms and columns takes.
    pub(crate) fn lines(self, terms: usize, columns: usize) -> usize {
        columns.div_ceil(SIDE) * terms.div_ceil(TERMS) * usize::from(self.parts) * (TILE / size_of::<Line>())
    }
}

/// Rows of a left factor, to be packed row by row of tiles: of each the terms 32 by 32, of these the parts.
pub(super) struct PackLeft<'a> {
    pub from: Elements<'a>,
    /// Elements from row to row and from term to term.
    pub strides: [usize; 2],
    /// At most two tiles'.
    pub rows: usize,
    pub terms: usize,
    pub parts: usize,
    /// Whether the range is wanted: it takes time.
    pub range: bool,
    pub to: &'a mut [Line],
}

/// A right factor whose rows are terms, to be packed: see [`Packed`].
pub(crate) struct PackRight<'a> {
    pub from: Elements<'a>,
    /// Elements from row to row.
    pub pitch: usize,
    pub terms: usize,
    pub columns: usize,
    pub parts: usize,
    pub to: &'a mut [Line],
}

/// A right factor of bf16 whose columns lie as rows of adjacent terms, to be packed in one part.
pub(crate) struct PackColumns<'a> {
    pub from: &'a [u16],
    /// Elements from column to column.
    pub pitch: usize,
    pub terms: usize,
    pub columns: usize,
    pub to: &'a mut [Line],
}

impl Work for PackColumns<'_> {
    type Output = Packed;

    #[inline(always)]
    fn run<I: Instructions>(self) -> Packed {
        let Self { from, pitch, terms, columns, to } = self;
        let packed = Packed::new(1);
        assert!(terms > 0 && columns > 0 && from.len() >= (columns - 1) * pitch + terms, "too short");
        let to: &mut [[u32; SIDE * SIDE]] = bytemuck::cast_slice_mut(&mut to[..packed.lines(terms, columns)]);
        let blocks = terms.div_ceil(TERMS);
        for (number, to) in to.iter_mut().enumerate() {
            let (column, term) = (number / blocks * SIDE, number % blocks * TERMS);
            let (width, depth) = (SIDE.min(columns - column), TERMS.min(terms - term));
            let from = &from[column * pitch + term..];
            if width == SIDE && depth == TERMS && transpose::pairs::<I>(from, pitch, to) {
                continue;
            }
            let element = |column: usize, term: usize| {
                if column < width && term < depth { u32::from(from[column * pitch + term]) } else { 0 }
            };
            for (at, to) in to.iter_mut().enumerate() {
                let (pair, column) = (at / SIDE, at % SIDE);
                *to = element(column, 2 * pair + 1) << 16 | element(column, 2 * pair);
            }
        }
        packed
    }
}

/// Rows of a packed right factor, as it was.
#[inline(always)]
pub(super) fn unpack(packed: Packed, from: &[f32], terms: usize, columns: usize) -> Vec<f32> {
    const LINE: usize = SIDE;
    let parts = usize::from(packed.parts);
    let pairs: &[u32] = bytemuck::cast_slice(from);
    let mut out = vec![0f32; terms * columns];
    for (number, tiles) in pairs.chunks_exact(parts * TILE / size_of::<u32>()).enumerate() {
        let (block, column) = (number % terms.div_ceil(TERMS), number / terms.div_ceil(TERMS) * SIDE);
        if column >= columns {
            break;
        }
        let width = SIDE.min(columns - column);
        for term in block * TERMS..terms.min((block + 1) * TERMS) {
            let to = &mut out[term * columns + column..][..width];
            // The small ones first: each sum is exact.
            for part in (0..parts).rev() {
                let line = &tiles[(part * SIDE + term % TERMS / 2) * LINE..][..width];
                // The earlier term of a pair is in the lower half.
                let shift = if term % 2 == 0 { 16 } else { 0 };
                for (to, pair) in to.iter_mut().zip(line) {
                    *to = joined(*to, f32::from_bits(pair << shift & 0xffff_0000));
                }
            }
        }
    }
    out
}

/// A number of its smaller parts together and the next larger one. What is left of an infinite one is the number that the processor makes
/// where there is none, and no part of it.
pub(super) fn joined(smaller: f32, larger: f32) -> f32 {
    const NONE: u32 = 0xffc0_0000;
    if larger.is_infinite() && smaller.to_bits() == NONE { larger } else { smaller + larger }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    use super::{Range, SIDE, TERMS};
    use crate::kernels::memory::Line;
    use std::arch::asm;
    use std::arch::x86_64::*;

    pub(super) type Vector = __m512;

    /// Sixteen elements of f32, or of bf16, from the `at`th on; 0 where the mask has no bit.
    ///
    /// # Safety
    /// Those with a bit are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn vector<const BF16: bool>(from: *const u8, at: usize, mask: u16) -> Vector {
        // SAFETY: the caller's.
        unsafe {
            if BF16 {
                let codes = _mm256_maskz_loadu_epi16(mask, from.cast::<i16>().wrapping_add(at));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(codes)))
            } else {
                _mm512_maskz_loadu_ps(mask, from.cast::<f32>().wrapping_add(at))
            }
        }
    }

    /// The numbers' parts, each with 16 low bits that are 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn split<const PARTS: usize>(x: Vector) -> [__m512i; PARTS] {
        let (half, high) = (_mm512_set1_epi32(0x8000), _mm512_set1_epi32(0xffff_0000_u32 as i32));
        let mut out = [_mm512_setzero_si512(); PARTS];
        let mut rest = x;
        for (i, part) in out.iter_mut().enumerate() {
            let bits = _mm512_castps_si512(rest);
            if i + 1 == PARTS {
                // What is left fits.
                *part = bits;
            } else {
                *part = _mm512_and_si512(_mm512_add_epi32(bits, half), high);
                rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(*part));
            }
        }
        out
    }

    /// 32 numbers, rounded to bf16. What is subnormal becomes 0, as which the unit takes it anyway.
    ///
    /// # Safety
    /// The processor has AVX512-BF16, and 64 bytes are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) unsafe fn round_pairs(x: Vector, y: Vector, to: *mut u8) {
        let both: __m512i;
        // SAFETY: the caller's.
        unsafe {
            asm!("vcvtne2ps2bf16 {0}, {1}, {2}", out(zmm_reg) both, in(zmm_reg) y, in(zmm_reg) x,
                options(pure, nomem, nostack, preserves_flags));
            _mm512_storeu_si512(to.cast(), both);
        }
    }

    /// The upper half of every element of the first register, then of the second.
    pub(crate) const ODD: [u16; 32] = {
        let mut odd = [0; 32];
        let mut i = 0;
        while i < 32 {
            odd[i] = 2 * i as u16 + 1;
            i += 1;
        }
        odd
    };

    /// 32 numbers in parts, a tile's bytes apart; one part is rounded.
    ///
    /// # Safety
    /// The processor has AVX512-BF16, and 64 bytes are there for each part.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) unsafe fn put_parts<const PARTS: usize>(x: Vector, y: Vector, to: *mut u8) {
        // SAFETY: the caller's.
        unsafe {
            if PARTS == 1 {
                return round_pairs(x, y, to);
            }
            let odd = _mm512_loadu_si512(ODD.as_ptr().cast());
            let (x, y) = (split::<PARTS>(x), split::<PARTS>(y));
            for (part, (x, y)) in x.into_iter().zip(y).enumerate() {
                let both = _mm512_permutex2var_epi16(x, odd, y);
                _mm512_storeu_si512(to.wrapping_add(part * super::TILE).cast(), both);
            }
        }
    }

    /// At most 32 numbers, zeros after them, in parts; the largest magnitude.
    ///
    /// # Safety
    /// As of [`put_parts`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) unsafe fn put<const PARTS: usize>(piece: &[f32], to: *mut u8) -> u32 {
        let (from, n) = (piece.as_ptr(), piece.len());
        // SAFETY: the masks have a bit per element; the caller's for the rest.
        unsafe {
            let x = _mm512_maskz_loadu_ps(first(n), from);
            let y = _mm512_maskz_loadu_ps(first(n.saturating_sub(16)), from.wrapping_add(16));
            put_parts::<PARTS>(x, y, to);
            if PARTS == 1 { 0 } else { _mm512_reduce_max_epu32(_mm512_max_epu32(magnitude(x), magnitude(y))) }
        }
    }

    fn first(n: usize) -> u16 {
        ((1u32 << n.min(16)) - 1) as u16
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn magnitude(x: Vector) -> __m512i {
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff))
    }

    /// A row of tiles: of every block of terms the parts, one tile after the other. The range is that of the rows, or one
    /// that is wider.
    ///
    /// # Safety
    /// There are so many rows, at most 16, and terms, and `to` has room for all tiles.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) unsafe fn left_rows<const BF16: bool, const PARTS: usize, const RANGE: bool>(
        from: *const u8,
        pitch: usize,
        [rows, terms]: [usize; 2],
        to: *mut u8,
    ) -> Range {
        // SAFETY: the caller's.
        unsafe {
            let (mut least, mut all) = (_mm512_set1_epi32(-1), _mm512_setzero_si512());
            for row in 0..SIDE {
                let mut to = to.add(row * 64);
                if row >= rows {
                    for _ in 0..terms.div_ceil(TERMS) * PARTS {
                        _mm512_storeu_si512(to.cast(), _mm512_setzero_si512());
                        to = to.add(super::TILE);
                    }
                    continue;
                }
                let row = row * pitch;
                let mut most = _mm512_setzero_si512();
                let mut pack = |x: Vector, y: Vector, to: *mut u8| {
                    if RANGE {
                        most = _mm512_max_epu32(most, _mm512_max_epu32(magnitude(x), magnitude(y)));
                    }
                    put_parts::<PARTS>(x, y, to);
                };
                let mut at = 0;
                while at + TERMS <= terms {
                    if BF16 && PARTS == 1 && !RANGE {
                        let whole = _mm512_loadu_si512(from.cast::<u16>().add(row + at).cast());
                        _mm512_storeu_si512(to.cast(), whole);
                    } else {
                        let all = u16::MAX;
                        pack(vector::<BF16>(from, row + at, all), vector::<BF16>(from, row + at + 16, all), to);
                    }
                    to = to.add(PARTS * super::TILE);
                    at += TERMS;
                }
                if at < terms {
                    let left = terms - at;
                    let x = vector::<BF16>(from, row + at, first(left));
                    let y = vector::<BF16>(from, row + at + 16, first(left.saturating_sub(16)));
                    pack(x, y, to);
                }
                if RANGE {
                    least = _mm512_min_epu32(least, most);
                    all = _mm512_max_epu32(all, most);
                }
            }
            if !RANGE {
                return Range::NONE;
            }
            // The least of any lane is no more than that of a row; where it is too small, the rows are looked at.
            let range = Range { least: _mm512_reduce_min_epu32(least), most: _mm512_reduce_max_epu32(all) };
            if range.is_ample() { range } else { rows_range::<BF16>(from, pitch, [rows, terms]) }
        }
    }

    /// The range of the rows.
    ///
    /// # Safety
    /// There are so many rows and terms.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn rows_range<const BF16: bool>(from: *const u8, pitch: usize, [rows, terms]: [usize; 2]) -> Range {
        let mut range = Range::NONE;
        for row in 0..rows {
            let mut most = _mm512_setzero_si512();
            for at in (0..terms).step_by(16) {
                // SAFETY: the caller's; the mask has a bit for each term that is there.
                let x = unsafe { vector::<BF16>(from, row * pitch + at, first(terms - at)) };
                most = _mm512_max_epu32(most, magnitude(x));
            }
            let most = _mm512_reduce_max_epu32(most);
            if most > 0 {
                range = range.and(Range { least: most, most });
            }
        }
        range
    }

    /// A block of at most 32 terms of sixteen columns, or `columns` if there are fewer; `most` has the largest magnitude of each
    /// column besides.
    ///
    /// # Safety
    /// There are so many terms and columns, and `to` has room for the block's tiles.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) unsafe fn right_block<const BF16: bool, const PARTS: usize>(
        from: *const u8,
        pitch: usize,
        [terms, columns]: [usize; 2],
        to: *mut u8,
        most: &mut Line,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let mask = first(columns);
            let row = |term: usize| {
                if term < terms { vector::<BF16>(from, term * pitch, mask) } else { _mm512_setzero_ps() }
            };
            let mut all = _mm512_loadu_si512(std::ptr::from_ref(most).cast());
            for pair in 0..SIDE {
                let (x, y) = (row(2 * pair), row(2 * pair + 1));
                all = _mm512_max_epu32(all, _mm512_max_epu32(magnitude(x), magnitude(y)));
                let parts = split::<PARTS>(x).into_iter().zip(split::<PARTS>(y));
                for (part, (x, y)) in parts.enumerate() {
                    let high = _mm512_and_si512(y, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                    let both = _mm512_or_si512(_mm512_srli_epi32::<16>(x), high);
                    _mm512_storeu_si512(to.add(part * super::TILE + pair * 64).cast(), both);
                }
            }
            _mm512_storeu_si512(std::ptr::from_mut(most).cast(), all);
        }
    }

    /// A whole block of 32 terms of 32 columns of bf16: two tiles, which begin at `to`. Sixteen columns' magnitudes each.
    ///
    /// # Safety
    /// As of [`right_block`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) unsafe fn right_codes(from: *const u8, pitch: usize, to: [*mut u8; 2], most: [&mut Line; 2]) {
        /// Pairs of one row's and the next one's elements: of the first half of the columns, and of the second.
        const PAIRS: [[u16; 32]; 2] = {
            let mut pairs = [[0; 32]; 2];
            let mut i = 0;
            while i < 32 {
                let element = i as u16 / 2 + 32 * (i as u16 % 2);
                pairs[0][i] = element;
                pairs[1][i] = element + 16;
                i += 1;
            }
            pairs
        };
        // SAFETY: the caller's.
        unsafe {
            let [low, high] = PAIRS.map(|pairs| _mm512_loadu_si512(pairs.as_ptr().cast()));
            let magnitudes = _mm512_set1_epi16(0x7fff);
            let mut all = _mm512_setzero_si512();
            for pair in 0..SIDE {
                let row = |term: usize| _mm512_loadu_si512(from.cast::<u16>().add(term * pitch).cast());
                let (x, y) = (row(2 * pair), row(2 * pair + 1));
                let of_both = _mm512_max_epu16(_mm512_and_si512(x, magnitudes), _mm512_and_si512(y, magnitudes));
                all = _mm512_max_epu16(all, of_both);
                _mm512_storeu_si512(to[0].add(pair * 64).cast(), _mm512_permutex2var_epi16(x, low, y));
                _mm512_storeu_si512(to[1].add(pair * 64).cast(), _mm512_permutex2var_epi16(x, high, y));
            }
            let halves = [_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all)];
            for (most, codes) in most.into_iter().zip(halves) {
                let codes = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(codes));
                let before = _mm512_loadu_si512(std::ptr::from_ref(&*most).cast());
                _mm512_storeu_si512(std::ptr::from_mut(most).cast(), _mm512_max_epu32(before, codes));
            }
        }
    }

    /// The range of columns that have these largest magnitudes.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn columns_range(most: &[Line]) -> Range {
        let (mut least, mut all) = (_mm512_set1_epi32(-1), _mm512_setzero_si512());
        for line in most {
            // SAFETY: a line is as long as a register.
            let most = unsafe { _mm512_loadu_si512(std::ptr::from_ref(line).cast()) };
            let some = _mm512_cmpneq_epi32_mask(most, _mm512_setzero_si512());
            least = _mm512_mask_min_epu32(least, some, least, most);
            all = _mm512_max_epu32(all, most);
        }
        Range { least: _mm512_reduce_min_epu32(least), most: _mm512_reduce_max_epu32(all) }
    }
}

impl Work for PackLeft<'_> {
    type Output = Range;

    #[inline(always)]
    fn run<I: Instructions>(self) -> Range {
        let mut range = Range::NONE;
        let Self { from, strides: [row_step, step], rows, terms, parts, range: wanted, to } = self;
        assert!(parts == 1 || matches!(from, Elements::F32(_)), "bf16 has one part");
        let blocks = terms.div_ceil(TERMS);
        let lines = blocks * parts * (TILE / size_of::<Line>());
        let tiles = rows.div_ceil(SIDE);
        let to = &mut to[..tiles * lines];
        assert!(rows > 0 && terms > 0 && from.len() > (rows - 1) * row_step + (terms - 1) * step, "too short");
        #[cfg(target_arch = "x86_64")]
        if I::AVX512 {
            // Rows that do not lie one after the other are brought into that form, two tiles' at most.
            let mut moved = vec![];
            let (from, pitch) = match from {
                Elements::F32(from) if step != 1 => {
                    let pitch = blocks * TERMS;
                    moved.resize(tiles * SIDE * pitch, 0.0);
                    adjacent::<I>(from, [row_step, step], [rows, terms], &mut moved, pitch);
                    (Elements::F32(&moved), pitch)
                }
                _ => {
                    assert!(step == 1, "rows of bf16 are adjacent");
                    (from, row_step)
                }
            };
            for (tile, to) in to.chunks_exact_mut(lines).enumerate() {
                let at = tile * SIDE;
                let lengths = [SIDE.min(rows - at), terms];
                let (from, to) = (from.after(at * pitch), to.as_mut_ptr().cast::<u8>());
                assert!(from.len() >= (lengths[0] - 1) * pitch + terms, "too short");
                // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are; the rows
                // are there, and `to` has as many lines as all tiles.
                let these = unsafe {
                    match (from, parts, wanted) {
                        (Elements::Bf16(_), 1, false) => {
                            x86::left_rows::<true, 1, false>(from.start(), pitch, lengths, to)
                        }
                        (Elements::Bf16(_), ..) => x86::left_rows::<true, 1, true>(from.start(), pitch, lengths, to),
                        (_, 1, false) => x86::left_rows::<false, 1, false>(from.start(), pitch, lengths, to),
                        (_, 1, true) => x86::left_rows::<false, 1, true>(from.start(), pitch, lengths, to),
                        (_, 2, _) => x86::left_rows::<false, 2, true>(from.start(), pitch, lengths, to),
                        _ => x86::left_rows::<false, 3, true>(from.start(), pitch, lengths, to),
                    }
                };
                range = range.and(these);
            }
        }
        let _ = (wanted, step, row_step, to);
        range
    }
}

/// Brings rows that lie anyhow into rows of adjacent elements.
#[inline(always)]
fn adjacent<I: Instructions>(
    from: &[f32],
    [row_step, step]: [usize; 2],
    [rows, terms]: [usize; 2],
    to: &mut [f32],
    pitch: usize,
) {
    const SQUARE: usize = transpose::SIDE;
    for r in (0..rows).step_by(SQUARE) {
        for t in (0..terms).step_by(SQUARE) {
            let (height, width) = (SQUARE.min(rows - r), SQUARE.min(terms - t));
            let (from, to) = (&from[r * row_step + t * step..], &mut to[r * pitch + t..]);
            let whole = row_step == 1 && height == SQUARE && width == SQUARE;
            if whole && transpose::block::<I, f32>(from, step, to, pitch) {
                continue;
            }
            for i in 0..height {
                for j in 0..width {
                    to[i * pitch + j] = from[i * row_step + j * step];
                }
            }
        }
    }
}

impl Work for PackRight<'_> {
    type Output = Packed;

    #[inline(always)]
    fn run<I: Instructions>(self) -> Packed {
        let Self { from, pitch, terms, columns, parts, to } = self;
        assert!(parts == 1 || matches!(from, Elements::F32(_)), "bf16 has one part");
        let mut packed = Packed::new(parts as u8);
        let to = &mut to[..packed.lines(terms, columns)];
        assert!(terms > 0 && columns > 0 && from.len() >= (terms - 1) * pitch + columns, "too short");
        #[cfg(target_arch = "x86_64")]
        if I::AVX512 {
            let (column, tiles) = (packed.lines(terms, SIDE), packed.lines(TERMS, SIDE));
            let mut most = vec![Line::ZERO; columns.div_ceil(SIDE)];
            // Rows after rows, as they lie in memory: a column's elements are often a page apart.
            for (block, first) in (0..terms).step_by(TERMS).enumerate() {
                let height = TERMS.min(terms - first);
                let rows = from.after(first * pitch);
                let mut at = 0;
                while at < columns {
                    let width = columns - at;
                    let number = at / SIDE;
                    let tile = number * column + block * tiles;
                    let start = rows.after(at).start();
                    if height == TERMS && width >= 2 * SIDE && matches!(from, Elements::Bf16(_)) {
                        let (here, next) = to[tile..].split_at_mut(column);
                        let to = [&mut here[..tiles], &mut next[..tiles]].map(|to| to.as_mut_ptr().cast());
                        let [here, next] = &mut most[number..number + 2] else { unreachable!("two of as many") };
                        // SAFETY: as above; the lengths were checked.
                        unsafe { x86::right_codes(start, pitch, to, [here, next]) };
                        at += 2 * SIDE;
                        continue;
                    }
                    let (to, most) = (to[tile..][..tiles].as_mut_ptr().cast(), &mut most[number]);
                    let lengths = [height, width.min(SIDE)];
                    // SAFETY: as above; the lengths were checked.
                    unsafe {
                        match (from, parts) {
                            (Elements::Bf16(_), _) => x86::right_block::<true, 1>(start, pitch, lengths, to, most),
                            (_, 1) => x86::right_block::<false, 1>(start, pitch, lengths, to, most),
                            (_, 2) => x86::right_block::<false, 2>(start, pitch, lengths, to, most),
                            _ => x86::right_block::<false, 3>(start, pitch, lengths, to, most),
                        }
                    };
                    at += SIDE;
                }
            }
            // SAFETY: as above.
            packed.range = unsafe { x86::columns_range(&most) };
        }
        let _ = (from, pitch, to);
        packed
    }
}
