//! The chapters of `docs/chapters`, `docs/language.md` and `docs/spatial.md` are true: their programs are checked, their commands run, and what is printed is what
//! they say.
//!
//! A fence ```` ```ein NAME.ein ```` or ```` ```toml NAME.toml ```` makes a file in the chapter's own folder; in a fence ```` ```console ```` every line
//! `$ einloom …` is run there and followed by what it prints. `# only A, B` after a command keeps the parts of the output
//! (separated by empty lines) that begin with one of these words, and writes `...` for the others. A command with `# refused` fails, and is
//! followed by what it says of the mistakes.
//!
//! `EINLOOM_BLESS=1 cargo test` writes what the commands print into the chapters.

#![allow(clippy::disallowed_methods)] // chapters and programs are files

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn softmax() {
    chapter("softmax");
}

#[test]
fn variance() {
    chapter("variance");
}

#[test]
fn attention() {
    chapter("attention");
}

#[test]
fn linear_attention() {
    chapter("linear-attention");
}

#[test]
fn scans() {
    chapter("scans");
}

#[test]
fn language() {
    page(&folder().join("../language.md"));
}

#[test]
fn spatial_chips() {
    page(&folder().join("../spatial.md"));
}

#[test]
fn every_chapter_is_tested_and_listed() {
    let contents = std::fs::read_to_string(folder().join("README.md")).expect("contents");
    let entries = std::fs::read_dir(folder()).expect("chapters").map(|e| e.expect("entry").file_name());
    let mut names: Vec<String> = entries.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["README.md", "attention.md", "linear-attention.md", "scans.md", "softmax.md", "variance.md"]);
    for name in names.iter().skip(1) {
        assert!(contents.contains(&format!("]({name})")), "{name} is not in the contents");
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/chapters")
}

fn chapter(name: &str) {
    page(&folder().join(name).with_extension("md"));
}

fn page(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a chapter");
    let found = run(&text);
    let mut failures = String::new();
    common::check(path, &text, &found, &mut failures);
    assert!(failures.is_empty(), "{failures}\nEINLOOM_BLESS=1 accepts what was found");
}

/// The chapter with what its commands print now.
fn run(text: &str) -> String {
    let files = tempfile::tempdir().expect("a temporary folder");
    let mut out = String::new();
    let mut lines = text.lines();
    let mut unused: Vec<String> = vec![];
    while let Some(line) = lines.next() {
        _ = writeln!(out, "{line}");
        if let Some(name) = line.strip_prefix("```ein ") {
            let program: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            _ = writeln!(out, "{}\n```", program.join("\n"));
            std::fs::write(files.path().join(name), program.join("\n") + "\n").expect("a program");
            unused.push(name.to_string());
        } else if let Some(name) = line.strip_prefix("```toml ") {
            let description: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            _ = writeln!(out, "{}\n```", description.join("\n"));
            std::fs::write(files.path().join(name), description.join("\n") + "\n").expect("a description");
        } else if line == "```console" {
            let commands = lines.by_ref().take_while(|l| *l != "```").filter_map(|l| l.strip_prefix("$ einloom "));
            for command in commands.collect::<Vec<_>>() {
                unused.retain(|name| !command.contains(name.as_str()));
                _ = writeln!(out, "$ einloom {command}\n{}", output(files.path(), command));
            }
            out += "```\n";
        }
    }
    assert!(unused.is_empty(), "no command uses {unused:?}");
    out
}

/// What a command prints, as a chapter shows it.
fn output(files: &Path, command: &str) -> String {
    let (command, refused) = match command.strip_suffix("  # refused") {
        Some(command) => (command, true),
        None => (command, false),
    };
    let (command, only) = match command.split_once("  # only ") {
        Some((command, only)) => (command, only.split(", ").collect()),
        None => (command, vec![]),
    };
    let mut einloom = Command::new(env!("CARGO_BIN_EXE_einloom"));
    einloom.args(command.split_whitespace()).current_dir(files).env("NO_COLOR", "1");
    let output = einloom.output().expect("the command starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8(output.stderr).expect("text");
    if refused {
        assert_eq!((output.status.code(), text.as_str()), (Some(1), ""), "einloom {command}\n{errors}");
        return errors.trim_end().to_string();
    }
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "einloom {command}\n{text}");
    let part = |name: &str| {
        let begins = |part: &&str| part.strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        assert!(text.split("\n\n").any(|p| begins(&p)), "einloom {command} prints no `{name}`:\n{text}");
    };
    // Alternatives need not exist.
    only.iter().filter(|o| **o != "alternatives").for_each(|o| part(o));
    let mut out: Vec<String> = vec![];
    for part in text.trim_end().split("\n\n") {
        let kept = only.is_empty() || only.iter().any(|o| part.starts_with(o));
        match kept {
            true => out.push(part.lines().filter_map(steady).collect::<Vec<_>>().join("\n")),
            false if out.last().is_some_and(|last| last == "...") => {}
            false => out.push("...".into()),
        }
    }
    out.join("\n\n")
}

/// The line without what rounding on this processor decides; nothing if all of it is that.
fn steady(line: &str) -> Option<String> {
    if line.trim_start().starts_with("of these ") {
        return None;
    }
    let Some((before, after)) = line.split_once("worst relative error ") else { return Some(line.to_string()) };
    let words: Vec<&str> =
        after.split(' ').map(|w| if w.starts_with(|c: char| c.is_ascii_digit()) { "…" } else { w }).collect();
    Some(format!("{before}worst relative error {}", words.join(" ")))
}
