//! Passes of published cascades and of the library, per input that is read in more than one pass as written:
//! `tensor rank written->derived`.
#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

use einloom_algebra::derive;
use std::fmt::Write;

fn check(file: &str, expected: &str) {
    let path = format!("{}/../../cascades/{file}.ein", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let parsed = einloom_cascade::parse(&text);
    assert!(parsed.diagnostics.is_empty(), "{file}: {:?}", parsed.diagnostics);
    let d = derive(&parsed.cascade);
    let mut got = String::new();
    for rank in &d.passes.ranks {
        for t in rank.tensors.iter().filter(|t| t.written > 1) {
            _ = write!(got, "{} {} {}->{}; ", t.tensor, rank.rank, t.written, t.derived);
        }
        assert_eq!(rank.written, rank.tensors.iter().map(|t| t.written).max().unwrap_or(0));
    }
    let got = if got.is_empty() { "one pass".to_string() } else { got.trim_end_matches("; ").to_string() };
    assert_eq!(got, expected, "{file}");
}

/// FuseMax, cascades 1-5 and the forms between them (`reference`: MICRO 2024, section III and table I).
#[test]
fn published() {
    check("published/c1", "A K 2->1");
    check("published/c2", "one pass");
    check("published/c3", "one pass");
    check("published/naive", "K M 2->1");
    check("published/naive_deferred", "one pass");
    check("published/c4_stable", "K M 3->1");
    check("published/c4_stable_deferred", "K M 2->1");
    check("published/two_pass", "K M 2->1");
    check("published/two_pass_deferred", "one pass");
    check("published/c5", "one pass");
}

#[test]
fn attention_and_its_variants() {
    for file in
        ["", "_causal", "_causal_where", "_gqa", "_mqa", "_cross", "_window", "_alibi", "_softcap", "_sink", "_decode"]
    {
        check(&format!("attention{file}"), "K N 3->1");
    }
    check("attention_naive", "K N 2->1");
    check("attention_bias", "K N 3->1; bias N 3->1");
    check("attention_document", "K N 3->1; dock N 3->1");
    check("attention_qk_rmsnorm", "Q D 2->1; K D 2->1; K N 3->1");
    check("attention_l2", "K N 2->1");
    check("attention_sigmoid", "one pass");
    // The latent is reduced over C for the scores and read again over C as values.
    check("attention_latent", "L C 2->2; L N 3->1");
    check("knn_logsumexp", "Y N 2->1");
}

#[test]
fn rows_and_products() {
    // The normalised row is itself the output: each element waits for the whole row.
    check("softmax", "X N 3->2");
    check("rmsnorm", "X D 2->2");
    check("logsumexp", "X N 2->1");
    check("cross_entropy", "X V 3->1");
    check("argmax", "one pass");
    check("matmul", "one pass");
    check("matmul_epilogue", "one pass");
    check("swiglu", "one pass");
    check("rmsnorm_matmul", "X D 2->1");
    check("conv1d", "one pass");
    // Rounding to i8 waits for the row's scale.
    check("absmax_quantised_matmul", "X K 2->2");
}

/// Statistics that depend on one another: moments about a running mean.
#[test]
fn statistics() {
    check("variance", "X N 2->1");
    check("covariance", "X N 2->1");
    check("correlation", "X N 3->1; Y N 3->1");
    check("skewness", "X N 3->1");
    check("batch_statistics", "X B 2->1; X H 2->1; X W 2->1");
    check("logsumexp_weighted_variance", "S N 4->1; X N 2->1");
    // One pass for the statistics, one for the row itself.
    check("layernorm", "X D 3->2");
    check("layernorm_matmul", "X D 3->1");
}

#[test]
fn sequences() {
    check("cumulative_softmax", "X N 3->1");
    check("linear_attention", "K N 2->1");
    check("retention", "one pass");
    check("rwkv", "one pass");
    check("attention_twice", "K1 N 3->1; K2 L 3->1");
    check("mixture_of_experts", "G E 3->1; W E 2->1");
    check("shortest_paths", "one pass");
    // Keys are normalised before the recurrence, whose steps are taken one by one.
    check("delta_rule", "K D 2->2");
    for file in ["mamba2", "gated_linear_attention", "lstm", "viterbi", "exponential_moving_average"] {
        check(file, "one pass");
    }
}

#[test]
fn what_leaves_a_sum_leaves_the_sum_around_it() {
    // The square of a sum, written as a sum of sums: no more passes than as written.
    let text = "input A[m,n]: f32\noutput O: f32\nindex n, k in N\nO[m] = sum(n) (sum(k) A[m,n] * A[m,k])\n";
    let parsed = einloom_cascade::parse(text);
    assert!(parsed.diagnostics.iter().all(|d| !d.is_error()), "{:?}", parsed.diagnostics);
    let d = derive(&parsed.cascade);
    assert!(d.passes.ranks.iter().all(|r| r.tensors.iter().all(|t| t.derived == 1)), "{:?}", d.passes);
}
