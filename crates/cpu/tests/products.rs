//! Contractions of every shape of block: rows, columns and terms that fill registers and that do not, factors that lie
//! either way, sums that are begun and that go on.

mod support;

use einloom_cascade::DType::{self, Bf16, F32, F64};
use einloom_tile::{Builder, Coord, Op, Predicate, Program, carry};
use support::check;

/// `Y[m, n] = Σ_k A · B` with tiles of `tile > 1` terms, so that a sum of more goes on from what was stored. In f64, which
/// states of the builder's streams are not, with one tile.
fn product([m, n, k]: [usize; 3], tile: usize, [a_lies, b_lies]: [bool; 2], dtype: DType) -> Program {
    let mut p = Builder::new("product");
    let a = p.input("A", &if a_lies { [k, m] } else { [m, k] }, dtype);
    let b = p.input("B", &if b_lies { [n, k] } else { [k, n] }, dtype);
    let y = p.output("Y", &[m, n], if dtype == F64 { F64 } else { F32 });
    p.kernel("product", |g| {
        let (m, n) = (g.whole("m", m), g.whole("n", n));
        if dtype == F64 {
            let k = g.whole("k", k);
            let a = g.load("a", a, if a_lies { [k, m] } else { [m, k] });
            let b = g.load("b", b, if b_lies { [n, k] } else { [k, n] });
            let sum = g.value("sum", &[m, n], F64);
            g.push(Op::Mma { dst: sum, a, b, acc: None });
            g.store(y, [m, n], sum);
            return;
        }
        let k = g.stream_axis("k", k, tile);
        let [sum] = g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0)], |g, [acc]| {
            let left = g.load("a", a, if a_lies { [k, m] } else { [m, k] });
            let right = g.load("b", b, if b_lies { [n, k] } else { [k, n] });
            [g.mma_onto("sum", acc, left, right)]
        });
        g.store(y, [m, n], sum);
    });
    p.finish().expect("well-formed")
}

/// Numbers that have no pattern a transposition could hide in, small enough to be exact in bf16.
fn numbers(count: usize, step: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * step + i / 7) % 61) as f64 / 16.0 - 2.0).collect()
}

fn agrees(sizes: [usize; 3], tile: usize, lies: [bool; 2], dtype: DType) {
    let [m, n, k] = sizes;
    check(&product(sizes, tile, lies, dtype), &[numbers(m * k, 37), numbers(k * n, 23)], 1e-5);
}

const EITHER_WAY: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

#[test]
fn every_number_of_rows_agrees() {
    for m in 1..=26 {
        for lies in EITHER_WAY {
            agrees([m, 64, 9], 9, lies, F32);
        }
    }
}

#[test]
fn every_kind_of_last_register_agrees() {
    for n in [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 80, 96, 113, 128, 130] {
        for lies in EITHER_WAY {
            agrees([10, n, 6], 6, lies, F32);
        }
    }
}

#[test]
fn every_remainder_of_terms_agrees_begun_and_gone_on_with() {
    for k in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13] {
        let whole = k.max(2);
        for (tile, lies) in [(whole, [false, false]), (whole, [true, true]), (5, [false, true]), (5, [true, false])] {
            agrees([10, 64, k], tile, lies, F32);
        }
    }
}

#[test]
fn sums_longer_than_a_part_agree() {
    for k in [255, 256, 257, 515] {
        for lies in EITHER_WAY {
            agrees([7, 40, k], k, lies, F32);
        }
    }
}

#[test]
fn tiles_whose_rows_are_set_apart_agree() {
    for n in [256, 320, 512] {
        agrees([13, n, 20], 20, [false, false], F32);
        agrees([n, 13, 20], 20, [true, true], F32);
    }
}

#[test]
fn other_number_types_agree() {
    for dtype in [Bf16, F64] {
        for lies in EITHER_WAY {
            agrees([11, 70, 19], 8, lies, dtype);
            agrees([12, 64, 16], 16, lies, dtype);
        }
    }
}

/// What a stream's state is multiplied by before a product is added to it.
#[derive(Clone, Copy)]
enum Decay {
    PerRow,
    PerColumn,
    Same,
}

/// `Y = (Σ_c decay^… · A_c · B_c) * 0.3` over chunks of `tile` terms: multiplications that products can do in passing.
fn decayed([m, n, k]: [usize; 3], tile: usize, decay: Decay, dtype: DType) -> Program {
    let mut p = Builder::new("decayed");
    let (a, b) = (p.input("A", &[m, k], dtype), p.input("B", &[k, n], dtype));
    let w = p.input("W", &[m.max(n)], F32);
    let y = p.output("Y", &[m, n], F32);
    let z = p.output("Z", &[m, n], F32);
    p.kernel("decayed", |g| {
        let (m, n) = (g.whole("m", m), g.whole("n", n));
        let (all, k) = (g.whole("all", k), g.stream_axis("k", k, tile));
        let w = match decay {
            Decay::PerRow => g.load("w", w, [m]),
            Decay::PerColumn => g.load("w", w, [n]),
            Decay::Same => g.load("w", w, [Coord::from(2)]),
        };
        let [sum] = g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0)], |g, [acc]| {
            let (left, right) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
            let kept = g.map("kept", acc * w);
            [g.mma_onto("sum", kept, left, right)]
        });
        g.store(y, [m, n], sum);
        let (left, right) = (g.load("a", a, [m, all]), g.load("b", b, [all, n]));
        let product = g.mma("product", left, right);
        let scaled = g.map("scaled", product * 0.3);
        g.store(z, [m, n], scaled);
    });
    p.finish().expect("well-formed")
}

#[test]
fn multiples_of_sums_and_of_what_they_go_on_from_agree() {
    for decay in [Decay::PerRow, Decay::PerColumn, Decay::Same] {
        for (sizes, tile) in [([10, 64, 24], 8), ([13, 70, 20], 7), ([64, 128, 64], 32), ([3, 5, 6], 2)] {
            for dtype in [F32, Bf16] {
                let [m, n, k] = sizes;
                let weights: Vec<f64> = (0..m.max(n)).map(|i| 0.5 + (i % 5) as f64 / 8.0).collect();
                let inputs = [numbers(m * k, 37), numbers(k * n, 23), weights];
                check(&decayed(sizes, tile, decay, dtype), &inputs, 1e-5);
            }
        }
    }
}

/// `C = A · B` in tiles over a grid, its rows so far apart that tiles are copied.
fn tiled([m, n, k]: [usize; 3], tile: [usize; 3], dtype: DType) -> Program {
    let mut p = Builder::new("tiled");
    let (a, b) = (p.input("A", &[m, k], dtype), p.input("B", &[k, n], dtype));
    let c = p.output("C", &[m, n], F32);
    p.kernel("tiled", |g| {
        let (m, n) = (g.grid("m", m, tile[0]), g.grid("n", n, tile[1]));
        let k = g.stream_axis("k", k, tile[2]);
        let [sum] = g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0)], |g, [acc]| {
            let (left, right) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
            [g.mma_onto("sum", acc, left, right)]
        });
        g.store(c, [m, n], sum);
    });
    p.finish().expect("well-formed")
}

#[test]
fn tiles_copied_while_the_chunk_before_is_multiplied_agree() {
    let cases = [
        ([20, 512, 64], [10, 128, 16]),
        // Last chunks, rows and columns that are shorter, and rows that are no whole number of lines.
        ([13, 512, 50], [8, 120, 20]),
        ([9, 1024, 36], [9, 1024, 12]),
        // Too few products to copy everything beside them.
        ([4, 512, 96], [4, 64, 24]),
    ];
    for (sizes, tile) in cases {
        for dtype in [F32, Bf16] {
            let [m, n, k] = sizes;
            check(&tiled(sizes, tile, dtype), &[numbers(m * k, 37), numbers(k * n, 23)], 1e-5);
        }
    }
}

/// `Y = A · B` of one tile each, of these types, and over a grid of rows so that the right factor is kept.
fn mixed([m, n, k]: [usize; 3], rows: usize, [left, right]: [DType; 2]) -> Program {
    let mut p = Builder::new("mixed");
    let (a, b) = (p.input("A", &[m, k], left), p.input("B", &[k, n], right));
    let y = p.output("Y", &[m, n], F32);
    p.kernel("mixed", |g| {
        let (m, n, k) = (g.grid("m", m, rows), g.whole("n", n), g.whole("k", k));
        let (a, b) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
        let sum = g.mma("sum", a, b);
        g.store(y, [m, n], sum);
    });
    p.finish().expect("well-formed")
}

/// Numbers that use all bits of their type.
fn full(count: usize, dtype: DType, seed: f64) -> Vec<f64> {
    (0..count).map(|i| einloom_cascade::numeric::round(dtype, ((i as f64 + 1.0) * seed).sin() * 3.0)).collect()
}

#[test]
fn all_bits_of_factors_of_different_types_count() {
    let types = [F32, Bf16, DType::F16, DType::Tf32, DType::E4m3];
    for left in types {
        for right in types {
            for sizes in [[70, 48, 96], [33, 20, 40]] {
                let [m, n, k] = sizes;
                let inputs = [full(m * k, left, 0.7310585), full(k * n, right, 1.2345679)];
                check(&mixed(sizes, 35, [left, right]), &inputs, 2e-5);
            }
        }
    }
}

#[test]
fn numbers_whose_parts_would_be_lost_agree() {
    let sizes @ [m, n, k] = [70, 33, 40];
    let of = |x: &[f64], by: f64| -> Vec<f64> { x.iter().map(|x| f64::from((x * by) as f32)).collect() };
    // Of one sign, so that no sum is less than what it is made of.
    let positive = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(f64::abs).collect() };
    let (a, b) = (positive(full(m * k, F32, 0.7310585)), positive(full(k * n, F32, 1.2345679)));
    let bf16 = |x: &[f64]| -> Vec<f64> { x.iter().map(|&x| einloom_cascade::numeric::round(Bf16, x)).collect() };
    // All small beside large, either way; a row among others; and so large that rounding would overflow.
    for (by, times) in [(1e-36, 1e36), (1e36, 1e-36), (1e-22, 1e20), (1.1e38, 1e-38), (1e-38, 1e38)] {
        check(&mixed(sizes, 35, [F32, F32]), &[of(&a, by), of(&b, times)], 1e-5);
        check(&mixed(sizes, 35, [F32, Bf16]), &[of(&a, by), bf16(&of(&b, times))], 1e-5);
        let mut row = a.clone();
        row[k..2 * k].copy_from_slice(&of(&a[k..2 * k], by));
        let scaled = of(&b, if by < 1.0 { times } else { 1.0 });
        check(&mixed(sizes, 35, [F32, F32]), &[row, scaled], 1e-5);
    }
}

#[test]
fn what_is_no_finite_number_agrees() {
    let sizes @ [m, n, k] = [70, 33, 40];
    for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.4e38] {
        for dtype in [F32, Bf16] {
            let special = einloom_cascade::numeric::round(dtype, special);
            let (a, b) = (full(m * k, dtype, 0.7310585), full(k * n, dtype, 1.2345679));
            let (mut left, mut right) = (a.clone(), b.clone());
            left[3 * k + 7] = special;
            right[5 * n + 9] = special;
            check(&mixed(sizes, 35, [dtype, dtype]), &[left, b], 1e-5);
            check(&mixed(sizes, 35, [dtype, dtype]), &[a, right], 1e-5);
        }
    }
}

/// `Y[m, n] = Σ_k A · B · times + X`, in tiles of 64 columns.
fn added([m, n, k]: [usize; 3], times: f64, dtype: DType) -> Program {
    let mut p = Builder::new("added");
    let (a, b) = (p.input("A", &[m, k], dtype), p.input("B", &[k, n], dtype));
    let (x, y) = (p.input("X", &[m, n], F32), p.output("Y", &[m, n], F32));
    p.kernel("added", |g| {
        let (m, n, k) = (g.whole("m", m), g.grid("n", n, 64), g.whole("k", k));
        let (a, b) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
        let sum = g.mma("sum", a, b);
        let x = g.load("x", x, [m, n]);
        g.store(y, [m, n], sum * times + x);
    });
    p.finish().expect("well-formed")
}

#[test]
fn what_is_added_to_a_multiple_is_added_as_it_is() {
    for [m, n, k] in [[1, 1, 1], [13, 64, 8], [40, 130, 70], [33, 100, 300], [64, 64, 513]] {
        let mut x = numbers(m * n, 11);
        // Others than these would be if they were multiplied with the sums, or divided beforehand.
        (x[0], x[m * n / 2], x[m * n - 1]) = (3e38, f64::NEG_INFINITY, f64::INFINITY);
        for (times, dtype) in [(0.125, F32), (0.3, F32), (1.0, F32), (0.125, Bf16)] {
            let inputs = [numbers(m * k, 37), numbers(k * n, 23), x.clone()];
            check(&added([m, n, k], times, dtype), &inputs, 1e-5);
        }
    }
}
