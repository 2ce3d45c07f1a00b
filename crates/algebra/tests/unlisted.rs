//! Programs that are in no list, as a stranger would bring them: other normalisers, statistics, semirings, masks and
//! recurrences, and some that only look separable. `unlisted.txt` has each with its passes, the rules that fired, the
//! other forms and what is refused. Every form agrees with the meaning however it is cut, and is proved over finite fields,
//! or in the regions of random real points, unless the file says that it is not. `EINLOOM_BLESS=1` accepts what changed.
#![allow(clippy::disallowed_methods)] // The cases are read from a file.

use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Derivation, Graph, derive};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, Given, bind};
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/unlisted.txt");
const CUTS: [Cut; 5] = [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2), Cut::Parts(1), Cut::Parts(2)];

/// Every rank of the given size.
fn sized(cascade: &Cascade, size: usize) -> Bound {
    let mut given = Given::default();
    given.sizes.extend(cascade.ranks.iter().filter(|r| r.default.is_none()).map(|r| (r.name.clone(), size)));
    given.params.extend(cascade.params.iter().filter(|p| p.default.is_none()).map(|p| (p.name.clone(), 0.75)));
    bind(cascade, &given).unwrap_or_else(|e| panic!("{e:?}"))
}

fn inputs(cascade: &Cascade, bound: &Bound, scale: f64) -> Arrays {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        scale * ((state >> 40) as f64 / (1u64 << 23) as f64 - 1.0)
    };
    // A gather needs positions that exist.
    let positions = bound.sizes().iter().all(|&s| s > 1);
    let array = |t| {
        let shape = bound.shape(cascade, t);
        let integer = cascade[t].dtype.is_some_and(|d| d.is_integer());
        let values =
            (0..shape.iter().product()).map(|_| if integer { f64::from(next() > 0.0 && positions) } else { next() });
        (cascade[t].name.clone(), Array { values: values.collect(), shape })
    };
    cascade.inputs().map(array).collect()
}

fn agrees(graph: &Graph, cascade: &Cascade, bound: &Bound, scale: f64, cut: Cut) -> Result<(), String> {
    let arrays = inputs(cascade, bound, scale);
    let expected = meaning::evaluate(cascade, bound, &arrays).expect("a meaning");
    let Some(found) = evaluate(graph, bound, &arrays, cut) else { return Err("reads outside".into()) };
    for (name, e) in &expected {
        let scale = e.values.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
        for (k, (&a, &b)) in e.values.iter().zip(&found[name].values).enumerate() {
            if a.is_finite() && (a - b).abs() > 1e-9 * scale || a.is_finite() != b.is_finite() && !a.is_infinite() {
                return Err(format!("{name}[{k}] should be {a}, is {b}"));
            }
        }
    }
    Ok(())
}

/// What a derivation says, in short.
fn told(d: &Derivation, bound: &Bound) -> String {
    let mut out = String::new();
    for rank in &d.passes.ranks {
        for t in &rank.tensors {
            _ = writeln!(out, "{} over {}: {} -> {}", t.tensor, rank.rank, t.written, t.derived);
        }
    }
    let steps: Vec<String> = d.steps.iter().map(|s| format!("{} {}", s.rule.name(), s.node)).collect();
    if !steps.is_empty() {
        _ = writeln!(out, "{}", steps.join(", "));
    }
    for r in &d.refusals {
        _ = writeln!(out, "refused {} {}: {}", r.rule.name(), r.node, r.reason);
        _ = r.hint.iter().try_for_each(|hint| writeln!(out, "    {hint}"));
    }
    d.alternatives.iter().for_each(|a| _ = writeln!(out, "or {}", a.name));
    for (name, form) in forms(d) {
        _ = match certify(&form, bound, 2) {
            Certificate::NotCertified { .. } => writeln!(out, "not certified {name}"),
            Certificate::InRegions { .. } => writeln!(out, "certified in regions {name}"),
            Certificate::NotEvaluated => writeln!(out, "no value to certify {name}"),
            Certificate::Certified { .. } => Ok(()),
        };
    }
    out
}

fn forms(d: &Derivation) -> Vec<(String, Derivation)> {
    let others = d.alternatives.iter().enumerate().filter_map(|(k, a)| Some((a.name.clone(), d.of_alternative(k)?)));
    std::iter::once(("as derived".to_string(), d.clone())).chain(others).collect()
}

#[test]
fn programs_in_no_list() {
    let cases = std::fs::read_to_string(PATH).expect("cases");
    let (mut found, mut failures, mut wrong, mut count) = (String::new(), String::new(), String::new(), 0);
    for case in cases.split("\n====\n").map(str::trim).filter(|c| !c.is_empty()) {
        let (text, expected) = case.split_once("\n----").unwrap_or((case, ""));
        let parsed = einloom_cascade::parse(text);
        assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
        let cascade = parsed.cascade;
        let d = derive(&cascade);
        for (name, form) in forms(&d) {
            for (size, scale) in [(1, 1.0), (3, 1.0), (4, 8.0)] {
                for cut in CUTS {
                    let bound = sized(&cascade, size);
                    if let Err(why) = agrees(&form.derived, &cascade, &bound, scale, cut) {
                        _ = writeln!(wrong, "{text}\n{name}, size {size}, scale {scale}, {cut:?}: {why}\n");
                    }
                }
            }
        }
        // Whatever is read again, it is said why.
        for rank in d.passes.ranks.iter().filter(|r| r.derived > 1) {
            assert!(
                d.refusals.iter().any(|r| r.ranks.contains(&rank.rank)),
                "{text}\nnothing is said of {}",
                rank.rank
            );
        }
        let said = told(&d, &sized(&cascade, 4));
        _ = write!(found, "{}\n----\n{}\n====\n", text.trim(), said.trim_end());
        if said.trim() != expected.trim() {
            _ = writeln!(failures, "{text}\n  expected\n{expected}\n  found\n{said}");
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 40, "only {count} cases");
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(PATH, found).expect("written");
        return;
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The maximum that a text takes is the anchor, in whatever words: no second one runs beside it.
#[test]
fn the_maximum_of_the_text_is_the_only_one() {
    for scores in ["where(n <= m, X[m,n] + c[m], -inf)", "X[m,n] / exp(c[m])", "exp(-c[m]) * (X[m,n] * 3)"] {
        let text = format!(
            "input X[m,n]: f64, c[m]: f64, V[n]: f64\noutput O: f64\nS[m,n] = {scores}\n\
             P[m,n] = exp(S[m,n] - max(n) S[m,n])\nO[m] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n]\n"
        );
        let derived = derive(&einloom_cascade::parse(&text).cascade).derived;
        let maxima = derived
            .nodes
            .iter()
            .filter(|n| matches!(&n.def, einloom_algebra::Def::Reduce(r) if r.monoid == einloom_cascade::Monoid::Max));
        assert_eq!(maxima.count(), 1, "{scores}");
    }
}

/// What only adds stays as precise as it is written, also where moments about means would cancel nearly all of it.
#[test]
fn products_of_sums_that_only_add_do_not_cancel() {
    let text = "input X[n]: f64, Y[n]: f64\noutput A: f64\ns = 1e-12 * max(n) X[n]\nt = 1e-12 * max(n) Y[n]\n\
                A = sum(n) (abs(X[n]) + abs(s)) * (abs(Y[n]) + abs(t))\n";
    let cascade = einloom_cascade::parse(text).cascade;
    let (d, bound) = (derive(&cascade), sized(&cascade, 4));
    assert_eq!(d.passes.ranks[0].tensors.iter().map(|t| t.derived).collect::<Vec<_>>(), [1, 1]);
    let apart = |k: usize| Array { values: (0..4).map(|n| f64::from(n == k)).collect(), shape: vec![4] };
    let arrays: Arrays = [("X".to_string(), apart(0)), ("Y".to_string(), apart(3))].into();
    for cut in CUTS {
        let found = evaluate(&d.derived, &bound, &arrays, cut).expect("a value")["A"].values[0];
        assert!((found / (2e-12 + 4e-24) - 1.0).abs() < 1e-14, "{cut:?}: {found}");
    }
}

/// What is subtracted in an exponent stays with what it is subtracted from, also where a chunk sums over an index that only the one of them has.
#[test]
fn softmaxes_of_large_keys_are_finite_in_chunks() {
    let text = "input Q[m,r]: f64, K[n,r]: f64, V[n,e]: f64\noutput O: f64\nindex n in M\n\
                k[n,r] = softmax(r) K[n,r]\nO[m,e] = sum(n: n <= m) (sum(r) Q[m,r] * k[n,r]) * V[n,e]\n";
    let cascade = einloom_cascade::parse(text).cascade;
    let d = derive(&cascade);
    assert!(d.alternatives.iter().any(|a| a.name.ends_with("by chunks")), "{:?}", d.refusals);
    for (name, form) in forms(&d) {
        for size in [1, 4] {
            for cut in CUTS {
                let bound = sized(&cascade, size);
                agrees(&form.derived, &cascade, &bound, 1e4, cut).unwrap_or_else(|why| panic!("{name}: {why}"));
            }
        }
    }
}
