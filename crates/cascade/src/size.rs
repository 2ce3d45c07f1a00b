//! Sizes: polynomials over the sizes of ranks, kept in one canonical form.

use crate::RankId;
use std::fmt;

/// `Σ coefficient · Π size(rank)`, canonical: terms sorted by their ranks, no zero coefficients.
/// The constant term has no ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeExpr {
    terms: Vec<(Vec<RankId>, i64)>,
}

impl SizeExpr {
    /// A constant.
    pub fn constant(value: i64) -> Self {
        Self { terms: if value == 0 { vec![] } else { vec![(vec![], value)] } }
    }

    /// The size of a rank.
    pub fn rank(rank: RankId) -> Self {
        Self { terms: vec![(vec![rank], 1)] }
    }

    /// The terms: the ranks whose sizes are multiplied (sorted, repeated for powers) and the coefficient.
    pub fn terms(&self) -> &[(Vec<RankId>, i64)] {
        &self.terms
    }

    /// Its value if it does not depend on any rank.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(ranks, c)] if ranks.is_empty() => Some(*c),
            _ => None,
        }
    }

    /// The rank whose size it is, if it is exactly that.
    pub fn as_rank(&self) -> Option<RankId> {
        match self.terms.as_slice() {
            [(ranks, 1)] if ranks.len() == 1 => Some(ranks[0]),
            _ => None,
        }
    }

    /// Every rank it mentions.
    pub fn ranks(&self) -> impl Iterator<Item = RankId> + '_ {
        self.terms.iter().flat_map(|(ranks, _)| ranks.iter().copied())
    }

    /// The sum. Coefficients saturate: a program whose constants leave `i64` is refused when sizes are bound.
    pub fn add(&self, other: &Self) -> Self {
        let mut terms = self.terms.clone();
        terms.extend(other.terms.iter().cloned());
        Self::canonical(terms)
    }

    /// The product with a constant.
    pub fn scale(&self, by: i64) -> Self {
        Self::canonical(self.terms.iter().map(|(r, c)| (r.clone(), c.saturating_mul(by))).collect())
    }

    /// The product.
    pub fn mul(&self, other: &Self) -> Self {
        let mut terms = vec![];
        for (ra, ca) in &self.terms {
            for (rb, cb) in &other.terms {
                let mut ranks: Vec<_> = ra.iter().chain(rb).copied().collect();
                ranks.sort_unstable();
                terms.push((ranks, ca.saturating_mul(*cb)));
            }
        }
        Self::canonical(terms)
    }

    /// Its value, given every rank's size; `None` when it leaves `i64`.
    pub fn eval(&self, size: impl Fn(RankId) -> i64) -> Option<i64> {
        let mut sum = 0i64;
        for (ranks, c) in &self.terms {
            let mut product = *c;
            for &rank in ranks {
                product = product.checked_mul(size(rank))?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// Prints it with the ranks' names, such as `M1*M0 + 1`.
    pub fn display<'a>(&'a self, name: impl Fn(RankId) -> &'a str + 'a) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            if self.terms.is_empty() {
                return write!(f, "0");
            }
            // Constants read best last.
            let ordered =
                self.terms.iter().filter(|t| !t.0.is_empty()).chain(self.terms.iter().filter(|t| t.0.is_empty()));
            for (k, (ranks, c)) in ordered.enumerate() {
                match (k, *c < 0) {
                    (0, true) => write!(f, "-")?,
                    (0, false) => {}
                    (_, true) => write!(f, " - ")?,
                    (_, false) => write!(f, " + ")?,
                }
                let magnitude = c.unsigned_abs();
                if magnitude != 1 || ranks.is_empty() {
                    write!(f, "{magnitude}")?;
                    if !ranks.is_empty() {
                        write!(f, "*")?;
                    }
                }
                for (j, &rank) in ranks.iter().enumerate() {
                    write!(f, "{}{}", if j > 0 { "*" } else { "" }, name(rank))?;
                }
            }
            Ok(())
        })
    }

    fn canonical(mut terms: Vec<(Vec<RankId>, i64)>) -> Self {
        terms.sort_unstable();
        let mut out: Vec<(Vec<RankId>, i64)> = vec![];
        for (ranks, c) in terms {
            match out.last_mut() {
                Some((r, total)) if *r == ranks => *total = total.saturating_add(c),
                _ => out.push((ranks, c)),
            }
        }
        out.retain(|(_, c)| *c != 0);
        Self { terms: out }
    }
}
