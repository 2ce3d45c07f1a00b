//! A plan for a machine with more of a resource is not predicted to take longer: whoever has more can do as before.
//!
//! Each of these was predicted to take longer with more, because the search ended elsewhere.

#![allow(clippy::disallowed_methods)] // programs are files

mod support;

use einloom_algebra::derive;
use einloom_machine::{Machine, built_in};
use einloom_plan::{Form, Options, choose, with_twice};
use std::path::Path;
use support::{read, sized};

/// Programs, machines, sizes and what there is twice of.
const CASES: &str = include_str!("more.txt");

/// What margins between forms and divisions that the model cannot tell apart may cost.
const MARGIN: f64 = 1.02;

#[test]
fn more_of_a_resource_makes_no_plan_slower() {
    for line in CASES.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let [file, name, sizes, resource] = line.split(';').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(file);
        let cascade = read(&std::fs::read_to_string(path).expect("a program"));
        let (bound, derivation) = (sized(&cascade, sizes), derive(&cascade));
        let machine = built_in(name).expect("built in");
        let options = Options { narrow_contractions: machine.lanes.is_some(), ..Options::default() };
        let seconds = |machine: &Machine| {
            choose(&Form::all(&derivation), &bound, machine, &options).unwrap_or_else(|e| panic!("{e}")).1.seconds
        };
        let more = with_twice(&machine).into_iter().find(|m| m.0 == resource).unwrap_or_else(|| panic!("{line}")).1;
        let [less, more] = [&machine, &more].map(seconds);
        assert!(more <= MARGIN * less, "{line}: {} times", more / less);
    }
}
