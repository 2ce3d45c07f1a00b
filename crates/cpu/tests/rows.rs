//! Maps whose strips are reduced and stored as they are computed, and tiles that stay in their tensor's type, against
//! the interpreter: rows of every length around the strips and registers, whatever the elements are.

mod support;

use einloom_cascade::DType::{self, Bf16, F16, F32, F64};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{Builder, Coord, Predicate, Program, Scalar, TileMonoid, carry};
use support::check;

/// Lengths around a register, a short row, a strip, and several strips.
const LENGTHS: [usize; 12] = [1, 2, 3, 8, 9, 16, 17, 255, 257, 512, 513, 1100];

fn finish(p: Builder) -> Program {
    p.finish().unwrap_or_else(|d| panic!("{d:?}"))
}

/// A row's maximum, a sum of exponentials below it, and their quotients: three traversals of a tile that is loaded once.
fn quotients(rows: usize, columns: usize, dtype: DType) -> Program {
    let mut p = Builder::new("quotients");
    let (x, y) = (p.input("X", &[rows, columns], dtype), p.output("Y", &[rows, columns], dtype));
    p.kernel("quotients", |g| {
        let (m, n) = (g.grid("m", rows, 4), g.whole("n", columns));
        let tile = g.load("x", x, [m, n]);
        let high = g.reduce("high", TileMonoid::Max, tile, n);
        let power = g.map("power", (Scalar::from(tile) - high).exp());
        let sum = g.reduce("sum", TileMonoid::Sum, power, n);
        g.store(y, [m, n], (Scalar::from(tile) - high).exp() / sum);
    });
    finish(p)
}

fn ramp(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i * 7 % 23) as f64 / 4.0 - 2.0).collect()
}

#[test]
fn rows_of_every_length_are_reduced_and_stored_strip_by_strip() {
    for columns in LENGTHS {
        for dtype in [F32, Bf16, F16, F64] {
            // The interpreter's f64 and ours may round a narrow result to neighbours.
            let tolerance = match dtype {
                Bf16 => 1e-2,
                F16 => 1e-3,
                _ => 2e-6,
            };
            check(&quotients(7, columns, dtype), &[ramp(7 * columns)], tolerance);
        }
    }
}

#[test]
fn special_values_go_through_rows_as_they_do_through_the_meaning() {
    for (columns, dtype) in [(37, F32), (37, Bf16), (1100, F32), (1100, Bf16)] {
        let mut values = ramp(6 * columns);
        let row = |r: usize| r * columns..(r + 1) * columns;
        values[row(0)].fill(f64::NEG_INFINITY);
        values[row(1)][5] = f64::NAN;
        values[row(2)][36] = f64::INFINITY;
        values[row(3)].fill(f64::INFINITY);
        values[row(4)].iter_mut().for_each(|x| *x *= 1e-40);
        values[row(5)][1..].fill(f64::NEG_INFINITY);
        check(&quotients(6, columns, dtype), &[values], if dtype == F32 { 2e-6 } else { 1e-2 });
    }
}

#[test]
fn division_by_what_a_row_shares_is_division() {
    // Dividends and divisors of every magnitude, zeros of both signs, infinities, NaN, and what is not normal.
    let special = [
        0.0,
        -0.0,
        1.0,
        3.0,
        -7.0,
        49.0,
        1e-45,
        1e-39,
        1.2e-38,
        3.4e38,
        -2e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let (rows, columns) = (special.len(), 2 * special.len() + 300);
    let mut p = Builder::new("divide");
    let (x, s) = (p.input("X", &[rows, columns], F32), p.input("S", &[rows], F32));
    let y = p.output("Y", &[rows, columns], F32);
    p.kernel("divide", |g| {
        let (m, n) = (g.grid("m", rows, 3), g.whole("n", columns));
        let (tile, shared) = (g.load("x", x, [m, n]), g.load("s", s, [m]));
        g.store(y, [m, n], Scalar::from(tile) / shared);
    });
    let dividend = |i: usize| if i < 2 * special.len() { special[i / 2] } else { i as f64 };
    let values = (0..rows * columns).map(|i| f64::from(dividend(i % columns) as f32)).collect();
    let divisors = special.iter().map(|&x| f64::from(x as f32)).collect();
    // Quotients that are subnormal may be off by one of their own steps, which are far below this.
    check(&finish(p), &[values, divisors], 6e-8);
}

#[test]
fn a_map_may_be_reduced_twice_stored_and_kept() {
    for (rows, columns) in [(5, 3), (5, 40), (3, 700)] {
        let mut p = Builder::new("kept");
        let x = p.input("X", &[rows, columns], F32);
        let (y, z) = (p.output("Y", &[rows, columns], F32), p.output("Z", &[columns, rows], F32));
        let (low, sum) = (p.output("low", &[rows], F32), p.output("sum", &[rows], Bf16));
        p.kernel("kept", |g| {
            let (m, n) = (g.grid("m", rows, 2), g.whole("n", columns));
            let tile = g.load("x", x, [m, n]);
            let square = g.map("square", Scalar::from(tile) * tile);
            let least = g.reduce("least", TileMonoid::Min, square, n);
            let total = g.reduce("total", TileMonoid::Sum, square, n);
            g.store(y, [m, n], square);
            g.store(z, [n, m], square);
            g.store(low, [m], least);
            g.store(sum, [m], total);
        });
        check(&finish(p), &[ramp(rows * columns)], 1e-6);
    }
}

#[test]
fn states_take_in_rows_chunk_by_chunk() {
    for dtype in [F32, Bf16] {
        let (rows, columns) = (9, 1000);
        let mut p = Builder::new("states");
        let (x, y) = (p.input("X", &[rows, columns], dtype), p.output("Y", &[2, rows], F32));
        p.kernel("states", |g| {
            let (m, n) = (g.grid("m", rows, 4), g.stream_axis("n", columns, 96));
            let states = [carry("high", [m], f64::NEG_INFINITY), carry("sum", [m], 0.0)];
            let [high, sum] = g.stream(n, Predicate::always(), states, |g, [high, sum]| {
                let tile = g.load("x", x, [m, n]);
                let next = g.reduce_onto("next", TileMonoid::Max, high, tile, n);
                let power = g.map("power", (Scalar::from(tile) - next).exp());
                let kept = g.map("kept", Scalar::from(sum) * (Scalar::from(high) - next).exp());
                [next, g.reduce_onto("more", TileMonoid::Sum, kept, power, n)]
            });
            g.store(y, [Coord::from(0), Coord::axis(m)], high);
            g.store(y, [Coord::from(1), Coord::axis(m)], sum);
        });
        check(&finish(p), &[ramp(rows * columns)], 1e-5);
    }
}

#[test]
fn sums_of_long_computed_rows_are_accurate() {
    for dtype in [F32, Bf16] {
        let mut p = Builder::new("long");
        let (x, y) = (p.input("X", &[2, 60_000], dtype), p.output("Y", &[2], F32));
        p.kernel("long", |g| {
            let (m, n) = (g.grid("m", 2, 1), g.whole("n", 60_000));
            let tile = g.load("x", x, [m, n]);
            let square = g.map("square", Scalar::from(tile) * tile);
            let sum = g.reduce("sum", TileMonoid::Sum, square, n);
            g.store(y, [m], sum);
        });
        // Multiples of 1/64 below 4: exact in bf16, and so are their squares in f32.
        let values = (0..120_000).map(|i| 1.0 + (i * 7919 % 64) as f64 / 64.0).collect();
        check(&finish(p), &[values], 2e-7);
    }
}

#[test]
fn counting_by_summing_ones_is_exact_whatever_reads_the_ones() {
    for (columns, one) in [(1, 1.0), (700, 1.0), (700, 0.25), (1100, -3.0)] {
        let mut p = Builder::new("count");
        let (y, z) = (p.output("Y", &[], F32), p.output("Z", &[columns], F32));
        p.kernel("count", |g| {
            let n = g.whole("n", columns);
            let ones = g.map_over("ones", &[n], Scalar::from(one));
            let count = g.reduce("count", TileMonoid::Sum, ones, n);
            g.store(y, Vec::<Coord>::new(), count);
            g.store(z, [n], Scalar::from(ones) / count);
        });
        check(&finish(p), &[], 1e-7);
    }
}

/// The same relative to the maximum where that is finite and to 0 elsewhere: the quotients read the exponentials back,
/// and rows whose maximum is not finite compute their own.
fn guarded_quotients(rows: usize, columns: usize, dtype: DType) -> Program {
    let mut p = Builder::new("quotients");
    let (x, y) = (p.input("X", &[rows, columns], dtype), p.output("Y", &[rows, columns], dtype));
    p.kernel("quotients", |g| {
        let (m, n) = (g.grid("m", rows, 4), g.whole("n", columns));
        let tile = g.load("x", x, [m, n]);
        let high = g.reduce("high", TileMonoid::Max, tile, n);
        let finite = g.map(
            "finite",
            Scalar::Binary(
                BinaryOp::Lt,
                Box::new(Scalar::Unary(UnaryOp::Abs, Box::new(high.into()))),
                Box::new(f64::INFINITY.into()),
            ),
        );
        let anchor =
            g.map("anchor", Scalar::Select(Box::new(finite.into()), Box::new(high.into()), Box::new(0.0.into())));
        let power = g.map("power", (Scalar::from(tile) - anchor).exp());
        let sum = g.reduce("sum", TileMonoid::Sum, power, n);
        g.store(y, [m, n], (Scalar::from(tile) - high).exp() / sum);
    });
    finish(p)
}

#[test]
fn what_a_guard_kept_out_is_computed_again_where_the_guard_fails() {
    for columns in LENGTHS {
        for dtype in [F32, Bf16] {
            let mut values = ramp(7 * columns);
            let row = |r: usize| r * columns..(r + 1) * columns;
            values[row(0)].fill(f64::NEG_INFINITY);
            values[row(2)][columns / 2] = f64::NAN;
            values[row(3)][columns - 1] = f64::INFINITY;
            values[row(6)].fill(f64::INFINITY);
            let tolerance = if dtype == F32 { 2e-6 } else { 1e-2 };
            check(&guarded_quotients(7, columns, dtype), &[values], tolerance);
        }
    }
}

/// Long rows of a large result are exponentiated a second time, from registers to memory.
#[test]
fn exponentials_that_are_made_again_are_the_same() {
    let [rows, columns] = [1037, 4099];
    let mut values = ramp(rows * columns);
    let row = |r: usize| r * columns..(r + 1) * columns;
    values[row(0)].fill(f64::NEG_INFINITY);
    values[row(5)][columns / 2] = f64::NAN;
    values[row(6)][columns - 1] = f64::INFINITY;
    values[row(7)].fill(f64::INFINITY);
    values[row(rows - 1)].iter_mut().for_each(|x| *x *= 30.0);
    check(&guarded_quotients(rows, columns, F32), &[values], 2e-6);
}
