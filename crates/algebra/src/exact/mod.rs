//! The exact proof: written and derived graph are evaluated at random points of finite fields and must agree.
//!
//! A value is seen in a tower of fields at once, and `exp` is a random homomorphism from the sums of each field to the
//! products of the next, so every identity that follows from `exp(a + b) = exp(a)·exp(b)` and the field axioms holds, in
//! exponents of exponents too. One that does not fails at a random point, except with the probability that Schwartz
//! and Zippel's lemma gives for its degree; exponentials and functions of different arguments count as independent
//! random values there. `sqrt` and `abs` are random functions that are multiplicative, `sqrt` odd and `abs` even; a power whose
//! exponent is no known integer is multiplicative too, and turns sums of exponents into products. A maximum
//! is a random function of the *set* of elements it is taken over, so an anchor's running values are free values; one of two values is that
//! of their sets together. Where a derived form asks which elements attain an extremum, or the text for positions, an extremum is one of its elements
//! instead, the last in a random order of values; there two sets may have one in common, which bounds the error much less. A user's monoid
//! is a random function of the set too, and what its text says where a derived form takes it step by step. `log` is the
//! inverse of `exp` where that made a value, or a product with it, and a random function of any other. Every other
//! function is a random function: equal arguments, equal values. An identity that needs more than this
//! (`log(x·y) = log(x) + log(y)` of sums, `sqrt(x)·sqrt(x) = x`, the order of reals) is therefore *not certified*, which is not
//! the same as wrong. What depends on signs (that both roots exist where `sqrt(x·y) = sqrt(x)·sqrt(y)` is used, that a
//! factor may leave a maximum) is the rules' condition and the numeric proof's to see.

mod field;
mod fields;
mod value;

use crate::stream::{Cut, evaluate_in};
use crate::{Def, Derivation, Graph, NodeId};
use einloom_cascade::{Bound, Monoid};
use fields::Fields;
use value::{Special, Value};

/// What exact identity testing found.
#[derive(Clone, Debug, PartialEq)]
pub enum Certificate {
    /// Agreed at every point.
    Certified {
        /// Random points tried, each with several cuts.
        points: usize,
        /// The probability that a wrong identity passed is below `2^-bits`.
        bits: u32,
    },
    /// Did not agree; the identity needs a property that the fields do not have, or is wrong. The numeric proof tells.
    NotCertified {
        /// The output that differs first.
        output: String,
    },
    /// Says nothing: a gather leaves its tensor, no element of an output has a value (there is none, or all divide by
    /// zero), or its degree is as large as the fields.
    NotEvaluated,
}

const CUTS: [Cut; 3] = [Cut::Whole, Cut::Chunks(2), Cut::Parts(2)];

/// Tests a derivation at `points` random points, at the given (small) sizes.
pub fn certify(d: &Derivation, bound: &Bound, points: usize) -> Certificate {
    let mut degree: f64 = 1.0;
    let selects = asks_who_attains(&d.derived) || d.written.ids().any(|n| is_position(&d.written, n));
    let own = |g: &Graph| g.ids().filter(|&n| monoid(g, n).is_some_and(|m| matches!(m, Monoid::Custom(_)))).count();
    let spelled = own(&d.derived) < own(&d.written);
    for seed in 0..points as u64 {
        let domain = |graph| Fields::new(graph, bound, seed, [selects, spelled]);
        let Some(expected) = evaluate_in(&domain(&d.written), &d.written, bound, Cut::Whole) else {
            return Certificate::NotEvaluated;
        };
        // Undefined elements agree with anything, so without others agreement would be empty.
        let told = |(_, values): &(Vec<usize>, Vec<Value>)| values.iter().any(|v| v.special != Special::Undefined);
        if !expected.iter().all(told) {
            return Certificate::NotEvaluated;
        }
        for cut in CUTS {
            let Some(got) = evaluate_in(&domain(&d.derived), &d.derived, bound, cut) else {
                return Certificate::NotEvaluated;
            };
            for (k, (e, g)) in expected.iter().zip(&got).enumerate() {
                for (a, b) in e.1.iter().zip(&g.1) {
                    if !a.agrees(b) {
                        return Certificate::NotCertified { output: d.written[d.written.outputs[k]].name.clone() };
                    }
                    degree = degree.max(a.degree.of_difference(b.degree));
                }
            }
        }
    }
    // The smallest field is the one in which two different arguments are likeliest to look equal.
    let per_point = ((field::PRIMES[0] as f64) / degree).log2().max(0.0);
    if points > 0 && per_point == 0.0 {
        return Certificate::NotEvaluated;
    }
    // Of two sets one of which lacks an element of the other the last is the same unless it is that element.
    let per_point = match bound.sizes().iter().max() {
        Some(&most) if selects && most > 1 => per_point.min(-(1.0 - 1.0 / most as f64).log2()),
        _ => per_point,
    };
    Certificate::Certified { points, bits: (per_point * points as f64) as u32 }
}

fn monoid(graph: &Graph, n: NodeId) -> Option<Monoid> {
    match &graph[n].def {
        Def::Reduce(r) => Some(r.monoid),
        _ => None,
    }
}

fn is_position(graph: &Graph, n: NodeId) -> bool {
    matches!(monoid(graph, n), Some(Monoid::ArgMax | Monoid::ArgMin))
}

/// Whether some state stands or falls with the elements that attain an extremum.
fn asks_who_attains(graph: &Graph) -> bool {
    let keeps =
        |n| matches!(&graph[n].def, Def::Reduce(r) if r.streaming.repair.as_ref().is_some_and(|r| r.keep_if.is_some()));
    graph.ids().any(keeps)
}
