//! Comparisons of integers, element by element, as they are: any other way they would be numbers of 64 bits first. Where maps and skips
//! are all that reads the result, it is bits, which stay in the first-level cache.

use super::arena::Buffer;
use super::place::{Place, pitch};
use super::worker::Worker;
use crate::compile::{self, Carrier, ElementKind, ExpressionPlan, Leaf};
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::strip::{self, Step};
use crate::kernels::truths::{self, Integers};
use einloom_cascade::BinaryOp;
use einloom_tile::{ValueId, coverage};

/// Where truth values go.
enum To<'a> {
    /// 1 or 0, rows so far apart.
    Floats(&'a mut [f32], usize),
    /// As bits.
    Bits(&'a mut [u32]),
}

/// `to = op(x, y)`.
struct Compare<'a> {
    op: BinaryOp,
    operands: [Integers<'a>; 2],
    to: To<'a>,
    lengths: [usize; 2],
}

impl Work for Compare<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { op, operands: [x, y], to, lengths: [rows, columns] } = self;
        match to {
            To::Bits(to) => truths::compare::<I>(op, x, y, [rows, columns], to),
            To::Floats(to, pitch) => {
                let words = truths::words(columns);
                let mut bits = vec![0; rows * words];
                truths::compare::<I>(op, x, y, [rows, columns], &mut bits);
                for (row, bits) in bits.chunks_exact(words.max(1)).enumerate() {
                    truths::numbers(bits, &mut to[row * pitch..][..columns]);
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
                let (of_row, of_column) = match kind {
                    ElementKind::Full => (rows.pitch, true),
                    ElementKind::Outer => (1, false),
                    ElementKind::Inner => (0, true),
                    ElementKind::Single => (0, false),
                };
                Some(Integers { data: rows.data, of_row, of_column })
            }
            _ => None,
        };
        let (Some(x), Some(y)) = (integers(leaves[0]), integers(leaves[1])) else { return false };
        let to = if bits {
            To::Bits(target.get_mut(rows * truths::words(columns)))
        } else {
            To::Floats(target.get_mut(rows * pitch(columns)), pitch(columns))
        };
        dispatch(self.job.token, Compare { op, operands: [x, y], to, lengths: [rows, columns] });
        true
    }
}
