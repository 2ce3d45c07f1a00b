//! Tiles that are multiplied by a number for each row and one for each column.

use super::arena::Scratch;
use super::elementwise::{Following, Gather, Sink, ask};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::factors::{self, Factors};
use crate::kernels::isa::Instructions;
use crate::kernels::real::Real;
use crate::kernels::strip::{Operand, STRIP, Step};
use bytemuck::Pod;
use einloom_cascade::BinaryOp;

/// The leaves that elements are multiplied by, one for each row and one for each column.
pub(super) type Sides = [Option<usize>; 2];

/// Those that all are multiplied by besides by the first of these steps, and how many those are.
pub(super) fn sides<T>(steps: &[Step], sources: &[Source<'_, T>], before: Sides) -> Option<(Sides, usize)> {
    let (leaves, count) = match *steps {
        [Step::Binary { op: BinaryOp::Mul, d: 0, with: Operand::Leaf(leaf), .. }, ..] => ([Some(leaf), None], 1),
        [
            Step::Copy { d, from: Operand::Leaf(one) },
            Step::Binary { op: BinaryOp::Mul, d: d2, with: Operand::Leaf(other), .. },
            Step::Binary { op: BinaryOp::Mul, d: 0, with: Operand::Register(of), .. },
            ref rest @ ..,
        ] if d > 0 && d == d2 && d == of && !reads_register(rest, d) => ([Some(one), Some(other)], 3),
        _ => return None,
    };
    let mut by = before;
    for leaf in leaves.into_iter().flatten() {
        let side = match sources[usize::from(leaf)] {
            Source::PerRow => 0,
            Source::Columns(_) | Source::PerColumn => 1,
            _ => return None,
        };
        if by[side].replace(leaf.into()).is_some() {
            return None;
        }
    }
    Some((by, count))
}

fn reads_register(steps: &[Step], d: u8) -> bool {
    steps.iter().flat_map(Step::operands).any(|operand| operand == Operand::Register(d))
}

/// The factors from a row and a column on.
pub(super) fn factors<'s>(
    by: Sides,
    sources: &'s [Source<'_, f32>],
    vectors: &'s [Vec<f32>],
    [row, column]: [usize; 2],
) -> Factors<'s> {
    let rows = by[0].map(|leaf| &vectors[leaf][row..]);
    let columns = by[1].map(|leaf| match &sources[leaf] {
        Source::Columns(from) => &from[column..],
        _ => &vectors[leaf][column..],
    });
    Factors { rows, columns }
}

/// Computes the whole tile if it is such a product, in the place of its operand.
#[inline(always)]
pub(super) fn scaled<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &Scratch<T>,
    sink: &mut Sink<'_, T>,
    (folds, asked): (&mut [Gather], &mut Vec<Following>),
    [rows, columns, pitch]: [usize; 3],
) -> bool {
    let [Step::Copy { d: 0, from: Operand::Leaf(own) }, rest @ ..] = strips.steps.as_slice() else { return false };
    let (Source::InPlace, Sink::Same(target), true) = (&sources[usize::from(*own)], sink, I::FMA) else { return false };
    let Some(target) = T::floats_mut(target) else { return false };
    let (mut by, mut times, mut at) = ([None; 2], 1.0, 0);
    while let Some(step) = rest.get(at) {
        if let Some((sides, count)) = sides(&rest[at..], sources, by) {
            (by, at) = (sides, at + count);
            continue;
        }
        let Step::Binary { op: BinaryOp::Mul, d: 0, with: Operand::Const(x), .. } = *step else { return false };
        (times, at) = (times * x as f32, at + 1);
    }
    let row_factor = by[0].and_then(|leaf| T::floats(&scratch.vectors[leaf]));
    let column_factor = by[1].and_then(|leaf| match &sources[leaf] {
        Source::Columns(from) => T::floats(from),
        _ => T::floats(&scratch.vectors[leaf]),
    });
    if by == [None; 2] || columns > STRIP {
        return false;
    }
    for row in 0..rows {
        ask(asked, columns);
        let of = Factors { rows: row_factor.map(|rows| &rows[row..]), columns: column_factor };
        let to = &mut target[row * pitch..][..columns];
        factors::run::<I>(to, [columns, columns], times, of);
        for fold in folds.iter_mut() {
            fold.add::<I>(row, 0, columns, to);
        }
    }
    true
}
