//! Which maxima a kernel needs for the range of its numbers only.

use einloom_cascade::DType::{Bf16, F16, F32};
use einloom_cascade::UnaryOp;
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
