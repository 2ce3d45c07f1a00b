//! Which maxima a kernel needs for the range of its numbers only.

use einloom_cascade::DType::{Bf16, F16, F32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::TileMonoid::{Max, Sum};
use einloom_tile::by_hand::{AttentionSizes, attention};
use einloom_tile::*;

/// Names of the reductions that are anchors.
fn names(program: &Program) -> Vec<&str> {
    let kernel = &program.kernels[0];
    anchors(kernel).into_iter().map(|v| kernel.value(v).name.as_str()).collect()
}

#[test]
fn the_maximum_of_attention_is_an_anchor() {
    let sizes = AttentionSizes { b: 1, h: 2, m: 64, n: 64, d: 16, e: 16 };
    for causal in [false, true] {
        for dtype in [F32, Bf16] {
            assert_eq!(names(&attention(sizes, [16, 16], causal, dtype).expect("well-formed")), ["mx"]);
        }
        // Weights would leave the range of f16.
        assert!(names(&attention(sizes, [16, 16], causal, F16).expect("well-formed")).is_empty());
    }
}

/// A stream over `X[m, n]` with a running maximum and a sum of exponentials below it, repaired by `repair` from the maximum
/// before and after; what is stored is `end` of both.
fn sums(repair: impl Fn(Scalar, Scalar) -> Scalar, end: impl Fn(Scalar, Scalar) -> Scalar) -> Program {
    let mut p = Builder::new("sums");
    let (x, y) = (p.input("X", &[64, 256], F32), p.output("Y", &[64], F32));
    p.kernel("sums", |g| {
        let (m, n) = (g.grid("m", 64, 16), g.stream_axis("n", 256, 32));
        let states = [carry("Top", [m], f64::NEG_INFINITY), carry("Z", [m], 0.0)];
        let [top, z] = g.stream(n, Predicate::always(), states, |g, [top, z]| {
            let x = g.load("x", x, [m, n]);
            let new = g.reduce_onto("top", Max, top, x, n);
            let p = g.map("p", (Scalar::from(x) - new).exp());
            let kept = g.map("kept", Scalar::from(z) * repair(top.into(), new.into()));
            [new, g.reduce_onto("z", Sum, kept, p, n)]
        });
        g.store(y, [m], end(top.into(), z.into()));
    });
    p.finish().expect("well-formed")
}

fn repaired(top: Scalar, new: Scalar) -> Scalar {
    (top - new).exp()
}

#[test]
fn what_is_stored_tells_whether_it_is_one() {
    let of = |end: fn(Scalar, Scalar) -> Scalar| names(&sums(repaired, end)).len();
    // The logarithm of a sum of exponentials has the anchor added back.
    assert_eq!(of(|top, z| top + z.log()), 1);
    assert_eq!(of(|top, z| (top + z.log()) * 2.0), 1);
    assert_eq!(of(|_, z| z.clone() / z), 1);
    assert_eq!(of(|_, z| z), 0);
    assert_eq!(of(|top, _| top), 0);
    assert_eq!(of(|top, z| top - z.log()), 0);
    assert_eq!(of(|top, z| top + Scalar::Unary(UnaryOp::Log2, Box::new(z))), 0);
    assert_eq!(of(|top, z| top + (z + 1.0).log()), 0);
}

#[test]
fn sums_that_are_repaired_in_another_way_need_their_maximum() {
    let end = |top: Scalar, z: Scalar| top + z.log();
    let with = |repair: fn(Scalar, Scalar) -> Scalar| names(&sums(repair, end)).len();
    assert_eq!(with(repaired), 1);
    assert_eq!(with(|_, _| Scalar::Const(1.0)), 0);
    assert_eq!(with(|top, new| ((top - new) * 0.5).exp()), 0);
    assert_eq!(with(|top, new| (new - top).exp()), 0);
    assert_eq!(with(|top, _| top.exp()), 0);
}

/// Rows have anchors of their own, so that a sum over rows depends on them, also if another one is divided by it.
#[test]
fn sums_over_rows_need_their_maxima() {
    for over_rows in [false, true] {
        let mut p = Builder::new("rows");
        let (x, v) = (p.input("X", &[64, 256], F32), p.input("V", &[64, 256], F32));
        let y = p.output("Y", if over_rows { &[] } else { &[64] }, F32);
        p.kernel("rows", |g| {
            let (m, n) = (g.whole("m", 64), g.stream_axis("n", 256, 32));
            let states = [carry("Top", [m], f64::NEG_INFINITY), carry("Z", [m], 0.0), carry("W", [m], 0.0)];
            let [_, z, w] = g.stream(n, Predicate::always(), states, |g, [top, z, w]| {
                let (x, v) = (g.load("x", x, [m, n]), g.load("v", v, [m, n]));
                let new = g.reduce_onto("top", Max, top, x, n);
                let by = g.map("by", (top - new).exp());
                let p = g.map("p", (x - new).exp());
                let weighted = g.map("weighted", p * v);
                let (z, w) = (g.map("z.kept", z * by), g.map("w.kept", w * by));
                [new, g.reduce_onto("z", Sum, z, p, n), g.reduce_onto("w", Sum, w, weighted, n)]
            });
            if over_rows {
                let (z, w) = (g.reduce("z.all", Sum, z, m), g.reduce("w.all", Sum, w, m));
                g.store(y, [0; 0], w / z);
            } else {
                g.store(y, [m], w / z);
            }
        });
        let program = p.finish().expect("well-formed");
        assert_eq!(names(&program).len(), usize::from(!over_rows), "{}", print(&program));
    }
}

/// The larger one of the anchor and another number may stand for both.
#[test]
fn another_number_may_be_chosen_after_the_stream() {
    let mut programs = vec![];
    for share in [1.0, 0.5] {
        let mut p = Builder::new("sink");
        let (x, s) = (p.input("X", &[64, 256], F32), p.input("S", &[64], F32));
        let y = p.output("Y", &[64], F32);
        p.kernel("sink", |g| {
            let (m, n) = (g.grid("m", 64, 16), g.stream_axis("n", 256, 32));
            let states = [carry("Top", [m], f64::NEG_INFINITY), carry("Z", [m], 0.0)];
            let [top, z] = g.stream(n, Predicate::always(), states, |g, [top, z]| {
                let x = g.load("x", x, [m, n]);
                let new = g.reduce_onto("top", Max, top, x, n);
                let by = g.map("by", (top - new).exp());
                let p = g.map("p", (x - new).exp());
                let kept = g.map("kept", z * by);
                [new, g.reduce_onto("z", Sum, kept, p, n)]
            });
            let sink = g.load("s", s, [m]);
            let all = g.map("all", Scalar::from(top).with(BinaryOp::Max, sink));
            let by = g.map("by", (top - all).exp());
            let of_sink = g.map("sink", ((sink - all) * share).exp());
            // The share of all but the sink.
            let mine = g.map("mine", z * by);
            g.store(y, [m], Scalar::from(mine) / (mine + of_sink));
        });
        programs.push(p.finish().expect("well-formed"));
    }
    assert_eq!(names(&programs[0]).len(), 1, "{}", print(&programs[0]));
    assert!(names(&programs[1]).is_empty(), "the sink's share depends on the maximum");
}

#[test]
fn a_guard_may_not_look_at_what_an_anchor_changes() {
    let guarded = |by_state: bool| {
        let mut program = sums(repaired, |top, z| top + z.log());
        let kernel = &mut program.kernels[0];
        let axis = AxisId(kernel.axes.iter().position(|a| a.name == "n").expect("declared") as u32);
        let Some(Op::Stream { guards, states, .. }) = kernel.body.iter_mut().find(|op| matches!(op, Op::Stream { .. }))
        else {
            panic!("a stream");
        };
        let atom = if by_state { CoordAtom::Tile(states[0].value) } else { CoordAtom::Axis(axis) };
        let places = vec![Coord { terms: vec![(1, atom)], offset: 0 }];
        let element = Extremes { of: TensorId(0), at: vec![], low: TensorId(0), high: TensorId(0), places };
        guards.push(Guard::Element(element));
        names(&program).len()
    };
    assert_eq!((guarded(false), guarded(true)), (1, 0));
}
