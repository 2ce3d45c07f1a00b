//! What kernels written by hand take of a GPU's core, against figures worked out on paper, and why others do not fit.

use einloom_cascade::DType::{Bf16, F32};
use einloom_machine::{Machine, built_in};
use einloom_model::{OnGpu, by_lanes, on_gpu, transfers, transfers_of_blocks};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Defect, Op, Program};

fn h200() -> Machine {
    built_in("h200").expect("built in")
}

fn run(program: Result<Program, Vec<Defect>>, unit: Option<&str>) -> Result<OnGpu, String> {
    let program = program.unwrap_or_else(|d| panic!("{}", d[0]));
    let found = on_gpu(&program, &program.kernels[0], &h200(), unit);
    found.map_err(|misfits| misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn product(tile: [usize; 3]) -> Result<OnGpu, String> {
    run(matmul([4096; 3], tile, Bf16), None)
}

/// One head of `d` columns.
fn heads(d: usize, rows: usize, keys: usize) -> Result<OnGpu, String> {
    run(attention(sizes(d), [rows, keys], true, Bf16), None)
}

fn sizes(d: usize) -> AttentionSizes {
    AttentionSizes { b: 4, h: 2048 / d, m: 4096, n: 4096, d, e: d }
}

#[test]
fn a_matmul_takes_what_its_accumulators_and_stages_take() {
    // 128x256 sums over 256 threads: 128 registers, and the reserve of 20. A stage: (128 + 256) x 64 x 2 B = 48 KiB.
    let found = product([128, 256, 64]).expect("it fits");
    assert_eq!((found.groups, found.registers, found.register_limit), ([2, 1], 148, 240));
    assert_eq!((found.stages, found.shared_bytes), (4, (4 * 48 + 1) << 10));
    // Three groups leave 160 registers: (65536 - 128 x 24) / 384, in eights.
    let found = product([192, 192, 64]).expect("it fits");
    assert_eq!((found.groups, found.registers, found.register_limit), ([3, 1], 116, 160));
}

#[test]
fn the_printed_form_tells_it_all() {
    let found = product([128, 256, 64]).expect("it fits");
    let text = "wgmma by 2 groups: 148 of 240 registers a thread, 193 of 227 KiB of shared memory in 4 stages; \
                bound by L2";
    assert_eq!(found.to_string(), text);
}

#[test]
fn predicted_rates_are_those_of_the_published_kernels_they_were_fitted_to() {
    // ThunderKittens, 4096 cubed: 746 TFLOP/s; FlashAttention-3, causal, 4096 tokens: 431, 594, 612.
    let flops = 2.0 * 4096f64.powi(3);
    let near = |found: OnGpu, flops: f64, published: f64| {
        let rate = flops / found.seconds / 1e12;
        assert!((rate / published - 1.0).abs() < 0.15, "{rate:.0} TFLOP/s, published {published}");
    };
    near(product([128, 256, 64]).expect("it fits"), flops, 746.0);
    let flops = 2.0 * 4.0 * 2048.0 * 4096f64.powi(2);
    for (d, rows, keys, published) in [(64, 192, 128, 431.0), (128, 128, 128, 594.0), (256, 128, 64, 612.0)] {
        near(heads(d, rows, keys).expect("it fits"), flops, published);
    }
}

#[test]
fn more_and_larger_tiles_are_better_as_long_as_they_fit() {
    let seconds = |tile: [usize; 3]| product(tile).expect("it fits").seconds;
    assert!(seconds([128, 256, 64]) < seconds([128, 128, 64]));
    assert!(seconds([128, 128, 64]) < seconds([64, 64, 64]));
    // 512 tasks of 128x256 are 3.9 waves of 132; 128 tasks of 512x256 would not fit at all.
    assert!(product([512, 256, 64]).is_err());
}

#[test]
fn what_does_not_fit_says_why() {
    let cases = [
        (
            run(matmul([512; 3], [128, 128, 64], F32), None),
            "not wgmma: sum = mma multiplies f32 by f32; \
            not mma.sync: sum = mma multiplies f32 by f32",
        ),
        (
            run(matmul([4096; 3], [192, 192, 256], Bf16), Some("wgmma")),
            "not wgmma: 385 KiB of shared memory are more than 227 KiB",
        ),
        // 65536 / 512 threads, before consumers have the producer's: ptxas refuses it.
        (
            run(matmul([4096; 3], [192, 256, 64], Bf16), Some("wgmma")),
            "not wgmma: an instruction takes 154 registers a thread, of 128 at the start",
        ),
        (
            run(matmul([4096; 3], [256, 128, 64], Bf16), Some("wgmma")),
            "not wgmma: 256 rows are more than the 192 that 3 groups hold",
        ),
        // Sums of 128x256, scores of 128x128 and their copy in 16 bits over 256 threads, three values of a row's, reserve.
        (
            heads(256, 128, 128).map_err(|e| e.split(';').next().unwrap_or_default().to_string()),
            "not wgmma: 250 registers a thread are more than 240",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found.expect_err("it does not fit"), expected);
    }
}

#[test]
fn another_unit_can_be_asked_for() {
    let found = run(matmul([4096; 3], [128, 256, 64], Bf16), Some("mma.sync")).expect("it fits");
    assert_eq!(found.unit.as_deref(), Some("mma.sync"));
    assert!(found.seconds > product([128, 256, 64]).expect("it fits").seconds);
}

#[test]
fn a_machine_without_lanes_has_no_such_figures() {
    let program = matmul([64; 3], [64; 3], Bf16).expect("well-formed");
    let cpu = built_in("cpu-generic").expect("built in");
    assert_eq!(on_gpu(&program, &program.kernels[0], &cpu, None), Err(vec![]));
}

#[test]
fn l2_serves_what_blocks_share() {
    // Keys and values of the few heads that are under way fit L2: they come in once, and 32 blocks of queries read them.
    let sizes = AttentionSizes { b: 1, h: 8, m: 4096, n: 4096, d: 128, e: 128 };
    let program = attention(sizes, [128, 128], false, Bf16).expect("well-formed");
    let found = &transfers(&program, &h200())[0];
    let once = 8 * 4096 * 128 * 2;
    assert_eq!((found.levels[0].bytes, found.levels[0].bound_bytes), (4 * once, 4 * once));
    assert_eq!(found.levels[1].bytes, (2 + 2 * 32) * once);
    let keys = found.levels[0].tensors[1];
    assert_eq!((keys.loaded_bytes, keys.stored_bytes), (once, 0));
}

#[test]
fn times_and_reports_count_the_same_bytes() {
    let machine = h200();
    let programs = [
        matmul([8192; 3], [128, 256, 64], Bf16).expect("well-formed"),
        attention(sizes(128), [128, 128], true, Bf16).expect("well-formed"),
    ];
    for program in programs {
        let run = on_gpu(&program, &program.kernels[0], &machine, None).expect("it fits");
        let told = &transfers_of_blocks(&program, &machine, &|_| run.blocks)[0].levels[0];
        let timed = run.parts.iter().find(|p| p.0 == "device memory").expect("it is used").1;
        assert!((told.seconds / timed - 1.0).abs() < 1e-9, "{} {timed}", told.seconds);
        assert!(told.bytes >= told.bound_bytes, "{told:?}");
    }
}

/// Seconds that an f32 product takes of the lanes beside its multiply-adds; of the given factors the dimensions lie the other
/// way round.
fn beside(size: [usize; 3], tile: [usize; 3], transposed: &[usize]) -> f64 {
    fn turn(ops: &mut [Op], which: u32) {
        for op in ops {
            match op {
                Op::Load { tensor, at, .. } if tensor.0 == which => at.reverse(),
                Op::Stream { body, .. } => turn(body, which),
                _ => {}
            }
        }
    }
    let mut program = matmul(size, tile, F32).expect("well-formed");
    for &k in transposed {
        program.tensors[k].dims.reverse();
        turn(&mut program.kernels[0].body, k as u32);
    }
    let found = by_lanes(&program, &program.kernels[0], &h200()).expect("a GPU");
    found.beside_products.expect("products by blocks")
}

#[test]
fn factors_that_do_not_lie_as_threads_read_them_cost_the_lanes_more() {
    let order = |transposed: &[usize]| beside([4096; 3], [128, 256, 64], transposed);
    let (plain, first, second, both) = (order(&[]), order(&[0]), order(&[1]), order(&[0, 1]));
    assert!(plain < first && plain < second && first < both && second < both, "{plain} {first} {second} {both}");
    // Each costs the same whether the other one lies right or not.
    assert!(((both - plain) / (first + second - 2.0 * plain) - 1.0).abs() < 0.01, "{plain} {first} {second} {both}");
}

#[test]
fn ragged_products_compute_whole_tiles_and_copy_in_small_pieces() {
    let of = |m, n, k| beside([m, n, k], [64, 128, 128], &[]);
    let (even, fewer, odd) = (of(1024, 1024, 1024), of(1000, 1024, 1024), of(1000, 1023, 1023));
    // What is beyond the last row is multiplied too, and copies are tested.
    let multiplied = 2.0 * 1024f64.powi(3) / 67e12;
    assert!(fewer > even + multiplied * 24.0 / 1024.0, "{fewer} {even}");
    // Rows that begin anywhere are copied and read element by element: four times as often.
    assert!(odd > 1.3 * fewer, "{odd} {fewer}");
}
