//! What the lower level sees of each axis.

use super::{Poly, Symbol};
use std::collections::BTreeMap;
use std::fmt;

/// What the lower level sees of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A group of so many positions. Groups are independent of each other, unless the axis is summed: then each group
    /// takes over what is accumulated in the upper level and leaves it there.
    Group,
    /// A group of one position.
    Single,
    /// A batch of so many positions at a time, while what is accumulated stays.
    Stream,
}

/// How the axes of a diagram are divided, by the names of the indices. Others are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    parts: BTreeMap<String, Part>,
    /// Streams, outermost first: labels alone do not fix the order of loops.
    order: Vec<String>,
}

impl Partition {
    /// Every axis whole.
    pub fn whole() -> Self {
        Self::default()
    }

    /// With these axes in groups.
    pub fn group(mut self, axes: &[&str]) -> Self {
        self.parts.extend(axes.iter().map(|a| ((*a).to_string(), Part::Group)));
        self
    }

    /// With these axes in groups of one position.
    pub fn single(mut self, axes: &[&str]) -> Self {
        self.parts.extend(axes.iter().map(|a| ((*a).to_string(), Part::Single)));
        self
    }

    /// With one more axis streamed, inside the streams so far.
    pub fn stream(mut self, axis: &str) -> Self {
        self.parts.insert(axis.to_string(), Part::Stream);
        self.order.retain(|a| a != axis);
        self.order.push(axis.to_string());
        self
    }

    /// What the lower level sees of an axis.
    pub fn part(&self, axis: &str) -> Part {
        self.parts.get(axis).copied().unwrap_or_default()
    }

    /// The place of a stream among the streams, 0 being the outermost.
    pub fn depth(&self, axis: &str) -> Option<usize> {
        self.order.iter().position(|a| a == axis).filter(|_| self.part(axis) == Part::Stream)
    }

    /// The streams, outermost first.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str).filter(|a| self.part(a) == Part::Stream)
    }

    /// The axes that are named.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// Positions of an axis that the lower level sees at once.
    pub(crate) fn seen(&self, axis: &str, size: &Poly) -> Poly {
        match self.part(axis) {
            Part::Whole => size.clone(),
            Part::Group => Poly::symbol(Symbol::group(axis)),
            Part::Single => Poly::constant(1.0),
            Part::Stream => Poly::symbol(Symbol::stream(axis)),
        }
    }
}

/// A number of positions that a group or a batch has to be a multiple of, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divisor {
    /// At least 1.
    pub by: u64,
    /// Such as `rows of the matrix unit`.
    pub cause: String,
}

/// All divisors of one axis: their least common multiple counts, and every cause is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divisors(Vec<Divisor>);

impl Divisors {
    /// With one more. A divisor of 0 says nothing.
    pub fn and(mut self, by: u64, cause: impl Into<String>) -> Self {
        if by > 0 {
            self.0.push(Divisor { by, cause: cause.into() });
        }
        self
    }

    /// The least common multiple; `None` if it cannot be counted.
    pub fn multiple(&self) -> Option<u64> {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        self.0.iter().try_fold(1u64, |m, d| (m / gcd(m, d.by)).checked_mul(d.by))
    }

    /// The largest multiple that is at most this, if there is one.
    pub fn at_most(&self, positions: u64) -> Option<u64> {
        let multiple = self.multiple()?;
        Some(positions / multiple * multiple).filter(|&n| n > 0)
    }
}

impl fmt::Display for Divisors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<String> = self.0.iter().map(|d| format!("{} for {}", d.by, d.cause)).collect();
        let multiple = self.multiple().map_or("too much".to_string(), |m| m.to_string());
        write!(f, "{multiple} ({})", causes.join(", "))
    }
}
