//! Exponentials that are made again rather than kept. A row of them that is written, read back and divided takes as much of
//! the second-level cache as the row that comes next would, and more time than the exponentials: where quotients go straight
//! to memory they are made from registers to memory, while the next row is asked for. Measured (a Zen 5, two cores, 67 M
//! elements in rows of 131072 and 4096): 12.9 and 2.8 ms kept, 9.9 and 2.6 made again.
//!
//! Conditions: the quotient by a number per row, of nothing but an exponential of a tile in f32, is stored in f32, into a
//! tensor that is written past the caches, and rows are not so short that the first-level cache holds them several times.

use super::{ElementKind, Leaf, Step};
use crate::kernels::memory::LARGE;
use crate::kernels::strip;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{AxisId, Kernel, Op, Program, Scalar, ValueId};

/// Elements of a row from which on the exponentials are made again.
const LONG: usize = 2048;

/// Whether an exponential that was computed already is made again for the quotient `expr`, which `dst` is.
pub(super) fn is_made_again(program: &Program, kernel: &Kernel, dst: ValueId, expr: &Scalar) -> bool {
    let Scalar::Binary(BinaryOp::Div, of, over) = expr else { return false };
    let (Scalar::Unary(UnaryOp::Exp, _), Scalar::Tile(over)) = (&**of, &**over) else { return false };
    let sides = |v: ValueId| [kernel.value(v).rows, kernel.value(v).cols];
    let along: Vec<AxisId> = sides(dst).into_iter().filter(|a| !sides(*over).contains(a)).flatten().collect();
    matches!(*along, [axis] if kernel.axis(axis).tile >= LONG)
        && kernel.value(dst).dtype == DType::F32
        && is_stored(program, &kernel.body, dst)
        && is_f32(program, kernel, &kernel.body, of)
}

fn is_stored(program: &Program, ops: &[Op], v: ValueId) -> bool {
    ops.iter().any(|op| match op {
        Op::Store { tensor, src, .. } if *src == v => {
            let tensor = program.tensor(*tensor);
            tensor.dtype == DType::F32 && tensor.dims.iter().product::<usize>() * size_of::<f32>() >= LARGE
        }
        Op::Stream { body, .. } => is_stored(program, body, v),
        _ => false,
    })
}

/// Whether everything in it is in f32, in memory too.
fn is_f32(program: &Program, kernel: &Kernel, ops: &[Op], expr: &Scalar) -> bool {
    let is_other = |v: ValueId| {
        kernel.value(v).dtype != DType::F32
            || ops.iter().any(|op| match op {
                Op::Load { dst, tensor, .. } => *dst == v && program.tensor(*tensor).dtype != DType::F32,
                _ => false,
            })
    };
    !super::reuse::any(expr, &|e| matches!(e, Scalar::Tile(v) if is_other(*v)))
}

/// Leaves it to maps that wait for memory to ask for what is read next: what the exponentials before them are summed of is in
/// the caches, and more would not be.
pub(super) fn leave_asking(steps: &mut [Step]) {
    let quotients = |step: &Step| match step {
        Step::Map { plan, ends, .. } => {
            ends.store.is_some()
                && ends.dropped
                && plan.variants.iter().all(|strips| match *strips.steps.as_slice() {
                    [
                        strip::Step::Copy { d: 0, from: strip::Operand::Leaf(of) },
                        strip::Step::ScaledExp { d: 0, .. },
                        strip::Step::Binary { op: BinaryOp::Div, d: 0, .. },
                    ] => matches!(strips.leaves[usize::from(of)], Leaf::Tile(_, ElementKind::Full)),
                    _ => false,
                })
        }
        _ => false,
    };
    let Some(last) = steps.iter().rposition(quotients) else { return };
    for step in &mut steps[..last] {
        if let Step::Map { ends, .. } = step {
            ends.waits = ends.dropped && ends.store.is_none();
        }
    }
}
