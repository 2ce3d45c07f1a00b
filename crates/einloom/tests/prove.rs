//! Every program that is shipped is proved numerically: what is derived, planned and run is what was written.

#![allow(clippy::disallowed_methods)] // tests make and read files

use einloom::prove::{Effort, prove};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn programs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(folder);
    let entries = std::fs::read_dir(folder).expect("programs");
    let mut paths: Vec<_> = entries.map(|e| e.expect("entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "ein"));
    paths.sort();
    paths
}

fn prove_all(folder: &str) {
    let machine = einloom::machines::find("cpu-generic").expect("built in");
    let mut failures = String::new();
    for path in programs(folder) {
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let checked = einloom::Program::from_text(&text).check().unwrap_or_else(|e| panic!("{name}: {e}"));
        match prove(checked.cascade(), &machine, false, 0, Effort::QUICK, &mut |_| {}) {
            Err(e) => writeln!(failures, "{name}: {e}").expect("a string"),
            Ok(proof) => {
                if let Some(d) = proof.disagreements.first() {
                    writeln!(failures, "{name}: {} disagree, such as {d:?}", proof.disagreements.len())
                        .expect("a string");
                }
                if proof.out_of_range > 0 {
                    writeln!(failures, "{name}: {} inputs leave f32 as derived", proof.out_of_range).expect("a string");
                }
                // A proof that compares next to nothing is none.
                let told = proof.inputs - proof.undefined - proof.sensitive;
                assert!(told >= 20, "{name}: {proof:?}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn every_program_agrees_with_its_meaning() {
    prove_all("");
}

#[test]
fn every_published_cascade_agrees_with_its_meaning() {
    prove_all("published");
}
