//! Whether some operation of a program leaves the range of f32 where f64 does not: `exp(100)` that is multiplied by 0, or a
//! divisor that is too small.

use einloom_algebra::flatten;
use einloom_algebra::stream::{Cut, Followed, Made, Reals, evaluate_in};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, Cascade, UnaryOp};
use std::cell::Cell;

pub(super) fn leaves_f32(cascade: &Cascade, bound: &Bound, inputs: &Arrays) -> bool {
    let graph = flatten(cascade);
    let left = Cell::new(false);
    let vanishes = |v: f64| v.is_finite() && v != 0.0 && v.abs() < f64::from(f32::MIN_POSITIVE);
    let each = |made: Made, v: f64| {
        let lost = match made {
            Made::Unary(op, x) => matches!(op, UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Rsqrt) && vanishes(x),
            Made::Binary(BinaryOp::Div, _, by) => vanishes(by),
            Made::Binary(BinaryOp::Pow, ..) => vanishes(v),
            Made::Binary(..) => false,
        };
        left.set(left.get() || lost || v.is_finite() && v.abs() > f64::from(f32::MAX));
        v
    };
    _ = evaluate_in(&Followed { reals: Reals { graph: &graph, bound, inputs }, each }, &graph, bound, Cut::Whole);
    left.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::meaning::Array;
    use einloom_cascade::{Given, bind};

    fn leaves(text: &str, x: f64) -> bool {
        let cascade = einloom_cascade::parse(text).cascade;
        let given = Given { sizes: [("N".to_string(), 1)].into(), ..Given::default() };
        let bound = bind(&cascade, &given).expect("sizes");
        let inputs = [("X".to_string(), Array { shape: vec![1], values: vec![x] })].into();
        leaves_f32(&cascade, &bound, &inputs)
    }

    #[test]
    fn an_operation_inside_an_expression_counts() {
        let text = "input X[n]: f32\noutput Y: f32\nY[n] = 0 * exp(X[n])\n";
        assert!(leaves(text, 100.0));
        assert!(!leaves(text, 80.0));
    }

    #[test]
    fn a_divisor_that_vanishes_counts_and_a_small_factor_does_not() {
        assert!(leaves("input X[n]: f32\noutput Y: f32\nY[n] = 1 / exp(X[n])\n", -100.0));
        assert!(!leaves("input X[n]: f32\noutput Y: f32\nY[n] = 1 * exp(X[n])\n", -100.0));
    }
}
