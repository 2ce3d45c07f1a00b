//! Whether some operation of a program leaves the range of f32 where f64 does not: `exp(100)` that is multiplied by 0, or a
//! divisor that is too small.

use einloom_algebra::stream::{Cut, Domain, Reals, apply, evaluate_in};
use einloom_algebra::{NodeId, argument_term, flatten};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, Cascade, DType, Monoid, ParamId, UnaryOp};
use std::cell::Cell;

/// f64, watched.
struct Watched<'a> {
    reals: Reals<'a>,
    left: Cell<bool>,
}

impl Watched<'_> {
    fn seen(&self, v: f64) -> f64 {
        if v.is_finite() && v.abs() > f64::from(f32::MAX) {
            self.left.set(true);
        }
        v
    }
}

pub(super) fn leaves_f32(cascade: &Cascade, bound: &Bound, inputs: &Arrays) -> bool {
    let graph = flatten(cascade);
    let domain = Watched { reals: Reals { graph: &graph, bound, inputs }, left: Cell::new(false) };
    _ = evaluate_in(&domain, &graph, bound, Cut::Whole);
    domain.left.get()
}

impl Domain for Watched<'_> {
    type Value = f64;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<f64>> {
        self.reals.input(node, count)
    }

    fn number(&self, v: f64) -> f64 {
        v
    }

    fn integer(&self, v: i64) -> f64 {
        v as f64
    }

    fn param(&self, p: ParamId) -> f64 {
        self.reals.param(p)
    }

    fn unary(&self, op: UnaryOp, x: &f64) -> f64 {
        let vanishes = x.is_finite() && *x != 0.0 && x.abs() < f64::from(f32::MIN_POSITIVE);
        let lost = vanishes && matches!(op, UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Rsqrt);
        self.left.set(self.left.get() || lost);
        self.seen(op.apply(*x))
    }

    fn binary(&self, op: BinaryOp, a: &f64, b: &f64) -> f64 {
        let vanishes = |v: f64| v.is_finite() && v != 0.0 && v.abs() < f64::from(f32::MIN_POSITIVE);
        let value = op.apply(*a, *b);
        let lost = op == BinaryOp::Div && vanishes(*b) || op == BinaryOp::Pow && vanishes(value);
        self.left.set(self.left.get() || lost);
        self.seen(value)
    }

    fn holds(&self, v: &f64) -> bool {
        self.reals.holds(v)
    }

    fn position(&self, v: &f64) -> Option<i64> {
        self.reals.position(v)
    }

    fn round(&self, dtype: DType, v: f64) -> f64 {
        self.reals.round(dtype, v)
    }

    fn identity(&self, m: Monoid) -> f64 {
        self.reals.identity(m)
    }

    fn single(&self, m: Monoid, v: f64) -> f64 {
        self.reals.single(m, v)
    }

    fn combine(&self, m: Monoid, a: &f64, b: &f64) -> Option<f64> {
        Some(self.seen(match m {
            Monoid::Custom(id) => apply(self, &argument_term(&self.reals.graph.cascade[id].combine)?, [a, b])?,
            _ => self.reals.combine(m, a, b)?,
        }))
    }

    fn beats(&self, m: Monoid, a: &f64, b: &f64) -> bool {
        self.reals.beats(m, a, b)
    }
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
