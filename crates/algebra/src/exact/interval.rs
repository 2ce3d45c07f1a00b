//! Where a real number lies, for certain: between two floats.

use einloom_cascade::{BinaryOp, DType, UnaryOp, numeric};

/// All numbers from `lo` to `hi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub lo: f64,
    pub hi: f64,
}

/// Relative error of a function in f64, some units in the last place more than the libraries have.
const ERROR: f64 = 1.0 / (1u64 << 49) as f64;
/// No function of those whose pieces do not all rise moves faster than this times its argument.
const STEEPEST: f64 = 1.2;

impl Interval {
    /// Nothing is known.
    pub const ENTIRE: Self = Self { lo: f64::NEG_INFINITY, hi: f64::INFINITY };

    /// This number.
    pub fn point(v: f64) -> Self {
        Self { lo: v, hi: v }
    }

    /// Between two ends that were computed in f64 from numbers no larger than `size`, but for that error.
    fn computed(lo: f64, hi: f64, size: f64) -> Self {
        let margin = |v: f64| v.abs().max(size) * ERROR + f64::MIN_POSITIVE;
        let (lo, hi) = (lo - margin(lo), hi + margin(hi));
        if lo.is_nan() || hi.is_nan() { Self::ENTIRE } else { Self { lo, hi } }
    }

    /// A whole number.
    pub fn integer(v: i128) -> Self {
        if v.unsigned_abs() < 1 << 53 { Self::point(v as f64) } else { Self::around(v as f64) }
    }

    /// A number that rounds to this one.
    pub fn around(v: f64) -> Self {
        Self::computed(v, v, 0.0)
    }

    /// Between the extremes of what the ends give.
    fn corners(values: [f64; 4]) -> Self {
        if values.iter().any(|v| v.is_nan()) {
            return Self::ENTIRE;
        }
        let lo = values.iter().fold(f64::INFINITY, |m, &v| m.min(v));
        let hi = values.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(v));
        Self::computed(lo, hi, 0.0)
    }

    fn has_zero(self) -> bool {
        self.lo <= 0.0 && self.hi >= 0.0
    }

    /// A function that rises or falls wherever it is defined, above `above`.
    fn monotone(self, op: UnaryOp, above: f64) -> Self {
        if self.lo <= above {
            return Self::ENTIRE;
        }
        let (a, b) = (op.apply(self.lo), op.apply(self.hi));
        Self::corners([a, b, a, b])
    }

    /// What a function of such a number can be; nothing is known of those that have pieces.
    pub fn unary(self, op: UnaryOp) -> Self {
        use UnaryOp::{Cos, Erf, Exp, Exp2, Gelu, Log, Log1p, Log2, Neg, Rsqrt, Sigmoid, Silu, Sin, Sqrt, Tanh};
        match op {
            Neg => Self { lo: -self.hi, hi: -self.lo },
            Exp | Exp2 | Tanh | Sigmoid | Erf => self.monotone(op, f64::NEG_INFINITY),
            Log | Log2 | Rsqrt | Sqrt => self.monotone(op, 0.0),
            Log1p => self.monotone(op, -1.0),
            Sin | Cos | Silu | Gelu => {
                let (size, width) = (self.lo.abs().max(self.hi.abs()), STEEPEST * (self.hi - self.lo));
                let at = op.apply(self.lo);
                Self::computed(at - width, at + width, size)
            }
            _ => Self::ENTIRE,
        }
    }

    /// What a function of two such numbers can be; nothing is known of comparisons.
    pub fn binary(self, op: BinaryOp, other: Self) -> Self {
        let (a, b) = (self, other);
        let corners =
            || Self::corners([op.apply(a.lo, b.lo), op.apply(a.lo, b.hi), op.apply(a.hi, b.lo), op.apply(a.hi, b.hi)]);
        match op {
            BinaryOp::Add => Self::computed(a.lo + b.lo, a.hi + b.hi, 0.0),
            BinaryOp::Sub => Self::computed(a.lo - b.hi, a.hi - b.lo, 0.0),
            BinaryOp::Mul => corners(),
            BinaryOp::Div if !b.has_zero() => corners(),
            // Of a positive number a power rises or falls with each of the two.
            BinaryOp::Pow if a.lo > 0.0 => corners(),
            // And so does a whole power where the number does not change its sign.
            BinaryOp::Pow if b.lo == b.hi && b.lo.fract() == 0.0 && !a.has_zero() => corners(),
            _ => Self::ENTIRE,
        }
    }

    /// What it can be when rounded to a number type.
    pub fn round(self, dtype: DType) -> Self {
        let (lo, hi) = (numeric::round(dtype, self.lo), numeric::round(dtype, self.hi));
        if lo.is_nan() || hi.is_nan() { Self::ENTIRE } else { Self { lo, hi } }
    }

    /// Whether some number lies in both.
    pub fn meets(self, other: Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_a_number_lies_where_it_must() {
        let numbers = [-3.7, -1.0, -0.3, 1e-9, 0.4, 1.0, 2.5, 7.0];
        for x in numbers {
            for op in UnaryOp::NAMED {
                let (found, v) = (Interval::around(x).unary(op), op.apply(x));
                assert!(v.is_nan() || found.lo <= v && v <= found.hi, "{op:?} of {x}: {v}, {found:?}");
            }
            for y in numbers {
                for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Pow] {
                    let (found, v) = (Interval::point(x).binary(op, Interval::point(y)), op.apply(x, y));
                    assert!(v.is_nan() || found.lo <= v && v <= found.hi, "{x} {op:?} {y}: {v}, {found:?}");
                    let narrow = v.is_nan() || found.hi - found.lo <= 1e-12 * (1.0 + v.abs());
                    assert!(narrow || found == Interval::ENTIRE, "{x} {op:?} {y}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_stays_so() {
        let unclear = Interval { lo: -1.0, hi: 1.0 };
        assert_eq!(Interval::point(1.0).binary(BinaryOp::Div, unclear), Interval::ENTIRE);
        assert_eq!(unclear.unary(UnaryOp::Sqrt), Interval::ENTIRE);
        assert_eq!(Interval::ENTIRE.binary(BinaryOp::Sub, Interval::ENTIRE), Interval::ENTIRE);
    }
}
