//! Contractions by the processor's matrix unit: 32 rows of the left factor are packed at a time, and multiplied by all of
//! the right factor while they are near. What becomes of the sums besides happens on their way to the result.

use super::ahead::Elements;
use super::parts::{PackLeft, PackRight, Packed, unpack};
use super::{Contraction, Layout, Scale, Start};
use crate::kernels::amx::{Engaged, SIDE, Square, TERMS, TILE, TileToken};
use crate::kernels::isa::dispatch;
use crate::kernels::memory::{Asked, Line};
use einloom_cascade::numeric::bf16_to_f32;
use std::ops::Range;

/// Rows and columns that are computed at once.
pub(super) const SQUARE: usize = 2 * SIDE;

/// Bytes of the left factor that are packed at a time: they stay in the first-level cache beside what they are multiplied
/// by and the sums.
const LEFT: usize = 20 << 10;

/// Memory of one thread for packed factors and for sums.
#[derive(Default)]
pub(crate) struct Room {
    left: Vec<Line>,
    right: Vec<Line>,
    sums: Vec<Line>,
}

fn grown(lines: &mut Vec<Line>, len: usize) -> &mut [Line] {
    if lines.len() < len {
        lines.resize(len, Line::ZERO);
    }
    lines
}

impl Contraction<'_, '_, f32> {
    /// Runs it on factors of so many parts of bf16. The slices must hold the matrices; panics otherwise. The left factor's
    /// elements are `codes`, if those are given, in rows of adjacent elements; `a` is not looked at then.
    pub(crate) fn run_tiles(self, codes: Option<&[u16]>, token: TileToken, parts: [usize; 2], room: &mut Room) {
        let from = codes.map_or(Elements::F32(self.a), Elements::Bf16);
        self.check_with(from.len());
        let Self { m, n, k, a, a_i, a_k, b, b_layout, c, c_i, start, scale, times, ahead } = self;
        if m == 0 || n == 0 {
            return;
        }
        let Room { left, right, sums } = room;
        let (packed, right): (Packed, &[f32]) = match b_layout {
            Layout::Packed(packed) => (packed, b),
            Layout::Rows(pitch) if k > 0 => {
                let to = grown(right, Packed::new(parts[1] as u8).lines(k, n));
                let pack =
                    PackRight { from: Elements::F32(b), pitch, terms: k, columns: n, parts: parts[1], to: &mut *to };
                (dispatch(token.token(), pack), bytemuck::cast_slice(to))
            }
            _ => {
                let widened = codes.map(|codes| widen(codes, [m, k], a_i));
                let (a, [a_i, a_k]) = widened.as_deref().map_or((a, [a_i, a_k]), |a| (a, [k, 1]));
                let job = Contraction { m, n, k, a, a_i, a_k, b, b_layout, c, c_i, start, scale, times, ahead };
                return job.run(token.token());
            }
        };
        let b_bytes = k.div_ceil(TERMS) * usize::from(packed.parts) * TILE;
        let part = LEFT / (SQUARE * size_of::<u16>() * parts[0]) / TERMS * TERMS;
        let one = k <= part;
        grown(left, (SQUARE / SIDE) * (part.min(k).div_ceil(TERMS) * parts[0]) * (TILE / size_of::<Line>()));
        // With one part the sums of one square are on their way before the next is begun.
        let squares = if one { 1 } else { n.div_ceil(SQUARE) };
        let lines = squares * SQUARE * SQUARE * size_of::<f32>() / size_of::<Line>();
        let sums = grown(sums, lines).as_mut_ptr().cast::<f32>();
        let ranged = parts != [1, 1];
        // Nothing is to be done with the sums, and it is known that they will be good.
        let plain = matches!((start, scale), (Start::Zero, _) | (Start::Kept, Scale::One)) && times.is_none();
        let straight = plain && (one || !ranged);
        let engaged = Engaged::new(token);
        let mut rows_of_b = None;
        for i in (0..m).step_by(SQUARE) {
            let rows = SQUARE.min(m - i);
            let mut good = true;
            for k0 in (0..k).step_by(part) {
                let terms = part.min(k - k0);
                let strides = [a_i, a_k];
                let pack = PackLeft {
                    from: from.after(i * a_i + k0 * a_k),
                    strides,
                    rows,
                    terms,
                    parts: parts[0],
                    range: ranged,
                    to: &mut *left,
                };
                let range = dispatch(token.token(), pack);
                good = !ranged || range.multiplies(packed.range);
                if !good {
                    break;
                }
                let blocks = terms.div_ceil(TERMS);
                let a0 = left.as_ptr().cast::<u8>();
                let a1 = if rows > SIDE { a0.wrapping_add(blocks * parts[0] * TILE) } else { a0 };
                let last = k0 + terms == k;
                // What is packed next is asked for while this is multiplied: its rows are too short for the processor to
                // find them by itself.
                let (next, then) = if last { (i + SQUARE, 0) } else { (i, k0 + terms) };
                let window = [next..m.min(next + SQUARE), then..k.min(then + part)];
                let (mut asked, some) = packed_next((from, strides), window, n);
                for j in (0..n).step_by(SQUARE) {
                    let columns = SQUARE.min(n - j);
                    asked.some(some);
                    let b0 = right.as_ptr().cast::<u8>().wrapping_add(j / SIDE * b_bytes);
                    let b0 = b0.wrapping_add(k0 / TERMS * usize::from(packed.parts) * TILE);
                    let b1 = if columns > SIDE { b0.wrapping_add(b_bytes) } else { b0 };
                    let to = c[i * c_i + j..].as_mut_ptr();
                    let straight = straight && rows == SQUARE && columns == SQUARE;
                    let sums = sums.wrapping_add(if one { 0 } else { j * SQUARE });
                    let (sums_to, pitch) = if straight { (to, c_i) } else { (sums, SQUARE) };
                    let kept = k0 > 0 || straight && matches!(start, Start::Kept);
                    let (c, c_bytes) = (sums_to.cast(), pitch * size_of::<f32>());
                    // SAFETY: the factors were packed for these rows, columns and terms, and the sums have room for all
                    // rows and columns, or the result has, which the checks found to hold them.
                    unsafe { Square { a: [a0, a1], b: [b0, b1], blocks, c, c_bytes, kept }.multiply(&engaged, parts) };
                    if straight || !last {
                        continue;
                    }
                    let (acc, acc_i) = match start {
                        Start::Zero => (std::ptr::null(), 0),
                        Start::Kept => (to.cast_const(), c_i),
                        Start::From(acc, stride) => (acc[i * stride + j..].as_ptr(), stride),
                    };
                    let factor = match scale {
                        Scale::One => Factor::One,
                        Scale::Same(x) => Factor::Same(x),
                        Scale::Rows(rows) => Factor::Rows(rows[i..].as_ptr()),
                        Scale::Columns(columns) => Factor::Columns(columns[j..].as_ptr()),
                    };
                    let (sums, times) = (sums.cast_const(), times.unwrap_or(1.0));
                    let finish = Finish { sums, rows, columns, to, to_i: c_i, acc, acc_i, factor, times };
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the token's instructions; the checks found the rows and columns to be there.
                    unsafe {
                        finish.run();
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    let _ = finish;
                }
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
                start: match start {
                    Start::From(acc, stride) => Start::From(&acc[i * stride..], stride),
                    other => other,
                },
                scale: match scale {
                    Scale::Rows(rows) => Scale::Rows(&rows[i..]),
                    other => other,
                },
                times,
                ahead: &mut *ahead,
            };
            rest.run(token.token());
        }
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

/// What the start's elements are multiplied by.
#[derive(Clone, Copy)]
enum Factor {
    One,
    Same(f32),
    Rows(*const f32),
    Columns(*const f32),
}

/// Sums on their way to the result: `to = (acc · factor + sums) · times`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
struct Finish {
    /// Rows of [`SQUARE`].
    sums: *const f32,
    rows: usize,
    columns: usize,
    to: *mut f32,
    to_i: usize,
    /// Null if the start is 0.
    acc: *const f32,
    acc_i: usize,
    factor: Factor,
    times: f32,
}

#[cfg(target_arch = "x86_64")]
impl Finish {
    /// # Safety
    /// The instructions are there, and the rows and columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
    unsafe fn run(self) {
        use std::arch::x86_64::*;

        let Self { sums, rows, columns, to, to_i, acc, acc_i, factor, times } = self;
        let times = _mm512_set1_ps(times);
        for first in (0..columns).step_by(SIDE) {
            let mask = ((1u32 << SIDE.min(columns - first)) - 1) as u16;
            // SAFETY: `columns` factors, rows and columns are there, and the mask has a bit for each column.
            unsafe {
                let mut by = match factor {
                    Factor::Same(x) => _mm512_set1_ps(x),
                    Factor::Columns(x) => _mm512_maskz_loadu_ps(mask, x.add(first)),
                    Factor::One | Factor::Rows(_) => _mm512_set1_ps(1.0),
                };
                for row in 0..rows {
                    let mut sum = _mm512_loadu_ps(sums.add(row * SQUARE + first));
                    if !acc.is_null() {
                        if let Factor::Rows(x) = factor {
                            by = _mm512_set1_ps(*x.add(row));
                        }
                        let before = _mm512_maskz_loadu_ps(mask, acc.add(row * acc_i + first));
                        sum = _mm512_fmadd_ps(before, by, sum);
                    }
                    _mm512_mask_storeu_ps(to.add(row * to_i + first), mask, _mm512_mul_ps(sum, times));
                }
            }
        }
    }
}
