//! Tiles that a backend has refused for want of room are not chosen again, nor larger ones; the next best are.

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_plan::{Form, Options, Plan, Room, TooLarge, choose};
use einloom_tile::Kernel;
use support::{read, sized};

fn tiles(kernel: &Kernel) -> String {
    let axes: Vec<String> = kernel.axes.iter().map(|a| format!("{}:{}", a.name, a.tile.min(a.extent))).collect();
    axes.join(" ")
}

/// The tiles of a program's only kernel, and those of three more plans, each made after all before were refused.
fn chosen(text: &str, sizes: &str, room: Room) -> Vec<String> {
    let (cascade, h200) = (read(text), built_in("h200").expect("built in"));
    let (derivation, bound) = (derive(&cascade), sized(&cascade, sizes));
    let planned = |options: &Options| -> Plan {
        choose(&Form::all(&derivation), &bound, &h200, options).unwrap_or_else(|e| panic!("{e}")).1
    };
    let mut options = Options { narrow_contractions: true, ..Options::default() };
    let mut out = vec![];
    for _ in 0..4 {
        let plan = planned(&options);
        let [kernel] = &plan.program.kernels[..] else { panic!("one kernel") };
        for refused in &options.too_large {
            assert!(refused.is_of(&plan.program, kernel) && !refused.covers(&plan.program, kernel), "{refused}");
        }
        out.push(tiles(kernel));
        options.too_large.push(TooLarge::new(&plan.program, kernel, room, "too large".to_string()));
    }
    out
}

#[test]
fn of_products_on_a_matrix_unit() {
    let text = "input A[m,k]: bf16, B[k,n]: bf16\noutput C: bf16\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    for room in [Room::SharedMemory, Room::Registers] {
        let tiles = ["m:128 n:256 k:64", "m:192 n:176 k:64", "m:192 n:176 k:48", "m:192 n:144 k:64"];
        assert_eq!(chosen(text, "M=4096, N=4096, K=4096", room), tiles);
    }
}

#[test]
fn of_products_by_lanes() {
    let text = "input A[m,k]: f64, B[k,n]: f64\noutput C: f64\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    let tiles = ["m:64 n:128 k:64", "m:128 n:64 k:64", "m:64 n:128 k:32", "m:64 n:64 k:32"];
    assert_eq!(chosen(text, "M=1024, N=1024, K=1024", Room::SharedMemory), tiles);
}

#[test]
fn of_rows() {
    let text = "input X[m,n]: f32\noutput Y: f32\nY[m,n] = softmax(n) X[m,n]\n";
    let tiles = ["m:32 n:1024", "m:1 n:1024", "m:32 n:512", "m:2 n:512"];
    assert_eq!(chosen(text, "M=4096, N=1024", Room::Registers), tiles);
}
