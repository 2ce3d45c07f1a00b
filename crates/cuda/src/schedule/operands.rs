//! Pass 3: which factor of a product is the left operand, and whether it is multiplied from the registers it is in.

use super::Fallback;
use super::facts::Facts;
use super::frame::{FrameId, Side};
use super::frames::Frames;
use super::product::{Instruction, Operand, Product};
use einloom_cascade::DType;
use einloom_tile::ValueId;
use std::collections::BTreeMap;

/// Orients every product in its frame.
pub(crate) fn orient(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &mut BTreeMap<ValueId, Product>,
    fallbacks: &mut Vec<Fallback>,
) {
    for (&dst, p) in products.iter_mut() {
        p.frame = frames.of.get(&dst).copied().unwrap_or(FrameId(0));
        let sides = &frames.frames[p.frame.0].sides;
        let on = |v: ValueId, side: Side| facts.axes(v).iter().any(|a| *a != p.sum && sides.get(a) == Some(&side));
        if on(p.right, Side::Down) || on(p.left, Side::Across) {
            swap(p);
        }
        let Instruction::TensorCore(operand) = p.instruction else { continue };
        if bytes_the_wrong_way_round(facts, p) {
            fallbacks.push(Fallback {
                op: format!("{} = mma", facts.name(dst)),
                reason: "one factor is summed over different axes by two products, and bytes cannot be transposed on \
                         their way out of shared memory"
                    .to_string(),
            });
            p.instruction = Instruction::Fma(super::facts::Carrier::I32);
            continue;
        }
        let here = frames.of.get(&p.left) == Some(&p.frame);
        let exact = matches!((operand, facts.dtype(p.left)), (Operand::Bf16, DType::Bf16) | (Operand::F16, DType::F16));
        p.left_in_registers = here && exact && sides.get(&p.sum) == Some(&Side::Across);
    }
}

fn swap(p: &mut Product) {
    std::mem::swap(&mut p.left, &mut p.right);
    if let Instruction::TensorCore(Operand::Bytes(signed)) = &mut p.instruction {
        signed.swap(0, 1);
    }
}

/// Operands of bytes lie in shared memory with the summed axis adjacent, which two products may want differently.
fn bytes_the_wrong_way_round(facts: &Facts<'_>, p: &Product) -> bool {
    let bytes = matches!(p.instruction, Instruction::TensorCore(Operand::Bytes(_)));
    bytes
        && [p.left, p.right].iter().any(|&v| {
            facts.uses[v.at()].iter().any(|u| match u {
                super::facts::Use::Factor(other) => {
                    let decl = facts.kernel.value(*other);
                    decl.rows == Some(p.sum) || decl.cols == Some(p.sum)
                }
                _ => false,
            })
        })
}
