//! Elements picked from tiles, against the interpreter.

mod support;

use einloom_cascade::DType::{self, B1, Bf16, F32, F64, I8, I32};
use einloom_tile::{AxisId, Builder, Coord, KernelBuilder, Predicate, Program, Scalar, ValueId, carry_from, select};
use support::check;

/// Values that differ, some of them not whole, and some not finite.
fn ramp(n: usize, finite: bool) -> Vec<f64> {
    let special = |i: usize| [f64::NEG_INFINITY, f64::NAN, f64::INFINITY][i % 3];
    (0..n).map(|i| if !finite && i % 11 == 3 { special(i) } else { (i * 7 % 23) as f64 / 4.0 - 2.0 }).collect()
}

fn finish(p: Builder) -> Program {
    p.finish().unwrap_or_else(|d| panic!("{d:?}"))
}

/// Positions told by two axes, the second of which is the one picked along.
fn positions(i: AxisId, j: AxisId, size: i64) -> Vec<Coord> {
    vec![
        Coord::from(j),
        Coord::from(j - 1),
        Coord::from(j + 2),
        Coord::from(j * -1 + (size - 1)),
        Coord::from(j * 2 - 3),
        Coord::from(i + j - 4),
        Coord::from(i),
        Coord::from(j).div_floor(3),
        Coord::from(0),
        Coord::from(size - 1),
        Coord::from(size),
        Coord::from(-1),
    ]
}

#[test]
fn elements_are_picked_along_rows_and_columns_of_every_layout() {
    for (rows, columns) in [(1, 1), (1, 9), (7, 1), (5, 33), (40, 17), (3, 300), (0, 4), (4, 0)] {
        for (dtype, turned) in [(F32, false), (F32, true), (F64, false), (I32, true), (Bf16, true), (I8, false)] {
            for number in 0..12 {
                let mut p = Builder::new("pick");
                let x = p.input("X", &[rows, columns], dtype);
                let (y, z) = (p.output("Y", &[rows, columns], dtype), p.output("Z", &[rows, columns], dtype));
                p.kernel("pick", |g| {
                    let (i, j) = (g.whole("i", rows), g.whole("j", columns));
                    let order = if turned { [j, i] } else { [i, j] };
                    let tile = g.value("x", &order, dtype);
                    let at = vec![Coord::axis(i), Coord::axis(j)];
                    g.push(einloom_tile::Op::Load { dst: tile, tensor: x, at, fill: None });
                    let along_j = g.pick("a", &[i, j], tile, j, positions(i, j, columns as i64)[number].clone(), 9.0);
                    let along_i = g.pick("b", &[j, i], tile, i, positions(j, i, rows as i64)[number].clone(), -9.0);
                    g.store(y, [i, j], along_j);
                    g.store(z, [i, j], along_i);
                });
                check(&finish(p), &[ramp(rows * columns, !dtype.is_float())], 0.0);
            }
        }
    }
}

#[test]
fn positions_may_be_data() {
    for (rows, columns) in [(3, 5), (1, 40), (17, 33)] {
        let mut p = Builder::new("data");
        let x = p.input("X", &[rows, columns], F32);
        let (one, each) = (p.input("One", &[rows], I32), p.input("Each", &[rows, columns], I8));
        let [y, z] = ["Y", "Z"].map(|name| p.output(name, &[rows, columns], F32));
        let w = p.output("W", &[rows], F32);
        p.kernel("data", |g| {
            let (i, j) = (g.grid("i", rows, 8), g.whole("j", columns));
            let (x, one, each) = (g.load("x", x, [i, j]), g.load("one", one, [i]), g.load("each", each, [i, j]));
            let far = Coord::gather(each) + Coord::from(j - 2);
            let half = (Coord::gather(each) + Coord::from(3)).div_floor(2);
            let (a, b) = (g.pick("a", &[i, j], x, j, far, f64::NEG_INFINITY), g.pick("b", &[j, i], x, j, half, 0.0));
            let c = g.pick("c", &[i], x, j, Coord::gather(one), 1.5);
            g.store(y, [i, j], a);
            g.store(z, [i, j], b);
            g.store(w, [i], c);
        });
        let small = |n: usize| (0..n).map(|i| (i * 5 % 11) as f64 - 3.0).collect::<Vec<f64>>();
        check(&finish(p), &[ramp(rows * columns, false), small(rows), small(rows * columns)], 0.0);
    }
}

/// `H = f(H at i - 1, H at i + 1)` so many times, of a state that is a vector or, beside a grid, a matrix.
fn heat(
    sizes: [usize; 3],
    dtype: DType,
    step: impl Fn(&mut KernelBuilder<'_>, AxisId, [ValueId; 3]) -> Scalar,
) -> Program {
    let [b, n, steps] = sizes;
    let mut p = Builder::new("heat");
    let (x, y) = (p.input("X", &[b, n], dtype), p.output("Y", &[b, n], dtype));
    p.kernel("heat", |g| {
        let (b, i, t) = (g.grid("b", b, 4), g.whole("i", n), g.stream_axis("t", steps, 1));
        let start = g.value("start", &[b, i], dtype);
        g.push(einloom_tile::Op::Load { dst: start, tensor: x, at: vec![b.into(), i.into()], fill: None });
        let [h] = g.stream(t, Predicate::always(), [carry_from("H", start)], |g, [h]| {
            let least = if dtype.is_float() { f64::NEG_INFINITY } else { f64::from(i32::MIN) };
            let left = g.pick("left", &[b, i], h, i, i - 1, least);
            let right = g.pick("right", &[b, i], h, i, i + 1, least);
            let next = step(g, i, [left, h, right]);
            let dst = g.value("next", &[b, i], dtype);
            g.push(einloom_tile::Op::Map { dst, expr: next });
            [dst]
        });
        g.store(y, [b, i], h);
    });
    finish(p)
}

#[test]
fn states_are_picked_from_and_replaced() {
    for sizes in [[1, 1, 3], [1, 2, 4], [1, 33, 5], [6, 17, 4], [9, 64, 3], [2, 5, 0]] {
        for dtype in [F32, F64] {
            // What fills in for neighbours that do not exist is chosen by nobody.
            let program = heat(sizes, dtype, |_, i, [left, here, right]| {
                let inside = select(Scalar::from(i).with(einloom_cascade::BinaryOp::Ge, 1.0), left, 0.0);
                let last = sizes[1] as f64 - 1.0;
                let outside = select(Scalar::from(i).with(einloom_cascade::BinaryOp::Lt, last), right, 0.0);
                (inside + outside) * 0.25 + here * 0.5
            });
            check(&program, &[ramp(sizes[0] * sizes[1], true)], 1e-6);
        }
        let program = heat(sizes, I32, |_, _, [left, here, right]| Scalar::from(left).max(here).max(right));
        check(&program, &[ramp(sizes[0] * sizes[1], true).iter().map(|x| (x * 4.0).round()).collect()], 0.0);
    }
}

#[test]
fn truth_values_are_picked_too() {
    let mut p = Builder::new("truth");
    let (x, y) = (p.input("X", &[20], F32), p.output("Y", &[20], F32));
    p.kernel("truth", |g| {
        let i = g.whole("i", 20);
        let x = g.load("x", x, [i]);
        let positive = g.map("positive", Scalar::from(x).with(einloom_cascade::BinaryOp::Gt, 0.0));
        let before = g.pick("before", &[i], positive, i, i - 3, 1.0);
        assert_eq!(B1.bytes(), 1);
        g.store(y, [i], select(before, x, -1.0));
    });
    check(&finish(p), &[ramp(20, true)], 0.0);
}
