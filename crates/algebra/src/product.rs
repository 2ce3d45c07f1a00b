//! Scalar terms as products and sums: `coefficient · Π base^power · exp(Σ …) · 2^(Σ …)`.
//!
//! Only identities that hold for all reals on which both sides are defined are used; what needs a sign has the sign
//! as its condition.

use crate::{Graph, Term, sign};
use einloom_cascade::{BinaryOp, UnaryOp};

/// A term as a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The numeric factor.
    pub coefficient: f64,
    /// Bases and powers; equal bases with powers of one sign are merged.
    pub factors: Vec<(Term, f64)>,
    /// The exponent of e, as a sum.
    pub exponent: Sum,
    /// The exponent of 2, as a sum.
    pub exponent2: Sum,
}

/// `Σ coefficient · term`; a constant is a multiple of `Number(1)`.
pub type Sum = Vec<(f64, Term)>;

impl Product {
    /// The empty product.
    pub fn one() -> Self {
        Self { coefficient: 1.0, factors: vec![], exponent: vec![], exponent2: vec![] }
    }

    /// Reads a term as a product.
    pub fn of(term: &Term, graph: &Graph) -> Self {
        let mut p = Self::one();
        p.multiply(term, 1.0, graph);
        p
    }

    fn multiply(&mut self, term: &Term, power: f64, graph: &Graph) {
        match term {
            Term::Number(v) if *v != 0.0 || power > 0.0 => self.coefficient *= v.powf(power),
            Term::Unary(UnaryOp::Neg, x) if power.fract() == 0.0 => {
                self.coefficient *= (-1f64).powf(power);
                self.multiply(x, power, graph);
            }
            Term::Binary(BinaryOp::Mul, a, b) if self.splits(power, [a, b], graph) => {
                self.multiply(a, power, graph);
                self.multiply(b, power, graph);
            }
            Term::Binary(BinaryOp::Div, a, b) if self.splits(power, [a, b], graph) => {
                self.multiply(a, power, graph);
                self.multiply(b, -power, graph);
            }
            // (x²)^½ is |x|, not x.
            Term::Binary(BinaryOp::Pow, a, p)
                if p.as_number()
                    .is_some_and(|p| (p.fract() == 0.0 && power.fract() == 0.0) || sign::nonnegative(a, graph)) =>
            {
                self.multiply(a, power * p.as_number().unwrap_or(1.0), graph);
            }
            // c^x = exp(x·log c)
            Term::Binary(BinaryOp::Pow, a, p)
                if p.as_number().is_none() && !counts(p) && a.as_number().is_some_and(|c| c > 0.0 && c.is_finite()) =>
            {
                let log = Term::Unary(UnaryOp::Log, a.clone());
                append(&mut self.exponent, sum(&Term::Binary(BinaryOp::Mul, p.clone(), Box::new(log))), power);
            }
            Term::Binary(BinaryOp::Pow, a, p) if p.as_number().is_none() && !counts(p) => {
                self.raised(term, power, [a, p], graph);
            }
            Term::Unary(UnaryOp::Sqrt, a) => self.multiply(a, power * 0.5, graph),
            Term::Unary(UnaryOp::Rsqrt, a) => self.multiply(a, power * -0.5, graph),
            Term::Unary(UnaryOp::Exp, a) => append(&mut self.exponent, sum(a), power),
            Term::Unary(UnaryOp::Exp2, a) => append(&mut self.exponent2, sum(a), power),
            // No magnitude is negative, so any power of it is the product of its factors'.
            Term::Unary(UnaryOp::Abs, a) => {
                let inner = Self::of(a, graph);
                self.coefficient *= inner.coefficient.abs().powf(power);
                for (base, p) in inner.factors {
                    let even = (p / 2.0).fract() == 0.0 && power.fract() == 0.0;
                    let base = if sign::nonnegative(&base, graph) || even {
                        base
                    } else {
                        Term::Unary(UnaryOp::Abs, Box::new(base))
                    };
                    self.push(base, p * power);
                }
                append(&mut self.exponent, inner.exponent, power);
                append(&mut self.exponent2, inner.exponent2, power);
            }
            other => self.push(other.clone(), power),
        }
    }

    /// Multiplies with `term`, which is `a^p` for a p that is no number: `(x·y)^p = x^p·y^p` and `exp(x)^p = exp(p·x)` if no
    /// factor of a can be negative.
    fn raised(&mut self, term: &Term, power: f64, [a, p]: [&Term; 2], graph: &Graph) {
        let inner = Self::of(a, graph);
        if inner.coefficient < 0.0 || !inner.factors.iter().all(|(base, _)| sign::nonnegative(base, graph)) {
            return self.push(term.clone(), power);
        }
        let times = |x: Term| Term::Binary(BinaryOp::Mul, Box::new(p.clone()), Box::new(x));
        let to = |base: Term, p: Term| Term::Binary(BinaryOp::Pow, Box::new(base), Box::new(p));
        let mut number = inner.coefficient;
        for (mut base, own) in inner.factors {
            // A number goes with a factor: alone it would be an exponential.
            if number != 1.0 && own == 1.0 {
                base = Term::Binary(BinaryOp::Mul, Box::new(Term::Number(number)), Box::new(base));
                number = 1.0;
            }
            let p = if own.abs() == 1.0 { p.clone() } else { times(Term::Number(own.abs())) };
            self.push(to(base, p), power * own.signum());
        }
        if number != 1.0 {
            self.push(to(Term::Number(number), p.clone()), power);
        }
        for (c, x) in inner.exponent {
            append(&mut self.exponent, sum(&times(x)), c * power);
        }
        for (c, x) in inner.exponent2 {
            append(&mut self.exponent2, sum(&times(x)), c * power);
        }
    }

    /// `(a·b)^p = a^p·b^p` needs an integer power, or factors that are not negative.
    fn splits(&self, power: f64, parts: [&Term; 2], graph: &Graph) -> bool {
        power.fract() == 0.0 || parts.iter().all(|t| sign::nonnegative(t, graph))
    }

    fn push(&mut self, base: Term, power: f64) {
        // x·x⁻¹ is left alone: it is not 1 where x is 0.
        match self.factors.iter_mut().find(|(b, p)| *b == base && (*p > 0.0) == (power > 0.0)) {
            Some((_, p)) => *p += power,
            None => self.factors.push((base, power)),
        }
    }

    /// Splits off the factors for which `test` holds: `(those, the others)`. Exponents split term by term; the
    /// coefficient stays with the others.
    pub fn partition(self, test: impl Fn(&Term) -> bool) -> (Self, Self) {
        let (mut yes, mut no) = (Self::one(), Self::one());
        no.coefficient = self.coefficient;
        (yes.factors, no.factors) = self.factors.into_iter().partition(|(b, _)| test(b));
        (yes.exponent, no.exponent) = self.exponent.into_iter().partition(|(_, t)| test(t));
        (yes.exponent2, no.exponent2) = self.exponent2.into_iter().partition(|(_, t)| test(t));
        (yes, no)
    }

    /// The product of both.
    pub fn times(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.coefficient *= other.coefficient;
        other.factors.iter().for_each(|(base, power)| out.push(base.clone(), *power));
        append(&mut out.exponent, other.exponent.clone(), 1.0);
        append(&mut out.exponent2, other.exponent2.clone(), 1.0);
        out
    }

    /// The factors that `other` does not have, or has to a lower power.
    pub fn without(&self, other: &Self) -> Self {
        let (own, theirs) = (self.coefficient, other.coefficient);
        let coefficient = match own / theirs {
            _ if own == theirs => 1.0,
            ratio if ratio.is_nan() => own,
            ratio => ratio,
        };
        let mut out = Self { coefficient, ..self.clone() };
        for (base, power) in &other.factors {
            // What is used up is of neither sign: x·x⁻¹ without itself is nothing.
            let same = |(b, p): &&mut (Term, f64)| b == base && *p * *power > 0.0;
            if let Some((_, own)) = out.factors.iter_mut().find(same) {
                // Of more than it has it lacks nothing.
                *own = if power.abs() >= own.abs() { 0.0 } else { *own - power };
            }
        }
        out.factors.retain(|(_, p)| *p != 0.0);
        append(&mut out.exponent, other.exponent.clone(), -1.0);
        append(&mut out.exponent2, other.exponent2.clone(), -1.0);
        out
    }

    /// Whether both have the same factors, in whatever order.
    pub fn same_as(&self, other: &Self) -> bool {
        fn permuted<T: PartialEq>(a: &[T], b: &[T]) -> bool {
            a.len() == b.len() && a.iter().all(|x| b.contains(x))
        }
        self.coefficient == other.coefficient
            && permuted(&self.factors, &other.factors)
            && permuted(&self.exponent, &other.exponent)
            && permuted(&self.exponent2, &other.exponent2)
    }

    /// Whether no factor can be negative.
    pub fn nonnegative(&self, graph: &Graph) -> bool {
        let factor = |(base, power): &(Term, f64)| (power / 2.0).fract() == 0.0 || sign::nonnegative(base, graph);
        self.coefficient >= 0.0 && self.factors.iter().all(factor)
    }

    /// Whether it is the number 1.
    pub fn is_one(&self) -> bool {
        self.coefficient == 1.0 && self.factors.is_empty() && self.exponent.is_empty() && self.exponent2.is_empty()
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        self.factors.is_empty() && self.exponent.is_empty() && self.exponent2.is_empty()
    }

    /// The product as a term: exponentials first, then what multiplies, then what divides.
    pub fn term(&self) -> Term {
        let mut over: Option<Term> = None;
        let mut under: Option<Term> = None;
        let times = |t: Option<Term>, f: Term| {
            Some(match t {
                None => f,
                Some(t) => Term::Binary(BinaryOp::Mul, Box::new(t), Box::new(f)),
            })
        };
        let negative = self.coefficient < 0.0;
        if self.coefficient.abs() != 1.0 {
            over = times(over, Term::Number(self.coefficient.abs()));
        }
        for (op, exponent) in [(UnaryOp::Exp, &self.exponent), (UnaryOp::Exp2, &self.exponent2)] {
            if !exponent.is_empty() {
                over = times(over, Term::Unary(op, Box::new(sum_term(exponent))));
            }
        }
        for (base, power) in &self.factors {
            // A reciprocal root of data computes best as itself.
            if *power == -0.5 && !sign::positive_constant(base) {
                over = times(over, Term::Unary(UnaryOp::Rsqrt, Box::new(base.clone())));
            } else if *power > 0.0 {
                over = times(over, raise(base, *power));
            } else {
                under = times(under, raise(base, -power));
            }
        }
        let over = match (over, negative) {
            (None, false) => Term::Number(1.0),
            (None, true) => Term::Number(-1.0),
            (Some(t), false) => t,
            (Some(t), true) => Term::Unary(UnaryOp::Neg, Box::new(t)),
        };
        match under {
            None => over,
            Some(u) => Term::Binary(BinaryOp::Div, Box::new(over), Box::new(u)),
        }
    }
}

/// Whether an exponent counts positions. A power of a distance stays whole: those of its base's factors may overflow where it
/// does not.
fn counts(exponent: &Term) -> bool {
    let mut found = false;
    exponent.visit(&mut |t| found |= matches!(t, Term::Position(_)));
    found
}

fn raise(base: &Term, power: f64) -> Term {
    if power == 1.0 {
        base.clone()
    } else if power == 0.5 || power == 0.25 {
        Term::Unary(UnaryOp::Sqrt, Box::new(raise(base, 2.0 * power)))
    } else {
        Term::Binary(BinaryOp::Pow, Box::new(base.clone()), Box::new(Term::Number(power)))
    }
}

/// More products of sums than this are left as they stand.
const MAX_EXPANSION: usize = 16;

/// Reads a term as a sum; products with sums are expanded.
pub fn sum(term: &Term) -> Sum {
    let one = || Term::Number(1.0);
    match term {
        Term::Number(v) => vec![(*v, one())],
        Term::Unary(UnaryOp::Neg, x) => sum(x).into_iter().map(|(c, t)| (-c, t)).collect(),
        Term::Binary(BinaryOp::Add, a, b) => {
            let mut out = sum(a);
            append(&mut out, sum(b), 1.0);
            out
        }
        Term::Binary(BinaryOp::Sub, a, b) => {
            let mut out = sum(a);
            append(&mut out, sum(b), -1.0);
            out
        }
        Term::Binary(BinaryOp::Mul, a, b) => {
            let (a, b) = (sum(a), sum(b));
            if a.len() * b.len() > MAX_EXPANSION {
                return vec![(1.0, term.clone())];
            }
            let mut out = vec![];
            for (ca, ta) in &a {
                for (cb, tb) in &b {
                    append(&mut out, vec![(ca * cb, product_term(ta, tb))], 1.0);
                }
            }
            out
        }
        Term::Binary(BinaryOp::Div, a, b) => match b.as_number() {
            Some(v) if v != 0.0 => sum(a).into_iter().map(|(c, t)| (c / v, t)).collect(),
            _ => sum(a).into_iter().map(|(c, t)| (c, Term::Binary(BinaryOp::Div, Box::new(t), b.clone()))).collect(),
        },
        other => vec![(1.0, other.clone())],
    }
}

fn product_term(a: &Term, b: &Term) -> Term {
    match (a, b) {
        (Term::Number(1.0), t) | (t, Term::Number(1.0)) => t.clone(),
        _ => Term::Binary(BinaryOp::Mul, Box::new(a.clone()), Box::new(b.clone())),
    }
}

/// Adds `scale · more`, merging equal terms.
pub fn append(into: &mut Sum, more: Sum, scale: f64) {
    for (c, t) in more {
        match into.iter_mut().find(|(_, other)| *other == t) {
            Some((total, _)) => *total += c * scale,
            None => into.push((c * scale, t)),
        }
    }
    into.retain(|(c, _)| *c != 0.0);
}

/// A sum as a term: what adds first, then what subtracts.
pub fn sum_term(sum: &Sum) -> Term {
    let scaled = |c: f64, t: &Term| match t {
        Term::Number(v) => Term::Number(c * v),
        t if c == 1.0 => t.clone(),
        t => Term::Binary(BinaryOp::Mul, Box::new(Term::Number(c)), Box::new(t.clone())),
    };
    let mut out: Option<Term> = None;
    for (c, t) in sum.iter().filter(|(c, _)| *c > 0.0) {
        let t = scaled(*c, t);
        out = Some(match out {
            None => t,
            Some(o) => Term::Binary(BinaryOp::Add, Box::new(o), Box::new(t)),
        });
    }
    for (c, t) in sum.iter().filter(|(c, _)| *c <= 0.0) {
        let t = scaled(-c, t);
        out = Some(match out {
            None => Term::Unary(UnaryOp::Neg, Box::new(t)),
            Some(o) => Term::Binary(BinaryOp::Sub, Box::new(o), Box::new(t)),
        });
    }
    out.unwrap_or(Term::Number(0.0))
}

#[cfg(test)]
mod tests {
    use super::Product;
    use crate::Term;

    /// `x^powers`, each a factor of its own.
    fn powers(powers: &[f64]) -> Product {
        let x = Term::Unary(einloom_cascade::UnaryOp::Log, Box::new(Term::Number(3.0)));
        Product { factors: powers.iter().map(|&p| (x.clone(), p)).collect(), ..Product::one() }
    }

    #[test]
    fn what_a_product_lacks_of_another_keeps_its_sign() {
        // [of this, without that, is this]
        let cases: [[&[f64]; 3]; 6] = [
            [&[1.0, -1.0], &[1.0, -1.0], &[]],
            [&[1.0, -2.0], &[1.0, -1.0], &[-1.0]],
            [&[1.0], &[2.0], &[]],
            [&[2.0, -1.0], &[1.0], &[1.0, -1.0]],
            [&[-1.0], &[1.0], &[-1.0]],
            [&[-1.0], &[-3.0, 1.0], &[]],
        ];
        for [of, without, is] in cases {
            assert_eq!(powers(of).without(&powers(without)), powers(is), "{of:?} {without:?}");
        }
    }
}
