//! Nested reductions: `distribute.txt` has programs, the forms found for them and what is refused. Every form agrees with
//! the meaning and those of sums are proved exactly; products of random factors too. `EINLOOM_BLESS=1` accepts what changed.
#![allow(clippy::disallowed_methods)] // The cases are read from a file.

use einloom_algebra::exact::certify;
use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Derivation, Graph, Rule, derive, show};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, Given, bind};
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/distribute.txt");
const CUTS: [Cut; 3] = [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2)];

fn parsed(text: &str) -> Cascade {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
    parsed.cascade
}

/// Sizes that differ from rank to rank, from `least` on.
fn sized(cascade: &Cascade, least: usize) -> Bound {
    let mut given = Given::default();
    for (k, rank) in cascade.ranks.iter().filter(|r| r.default.is_none()).enumerate() {
        given.sizes.insert(rank.name.clone(), least + k % 3);
    }
    bind(cascade, &given).unwrap_or_else(|e| panic!("{e:?}"))
}

fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(2) + 7;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }
}

fn agrees(graph: &Graph, cascade: &Cascade, bound: &Bound, cut: Cut) -> bool {
    let mut next = random(3);
    let array = |t| {
        let shape = bound.shape(cascade, t);
        let integer = cascade[t].dtype.is_some_and(|d| d.is_integer());
        let values = (0..shape.iter().product()).map(|_| if integer { (next() > 0.0) as u8 as f64 } else { next() });
        (cascade[t].name.clone(), Array { values: values.collect(), shape })
    };
    let arrays: Arrays = cascade.inputs().map(array).collect();
    let expected = meaning::evaluate(cascade, bound, &arrays).expect("a meaning");
    let Some(found) = evaluate(graph, bound, &arrays, cut) else { return false };
    // Declared types round: what is compared is f64 where a program says so.
    let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    expected.iter().all(|(name, e)| e.values.iter().zip(&found[name].values).all(|(&a, &b)| close(a, b)))
}

/// The forms of a program and what is refused about them, as text.
fn told(d: &Derivation) -> String {
    let mut out = String::new();
    for r in d.refusals.iter().filter(|r| r.rule == Rule::Distribute) {
        _ = writeln!(out, "{} {}: {}", r.rule.name(), r.node, r.reason);
        _ = r.hint.iter().try_for_each(|hint| writeln!(out, "    {hint}"));
    }
    for a in d.alternatives.iter().filter(|a| a.cost.is_some()) {
        let cost = a.cost.as_ref().expect("is there");
        let cost = cost.display(|r| d.written.cascade[r].name.as_str()).to_string();
        _ = write!(out, "-- {}: {cost}\n{}", a.name, show::graph(&a.derived));
    }
    out
}

fn is_certified(d: &Derivation, k: usize, bound: &Bound) -> bool {
    certify(&d.of_alternative(k).expect("it is there"), bound, 2).is_certified()
}

/// Every form of a program agrees with what is written, over nothing too.
fn all_agree(cascade: &Cascade, d: &Derivation) {
    for (k, a) in d.alternatives.iter().enumerate() {
        for least in [0, 1, 2] {
            let bound = sized(cascade, least);
            for cut in CUTS {
                assert!(
                    agrees(&a.derived, cascade, &bound, cut),
                    "{}, {least}, {cut:?}\n{}",
                    a.name,
                    show::graph(&a.derived)
                );
            }
        }
        assert!(is_certified(d, k, &sized(cascade, 2)), "{}", a.name);
    }
}

#[test]
fn every_form_is_found_and_agrees() {
    let cases = std::fs::read_to_string(PATH).expect("cases");
    let (mut found, mut failures, mut count) = (String::new(), String::new(), 0);
    for case in cases.split("\n====\n").map(str::trim).filter(|c| !c.is_empty()) {
        let (text, expected) = case.split_once("\n----").unwrap_or((case, ""));
        let cascade = parsed(text);
        let d = derive(&cascade);
        let said = told(&d);
        _ = write!(found, "{}\n----\n{}\n====\n", text.trim(), said.trim_end());
        if said.trim() != expected.trim() {
            _ = writeln!(failures, "{text}\n  expected\n{expected}\n  found\n{said}");
        }
        if std::env::var_os("EINLOOM_BLESS").is_none() {
            all_agree(&cascade, &d);
        }
        count += 1;
    }
    assert!(count >= 20, "only {count} cases");
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(PATH, found).expect("written");
        return;
    }
    assert!(failures.is_empty(), "{failures}");
}

/// A program of one reduction of three to five factors over indices of their own.
fn product(seed: u64) -> String {
    let mut next = random(seed);
    let mut below = |n: usize| ((next() + 1.0) / 2.0 * n as f64) as usize % n;
    let names = ["i", "j", "k", "l", "m"];
    let factors: Vec<Vec<&str>> = (0..3 + below(3))
        .map(|_| {
            let (first, count) = (below(5), 1 + below(3));
            (0..count).map(|k| names[(first + k * (1 + seed as usize % 2)) % 5]).collect()
        })
        .collect();
    let mut met: Vec<&str> = names.into_iter().filter(|i| factors.iter().any(|f| f.contains(i))).collect();
    let mut axes: Vec<&str> = vec![];
    for _ in 0..below(3) {
        if met.len() > 2 {
            axes.push(met.remove(below(met.len())));
        }
    }
    let inputs: Vec<String> = factors.iter().enumerate().map(|(k, f)| format!("X{k}[{}]: f64", f.join(","))).collect();
    let reads = factors.iter().enumerate().map(|(k, f)| format!("X{k}[{}]", f.join(",")));
    let (monoid, body) = match below(6) {
        0 => ("max", reads.collect::<Vec<_>>().join(" + ")),
        1 => ("min", reads.collect::<Vec<_>>().join(" - ")),
        2 => ("max", reads.map(|r| format!("abs({r})")).collect::<Vec<_>>().join(" * ")),
        3 => ("min", reads.reduce(|a, b| format!("max({a}, {b})")).unwrap_or_default()),
        _ => (
            "sum",
            reads
                .enumerate()
                .map(|(k, r)| if k == 1 { format!("exp({r})") } else { r })
                .collect::<Vec<_>>()
                .join(" * "),
        ),
    };
    let filter = match below(4) {
        0 => format!(": {} <= {}", met[0], met[met.len() - 1]),
        1 if !axes.is_empty() => format!(": {} != {}", axes[0], met[0]),
        _ => String::new(),
    };
    let target = if axes.is_empty() { "Y".to_string() } else { format!("Y[{}]", axes.join(",")) };
    format!("input {}\noutput Y: f64\n{target} = {monoid}({}{filter}) ({body})", inputs.join(", "), met.join(","))
}

#[test]
fn products_of_random_factors_agree() {
    let mut forms = 0;
    for seed in 0..300 {
        let text = product(seed);
        let cascade = parsed(&text);
        let d = derive(&cascade);
        forms += d.alternatives.iter().filter(|a| a.cost.is_some()).count();
        for (k, a) in d.alternatives.iter().enumerate() {
            for least in [0, 1, 2] {
                let bound = sized(&cascade, least);
                assert!(
                    agrees(&a.derived, &cascade, &bound, CUTS[k % 3]),
                    "{text}\n{}, {least}\n{}",
                    a.name,
                    show::graph(&a.derived)
                );
            }
            assert!(is_certified(&d, k, &sized(&cascade, 2)), "{text}\n{}", a.name);
        }
    }
    assert!(forms > 200, "only {forms} forms");
}
