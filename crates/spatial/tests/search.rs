//! Bindings found, against published ones.

#![allow(clippy::disallowed_methods)] // Studies are read from files.

use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Given, bind};
use einloom_spatial::{
    Binding, Chip, Options, Program, Search, Setting, Study, Wanted, evaluate, search, simulate, splits,
};
use std::collections::{BTreeMap, BTreeSet};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}{path}")).unwrap()
}

fn chip() -> Chip {
    Chip::parse("fusemax.toml", &read("studies/chips/fusemax.toml")).unwrap()
}

fn program(name: &str) -> Program {
    Program::parse(name, &read(&format!("cascades/published/{name}.ein"))).unwrap()
}

fn sizes(length: usize, width: usize) -> BTreeMap<String, usize> {
    [("M", length), ("P", length), ("E", width), ("F", width)].map(|(n, s)| (n.to_owned(), s)).into()
}

fn found(program: &Program, chip: &Chip, sizes: &BTreeMap<String, usize>) -> Search {
    let faults = BTreeSet::new();
    match search(&Wanted { program, chip, sizes, instances: 1.0, faults: &faults }) {
        Ok(search) => search,
        Err(problems) => panic!("{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    }
}

#[test]
fn what_is_found_for_one_pass_is_as_good_as_the_published_binding() {
    let (chip, program) = (chip(), program("c5"));
    let mut files = |name: &str| std::fs::read_to_string(format!("{ROOT}studies/{name}")).map_err(|e| e.to_string());
    let text = files("fusemax.toml").unwrap();
    let study = Study::parse("fusemax.toml", &text, &mut files).unwrap();
    let published = &study.configuration("binding").unwrap().binding;
    for (length, width) in [(1024, 64), (4096, 64), (16384, 64), (4096, 128), (65536, 128), (1000, 80)] {
        let sizes = sizes(length, width);
        let faults = BTreeSet::new();
        let (program, chip) = (&program, &chip);
        let setting = Setting { program, chip, binding: published, sizes: &sizes, instances: 1.0, faults: &faults };
        let published = evaluate(&setting).unwrap();
        let best = &found(program, chip, &sizes).found[0];
        let (own, theirs) = (best.evaluation.seconds, published.seconds);
        assert!(own <= theirs * (1.0 + 1e-12), "{length} {width}: {own} against {theirs}");
    }
}

#[test]
fn more_passes_cost_more() {
    let chip = chip();
    let sizes = sizes(65536, 64);
    let seconds = |name: &str| found(&program(name), &chip, &sizes).found[0].evaluation.seconds;
    let one = seconds("c5");
    for name in ["two_pass", "c4_stable"] {
        assert!(one < seconds(name), "{name}");
    }
}

#[test]
fn what_is_found_computes_the_meaning() {
    let chip = chip().with_array(4);
    for name in ["c5", "c4_stable", "c4_stable_deferred", "naive", "naive_deferred", "two_pass", "two_pass_deferred"] {
        let program = program(name);
        let mut sizes = sizes(16, 3);
        sizes.insert("P".to_owned(), 8);
        let best = found(&program, &chip, &sizes)
            .found
            .into_iter()
            .find(|f| f.binding.kernels[0].dataflows[0].spills.is_empty());
        let binding = best.unwrap().binding;
        let mut all = sizes.clone();
        all.extend(binding.sizes.iter().map(|(r, e)| (r.clone(), e.on(&chip).unwrap())));
        let cascade = &program.graph.cascade;
        all.retain(|n, _| cascade.rank(n).is_some());
        let bound = bind(cascade, &Given { sizes: all, ..Given::default() }).unwrap();
        let value = |k: usize| ((k * 7919 + 13) % 101) as f64 / 25.0 - 2.0;
        let inputs: Arrays = cascade
            .inputs()
            .map(|t| {
                let shape = bound.shape(cascade, t);
                let values = (0..shape.iter().product()).map(|k| value(k + t.0 as usize)).collect();
                (cascade[t].name.clone(), Array { shape, values })
            })
            .collect();
        let faults = BTreeSet::new();
        let setting = Setting {
            program: &program,
            chip: &chip,
            binding: &binding,
            sizes: &sizes,
            instances: 1.0,
            faults: &faults,
        };
        let registers = chip.arrays.iter().map(|a| (a.name.clone(), 10_000)).collect();
        let options = Options { registers, ..Options::default() };
        let run = simulate(&setting, &options, Some(std::slice::from_ref(&inputs)), &mut |_| {});
        let run = run.unwrap_or_else(|p| panic!("{name}: {}\n{}", p[0], binding.to_toml()));
        let expected = meaning::evaluate(cascade, &bound, &inputs).unwrap();
        for (x, y) in run.outputs[0]["AV"].values.iter().zip(&expected["AV"].values) {
            assert!((x - y).abs() <= 1e-6 * y.abs().max(1e-3), "{name}: {x} instead of {y}");
        }
        // The file says the same.
        assert_eq!(Binding::parse("found", &binding.to_toml()).unwrap(), binding, "{name}");
    }
}

#[test]
fn other_sides_on_the_same_area_are_no_worse() {
    let (chip, program) = (chip(), program("c5"));
    let sizes = sizes(65536, 64);
    let faults = BTreeSet::new();
    let wanted = Wanted { program: &program, chip: &chip, sizes: &sizes, instances: 1.0, faults: &faults };
    let all = splits(&wanted).unwrap();
    let area = |chip: &Chip| chip.arrays.iter().map(|a| chip.array_area(a).0).sum::<f64>();
    let own = found(&program, &chip, &sizes).found[0].evaluation.seconds;
    assert!(all.len() > 1);
    assert!(all[0].best.evaluation.seconds <= own);
    assert!(all.iter().all(|s| area(&s.chip) <= area(&chip) * (1.0 + 1e-12)));
}

#[test]
fn what_no_array_can_do_is_said() {
    let mut chip = chip();
    for array in &mut chip.arrays {
        array.operations.remove(&"maximum".parse().unwrap());
    }
    let (program, sizes, faults) = (program("c5"), sizes(4096, 64), BTreeSet::new());
    let wanted = Wanted { program: &program, chip: &chip, sizes: &sizes, instances: 1.0, faults: &faults };
    let problems: Vec<String> = search(&wanted).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("no array of the chip fusemax has `maximum`"), "{problems:?}");
}
