//! Every operation on small programs written out, against the interpreter: what random programs do not reach.

mod support;

use einloom_cascade::DType::{self, B1, E4m3, F32, F64, I8, I32, U8};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_cpu::{Options, RunError, TensorTraffic};
use einloom_tile::{
    Affine, Builder, Coord, CoordAtom, Init, Kernel, Op, Predicate, Program, Scalar, State, TensorId, TileMonoid,
    carry, carry_from, select,
};
use support::random::{Random, data};
use support::{check, run, ways};

fn finish(p: Builder) -> Program {
    p.finish().unwrap_or_else(|d| panic!("{d:?}"))
}

/// Values that differ, some of them not whole.
fn ramp(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i * 7 % 23) as f64 / 4.0 - 2.0).collect()
}

#[test]
fn every_number_type_is_loaded_and_stored_as_every_other() {
    for from in DType::ALL {
        for to in DType::ALL {
            for through in [from, to] {
                let mut p = Builder::new("convert");
                let (x, y) = (p.input("X", &[5, 70], from), p.output("Y", &[70, 5], to));
                p.kernel("convert", |g| {
                    let (m, n) = (g.grid("m", 5, 4), g.grid("n", 70, 33));
                    let tile = g.value("tile", &[m, n], through);
                    let at = vec![Coord::axis(m), Coord::axis(n)];
                    g.push(Op::Load { dst: tile, tensor: x, at, fill: None });
                    g.store(y, [n, m], tile);
                });
                let values = (0..350).map(|i| [0.1, -3.7, 1e9, -0.0, 300.25, -1e-9, 5.5][i % 7] * (1 + i / 7) as f64);
                check(&finish(p), &[values.collect()], 0.0);
            }
        }
    }
}

#[test]
fn not_a_number_and_infinities_survive_every_floating_point_type() {
    for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
        let mut p = Builder::new("special");
        let (x, y, top) = (p.input("X", &[40], dtype), p.output("Y", &[40], dtype), p.output("top", &[], F32));
        p.kernel("special", |g| {
            let i = g.whole("i", 40);
            let tile = g.load("x", x, [i]);
            let high = g.reduce("high", TileMonoid::Max, tile, i);
            g.store(y, [i], Scalar::from(tile).max(0.5).min(1e30));
            g.store(top, Vec::<Coord>::new(), high);
        });
        let mut values = ramp(40);
        (values[3], values[20]) = (f64::NAN, f64::INFINITY);
        check(&finish(p), &[values], 0.0);
    }
}

#[test]
fn every_function_of_one_element_agrees() {
    let ops = UnaryOp::NAMED.into_iter().chain([UnaryOp::Neg, UnaryOp::Not]);
    for op in ops {
        for dtype in [F32, F64] {
            let mut p = Builder::new("unary");
            let (x, y) = (p.input("X", &[700], dtype), p.output("Y", &[700], dtype));
            p.kernel("unary", |g| {
                let i = g.grid("i", 700, 600);
                let x = g.load("x", x, [i]);
                let f = g.value("f", &[i], dtype);
                g.push(Op::Map { dst: f, expr: Scalar::Unary(op, Box::new(Scalar::Tile(x))) });
                g.store(y, [i], f);
            });
            let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, 1.5, 2.5, -0.5, 100.0, -200.0];
            let mut values = ramp(700);
            values[..special.len()].copy_from_slice(&special);
            check(&finish(p), &[values], 1e-6);
        }
    }
}

#[test]
fn capped_elements_agree_whether_their_tile_is_read_again_or_not() {
    for cap in [50.0, 0.3, 1.0, 1e-39] {
        let mut p = Builder::new("capped");
        let (x, y, top) = (p.input("X", &[5, 70], F32), p.output("Y", &[5, 70], F32), p.output("top", &[5], F32));
        p.kernel("capped", |g| {
            let (m, n) = (g.grid("m", 5, 2), g.whole("n", 70));
            let x = g.load("x", x, [m, n]);
            let inner = Scalar::Binary(BinaryOp::Div, Box::new(x.into()), Box::new(Scalar::Const(cap)));
            let capped = g.map("capped", Scalar::Unary(UnaryOp::Tanh, Box::new(inner)) * cap);
            let high = g.reduce("high", TileMonoid::Max, capped, n);
            g.store(y, [m, n], capped);
            g.store(top, [m], high);
        });
        let mut values = ramp(350);
        (values[3], values[80], values[81], values[150]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-30);
        check(&finish(p), &[values], 1e-6);
    }
}

#[test]
fn every_function_of_two_elements_agrees_for_every_pair_of_special_values() {
    use BinaryOp::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Pow, Sub};
    let special = [0.0, -0.0, 1.0, -1.5, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for op in [Add, Sub, Mul, Div, Pow, Min, Max, Lt, Le, Gt, Ge, Eq, Ne, And, Or] {
        for dtype in [F32, F64] {
            let mut p = Builder::new("binary");
            let (x, y) = (p.input("X", &[8], dtype), p.output("Y", &[8, 8], dtype));
            let z = p.output("Z", &[8, 8], dtype);
            p.kernel("binary", |g| {
                let (i, j) = (g.whole("i", 8), g.whole("j", 8));
                let (rows, columns) = (g.load("rows", x, [i]), g.load("columns", x, [j]));
                let apply = |x: Scalar, y: Scalar| Scalar::Binary(op, Box::new(x), Box::new(y));
                let (f, h) = (g.value("f", &[i, j], dtype), g.value("h", &[i, j], dtype));
                g.push(Op::Map { dst: f, expr: apply(rows.into(), columns.into()) });
                // The operand that is computed first is the right one here.
                let right = Scalar::Unary(UnaryOp::Neg, Box::new(Scalar::from(columns) * 1.0));
                g.push(Op::Map { dst: h, expr: apply(rows.into(), right) });
                g.store(y, [i, j], f);
                g.store(z, [i, j], h);
            });
            check(&finish(p), &[special.to_vec()], 1e-6);
        }
    }
}

#[test]
fn functions_of_the_distance_of_two_positions_agree_in_tiles_of_every_shape() {
    for (rows, columns, tiles) in [(70, 300, [33, 300]), (45, 90, [20, 64]), (9, 5, [4, 5]), (1, 40, [1, 16])] {
        for (from, to) in [(F32, F32), (F64, F64), (DType::Bf16, F32)] {
            let mut p = Builder::new("distance");
            let (x, slope) = (p.input("X", &[2, rows, columns], from), p.input("slope", &[2], to));
            let outputs = ["Y", "Z", "W"].map(|name| p.output(name, &[2, rows, columns], to));
            p.kernel("distance", |g| {
                let (h, m, n) = (g.grid("h", 2, 1), g.grid("m", rows, tiles[0]), g.grid("n", columns, tiles[1]));
                let (x, slope) = (g.load("x", x, [h, m, n]), g.load("slope", slope, [h]));
                let (at, of) = (Scalar::Position(m), Scalar::Position(n));
                let distance = || at.clone() - of.clone();
                let near = Scalar::Unary(UnaryOp::Abs, Box::new(of.clone() + 3.0 - at.clone()));
                let there =
                    Scalar::Within(Predicate { all: vec![Affine { terms: vec![(1, m), (-1, n)], constant: 2 }] });
                let maps = [
                    Scalar::from(x) - Scalar::from(slope) * distance(),
                    // Twice the same, and beside what is no function of it.
                    select(there, Scalar::from(x) * near.clone() + near * of.clone(), distance()),
                    distance() * distance() * Scalar::from(slope),
                ];
                for (number, (expr, y)) in maps.into_iter().zip(outputs).enumerate() {
                    let dst = g.value(format!("f{number}"), &[m, n], to);
                    g.push(Op::Map { dst, expr });
                    g.store(y, [h, m, n], dst);
                }
            });
            check(&finish(p), &[ramp(2 * rows * columns), vec![0.75, -1.5]], 1e-6);
        }
    }
}

#[test]
fn convolution_reads_outside_as_zero_and_counts_only_what_it_reads() {
    let mut p = Builder::new("conv");
    let (x, w) = (p.input("X", &[50], F32), p.input("W", &[3], F32));
    let y = p.output("Y", &[50], F32);
    p.kernel("conv", |g| {
        let (i, r) = (g.grid("i", 50, 16), g.whole("r", 3));
        let at = [Coord { terms: vec![(1, CoordAtom::Axis(i)), (1, CoordAtom::Axis(r))], offset: -1 }];
        let window = g.load_or("window", x, at, 0.0);
        let weights = g.load("w", w, [r]);
        let sum = g.mma("sum", window, weights);
        g.store(y, [i], sum);
    });
    let program = finish(p);
    check(&program, &[ramp(50), vec![1.0, -2.0, 0.5]], 1e-6);
    let (_, report) = run(&program, &Options::default(), 1, &[ramp(50), vec![1.0; 3]]).expect("runs");
    // 50 windows of 3 less the two elements outside; the weights once per point of the grid.
    let x = TensorTraffic { tensor: TensorId(0), loaded_bytes: 4 * 148, stored_bytes: 0 };
    let w = TensorTraffic { tensor: TensorId(1), loaded_bytes: 4 * 3 * 4, stored_bytes: 0 };
    let y = TensorTraffic { tensor: TensorId(2), loaded_bytes: 0, stored_bytes: 4 * 50 };
    assert_eq!(report.kernels[0].traffic, [x, w, y]);
}

/// `Y[i, j] = E[ids[i], cols[j]]`: a gather along both sides.
fn gather(fill: Option<f64>) -> Program {
    let mut p = Builder::new("gather");
    let (e, ids, cols) = (p.input("E", &[10, 20], F32), p.input("ids", &[30], I32), p.input("cols", &[8], I8));
    let y = p.output("Y", &[30, 8], F32);
    p.kernel("gather", |g| {
        let (i, j) = (g.grid("i", 30, 12), g.whole("j", 8));
        let (ids, cols) = (g.load("ids", ids, [i]), g.load("cols", cols, [j]));
        let dst = g.value("rows", &[i, j], F32);
        let at = vec![Coord::gather(ids), Coord::gather(cols)];
        g.push(Op::Load { dst, tensor: e, at, fill });
        g.store(y, [i, j], dst);
    });
    finish(p)
}

#[test]
fn gathers_name_what_is_outside_or_fill_it() {
    let mut inputs = vec![ramp(200), (0..30).map(|i| (i * 3 % 10) as f64).collect(), ramp(8)];
    inputs[2] = (0..8).map(|j| (19 - j) as f64).collect();
    check(&gather(None), &inputs, 0.0);
    inputs[1][17] = -4.0;
    check(&gather(Some(-1.5)), &inputs, 0.0);
    for options in ways() {
        for threads in [1, 3] {
            let error = run(&gather(None), &options, threads, &inputs).expect_err("outside");
            assert_eq!(
                error.to_string(),
                "kernel gather: coordinate -4 in dimension 0 of `E` is outside 0..10, at i = 17, j = 0"
            );
        }
    }
}

#[test]
fn rows_are_gathered_and_heads_are_grouped() {
    let mut p = Builder::new("grouped");
    let (e, ids, k) = (p.input("E", &[10, 24], F32), p.input("ids", &[9], I32), p.input("K", &[2, 24], F32));
    let y = p.output("Y", &[6, 9], F32);
    p.kernel("grouped", |g| {
        let (h, t, d) = (g.grid("h", 6, 1), g.grid("t", 9, 4), g.whole("d", 24));
        let ids = g.load("ids", ids, [t]);
        let rows = g.load("rows", e, [Coord::gather(ids), Coord::axis(d)]);
        let group = Coord { terms: vec![(1, CoordAtom::Floor(Box::new(Coord::axis(h)), 3))], offset: 0 };
        let key = g.load("key", k, [group, Coord::axis(d)]);
        let dot = g.mma("dot", rows, key);
        g.store(y, [Coord::axis(h), Coord::axis(t)], dot);
    });
    check(&finish(p), &[ramp(240), (0..9).map(|i| (i * 7 % 10) as f64).collect(), ramp(48)], 1e-6);
}

#[test]
fn repeated_elements_and_reversed_rows_are_loaded() {
    let mut p = Builder::new("bent");
    let x = p.input("X", &[7, 40], F32);
    let (y, z) = (p.output("Y", &[7, 80], F32), p.output("Z", &[7, 40], F32));
    p.kernel("bent", |g| {
        let (i, j, k) = (g.grid("i", 7, 3), g.whole("j", 80), g.whole("k", 40));
        let half = Coord { terms: vec![(1, CoordAtom::Floor(Box::new(Coord::axis(j)), 2))], offset: 0 };
        let twice = g.load("twice", x, [Coord::axis(i), half]);
        let back = Coord { terms: vec![(-1, CoordAtom::Axis(k))], offset: 39 };
        let reversed = g.load("reversed", x, [Coord::axis(i), back]);
        g.store(y, [i, j], twice);
        g.store(z, [i, k], reversed);
    });
    check(&finish(p), &[ramp(280)], 0.0);
}

#[test]
fn states_shift_and_start_from_tiles() {
    // Fibonacci in steps of a stream: two states, each the other's past.
    let mut p = Builder::new("shift");
    let (x, y) = (p.input("X", &[20], F32), p.output("Y", &[20], F32));
    p.kernel("shift", |g| {
        let (i, t) = (g.grid("i", 20, 8), g.stream_axis("t", 9, 1));
        let x = g.load("x", x, [i]);
        let states = [carry_from("a", x), carry("b", [i], 1.0)];
        let [a, _] = g.stream(t, Predicate::always(), states, |g, [a, b]| {
            let a2 = g.map("a2", Scalar::from(b) * 1.0);
            let b2 = g.map("b2", a + b);
            [a2, b2]
        });
        g.store(y, [i], a);
    });
    check(&finish(p), &[ramp(20)], 0.0);
}

#[test]
fn two_states_may_share_their_next_value() {
    let mut p = Builder::new("shared");
    let (x, y) = (p.input("X", &[6, 12], F32), p.output("Y", &[12], F32));
    p.kernel("shared", |g| {
        let (i, t) = (g.grid("i", 12, 5), g.stream_axis("t", 6, 1));
        let states = [carry("a", [i], 1.0), carry("b", [i], 2.0)];
        let [a, b] = g.stream(t, Predicate::always(), states, |g, [a, b]| {
            let x = g.load("x", x, [t, i]);
            let next = g.map("next", a * b + x);
            [next, next]
        });
        g.store(y, [i], a - b * 0.5);
    });
    check(&finish(p), &[ramp(72)], 0.0);
}

#[test]
fn skipped_chunks_leave_every_state_as_it_was() {
    let mut p = Builder::new("skip");
    let (x, wanted, y) = (p.input("X", &[10, 16], F32), p.input("wanted", &[16], B1), p.output("Y", &[10], F32));
    p.kernel("skip", |g| {
        let (m, n) = (g.grid("m", 10, 4), g.stream_axis("n", 16, 2));
        let states = [carry("sum", [m], 0.25), carry("chunks", [m], 0.0)];
        let [sum, count] = g.stream(n, Predicate::always(), states, |g, [sum, count]| {
            let wanted = g.load("wanted", wanted, [n]);
            // In place over the state if that were allowed before the skip.
            let grown = g.map("grown", sum * 2.0);
            g.skip_unless(wanted);
            let x = g.load("x", x, [m, n]);
            [g.reduce_onto("next", TileMonoid::Sum, grown, x, n), g.map("more", count + 1.0)]
        });
        g.store(y, [m], sum + count);
    });
    let mut wanted = vec![0.0; 16];
    (wanted[3], wanted[10], wanted[11]) = (1.0, 1.0, 1.0);
    check(&finish(p), &[ramp(160), wanted], 0.0);
}

#[test]
fn streams_nest() {
    let mut p = Builder::new("nested");
    let (x, y) = (p.input("X", &[6, 30, 11], F32), p.output("Y", &[6], F32));
    p.kernel("nested", |g| {
        let (m, i, j) = (g.grid("m", 6, 4), g.stream_axis("i", 30, 7), g.stream_axis("j", 11, 3));
        let [total] = g.stream(i, Predicate::always(), [carry("total", [m], 0.0)], |g, [total]| {
            let inner = carry("largest", [m, i], f64::NEG_INFINITY);
            let below = Predicate { all: vec![Affine { terms: vec![(1, i), (-2, j)], constant: 3 }] };
            let [largest] = g.stream(j, below, [inner], |g, [largest]| {
                let x = g.value("x", &[m, i], F32);
                let single = Coord { terms: vec![(1, CoordAtom::Axis(m))], offset: 0 };
                g.push(Op::Load {
                    dst: x,
                    tensor: TensorId(0),
                    at: vec![single, Coord::axis(i), 2.into()],
                    fill: None,
                });
                [g.map("larger", Scalar::from(largest).max(x))]
            });
            [g.reduce_onto("sum", TileMonoid::Sum, total, largest, i)]
        });
        g.store(y, [m], total);
    });
    let _ = x;
    check(&finish(p), &[ramp(6 * 30 * 11)], 0.0);
}

#[test]
fn custom_monoids_keep_their_order() {
    // `(a, b) -> a/2 + b`: neither commutative nor with a neutral element but 0 on the left.
    let combine = Scalar::Binary(BinaryOp::Add, Box::new(Scalar::Argument(0) * 0.5), Box::new(Scalar::Argument(1)));
    for dtype in [F32, F64] {
        let mut p = Builder::new("custom");
        let (x, y, z) = (p.input("X", &[5, 9], dtype), p.output("Y", &[5], dtype), p.output("Z", &[9], dtype));
        p.kernel("custom", |g| {
            let (m, n) = (g.whole("m", 5), g.whole("n", 9));
            let x = g.load("x", x, [m, n]);
            let monoid =
                TileMonoid::Custom { name: "decay".to_string(), combine: Box::new(combine.clone()), identity: 0.0 };
            let (rows, columns) = (g.reduce("rows", monoid.clone(), x, n), g.reduce("columns", monoid, x, m));
            g.store(y, [m], rows);
            g.store(z, [n], columns);
        });
        check(&finish(p), &[ramp(45)], 1e-6);
    }
}

#[test]
fn products_and_sums_of_long_fibres_are_accurate() {
    let mut p = Builder::new("long");
    let (x, y) = (p.input("X", &[3, 50_000], F32), p.output("Y", &[3], F32));
    p.kernel("long", |g| {
        let (m, n) = (g.grid("m", 3, 1), g.whole("n", 50_000));
        let x = g.load("x", x, [m, n]);
        let sum = g.reduce("sum", TileMonoid::Sum, x, n);
        g.store(y, [m], sum);
    });
    let values = (0..150_000).map(|i| 1.0 + (i * 7919 % 1000) as f64 / 1000.0).collect();
    check(&finish(p), &[values], 2e-7);
}

#[test]
fn reductions_of_every_kind_and_length_agree() {
    let monoids = [TileMonoid::Sum, TileMonoid::Prod, TileMonoid::Max, TileMonoid::Min];
    for (m, n) in [(1, 1), (3, 15), (70, 65), (33, 130), (2, 2100)] {
        for dtype in [F32, I32, F64] {
            let mut p = Builder::new("reduce");
            let x = p.input("X", &[m, n], dtype);
            let outputs = [p.output("rows", &[4, m], dtype), p.output("columns", &[4, n], dtype)];
            for (k, monoid) in monoids.iter().enumerate() {
                p.kernel("reduce", |g| {
                    let (m, n) = (g.whole("m", m), g.whole("n", n));
                    let x = g.load("x", x, [m, n]);
                    let rows = g.reduce("rows", monoid.clone(), x, n);
                    let columns = g.reduce("columns", monoid.clone(), x, m);
                    g.store(outputs[0], [Coord::from(k as i64), Coord::axis(m)], rows);
                    g.store(outputs[1], [Coord::from(k as i64), Coord::axis(n)], columns);
                });
            }
            // Of ones and minus ones every product is exact.
            let values = (0..m * n).map(|i| if i * 31 % 7 < 3 { -1.0 } else { 1.0 }).collect();
            check(&finish(p), &[values], 0.0);
        }
    }
}

#[test]
fn integers_saturate_and_their_products_are_exact() {
    let mut p = Builder::new("integers");
    let (a, b) = (p.input("A", &[9, 300], I8), p.input("B", &[300, 20], U8));
    let (y, z) = (p.output("Y", &[9, 20], I32), p.output("Z", &[9, 20], I8));
    p.kernel("integers", |g| {
        let (m, n, k) = (g.whole("m", 9), g.whole("n", 20), g.whole("k", 300));
        let (a, b) = (g.load("a", a, [m, k]), g.load("b", b, [k, n]));
        let sum = g.value("sum", &[m, n], I32);
        g.push(Op::Mma { dst: sum, a, b, acc: None });
        g.store(y, [m, n], sum);
        g.store(z, [m, n], sum);
    });
    let a = (0..2700).map(|i| (i * 37 % 256) as f64 - 128.0).collect();
    let b = (0..6000).map(|i| (i * 91 % 256) as f64).collect();
    check(&finish(p), &[a, b], 0.0);
}

#[test]
fn skinny_products_agree_whichever_way_their_factors_lie() {
    for (m, n, k) in [(1, 37, 64), (3, 40, 19), (4, 5, 128), (1, 1, 33), (2, 64, 1), (40, 1, 17)] {
        for swapped in [false, true] {
            let mut p = Builder::new("skinny");
            let a = p.input("A", &[m, k], F32);
            let b = p.input("B", &if swapped { [k, n] } else { [n, k] }, F32);
            let (y, z) = (p.output("Y", &[m, n], F32), p.output("Z", &[n], F32));
            p.kernel("skinny", |g| {
                let (m, n, k) = (g.whole("m", m), g.whole("n", n), g.stream_axis("k", k, 16));
                let first = g.load("first", a, [Coord::axis(m), Coord::from(0)]);
                let states = [carry("acc", [m, n], 1.0), carry("row", [n], 0.0)];
                let [acc, row] = g.stream(k, Predicate::always(), states, |g, [acc, row]| {
                    let at = if swapped { [k, n] } else { [n, k] };
                    let (x, y) = (g.load("a", a, [m, k]), g.load("b", b, at));
                    let top = g.load("top", a, [Coord::from(0), Coord::axis(k)]);
                    [g.mma_onto("sum", acc, x, y), g.mma_onto("line", row, top, y)]
                });
                g.store(y, [m, n], acc + first);
                g.store(z, [n], row);
            });
            check(&finish(p), &[ramp(m * k), ramp(n * k)], 1e-6);
        }
    }
}

#[test]
fn predicates_decide_full_partial_and_empty_tiles() {
    let mut p = Builder::new("masks");
    let (x, y) = (p.input("X", &[45, 50], F32), p.output("Y", &[45, 50], F32));
    p.kernel("masks", |g| {
        let (m, n) = (g.grid("m", 45, 8), g.grid("n", 50, 8));
        let x = g.load("x", x, [m, n]);
        let causal = n.at_most(m);
        let window = Predicate { all: vec![Affine { terms: vec![(1, n), (-1, m)], constant: 12 }] };
        let both = Predicate { all: [causal.all.clone(), window.all.clone()].concat() };
        let inner = select(window, Scalar::from(x) * 3.0, n);
        let masked = select(both, select(causal.clone(), x, 100.0), inner);
        g.store(y, [m, n], masked + Scalar::Unary(UnaryOp::Not, Box::new(Scalar::Within(causal))));
    });
    check(&finish(p), &[ramp(2250)], 0.0);
}

#[test]
fn temporaries_live_between_kernels() {
    let mut p = Builder::new("two");
    let (x, y) = (p.input("X", &[33], F32), p.output("Y", &[33], F32));
    let t = p.temporary("T", &[33], E4m3);
    p.kernel("first", |g| {
        let i = g.grid("i", 33, 5);
        let x = g.load("x", x, [i]);
        g.store(t, [i], x * 3.0);
    });
    p.kernel("second", |g| {
        let i = g.grid("i", 33, 32);
        let t = g.load("t", t, [i]);
        g.store(y, [i], t + 1.0);
    });
    check(&finish(p), &[ramp(33)], 0.0);
}

#[test]
fn two_stores_to_one_tensor_run_in_order_on_one_thread() {
    let mut p = Builder::new("twice");
    let (x, y) = (p.input("X", &[12], F32), p.output("Y", &[13], F32));
    p.kernel("twice", |g| {
        let i = g.grid("i", 12, 1);
        let x = g.load("x", x, [i]);
        g.store(y, [i], x);
        g.store(y, [Coord { terms: vec![(1, CoordAtom::Axis(i))], offset: 1 }], x * 2.0);
    });
    let program = finish(p);
    check(&program, &[ramp(12)], 0.0);
    let (_, report) = run(&program, &Options::default(), 3, &[ramp(12)]).expect("runs");
    assert_eq!(report.kernels[0].serial, Some("points of its grid may store to the same elements"));
}

#[test]
fn two_stores_to_one_tensor_that_stay_apart_run_side_by_side() {
    // The slice at the start and those of a recurrence: each point has rows of its own.
    let mut p = Builder::new("scan");
    let (x, y) = (p.input("X", &[12, 7], F32), p.output("Y", &[12, 8], F32));
    p.kernel("scan", |g| {
        let (i, n) = (g.grid("i", 12, 5), g.stream_axis("n", 7, 1));
        let start = g.load("start", x, [Coord::axis(i), Coord::fixed(0)]);
        g.store(y, [Coord::axis(i), Coord::fixed(0)], start);
        g.stream(n, Predicate::default(), [], |g, []| {
            let x = g.load("x", x, [i, n]);
            g.store(y, [Coord::axis(i), Coord { terms: vec![(1, CoordAtom::Axis(n))], offset: 1 }], x * 2.0);
            []
        });
    });
    let program = finish(p);
    check(&program, &[ramp(84)], 0.0);
    let (_, report) = run(&program, &Options::default(), 3, &[ramp(84)]).expect("runs");
    assert_eq!(report.kernels[0].serial, None);
}

#[test]
fn kernels_without_a_grid_and_empty_grids_run() {
    let mut p = Builder::new("degenerate");
    let (x, y, z) = (p.input("X", &[0, 4], F32), p.output("Y", &[], F32), p.output("Z", &[0, 4], F32));
    p.kernel("scalar", |g| {
        let (m, n) = (g.whole("m", 0), g.whole("n", 4));
        let x = g.load("x", x, [m, n]);
        let row = g.reduce("row", TileMonoid::Max, x, m);
        let all = g.reduce("all", TileMonoid::Sum, row, n);
        g.store(y, Vec::<Coord>::new(), all);
    });
    p.kernel("empty", |g| {
        let (m, n) = (g.grid("m", 0, 4), g.grid("n", 4, 4));
        let x = g.load("x", x, [m, n]);
        g.store(z, [m, n], x);
    });
    check(&finish(p), &[vec![]], 0.0);
}

#[test]
fn attention_and_matmul_by_hand_agree() {
    use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
    let mut r = Random(7);
    for (tile, causal) in [([16, 32], false), ([7, 5], true), ([2, 64], false), ([64, 128], true)] {
        let sizes = AttentionSizes { b: 1, h: 2, m: 45, n: 70, d: 24, e: 18 };
        let program = attention(sizes, tile, causal, F32).expect("well-formed");
        let inputs = data(&program, &mut r);
        check(&program, &inputs, 1e-5);
    }
    let program = matmul([70, 45, 130], [32, 16, 50], F32).expect("well-formed");
    let inputs = data(&program, &mut r);
    check(&program, &inputs, 1e-6);
}

#[test]
fn a_state_declared_by_hand_may_change_its_number_type_at_the_start() {
    let mut p = Builder::new("start");
    let (x, y) = (p.input("X", &[20], F64), p.output("Y", &[20], I32));
    p.kernel("start", |g| {
        let (i, t) = (g.whole("i", 20), g.stream_axis("t", 3, 1));
        let x = g.load("x", x, [i]);
        let (value, next) = (g.value("s", &[i], I32), g.value("next", &[i], I32));
        let body = vec![Op::Map { dst: next, expr: Scalar::from(value) * 3.0 }];
        let states = vec![State { value, init: Init::Value(x), next }];
        g.push(Op::Stream { axis: t, within: Predicate::always(), guards: vec![], states, body });
        g.store(y, [i], value);
    });
    check(&finish(p), &[ramp(20)], 0.0);
}

#[test]
fn what_goes_wrong_is_said() {
    let program = gather(None);
    let options = Options::default();
    let inputs = [ramp(200), vec![0.0; 30]];
    let error = run(&program, &options, 1, &inputs).expect_err("an input is missing");
    assert_eq!(error, RunError::Count { what: "inputs", expected: 3, given: 2 });
    let inputs = [ramp(200), vec![0.0; 29], vec![0.0; 8]];
    let error = run(&program, &options, 1, &inputs).expect_err("an input is short");
    assert_eq!(error.to_string(), "`ids` needs 120 bytes, 116 were given");
    let broken = Program { kernels: vec![Kernel { name: "k".to_string(), ..Kernel::default() }], ..program };
    let error = einloom_cpu::Executable::new(&broken, &Default::default()).expect_err("nothing is stored");
    assert!(error.to_string().contains("output `Y` is never stored"), "{error}");
}

#[test]
fn what_is_computed_again_equals_what_was_stored() {
    // Of an f32, an i32 and an f64; each product and function an f32 of its own.
    type Part = fn(Scalar, Scalar, Scalar) -> Scalar;
    let parts: [Part; 6] = [
        |x, k, _| (x * k).round_to(F32),
        |x, k, _| ((x * 0.1).round_to(F32) + k).round_to(F32),
        |x, _, _| x.exp().round_to(F32),
        |x, k, _| (x * k).round_to(F32).apply(UnaryOp::Tanh).round_to(F32),
        |x, k, d| (((x.clone() * k).round_to(F32) + x).round_to(F32) / d).round_to(F32),
        |x, k, _| (x.exp().round_to(F32) * k).round_to(F32).sqrt().round_to(F32),
    ];
    for (number, part) in parts.into_iter().enumerate() {
        let mut p = Builder::new("again");
        let (x, k, d) = (p.input("X", &[70], F32), p.input("K", &[70], I32), p.input("D", &[70], F64));
        let kept = p.temporary("P", &[70], F32);
        let (found, less) = (p.output("found", &[70], I32), p.output("less", &[70], F64));
        let loads = |g: &mut einloom_tile::KernelBuilder, i| {
            [g.load("x", x, [i]), g.load("k", k, [i]), g.load("d", d, [i])].map(Scalar::from)
        };
        p.kernel("stores", |g| {
            let i = g.grid("i", 70, 32);
            let [x, k, d] = loads(g, i);
            let part = g.map("part", part(x, k, d));
            g.store(kept, [i], part);
        });
        p.kernel("finds", |g| {
            let i = g.grid("i", 70, 33);
            let [x, k, d] = loads(g, i);
            let kept = g.load("kept", kept, [i]);
            let again = part(x, k.clone(), d);
            let there = g.value("there", &[i], I32);
            let expr = select(again.clone().with(BinaryOp::Eq, kept), k, -1.0);
            g.push(Op::Map { dst: there, expr });
            g.store(found, [i], there);
            let rest = g.value("rest", &[i], F64);
            g.push(Op::Map { dst: rest, expr: again - kept });
            g.store(less, [i], rest);
        });
        let program = finish(p);
        let x: Vec<f64> = (0..70).map(|i| f64::from((0.37 + f64::from(i) * 0.113) as f32)).collect();
        let k: Vec<f64> = (0..70).map(|i| f64::from(1 + i * 16_777_259 % 2_000_003)).collect();
        let d: Vec<f64> = (0..70).map(|i| 1.0 / (3.0 + f64::from(i))).collect();
        for options in ways() {
            let (outputs, _) = run(&program, &options, 1, &[x.clone(), k.clone(), d.clone()]).expect("runs");
            assert_eq!(outputs, [k.clone(), vec![0.0; 70]], "part {number}, {options:?}");
        }
    }
}

/// Of rows, columns, tiles and one number, either way round, where neighbours are the same number in f32.
#[test]
fn integers_are_compared_as_they_are() {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let (m, n) = (9, 37);
    let large = |count: usize, step: usize| -> Vec<f64> {
        (0..count).map(|i| (16_777_216 + i * step % 5) as f64 * if i % 7 == 3 { -1.0 } else { 1.0 }).collect()
    };
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        let mut p = Builder::new("compared");
        let (rows, columns) = (p.input("R", &[m], I32), p.input("C", &[n], I32));
        let (full, one) = (p.input("F", &[m, n], I32), p.input("S", &[1], I32));
        let found = ["a", "b", "c", "d"].map(|name| p.output(name, &[m, n], B1));
        p.kernel("compared", |g| {
            let (i, j, s) = (g.grid("i", m, 4), g.grid("j", n, 20), g.grid("s", 1, 1));
            let (r, c) = (g.load("r", rows, [i]), g.load("c", columns, [j]));
            let (f, x) = (g.load("f", full, [i, j]), g.load("x", one, [s]));
            for (at, (x, y)) in [(r, c), (c, r), (f, x), (r, f)].into_iter().enumerate() {
                let holds = g.value("holds", &[i, j], B1);
                g.push(Op::Map { dst: holds, expr: Scalar::from(x).with(op, y) });
                g.store(found[at], [i, j], holds);
            }
        });
        check(&finish(p), &[large(m, 3), large(n, 2), large(m * n, 4), vec![16_777_217.0]], 0.0);
    }
}
