//! Comparisons of integers, element by element, as they are: any other way they would be numbers of 64 bits first.

use super::arena::Buffer;
use super::place::{Place, Rows, pitch};
use super::worker::Worker;
use crate::compile::{self, Carrier, ElementKind, ExpressionPlan, Leaf};
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::strip::{Operand, Step};
use einloom_cascade::BinaryOp;
use einloom_tile::{ValueId, coverage};

/// Integers of a tile's elements.
#[derive(Clone, Copy)]
enum Integers<'a> {
    Full(Rows<'a, i32>),
    PerRow(&'a [i32]),
    PerColumn(&'a [i32]),
    Same(i32),
}

/// Those of one row.
#[derive(Clone, Copy)]
enum Row<'a> {
    Each(&'a [i32]),
    Same(i32),
}

impl<'a> Integers<'a> {
    #[inline(always)]
    fn row(self, row: usize, columns: usize) -> Row<'a> {
        match self {
            Self::Full(rows) => Row::Each(&rows.data[row * rows.pitch..][..columns]),
            Self::PerRow(data) => Row::Same(data[row]),
            Self::PerColumn(data) => Row::Each(&data[..columns]),
            Self::Same(x) => Row::Same(x),
        }
    }
}

/// `to = op(x, y)`, 1 or 0, of rows that are a pitch apart.
struct Compare<'a> {
    op: BinaryOp,
    operands: [Integers<'a>; 2],
    to: &'a mut [f32],
    lengths: [usize; 3],
}

impl Work for Compare<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { op, operands: [x, y], to, lengths: [rows, columns, pitch] } = self;
        for row in 0..rows {
            let to = &mut to[row * pitch..][..columns];
            let [x, y] = [x, y].map(|of| of.row(row, columns));
            macro_rules! each {
                ($($which:ident => $is:tt),*) => {
                    match op {
                        $(BinaryOp::$which => match (x, y) {
                            (Row::Each(x), Row::Each(y)) => {
                                for ((to, x), y) in to.iter_mut().zip(x).zip(y) {
                                    *to = f32::from(u8::from(x $is y));
                                }
                            }
                            (Row::Each(x), Row::Same(y)) => {
                                for (to, x) in to.iter_mut().zip(x) {
                                    *to = f32::from(u8::from(*x $is y));
                                }
                            }
                            (Row::Same(x), Row::Each(y)) => {
                                for (to, y) in to.iter_mut().zip(y) {
                                    *to = f32::from(u8::from(x $is *y));
                                }
                            }
                            (Row::Same(x), Row::Same(y)) => to.fill(f32::from(u8::from(x $is y))),
                        },)*
                        _ => unreachable!("a comparison"),
                    }
                };
            }
            each!(Eq => ==, Ne => !=, Lt => <, Le => <=, Gt => >, Ge => >=);
        }
    }
}

impl Worker<'_> {
    /// Runs a map if it is a comparison of two tiles of integers, and no more; nothing is done if not.
    pub(super) fn compared(&mut self, dst: ValueId, plan: &ExpressionPlan, ends: &compile::Ends) -> bool {
        let strips = plan.variant(|p| coverage(p, &self.windows));
        let &[Step::Copy { d: 0, from: Operand::Leaf(x) }, Step::Binary { op, d: 0, with: Operand::Leaf(y), reversed }] =
            strips.steps.as_slice()
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
        let done = self.compare(if reversed { [leaves[1], leaves[0]] } else { leaves }, op, dst, &mut target);
        self.arena.slots[tile.slot] = target;
        if done {
            self.places[dst.at()] = Place::Slot;
        }
        done
    }

    fn compare(&self, leaves: [&Leaf; 2], op: BinaryOp, dst: ValueId, target: &mut Buffer) -> bool {
        let (tiles, slot) = (self.tiles(), self.job.plan.tiles[dst.at()].slot);
        let (rows, columns) = tiles.lengths(dst);
        let integers = |leaf: &Leaf| match leaf {
            Leaf::Tile(v, kind) if tiles.tile(*v).carrier == Carrier::I32 && !tiles.is_in(*v, slot) => {
                let rows = tiles.rows::<i32>(*v);
                Some(match kind {
                    ElementKind::Full => Integers::Full(rows),
                    ElementKind::Outer => Integers::PerRow(rows.data),
                    ElementKind::Inner => Integers::PerColumn(rows.data),
                    ElementKind::Single => Integers::Same(*rows.data.first()?),
                })
            }
            _ => None,
        };
        let (Some(x), Some(y)) = (integers(leaves[0]), integers(leaves[1])) else { return false };
        let lengths = [rows, columns, pitch(columns)];
        let to = target.get_mut(lengths[0] * lengths[2]);
        dispatch(self.job.token, Compare { op, operands: [x, y], to, lengths });
        true
    }
}
