//! A value, seen in every field of the tower at once.

use super::field::{self, COUNT, PRIMES, hash};

/// The field in which values are compared.
const LAST: usize = COUNT - 1;

/// A value in every field, with what must be known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub fields: [u64; COUNT],
    /// Its value where it is an integer that positions, sizes and literals make.
    pub int: Option<i128>,
    pub special: Special,
    pub degree: Degree,
    /// Its logarithm in every field, where it is an exponential or a product with one.
    pub log: Option<[u64; COUNT]>,
    /// Its square in every field, where it is a root or a product with one.
    pub square: Option<[u64; COUNT]>,
    /// Whether it is the largest of a set, or else the smallest, where it is either.
    pub largest: Option<bool>,
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
        Self { fields, int: None, special: Special::Finite, degree, log: None, square: None, largest: None }
    }

    pub fn infinite(positive: bool) -> Self {
        let special = Special::Infinite(positive);
        Self {
            fields: [u64::from(positive); COUNT],
            int: None,
            special,
            degree: Degree::ZERO,
            log: None,
            square: None,
            largest: None,
        }
    }

    pub fn undefined() -> Self {
        Self {
            fields: [0; COUNT],
            int: None,
            special: Special::Undefined,
            degree: Degree::ZERO,
            log: None,
            square: None,
            largest: None,
        }
    }

    pub fn integer(v: i128) -> Self {
        let fields = match u64::try_from(v) {
            Ok(v) if v < PRIMES[0] => [v; COUNT],
            _ => PRIMES.map(|m| v.rem_euclid(i128::from(m)) as u64),
        };
        Self {
            fields,
            int: Some(v),
            special: Special::Finite,
            degree: Degree::ZERO,
            log: None,
            square: None,
            largest: None,
        }
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
