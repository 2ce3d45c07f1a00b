//! Operands that stay: the left operand of a product in a stream, if it is the same for all chunks, is read from shared
//! memory once and kept in registers, where there are registers to spare.

use super::facts::{Facts, written};
use super::frame::Side;
use super::frames::Frames;
use super::product::{Instruction, Product};
use super::target::Target;
use super::{Home, Span};
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// What the pass has to know of the schedule so far.
pub(super) struct Budget<'a> {
    pub target: &'a Target,
    pub warps: usize,
    /// Estimated registers per thread.
    pub registers: usize,
    pub shared_bytes: usize,
}

impl Budget<'_> {
    /// Blocks on a multiprocessor, as far as registers (64 Ki of them, CUDA C++ Programming Guide, "Compute Capabilities")
    /// and shared memory allow.
    pub fn blocks(&self, registers: usize) -> usize {
        let by_registers = (64 << 10) / (32 * self.warps * registers.max(1));
        by_registers.min(self.target.shared_bytes / self.shared_bytes.max(1))
    }
}

/// The products whose left operand stays in registers, and the registers that these take.
pub(super) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    homes: &[Home],
    products: &BTreeMap<ValueId, Product>,
    budget: &Budget<'_>,
) -> (BTreeSet<ValueId>, usize) {
    let (mut out, mut taken) = (BTreeSet::new(), 0);
    block(&facts.kernel.body, &mut |body| {
        for op in body {
            let Some((dst, p)) = written(op).and_then(|dst| Some((dst, products.get(&dst)?))) else { continue };
            let Instruction::TensorCore(operand) = p.instruction else { continue };
            let readers = products.values().filter(|o| o.left == p.left || o.right == p.left).count();
            let made_here = body.iter().any(|op| written(op) == Some(p.left));
            if p.left_in_registers || made_here || readers > 1 || homes[p.left.at()].shared.is_none() {
                continue;
            }
            let rows = span(facts, frames, dst, p).count / 2;
            let more = 4 * rows * facts.size(p.sum).div_ceil(operand.depth());
            let after = budget.registers + taken + more;
            if after <= budget.target.registers && budget.blocks(after) >= budget.blocks(budget.registers + taken) {
                out.insert(dst);
                taken += more;
            }
        }
    });
    (out, taken)
}

/// The rows of the result that a thread holds.
fn span(facts: &Facts<'_>, frames: &Frames, dst: ValueId, p: &Product) -> Span {
    let frame = &frames.frames[p.frame.0];
    let down = facts.axes(dst).into_iter().find(|a| frame.sides.get(a) == Some(&Side::Down));
    frame.span(Side::Down, down.map_or(1, |a| facts.size(a)))
}

/// Calls `f` with the body of every stream that has no stream inside.
fn block(ops: &[Op], f: &mut dyn FnMut(&[Op])) {
    for op in ops {
        if let Op::Stream { body, .. } = op {
            if body.iter().any(|op| matches!(op, Op::Stream { .. })) {
                block(body, f);
            } else {
                f(body);
            }
        }
    }
}
