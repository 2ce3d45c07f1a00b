//! Reductions of f32 matrices along one side.

use super::isa::{Instructions, Isa, Token, Work};
use super::lanes::{Floats, Portable};
use super::transpose;
use crate::execute::Rows;
use std::ops::{Deref, DerefMut};

/// The reductions that have a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Monoid {
    Sum,
    Prod,
    Max,
    Min,
}

impl Monoid {
    /// Combines each of as many with another.
    pub(crate) fn combine_all(self, all: &mut [f32], with: &[f32]) {
        let pairs = all.iter_mut().zip(with);
        // A loop for each, in which nothing is decided.
        match self {
            Self::Sum => pairs.for_each(|(x, &y)| *x = Self::Sum.combine(*x, y)),
            Self::Prod => pairs.for_each(|(x, &y)| *x = Self::Prod.combine(*x, y)),
            Self::Max => pairs.for_each(|(x, &y)| *x = Self::Max.combine(*x, y)),
            Self::Min => pairs.for_each(|(x, &y)| *x = Self::Min.combine(*x, y)),
        }
    }

    /// A NaN stays.
    #[inline(always)]
    pub(crate) fn combine(self, x: f32, y: f32) -> f32 {
        let (larger, smaller) = (if x > y { x } else { y }, if x < y { x } else { y });
        match self {
            Self::Sum => x + y,
            Self::Prod => x * y,
            Self::Max => {
                if x.is_nan() {
                    x
                } else {
                    larger
                }
            }
            Self::Min => {
                if x.is_nan() {
                    x
                } else {
                    smaller
                }
            }
        }
    }
}

/// Partial results of a row: one per lane of the widest register.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Partial([f32; 16]);

impl Partial {
    /// The same in every lane.
    pub(crate) fn all(x: f32) -> Self {
        Self([x; 16])
    }
}

impl Deref for Partial {
    type Target = [f32; 16];

    #[inline(always)]
    fn deref(&self) -> &[f32; 16] {
        &self.0
    }
}

impl DerefMut for Partial {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f32; 16] {
        &mut self.0
    }
}

impl Monoid {
    /// The result over nothing.
    pub(crate) fn identity(self) -> f32 {
        match self {
            Self::Sum => Sum::IDENTITY,
            Self::Prod => Prod::IDENTITY,
            Self::Max => Max::IDENTITY,
            Self::Min => Min::IDENTITY,
        }
    }

    /// The result over a short row.
    #[inline(always)]
    pub(crate) fn of_short(self, row: &[f32]) -> f32 {
        match self {
            Self::Sum => row.iter().fold(Sum::IDENTITY, |sum, &x| Sum::scalar(sum, x)),
            Self::Prod => row.iter().fold(Prod::IDENTITY, |sum, &x| Prod::scalar(sum, x)),
            Self::Max => row.iter().fold(Max::IDENTITY, |sum, &x| Max::scalar(sum, x)),
            Self::Min => row.iter().fold(Min::IDENTITY, |sum, &x| Min::scalar(sum, x)),
        }
    }

    /// Combines a piece of a row into the row's partial results.
    #[inline(always)]
    pub(crate) fn add<I: Instructions>(self, partial: &mut Partial, piece: &[f32]) {
        match self {
            Self::Sum => add_by::<I, Sum>(partial, piece),
            Self::Prod => add_by::<I, Prod>(partial, piece),
            Self::Max => add_by::<I, Max>(partial, piece),
            Self::Min => add_by::<I, Min>(partial, piece),
        }
    }

    /// Combines rows, each as long as `result`, into the results of their columns.
    #[inline(always)]
    pub(crate) fn add_rows<I: Instructions>(self, result: &mut [f32], rows: &[f32]) {
        match self {
            Self::Sum => add_rows_by::<I, Sum>(result, rows),
            Self::Prod => add_rows_by::<I, Prod>(result, rows),
            Self::Max => add_rows_by::<I, Max>(result, rows),
            Self::Min => add_rows_by::<I, Min>(result, rows),
        }
    }

    /// What the partial results of every row amount to: as [`Monoid::total`], sixteen rows at a time.
    #[inline(always)]
    pub(crate) fn totals<I: Instructions>(self, rows: &[Partial], result: &mut [f32]) {
        assert!(result.len() >= rows.len(), "the result is too short");
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if I::AVX512 {
            use super::lanes::x86::F32x16;
            // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
            done = unsafe {
                match self {
                    Self::Sum => totals_by::<I, F32x16, Sum>(rows, result),
                    Self::Prod => totals_by::<I, F32x16, Prod>(rows, result),
                    Self::Max => totals_by::<I, F32x16, Max>(rows, result),
                    Self::Min => totals_by::<I, F32x16, Min>(rows, result),
                }
            };
        }
        for (x, row) in result[done..].iter_mut().zip(&rows[done..]) {
            *x = self.total(*row);
        }
    }

    /// What partial results amount to.
    pub(crate) fn total(self, partial: Partial) -> f32 {
        match self {
            Self::Sum => Sum::total(*partial),
            Self::Prod => Prod::total(*partial),
            Self::Max => Max::total(*partial),
            Self::Min => Min::total(*partial),
        }
    }
}

/// The totals of the first rows, as many as there are sixteens of; how many.
#[inline(always)]
unsafe fn totals_by<I: Instructions, V: Floats, R: Reduction>(rows: &[Partial], result: &mut [f32]) -> usize {
    const SIDE: usize = transpose::SIDE;
    debug_assert!(V::LANES == SIDE);
    let mut across = [0.0; SIDE * SIDE];
    let mut done = 0;
    for (rows, result) in rows.as_chunks::<SIDE>().0.iter().zip(result.as_chunks_mut::<SIDE>().0) {
        // SAFETY: partial results are sixteen floats each.
        let flat = unsafe { std::slice::from_raw_parts(rows.as_ptr().cast::<f32>(), SIDE * SIDE) };
        if !transpose::block::<I, f32>(flat, SIDE, &mut across, SIDE) {
            break;
        }
        // SAFETY: the caller promises the instructions; there are 16 registers of 16 elements.
        unsafe {
            let part = |i: usize| V::load(across.as_ptr().add(i * SIDE));
            let eight: [V; 8] = [
                R::of(part(0), part(8)),
                R::of(part(1), part(9)),
                R::of(part(2), part(10)),
                R::of(part(3), part(11)),
                R::of(part(4), part(12)),
                R::of(part(5), part(13)),
                R::of(part(6), part(14)),
                R::of(part(7), part(15)),
            ];
            let four = [
                R::of(eight[0], eight[4]),
                R::of(eight[1], eight[5]),
                R::of(eight[2], eight[6]),
                R::of(eight[3], eight[7]),
            ];
            R::of(R::of(four[0], four[2]), R::of(four[1], four[3])).store(result.as_mut_ptr());
        }
        done += SIDE;
    }
    done
}

/// The totals of rows, with the token's instructions.
pub(crate) struct Totals<'a> {
    pub monoid: Monoid,
    pub rows: &'a [Partial],
    pub result: &'a mut [f32],
}

impl Work for Totals<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        self.monoid.totals::<I>(self.rows, self.result);
    }
}

#[inline(always)]
fn add_by<I: Instructions, R: Reduction>(partial: &mut Partial, piece: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::lanes::x86::{F32x8, F32x16};
        if I::AVX512 {
            // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
            return unsafe { add_piece::<F32x16, R>(partial, piece) };
        }
        if I::FMA {
            // SAFETY: likewise for AVX2 and FMA on this architecture.
            return unsafe { add_piece::<F32x8, R>(partial, piece) };
        }
    }
    // SAFETY: arrays need no special instructions.
    unsafe { add_piece::<Portable<f32>, R>(partial, piece) }
}

#[inline(always)]
fn add_rows_by<I: Instructions, R: Reduction>(result: &mut [f32], rows: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::lanes::x86::{F32x8, F32x16};
        if I::AVX512 {
            // SAFETY: as in `add_by`.
            return unsafe { add_rows::<F32x16, R>(result, rows) };
        }
        if I::FMA {
            // SAFETY: as in `add_by`.
            return unsafe { add_rows::<F32x8, R>(result, rows) };
        }
    }
    // SAFETY: arrays need no special instructions.
    unsafe { add_rows::<Portable<f32>, R>(result, rows) }
}

/// Some columns at a time, all rows of them.
#[inline(always)]
unsafe fn add_rows<V: Floats, R: Reduction>(result: &mut [f32], rows: &[f32]) {
    let width = result.len();
    if width == 0 {
        return;
    }
    let height = rows.len() / width;
    let mut c = 0;
    while c < width {
        let (from, target) = (&rows[c.min(rows.len())..], &mut result[c..]);
        // SAFETY: the caller promises the instructions; `height` rows from `from` on hold as many columns as are left.
        c += unsafe {
            if target.len() >= 4 * V::LANES {
                fold_columns::<V, R, 4>(from, width, height, target)
            } else {
                fold_columns::<V, R, 1>(from, width, height, target)
            }
        };
    }
}

/// In four registers, as [`fold_row`]; pieces are short enough that their sums need no blocks.
#[inline(always)]
unsafe fn add_piece<V: Floats, R: Reduction>(partial: &mut Partial, piece: &[f32]) {
    // SAFETY: the caller promises the instructions; loads and stores are within the piece, and `LANES <= 16`.
    unsafe {
        let mut at = piece.as_ptr();
        let registers = piece.len() / V::LANES;
        let mut total = V::load(partial.as_ptr());
        if registers >= 4 {
            let mut sums = [V::splat(R::IDENTITY); 4];
            for _ in 0..registers / 4 {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = R::of(*sum, V::load(at.add(i * V::LANES)));
                }
                at = at.add(4 * V::LANES);
            }
            total = R::of(total, R::of(R::of(sums[0], sums[1]), R::of(sums[2], sums[3])));
        }
        for _ in 0..registers % 4 {
            total = R::of(total, V::load(at));
            at = at.add(V::LANES);
        }
        let rest = piece.len() % V::LANES;
        if rest > 0 {
            total = R::of(total, V::load_first_or(at, rest, R::IDENTITY));
        }
        total.store(partial.as_mut_ptr());
    }
}

/// Reduces every row (`across`) or every column of a matrix.
pub(crate) struct Fold<'a> {
    pub from: Rows<'a, f32>,
    pub rows: usize,
    pub columns: usize,
    pub across: bool,
    pub monoid: Monoid,
    /// One element per row or per column.
    pub result: &'a mut [f32],
}

/// A reduction on registers.
pub(super) trait Reduction {
    const IDENTITY: f32;
    unsafe fn of<V: Floats>(x: V, y: V) -> V;
    fn scalar(x: f32, y: f32) -> f32;
    /// Of the elements of a register.
    fn total(parts: [f32; 16]) -> f32;
}

macro_rules! reduction {
    ($name:ident, $identity:expr, $method:ident) => {
        pub(super) struct $name;
        impl Reduction for $name {
            const IDENTITY: f32 = $identity;
            #[inline(always)]
            unsafe fn of<V: Floats>(x: V, y: V) -> V {
                // SAFETY: the caller promises the instructions.
                unsafe { x.$method(y) }
            }
            #[inline(always)]
            fn scalar(x: f32, y: f32) -> f32 {
                Monoid::$name.combine(x, y)
            }
            #[inline(always)]
            fn total(parts: [f32; 16]) -> f32 {
                let both = |x, y| Monoid::$name.combine(x, y);
                // Arrays of known lengths stay in registers.
                let eight: [f32; 8] = std::array::from_fn(|i| both(parts[i], parts[i + 8]));
                let four: [f32; 4] = std::array::from_fn(|i| both(eight[i], eight[i + 4]));
                both(both(four[0], four[2]), both(four[1], four[3]))
            }
        }
    };
}

reduction!(Sum, 0.0, add);
reduction!(Prod, 1.0, mul);
reduction!(Max, f32::NEG_INFINITY, larger);
reduction!(Min, f32::INFINITY, smaller);

impl Fold<'_> {
    /// Runs it. The slices must hold the matrix and the results; panics otherwise.
    pub(crate) fn run(self, token: Token) {
        assert!(self.result.len() >= if self.across { self.rows } else { self.columns }, "the result is too short");
        let needed = self.rows.saturating_sub(1) * self.from.pitch + self.columns;
        assert!(self.rows == 0 || self.from.data.len() >= needed, "the matrix is too short");
        #[cfg(target_arch = "x86_64")]
        {
            use super::lanes::x86::{F32x8, F32x16};
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512(job: Fold<'_>) {
                // SAFETY: the features above and the caller's checks.
                unsafe { job.with::<F32x16>() }
            }
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2(job: Fold<'_>) {
                // SAFETY: as above.
                unsafe { job.with::<F32x8>() }
            }
            match token.isa() {
                // SAFETY: the token proves the instructions; the lengths were checked.
                Isa::Avx512 => return unsafe { avx512(self) },
                // SAFETY: as above.
                Isa::Avx2 => return unsafe { avx2(self) },
                Isa::Portable => {}
            }
        }
        let _ = token;
        // SAFETY: arrays need no special instructions; the lengths were checked.
        unsafe { self.with::<Portable<f32>>() }
    }

    #[inline(always)]
    unsafe fn with<V: Floats>(self) {
        // SAFETY: the caller's.
        unsafe {
            match self.monoid {
                Monoid::Sum => self.by::<V, Sum>(),
                Monoid::Prod => self.by::<V, Prod>(),
                Monoid::Max => self.by::<V, Max>(),
                Monoid::Min => self.by::<V, Min>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn by<V: Floats, R: Reduction>(self) {
        let Self { from, rows, columns, across, result, .. } = self;
        if across {
            for (r, result) in result[..rows].iter_mut().enumerate() {
                let row = &from.data[r * from.pitch..][..columns];
                *result = if columns <= SHORT {
                    row.iter().fold(R::IDENTITY, |sum, &x| R::scalar(sum, x))
                } else {
                    // SAFETY: the caller's.
                    unsafe { fold_row::<V, R>(row) }
                };
            }
            return;
        }
        let result = &mut result[..columns];
        result.fill(R::IDENTITY);
        for r in (0..rows).step_by(ROWS) {
            let height = ROWS.min(rows - r);
            let mut c = 0;
            while c < columns {
                let start = &from.data[r * from.pitch + c..];
                let target = &mut result[c..];
                // SAFETY: the caller's; `height` rows from `start` hold as many columns as are left.
                c += unsafe {
                    if target.len() >= 4 * V::LANES {
                        fold_columns::<V, R, 4>(start, from.pitch, height, target)
                    } else {
                        fold_columns::<V, R, 1>(start, from.pitch, height, target)
                    }
                };
            }
        }
    }
}

/// Rows up to this length are reduced element by element: setting up registers takes longer.
pub(crate) const SHORT: usize = 8;

/// Registers' worth of elements summed before the sum is added to a total, so that errors grow with the number of
/// blocks and not with the number of elements.
const BLOCK: usize = 32;
/// As [`BLOCK`], for rows.
const ROWS: usize = 32;

/// `result[c] = result[c] ⊕ ⊕_r from[r, c]` for the first `N` registers of columns, or what is left of one; how many
/// columns.
#[inline(always)]
unsafe fn fold_columns<V: Floats, R: Reduction, const N: usize>(
    from: &[f32],
    pitch: usize,
    rows: usize,
    result: &mut [f32],
) -> usize {
    let last = if N == 1 { V::LANES.min(result.len()) } else { V::LANES };
    // SAFETY: the caller promises `rows` rows of `result.len()` elements, of which each register reads no more than
    // are left.
    unsafe {
        let mut sums = [V::splat(R::IDENTITY); N];
        for r in 0..rows {
            for (i, sum) in sums.iter_mut().enumerate() {
                let row = from.as_ptr().add(r * pitch + i * V::LANES);
                *sum = R::of(*sum, if last == V::LANES { V::load(row) } else { V::load_first(row, last) });
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            let to = result.as_mut_ptr().add(i * V::LANES);
            if last == V::LANES {
                R::of(V::load(to), sum).store(to);
            } else {
                R::of(V::load_first(to, last), sum).store_first(to, last);
            }
        }
    }
    (N - 1) * V::LANES + last
}

/// The reduction of a row: in four registers, so that one operation need not wait for the one before.
#[inline(always)]
unsafe fn fold_row<V: Floats, R: Reduction>(row: &[f32]) -> f32 {
    // SAFETY: the caller promises the instructions; every load is within the row.
    unsafe {
        let mut totals = [V::splat(R::IDENTITY); 4];
        let (mut at, end) = (row.as_ptr(), row.len() / V::LANES * V::LANES);
        let mut left = end;
        while left > 0 {
            let block = left.min(BLOCK * V::LANES);
            let mut sums = [V::splat(R::IDENTITY); 4];
            for _ in 0..block / (4 * V::LANES) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = R::of(*sum, V::load(at.add(i * V::LANES)));
                }
                at = at.add(4 * V::LANES);
            }
            for _ in 0..block / V::LANES % 4 {
                sums[0] = R::of(sums[0], V::load(at));
                at = at.add(V::LANES);
            }
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = R::of(*total, sum);
            }
            left -= block;
        }
        let pairs = (R::of(totals[0], totals[1]), R::of(totals[2], totals[3]));
        let mut total = R::of(pairs.0, pairs.1);
        if end < row.len() {
            total = R::of(total, V::load_first_or(at, row.len() - end, R::IDENTITY));
        }
        let mut parts = [R::IDENTITY; 16];
        total.store(parts.as_mut_ptr());
        R::total(parts)
    }
}
