//! What the planner predicts is what the executor counts: bytes per kernel, tensor and direction, on every shipped
//! program, at sizes that tiles divide and sizes that they do not. And no plan moves less than its bound.

#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

use einloom::random::random_values;
use einloom::{PlanOptions, Program, RunOptions, Tensor};
use einloom_cascade::Given;
use std::collections::BTreeMap;
use std::path::Path;

/// One pool of sizes per round; ranks take theirs in turn.
const POOLS: [&[usize]; 4] = [&[4, 16, 32], &[5, 21, 37, 19], &[1], &[33, 7, 3, 20]];

#[test]
fn predicted_bytes_are_counted_bytes_and_no_less_than_bounds() {
    let machine = einloom::machines::find("cpu-generic").expect("built in");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let mut compared = 0;
    for folder in [root.clone(), root.join("published")] {
        for entry in std::fs::read_dir(folder).expect("programs") {
            let path = entry.expect("entry").path();
            if path.extension().is_none_or(|e| e != "ein") {
                continue;
            }
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("text");
            let derived = Program::from_text(&text).check().unwrap_or_else(|e| panic!("{name}: {e}")).derive();
            let before = compared;
            for (round, pool) in POOLS.iter().enumerate() {
                let mut given = Given::default();
                let free = derived.cascade().ranks.iter().filter(|r| r.default.is_none());
                for (k, rank) in free.enumerate() {
                    given.sizes.insert(rank.name.clone(), pool[k % pool.len()]);
                }
                // Small tiles make many chunks; every other round the planner chooses.
                let tiles = derived.cascade().indices.iter().map(|i| (i.name.clone(), 16)).collect();
                let options = PlanOptions {
                    tiles: if round % 2 == 1 { tiles } else { BTreeMap::new() },
                    ..PlanOptions::default()
                };
                // Some programs relate their sizes: those that do not fit are another program's.
                let Ok(planned) = derived.plan(&given, &machine, &options) else { continue };
                let inputs = derived
                    .cascade()
                    .inputs()
                    .map(|t| {
                        let values = random_values(derived.cascade(), planned.bound(), t, 1);
                        let shape = planned.bound().shape(derived.cascade(), t);
                        let tensor =
                            Tensor::from_values(planned.dtype(t), &shape, &values).expect("the shape's values");
                        (derived.cascade()[t].name.clone(), tensor)
                    })
                    .collect();
                let outcome = planned
                    .run(&inputs, &RunOptions { count: true, ..RunOptions::default() })
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
                for (predicted, counted) in planned.transfers().iter().zip(&outcome.report.kernels) {
                    if predicted.data_dependent {
                        continue;
                    }
                    for level in &predicted.levels {
                        let (planned, bound) = (level.bytes, level.bound_bytes);
                        let place = format!("{name}, kernel {}, {}", predicted.name, level.level);
                        assert!(planned >= bound, "{place}: {planned} below its bound {bound}, {:?}", given.sizes);
                    }
                    let moved = |tensor: einloom_tile::TensorId| {
                        let found = counted.traffic.iter().find(|t| t.tensor == tensor);
                        found.map_or((0, 0), |t| (t.loaded_bytes, t.stored_bytes))
                    };
                    for t in &predicted.tensors {
                        let place =
                            format!("{name}, kernel {}, {}", predicted.name, planned.program().tensor(t.tensor).name);
                        assert_eq!(
                            (t.loaded_bytes, t.stored_bytes),
                            moved(t.tensor),
                            "{place}, sizes {:?}",
                            given.sizes
                        );
                        compared += 1;
                    }
                }
            }
            assert!(compared > before, "{name}: no sizes fit");
        }
    }
    assert!(compared > 300, "only {compared} tensors compared");
}
