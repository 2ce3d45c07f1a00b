//! Contractions by the processor's matrix unit: 32 rows of the left factor are packed at a time, and multiplied by all of
//! the right factor while they are near. What becomes of the sums besides happens on their way to the result.

use super::ahead::Elements;
use super::finish::{Factor, Finish};
use super::left::{PackedLeft, unpack_left};
use super::parts::{PackLeft, PackRight, Packed, unpack};
use super::rescale::{by_rows, rescale};
use super::squares::Squares;
use super::{Contraction, Layout, Start};
use crate::kernels::exp::blocks;
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::isa::dispatch;
use crate::kernels::live::Live;
use crate::kernels::memory::{Asked, Line};
use crate::kernels::unit::{Engaged, SIDE, Square, TERMS, TILE};
use einloom_cascade::numeric::bf16_to_f32;
use std::ops::Range;

/// Rows and columns that are computed at once.
pub(super) const SQUARE: usize = 2 * SIDE;

/// Bytes of the left factor that are packed at a time: they stay in the first-level cache beside what they are multiplied
/// by and the sums.
const LEFT: usize = 20 << 10;

/// Bytes of the right factor's columns that all rows of a packed left factor are multiplied by one after the other: they
/// stay in the first-level cache beside 32 rows of it.
const RIGHT: usize = 24 << 10;

/// Memory of one thread for packed factors and for sums.
#[derive(Default)]
pub(crate) struct Room {
    pub(super) left: Vec<Line>,
    pub(super) right: Vec<Line>,
    pub(super) sums: Vec<Line>,
}

pub(super) fn grown(lines: &mut Vec<Line>, len: usize) -> &mut [Line] {
    if lines.len() < len {
        lines.resize(len, Line::ZERO);
    }
    lines
}

/// Which elements of a contraction matter.
#[derive(Clone, Copy, Default)]
pub(crate) struct Partly<'a> {
    /// Those of a left factor that is packed: others are 0, and where they are so in 32 rows, they are not there. All, if
    /// that is not told.
    pub left: Option<&'a Live>,
    /// Those of the result that are reduced; all, if that is not told.
    pub result: Option<&'a Live>,
    /// Nothing reads the others.
    pub unread: bool,
}

impl Contraction<'_, '_, f32> {
    /// Runs it on factors of so many parts of bf16. The slices must hold the matrices; panics otherwise. The left factor's
    /// elements are `codes`, if those are given, in rows of adjacent elements; `a` is not looked at then.
    ///
    /// `fold`: into which of its partial results every row of the result goes besides.
    pub(crate) fn run_tiles(
        self,
        codes: Option<&[u16]>,
        engaged: &Engaged,
        parts: [usize; 2],
        room: &mut Room,
        fold: Option<(Monoid, &mut [Partial])>,
        partly: Partly<'_>,
    ) {
        let from = codes.map_or(Elements::F32(self.a), Elements::Bf16);
        self.check_with(from.len());
        assert!(fold.as_ref().is_none_or(|(_, rows)| rows.len() >= self.m), "rows to reduce");
        let Self { m, n, k, a, a_i, a_k, b, b_layout, c, c_i, start, scale, times, ahead, packed: left_packed } = self;
        let there = left_packed.is_none() || codes.is_none() && a.len() >= PackedLeft::len([m, k], parts[0]);
        assert!(there, "a packed left factor is too short");
        assert!(partly.left.is_none_or(|live| live.columns() <= k), "terms that are not there");
        assert!(partly.result.is_none_or(|live| live.columns() <= n), "columns that are not there");
        if m == 0 || n == 0 {
            return;
        }
        let Room { left, right, sums } = room;
        let token = engaged.token();
        let (packed, right): (Packed, &[f32]) = match b_layout {
            Layout::Packed(packed) => (packed, b),
            Layout::Rows(pitch) if k > 0 => {
                let to = grown(right, Packed::new(parts[1] as u8).lines(k, n));
                let pack =
                    PackRight { from: Elements::F32(b), pitch, terms: k, columns: n, parts: parts[1], to: &mut *to };
                (dispatch(token, pack), bytemuck::cast_slice(to))
            }
            _ => {
                assert!(left_packed.is_none() || k == 0, "a right factor that is not packed");
                let packed = None;
                let widened = codes.map(|codes| widen(codes, [m, k], a_i));
                let (a, [a_i, a_k]) = match widened.as_deref() {
                    _ if k == 0 => (a, [0, 0]),
                    Some(a) => (a, [k, 1]),
                    None => (a, [a_i, a_k]),
                };
                let c = &mut *c;
                let job = Contraction { m, n, k, a, a_i, a_k, b, b_layout, c, c_i, start, scale, times, ahead, packed };
                job.run(token);
                if let Some((monoid, rows)) = fold {
                    fold_rows(monoid, &mut rows[..m], c, [n, c_i], (partly.result, 0));
                }
                return;
            }
        };
        if let Some(range) = left_packed
            && parts != [1, 1]
            && !range.multiplies(packed.range)
        {
            let mut a = unpack_left(a, [m, k], parts[0]);
            if let Some(live) = partly.left {
                for (row, terms) in a.chunks_exact_mut(k).enumerate() {
                    let there = live.row(row);
                    terms[..there.start].fill(0.0);
                    terms[there.end..].fill(0.0);
                }
            }
            let a = &a;
            let rows = matches!(b_layout, Layout::Packed(_)).then(|| unpack(packed, right, k, n));
            let (b, b_layout) = rows.as_ref().map_or((b, b_layout), |rows| (&rows[..], Layout::Rows(n)));
            let (to, a_i, a_k, packed) = (&mut *c, k, 1, None);
            let job = Contraction { m, n, k, a, a_i, a_k, b, b_layout, c: to, c_i, start, scale, times, ahead, packed };
            job.run(token);
            if let Some((monoid, rows)) = fold {
                fold_rows(monoid, &mut rows[..m], c, [n, c_i], (partly.result, 0));
            }
            return;
        }
        let (monoid, partials) = match fold {
            Some((monoid, rows)) => (monoid, rows.as_mut_ptr()),
            None => (Monoid::Max, std::ptr::null_mut()),
        };

        let b_bytes = k.div_ceil(TERMS) * usize::from(packed.parts) * TILE;
        let part = LEFT / (SQUARE * size_of::<u16>() * parts[0]) / TERMS * TERMS;
        let part = if left_packed.is_some() { k.next_multiple_of(TERMS) } else { part };
        let one = k <= part;
        grown(left, (SQUARE / SIDE) * (part.min(k).div_ceil(TERMS) * parts[0]) * (TILE / size_of::<Line>()));
        // With one part the sums of one square are on their way while the next is multiplied.
        let squares = if one { 2 } else { n.div_ceil(SQUARE) };
        let lines = squares * SQUARE * SQUARE * size_of::<f32>() / size_of::<Line>();
        let sums = grown(sums, lines).as_mut_ptr().cast::<f32>();
        let ranged = parts != [1, 1] && left_packed.is_none();
        // Nothing is to be done with the sums, and it is known that they will be good.
        let looks_at_all = partly.result.is_none() || partials.is_null();
        let rescaled = by_rows(start, scale) && times.is_none() && looks_at_all;
        let reduced_partly = partly.result.is_some() && (partly.unread || !partials.is_null());
        let plain = matches!(start, Start::Zero) && times.is_none() || rescaled;
        let straight = plain && (one || !ranged);
        let mut rows_of_b = None;
        let mut base = c.as_mut_ptr();
        // What the unit has stored cannot be read before it is in the cache: meanwhile it multiplies the next square.
        let mut pending: Option<Finish> = None;
        let mut turn = 0;
        // A left factor that is packed already may be gone through several times.
        let some_columns = match RIGHT / (SQUARE / SIDE * b_bytes).max(1) {
            some @ 1.. if left_packed.is_some() => some * SQUARE,
            _ => n,
        };
        let squares = (0..n).step_by(some_columns).flat_map(|j0| (0..m).step_by(SQUARE).map(move |i| (j0, i)));
        for (j0, i) in squares {
            let columns_here = j0..n.min(j0 + some_columns);
            let rows = SQUARE.min(m - i);
            let mut good = true;
            let [some, all] = partly.result.map_or([0..n, 0..n], |live| live.rows(i..i + rows));
            let blocks_of = partly.left.filter(|_| left_packed.is_some()).map(|live| blocks(Some(live), i, rows, k));
            for k0 in (0..k).step_by(part) {
                let terms = part.min(k - k0);
                let strides = [a_i, a_k];
                if left_packed.is_none() {
                    let from = from.after(i * a_i + k0 * a_k);
                    let pack = PackLeft { from, strides, rows, terms, parts: parts[0], range: ranged, to: &mut *left };
                    let range = dispatch(token, pack);
                    good = !ranged || range.multiplies(packed.range);
                    if !good {
                        break;
                    }
                }
                if straight && rescaled && k0 == 0 && rows == SQUARE {
                    let whole = j0..j0 + columns_here.len() / SQUARE * SQUARE;
                    // SAFETY: the checks found the result to hold them.
                    unsafe { rescale(base.wrapping_add(i * c_i), c_i, i..i + rows, whole, scale) };
                }
                let all_blocks = terms.div_ceil(TERMS);
                let [skipped, blocks] = blocks_of.unwrap_or([0, all_blocks]);
                let a0 = if left_packed.is_some() {
                    a[PackedLeft::len([i, k], parts[0])..].as_ptr().cast::<u8>()
                } else {
                    left.as_ptr().cast::<u8>()
                };
                let a0 = a0.wrapping_add(skipped * parts[0] * TILE);
                let a1 = if rows > SIDE { a0.wrapping_add(all_blocks * parts[0] * TILE) } else { a0 };
                let last = k0 + terms == k;
                // What is packed next is asked for while this is multiplied: its rows are too short for the processor to
                // find them by itself.
                let (next, then) = if last { (i + SQUARE, 0) } else { (i, k0 + terms) };
                let next_rows = if left_packed.is_some() { 0..0 } else { next..m.min(next + SQUARE) };
                let window = [next_rows, then..k.min(then + part)];
                let (mut asked, lines) = packed_next((from, strides), window, n);
                let mut ahead_of = columns_here.start;
                while ahead_of < columns_here.end {
                    let j = ahead_of;
                    let b0 = right.as_ptr().cast::<u8>().wrapping_add(j / SIDE * b_bytes);
                    let b0 = b0.wrapping_add((k0 / TERMS + skipped) * usize::from(packed.parts) * TILE);
                    // Those that lie in the result and are wholly there follow each other.
                    let whole = if reduced_partly { all.clone() } else { columns_here.clone() };
                    let whole = whole.start.max(j)..whole.end.min(columns_here.end);
                    let count = whole.len() / SQUARE;
                    if straight && rows == SQUARE && whole.start == j && count > 0 {
                        let c = base.wrapping_add(i * c_i + j);
                        let folds = last && !partials.is_null();
                        let fold = if folds { partials.wrapping_add(i) } else { std::ptr::null_mut() };
                        let kept = k0 > 0 || matches!(start, Start::Kept);
                        let (b, c_bytes) = ([b0, b0.wrapping_add(b_bytes)], c_i * size_of::<f32>());
                        let first = Square { a: [a0, a1], b, blocks, c: c.cast(), c_bytes, kept };
                        let steps = [SQUARE / SIDE * b_bytes, SQUARE * size_of::<f32>()];
                        let these = Squares { first, count, steps, fold, asked: (&mut asked, lines) };
                        // SAFETY: the factors were packed for these rows, columns and terms, and the checks found the
                        // result to hold them.
                        unsafe { these.multiply(engaged, parts, monoid) };
                        ahead_of += count * SQUARE;
                        if folds {
                            let finish = Finish::of_square(c.wrapping_add((count - 1) * SQUARE), c_i, fold);
                            if let Some(before) = pending.replace(finish) {
                                // SAFETY: as below.
                                unsafe { before.finish(monoid) };
                            }
                        }
                        continue;
                    }
                    ahead_of += SQUARE;
                    let columns = SQUARE.min(n - j);
                    asked.some(lines);
                    if partly.unread && (j >= some.end || j + columns <= some.start) {
                        continue;
                    }
                    let b1 = if columns > SIDE { b0.wrapping_add(b_bytes) } else { b0 };
                    let to = base.wrapping_add(i * c_i + j);
                    // Of these the reduction looks at some only.
                    let partly_there = all.start > j || all.end < j + columns;
                    let live = partly.result.filter(|_| partly_there).map(|live| (live, [i, j]));
                    let looks = live.is_none() || partials.is_null();
                    let straight = straight && looks && rows == SQUARE && columns == SQUARE;
                    let sums = sums.wrapping_add(if one { turn * SQUARE * SQUARE } else { j * SQUARE });
                    let (sums_to, pitch) = if straight { (to, c_i) } else { (sums, SQUARE) };
                    let kept = k0 > 0 || straight && matches!(start, Start::Kept);
                    let (c, c_bytes) = (sums_to.cast(), pitch * size_of::<f32>());
                    // SAFETY: the factors were packed for these rows, columns and terms, and the sums have room for all
                    // rows and columns, or the result has, which the checks found to hold them.
                    unsafe { Square { a: [a0, a1], b: [b0, b1], blocks, c, c_bytes, kept }.multiply(engaged, parts) };
                    if !last || straight && partials.is_null() {
                        continue;
                    }
                    let (acc, acc_i) = match start {
                        Start::Zero => (std::ptr::null(), 0),
                        Start::Kept => (to.cast_const(), c_i),
                        Start::From(acc, stride) => (acc[i * stride + j..].as_ptr(), stride),
                        Start::Sides(_) => unreachable!("only multiply-adds of f32 add them"),
                    };
                    let factor = Factor::at(scale, [i, j]);
                    let (sums, times) = (sums.cast_const(), times.unwrap_or(1.0));
                    let fold = if partials.is_null() { partials } else { partials.wrapping_add(i) };
                    let to = (!straight).then_some(to);
                    let sums = if straight { sums_to.cast_const() } else { sums };
                    let finish =
                        Finish { sums, pitch, rows, columns, to, to_i: c_i, acc, acc_i, factor, times, fold, live };
                    turn ^= 1;
                    if let Some(before) = pending.replace(finish) {
                        // SAFETY: the token's instructions; the checks found the rows and columns to be there.
                        unsafe { before.finish(monoid) };
                    }
                }
            }
            // The next rows' sums take the place of these, unless there are places for two squares.
            if let Some(before) = pending.take_if(|_| !one || !good || i + SQUARE >= m) {
                // SAFETY: as above.
                unsafe { before.finish(monoid) };
            }
            if good {
                continue;
            }
            // Nothing of these rows is in the result yet.
            let (b, b_layout) = match b_layout {
                Layout::Packed(_) => {
                    (&rows_of_b.get_or_insert_with(|| unpack(packed, right, k, n))[..], Layout::Rows(n))
                }
                layout => (b, layout),
            };
            let widened;
            let (a, [a_i, a_k]) = match codes {
                None => (&a[i * a_i..], [a_i, a_k]),
                Some(codes) => {
                    widened = widen(&codes[i * a_i..], [rows, k], a_i);
                    (&widened[..], [k, 1])
                }
            };
            let rest = Contraction {
                m: rows,
                n,
                k,
                a,
                a_i,
                a_k,
                b,
                b_layout,
                c: &mut c[i * c_i..],
                c_i,
                start: start.below(i),
                scale: scale.below(i),
                times,
                ahead: &mut *ahead,
                packed: None,
            };
            rest.run(token);
            if !partials.is_null() {
                // SAFETY: as many partial results as rows; nobody else holds them.
                let partials = unsafe { std::slice::from_raw_parts_mut(partials.wrapping_add(i), rows) };
                fold_rows(monoid, partials, &c[i * c_i..], [n, c_i], (partly.result, i));
            }
            base = c.as_mut_ptr();
        }
    }
}

/// Reduces rows of so many elements, so far apart; of those that are partly there, the first is told by its number.
fn fold_rows(
    monoid: Monoid,
    partials: &mut [Partial],
    rows: &[f32],
    [columns, pitch]: [usize; 2],
    (live, first): (Option<&Live>, usize),
) {
    for (row, partial) in partials.iter_mut().enumerate() {
        let there = live.map_or(0..columns, |live| live.row(first + row));
        partial[0] = rows[row * pitch..][there].iter().fold(partial[0], |all, &x| monoid.combine(all, x));
    }
}

/// Rows of bf16 as f32, one after the other.
fn widen(codes: &[u16], [rows, terms]: [usize; 2], pitch: usize) -> Vec<f32> {
    (0..rows * terms).map(|at| bf16_to_f32(codes[at / terms * pitch + at % terms])).collect()
}

/// The rows of adjacent terms that are packed next, to be asked for while so many columns are computed. Nothing if the
/// terms are not adjacent.
fn packed_next(
    (from, [row, step]): (Elements<'_>, [usize; 2]),
    [rows, terms]: [Range<usize>; 2],
    columns: usize,
) -> (Asked, usize) {
    let rows_there = if step == 1 && !terms.is_empty() { rows.len() } else { 0 };
    let at = from.start().wrapping_add((rows.start * row + terms.start) * from.bytes());
    let asked = Asked::new(at, rows_there, [terms.len() * from.bytes(), row * from.bytes()]);
    let some = asked.left().div_ceil(columns.div_ceil(SQUARE).max(1));
    (asked, some)
}
