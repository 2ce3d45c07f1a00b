//! Snapshots of the road: for every shipped program its passes, derivation, plan and pseudocode, in `tests/road/`.
//! `EINLOOM_BLESS=1 cargo test -p einloom --test road` accepts what changed.

#![allow(clippy::disallowed_methods)] // tests make and read files

mod common;

use std::path::Path;
use std::process::Command;

/// Sizes of the snapshots, by rank: large enough that plans differ from those of toys.
const SIZES: [(&str, usize); 24] = [
    ("B", 2),
    ("C", 64),
    ("D", 64),
    ("E", 64),
    ("F", 256),
    ("H", 8),
    ("J", 2),
    ("K", 512),
    ("L", 1026),
    ("M", 1024),
    ("M0", 64),
    ("M1", 16),
    ("N", 2048),
    ("O", 128),
    ("P", 512),
    ("R", 3),
    ("T", 512),
    ("V", 32000),
    ("W", 256),
    ("I", 1024),
    ("G", 4),
    ("S", 512),
    ("X", 64),
    ("Y", 64),
];

fn run(folder: &Path, args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_einloom")).args(args).current_dir(folder).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    match output.status.code() {
        Some(0) => text,
        code => format!("{text}exit status {code:?}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn snapshots(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs = root.join("../../cascades").join(folder);
    let snapshots = root.join("tests/road").join(folder);
    std::fs::create_dir_all(&snapshots).expect("a folder");
    let mut failures = String::new();
    let mut names: Vec<_> = std::fs::read_dir(&programs).expect("programs").map(|e| e.expect("entry").path()).collect();
    names.retain(|p| p.extension().is_some_and(|e| e == "ein"));
    names.sort();
    for program in names {
        let file = program.file_name().expect("a name").to_string_lossy().into_owned();
        let cascade = einloom_cascade::parse(&std::fs::read_to_string(&program).expect("text")).cascade;
        let sizes: Vec<String> = SIZES
            .iter()
            .filter(|(rank, _)| cascade.rank(rank).is_some_and(|r| cascade[r].default.is_none()))
            .map(|(rank, size)| format!("{rank}={size}"))
            .collect();
        let sizes = sizes.join(",");
        let planned = ["--machine", "cpu-generic", "--size", &sizes];
        let mut found = String::new();
        found += &format!("# einloom passes {file}\n{}", run(&programs, &["passes", &file]));
        found += &format!("\n# einloom derive {file}\n{}", run(&programs, &["derive", &file]));
        let plan = [&["plan", &file][..], &planned].concat();
        found += &format!("\n# einloom {}\n{}", plan.join(" "), run(&programs, &plan));
        let emit = [&["emit", &file, "--target", "pseudo"][..], &planned].concat();
        found += &format!("\n# einloom {}\n{}", emit.join(" "), run(&programs, &emit));
        let snapshot = snapshots.join(&file).with_extension("txt");
        let expected = std::fs::read_to_string(&snapshot).unwrap_or_default();
        common::check(&snapshot, &expected, &found, &mut failures);
    }
    assert!(failures.is_empty(), "{failures}\nEINLOOM_BLESS=1 accepts what was found");
}

#[test]
fn the_road_of_every_program() {
    snapshots("");
}

#[test]
fn the_road_of_every_published_cascade() {
    snapshots("published");
}
