//! Sums of products of powers of symbols.

use num_rational::Ratio;
use std::collections::BTreeMap;
use std::fmt;

/// What a symbol stands for. Printed and ordered in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolKind {
    /// The size of a rank.
    Size,
    /// Positions of an axis in one group.
    Group,
    /// Positions of an axis in one batch of a stream.
    Stream,
}

/// A positive quantity without a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    /// What it stands for.
    pub kind: SymbolKind,
    /// The rank's or index's name; groups and streams print as `g_m` and `s_n`.
    pub name: String,
}

impl Symbol {
    /// The size of a rank.
    pub fn size(name: impl Into<String>) -> Self {
        Self { kind: SymbolKind::Size, name: name.into() }
    }

    /// The group of an index.
    pub fn group(name: impl Into<String>) -> Self {
        Self { kind: SymbolKind::Group, name: name.into() }
    }

    /// The batch of an index.
    pub fn stream(name: impl Into<String>) -> Self {
        Self { kind: SymbolKind::Stream, name: name.into() }
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SymbolKind::Size => f.write_str(&self.name),
            SymbolKind::Group => write!(f, "g_{}", self.name),
            SymbolKind::Stream => write!(f, "s_{}", self.name),
        }
    }
}

/// `Π symbol^exponent`; no exponent is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monomial(BTreeMap<Symbol, Ratio<i64>>);

impl Monomial {
    /// The exponent of a symbol.
    pub fn exponent(&self, symbol: &Symbol) -> Ratio<i64> {
        self.0.get(symbol).copied().unwrap_or_default()
    }

    /// The symbols with their exponents.
    pub fn powers(&self) -> impl Iterator<Item = (&Symbol, Ratio<i64>)> {
        self.0.iter().map(|(s, e)| (s, *e))
    }

    /// The product.
    pub fn times(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (symbol, exponent) in &other.0 {
            let e = out.0.entry(symbol.clone()).or_default();
            *e += exponent;
        }
        out.0.retain(|_, e| *e != Ratio::default());
        out
    }

    /// The power.
    pub fn power(&self, exponent: Ratio<i64>) -> Self {
        let mut out = self.clone();
        out.0.values_mut().for_each(|e| *e *= exponent);
        out.0.retain(|_, e| *e != Ratio::default());
        out
    }

    /// The factors whose symbols satisfy `keep`.
    pub fn only(&self, keep: impl Fn(&Symbol) -> bool) -> Self {
        Self(self.0.iter().filter(|(s, _)| keep(s)).map(|(s, e)| (s.clone(), *e)).collect())
    }

    /// The sum of the exponents of sizes: how fast it grows with them.
    pub fn degree(&self) -> Ratio<i64> {
        self.0.iter().filter(|(s, _)| s.kind == SymbolKind::Size).map(|(_, e)| e).sum()
    }

    /// Whether it is that much larger than `other` in sizes alone: their quotient is a product of sizes, at least one.
    fn dominates(&self, other: &Self) -> bool {
        let quotient = self.times(&other.power(Ratio::from(-1)));
        !quotient.0.is_empty() && quotient.0.iter().all(|(s, e)| s.kind == SymbolKind::Size && *e > Ratio::default())
    }

    fn eval(&self, value: &impl Fn(&Symbol) -> f64) -> f64 {
        let power = |(s, e): (&Symbol, &Ratio<i64>)| value(s).powf(*e.numer() as f64 / *e.denom() as f64);
        self.0.iter().map(power).product()
    }

    pub(crate) fn factors(&self) -> (Vec<String>, Vec<String>) {
        let (mut above, mut below) = (vec![], vec![]);
        for (symbol, e) in &self.0 {
            let negative = *e < Ratio::default();
            let magnitude = if negative { -*e } else { *e };
            let text = if magnitude == Ratio::from(1) {
                symbol.to_string()
            } else if magnitude.is_integer() {
                format!("{symbol}^{}", magnitude.numer())
            } else {
                format!("{symbol}^({magnitude})")
            };
            if negative { below.push(text) } else { above.push(text) }
        }
        (above, below)
    }
}

/// `Σ coefficient · monomial`; no coefficient is zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Poly {
    terms: BTreeMap<Monomial, f64>,
}

impl Poly {
    /// A number.
    pub fn constant(value: f64) -> Self {
        Self::from_terms([(Monomial::default(), value)])
    }

    /// A symbol.
    pub fn symbol(symbol: Symbol) -> Self {
        Self::from_terms([(Monomial(BTreeMap::from([(symbol, Ratio::from(1))])), 1.0)])
    }

    /// A sum of terms, equal monomials merged.
    pub fn from_terms(terms: impl IntoIterator<Item = (Monomial, f64)>) -> Self {
        let mut out = Self::default();
        for (monomial, coefficient) in terms {
            *out.terms.entry(monomial).or_insert(0.0) += coefficient;
        }
        out.terms.retain(|_, c| *c != 0.0);
        out
    }

    /// The terms.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, f64)> {
        self.terms.iter().map(|(m, c)| (m, *c))
    }

    /// Whether it has no terms.
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// The only term, if there is one.
    pub fn as_monomial(&self) -> Option<(&Monomial, f64)> {
        let mut terms = self.terms();
        terms.next().filter(|_| self.terms.len() == 1)
    }

    /// The sum.
    pub fn plus(&self, other: &Self) -> Self {
        Self::from_terms(self.terms().chain(other.terms()).map(|(m, c)| (m.clone(), c)))
    }

    /// The product.
    pub fn times(&self, other: &Self) -> Self {
        let all = self.terms().flat_map(|(a, x)| other.terms().map(move |(b, y)| (a.times(b), x * y)));
        Self::from_terms(all)
    }

    /// The quotient by a product of powers.
    pub fn over(&self, divisor: &Monomial) -> Self {
        let inverse = divisor.power(Ratio::from(-1));
        Self::from_terms(self.terms().map(|(m, c)| (m.times(&inverse), c)))
    }

    /// Its value.
    pub fn eval(&self, value: impl Fn(&Symbol) -> f64) -> f64 {
        self.terms.iter().map(|(m, c)| c * m.eval(&value)).sum()
    }

    /// Every symbol it mentions.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.terms.keys().flat_map(|m| m.0.keys())
    }

    /// The terms that satisfy `keep`.
    pub fn only(&self, keep: impl Fn(&Monomial) -> bool) -> Self {
        Self { terms: self.terms.iter().filter(|(m, _)| keep(m)).map(|(m, c)| (m.clone(), *c)).collect() }
    }

    /// Without the terms that another term exceeds by a product of sizes, whatever the groups and streams.
    pub fn leading(&self) -> Self {
        self.only(|m| !self.terms.keys().any(|other| other.dominates(m)))
    }

    /// Whether every term of `other` is in it with at least that coefficient.
    pub fn covers(&self, other: &Self) -> bool {
        other.terms.iter().all(|(m, c)| self.terms.get(m).is_some_and(|own| own >= c))
    }
}

impl fmt::Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // What grows fastest with sizes first; as they are ordered otherwise.
        let mut ordered: Vec<(&Monomial, f64)> = self.terms().collect();
        ordered.sort_by_key(|t| std::cmp::Reverse(t.0.degree()));
        for (k, (monomial, c)) in ordered.into_iter().enumerate() {
            match (k, c < 0.0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let (mut above, below) = monomial.factors();
            let coefficient = number(c.abs());
            if coefficient != "1" || above.is_empty() {
                above.insert(0, coefficient);
            }
            f.write_str(&above.join("·"))?;
            match below.as_slice() {
                [] => {}
                [one] => write!(f, "/{one}")?,
                several => write!(f, "/({})", several.join("·"))?,
            }
        }
        Ok(())
    }
}

/// Whole numbers as such, others to six digits.
pub(crate) fn number(value: f64) -> String {
    let whole = value.round();
    if (value - whole).abs() <= 1e-12 * value.abs() && value.abs() < 1e15 {
        return format!("{whole:.0}");
    }
    format!("{value:.6}").trim_end_matches('0').to_string()
}
