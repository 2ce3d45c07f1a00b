//! Numbers with twice the precision of f64 and an exponent that never runs out.
//!
//! A derivation may move a factor past an overflow or an underflow of the text as it is written, and round in other
//! places. Evaluated over these numbers neither side does, so what still differs is wrong, and what does not was a
//! matter of range or of precision alone.

use super::twice::{LN_2, Twice};
use einloom_algebra::stream::{Domain, combine};
use einloom_algebra::{Graph, NodeId};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, DType, Monoid, ParamId, UnaryOp, numeric};
use std::cell::Cell;

/// `mantissa · 2^exponent`. The mantissa is 0, not finite, or in `[1, 2)` with a sign; the first two have exponent 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wide {
    mantissa: Twice,
    exponent: i64,
}

/// Bits of a number that a few roundings leave alone.
const CERTAIN: i64 = 90;
/// Exponents beyond this are as good as infinite: no program of ours means them.
const FARTHEST: i64 = 1 << 50;

impl Wide {
    /// An f64.
    pub fn of(v: f64) -> Self {
        Self::normal(Twice::of(v), 0)
    }

    /// Nearest f64.
    pub fn to_f64(self) -> f64 {
        if !self.is_plain() {
            return self.mantissa.high;
        }
        // In two steps, so that subnormal numbers come out.
        let e = self.exponent.clamp(-2200, 2200) as i32;
        self.mantissa.high * 2f64.powi(e / 2) * 2f64.powi(e - e / 2)
    }

    fn special(high: f64) -> Self {
        Self { mantissa: Twice::of(high), exponent: 0 }
    }

    fn normal(mantissa: Twice, exponent: i64) -> Self {
        if mantissa.high == 0.0 || !mantissa.high.is_finite() {
            return Self::special(mantissa.high);
        }
        // Subnormal mantissas first become normal.
        let (mantissa, exponent) = match mantissa.high.abs() < f64::MIN_POSITIVE {
            true => (mantissa.scale(2f64.powi(200)), exponent - 200),
            false => (mantissa, exponent),
        };
        let e = (mantissa.high.to_bits() >> 52 & 0x7ff) as i64 - 1023;
        let half = (-e / 2) as i32;
        let mantissa = mantissa.scale(2f64.powi(half)).scale(2f64.powi(-e as i32 - half));
        match exponent + e {
            far if far > FARTHEST => Self::special(mantissa.high * f64::INFINITY),
            far if far < -FARTHEST => Self::special(mantissa.high * 0.0),
            exponent => Self { mantissa, exponent },
        }
    }

    /// log2 of its magnitude: of 0 minus infinity, of what is not finite infinity.
    pub fn log2_magnitude(self) -> f64 {
        match self.mantissa.high.abs() {
            0.0 => f64::NEG_INFINITY,
            m if m.is_finite() => m.log2() + self.exponent as f64,
            _ => f64::INFINITY,
        }
    }

    /// Whether a sum rounds nothing: both have no more digits than an f64, and are not too far apart.
    pub fn adds_exactly(self, other: Self) -> bool {
        let short = self.mantissa.low == 0.0 && other.mantissa.low == 0.0;
        short && (!self.is_plain() || !other.is_plain() || (self.exponent - other.exponent).abs() < 240)
    }

    /// Neither 0 nor infinite nor a NaN.
    pub fn is_plain(self) -> bool {
        self.mantissa.high != 0.0 && self.mantissa.high.is_finite()
    }

    fn add(self, other: Self) -> Self {
        if !self.is_plain() || !other.is_plain() {
            // With a zero or something not finite the exponents do not matter, unless the zero is added to a number.
            return match (self.mantissa.high == 0.0, other.mantissa.high == 0.0) {
                (true, _) => other,
                (_, true) => self,
                _ if self.is_plain() => other,
                _ if other.is_plain() => self,
                _ => Self::special(self.mantissa.high + other.mantissa.high),
            };
        }
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let apart = large.exponent - small.exponent;
        if apart > 240 {
            return large;
        }
        Self::normal(large.mantissa.add(small.mantissa.scale(2f64.powi(-apart as i32))), large.exponent)
    }

    fn neg(self) -> Self {
        Self { mantissa: self.mantissa.neg(), ..self }
    }

    fn mul(self, other: Self) -> Self {
        Self::normal(self.mantissa.mul(other.mantissa), self.exponent + other.exponent)
    }

    fn div(self, other: Self) -> Self {
        Self::normal(self.mantissa.div(other.mantissa), self.exponent - other.exponent)
    }

    fn less(self, other: Self) -> bool {
        if !self.is_plain() || !other.is_plain() {
            // The exponent of a zero or an infinity says nothing; the sign does.
            return self.mantissa.high < other.mantissa.high;
        }
        self.add(other.neg()).mantissa.high < 0.0
    }

    fn same(self, other: Self) -> bool {
        self.mantissa == other.mantissa && self.exponent == other.exponent
    }

    /// The whole number below and the rest, of a number of moderate size.
    fn whole(self) -> (i64, Twice) {
        let floor = self.to_f64().floor();
        (floor as i64, self.add(Self::of(-floor)).unscaled())
    }

    /// As a mantissa alone, of a number of moderate size.
    fn unscaled(self) -> Twice {
        self.mantissa.scale(2f64.powi(self.exponent.clamp(-900, 900) as i32))
    }

    /// `2^self`.
    fn exp2(self) -> Self {
        let v = self.to_f64();
        if !v.is_finite() || v.abs() > FARTHEST as f64 {
            return Self::of(v.exp2());
        }
        let (whole, rest) = self.whole();
        Self::normal(rest.mul(LN_2).exp(), whole)
    }

    fn exp(self) -> Self {
        let v = self.to_f64();
        if !v.is_finite() || v.abs() > FARTHEST as f64 / 2.0 {
            return Self::of(v.exp());
        }
        let times = (v / LN_2.high).floor();
        let rest = self.add(Self::of(-times).mul(Self { mantissa: LN_2.scale(2.0), exponent: -1 }));
        Self::normal(rest.unscaled().exp(), times as i64)
    }

    fn ln(self) -> Self {
        if !self.is_plain() || self.mantissa.high < 0.0 {
            return Self::special(self.mantissa.high.ln());
        }
        let powers = Self::of(self.exponent as f64).mul(Self { mantissa: LN_2.scale(2.0), exponent: -1 });
        Self::normal(self.mantissa.ln(), 0).add(powers)
    }

    fn log2(self) -> Self {
        self.ln().div(Self { mantissa: LN_2.scale(2.0), exponent: -1 })
    }

    fn sqrt(self) -> Self {
        let odd = self.exponent.rem_euclid(2);
        Self::normal(self.mantissa.scale(if odd == 1 { 2.0 } else { 1.0 }).sqrt(), (self.exponent - odd) / 2)
    }

    fn sigmoid(self) -> Self {
        Self::of(1.0).div(Self::of(1.0).add(self.neg().exp()))
    }

    fn pow(self, power: Self) -> Self {
        let p = power.to_f64();
        if self.is_plain() && p.fract() == 0.0 && p.abs() <= 64.0 {
            let product = (0..p.abs() as u32).fold(Self::of(1.0), |acc, _| acc.mul(self));
            return if p < 0.0 { Self::of(1.0).div(product) } else { product };
        }
        if self.is_plain() && self.mantissa.high > 0.0 && p.is_finite() {
            return self.ln().mul(power).exp();
        }
        Self::of(self.to_f64().powf(p))
    }

    /// Any other function: that of f64, and along its slope for what f64 does not hold of the argument, so that
    /// arguments that hardly differ give values that hardly differ.
    fn along(self, op: UnaryOp) -> Self {
        let x = self.to_f64();
        let value = op.apply(x);
        let low = self.add(Self::of(-x)).to_f64();
        if low == 0.0 || !value.is_finite() || !low.is_finite() {
            return Self::of(value);
        }
        let step = x.abs().max(1e-8) * 1e-6;
        let slope = (op.apply(x + step) - op.apply(x - step)) / (2.0 * step);
        Self::of(value).add(Self::of(slope * low))
    }
}

/// The domain of [`Wide`] numbers.
pub struct Range<'a> {
    /// The graph that is evaluated.
    pub graph: &'a Graph,
    /// Its sizes and parameters.
    pub bound: &'a Bound,
    /// Its inputs, by name.
    pub inputs: &'a Arrays,
    /// Whether some operation gave a NaN.
    pub met_nan: Cell<bool>,
    /// Whether some input or operation gave an infinity.
    pub met_infinity: Cell<bool>,
    /// Whether an infinity was multiplied or divided.
    pub met_infinite_factor: Cell<bool>,
    /// The largest exponent of any value.
    pub farthest: Cell<i64>,
    /// The smallest.
    pub nearest: Cell<i64>,
    /// Digits that a sum has to lose to be noise: some less than these numbers have, unless set to those of others.
    pub certain: i64,
    /// Whether some sum of two numbers cancelled but for what numbers of so many digits round: it may well be 0.
    pub left_noise: Cell<bool>,
    /// The most that such a sum may be off by.
    pub noise: Cell<f64>,
}

impl<'a> Range<'a> {
    /// Nothing met so far.
    pub fn new(graph: &'a Graph, bound: &'a Bound, inputs: &'a Arrays) -> Self {
        let (met_nan, met_infinity) = (Cell::new(false), Cell::new(false));
        let (met_infinite_factor, left_noise) = (Cell::new(false), Cell::new(false));
        let (farthest, nearest) = (Cell::new(0), Cell::new(0));
        let (certain, noise) = (CERTAIN, Cell::new(0.0));
        Self {
            graph,
            bound,
            inputs,
            met_nan,
            met_infinity,
            met_infinite_factor,
            farthest,
            nearest,
            certain,
            left_noise,
            noise,
        }
    }

    fn noted(&self, v: Wide) -> Wide {
        if v.mantissa.high.is_nan() {
            self.met_nan.set(true);
        }
        if v.mantissa.high.is_infinite() {
            self.met_infinity.set(true);
        }
        self.farthest.set(self.farthest.get().max(v.exponent));
        self.nearest.set(self.nearest.get().min(v.exponent));
        v
    }

    fn sum(&self, a: Wide, b: Wide) -> Wide {
        let sum = a.add(b);
        if a.is_plain() && b.is_plain() && sum.is_plain() && sum.exponent < a.exponent.max(b.exponent) - self.certain {
            self.left_noise.set(true);
            let least = (a.exponent.max(b.exponent) - self.certain).clamp(-1000, 1000);
            self.noise.set(self.noise.get().max(2f64.powi(least as i32)));
        }
        self.noted(sum)
    }

    fn function(&self, op: UnaryOp, x: &Wide) -> Wide {
        let sign = x.mantissa.high;
        match op {
            UnaryOp::Neg => x.neg(),
            UnaryOp::Abs if sign < 0.0 => x.neg(),
            UnaryOp::Abs => *x,
            UnaryOp::Exp => x.exp(),
            UnaryOp::Exp2 => x.exp2(),
            UnaryOp::Log => x.ln(),
            UnaryOp::Log2 => x.log2(),
            UnaryOp::Log1p => Wide::of(1.0).add(*x).ln(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Rsqrt => Wide::of(1.0).div(x.sqrt()),
            UnaryOp::Sigmoid => x.sigmoid(),
            UnaryOp::Silu => x.mul(x.sigmoid()),
            UnaryOp::Sign => Wide::of(UnaryOp::Sign.apply(sign)),
            UnaryOp::Not => Wide::of(UnaryOp::Not.apply(sign)),
            UnaryOp::Relu if sign > 0.0 || sign.is_nan() => *x,
            UnaryOp::Relu => Wide::of(0.0),
            UnaryOp::Floor | UnaryOp::Round if x.exponent > 60 => *x,
            UnaryOp::Floor | UnaryOp::Round => Wide::of(op.apply(x.to_f64())),
            UnaryOp::Gelu if x.exponent > 60 && sign > 0.0 => *x,
            UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Gelu => x.along(op),
        }
    }
}

impl Domain for Range<'_> {
    type Value = Wide;

    fn input(&self, node: NodeId, _count: usize) -> Option<Vec<Wide>> {
        let node = &self.graph[node];
        let given = self.inputs.get(&node.name)?;
        let value = |&v| self.noted(Wide::of(node.dtype.map_or(v, |d| numeric::round(d, v))));
        Some(given.values.iter().map(value).collect())
    }

    fn number(&self, v: f64) -> Wide {
        Wide::of(v)
    }

    fn integer(&self, v: i64) -> Wide {
        Wide::of(v as f64)
    }

    fn param(&self, p: ParamId) -> Wide {
        Wide::of(self.bound.param(p))
    }

    fn unary(&self, op: UnaryOp, x: &Wide) -> Wide {
        self.noted(self.function(op, x))
    }

    fn binary(&self, op: BinaryOp, a: &Wide, b: &Wide) -> Wide {
        let truth = |t: bool| Wide::of(f64::from(t));
        let nan = a.mantissa.high.is_nan() || b.mantissa.high.is_nan();
        let infinite = a.mantissa.high.is_infinite() || b.mantissa.high.is_infinite();
        if infinite && matches!(op, BinaryOp::Mul | BinaryOp::Div) {
            self.met_infinite_factor.set(true);
        }
        match op {
            BinaryOp::Add => self.sum(*a, *b),
            BinaryOp::Sub => self.sum(*a, b.neg()),
            BinaryOp::Mul => self.noted(a.mul(*b)),
            BinaryOp::Div => self.noted(a.div(*b)),
            BinaryOp::Pow => self.noted(a.pow(*b)),
            BinaryOp::Min => {
                if a.mantissa.high.is_nan() || a.less(*b) {
                    *a
                } else {
                    *b
                }
            }
            BinaryOp::Max => {
                if a.mantissa.high.is_nan() || b.less(*a) {
                    *a
                } else {
                    *b
                }
            }
            BinaryOp::Lt => truth(a.less(*b)),
            BinaryOp::Gt => truth(b.less(*a)),
            BinaryOp::Le => truth(!nan && !b.less(*a)),
            BinaryOp::Ge => truth(!nan && !a.less(*b)),
            BinaryOp::Eq => truth(a.same(*b)),
            BinaryOp::Ne => truth(!a.same(*b)),
            BinaryOp::And => truth(a.mantissa.high != 0.0 && b.mantissa.high != 0.0),
            BinaryOp::Or => truth(a.mantissa.high != 0.0 || b.mantissa.high != 0.0),
        }
    }

    fn holds(&self, v: &Wide) -> bool {
        v.mantissa.high != 0.0
    }

    fn position(&self, v: &Wide) -> Option<i64> {
        Some(v.to_f64() as i64)
    }

    fn round(&self, dtype: DType, v: Wide) -> Wide {
        match dtype {
            // What leaves the range of a float is what these numbers are for.
            DType::F64 => v,
            d if d.is_float() && v.is_plain() => {
                Wide::normal(Twice::of(numeric::round(d, v.mantissa.high)), v.exponent)
            }
            d => Wide::of(numeric::round(d, v.to_f64())),
        }
    }

    fn identity(&self, m: Monoid) -> Wide {
        Wide::of(match m {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
            Monoid::ArgMax | Monoid::ArgMin => -1.0,
            Monoid::Custom(id) => self.graph.cascade[id].identity,
        })
    }

    fn single(&self, _m: Monoid, v: Wide) -> Wide {
        v
    }

    fn combine(&self, m: Monoid, a: &Wide, b: &Wide) -> Option<Wide> {
        combine(self, self.graph, m, [a, b])
    }

    fn beats(&self, m: Monoid, a: &Wide, b: &Wide) -> bool {
        if m == Monoid::ArgMax { b.less(*a) } else { a.less(*b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_those_of_f64() {
        for a in [0.0, 1.0, -1.5, 1e-300, 3e200, 5e-324, f64::INFINITY, -7.25] {
            assert_eq!(Wide::of(a).to_f64(), a);
            for b in [0.5, -2.0, 1e-10, 0.0, 3.0] {
                let both = |f: fn(Wide, Wide) -> Wide| f(Wide::of(a), Wide::of(b)).to_f64();
                assert_eq!(both(Wide::add), a + b, "{a} + {b}");
                let (product, quotient) = (both(Wide::mul), both(Wide::div));
                assert!(product == a * b || (product.is_nan() && (a * b).is_nan()), "{a} * {b}");
                assert!(quotient == a / b || (quotient.is_nan() && (a / b).is_nan()), "{a} / {b}");
                assert_eq!(Wide::of(a).less(Wide::of(b)), a < b, "{a} < {b}");
            }
        }
    }

    #[test]
    fn exponentials_neither_overflow_nor_underflow_nor_round() {
        let off = |x: Wide, y: Wide| x.add(y.neg()).div(y).to_f64().abs();
        let ratio = Wide::of(5000.0).exp().div(Wide::of(5001.0).exp());
        assert!(off(ratio, Wide::of(-1.0).exp()) < 1e-26);
        assert!(off(Wide::of(-12345.0).exp().ln(), Wide::of(-12345.0)) < 1e-26);
        assert!(off(Wide::of(-5000.0).exp().sqrt().mul(Wide::of(2500.0).exp()), Wide::of(1.0)) < 1e-26);
        assert!(off(Wide::of(0.3).exp2().mul(Wide::of(0.7).exp2()), Wide::of(2.0)) < 1e-15);
        for x in [0.0, 1.0, -0.7, 3.25, 40.0, -300.0] {
            let (ours, theirs) = (Wide::of(x).exp().to_f64(), x.exp());
            assert!((ours - theirs).abs() <= 4e-16 * theirs, "exp({x}): {ours} {theirs}");
        }
    }
}
