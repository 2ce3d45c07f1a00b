//! A value, seen in every field of the tower at once.

use super::field::{self, COUNT, PRIMES, hash};
use einloom_cascade::BinaryOp;

/// Numerators and denominators from here on are not followed: their products would leave the integers.
const LARGEST_PART: i128 = 1 << 60;

/// The field in which values are compared.
const LAST: usize = COUNT - 1;

/// A value in every field, with what must be known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub fields: [u64; COUNT],
    /// Its value where it is an integer that positions, sizes and literals make.
    pub int: Option<i128>,
    /// Numerator and denominator where it is a quotient of such integers, in lowest terms, and none itself.
    pub part: Option<(i128, i128)>,
    pub special: Special,
    pub degree: Degree,
    /// Its logarithm in every field, where it is an exponential or a product with one.
    pub log: Option<[u64; COUNT]>,
    /// What it is with every `exp(x)` in it replaced by `1 + x·ε`, `ε² = 0`, if that is followed and anything was replaced.
    pub lead: Option<Lead>,
    /// Its square in every field, where it is a root or a product with one.
    pub square: Option<[u64; COUNT]>,
    /// Whether it is the largest of a set, or else the smallest, where it is either.
    pub largest: Option<bool>,
}

/// What leads a value, in every field. Of `count + sum·ε` the quotient is the mean of the exponents of a sum of exponentials, which moves as
/// they do if all are shifted, whatever the order in which they were added; `scale` is what all addends were divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lead {
    pub count: [u64; COUNT],
    pub sum: [u64; COUNT],
    pub scale: [u64; COUNT],
    /// The logarithm of the scale.
    pub log: [u64; COUNT],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Special {
    Finite,
    /// ±infinity.
    Infinite(bool),
    /// Divided by zero, or an infinity met another.
    Undefined,
}

/// The degrees of numerator and denominator of a value as a quotient of polynomials in what is random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Degree {
    pub over: f64,
    pub under: f64,
}

impl Degree {
    /// A constant.
    pub const ZERO: Self = Self { over: 0.0, under: 0.0 };
    /// Something random.
    pub const ONE: Self = Self { over: 1.0, under: 0.0 };

    pub fn plus(self, other: Self) -> Self {
        if self.under == 0.0 && other.under == 0.0 {
            return Self { over: self.over.max(other.over), under: 0.0 };
        }
        let over = (self.over + other.under).max(other.over + self.under);
        Self { over, under: self.under + other.under }
    }

    pub fn times(self, other: Self) -> Self {
        Self { over: self.over + other.over, under: self.under + other.under }
    }

    pub fn inverse(self) -> Self {
        Self { over: self.under, under: self.over }
    }

    pub fn power(self, n: u64) -> Self {
        Self { over: self.over * n as f64, under: self.under * n as f64 }
    }

    /// Of a random function of such a value: something random itself, and different arguments may look equal.
    pub fn of_function(self) -> Self {
        Self { over: 1.0 + self.over + self.under, under: 0.0 }
    }

    /// Of the numerator of the difference of two values: it bounds how often they agree without being equal.
    pub fn of_difference(self, other: Self) -> f64 {
        (self.over + other.under).max(other.over + self.under)
    }
}

impl Value {
    pub fn finite(fields: [u64; COUNT], degree: Degree) -> Self {
        let special = Special::Finite;
        Self { fields, int: None, part: None, special, degree, log: None, lead: None, square: None, largest: None }
    }

    pub fn infinite(positive: bool) -> Self {
        let special = Special::Infinite(positive);
        Self { special, ..Self::finite([u64::from(positive); COUNT], Degree::ZERO) }
    }

    pub fn undefined() -> Self {
        Self { special: Special::Undefined, ..Self::finite([0; COUNT], Degree::ZERO) }
    }

    pub fn integer(v: i128) -> Self {
        let fields = match u64::try_from(v) {
            Ok(v) if v < PRIMES[0] => [v; COUNT],
            _ => PRIMES.map(|m| v.rem_euclid(i128::from(m)) as u64),
        };
        Self { int: Some(v), ..Self::finite(fields, Degree::ZERO) }
    }

    /// The value as a quotient of integers that are known.
    pub fn quotient(&self) -> Option<(i128, i128)> {
        self.int.map(|v| (v, 1)).or(self.part)
    }

    /// It with what is known of it as a quotient.
    pub fn with_quotient(self, quotient: Option<(i128, i128)>) -> Self {
        let lowest = quotient.and_then(|(over, under)| {
            let divisor = divisor(over.unsigned_abs(), under.unsigned_abs()) as i128;
            let (over, under) = (over / divisor * under.signum(), under.abs() / divisor);
            (over.abs() < LARGEST_PART && under < LARGEST_PART).then_some((over, under))
        });
        let int = lowest.filter(|q| q.1 == 1).map(|q| q.0);
        Self { int, part: lowest.filter(|q| q.1 != 1), ..self }
    }

    /// What two values make of each other, known as a quotient where both are; integers that make one know it already.
    pub fn known_as(self, op: BinaryOp, a: &Self, b: &Self) -> Self {
        let (Some((x, under)), Some((y, other))) = (a.quotient(), b.quotient()) else { return self };
        if self.int.is_some() || self.special != Special::Finite || [x, y].iter().any(|v| v.abs() >= LARGEST_PART) {
            return self;
        }
        self.with_quotient(match op {
            BinaryOp::Add => (x * other).checked_add(y * under).zip(Some(under * other)),
            BinaryOp::Sub => (x * other).checked_sub(y * under).zip(Some(under * other)),
            BinaryOp::Mul => Some((x * y, under * other)),
            BinaryOp::Div => Some((x * other, under * y)).filter(|q| q.1 != 0),
            _ => None,
        })
    }

    /// The value in the field where values are compared.
    pub fn last(&self) -> u64 {
        self.fields[LAST]
    }

    /// In every field `f` of the value there and of the field's number.
    pub fn in_fields(&self, f: impl Fn(u64, usize) -> u64) -> [u64; COUNT] {
        std::array::from_fn(|k| f(self.fields[k], k))
    }

    /// Its reciprocal in every field; `None` if it is 0 in one of them.
    pub fn reciprocal(&self) -> Option<[u64; COUNT]> {
        let mut out = [0; COUNT];
        for (k, out) in out.iter_mut().enumerate() {
            *out = field::invert(self.fields[k], k)?;
        }
        Some(out)
    }

    /// Equal as values; what the written form leaves undefined may be anything.
    pub fn agrees(&self, other: &Self) -> bool {
        self.special == Special::Undefined || (self.special == other.special && self.last() == other.last())
    }

    pub fn special_code(&self) -> u64 {
        match self.special {
            Special::Finite => 0,
            Special::Infinite(s) => 1 + u64::from(s),
            Special::Undefined => 3,
        }
    }

    /// Some total order of values, for what has no order in a field.
    pub fn order(&self) -> u64 {
        hash(&[self.last(), self.special_code()])
    }
}

/// The greatest common divisor of two numbers, of which the second is not 0.
fn divisor(a: u128, b: u128) -> u128 {
    if a == 0 { b } else { divisor(b % a, a) }
}
