//! What is nearly separable is refused, with the reason and what would make the rule fire: `refusals.txt` has programs
//! and what is said about them.
//! `EINLOOM_BLESS=1` accepts what changed.
#![allow(clippy::disallowed_methods)] // The cases are read from a file.

use einloom_algebra::derive;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refusals.txt");

fn refusals(text: &str) -> String {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
    let d = derive(&parsed.cascade);
    let mut out = String::new();
    for rank in &d.passes.ranks {
        for t in rank.tensors.iter().filter(|t| t.written > 1) {
            _ = writeln!(out, "{} over {}: {} -> {}", t.tensor, rank.rank, t.written, t.derived);
        }
    }
    for r in &d.refusals {
        _ = writeln!(out, "{} {}: {}", r.rule.name(), r.node, r.reason);
        if let Some(hint) = &r.hint {
            _ = writeln!(out, "    {hint}");
        }
    }
    out
}

#[test]
fn what_is_nearly_separable() {
    let cases = std::fs::read_to_string(PATH).expect("cases");
    let mut found = String::new();
    let mut failures = String::new();
    let mut count = 0;
    for case in cases.split("\n====\n").map(str::trim).filter(|c| !c.is_empty()) {
        let (text, expected) = case.split_once("\n----").unwrap_or((case, ""));
        let said = refusals(text);
        _ = write!(found, "{}\n----\n{}\n====\n", text.trim(), said.trim_end());
        if said.trim() != expected.trim() {
            _ = writeln!(failures, "{text}\n  expected\n{expected}\n  found\n{said}");
        }
        count += 1;
    }
    assert!(count >= 10, "only {count} cases");
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(PATH, found).expect("written");
        return;
    }
    assert!(failures.is_empty(), "{failures}");
}
