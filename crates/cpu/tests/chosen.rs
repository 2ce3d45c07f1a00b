//! Attention between what a comparison of integers leaves, in chunks, against the meaning: the truths are bits, and exponentials need no mask
//! of their own.

mod support;

use einloom_cascade::DType::{self, B1, Bf16, F32, I32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::TileMonoid::{Max, Min, Sum};
use einloom_tile::{Affine, Builder, Predicate, Program, Scalar, carry, select};
use support::check;

fn numbers(count: usize, step: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * step + i / 7) % 61) as f64 / 16.0 - 2.0).collect()
}

/// What is compared with what.
#[derive(Clone, Copy, Debug)]
enum Between {
    /// A number of each row with one of each column.
    Sides,
    /// A number of each pair with one of each column.
    Pairs,
    /// A number of each pair with one that all have in common.
    One,
    /// A number of each column with a constant.
    Columns,
    /// Nothing: it is told for each pair.
    Given,
}

/// Attention over pairs of which `op` holds between integers, and a predicate if there is one, with what there is of every row: any, and all.
fn attention(
    [m, n, d]: [usize; 3],
    tiles: [usize; 2],
    (op, between): (BinaryOp, Between),
    within: Option<[i64; 3]>,
    dtype: DType,
) -> Program {
    let mut p = Builder::new("chosen");
    let q = p.input("Q", &[m, d], dtype);
    let (k, v) = (p.input("K", &[n, d], dtype), p.input("V", &[n, d], dtype));
    let (rows, columns) = (p.input("I", &[m], I32), p.input("J", &[n], I32));
    let (pairs, one, given) = (p.input("P", &[m, n], I32), p.input("C", &[1], I32), p.input("G", &[m, n], B1));
    let [any, all] = ["any", "all"].map(|name| p.output(name, &[m], F32));
    let y = p.output("Y", &[m, d], F32);
    p.kernel("chosen", |g| {
        let (i, j) = (g.grid("m", m, tiles[0]), g.stream_axis("n", n, tiles[1]));
        let (d, single) = (g.whole("d", d), g.whole("c", 1));
        let q = g.load("q", q, [i, d]);
        let states = [
            carry("most", [i], f64::NEG_INFINITY),
            carry("total", [i], 0.0),
            carry("any", [i], f64::NEG_INFINITY),
            carry("all", [i], f64::INFINITY),
            carry("sum", [i, d], 0.0),
        ];
        let [_, total, some, every, sum] =
            g.stream(j, Predicate::always(), states, |g, [anchor, total, some, every, sum]| {
                let columns = Scalar::from(g.load("columns", columns, [j]));
                let of = match between {
                    Between::Sides => Scalar::from(g.load("rows", rows, [i])).with(op, columns),
                    Between::Pairs => Scalar::from(g.load("pairs", pairs, [i, j])).with(op, columns),
                    Between::One => {
                        let one = g.load("one", one, [single]);
                        let one = g.reduce("number", Max, one, single);
                        Scalar::from(g.load("pairs", pairs, [i, j])).with(op, one)
                    }
                    Between::Columns => columns.with(op, 4.0),
                    Between::Given => Scalar::from(g.load("given", given, [i, j])),
                };
                let mask = match of {
                    Scalar::Tile(mask) => mask,
                    of => g.map("mask", of),
                };
                let left = |x: Scalar, other: f64| match within {
                    Some([outer, inner, constant]) => {
                        let affine = Affine { terms: vec![(outer, i), (inner, j)], constant };
                        select(Scalar::Within(Predicate { all: vec![affine] }), select(mask, x, other), other)
                    }
                    None => select(mask, x, other),
                };
                g.skip_unless(mask);
                let k = g.load("k", k, [j, d]);
                let scores = g.mma("scores", q, k);
                let scores = g.map("scaled", scores * 0.25);
                let masked = g.map("left", left(scores.into(), f64::NEG_INFINITY));
                let most = g.reduce_onto("most.next", Max, anchor, masked, j);
                let finite = g.map("finite", most.apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY));
                let safe = g.map("safe", select(finite, most, 0.0));
                let by = g.map("by", (anchor - safe).exp());
                let weights = g.map("weights", left((scores - safe).exp(), 0.0));
                let kept = g.map("total.kept", total * by);
                let total = g.reduce_onto("total.next", Sum, kept, weights, j);
                let there = g.map_over("there", &[i, j], left(1.0.into(), f64::NEG_INFINITY));
                let some = g.reduce_onto("any.next", Max, some, there, j);
                let there = g.map_over("everywhere", &[i, j], left(2.0.into(), -1.0));
                let every = g.reduce_onto("all.next", Min, every, there, j);
                let narrow = if dtype == F32 { weights } else { g.map("narrow", weights.round_to(dtype)) };
                let v = g.load("v", v, [j, d]);
                let kept = g.map("kept", sum * by);
                [most, total, some, every, g.mma_onto("sum.next", kept, narrow, v)]
            });
        let result = g.map("result", select(Scalar::from(some).with(BinaryOp::Gt, 0.0), sum / total, 0.0));
        g.store(y, [i, d], result);
        g.store(any, [i], some);
        g.store(all, [i], every);
    });
    p.finish().expect("well-formed")
}

#[test]
fn attention_between_what_a_comparison_leaves() {
    let sizes = [
        ([70, 133, 32], [70, 133]),
        ([64, 300, 32], [64, 150]),
        ([33, 40, 65], [33, 7]),
        ([5, 200, 32], [5, 100]),
        ([300, 260, 16], [256, 256]),
    ];
    for (size, tiles) in sizes {
        let [m, n, d] = size;
        // Few rows see the first columns, some see none, and one sees all.
        let rows: Vec<f64> = (0..m).map(|i| [3.0, 7.0, 0.0, 5.0, -100.0][i * 5 / m.max(5)]).collect();
        let columns: Vec<f64> = (0..n).map(|j| (j * 8 / n) as f64).collect();
        let pairs: Vec<f64> = (0..m * n).map(|at| ((at * 31 + at / 97) % 9) as f64).collect();
        let given = pairs.iter().map(|x| f64::from(u8::from(x % 3.0 == 0.0))).collect();
        let inputs =
            [numbers(m * d, 37), numbers(n * d, 23), numbers(n * d, 11), rows, columns, pairs, vec![4.0], given];
        for of in [
            (BinaryOp::Eq, Between::Sides),
            (BinaryOp::Ge, Between::Sides),
            (BinaryOp::Lt, Between::Pairs),
            (BinaryOp::Ne, Between::Pairs),
            (BinaryOp::Eq, Between::One),
            (BinaryOp::Le, Between::One),
            (BinaryOp::Ge, Between::Columns),
            (BinaryOp::Eq, Between::Given),
        ] {
            for (dtype, tolerance) in [(F32, 2e-5), (Bf16, 1.6e-2)] {
                check(&attention(size, tiles, of, None, dtype), &inputs, tolerance);
            }
        }
    }
}

#[test]
fn attention_between_what_a_comparison_and_a_predicate_leave() {
    for (size, tiles) in [([70, 133, 32], [70, 50]), ([33, 90, 65], [33, 32]), ([128, 256, 16], [64, 96])] {
        let [m, n, d] = size;
        let rows: Vec<f64> = (0..m).map(|i| (i * 4 / m) as f64).collect();
        let columns: Vec<f64> = (0..n).map(|j| (j * 4 / n) as f64).collect();
        let inputs = [
            numbers(m * d, 37),
            numbers(n * d, 23),
            numbers(n * d, 11),
            rows,
            columns,
            vec![0.0; m * n],
            vec![4.0],
            vec![0.0; m * n],
        ];
        for within in [[1, -1, 0], [-1, 1, -20], [2, -1, 5]] {
            for (dtype, tolerance) in [(F32, 2e-5), (Bf16, 1.6e-2)] {
                let of = (BinaryOp::Ge, Between::Sides);
                check(&attention(size, tiles, of, Some(within), dtype), &inputs, tolerance);
            }
        }
    }
}

#[test]
fn numbers_that_are_none_stay_where_they_are_seen() {
    let [m, n, d] = [40, 100, 32];
    let rows: Vec<f64> = (0..m).map(|i| (i % 3) as f64).collect();
    let columns: Vec<f64> = (0..n).map(|j| (j % 4) as f64).collect();
    let mut k = numbers(n * d, 23);
    // Seen by no row, and by every third one.
    (k[3 * d + 1], k[d + 5]) = (f64::NAN, f64::INFINITY);
    let inputs =
        [numbers(m * d, 37), k, numbers(n * d, 11), rows, columns, vec![0.0; m * n], vec![4.0], vec![0.0; m * n]];
    for (dtype, tolerance) in [(F32, 2e-5), (Bf16, 1.6e-2)] {
        check(&attention([m, n, d], [40, 50], (BinaryOp::Eq, Between::Sides), None, dtype), &inputs, tolerance);
    }
}
