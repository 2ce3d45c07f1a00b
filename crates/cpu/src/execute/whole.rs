//! Tiles that are computed at once instead of strip by strip, where what they come from and what becomes of them allow it: a
//! strip for each step would be written and read again as often.

use super::arena::Scratch;
use super::elementwise::{Following, Gather, Gathered, Outlet, Sink, ask, ask_for_each};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::fold::Monoid;
use crate::kernels::isa::Instructions;
use crate::kernels::memory::Line;
use crate::kernels::passes::{Into, Less, Of, Pass, With};
use crate::kernels::real::Real;
use crate::kernels::strip::{
    Operand::{Const, Leaf},
    STRIP, Step,
};
use crate::kernels::{codes, exp, math};
use bytemuck::Pod;
use einloom_cascade::{BinaryOp, DType};

/// What is exponentiated, times which number, less which anchor, and below which argument it is 0, if the steps are that and nothing
/// else.
#[inline(always)]
fn anchored(strips: &Strips) -> Option<(u16, f32, u16, f32)> {
    match *strips.steps.as_slice() {
        [Step::Copy { d: 0, from: Leaf(of) }, Step::ScaledExp { d: 0, by: Const(by), less: Leaf(less), least }] => {
            Some((of, by as f32, less, least))
        }
        _ => None,
    }
}

/// Computes the whole tile at once if it is anchored exponentials of a tile, the anchors one per row, that are packed, and
/// summed along the rows if anything; false, and nothing done, if not. Strips would cost as much as the exponentials.
#[inline(always)]
pub(super) fn exponentials<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &mut Sink<'_, T>,
    folds: &mut [Gather],
    [rows, columns]: [usize; 2],
) -> bool {
    let Some((of, by, less, _)) = anchored(strips) else { return false };
    let (Source::Rows(from), Source::PerRow, Sink::Packed(to)) =
        (&sources[usize::from(of)], &sources[usize::from(less)], sink)
    else {
        return false;
    };
    let (Some(data), Some(less)) = (T::floats(from.data), T::floats(&scratch.vectors[usize::from(less)])) else {
        return false;
    };
    let sums = match folds {
        [] => None,
        [Gather { monoid: Monoid::Sum, gathered: Gathered::Partial(sums) }] => Some(sums.as_mut_slice()),
        _ => return false,
    };
    let (by, less, live) = (by, &less[..rows], None);
    exp::rows::<I>(exp::Rows { from: data, pitch: from.pitch, by, less, columns, live, to, sums })
}

/// Computes the whole tile at once if it is anchored exponentials of a tile in bf16, the anchors one per row, that are
/// summed along the rows; false, and nothing done, if not.
#[inline(always)]
pub(super) fn summed<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &mut Sink<'_, T>,
    (folds, asked): (&mut [Gather], &mut Vec<Following>),
    [rows, columns, pitch]: [usize; 3],
) -> bool {
    let Some((of, by, less, least)) = anchored(strips) else { return false };
    let (Source::Bf16(from), Source::PerRow) = (&sources[usize::from(of)], &sources[usize::from(less)]) else {
        return false;
    };
    let mut target = match sink {
        Sink::Same(target) => match T::floats_mut(target) {
            Some(target) => Some(target),
            None => return false,
        },
        // Nobody asks for them but the sums.
        Sink::Nowhere => None,
        _ => return false,
    };
    let [Gather { monoid: Monoid::Sum, gathered: Gathered::Partial(sums) }] = folds else { return false };
    let Some(less) = T::floats(&scratch.vectors[usize::from(less)]) else { return false };
    let mut passing = [0.0; STRIP];
    for row in 0..rows {
        let argument = [by, less[row], least];
        for c0 in (0..columns).step_by(STRIP) {
            let from = &from.data[row * from.pitch + c0..][..STRIP.min(columns - c0)];
            ask(asked, from.len());
            let to = match &mut target {
                Some(target) => &mut target[row * pitch + c0..][..from.len()],
                None => &mut passing[..from.len()],
            };
            if !codes::exponentials::<I>(from, argument, to, &mut sums[row]) {
                return false;
            }
        }
    }
    true
}

/// Finds the least or the largest of each row at once if the tile is one of bf16 and nothing else becomes of it; false, and nothing
/// lost, if not, or if it holds what is no number.
#[inline(always)]
pub(super) fn extremes<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    sink: &Sink<'_, T>,
    (folds, asked): (&mut [Gather], &mut Vec<Following>),
    [rows, columns]: [usize; 2],
) -> bool {
    let ([Step::Copy { d: 0, from: Leaf(of) }], Sink::Nowhere) = (strips.steps.as_slice(), sink) else { return false };
    let Source::Bf16(from) = &sources[usize::from(*of)] else { return false };
    let [Gather { monoid: monoid @ (Monoid::Max | Monoid::Min), gathered: Gathered::Partial(partials) }] = folds else {
        return false;
    };
    for (row, partial) in partials.iter_mut().enumerate().take(rows) {
        for c0 in (0..columns).step_by(STRIP) {
            let from = &from.data[row * from.pitch + c0..][..STRIP.min(columns - c0)];
            ask(asked, from.len());
            // Who looks at a row again finds the same.
            let Some([least, most]) = codes::extremes::<I>(from) else { return false };
            let this = if *monoid == Monoid::Max { most } else { least };
            partial[0] = monoid.combine(partial[0], this);
        }
    }
    true
}

/// Computes the whole tile at once if it is the elements of another one, divided by a number per row and stored in f32 or bf16;
/// false, and nothing lost, if not.
#[inline(always)]
pub(super) fn quotients<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &Sink<'_, T>,
    (outlet, asked): (&Outlet<'_>, &mut Vec<Following>),
    [rows, columns]: [usize; 2],
) -> bool {
    let per_row = |number: u16| match sources[usize::from(number)] {
        Source::PerRow => T::floats(&scratch.vectors[usize::from(number)]),
        _ => None,
    };
    let [first, between @ .., Step::Binary { op: BinaryOp::Div, d: 0, with: Leaf(over), reversed: false }] =
        strips.steps.as_slice()
    else {
        return false;
    };
    let of = match *first {
        Step::Copy { d: 0, from: Leaf(of) } if between.is_empty() => of,
        // All rows take it.
        Step::Shortcut { d: 0, mask: Leaf(mask), when, from: Leaf(of), skip } if skip == between.len() => {
            match per_row(mask) {
                Some(mask) if mask[..rows].iter().all(|x| (*x != 0.0) == when) => of,
                _ => return false,
            }
        }
        _ => return false,
    };
    let (Source::Rows(from), Sink::Nowhere, Some(over)) = (&sources[usize::from(of)], sink, per_row(*over)) else {
        return false;
    };
    let Some(data) = T::floats(from.data) else { return false };
    if !matches!(outlet.dtype, DType::F32 | DType::Bf16) || !over[..rows].iter().all(|over| codes::divides(*over)) {
        return false;
    }
    let (mut encoded, mut divided) = ([0; STRIP], [0.0; STRIP]);
    for (row, &over) in over[..rows].iter().enumerate() {
        for c0 in (0..columns).step_by(STRIP) {
            let from = &data[row * from.pitch + c0..][..STRIP.min(columns - c0)];
            ask(asked, from.len());
            let start = outlet.start + outlet.outer * row as i64 + c0 as i64;
            let past = outlet.memory.is_large();
            let (to, codes) = (&mut divided[..from.len()], &mut encoded[..from.len()]);
            let done = if outlet.dtype == DType::F32 {
                let done = math::quotients::<I>(to, Some(from), over);
                outlet.memory.write::<I, f32>(start, if done { to } else { &[] }, past);
                done
            } else {
                let done = codes::quotients::<I>(from, over, codes);
                outlet.memory.write::<I, u16>(start, if done { codes } else { &[] }, past);
                done
            };
            if !done {
                return false;
            }
        }
    }
    true
}

/// Computes the whole tile at once if it is anchored exponentials of a tile in f32, divided by a number per row, that go to
/// memory past the caches; false, and nothing lost, if not.
#[inline(always)]
pub(super) fn exponential_quotients<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &Sink<'_, T>,
    (outlet, asked): (&Outlet<'_>, &mut Vec<Following>),
    [rows, columns]: [usize; 2],
) -> bool {
    let &[
        Step::Copy { d: 0, from: Leaf(of) },
        Step::ScaledExp { d: 0, by: Const(by), less: Leaf(less), least },
        Step::Binary { op: BinaryOp::Div, d: 0, with: Leaf(over), reversed: false },
    ] = strips.steps.as_slice()
    else {
        return false;
    };
    let per_row = |number: u16| match sources[usize::from(number)] {
        Source::PerRow => T::floats(&scratch.vectors[usize::from(number)]),
        _ => None,
    };
    let (Source::Rows(from), Sink::Nowhere, Some(less), Some(over)) =
        (&sources[usize::from(of)], sink, per_row(less), per_row(over))
    else {
        return false;
    };
    let Some(data) = T::floats(from.data) else { return false };
    if outlet.dtype != DType::F32 || !outlet.memory.is_large() {
        return false;
    }
    for row in 0..rows {
        let (by, less, over) = (by as f32, less[row], over[row]);
        let start = outlet.start + outlet.outer * row as i64;
        // Pieces end with a line: none is written in two parts but the row's first and last.
        let mut width = STRIP + outlet.memory.room::<f32>(start, 0).start().align_offset(size_of::<Line>());
        let mut c0 = 0;
        while c0 < columns {
            let from = &data[row * from.pitch + c0..][..width.min(columns - c0)];
            let to = outlet.memory.room(start + c0 as i64, from.len());
            let next = ask_for_each(asked, from.len());
            if !(exp::Quotients { from, by, less, least, over, to, next }).run::<I>() {
                return false;
            }
            (c0, width) = (c0 + width, STRIP);
        }
    }
    true
}

/// Computes the whole tile at once if it is one operation on a tile in f32, or none, of some elements or all, whose rows or
/// columns are reduced if anything; false, and nothing done, if not.
#[inline(always)]
pub(super) fn passed<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &mut Sink<'_, T>,
    (folds, asked): (&mut [Gather], &mut Vec<Following>),
    [rows, columns, pitch, piece]: [usize; 4],
) -> bool {
    if !I::FMA || T::floats(&[]).is_none() {
        return false;
    }
    let [Step::Copy { d: 0, from: Leaf(first) }, steps @ ..] = strips.steps.as_slice() else { return false };
    let (operation, live) = match *steps {
        [ref before @ .., Step::Select { d: 0, mask: Leaf(mask), other: Const(other), flipped: false }] => {
            let Source::Holds(live) = &sources[usize::from(mask)] else { return false };
            (before, Some((live, other as f32)))
        }
        _ => (steps, None),
    };
    // The result's own elements, or another tile's.
    let tile = |number: u16| match &sources[usize::from(number)] {
        Source::InPlace => Some(None),
        Source::Rows(from) => T::floats(from.data).map(|data| Some((data, from.pitch))),
        _ => None,
    };
    let Some(mut from) = tile(*first) else { return false };
    let of = match *operation {
        [] => Of::Same,
        [Step::ScaledExp { d: 0, by: Const(by), less: Leaf(less), least }] => {
            let less = match &sources[usize::from(less)] {
                Source::PerRow => T::floats(&scratch.vectors[usize::from(less)]).map(Less::Rows),
                Source::PerColumn => T::floats(&scratch.vectors[usize::from(less)]).map(Less::Columns),
                Source::Columns(less) => T::floats(less).map(Less::Columns),
                _ => None,
            };
            let Some(less) = less else { return false };
            Of::Exp { by: by as f32, less, least }
        }
        [Step::ScaledTanh { d: 0, over, times }] => Of::Tanh { over: over as f32, times: times as f32 },
        [Step::Binary { op: op @ (BinaryOp::Add | BinaryOp::Sub), d: 0, with: Leaf(with), reversed }]
            if op == BinaryOp::Add || !reversed =>
        {
            let minus = op == BinaryOp::Sub;
            let floats = |(data, pitch)| With::Floats(data, pitch);
            let with = match (&sources[usize::from(with)], from, tile(with)) {
                (Source::Bf16(with), ..) => With::Bf16(with.data, with.pitch),
                (Source::F16(with), ..) => With::F16(with.data, with.pitch),
                (Source::Diagonals, ..) => match T::floats(&scratch.vectors[usize::from(with)]) {
                    Some(with) => With::Diagonals(with),
                    None => return false,
                },
                (_, _, Some(Some(with))) => floats(with),
                (_, Some(with), Some(None)) if !minus => {
                    from = None;
                    floats(with)
                }
                _ => return false,
            };
            Of::Sum { with, minus }
        }
        _ => return false,
    };
    let fold = match folds {
        [] => None,
        [Gather { monoid, gathered: Gathered::Partial(rows) }] => Some((*monoid, Into::Rows(rows))),
        [Gather { monoid, gathered: Gathered::Columns(columns) }] => Some((*monoid, Into::Columns(columns))),
        _ => return false,
    };
    let to = match sink {
        Sink::Same(to) => T::floats_mut(to).map(|to| (to, pitch)),
        // What only looks at elements does so where they are.
        Sink::Nowhere if from.is_some() && fold.is_some() => None,
        _ => return false,
    };
    let mut pass = Pass { from, of, live, to, rows, columns, fold };
    // The order of sums must not depend on what is asked for: a row of several pieces is always reduced piece by piece.
    if !pass.has_pieces() || asked.is_empty() && columns <= STRIP {
        ask(asked, rows * columns);
        return pass.run::<I>();
    }
    for row in 0..rows {
        for at in (0..columns).step_by(piece) {
            let width = piece.min(columns - at);
            ask(asked, width);
            if !pass.piece(row, at, width).is_some_and(|piece| piece.run::<I>()) {
                return false;
            }
        }
    }
    true
}
