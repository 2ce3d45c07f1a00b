//! A sum's body as factors and *weights*: powers of one base whose exponents add, such as `exp(c[m] - c[n])` or
//! `gamma^(m - n)`.

use crate::product::{self, Sum};
use crate::{Graph, Product, Term, sign, size};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, UnaryOp};

/// What is raised.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::derive) enum Base {
    /// Euler's number.
    E,
    /// Two.
    Two,
    /// A term.
    Of(Term),
}

/// Exponentials of no more than this are far from infinite in every number type in which they are computed.
const MODEST: f64 = 64.0;

/// `base^exponent`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::derive) struct Weight {
    pub base: Base,
    pub exponent: Sum,
}

/// `coefficient · Π base^power · Π weights`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::derive) struct Body {
    pub coefficient: f64,
    pub factors: Vec<(Term, f64)>,
    pub weights: Vec<Weight>,
}

impl Weight {
    /// `base^sum`; nothing where the sum is empty.
    pub fn power(&self, sum: &Sum) -> Option<Term> {
        if sum.is_empty() {
            return None;
        }
        let exponent = Box::new(product::sum_term(sum));
        Some(match &self.base {
            Base::E => Term::Unary(UnaryOp::Exp, exponent),
            Base::Two => Term::Unary(UnaryOp::Exp2, exponent),
            Base::Of(b) if *exponent == Term::Number(1.0) => b.clone(),
            Base::Of(b) => Term::Binary(BinaryOp::Pow, Box::new(b.clone()), exponent),
        })
    }

    /// Whether `base^sum` is at most 1 in size, as far as signs show.
    pub fn at_most_one(&self, sum: &Sum, graph: &Graph) -> bool {
        let rises =
            |c: f64, t: &Term| c >= 0.0 && sign::nonnegative(t, graph) || c <= 0.0 && sign::nonpositive(t, graph);
        match &self.base {
            Base::Of(b) => sum.is_empty() || size::within_one(b, graph) && sum.iter().all(|(c, t)| rises(*c, t)),
            _ => sum.iter().all(|(c, t)| rises(-c, t)) || sign::nonpositive(&product::sum_term(sum), graph),
        }
    }

    /// Whether `base^sum` is a number, or no less than 1 where the base is more than 1: it makes nothing finite that is not.
    pub fn is_harmless(&self, sum: &Sum) -> bool {
        let literal = |(c, t): &(f64, Term)| t.as_number().map(|v| c * v);
        let number = sum.iter().map(literal).sum::<Option<f64>>();
        number.is_some_and(|p| if matches!(self.base, Base::Of(_)) { p >= 0.0 } else { p.abs() <= MODEST })
    }

    /// Whether `base^sum` is finite wherever inputs are, as far as the form shows it.
    pub fn stays_finite(&self, sum: &Sum, graph: &Graph) -> bool {
        // The numbers' sum, if all addends are numbers.
        let number = || sum.iter().map(|(c, t)| t.as_number().map(|v| c * v)).sum::<Option<f64>>();
        match &self.base {
            Base::Of(b) => number().is_some_and(|p| match b.as_number() {
                Some(b) => b.powf(p).abs() <= MODEST.exp(),
                None => p == 1.0 && size::stays_finite(b, graph),
            }),
            _ => {
                let most = |(c, t): &(f64, Term)| match t.as_number() {
                    Some(v) => Some(c * v),
                    None if *c <= 0.0 && sign::nonnegative(t, graph) => Some(0.0),
                    None => size::within_one(t, graph).then_some(c.abs()),
                };
                sum.iter().map(most).sum::<Option<f64>>().is_some_and(|most| most <= MODEST)
            }
        }
    }
}

impl Body {
    /// Reads a term as a product. Powers that are written as separate factors stay separate: each may be taken by
    /// itself, as it is written.
    pub fn of(term: &Term, graph: &Graph) -> Self {
        match term {
            Term::Binary(BinaryOp::Mul, a, b) => Self::of(a, graph).times(Self::of(b, graph)),
            Term::Binary(BinaryOp::Div, a, b) => {
                let one = Box::new(Term::Number(1.0));
                let inverse = Term::Binary(BinaryOp::Div, one, b.clone());
                Self::of(a, graph).times(Self::of_product(Product::of(&inverse, graph), graph))
            }
            Term::Unary(UnaryOp::Neg, x) => {
                let inner = Self::of(x, graph);
                Self { coefficient: -inner.coefficient, ..inner }
            }
            _ => Self::of_product(Product::of(term, graph), graph),
        }
    }

    /// `b^(x + y) = b^x · b^y` holds where b is not negative, or where x and y are integers.
    pub fn of_product(p: Product, graph: &Graph) -> Self {
        let mut out = Self { coefficient: p.coefficient, factors: vec![], weights: vec![] };
        for (base, exponent) in [(Base::E, p.exponent), (Base::Two, p.exponent2)] {
            if !exponent.is_empty() {
                out.weights.push(Weight { base, exponent: canonical(exponent, graph) });
            }
        }
        for (base, power) in p.factors {
            if let Term::Binary(BinaryOp::Pow, b, e) = &base
                && e.as_number().is_none()
            {
                let mut exponent = vec![];
                product::append(&mut exponent, product::sum(e), power);
                let exponent = canonical(exponent, graph);
                if sign::nonnegative(b, graph) || is_integer(&exponent) {
                    out.weights.push(Weight { base: Base::Of((**b).clone()), exponent });
                    continue;
                }
            }
            out.factors.push((base, power));
        }
        out
    }

    /// The product of both.
    pub fn times(mut self, other: Self) -> Self {
        self.coefficient *= other.coefficient;
        self.factors.extend(other.factors);
        self.weights.extend(other.weights);
        self
    }

    /// As a term.
    pub fn term(&self) -> Term {
        let mut p = Product::one();
        p.coefficient = self.coefficient;
        p.factors = self.factors.clone();
        p.factors.extend(self.weights.iter().filter_map(|w| Some((w.power(&w.exponent)?, 1.0))));
        p.term()
    }
}

/// Equal addends written differently become equal: factors in one order, numbers outside.
pub(super) fn canonical(sum: Sum, graph: &Graph) -> Sum {
    let mut out = vec![];
    for (c, t) in sum {
        let mut p = Product::of(&t, graph);
        let scale = c * std::mem::replace(&mut p.coefficient, 1.0);
        p.factors.sort_by_cached_key(|f| format!("{f:?}"));
        product::append(&mut out, vec![(scale, p.term())], 1.0);
    }
    out
}

/// The sum at another position of an index; nothing where that would have to become a gather.
pub(super) fn moved(sum: &Sum, index: IndexId, to: &IndexExpr, graph: &Graph) -> Option<Sum> {
    let mut out = vec![];
    for (c, t) in sum {
        let t = t.substitute(&|i| (i == index).then(|| to.clone()))?;
        product::append(&mut out, product::sum(&t), *c);
    }
    Some(canonical(out, graph))
}

/// Whether the sum is an integer at every position.
fn is_integer(sum: &Sum) -> bool {
    let whole = |t: &Term| match t {
        Term::Position(_) | Term::Size(_) => true,
        Term::Number(v) => v.fract() == 0.0,
        _ => false,
    };
    sum.iter().all(|(c, t)| c.fract() == 0.0 && whole(t))
}
