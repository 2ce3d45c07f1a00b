//! Any text gets an answer, soon, and work that grows with its length.

use einloom_fuzz::text::{Campaign, Depth, PATTERNS, attempt, corpus, growth};
use std::path::Path;

fn machine() -> einloom_machine::Machine {
    einloom_machine::built_in("cpu-generic").expect("built in")
}

#[test]
fn random_text_is_answered() {
    let corpus = corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades")).expect("the programs");
    assert!(corpus.len() >= 40);
    // Time is not tested here: whatever else this machine does would be a finding.
    let campaign = Campaign { count: 6000, seed: 0, jobs: 2, corpus: &corpus, derive_share: 8, slow: f64::INFINITY };
    let tally = campaign.run(&machine(), &[], &|_| {});
    let told: Vec<String> = tally.findings.iter().map(|f| format!("seed {}: {}\n{}", f.seed, f.what, f.text)).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    assert!(tally.texts == 6000 && tally.checks > 300 && tally.derived > 30 && tally.diagnostics > 10_000, "{tally}");
}

#[test]
fn the_time_to_parse_grows_with_the_length_alone() {
    for pattern in PATTERNS {
        // From 8 to 128 KiB: a quadratic step would make it 256 times the time, and a linear one 16 times. What lies
        // between is left to whatever else this machine does.
        let (seconds, exponent) = growth(&pattern, &[8 << 10, 128 << 10]);
        assert!(exponent < 1.75, "{}: length^{exponent:.2}, {seconds:?} s", pattern.name);
    }
}

#[test]
fn a_layer_of_a_transformer_is_derived_and_planned() {
    let text = include_str!("../../../cascades/transformer_layer.ein");
    let done = attempt(text, Depth::Plan, &machine());
    assert!(done.checks && done.wrong.is_none() && done.plan.is_some_and(|p| p.1), "{done:?}");
    assert_eq!(einloom_cascade::parse(text).cascade.statements.len(), 30);
}
