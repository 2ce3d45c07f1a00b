//! Running error analysis: every value with a bound on how far rounding may have moved it, first order and a little
//! pessimistic. Source: J. H. Wilkinson, "Error Analysis Revisited", 1986; N. J. Higham, "Accuracy and Stability of
//! Numerical Algorithms", section 3.3.
//!
//! Noise that is drawn at random misses what happens rarely: a divisor that is 0 but for rounding. A bound does not.

use einloom_algebra::stream::{Cut, Domain, Reals, combine, evaluate_in};
use einloom_algebra::{Graph, NodeId};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, DType, Monoid, ParamId, UnaryOp};
use std::cell::Cell;

/// A value and how far from it the exact one may be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Near {
    value: f64,
    error: f64,
}

impl Near {
    fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// The largest move of a function over the corners of its arguments.
    fn moved(value: f64, corners: impl IntoIterator<Item = f64>) -> f64 {
        corners.into_iter().fold(0.0, |most, c| match c == value || c.is_nan() && value.is_nan() {
            true => most,
            false if (c - value).is_nan() => f64::INFINITY,
            false => f64::max(most, (c - value).abs()),
        })
    }

    /// Whether it is no number, and rounding may have made it so.
    fn undetermined(self) -> bool {
        self.value.is_nan() && self.error > 0.0
    }

    fn ends(self) -> [f64; 2] {
        [self.value - self.error, self.value + self.error]
    }
}

struct Rounded<'a> {
    reals: Reals<'a>,
    /// Unit roundoff of the arithmetic.
    unit: f64,
    /// Its largest number and its smallest normal one.
    range: [f64; 2],
    /// Whether a condition or a position hangs on rounding.
    doubt: Cell<bool>,
}

impl Rounded<'_> {
    fn rounded(&self, value: f64, error: f64) -> Near {
        let [huge, tiny] = self.range;
        let own = if value.is_finite() { self.unit * value.abs() + tiny } else { 0.0 };
        let lost = error.is_nan() || value.is_finite() && value.abs() + error > huge;
        Near { value, error: if lost { f64::INFINITY } else { error + own } }
    }

    fn compared(&self, op: BinaryOp, a: &Near, b: &Near) -> Near {
        let value = op.apply(a.value, b.value);
        let error = a.error + b.error;
        let close = error > 0.0 && (a.value - b.value).abs() <= error;
        let open = a.undetermined() || b.undetermined();
        Near { value, error: if close || open || error.is_nan() { 1.0 } else { 0.0 } }
    }
}

/// `a · b`, where nothing times anything is nothing.
fn times(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

impl Domain for Rounded<'_> {
    type Value = Near;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Near>> {
        Some(self.reals.input(node, count)?.into_iter().map(Near::exact).collect())
    }

    fn number(&self, v: f64) -> Near {
        if v.fract() == 0.0 { Near::exact(v) } else { self.rounded(v, 0.0) }
    }

    fn integer(&self, v: i64) -> Near {
        Near::exact(v as f64)
    }

    fn param(&self, p: ParamId) -> Near {
        self.number(self.reals.param(p))
    }

    fn unary(&self, op: UnaryOp, x: &Near) -> Near {
        let value = op.apply(x.value);
        let error = match x.error == 0.0 {
            true => 0.0,
            false if x.undetermined() => f64::INFINITY,
            false => Near::moved(value, x.ends().map(|v| op.apply(v))),
        };
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu => Near { value, error },
            UnaryOp::Not | UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Round => Near { value, error },
            // As it is defined, x/2 · (1 + erf(x/√2)): right to a few last digits of x, which are all of it where it is
            // nearly 0. The constant is what the processor's function is tested for.
            UnaryOp::Gelu => self.rounded(value, error + 8.0 * self.unit * x.value.abs()),
            // Functions are right to a few last digits.
            _ => self.rounded(value, error + if value.is_finite() { 7.0 * self.unit * value.abs() } else { 0.0 }),
        }
    }

    fn binary(&self, op: BinaryOp, a: &Near, b: &Near) -> Near {
        let value = op.apply(a.value, b.value);
        let both = a.error + b.error;
        match op {
            _ if op.is_comparison() => self.compared(op, a, b),
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Div if value == 0.0 && both == 0.0 => Near::exact(value),
            // What leaves the range of its numbers is no nothing, even times 0.
            BinaryOp::Mul if both.is_infinite() => Near { value, error: f64::INFINITY },
            BinaryOp::Mul if a.value == 0.0 && a.error == 0.0 || b.value == 0.0 && b.error == 0.0 => Near::exact(value),
            BinaryOp::Add | BinaryOp::Sub => self.rounded(value, both),
            BinaryOp::Mul => {
                let error = times(a.value.abs(), b.error) + times(b.value.abs(), a.error) + times(a.error, b.error);
                self.rounded(value, error)
            }
            BinaryOp::Div if b.error > 0.0 && b.value.abs() <= b.error => Near { value, error: f64::INFINITY },
            BinaryOp::Div if both == 0.0 => self.rounded(value, 0.0),
            BinaryOp::Div => self.rounded(value, (a.error + times(value.abs(), b.error)) / (b.value.abs() - b.error)),
            BinaryOp::Pow if both == 0.0 => self.rounded(value, 3.0 * self.unit * value.abs()),
            BinaryOp::Pow if a.undetermined() || b.undetermined() => Near { value, error: f64::INFINITY },
            BinaryOp::Pow => {
                let corners = a.ends().into_iter().flat_map(|x| b.ends().map(|y| op.apply(x, y)));
                self.rounded(value, Near::moved(value, corners) + 3.0 * self.unit * value.abs())
            }
            BinaryOp::Min | BinaryOp::Max => Near { value, error: a.error.max(b.error) },
            _ => Near { value, error: both.min(1.0) },
        }
    }

    fn holds(&self, v: &Near) -> bool {
        self.doubt.set(self.doubt.get() || v.error >= 0.5);
        v.value != 0.0
    }

    fn in_doubt(&self, v: &Near) -> Option<bool> {
        (v.error >= 0.5).then_some(v.value != 0.0)
    }

    fn either(&self, first: Near, other: Near) -> Near {
        let apart = Near::moved(first.value, [other.value]);
        Near { error: first.error.max(apart + other.error), ..first }
    }

    fn position(&self, v: &Near) -> Option<i64> {
        self.doubt.set(self.doubt.get() || v.error >= 0.5);
        Some(v.value as i64)
    }

    fn round(&self, dtype: DType, v: Near) -> Near {
        let value = self.reals.round(dtype, v.value);
        match dtype.is_float() {
            true if (value - v.value).is_finite() => Near { value, error: v.error + (value - v.value).abs() },
            // Infinite, or not but for rounding.
            true if v.error > 0.0 && v.ends().iter().any(|&x| self.reals.round(dtype, x) != value) => {
                Near { value, error: f64::INFINITY }
            }
            true => Near { value, ..v },
            false => Near { value, error: Near::moved(value, v.ends().map(|x| self.reals.round(dtype, x))) },
        }
    }

    fn identity(&self, m: Monoid) -> Near {
        Near::exact(self.reals.identity(m))
    }

    fn single(&self, _m: Monoid, v: Near) -> Near {
        v
    }

    fn combine(&self, m: Monoid, a: &Near, b: &Near) -> Option<Near> {
        combine(self, self.reals.graph, m, [a, b])
    }

    fn beats(&self, m: Monoid, a: &Near, b: &Near) -> bool {
        self.reals.beats(m, &a.value, &b.value)
    }

    /// Where rounding may have the other one win, the position may be the other's: half as far off, in whole numbers, since twice a bound
    /// is excused.
    fn extremum(&self, m: Monoid, [a, b]: [&Near; 2], [at, other]: [Near; 2]) -> (bool, Near) {
        let second = self.beats(m, b, a);
        let (won, lost) = if second { (other, at) } else { (at, other) };
        let close = a.error + b.error > 0.0 && (a.value - b.value).abs() <= a.error + b.error;
        if !close {
            return (second, won);
        }
        let error = won.error.max(lost.error + ((won.value - lost.value).abs() / 2.0).ceil());
        (second, Near { error, ..won })
    }
}

/// Bounds on how far rounding may have moved each element of an output, by its number, and whether a condition or a
/// position hangs on rounding; `None` if nothing can be evaluated. `unit` is the unit roundoff of the arithmetic. A bound is
/// infinite where the element is not determined at all, as a quotient whose divisor may be 0 but for rounding.
pub fn rounding_bounds(
    graph: &Graph,
    bound: &Bound,
    inputs: &Arrays,
    output: usize,
    unit: f64,
    cut: Cut,
) -> Option<(Vec<f64>, bool)> {
    let reals = Reals { graph, bound, inputs };
    // By the unit: f64, or what is computed in f32 and narrower.
    let range = match unit < 1e-12 {
        true => [f64::MAX, f64::MIN_POSITIVE],
        false => [f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE)],
    };
    let domain = Rounded { reals, unit, range, doubt: Cell::new(false) };
    let (_, values) = evaluate_in(&domain, graph, bound, cut)?.swap_remove(output);
    Some((values.into_iter().map(|v| v.error).collect(), domain.doubt.get()))
}

/// `found`, with what is within twice the bounds taken for what it should be, and the number of elements of which more than
/// nothing was taken off.
pub fn beyond_bounds(found: &[f64], expected: &[f64], bounds: &[f64]) -> (Vec<f64>, usize) {
    let mut excused = 0;
    let left = found.iter().zip(expected).zip(bounds).map(|((&v, &e), &bound)| {
        let apart = v - e;
        let left = match apart.is_finite() && bound.is_finite() {
            true => e + (apart.abs() - 2.0 * bound).max(0.0).copysign(apart),
            false if bound.is_finite() => v,
            false => e,
        };
        excused += usize::from(left != v && !(left.is_nan() && v.is_nan()));
        left
    });
    (left.collect(), excused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_algebra::flatten;
    use einloom_cascade::meaning::Array;
    use einloom_cascade::{Given, bind};

    /// The bounds of the only output for inputs X and Y of two elements each.
    fn bounds(text: &str, x: [f64; 2], y: [f64; 2]) -> Vec<f64> {
        let cascade = einloom_cascade::parse(text).cascade;
        let given = Given { sizes: [("N".to_string(), 2)].into(), ..Given::default() };
        let bound = bind(&cascade, &given).expect("sizes");
        let array = |v: [f64; 2]| Array { shape: vec![2], values: v.to_vec() };
        let inputs = [("X".to_string(), array(x)), ("Y".to_string(), array(y))].into();
        rounding_bounds(&flatten(&cascade), &bound, &inputs, 0, 2f64.powi(-53), Cut::Whole).expect("a value").0
    }

    #[test]
    fn a_divisor_of_nothing_but_rounding_determines_nothing_and_every_element_answers_for_itself() {
        let text = "input X[n]: f64, Y[n]: f64\noutput Z: f64\nZ[n] = abs(0 / (X[n] / 3 * 3 - Y[n]))\n";
        let b = bounds(text, [1.0, 1.0], [1.0, 2.0]);
        assert!(b[0].is_infinite() && b[1] < 1e-300, "{b:?}");
    }

    #[test]
    fn what_no_function_of_an_undetermined_value_determines() {
        let of = |f: &str| {
            format!("input X[n]: f64, Y[n]: f64\noutput Z: f64\nZ[n] = {f}\n")
                .replace('q', "(0 / (X[n] / 3 * 3 - Y[n]))")
        };
        for f in ["abs(q)", "exp(q)", "q ^ 2", "max(q, 1)", "q + 1"] {
            assert!(bounds(&of(f), [1.0; 2], [1.0; 2])[0].is_infinite(), "{f}");
        }
        assert_eq!(bounds(&of("where(q > 1, 2, 3)"), [1.0; 2], [1.0; 2]), [1.0; 2]);
    }

    #[test]
    fn what_is_beyond_a_narrow_type_but_for_rounding_is_not_determined() {
        let text = "input X[n]: f64, Y[n]: f64\noutput Z: f64\nU[n]: f16 = 1e25 * (X[n] / 3 * 3 - Y[n])\nZ[n] = 1 / (U[n] + 1)\n";
        let b = bounds(text, [1.0 + 2f64.powi(-52), 2.0], [1.0, 1.0]);
        assert!(b[0].is_infinite() && b[1] < 1e-300, "{b:?}");
    }

    #[test]
    fn positions_of_extremes_that_rounding_may_exchange_are_told_apart_from_others() {
        let text = "input X[n]: f64, Y[n]: f64\noutput Z: i32\nZ = argmax(n) exp(X[n] / 3)\n";
        assert_eq!(bounds(text, [1.0, 2.0], [0.0; 2]), [0.0]);
        assert_eq!(bounds(text, [1.0, 1.0 + 2e-16], [0.0; 2]), [1.0]);
        let (left, excused) = beyond_bounds(&[0.0, 0.0], &[1.0, 7.0], &[1.0, 1.0]);
        assert_eq!((left, excused), (vec![1.0, 2.0], 2), "the other of two, and nothing much farther off");
    }

    #[test]
    fn conditions_that_hang_on_rounding_leave_both_values() {
        let choice = "input X[n]: f64, Y[n]: f64\noutput Z: i32\nZ[n] = where(X[n] / 3 * 3 > Y[n], 5, 1)\n";
        assert_eq!(bounds(choice, [1.0, 2.0], [1.0, 1.0]), [4.0, 0.0]);
        let count = "input X[n]: f64, Y[n]: f64\noutput Z: f64\nZ = sum(n: X[n] / 3 * 3 > Y[n]) 8\n";
        let b = bounds(count, [1.0, 2.0], [1.0, 1.0]);
        assert!((8.0..8.1).contains(&b[0]), "{b:?}");
    }

    #[test]
    fn what_is_beyond_the_bounds_stays() {
        let (left, excused) = beyond_bounds(&[1.5, 2.0, f64::NAN, 7.0], &[1.0; 4], &[0.125, 0.0, f64::INFINITY, 4.0]);
        assert_eq!(left, [1.25, 2.0, 1.0, 1.0]);
        assert_eq!(excused, 3);
    }
}
