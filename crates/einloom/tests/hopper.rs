//! Every kernel of the shipped programs that is specialised for sm_90a, as planned, on the abstract machine: whatever the
//! hardware does first, it computes what the tile program means.

#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

mod shipped;

use einloom::random::random_values;
use einloom::{Derived, PlanOptions, Planned, Program};
use einloom_cascade::{Cascade, DType, Given, Role};
use einloom_cuda::emit::prepared;
use einloom_cuda::hopper::machine::{Arrays, Completion, Policy, Preference, execute, interpret};
use einloom_cuda::hopper::specialise;
use einloom_cuda::{Clusters, Target};
use einloom_tile::{AxisId, Kernel, Op, Program as Tiles, TensorId, TensorRole};
use std::collections::BTreeSet;

/// Sizes per round of batches and heads, and of other ranks, which take theirs in turn. Bulk copies need rows of multiples
/// of 16 bytes.
const POOLS: [(usize, &[usize]); 3] = [(2, &[64, 128, 96]), (1, &[72, 200, 136, 16]), (2, &[8, 24, 88])];

/// Terms of all products of a program: more would take seconds here.
const MOST_WORK: usize = 10_000_000;

/// The extremes: the producer far ahead with everything late, everything early, and a consumer ahead of the others.
const POLICIES: [Policy; 4] = [
    Policy { roles: Preference::Producer, completions: Completion::Late, seed: 0 },
    Policy { roles: Preference::Random, completions: Completion::Early, seed: 1 },
    Policy { roles: Preference::Consumer(0), completions: Completion::Late, seed: 2 },
    Policy { roles: Preference::Random, completions: Completion::Random, seed: 3 },
];

/// The program with inputs and outputs of bf16 in place of other floating-point types: tensor cores want 16 bits.
fn narrowed(cascade: &Cascade) -> Cascade {
    let mut out = cascade.clone();
    for tensor in out.tensors.iter_mut().filter(|t| t.role != Role::Intermediate) {
        if matches!(tensor.dtype, None | Some(DType::F32)) {
            tensor.dtype = Some(DType::Bf16);
        }
    }
    out
}

/// The inputs of the planned program.
fn inputs(planned: &Planned) -> Vec<Vec<f64>> {
    let given = planned.program().tensors.iter().filter(|t| t.role == TensorRole::Input);
    let values = |name: &str| {
        let found = planned.cascade().inputs().find(|t| planned.cascade()[*t].name == name);
        found.map_or(vec![], |t| random_values(planned.cascade(), planned.bound(), t, 1))
    };
    given.map(|t| values(&t.name).into_iter().map(|x| einloom_cascade::numeric::round(t.dtype, x)).collect()).collect()
}

/// Terms of the products among these operations, executed once per step of these axes.
fn work(kernel: &Kernel, ops: &[Op], around: &BTreeSet<AxisId>) -> usize {
    let one = |op: &Op| match op {
        Op::Stream { axis, body, .. } => {
            work(kernel, body, &around.iter().copied().chain([*axis]).collect::<BTreeSet<_>>())
        }
        Op::Mma { a, b, .. } => {
            let sides = [a, b].map(|v| [kernel.value(*v).rows, kernel.value(*v).cols]);
            let axes: BTreeSet<AxisId> =
                sides.iter().flatten().flatten().copied().chain(around.iter().copied()).collect();
            let once = |a: &AxisId| sides.iter().flatten().any(|side| *side == Some(*a));
            let times = |a: AxisId| match (kernel.axis(a), once(&a)) {
                (axis, true) => axis.extent.max(1),
                (axis, false) => axis.extent.div_ceil(axis.tile).max(1),
            };
            axes.into_iter().map(times).product()
        }
        _ => 0,
    };
    ops.iter().map(one).sum()
}

/// Runs all kernels, if any is specialised: how many are, and how many of them also in pairs of blocks.
fn check(name: &str, program: &Tiles, planned: &Planned) -> [usize; 2] {
    let pairs = Target { clusters: Clusters::Of(2), ..Target::SM_90A };
    let schedules =
        |target: &Target| program.kernels.iter().map(|k| specialise(program, k, target)).collect::<Vec<_>>();
    let (alone, paired) = (schedules(&Target::SM_90A), schedules(&pairs));
    let mut specialised = [0; 2];
    if alone.iter().all(Result::is_err) {
        return specialised;
    }
    let mut memory = Arrays::new(program, &inputs(planned));
    for ((kernel, alone), paired) in program.kernels.iter().zip(alone).zip(paired) {
        let before = memory.clone();
        interpret(program, kernel, &mut memory).unwrap_or_else(|e| panic!("{name}, {}: {e:?}", kernel.name));
        let Ok(alone) = alone else { continue };
        let paired = paired.ok().filter(|s| s.cluster.is_some());
        specialised[0] += 1;
        specialised[1] += usize::from(paired.is_some());
        let runs = POLICIES.iter().map(|p| (&alone, *p)).chain(paired.iter().flat_map(|s| POLICIES.map(|p| (s, p))));
        for (schedule, policy) in runs {
            let mut after = before.clone();
            if let Err(hazard) = execute(program, kernel, schedule, &mut after, 2, policy) {
                panic!("{name}, {}, {policy:?}: {hazard}", kernel.name);
            }
            for t in (0..program.tensors.len() as u32).map(TensorId) {
                let bits = |m: &Arrays| {
                    let size = program.tensor(t).dims.iter().product::<usize>();
                    (0..size).map(|place| m.element(t, place).map(f64::to_bits)).collect::<Vec<_>>()
                };
                assert!(
                    bits(&after) == bits(&memory),
                    "{name}, {}, {policy:?}: {}",
                    kernel.name,
                    program.tensor(t).name
                );
            }
        }
    }
    specialised
}

#[test]
fn specialised_kernels_compute_what_the_program_means() {
    let machine = einloom::machines::find("h200").expect("built in");
    // As the command line plans for GPUs.
    let options = PlanOptions { narrow_contractions: true, ..PlanOptions::default() };
    let mut specialised = [0; 2];
    for (name, text) in shipped::programs() {
        let checked = Program::from_text(&text).check().unwrap_or_else(|e| panic!("{name}: {e}"));
        let cascade = narrowed(checked.cascade());
        let derived = Derived::from_derivation(einloom_algebra::derive(&cascade));
        for (few, pool) in POOLS {
            let mut given = Given::default();
            let free = cascade.ranks.iter().filter(|r| r.default.is_none());
            for (k, rank) in free.enumerate() {
                let size = if ["B", "H", "G"].contains(&rank.name.as_str()) { few } else { pool[k % pool.len()] };
                given.sizes.insert(rank.name.clone(), size);
            }
            // Some programs relate their sizes: those that do not fit are another program's.
            let Ok(planned) = derived.plan(&given, &machine, &options) else { continue };
            let program = prepared(planned.program());
            let work = |k: &Kernel| work(k, &k.body, &k.grid.iter().copied().collect());
            if program.kernels.iter().map(work).sum::<usize>() <= MOST_WORK {
                let [alone, paired] = check(&name, &program, &planned);
                specialised = [specialised[0] + alone, specialised[1] + paired];
            }
        }
    }
    let [alone, paired] = specialised;
    assert!(alone >= 50 && paired >= 10, "only {alone} kernels are specialised, {paired} of them in pairs");
}
