//! What is timed.

use einloom_cascade::DType::Bf16;
use einloom_cascade::{Given, bind, parse};
use einloom_plan::Options;
use einloom_tile::by_hand::{AttentionSizes, attention};
use einloom_tile::{Builder, Program};

/// What a run does, whatever the kernel.
#[derive(Clone, Copy)]
pub enum Work {
    /// Operations.
    Flops(f64),
    /// Bytes that have to be read and written.
    Bytes(f64),
}

/// Reads an element of an input.
pub type Read<'a> = &'a dyn Fn(usize, usize) -> f64;

/// An element's value, and the magnitude its error is judged by.
pub type Expected = Box<dyn Fn(Read<'_>, usize) -> (f64, f64)>;

/// A program to time.
pub struct Case {
    /// For people, and for `--only`.
    pub name: String,
    pub program: Program,
    pub work: Work,
    /// Integers of the input are below this.
    pub positions: usize,
    /// An element of the output, and what its error is relative to.
    pub expected: Expected,
}

/// All of them.
pub fn all() -> Vec<Case> {
    let mut out = vec![];
    for elements in [1 << 27, 1 << 28] {
        out.push(copy(elements));
    }
    rows(&mut out);
    for s in [4096, 16384, 1024] {
        for d in [128, 64, 256] {
            for causal in [false, true] {
                for tile in [[128, 64], [64, 64], [128, 128], [64, 128], [128, 32], [64, 32]] {
                    attend(&mut out, s, d, causal, tile);
                }
            }
        }
    }
    out
}

/// One read and one write of every element: what the memory can do.
fn copy(elements: usize) -> Case {
    let mut p = Builder::new("copy");
    let x = p.input("X", &[elements], Bf16);
    let y = p.output("Y", &[elements], Bf16);
    p.kernel("copy", |g| {
        let n = g.grid("n", elements, 8192);
        let x = g.load("x", x, [n]);
        g.store(y, [n], x);
    });
    Case {
        name: format!("copy {elements}"),
        program: p.finish().expect("well-formed"),
        work: Work::Bytes(4.0 * elements as f64),
        positions: 0,
        expected: Box::new(|read, at| (read(0, at), 1.0)),
    }
}

const SOFTMAX: &str = include_str!("../../../../cascades/softmax.ein");
const RMSNORM: &str = include_str!("../../../../cascades/rmsnorm.ein");
const CROSS_ENTROPY: &str = include_str!("../../../../cascades/cross_entropy.ein");
const ATTENTION: &str = include_str!("../../../../cascades/attention.ein");
const CAUSAL: &str = include_str!("../../../../cascades/attention_causal.ein");

fn rows(out: &mut Vec<Case>) {
    for (m, n) in [(65536, 1024), (32768, 4096), (16384, 8192), (16384, 16384), (8192, 32768), (30000, 4000)] {
        for rows in [1, 2, 4, 8, 16] {
            if rows * n > 32768 {
                continue;
            }
            let name = |what: &str| format!("{what} {m}x{n} derived, {rows} rows a block");
            let bytes = (m * n) as f64;
            let softmax = derived(&SOFTMAX.replace("f32", "bf16"), &[("M", m), ("N", n)], &[("m", rows), ("n", n)]);
            push(out, name("softmax"), softmax, Work::Bytes(4.0 * bytes), 0, move |read, at| {
                let row: Vec<f64> = (0..n).map(|k| read(0, at / n * n + k)).collect();
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
                ((row[at % n] - top).exp() / sum, 1.0 / sum)
            });
            let rmsnorm = derived(&RMSNORM.replace("f32", "bf16"), &[("M", m), ("D", n)], &[("m", rows), ("d", n)]);
            push(out, name("rmsnorm"), rmsnorm, Work::Bytes(4.0 * bytes), 0, move |read, at| {
                let square: f64 = (0..n).map(|k| read(0, at / n * n + k).powi(2)).sum();
                (read(0, at) / (square / n as f64 + 1e-6).sqrt() * read(1, at % n), 4.0)
            });
            let text = CROSS_ENTROPY.replace("X[t,v]: f32", "X[t,v]: bf16");
            let entropy = derived(&text, &[("T", m), ("V", n)], &[("t", rows), ("v", n)]);
            push(out, name("cross_entropy"), entropy, Work::Bytes(2.0 * bytes), n, move |read, at| {
                let row: Vec<f64> = (0..n).map(|k| read(0, at * n + k)).collect();
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
                let label = read(1, at) as usize;
                (sum.ln() + top - row[label], 10.0)
            });
        }
    }
}

fn attend(out: &mut Vec<Case>, s: usize, d: usize, causal: bool, tile: [usize; 2]) {
    let sizes = AttentionSizes { b: 16384 / s, h: 2048 / d, m: s, n: s, d, e: d };
    let full = 4.0 * (sizes.b * sizes.h) as f64 * (s * s * d) as f64;
    let work = || Work::Flops(if causal { full / 2.0 } else { full });
    let name = |how: &str| {
        let mask = if causal { "causal" } else { "full" };
        format!("attention d {d} S {s} {mask} {how}, {}x{} tiles", tile[0], tile[1])
    };
    let expected = move |read: Read<'_>, at: usize| {
        let (head, row, column) = (at / d / s, at / d % s, at % d);
        let seen = if causal { row + 1 } else { s };
        let score = |n: usize| {
            (0..d).map(|k| read(0, (head * s + row) * d + k) * read(1, (head * s + n) * d + k)).sum::<f64>()
                / (d as f64).sqrt()
        };
        let scores: Vec<f64> = (0..seen).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|x| (x - top).exp()).collect();
        let sum: f64 = weights.iter().enumerate().map(|(n, w)| w * read(2, (head * s + n) * d + column)).sum();
        (sum / weights.iter().sum::<f64>(), 1.0)
    };
    let text = if causal { CAUSAL } else { ATTENTION };
    let ranks = [("B", sizes.b), ("H", sizes.h), ("M", s), ("N", s), ("D", d), ("E", d)];
    let tiles = [("b", 1), ("h", 1), ("m", tile[0]), ("n", tile[1])];
    push(out, name("derived"), derived(text, &ranks, &tiles), work(), 0, expected);
    let program = attention(sizes, tile, causal, Bf16).map_err(|e| format!("{e:?}"));
    push(out, name("by hand"), program, work(), 0, expected);
}

/// A cascade's derived program with these tiles.
fn derived(text: &str, sizes: &[(&str, usize)], tiles: &[(&str, usize)]) -> Result<Program, String> {
    let cascade = parse(text).cascade;
    let owned = |list: &[(&str, usize)]| list.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    let given = Given { sizes: owned(sizes), ..Given::default() };
    let bound = bind(&cascade, &given).map_err(|e| format!("{e:?}"))?;
    let machine = einloom_machine::built_in("h200").ok_or("no such machine")?;
    let tiles = tiles.iter().map(|(n, x)| (n.to_string(), *x)).collect();
    let options = Options { tiles, narrow_contractions: true, ..Options::default() };
    let graph = einloom_algebra::derive(&cascade).derived;
    let plan = einloom_plan::plan(&graph, &bound, &machine, &options).map_err(|e| e.to_string())?;
    Ok(plan.program)
}

fn push(
    out: &mut Vec<Case>,
    name: String,
    program: Result<Program, String>,
    work: Work,
    positions: usize,
    expected: impl Fn(Read<'_>, usize) -> (f64, f64) + 'static,
) {
    match program {
        Ok(program) => out.push(Case { name, program, work, positions, expected: Box::new(expected) }),
        // Said, not hidden: tiles that the planner refuses.
        Err(e) => eprintln!("{name}: {e}"),
    }
}
