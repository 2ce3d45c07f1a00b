//! Maps of a whole tile that are one operation and what goes with it, in registers: a few vectors side by side,
//! because each is a chain of operations, and what masks and reduces them in passing. Strip by strip, a row of 256 elements costs as
//! much again as what is computed of it (measured: some 125 cycles a strip).

use super::fold::{Max, Min, Monoid, Partial, Prod, Reduction, Sum};
use super::isa::Instructions;
use super::live::Live;
use super::memory::{Line, ROWS_AHEAD, soon};
use super::tanh::Cap;
use super::wide::{Wide, WideWork, with_wide};
use std::marker::PhantomData;
use std::ops::Range;

/// What the elements of the result are.
#[derive(Clone, Copy)]
pub(crate) enum Of<'a> {
    /// `x`.
    Same,
    /// `exp(x * by - less)`, the argument rounded once; 0 where it is less than `least`.
    Exp { by: f32, less: Less<'a>, least: f32 },
    /// `tanh(x / over) * times`, as of a strip.
    Tanh { over: f32, times: f32 },
    /// `x + y`, or `x - y`.
    Sum { with: With<'a>, minus: bool },
}

/// The other operand of a sum: a tile's elements with rows so far apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With<'a> {
    Floats(&'a [f32], usize),
    Bf16(&'a [u16], usize),
    F16(&'a [u16], usize),
    /// An element per diagonal, the last row's first.
    Diagonals(&'a [f32]),
}

impl With<'_> {
    /// Where a row of so many begins.
    fn begin(&self, row: usize, rows: usize) -> usize {
        match self {
            Self::Floats(_, pitch) | Self::Bf16(_, pitch) | Self::F16(_, pitch) => row * pitch,
            Self::Diagonals(_) => rows - 1 - row,
        }
    }

    /// Elements from a row to the next.
    fn step(&self) -> isize {
        match self {
            Self::Floats(_, pitch) | Self::Bf16(_, pitch) | Self::F16(_, pitch) => *pitch as isize,
            Self::Diagonals(_) => -1,
        }
    }

    /// From some element on.
    fn from(self, at: usize) -> Self {
        match self {
            Self::Floats(x, pitch) => Self::Floats(&x[at..], pitch),
            Self::Bf16(x, pitch) => Self::Bf16(&x[at..], pitch),
            Self::F16(x, pitch) => Self::F16(&x[at..], pitch),
            Self::Diagonals(x) => Self::Diagonals(&x[at..]),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Floats(x, _) | Self::Diagonals(x) => x.len(),
            Self::Bf16(x, _) | Self::F16(x, _) => x.len(),
        }
    }
}

/// Numbers that are taken away.
#[derive(Clone, Copy)]
pub(crate) enum Less<'a> {
    /// One per row.
    Rows(&'a [f32]),
    /// One per column.
    Columns(&'a [f32]),
}

/// Where a reduction goes.
pub(crate) enum Into<'a> {
    /// That of each row to its partial results.
    Rows(&'a mut [Partial]),
    /// That of each column to its result.
    Columns(&'a mut [f32]),
}

/// A map of a tile.
pub(crate) struct Pass<'a> {
    /// Whose elements, and how far apart its rows are; the result's own, if that is not told.
    pub from: Option<(&'a [f32], usize)>,
    pub of: Of<'a>,
    /// Which elements are there, and what the others are; all, if that is not told.
    pub live: Option<(&'a Live, f32)>,
    /// Where the result goes, and how far apart its rows are; nowhere, if that is not told.
    pub to: Option<(&'a mut [f32], usize)>,
    pub rows: usize,
    pub columns: usize,
    /// What the result is reduced into besides.
    pub fold: Option<(Monoid, Into<'a>)>,
}

impl Pass<'_> {
    /// Runs it; false, and nothing done, if the instructions are not there or the numbers are beyond what is promised. The
    /// slices must hold the rows; panics otherwise.
    #[inline(always)]
    pub(crate) fn run<I: Instructions>(self) -> bool {
        if !self.is_promised() {
            return false;
        }
        self.check();
        with_wide::<I, _>(self)
    }

    /// Whether it is the same done piece by piece, of one row each.
    pub(crate) fn has_pieces(&self) -> bool {
        let by_column = matches!(self.of, Of::Exp { less: Less::Columns(_), .. })
            || matches!(self.fold, Some((_, Into::Columns(_))));
        self.live.is_none() && !by_column
    }

    /// Some columns of one row, if it has pieces.
    pub(crate) fn piece(&mut self, row: usize, at: usize, columns: usize) -> Option<Pass<'_>> {
        if !self.has_pieces() {
            return None;
        }
        let of = match self.of {
            Of::Exp { by, less: Less::Rows(less), least } => Of::Exp { by, less: Less::Rows(&less[row..]), least },
            Of::Exp { less: Less::Columns(_), .. } => return None,
            Of::Sum { with, minus } => Of::Sum { with: with.from(with.begin(row, self.rows) + at), minus },
            Of::Same | Of::Tanh { .. } => self.of,
        };
        let fold = match &mut self.fold {
            Some((monoid, Into::Rows(partials))) => Some((*monoid, Into::Rows(&mut partials[row..=row]))),
            Some((_, Into::Columns(_))) => return None,
            None => None,
        };
        let from = self.from.map(|(from, pitch)| (&from[row * pitch + at..], pitch));
        let to = self.to.as_mut().map(|(to, pitch)| (&mut to[row * *pitch + at..], *pitch));
        Some(Pass { from, of, live: None, to, rows: 1, columns, fold })
    }

    fn is_promised(&self) -> bool {
        match self.of {
            Of::Tanh { over, times } => super::tanh::is_promised(over, times),
            Of::Same | Of::Exp { .. } | Of::Sum { .. } => true,
        }
    }

    fn check(&self) {
        let len = |pitch: usize| self.rows.saturating_sub(1) * pitch + self.columns;
        assert!(self.to.as_ref().is_none_or(|(to, pitch)| to.len() >= len(*pitch)), "the result is too short");
        assert!(self.from.is_some() || self.to.is_some(), "elements to begin with");
        assert!(self.from.is_none_or(|(from, pitch)| from.len() >= len(pitch)), "an operand is too short");
        match &self.fold {
            Some((_, Into::Rows(partials))) => assert!(partials.len() >= self.rows, "rows to reduce"),
            Some((_, Into::Columns(results))) => assert!(results.len() >= self.columns, "columns to reduce"),
            None => {}
        }
        match self.of {
            Of::Exp { less: Less::Rows(less), .. } => assert!(less.len() >= self.rows, "a number for each row"),
            Of::Exp { less: Less::Columns(less), .. } => {
                assert!(less.len() >= self.columns, "a number for each column")
            }
            Of::Sum { with, .. } => {
                let farthest = [0, self.rows.saturating_sub(1)].map(|row| with.begin(row, self.rows.max(1)));
                let needed = farthest.into_iter().fold(0, usize::max) + self.columns;
                assert!(with.len() >= needed, "an operand is too short");
            }
            Of::Same | Of::Tanh { .. } => {}
        }
    }
}

const LANES: usize = 16;

/// An operation on vectors of a row.
trait Each<V> {
    /// From now on this row's.
    unsafe fn begin(&mut self, row: usize);
    /// Of vectors from a column on, of which the mask has the lanes that are there.
    unsafe fn of<const N: usize>(&self, x: [V; N], column: usize, mask: u16) -> [V; N];
}

impl<V: Wide> WideWork<V> for Pass<'_> {
    /// The lengths were checked.
    #[inline(always)]
    unsafe fn run(self) -> bool {
        // SAFETY: the caller's.
        unsafe {
            match self.of {
                Of::Exp { by, less, least } => {
                    if !V::ends_at(least) {
                        return false;
                    }
                    let (by, least, first) = (V::splat(by), V::splat(least), V::splat(0.0));
                    let table = V::table();
                    match less {
                        Less::Rows(less) => reduced::<V, _>(Exp { by, least, table, less, first }, self),
                        Less::Columns(less) => reduced::<V, _>(Across(Exp { by, least, table, less, first }), self),
                    }
                }
                Of::Same => reduced::<V, _>(Same, self),
                Of::Tanh { over, times } => reduced::<V, _>(Cap::<V>::new(over, times), self),
                Of::Sum { with, minus } => match with {
                    With::Floats(x, _) | With::Diagonals(x) => {
                        reduced::<V, _>(plus::<V, Float>(x, with, minus, &self), self)
                    }
                    With::Bf16(x, _) => reduced::<V, _>(plus::<V, Bf16>(x, with, minus, &self), self),
                    With::F16(x, _) => reduced::<V, _>(plus::<V, F16>(x, with, minus, &self), self),
                },
            }
        }
    }
}

struct Same;

// SAFETY of every body: called where the vectors are, for rows and columns that are there.
impl<V: Wide> Each<V> for Same {
    #[inline(always)]
    unsafe fn begin(&mut self, _: usize) {}
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, x: [V; N], _: usize, _: u16) -> [V; N] {
        x
    }
}

struct Exp<'a, V: Wide> {
    by: V,
    least: V,
    table: V::Table,
    less: &'a [f32],
    first: V,
}

impl<V: Wide> Each<V> for Exp<'_, V> {
    #[inline(always)]
    unsafe fn begin(&mut self, row: usize) {
        self.first = unsafe { V::splat(self.less[row]) };
    }
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, mut x: [V; N], _: usize, _: u16) -> [V; N] {
        unsafe {
            for x in &mut x {
                *x = x.times_less(self.by, self.first);
            }
            V::exps(x, self.least, self.table)
        }
    }
}

/// One number less per column.
struct Across<'a, V: Wide>(Exp<'a, V>);

impl<V: Wide> Each<V> for Across<'_, V> {
    #[inline(always)]
    unsafe fn begin(&mut self, _: usize) {}
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, mut x: [V; N], column: usize, mask: u16) -> [V; N] {
        unsafe {
            for (i, x) in x.iter_mut().enumerate() {
                let less = self.0.less.as_ptr().wrapping_add(column + LANES * i);
                *x = x.times_less(self.0.by, V::load_where(mask, less));
            }
            V::exps(x, self.0.least, self.0.table)
        }
    }
}

impl<V: Wide> Each<V> for Cap<V> {
    #[inline(always)]
    unsafe fn begin(&mut self, _: usize) {}
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, x: [V; N], _: usize, _: u16) -> [V; N] {
        unsafe { Cap::of(self, x) }
    }
}

/// A number type of operands.
trait Widened<V> {
    type Code: Copy;
    /// Those elements that the mask tells, in f32.
    unsafe fn load(mask: u16, from: *const Self::Code) -> V;
}

struct Float;
struct Bf16;
struct F16;

impl<V: Wide> Widened<V> for Float {
    type Code = f32;
    #[inline(always)]
    unsafe fn load(mask: u16, from: *const f32) -> V {
        unsafe { V::load_where(mask, from) }
    }
}

impl<V: Wide> Widened<V> for Bf16 {
    type Code = u16;
    #[inline(always)]
    unsafe fn load(mask: u16, from: *const u16) -> V {
        unsafe { V::load_bf16(mask, from) }
    }
}

impl<V: Wide> Widened<V> for F16 {
    type Code = u16;
    #[inline(always)]
    unsafe fn load(mask: u16, from: *const u16) -> V {
        unsafe { V::load_f16(mask, from) }
    }
}

struct Plus<V, W: Widened<V>> {
    /// Where the first row begins, and elements from a row to the next.
    with: *const W::Code,
    step: isize,
    row: *const W::Code,
    /// Lines of a row, if they come from memory: a later row's are asked for.
    lines: usize,
    /// What changes the sign, if it is to be changed.
    sign: V,
}

/// # Safety
/// The processor has the vectors; `of` is what `with` has.
#[inline(always)]
unsafe fn plus<V: Wide, W: Widened<V>>(of: &[W::Code], with: With<'_>, minus: bool, job: &Pass<'_>) -> Plus<V, W> {
    let with_first = of.as_ptr().wrapping_add(if job.rows > 0 { with.begin(0, job.rows) } else { 0 });
    let sign = unsafe { V::splat(if minus { -0.0 } else { 0.0 }) };
    // Codes are read where the tensor is.
    let lines = match with {
        With::Bf16(..) | With::F16(..) => (job.columns * size_of::<W::Code>()).div_ceil(size_of::<Line>()),
        With::Floats(..) | With::Diagonals(_) => 0,
    };
    Plus { with: with_first, step: with.step(), row: with_first, lines, sign }
}

impl<V: Wide, W: Widened<V>> Each<V> for Plus<V, W> {
    #[inline(always)]
    unsafe fn begin(&mut self, row: usize) {
        self.row = self.with.wrapping_offset(row as isize * self.step);
        let later = self.row.wrapping_offset(ROWS_AHEAD as isize * self.step);
        (0..self.lines).for_each(|line| soon(later.cast::<u8>().wrapping_add(line * size_of::<Line>())));
    }
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, mut x: [V; N], column: usize, mask: u16) -> [V; N] {
        for (i, x) in x.iter_mut().enumerate() {
            let with = self.row.wrapping_add(column + LANES * i);
            unsafe { *x = x.add(W::load(mask, with).signed(self.sign)) };
        }
        x
    }
}

/// # Safety
/// As of [`Pass`]'s work.
#[inline(always)]
unsafe fn reduced<V: Wide, E: Each<V>>(each: E, job: Pass<'_>) -> bool {
    // SAFETY: the caller's.
    unsafe {
        match job.fold.as_ref().map(|(monoid, _)| *monoid) {
            None | Some(Monoid::Sum) => side::<V, E, Sum>(each, job),
            Some(Monoid::Prod) => side::<V, E, Prod>(each, job),
            Some(Monoid::Max) => side::<V, E, Max>(each, job),
            Some(Monoid::Min) => side::<V, E, Min>(each, job),
        }
    }
}

/// As many side by side as there are registers for.
///
/// # Safety
/// As of [`Pass`]'s work.
#[inline(always)]
unsafe fn side<V: Wide, E: Each<V>, R: Reduction>(each: E, job: Pass<'_>) -> bool {
    // SAFETY: the caller's.
    unsafe {
        if V::WIDE {
            V::apart(Rows::<E, R, 4>(each, job, PhantomData))
        } else {
            V::apart(Rows::<E, R, 2>(each, job, PhantomData))
        }
    }
}

/// Rows after which columns' sums are added to their results: errors grow with the number of blocks, not of rows.
const ROWS: usize = 32;

/// The rows of a pass, so many vectors side by side.
struct Rows<'a, E, R, const SIDE: usize>(E, Pass<'a>, PhantomData<R>);

impl<V: Wide, E: Each<V>, R: Reduction, const SIDE: usize> WideWork<V> for Rows<'_, E, R, SIDE> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self(mut each, job, _) = self;
        let Pass { from, to, live, rows, columns, fold, .. } = job;
        let (to, pitch) = to.map_or((std::ptr::null_mut(), 0), |(to, pitch)| (to.as_mut_ptr(), pitch));
        let (from, from_pitch) = from.map_or((to.cast_const(), pitch), |(from, pitch)| (from.as_ptr(), pitch));
        let elsewhere = live.map_or(0.0, |(_, x)| x);
        let there = |row: usize| live.map_or(0..columns, |(live, _)| live.row(row));
        let piece = |row: usize, at: usize| Piece {
            from: from.wrapping_add(row * from_pitch + at),
            to: if to.is_null() { to } else { to.wrapping_add(row * pitch + at) },
            at,
            left: columns - at,
            elsewhere,
        };
        // SAFETY: the caller's: the rows and columns are there.
        unsafe {
            let identity = [V::splat(R::IDENTITY); SIDE];
            match fold {
                Some((_, Into::Columns(results))) => {
                    for first in (0..rows).step_by(ROWS) {
                        let mut lives: [Range<usize>; ROWS] = std::array::from_fn(|_| 0..0);
                        let block = first..rows.min(first + ROWS);
                        for (live, row) in lives.iter_mut().zip(block.clone()) {
                            *live = there(row);
                        }
                        for at in (0..columns).step_by(SIDE * LANES) {
                            let mut all = identity;
                            for (row, live) in block.clone().zip(&lives) {
                                each.begin(row);
                                piece(row, at).map::<V, E, R, SIDE>(&each, live, &mut all);
                            }
                            for (i, all) in all.into_iter().enumerate() {
                                if let Some(results @ [_, ..]) = results.get_mut(at + i * LANES..columns) {
                                    let (to, n) = (results.as_mut_ptr(), results.len().min(LANES));
                                    R::of(V::load_first(to, n), all).store_first(to, n);
                                }
                            }
                        }
                    }
                }
                Some((_, Into::Rows(partials))) => {
                    for (row, partial) in partials[..rows].iter_mut().enumerate() {
                        each.begin(row);
                        let (live, mut all) = (there(row), identity);
                        for at in (0..columns).step_by(SIDE * LANES) {
                            piece(row, at).map::<V, E, R, SIDE>(&each, &live, &mut all);
                        }
                        let to = partial.as_mut_ptr();
                        let mut width = SIDE;
                        while width > 1 {
                            width /= 2;
                            for i in 0..width {
                                all[i] = R::of(all[2 * i], all[2 * i + 1]);
                            }
                        }
                        R::of(V::load(to), all[0]).store(to);
                    }
                }
                None => {
                    for row in 0..rows {
                        each.begin(row);
                        let (live, mut all) = (there(row), identity);
                        for at in (0..columns).step_by(SIDE * LANES) {
                            piece(row, at).map::<V, E, R, SIDE>(&each, &live, &mut all);
                        }
                    }
                }
            }
        }
        true
    }
}

/// Some vectors of a row, from a column on.
#[derive(Clone, Copy)]
struct Piece {
    from: *const f32,
    /// Null if they go nowhere.
    to: *mut f32,
    at: usize,
    /// Columns that are left, and more perhaps.
    left: usize,
    elsewhere: f32,
}

impl Piece {
    /// # Safety
    /// As of [`Rows`]'s work.
    #[inline(always)]
    unsafe fn map<V: Wide, E: Each<V>, R: Reduction, const SIDE: usize>(
        self,
        each: &E,
        live: &Range<usize>,
        all: &mut [V; SIDE],
    ) {
        let Self { from, to, at, left, elsewhere } = self;
        // SAFETY: the caller's.
        unsafe {
            if live.start <= at && live.end >= at + SIDE * LANES {
                let mut x = [V::splat(0.0); SIDE];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = V::load(from.wrapping_add(i * LANES));
                }
                let y = each.of(x, at, u16::MAX);
                for (i, (y, all)) in y.into_iter().zip(all).enumerate() {
                    if !to.is_null() {
                        y.store(to.wrapping_add(i * LANES));
                    }
                    *all = R::of(*all, y);
                }
                return;
            }
            for (i, all) in all.iter_mut().enumerate().take(left.div_ceil(LANES)) {
                let (from, to, at) = (from.wrapping_add(i * LANES), to.wrapping_add(i * LANES), at + i * LANES);
                let exists = u16::MAX >> (LANES - (left - i * LANES).min(LANES));
                let below = |end: usize| (1u32 << end.saturating_sub(at).min(LANES)) - 1;
                let there = (below(live.end) & !below(live.start)) as u16;
                let mut y = V::splat(elsewhere);
                if there != 0 {
                    let [computed] = each.of([V::load_where(there, from)], at, there);
                    y = computed.or_elsewhere(there, y);
                }
                if !self.to.is_null() {
                    y.store_where(exists, to);
                }
                *all = R::of(*all, y.or_elsewhere(exists, V::splat(R::IDENTITY)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Into, Less, Of, Pass, With};
    use crate::kernels::fold::{Monoid, Partial};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use crate::kernels::live::Live;
    use crate::kernels::math::f16_to_f32;
    use crate::kernels::strip::LEAST_NORMAL;
    use einloom_cascade::numeric::f32_to_f16;

    struct Run<'a>(Pass<'a>);

    impl Work for Run<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            self.0.run::<I>()
        }
    }

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * step + i / 5) % 67) as f32 / 16.0 - 2.0).collect()
    }

    /// Every operation, of all elements and of some, from another tile and in place, reduced each way: against its definition.
    #[test]
    fn every_element_and_every_reduction_is_what_the_definition_says() {
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            every_element_with(token);
        }
    }

    fn every_element_with(token: Token) {
        for [rows, columns] in [[1, 1], [3, 16], [5, 63], [33, 64], [40, 75], [66, 200]] {
            let (from_pitch, with_pitch, pitch) = (columns + 3, columns, columns + 5);
            let (x, with) = (numbers(rows * from_pitch, 37), numbers(rows * with_pitch, 23));
            let (by_row, by_column) = (numbers(rows, 11), numbers(columns, 13));
            // Numbers that have a code in 16 bits.
            let bf16: Vec<u16> = with.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
            let f16: Vec<u16> = with.iter().map(|&x| f32_to_f16(x)).collect();
            let diagonals = numbers(rows + columns - 1, 29);
            let masks = [vec![], vec![[1, -1, 3]], vec![[-1, 1, 5], [1, -1, 60]]];
            let least = LEAST_NORMAL;
            let operations = [
                Of::Same,
                Of::Exp { by: 0.5, less: Less::Rows(&by_row), least },
                Of::Exp { by: 2.0, less: Less::Columns(&by_column), least },
                Of::Tanh { over: 3.0, times: 5.0 },
                Of::Sum { with: With::Floats(&with, with_pitch), minus: false },
                Of::Sum { with: With::Floats(&with, with_pitch), minus: true },
                Of::Sum { with: With::Bf16(&bf16, with_pitch), minus: false },
                Of::Sum { with: With::F16(&f16, with_pitch), minus: true },
                Of::Sum { with: With::Diagonals(&diagonals), minus: true },
            ];
            for (number, (of, mask)) in
                operations.into_iter().flat_map(|of| masks.iter().map(move |m| (of, m))).enumerate()
            {
                let live = Live::new(mask.clone(), columns);
                let there = (!mask.is_empty()).then_some((&live, -7.0));
                let want = |r: usize, c: usize| -> f64 {
                    let x = f64::from(x[r * from_pitch + c]);
                    if there.is_some() && !live.row(r).contains(&c) {
                        return -7.0;
                    }
                    match of {
                        Of::Same => x,
                        Of::Exp { by, less: Less::Rows(less), .. } => (x * f64::from(by) - f64::from(less[r])).exp(),
                        Of::Exp { by, less: Less::Columns(less), .. } => (x * f64::from(by) - f64::from(less[c])).exp(),
                        Of::Tanh { over, times } => (x / f64::from(over)).tanh() * f64::from(times),
                        Of::Sum { with, minus } => {
                            let y = match with {
                                With::Floats(y, pitch) => y[r * pitch + c],
                                With::Bf16(y, pitch) => f32::from_bits(u32::from(y[r * pitch + c]) << 16),
                                With::F16(y, pitch) => f16_to_f32(y[r * pitch + c]),
                                With::Diagonals(y) => y[rows - 1 - r + c],
                            };
                            x + f64::from(if minus { -y } else { y })
                        }
                    }
                };
                let close = |got: f32, want: f64| {
                    assert!((f64::from(got) - want).abs() <= 1e-5 * want.abs(), "{got} for {want}")
                };
                for (monoid, across, in_place) in [
                    (None, false, false),
                    (Some(Monoid::Max), false, true),
                    (Some(Monoid::Sum), true, false),
                    (Some(Monoid::Min), true, true),
                ] {
                    let mut to = vec![f32::NAN; rows * pitch];
                    for r in 0..rows {
                        to[r * pitch..][..columns].copy_from_slice(&x[r * from_pitch..][..columns]);
                    }
                    let identity = monoid.map_or(0.0, Monoid::identity);
                    let (mut partials, mut results) = (vec![Partial::all(identity); rows], vec![identity; columns]);
                    let fold = monoid.map(|monoid| {
                        (monoid, if across { Into::Columns(&mut results) } else { Into::Rows(&mut partials) })
                    });
                    let from = (!in_place).then_some((&x[..], from_pitch));
                    let pass = Pass { from, of, live: there, to: Some((&mut to, pitch)), rows, columns, fold };
                    assert!(dispatch(token, Run(pass)), "operation {number}");
                    for r in 0..rows {
                        (0..columns).for_each(|c| close(to[r * pitch + c], want(r, c)));
                        assert!(to[r * pitch + columns..(r + 1) * pitch].iter().all(|x| x.is_nan()), "beyond the row");
                    }
                    let Some(monoid) = monoid else { continue };
                    let reduced = |all: &mut dyn Iterator<Item = f64>| match monoid {
                        Monoid::Sum => all.sum(),
                        Monoid::Max => all.fold(f64::NEG_INFINITY, f64::max),
                        _ => all.fold(f64::INFINITY, f64::min),
                    };
                    if across {
                        for (c, got) in results.into_iter().enumerate() {
                            let all = (0..rows).map(|r| want(r, c).abs()).sum::<f64>();
                            let want = reduced(&mut (0..rows).map(|r| want(r, c)));
                            assert!((f64::from(got) - want).abs() <= 1e-5 * all, "{got} for {want}");
                        }
                    } else {
                        for (r, partial) in partials.into_iter().enumerate() {
                            close(monoid.total(partial), reduced(&mut (0..columns).map(|c| want(r, c))));
                        }
                    }
                }
            }
        }
    }

    /// A NaN stays in what is reduced, and what is not looked at does no harm.
    #[test]
    fn numbers_that_are_none_stay_unless_they_are_masked() {
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            numbers_that_are_none_with(token);
        }
    }

    fn numbers_that_are_none_with(token: Token) {
        let mut x = vec![1.0f32; 3 * 70];
        x[70 + 65] = f32::NAN;
        let live = Live::new(vec![[0, -1, 64]], 70);
        for (live, finite) in [(None, false), (Some((&live, f32::NEG_INFINITY)), true)] {
            let mut partials = vec![Partial::all(f32::NEG_INFINITY); 3];
            let fold = Some((Monoid::Max, Into::Rows(&mut partials[..])));
            let pass = Pass { from: Some((&x, 70)), of: Of::Same, live, to: None, rows: 3, columns: 70, fold };
            assert!(dispatch(token, Run(pass)));
            let totals: Vec<f32> = partials.into_iter().map(|partial| Monoid::Max.total(partial)).collect();
            assert_eq!((totals[0], totals[2]), (1.0, 1.0));
            assert_eq!(totals[1] == 1.0, finite, "{totals:?}");
        }
    }
}
