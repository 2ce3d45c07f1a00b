//! What plans are timed by is what their programs move.

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_model::transfers;
use einloom_plan::{Fusion, Options, plan};
use support::{read, sized};

#[test]
fn kernels_by_lanes_are_timed_by_what_they_move() {
    // No matrix unit multiplies f32. T and U are in memory between kernels, T in fewer bytes an element.
    let text = "input A[m,k]: f32, B[k,n]: f32, C[n,o]: f32, D[o,p]: f32\noutput P: f32\n\
                T[m,n]: bf16 = sum(k) A[m,k] * B[k,n]\nU[m,o] = sum(n) T[m,n] * C[n,o]\nP[m,p] = sum(o) U[m,o] * D[o,p]\n";
    let (cascade, machine) = (read(text), built_in("h200").expect("built in"));
    let options = Options { fuse: Fusion::None, ..Options::default() };
    let bound = sized(&cascade, "M=4096, K=2048, N=512, O=4096, P=8192");
    let plan = plan(&derive(&cascade).derived, &bound, &machine, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan.kernels.len(), 3);
    for (kernel, moved) in plan.kernels.iter().zip(transfers(&plan.program, &machine)) {
        assert!(kernel.gpu.is_none(), "{:?}", kernel.gpu);
        let timed = |level: &str| kernel.parts.iter().find(|p| p.0 == level).expect("a time at every level").1;
        // Tiles that overflow a core are moved again at all levels alike.
        let again = timed(&moved.levels[0].level) / moved.levels[0].seconds;
        assert!((1.0 - 1e-9..1.5).contains(&again), "{}: {again} times what it moves", kernel.name);
        for level in &moved.levels {
            let (timed, told) = (timed(&level.level), again * level.seconds);
            assert!((timed / told - 1.0).abs() < 1e-9, "{} at {}: {timed} s, {told} s", kernel.name, level.level);
        }
    }
}
