//! Numbers that know how far they may be off.
//!
//! Beside each value over [`Wide`] numbers stands a bound on its error, to first order and a little more: what the operands may
//! be off by, times how steep the operation is there, and what it rounds itself. Where large numbers cancel, what is left keeps the
//! error of the large ones, however small it is, also if it is 0: `log(sum exp(x)) - max x` is off by the last digits of `max x`.
//!
//! A condition, a sign or a whole number below is taken for exact: what jumps is for others to excuse.

use einloom::prove::wide::{Range, Wide};
use einloom_algebra::NodeId;
use einloom_algebra::stream::{Domain, combine};
use einloom_cascade::{BinaryOp, DType, Monoid, ParamId, UnaryOp};

/// log2 of what one sum, product or quotient may round, in parts of the result: these numbers have 104 bits, and both forms round.
const ROUNDS: f64 = -98.0;
/// The same of functions, which are sums of a few terms.
const FUNCTIONS: f64 = -92.0;
/// The same of functions that are those of f64 beside their slope, in parts of the argument.
const ALONG: f64 = -80.0;
/// log2 of an error of nothing.
const EXACT: f64 = f64::NEG_INFINITY;

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    value: Wide,
    /// log2 of the most that it may be off by.
    off: f64,
}

impl Bounded {
    fn exact(value: Wide) -> Self {
        Self { value, off: EXACT }
    }

    fn new(value: Wide, errors: &[f64]) -> Self {
        let off = errors.iter().fold(EXACT, |sum, &e| either(sum, e));
        Self { value, off: if off.is_nan() || value.to_f64().is_nan() { f64::INFINITY } else { off } }
    }

    pub(super) fn value(&self) -> Wide {
        self.value
    }

    /// The most that it may be off by.
    pub(super) fn error(&self) -> f64 {
        self.off.exp2()
    }

    /// Whether it may be 0, or of the other sign, for all that is known.
    fn uncertain(&self, bits: f64) -> bool {
        self.off > EXACT && self.off >= self.value.log2_magnitude() - bits
    }
}

/// log2 of a sum of two numbers, of which the log2 are given.
fn either(a: f64, b: f64) -> f64 {
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if small == EXACT || large == f64::INFINITY {
        large
    } else {
        large + (small - large).exp2().ln_1p() / std::f64::consts::LN_2
    }
}

/// log2 of a product where nothing times anything is nothing.
fn times(a: f64, b: f64) -> f64 {
    if a == EXACT || b == EXACT { EXACT } else { a + b }
}

/// The numbers of a [`Range`] with their errors.
pub(super) struct Propagated<'a>(pub(super) Range<'a>);

impl Propagated<'_> {
    fn exp(&self, op: UnaryOp, x: &Bounded) -> Bounded {
        let value = self.0.unary(op, &x.value);
        let size = value.log2_magnitude();
        // e^t - 1 is at most 2t up to 1.
        let moved = if x.off > 0.0 { f64::INFINITY } else { times(size, x.off + 1.0) };
        let own = either(FUNCTIONS, x.value.log2_magnitude() + ROUNDS);
        Bounded::new(value, &[moved, times(size, own)])
    }

    fn log(&self, op: UnaryOp, x: &Bounded) -> Bounded {
        let value = self.0.unary(op, &x.value);
        let moved = if x.uncertain(1.0) { f64::INFINITY } else { x.off - x.value.log2_magnitude() + 2.0 };
        let own =
            if value.is_plain() || value.to_f64() == 0.0 { value.log2_magnitude().max(0.0) + FUNCTIONS } else { EXACT };
        let exact_argument = x.value.to_f64() == 1.0 && x.off == EXACT;
        Bounded::new(value, &[if x.off == EXACT { EXACT } else { moved }, if exact_argument { EXACT } else { own }])
    }

    fn add(&self, a: &Bounded, b: &Bounded, value: Wide) -> Bounded {
        let own = match a.value.adds_exactly(b.value) {
            true => EXACT,
            false => a.value.log2_magnitude().max(b.value.log2_magnitude()) + ROUNDS,
        };
        Bounded::new(value, &[a.off, b.off, own])
    }

    fn mul(&self, a: &Bounded, b: &Bounded, value: Wide) -> Bounded {
        let [la, lb] = [a, b].map(|v| v.value.log2_magnitude());
        Bounded::new(value, &[times(la, b.off), times(lb, a.off), times(a.off, b.off), value.log2_magnitude() + ROUNDS])
    }

    fn div(&self, a: &Bounded, b: &Bounded, value: Wide) -> Bounded {
        if b.uncertain(1.0) {
            return Bounded { value, off: f64::INFINITY };
        }
        let (size, by) = (value.log2_magnitude(), b.value.log2_magnitude());
        let moved = either(a.off, times(size, b.off));
        Bounded::new(value, &[times(moved, 1.0 - by), size + ROUNDS])
    }
}

impl Domain for Propagated<'_> {
    type Value = Bounded;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Bounded>> {
        Some(self.0.input(node, count)?.into_iter().map(Bounded::exact).collect())
    }

    fn number(&self, v: f64) -> Bounded {
        Bounded::exact(self.0.number(v))
    }

    fn integer(&self, v: i64) -> Bounded {
        Bounded::exact(self.0.integer(v))
    }

    fn param(&self, p: ParamId) -> Bounded {
        Bounded::exact(self.0.param(p))
    }

    fn unary(&self, op: UnaryOp, x: &Bounded) -> Bounded {
        let one = Bounded::exact(Wide::of(1.0));
        match op {
            UnaryOp::Exp | UnaryOp::Exp2 => self.exp(op, x),
            UnaryOp::Log | UnaryOp::Log2 => self.log(op, x),
            UnaryOp::Log1p => self.log(UnaryOp::Log, &self.binary(BinaryOp::Add, &one, x)),
            UnaryOp::Rsqrt => self.binary(BinaryOp::Div, &one, &self.unary(UnaryOp::Sqrt, x)),
            UnaryOp::Sigmoid => {
                let lower = self.binary(BinaryOp::Add, &one, &self.exp(UnaryOp::Exp, &self.unary(UnaryOp::Neg, x)));
                self.binary(BinaryOp::Div, &one, &lower)
            }
            UnaryOp::Silu => self.binary(BinaryOp::Mul, x, &self.unary(UnaryOp::Sigmoid, x)),
            UnaryOp::Sqrt => {
                let value = self.0.unary(op, &x.value);
                let size = value.log2_magnitude();
                let moved = if x.uncertain(1.0) { x.off / 2.0 + 1.0 } else { times(x.off, -size) };
                Bounded::new(value, &[moved, size + FUNCTIONS])
            }
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu => Bounded { value: self.0.unary(op, &x.value), off: x.off },
            UnaryOp::Sign | UnaryOp::Not | UnaryOp::Floor | UnaryOp::Round => {
                Bounded::exact(self.0.unary(op, &x.value))
            }
            // None is steeper than 1.2.
            UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Gelu => {
                let own = if x.off == EXACT { EXACT } else { x.value.log2_magnitude() + ALONG };
                Bounded::new(self.0.unary(op, &x.value), &[x.off + 0.3, own])
            }
        }
    }

    fn binary(&self, op: BinaryOp, a: &Bounded, b: &Bounded) -> Bounded {
        let value = self.0.binary(op, &a.value, &b.value);
        match op {
            BinaryOp::Add => self.add(a, b, value),
            BinaryOp::Sub => self.add(a, &Bounded { value: self.0.unary(UnaryOp::Neg, &b.value), off: b.off }, value),
            BinaryOp::Mul => self.mul(a, b, value),
            BinaryOp::Div => self.div(a, b, value),
            BinaryOp::Pow => {
                let p = b.value.to_f64();
                let size = value.log2_magnitude();
                if b.off == EXACT && p.fract() == 0.0 && p.abs() <= 64.0 && !a.uncertain(7.0) {
                    let relative = times(a.off, -a.value.log2_magnitude());
                    return Bounded::new(value, &[times(size, relative + p.abs().log2() + 1.0), size + FUNCTIONS]);
                }
                if a.value.to_f64() > 0.0 && p.is_finite() {
                    let power = self.binary(BinaryOp::Mul, &self.log(UnaryOp::Log, a), b);
                    return Bounded { value, off: self.exp(UnaryOp::Exp, &power).off };
                }
                let known = a.off == EXACT && b.off == EXACT;
                Bounded { value, off: if known { size + FUNCTIONS } else { f64::INFINITY } }
            }
            BinaryOp::Min | BinaryOp::Max => Bounded { value, off: a.off.max(b.off) },
            BinaryOp::Lt | BinaryOp::Gt | BinaryOp::Le | BinaryOp::Ge | BinaryOp::Eq | BinaryOp::Ne => {
                Bounded::exact(value)
            }
            BinaryOp::And | BinaryOp::Or => Bounded::exact(value),
        }
    }

    fn holds(&self, v: &Bounded) -> bool {
        self.0.holds(&v.value)
    }

    fn position(&self, v: &Bounded) -> Option<i64> {
        self.0.position(&v.value)
    }

    fn round(&self, dtype: DType, v: Bounded) -> Bounded {
        // What is rounded to fewer digits jumps.
        Bounded { value: self.0.round(dtype, v.value), off: v.off }
    }

    fn identity(&self, m: Monoid) -> Bounded {
        Bounded::exact(self.0.identity(m))
    }

    fn single(&self, _m: Monoid, v: Bounded) -> Bounded {
        v
    }

    fn combine(&self, m: Monoid, a: &Bounded, b: &Bounded) -> Option<Bounded> {
        combine(self, self.0.graph, m, [a, b])
    }

    fn beats(&self, m: Monoid, a: &Bounded, b: &Bounded) -> bool {
        self.0.beats(m, &a.value, &b.value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;
    use einloom_algebra::flatten;
    use einloom_algebra::stream::{Cut, evaluate_in};
    use einloom_cascade::meaning::{Array, Arrays};

    /// The first element of the output and the most it may be off by.
    fn found(expr: &str, x: &[f64]) -> (f64, f64) {
        let text = format!("input X[n]: f64\noutput Y: f64\nY = {expr}\n");
        let subject = Subject::new(&text, &[("N".to_owned(), x.len())].into()).expect("a program");
        let graph = flatten(&subject.wide);
        let inputs = Arrays::from([("X".to_owned(), Array { shape: vec![x.len()], values: x.to_vec() })]);
        let numbers = Propagated(Range::new(&graph, &subject.bound, &inputs));
        let (_, values) = evaluate_in(&numbers, &graph, &subject.bound, Cut::Whole).expect("values").swap_remove(0);
        (values[0].value().to_f64(), values[0].error())
    }

    #[test]
    fn what_cancels_keeps_the_error_of_what_it_is_left_of() {
        // exp(-99) in truth.
        let (value, error) = found("log(sum(n) exp(X[n])) - max(n) X[n]", &[6491.0, 0.0, 6590.0]);
        assert!((value - (-99f64).exp()).abs() <= error, "{value:e} {error:e}");
        assert!((1e-29..1e-20).contains(&error), "{error:e}");
        // The same of numbers near 1 is known far better, and what is computed without rounding is known.
        let (value, error) = found("log(sum(n) exp(X[n])) - max(n) X[n]", &[1.0, 0.0]);
        assert!((value - 0.313_261_687_518_222_8).abs() < 1e-15 && error < 1e-26, "{value:e} {error:e}");
        assert_eq!(found("sum(n) X[n] - max(n) X[n]", &[3.0, 4.0, -4.0]), (-1.0, 0.0));
    }

    #[test]
    fn errors_grow_with_what_they_are_multiplied_by() {
        let (_, small) = found("sum(n) X[n] / 3", &[1.0]);
        for (expr, by) in [("1e20 * (sum(n) X[n] / 3)", 1e20), ("(sum(n) X[n] / 3) / 1e-20", 1e20)] {
            let (_, error) = found(expr, &[1.0]);
            assert!(error >= by * small && error < 100.0 * by * small, "{expr}: {error:e}");
        }
        // A quotient by what may be 0 may be anything.
        assert_eq!(found("1 / (log(sum(n) exp(X[n])) - max(n) X[n])", &[6590.0, 0.0]).1, f64::INFINITY);
        // Nothing of it is left where a large number is subtracted in the exponent.
        let (_, error) = found("exp((sum(n) X[n] / 3) - 1000)", &[1.0]);
        assert!(error < 1e-300, "{error:e}");
    }
}
