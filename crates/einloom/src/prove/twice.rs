//! Twice the precision of f64: a number as the sum of two. Source of the exact sums and products: T. J. Dekker, "A
//! Floating-Point Technique for Extending the Available Precision", 1971, and D. Knuth, "The Art of Computer
//! Programming", volume 2, section 4.2.2.

/// `high + low`, where `high` is the sum rounded to f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Twice {
    pub high: f64,
    pub low: f64,
}

/// The logarithm of 2.
pub const LN_2: Twice = Twice { high: std::f64::consts::LN_2, low: 2.319_046_813_846_299_6e-17 };

impl Twice {
    pub fn of(v: f64) -> Self {
        Self { high: v, low: 0.0 }
    }

    /// The sum of two numbers in any order.
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let part = high - a;
        let low = (a - (high - part)) + (b - part);
        Self { high, low: if high.is_finite() { low } else { 0.0 } }
    }

    pub fn add(self, other: Self) -> Self {
        let (s, t) = (Self::sum(self.high, other.high), Self::sum(self.low, other.low));
        let once = Self::sum(s.high, s.low + t.high);
        Self::sum(once.high, once.low + t.low)
    }

    pub fn neg(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }

    pub fn mul(self, other: Self) -> Self {
        let high = self.high * other.high;
        if !high.is_finite() {
            return Self::of(high);
        }
        let low = self.high.mul_add(other.high, -high) + (self.high * other.low + self.low * other.high);
        Self::sum(high, low)
    }

    pub fn div(self, other: Self) -> Self {
        let first = self.high / other.high;
        if !first.is_finite() || first == 0.0 || !other.high.is_finite() {
            return Self::of(first);
        }
        let rest = self.add(other.mul(Self::of(first)).neg());
        let second = rest.high / other.high;
        let rest = rest.add(other.mul(Self::of(second)).neg());
        Self::sum(first, second).add(Self::of(rest.high / other.high))
    }

    /// By a power of two: exact where nothing under- or overflows.
    pub fn scale(self, by: f64) -> Self {
        Self { high: self.high * by, low: self.low * by }
    }

    /// Of a number of ordinary size.
    pub fn sqrt(self) -> Self {
        let root = self.high.sqrt();
        if root == 0.0 || !root.is_finite() {
            return Self::of(root);
        }
        let rest = self.add(Self::of(root).mul(Self::of(root)).neg());
        Self::sum(root, rest.high / (2.0 * root))
    }

    /// `exp` of a number below 1 in magnitude.
    pub fn exp(self) -> Self {
        const HALVINGS: i32 = 8;
        let x = self.scale(2f64.powi(-HALVINGS));
        // exp(x) - 1, which loses nothing when it is squared: (1 + y)² - 1 = 2y + y².
        let mut y = Self::of(0.0);
        for k in (1..=12).rev() {
            y = Self::of(1.0).add(y).mul(x).div(Self::of(f64::from(k)));
        }
        for _ in 0..HALVINGS {
            y = y.scale(2.0).add(y.mul(y));
        }
        Self::of(1.0).add(y)
    }

    /// Of a number in `[1, 2)`.
    pub fn ln(self) -> Self {
        // Newton's method on exp doubles the digits.
        let first = Self::of(self.high.ln());
        let quotient = self.mul(first.neg().exp());
        first.add(quotient.add(Self::of(-1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_inverse_to_thirty_digits() {
        for v in [1.0, 1.1, 1.5, 1.999, 1.000_000_1] {
            let x = Twice::of(v);
            let back = x.ln().exp().add(x.neg());
            assert!(back.high.abs() < 1e-29, "exp(ln {v}) is off by {:e}", back.high);
            let back = x.sqrt().mul(x.sqrt()).add(x.neg());
            assert!(back.high.abs() < 1e-30, "sqrt({v})² is off by {:e}", back.high);
            let third = x.div(Twice::of(3.0));
            assert!(third.add(third).add(third).add(x.neg()).high.abs() < 1e-30);
        }
        let e = Twice::of(0.5).exp();
        let squared = e.mul(e).add(Twice::of(1.0).exp().neg());
        assert!(squared.high.abs() < 1e-30, "exp(1/2)² is off by {:e}", squared.high);
    }

    #[test]
    fn the_logarithm_of_two_has_both_halves() {
        let half = Twice { high: LN_2.high / 2.0, low: LN_2.low / 2.0 }.exp();
        let two = half.mul(half).add(Twice::of(-2.0));
        assert!(two.high.abs() < 1e-30, "exp(ln 2) is off by {:e}", two.high);
    }
}
