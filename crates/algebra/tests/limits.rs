//! Work that grows with the length of a program alone: what is beyond a limit is refused, and says so. Counted in terms of
//! the derived graph, not in seconds.

use einloom_algebra::{Def, Derivation, Graph, Rule, derive};
use std::fmt::Write;

fn derived(text: &str) -> Derivation {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.has_errors(), "{text}\n{:?}", parsed.diagnostics);
    derive(&parsed.cascade)
}

/// Operations in all definitions.
fn operations(graph: &Graph) -> usize {
    let mut count = 0;
    for node in &graph.nodes {
        let mut term = |t: &einloom_algebra::Term| t.visit(&mut |_| count += 1);
        match &node.def {
            Def::Input => {}
            Def::Map(t) => term(t),
            Def::Reduce(r) => {
                r.filter.iter().chain([&r.body]).for_each(&mut term);
                if let Some(repair) = &r.streaming.repair {
                    term(&repair.factor);
                    repair.plus.iter().for_each(&mut term);
                }
            }
            Def::Iterative { initial, step, .. } => initial.iter().map(|i| &i.1).chain([step]).for_each(&mut term),
        }
    }
    count
}

/// Sums each of which reads the one before twice: written out, the last one is exponential in their number.
fn doubling(statements: usize) -> String {
    let mut text = String::from("input X[n]: f32\noutput Y: f32\nT0 = sum(n) X[n]\n");
    for k in 0..statements {
        _ = writeln!(text, "T{} = sum(n) (T{k} * X[n] + T{k})", k + 1);
    }
    _ = writeln!(text, "Y = T{statements}");
    text
}

/// Reductions each of which needs the one before complete.
fn dependent(statements: usize) -> String {
    let mut text = String::from("input X[m,n]: f32\noutput Y: f32\nA0[m,n] = X[m,n]\n");
    for k in 0..statements {
        _ = writeln!(text, "S{k}[m] = sum(n) exp(A{k}[m,n] * {} - max(n) A{k}[m,n])", k + 1);
        _ = writeln!(text, "A{}[m,n] = A{k}[m,n] / (1 + S{k}[m])", k + 1);
    }
    _ = writeln!(text, "Y[m] = sum(n) A{statements}[m,n]");
    text
}

#[test]
fn definitions_that_double_are_left_as_they_are() {
    let (short, long) = (derived(&doubling(12)), derived(&doubling(48)));
    let (a, b) = (operations(&short.derived), operations(&long.derived));
    assert!(b < 6 * a, "four times the statements, {a} and {b} operations");
    let refused = long.refusals.iter().find(|r| r.rule == Rule::Centre).expect("a limit is a refusal");
    assert!(refused.reason.contains("written out it is more than"), "{}", refused.reason);
    assert!(refused.hint.is_some());
}

#[test]
fn what_is_said_grows_with_the_length_too() {
    let count = |d: &Derivation| (d.steps.len() + d.refusals.len(), operations(&d.derived));
    let ((said, work), (more, larger)) = (count(&derived(&dependent(10))), count(&derived(&dependent(40))));
    assert!(more < 6 * said, "four times the statements, {said} and {more} steps and refusals");
    // Each definition is put in place of reads as far as the limit of one term goes, and no further.
    assert!(larger < 40 * work, "four times the statements, {work} and {larger} operations");
}
