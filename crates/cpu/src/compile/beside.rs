//! Exponentials less an anchor of which any number will do ([`einloom_tile::anchors`]), which is the largest of what they are taken of:
//! they end before products with them become subnormal, which takes a processor hundreds of cycles each.

use super::{Leaf, Step};
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
                            && let Leaf::Tile(v, _) = leaves[usize::from(*number)]
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

#[cfg(test)]
mod tests {
    use crate::compile::{Step, compile, each_step};
    use crate::kernels::strip::{self, LEAST_BESIDE, LEAST_NORMAL};
    use einloom_cascade::DType::F32;
    use einloom_tile::by_hand::{AttentionSizes, attention};
    use einloom_tile::{Builder, Program};

    /// Where a program's exponentials end.
    fn ends(program: &Program) -> Vec<f32> {
        let plan = compile(program, &program.kernels[0], None).expect("planned");
        let mut found = vec![];
        each_step(&plan.body, &mut |step| {
            let Step::Map { plan, .. } = step else { return };
            for step in plan.variants.iter().flat_map(|strips| &strips.steps) {
                if let strip::Step::ScaledExp { least, .. } = step {
                    found.push(*least);
                }
            }
        });
        found
    }

    #[test]
    fn exponentials_below_an_anchor_end_sooner_than_others() {
        let sizes = AttentionSizes { b: 1, h: 1, m: 64, n: 128, d: 16, e: 16 };
        let anchored = ends(&attention(sizes, [32, 64], false, F32).expect("well-formed"));
        assert_eq!(anchored, [LEAST_BESIDE; 2]);
        // One that is given may not be the largest.
        let mut p = Builder::new("given");
        let (x, top, y) = (p.input("X", &[64, 64], F32), p.input("top", &[64], F32), p.output("Y", &[64, 64], F32));
        p.kernel("given", |g| {
            let (i, j) = (g.grid("m", 64, 32), g.whole("n", 64));
            let (x, top) = (g.load("x", x, [i, j]), g.load("top", top, [i]));
            g.store(y, [i, j], (x - top).exp());
        });
        assert_eq!(ends(&p.finish().expect("well-formed")), [LEAST_NORMAL]);
    }
}
