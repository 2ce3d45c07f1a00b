//! What runs along a prefix, at the numbers that are none or hardly any: ties, infinities, NaNs, large and equal elements, and none at all.

use einloom_algebra::derive;
use einloom_algebra::stream::{Cut, evaluate};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, Given, bind};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Sequences of one length after another.
fn rows() -> Vec<Vec<f64>> {
    vec![
        vec![3.0],
        vec![2.0, 2.0, 1.0, 2.0, 3.0, 3.0, -1.0, -1.0],
        vec![-INF, -INF, -INF],
        vec![-INF, 1.0, -INF, INF, 2.0, INF],
        vec![INF, INF, 0.0, -INF],
        vec![1.0, NAN, 3.0, NAN, 2.0],
        vec![NAN, NAN, 1.0],
        vec![0.0, -0.0, 0.0, -0.0],
        vec![1e200, 1e200, 1e200, 0.0],
        vec![1e6 + 1.0, 1e6 + 2.0, 1e6 + 3.0, 1e6 + 2.0],
        vec![-3.0, 5.0, 5.0, 1.0, 7.0, -2.0, 7.0],
    ]
}

/// Takes a name, what the text means and what a form gives.
type Check<'a> = &'a dyn Fn(&str, &[f64], &[f64]);

/// Calls `f` for every form that carries these.
fn each(text: &str, carried: &[&str], weights: &[f64], f: Check) {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
    let cascade: Cascade = parsed.cascade;
    let d = derive(&cascade);
    let carries = |name: &str| carried.iter().all(|c| name.contains(c));
    assert!(d.alternatives.iter().any(|a| carries(&a.name)), "{text}\n{:?}", d.refusals);
    for x in rows() {
        let given = Given { sizes: [("N".to_string(), x.len())].into(), ..Given::default() };
        let bound: Bound = bind(&cascade, &given).expect("sizes fit");
        let array = |values: Vec<f64>| Array { shape: vec![values.len()], values };
        let w = (0..x.len()).map(|k| weights[k % weights.len()]).collect();
        let inputs: Arrays = [("X".to_string(), array(x.clone())), ("w".to_string(), array(w))].into();
        let expected = meaning::evaluate(&cascade, &bound, &inputs).expect("a meaning");
        for a in d.alternatives.iter().filter(|a| carries(&a.name)) {
            for cut in [Cut::Whole, Cut::Chunks(1), Cut::Chunks(3)] {
                let found = evaluate(&a.derived, &bound, &inputs, cut).expect("reads inside");
                for (name, e) in &expected {
                    let what = format!("{text}\n{}, {cut:?}\n{x:?}\n{:?}\n{:?}", a.name, e.values, found[name].values);
                    f(&what, &e.values, &found[name].values);
                }
            }
        }
    }
}

fn same(what: &str, expected: &[f64], found: &[f64]) {
    for (a, b) in expected.iter().zip(found) {
        assert!(a == b || a.is_nan() && b.is_nan(), "{a}, {b}\n{what}");
    }
}

/// A number is that number wherever no infinity is near.
fn near(what: &str, expected: &[f64], found: &[f64]) {
    for (a, b) in expected.iter().zip(found) {
        let close = (a - b).abs() <= 1e-9 * (1.0 + a.abs());
        assert!(a == b || a.is_nan() || close || what.contains("inf") && b.is_nan(), "{a}, {b}\n{what}");
    }
}

#[test]
fn positions_of_extrema() {
    for monoid in ["argmax", "argmin"] {
        for range in ["n <= m", "n < m", "n + 2 <= m", "n >= m", "n > m", "n <= m and w[n] > 0", "n > m and w[n] > 0"] {
            let text = format!(
                "input X[n]: f64, w[n]: f64\noutput A: f64\nindex m in N\nA[m] = {monoid}(n: {range}) (X[n] + 0 * w[n])"
            );
            each(&text, &[".state"], &[0.0, 1.0, 1.0], &same);
        }
    }
}

#[test]
fn monoids_of_the_program() {
    for range in ["n <= m", "n < m", "n >= m", "n <= m and w[n] > 0"] {
        let text = format!(
            "input X[n]: f64, w[n]: f64\noutput A: f64\nindex m in N\nmonoid larger(x, y) = max(x, y) identity 0\n\
             A[m] = reduce larger(n: {range}) abs(X[n])"
        );
        each(&text.replace("abs(X[n])", "(abs(X[n]) + 0 * w[n])"), &[".state"], &[0.0, 1.0, 1.0], &same);
    }
}

#[test]
fn moments() {
    for (weight, range) in [
        ("1", "n <= m"),
        ("1", "n < m"),
        ("1", "n >= m"),
        ("1", "n <= m and w[n] > 0"),
        ("abs(w[n])", "n <= m"),
        ("0.5^(m - n)", "n <= m"),
        ("abs(w[n]) * 0.5^(m - n)", "n < m"),
    ] {
        for power in 2..=4 {
            let text = format!(
                "input X[n]: f64, w[n]: f64\noutput V: f64, D: f64\nindex m in N\nW[m] = sum(n: {range}) {weight}\n\
                 mu[m] = (sum(n: {range}) {weight} * X[n]) / W[m]\n\
                 V[m] = (sum(n: {range}) {weight} * (X[n] - mu[m])^{power}) / W[m]\n\
                 D[m] = sum(n: {range}) {weight} * (X[n] - w[m])^{power}"
            );
            let names = if range == "n >= m" {
                ["V.sum.reversed.moment", "D.reversed.moment"]
            } else {
                ["V.sum.moment", "D.moment"]
            };
            each(&text, &names, &[0.0, 1.0, 2.0], &near);
        }
    }
}

#[test]
fn cumulative_sums_under_extrema() {
    for monoid in ["max", "min"] {
        for body in ["C[n] * abs(w[m])", "C[n] * abs(w[m]) + w[m]", "(C[n] + X[n]) * exp(w[m])", "C[n] + w[m]"] {
            for range in ["n <= m", "n < m"] {
                let text = format!(
                    "input X[n]: f64, w[n]: f64\noutput A: f64\nindex m in N\nC[m] = sum(n: n <= m) X[n]\n\
                     A[m] = {monoid}(n: {range}) {body}"
                );
                each(&text, &[".state"], &[0.0, 1.0, 2.0, -0.5], &near);
            }
        }
    }
}
