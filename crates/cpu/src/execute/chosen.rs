//! Tiles of which truth values, held as bits, keep some elements, or choose between two numbers.

use super::arena::Scratch;
use super::elementwise::{Following, Gather, Gathered, Sink, ask};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::fold::Monoid;
use crate::kernels::isa::Instructions;
use crate::kernels::live::{self, Live};
use crate::kernels::real::Real;
use crate::kernels::strip::Operand::{Const, Leaf};
use crate::kernels::strip::{STRIP, Step};
use crate::kernels::truths::{self, Bits};
use bytemuck::Pod;
use einloom_cascade::BinaryOp;

/// Rows of which a mask leaves elements at once.
const TOGETHER: usize = 16;

/// Which elements are kept.
#[derive(Clone, Copy)]
pub(super) enum Mask<'s> {
    /// Those whose bit is set, or is not if that is told.
    Bits(Bits<'s>, bool),
    /// Those that a predicate leaves.
    Within(&'s Live),
}

impl Mask<'_> {
    /// Leaves those bits of a row, from a column on that begins a word, that stand for what it keeps.
    pub(super) fn leave(&self, row: usize, column: usize, words: &mut [u32]) {
        match self {
            Self::Bits(bits, flipped) => {
                let flip = if *flipped { u32::MAX } else { 0 };
                words.iter_mut().zip(bits.row(row, column)).for_each(|(to, bits)| *to &= bits ^ flip);
            }
            Self::Within(live) => {
                let live = live.row(row);
                for (number, to) in words.iter_mut().enumerate() {
                    *to &= live::bits(&live, column + number * truths::WORD);
                }
            }
        }
    }
}

/// The mask that a step tests, and the number that elements become which it does not keep, if that is all it does.
pub(super) fn mask<'s, T>(step: &Step, sources: &'s [Source<'_, T>]) -> Option<(Mask<'s>, f64)> {
    let Step::Select { d: 0, mask: Leaf(mask), other: Const(other), flipped } = *step else { return None };
    let mask = match &sources[usize::from(mask)] {
        Source::Bits(bits) => Mask::Bits(*bits, flipped),
        Source::ColumnBits(words) => Mask::Bits(Bits { words, pitch: 0 }, flipped),
        Source::Holds(live) if !flipped => Mask::Within(live),
        _ => return None,
    };
    Some((mask, other))
}

/// The masks that are tested in turn by these steps, some of them bits, and the number that elements become which one does not keep, if that
/// is all.
pub(super) fn masks<'s, T>(steps: &[Step], sources: &'s [Source<'_, T>]) -> Option<(Vec<Mask<'s>>, f32)> {
    let (mut masks, mut number) = (vec![], None);
    for step in steps {
        let (mask, other) = mask(step, sources)?;
        masks.push(mask);
        if *number.get_or_insert(other) != other {
            return None;
        }
    }
    let bits = masks.iter().any(|mask| matches!(mask, Mask::Bits(..)));
    number.filter(|_| bits).map(|number| (masks, number as f32))
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
    let ([Step::Copy { d: 0, from: Const(one) }, rest @ ..], Sink::Nowhere) = (strips.steps.as_slice(), sink) else {
        return false;
    };
    let Some((masks, other)) = masks(rest, sources) else { return false };
    if !folds.iter().all(|fold| matches!(fold.monoid, Monoid::Max | Monoid::Min)) {
        return false;
    }
    let numbers = [*one as f32, other];
    let words = truths::words(columns);
    let mut all = vec![u32::MAX; rows * words];
    for (row, words) in all.chunks_exact_mut(words).enumerate() {
        masks.iter().for_each(|mask| mask.leave(row, 0, words));
    }
    let bits = Bits { words: &all, pitch: words };
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
    let [Step::Copy { d: 0, from: Leaf(of) }, rest @ ..] = strips.steps.as_slice() else { return false };
    let (times, rest) = match rest {
        [Step::Binary { op: BinaryOp::Mul, d: 0, with: Const(times), .. }, rest @ ..] => (*times as f32, rest),
        rest => (1.0, rest),
    };
    let Some((masks, other)) = masks(rest, sources) else { return false };
    let (from, from_pitch) = match &sources[usize::from(*of)] {
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
    let mut words = [0; STRIP / truths::WORD];
    // One mask is looked at where it is, for several rows at once.
    let only = if let [Mask::Bits(bits, flipped)] = *masks { Some((bits, flipped)) } else { None };
    let together = if only.is_some() && columns <= STRIP && target.is_some() { TOGETHER } else { 1 };
    for row in (0..rows).step_by(together) {
        let height = together.min(rows - row);
        for at in (0..columns).step_by(STRIP) {
            let width = STRIP.min(columns - at);
            ask(asked, height * width);
            let (to, to_pitch) = match &mut target {
                Some(target) => (&mut target[row * pitch + at..], pitch),
                None => (&mut spare[..width], width),
            };
            let from = from.map(|from| (&from[row * from_pitch + at..], from_pitch));
            let bits = only.map_or_else(
                || {
                    let words = &mut words[..truths::words(width)];
                    words.fill(u32::MAX);
                    masks.iter().for_each(|mask| mask.leave(row, at, words));
                    (Bits { words, pitch: 0 }, false)
                },
                |(bits, flipped)| (bits.from(row, at), flipped),
            );
            let most = match &mut *folds {
                [Gather { monoid: Monoid::Max, gathered: Gathered::Columns(most) }] => Some(&mut most[at..][..width]),
                _ => None,
            };
            let found = most.is_some();
            if !truths::keep::<I>(from, (to, to_pitch), [height, width], (times, other), bits, most) {
                return false;
            }
            if found {
                continue;
            }
            for r in 0..height {
                let to = &to[r * to_pitch..][..width];
                for fold in folds.iter_mut() {
                    fold.add::<I>(row + r, at, width, to);
                }
            }
        }
    }
    true
}
