//! Tiles that the next chunk of a stream needs, copied while a contraction computes: a line now and then costs little
//! beside the multiplications, whose loads and stores leave most of the processor's ports for them idle.

use super::Layout;
use super::blocks::{DEPTH, TURN};
use crate::kernels::memory::{Line, soon};
use bytemuck::Pod;
use einloom_cascade::numeric::bf16_to_f32;

/// Elements that are copied at once.
const UNIT: usize = size_of::<Line>() / size_of::<f32>();

/// Units between what is asked for and what is copied, at least.
const AHEAD: usize = 8;

/// Turns of a block at most.
const TURNS: usize = DEPTH / TURN;

/// A matrix of f32 or bf16, its rows adjacent elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub elements: Elements<'a>,
    pub rows: usize,
    pub columns: usize,
    /// Elements from row to row.
    pub pitch: usize,
}

/// Numbers in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

impl Elements<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::Bf16(x) => x.len(),
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32(_) => size_of::<f32>(),
            Self::Bf16(_) => size_of::<u16>(),
        }
    }

    pub(crate) fn start(self) -> *const u8 {
        match self {
            Self::F32(x) => x.as_ptr().cast(),
            Self::Bf16(x) => x.as_ptr().cast(),
        }
    }

    /// Those from the `at`th on.
    pub(crate) fn after(self, at: usize) -> Self {
        match self {
            Self::F32(x) => Self::F32(&x[at..]),
            Self::Bf16(x) => Self::Bf16(&x[at..]),
        }
    }
}

impl<'a> Matrix<'a> {
    /// The `rows` by `columns` elements from `start` on; nothing if they are not all there.
    fn part<T>(elements: &'a [T], start: usize, [rows, columns]: [usize; 2], pitch: usize) -> Option<&'a [T]> {
        let len = rows.checked_sub(1)?.checked_mul(pitch)?.checked_add(columns)?;
        (columns > 0).then_some(())?;
        elements.get(start..start.checked_add(len)?)
    }

    pub(crate) fn f32(elements: &'a [f32], start: usize, lengths: [usize; 2], pitch: usize) -> Option<Self> {
        let elements = Elements::F32(Self::part(elements, start, lengths, pitch)?);
        Some(Self { elements, rows: lengths[0], columns: lengths[1], pitch })
    }

    pub(crate) fn bf16(elements: &'a [u16], start: usize, lengths: [usize; 2], pitch: usize) -> Option<Self> {
        let elements = Elements::Bf16(Self::part(elements, start, lengths, pitch)?);
        Some(Self { elements, rows: lengths[0], columns: lengths[1], pitch })
    }

    fn is(&self, other: &Self) -> bool {
        let shape = |m: &Self| (m.elements.start(), m.elements.bytes(), m.rows, m.columns, m.pitch);
        shape(self) == shape(other)
    }
}

/// A matrix that is being copied to f32.
struct Copying<'a> {
    /// Whose tile it is.
    tile: usize,
    from: Matrix<'a>,
    to: Vec<Line>,
    /// How the elements are to lie in `to`.
    layout: Layout,
    /// Where the next unit is: whole units only, what is left of rows comes last.
    row: usize,
    unit: usize,
}

impl Copying<'_> {
    fn units(&self) -> usize {
        self.from.columns / UNIT
    }

    fn left(&self) -> usize {
        (self.from.rows - self.row) * self.units() - self.unit
    }

    /// Copies what is left.
    fn finish(&mut self) {
        let whole = self.units() * UNIT;
        let Matrix { elements, rows, columns, pitch } = self.from;
        for row in 0..rows {
            let begin = match row.cmp(&self.row) {
                std::cmp::Ordering::Less => whole,
                std::cmp::Ordering::Equal => self.unit * UNIT,
                std::cmp::Ordering::Greater => 0,
            };
            let mut column = begin;
            while column < columns {
                let end = match self.layout {
                    Layout::Rows(_) | Layout::Packed(_) => columns,
                    Layout::Panels(panel) => columns.min((column / panel + 1) * panel),
                };
                let at = self.layout.at(rows, row, column);
                let to = &mut elements_of(&mut self.to)[at..][..end - column];
                match elements {
                    Elements::F32(from) => to.copy_from_slice(&from[row * pitch..][column..end]),
                    Elements::Bf16(from) => {
                        let from = &from[row * pitch..][column..end];
                        to.iter_mut().zip(from).for_each(|(x, &y)| *x = bf16_to_f32(y));
                    }
                }
                column = end;
            }
        }
    }
}

fn elements_of<T: Pod>(lines: &mut [Line]) -> &mut [T] {
    bytemuck::cast_slice_mut(lines)
}

/// Runs of memory that are being asked for.
struct Runs {
    tile: usize,
    /// The run that comes next.
    start: usize,
    /// Bytes from run to run, and lines of each.
    pitch: usize,
    lines: usize,
    runs: usize,
}

/// What is to be copied in passing.
#[derive(Default)]
pub(crate) struct Ahead<'a> {
    copies: Vec<Copying<'a>>,
    units: Box<Units>,
    /// Where the next chunk's right factor is, if it is in panels already.
    panels: Option<usize>,
    /// What the next chunk loads in another order than it lies in: it is asked for, and no more.
    asked: Vec<Runs>,
    /// The line that idle turns copy to itself.
    idle: Vec<Line>,
}

impl<'a> Ahead<'a> {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.copies.clear();
        self.panels = None;
        self.asked.clear();
    }

    /// Tells where the panels are that will be multiplied next.
    pub(crate) fn expect(&mut self, panels: Option<*const f32>) {
        self.panels = panels.map(<*const f32>::addr);
    }

    /// Has the memory of a tile asked for: `runs` of so many bytes, so far apart, from `start` on.
    pub(crate) fn ask<T>(&mut self, tile: usize, start: *const T, runs: usize, [bytes, pitch]: [usize; 2]) {
        self.asked.retain(|a| a.tile != tile);
        let lines = bytes.div_ceil(size_of::<Line>());
        self.asked.push(Runs { tile, start: start.addr(), pitch, lines, runs });
    }

    /// Has `from` copied for a tile into `to`.
    pub(crate) fn want(&mut self, tile: usize, from: Matrix<'a>, mut to: Vec<Line>, layout: Layout) {
        let lines = layout.len(from.rows, from.columns).max(from.columns).div_ceil(UNIT);
        if to.len() < lines {
            to.resize(lines, Line::ZERO);
        }
        debug_assert!(!matches!(layout, Layout::Rows(pitch) if pitch < from.columns));
        let row = if from.columns < UNIT { from.rows } else { 0 };
        self.copies.retain(|c| c.tile != tile);
        self.copies.push(Copying { tile, from, to, layout, row, unit: 0 });
    }

    /// What was copied for a tile, if it is `from`.
    pub(crate) fn take(&mut self, tile: usize, from: Matrix<'_>, layout: Layout) -> Option<Vec<Line>> {
        let at = self.copies.iter().position(|c| c.tile == tile)?;
        let mut copying = self.copies.swap_remove(at);
        if !copying.from.is(&from) || copying.layout != layout {
            return None;
        }
        copying.finish();
        Some(copying.to)
    }
}

/// What the turns of one block copy and ask for.
pub(super) struct Units {
    /// From where and to where.
    copies: [(*const u8, *mut Line); TURNS],
    /// Bytes from what is copied to what is asked for.
    distance: usize,
    /// What is copied is bf16.
    encoded: bool,
    /// Turns that have something to do; the others copy an idle line to itself.
    used: usize,
}

impl Default for Units {
    fn default() -> Self {
        let none = (std::ptr::null(), std::ptr::null_mut());
        Self { copies: [none; TURNS], distance: 0, encoded: false, used: TURNS }
    }
}

impl Units {
    /// Does one turn's copying.
    ///
    /// # Safety
    /// [`Passing::block`] gave this, nothing else was called since then, and `turn` is less than a quarter of the terms
    /// that it was told, once each.
    #[inline(always)]
    pub(super) unsafe fn pass(this: *const Self, turn: usize) {
        // SAFETY: a turn of the block; the pointers are those of a whole unit each, in a tensor and in a tile that the
        // copy owns, or the idle line.
        unsafe {
            let (from, to) = (*this).copies[turn];
            soon(from.wrapping_add((*this).distance));
            if (*this).encoded {
                let from = from.cast::<[u16; UNIT]>().read_unaligned();
                to.cast::<[f32; UNIT]>().write_unaligned(from.map(bf16_to_f32));
            } else {
                to.cast::<[f32; UNIT]>().write_unaligned(from.cast::<[f32; UNIT]>().read_unaligned());
            }
        }
    }
}

/// What one block after the other copies.
pub(super) struct Passing<'p, 'a> {
    ahead: &'p mut Ahead<'a>,
    /// Blocks that are still to come, about.
    blocks: usize,
}

impl<'p, 'a> Passing<'p, 'a> {
    /// For a contraction of this many blocks.
    pub(super) fn new(ahead: &'p mut Ahead<'a>, blocks: usize) -> Self {
        Self { ahead, blocks }
    }

    /// Where the panels are that will be multiplied next.
    pub(super) fn panels(&self) -> Option<usize> {
        self.ahead.panels
    }

    /// Where the next block, of so many turns, is to ask for memory, a line a turn.
    #[inline(always)]
    pub(super) fn asks(&mut self, turns: usize) -> Option<usize> {
        if self.ahead.asked.is_empty() { None } else { self.next_run(turns) }
    }

    #[inline(never)]
    fn next_run(&mut self, turns: usize) -> Option<usize> {
        // Not far beyond a run's end. What a block leaves of a longer one the processor's own prefetching finds.
        let asked = self.ahead.asked.iter_mut().find(|a| a.runs > 0 && turns <= 2 * a.lines)?;
        let start = asked.start;
        asked.start = asked.start.wrapping_add(asked.pitch);
        asked.runs -= 1;
        Some(start)
    }

    /// The turns of the next block, which has `terms` terms; null if they have nothing to do.
    #[inline(always)]
    pub(super) fn block(&mut self, terms: usize) -> *const Units {
        if self.ahead.units.used > 0 || !self.ahead.copies.is_empty() {
            self.fill(terms);
        }
        // Idle turns cost a tenth of the products of a Zen 3.
        if self.ahead.units.used == 0 { std::ptr::null() } else { std::ptr::from_ref(&*self.ahead.units) }
    }

    #[inline(never)]
    fn fill(&mut self, terms: usize) {
        let all: usize = self.ahead.copies.iter().map(Copying::left).sum();
        let units = &mut *self.ahead.units;
        let turns = (terms / TURN).min(TURNS);
        let mut used = 0;
        let copy = self.ahead.copies.iter_mut().find(|c| c.left() > 0);
        if let Some(copy) = copy {
            used = all.div_ceil(self.blocks.max(1)).min(turns).min(copy.left());
            units.encoded = copy.from.elements.bytes() == size_of::<u16>();
            let row_bytes = copy.from.pitch * copy.from.elements.bytes();
            let unit_bytes = UNIT * copy.from.elements.bytes();
            // Some hundreds of cycles before it is copied: a row or a few further on.
            units.distance = row_bytes * AHEAD.div_ceil(copy.units());
            let (from, to) = (copy.from.elements.start(), copy.to.as_mut_ptr().cast::<f32>());
            let mut done = 0;
            while done < used {
                let piece = (copy.units() - copy.unit).min(used - done);
                let from = from.wrapping_add(copy.row * row_bytes + copy.unit * unit_bytes);
                for (i, unit) in units.copies[done..done + piece].iter_mut().enumerate() {
                    let at = copy.layout.at(copy.from.rows, copy.row, (copy.unit + i) * UNIT);
                    *unit = (from.wrapping_add(i * unit_bytes), to.wrapping_add(at).cast());
                }
                done += piece;
                copy.unit += piece;
                if copy.unit == copy.units() {
                    (copy.row, copy.unit) = (copy.row + 1, 0);
                }
            }
        }
        self.blocks = self.blocks.saturating_sub(1);
        let before = std::mem::replace(&mut units.used, used);
        self.ahead.idle.resize(1, Line::ZERO);
        let idle = self.ahead.idle.as_mut_ptr();
        if used == 0 {
            units.encoded = false;
        }
        // Half a line is read where bf16 is copied, which changes what the line holds; nobody looks at it.
        units.copies[used..before.max(used)].fill((idle.cast_const().cast(), idle));
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, Layout, Matrix, Passing, Units, elements_of};

    /// Runs blocks of 16 terms until `blocks` have passed, and takes what was copied.
    fn copied(from: Matrix<'_>, layout: Layout, blocks: usize) -> (usize, Vec<f32>) {
        let mut ahead = Ahead::default();
        ahead.want(3, from, vec![], layout);
        let mut passing = Passing::new(&mut ahead, blocks);
        for _ in 0..blocks {
            let units = passing.block(16);
            for turn in 0..4 {
                if !units.is_null() {
                    // SAFETY: a turn of the block just begun.
                    unsafe { Units::pass(units, turn) };
                }
            }
        }
        let left = ahead.copies[0].left();
        assert!(ahead.take(4, from, layout).is_none(), "another tile's");
        (left, elements_of::<f32>(&mut ahead.take(3, from, layout).expect("copied")).to_vec())
    }

    #[test]
    fn every_element_is_copied_in_passing_or_at_the_end() {
        let wide: Vec<f32> = (0..3000).map(|i| i as f32).collect();
        let narrow: Vec<u16> = wide.iter().map(|x| einloom_cascade::numeric::f32_to_bf16(*x)).collect();
        for [rows, columns, start, pitch] in
            [[4, 32, 7, 100], [5, 50, 0, 50], [1, 7, 3, 9], [3, 16, 1, 900], [9, 200, 5, 300]]
        {
            for blocks in [0, 1, 3, 100] {
                let all = rows * (columns / 16);
                let element = |r: usize, c: usize| wide[start + r * pitch + c];
                for to in [Layout::Rows(columns + 16), Layout::Panels(64), Layout::Panels(16)] {
                    let f32 = Matrix::f32(&wide, start, [rows, columns], pitch).expect("inside");
                    let (left, found) = copied(f32, to, blocks);
                    assert_eq!(left, all - all.min(all.div_ceil(blocks.max(1)).min(4) * blocks));
                    let bf16 = Matrix::bf16(&narrow, start, [rows, columns], pitch).expect("inside");
                    let (_, rounded) = copied(bf16, to, blocks);
                    for r in 0..rows {
                        for c in 0..columns {
                            let code = einloom_cascade::numeric::f32_to_bf16(element(r, c));
                            assert_eq!(found[to.at(rows, r, c)], element(r, c));
                            assert_eq!(rounded[to.at(rows, r, c)], einloom_cascade::numeric::bf16_to_f32(code));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_all_there_is_not_copied() {
        let elements = [0.0; 100];
        assert!(Matrix::f32(&elements, 0, [10, 10], 10).is_some());
        assert!(Matrix::f32(&elements, 1, [10, 10], 10).is_none());
        assert!(Matrix::f32(&elements, 0, [2, 10], usize::MAX).is_none());
        assert!(Matrix::f32(&elements, 0, [0, 10], 10).is_none());
    }
}
