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
//! inverse of `exp` where that made a value, and a random function of any other; the logarithm of a product is the sum of its factors' where one of
//! them is an exponential, or of all products, or of none, whichever certifies (a value that two forms make of different factors has
//! two logarithms otherwise, which certifies too little and never too much); and that of a sum moves with its exponents where
//! all of these move alike, and with what all its addends are divided by. Every other
//! function is a random function: equal arguments, equal values.
//!
//! Where both graphs have the same states, a slice may be seen as a random function of what its step made: then each step is tested by itself,
//! for any state, and exponentials do not nest from step to step.
//!
//! What needs the order of the reals (addends leave a maximum, and so do factors that are not negative) is tried *in
//! regions*: beside the point of the fields stands a random real point, and which of two values is larger is asked there
//! (`ordered.rs`). The error is then one of a region, and regions that no point met are not proved.
//!
//! An identity that needs more than this (`sqrt(x)·sqrt(y)·sqrt(x) = x·sqrt(y)`) is *not
//! certified*, which is not the same as wrong. What depends on signs where fields alone are asked (that both roots exist where `sqrt(x·y) =
//! sqrt(x)·sqrt(y)` is used) is the rules' condition and the numeric proof's to see.

mod field;
mod fields;
mod interval;
mod ordered;
mod value;

use crate::stream::{Cut, Outputs, evaluate_in};
use crate::{Def, Derivation, Graph, NodeId};
use einloom_cascade::{Bound, Monoid};
use fields::{Fields, Logs, View};
use ordered::{Ordered, Placed};
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
    /// Agreed in the region of every real point: wherever the same values are the larger. A form that is wrong in a share
    /// `s` of all points passes with a probability below `(1 - s + 2^-bits)^points`.
    InRegions {
        /// Random real points, each with a random point of the fields and several cuts.
        points: usize,
        /// The probability that an identity that is wrong in the region of a point passed there is below `2^-bits`.
        bits: u32,
    },
    /// Did not agree; the identity needs a property that neither the fields nor the order of the reals have, or is wrong. The
    /// numeric proof tells.
    NotCertified {
        /// The output that differs first.
        output: String,
    },
    /// Says nothing: a gather leaves its tensor, no element of an output has a value (there is none, or all divide by
    /// zero), or its degree is as large as the fields.
    NotEvaluated,
}

impl Certificate {
    /// Whether every point that was tried agreed.
    pub fn is_certified(&self) -> bool {
        matches!(self, Self::Certified { .. } | Self::InRegions { .. })
    }
}

const CUTS: [Cut; 3] = [Cut::Whole, Cut::Chunks(2), Cut::Parts(2)];
/// Real points for each point of fields alone: they say less.
const REAL_POINTS: usize = 4;
/// Of so many real points one at least must be decided.
const ATTEMPTS: usize = 4;
/// Bits below which real points are tried too.
const FEW_BITS: u32 = 40;

/// Tests a derivation at `points` random points, at the given (small) sizes.
pub fn certify(d: &Derivation, bound: &Bound, points: usize) -> Certificate {
    let mut by_fields = in_fields(d, bound, points);
    let own = view(d);
    let steps = has_steps(d).then_some(View { by_steps: true, ..own });
    if let Certificate::NotCertified { .. } = by_fields {
        let others = [Logs::Products, Logs::Exponentials].map(|logs| View { logs, ..own });
        let leads = [Logs::WithExponentials, Logs::Products].map(|logs| View { logs, leads: true, ..own });
        let mut again = others.into_iter().chain(leads).chain(steps).map(|view| by_view(d, bound, points, view));
        by_fields = again.find(Certificate::is_certified).unwrap_or(by_fields);
    }
    // Squares of roots are known or not, since what is known of some products of roots is not of all.
    let in_regions = |view| in_regions(d, bound, points * REAL_POINTS, view);
    match by_fields {
        Certificate::NotCertified { .. } => {}
        // Where extrema are selected, a few points say little.
        Certificate::Certified { bits, .. } if bits < FEW_BITS && own.selects => {}
        _ => return by_fields,
    }
    let mut found = in_regions(own);
    for view in [View { squares: true, ..own }, View { leads: true, ..own }].into_iter().chain(steps) {
        if let Some(Certificate::NotCertified { .. }) = found {
            found = in_regions(view);
        }
    }
    match found {
        None | Some(Certificate::NotEvaluated) => by_fields,
        Some(found) => found,
    }
}

fn view(d: &Derivation) -> View {
    let own = |g: &Graph| g.ids().filter(|&n| monoid(g, n).is_some_and(|m| matches!(m, Monoid::Custom(_)))).count();
    View {
        selects: asks_who_attains(&d.derived) || d.written.ids().any(|n| is_position(&d.written, n)),
        spelled: own(&d.derived) < own(&d.written),
        squares: false,
        logs: Logs::WithExponentials,
        leads: false,
        by_steps: false,
    }
}

/// Whether both graphs have the same states, one slice after the other: then it is enough that each step is the same.
fn has_steps(d: &Derivation) -> bool {
    let states = |g: &Graph| -> Vec<_> {
        let of = g.ids().filter(|&n| matches!(g[n].def, Def::Iterative { .. })).filter_map(|n| g[n].tensor);
        of.collect()
    };
    let by_positions = d.derived.recurrences.iter().all(|r| r.within.is_empty());
    let written = states(&d.written);
    by_positions && !written.is_empty() && written == states(&d.derived)
}

/// What [`certify`] finds at points of the fields alone.
pub fn in_fields(d: &Derivation, bound: &Bound, points: usize) -> Certificate {
    by_view(d, bound, points, view(d))
}

fn by_view(d: &Derivation, bound: &Bound, points: usize, view: View) -> Certificate {
    let mut degree: f64 = 1.0;
    for seed in 0..points as u64 {
        let domain = |graph| Fields::new(graph, bound, seed, view);
        let Some(expected) = evaluate_in(&domain(&d.written), &d.written, bound, Cut::Whole) else {
            return Certificate::NotEvaluated;
        };
        if !told(&expected, |v| v) {
            return Certificate::NotEvaluated;
        }
        for cut in CUTS {
            let Some(got) = evaluate_in(&domain(&d.derived), &d.derived, bound, cut) else {
                return Certificate::NotEvaluated;
            };
            if let Some(output) = differs(d, &expected, &got, |a, b| a.agrees(b)) {
                return Certificate::NotCertified { output };
            }
            degree = degree.max(of_difference(&expected, &got, |v| v));
        }
    }
    let per_point = bits_of(degree);
    if points > 0 && per_point == 0.0 {
        return Certificate::NotEvaluated;
    }
    // Of two sets one of which lacks an element of the other the last is the same unless it is that element.
    let per_point = match bound.sizes().iter().max() {
        Some(&most) if view.selects && most > 1 => per_point.min(-(1.0 - 1.0 / most as f64).log2()),
        _ => per_point,
    };
    Certificate::Certified { points, bits: (per_point * points as f64) as u32 }
}

/// At points of the fields beside real ones; `None` if too few of these decide which values are larger.
fn in_regions(d: &Derivation, bound: &Bound, points: usize, view: View) -> Option<Certificate> {
    let (mut degree, mut agreed) = (1.0f64, 0);
    for seed in 0..(points * ATTEMPTS) as u64 {
        let domain = |graph| Ordered::new(Fields::new(graph, bound, seed, view));
        let written = domain(&d.written);
        let Some(expected) = evaluate_in(&written, &d.written, bound, Cut::Whole) else {
            return Some(Certificate::NotEvaluated);
        };
        if written.is_undecided() || !told(&expected, |p| &p.value) {
            continue;
        }
        let mut decided = true;
        for cut in CUTS {
            let derived = domain(&d.derived);
            let Some(got) = evaluate_in(&derived, &d.derived, bound, cut) else {
                return Some(Certificate::NotEvaluated);
            };
            decided &= !derived.is_undecided();
            if !decided {
                break;
            }
            if let Some(output) = differs(d, &expected, &got, Placed::agrees) {
                return Some(Certificate::NotCertified { output });
            }
            degree = degree.max(of_difference(&expected, &got, |p| &p.value));
        }
        agreed += usize::from(decided);
        if agreed == points {
            break;
        }
    }
    let bits = bits_of(degree) as u32;
    (agreed > 0 && agreed * ATTEMPTS >= points && bits > 0).then_some(Certificate::InRegions { points: agreed, bits })
}

/// Whether every output has an element with a value. Undefined elements agree with anything, so without others agreement
/// would be empty.
fn told<V>(outputs: &Outputs<V>, value: impl Fn(&V) -> &Value) -> bool {
    outputs.iter().all(|(_, values)| values.iter().any(|v| value(v).special != Special::Undefined))
}

/// The first output in which some element does not agree.
fn differs<V>(
    d: &Derivation,
    expected: &Outputs<V>,
    got: &Outputs<V>,
    agrees: impl Fn(&V, &V) -> bool,
) -> Option<String> {
    let pairs = expected.iter().zip(got);
    let k = pairs.into_iter().position(|(e, g)| e.1.iter().zip(&g.1).any(|(a, b)| !agrees(a, b)))?;
    Some(d.written[d.written.outputs[k]].name.clone())
}

fn of_difference<V>(expected: &Outputs<V>, got: &Outputs<V>, value: impl Fn(&V) -> &Value) -> f64 {
    let pairs = expected.iter().zip(got).flat_map(|(e, g)| e.1.iter().zip(&g.1));
    pairs.fold(1.0, |most, (a, b)| most.max(value(a).degree.of_difference(value(b).degree)))
}

/// The smallest field is the one in which two different arguments are likeliest to look equal.
fn bits_of(degree: f64) -> f64 {
    (field::PRIMES[0] as f64 / degree).log2().max(0.0)
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
