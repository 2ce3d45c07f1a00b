//! The README is true: its tour prints what it says, and its first command does its job.
//!
//! `EINLOOM_BLESS=1 cargo test` writes what the tour's commands print into the README.

#![allow(clippy::disallowed_methods)] // The README and what it names are files.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn einloom(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_einloom"));
    command.args(line.split_whitespace()).current_dir(root()).env("NO_COLOR", "1");
    command.output().expect("the command runs")
}

#[test]
fn the_tour_prints_what_it_says() {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("a README");
    let mut found = String::new();
    let mut lines = readme.lines();
    let mut commands = 0;
    while let Some(line) = lines.next() {
        _ = writeln!(found, "{line}");
        if line != "```console" {
            continue;
        }
        for inside in lines.by_ref() {
            if let Some(command) = inside.strip_prefix("$ einloom ") {
                commands += 1;
                let output = einloom(command);
                _ = writeln!(found, "{inside}");
                found += &String::from_utf8_lossy(&output.stdout);
                found += &String::from_utf8_lossy(&output.stderr);
            } else if inside == "```" {
                _ = writeln!(found, "{inside}");
                break;
            }
        }
    }
    assert!(commands >= 6, "the tour has only {commands} commands");
    let mut failures = String::new();
    common::check(&path, &readme, &found, &mut failures);
    assert!(failures.is_empty(), "{failures}\nEINLOOM_BLESS=1 accepts what was found");
}

#[test]
fn the_first_command_does_its_job() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("a README");
    let command = readme.lines().find_map(|l| l.strip_prefix("cargo run --release -- ")).expect("a first command");
    let output = einloom(command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["as written, 1 as derived", "predicted", "stream", "agrees"] {
        assert!(text.contains(part), "`{part}` is not in what {command} prints:\n{text}");
    }
}
