//! How fast the primitives are: rates of single operations on tiles, and of attention as a tile program.
//!
//! `cargo run --release -p einloom-cpu --example tiles [threads [isa [part of a name]]]`
#![allow(clippy::disallowed_macros)] // What it measures is there to be read.

use einloom_cascade::DType::{self, Bf16, F16, F32, I8, I32};
use einloom_cascade::UnaryOp;
use einloom_cpu::{Executable, Isa, Options, RunOptions, View, ViewMut};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Predicate, Program, Scalar, TensorRole, TileMonoid, carry};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|a| a.parse().ok());
    let (isa, part) = (arguments.next(), arguments.next().unwrap_or_default());
    let chosen = |candidate: &Isa| isa.as_ref().is_none_or(|name| name == candidate.name());
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()).filter(chosen) {
        println!("{} with {} threads", isa.name(), threads.unwrap_or_else(rayon::current_num_threads));
        for (name, work, unit, program) in benchmarks() {
            if name.contains(&part) {
                let seconds = best(&program(), isa, threads);
                println!("  {name:<28}{:>9.1} {unit}", work / seconds / 1e9);
            }
        }
    }
}

/// Name, work of a run, unit of 10^9 of it per second, and the program.
type Benchmark = (String, f64, &'static str, Box<dyn Fn() -> Program>);

fn benchmarks() -> Vec<Benchmark> {
    let mut all: Vec<Benchmark> = vec![];
    for (m, n, k) in [(64, 128, 64), (64, 256, 64), (128, 256, 64), (128, 128, 128), (128, 256, 128)] {
        let work = 2.0 * (m * n * k * REPEATS) as f64;
        all.push((format!("mma {m}x{n}x{k} f32"), work, "GFLOP/s", Box::new(move || products(m, n, k, F32))));
    }
    let work = 2.0 * (128 * 256 * 128 * REPEATS) as f64;
    all.push(("mma 128x256x128 i8".to_string(), work, "GOP/s", Box::new(|| products(128, 256, 128, I8))));
    let elements = (128 * 256 * REPEATS) as f64;
    for op in [UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Log, UnaryOp::Gelu, UnaryOp::Sin, UnaryOp::Sqrt] {
        all.push((op.name().to_string(), elements, "Gelement/s", Box::new(move || mapped(op))));
    }
    for (name, monoid) in [("sum", TileMonoid::Sum), ("max", TileMonoid::Max)] {
        for across in [true, false] {
            let name = format!("{name} of {}", if across { "rows" } else { "columns" });
            let monoid = monoid.clone();
            all.push((name, 4.0 * elements, "GB/s", Box::new(move || reduced(monoid.clone(), across))));
        }
    }
    for dtype in [F32, Bf16, F16, I8] {
        let work = (2 * 4096 * 4096 * dtype.bytes()) as f64;
        all.push((format!("copy {dtype}"), work, "GB/s", Box::new(move || copied(dtype))));
    }
    let product = || matmul([1024, 1024, 1024], [128, 256, 256], F32).expect("well-formed");
    all.push(("matmul 1024^3".to_string(), 2.0 * 1024f64.powi(3), "GFLOP/s", Box::new(product)));
    for (tile, causal) in [([64, 128], false), ([64, 256], false), ([128, 256], false), ([128, 256], true)] {
        let size = AttentionSizes { b: 1, h: 8, m: 4096, n: 4096, d: 64, e: 64 };
        let work = 4.0 * 8.0 * 4096.0 * 4096.0 * 64.0 * if causal { 0.5 } else { 1.0 };
        let name = format!("attention m {} n {}{}", tile[0], tile[1], if causal { " causal" } else { "" });
        let program = move || attention(size, tile, causal, F32).expect("well-formed");
        all.push((name, work, "GFLOP/s", Box::new(program)));
    }
    all
}

/// How often a primitive is repeated per run.
const REPEATS: usize = 2000;

/// Seconds of the fastest of several runs.
fn best(program: &Program, isa: Isa, threads: Option<usize>) -> f64 {
    let executable = Executable::new(program, &Options { isa: Some(isa), ..Options::default() }).expect("runs here");
    let arrays = |role| program.tensors.iter().filter(move |t| t.role == role);
    let bytes = |t: &einloom_tile::TensorDecl| {
        let count = t.dims.iter().product();
        let values: Vec<f64> = (0..count).map(|i: usize| (i * 37 % 101) as f64 / 50.0 - 1.0).collect();
        einloom_cascade::numeric::encode(t.dtype, &values)
    };
    let data: Vec<Vec<u8>> = arrays(TensorRole::Input).map(bytes).collect();
    let inputs: Vec<View<'_>> =
        arrays(TensorRole::Input).zip(&data).map(|(t, bytes)| View { dtype: t.dtype, dims: &t.dims, bytes }).collect();
    let mut results: Vec<Vec<u8>> = arrays(TensorRole::Output).map(bytes).collect();
    let mut fastest = f64::INFINITY;
    for _ in 0..9 {
        let mut outputs: Vec<ViewMut<'_>> = arrays(TensorRole::Output)
            .zip(&mut results)
            .map(|(t, bytes)| ViewMut { dtype: t.dtype, dims: &t.dims, bytes })
            .collect();
        let options = RunOptions { threads, ..RunOptions::default() };
        let report = executable.run(&inputs, &mut outputs, &options).expect("runs");
        fastest = fastest.min(report.seconds);
    }
    fastest
}

/// The same product [`REPEATS`] times on every thread's own.
fn products(m: usize, n: usize, k: usize, dtype: DType) -> Program {
    let sum = if dtype == I8 { I32 } else { F32 };
    let mut p = Builder::new("products");
    let (a, b) = (p.input("A", &[m, k], dtype), p.input("B", &[k, n], dtype));
    let c = p.output("C", &[m, n], sum);
    p.kernel("products", |g| {
        let (m, n, k) = (g.whole("m", m), g.whole("n", n), g.whole("k", k));
        let again = g.stream_axis("again", REPEATS, 1);
        let (a, b) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
        let state = carry("acc", [m, n], 0.0).typed(sum);
        let [acc] = g.stream(again, Predicate::always(), [state], |g, [acc]| [g.mma_onto("sum", acc, a, b)]);
        g.store(c, [m, n], acc);
    });
    p.finish().expect("well-formed")
}

fn mapped(op: UnaryOp) -> Program {
    let mut p = Builder::new("mapped");
    let (x, y) = (p.input("X", &[128, 256], F32), p.output("Y", &[128, 256], F32));
    p.kernel("mapped", |g| {
        let (m, n) = (g.whole("m", 128), g.whole("n", 256));
        let again = g.stream_axis("again", REPEATS, 1);
        let x = g.load("x", x, [m, n]);
        let [last] = g.stream(again, Predicate::always(), [carry("last", [m, n], 0.0)], |g, [_]| [g.map("f", x)]);
        g.store(y, [m, n], last);
    });
    let mut program = p.finish().expect("well-formed");
    // The builder has no name for every function.
    for step in &mut program.kernels[0].body {
        if let einloom_tile::Op::Stream { body, .. } = step
            && let Some(einloom_tile::Op::Map { expr, .. }) = body.first_mut()
        {
            *expr = Scalar::Unary(op, Box::new(expr.clone()));
        }
    }
    program
}

fn reduced(monoid: TileMonoid, across: bool) -> Program {
    let mut p = Builder::new("reduced");
    let len = if across { 128 } else { 256 };
    let (x, y) = (p.input("X", &[128, 256], F32), p.output("Y", &[len], F32));
    p.kernel("reduced", |g| {
        let (m, n) = (g.whole("m", 128), g.whole("n", 256));
        let again = g.stream_axis("again", REPEATS, 1);
        let x = g.load("x", x, [m, n]);
        let (kept, axis) = if across { (m, n) } else { (n, m) };
        let [last] = g.stream(again, Predicate::always(), [carry("last", [kept], 0.0)], |g, [last]| {
            [g.reduce_onto("r", monoid, last, x, axis)]
        });
        g.store(y, [kept], last);
    });
    p.finish().expect("well-formed")
}

fn copied(dtype: DType) -> Program {
    let mut p = Builder::new("copied");
    let (x, y) = (p.input("X", &[4096, 4096], dtype), p.output("Y", &[4096, 4096], dtype));
    p.kernel("copied", |g| {
        let (m, n) = (g.grid("m", 4096, 16), g.grid("n", 4096, 1024));
        let x = g.load("x", x, [m, n]);
        g.store(y, [m, n], x);
    });
    p.finish().expect("well-formed")
}
