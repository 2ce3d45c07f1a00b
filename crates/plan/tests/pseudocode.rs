//! What the planner writes for well-known programs, as people see it. `EINLOOM_BLESS=1 cargo test` rewrites the files
//! in `tests/plans`; the difference is what a review reads.

#![allow(clippy::disallowed_methods)] // cascades and expectations are files

mod support;

use einloom_plan::{Fusion, Options};
use std::fmt::Write;
use std::path::Path;
use support::{planned, read, sized};

fn snapshot(name: &str, cascade: &str, sizes: &str, derived: bool, options: &Options) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("../../cascades").join(format!("{cascade}.ein"));
    let cascade = read(&std::fs::read_to_string(&source).expect("a cascade"));
    let plan = planned(&cascade, &sized(&cascade, sizes), derived, options);
    let mut text = format!("# {sizes}\n{}", einloom_tile::print(&plan.program));
    for k in &plan.kernels {
        let _ = writeln!(text, "\n{} computes statements {:?}", k.name, k.statements);
        for note in &k.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    let file = root.join("tests/plans").join(format!("{name}.txt"));
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(&file, &text).expect("a writable folder");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "{} is out of date: EINLOOM_BLESS=1 rewrites it", file.display());
}

fn derived(name: &str, cascade: &str, sizes: &str) {
    snapshot(name, cascade, sizes, true, &Options::default());
}

#[test]
fn attention() {
    derived("attention", "attention", "B=2, H=8, M=4096, N=4096, D=64, E=64");
}

#[test]
fn attention_rounds_when_allowed() {
    let options = Options { narrow_contractions: true, ..Options::default() };
    snapshot("attention_narrow", "attention", "B=2, H=8, M=1024, N=1024, D=128, E=128", true, &options);
}

#[test]
fn attention_as_written() {
    let sizes = "B=2, H=8, M=4096, N=4096, D=64, E=64";
    snapshot("attention_written", "attention", sizes, false, &Options::default());
}

#[test]
fn attention_without_fusion() {
    let options = Options { fuse: Fusion::None, ..Options::default() };
    snapshot("attention_unfused", "attention", "B=2, H=8, M=512, N=512, D=64, E=64", true, &options);
}

#[test]
fn attention_causal() {
    derived("attention_causal", "attention_causal", "B=2, H=8, M=4096, N=4096, D=64, E=64");
}

#[test]
fn attention_gqa() {
    derived("attention_gqa", "attention_gqa", "B=1, G=4, H=8, M=1024, N=1024, D=64, E=64");
}

#[test]
fn attention_document() {
    derived("attention_document", "attention_document", "B=1, H=8, M=1024, N=1024, D=64, E=64");
}

#[test]
fn softmax_of_long_rows() {
    derived("softmax_long", "softmax", "M=1024, N=1000000");
}

#[test]
fn softmax_of_short_rows() {
    derived("softmax_short", "softmax", "M=65536, N=512");
}

#[test]
fn matmul() {
    derived("matmul", "matmul", "M=1024, N=1024, K=1024");
}

#[test]
fn conv1d() {
    derived("conv1d", "conv1d", "B=4, C=64, L=4096, O=128, R=3");
}

#[test]
fn rmsnorm_matmul() {
    derived("rmsnorm_matmul", "rmsnorm_matmul", "M=2048, D=1024, N=1024");
}

#[test]
fn swiglu() {
    derived("swiglu", "swiglu", "M=512, D=1024, F=4096, E=1024");
}

#[test]
fn absmax_quantised_matmul() {
    derived("absmax_quantised_matmul", "absmax_quantised_matmul", "M=512, K=1024, N=1024");
}

#[test]
fn cross_entropy() {
    derived("cross_entropy", "cross_entropy", "T=2048, V=32000");
}

#[test]
fn argmax() {
    derived("argmax", "argmax", "M=2048, N=5000");
}

/// What a condition on both sides chooses is multiplied by 1 where it holds.
#[test]
fn attention_saturated() {
    derived("attention_saturated", "attention_saturated", "H=8, M=1024, N=1024, E=64");
}
