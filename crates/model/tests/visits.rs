//! What blocks make pass from memory, of a GPU's L2 and of the cache that a processor's cores share, against a walk through the
//! points in their order.

use einloom_cascade::DType::{Bf16, F32};
use einloom_model::{ByOrder, transfers};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{AxisId, Block, Kernel, Program, visits};
use std::collections::BTreeSet;

/// The points of the grid as windows of each axis of `kernel.grid`, in the order of its blocks.
fn walk(kernel: &Kernel) -> Vec<Vec<usize>> {
    let all = visits(kernel);
    let numbers = |counts: Vec<usize>| {
        counts.into_iter().fold(vec![vec![]], |all: Vec<Vec<usize>>, n| {
            all.iter().flat_map(|one| (0..n).map(move |k| [one.as_slice(), &[k]].concat())).collect()
        })
    };
    let mut out = vec![];
    for block in numbers(all.iter().map(|v| v.steps.div_ceil(v.side)).collect()) {
        let sizes = all.iter().zip(&block).map(|(v, &b)| v.side.min(v.steps - b * v.side)).collect();
        let point = |p: Vec<usize>| all.iter().zip(&block).zip(p).map(|((v, &b), k)| b * v.side + k).collect();
        out.extend(numbers(sizes).into_iter().map(point));
    }
    out
}

/// Bytes that are read if so many points run at the same time, in step, and nothing stays.
fn by_waves(kernel: &Kernel, together: usize, reads: &[(&[&str], usize)]) -> usize {
    let name = |a: &AxisId| kernel.axis(*a).name.as_str();
    let points = walk(kernel);
    assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), points.len());
    let wave = |wave: &[Vec<usize>]| -> usize {
        let distinct = |axes: &[&str]| {
            let own = |p: &Vec<usize>| -> Vec<usize> {
                kernel.grid.iter().zip(p).filter(|(a, _)| axes.contains(&name(a))).map(|(_, &k)| k).collect()
            };
            wave.iter().map(own).collect::<BTreeSet<_>>().len()
        };
        reads.iter().map(|(axes, bytes)| distinct(axes) * bytes).sum()
    };
    points.chunks(together).map(wave).sum()
}

fn blocked(program: &Program, grid: &[usize], sides: &[usize]) -> Kernel {
    let mut kernel = program.kernels[0].clone();
    let axes = kernel.grid.clone();
    let side = |(&axis, &n): (&AxisId, &usize)| (axis, (n * kernel.axis(axis).tile).min(kernel.axis(axis).extent));
    kernel.blocks = vec![Block { memory: "L2".into(), sides: axes.iter().zip(sides).map(side).collect() }];
    kernel.grid = grid.iter().map(|&k| axes[k]).collect();
    kernel
}

#[test]
fn points_that_run_together_read_in_step() {
    let mut machine = einloom_machine::built_in("h200").expect("built in");
    // So that waves are whole blocks, and parts of one.
    machine.cores = 32;
    let program = matmul([2048, 4096, 512], [128, 128, 64], Bf16).expect("well-formed");
    let traffic = ByOrder::new(&program, &program.kernels[0], &machine, 1);
    let tile = 128 * 512 * 2;
    let mut least = usize::MAX;
    for grid in [[0, 1], [1, 0]] {
        for m in [1, 2, 4, 8, 16] {
            for n in [1, 2, 4, 8, 16, 32] {
                let kernel = blocked(&program, &grid, &[m, n]);
                let walked = by_waves(&kernel, 32, &[(&["m"], tile), (&["n"], tile)]);
                assert_eq!(traffic.in_step(&kernel), walked as f64, "{grid:?} {m} {n}");
                least = least.min(walked);
            }
        }
    }
    // Four by eight tiles of each wave.
    assert_eq!(least, 16 * 12 * tile);
}

#[test]
fn blocks_that_fit_read_each_element_once() {
    let machine = einloom_machine::built_in("h200").expect("built in");
    let sizes = AttentionSizes { b: 1, h: 32, m: 4096, n: 4096, d: 128, e: 128 };
    let program = attention(sizes, [128, 128], true, Bf16).expect("well-formed");
    let traffic = ByOrder::new(&program, &program.kernels[0], &machine, 1);
    let array = 32 * 4096 * 128 * 2;
    assert_eq!(traffic.least(), (3 * array) as f64);
    // Keys and values of a head are 2 MiB: those of eight heads stay with their rows, of all 32 they do not.
    let rows_first = [2, 0, 1];
    assert_eq!(traffic.bytes(&blocked(&program, &rows_first, &[1, 8, 32])), traffic.least());
    let all = traffic.bytes(&blocked(&program, &rows_first, &[1, 32, 32]));
    assert!(all > 2.0 * traffic.least(), "{all}");
    // The points of a head in a row need no more than their own.
    assert_eq!(traffic.bytes(&blocked(&program, &[0, 1, 2], &[1, 1, 32])), traffic.least());
}

/// Bytes that pass from and to memory if one core multiplies point by point, and a cache keeps the tiles that were used last.
fn by_last_use(kernel: &Kernel, capacity: usize, [m, n, k]: [usize; 3], steps: usize) -> usize {
    let (mut kept, mut held, mut passed): (Vec<([usize; 3], usize)>, usize, usize) = (vec![], 0, 0);
    let mut use_it = |tile: [usize; 3], bytes: usize, read: bool| {
        match kept.iter().position(|t| t.0 == tile) {
            Some(at) => drop(kept.remove(at)),
            None => {
                held += bytes;
                passed += if read { bytes } else { 0 };
            }
        }
        kept.push((tile, bytes));
        while held > capacity {
            held -= kept.remove(0).1;
        }
    };
    let at = |name: &str| kernel.grid.iter().position(|&a| kernel.axis(a).name == name).expect("an axis");
    let (rows, columns) = (at("m"), at("n"));
    let points = walk(kernel);
    for p in &points {
        for step in 0..steps {
            use_it([0, p[rows], step], m * k * 4, true);
            use_it([1, p[columns], step], n * k * 4, true);
        }
        use_it([2, p[rows], p[columns]], m * n * 4, false);
    }
    passed + points.len() * m * n * 4
}

#[test]
fn a_processors_shared_cache_keeps_what_a_block_asks_for() {
    let mut machine = einloom_machine::built_in("cpu-generic").expect("built in");
    machine.cores = 1;
    machine.levels.iter_mut().for_each(|l| l.shared_by = 1);
    let name = machine.trunk().nth(1).expect("a cache").name.clone();
    let tiles = [128, 128, 256];
    let program = matmul([2048, 3000, 2048], tiles, F32).expect("well-formed");
    let bytes = |kernel: Kernel| {
        let program = Program { kernels: vec![kernel], ..program.clone() };
        transfers(&program, &machine)[0].levels[0].bytes as f64
    };
    let mut least = f64::INFINITY;
    for grid in [[0, 1], [1, 0]] {
        for sides in [[2, 2], [2, 4], [4, 4], [4, 2], [8, 2]] {
            let mut kernel = blocked(&program, &grid, &sides);
            kernel.blocks[0].memory.clone_from(&name);
            // The last columns fill a part of a tile.
            let walked = by_last_use(&kernel, 16 << 20, tiles, 8) as f64 * 3000.0 / 3072.0;
            let counted = bytes(kernel);
            assert!((counted / walked - 1.0).abs() < 0.05, "{grid:?} {sides:?}: {counted}, {walked} walked");
            least = least.min(counted);
        }
    }
    // In the order of the grid all columns pass for each tile of rows.
    assert!(2.0 * least < bytes(program.kernels[0].clone()));
}
