//! Chunks of recurrences lose no more digits than the recurrences, however much a chunk decays in all.

use einloom::compare::distance;
use einloom::prove::{Kind, inputs, tensors};
use einloom::{Derived, PlanOptions, RunOptions};
use einloom_cascade::{Given, bind, meaning};

/// The decay of a key channel at one step is `exp(-strength·|g|)`.
fn worst(strength: f64) -> f64 {
    let text = format!(
        "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32, g[t,d]: f32\noutput O: f32\nS[0,d,e] = 0\n\
         S[t+1,d,e] = exp(-{strength} * abs(g[t,d])) * S[t,d,e] + K[t,d] * V[t,e]\nO[t,e] = sum(d) Q[t,d] * S[t+1,d,e]\n"
    );
    let parsed = einloom_cascade::parse(&text);
    assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
    let derivation = einloom_algebra::derive(&parsed.cascade);
    let chunked = derivation.of_alternative(0).expect("a form by chunks");
    let sizes = [("T", 500), ("D", 2), ("E", 5)].map(|(rank, size)| (rank.to_string(), size));
    let given = Given { sizes: sizes.into(), ..Given::default() };
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    let options = PlanOptions { tiles: [("t".to_string(), 256)].into(), ..PlanOptions::default() };
    let planned = Derived::from_derivation(chunked).plan(&given, &machine, &options).expect("a plan");
    let bound = bind(&parsed.cascade, &given).expect("sizes");
    let arrays = inputs(&parsed.cascade, &bound, Kind::Normal, 3);
    let found = planned.run(&tensors(planned.cascade(), &arrays), &RunOptions::default()).expect("a run");
    let expected = meaning::evaluate(&parsed.cascade, &bound, &arrays).expect("a meaning");
    distance(&found.outputs["O"].values(), &expected["O"].values, 5, 1e-30).scaled
}

#[test]
fn decays_per_channel_keep_the_digits_of_short_stretches() {
    // As the difference of two plain sums the exponents lose what the chunk decays: 1.6e-5 and 1.7e-4 here.
    for strength in [1.0, 10.0] {
        let error = worst(strength);
        assert!(error < 3e-6, "{error:e} at {strength}");
    }
}
