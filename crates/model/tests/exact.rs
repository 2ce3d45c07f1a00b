//! The innermost counts are those of a walk over everything, and formulas give them at once.

mod common;

use common::walk;
use einloom_cascade::DType::{Bf16, F32, I32};
use einloom_machine::{Machine, parse};
use einloom_model::{KernelTransfers, transfers};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::*;
use std::time::Instant;

/// Four cores, a shared cache of this many KiB, and a private one of 4 KiB.
fn machine(shared_kib: usize) -> Machine {
    let text = format!(
        r#"
        name = "toy"
        cores = 4
        clock = "2 GHz"
        [[level]]
        name = "DRAM"
        bandwidth = "20 GB/s"
        [[level]]
        name = "shared"
        capacity = "{shared_kib} KiB"
        shared_by = 4
        bandwidth = "100 GB/s"
        [[level]]
        name = "private"
        capacity = "4 KiB"
        bandwidth = "400 GB/s"
        [rates]
        f32 = "256 GFLOP/s"
        "#
    );
    parse(&text).expect("a machine")
}

/// As [`estimated`]; where everything fits, the outermost traffic is exactly the distinct elements.
fn check(program: Result<Program, Vec<Defect>>) -> KernelTransfers {
    let program = program.unwrap_or_else(|d| panic!("{}", d[0]));
    let distinct: u64 = walk(&program, &program.kernels[0]).distinct.values().sum();
    let found = estimated(Ok(program.clone()));
    assert_eq!(found.levels[0].bytes, distinct, "all fits\n{}", print(&program));
    found
}

/// Checks a program of one kernel against the walk, on machines of several sizes, and gives its prediction for the
/// largest: innermost counts are exact, levels are ordered, and distinct elements lie between bound and prediction.
fn estimated(program: Result<Program, Vec<Defect>>) -> KernelTransfers {
    let program = program.unwrap_or_else(|d| panic!("{}", d[0]));
    let kernel = &program.kernels[0];
    let walked = walk(&program, kernel);
    let mut outer = vec![];
    let mut last = None;
    for shared in [8, 64, 512, 1 << 20] {
        let found = transfers(&program, &machine(shared)).remove(0);
        for t in &found.tensors {
            let truth = walked.moved.get(&t.tensor).copied().unwrap_or((0, 0));
            let name = &program.tensor(t.tensor).name;
            assert_eq!((t.loaded_bytes, t.stored_bytes), truth, "{name} in\n{}", print(&program));
        }
        let bytes: Vec<u64> = found.levels.iter().map(|l| l.bytes).collect();
        assert!(bytes.is_sorted(), "an outer level moves no more than an inner one: {bytes:?}\n{}", print(&program));
        let distinct: u64 = walked.distinct.values().sum();
        assert!(
            found.levels[0].bound_bytes <= distinct,
            "{} > {distinct}\n{}",
            found.levels[0].bound_bytes,
            print(&program)
        );
        assert!(bytes[0] >= distinct, "{bytes:?} < {distinct}\n{}", print(&program));
        outer.push(bytes[0]);
        last = Some(found);
    }
    assert!(outer.is_sorted_by(|a, b| a >= b), "a larger memory lets through no more: {outer:?}");
    last.expect("several machines")
}

fn loaded(k: &KernelTransfers, element: u64) -> Vec<u64> {
    k.tensors.iter().map(|t| t.loaded_bytes / element).collect()
}

#[test]
fn matmul_by_formula() {
    // napkin: H = abc (1/g_a + 1/g_c) + ac for a x b by b x c in groups g_a, g_c.
    let (a, b, c, g_a, g_c) = (64, 96, 128, 16, 32);
    let k = check(matmul([a, c, b], [g_a, g_c, 8], Bf16));
    let values = k.levels[2].bytes / 2;
    assert_eq!(values as usize, a * b * c / g_a + a * b * c / g_c + a * c);
    assert_eq!(k.flops, 2.0 * (a * b * c) as f64);
}

#[test]
fn matmul_of_sizes_that_divide_nothing() {
    // 50 rows in tiles of 16 are 4 tiles, 70 columns in tiles of 32 are 3.
    let k = check(matmul([50, 70, 33], [16, 32, 8], F32));
    assert_eq!(loaded(&k, 4), [50 * 33 * 3, 33 * 70 * 4, 0]);
    assert_eq!(k.tensors[2].stored_bytes, 50 * 70 * 4);
    for size in [0, 1, 15, 16, 17] {
        check(matmul([size, 20, 30], [16, 8, 8], F32));
        check(matmul([20, size, 30], [16, 8, 8], F32));
        check(matmul([20, 30, size], [16, 8, 8], F32));
    }
}

#[test]
fn attention_full_and_causal() {
    for (m, n) in [(64, 64), (100, 90), (33, 129), (1, 40), (40, 1)] {
        for tile in [[16, 16], [32, 8], [7, 11]] {
            let sizes = AttentionSizes { b: 2, h: 3, m, n, d: 5, e: 6 };
            let k = check(attention(sizes, tile, false, Bf16));
            let blocks = m.div_ceil(tile[0]);
            assert_eq!(loaded(&k, 2), [6 * m * 5, 6 * n * 5 * blocks, 6 * n * 6 * blocks, 0].map(|x| x as u64));
            let causal = check(attention(sizes, tile, true, Bf16));
            assert!(causal.levels[2].bytes <= k.levels[2].bytes);
        }
    }
}

#[test]
fn causal_attention_by_formula() {
    // Four blocks of 16 queries see 16, 32, 48 and 64 keys.
    let sizes = AttentionSizes { b: 1, h: 1, m: 64, n: 64, d: 8, e: 8 };
    let k = check(attention(sizes, [16, 16], true, Bf16));
    assert_eq!(loaded(&k, 2), [64 * 8, 160 * 8, 160 * 8, 0]);
}

/// One kernel over `X`, written to nothing.
fn reading(dims: &[usize], body: impl FnOnce(&mut KernelBuilder, TensorId)) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("reading");
    let x = p.input("X", dims, F32);
    p.kernel("reading", |k| body(k, x));
    p.finish()
}

#[test]
fn sliding_windows_and_nested_streams() {
    for (n, tile) in [(64, 8), (61, 7), (5, 8)] {
        // Streams over 64 and 70 rows are not known to be over the same.
        estimated(reading(&[70, 3], |k, x| {
            let (m, d) = (k.grid("m", 60, 9), k.whole("d", 3));
            let s = k.stream_axis("s", n, tile);
            k.stream(s, s.at_most(m + 4).and(m.at_most(s + 12)), [], |k, []| {
                k.load("x", x, [s, d]);
                let t = k.stream_axis("t", 70, 5);
                k.stream(t, t.less_than(s).and((m + 3).at_most(t * 2)), [], |k, []| {
                    k.load("y", x, [t, d]);
                    []
                });
                []
            });
        }));
    }
}

#[test]
fn streams_with_fixed_ends() {
    check(reading(&[70], |k, x| {
        k.grid("m", 10, 3);
        let n = k.stream_axis("n", 70, 8);
        k.stream(n, n.less_than(50).and(n.at_least(13)), [], |k, []| {
            k.load("x", x, [n]);
            []
        });
    }));
}

#[test]
fn loads_that_reach_outside() {
    for (shift, stride) in [(-2, 1), (0, 1), (3, 1), (-3, 2), (60, -1)] {
        // A convolution: rows i and taps r.
        check(reading(&[40, 4], |k, x| {
            let (i, d) = (k.grid("i", 41, 8), k.grid("d", 4, 1));
            let r = k.whole("r", 5);
            let at = i * stride + r + shift;
            k.load_or("x", x, [Coord::from(at), Coord::from(d)], 0.0);
        }));
        check(reading(&[40], |k, x| {
            let i = k.grid("i", 41, 8);
            let r = k.stream_axis("r", 5, 1);
            k.stream(r, Predicate::always(), [], |k, []| {
                k.load_or("x", x, [i * stride + r + shift], 0.0);
                []
            });
        }));
        // Under a triangular stream.
        check(reading(&[40], |k, x| {
            let i = k.grid("i", 41, 8);
            let n = k.stream_axis("n", 41, 6);
            k.stream(n, n.at_most(i), [], |k, []| {
                k.load_or("x", x, [n * stride + shift], 0.0);
                []
            });
        }));
    }
}

#[test]
fn divided_and_repeated_coordinates() {
    check(reading(&[3, 40], |k, x| {
        let (h, i) = (k.grid("h", 8, 1), k.grid("i", 40, 16));
        k.load("x", x, [h.div_floor(3), Coord::from(i)]);
    }));
    // Coordinates that move together are counted as if they made a box.
    estimated(reading(&[14, 14], |k, x| {
        let i = k.grid("i", 40, 16);
        k.load("x", x, [i.div_floor(3), i.div_floor(3)]);
    }));
    estimated(reading(&[30, 30], |k, x| {
        let (i, j) = (k.grid("i", 16, 5), k.whole("j", 15));
        k.load_or("x", x, [i - j, i + j], 0.0);
    }));
}

#[test]
fn two_passes_over_the_same_rows_share_them_where_they_fit() {
    let program = || {
        reading(&[64, 100], |k, x| {
            let m = k.grid("m", 64, 4);
            for name in ["n", "o"] {
                let n = k.stream_axis(name, 100, 10);
                k.stream(n, Predicate::always(), [], |k, []| {
                    k.load("x", x, [m, n]);
                    []
                });
            }
        })
    };
    let k = check(program());
    assert_eq!(k.levels[2].bytes, 2 * 64 * 100 * 4, "innermost");
    assert_eq!(k.levels[1].bytes, 64 * 100 * 4, "four rows fit in 4 KiB");
}

#[test]
fn levels_of_attention() {
    // Keys and values of a head are 16 KiB: they fit in 512 KiB, not in a core's quarter of 8 KiB.
    let sizes = AttentionSizes { b: 1, h: 4, m: 128, n: 128, d: 32, e: 32 };
    let program = attention(sizes, [16, 8], false, Bf16).expect("well-formed");
    let dram = |kib: usize| transfers(&program, &machine(kib))[0].levels[0].clone();
    let once = 4 * 4 * 128 * 32 * 2;
    assert_eq!((dram(512).bytes, dram(512).bound_bytes), (once, once));
    // Eight blocks of queries read keys and values again.
    assert_eq!(dram(8).bytes, 4 * (2 + 2 * 8) * 128 * 32 * 2);
}

#[test]
fn gathers_and_skips_depend_on_data() {
    let mut p = Builder::new("gather");
    let ids = p.input("ids", &[50], I32);
    let table = p.input("E", &[1000, 8], F32);
    let out = p.output("O", &[50, 8], F32);
    p.kernel("gather", |k| {
        let (t, d) = (k.grid("t", 50, 16), k.whole("d", 8));
        let at = k.load("at", ids, [t]);
        let row = k.load("row", table, [Coord::gather(at), Coord::from(d)]);
        k.store(out, [t, d], row);
    });
    let program = p.finish().expect("well-formed");
    let found = &transfers(&program, &machine(512))[0];
    assert_eq!(found.tensors[1].loaded_bytes, 50 * 8 * 4, "exact all the same");
    assert!(!found.data_dependent);
    // At best every row is the same one.
    assert_eq!(found.levels[0].bound_bytes, 50 * 4 + 8 * 4 + 50 * 8 * 4);

    let skipping = reading(&[70], |k, x| {
        let n = k.stream_axis("n", 70, 8);
        k.stream(n, Predicate::always(), [], |k, []| {
            let x = k.load("x", x, [n]);
            k.skip_unless(x.with(einloom_cascade::BinaryOp::Gt, 0.0));
            []
        });
    });
    assert!(transfers(&skipping.expect("well-formed"), &machine(512))[0].data_dependent);
}

#[test]
fn tiles_live_as_long_as_they_are_needed() {
    // acc and sum (16x32 f32), a (16x8) and b (8x32).
    let k = check(matmul([64, 64, 64], [16, 32, 8], F32));
    assert_eq!(k.resident_bytes, 4 * (2 * 16 * 32 + 16 * 8 + 8 * 32));
}

#[test]
fn time_is_that_of_the_slowest() {
    let found = transfers(&matmul([64, 64, 64], [16, 16, 8], F32).expect("well-formed"), &machine(512)).remove(0);
    // 2·64³ operations at 256 GFLOP/s take 2.05 us; 48 KiB at 20 GB/s 2.46 us.
    assert_eq!(found.bound_by, "DRAM");
    assert_eq!(found.seconds, 3.0 * 64.0 * 64.0 * 4.0 / 20e9);
    // One grid point keeps one core of four busy.
    let lone = transfers(&matmul([64, 64, 64], [64, 64, 8], F32).expect("well-formed"), &machine(512)).remove(0);
    assert_eq!((lone.bound_by.as_str(), lone.seconds), ("compute", 2.0 * 64f64.powi(3) / 64e9));
}

#[test]
fn long_sequences_take_no_time() {
    let sizes = AttentionSizes { b: 16, h: 32, m: 65536, n: 65536, d: 128, e: 128 };
    let program = attention(sizes, [64, 64], true, Bf16).expect("well-formed");
    let h200 = einloom_machine::built_in("h200").expect("built in");
    let start = Instant::now();
    let found = transfers(&program, &h200).remove(0);
    let elapsed = start.elapsed();
    let blocks: u64 = 65536 / 64;
    assert_eq!(found.tensors[1].loaded_bytes, 16 * 32 * 64 * blocks * (blocks + 1) / 2 * 128 * 2);
    // Milliseconds, but for a machine that does much else.
    assert!(elapsed.as_secs() < 2, "{elapsed:?}");
}
