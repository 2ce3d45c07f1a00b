//! Left factors that are packed for the matrix unit where they are made, once for all contractions that read them.

use super::ahead::Elements;
use super::parts::{PackLeft, Range, joined};
use crate::kernels::isa::{Instructions, Token, dispatch};
use crate::kernels::memory::Line;
use crate::kernels::unit::{SIDE, TERMS, TILE, UnitToken};

/// Elements of f32 in whose memory a tile lies.
const ELEMENTS: usize = TILE / size_of::<f32>();

/// Rows 16 by 16, of these the terms 32 by 32, of these the parts, each a tile. Rows that are not there may hold anything;
/// terms that are not there are 0.
pub(crate) struct PackedLeft<'a> {
    to: &'a mut [f32],
    blocks: usize,
    parts: usize,
    /// The largest magnitude of each row, as the bits of f32; empty, and not asked for, if there is one part.
    most: &'a mut Vec<u32>,
}

impl<'a> PackedLeft<'a> {
    /// So many rows, terms and parts. The token's processor rounds to bf16.
    pub(crate) fn new(
        _: UnitToken,
        to: &'a mut [f32],
        [rows, terms]: [usize; 2],
        parts: usize,
        most: &'a mut Vec<u32>,
    ) -> Self {
        most.clear();
        most.resize(if parts == 1 { 0 } else { rows }, 0);
        Self { to: &mut to[..Self::len([rows, terms], parts)], blocks: terms.div_ceil(TERMS), parts, most }
    }

    /// Elements of f32 in whose memory it lies.
    pub(crate) fn len([rows, terms]: [usize; 2], parts: usize) -> usize {
        rows.div_ceil(SIDE) * terms.div_ceil(TERMS) * parts * ELEMENTS
    }

    /// Packs rows of adjacent terms, so many elements apart; their range, if there are several parts.
    pub(crate) fn pack(
        token: Token,
        (from, pitch): (Elements<'_>, usize),
        [rows, terms]: [usize; 2],
        parts: usize,
        to: &mut [Line],
    ) -> Range {
        const SOME: usize = 2 * SIDE;
        let mut all = Range::NONE;
        for at in (0..rows).step_by(SOME) {
            let to = &mut to[Self::len([at, terms], parts) * size_of::<f32>() / size_of::<Line>()..];
            let (from, rows) = (from.after(at * pitch), SOME.min(rows - at));
            let pack = PackLeft { from, strides: [pitch, 1], rows, terms, parts, range: parts > 1, to };
            all = all.and(dispatch(token, pack));
        }
        all
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// The range of what was put there; none if there is one part.
    pub(crate) fn range(&self) -> Range {
        self.most.iter().fold(Range::NONE, |range, &most| range.with(most))
    }

    /// Where the lines of a row go that so many terms take, a tile's bytes apart.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize, terms: usize) -> *mut u8 {
        self.from(row, 0, terms)
    }

    /// The two rows of tiles from a row on that begins them, from a block on; the same twice if there is one.
    pub(crate) fn tiles(&self, row: usize, block: usize) -> [*const u8; 2] {
        let at = |row: usize| (row / SIDE * self.blocks + block) * self.parts * ELEMENTS;
        let second = if at(row + SIDE) < self.to.len() { row + SIDE } else { row };
        [row, second].map(|row| self.to[at(row)..].as_ptr().cast())
    }

    /// The same from a block on.
    #[inline(always)]
    pub(crate) fn from(&mut self, row: usize, block: usize, terms: usize) -> *mut u8 {
        let first = (row / SIDE * self.blocks + block) * self.parts * ELEMENTS + row % SIDE * SIDE;
        let last = first + (terms.div_ceil(TERMS) * self.parts).saturating_sub(1) * ELEMENTS;
        assert!(last + SIDE <= self.to.len(), "rows and terms that were asked for");
        self.to[first..].as_mut_ptr().cast()
    }

    /// Tells a magnitude of a row, as the bits of f32.
    #[inline(always)]
    pub(crate) fn note(&mut self, row: usize, magnitude: u32) {
        if let Some(most) = self.most.get_mut(row) {
            *most = magnitude.max(*most);
        }
    }

    /// Terms of a row from one on that begins a block; what fills up the last block is 0.
    #[inline(always)]
    pub(crate) fn put<I: Instructions>(&mut self, row: usize, term: usize, terms: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        if I::AVX512 {
            use super::parts::x86::put;
            for (number, piece) in terms.chunks(TERMS).enumerate() {
                let to = self.from(row, term / TERMS + number, piece.len());
                // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are, the token
                // says that the processor rounds to bf16, and there is a line for each part.
                let most = unsafe {
                    match self.parts {
                        1 => put::<1>(piece, to),
                        2 => put::<2>(piece, to),
                        _ => put::<3>(piece, to),
                    }
                };
                self.note(row, most);
            }
        }
        let _ = (row, term, terms);
    }
}

/// Rows of a packed left factor, as it was: each element is the sum of its parts.
pub(super) fn unpack_left(from: &[f32], [rows, terms]: [usize; 2], parts: usize) -> Vec<f32> {
    let blocks = terms.div_ceil(TERMS);
    let codes: &[u16] = bytemuck::cast_slice(from);
    let element = |row: usize, term: usize| -> f32 {
        let tile = (row / SIDE * blocks + term / TERMS) * parts;
        let within = row % SIDE * TERMS + term % TERMS;
        let part = |p: usize| f32::from_bits(u32::from(codes[(tile + p) * TILE / 2 + within]) << 16);
        // The small ones first: each sum is exact.
        (0..parts).rev().map(part).fold(0.0, joined)
    };
    (0..rows * terms).map(|at| element(at / terms, at % terms)).collect()
}
