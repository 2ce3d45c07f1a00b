//! Sums in another order, recurrences from causal sums, and chunked scans: `alternatives.txt` has programs, the forms
//! found for them and what is refused. Every form is proved exactly and agrees with the meaning, and planted mistakes are
//! seen by both proofs. `EINLOOM_BLESS=1` accepts what changed.
#![allow(clippy::disallowed_methods)] // The cases are read from a file.

use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Def, Derivation, Graph, Rule, Term, derive, show};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{BinaryOp, Bound, Cascade, Given, Monoid, UnaryOp, bind};
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alternatives.txt");
const CUTS: [Cut; 4] = [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2), Cut::Chunks(3)];

fn parsed(text: &str) -> Cascade {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
    parsed.cascade
}

/// Every rank of the given size, and ranks named N one larger.
fn sized(cascade: &Cascade, size: usize) -> Bound {
    let mut given = Given::default();
    for rank in cascade.ranks.iter().filter(|r| r.default.is_none()) {
        given.sizes.insert(rank.name.clone(), size + usize::from(rank.name == "N"));
    }
    bind(cascade, &given).unwrap_or_else(|e| panic!("{e:?}"))
}

fn inputs(cascade: &Cascade, bound: &Bound) -> Arrays {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let array = |t| {
        let shape = bound.shape(cascade, t);
        let integer = cascade[t].dtype.is_some_and(|d| d.is_integer());
        let values = (0..shape.iter().product()).map(|_| if integer { (next() > 0.0) as u8 as f64 } else { next() });
        (cascade[t].name.clone(), Array { values: values.collect(), shape })
    };
    cascade.inputs().map(array).collect()
}

fn agrees(graph: &Graph, cascade: &Cascade, bound: &Bound, cut: Cut) -> bool {
    let arrays = inputs(cascade, bound);
    let expected = meaning::evaluate(cascade, bound, &arrays).expect("a meaning");
    let Some(found) = evaluate(graph, bound, &arrays, cut) else { return false };
    let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * (1.0 + a.abs());
    expected.iter().all(|(name, e)| e.values.iter().zip(&found[name].values).all(|(&a, &b)| close(a, b)))
}

/// The forms of a program and what is refused about them, as text.
fn told(d: &Derivation) -> String {
    let mut out = String::new();
    let about = |r: &Rule| matches!(r, Rule::Reassociate | Rule::Prefix | Rule::Scan);
    for r in d.refusals.iter().filter(|r| about(&r.rule)) {
        _ = writeln!(out, "{} {}: {}", r.rule.name(), r.node, r.reason);
        _ = r.hint.iter().try_for_each(|hint| writeln!(out, "    {hint}"));
    }
    for a in &d.alternatives {
        _ = write!(out, "-- {}\n{}", a.name, show::graph(&a.derived));
        for r in a.refusals.iter().filter(|r| about(&r.rule)) {
            _ = writeln!(out, "{} {}: {}", r.rule.name(), r.node, r.reason);
        }
    }
    out
}

#[test]
fn every_form_is_found_proved_and_agrees() {
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
        for (k, a) in d.alternatives.iter().enumerate() {
            for size in [1, 3, 4] {
                let bound = sized(&cascade, size);
                for cut in CUTS {
                    assert!(agrees(&a.derived, &cascade, &bound, cut), "{text}\n{}, {size}, {cut:?}", a.name);
                }
            }
            let one = d.of_alternative(k).expect("it is there");
            let certificate = certify(&one, &sized(&cascade, 4), 2);
            assert!(certificate.is_certified(), "{text}\n{}: {certificate:?}", a.name);
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

const RETENTION: &str = "input Q[m,d]: f64, K[n,d]: f64, V[n,e]: f64, decay: f64\noutput O: f64\n\
    S[m,n] = sum(d) Q[m,d] * K[n,d]\nO[m,e] = sum(n: n <= m) S[m,n] * exp(-abs(decay) * (m - n)) * V[n,e]";
const GATED: &str = "input X[t,p]: f64, a[t]: f64, B[t,n]: f64, C[t,n]: f64\noutput Y: f64\n\
    H[0,p,n] = 0\nH[t+1,p,n] = exp(-abs(a[t])) * H[t,p,n] + B[t,n] * X[t,p]\nY[t,p] = sum(n) C[t,n] * H[t+1,p,n]";

/// Applies `mistake` to every subterm of every definition, and says whether it changed something.
fn plant(graph: &mut Graph, mistake: &dyn Fn(&Graph, &Term) -> Option<Term>) -> bool {
    fn go(t: &Term, mistake: &dyn Fn(&Term) -> Option<Term>) -> Term {
        mistake(t).unwrap_or_else(|| t.map_children(&mut |c| go(c, mistake)))
    }
    let before = graph.clone();
    let rewrite = |t: &mut Term| *t = go(t, &|t| mistake(&before, t));
    for node in &mut graph.nodes {
        match &mut node.def {
            Def::Input => {}
            Def::Map(t) | Def::Iterative { step: t, .. } => rewrite(t),
            Def::Reduce(r) => {
                rewrite(&mut r.body);
                r.filter.iter_mut().for_each(rewrite);
            }
        }
    }
    *graph != before
}

/// Both proofs see the mistake in some form of the program.
fn is_seen(text: &str, mistake: &dyn Fn(&Graph, &Term) -> Option<Term>) {
    let cascade = parsed(text);
    let d = derive(&cascade);
    let bound = sized(&cascade, 5); // three chunks of two
    let mut planted = 0;
    for k in 0..d.alternatives.len() {
        let mut one = d.of_alternative(k).expect("it is there");
        if !plant(&mut one.derived, mistake) {
            continue;
        }
        planted += 1;
        let certificate = certify(&one, &bound, 1);
        assert!(
            matches!(certificate, Certificate::NotCertified { .. }),
            "{certificate:?}\n{}",
            show::graph(&one.derived)
        );
        let all = CUTS.iter().all(|&cut| agrees(&one.derived, &cascade, &bound, cut));
        assert!(!all, "agrees all the same\n{}", show::graph(&one.derived));
    }
    assert!(planted > 0, "nothing to mistake in {text}");
}

#[test]
fn planted_mistakes_are_seen() {
    let is = |t: &Term, op: BinaryOp| matches!(t, Term::Binary(o, ..) if *o == op);
    // The decay is forgotten.
    is_seen(RETENTION, &|_, t| matches!(t, Term::Unary(UnaryOp::Exp, _)).then_some(Term::Number(1.0)));
    is_seen(GATED, &|_, t| matches!(t, Term::Unary(UnaryOp::Exp, _)).then_some(Term::Number(1.0)));
    // It is off by one: a stretch of one position more.
    is_seen(RETENTION, &|_, t| match t {
        Term::Binary(BinaryOp::Sub, a, b) if matches!(**a, Term::Position(_)) => {
            let more = Term::Binary(BinaryOp::Sub, a.clone(), b.clone());
            Some(Term::Binary(BinaryOp::Add, Box::new(more), Box::new(Term::Number(1.0))))
        }
        _ => None,
    });
    // n < m for n <= m: the diagonal is missing, or the decay of the last step.
    for text in [RETENTION, GATED] {
        is_seen(text, &|_, t| match t {
            Term::Binary(BinaryOp::Le, a, b) => Some(Term::Binary(BinaryOp::Lt, a.clone(), b.clone())),
            _ => None,
        });
    }
    // The slice before is read for the slice after.
    is_seen(RETENTION, &|g, t| match t {
        Term::Read(n, at) => {
            let Def::Iterative { dim, .. } = &g[*n].def else { return None };
            let mut at = at.clone();
            at[*dim].offset = Default::default();
            Some(Term::Read(*n, at))
        }
        _ => None,
    });
    // What the chunk adds is left out of its reads.
    is_seen(GATED, &|g, t| match t {
        Term::Read(n, _) if g[*n].name.contains("since") => Some(Term::Number(0.0)),
        _ => None,
    });
    // What a chunk starts with is not decayed to its end.
    is_seen(GATED, &|g, t| match t {
        Term::Binary(BinaryOp::Mul, a, b) if is(t, BinaryOp::Mul) => (matches!(**b, Term::Old(..))
            && a.any_read(&|n| matches!(&g[n].def, Def::Reduce(r) if r.monoid == Monoid::Sum)))
        .then(|| (**b).clone()),
        _ => None,
    });
}

#[test]
fn an_extremum_may_decay_by_an_addend_a_step() {
    for condition in ["k <= n", "k < n", "k >= n"] {
        let text = format!(
            "index n, k in N\ninput X[n]: f64\noutput C: f64\nparam c = 0.5\nC[n] = max(k: {condition}) (X[k] - c * abs(n - k))"
        );
        let refused = parsed(&text);
        assert!(derive(&refused).alternatives.is_empty(), "a distance is no sum of a part of each");
        let distance = if condition == "k >= n" { "(k - n)" } else { "(n - k)" };
        let cascade = parsed(&text.replace("abs(n - k)", distance));
        let d = derive(&cascade);
        assert_eq!(d.alternatives.len(), 2, "step by step and by chunks, {condition}: {:?}", d.refusals);
        for size in [1, 3, 7] {
            let bound = sized(&cascade, size);
            for (k, form) in d.alternatives.iter().enumerate() {
                for cut in CUTS {
                    let at = format!("{}, {condition}, {size}, {cut:?}", form.name);
                    assert!(agrees(&form.derived, &cascade, &bound, cut), "{at}");
                }
                let proof = certify(&d.of_alternative(k).expect("one"), &bound, 2);
                assert!(proof.is_certified(), "{}, {condition}, {size}", form.name);
            }
        }
    }
}
