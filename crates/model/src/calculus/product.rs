//! Products of powers of posynomials: what stands before a power of the capacity.

use super::poly::number;
use super::{Monomial, Poly, Symbol};
use num_rational::Ratio;
use std::fmt;

/// `coefficient · Π poly^exponent`. Powers that can be multiplied out are.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    coefficient: f64,
    /// What could be multiplied out.
    plain: Poly,
    /// Sums with exponents that are not small positive whole numbers.
    powers: Vec<(Poly, Ratio<i64>)>,
}

impl Product {
    /// One.
    pub fn one() -> Self {
        Self { coefficient: 1.0, plain: Poly::constant(1.0), powers: vec![] }
    }

    /// A number.
    pub fn number(value: f64) -> Self {
        Self { coefficient: value, ..Self::one() }
    }

    /// A posynomial.
    pub fn of(poly: Poly) -> Self {
        Self::one().times(&poly, Ratio::from(1))
    }

    /// Times a posynomial to a power.
    pub fn times(mut self, poly: &Poly, exponent: Ratio<i64>) -> Self {
        if exponent == Ratio::default() {
            return self;
        }
        if let Some((monomial, c)) = poly.as_monomial() {
            self.coefficient *= c.powf(real(exponent));
            self.plain = self.plain.times(&Poly::from_terms([(monomial.power(exponent), 1.0)]));
            return self;
        }
        // The common factor of a sum leaves the power.
        let common = common_factor(poly);
        self.plain = self.plain.times(&Poly::from_terms([(common.power(exponent), 1.0)]));
        let rest = poly.over(&common);
        let position = self.powers.iter().position(|(p, _)| *p == rest);
        let exponent = match position {
            Some(k) => self.powers.remove(k).1 + exponent,
            None => exponent,
        };
        if exponent.is_integer() && (1..=4).contains(exponent.numer()) && position.is_none() {
            for _ in 0..*exponent.numer() {
                self.plain = self.plain.times(&rest);
            }
        } else if exponent != Ratio::default() {
            self.powers.push((rest, exponent));
        }
        self
    }

    /// Times a number.
    pub fn scaled(mut self, by: f64) -> Self {
        self.coefficient *= by;
        self
    }

    /// Every symbol it mentions.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.plain.symbols().chain(self.powers.iter().flat_map(|(p, _)| p.symbols()))
    }

    /// The power.
    pub fn power(&self, exponent: Ratio<i64>) -> Self {
        let mut out = Self::number(self.coefficient.powf(real(exponent))).times(&self.plain, exponent);
        for (poly, e) in &self.powers {
            out = out.times(poly, *e * exponent);
        }
        out
    }

    /// The product.
    pub fn and(mut self, other: &Self) -> Self {
        self.coefficient *= other.coefficient;
        self = self.times(&other.plain, Ratio::from(1));
        other.powers.iter().fold(self, |product, (poly, e)| product.times(poly, *e))
    }

    /// Its value.
    pub fn eval(&self, value: impl Fn(&Symbol) -> f64) -> f64 {
        let powers: f64 = self.powers.iter().map(|(p, e)| p.eval(&value).powf(real(*e))).product();
        self.coefficient * self.plain.eval(&value) * powers
    }
}

/// The product of powers that divides every term.
fn common_factor(poly: &Poly) -> Monomial {
    let mut terms = poly.terms().map(|t| t.0);
    let Some(first) = terms.next() else { return Monomial::default() };
    let mut least: Vec<(Symbol, Ratio<i64>)> = first.powers().map(|(s, e)| (s.clone(), e)).collect();
    for term in terms {
        least.iter_mut().for_each(|(s, e)| *e = (*e).min(term.exponent(s)));
        // A negative power that the first term lacks divides as well.
        for (s, e) in term.powers().filter(|(_, e)| *e < Ratio::default()) {
            if !least.iter().any(|(own, _)| own == s) {
                least.push((s.clone(), e));
            }
        }
    }
    least.iter().fold(Monomial::default(), |product, (s, e)| {
        let one = Poly::symbol(s.clone());
        let power = one.as_monomial().map(|(m, _)| m.power(*e)).unwrap_or_default();
        product.times(&power)
    })
}

/// As a floating-point number.
pub(crate) fn real(ratio: Ratio<i64>) -> f64 {
    *ratio.numer() as f64 / *ratio.denom() as f64
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Poly::from_terms(self.plain.terms().map(|(m, c)| (m.clone(), c * self.coefficient)));
        let mut parts = vec![];
        if self.powers.is_empty() {
            return plain.fmt(f);
        }
        match plain.as_monomial() {
            Some((m, 1.0)) if *m == Monomial::default() => {}
            Some((m, c)) if *m == Monomial::default() => parts.push(number(c)),
            Some(_) => parts.push(plain.to_string()),
            None => parts.push(format!("({plain})")),
        }
        for (poly, e) in &self.powers {
            parts.push(match (e.is_integer(), *e == Ratio::from(1)) {
                (_, true) => format!("({poly})"),
                (true, _) => format!("({poly})^{}", e.numer()),
                _ => format!("({poly})^({e})"),
            });
        }
        f.write_str(&parts.join("·"))
    }
}
