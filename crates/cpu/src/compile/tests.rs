//! What plans promise about speed: no tile is rearranged or moved per chunk that need not be.

use super::simplify::{simplify, specialise};
use super::{Plan, Step, compile, each_step};
use einloom_cascade::DType::{Bf16, F32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Coverage, Predicate, Program, Scalar, ValueId};

fn plan(program: &Program) -> Plan {
    compile(program, &program.kernels[0]).expect("planned")
}

/// Tiles rearranged by the kernel's own body, and by the streams in it.
fn relayouts(plan: &Plan) -> [usize; 2] {
    let is = |step: &Step| usize::from(matches!(step, Step::Relayout { .. }));
    let own: usize = plan.body.iter().map(is).sum();
    let mut all = 0;
    each_step(&plan.body, &mut |step| all += is(step));
    [own, all - own]
}

/// Whether each state of the first stream is updated where it stands.
fn in_place(plan: &Plan) -> Vec<(&str, bool)> {
    let slot = |v: ValueId| plan.tiles[v.at()].slot;
    let states = plan.body.iter().find_map(|s| if let Step::Stream { states, .. } = s { Some(states) } else { None });
    let name = |v: ValueId| plan.kernel.value(v).name.as_str();
    states.into_iter().flatten().map(|s| (name(s.value), slot(s.value) == slot(s.next))).collect()
}

const SIZES: AttentionSizes = AttentionSizes { b: 1, h: 2, m: 512, n: 512, d: 64, e: 64 };

#[test]
fn attention_rearranges_its_queries_once_and_nothing_per_chunk() {
    for dtype in [F32, Bf16] {
        let plan = plan(&attention(SIZES, [64, 128], false, dtype).expect("well-formed"));
        assert_eq!(relayouts(&plan), [1, 0]);
        // The old maximum is still needed when the new one is known.
        assert_eq!(in_place(&plan), [("Mx", false), ("Z", true), ("O", true)]);
    }
}

#[test]
fn matmul_accumulates_in_place_on_tiles_as_they_lie() {
    let plan = plan(&matmul([512, 512, 512], [128, 128, 128], F32).expect("well-formed"));
    assert_eq!((relayouts(&plan), in_place(&plan)), ([0, 0], vec![("acc", true)]));
}

#[test]
fn masks_have_a_program_per_coverage_and_full_tiles_do_not_test() {
    let plan = plan(&attention(SIZES, [64, 128], true, F32).expect("well-formed"));
    let mut steps = vec![];
    each_step(&plan.body, &mut |step| {
        if let Step::Map { plan, .. } = step
            && plan.variants.len() == 3
        {
            steps.push(plan.variants.iter().map(|v| v.steps.len()).collect::<Vec<_>>());
        }
    });
    // Full: copy, multiply. Partial: select besides. Empty: fill.
    assert_eq!(steps, [[2, 3, 1]]);
}

fn tile() -> Scalar {
    Scalar::Tile(ValueId(0))
}

fn binary(op: BinaryOp, x: Scalar, y: Scalar) -> Scalar {
    Scalar::Binary(op, Box::new(x), Box::new(y))
}

#[test]
fn only_what_is_exact_is_folded() {
    use BinaryOp::{Add, Div, Mul, Pow};
    let constant = Scalar::Const;
    for (from, to) in [
        (binary(Add, constant(2.0), constant(3.0)), constant(5.0)),
        (binary(Div, tile(), constant(8.0)), binary(Mul, tile(), constant(0.125))),
        (binary(Div, tile(), constant(3.0)), binary(Div, tile(), constant(3.0))),
        (binary(Mul, constant(1.0), tile()), tile()),
        // 0 times infinity is not 0, and -0 + 0 is not -0.
        (binary(Mul, tile(), constant(0.0)), binary(Mul, tile(), constant(0.0))),
        (binary(Add, tile(), constant(0.0)), binary(Add, tile(), constant(0.0))),
        (binary(Pow, tile(), constant(2.0)), binary(Mul, tile(), tile())),
        (Scalar::Round(F32, Box::new(tile())), tile()),
        (Scalar::Round(Bf16, Box::new(tile())), Scalar::Round(Bf16, Box::new(tile()))),
        (Scalar::Unary(UnaryOp::Sqrt, Box::new(constant(9.0))), constant(3.0)),
    ] {
        assert_eq!(simplify(&from, false), to, "{from:?}");
    }
}

#[test]
fn coverage_leaves_one_branch() {
    let within = Predicate { all: vec![Default::default()] };
    let masked = Scalar::Select(Box::new(Scalar::Within(within)), Box::new(tile()), Box::new(Scalar::Const(0.0)));
    for (coverage, left) in
        [(Coverage::Full, tile()), (Coverage::Empty, Scalar::Const(0.0)), (Coverage::Partial, masked.clone())]
    {
        assert_eq!(specialise(&masked, false, &|_| Some(coverage)), left);
    }
}
