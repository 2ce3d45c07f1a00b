//! Statistics run in f32 on rows far from zero: `E[x²] - E[x]²` would have no digit left, moments about a running mean
//! agree with the meaning. So do standardised moments of numbers whose powers f32 does not hold, and what is left of rows
//! that are nearly multiples of one another.

use einloom::{Program, Tensor};
use einloom_cascade::{DType, Given};
use std::collections::BTreeMap;

const ROWS: usize = 3;
const COLUMNS: usize = 5000;

/// Rows around 0 with a spread of about 1, from a generator with a fixed seed.
fn rows(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    (0..ROWS * COLUMNS).map(|_| (0..4).map(|_| uniform()).sum::<f64>() - 2.0).collect()
}

/// Runs the program on rows around 10⁴.
fn agrees(text: &str, tolerance: f64) {
    agrees_on(text, tolerance, &|k| rows(k as u64 + 1).iter().map(|v| v + 1e4).collect());
}

/// Runs the program with these rows for each of its inputs; every output is within `tolerance` of the meaning, relative to the meaning.
fn agrees_on(text: &str, tolerance: f64, rows: &dyn Fn(usize) -> Vec<f64>) {
    let derived = Program::from_text(text).check().expect("no errors").derive();
    let cascade = derived.cascade().clone();
    let inputs: BTreeMap<String, Tensor> = cascade
        .inputs()
        .enumerate()
        .map(|(k, t)| {
            let values = rows(k);
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

#[test]
fn powers_of_quotients_stay_in_range() {
    for scale in [1e9, 1e11, 1e-12] {
        let scaled = |_| rows(1).iter().map(|v| v.exp() * scale).collect();
        agrees_on(
            "input X[m,n]: f32\noutput G1, G2: f32\nmu[m] = mean(n) X[m,n]\ns[m] = sqrt(mean(n) (X[m,n] - mu[m])^2)\n\
             Z[m,n] = (X[m,n] - mu[m]) / s[m]\nG1[m] = mean(n) Z[m,n]^3\nG2[m] = mean(n) Z[m,n]^4",
            1e-4,
            &scaled,
        );
        agrees_on(
            "input X[m,n]: f32\noutput L: f32\na[m] = mean(n) abs(X[m,n])\nL[m] = sum(n) (X[m,n] / a[m])^4",
            1e-4,
            &scaled,
        );
    }
}

#[test]
fn what_nearly_cancels_is_left() {
    // The second input is nearly three times the first.
    let nearly = |k: usize| match k {
        0 => rows(1),
        _ => rows(1).iter().zip(rows(2)).map(|(x, e)| 3.0 * x + 1e-3 * e).collect(),
    };
    for text in [
        "input X[m,n]: f32, Y[m,n]: f32\noutput R: f32\nx[m] = sqrt(sum(n) X[m,n]^2)\ny[m] = sqrt(sum(n) Y[m,n]^2)\n\
         R[m] = sqrt(sum(n) (X[m,n] / x[m] - Y[m,n] / y[m])^2)",
        "input X[m,n]: f32, Y[m,n]: f32\noutput R: f32\nmx[m] = mean(n) X[m,n]\nmy[m] = mean(n) Y[m,n]\n\
         B[m] = (sum(n) (X[m,n] - mx[m]) * (Y[m,n] - my[m])) / sum(n) (X[m,n] - mx[m])^2\n\
         R[m] = sqrt(sum(n) (Y[m,n] - my[m] - B[m] * (X[m,n] - mx[m]))^2)",
    ] {
        agrees_on(text, 1e-2, &nearly);
    }
}
