//! Rows that are kept whole, or summed in parts: what the planner makes of normalisations, and of attention.

use super::{Case, case};
use einloom_cascade::DType::{self, Bf16, F32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{
    Builder, Coord, Defect, Predicate, Program,
    TileMonoid::{Max, Sum},
    carry, select,
};

/// Rows of one vector and of several warps, aligned and not, alone in a block and several together.
pub fn rows() -> Vec<Case> {
    let mut out = vec![];
    for (m, n, tile) in [(3, 1000, 1), (2, 4104, 1), (9, 1024, 4), (5, 520, 2), (3, 1003, 1), (70, 24, 16)] {
        for number in [Bf16, F32] {
            let what = format!("{number} {m}x{n} by {tile}");
            out.push(case(format!("softmax of rows {what}"), softmax(m, n, tile, number)));
            out.push(case(format!("normalised rows {what}"), normalised(m, n, tile, number)));
            out.push(case(format!("entropy of rows {what}"), entropy(m, n, tile, number)));
            out.push(case(format!("streamed rows {what}"), streamed(m, n, tile, number)));
        }
    }
    for (m, n, causal) in [(70, 90, false), (70, 90, true), (64, 64, true)] {
        out.push(case(format!("attention as derived m {m} n {n} causal {causal}"), attention(m, n, causal)));
    }
    out
}

fn softmax(m: usize, n: usize, tile: usize, number: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("softmax");
    let x = p.input("X", &[m, n], number);
    let y = p.output("Y", &[m, n], number);
    p.kernel("softmax", |g| {
        let (m, n) = (g.grid("m", m, tile), g.whole("n", n));
        let x = g.load("x", x, [m, n]);
        let top = g.reduce("top", Max, x, n);
        let finite = g.map("finite", top.apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY));
        let kept = g.map("kept", select(finite, top, 0.0));
        let e = g.map("e", (x - kept).exp());
        let z = g.reduce("z", Sum, e, n);
        // Scaled so that the tolerance, which is relative to 1, sees it.
        let out = g.map("out", (x - top).exp() / z * 100.0);
        g.store(y, [m, n], out);
    });
    p.finish()
}

fn normalised(m: usize, n: usize, tile: usize, number: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("normalised");
    let x = p.input("X", &[m, n], number);
    let w = p.input("W", &[n], number);
    let y = p.output("Y", &[m, n], number);
    let size = n as f64;
    p.kernel("normalised", |g| {
        let (m, n) = (g.grid("m", m, tile), g.whole("n", n));
        let x = g.load("x", x, [m, n]);
        let square = g.map("square", x.with(BinaryOp::Pow, 2.0));
        let sum = g.reduce("sum", Sum, square, n);
        let root = g.map("root", (sum / size + 1e-6).sqrt());
        let w = g.load("w", w, [n]);
        let out = g.map("out", x / root * w);
        g.store(y, [m, n], out);
    });
    p.finish()
}

fn entropy(m: usize, n: usize, tile: usize, number: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("entropy");
    let x = p.input("X", &[m, n], number);
    let label = p.input("label", &[m], DType::I32);
    let y = p.output("Y", &[m], F32);
    p.kernel("entropy", |g| {
        let (m, n) = (g.grid("m", m, tile), g.whole("n", n));
        let label = g.load("label", label, [m]);
        let one = g.load("one", x, [m.into(), Coord::gather(label)]);
        let x = g.load("x", x, [m, n]);
        let top = g.reduce("top", Max, x, n);
        let e = g.map("e", (x - top).exp());
        let z = g.reduce("z", Sum, e, n);
        let out = g.map("out", z.log() + top - one);
        g.store(y, [m], out);
    });
    p.finish()
}

fn streamed(m: usize, n: usize, tile: usize, number: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("streamed");
    let x = p.input("X", &[m, n], number);
    let y = p.output("Y", &[m], F32);
    p.kernel("streamed", |g| {
        let (m, n) = (g.grid("m", m, tile), g.stream_axis("n", n, 256));
        // An axis that is visited one position at a time is no axis of a tile.
        let axes = if tile > 1 { vec![m] } else { vec![] };
        let states = [carry("top", axes.clone(), f64::NEG_INFINITY), carry("sum", axes, 0.0)];
        let [top, sum] = g.stream(n, Predicate::always(), states, |g, [top, sum]| {
            let x = g.load("x", x, [m, n]);
            let square = g.map("square", x * x);
            let scaled = g.map("scaled", sum * 0.75);
            [g.reduce_onto("more", Max, top, x, n), g.reduce_onto("longer", Sum, scaled, square, n)]
        });
        g.store(y, [m], top + sum);
    });
    p.finish()
}

/// With a division for the scale, a sum of unrounded weights, and guards against empty rows.
fn attention(m: usize, n: usize, causal: bool) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("attention");
    let q = p.input("Q", &[m, 32], Bf16);
    let (k, v) = (p.input("K", &[n, 32], Bf16), p.input("V", &[n, 16], Bf16));
    let y = p.output("O", &[m, 16], Bf16);
    p.kernel("attention", |g| {
        let (m, d, e) = (g.grid("m", m, 64), g.whole("d", 32), g.whole("e", 16));
        let n = g.stream_axis("n", n, 32);
        let seen = if causal { n.at_most(m) } else { Predicate::always() };
        let q = g.load("q", q, [m, d]);
        let states = [carry("top", [m], f64::NEG_INFINITY), carry("sum", [m], 0.0), carry("acc", [m, e], 0.0)];
        let [_, sum, acc] = g.stream(n, seen.clone(), states, |g, [top, sum, acc]| {
            let k = g.load("k", k, [n, d]);
            let raw = g.mma("raw", q, k);
            let s = g.map("s", raw / 5.656854249492381);
            let masked = g.map("masked", select(seen.clone(), s, f64::NEG_INFINITY));
            let more = g.reduce_onto("more", Max, top, masked, n);
            let finite = g.map("finite", more.apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY));
            let kept = g.map("kept", select(finite, more, 0.0));
            let r = g.map("r", (top - kept).exp());
            let w = g.map("w", select(seen, (s - kept).exp(), 0.0));
            let scaled = g.map("scaled", sum * r);
            let longer = g.reduce_onto("longer", Sum, scaled, w, n);
            let narrow = g.map("narrow", w.round_to(Bf16));
            let v = g.load("v", v, [n, e]);
            let faded = g.map("faded", acc * r);
            [more, longer, g.mma_onto("next", faded, narrow, v)]
        });
        g.store(y, [m, e], acc / sum);
    });
    p.finish()
}
