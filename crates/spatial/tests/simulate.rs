//! Simulated runs: their numbers are the cascade's meaning, and their cycles are explained.

#![allow(clippy::disallowed_methods)] // Studies are read from files.

use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Given, bind};
use einloom_spatial::{
    Configuration, Options, Problem, Setting, Simulated, Study, evaluate, filled_up, lags, simulate,
};
use std::collections::{BTreeMap, BTreeSet};

fn study() -> Study {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/");
    let mut read = |name: &str| std::fs::read_to_string(format!("{root}{name}")).map_err(|e| e.to_string());
    let text = read("fusemax.toml").unwrap();
    Study::parse("fusemax.toml", &text, &mut read).unwrap()
}

/// A configuration with arrays of this size and room for everything.
fn configuration(name: &str, array: usize) -> Configuration {
    let mut c = study().configuration(name).unwrap().clone();
    c.chip = c.chip.with_array(array);
    c
}

fn sizes(list: &[(&str, usize)]) -> BTreeMap<String, usize> {
    list.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect()
}

/// Numbers between -4 and 4 that differ from place to place.
fn inputs(c: &Configuration, sizes: &BTreeMap<String, usize>, seed: u64) -> Arrays {
    let cascade = &c.program.graph.cascade;
    let bound = c.program.bind(sizes).unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 21) - 4.0
    };
    let one = |t: einloom_cascade::TensorId| {
        let shape = bound.shape(cascade, t);
        let values = (0..shape.iter().product()).map(|_| next()).collect();
        (cascade[t].name.clone(), Array { shape, values })
    };
    cascade.inputs().map(one).collect()
}

fn run(
    c: &Configuration,
    sizes: &BTreeMap<String, usize>,
    options: &Options,
    inputs: Option<&[Arrays]>,
) -> Result<Simulated, Vec<Problem>> {
    let setting = Setting {
        program: &c.program,
        chip: &c.chip,
        binding: &c.binding,
        sizes,
        instances: options.instances as f64,
        faults: &BTreeSet::new(),
    };
    simulate(&setting, options, inputs, &mut |_| {})
}

/// The sizes of a run with those that the binding adds, filled up to whole tiles.
fn bound_sizes(c: &Configuration, sizes: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let faults = &BTreeSet::new();
    let (program, chip, binding) = (&c.program, &c.chip, &c.binding);
    filled_up(&Setting { program, chip, binding, sizes, instances: 1.0, faults })
}

fn assert_meaning(c: &Configuration, sizes: &BTreeMap<String, usize>, options: &Options) -> Simulated {
    let given = sizes;
    let sizes = bound_sizes(c, sizes);
    let all: Vec<Arrays> = (0..options.instances).map(|i| inputs(c, &sizes, i as u64 + 1)).collect();
    let found = match run(c, given, options, Some(&all)) {
        Ok(found) => found,
        Err(problems) => panic!("{}: {}", c.name, problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    };
    let cascade = &c.program.graph.cascade;
    let known = sizes.iter().filter(|(n, _)| cascade.rank(n).is_some()).map(|(n, s)| (n.clone(), *s)).collect();
    let bound = bind(cascade, &Given { sizes: known, ..Given::default() }).unwrap();
    for (inputs, outputs) in all.iter().zip(&found.outputs) {
        let expected = meaning::evaluate(cascade, &bound, inputs).unwrap();
        for (name, array) in &expected {
            assert_eq!(outputs[name].shape, array.shape);
            for (x, y) in outputs[name].values.iter().zip(&array.values) {
                assert!((x - y).abs() <= 1e-6 * y.abs().max(1e-3), "{} {name}: {x} instead of {y}", c.name);
            }
        }
    }
    found
}

/// Sizes that no side of an array divides: keys are filled up, queries leave lanes idle.
#[test]
fn ragged_sizes() {
    for name in ["unfused", "flat", "cascade", "architecture", "binding"] {
        let c = configuration(name, 8);
        assert_meaning(&c, &sizes(&[("M", 43), ("P", 29), ("E", 5), ("F", 7)]), &roomy(1));
        assert_meaning(&c, &sizes(&[("M", 3), ("P", 1), ("E", 1), ("F", 1)]), &roomy(2));
    }
}

fn roomy(instances: usize) -> Options {
    let registers = BTreeMap::from([("1d".to_owned(), 4096), ("2d".to_owned(), 4096)]);
    Options { instances, registers, ..Options::default() }
}

#[test]
fn every_configuration_computes_the_meaning() {
    for name in ["unfused", "flat", "cascade", "architecture", "binding"] {
        let c = configuration(name, 4);
        for (m, p) in [(4, 4), (16, 8), (8, 24)] {
            let sizes = sizes(&[("M", m), ("P", p), ("E", 3), ("F", 5)]);
            assert_meaning(&c, &sizes, &roomy(1));
            assert_meaning(&c, &sizes, &Options { free: true, ..roomy(2) });
        }
    }
}

#[test]
fn tiles_that_are_not_full_compute_the_meaning() {
    for name in ["unfused", "flat"] {
        let c = configuration(name, 4);
        assert_meaning(&c, &sizes(&[("M", 10), ("P", 7), ("E", 3), ("F", 5)]), &roomy(1));
    }
    let c = configuration("binding", 4);
    assert_meaning(&c, &sizes(&[("M", 12), ("P", 7), ("E", 3), ("F", 5)]), &roomy(1));
}

/// With the lags that the paper's text gives, tiles wait for each other; further apart they do not, and what is under way
/// then still fits the registers of the chip's elements.
#[test]
fn tiles_further_apart_keep_the_published_chip_busy() {
    let mut c = study().configuration("binding").unwrap().clone();
    let sizes = sizes(&[("M", 4096), ("P", 4096), ("E", 64), ("F", 64)]);
    let faults = BTreeSet::new();
    let setting = |c: &Configuration| {
        let setting = Setting {
            program: &c.program,
            chip: &c.chip,
            binding: &c.binding,
            sizes: &sizes,
            instances: 1.0,
            faults: &faults,
        };
        (evaluate(&setting).unwrap(), simulate(&setting, &Options::default(), None, &mut |_| {}).unwrap())
    };
    let (closed, published) = setting(&c);
    let kernel = &closed.kernels[0];
    assert!(published.cycles as f64 > 1.3 * kernel.cycles);
    let apart = {
        let (program, chip, binding) = (&c.program, &c.chip, &c.binding);
        let setting = Setting { program, chip, binding, sizes: &sizes, instances: 1.0, faults: &faults };
        lags(&setting, kernel.cycles / kernel.tiles).unwrap()
    };
    c.binding.kernels[0].lags = apart;
    let (_, apart) = setting(&c);
    // What remains is filling the arrays once and emptying them once.
    assert!((apart.cycles as f64) < kernel.cycles + 4.0 * 512.0, "{}", apart.cycles);
}
