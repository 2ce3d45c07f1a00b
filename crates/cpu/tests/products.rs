//! Contractions of every shape of block: rows, columns and terms that fill registers and that do not, factors that lie
//! either way, sums that are begun and that go on.

mod support;

use einloom_cascade::DType::{self, Bf16, F32, F64};
use einloom_tile::{Builder, Op, Predicate, Program, carry};
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
