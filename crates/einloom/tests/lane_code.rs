//! What the model counts of f32 products that lanes multiply is in their machine code: the instructions beside reads and
//! multiply-adds, by how factors lie, and those of copies. Skipped, with the reason, where NVRTC or a disassembler is missing.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // What is skipped is said.

use einloom::gpu::{Toolchain, source};
use einloom::{PlanOptions, Program, machines};
use einloom_cascade::Given;
use einloom_cuda::Target;
use std::collections::BTreeMap;

/// A loop's instructions, by name. Reads of 16 bytes are apart from others.
type Loop = BTreeMap<String, usize>;

/// The loops without loops in them.
fn innermost(sass: &str) -> Vec<Loop> {
    let (mut labels, mut all): (BTreeMap<&str, usize>, Vec<&str>) = (BTreeMap::new(), vec![]);
    let mut loops: Vec<(usize, usize)> = vec![];
    for line in sass.lines() {
        if let Some(label) = line.strip_suffix(':').filter(|l| l.starts_with(".L_x_")) {
            labels.insert(label, all.len());
        } else if let Some((_, text)) = line.trim().strip_prefix("/*").and_then(|l| l.split_once("*/"))
            && let Some((text, _)) = text.split_once(';')
        {
            all.push(text.trim());
            let target = text.split_once("`(").and_then(|(_, t)| t.split_once(')')).map(|t| t.0);
            // Back to a place that has come, at least one instruction ago.
            if let Some(&start) = target.filter(|_| text.contains("BRA")).and_then(|t| labels.get(t))
                && start + 1 < all.len()
            {
                loops.push((start, all.len()));
            }
        }
    }
    let inner = |l: &&(usize, usize)| !loops.iter().any(|o| o != *l && l.0 <= o.0 && o.1 <= l.1);
    let count = |&(start, end): &(usize, usize)| {
        let mut found = Loop::new();
        for text in &all[start..end] {
            let name = text.split_whitespace().find(|w| !w.starts_with('@')).unwrap_or_default();
            let name = if name.starts_with("LDS.128") { "LDS.128" } else { name.split('.').next().unwrap_or_default() };
            *found.entry(name.to_string()).or_default() += 1;
        }
        found
    };
    loops.iter().filter(inner).map(count).collect()
}

fn of(found: &Loop, name: &str) -> usize {
    found.get(name).copied().unwrap_or(0)
}

/// All but the named ones.
fn beside(found: &Loop, named: &[&str]) -> usize {
    found.iter().filter(|f| !named.contains(&f.0.as_str())).map(|f| f.1).sum()
}

/// The innermost loops of a product of factors that lie as `a` and `b` say.
fn product(toolchain: &Toolchain, [a, b]: [&str; 2], size: [usize; 3], tile: [usize; 3]) -> Result<Vec<Loop>, String> {
    let text = format!("input A[{a}]: f32, B[{b}]: f32\noutput C: f32\nC[m,n] = sum(k) A[{a}] * B[{b}]\n");
    let named = |names: [&str; 3], x: [usize; 3]| names.map(str::to_string).into_iter().zip(x).collect();
    let given = Given { sizes: named(["M", "N", "K"], size), ..Given::default() };
    let options = PlanOptions { tiles: named(["m", "n", "k"], tile), ..PlanOptions::default() };
    let machine = machines::find("h200").expect("built in");
    let planned = Program::from_text(&text)
        .check()
        .expect("well-formed")
        .derive()
        .plan(&given, &machine, &options)
        .expect("plans");
    let source = source(&planned, &Target::SM_90A).expect("emits");
    toolchain.sass(&source).map(|text| innermost(&text)).map_err(|e| e.to_string())
}

#[test]
fn instructions_beside_multiply_adds_are_those_that_the_model_counts() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    // Of eight terms of 8 by 16 elements: single reads, wide reads, others at least and at most.
    let orders = [
        (["m,k", "k,n"], [0, 48], 8..=16),
        (["m,k", "n,k"], [0, 48], 135..=175),
        (["k,m", "k,n"], [64, 32], 130..=175),
        (["k,m", "n,k"], [64, 32], 270..=330),
    ];
    for (order, [single, wide], others) in orders {
        let loops = match product(&toolchain, order, [4096; 3], [128, 256, 64]) {
            Ok(loops) => loops,
            Err(e) if e.contains("disassembler") => return eprintln!("not checked: {e}"),
            Err(e) => panic!("{order:?}: {e}"),
        };
        let terms = loops.iter().max_by_key(|l| of(l, "FFMA")).expect("a loop");
        assert_eq!([of(terms, "FFMA"), of(terms, "LDS"), of(terms, "LDS.128")], [1024, single, wide], "{order:?}");
        let found = beside(terms, &["FFMA", "LDS", "LDS.128"]);
        assert!(others.contains(&found), "{order:?}: {found} instructions beside");
    }
}

#[test]
fn narrow_copies_take_the_instructions_that_the_model_counts() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    let loops = match product(&toolchain, ["m,k", "k,n"], [1000, 1003, 1001], [64, 128, 128]) {
        Ok(loops) => loops,
        Err(e) if e.contains("disassembler") => return eprintln!("not checked: {e}"),
        Err(e) => panic!("{e}"),
    };
    // Columns of a row that begins anywhere are read one by one.
    let terms = loops.iter().max_by_key(|l| of(l, "FFMA")).expect("a loop");
    assert_eq!([of(terms, "FFMA"), of(terms, "LDS"), of(terms, "LDS.128")], [512, 64, 16]);
    // The copies in the stream: the last two loops that copy.
    let copies: Vec<&Loop> = loops.iter().filter(|l| of(l, "LDGSTS") > 0).collect();
    let [.., a, b] = copies[..] else { panic!("{} loops copy", copies.len()) };
    for found in [a, b] {
        let each = beside(found, &[]) as f64 / of(found, "LDGSTS") as f64;
        assert!((10.0..13.0).contains(&each), "{each} instructions a copy: {found:?}");
    }
}
