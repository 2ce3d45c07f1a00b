//! What one kernel stores and another computes again is the same number: the greatest of some products is one of them,
//! whatever number types meet in these, fused and one kernel for each reduction.

use einloom::random::random_values;
use einloom::{PlanOptions, Program, RunOptions, Tensor};
use einloom_cascade::Given;
use einloom_plan::Fusion;

const HEAD: &str = "input x[i]: f32, y[i]: f32, b[i]: bf16, h[i]: f16, k[i]: i32, q[i]: i8, d[i]: f64\n";

/// Of how many elements `value` is the greatest.
fn found(declared: &str, value: &str, fuse: Fusion) -> f64 {
    let text = format!("{HEAD}output C: f32\nM{declared} = max(i) ({value})\nC = sum(i) where({value} == M, 1, 0)\n");
    let derived = Program::from_text(&text).check().unwrap_or_else(|e| panic!("{value}: {e}")).derive();
    let given = Given { sizes: [("I".to_string(), 211)].into(), ..Given::default() };
    let machine = einloom::machines::find("cpu-generic").expect("built in");
    let options = PlanOptions { fuse, tiles: [("i".to_string(), 32)].into(), ..PlanOptions::default() };
    let planned = derived.plan(&given, &machine, &options).unwrap_or_else(|e| panic!("{value}: {e}"));
    let cascade = derived.cascade();
    let input = |t| {
        let shape = planned.bound().shape(cascade, t);
        let mut values = random_values(cascade, planned.bound(), t, 1);
        if cascade[t].name == "k" {
            values = (0..211).map(|i| f64::from(i * 7919 % 211 + 16_777_000)).collect();
        }
        let tensor = Tensor::from_values(planned.dtype(t), &shape, &values).expect("the shape's values");
        (cascade[t].name.clone(), tensor)
    };
    let inputs = cascade.inputs().map(input).collect();
    planned.run(&inputs, &RunOptions::default()).expect("runs").outputs["C"].values()[0]
}

#[test]
fn the_greatest_is_one_of_them() {
    for value in [
        "x[i] * k[i]",
        "x[i] * y[i] + k[i]",
        "b[i] * h[i] * x[i] * k[i]",
        "exp(x[i]) * k[i]",
        "tanh(x[i] * k[i] * 0.0000001) * k[i]",
        "log(k[i] + 0.5) * x[i]",
        "k[i] * 0.3",
        "(k[i] - i) * x[i] / 7",
        "(k[i] * k[i] - 3) / k[i]",
        "q[i] * q[i] * q[i] * q[i] * x[i]",
        "x[i] * y[i] + d[i]",
        "exp(x[i]) * d[i]",
        "x[i] / (i + 3) * y[i]",
        "(i * 700001 + 3) * x[i]",
        "max(x[i] * 0.1, k[i] * 0.00000001)",
        "where(k[i] > 16777100, x[i] * y[i] * k[i], y[i])",
    ] {
        for fuse in [Fusion::Auto, Fusion::None] {
            assert!(found("", value, fuse) >= 1.0, "{value}, {fuse:?}");
        }
    }
    // A tensor that the program declares keeps what it is compared with.
    assert!(found(": f64", "x[i] * y[i]", Fusion::None) >= 1.0);
}
