//! Orders of a grid and blocks of a cache that all cores share, which the planner chooses, against all others.

#![allow(clippy::disallowed_methods)] // cascades are files

mod support;

use einloom_algebra::derive;
use einloom_machine::{Bytes, Machine, built_in};
use einloom_model::{ByOrder, Factors, transfers};
use einloom_plan::{Options, Plan, plan};
use einloom_tile::{AxisId, Block, Kernel, Program, Visit, grid_steps, lengthens, visits};
use std::path::Path;
use support::{read, sized};

fn planned(name: &str, sizes: &str, machine: &Machine) -> Plan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(format!("{name}.ein"));
    let cascade = read(&std::fs::read_to_string(path).expect("a program").replace(": f32", ": bf16"));
    let options = Options { narrow_contractions: true, ..Options::default() };
    plan(&derive(&cascade).derived, &sized(&cascade, sizes), machine, &options).expect("a plan")
}

fn sides(n: usize) -> Vec<usize> {
    (0..).map(|e| 1 << e).take_while(|&k| k < n).chain([n]).collect()
}

/// No order of two axes by blocks of any sides that are powers of two passes much less than the one that was chosen.
#[test]
fn products_pass_about_the_least_of_any_blocks() {
    let h200 = built_in("h200").expect("built in");
    for sizes in [[8192, 8192, 8192], [16384, 4096, 4096], [4096, 16384, 1024], [5000, 7000, 3000]] {
        let [m, n, k] = sizes;
        let plan = planned("matmul", &format!("M={m}, N={n}, K={k}"), &h200);
        let chosen = &plan.program.kernels[0];
        let traffic = ByOrder::new(&plan.program, chosen, &h200, plan.kernels[0].gpu.as_ref().map_or(1, |g| g.blocks));
        let own = traffic.bytes(chosen);
        let mut least = f64::INFINITY;
        let steps = chosen.grid.iter().map(|&a| grid_steps(chosen.axis(a))).collect::<Vec<_>>();
        for one in sides(steps[0]) {
            for other in sides(steps[1]) {
                for turned in [false, true] {
                    let mut kernel = chosen.clone();
                    let side = |a: usize, n: usize| {
                        let axis = chosen.axis(chosen.grid[a]);
                        (chosen.grid[a], (n * axis.tile).min(axis.extent))
                    };
                    kernel.blocks = vec![Block { memory: "L2".into(), sides: vec![side(0, one), side(1, other)] }];
                    if turned {
                        kernel.grid.reverse();
                    }
                    least = least.min(traffic.bytes(&kernel));
                }
            }
        }
        assert!(own <= 1.05 * least, "{sizes:?}: {own} of {least}");
        if sizes == [8192; 3] {
            // As one block a wave would have many times more rows than columns.
            let sides = chosen.grid.iter().map(|&a| (a, chosen.axis(a).extent)).collect();
            let blocks = vec![Block { memory: "L2".into(), sides }];
            assert!(own < 0.8 * traffic.bytes(&Kernel { blocks, ..chosen.clone() }));
        }
    }
}

/// The rows with the most keys of as many heads as L2 has room for come first.
#[test]
fn long_rows_come_first_over_as_many_heads_as_l2_holds() {
    let h200 = built_in("h200").expect("built in");
    for (positions, heads) in [(2048, 8), (4096, 8), (16384, 2)] {
        let plan =
            planned("attention_causal", &format!("B=2, H=16, M={positions}, N={positions}, D=128, E=128"), &h200);
        let kernel = &plan.program.kernels[0];
        let inside: Vec<Visit> = visits(kernel).into_iter().filter(|v| v.side > 1).collect();
        assert!(lengthens(kernel)[inside[0].axis.at()] > 0 && inside[0].side == inside[0].steps, "{inside:?}");
        let others: usize = inside[1..].iter().map(|v| v.side).product();
        assert_eq!(others, heads, "{inside:?}");
    }
}

#[test]
fn points_that_share_nothing_have_no_blocks() {
    let h200 = built_in("h200").expect("built in");
    let plan = planned("softmax", "M=4096, N=4096", &h200);
    assert!(plan.program.kernels.iter().all(|k| k.blocks.is_empty()));
}

/// Of a processor's orders and blocks, two axes of each.
fn of_all(chosen: &Kernel, memory: &str) -> Vec<Kernel> {
    let steps: Vec<usize> = chosen.grid.iter().map(|&a| grid_steps(chosen.axis(a))).collect();
    let mut out = vec![];
    for turned in [false, true] {
        let mut kernel = Kernel { blocks: vec![], ..chosen.clone() };
        if turned {
            kernel.grid.reverse();
        }
        out.push(kernel.clone());
        for one in sides(steps[0]) {
            for other in sides(steps[1]) {
                let side = |(&a, n): (&AxisId, usize)| (a, (n * chosen.axis(a).tile).min(chosen.axis(a).extent));
                let sides = chosen.grid.iter().zip([one, other]).map(side).collect();
                out.push(Kernel { blocks: vec![Block { memory: memory.into(), sides }], ..kernel.clone() });
            }
        }
    }
    out
}

#[test]
fn a_processors_memory_passes_about_the_least_of_any_blocks() {
    let cpu = built_in("cpu-generic").expect("built in");
    let mut by_blocks = 0;
    for sizes in [[4096, 4096, 4096], [2048, 8192, 1024], [8192, 2000, 3000], [256, 256, 256]] {
        let [m, n, k] = sizes;
        let plan = planned("matmul", &format!("M={m}, N={n}, K={k}"), &cpu);
        let chosen = &plan.program.kernels[0];
        let passed = |kernel: &Kernel| {
            let program = Program { kernels: vec![kernel.clone()], ..plan.program.clone() };
            transfers(&program, &cpu)[0].levels[0].bytes as f64
        };
        let least = of_all(chosen, "L3").iter().map(passed).fold(f64::INFINITY, f64::min);
        assert!(passed(chosen) <= 1.1 * least, "{sizes:?}: {} of {least}", passed(chosen));
        by_blocks += usize::from(!chosen.blocks.is_empty());
    }
    assert!(by_blocks > 1, "{by_blocks}");
}

/// Where all fits in the shared cache, points follow each other along the axis that the larger factors do not depend on.
#[test]
fn a_processors_points_share_the_factors_that_are_put_in_order() {
    let mut cpu = built_in("cpu-generic").expect("built in");
    let shared = cpu.levels.iter_mut().find(|l| l.name == "L3").expect("a cache");
    shared.capacity = Some(Bytes(1 << 32));
    for (m, n) in [(512, 8192), (8192, 512), (2048, 2048)] {
        let plan = planned("matmul", &format!("M={m}, N={n}, K=512"), &cpu);
        let chosen = &plan.program.kernels[0];
        let factors = Factors::new(&plan.program, chosen);
        let mut turned = chosen.clone();
        turned.grid.reverse();
        assert!(chosen.blocks.is_empty() && factors.moved(chosen) <= factors.moved(&turned), "{m} {n}");
    }
}
