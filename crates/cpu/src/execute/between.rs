//! Elementwise operations on scores between their products and their exponentials: a bias, a soft cap, a mask that is a number. They
//! are computed piece by piece while the scores are in the first-level cache.

use super::arena::Scratch;
use super::chosen::{Mask, mask, masks};
use super::map::Sources;
use super::scaled::{self, Sides};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::add::{self, Addend, Of};
use crate::kernels::contract::Between;
use crate::kernels::exp::InPassing;
use crate::kernels::factors;
use crate::kernels::isa::{Instructions, Token, Work, dispatch};
use crate::kernels::logistic;
use crate::kernels::strip::{self, Data, Operand, STRIP, Step};
use crate::kernels::tanh;
use crate::kernels::truths::{self, Bits};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use std::ops::Range;

/// Rows and columns of scores that are computed at once.
const SQUARE: usize = 32;

/// What scores, times a number, become.
pub(super) struct Change<'a> {
    token: Token,
    /// What scores are multiplied by first.
    times: f32,
    /// The leaves that they are multiplied by then, one for each row and one for each column.
    by: Sides,
    /// The leaf that is added then, or subtracted if that is told.
    added: Option<(usize, bool)>,
    /// One with a number for each row that is added besides.
    plus: Option<(usize, bool)>,
    steps: Vec<Step>,
    sources: Sources<'a, f32>,
    /// Leaves that the steps read strip by strip.
    read: Vec<bool>,
    /// Of the whole tile.
    lengths: [usize; 2],
    ahead: Ahead,
    /// The result is rounded to 8 bits, and nothing else becomes of it.
    rounded: bool,
    scratch: &'a mut Scratch<f32>,
}

/// What is asked for while scores are computed, of what is added to them, besides what the next piece needs.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    /// What the next tile needs, which begins so many elements further, in rows that are as far apart.
    pub tile: Option<isize>,
    /// Squares that were computed.
    pub squares: usize,
}

impl<'a> Change<'a> {
    /// Of a strip program whose first step reads the scores, if any does, the source in place being they; `scratch` has room for its
    /// leaves and registers.
    pub(super) fn new(
        token: Token,
        strips: &Strips,
        times: f32,
        sources: Sources<'a, f32>,
        (lengths, ahead): ([usize; 2], Ahead),
        scratch: &'a mut Scratch<f32>,
    ) -> Self {
        let steps = strips.steps.clone();
        let mut change = Self {
            token,
            times,
            by: [None; 2],
            added: None,
            plus: None,
            steps,
            sources,
            read: vec![],
            lengths,
            ahead,
            rounded: false,
            scratch,
        };
        change.shorten();
        change.choose_by_bits();
        change.read = vec![false; change.sources.len()];
        for operand in change.steps.iter().flat_map(Step::operands) {
            if let Operand::Leaf(leaf) = operand {
                change.read[usize::from(leaf)] = true;
            }
        }
        change
    }

    /// Makes bits of what tells for each column whether scores are kept.
    fn choose_by_bits(&mut self) {
        for (number, source) in self.sources.iter_mut().enumerate() {
            // What is added or multiplied by besides stays numbers.
            if self.by.contains(&Some(number)) || self.added.is_some_and(|(leaf, _)| leaf == number) {
                continue;
            }
            let own = |operand: &Operand| usize::from(*operand == Operand::Leaf(number as u16));
            let reads: usize = self.steps.iter().flat_map(Step::operands).map(|operand| own(&operand)).sum();
            let masks = self.steps.iter().map(|step| if let Step::Select { mask, .. } = step { own(mask) } else { 0 });
            if reads == 0 || masks.sum::<usize>() != reads {
                continue;
            }
            match source {
                Source::Columns(from) => *source = Source::ColumnBits(truths::of_numbers(from)),
                Source::PerColumn => *source = Source::ColumnBits(truths::of_numbers(&self.scratch.vectors[number])),
                _ => {}
            }
        }
    }

    /// The number that scores are multiplied by, if nothing else becomes of them.
    pub(super) fn multiple(&self) -> Option<f32> {
        (self.by == [None; 2] && self.added.is_none() && self.plus.is_none() && self.steps.is_empty())
            .then_some(self.times)
    }

    /// From now on the result is rounded to 8 bits, and nothing else becomes of it: the last step need not round to them.
    pub(super) fn is_rounded(&mut self) {
        self.rounded = true;
        self.steps.pop_if(|step| matches!(step, Step::Round { d: 0, dtype: DType::Bf16 }));
    }

    /// Takes the first steps apart that can be done in passing.
    fn shorten(&mut self) {
        let &[Step::Copy { d: 0, from: Operand::Leaf(own) }, ref rest @ ..] = self.steps.as_slice() else { return };
        if !matches!(self.sources[usize::from(own)], Source::InPlace) {
            return;
        }
        let mut taken = 1;
        while let Some(step) = rest.get(taken - 1) {
            let adds = self.added.is_some() || self.plus.is_some();
            if !adds && let Some((by, count)) = scaled::sides(&rest[taken - 1..], &self.sources, self.by) {
                (self.by, taken) = (by, taken + count);
                continue;
            }
            let (leaf, less) = match *step {
                Step::Binary { op: BinaryOp::Mul, d: 0, with: Operand::Const(x), .. } if !adds => {
                    self.times *= x as f32;
                    taken += 1;
                    continue;
                }
                _ if self.by != [None; 2] => break,
                Step::Binary { op: BinaryOp::Add, d: 0, with: Operand::Leaf(leaf), .. } => (usize::from(leaf), false),
                Step::Binary { op: BinaryOp::Sub, d: 0, with: Operand::Leaf(leaf), reversed: false } => {
                    (usize::from(leaf), true)
                }
                _ => break,
            };
            let place = match self.sources[leaf] {
                Source::Rows(_) | Source::Bf16(_) | Source::Diagonals | Source::Columns(_) | Source::PerColumn => {
                    &mut self.added
                }
                Source::PerRow => &mut self.plus,
                _ => break,
            };
            if place.is_some() {
                break;
            }
            *place = Some((leaf, less));
            taken += 1;
        }
        // By itself it is left to its step.
        if self.added.is_none() && self.plus.take().is_some() {
            taken -= 1;
        }
        self.steps.drain(..taken);
        let times = f64::from(self.times);
        if self.added.is_none()
            && let Some(Step::ScaledTanh { over, .. }) = self.steps.first_mut()
            && (over.abs() / times.abs()).is_normal()
        {
            *over /= times;
            self.times = 1.0;
        }
    }
}

/// Where the rows begin of what is added, or subtracted if that is told, to a tile of so many rows, from a row and a column on; and
/// what is added to each row besides.
fn lies<'s>(
    sources: &'s [Source<'_, f32>],
    vectors: &'s [Vec<f32>],
    ((leaf, less), plus): ((usize, bool), Option<(usize, bool)>),
    rows: usize,
    [row, column]: [usize; 2],
) -> Addend<'s> {
    let plus = plus.map(|(leaf, less)| (&vectors[leaf][row..], less));
    let lies = |of, pitch: usize| Addend { of, start: row * pitch + column, step: pitch as isize, less, plus };
    match &sources[leaf] {
        Source::Rows(from) => lies(Of::Floats(from.data), from.pitch),
        Source::Bf16(from) => lies(Of::Bf16(from.data), from.pitch),
        Source::Columns(from) => Addend { of: Of::Floats(from), start: column, step: 0, less, plus },
        Source::PerColumn => Addend { of: Of::Floats(&vectors[leaf]), start: column, step: 0, less, plus },
        _ => Addend { of: Of::Floats(&vectors[leaf]), start: rows - 1 - row + column, step: -1, less, plus },
    }
}

impl Between for Change<'_> {
    fn in_passing(&self, rows: &Range<usize>, columns: &Range<usize>) -> Option<(f32, InPassing<'_>)> {
        let (sources, vectors, at) = (&self.sources, &self.scratch.vectors, [rows.start, columns.start]);
        let done = match (self.by, self.added, self.steps.as_slice()) {
            ([None, None], Some(added), []) => {
                InPassing::Added(lies(sources, vectors, (added, self.plus), self.lengths[0], at))
            }
            ([None, None], None, [step]) => match mask(step, sources)? {
                (Mask::Bits(bits, flipped), f64::NEG_INFINITY) => InPassing::Kept { bits, flipped, at },
                _ => return None,
            },
            (by, None, []) => InPassing::Scaled(scaled::factors(by, sources, vectors, at)),
            _ => return None,
        };
        Some((self.times, done))
    }

    fn ask(&mut self, rows: Range<usize>, columns: Range<usize>, [part, parts]: [usize; 2]) {
        let Some((leaf, _)) = self.added else { return };
        let [all, width] = self.lengths;
        let (of, pitch) = match &self.sources[leaf] {
            Source::Rows(from) => (Of::Floats(from.data), from.pitch),
            Source::Bf16(from) => (Of::Bf16(from.data), from.pitch),
            _ => return,
        };
        let Ahead { tile, squares } = &mut self.ahead;
        // The rows below come next, or the first ones of the next columns. Part of what was asked for a tile before is no longer near:
        // either alone costs more (measured).
        let (row, column) = if rows.end < all { (rows.end, columns.start) } else { (0, columns.end) };
        for r in rows.len() * part / parts..rows.len() * (part + 1) / parts {
            add::ask(of, ((row + r) * pitch + column) as isize, columns.len());
        }
        if let Some(tile) = tile {
            let count = all.div_ceil(SQUARE) * width.div_ceil(SQUARE);
            for r in all * *squares / count..all * (*squares + 1) / count {
                add::ask(of, (r * pitch) as isize + *tile, width);
            }
        }
        *squares += 1;
    }

    fn change(&mut self, scores: &mut [f32], rows: Range<usize>, columns: Range<usize>) {
        dispatch(self.token, Piece { change: self, scores, rows, columns });
    }
}

/// The number that is added before the logistic function is taken, if that is all.
fn logistic_of(steps: &[Step]) -> Option<f32> {
    match *steps {
        [Step::Unary { op: UnaryOp::Sigmoid, d: 0 }] => Some(0.0),
        [
            Step::Binary { op: op @ (BinaryOp::Add | BinaryOp::Sub), d: 0, with: Operand::Const(x), reversed },
            Step::Unary { op: UnaryOp::Sigmoid, d: 0 },
        ] if op == BinaryOp::Add || !reversed => Some(if op == BinaryOp::Add { x } else { -x } as f32),
        _ => None,
    }
}

struct Piece<'p, 'a> {
    change: &'p mut Change<'a>,
    scores: &'p mut [f32],
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Work for Piece<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { change, scores, rows, columns } = self;
        let Change { times, by, added, plus, steps, sources, read, lengths: [all, _], rounded, scratch, .. } = change;
        let Scratch { registers, leaves, vectors, .. } = &mut **scratch;
        let pitch = scores.len() / rows.len();
        let mut times = *times;
        if *by != [None; 2] {
            let factors = scaled::factors(*by, sources, vectors, [rows.start, columns.start]);
            factors::run::<I>(scores, [columns.len(), pitch], times, factors);
            times = 1.0;
        }
        match *added {
            Some(added) => {
                let with = lies(sources, vectors, (added, *plus), *all, [rows.start, columns.start]);
                add::run::<I>(scores, [columns.len(), pitch], times, with);
            }
            None if let Some(plus) = logistic_of(steps)
                && *rounded
                && logistic::roughly::<I>(scores, times, plus) =>
            {
                return;
            }
            None if let Some((masks, other)) = masks(steps, sources)
                && I::FMA =>
            {
                if let [Mask::Bits(bits, flipped)] = *masks {
                    let bits = (bits.from(rows.start, columns.start), flipped);
                    truths::keep::<I>(None, (scores, pitch), [rows.len(), columns.len()], (times, other), bits, None);
                    return;
                }
                let mut words = [0; STRIP / truths::WORD];
                let words = &mut words[..truths::words(columns.len())];
                for (row, scores) in scores.chunks_exact_mut(pitch).enumerate() {
                    words.fill(u32::MAX);
                    masks.iter().for_each(|mask| mask.leave(rows.start + row, columns.start, words));
                    let (bits, lengths) = ((Bits { words, pitch: 0 }, false), [1, columns.len()]);
                    truths::keep::<I>(None, (scores, pitch), lengths, (times, other), bits, None);
                }
                return;
            }
            None if times != 1.0 => {
                for x in scores.iter_mut() {
                    *x *= times;
                }
            }
            None => {}
        }
        match steps.as_slice() {
            [] => return,
            // Exponentials of one part are rounded more than that.
            &[Step::ScaledTanh { d: 0, over, times }] if tanh::roughly::<I>(scores, over as f32, times as f32) => {
                return;
            }
            _ => {}
        }
        // Strips of whole rows; what needs no other strip takes all.
        let alone = steps.iter().all(|step| step.register() == 0) && !read.contains(&true);
        let together = if alone { rows.len() } else { 1 << (STRIP / pitch).ilog2() };
        for first in (0..rows.len()).step_by(together) {
            let height = together.min(rows.len() - first);
            let strip = &mut scores[first * pitch..][..height * pitch];
            for (number, source) in sources.iter().enumerate().filter(|(number, _)| read[*number]) {
                if matches!(source, Source::Same(_) | Source::InPlace) {
                    continue;
                }
                for (r, to) in leaves[number][..strip.len()].chunks_exact_mut(pitch).enumerate() {
                    let at = [rows.start + first + r, columns.start];
                    source.copy(&vectors[number], *all, at, &mut to[..columns.len()]);
                }
            }
            // The scores are where the first step would copy them to.
            let (own, rest) = match steps.split_first() {
                Some((&Step::Copy { d: 0, from: Operand::Leaf(leaf) }, rest)) => {
                    (matches!(sources[usize::from(leaf)], Source::InPlace), rest)
                }
                _ => (false, &[][..]),
            };
            let n = strip.len();
            let leaf = |number: u16| match &sources[usize::from(number)] {
                Source::Same(x) => Data::Same(*x),
                _ => Data::Each(&leaves[usize::from(number)][..n]),
            };
            strip::run::<f32, I>(if own { rest } else { steps }, strip, registers, leaf);
        }
    }
}
