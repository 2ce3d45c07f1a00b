//! What computes: pipes with their rates and what an operation costs them.

use crate::{FlopsPerSecond, JoulesPerOperation};
use einloom_cascade::DType;
use std::collections::BTreeMap;

/// A part of the cores that computes while the others do something else.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipe {
    /// What it is called, such as `tensor cores`.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// All cores together, by the number type of the operands; a multiply-add counts as two. At least one; in a
    /// description no two pipes do the same work on the same number type, for only the faster would ever count.
    pub rates: BTreeMap<DType, FlopsPerSecond>,
    /// Energy per operation counted as in `rates`, where it is known.
    pub energy: BTreeMap<DType, JoulesPerOperation>,
}

/// What a pipe does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// Products of matrices.
    Products,
    /// Sums, products and comparisons of elements.
    Arithmetic,
    /// Exponentials, logarithms, reciprocals and roots of elements.
    Special,
    /// Arithmetic of integers, addresses among them.
    Integer,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Products, Self::Arithmetic, Self::Special, Self::Integer];

    /// Its name in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::Arithmetic => "arithmetic",
            Self::Special => "special",
            Self::Integer => "integer",
        }
    }
}

/// The fastest pipe for this work on this number type.
pub(crate) fn fastest(pipes: &[Pipe], work: Work, dtype: DType) -> Option<&Pipe> {
    let rate = |p: &Pipe| p.rates.get(&dtype).map(|r| r.0);
    let able = pipes.iter().filter(|p| p.work == work && p.rates.contains_key(&dtype));
    able.reduce(|a, b| if rate(b) > rate(a) { b } else { a })
}
