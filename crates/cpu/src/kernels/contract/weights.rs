//! Products that only become anchored exponentials, by the processor's matrix unit: a few squares of sums at a time, which are
//! exponentiated while they are in the first-level cache and are never in memory as a whole.

use super::left::PackedLeft;
use super::tiles::{Room, SQUARE, grown};
use crate::kernels::exp::{InPassing, blocks};
#[cfg(target_arch = "x86_64")]
use crate::kernels::exp::{Piece, is_whole};
use crate::kernels::fold::Partial;
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::live::{Live, bits};
use crate::kernels::memory::Line;
use crate::kernels::unit::{Engaged, SIDE, Square, TERMS, TILE, sum_lanes};
use std::ops::Range;

/// Squares of sums that are computed before they are exponentiated, at most.
pub(super) const SQUARES: usize = 3;
/// Bytes of the right factor's columns that all rows are multiplied by one after the other: they stay in the first-level cache
/// beside the sums, and beside what passes through it of the left factor and of exponentials.
const RIGHT: usize = 12 << 10;
/// Elements from row to row of sums: another number of lines than a power of two.
pub(super) const PITCH: usize = SQUARES * SQUARE + SIDE;

/// A product of factors that are packed for the unit.
#[derive(Clone, Copy)]
pub(crate) struct Scores<'a> {
    /// How many of the left factor and of the right one.
    pub parts: [usize; 2],
    /// As [`PackedLeft`] has it.
    pub left: &'a [f32],
    /// As [`super::Packed`] says.
    pub right: &'a [f32],
    /// Rows, columns and terms.
    pub lengths: [usize; 3],
    /// What there is of it; all, if that is not told.
    pub live: Option<&'a Live>,
}

/// What becomes of it: `exp(x * by - less)`, 0 of what is not live.
pub(crate) struct Weights<'a, 't> {
    pub by: f32,
    /// One per row.
    pub less: &'a [f32],
    /// Of one part if the scores' factors are, else of three.
    pub to: &'a mut PackedLeft<'t>,
    /// To which the exponentials are added, as they are packed; one for each row of whole squares.
    pub sums: Option<&'a mut [Partial]>,
}

/// What scores become before they are exponentiated, a piece at a time while it is near.
pub(crate) trait Between {
    /// Asks for a part, of so many, of what it needs for the piece after this one.
    fn ask(&mut self, rows: Range<usize>, columns: Range<usize>, part: [usize; 2]);
    /// Changes the scores of some rows and columns. From row to row they are the next multiple of 32 columns apart; what is beyond the
    /// columns may become anything.
    fn change(&mut self, scores: &mut [f32], rows: Range<usize>, columns: Range<usize>);
    /// The number by which they are multiplied, and what is done to them then, if that is all and can be done on their way to
    /// their exponentials.
    fn in_passing(&self, rows: &Range<usize>, columns: &Range<usize>) -> Option<(f32, InPassing<'_>)>;
}

impl Scores<'_> {
    /// # Panics
    /// If elements are not there.
    pub(super) fn check(&self) {
        let Self { parts, left, right, lengths: [m, n, k], live } = *self;
        assert!(m > 0 && n > 0 && k > 0, "nothing to compute");
        assert!(left.len() >= PackedLeft::len([m, k], parts[0]), "a packed left factor is too short");
        let lines = super::Packed::new(parts[1] as u8).lines(k, n) * size_of::<Line>() / size_of::<f32>();
        assert!(right.len() >= lines, "a packed right factor is too short");
        assert!(live.is_none_or(|live| live.columns() <= n), "columns that are not there");
    }

    /// Squares of sums from a row and a column on, so many columns, which go to `to`, rows so far apart.
    #[inline(always)]
    pub(super) fn squares(
        &self,
        [row, column]: [usize; 2],
        columns: usize,
        (to, pitch): (*mut f32, usize),
    ) -> impl Iterator<Item = Square> + use<> {
        let [m, _, k] = self.lengths;
        let blocks = k.div_ceil(TERMS);
        let (a, b) = (self.left.as_ptr().cast::<u8>(), self.right.as_ptr().cast::<u8>());
        let bytes = self.parts.map(|parts| blocks * parts * TILE);
        let both = move |number: usize, first: *const u8, left: usize| {
            [first, if left > SIDE { first.wrapping_add(bytes[number]) } else { first }]
        };
        let a = both(0, a.wrapping_add(row / SIDE * bytes[0]), m - row);
        let c_bytes = pitch * size_of::<f32>();
        (0..columns).step_by(SQUARE).map(move |at| {
            let b = both(1, b.wrapping_add((column + at) / SIDE * bytes[1]), columns - at);
            Square { a, b, blocks, c: to.wrapping_add(at).cast(), c_bytes, kept: false }
        })
    }

    /// Computes them, and what becomes of them unless that is left to the exponentials; how far apart rows are then.
    ///
    /// # Safety
    /// The factors were checked, the rows and columns are there, and `to` has room for whole squares, of [`PITCH`].
    #[inline(always)]
    unsafe fn multiply(
        &self,
        engaged: &Engaged,
        rows: Range<usize>,
        columns: Range<usize>,
        to: *mut f32,
        between: Option<&mut (dyn Between + '_)>,
        left: bool,
    ) -> usize {
        let at = [rows.start, columns.start];
        let Some(between) = between else {
            for square in self.squares(at, columns.len(), (to, PITCH)) {
                // SAFETY: the caller's.
                unsafe { square.multiply(engaged, self.parts) };
            }
            return PITCH;
        };
        let (pitch, count) = (columns.len().next_multiple_of(SQUARE), columns.len().div_ceil(SQUARE));
        for (part, square) in self.squares(at, columns.len(), (to, pitch)).enumerate() {
            // Few at a time, so that nothing waits for them.
            between.ask(rows.clone(), columns.clone(), [part, count]);
            // SAFETY: the caller's.
            unsafe { square.multiply(engaged, self.parts) };
        }
        if left {
            return pitch;
        }
        // SAFETY: there is room, and nothing else refers to it.
        let scores = unsafe { std::slice::from_raw_parts_mut(to, rows.len() * pitch) };
        between.change(scores, rows, columns);
        pitch
    }

    /// Raises each row's number to the largest of some of its elements: of the first ones, or the last ones, of those that are
    /// live in some of 32 rows. Where elements are changed, which may leave nothing of them, it goes on until none of the rows that
    /// have no number `before` is without one, or there are no more elements.
    pub(crate) fn some_tops(
        &self,
        engaged: &Engaged,
        room: &mut Room,
        last: bool,
        (before, tops): (&[f32], &mut [f32]),
        mut between: Option<&mut (dyn Between + '_)>,
    ) {
        self.check();
        let [m, n, _] = self.lengths;
        let sums = grown(&mut room.sums, PITCH * SQUARE * size_of::<f32>() / size_of::<Line>());
        for row in (0..m).step_by(SQUARE) {
            let rows = SQUARE.min(m - row);
            let [first, count] = blocks(self.live, row, rows, n);
            let changed = between.is_some();
            for block in 0..if changed { count } else { 1 } {
                let block = if last { first + count - 1 - block } else { first + block };
                let columns = block * TERMS..n.min((block + 1) * TERMS);
                let (to, between) = (sums.as_mut_ptr().cast(), reborrowed(&mut between));
                // SAFETY: checked above; there is room.
                let pitch = unsafe { self.multiply(engaged, row..row + rows, columns.clone(), to, between, false) };
                let sums: &[f32] = bytemuck::cast_slice(sums);
                for (at, top) in tops[row..row + rows].iter_mut().enumerate() {
                    let there = self.live.map_or(0..n, |live| live.row(row + at));
                    let mask = bits(&(there.start..there.end.min(columns.end)), columns.start);
                    let of = &sums[at * pitch..][..SQUARE];
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: who has engaged the unit has the instructions; there are 32 elements.
                    {
                        *top = top.max(unsafe { greatest(of.as_ptr(), mask) });
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    let _ = (of, mask, &top);
                }
                let none = |(before, top): (&f32, &f32)| before.max(*top) == f32::NEG_INFINITY;
                if !before[row..row + rows].iter().zip(&tops[row..row + rows]).any(none) {
                    break;
                }
            }
        }
    }

    /// Packs what becomes of it. The factors and the result are of one part.
    pub(crate) fn pack(&self, engaged: &Engaged, room: &mut Room, to: &mut PackedLeft<'_>, between: &mut dyn Between) {
        self.check();
        assert!(self.parts == [1, 1] && to.parts() == 1, "factors of one part");
        let [m, n, k] = self.lengths;
        let sums = grown(&mut room.sums, PITCH * SQUARE * size_of::<f32>() / size_of::<Line>());
        let squares = (RIGHT / (k.next_multiple_of(TERMS) * SQUARE * size_of::<u16>())).clamp(1, SQUARES);
        // As for exponentials.
        for start in (0..n).step_by(squares * SQUARE) {
            let columns = start..n.min(start + squares * SQUARE);
            for row in (0..m).step_by(SQUARE) {
                let rows = row..m.min(row + SQUARE);
                let (sums_to, there) = (sums.as_mut_ptr().cast(), Some(&mut *between));
                // SAFETY: checked above; there is room.
                let pitch = unsafe { self.multiply(engaged, rows.clone(), columns.clone(), sums_to, there, false) };
                let from: &[f32] = bytemuck::cast_slice(sums);
                dispatch(engaged.token(), Put { from, pitch, rows, columns: columns.clone(), to });
            }
        }
    }

    /// Exponentiates it. False if an exponential is no number or more than [`crate::kernels::exp::MOST_WEIGHT`], or, of several
    /// parts, so is a row's sum: what was to
    /// be made may then be anything.
    pub(crate) fn exponentiate(
        &self,
        engaged: &Engaged,
        room: &mut Room,
        mut weights: Weights<'_, '_>,
        mut between: Option<&mut (dyn Between + '_)>,
    ) -> bool {
        self.check();
        let [m, n, _] = self.lengths;
        assert!(weights.less.len() >= m, "rows that are to be exponentiated");
        #[cfg(target_arch = "x86_64")]
        if self.parts != [1, 1] {
            assert!(between.is_none(), "factors of one part, if something is between");
            // SAFETY: who has engaged the unit has the instructions.
            return unsafe { self.exponentiate_beside(engaged, room, weights) };
        }
        assert!(weights.to.parts() == 1, "exponentials of one part");
        assert!(weights.sums.as_ref().is_none_or(|sums| sums.len() >= m.next_multiple_of(SQUARE)), "rows to sum");
        let sums = grown(&mut room.sums, PITCH * SQUARE * size_of::<f32>() / size_of::<Line>());
        let sums = sums.as_mut_ptr().cast::<f32>();
        let mut pending: Option<(usize, Range<usize>)> = None;
        let squares = (RIGHT / (self.lengths[2].next_multiple_of(TERMS) * SQUARE * size_of::<u16>())).clamp(1, SQUARES);
        // The right factor's columns stay near while all rows are multiplied by them.
        for start in (0..n).step_by(squares * SQUARE) {
            for row in (0..m).step_by(SQUARE) {
                let rows = row..m.min(row + SQUARE);
                let [first, count] = blocks(self.live, row, rows.len(), n);
                let columns = start.max(first * TERMS)..n.min(start + squares * SQUARE).min((first + count) * TERMS);
                if columns.is_empty() {
                    continue;
                }
                let whole = is_whole(&rows, &columns, n, self.live);
                let changes = |between: &dyn Between| whole && between.in_passing(&rows, &columns).is_some();
                let left = between.as_deref().is_some_and(changes);
                let there = reborrowed(&mut between);
                // SAFETY: checked above; there is room.
                let pitch = unsafe { self.multiply(engaged, rows.clone(), columns.clone(), sums, there, left) };
                // What the unit has stored cannot be read before it is in the cache; neither can exponentials by the unit.
                if let Some((row, blocks)) = pending.replace((row, columns.start / TERMS..columns.end.div_ceil(TERMS)))
                {
                    weights.add(engaged, row, blocks);
                }
                #[cfg(target_arch = "x86_64")]
                {
                    let Weights { by, less, to, .. } = &mut weights;
                    let (from, live) = (sums.cast_const(), self.live);
                    let (by, rows, columns) = (*by, rows.clone(), columns.clone());
                    let changed = between.as_deref().filter(|_| left).and_then(|b| b.in_passing(&rows, &columns));
                    // SAFETY: who has engaged the unit has the instructions; the rows and columns are there, have a number
                    // less each, and room.
                    if !unsafe { Piece { from, pitch, rows, columns, all: n, live, by, less, changed, to }.run() } {
                        return false;
                    }
                }
            }
        }
        if let Some((row, blocks)) = pending {
            weights.add(engaged, row, blocks);
        }
        true
    }
}

/// Packs rows and columns.
struct Put<'a, 't> {
    from: &'a [f32],
    pitch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    to: &'a mut PackedLeft<'t>,
}

impl Work for Put<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { from, pitch, rows, columns, to } = self;
        for (at, row) in rows.enumerate() {
            to.put::<I>(row, columns.start, &from[at * pitch..][..columns.len()]);
        }
    }
}

/// For one call among several.
fn reborrowed<'a>(between: &'a mut Option<&mut (dyn Between + '_)>) -> Option<&'a mut (dyn Between + 'a)> {
    match between {
        Some(between) => Some(&mut **between),
        None => None,
    }
}

impl Weights<'_, '_> {
    /// Adds blocks of 32 rows from one on, which are packed, to the rows' sums.
    fn add(&mut self, engaged: &Engaged, row: usize, blocks: Range<usize>) {
        if let Some(sums) = &mut self.sums {
            let tiles = self.to.tiles(row, blocks.start);
            let sums = &mut sums[row..row + SQUARE];
            // SAFETY: the tiles follow each other; there are as many sums.
            unsafe { sum_lanes(engaged, tiles, blocks.len(), sums.as_mut_ptr().cast()) };
        }
    }
}

/// The greatest of those of 32 elements whose bit is set; negative infinity if there is none.
///
/// # Safety
/// The elements are there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
unsafe fn greatest(of: *const f32, mask: u32) -> f32 {
    use std::arch::x86_64::*;

    // SAFETY: the caller's.
    let [x, y] = unsafe { [_mm512_loadu_ps(of), _mm512_loadu_ps(of.wrapping_add(SIDE))] };
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let (x, y) = (_mm512_mask_mov_ps(none, mask as u16, x), _mm512_mask_mov_ps(none, (mask >> 16) as u16, y));
    _mm512_reduce_max_ps(_mm512_max_ps(x, y))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{PackedLeft, Scores, Weights};
    use crate::kernels::contract::{Elements, PackRight, Packed, Room};
    use crate::kernels::fold::Partial;
    use crate::kernels::isa::dispatch;
    use crate::kernels::live::Live;
    use crate::kernels::memory::Line;
    use crate::kernels::unit::{Engaged, UnitToken, units};

    /// What becomes of scores, as numbers, row after row, and sums; nothing if it is refused. And some tops.
    type Found = (Option<(Vec<f64>, Vec<f64>)>, Vec<f32>);

    /// `exp(score * by - less)` for factors whose rows are these, by this unit.
    fn weights(
        (unit, parts): (UnitToken, usize),
        [m, n, k]: [usize; 3],
        a: &[f32],
        b: &[f32],
        live: Option<&Live>,
        less: f32,
    ) -> Found {
        let engaged = Engaged::new(unit);
        let mut left = vec![Line::ZERO; PackedLeft::len([m, k], parts) / 16];
        PackedLeft::pack(unit.token(), (Elements::F32(a), k), [m, k], parts, &mut left);
        let mut right = vec![Line::ZERO; Packed::new(parts as u8).lines(k, n)];
        let pack = PackRight { from: Elements::F32(b), pitch: n, terms: k, columns: n, parts, to: &mut right };
        dispatch(unit.token(), pack);
        let (left, right) = (bytemuck::cast_slice(&left), bytemuck::cast_slice(&right));
        let scores = Scores { parts: [parts; 2], left, right, lengths: [m, n, k], live };
        let (mut room, mut tops, mut most) = (Room::default(), vec![f32::NEG_INFINITY; m], vec![]);
        for last in [false, true] {
            scores.some_tops(&engaged, &mut room, last, (&vec![f32::NEG_INFINITY; m], &mut tops), None);
        }
        let mut packed = vec![0f32; PackedLeft::len([m, n], parts)];
        let mut to = PackedLeft::new(unit, &mut packed, [m, n], parts, &mut most);
        let mut sums = vec![Partial::all(0.0); m.next_multiple_of(32)];
        let less = vec![less; m];
        let made = Weights { by: 0.5, less: &less, to: &mut to, sums: Some(&mut sums) };
        if !scores.exponentiate(&engaged, &mut room, made, None) {
            return (None, tops);
        }
        let made = crate::kernels::contract::left::unpack_left(&packed, [m, n], parts);
        let sums = sums[..m].iter().map(|sum| sum.as_slice().iter().map(|&x| f64::from(x)).sum()).collect();
        (Some((made.into_iter().map(f64::from).collect(), sums)), tops)
    }

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * step + i / 7) % 61) as f32 / 16.0 - 2.0).collect()
    }

    const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [32, 96, 32], [33, 100, 40], [17, 31, 64], [70, 257, 33], [50, 320, 8]];

    #[test]
    fn every_element_is_a_weight_and_part_of_its_rows_sum() {
        for (unit, [m, n, k]) in units().flat_map(|unit| SIZES.map(|size| (unit, size))) {
            let (a, b) = (numbers(m * k, 37), numbers(k * n, 23));
            for (parts, conjuncts) in [vec![], vec![[1, -1, 3]], vec![[-1, 1, 5], [1, -1, 60]]]
                .into_iter()
                .flat_map(|conjuncts| [(1, conjuncts.clone()), (3, conjuncts)])
            {
                // Thirds are no numbers of bf16, nor sums of two.
                let close = if parts == 1 { 0.006 } else { 1e-5 };
                let of = |x: &[f32]| x.iter().map(|x| if parts == 1 { *x } else { x / 3.0 }).collect::<Vec<_>>();
                let (a, b) = (of(&a), of(&b));
                let mask = Live::new(conjuncts.clone(), n);
                let live = (!conjuncts.is_empty()).then_some(&mask);
                let (found, tops) = weights((unit, parts), [m, n, k], &a, &b, live, 20.0);
                let (made, sums) = found.expect("small enough");
                for row in 0..m {
                    let score = |column: usize| -> f64 {
                        (0..k).map(|t| f64::from(a[row * k + t]) * f64::from(b[t * n + column])).sum()
                    };
                    let there = live.map_or(0..n, |live| live.row(row));
                    let mut sum = 0.0;
                    for column in there.clone() {
                        let (got, want) = (made[row * n + column], (score(column) * 0.5 - 20.0).exp());
                        assert!((got - want).abs() <= close * want + 1e-37, "{row} {column}: {got} for {want}");
                        sum += got;
                    }
                    assert!((sums[row] - sum).abs() <= 1e-5 * sum, "{row}: {} for {sum}", sums[row]);
                    let top = f64::from(tops[row]);
                    let known = there.clone().any(|column| (score(column) - top).abs() < 1e-3);
                    assert!(known || top == f64::NEG_INFINITY, "{row}: {top}");
                    assert!(top.is_finite() || live.is_some());
                }
            }
        }
    }

    #[test]
    fn weights_that_are_too_large_or_no_numbers_are_refused() {
        let [m, n, k] = [40, 75, 32];
        for (unit, parts) in units().flat_map(|unit| [(unit, 1), (unit, 3)]) {
            let made =
                |a: &[f32], b: &[f32], less: f32| weights((unit, parts), [m, n, k], a, b, None, less).0.is_some();
            // The greatest score is 32, of one row and one column.
            let (mut a, mut b) = (vec![0.0; m * k], vec![0.0; k * n]);
            a[37 * k..38 * k].fill(1.0);
            (0..k).for_each(|t| b[t * n + 70] = 1.0);
            assert!(made(&a, &b, 5.0));
            assert!(!made(&a, &b, 4.9));
            b[70] = f32::NAN;
            assert!(!made(&a, &b, 5.0));
            b[70] = f32::NEG_INFINITY;
            assert!(!made(&a, &b, 5.0), "infinity times 0");
        }
    }
}
