//! A product of differences as a polynomial: `f(x, c) = Σ g_k(x)·h_k(c)` with finitely many terms.
//!
//! Every sum that mixes addends `s·u(x)` with addends that do not carry the reduced indices is read as
//! `Σ s_j·(u_j - a_j) + (β + Σ s_j·a_j)`: linear in *centred* variables `u_j - a_j`, whatever the centres `a_j` are,
//! plus an *offset* that does not carry the indices. Products and whole powers of such sums are multiplied out.
//!
//! Condition: what cancels in an element of a sum still does before it is multiplied with anything that cancels like it. A
//! sum `slope·(u - a) + offset` of one variable does, about its mean. One of several functions of the indices, such as
//! `x/c - y/d` or `(x - c)^2 - d`, may be small where its addends are not: it stays at the first power, and alone of its kind,
//! unless none of its addends can be negative.
//!
//! Where a variable is `exp(x - c)`, `exp(-c)` is its slope, and `exp(x)` is taken relative to its running maximum. Condition: it
//! is the only one of its sum. Two of them, each relative to its own, cancel only after they have been squared.

use crate::{Graph, Product, Term, product};
use einloom_cascade::{BinaryOp, UnaryOp};
use std::collections::BTreeSet;

/// Larger polynomials are not made.
const MOST_MONOMIALS: usize = 64;
/// Nor such with more states: one for every choice of powers up to the highest of each variable.
const MOST_STATES: u32 = 32;
/// Powers of numbers from here on easily leave the range of f32, where those of their quotients do not.
pub(super) const FAR_POWER: f64 = 3.0;
/// Nor higher powers.
const HIGHEST_POWER: f64 = 8.0;

/// `β + Σ slope·centre`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offset {
    /// Centred variables with their slopes.
    pub slopes: Vec<(usize, Product)>,
    /// What does not carry the reduced indices.
    pub rest: product::Sum,
}

/// `number · outer · Π offset^k · rest · Π (u - a)^α`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Monomial {
    pub number: f64,
    /// Does not carry the reduced indices.
    pub outer: Product,
    /// A power per offset.
    pub offsets: Vec<u32>,
    /// Carries the reduced indices and waits for nothing.
    pub rest: Product,
    /// A power per centred variable.
    pub powers: Vec<u32>,
}

/// A sum of monomials over centred variables `u`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Polynomial {
    pub variables: Vec<Product>,
    /// Those of them with an exponential that is taken relative to its running maximum.
    pub anchored: BTreeSet<usize>,
    pub offsets: Vec<Offset>,
    pub monomials: Vec<Monomial>,
}

impl Polynomial {
    /// What a variable is divided by or multiplied with, if the polynomial is of a degree that leaves the range of the
    /// numbers: the factors of its slope that read data.
    pub(super) fn scaled(&self, variable: usize) -> Option<Product> {
        let degree = |m: &Monomial| m.powers.iter().sum::<u32>() + m.offsets.iter().sum::<u32>();
        if f64::from(self.monomials.iter().map(degree).max()?) < FAR_POWER {
            return None;
        }
        let slopes = self.offsets.iter().flat_map(|o| &o.slopes).filter(|s| s.0 == variable);
        let scale = |slope: &Product| {
            let factors = slope.factors.iter().filter(|(base, _)| base.any_read(&|_| true));
            Product { factors: factors.cloned().collect(), ..Product::one() }
        };
        slopes.map(|s| scale(&s.1)).find(|d| !d.is_one())
    }

    /// The number of states, at most.
    fn states(&self) -> u32 {
        let highest = |k: usize| self.monomials.iter().map(|m| m.powers[k]).max().unwrap_or(0) + 1;
        let powers = (0..self.variables.len()).map(highest).fold(1, u32::saturating_mul);
        let mut rests: Vec<&Product> = vec![];
        for m in &self.monomials {
            if !rests.iter().any(|r| r.same_as(&m.rest)) {
                rests.push(&m.rest);
            }
        }
        powers.saturating_mul(rests.len().max(1) as u32)
    }
}

/// Why there is no such polynomial.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NotFinite {
    /// This term mixes the indices with what it waits for otherwise than by sums, products and whole powers.
    Mixes(Term),
    /// This addend of an exponent mixes them.
    Exponent(Term),
    /// This power of a mixed sum is no positive whole number, or too high.
    Power(Term, f64),
    /// Multiplied out this sum separates, but what cancels in it no longer does before it is multiplied.
    Cancels { base: Term, exponentials: bool },
    /// There are more monomials than this rule makes.
    Large,
}

impl NotFinite {
    /// The term that mixes the indices with what it waits for, if it is one.
    pub(super) fn culprit(&self) -> Option<&Term> {
        match self {
            Self::Mixes(t) | Self::Exponent(t) | Self::Power(t, _) => Some(t),
            Self::Cancels { .. } | Self::Large => None,
        }
    }
}

/// What the expansion asks about terms.
pub(super) struct Expansion<'a> {
    pub graph: &'a Graph,
    /// Whether a term carries the reduced indices.
    pub carries: &'a dyn Fn(&Term) -> bool,
    /// Whether it needs the complete value of a reduction over them.
    pub waits: &'a dyn Fn(&Term) -> bool,
    /// Whether a sum has, with this factor, the largest or smallest of a product over the elements that are summed.
    pub extremum: &'a dyn Fn(&Product, f64, &product::Sum) -> bool,
}

impl Expansion<'_> {
    /// `Π base^power` as a polynomial.
    pub(super) fn expand(&self, factors: &[(Term, f64)]) -> Result<Polynomial, NotFinite> {
        let mut p = Polynomial::default();
        let linear = matches!(factors, [(_, power)] if *power == 1.0);
        p.monomials = self.factors(factors, linear, &mut p)?;
        for m in &mut p.monomials {
            m.offsets.resize(p.offsets.len(), 0);
            m.powers.resize(p.variables.len(), 0);
        }
        p.monomials = merged(std::mem::take(&mut p.monomials));
        if p.states() > MOST_STATES { Err(NotFinite::Large) } else { Ok(p) }
    }

    fn factors(&self, factors: &[(Term, f64)], linear: bool, p: &mut Polynomial) -> Result<Vec<Monomial>, NotFinite> {
        let mut out = vec![one()];
        let mut cancelling = 0;
        for (base, power) in factors {
            let times = match *power {
                k if k.fract() == 0.0 && (1.0..=HIGHEST_POWER).contains(&k) => k as u32,
                k => return Err(NotFinite::Power(base.clone(), k)),
            };
            let sum = self.sum(base, linear, p)?;
            if !about_one_variable(&sum) && !self.nonnegative(base) {
                cancelling += times;
            }
            if cancelling > 1 {
                return Err(NotFinite::Cancels { base: base.clone(), exponentials: false });
            }
            for _ in 0..times {
                out = multiply(&out, &sum)?;
            }
        }
        Ok(out)
    }

    /// Whether no addend of a sum can be negative: then nothing cancels.
    fn nonnegative(&self, base: &Term) -> bool {
        let mut addends = vec![];
        flat(base, 1.0, &mut addends);
        addends.iter().all(|(sign, t)| *sign > 0.0 && crate::sign::nonnegative(t, self.graph))
    }

    /// A sum that mixes.
    fn sum(&self, base: &Term, alone: bool, p: &mut Polynomial) -> Result<Vec<Monomial>, NotFinite> {
        let mut addends = vec![];
        flat(base, 1.0, &mut addends);
        if addends.len() < 2 {
            return Err(NotFinite::Mixes(base.clone()));
        }
        let mut offset = Offset { slopes: vec![], rest: vec![] };
        let mut linear: Vec<(f64, Product, Product)> = vec![];
        let mut out = vec![];
        let mut shift: Option<Term> = None;
        for (sign, t) in addends {
            let (mut inner, mut outer) = Product::of(t, self.graph).partition(|t| (self.carries)(t));
            let number = sign * std::mem::replace(&mut outer.coefficient, 1.0);
            // exp(x - c) as exp(x)·exp(-c) would overflow: exponentials need an anchor, which each sum of its own has.
            let shifted = outer.exponent.iter().chain(&outer.exponent2).next();
            if !(inner.exponent.is_empty() && inner.exponent2.is_empty()) && shift.is_none() {
                shift = shifted.map(|(_, t)| t.clone());
            }
            let exponents = inner.exponent.iter().chain(&inner.exponent2).map(|(_, t)| t);
            if let Some(mixed) = exponents.clone().find(|t| (self.waits)(t)) {
                return Err(NotFinite::Exponent(mixed.clone()));
            }
            if inner.is_one() {
                product::append(&mut offset.rest, vec![(number, outer.term())], 1.0);
                continue;
            }
            let (mixed, ready): (Vec<_>, Vec<_>) = inner.factors.drain(..).partition(|(t, _)| (self.waits)(t));
            inner.factors = ready;
            if mixed.is_empty() {
                linear.push((number, outer, inner));
                continue;
            }
            let scale = Monomial { number, outer, rest: inner, ..one() };
            out.extend(multiply(&self.factors(&mixed, false, p)?, &[scale])?);
        }
        let waiting = |outer: &Product| (self.waits)(&outer.term());
        let moves =
            linear.iter().any(|(_, outer, _)| waiting(outer)) || offset.rest.iter().any(|(_, t)| (self.waits)(t));
        if let Some(shift) = &shift {
            if alone || !moves || !out.is_empty() {
                return Err(NotFinite::Exponent(shift.clone()));
            }
            if linear.len() != 1 {
                return Err(NotFinite::Cancels { base: base.clone(), exponentials: true });
            }
        }
        if !moves || linear.is_empty() {
            out.extend(linear.into_iter().map(|(number, outer, rest)| Monomial { number, outer, rest, ..one() }));
            out.extend(offset.rest.into_iter().map(|(number, t)| {
                let mut outer = Product::of(&t, self.graph);
                let number = number * std::mem::replace(&mut outer.coefficient, 1.0);
                Monomial { number, outer, ..one() }
            }));
            return Ok(self.collected(out));
        }
        for (number, outer, u) in self.gathered(linear, alone.then_some(&offset.rest)) {
            let variable = place(&mut p.variables, u, |a, b| a.same_as(b));
            if shift.is_some() {
                p.anchored.insert(variable);
            }
            let mut powers = vec![0; variable + 1];
            powers[variable] = 1;
            out.push(Monomial { number, outer: outer.clone(), powers, ..one() });
            offset.slopes.push((variable, Product { coefficient: number, ..outer }));
        }
        let k = place(&mut p.offsets, offset, |a, b| a == b);
        let mut offsets = vec![0; k + 1];
        offsets[k] = 1;
        out.push(Monomial { offsets, ..one() });
        Ok(self.collected(out))
    }

    /// Monomials of one sum that differ only in what does not carry the indices become one: `x·c - x` is `x·(c - 1)`, and
    /// what cancels there cancels before anything is squared.
    fn collected(&self, list: Vec<Monomial>) -> Vec<Monomial> {
        let mut groups: Vec<(Monomial, product::Sum)> = vec![];
        for m in merged(list) {
            let addend = vec![(m.number, m.outer.term())];
            match groups.iter_mut().find(|(o, _)| o.is_over(&m)) {
                Some((_, sum)) => product::append(sum, addend, 1.0),
                None => groups.push((m, addend)),
            }
        }
        let one_of = |(m, sum): (Monomial, product::Sum)| match sum.as_slice() {
            [_] => m,
            _ => Monomial { number: 1.0, outer: Product::of(&product::sum_term(&sum), self.graph), ..m },
        };
        groups.into_iter().map(one_of).collect()
    }

    /// Addends whose slopes wait for nothing are one variable, and where something is squared so are those with equal
    /// slopes: what cancels among them cancels before that. Where nothing is squared, one from which the text subtracts its
    /// own extremum has that for a centre, alone.
    fn gathered(
        &self,
        linear: Vec<(f64, Product, Product)>,
        offset: Option<&product::Sum>,
    ) -> Vec<(f64, Product, Product)> {
        let alone = |(number, outer, u): &(f64, Product, Product)| {
            (self.waits)(&outer.term())
                || outer.is_one() && offset.is_some_and(|rest| (self.extremum)(u, -number, rest))
        };
        let (moving, fixed): (Vec<_>, Vec<_>) = linear.into_iter().partition(alone);
        let mut out: Vec<(f64, Product, Product)> = vec![];
        for (number, outer, u) in moving {
            let equal = |o: &&mut (f64, Product, Product)| offset.is_none() && o.1.same_as(&outer);
            match out.iter_mut().find(equal) {
                Some(same) => {
                    let both = vec![(same.0, same.2.term()), (number, u.term())];
                    (same.0, same.2) = (1.0, Product::of(&product::sum_term(&both), self.graph));
                }
                None => out.push((number, outer, u)),
            }
        }
        if fixed.len() < 2 {
            out.extend(fixed);
            return out;
        }
        let mut sum = vec![];
        for (number, outer, inner) in fixed {
            product::append(&mut sum, vec![(number, outer.times(&inner).term())], 1.0);
        }
        out.push((1.0, Product::one(), Product::of(&product::sum_term(&sum), self.graph)));
        out
    }
}

impl Monomial {
    /// Whether both have the same offsets, variables and other factors that carry the indices.
    fn is_over(&self, other: &Self) -> bool {
        let same = |a: &[u32], b: &[u32]| {
            let at = |list: &[u32], k| list.get(k).copied().unwrap_or(0);
            (0..a.len().max(b.len())).all(|k| at(a, k) == at(b, k))
        };
        same(&self.powers, &other.powers) && same(&self.offsets, &other.offsets) && self.rest.same_as(&other.rest)
    }
}

/// Whether a sum is made of one centred variable and of what does not carry the indices: `slope·(u - a) + offset`.
fn about_one_variable(sum: &[Monomial]) -> bool {
    let mut variable: Option<usize> = None;
    sum.iter().all(|m| {
        let mut powers = m.powers.iter().enumerate().filter(|(_, k)| **k > 0);
        match (powers.next(), powers.next()) {
            (None, _) => m.rest.is_one(),
            (Some((k, 1)), None) => m.rest.is_one() && *variable.get_or_insert(k) == k,
            _ => false,
        }
    })
}

fn one() -> Monomial {
    Monomial { number: 1.0, outer: Product::one(), offsets: vec![], rest: Product::one(), powers: vec![] }
}

/// Where `item` is in the list, added if it is not.
fn place<T>(list: &mut Vec<T>, item: T, same: impl Fn(&T, &T) -> bool) -> usize {
    list.iter().position(|other| same(other, &item)).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// The addends of a sum, with their signs.
pub(super) fn flat<'t>(t: &'t Term, sign: f64, out: &mut Vec<(f64, &'t Term)>) {
    match t {
        Term::Binary(BinaryOp::Add, a, b) => {
            flat(a, sign, out);
            flat(b, sign, out);
        }
        Term::Binary(BinaryOp::Sub, a, b) => {
            flat(a, sign, out);
            flat(b, -sign, out);
        }
        Term::Unary(UnaryOp::Neg, x) => flat(x, -sign, out),
        other => out.push((sign, other)),
    }
}

fn added(a: &[u32], b: &[u32]) -> Vec<u32> {
    let at = |list: &[u32], k| list.get(k).copied().unwrap_or(0);
    (0..a.len().max(b.len())).map(|k| at(a, k) + at(b, k)).collect()
}

fn multiply(a: &[Monomial], b: &[Monomial]) -> Result<Vec<Monomial>, NotFinite> {
    if a.len() * b.len() > MOST_MONOMIALS * MOST_MONOMIALS {
        return Err(NotFinite::Large);
    }
    let mut out = vec![];
    for x in a {
        for y in b {
            out.push(Monomial {
                number: x.number * y.number,
                outer: x.outer.times(&y.outer),
                offsets: added(&x.offsets, &y.offsets),
                rest: x.rest.times(&y.rest),
                powers: added(&x.powers, &y.powers),
            });
        }
    }
    let out = merged(out);
    if out.len() > MOST_MONOMIALS { Err(NotFinite::Large) } else { Ok(out) }
}

/// Equal monomials put together.
fn merged(list: Vec<Monomial>) -> Vec<Monomial> {
    let mut out: Vec<Monomial> = vec![];
    for m in list {
        let same = |o: &&mut Monomial| o.is_over(&m) && o.outer.same_as(&m.outer);
        match out.iter_mut().find(same) {
            Some(o) => o.number += m.number,
            None => out.push(m),
        }
    }
    out.retain(|m| m.number != 0.0);
    out
}
