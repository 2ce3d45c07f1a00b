//! What every command prints and returns, as text in `tests/cases/`: files, commands, and what is expected of them.
//!
//! A case is a file of sections. `file NAME` and `npy NAME DESCR SHAPE BYTES` make a file in a fresh folder, `hex NAME`
//! one of bytes, `dir NAME` a folder; `$ einloom …` runs the command there (standard input is empty, or the file named
//! after `<`) and is followed by what is expected: `status`, `stdout`, `stderr`, and with `exists` the files that are
//! in the folder afterwards. Lines of text start with `| `. Everything else is comment.
//!
//! `EINLOOM_BLESS=1 cargo test` writes what was found over what was expected.

#![allow(clippy::disallowed_methods)] // tests make and read files

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn commands_do_as_their_cases_say() {
    run_cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"));
}

/// Runs every case in a folder.
fn run_cases(folder: &Path) {
    let mut cases: Vec<_> = std::fs::read_dir(folder).expect("cases").map(|e| e.expect("entry").path()).collect();
    cases.sort();
    let mut failures = String::new();
    for case in cases.iter().filter(|p| p.extension().is_some_and(|e| e == "txt")) {
        let expected = std::fs::read_to_string(case).expect("a case is text");
        let found = run(&expected);
        common::check(case, &expected, &found, &mut failures);
    }
    assert!(failures.is_empty(), "{failures}\nEINLOOM_BLESS=1 accepts what was found");
}

/// The case again, with what its commands do in place of what they should do.
fn run(case: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut out = String::new();
    let mut lines = case.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let _ = writeln!(out, "{line}");
        match words.as_slice() {
            ["file", name] => {
                let mut text = String::new();
                while let Some(content) = lines.next_if(|l| l.starts_with('|')) {
                    let _ = writeln!(out, "{content}");
                    let _ = writeln!(text, "{}", content[1..].strip_prefix(' ').unwrap_or(&content[1..]));
                }
                std::fs::write(folder.path().join(name), text).expect("write");
            }
            ["dir", name] => std::fs::create_dir(folder.path().join(name)).expect("make a folder"),
            ["npy", name, descr, rest @ ..] => {
                let (bytes, shape) = rest.split_last().expect("npy NAME DESCR SHAPE BYTES");
                let bytes = npy(descr, &shape.join(" "), bytes.parse().expect("number of bytes"));
                std::fs::write(folder.path().join(name), bytes).expect("write");
            }
            ["hex", name, bytes @ ..] => {
                let bytes: Vec<u8> = bytes.iter().map(|b| u8::from_str_radix(b, 16).expect("hex")).collect();
                std::fs::write(folder.path().join(name), bytes).expect("write");
            }
            ["$", "einloom", args @ ..] => {
                while lines.next_if(|l| is_expectation(l)).is_some() {}
                out += &command(folder.path(), args);
            }
            _ => {}
        }
    }
    out
}

fn is_expectation(line: &str) -> bool {
    line.starts_with('|') || line.starts_with("status ") || ["stdout", "stderr", "exists"].contains(&line)
}

fn command(folder: &Path, args: &[&str]) -> String {
    let (args, stdin) = match args.iter().position(|a| *a == "<") {
        Some(at) => (&args[..at], Stdio::from(std::fs::File::open(folder.join(args[at + 1])).expect("standard input"))),
        None => (args, Stdio::null()),
    };
    let before = names(folder);
    let output = Command::new(env!("CARGO_BIN_EXE_einloom"))
        .args(args)
        .current_dir(folder)
        .stdin(stdin)
        .output()
        .expect("the command starts");
    let mut out = format!("status {}\n", output.status.code().map_or("killed".into(), |c| c.to_string()));
    for (name, bytes) in [("stdout", output.stdout), ("stderr", output.stderr)] {
        if !bytes.is_empty() {
            let _ = writeln!(out, "{name}");
            for line in String::from_utf8(bytes).expect("text").lines() {
                let _ = writeln!(out, "{}", format!("| {line}").trim_end());
            }
        }
    }
    let after = names(folder);
    if after != before {
        let _ = writeln!(out, "exists");
        after.iter().filter(|n| !before.contains(n)).for_each(|n| {
            let _ = writeln!(out, "| {n}");
        });
    }
    out
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A `.npy` file with this header and this many bytes of zeros, however many the shape asks for.
fn npy(descr: &str, shape: &str, bytes: usize) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(std::iter::repeat_n(0, bytes));
    file
}
