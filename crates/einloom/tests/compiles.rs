//! Every shipped program, planned for a GPU, compiles with NVRTC for both targets, without a GPU. It is emitted in any
//! case; what is not compiled is said.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // Programs are read from files; what is skipped is said.

mod shipped;

use einloom::gpu::{Gpu, Toolchain, source};
use einloom::{Derived, PlanOptions, Program};
use einloom_cascade::Given;
use einloom_cuda::Arch;
use einloom_machine::Machine;

/// Sizes of batches and heads, and of other ranks in turn: the second where a program does not take the first.
const POOLS: [(usize, &[usize]); 2] = [(2, &[64, 128, 96]), (1, &[8, 24, 88])];

fn programs() -> Vec<(String, Derived)> {
    let derived = |(name, text): (String, String)| {
        let checked = Program::from_text(&text).check().unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, checked.derive())
    };
    shipped::programs().into_iter().map(derived).collect()
}

fn given(derived: &Derived, (few, pool): (usize, &[usize])) -> Given {
    let mut given = Given::default();
    let free = derived.cascade().ranks.iter().filter(|r| r.default.is_none());
    for (k, rank) in free.enumerate() {
        let size = if ["B", "H", "G", "J"].contains(&rank.name.as_str()) { few } else { pool[k % pool.len()] };
        given.sizes.insert(rank.name.clone(), size);
    }
    given
}

#[test]
fn every_shipped_program_compiles_for_both_targets() {
    let toolchain = match Toolchain::open() {
        Ok(t) => Some(t),
        Err(e) => {
            eprintln!("emitted, but not compiled: {e}");
            None
        }
    };
    let programs = programs();
    std::thread::scope(|s| {
        for arch in [Arch::Sm80, Arch::Sm90a] {
            let (programs, toolchain) = (&programs, &toolchain);
            s.spawn(move || {
                let machine = machine(arch);
                let target = Gpu::target_of(&machine, arch);
                let options = PlanOptions { narrow_contractions: true, ..PlanOptions::default() };
                for (name, derived) in programs {
                    let plans = POOLS.iter().find_map(|&p| derived.plan(&given(derived, p), &machine, &options).ok());
                    let planned = plans.unwrap_or_else(|| panic!("{name}: no sizes fit"));
                    let source = source(&planned, &target).unwrap_or_else(|e| panic!("{name}: {e}"));
                    if let Some(toolchain) = toolchain {
                        toolchain.ptx(&source).unwrap_or_else(|e| panic!("{name} for {arch}: {e}"));
                    }
                }
            });
        }
    });
}

/// Sizes beyond what a block's threads and memory hold at once, that divide nothing.
const LARGE: [(usize, &[usize]); 2] = [(2, &[515, 1030, 2054]), (1, &[1030, 130, 520])];

#[test]
fn every_shipped_program_fits_at_large_sizes() {
    let programs = programs();
    std::thread::scope(|s| {
        for arch in [Arch::Sm80, Arch::Sm90a] {
            let programs = &programs;
            s.spawn(move || {
                let machine = machine(arch);
                let target = Gpu::target_of(&machine, arch);
                let options = PlanOptions { narrow_contractions: true, ..PlanOptions::default() };
                for (name, derived) in programs {
                    let plan = |sizes| derived.plan(&given(derived, sizes), &machine, &options).ok();
                    let plans: Vec<_> = LARGE.into_iter().filter_map(plan).collect();
                    assert!(!plans.is_empty(), "{name} for {arch}: no sizes fit");
                    for planned in plans {
                        source(&planned, &target).unwrap_or_else(|e| panic!("{name} for {arch}: {e}"));
                    }
                }
            });
        }
    });
}

/// An H200 with the instructions of the architecture.
fn machine(arch: Arch) -> Machine {
    let mut machine = einloom::machines::find("h200").expect("built in");
    if arch == Arch::Sm80 {
        machine.matrix.retain(|unit| !unit.asynchronous);
    }
    machine
}
