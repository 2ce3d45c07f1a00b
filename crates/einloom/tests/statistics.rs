//! Statistics run in f32 on rows far from zero: `E[x²] - E[x]²` would have no digit left, moments about a running mean
//! agree with the meaning.

use einloom::{Program, Tensor};
use einloom_cascade::{DType, Given};
use std::collections::BTreeMap;

const ROWS: usize = 3;
const COLUMNS: usize = 5000;

/// Rows around 10⁴ with a spread of about 1, from a generator with a fixed seed.
fn far_from_zero(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    (0..ROWS * COLUMNS).map(|_| 1e4 + (0..4).map(|_| uniform()).sum::<f64>() - 2.0).collect()
}

/// Runs the program on such rows; every output is within `tolerance` of the meaning, relative to the meaning.
fn agrees(text: &str, tolerance: f64) {
    let derived = Program::from_text(text).check().expect("no errors").derive();
    let cascade = derived.cascade().clone();
    let inputs: BTreeMap<String, Tensor> = cascade
        .inputs()
        .enumerate()
        .map(|(k, t)| {
            let values = far_from_zero(k as u64 + 1);
            (cascade[t].name.clone(), Tensor::from_values(DType::F32, &[ROWS, COLUMNS], &values).expect("values"))
        })
        .collect();
    let shapes = inputs.iter().map(|(name, t)| (name.clone(), t.dims().to_vec())).collect();
    let given = Given { shapes, ..Given::default() };
    let planned = derived.plan(&given, &einloom::host::machine(), &Default::default()).expect("a plan");
    let outcome = planned.run(&inputs, &Default::default()).expect("it runs");
    let expected = planned.meaning(&inputs, &mut |_| {}).expect("a meaning");
    for (name, e) in &expected {
        for (&a, b) in e.values.iter().zip(outcome.outputs[name].values()) {
            assert!((a - b).abs() <= tolerance * a.abs(), "{text}\n{name} should be {a}, is {b}");
        }
    }
}

#[test]
fn far_from_zero_no_digits_are_lost() {
    agrees("input X[m,n]: f32\noutput V: f32\nV[m] = var(n) X[m,n]", 1e-3);
    agrees("input X[m,n]: f32\noutput V: f32\nV[m] = sum(n) (X[m,n] - max(n) X[m,n])^2", 1e-3);
    agrees(
        "input X[m,n]: f32, Y[m,n]: f32\noutput C: f32\n\
         C[m] = mean(n) (X[m,n] - mean(n) X[m,n]) * (X[m,n] + Y[m,n] - mean(n) (X[m,n] + Y[m,n]))",
        1e-3,
    );
    agrees(
        "input X[m,n]: f32\noutput K: f32\nmu[m] = mean(n) X[m,n]\n\
         K[m] = (mean(n) (X[m,n] - mu[m])^4) / (mean(n) (X[m,n] - mu[m])^2)^2",
        1e-3,
    );
}
