//! Exponentials less an anchor of which any number will do ([`einloom_tile::anchors`]), which is the largest of what they are taken of:
//! they end before products with them become subnormal, which takes a processor hundreds of cycles each.

use super::{ElementKind, Leaf, Step};
use crate::kernels::strip::{self, LEAST_BESIDE, Operand};
use einloom_tile::{Op, Scalar, ValueId};
use std::collections::BTreeSet;

/// Adds to the anchors what is one of them where it is finite, or whatever a condition says, and a constant elsewhere.
pub(super) fn chosen(body: &[Op], anchors: &mut BTreeSet<ValueId>) {
    for op in body {
        match op {
            Op::Stream { body, .. } => chosen(body, anchors),
            Op::Map { dst, expr: Scalar::Select(_, a, b) } => {
                if let (Scalar::Tile(v), Scalar::Const(_)) = (&**a, &**b)
                    && anchors.contains(v)
                {
                    anchors.insert(*dst);
                }
            }
            _ => {}
        }
    }
}

/// Lets the exponentials below these anchors end there.
pub(super) fn end(steps: &mut [Step], anchors: &BTreeSet<ValueId>) {
    for step in steps {
        match step {
            Step::Stream { body, .. } => end(body, anchors),
            Step::Map { plan, .. } => {
                for strips in &mut plan.variants {
                    let leaves = &strips.leaves;
                    for step in &mut strips.steps {
                        if let strip::Step::ScaledExp { less: Operand::Leaf(number), least, .. } = step
                            && let Leaf::Tile(v, ElementKind::Outer | ElementKind::Inner) = leaves[usize::from(*number)]
                            && anchors.contains(&v)
                        {
                            *least = LEAST_BESIDE;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
