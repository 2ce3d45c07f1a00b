//! Tiles of which truth values, held as bits, keep some elements, or choose between two numbers.

use super::arena::Scratch;
use super::elementwise::{Following, Gather, Gathered, Sink, ask};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::fold::Monoid;
use crate::kernels::isa::Instructions;
use crate::kernels::real::Real;
use crate::kernels::strip::Operand::{Const, Leaf};
use crate::kernels::strip::{STRIP, Step};
use crate::kernels::truths::{self, Bits};
use bytemuck::Pod;
use einloom_cascade::BinaryOp;

/// By which bits the last step chooses, whether it keeps those that are not set, and what it makes of the others.
fn choice<'s, T>(last: &Step, sources: &[Source<'s, T>]) -> Option<(Bits<'s>, bool, f32)> {
    let Step::Select { d: 0, mask: Leaf(mask), other: Const(other), flipped } = *last else { return None };
    let Source::Bits(bits) = sources[usize::from(mask)] else { return None };
    Some((bits, flipped, other as f32))
}

/// Finds the least or the largest of each row, or each column, whose elements are one number or another, from its bits: no element is made.
#[inline(always)]
pub(super) fn chosen<T>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    sink: &Sink<'_, T>,
    folds: &mut [Gather],
    [rows, columns]: [usize; 2],
) -> bool {
    let ([Step::Copy { d: 0, from: Const(one) }, last], Sink::Nowhere) = (strips.steps.as_slice(), sink) else {
        return false;
    };
    let Some((bits, flipped, other)) = choice(last, sources) else { return false };
    if !folds.iter().all(|fold| matches!(fold.monoid, Monoid::Max | Monoid::Min)) {
        return false;
    }
    let numbers = if flipped { [other, *one as f32] } else { [*one as f32, other] };
    let add = |monoid: Monoid, to: &mut f32, there: [bool; 2]| {
        for (number, _) in numbers.into_iter().zip(there).filter(|(_, there)| *there) {
            *to = monoid.combine(*to, number);
        }
    };
    for Gather { monoid, gathered } in folds {
        match gathered {
            Gathered::Columns(results) => {
                let columns = truths::some_of_columns((0..rows).map(|row| bits.row(row, 0)), columns);
                results.iter_mut().zip(columns).for_each(|(to, there)| add(*monoid, to, there));
            }
            Gathered::Partial(results) => {
                for (row, to) in results.iter_mut().enumerate().take(rows) {
                    add(*monoid, &mut to[0], truths::some(bits.row(row, 0), columns));
                }
            }
            Gathered::Whole(results) => {
                for (row, to) in results.iter_mut().enumerate().take(rows) {
                    add(*monoid, to, truths::some(bits.row(row, 0), columns));
                }
            }
        }
    }
    true
}

/// Computes the whole tile if it is what bits keep of another tile, times a number, and another number elsewhere.
#[inline(always)]
pub(super) fn kept<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &mut Scratch<T>,
    sink: &mut Sink<'_, T>,
    (folds, asked): (&mut [Gather], &mut Vec<Following>),
    [rows, columns, pitch]: [usize; 3],
) -> bool {
    let (of, times, last) = match strips.steps.as_slice() {
        [Step::Copy { d: 0, from: Leaf(of) }, last] => (*of, 1.0, last),
        [
            Step::Copy { d: 0, from: Leaf(of) },
            Step::Binary { op: BinaryOp::Mul, d: 0, with: Const(times), .. },
            last,
        ] => (*of, *times as f32, last),
        _ => return false,
    };
    let Some((bits, flipped, other)) = choice(last, sources) else { return false };
    let (from, from_pitch) = match &sources[usize::from(of)] {
        Source::InPlace => (None, pitch),
        Source::Rows(from) => (T::floats(from.data), from.pitch),
        _ => return false,
    };
    let in_place = from.is_none();
    let Some(spare) = T::floats_mut(&mut scratch.row) else { return false };
    let mut target = match sink {
        Sink::Same(target) => T::floats_mut(target),
        Sink::Nowhere if !in_place => None,
        _ => return false,
    };
    for row in 0..rows {
        for at in (0..columns).step_by(STRIP) {
            let width = STRIP.min(columns - at);
            ask(asked, width);
            let to = match &mut target {
                Some(target) => &mut target[row * pitch + at..][..width],
                None => &mut spare[..width],
            };
            let from = from.map(|from| &from[row * from_pitch + at..][..width]);
            if !truths::keep::<I>(from, to, (times, other), (bits.row(row, at), flipped)) {
                return false;
            }
            for fold in folds.iter_mut() {
                fold.add::<I>(row, at, width, to);
            }
        }
    }
    true
}
