//! The form in which sums that wait stay as they are written: where there is one, what it is, and where there is none.

use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Alternative, Def, Derivation, Rule, derive};
use einloom_cascade::meaning::{self, Array};
use einloom_cascade::{Given, bind};

const LAYERNORM: &str = "input X[m,d]: f32, W[d,n]: f32\noutput Y: f32\nmu[m] = mean(d) X[m,d]\n\
    V[m] = mean(d) (X[m,d] - mu[m])^2\nZ[m,d] = (X[m,d] - mu[m]) / sqrt(V[m] + 1e-5)\nY[m,n] = sum(d) Z[m,d] * W[d,n]\n";

fn derived(text: &str) -> Derivation {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}\n{:?}", parsed.diagnostics);
    derive(&parsed.cascade)
}

fn waiting(d: &Derivation) -> Option<&Alternative> {
    d.alternatives.iter().find(|a| a.name == "sums that wait as written")
}

#[test]
fn a_product_behind_a_normalisation_may_wait_for_it() {
    let d = derived(LAYERNORM);
    let form = waiting(&d).expect("a form");
    // The product is as written; the variance has all indices of what it waits for, and is taken about the running mean.
    let sums = |d: &einloom_algebra::Graph| d.nodes.iter().filter(|n| matches!(n.def, Def::Reduce(_))).count();
    assert!(sums(&form.derived) < sums(&d.derived));
    assert!(form.steps.iter().any(|s| s.rule == Rule::Centre && s.node == "V.sum"), "{:?}", form.steps);
    assert!(form.steps.iter().all(|s| !s.node.starts_with('Y')), "{:?}", form.steps);
    let mut given = Given::default();
    given.sizes.extend([("M", 3), ("D", 5), ("N", 4)].map(|(rank, size)| (rank.to_string(), size)));
    let cascade = &d.written.cascade;
    let bound = bind(cascade, &given).expect("sizes");
    let values = |count: usize| (0..count).map(|k| ((k * 37 + 11) % 23) as f64 - 9.0).collect::<Vec<f64>>();
    let array = |shape: [usize; 2]| Array { values: values(shape[0] * shape[1]), shape: shape.to_vec() };
    let arrays = [("X".to_string(), array([3, 5])), ("W".to_string(), array([5, 4]))].into();
    let expected = meaning::evaluate(cascade, &bound, &arrays).expect("a meaning");
    for cut in [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2)] {
        let found = evaluate(&form.derived, &bound, &arrays, cut).expect("values");
        for (want, got) in expected["Y"].values.iter().zip(&found["Y"].values) {
            assert!((want - got).abs() < 1e-9 * (1.0 + want.abs()), "{want} {got}");
        }
    }
}

#[test]
fn exponentials_keep_their_anchors() {
    // Relative to the mean an exponential may overflow: it is as derived, in whatever form.
    let text = "input X[m,d]: f32, W[d,n]: f32\noutput Y: f32\nmu[m] = mean(d) X[m,d]\n\
        Y[m,n] = sum(d) exp(X[m,d] - mu[m]) * W[d,n]\n";
    assert!(waiting(&derived(text)).is_none());
    let attention = "input Q[m,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\nS[m,n] = sum(d) Q[m,d] * K[n,d]\n\
        P[m,n] = exp(S[m,n])\nZ[m] = sum(n) P[m,n]\nO[m,e] = sum(n) P[m,n] / Z[m] * V[n,e]\n";
    assert!(waiting(&derived(attention)).is_none());
    // One beside a normalisation has the same anchor in both forms.
    let both = format!("{LAYERNORM}A[m] = log(sum(n) exp(Y[m,n]))\n").replace("output Y", "output A");
    let d = derived(&both);
    let form = waiting(&d).expect("a form");
    assert!(form.steps.iter().any(|s| s.rule == Rule::Stabilise), "{:?}", form.steps);
}

#[test]
fn what_waits_for_all_its_indices_has_no_other_form() {
    let variance = "input X[m,d]: f32\noutput V: f32\nmu[m] = mean(d) X[m,d]\nV[m] = mean(d) (X[m,d] - mu[m])^2\n";
    assert!(waiting(&derived(variance)).is_none());
    let product = "input A[m,d]: f32, B[d,n]: f32\noutput C: f32\nC[m,n] = sum(d) A[m,d] * B[d,n]\n";
    assert!(waiting(&derived(product)).is_none());
}
