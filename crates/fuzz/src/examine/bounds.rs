//! Running error analysis: every value with a bound on how far rounding may have moved it, first order and a little
//! pessimistic. Source: J. H. Wilkinson, "Error Analysis Revisited", 1986; N. J. Higham, "Accuracy and Stability of
//! Numerical Algorithms", section 3.3.
//!
//! Noise that is drawn at random misses what happens rarely: a divisor that is 0 but for rounding. A bound does not.

use super::Subject;
use super::compare::{Verdict, differs};
use einloom::compare::Precision;
use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::stream::{Cut, Domain, Reals, apply, evaluate_in};
use einloom_algebra::{Derivation, Graph, NodeId};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{BinaryOp, DType, Monoid, ParamId, TensorId, UnaryOp};
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
        Near { value, error: if close || error.is_nan() { 1.0 } else { 0.0 } }
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
        let error = if x.error == 0.0 { 0.0 } else { Near::moved(value, x.ends().map(|v| op.apply(v))) };
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

    fn position(&self, v: &Near) -> Option<i64> {
        self.doubt.set(self.doubt.get() || v.error >= 0.5);
        Some(v.value as i64)
    }

    fn round(&self, dtype: DType, v: Near) -> Near {
        let value = self.reals.round(dtype, v.value);
        match dtype.is_float() {
            true if (value - v.value).is_finite() => Near { value, error: v.error + (value - v.value).abs() },
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
        Some(match m {
            Monoid::Sum => self.binary(BinaryOp::Add, a, b),
            Monoid::Prod => self.binary(BinaryOp::Mul, a, b),
            Monoid::Max => self.binary(BinaryOp::Max, a, b),
            Monoid::Min => self.binary(BinaryOp::Min, a, b),
            Monoid::ArgMax | Monoid::ArgMin => return None,
            Monoid::Custom(id) => {
                let term = einloom_algebra::argument_term(&self.reals.graph.cascade[id].combine)?;
                apply(self, &term, [a, b])?
            }
        })
    }

    fn beats(&self, m: Monoid, a: &Near, b: &Near) -> bool {
        let close = a.error + b.error > 0.0 && (a.value - b.value).abs() <= a.error + b.error;
        self.doubt.set(self.doubt.get() || close);
        self.reals.beats(m, &a.value, &b.value)
    }
}

/// What a comparison was about.
pub(super) struct Compared<'a> {
    pub(super) output: TensorId,
    pub(super) dtype: DType,
    pub(super) precision: &'a Precision,
    /// Unit roundoff of the arithmetic.
    pub(super) unit: f64,
    pub(super) expected: &'a Array,
    pub(super) found: &'a Array,
}

/// Bounds of an output's elements, and whether a condition hangs on rounding; `None` if nothing can be evaluated.
fn bounds(
    subject: &Subject,
    graph: &Graph,
    inputs: &Arrays,
    output: usize,
    unit: f64,
    cut: Cut,
) -> Option<(Vec<f64>, bool)> {
    let reals = Reals { graph, bound: &subject.bound, inputs };
    // By the unit: f64, or what is computed in f32 and narrower.
    let range = match unit < 1e-12 {
        true => [f64::MAX, f64::MIN_POSITIVE],
        false => [f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE)],
    };
    let domain = Rounded { reals, unit, range, doubt: Cell::new(false) };
    let (_, values) = evaluate_in(&domain, graph, &subject.bound, cut)?.swap_remove(output);
    Some((values.into_iter().map(|v| v.error).collect(), domain.doubt.get()))
}

impl Subject {
    /// What the bounds on rounding errors say to a difference: [`Verdict::Sensitive`] if those of the text as written
    /// explain it, [`Verdict::Unstable`] if those of a derived form are needed for that, and nothing otherwise.
    pub(super) fn within_bounds(&self, forms: &[&Derivation], inputs: &Arrays, compared: &Compared) -> Option<Verdict> {
        let name = &self.wide[compared.output].name;
        let number = self.wide.outputs.iter().position(|o| *o == compared.output)?;
        // What is beyond twice the bounds.
        let rest = |bounds: &[f64]| {
            let mut left = compared.found.clone();
            for ((v, &e), &bound) in left.values.iter_mut().zip(&compared.expected.values).zip(bounds) {
                let apart = *v - e;
                *v = match apart.is_finite() && bound.is_finite() {
                    true => e + (apart.abs() - 2.0 * bound).max(0.0).copysign(apart),
                    false if bound.is_finite() => *v,
                    false => e,
                };
            }
            differs(compared.precision, compared.dtype, name, compared.expected, &left)
        };
        let seen = differs(compared.precision, compared.dtype, name, compared.expected, compared.found)?;
        let written = &forms.first()?.written;
        let (mut all, doubtful) = bounds(self, written, inputs, number, compared.unit, Cut::Whole)?;
        if doubtful || rest(&all).is_none() {
            return Some(Verdict::Sensitive);
        }
        let mut doubtful = false;
        for (form, cut) in forms.iter().flat_map(|f| [(f, Cut::Whole), (f, Cut::Chunks(1)), (f, Cut::Parts(2))]) {
            let Some((own, doubt)) = bounds(self, &form.derived, inputs, number, compared.unit, cut) else { continue };
            all.iter_mut().zip(own).for_each(|(a, b)| *a = a.max(b));
            doubtful |= doubt;
        }
        // Where a condition that only the derived form has hangs on rounding, exact arithmetic has the last word.
        let certified = |d: &&Derivation| matches!(certify(d, &self.bound, 1), Certificate::Certified { .. });
        let explained = rest(&all).is_none() || doubtful && forms.iter().all(certified);
        explained.then_some(Verdict::Unstable(seen))
    }
}
