//! Small programs that together use everything that a tile program can say, and inputs for them.
// Each user needs a part; where the compiler is comes from the environment, and what is skipped is said.
#![allow(dead_code, clippy::disallowed_methods, clippy::disallowed_macros)]

mod guarded;
pub mod interpret;
mod picks;
mod rows;

use einloom_cascade::numeric::{decode, encode};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_cuda::runtime::{Compiler, Search};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{
    Affine, AxisId, Builder, Coord, Defect, Predicate, Program, Scalar, TensorRole,
    TileMonoid::{Custom, Max, Min, Prod, Sum},
    carry, carry_from, select,
};

/// NVRTC, if it is found; says why otherwise.
pub fn compiler() -> Option<Compiler> {
    let variable = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let search = Search {
        directories: variable("EINLOOM_NVRTC").into_iter().collect(),
        cuda_path: variable("CUDA_PATH"),
        python_environment: variable("VIRTUAL_ENV"),
    };
    Compiler::open(&search).map_err(|e| eprintln!("not compiled: {e}")).ok()
}

/// A named program with the largest absolute value of its floating-point inputs.
pub struct Case {
    pub name: String,
    pub program: Program,
    pub scale: f64,
}

/// Deterministic inputs: floats within `±scale`; integers from 0 to 2, which every index of the programs can take.
pub fn inputs(case: &Case) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64 (G. Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let tensors = case.program.tensors.iter().filter(|t| t.role == TensorRole::Input);
    tensors
        .map(|t| {
            let n: usize = t.dims.iter().product();
            let small = |x: f64| (x * 3.0).floor();
            let signed = matches!(t.dtype, DType::I8 | DType::I4 | DType::I16);
            let one = |x: f64| match t.dtype {
                DType::B1 => f64::from(x > 0.9),
                d if d.is_integer() && !signed => small(x),
                d if d.is_integer() => (x * 15.0).floor() - 7.0,
                _ => (2.0 * x - 1.0) * case.scale,
            };
            encode(t.dtype, &(0..n).map(|_| one(next())).collect::<Vec<_>>())
        })
        .collect()
}

/// The inputs as numbers.
pub fn numbers(case: &Case, inputs: &[Vec<u8>]) -> Vec<Vec<f64>> {
    let tensors = case.program.tensors.iter().filter(|t| t.role == TensorRole::Input);
    let decoded = tensors.zip(inputs).map(|(t, bytes)| {
        let mut values = vec![];
        decode(t.dtype, bytes, &mut values);
        values
    });
    decoded.collect()
}

/// What the program gives for these inputs, in f64 between roundings, one per output.
pub fn expected(case: &Case, inputs: &[Vec<u8>]) -> Vec<Vec<f64>> {
    interpret::interpret(&case.program, &numbers(case, inputs))
}

/// The largest error of an output, as a multiple of what its number type allows.
pub fn worst(dtype: DType, expected: &[f64], bytes: &[u8]) -> f64 {
    let mut given = vec![];
    decode(dtype, bytes, &mut given);
    let one = |(e, g): (&f64, &f64)| {
        if e == g || e.is_nan() && g.is_nan() {
            0.0
        } else {
            let error = (e - g).abs() / (interpret::tolerance(dtype) * e.abs().max(1.0));
            if error.is_nan() { f64::INFINITY } else { error }
        }
    };
    assert_eq!(expected.len(), given.len());
    expected.iter().zip(&given).map(one).fold(0.0, f64::max)
}

/// A program that must be well-formed, with inputs of at most 1.
pub fn case(name: impl Into<String>, program: Result<Program, Vec<Defect>>) -> Case {
    let name = name.into();
    let program = program.unwrap_or_else(|d| panic!("{name}: {d:?}"));
    Case { name, program, scale: 1.0 }
}

/// Products and attention by hand at sizes that divide and sizes that do not.
pub fn worked_examples() -> Vec<Case> {
    use DType::{Bf16, E4m3, F16, F32, F64, I8, I32, U8};
    let mut out = vec![];
    for dtype in [Bf16, F16, F32, F64, I8, U8, I32, E4m3] {
        for (size, tile) in [([64, 64, 64], [64, 64, 32]), ([100, 72, 52], [64, 64, 32]), ([1, 7, 3], [64, 64, 64])] {
            out.push(case(format!("matmul {dtype} {size:?}"), matmul(size, tile, dtype)));
        }
    }
    out.push(case("matmul bf16 two warps across", matmul([130, 136, 40], [128, 128, 16], Bf16)));
    out.push(case("matmul bf16 large tiles", matmul([130, 257, 200], [128, 256, 64], Bf16)));
    for (d, causal) in [(64, true), (128, false), (256, true)] {
        let sizes = AttentionSizes { b: 1, h: 1, m: 130, n: 200, d, e: d };
        out.push(case(format!("attention bf16 d {d} large tiles"), attention(sizes, [128, 64], causal, Bf16)));
    }
    out.extend(rows::rows());
    for dtype in [Bf16, F16, F32] {
        for causal in [false, true] {
            for (m, n, d, e) in [(64, 64, 32, 32), (70, 45, 16, 24), (1, 33, 8, 8)] {
                let sizes = AttentionSizes { b: 1, h: 2, m, n, d, e };
                let name = format!("attention {dtype} m {m} n {n} d {d} e {e} causal {causal}");
                out.push(case(name, attention(sizes, [64, 32], causal, dtype)));
            }
        }
    }
    out
}

/// One program per feature.
pub fn features() -> Vec<Case> {
    let mut out = vec![];
    for dtype in [DType::F32, DType::F64, DType::Bf16] {
        out.push(case(format!("unary {dtype}"), unary(dtype)));
    }
    for dtype in [DType::F32, DType::F64, DType::I32] {
        out.push(case(format!("binary {dtype}"), binary(dtype)));
    }
    for from in DType::ALL {
        out.push(case(format!("from {from}"), conversions(from)));
    }
    for axis in [0, 1] {
        for (rows, cols) in [(8, 300), (70, 5), (1, 1000), (33, 64)] {
            out.push(case(format!("reductions {rows}x{cols} along {axis}"), reductions(rows, cols, axis)));
        }
    }
    out.push(case("softmax", softmax(37, 200)));
    out.push(case("argmin", argmin()));
    out.push(case("gather", gather()));
    out.push(case("gathered rows multiplied", gathered_rows()));
    out.push(case("floor coordinates", floor_coordinates()));
    out.push(case("window filled", window_filled()));
    out.push(case("skip", skip()));
    out.push(case("band", band()));
    out.push(case("nested streams", nested()));
    out.push(case("two streams over one axis", twice()));
    out.push(case("state multiplied", linear_attention()));
    out.push(case("state without axes", moving_average()));
    out.push(case("transposed", transposed()));
    out.push(case("two sums of products", two_sums()));
    out.push(case("temporary", temporary()));
    out.push(case("computed again", computed_again()));
    out.push(case("vectors", vectors()));
    out.push(case("empty", empty()));
    out.push(case("mixed factors", mixed()));
    out.push(case("keys normalised", keys_normalised()));
    out.extend(guarded::guarded());
    out.extend(picks::picks());
    out
}

fn unary(dtype: DType) -> Result<Program, Vec<Defect>> {
    use UnaryOp::{Abs, Log, Log1p, Log2, Neg, Not, Rsqrt, Sqrt};
    let mut p = Builder::new("unary");
    let x = p.input("X", &[20, 33], dtype);
    let ops: Vec<UnaryOp> = UnaryOp::NAMED.into_iter().chain([Neg, Not]).collect();
    let outs: Vec<_> = ops.iter().map(|op| p.output(format!("Y{}", op.name()), &[20, 33], dtype)).collect();
    p.kernel("unary", |g| {
        let (m, n) = (g.grid("m", 20, 8), g.whole("n", 33));
        let x = g.load("x", x, [m, n]);
        for (&op, &y) in ops.iter().zip(&outs) {
            let positive = matches!(op, Log | Log2 | Log1p | Sqrt | Rsqrt);
            let inside = if positive { x.apply(Abs) + 0.125 } else { x.into() };
            g.store(y, [m, n], inside.apply(op).round_to(dtype));
        }
    });
    p.finish()
}

fn binary(dtype: DType) -> Result<Program, Vec<Defect>> {
    use BinaryOp::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Pow, Sub};
    let mut p = Builder::new("binary");
    let (a, b) = (p.input("A", &[20, 40], dtype), p.input("B", &[20, 40], dtype));
    let ops = [Add, Sub, Mul, Div, Pow, Min, Max, Lt, Le, Gt, Ge, Eq, Ne, And, Or];
    let outs: Vec<_> = (0..ops.len()).map(|k| p.output(format!("Y{k}"), &[20, 40], dtype)).collect();
    p.kernel("binary", |g| {
        let (m, n) = (g.grid("m", 20, 8), g.whole("n", 40));
        let (a, b) = (g.load("a", a, [m, n]), g.load("b", b, [m, n]));
        for (op, &y) in ops.iter().zip(&outs) {
            let left: Scalar = if *op == Pow { a.apply(UnaryOp::Abs) } else { a.into() };
            g.store(y, [m, n], left.with(*op, b).round_to(dtype));
        }
    });
    p.finish()
}

fn conversions(from: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("conversions");
    let x = p.input("X", &[9, 64], from);
    let outs: Vec<_> = DType::ALL.iter().map(|d| (*d, p.output(format!("to_{d}"), &[9, 64], *d))).collect();
    p.kernel("conversions", |g| {
        let (m, n) = (g.grid("m", 9, 4), g.whole("n", 64));
        let x = g.load("x", x, [m, n]);
        for (d, y) in &outs {
            g.store(*y, [m, n], (x * 1.5).round_to(*d));
        }
    });
    p.finish()
}

fn reductions(rows: usize, cols: usize, along: usize) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("reductions");
    let x = p.input("X", &[rows, cols], DType::F32);
    let kept = [cols, rows][along];
    let outs: Vec<_> = (0..6).map(|k| p.output(format!("Y{k}"), &[kept], DType::F32)).collect();
    let (a, b) = (Scalar::Argument(0), Scalar::Argument(1));
    // Lanes choose apart.
    let beside = |x: &Scalar, y: &Scalar| x.clone() + (y.clone() - x.clone()).exp().apply(UnaryOp::Log1p);
    let more = select(a.clone().with(BinaryOp::Gt, b.clone()), beside(&a, &b), beside(&b, &a));
    let more = Custom { name: "more".into(), combine: Box::new(more), identity: -1e30 };
    // Commutative and associative: a probability that one of two independent events happens.
    let either = a.clone() + b.clone() - a * b;
    let either = Custom { name: "either".into(), combine: Box::new(either), identity: 0.0 };
    p.kernel("reductions", |g| {
        let (m, n) = (g.whole("m", rows), g.whole("n", cols));
        let x = g.load("x", x, [m, n]);
        let near = g.map("near", x * 0.25 + 1.0);
        let part = g.map("part", x * x * 0.01);
        let (axis, other) = if along == 0 { (m, n) } else { (n, m) };
        for (y, (monoid, src)) in
            outs.iter().zip([(Sum, x), (Prod, near), (Max, x), (Min, x), (either, part), (more, x)])
        {
            let r = g.reduce("r", monoid, src, axis);
            g.store(*y, [other], r * 1.0);
        }
    });
    p.finish()
}

fn softmax(rows: usize, cols: usize) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("softmax");
    let x = p.input("X", &[rows, cols], DType::Bf16);
    let y = p.output("Y", &[rows, cols], DType::Bf16);
    p.kernel("softmax", |g| {
        let (m, n) = (g.grid("m", rows, 1), g.whole("n", cols));
        let x = g.load("x", x, [m, n]);
        let top = g.reduce("top", Max, x, n);
        let e = g.map("e", (x - top).exp());
        let z = g.reduce("z", Sum, e, n);
        g.store(y, [m, n], e / z);
    });
    p.finish()
}

fn argmin() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("argmin");
    let x = p.input("X", &[50, 130], DType::F32);
    let y = p.output("Y", &[50], DType::I32);
    p.kernel("argmin", |g| {
        let (m, n) = (g.grid("m", 50, 16), g.stream_axis("n", 130, 32));
        let far = 1e9;
        let [_, at] = g.stream(
            n,
            Predicate::always(),
            [carry("least", [m], f64::INFINITY), carry("at", [m], far)],
            |g, [least, at]| {
                let x = g.load("x", x, [m, n]);
                let new = g.reduce_onto("new", Min, least, x, n);
                let here = g.map("here", select(x.with(BinaryOp::Eq, new), Scalar::Position(n), far));
                let first = g.reduce("first", Min, here, n);
                let next = g.map("next", select(new.with(BinaryOp::Lt, least), first, at));
                [new, next]
            },
        );
        g.store(y, [m], at * 1.0);
    });
    p.finish()
}

fn gather() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("gather");
    let ids = p.input("ids", &[40], DType::I32);
    let e = p.input("E", &[3, 24], DType::F16);
    let y = p.output("Y", &[40, 24], DType::F32);
    p.kernel("gather", |g| {
        let (t, d) = (g.grid("t", 40, 16), g.whole("d", 24));
        let i = g.load("i", ids, [t]);
        let row = g.load("row", e, [Coord::gather(i), d.into()]);
        g.store(y, [t, d], row * 2.0);
    });
    p.finish()
}

fn gathered_rows() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("gathered");
    let ids = p.input("ids", &[40], DType::I32);
    let e = p.input("E", &[3, 32], DType::Bf16);
    let w = p.input("W", &[32, 48], DType::Bf16);
    let y = p.output("Y", &[40, 48], DType::F32);
    p.kernel("gathered", |g| {
        let (t, d, f) = (g.grid("t", 40, 32), g.whole("d", 32), g.whole("f", 48));
        let i = g.load("i", ids, [t]);
        let row = g.load("row", e, [Coord::gather(i), d.into()]);
        let w = g.load("w", w, [d, f]);
        let out = g.mma("out", row, w);
        g.store(y, [t, f], out * 1.0);
    });
    p.finish()
}

fn floor_coordinates() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("floors");
    let x = p.input("X", &[3, 20], DType::F32);
    let y = p.output("Y", &[12, 20], DType::F32);
    p.kernel("floors", |g| {
        let (h, n) = (g.grid("h", 12, 8), g.whole("n", 20));
        let x = g.load("x", x, [h.div_floor(4), n.into()]);
        g.store(y, [h, n], x + Scalar::Position(h));
    });
    p.finish()
}

fn window_filled() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("filled");
    let x = p.input("X", &[30, 40], DType::F32);
    let y = p.output("Y", &[30, 40], DType::F32);
    p.kernel("filled", |g| {
        let (m, n) = (g.grid("m", 30, 16), g.whole("n", 40));
        let left = g.load_or("left", x, [Affine::axis(m) - 1, Affine::axis(n) * 1], 7.0);
        let right = g.load_or("right", x, [Affine::axis(m) * 1, Affine::axis(n) + 3], -2.0);
        g.store(y, [m, n], left - right);
    });
    p.finish()
}

fn skip() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("skip");
    let keep = p.input("keep", &[24, 96], DType::B1);
    let x = p.input("X", &[24, 96], DType::F32);
    let y = p.output("Y", &[24], DType::F32);
    p.kernel("skip", |g| {
        let (m, n) = (g.grid("m", 24, 3), g.stream_axis("n", 96, 5));
        let [s] = g.stream(n, Predicate::always(), [carry("s", [m], 1.0)], |g, [s]| {
            let keep = g.load("keep", keep, [m, n]);
            let any = g.map("any", keep.with(BinaryOp::Ne, 0.0));
            g.skip_unless(any);
            let x = g.load("x", x, [m, n]);
            let kept = g.map("kept", select(keep, x, 0.0));
            // Each visited chunk counts.
            let scaled = g.map("scaled", s * 0.5);
            [g.reduce_onto("next", Sum, scaled, kept, n)]
        });
        g.store(y, [m], s * 1.0);
    });
    p.finish()
}

fn band() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("band");
    let x = p.input("X", &[100, 100], DType::F32);
    let y = p.output("Y", &[100], DType::F32);
    p.kernel("band", |g| {
        let (m, n) = (g.grid("m", 100, 16), g.stream_axis("n", 100, 8));
        // m - 20 <= 2n <= m + 40, and somewhere else entirely for none.
        let low: Affine = Affine::axis(n) * 2 - m + 20;
        let high: Affine = Affine::axis(m) + 40 - Affine::axis(n) * 2;
        let within = Predicate { all: vec![low, high] };
        let [s] = g.stream(n, within.clone(), [carry("s", [m], 0.0)], |g, [s]| {
            let x = g.load("x", x, [m, n]);
            let kept = g.map("kept", select(within, x, 0.0));
            [g.reduce_onto("next", Sum, s, kept, n)]
        });
        g.store(y, [m], s * 1.0);
    });
    p.finish()
}

fn nested() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("nested");
    let (a, b) = (p.input("A", &[3, 48, 40], DType::Bf16), p.input("B", &[3, 40, 56], DType::Bf16));
    let y = p.output("Y", &[48, 56], DType::F32);
    p.kernel("nested", |g| {
        let (m, n) = (g.grid("m", 48, 32), g.grid("n", 56, 32));
        let (t, k) = (g.stream_axis("t", 3, 1), g.stream_axis("k", 40, 16));
        let [total] = g.stream(t, Predicate::always(), [carry("total", [m, n], 0.0)], |g, [total]| {
            let start = g.map("start", total * 0.5);
            let [inner] = g.stream(k, Predicate::always(), [carry_from("inner", start)], |g, [inner]| {
                let a = g.load("a", a, [t, m, k]);
                let b = g.load("b", b, [t, k, n]);
                [g.mma_onto("next", inner, a, b)]
            });
            [g.map("after", inner + 1.0)]
        });
        g.store(y, [m, n], total * 1.0);
    });
    p.finish()
}

fn twice() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("twice");
    let (x, w) = (p.input("X", &[40, 100], DType::Bf16), p.input("W", &[100, 24], DType::Bf16));
    let y = p.output("Y", &[40, 24], DType::F32);
    p.kernel("twice", |g| {
        let (m, f, k) = (g.grid("m", 40, 32), g.whole("f", 24), g.stream_axis("k", 100, 16));
        let [most] = g.stream(k, Predicate::always(), [carry("most", [m], 0.0)], |g, [most]| {
            let x = g.load("x", x, [m, k]);
            let size = g.map("size", x.apply(UnaryOp::Abs));
            [g.reduce_onto("larger", Max, most, size, k)]
        });
        let [acc] = g.stream(k, Predicate::always(), [carry("acc", [m, f], 0.0)], |g, [acc]| {
            let (x, w) = (g.load("x", x, [m, k]), g.load("w", w, [k, f]));
            let scaled = g.map("scaled", (x / most).round_to(DType::Bf16));
            [g.mma_onto("next", acc, scaled, w)]
        });
        g.store(y, [m, f], acc * most);
    });
    p.finish()
}

fn linear_attention() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("linear");
    let q = p.input("Q", &[70, 16], DType::Bf16);
    let k = p.input("K", &[70, 16], DType::Bf16);
    let v = p.input("V", &[70, 24], DType::Bf16);
    let y = p.output("Y", &[70, 24], DType::F32);
    p.kernel("linear", |g| {
        let (d, e, t) = (g.whole("d", 16), g.whole("e", 24), g.stream_axis("t", 70, 32));
        let [_] = g.stream(t, Predicate::always(), [carry("H", [d, e], 0.0)], |g, [h]| {
            let (q, k, v) = (g.load("q", q, [t, d]), g.load("k", k, [t, d]), g.load("v", v, [t, e]));
            let short = g.map("short", h.round_to(DType::Bf16));
            let out = g.mma("out", q, short);
            g.store(y, [t, e], out * 1.0);
            [g.mma_onto("next", h, k, v)]
        });
    });
    p.finish()
}

/// States without axes, updated in place, of which every step is stored and multiplied.
fn moving_average() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("average");
    let (x, w) = (p.input("X", &[40, 3], DType::F32), p.input("W", &[40, 24], DType::F32));
    let [y, z] = [("Y", vec![40, 3]), ("Z", vec![3, 24])].map(|(name, dims)| p.output(name, &dims, DType::F32));
    p.kernel("average", |g| {
        let (c, n, t) = (g.grid("c", 3, 1), g.whole("n", 24), g.stream_axis("t", 40, 1));
        let states = [carry("H", [], 0.0), carry("sum", [n], 0.0)];
        let [_, sum] = g.stream(t, Predicate::always(), states, |g, [h, sum]| {
            let (x, w) = (g.load("x", x, [t, c]), g.load("w", w, [t, n]));
            let h = g.map("h", h * 0.75 + x * 0.25);
            g.store(y, [t, c], h);
            [h, g.map("next", sum + w * h)]
        });
        g.store(z, [c, n], sum * 1.0);
    });
    p.finish()
}

/// Two sums of products of one factor, as in a gated layer: both begin with zeros, and each has registers of its own.
fn two_sums() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("gated");
    let x = p.input("X", &[128, 256], DType::Bf16);
    let [v, w] = ["V", "W"].map(|name| p.input(name, &[256, 128], DType::Bf16));
    let y = p.output("Y", &[128, 128], DType::F32);
    p.kernel("gated", |g| {
        let (m, n, k) = (g.grid("m", 128, 128), g.grid("n", 128, 64), g.stream_axis("k", 256, 64));
        let sums = [carry("left", [m, n], 0.0), carry("right", [m, n], 0.0)];
        let [left, right] = g.stream(k, Predicate::always(), sums, |g, [left, right]| {
            let (x, v, w) = (g.load("x", x, [m, k]), g.load("v", v, [k, n]), g.load("w", w, [k, n]));
            [g.mma_onto("left.next", left, x, v), g.mma_onto("right.next", right, x, w)]
        });
        g.store(y, [m, n], left * right);
    });
    p.finish()
}

fn transposed() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("transposed");
    let (a, b) = (p.input("A", &[40, 72], DType::F16), p.input("B", &[88, 40], DType::F16));
    let bias = p.input("bias", &[88], DType::F32);
    let y = p.output("Y", &[88, 72], DType::F16);
    p.kernel("transposed", |g| {
        let (m, n) = (g.grid("m", 72, 64), g.grid("n", 88, 64));
        let k = g.stream_axis("k", 40, 16);
        let [acc] = g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0)], |g, [acc]| {
            let a = g.load("a", a, [k, m]);
            let b = g.load("b", b, [n, k]);
            [g.mma_onto("next", acc, a, b)]
        });
        let bias = g.load("shift", bias, [n]);
        let out = g.map("out", (acc + bias).apply(UnaryOp::Relu));
        g.store(y, [n, m], out);
    });
    p.finish()
}

fn temporary() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("temporary");
    let x = p.input("X", &[50, 30], DType::F32);
    let t = p.temporary("T", &[50], DType::F64);
    let y = p.output("Y", &[50, 30], DType::F32);
    p.kernel("sums", |g| {
        let (m, n) = (g.grid("m", 50, 8), g.whole("n", 30));
        let x = g.load("x", x, [m, n]);
        let s = g.reduce("s", Sum, x, n);
        g.store(t, [m], s * 1.0);
    });
    p.kernel("differences", |g| {
        let (m, n) = (g.grid("m", 50, 8), g.whole("n", 30));
        let (x, s) = (g.load("x", x, [m, n]), g.load("s", t, [m]));
        g.store(y, [m, n], x - s);
    });
    p.finish()
}

/// What is computed in f64 and rounded equals what another kernel stored, and what is computed in f32 stays so in f64.
fn computed_again() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("again");
    let (x, k) = (p.input("X", &[90], DType::F32), p.input("K", &[90], DType::I32));
    let [kept, deep] = ["P", "E"].map(|name| p.temporary(name, &[90], DType::F32));
    let (found, less) = (p.output("found", &[90], DType::I32), p.output("less", &[90], DType::F64));
    let part = |x: Scalar, k: Scalar| ((x * 0.7).round_to(DType::F32) * k).round_to(DType::F32);
    p.kernel("stores", |g| {
        let i = g.grid("i", 90, 16);
        let (x, k) = (g.load("x", x, [i]), g.load("k", k, [i]));
        let part = g.map("part", part(x.into(), k.into()));
        g.store(kept, [i], part);
        let exp = g.map("exp", part.exp());
        g.store(deep, [i], exp);
    });
    p.kernel("finds", |g| {
        let i = g.grid("i", 90, 32);
        let (x, k) = (g.load("x", x, [i]), g.load("k", k, [i]));
        let (kept, deep) = (g.load("kept", kept, [i]), g.load("deep", deep, [i]));
        let again = part(x.into(), k.into());
        let there = select(again.clone().with(BinaryOp::Eq, kept), k, -1.0);
        let there = g.map("there", there.round_to(DType::I32));
        g.store(found, [i], there);
        let rest = g.map("rest", (again.exp().round_to(DType::F32) - deep).round_to(DType::F64));
        g.store(less, [i], rest);
    });
    p.finish()
}

fn vectors() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("vectors");
    let (a, x) = (p.input("A", &[60, 70], DType::Bf16), p.input("x", &[70], DType::Bf16));
    let w = p.input("w", &[60], DType::Bf16);
    let y = p.output("y", &[60], DType::F32);
    let z = p.output("z", &[70], DType::F32);
    let dot = p.output("dot", &[], DType::F32);
    p.kernel("vectors", |g| {
        let (m, n) = (g.whole("m", 60), g.whole("n", 70));
        let (a, x, w) = (g.load("a", a, [m, n]), g.load("x", x, [n]), g.load("w", w, [m]));
        let ax = g.mma("ax", a, x);
        let wa = g.mma("wa", w, a);
        let xx = g.mma("xx", x, x);
        g.store(y, [m], ax * 1.0);
        g.store(z, [n], wa * 1.0);
        g.store(dot, Vec::<AxisId>::new(), xx * 1.0);
    });
    p.finish()
}

fn empty() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("empty");
    let x = p.input("X", &[8, 0], DType::F32);
    let z = p.input("Z", &[0, 8], DType::F32);
    let y = p.output("Y", &[8], DType::F32);
    let none = p.output("none", &[0, 8], DType::F32);
    p.kernel("sums", |g| {
        let (m, n) = (g.grid("m", 8, 4), g.whole("n", 0));
        let x = g.load("x", x, [m, n]);
        let s = g.reduce("s", Sum, x, n);
        g.store(y, [m], s + 3.0);
    });
    p.kernel("nothing", |g| {
        let (m, n) = (g.grid("m", 0, 4), g.whole("n", 8));
        let z = g.load("z", z, [m, n]);
        g.store(none, [m, n], z * 1.0);
    });
    p.finish()
}

fn mixed() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("mixed");
    let a = p.input("A", &[40, 48], DType::Bf16);
    let (b, c) = (p.input("B", &[48, 32], DType::F32), p.input("C", &[48, 32], DType::I8));
    let y = p.output("Y", &[40, 32], DType::F32);
    let z = p.output("Z", &[40, 32], DType::F64);
    p.kernel("mixed", |g| {
        let (m, n, k) = (g.grid("m", 40, 32), g.whole("n", 32), g.whole("k", 48));
        let (a, b, c) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]), g.load("c", c, [k, n]));
        let ab = g.mma("ab", a, b);
        let ac = g.mma("ac", a, c);
        let wide = g.map("wide", a.round_to(DType::F64));
        let precise = g.mma("precise", wide, b);
        let both = g.map("both", ab + ac);
        g.store(y, [m, n], both);
        g.store(z, [m, n], precise);
    });
    p.finish()
}

/// Keys are normalised before they are multiplied: their own axes then lie otherwise than in the scores.
fn keys_normalised() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("normalised");
    let (q, k) = (p.input("Q", &[40, 32], DType::Bf16), p.input("K", &[50, 32], DType::Bf16));
    let v = p.input("V", &[50, 32], DType::Bf16);
    let y = p.output("Y", &[40, 32], DType::F32);
    p.kernel("normalised", |g| {
        let (m, n, d) = (g.grid("m", 40, 32), g.stream_axis("n", 50, 16), g.whole("d", 32));
        let q = g.load("q", q, [m, d]);
        let [o] = g.stream(n, Predicate::always(), [carry("o", [m, d], 0.0)], |g, [o]| {
            let (k, v) = (g.load("k", k, [n, d]), g.load("v", v, [n, d]));
            let square = g.map("square", k * k);
            let length = g.reduce("length", Sum, square, d);
            let scale = g.map("scale", (length + 0.01).rsqrt());
            let unit = g.map("unit", (k * scale).round_to(DType::Bf16));
            let s = g.mma("s", q, unit);
            let weighted = g.map("weighted", (s * scale).round_to(DType::Bf16));
            [g.mma_onto("next", o, weighted, v)]
        });
        g.store(y, [m, d], o * 1.0);
    });
    p.finish()
}
