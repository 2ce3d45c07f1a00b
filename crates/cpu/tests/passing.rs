//! What is done in passing where the matrix unit multiplies: left factors that are rounded, or split into parts, and packed as
//! they are computed, and the extremes of a result's rows.

mod support;

use einloom_cascade::DType::{self, Bf16, F32};
use einloom_cascade::UnaryOp;
use einloom_tile::TileMonoid::{Max, Min, Sum};
use einloom_tile::{Affine, Builder, Predicate, Program, Scalar, carry, select};
use support::check;

/// How the left factor is computed from `X[m, k]` and `R[m]`.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// `exp(x * 0.5 - r)`, summed along the rows besides.
    Anchored,
    /// `x - r`, which strips are computed of.
    Shifted,
    /// The same, and it is stored besides.
    Stored,
}

/// `Y[m, n] = Σ_k left · B`, in chunks of `tile` terms, the left factor rounded to `dtype`.
fn computed([m, n, k]: [usize; 3], tile: usize, left: Left, dtype: DType) -> Program {
    let mut p = Builder::new("computed");
    let x = p.input("X", &[m, k], F32);
    let r = p.input("R", &[m], F32);
    let b = p.input("B", &[k, n], dtype);
    let y = p.output("Y", &[m, n], F32);
    let total = p.output("T", &[m], F32);
    let same = matches!(left, Left::Stored).then(|| p.output("P", &[m, k], F32));
    p.kernel("computed", |g| {
        let (m, n) = (g.whole("m", m), g.whole("n", n));
        let k = g.stream_axis("k", k, tile);
        let anchors = g.load("r", r, [m]);
        let states = [carry("sum", [m, n], 0.0), carry("total", [m], 0.0)];
        let [sum, all] = g.stream(k, Predicate::always(), states, |g, [sum, all]| {
            let x = g.load("x", x, [m, k]);
            let shifted = g.map(
                "left",
                match left {
                    Left::Anchored => (x * 0.5 - anchors).exp(),
                    Left::Shifted | Left::Stored => x - anchors,
                },
            );
            let all = g.reduce_onto("all", Sum, all, shifted, k);
            let narrow = if dtype == F32 { shifted } else { g.map("narrow", shifted.round_to(dtype)) };
            if let Some(same) = same {
                g.store(same, [m, k], narrow);
            }
            let b = g.load("b", b, [k, n]);
            [g.mma_onto("sums", sum, narrow, b), all]
        });
        g.store(y, [m, n], sum);
        g.store(total, [m], all);
    });
    p.finish().expect("well-formed")
}

/// Multiples of a sixteenth between -2 and 2 without a pattern.
fn numbers(count: usize, step: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * step + i / 7) % 61) as f64 / 16.0 - 2.0).collect()
}

/// Numbers of rows that no half of [`numbers`] is larger than.
fn anchors(count: usize) -> Vec<f64> {
    numbers(count, 11).iter().map(|x| x.abs() + 1.0).collect()
}

const SIZES: [[usize; 3]; 9] = [
    [1, 5, 3],
    [5, 16, 31],
    [16, 32, 32],
    [17, 33, 33],
    [31, 7, 64],
    [33, 64, 65],
    [40, 17, 100],
    [64, 48, 1030],
    [70, 20, 257],
];

/// What sums of terms of both signs are off by where the terms are exponentials within a unit of bf16: see
/// `kernels/exp/rounded.rs`, whose own test is sharp.
const BF16: f64 = 1.6e-2;

#[test]
fn left_factors_are_packed_as_they_are_computed() {
    for [m, n, k] in SIZES {
        for (left, tolerance) in [(Left::Anchored, BF16), (Left::Shifted, 1e-5), (Left::Stored, 1e-5)] {
            for tile in [k, k.div_ceil(2), 48] {
                let inputs = [numbers(m * k, 37), anchors(m), numbers(k * n, 23)];
                check(&computed([m, n, k], tile, left, Bf16), &inputs, tolerance);
                check(&computed([m, n, k], tile, left, F32), &inputs, 1e-5);
            }
        }
    }
}

#[test]
fn left_factors_whose_parts_would_be_lost_are_multiplied_otherwise() {
    let [m, n, k] = [37, 32, 70];
    // Rows whose largest weight is about 2^-100 beside others, and what brings them back to where errors show.
    let anchors = |i: usize| if i.is_multiple_of(3) { 69.0 } else { 1.0 };
    let right = numbers(k * n, 23).iter().map(|x| (x + 2.0) * 2f64.powi(97)).collect();
    let inputs = [numbers(m * k, 37), (0..m).map(anchors).collect(), right];
    check(&computed([m, n, k], 32, Left::Anchored, F32), &inputs, 1e-5);
}

#[test]
fn a_left_factor_that_is_no_number_stays_in_its_row() {
    let [m, n, k] = [20, 32, 70];
    for left in [Left::Anchored, Left::Shifted] {
        let mut x = numbers(m * k, 37);
        (x[3], x[k * 7 + 69], x[k * 19 + 40]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
        for dtype in [Bf16, F32] {
            let inputs = [x.clone(), anchors(m), numbers(k * n, 23)];
            check(&computed([m, n, k], 32, left, dtype), &inputs, BF16);
        }
    }
}

/// `Y[m, n] = A · B`, scaled, and the extremes of its rows, over all chunks of `n`.
fn extremes([m, n, k]: [usize; 3], tile: usize, dtype: DType) -> Program {
    let mut p = Builder::new("extremes");
    let a = p.input("A", &[m, k], dtype);
    let b = p.input("B", &[n, k], dtype);
    let y = p.output("Y", &[m, n], F32);
    let high = p.output("H", &[m], F32);
    let low = p.output("L", &[m], F32);
    p.kernel("extremes", |g| {
        let (m, k) = (g.whole("m", m), g.whole("k", k));
        let n = g.stream_axis("n", n, tile);
        let a = g.load("a", a, [m, k]);
        let states = [carry("high", [m], f64::NEG_INFINITY), carry("low", [m], f64::INFINITY)];
        let [high_all, low_all] = g.stream(n, Predicate::always(), states, |g, [high, low]| {
            let b = g.load("b", b, [n, k]);
            let product = g.mma("product", a, b);
            let scaled = g.map("scaled", product * 0.375);
            let high = g.reduce_onto("higher", Max, high, scaled, n);
            let low = g.reduce_onto("lower", Min, low, product, n);
            g.store(y, [m, n], scaled);
            [high, low]
        });
        g.store(high, [m], high_all);
        g.store(low, [m], low_all);
    });
    p.finish().expect("well-formed")
}

#[test]
fn extremes_of_rows_agree() {
    for [m, n, k] in SIZES {
        for tile in [n, n.div_ceil(2)] {
            for dtype in [Bf16, F32] {
                let inputs = [numbers(m * k, 37), numbers(k * n, 23)];
                check(&extremes([m, n, k], tile, dtype), &inputs, 1e-5);
            }
        }
    }
}

#[test]
fn extremes_of_a_row_that_has_no_number_are_none() {
    let [m, n, k] = [40, 70, 33];
    for dtype in [Bf16, F32] {
        let mut a = numbers(m * k, 37);
        (a[2], a[k * 35 + 32]) = (f64::NAN, f64::INFINITY);
        check(&extremes([m, n, k], 64, dtype), &[a, numbers(k * n, 23)], 1e-5);
    }
}

/// Attention over the pairs that a predicate leaves, the largest score of a row as its anchor: scores elsewhere are not
/// wanted by anybody, and weights are 0 there. With `seen`, scores are stored besides: somebody wants them all.
fn masked([m, n, d]: [usize; 3], tiles: [usize; 2], mask: &[[i64; 3]], dtype: DType, seen: bool) -> Program {
    let mut p = Builder::new("masked");
    let q = p.input("Q", &[m, d], dtype);
    let (k, v) = (p.input("K", &[n, d], dtype), p.input("V", &[n, d], dtype));
    let y = p.output("Y", &[m, d], F32);
    let (most, total) = (p.output("M", &[m], F32), p.output("T", &[m], F32));
    let all = seen.then(|| p.output("S", &[m, n], F32));
    p.kernel("masked", |g| {
        let (i, d) = (g.grid("m", m, tiles[0]), g.whole("d", d));
        let j = g.stream_axis("n", n, tiles[1]);
        let affine = |&[outer, inner, constant]: &[i64; 3]| {
            let terms = [(outer, i), (inner, j)].into_iter().filter(|term| term.0 != 0).collect();
            Affine { terms, constant }
        };
        let here = || Scalar::Within(Predicate { all: mask.iter().map(affine).collect() });
        let q = g.load("q", q, [i, d]);
        let states = [carry("most", [i], f64::NEG_INFINITY), carry("total", [i], 0.0), carry("sum", [i, d], 0.0)];
        let [anchor, sum, acc] = g.stream(j, Predicate::always(), states, |g, [anchor, sum, acc]| {
            let k = g.load("k", k, [j, d]);
            let scores = g.mma("scores", q, k);
            let left = g.map("left", select(here(), scores, f64::NEG_INFINITY));
            let most = g.reduce_onto("most.next", Max, anchor, left, j);
            // Of rows that have nothing so far, a number as well.
            let safe = g.map("safe", most.max(-1e3));
            let by = g.map("by", (anchor.max(-1e3) - safe).exp());
            let weights = g.map("weights", select(here(), (scores - safe).exp(), 0.0));
            if let Some(all) = all {
                g.store(all, [i, j], scores);
            }
            let kept = g.map("sum.kept", sum * by);
            let sum = g.reduce_onto("sum.next", Sum, kept, weights, j);
            let narrow = if dtype == F32 { weights } else { g.map("narrow", weights.round_to(dtype)) };
            let v = g.load("v", v, [j, d]);
            let kept = g.map("kept", acc * by);
            [most, sum, g.mma_onto("acc.next", kept, narrow, v)]
        });
        g.store(y, [i, d], acc);
        g.store(most, [i], anchor);
        g.store(total, [i], sum);
    });
    p.finish().expect("well-formed")
}

#[test]
fn squares_that_a_mask_leaves_nothing_of_are_left_out_and_nobody_sees_it() {
    let masks: [&[[i64; 3]]; 8] = [
        &[[1, -1, 0]],
        &[[1, -1, -40]],
        &[[-1, 1, 0]],
        &[[1, -1, 3], [-1, 1, 36]],
        &[[2, -3, 10]],
        &[[-3, 2, 5], [0, -1, 90]],
        &[[-1, 0, 50]],
        &[[0, 1, -1000]],
    ];
    let sizes =
        [([70, 133, 32], [70, 133]), ([100, 100, 20], [64, 48]), ([33, 40, 65], [33, 7]), ([5, 200, 32], [5, 200])];
    for (size, tiles) in sizes {
        let [m, n, d] = size;
        let inputs = [numbers(m * d, 37), numbers(n * d, 23), numbers(n * d, 11)];
        for mask in masks {
            for (dtype, tolerance) in [(F32, 2e-5), (Bf16, BF16)] {
                for seen in [false, true] {
                    check(&masked(size, tiles, mask, dtype, seen), &inputs, tolerance);
                }
            }
        }
    }
}

/// What a contraction's results become before they are the left factor of another.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    Logistic,
    /// The same, of what a number per column and one per row are added to.
    Shifted,
    /// Gated by a tile, of those behind the diagonal.
    Masked,
    /// A function of each and of its place.
    Placed,
}

/// `Y[m, e] = Σ_n f(Σ_d A[m, d] · B[n, d]) · C[n, e]`, in chunks.
fn two_products([m, n, d]: [usize; 3], tiles: [usize; 2], of: Becomes) -> Program {
    let mut p = Builder::new("products");
    let (a, b, c) = (p.input("A", &[m, d], Bf16), p.input("B", &[n, d], Bf16), p.input("C", &[n, d], Bf16));
    let (row, column, gate) = (p.input("R", &[m], F32), p.input("S", &[n], Bf16), p.input("G", &[m, n], F32));
    let y = p.output("Y", &[m, d], F32);
    p.kernel("products", |g| {
        let (i, j) = (g.grid("m", m, tiles[0]), g.stream_axis("n", n, tiles[1]));
        let (d, e) = (g.whole("d", d), g.whole("e", d));
        let (a, row) = (g.load("a", a, [i, d]), g.load("r", row, [i]));
        let [sum] = g.stream(j, Predicate::always(), [carry("sum", [i, e], 0.0)], |g, [sum]| {
            let b = g.load("b", b, [j, d]);
            let product = g.mma("product", a, b);
            let expr = match of {
                Becomes::Logistic => (product * 0.25 - 1.5).apply(UnaryOp::Sigmoid),
                Becomes::Shifted => (product * 0.25 + g.load("s", column, [j]) - row).apply(UnaryOp::Sigmoid),
                Becomes::Masked => {
                    let here = Predicate { all: vec![Affine { terms: vec![(1, i), (-1, j)], constant: 3 }] };
                    select(Scalar::Within(here), product * g.load("g", gate, [i, j]), 0.0)
                }
                Becomes::Placed => (product * 0.5).apply(UnaryOp::Silu) + Scalar::Position(j) * 0.03125,
            };
            let narrow = g.map("narrow", expr.round_to(Bf16));
            let c = g.load("c", c, [j, e]);
            [g.mma_onto("sum.next", sum, narrow, c)]
        });
        g.store(y, [i, e], sum);
    });
    p.finish().expect("well-formed")
}

#[test]
fn results_that_a_map_packs_are_changed_piece_by_piece() {
    for (sizes, tiles) in
        [([1, 1, 1], [2, 2]), ([64, 192, 32], [64, 96]), ([70, 131, 20], [33, 100]), ([33, 257, 64], [33, 256])]
    {
        for of in [Becomes::Logistic, Becomes::Shifted, Becomes::Masked, Becomes::Placed] {
            let [m, n, d] = sizes;
            let inputs = [(m * d, 37), (n * d, 29), (n * d, 31), (m, 11), (n, 13), (m * n, 17)];
            check(&two_products(sizes, tiles, of), &inputs.map(|(count, step)| numbers(count, step)), 0.016);
        }
    }
}
