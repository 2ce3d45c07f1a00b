//! Attention whose scores are multiplied by a number of each query and one of each key, against the meaning: keys are read by a contraction
//! and by the map that makes their numbers, and are counted once.

mod support;

use einloom_cascade::DType::{self, Bf16, F32};
use einloom_tile::TileMonoid::{Max, Sum};
use einloom_tile::{Builder, Predicate, Program, Scalar, carry};
use support::check;

fn numbers(count: usize, step: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * step + i / 7) % 61) as f64 / 16.0 - 2.0).collect()
}

/// By which numbers scores are multiplied.
#[derive(Clone, Copy, Debug)]
enum By {
    Rows,
    Columns,
    Both,
    /// Both, and something is added then.
    BothAnd,
}

/// Attention with queries and keys of length 1; `seen`: scores are stored besides.
fn attention([m, n, d]: [usize; 3], tiles: [usize; 2], by: By, dtype: DType, seen: bool) -> Program {
    let mut p = Builder::new("scaled");
    let q = p.input("Q", &[m, d], dtype);
    let (k, v) = (p.input("K", &[n, d], dtype), p.input("V", &[n, d], dtype));
    let y = p.output("Y", &[m, d], F32);
    let all = seen.then(|| p.output("S", &[m, n], F32));
    p.kernel("scaled", |g| {
        let (i, j) = (g.grid("m", m, tiles[0]), g.stream_axis("n", n, tiles[1]));
        let d = g.whole("d", d);
        let q = g.load("q", q, [i, d]);
        let squares = g.map("q.squares", q * q);
        let of_query = g.reduce("q.sum", Sum, squares, d);
        let of_query = g.map("q.by", (of_query + 0.5).rsqrt());
        let states = [carry("most", [i], f64::NEG_INFINITY), carry("total", [i], 0.0), carry("sum", [i, d], 0.0)];
        let [_, total, sum] = g.stream(j, Predicate::always(), states, |g, [anchor, total, sum]| {
            let k = g.load("k", k, [j, d]);
            let scores = g.mma("scores", q, k);
            let squares = g.map("k.squares", k * k);
            let of_key = g.reduce("k.sum", Sum, squares, d);
            let of_key = Scalar::from(g.map("k.by", (of_key + 0.25).rsqrt()));
            let scores = g.map(
                "scaled",
                match by {
                    By::Rows => scores * of_query,
                    By::Columns => scores * of_key * 0.75,
                    By::Both => scores * (of_query * of_key) * 0.375,
                    By::BothAnd => (scores * 0.5 * (of_key * of_query)) * 3.0 + 0.125,
                },
            );
            if let Some(all) = all {
                g.store(all, [i, j], scores);
            }
            let most = g.reduce_onto("most.next", Max, anchor, scores, j);
            let by = g.map("by", (anchor - most).exp());
            let weights = g.map("weights", (scores - most).exp());
            let kept = g.map("total.kept", total * by);
            let total = g.reduce_onto("total.next", Sum, kept, weights, j);
            let narrow = if dtype == F32 { weights } else { g.map("narrow", weights.round_to(dtype)) };
            let v = g.load("v", v, [j, d]);
            let kept = g.map("kept", sum * by);
            [most, total, g.mma_onto("sum.next", kept, narrow, v)]
        });
        let result = g.map("result", sum / total);
        g.store(y, [i, d], result);
    });
    p.finish().expect("well-formed")
}

#[test]
fn scores_are_multiplied_by_numbers_of_queries_and_of_keys() {
    let sizes = [
        ([70, 133, 32], [70, 133]),
        ([64, 300, 32], [64, 150]),
        ([33, 40, 65], [33, 7]),
        ([5, 200, 32], [5, 100]),
        ([260, 270, 16], [256, 256]),
    ];
    for (size, tiles) in sizes {
        let [m, n, d] = size;
        let inputs = [numbers(m * d, 37), numbers(n * d, 23), numbers(n * d, 11)];
        for by in [By::Rows, By::Columns, By::Both, By::BothAnd] {
            for (dtype, tolerance) in [(F32, 2e-5), (Bf16, 1.6e-2)] {
                for seen in [false, true] {
                    check(&attention(size, tiles, by, dtype, seen), &inputs, tolerance);
                }
            }
        }
    }
}
