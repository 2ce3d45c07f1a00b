//! Pass 1: with which instruction each product is computed.

use super::facts::{Carrier, Facts, each_op};
use super::{Fallback, FrameId};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Op, ValueId};
use std::collections::BTreeMap;

/// How a product is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The factor that has the result's down axis, if it has one.
    pub left: ValueId,
    /// The other factor.
    pub right: ValueId,
    /// The summed axis.
    pub sum: AxisId,
    /// The instruction.
    pub instruction: Instruction,
    /// Whether the left factor's registers are used as they are: accumulator fragments of the same frame.
    pub left_in_registers: bool,
    /// The frame of the result.
    pub frame: FrameId,
}

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// `mma.sync` on operands of this type.
    TensorCore(Operand),
    /// Multiply and add, one element at a time, in this type.
    Fma(Carrier),
}

/// The operand type of a tensor-core instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// m16n8k16, sums in f32.
    Bf16,
    /// m16n8k16, sums in f32.
    F16,
    /// m16n8k32 on bytes, sums in i32; whether left and right are signed.
    Bytes([bool; 2]),
}

impl Operand {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        if matches!(self, Self::Bytes(_)) { 1 } else { 2 }
    }

    /// Terms that one instruction sums.
    pub fn depth(self) -> usize {
        32 / self.bytes()
    }
}

/// The accumulator element `(i, j)` of a thread that is half `x` of register `r` of operand A for rows `16m..` and
/// terms `16k..`: see `accumulators_become_the_left_operand_without_moving`.
pub fn left_element(m: usize, k: usize, r: usize, x: usize) -> (usize, usize) {
    (2 * m + r % 2, 4 * k + 2 * (r / 2) + x)
}

/// The instruction of every product, by result; the reasons where it is not a tensor core's.
pub(crate) fn choose(facts: &Facts<'_>, fallbacks: &mut Vec<Fallback>) -> BTreeMap<ValueId, Product> {
    let mut out = BTreeMap::new();
    each_op(&facts.kernel.body, &mut |op| {
        let Op::Mma { dst, a, b, .. } = op else { return };
        let (decl, right) = (facts.kernel.value(*dst), facts.kernel.value(*b));
        let left = facts.kernel.value(*a);
        let of_result = |x: AxisId| decl.rows == Some(x) || decl.cols == Some(x);
        let shared = [left.rows, left.cols].into_iter().flatten();
        let Some(sum) = shared.into_iter().find(|&x| !of_result(x) && (right.rows == Some(x) || right.cols == Some(x)))
        else {
            return;
        };
        let instruction = match tensor_core(facts, *dst, *a, *b) {
            Ok(operand) => Instruction::TensorCore(operand),
            Err(reason) => {
                fallbacks.push(Fallback { op: format!("{} = mma", facts.name(*dst)), reason });
                Instruction::Fma(number(facts, *dst, *a, *b))
            }
        };
        let product = Product { left: *a, right: *b, sum, instruction, left_in_registers: false, frame: FrameId(0) };
        out.insert(*dst, product);
    });
    out
}

fn number(facts: &Facts<'_>, dst: ValueId, a: ValueId, b: ValueId) -> Carrier {
    if facts.dtype(a).is_integer() && facts.dtype(b).is_integer() {
        Carrier::I32
    } else if facts.dtype(dst) == DType::F64 {
        Carrier::F64
    } else {
        Carrier::F32
    }
}

/// The operand type, or why there is none.
fn tensor_core(facts: &Facts<'_>, dst: ValueId, a: ValueId, b: ValueId) -> Result<Operand, String> {
    let types = [facts.dtype(a), facts.dtype(b)];
    if facts.axes(dst).len() < 2 {
        return Err("the result has fewer than two axes, so that a fragment would be mostly empty".to_string());
    }
    if facts.axes(a).len() < 2 || facts.axes(b).len() < 2 {
        return Err("a factor has fewer than two axes".to_string());
    }
    if facts.dtype(dst) == DType::F64 {
        return Err("sums in f64".to_string());
    }
    let operand = operand(types)
        .ok_or_else(|| format!("no tensor-core operands hold {} and {} without rounding them", types[0], types[1]))?;
    match operand {
        Operand::Bytes(_) if facts.dtype(dst) != DType::I32 => {
            Err(format!("integer products are summed in i32, the result is {}", facts.dtype(dst)))
        }
        _ => Ok(operand),
    }
}

/// The narrowest operand type in which both are exact.
fn operand(types: [DType; 2]) -> Option<Operand> {
    use DType::{Bf16, E4m3, E5m2, F16, I4, I8, U4, U8};
    match types {
        [Bf16, Bf16] => Some(Operand::Bf16),
        [F16 | E4m3 | E5m2, F16 | E4m3 | E5m2] => Some(Operand::F16),
        [I8 | I4 | U8 | U4, I8 | I4 | U8 | U4] => Some(Operand::Bytes(types.map(|t| matches!(t, I8 | I4)))),
        _ => None,
    }
}
