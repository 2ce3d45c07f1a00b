//! Where sums go: over which axes they stay apart.
//!
//! A sum that is only summed up further need not be held: its terms may be added to what it goes into, in any order. What has to be there at once
//! for a program is then the last of such sums, whatever tiles the sum is written in.

use crate::gpu::uses::{each, reads};
use crate::nest::sides;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{AxisId, Init, Kernel, Op, Scalar, TileMonoid, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Who reads each value.
pub(super) struct Flow<'a> {
    kernel: &'a Kernel,
    depends: &'a [BTreeSet<AxisId>],
    readers: BTreeMap<ValueId, Vec<&'a Op>>,
    /// States that values become: before their streams and after each chunk.
    states: BTreeMap<ValueId, Vec<ValueId>>,
}

impl<'a> Flow<'a> {
    pub fn new(kernel: &'a Kernel, depends: &'a [BTreeSet<AxisId>]) -> Self {
        let mut out = Self { kernel, depends, readers: BTreeMap::new(), states: BTreeMap::new() };
        each(&kernel.body, &mut |op| match op {
            Op::Stream { states, .. } => {
                for s in states {
                    let init = if let Init::Value(v) = s.init { Some(v) } else { None };
                    [Some(s.next), init]
                        .into_iter()
                        .flatten()
                        .for_each(|v| out.states.entry(v).or_default().push(s.value));
                }
            }
            _ => reads(op).into_iter().for_each(|v| out.readers.entry(v).or_default().push(op)),
        });
        out
    }

    fn axes(&self, v: ValueId) -> BTreeSet<AxisId> {
        self.depends[v.at()].iter().copied().chain(sides(self.kernel, v)).collect()
    }

    /// The axes over which the sums stay apart that this one goes into: its own where anything but a sum reads it.
    ///
    /// Conditions for following a reader: it adds the value up, or makes something of it that is linear in it, so that the terms can be added
    /// to what it goes into instead; and that is over no more axes, as else terms would be computed more often.
    pub fn apart(&self, v: ValueId) -> BTreeSet<AxisId> {
        self.settled(v, &mut BTreeSet::new()).unwrap_or_else(|| self.axes(v))
    }

    /// `None` where the value was met already, so that it says nothing of its own.
    fn settled(&self, v: ValueId, met: &mut BTreeSet<ValueId>) -> Option<BTreeSet<AxisId>> {
        if !met.insert(v) {
            return None;
        }
        let own = self.axes(v);
        let mut into = self.states.get(&v).cloned().unwrap_or_default();
        for op in self.readers.get(&v).into_iter().flatten() {
            let within = |x: &ValueId| self.axes(*x).is_subset(&own);
            match op {
                Op::Map { dst, expr } if is_linear(expr, v) == Some(true) && within(dst) => into.push(*dst),
                Op::Reduce { dst, monoid: TileMonoid::Sum, .. } => into.push(*dst),
                Op::Mma { dst, a, b, .. } if *a != v && *b != v => into.push(*dst),
                Op::Mma { dst, a, b, acc } if a != b && *acc != Some(v) && within(if *a == v { b } else { a }) => {
                    into.push(*dst);
                }
                _ => return Some(own),
            }
        }
        let mut out = own;
        for next in into {
            if let Some(axes) = self.settled(next, met) {
                out.retain(|a| axes.contains(a));
            }
        }
        Some(out)
    }
}

/// Whether an expression is linear in a tile but for what is added; `None` if it is not, `Some(false)` if it does not read it. A rounding counts as linear, and so
/// does a choice that does not ask for the tile: both only make sums out of which others are made fewer.
fn is_linear(expr: &Scalar, v: ValueId) -> Option<bool> {
    match expr {
        Scalar::Tile(x) => Some(*x == v),
        Scalar::Const(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => Some(false),
        Scalar::Round(_, x) | Scalar::Unary(UnaryOp::Neg, x) => is_linear(x, v),
        Scalar::Unary(_, x) => (!is_linear(x, v)?).then_some(false),
        Scalar::Binary(op, x, y) => match (op, is_linear(x, v)?, is_linear(y, v)?) {
            (_, false, false) => Some(false),
            (BinaryOp::Add | BinaryOp::Sub, _, _) | (BinaryOp::Mul, true, false) | (BinaryOp::Mul, false, true) => {
                Some(true)
            }
            (BinaryOp::Div, true, false) => Some(true),
            _ => None,
        },
        Scalar::Select(c, x, y) => {
            let [c, x, y] = [is_linear(c, v)?, is_linear(x, v)?, is_linear(y, v)?];
            (!c).then_some(x || y)
        }
    }
}
