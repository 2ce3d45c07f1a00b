//! Elementwise operations: an expression over strips of the result, and what becomes of each strip.

use super::alike::alike;
use super::arena::Scratch;
use super::chained::{LEAVES, chained};
use super::chosen::{chosen, kept};
use super::map::Sources;
use super::place::Rows;
use super::scaled::scaled;
use super::source::Source;
use super::whole::{exponential_quotients, exponentials, extremes, passed, quotients, summed};
use crate::compile::Strips;
use crate::kernels::chain::{Chain, Elements, To};
use crate::kernels::contract::{PackedLeft, Range};
use crate::kernels::fold::{Monoid, Partial, SHORT, Totals};
use crate::kernels::isa::{Instructions, Token, Work, dispatch};
use crate::kernels::memory::{Asked, Line, ROWS_AHEAD, Shared, soon};
use crate::kernels::real::Real;
use crate::kernels::strip::{self, Data, STRIP};
use bytemuck::Pod;
use einloom_cascade::DType;
use einloom_cascade::numeric::{f32_to_bf16, f32_to_f16};

/// Where the result goes.
pub(super) enum Sink<'a, T> {
    Same(&'a mut [T]),
    Floats(&'a mut [f32]),
    Integers(&'a mut [i32]),
    /// A left factor of the matrix unit.
    Packed(PackedLeft<'a>),
    /// Nobody reads it but the [`Ends`].
    Nowhere,
}

/// What else becomes of the result, if it is computed in f32.
pub(super) struct Ends<'a> {
    pub folds: &'a mut [Gather],
    pub store: Option<Outlet<'a>>,
    /// What is asked for in passing.
    pub asked: &'a mut Vec<Following>,
    /// A later map asks: rows may be taken in longer pieces.
    pub waits: bool,
    /// Set if all elements are found to be 0; they may be without.
    pub zero: &'a mut bool,
}

/// What is asked for while maps compute.
pub(crate) struct Following {
    pub asked: Asked,
    /// Bytes of its elements.
    pub size: usize,
}

/// Asks for some lines while so many elements are computed: by two maps over a tile, for all of the next one.
#[inline(always)]
pub(super) fn ask(asked: &mut Vec<Following>, elements: usize) {
    while let Some(Following { asked: one, size }) = asked.last_mut() {
        if one.left() > 0 {
            return one.some((elements * *size).div_ceil(2 * size_of::<Line>()));
        }
        asked.pop();
    }
}

/// Where so many bytes begin that the caller asks for, those of as many elements as are computed, or null: by the only map over a
/// tile that waits for memory, for all of the next one.
#[inline(always)]
pub(super) fn ask_for_each(asked: &mut Vec<Following>, elements: usize) -> *const u8 {
    while let Some(Following { asked: one, size }) = asked.last_mut() {
        if one.left() > 0 {
            let lines = (elements * *size).div_ceil(size_of::<Line>());
            // Who asks goes by elements in f32.
            if *size == size_of::<f32>() {
                return one.lines(lines);
            }
            one.some(lines);
            return std::ptr::null();
        }
        asked.pop();
    }
    std::ptr::null()
}

/// Asks for what is some rows below some elements of a row, if rows are far apart.
#[inline(always)]
pub(super) fn ask_below(rows: &Rows<'_, u16>, at: usize, width: usize) {
    if rows.pitch > width {
        let below = rows.data.as_ptr().wrapping_add(at + ROWS_AHEAD * rows.pitch).cast::<u8>();
        (0..width * size_of::<u16>()).step_by(size_of::<Line>()).for_each(|byte| soon(below.wrapping_add(byte)));
    }
}

/// A reduction of every row, or of every column.
pub(super) struct Gather {
    pub monoid: Monoid,
    pub gathered: Gathered,
}

pub(super) enum Gathered {
    /// Of each row, what its pieces amount to so far.
    Partial(Vec<Partial>),
    /// Of each short row, which is one piece, the result.
    Whole(Vec<f32>),
    /// Of each column, what the rows so far amount to.
    Columns(Vec<f32>),
}

impl Gather {
    /// Of `rows` rows of `columns` elements; `spare` is memory for partial results.
    pub fn new(monoid: Monoid, across: bool, [rows, columns]: [usize; 2], spare: &mut Vec<Vec<Partial>>) -> Self {
        let identity = monoid.identity();
        let gathered = match columns {
            _ if across => Gathered::Columns(vec![identity; columns]),
            0..=SHORT => Gathered::Whole(vec![identity; rows]),
            _ => {
                let mut partials = spare.pop().unwrap_or_default();
                partials.clear();
                partials.resize(rows, Partial::all(identity));
                Gathered::Partial(partials)
            }
        };
        Self { monoid, gathered }
    }

    /// The results of all rows or columns, in `totals`.
    pub fn totals(self, token: Token, totals: &mut Vec<f32>, spare: &mut Vec<Vec<Partial>>) {
        match self.gathered {
            Gathered::Partial(rows) => {
                totals.resize(rows.len(), 0.0);
                dispatch(token, Totals { monoid: self.monoid, rows: &rows, result: totals });
                spare.push(rows);
            }
            Gathered::Whole(all) | Gathered::Columns(all) => *totals = all,
        }
    }

    /// Takes in pieces of the rows from `first` on, each `width` elements from column `column` on.
    #[inline(always)]
    pub(super) fn add<I: Instructions>(&mut self, first: usize, column: usize, width: usize, strip: &[f32]) {
        let monoid = self.monoid;
        match &mut self.gathered {
            Gathered::Partial(rows) => {
                for (partial, piece) in rows[first..].iter_mut().zip(strip.chunks_exact(width)) {
                    monoid.add::<I>(partial, piece);
                }
            }
            Gathered::Whole(rows) => {
                for (result, row) in rows[first..].iter_mut().zip(strip.chunks_exact(width)) {
                    *result = monoid.of_short(row);
                }
            }
            Gathered::Columns(columns) => monoid.add_rows::<I>(&mut columns[column..][..width], strip),
        }
    }
}

/// A tensor that the rows are stored to.
pub(super) struct Outlet<'a> {
    pub memory: &'a Shared<'a>,
    pub dtype: DType,
    /// The first element.
    pub start: i64,
    /// From row to row.
    pub outer: i64,
}

impl Outlet<'_> {
    /// Stores a strip that begins at row `r0` and column `c0` and has rows of `width` elements.
    #[inline(always)]
    pub fn write<I: Instructions>(
        &self,
        r0: usize,
        c0: usize,
        width: usize,
        strip: &[f32],
        encoded: &mut [u16; STRIP],
    ) {
        let start = self.start + self.outer * r0 as i64 + c0 as i64;
        let encoded = &mut encoded[..strip.len()];
        match self.dtype {
            DType::Bf16 => encoded.iter_mut().zip(strip).for_each(|(y, &x)| *y = f32_to_bf16(x)),
            DType::F16 => encoded.iter_mut().zip(strip).for_each(|(y, &x)| *y = f32_to_f16(x)),
            _ => return self.rows::<I, f32>(start, width, strip),
        }
        self.rows::<I, u16>(start, width, encoded);
    }

    #[inline(always)]
    fn rows<I: Instructions, E: Pod>(&self, start: i64, width: usize, strip: &[E]) {
        let past = self.memory.is_large();
        if self.outer == width as i64 {
            return self.memory.write::<I, E>(start, strip, past);
        }
        for (r, row) in strip.chunks_exact(width).enumerate() {
            self.memory.write::<I, E>(start + self.outer * r as i64, row, past);
        }
    }
}

/// An elementwise operation on a tile.
pub(super) struct Elementwise<'a, 's, T> {
    pub strips: &'a Strips,
    pub sources: Sources<'s, T>,
    pub sink: Sink<'a, T>,
    pub ends: Ends<'a>,
    pub rows: usize,
    pub columns: usize,
    pub pitch: usize,
    pub scratch: &'a mut Scratch<T>,
}

impl<T: Real + Pod> Work for Elementwise<'_, '_, T> {
    /// The range of what was packed, if anything.
    type Output = Option<Range>;

    #[inline(always)]
    fn run<I: Instructions>(self) -> Option<Range> {
        let Self { strips, sources, mut sink, ends, rows, columns, pitch, scratch } = self;
        let mut ends = ends;
        let Ends { folds, store, asked, waits, .. } = &mut ends;
        let whole = if store.is_none() {
            exponentials::<T, I>(strips, &sources, scratch, &mut sink, folds, [rows, columns])
        } else {
            false
        };
        let packed = |sink: &Sink<'_, T>| if let Sink::Packed(left) = sink { Some(left.range()) } else { None };
        if whole {
            return packed(&sink);
        }
        if summed::<T, I>(strips, &sources, scratch, &mut sink, (&mut *folds, &mut *asked), [rows, columns, pitch])
            || store.is_none()
                && passed::<T, I>(
                    strips,
                    &sources,
                    scratch,
                    &mut sink,
                    (&mut *folds, &mut *asked),
                    [rows, columns, pitch, if *waits { 8 * STRIP } else { STRIP }],
                )
            || store.is_none() && extremes::<T, I>(strips, &sources, &sink, (&mut *folds, &mut *asked), [rows, columns])
        {
            return None;
        }
        if store.is_none()
            && (chosen(strips, &sources, &sink, folds, [rows, columns])
                || kept::<T, I>(
                    strips,
                    &sources,
                    scratch,
                    &mut sink,
                    (&mut *folds, &mut *asked),
                    [rows, columns, pitch],
                )
                || scaled::<T, I>(
                    strips,
                    &sources,
                    scratch,
                    &mut sink,
                    (&mut *folds, &mut *asked),
                    [rows, columns, pitch],
                ))
        {
            return None;
        }
        // Not in a closure, which would be a function without the instructions.
        if let Some(outlet) = &*store
            && folds.is_empty()
            && (quotients::<T, I>(strips, &sources, scratch, &sink, (outlet, &mut *asked), [rows, columns])
                || exponential_quotients::<T, I>(
                    strips,
                    &sources,
                    scratch,
                    &sink,
                    (outlet, &mut *asked),
                    [rows, columns],
                ))
        {
            return None;
        }
        if alike::<T, I>(strips, &sources, scratch, &mut sink, &mut ends, [rows, columns, pitch]) {
            return packed(&sink);
        }
        if chained::<T, I>(strips, &sources, scratch, &mut sink, &mut ends, [rows, columns, pitch]) {
            return None;
        }
        let Ends { folds, store, asked, .. } = ends;
        let mut encoded = [0; STRIP];
        let Scratch { registers, leaves, vectors, row: spare } = scratch;
        // Short rows are taken several at a time.
        let together = if pitch == columns && columns < STRIP / 2 { (STRIP / columns).min(rows) } else { 1 };
        if together > 1 {
            for (source, vector) in sources.iter().zip(vectors.iter_mut()) {
                if let Source::Columns(columns) = source {
                    vector.clear();
                    vector.extend_from_slice(columns);
                }
                if matches!(source, Source::PerColumn | Source::Columns(_)) {
                    let once = vector.len();
                    (1..together).for_each(|_| vector.extend_from_within(..once));
                }
            }
        }
        let chain = strips.chain().filter(|_| I::FMA && sources.len() <= LEAVES);
        // A leaf that is only read first is where it must be already.
        let skip = usize::from(strips.first.is_some_and(|leaf| matches!(sources[usize::from(leaf)], Source::InPlace)));
        for r0 in (0..rows).step_by(together) {
            let height = together.min(rows - r0);
            for c0 in (0..columns).step_by(if together > 1 { columns } else { STRIP }) {
                let width = if together > 1 { columns } else { STRIP.min(columns - c0) };
                let (at, n) = (r0 * pitch + c0, height * width);
                ask(asked, n);
                for (number, (source, leaf)) in sources.iter().zip(leaves.iter_mut()).enumerate() {
                    let leaf = &mut leaf[..n];
                    match source {
                        Source::InPlace if skip == 1 && strips.first == Some(number as u16) => {}
                        Source::InPlace => {
                            if let Sink::Same(target) = &sink {
                                leaf.copy_from_slice(&target[at..][..n]);
                            }
                        }
                        Source::Bf16(from) | Source::F16(from) => {
                            for r in 0..height {
                                ask_below(from, (r0 + r) * from.pitch + c0, width);
                                source.copy(&vectors[number], rows, [r0 + r, c0], &mut leaf[r * width..][..width]);
                            }
                        }
                        Source::Rows(from) if height == 1 || from.pitch == columns => {}
                        Source::PerRow | Source::Diagonals if height == 1 => {}
                        Source::Rows(_)
                        | Source::Floats(_)
                        | Source::Integers(_)
                        | Source::Holds(_)
                        | Source::Bits(_)
                        | Source::ColumnBits(_)
                        | Source::PerRow
                        | Source::Diagonals => {
                            for r in 0..height {
                                source.copy(&vectors[number], rows, [r0 + r, c0], &mut leaf[r * width..][..width]);
                            }
                        }
                        Source::Columns(_) | Source::PerColumn | Source::Same(_) => {}
                    }
                }
                let leaf = |number: u16| {
                    let number = usize::from(number);
                    match &sources[number] {
                        Source::Rows(from) if height == 1 || from.pitch == columns => {
                            Data::Each(&from.data[r0 * from.pitch + c0..][..n])
                        }
                        Source::PerRow if height == 1 => Data::Same(vectors[number][r0]),
                        Source::PerColumn if height == 1 => Data::Each(&vectors[number][c0..][..n]),
                        Source::Diagonals if height == 1 => Data::Each(&vectors[number][rows - 1 - r0 + c0..][..n]),
                        Source::Columns(x) if height == 1 && together == 1 => Data::Each(&x[c0..][..n]),
                        Source::Columns(_) | Source::PerColumn => Data::Each(&vectors[number][..n]),
                        Source::Same(x) => Data::Same(*x),
                        _ => Data::Each(&leaves[number][..n]),
                    }
                };
                // What is only looked at need not be copied first.
                let looked_at = match (&sink, strips.steps.as_slice()) {
                    (Sink::Nowhere, &[strip::Step::Copy { d: 0, from: strip::Operand::Leaf(number) }]) => {
                        if let Data::Each(strip) = leaf(number) {
                            T::floats(strip)
                        } else {
                            None
                        }
                    }
                    _ => None,
                };
                if let Some(strip) = looked_at {
                    for fold in folds.iter_mut() {
                        fold.add::<I>(r0, c0, width, strip);
                    }
                    if let Some(outlet) = &store {
                        outlet.write::<I>(r0, c0, width, strip, &mut encoded);
                    }
                    continue;
                }
                let result = match &mut sink {
                    Sink::Same(target) => &mut target[at..][..n],
                    Sink::Floats(_) | Sink::Integers(_) | Sink::Packed(_) | Sink::Nowhere => &mut spare[..n],
                };
                if !linked::<T, I>(chain, (sources.len(), strips.first.filter(|_| skip == 1)), &leaf, result) {
                    strip::run::<T, I>(&strips.steps[skip..], result, registers, &leaf);
                }
                if let Some(strip) = T::floats(result) {
                    // Not in a closure, which would be a function without the instructions.
                    for fold in folds.iter_mut() {
                        fold.add::<I>(r0, c0, width, strip);
                    }
                    if let Some(outlet) = &store {
                        outlet.write::<I>(r0, c0, width, strip, &mut encoded);
                    }
                }
                match &mut sink {
                    Sink::Same(_) | Sink::Nowhere => {}
                    Sink::Packed(left) => {
                        if let Some(strip) = T::floats(&spare[..n]) {
                            for (r, row) in strip.chunks_exact(width).enumerate() {
                                left.put::<I>(r0 + r, c0, row);
                            }
                        }
                    }
                    Sink::Floats(target) => {
                        for (x, &y) in target[at..][..n].iter_mut().zip(&spare[..n]) {
                            *x = y.to_f32();
                        }
                    }
                    Sink::Integers(target) => {
                        let (low, high) = (T::from_f64(f64::from(i32::MIN)), T::from_f64(f64::from(i32::MAX)));
                        for (x, &y) in target[at..][..n].iter_mut().zip(&spare[..n]) {
                            *x = y.to_i32(low, high);
                        }
                    }
                }
            }
        }
        packed(&sink)
    }
}

/// Runs a chain on a strip of f32; the leaf that is told, if any, is in the result's place. False, and nothing done, if that can't be.
#[inline(always)]
fn linked<'a, T: Real, I: Instructions>(
    chain: Option<&Chain>,
    (leaves, own): (usize, Option<u16>),
    leaf: &impl Fn(u16) -> Data<'a, T>,
    result: &mut [T],
) -> bool {
    let (Some(chain), count) = (chain, result.len()) else { return false };
    let Some(result) = T::floats_mut(result) else { return false };
    let mut all = [Elements::Same(0.0); LEAVES];
    for (number, elements) in all[..leaves].iter_mut().enumerate() {
        if own == Some(number as u16) {
            *elements = Elements::Own;
            continue;
        }
        *elements = match leaf(number as u16) {
            Data::Same(x) => Elements::Same(x.to_f32()),
            Data::Each(x) => match T::floats(x) {
                Some(x) => Elements::Floats(x),
                None => return false,
            },
        };
    }
    chain.run::<I>(&all, To::Floats(result), count, None)
}
