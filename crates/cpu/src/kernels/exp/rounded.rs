//! Anchored exponentials that are wanted as bf16 only: 32 at a time in whole numbers of 16 bits, which takes half of the work
//! of computing them in f32 first.
//!
//! `256 y / ln 2`, rounded, is a number whose upper byte is the power of two, but for the bias of 127, and whose lower byte is
//! the fraction `f` of the exponent. Half of that number would be the bf16 of `2^(e + f)` if `2^f` were `1 + f`; it is less by
//! what a table tells for each 64th of `f`.

mod changed;

use super::MOST_WEIGHT;
use super::packed::Rows;
use super::packed::x86::{one, table};
use super::passing::InPassing;
use crate::kernels::contract::PackedLeft;
use crate::kernels::live::Live;
use crate::kernels::live::bits;
use crate::kernels::unit::{SIDE, TILE};
use std::arch::x86_64::*;
use std::ops::Range;

/// Anchors beyond this are no matter of steps: the argument is off by 2^-23 of them, which would be more than a step soon, and far beyond
/// it all there is.
const FAR: f32 = 4096.0;

/// Whether all anchors are near enough.
fn are_near(less: &[f32]) -> bool {
    less.iter().all(|x| x.abs() <= FAR)
}

/// Steps between two powers of two.
const STEPS: usize = 256;
/// Steps for one in the argument.
const STEPS_PER_ONE: f32 = STEPS as f32 * std::f32::consts::LOG2_E;
/// Where 1 lies.
const ONE: f32 = 127.0 * STEPS as f32;
/// Where infinity lies, which has no steps.
const INFINITE: f32 = 255.0 * STEPS as f32;
/// Where [`MOST_WEIGHT`] lies.
const MOST: f32 = ONE + 16.0 * STEPS as f32;
const _: () = assert!(MOST_WEIGHT == (1 << 16) as f32);

/// 256 times `f - (2^f - 1)`, less what rounds: for each 64th of `f` the whole number that leaves the least sum of squared
/// relative errors of what becomes of it, over all arguments.
static LESS: [u8; 64] = [
    0, 1, 2, 4, 4, 6, 7, 8, 9, 10, 10, 12, 12, 13, 14, 15, 15, 16, 17, 17, 18, 18, 19, 19, 20, 20, 20, 21, 21, 21, 21,
    21, 21, 22, 22, 21, 21, 21, 21, 21, 21, 20, 20, 19, 19, 19, 18, 17, 17, 16, 15, 15, 13, 13, 12, 11, 9, 9, 7, 6, 5,
    3, 2, 1,
];

/// What is subtracted, in registers.
#[derive(Clone, Copy)]
struct Table {
    less: __m512i,
    /// The lower bytes of pairs.
    lower: __mmask64,
}

impl Table {
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
    )]
    fn new() -> Self {
        // SAFETY: the table has 64 bytes.
        let less = unsafe { _mm512_loadu_si512(LESS.as_ptr().cast()) };
        // What the compiler does not know it does not make another operation of.
        Self { less, lower: std::hint::black_box(0x5555_5555_5555_5555) }
    }
}

/// Bytes of a tile's row.
const LINE: usize = TILE / SIDE;

/// Rows that are computed together; they divide those of a tile.
const SOME: usize = 4;

/// Rows after which those are looked after whose numbers are not finite: nothing is decided between rows.
const TOGETHER: usize = 64;

/// Computes rows that are packed in one part; those with numbers that are not finite as others are.
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
pub(super) fn rows(mut job: Rows<'_, '_>) {
    job.check();
    let less = Table::new();
    let mut each = job.each();
    let whole = job.live.is_none() && job.columns.is_multiple_of(32);
    for first in (0..job.less.len()).step_by(TOGETHER) {
        let rows = TOGETHER.min(job.less.len() - first);
        // SAFETY: the job was checked.
        let mut others = if whole {
            unsafe { whole_rows(&mut job, first, rows, less) }
        } else {
            let far = |row: usize| u64::from(!are_near(&job.less[first + row..][..1])) << row;
            (0..rows).map(far).sum()
        };
        for (number, some) in each.by_ref().take(if whole { 0 } else { TOGETHER }) {
            let there = job.there(number);
            let sum = job.sums.as_mut().and_then(|sums| sums.get_mut(number));
            let row = Row {
                from: job.from[number * job.pitch..][..job.columns].as_ptr(),
                columns: 32 * some[0]..32 * (some[0] + some[1]),
                there,
                by: job.by,
                less: job.less[number],
                most: INFINITE,
                sum: sum.map_or(std::ptr::null_mut(), |sum| sum.as_mut_ptr()),
                to: job.to.row(number, job.columns).wrapping_add(some[0] * TILE),
            };
            if others >> (number - first) & 1 == 0 {
                // SAFETY: so many columns are there, and a line for each 32 of them.
                let finite = unsafe { row.run(less) };
                others |= u64::from(!finite) << (number - first);
            }
        }
        while others != 0 {
            let number = first + others.trailing_zeros() as usize;
            others &= others - 1;
            let some = job.blocks(number);
            // SAFETY: the job was checked.
            unsafe { one::<1>(&mut job, number, some, table()) };
        }
    }
}

/// Computes rows of whole blocks, all of them there; a bit for each that is not finite or far, whose lines may hold anything.
///
/// # Safety
/// The job was checked.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
unsafe fn whole_rows(job: &mut Rows<'_, '_>, first: usize, rows: usize, table: Table) -> u64 {
    let mut others = 0;
    let mut row = 0;
    while row < rows {
        let number = first + row;
        // Some at a time: each is too short to fill the processor. Lines of a tile's rows follow each other.
        let some = if row + SOME <= rows { SOME } else { 1 };
        let from = job.from[number * job.pitch..].as_ptr();
        let to = job.to.row(number + some - 1, job.columns).wrapping_sub((some - 1) * LINE);
        let sums = job.sums.as_mut().map_or(std::ptr::null_mut(), |sums| sums[number..][..some].as_mut_ptr().cast());
        let less = job.less[number..].as_ptr();
        let (by, blocks, pitch) = (job.by, job.columns / 32, job.pitch);
        // SAFETY: the caller's: the rows have so many blocks, and there is a line for each, a number less, and sums.
        let finite = unsafe {
            match some {
                SOME => some_rows::<SOME>(from, pitch, blocks, (by, less), to, sums, table),
                _ => some_rows::<1>(from, pitch, blocks, (by, less), to, sums, table),
            }
        };
        for (more, finite) in finite.into_iter().take(some).enumerate() {
            others |= u64::from(finite != u16::MAX) << (row + more);
        }
        row += some;
    }
    others
}

/// So many rows of a tile, pitch elements apart; for each a bit for every lane in which all numbers were less than infinite.
///
/// # Safety
/// The rows have so many blocks, and there is a line for each, a number less for each row, and sums, unless that is null.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
unsafe fn some_rows<const ROWS: usize>(
    from: *const f32,
    pitch: usize,
    blocks: usize,
    (by, less): (f32, *const f32),
    to: *mut u8,
    sums: *mut f32,
    table: Table,
) -> [u16; SOME] {
    let infinite = _mm512_set1_ps(INFINITE);
    let by = _mm512_set1_ps(by * STEPS_PER_ONE);
    // SAFETY: the caller's.
    let near = |row: usize| row < ROWS && are_near(unsafe { std::slice::from_ref(&*less.add(row)) });
    let mut finite = std::array::from_fn(|row| if near(row) { u16::MAX } else { 0 });
    let mut all = [_mm512_setzero_ps(); ROWS];
    // SAFETY: the caller's.
    unsafe {
        let less: [__m512; ROWS] =
            std::array::from_fn(|row| _mm512_set1_ps((*less.add(row)).mul_add(STEPS_PER_ONE, -ONE)));
        for block in 0..blocks {
            for row in 0..ROWS {
                let from = from.wrapping_add(row * pitch + 32 * block);
                let (x, y) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.wrapping_add(16)));
                let (x, y) = (_mm512_fmsub_ps(x, by, less[row]), _mm512_fmsub_ps(y, by, less[row]));
                finite[row] = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(finite[row], x, infinite);
                finite[row] = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(finite[row], y, infinite);
                let packed = powers(x, y, table);
                _mm512_storeu_si512(to.wrapping_add(block * TILE + row * LINE).cast(), packed);
                all[row] = add(all[row], packed);
            }
        }
        if !sums.is_null() {
            for row in 0..ROWS {
                let all = _mm512_maskz_mov_ps(if finite[row] == u16::MAX { u16::MAX } else { 0 }, all[row]);
                let sum = sums.add(16 * row);
                _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), all));
            }
        }
        finite
    }
}

/// Some columns of some rows, the rest of which is computed at another time; and no exponential may be [`MOST_WEIGHT`] or more.
pub(crate) struct Piece<'a, 't> {
    /// The first of the elements.
    pub from: *const f32,
    /// Elements from row to row.
    pub pitch: usize,
    pub rows: Range<usize>,
    /// The first is a multiple of 32, the last one too unless it is the last of the rows.
    pub columns: Range<usize>,
    /// Columns of whole rows.
    pub all: usize,
    /// Others are 0; all are live if that is not told.
    pub live: Option<&'a Live>,
    pub by: f32,
    /// One per row, from row 0 on.
    pub less: &'a [f32],
    /// What else is done to each element, times a number, before it is an argument's: of whole pieces.
    pub changed: Option<(f32, InPassing<'a>)>,
    pub to: &'a mut PackedLeft<'t>,
}

/// Whether all blocks of some rows and columns are there, and rows enough to compute [`SOME`] at a time.
pub(crate) fn is_whole(rows: &Range<usize>, columns: &Range<usize>, all: usize, live: Option<&Live>) -> bool {
    let there = live.map_or(0..all, |live| live.rows(rows.clone())[1].clone());
    let within = there.start <= columns.start && columns.end <= there.end;
    columns.len().is_multiple_of(32) && rows.len().is_multiple_of(SOME) && within
}

impl Piece<'_, '_> {
    /// Computes them; false if one is too large or no number, or an anchor is far.
    ///
    /// # Safety
    /// The elements are there.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
    )]
    pub(crate) unsafe fn run(self) -> bool {
        let Self { from, pitch, rows, columns, all, live, by, less, changed, to } = self;
        let table = Table::new();
        if !are_near(&less[rows.clone()]) {
            return false;
        }
        if let Some((_, changed)) = &changed {
            assert!(is_whole(&rows, &columns, all, live), "a whole piece");
            changed.check(rows.len(), columns.len());
        }
        let there = live.map_or(0..all, |live| live.rows(rows.clone())[1].clone());
        let whole = columns.len().is_multiple_of(32) && there.start <= columns.start && columns.end <= there.end;
        let first = columns.start / 32;
        let mut good = true;
        let mut row = rows.start;
        while whole && row + SOME <= rows.end {
            let from = from.wrapping_add((row - rows.start) * pitch);
            let to = to.row(row + SOME - 1, all).wrapping_sub((SOME - 1) * LINE).wrapping_add(first * TILE);
            let less = less[row..row + SOME].as_ptr();
            let (blocks, changed) = (columns.len() / 32, (changed, row - rows.start));
            // SAFETY: the caller's; there is a line for each 32 columns, a number less for each row, and what is done was checked.
            good &= unsafe { changed::four_rows((from, pitch), blocks, (by, less), changed, to, table) };
            row += SOME;
        }
        for (row, &less) in less.iter().enumerate().take(rows.end).skip(row) {
            let from = from.wrapping_add((row - rows.start) * pitch).wrapping_sub(columns.start);
            let there = live.map_or(0..all, |live| live.row(row));
            let columns = columns.start..columns.end.next_multiple_of(32);
            let to = to.row(row, all).wrapping_add(first * TILE);
            let sum = std::ptr::null_mut();
            // SAFETY: as above.
            good &= unsafe { Row { from, columns, there, by, less, most: MOST, to, sum }.run(table) };
        }
        good
    }
}

/// A row of them.
struct Row {
    /// The row's elements.
    from: *const f32,
    /// The columns that are computed, whole blocks of 32; those of them that are not `there` become 0.
    columns: Range<usize>,
    there: Range<usize>,
    by: f32,
    less: f32,
    /// All must lie below.
    most: f32,
    /// Where the first block's line goes; others a tile's bytes apart.
    to: *mut u8,
    /// Sixteen sums, to which what is packed is added; null if nothing is summed.
    sum: *mut f32,
}

/// What is known of a row so far.
struct Found {
    by: __m512,
    less: __m512,
    most: __m512,
    all: __m512,
    /// A bit for each lane in which all numbers were less than the most.
    finite: [u16; 2],
}

impl Row {
    /// Computes `exp(x * by - less)`: a bf16 within 0.59 % of it, 0.2 % in the quadratic mean; where 0.39 % and 0.17 % would be rounded
    /// as well as can be. 1 where the argument is 0. The argument is off by 2^-23 of `x * by` and of `less` at most. What is less than
    /// the least normal number becomes some number less than that. False if some are not less than the most, or no numbers: the lines
    /// may then hold anything, and nothing is added.
    ///
    /// # Safety
    /// The elements, lines and sums are there.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
    )]
    #[inline]
    unsafe fn run(self, table: Table) -> bool {
        let Self { from, columns, there, by, less, most, mut to, sum } = self;
        let by = _mm512_set1_ps(by * STEPS_PER_ONE);
        let less = _mm512_set1_ps(less.mul_add(STEPS_PER_ONE, -ONE));
        let most = _mm512_set1_ps(most);
        let mut found = Found { by, less, most, all: _mm512_setzero_ps(), finite: [u16::MAX; 2] };
        let first = there.start.next_multiple_of(32).clamp(columns.start, columns.end);
        let last = (there.end / 32 * 32).clamp(first, columns.end);
        // SAFETY: the caller's.
        unsafe {
            if columns.start < first {
                to = edge(&mut found, from, &there, columns.start..first, to, table);
            }
            let Found { mut all, finite: [mut low, mut high], .. } = found;
            for at in (first..last).step_by(32) {
                let (x, y) = (_mm512_loadu_ps(from.wrapping_add(at)), _mm512_loadu_ps(from.wrapping_add(at + 16)));
                let (x, y) = (_mm512_fmsub_ps(x, by, less), _mm512_fmsub_ps(y, by, less));
                low = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(low, x, most);
                high = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(high, y, most);
                let packed = powers(x, y, table);
                _mm512_storeu_si512(to.cast(), packed);
                all = add(all, packed);
                to = to.wrapping_add(TILE);
            }
            (found.all, found.finite) = (all, [low, high]);
            if last < columns.end {
                edge(&mut found, from, &there, last..columns.end, to, table);
            }
            let finite = found.finite == [u16::MAX; 2];
            if !sum.is_null() {
                let all = _mm512_maskz_mov_ps(if finite { u16::MAX } else { 0 }, found.all);
                _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), all));
            }
            finite
        }
    }
}

/// Computes blocks of which only some elements are there; where the next line goes.
///
/// # Safety
/// As of [`Row::run`].
#[cold]
#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
unsafe fn edge(
    found: &mut Found,
    from: *const f32,
    there: &Range<usize>,
    columns: Range<usize>,
    mut to: *mut u8,
    table: Table,
) -> *mut u8 {
    for at in columns.step_by(32) {
        let mask = bits(there, at);
        let mut half = |half: usize| {
            let mask = (mask >> (16 * half)) as u16;
            // SAFETY: the mask has a bit for each element that is there.
            let x = unsafe { _mm512_maskz_loadu_ps(mask, from.wrapping_add(at + 16 * half)) };
            let x = _mm512_fmsub_ps(x, found.by, found.less);
            found.finite[half] &= !mask | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, found.most);
            x
        };
        let (x, y) = (half(0), half(1));
        let packed = _mm512_maskz_mov_epi16(mask, powers(x, y, table));
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(to.cast(), packed) };
        found.all = add(found.all, packed);
        to = to.wrapping_add(TILE);
    }
    to
}

/// Bf16 of 32 numbers of steps, those of the first register first.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
fn powers(x: __m512, y: __m512, table: Table) -> __m512i {
    // What is negative becomes 0. Pieces of four elements of each take turns afterwards.
    let steps = _mm512_packus_epi32(_mm512_cvtps_epi32(x), _mm512_cvtps_epi32(y));
    let steps = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), steps);
    // The look-up takes six bits of each byte; only lower bytes are wanted.
    let less = _mm512_maskz_permutexvar_epi8(table.lower, _mm512_srli_epi16::<2>(steps), table.less);
    _mm512_srli_epi16::<1>(_mm512_sub_epi16(steps, less))
}

/// Adds pairs of bf16.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
fn add(all: __m512, packed: __m512i) -> __m512 {
    let ones = _mm512_set1_epi16(0x3f80);
    // SAFETY: registers of as many bits.
    unsafe {
        _mm512_dpbf16_ps(
            all,
            std::mem::transmute::<__m512i, __m512bh>(packed),
            std::mem::transmute::<__m512i, __m512bh>(ones),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::packed::Rows;
    use super::super::packed::tests::Run;
    use crate::kernels::contract::PackedLeft;
    use crate::kernels::fold::Partial;
    use crate::kernels::isa::dispatch;
    use crate::kernels::unit::units;
    use einloom_cascade::numeric::bf16_to_f32;

    /// Every lane of whole blocks and of the last one, in rows with numbers that are not finite and without; sums are of what is
    /// packed.
    #[test]
    fn exponentials_that_are_rounded_are_as_exact_as_documented() {
        let Some(unit) = units().next() else { return };
        const COLUMNS: usize = 75;
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, -1e30, 1e30, 88.8, 88.7, 0.0, -87.33, -87.4];
        let finite = (-1_000_000..887_000).step_by(13).map(|i| i as f32 / 10_000.0);
        for arguments in finite.chain(special).collect::<Vec<_>>().chunks(COLUMNS) {
            let mut from = arguments.to_vec();
            from.resize(COLUMNS, f32::NEG_INFINITY);
            let (by, less) = (2.0, [0.25]);
            from.iter_mut().for_each(|x| *x = (*x + 0.25) / 2.0);
            let (mut to, mut sums, mut most) = ([f32::NAN; 3 * 256], [Partial::all(1.0)], vec![]);
            let mut packed = PackedLeft::new(unit, &mut to, [1, COLUMNS], 1, &mut most);
            let (columns, to_here, sums_here) = (COLUMNS, &mut packed, Some(&mut sums[..]));
            let job = Rows {
                from: &from,
                pitch: COLUMNS,
                by,
                less: &less,
                columns,
                live: None,
                to: to_here,
                sums: sums_here,
            };
            assert!(dispatch(unit.token(), Run(job)));
            let codes: &[u16] = bytemuck::cast_slice(&to);
            let (mut total, mut finite) = (0.0, true);
            for (column, half) in from.iter().enumerate() {
                let got = f64::from(bf16_to_f32(codes[column / 32 * 512 + column % 32]));
                let y = 2.0 * f64::from(*half) - 0.25;
                let want = if y.is_nan() { y } else { y.exp() };
                let near = (got - want).abs() <= want * 0.0059 + f64::from(f32::MIN_POSITIVE);
                assert!(y != 0.0 || got == 1.0, "exp(0) is {got}");
                let same = want.is_nan() && got.is_nan() || want > 3.39e38 && got == f64::INFINITY;
                assert!(near || same, "exp({y}) is {got:e} for {want:e}");
                (total, finite) = (total + got, finite && got.is_finite() && total + got < f64::from(f32::MAX));
            }
            let sum = sums[0].iter().map(|&x| f64::from(x)).sum::<f64>() - 16.0;
            assert!(!finite || (sum - total).abs() <= 1e-5 * (total + 16.0), "the sum is {sum} for {total}");
            assert!(
                codes[2 * 512 + COLUMNS % 32..][..32 - COLUMNS % 32].iter().all(|&code| code == 0),
                "what fills up"
            );
        }
    }
}
