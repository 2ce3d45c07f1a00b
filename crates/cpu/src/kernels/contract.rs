//! Contractions of tiles: `c[i, j] = acc[i, j] + Σ_k a[i, k] · b[k, j]`, with the columns of `b` and `c` adjacent in
//! memory and every other stride free. Blocks of `c` are held in registers; `b` is read a register at a time and `a`
//! is broadcast an element at a time, so that neither needs to be packed while it fits in the second-level cache.

mod ahead;
#[cfg(target_arch = "x86_64")]
mod beside;
mod blocks;
mod dots;
mod finish;
mod left;
mod made;
mod parts;
mod rates;
mod rescale;
mod sides;
mod squares;
mod tiles;
mod weights;

use super::isa::{Isa, Token};
use super::lanes::{Plus, Portable};
use super::live::Live;
use super::memory::Line;
pub(crate) use ahead::{Ahead, Elements, Matrix};
use blocks::{DEPTH, contract};
use dots::dots;
pub(crate) use left::PackedLeft;
#[cfg(target_arch = "x86_64")]
pub(crate) use parts::x86::{ODD, put_parts};
pub(crate) use parts::{PackColumns, PackRight, Packed, Range, parts};
pub use rates::{ProductRates, UnitRates};
use sides::{Sides, add_sides};
use std::ops::Range as IndexRange;
pub(crate) use tiles::{Partly, Room};
pub(crate) use weights::{Between, Scores, Weights};

/// Columns of a panel with the token's instructions, see [`Layout::Panels`]: those that a block's registers hold. Wider ones would
/// fall on few of a cache's sets where a block goes through a part of them.
pub(crate) fn panel(token: Token) -> usize {
    if token.isa() == Isa::Avx512 { 64 } else { 16 }
}

/// How a matrix whose rows are adjacent elements lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Rows this many elements apart.
    Rows(usize),
    /// So many columns after the other, all rows of them: a contraction goes through them from end to end, which
    /// caches and the processor's own prefetching like best. See [`panel`].
    Panels(usize),
    /// As the processor's matrix unit wants it: bf16, in memory that is counted in f32.
    Packed(Packed),
}

impl Layout {
    /// Elements that so many rows of so many columns take.
    pub(crate) fn len(self, rows: usize, columns: usize) -> usize {
        match self {
            Self::Rows(pitch) => rows * pitch,
            Self::Panels(panel) => rows * columns.next_multiple_of(panel),
            Self::Packed(packed) => packed.lines(rows, columns) * (size_of::<Line>() / size_of::<f32>()),
        }
    }

    /// Where an element of a matrix of so many rows is, unless it is packed: there it is in several places.
    #[inline(always)]
    pub(crate) fn at(self, rows: usize, row: usize, column: usize) -> usize {
        match self {
            Self::Rows(pitch) => row * pitch + column,
            Self::Panels(panel) => (column / panel * rows + row) * panel + column % panel,
            Self::Packed(_) => usize::MAX,
        }
    }
}

/// Elements that a contraction can be over.
pub(crate) trait Element: Plus + Send + Sync + 'static {
    /// Runs a checked contraction with the token's instructions.
    fn contract(token: Token, job: (Contraction<'_, '_, Self>, Masks<'_>));
    /// Runs a checked row-by-row contraction with the token's instructions.
    fn dots(token: Token, job: Dots<'_, Self>);
}

/// Where the result's initial value comes from.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, T> {
    /// Zero.
    Zero,
    /// What the result holds.
    Kept,
    /// Another matrix with this row stride.
    From(&'a [T], usize),
    /// Zero; and numbers of rows and of columns are added in the end, in this order, which are no part of what is multiplied.
    Sides([Option<Side<'a, T>>; 2]),
}

/// Numbers of rows or of columns, times a factor.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a, T> {
    pub of: Scale<'a, T>,
    pub by: T,
}

impl<T: Copy> Start<'_, T> {
    /// The same of a result's rows from one on.
    fn below(self, row: usize) -> Self {
        match self {
            Self::From(acc, stride) => Self::From(&acc[row * stride..], stride),
            Self::Sides(sides) => Self::Sides(sides.map(|s| s.map(|s| Side { of: s.of.below(row), ..s }))),
            other => other,
        }
    }
}

/// Factors of a matrix's elements.
#[derive(Clone, Copy)]
pub(crate) enum Scale<'a, T> {
    /// None.
    One,
    /// None; and what is added is no part of what is multiplied in the end.
    Apart,
    /// The same for all.
    Same(T),
    /// One per row.
    Rows(&'a [T]),
    /// One per column.
    Columns(&'a [T]),
}

impl<T> Scale<'_, T> {
    /// The same of a matrix's rows from one on.
    fn below(self, row: usize) -> Self {
        match self {
            Self::Rows(rows) => Self::Rows(&rows[row..]),
            other => other,
        }
    }
}

/// The operands of a contraction.
pub(crate) struct Contraction<'a, 's, T> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// `a[i, k]` is at `i * a_i + k * a_k`.
    pub a: &'a [T],
    /// Stride.
    pub a_i: usize,
    /// Stride.
    pub a_k: usize,
    /// `k` rows of `n` columns.
    pub b: &'a [T],
    /// How they lie.
    pub b_layout: Layout,
    /// `c[i, j]` is at `i * c_i + j`.
    pub c: &'a mut [T],
    /// Stride.
    pub c_i: usize,
    /// What is added.
    pub start: Start<'a, T>,
    /// What is added is multiplied by this first.
    pub scale: Scale<'a, T>,
    /// What all is multiplied by in the end.
    pub times: Option<T>,
    /// What is to be copied in passing.
    pub ahead: &'a mut Ahead<'s>,
    /// The range of `a`, if it is packed for the matrix unit ([`PackedLeft`]); its strides mean nothing then.
    pub packed: Option<Range>,
}

/// What need not be computed: blocks of rows and columns that hold nothing else are left out.
#[derive(Clone, Copy, Default)]
pub(crate) struct Masks<'a> {
    /// The elements of `a` that are not 0.
    pub left: Option<&'a Live>,
    /// The elements of the result that are wanted; the others hold anything.
    pub result: Option<&'a Live>,
}

impl Masks<'_> {
    /// Of a block of the result: which of these terms it needs. None of them if nothing is added; `None` if none of its columns is wanted.
    #[inline(always)]
    fn of(
        &self,
        rows: IndexRange<usize>,
        columns: IndexRange<usize>,
        terms: IndexRange<usize>,
    ) -> Option<IndexRange<usize>> {
        if let Some(result) = self.result {
            let some = &result.rows(rows.clone())[0];
            if some.end <= columns.start || columns.end <= some.start {
                return None;
            }
        }
        let Some(left) = self.left else { return Some(terms) };
        let some = &left.rows(rows)[0];
        let start = some.start.clamp(terms.start, terms.end);
        Some(start..some.end.clamp(start, terms.end))
    }
}

/// The operands of `c[i, j] = acc[i, j] + Σ_k a[i, k] · b[j, k]` with `k` adjacent in both factors: for results with
/// few rows, where transposing `b` would cost more than the sums.
pub(crate) struct Dots<'a, T> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// `a[i, k]` is at `i * a_i + k`.
    pub a: &'a [T],
    /// Stride.
    pub a_i: usize,
    /// `b[j, k]` is at `j * b_j + k`.
    pub b: &'a [T],
    /// Stride.
    pub b_j: usize,
    /// `c[i, j]` is at `i * c_i + j * c_j`.
    pub c: &'a mut [T],
    /// Stride.
    pub c_i: usize,
    /// Stride.
    pub c_j: usize,
    /// What is added; its strides are those of `c`.
    pub start: Start<'a, T>,
}

/// Length that a matrix with these lengths and strides needs.
fn extent(lengths: [usize; 2], strides: [usize; 2]) -> usize {
    match lengths {
        [0, _] | [_, 0] => 0,
        [m, n] => (m - 1) * strides[0] + (n - 1) * strides[1] + 1,
    }
}

impl<T: Element> Contraction<'_, '_, T> {
    /// Runs it. The slices must hold the matrices, as tiles do; panics otherwise.
    pub(crate) fn run(self, token: Token) {
        self.run_but(Masks::default(), token);
    }

    /// The same without what need not be computed.
    pub(crate) fn run_but(self, masks: Masks<'_>, token: Token) {
        self.check();
        if self.m == 0 || self.n == 0 {
            return;
        }
        if matches!(self.scale, Scale::Apart) && self.k > DEPTH {
            return self.run_and_add(masks, token);
        }
        T::contract(token, (self, masks));
    }

    /// The same where what is added is no part of what is multiplied in the end, and there are so many terms that sums go on from what was
    /// stored.
    fn run_and_add(self, masks: Masks<'_>, token: Token) {
        let Self { m, n, c_i, start, .. } = self;
        let rows = |from: &[T], pitch: usize| (0..m).flat_map(|row| &from[row * pitch..][..n]).copied().collect();
        let last: Vec<T> = match start {
            Start::Zero => vec![T::default(); m * n],
            Start::Kept => rows(self.c, c_i),
            Start::From(from, pitch) => rows(from, pitch),
            Start::Sides(_) => unreachable!("they are added in the end anyway"),
        };
        let c = &mut *self.c;
        let (start, scale) = (Start::Zero, Scale::One);
        T::contract(token, (Contraction { c: &mut *c, start, scale, ..self }, masks));
        for (row, last) in last.chunks_exact(n).enumerate() {
            for (x, &y) in c[row * c_i..].iter_mut().zip(last) {
                *x = x.plus(y);
            }
        }
    }

    fn check(&self) {
        self.check_with(self.a.len());
    }

    /// With so many elements of the left factor.
    fn check_with(&self, len: usize) {
        let a = extent([self.m, self.k], [self.a_i, self.a_k]);
        assert!(self.packed.is_some() || len >= a, "a is too short");
        let b = match self.b_layout {
            Layout::Rows(pitch) => extent([self.k, self.n], [pitch, 1]),
            panels => panels.len(self.k, self.n),
        };
        assert!(self.b.len() >= b, "b is too short");
        assert!(self.c.len() >= extent([self.m, self.n], [self.c_i, 1]), "c is too short");
        if let Start::From(acc, stride) = self.start {
            assert!(acc.len() >= extent([self.m, self.n], [stride, 1]), "acc is too short");
        }
        let sides = if let Start::Sides(sides) = self.start { sides } else { [None; 2] };
        for scale in sides.into_iter().flatten().map(|side| side.of).chain([self.scale]) {
            match scale {
                Scale::Rows(rows) => assert!(rows.len() >= self.m, "too few numbers"),
                Scale::Columns(columns) => assert!(columns.len() >= self.n, "too few numbers"),
                Scale::One | Scale::Same(_) => {}
                Scale::Apart => assert!(self.times.is_some(), "nothing is multiplied in the end"),
            }
        }
    }
}

impl<T: Element> Dots<'_, T> {
    /// Runs it. The slices must hold the matrices, as tiles do; panics otherwise.
    pub(crate) fn run(self, token: Token) {
        assert!(self.a.len() >= extent([self.m, self.k], [self.a_i, 1]), "a is too short");
        assert!(self.b.len() >= extent([self.n, self.k], [self.b_j, 1]), "b is too short");
        assert!(self.c.len() >= extent([self.m, self.n], [self.c_i, self.c_j]), "c is too short");
        if let Start::From(acc, _) = self.start {
            assert!(acc.len() >= extent([self.m, self.n], [self.c_i, self.c_j]), "acc is too short");
        }
        if self.m > 0 && self.n > 0 {
            T::dots(token, self);
        }
    }
}

macro_rules! element {
    ($element:ty, $avx512:ident, $avx2:ident, $sided:literal) => {
        impl Element for $element {
            fn contract(token: Token, job: (Contraction<'_, '_, Self>, Masks<'_>)) {
                // What adds sides is code of its own, so that the other has all registers.
                let sided = matches!(job.0.start, Start::Sides(_));
                #[cfg(target_arch = "x86_64")]
                {
                    use super::lanes::x86::{$avx2, $avx512};
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512<const SIDED: bool>(job: (Contraction<'_, '_, $element>, Masks<'_>)) {
                        // SAFETY: the features above and the caller's checks.
                        unsafe { contract::<$avx512, SIDED>(job, avx512_sides) }
                    }
                    #[inline(never)]
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512_sides(sides: Sides<$element>) {
                        // SAFETY: as above.
                        unsafe { add_sides::<$avx512>(sides) }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2<const SIDED: bool>(job: (Contraction<'_, '_, $element>, Masks<'_>)) {
                        // SAFETY: as above.
                        unsafe { contract::<$avx2, SIDED>(job, avx2_sides) }
                    }
                    #[inline(never)]
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2_sides(sides: Sides<$element>) {
                        // SAFETY: as above.
                        unsafe { add_sides::<$avx2>(sides) }
                    }
                    match token.isa() {
                        // SAFETY: the token proves the instructions; `Contraction::run` checked the slices.
                        Isa::Avx512 if sided => return unsafe { avx512::<$sided>(job) },
                        // SAFETY: as above.
                        Isa::Avx512 => return unsafe { avx512::<false>(job) },
                        // SAFETY: as above.
                        Isa::Avx2 if sided => return unsafe { avx2::<$sided>(job) },
                        // SAFETY: as above.
                        Isa::Avx2 => return unsafe { avx2::<false>(job) },
                        Isa::Portable => {}
                    }
                }
                let _ = token;
                // SAFETY: arrays need no special instructions; `Contraction::run` checked the slices.
                unsafe {
                    if sided {
                        contract::<Portable<$element>, $sided>(job, add_sides::<Portable<$element>>)
                    } else {
                        contract::<Portable<$element>, false>(job, add_sides::<Portable<$element>>)
                    }
                }
            }

            fn dots(token: Token, job: Dots<'_, Self>) {
                #[cfg(target_arch = "x86_64")]
                {
                    use super::lanes::x86::{$avx2, $avx512};
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512(job: Dots<'_, $element>) {
                        // SAFETY: the features above and the caller's checks.
                        unsafe { dots::<$avx512>(job) }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2(job: Dots<'_, $element>) {
                        // SAFETY: as above.
                        unsafe { dots::<$avx2>(job) }
                    }
                    match token.isa() {
                        // SAFETY: the token proves the instructions; `Dots::run` checked the slices.
                        Isa::Avx512 => return unsafe { avx512(job) },
                        // SAFETY: as above.
                        Isa::Avx2 => return unsafe { avx2(job) },
                        Isa::Portable => {}
                    }
                }
                let _ = token;
                // SAFETY: arrays need no special instructions; `Dots::run` checked the slices.
                unsafe { dots::<Portable<$element>>(job) }
            }
        }
    };
}

element!(f32, F32x16, F32x8, true);
element!(f64, F64x8, F64x4, false);
element!(i32, I32x16, I32x8, false);
