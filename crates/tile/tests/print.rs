//! What pseudocode looks like beyond the two worked examples.

use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::*;

/// The lines of the kernel's body; it reads X[64, 100], I[100] and writes nothing.
fn check(body: impl FnOnce(&mut KernelBuilder, TensorId, TensorId), expected: &str) {
    let mut p = Builder::new("p");
    let (x, ids) = (p.input("X", &[64, 100], DType::F32), p.input("I", &[100], DType::I32));
    p.kernel("k", |k| body(k, x, ids));
    let program = p.finish().expect("well-formed");
    let text = print_kernel(&program, &program.kernels[0]);
    let lines: Vec<&str> = text.lines().skip(1).map(|l| l.strip_prefix("  ").unwrap_or(l)).collect();
    assert_eq!(lines.join("\n"), expected);
}

/// One predicate over m and n.
fn predicate(build: impl FnOnce(AxisId, AxisId) -> Predicate, expected: &str) {
    check(
        |k, _, _| {
            let (m, n) = (k.whole("m", 64), k.whole("n", 100));
            k.map_over("t", &[m, n], build(m, n));
        },
        &format!("t{}: b1 = {expected}", if expected.contains('m') && expected.contains('n') { "" } else { "[m, n]" }),
    );
}

#[test]
fn predicates() {
    predicate(|m, n| n.at_most(m), "n <= m");
    predicate(|m, n| n.less_than(m), "n < m");
    predicate(|m, n| n.at_most(m).and(m.less_than(n + 8)), "n <= m and m <= n + 7");
    predicate(|m, n| (n * 2 + 3).at_most(m), "2*n + 3 <= m");
    predicate(|m, _| m.at_least(5), "m >= 5");
    predicate(|m, _| m.less_than(5), "m <= 4");
    predicate(|m, n| (m + n).at_most(9), "m + n <= 9");
    predicate(|_, _| Predicate::always(), "true");
}

#[test]
fn coordinates() {
    check(
        |k, x, ids| {
            let (b, r) = (k.grid("b", 64, 1), k.whole("r", 3));
            let (c, i) = (k.whole("c", 100), k.grid("i", 90, 8));
            k.load("row", x, [b, c]);
            k.load("part", x, [Coord::from(b).div_floor(2), Coord::from(i + r - 1 + 1)]);
            k.load_or("pair", x, [Coord::from(b * 2).div_floor(2), Coord::from(i - 1)], f64::NEG_INFINITY);
            let at = k.load("at", ids, [i]);
            k.load("chosen", x, [Coord::from(b), Coord::gather(at)]);
            k.load("both", x, [Coord::from(r).div_floor(2) + Coord::from(1), Coord::from(7)]);
        },
        "row = load X[b, :]
part = load X[b / 2, i:8 + r:3]
pair = load X[(2*b) / 2, i:8 - 1] else -inf
at = load I[i:8]
chosen = load X[b, at]
both = load X[r:3 / 2 + 1, 7]",
    );
}

#[test]
fn expressions_keep_their_meaning_with_few_brackets() {
    check(
        |k, x, _| {
            let (m, n) = (k.whole("m", 64), k.whole("n", 100));
            let a = k.load("a", x, [m, n]);
            let b = k.load("b", x, [m, n]);
            k.map("c", (a + b) * 2.0 - (a - (b - 1.0)) / (b * a));
            k.map("d", -(a * b) + (-2.0) * a);
            k.map("e", (-a).with(BinaryOp::Pow, b.with(BinaryOp::Pow, 2.0)));
            k.map("f", (a.with(BinaryOp::Lt, b)).with(BinaryOp::And, b.apply(UnaryOp::Not)));
            k.map("g", select(n.at_most(m), a.max(b).round_to(DType::Bf16), f64::INFINITY));
            k.map("h", a.with(BinaryOp::Or, b).with(BinaryOp::And, a));
            k.map("i", (a * 0.1).exp().round_to(DType::E4m3));
            k.map("j", 1e300 - a);
        },
        "a = load X[:, :]
b = load X[:, :]
c = (a + b) * 2 - (a - (b - 1)) / (b * a)
d = -(a * b) + -2 * a
e = (-a) ^ b ^ 2
f: b1 = a < b and not b
g = where(n <= m, bf16(max(a, b)), inf)
h: b1 = (a or b) and a
i: e4m3 = exp(a * 0.1)
j = 1e300 - a",
    );
}

#[test]
fn reductions_products_and_skips() {
    let product = TileMonoid::Custom {
        name: "plus".into(),
        combine: Box::new(Scalar::Argument(0) + Scalar::Argument(1)),
        identity: 0.0,
    };
    check(
        |k, x, _| {
            let (m, n) = (k.grid("m", 64, 16), k.stream_axis("n", 100, 10));
            let [s] = k.stream(n, Predicate::always(), [carry("S", [m], 1.0)], |k, [s]| {
                let t = k.load("t", x, [m, n]);
                let some = k.map("some", t.with(BinaryOp::Gt, 0.0));
                k.skip_unless(some);
                let p = k.reduce_onto("s", TileMonoid::Prod, s, t, n);
                let q = k.reduce_onto("s", TileMonoid::Min, p, t, n);
                [k.reduce_onto("s", product, q, t, n)]
            });
            let d = k.whole("d", 100);
            let q = k.load("q", x, [m, d]);
            k.stream(n, n.less_than(50), [carry_from("A", s)], |k, [a]| {
                let w = k.load("w", x, [n.div_floor(2), Coord::from(d)]);
                let p = k.mma("p", w, q);
                let b = k.map("b", p + a);
                [k.reduce("a", TileMonoid::Max, b, n)]
            });
        },
        "S = 1
stream n by 10
  t = load X[m:16, n:10]
  some: b1 = t > 0
  skip unless any some
  s = S * prod(n) t
  s.2 = min(s, min(n) t)
  s.3 = plus(s.2, plus(n) t)
  S = s.3
q = load X[m:16, :]
A = S
stream n by 10 while n <= 49
  w = load X[n:10 / 2, :]
  p = mma w · qᵀ
  b = p + A
  a = max(n) b
  A = a",
    );
}

#[test]
fn picks() {
    check(
        |k, x, ids| {
            let (m, n, j) = (k.whole("m", 64), k.whole("n", 100), k.whole("j", 100));
            let x = k.load("x", x, [m, n]);
            let at = k.load("at", ids, [j]);
            k.pick("left", &[m, n], x, n, n - 1, 0.0);
            k.pick("renamed", &[m, j], x, n, j, f64::NEG_INFINITY);
            k.pick("first", &[m], x, n, 0, 0.0);
            k.pick("chosen", &[m, j], x, n, Coord::gather(at) + Coord::from(2), 0.5);
            k.pick("half", &[m, j], x, n, Coord::from(j).div_floor(2), 0.0);
            let count = k.map("count", Scalar::from(x).round_to(DType::I32));
            k.pick("other", &[m, n], count, m, m + n, 0.0);
        },
        "x = load X[:, :]
at = load I[:]
left = pick x[n = n:100 - 1] else 0
renamed = pick x[n = j:100] else -inf
first = pick x[n = 0] else 0
chosen = pick x[n = at + 2] else 0.5
half = pick x[n = j:100 / 2] else 0
count: i32 = x
other = pick count[m = m:64 + n:100] else 0",
    );
}
