//! Comparisons of integers, element by element, as they are: any other way they would be numbers of 64 bits first. Where maps and skips
//! are all that reads the result, it is bits, which stay in the first-level cache.

use super::arena::Buffer;
use super::place::{Place, Rows, pitch};
use super::worker::Worker;
use crate::compile::{self, Carrier, ElementKind, ExpressionPlan, Leaf};
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::strip::{self, Step};
use crate::kernels::truths::{self, Integers};
use einloom_cascade::BinaryOp;
use einloom_tile::{ValueId, coverage};

/// Integers of a tile's elements.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Full(Rows<'a, i32>),
    PerRow(&'a [i32]),
    PerColumn(&'a [i32]),
    Same(i32),
}

impl<'a> Operand<'a> {
    #[inline(always)]
    fn row(self, row: usize, columns: usize) -> Integers<'a> {
        match self {
            Self::Full(rows) => Integers::Each(&rows.data[row * rows.pitch..][..columns]),
            Self::PerRow(data) => Integers::Same(data[row]),
            Self::PerColumn(data) => Integers::Each(&data[..columns]),
            Self::Same(x) => Integers::Same(x),
        }
    }
}

/// Where truth values go.
enum To<'a> {
    /// 1 or 0, rows so far apart.
    Floats(&'a mut [f32], usize),
    /// As bits, rows of so many words.
    Bits(&'a mut [u32], usize),
}

/// `to = op(x, y)`.
struct Compare<'a> {
    op: BinaryOp,
    operands: [Operand<'a>; 2],
    to: To<'a>,
    lengths: [usize; 2],
}

impl Work for Compare<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { op, operands: [x, y], mut to, lengths: [rows, columns] } = self;
        let mut row_bits = vec![0; truths::words(columns)];
        for row in 0..rows {
            let (x, y) = (x.row(row, columns), y.row(row, columns));
            match &mut to {
                To::Bits(to, words) => truths::compare::<I>(op, x, y, columns, &mut to[row * *words..]),
                To::Floats(to, pitch) => {
                    truths::compare::<I>(op, x, y, columns, &mut row_bits);
                    truths::numbers(&row_bits, &mut to[row * *pitch..][..columns]);
                }
            }
        }
    }
}

impl Worker<'_> {
    /// Runs a map if it is a comparison of two tiles of integers, and no more; nothing is done if not.
    pub(super) fn compared(&mut self, dst: ValueId, plan: &ExpressionPlan, ends: &compile::Ends) -> bool {
        let strips = plan.variant(|p| coverage(p, &self.windows));
        let &[
            Step::Copy { d: 0, from: strip::Operand::Leaf(x) },
            Step::Binary { op, d: 0, with: strip::Operand::Leaf(y), reversed },
        ] = strips.steps.as_slice()
        else {
            return false;
        };
        let tile = self.job.plan.tiles[dst.at()];
        let plain = ends.is_empty() && !ends.dropped && ends.packed.is_none() && ends.passed.is_none();
        if !op.is_comparison() || !plain || tile.carrier != Carrier::F32 {
            return false;
        }
        let leaves = [x, y].map(|leaf| &strips.leaves[usize::from(leaf)]);
        let mut target = std::mem::take(&mut self.arena.slots[tile.slot]);
        let leaves = if reversed { [leaves[1], leaves[0]] } else { leaves };
        let done = self.compare(leaves, op, (dst, ends.bits), &mut target);
        self.arena.slots[tile.slot] = target;
        if done {
            self.places[dst.at()] = if ends.bits { Place::Bits } else { Place::Slot };
        }
        done
    }

    fn compare(&self, leaves: [&Leaf; 2], op: BinaryOp, (dst, bits): (ValueId, bool), target: &mut Buffer) -> bool {
        let (tiles, slot) = (self.tiles(), self.job.plan.tiles[dst.at()].slot);
        let (rows, columns) = tiles.lengths(dst);
        let integers = |leaf: &Leaf| match leaf {
            Leaf::Tile(v, kind) if tiles.tile(*v).carrier == Carrier::I32 && !tiles.is_in(*v, slot) => {
                let rows = tiles.rows::<i32>(*v);
                Some(match kind {
                    ElementKind::Full => Operand::Full(rows),
                    ElementKind::Outer => Operand::PerRow(rows.data),
                    ElementKind::Inner => Operand::PerColumn(rows.data),
                    ElementKind::Single => Operand::Same(*rows.data.first()?),
                })
            }
            _ => None,
        };
        let (Some(x), Some(y)) = (integers(leaves[0]), integers(leaves[1])) else { return false };
        let words = truths::words(columns);
        let to = if bits {
            To::Bits(target.get_mut(rows * words), words)
        } else {
            To::Floats(target.get_mut(rows * pitch(columns)), pitch(columns))
        };
        dispatch(self.job.token, Compare { op, operands: [x, y], to, lengths: [rows, columns] });
        true
    }
}
