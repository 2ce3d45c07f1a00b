//! What a result must not depend on: which thread takes which point of a kernel's grid and in which order, and what memory
//! held before something was written to it. Every shipped program, bit by bit.

#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

mod shipped;

use einloom::random::random_values;
use einloom::{Derived, PlanOptions, Planned, Program, RunOptions, Tensor};
use einloom_cascade::Given;
use std::collections::BTreeMap;

/// One pool of sizes per round; ranks take theirs in turn.
const POOLS: [&[usize]; 3] = [&[4, 16, 32], &[37, 21, 70, 19], &[33, 7, 3, 20]];

fn inputs(derived: &Derived, planned: &Planned) -> BTreeMap<String, Tensor> {
    let cascade = derived.cascade();
    let one = |t| {
        let values = random_values(cascade, planned.bound(), t, 1);
        let shape = planned.bound().shape(cascade, t);
        let tensor = Tensor::from_values(planned.dtype(t), &shape, &values).expect("the shape's values");
        (cascade[t].name.clone(), tensor)
    };
    cascade.inputs().map(one).collect()
}

/// Runs a plan on one thread, and on several of the same executable in several orders: all results are the same bits.
fn check(name: &str, derived: &Derived, planned: &Planned) -> Vec<Tensor> {
    let inputs = inputs(derived, planned);
    let compiled = planned.compile().expect("runs here");
    let run = |threads, disturb| {
        let mut outputs = compiled.outputs().expect("there is room");
        let options = RunOptions { threads: Some(threads), disturb, ..RunOptions::default() };
        compiled.run_into(&inputs, &mut outputs, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        outputs
    };
    let plain = run(1, None);
    for (threads, disturb) in [(2, 0), (1, 1), (3, 2)] {
        let disturbed = run(threads, Some(disturb));
        for (a, b) in plain.iter().zip(&disturbed) {
            let same = a.bytes() == b.bytes();
            assert!(
                same,
                "{name}: disturbed by {disturb} on {threads} threads\n{}",
                einloom_tile::print(planned.program())
            );
        }
    }
    plain
}

#[test]
fn results_depend_on_no_order_and_on_nothing_that_memory_held_before() {
    let machine = einloom::machines::find("cpu-generic").expect("built in");
    let mut checked = 0;
    for (name, text) in shipped::programs() {
        let derived = Program::from_text(&text).check().unwrap_or_else(|e| panic!("{name}: {e}")).derive();
        for (round, pool) in POOLS.iter().enumerate() {
            let mut given = Given::default();
            let free = derived.cascade().ranks.iter().filter(|r| r.default.is_none());
            for (k, rank) in free.enumerate() {
                given.sizes.insert(rank.name.clone(), pool[k % pool.len()]);
            }
            // Small tiles make many chunks and points; in one round the planner chooses.
            let tiles = derived.cascade().indices.iter().map(|i| (i.name.clone(), 16)).collect();
            let tiles = if round == 1 { BTreeMap::new() } else { tiles };
            // Some programs relate their sizes: those that do not fit are another program's.
            let options = PlanOptions { tiles, ..PlanOptions::default() };
            let Ok(planned) = derived.plan(&given, &machine, &options) else { continue };
            check(&name, &derived, &planned);
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} plans");
}

#[test]
fn every_tiling_of_capped_causal_attention_gives_the_same_numbers() {
    // As `docs/tutorial.md` has it from PyTorch.
    let text = "input q[b,h,m,d]: f32, k[b,h,m,d]: f32, v[b,h,m,e]: f32\noutput matmul: f32\nindex m, n in M\n\
        scores[b,h,m,n] = (sum(d) q[b,h,m,d] * k[b,h,n,d]) / 5.656854249492381\n\
        scores_2[b,h,m,n] = tanh(scores[b,h,m,n] / 20) * 20\n\
        scores_3[b,h,m,n] = where(n <= m, scores_2[b,h,m,n], -inf)\n\
        weights[b,h,m,n] = softmax(n) scores_3[b,h,m,n]\n\
        matmul[b,h,m,e] = sum(n) weights[b,h,m,n] * v[b,h,n,e]\n";
    let derived = Program::from_text(text).check().expect("checks").derive();
    let sizes = [("B", 1), ("H", 4), ("M", 256), ("D", 32), ("E", 32)];
    let sizes = sizes.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
    let given = Given { sizes, ..Given::default() };
    let mut expected: Option<Vec<f64>> = None;
    for cores in [1, 16] {
        let machine = einloom::machines::find("cpu-generic").expect("built in");
        let machine = einloom::machines::with_cores(machine, cores);
        for m in [0, 16, 24, 48, 64, 128, 256] {
            for n in [0, 32, 40, 64, 256] {
                let tiles = [("m", m), ("n", n)].into_iter().filter(|t| t.1 > 0);
                let tiles = tiles.map(|(name, tile)| (name.to_owned(), tile)).collect();
                let options = PlanOptions { tiles, ..PlanOptions::default() };
                let Ok(planned) = derived.plan(&given, &machine, &options) else { continue };
                let found = check("attention", &derived, &planned)[0].values();
                let expected = expected.get_or_insert_with(|| {
                    let bound = planned.bound();
                    let cascade = derived.cascade();
                    let values = |t| einloom_cascade::meaning::Array {
                        shape: bound.shape(cascade, t),
                        values: random_values(cascade, bound, t, 1),
                    };
                    let arrays = cascade.inputs().map(|t| (cascade[t].name.clone(), values(t))).collect();
                    let mut all = einloom_cascade::meaning::evaluate(cascade, bound, &arrays).expect("a meaning");
                    all.remove("matmul").expect("the output").values
                });
                let worst = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 2e-6, "m={m} n={n} on {cores}: off by {worst}");
            }
        }
    }
}
