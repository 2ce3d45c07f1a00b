//! Exponentials below an anchor that is known before the scores are: of attention in every shape, with scores that stay near it,
//! that rise far above it, and that are no numbers.

mod support;

use einloom_cascade::DType::{self, Bf16, F32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::TileMonoid::{Max, Sum};
use einloom_tile::{Affine, Builder, Predicate, Program, Scalar, carry, select};
use support::check;

/// Weights of bf16 are within a unit of it: see `kernels/exp/rounded.rs`.
fn tolerance(dtype: DType) -> f64 {
    if dtype == Bf16 { 0.016 } else { 1e-5 }
}

/// Multiples of a sixteenth between -2 and 2 without a pattern.
fn numbers(count: usize, step: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * step + i / 7) % 61) as f64 / 16.0 - 2.0).collect()
}

/// What becomes of scores before they are exponentiated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    /// One is added for each, of this type; or subtracted.
    Bias(DType, bool),
    /// The same of one for each column.
    Keys(DType, bool),
    /// One is added for each row and column; or one of the column subtracted and the other one added then.
    RowsAndKeys(DType, bool),
    /// One for each column is added or multiplied by, which tells as a truth value too whether they are kept.
    KeptKeys(BinaryOp),
    /// They fall with the distance.
    Slope,
    /// None is larger.
    Cap(f64),
    /// A cap of those with a bias, per column.
    CapOfBias,
    /// They are divided by the lengths of keys, which are read for that too.
    Lengths,
    /// They are multiplied by a function of themselves.
    Gated,
    /// Before the fifth column, and behind the diagonal, they are a number.
    Elsewhere(f64),
}

/// Attention over the pairs that a predicate leaves, of several tiles of rows, and the logarithm of each row's sum of
/// exponentials, as derived programs are: where a row has seen nothing, 0 stands for its anchor.
fn attention(dtype: DType, sizes: [usize; 3], tiles: [usize; 2], mask: &[[i64; 3]]) -> Program {
    changed(dtype, sizes, tiles, mask, Between::Nothing)
}

/// The same of scores that are changed before.
fn changed(dtype: DType, [m, n, d]: [usize; 3], tiles: [usize; 2], mask: &[[i64; 3]], between: Between) -> Program {
    let mut p = Builder::new("attention");
    let q = p.input("Q", &[2, m, d], dtype);
    let (k, v) = (p.input("K", &[2, n, d], dtype), p.input("V", &[2, n, d], dtype));
    let bias = match between {
        Between::Bias(dtype, _) => Some(p.input("bias", &[2, m, n], dtype)),
        Between::Keys(dtype, _) | Between::RowsAndKeys(dtype, _) => Some(p.input("bias", &[n], dtype)),
        Between::CapOfBias | Between::KeptKeys(_) => Some(p.input("bias", &[n], F32)),
        _ => None,
    };
    let per_row = matches!(between, Between::RowsAndKeys(..)).then(|| p.input("rows", &[m], F32));
    let (y, log) = (p.output("Y", &[2, m, d], F32), p.output("L", &[2, m], F32));
    p.kernel("attention", |g| {
        let (h, i, d) = (g.grid("h", 2, 1), g.grid("m", m, tiles[0]), g.whole("d", d));
        let j = g.stream_axis("n", n, tiles[1]);
        let affine = |&[outer, inner, constant]: &[i64; 3]| {
            let terms = [(outer, i), (inner, j)].into_iter().filter(|term| term.0 != 0).collect();
            Affine { terms, constant }
        };
        let here = Predicate { all: mask.iter().map(affine).collect() };
        let masked = |x: Scalar, other: f64| {
            if mask.is_empty() { x } else { select(Scalar::Within(here.clone()), x, other) }
        };
        let finite = |x: Scalar| x.apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY);
        let q = g.load("q", q, [h, i, d]);
        let states = [carry("top", [i], f64::NEG_INFINITY), carry("sum", [i], 0.0), carry("acc", [i, d], 0.0)];
        let [top, sum, acc] = g.stream(j, here.clone(), states, |g, [top, sum, acc]| {
            let k = g.load("k", k, [h, j, d]);
            let scores = g.mma("scores", q, k);
            let squares = (between == Between::Lengths).then(|| {
                let squares = g.map("squares", Scalar::from(k) * k);
                g.reduce("length", Sum, squares, d)
            });
            let expr = match (between, bias) {
                (Between::Bias(_, false), Some(bias)) => scores * 0.25 + g.load("bias", bias, [h, i, j]),
                (Between::Bias(_, true), Some(bias)) => scores * 0.25 - g.load("bias", bias, [h, i, j]),
                (Between::Keys(_, false), Some(bias)) => scores * 0.25 + g.load("bias", bias, [j]),
                (Between::Keys(_, true), Some(bias)) => scores * 0.25 - g.load("bias", bias, [j]),
                (Between::RowsAndKeys(_, less), Some(bias)) => {
                    let row = g.load("rows", per_row.expect("rows"), [i]);
                    let bias = g.load("bias", bias, [j]);
                    if less { scores * 0.25 - bias + row } else { scores * 0.25 + row + bias }
                }
                (Between::KeptKeys(op), Some(bias)) => {
                    let bias = g.load("bias", bias, [j]);
                    select(Scalar::from(bias), (scores * 0.25).with(op, bias), -1.0)
                }
                (Between::CapOfBias, Some(bias)) => {
                    let sum = scores * 0.25 + g.load("bias", bias, [j]);
                    (sum / Scalar::Const(2.0)).apply(UnaryOp::Tanh) * 2.0
                }
                (Between::Lengths, _) => {
                    let length = Scalar::from(squares.expect("lengths")) + 1.0;
                    length.apply(UnaryOp::Rsqrt) * scores
                }
                (Between::Gated, _) => (scores * 0.25).apply(UnaryOp::Sigmoid) * (scores * 0.25),
                (Between::Slope, _) => scores * 0.25 - (Scalar::Position(i) - Scalar::Position(j)) * 0.125,
                (Between::Cap(cap), _) => (scores * 0.25 / cap).apply(UnaryOp::Tanh) * cap,
                (Between::Elsewhere(x), _) => {
                    let affine = |terms, constant| Affine { terms, constant };
                    let all = vec![affine(vec![(1, j)], -5), affine(vec![(1, i), (-1, j)], 0)];
                    select(Scalar::Within(Predicate { all }), scores * 0.25, x)
                }
                _ => scores * 0.25,
            };
            let scores = g.map("scaled", expr);
            let plain = mask.is_empty() && between != Between::Nothing;
            let seen = if plain { scores } else { g.map("seen", masked(scores.into(), f64::NEG_INFINITY)) };
            let next = g.reduce_onto("top.next", Max, top, seen, j);
            let known = g.map("known", finite(next.into()));
            let safe = g.map("safe", select(known, next, 0.0));
            let by = g.map("by", (top - safe).exp());
            let weights = g.map("weights", masked((scores - safe).exp(), 0.0));
            let kept = g.map("sum.kept", sum * by);
            let sum = g.reduce_onto("sum.next", Sum, kept, weights, j);
            let narrow = if dtype == Bf16 { g.map("narrow", weights.round_to(Bf16)) } else { weights };
            let v = g.load("v", v, [h, j, d]);
            let kept = g.map("acc.kept", acc * by);
            [next, sum, g.mma_onto("acc.next", kept, narrow, v)]
        });
        g.store(y, [h, i, d], acc / sum);
        g.store(log, [h, i], top + Scalar::from(sum).log());
    });
    p.finish().expect("well-formed")
}

const NONE: &[[i64; 3]] = &[];
const CAUSAL: &[[i64; 3]] = &[[1, -1, 0]];

/// Attention on queries and values without a pattern and on these keys.
fn agrees(sizes: [usize; 3], tiles: [usize; 2], mask: &[[i64; 3]], keys: Vec<f64>) {
    let [m, n, d] = sizes;
    let inputs = [numbers(2 * m * d, 37), keys, numbers(2 * n * d, 29)];
    for dtype in [Bf16, F32] {
        check(&attention(dtype, sizes, tiles, mask), &inputs, tolerance(dtype));
    }
}

#[test]
fn weights_of_every_shape_agree() {
    for (sizes, tiles) in [
        ([64, 128, 16], [32, 64]),
        ([70, 130, 32], [33, 50]),
        ([40, 300, 64], [16, 100]),
        ([96, 97, 20], [40, 97]),
        ([150, 600, 33], [70, 290]),
        ([9, 256, 8], [5, 128]),
    ] {
        for mask in [NONE, CAUSAL, &[[1, -1, 5], [-1, 1, 36]]] {
            agrees(sizes, tiles, mask, numbers(2 * sizes[1] * sizes[2], 23));
        }
    }
}

/// From key to key, and so from chunk to chunk, scores rise or fall, some of them by so much that weights would leave the
/// range that an earlier anchor allows.
#[test]
fn scores_that_rise_find_another_anchor() {
    let [m, n, d] = [64, 256, 16];
    for steepness in [-1.0, 0.25, 1.0, 8.0] {
        let mut keys = numbers(2 * n * d, 23);
        for (at, key) in keys.iter_mut().enumerate() {
            *key = (*key * 0.1 + steepness * (at / d % n) as f64 / 16.0).round();
        }
        for mask in [NONE, CAUSAL] {
            agrees([m, n, d], [32, 64], mask, keys.clone());
        }
    }
}

#[test]
fn scores_that_are_no_numbers_stay_in_their_rows() {
    let [m, n, d] = [64, 256, 16];
    for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for key in [0, 70, 255] {
            let mut keys = numbers(2 * n * d, 23);
            keys[key * d + 3] = special;
            agrees([m, n, d], [32, 64], CAUSAL, keys);
        }
    }
}

/// Weights that are 0 leave nothing of a value, but of one that is infinite or no number, in chunks that a number takes the place of
/// as a whole and in others.
#[test]
fn values_that_are_no_numbers_reach_rows_that_give_them_no_weight() {
    let (sizes, tiles) = ([70, 200, 16], [16, 32]);
    let [m, n, d] = sizes;
    let (queries, keys) = (numbers(2 * m * d, 37), numbers(2 * n * d, 23));
    for elsewhere in [-3.4028234663852886e38, -2.0] {
        for (special, key) in [(f64::INFINITY, 199), (f64::NEG_INFINITY, 40), (f64::NAN, 64), (0.0, 0)] {
            let mut values = numbers(2 * n * d, 29);
            values[key * d + 3] = special;
            let inputs = [queries.clone(), keys.clone(), values];
            for dtype in [Bf16, F32] {
                let program = changed(dtype, sizes, tiles, NONE, Between::Elsewhere(elsewhere));
                check(&program, &inputs, tolerance(dtype));
            }
        }
    }
}

/// What is added to scores, or becomes of them otherwise, in tiles that are whole and in others.
#[test]
fn scores_that_are_changed_first_agree() {
    for (sizes, tiles) in
        [([64, 256, 32], [64, 128]), ([70, 130, 32], [33, 50]), ([150, 600, 16], [70, 290]), ([9, 256, 8], [5, 128])]
    {
        let [m, n, d] = sizes;
        let factors = [numbers(2 * m * d, 37), numbers(2 * n * d, 23), numbers(2 * n * d, 29)];
        let biases = numbers(2 * m * n, 41);
        for between in [
            Between::Bias(Bf16, false),
            Between::Bias(F32, true),
            Between::Keys(Bf16, false),
            Between::Keys(F32, true),
            Between::RowsAndKeys(Bf16, false),
            Between::RowsAndKeys(F32, true),
            Between::KeptKeys(BinaryOp::Add),
            Between::KeptKeys(BinaryOp::Mul),
            Between::Slope,
            Between::Cap(1.5),
            Between::Cap(50.0),
            Between::Cap(3000.0),
            Between::CapOfBias,
            Between::Lengths,
            Between::Gated,
            Between::Elsewhere(-2.0),
            Between::Elsewhere(-3.4028234663852886e38),
        ] {
            for mask in [NONE, CAUSAL] {
                let mut inputs = factors.to_vec();
                match between {
                    Between::Bias(..) => inputs.push(biases.clone()),
                    Between::Keys(..) | Between::CapOfBias => inputs.push(biases[..n].to_vec()),
                    Between::RowsAndKeys(..) => {
                        inputs.extend([biases[..n].to_vec(), biases[n..][..m].to_vec()]);
                    }
                    Between::KeptKeys(_) => {
                        inputs.push(
                            biases[..n].iter().enumerate().map(|(j, x)| if j % 3 == 1 { 0.0 } else { *x }).collect(),
                        );
                    }
                    _ => {}
                }
                for dtype in [Bf16, F32] {
                    check(&changed(dtype, sizes, tiles, mask, between), &inputs, tolerance(dtype));
                }
            }
        }
    }
}

/// A bias that hides some keys of all rows and all keys of some, one that rises from chunk to chunk, and one that is no number.
#[test]
fn biases_that_are_no_numbers_or_rise_agree() {
    let ([m, n, d], tiles) = ([64, 256, 32], [32, 64]);
    let factors = [numbers(2 * m * d, 37), numbers(2 * n * d, 23), numbers(2 * n * d, 29)];
    let kinds: [fn(usize, usize) -> f64; 5] = [
        |_, column| if column % 3 == 0 { f64::NEG_INFINITY } else { 0.5 },
        |row, column| if row == 40 && column != 200 { f64::NEG_INFINITY } else { -1.0 },
        |_, column| (column / 2) as f64,
        |row, column| if row == 7 && column == 100 { f64::NAN } else { 0.0 },
        |row, column| if row == 33 && column == 3 { 1e30 } else { -1e30 },
    ];
    for kind in kinds {
        let bias = (0..2 * m * n).map(|at| kind(at / n % m, at % n)).collect::<Vec<_>>();
        for (narrow, less) in [(Bf16, false), (F32, false), (F32, true)] {
            let bias: Vec<f64> = bias.iter().map(|x| if less { -x } else { *x }).collect();
            let mut inputs = factors.to_vec();
            inputs.push(bias);
            check(&changed(Bf16, [m, n, d], tiles, NONE, Between::Bias(narrow, less)), &inputs, tolerance(Bf16));
            inputs[3].truncate(n);
            check(&changed(Bf16, [m, n, d], tiles, NONE, Between::Keys(narrow, less)), &inputs, tolerance(Bf16));
        }
    }
}

/// The exponentials of two contractions are taken before either is multiplied by the values.
#[test]
fn two_kinds_of_weights_wait_for_each_other() {
    for ([m, n, d], tiles, dtype) in
        [([70, 300, 32], [33, 100], Bf16), ([70, 300, 32], [33, 100], F32), ([64, 512, 64], [32, 256], Bf16)]
    {
        let mut p = Builder::new("difference");
        let keys = ["K1", "K2"].map(|name| p.input(name, &[n, d], dtype));
        let [q, v] = [("Q", m), ("V", n)].map(|(name, n)| p.input(name, &[n, d], dtype));
        let y = p.output("Y", &[m, d], F32);
        p.kernel("difference", |g| {
            let (i, d, j) = (g.grid("m", m, tiles[0]), g.whole("d", d), g.stream_axis("n", n, tiles[1]));
            let q = g.load("q", q, [i, d]);
            let each = [carry("top", [i], f64::NEG_INFINITY), carry("sum", [i], 0.0), carry("acc", [i, d], 0.0)];
            let [a, b, c] = each.clone();
            let [x, y1, z] = each;
            let [_, sum, acc, _, sum2, acc2] =
                g.stream(j, Predicate::default(), [a, b, c, x, y1, z], |g, [top, sum, acc, top2, sum2, acc2]| {
                    let weighed = [(0, top, sum, acc), (1, top2, sum2, acc2)].map(|(number, top, sum, acc)| {
                        let k = g.load("k", keys[number], [j, d]);
                        let scores = g.mma("scores", q, k);
                        let scores = g.map("scaled", scores * 0.25);
                        let next = g.reduce_onto("top.next", Max, top, scores, j);
                        let known =
                            g.map("known", Scalar::from(next).apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY));
                        let safe = g.map("safe", select(known, next, 0.0));
                        let by = g.map("by", (top - safe).exp());
                        let weights = g.map("weights", (scores - safe).exp());
                        let kept = g.map("sum.kept", sum * by);
                        (next, g.reduce_onto("sum.next", Sum, kept, weights, j), weights, acc, by)
                    });
                    let states = weighed.map(|(next, sum, weights, acc, by)| {
                        let narrow = if dtype == Bf16 { g.map("narrow", weights.round_to(Bf16)) } else { weights };
                        let v = g.load("v", v, [j, d]);
                        let kept = g.map("acc.kept", acc * by);
                        [next, sum, g.mma_onto("acc.next", kept, narrow, v)]
                    });
                    let [[a, b, c], [x, y, z]] = states;
                    [a, b, c, x, y, z]
                });
            g.store(y, [i, d], acc / sum - Scalar::from(acc2) * 0.8 / sum2);
        });
        let inputs = [numbers(n * d, 37), numbers(n * d, 41), numbers(m * d, 29), numbers(n * d, 31)];
        check(&p.finish().expect("well-formed"), &inputs, tolerance(dtype));
    }
}
