//! A step as `rho·h + Σ u`, or as `max(h + rho, u, …)`.

use super::{Why, extrema};
use crate::derive::reassociate::Body;
use crate::derive::{filter, guard, reassociate};
use crate::product::{self, Sum};
use crate::{Def, Graph, NodeId, Product, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, UnaryOp};
use std::collections::BTreeSet;

/// What is added at a step: under these conditions, this.
#[derive(Clone, Debug)]
pub(super) struct Summand {
    pub body: Product,
    pub conditions: Vec<Term>,
}

/// A state whose steps are affine, element by element: over sum and product, or over an extremum and sum, where the decay is what is added.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub state: NodeId,
    /// What is taken of the slice and the summands: their sum or an extremum.
    pub over: Monoid,
    /// The part of rho that is the same at every step; nothing if that is 1 (0 where it is added).
    pub constant: Option<Term>,
    /// The exponent of e in the part that is not; where it is added, that part.
    pub exponent: Sum,
    /// The factors of the part that is not; nothing if there are none.
    pub factor: Option<Term>,
    pub summands: Vec<Summand>,
}

impl Affine {
    /// Reads the step as `rho·h + Σ u`, or as an extremum.
    pub fn of(graph: &Graph, t: IndexId, state: NodeId, states: &[NodeId]) -> Result<Self, Why> {
        let name = &graph[state].name;
        let not = |t: &Term| {
            if let Some(slice) = earlier(graph, t, state, states) {
                let reason = format!(
                    "a step of {name} reads {slice} besides its slice before, so steps multiply all that is kept with a matrix"
                );
                let hint = "such steps compose only as products of matrices, which cost more than the steps; steps that read nothing but their own slice before would compose";
                return (reason, Some(hint.to_string()));
            }
            let reason = format!("{} is no product with the slice of {name} before", show::term(graph, t));
            (reason, Some(format!("steps a·{name} + b, where neither a nor b reads a state, would do")))
        };
        let Def::Iterative { step, .. } = &graph[state].def else {
            return Err((format!("{name} has no steps"), Some("a statement for the slice at t + 1 gives them".into())));
        };
        if let Some(found) = extrema::of(graph, t, state, states, step) {
            return found;
        }
        let itself = graph.read(state);
        let any = |t: &Term| t.any_read(&|n| states.contains(&n));
        let mut rho: Vec<(f64, Term)> = vec![];
        let mut summands = vec![];
        let mut todo = vec![];
        addends(step, 1.0, &[], &any, &mut todo);
        todo.reverse();
        while let Some(Addend { sign, term, branches, whole }) = todo.pop() {
            if !any(&term) {
                summands.push(Summand::of(graph, t, Monoid::Sum, sign, &under(&branches, term, 0.0)));
                continue;
            }
            let mut p = Product::of(&term, graph);
            let place = p.factors.iter().position(|(f, power)| *f == itself && *power == 1.0);
            if let Some(place) = place {
                p.factors.remove(place);
                let rest = p.term();
                if any(&rest) {
                    return Err(not(&term));
                }
                rho.push((sign, under(&branches, rest, 0.0)));
            } else if whole {
                let expanded = product::sum(&term);
                if expanded.len() < 2 {
                    return Err(not(&term));
                }
                let part = |(c, term)| Addend { sign: c * sign, term, branches: branches.clone(), whole: false };
                todo.extend(expanded.into_iter().rev().map(part));
            } else {
                return Err(not(&term));
            }
        }
        let mut out = Self { state, over: Monoid::Sum, constant: None, exponent: vec![], factor: None, summands };
        let rho = match rho.as_slice() {
            // Nothing of the slice before is kept: that is no recurrence.
            [] => return Err(not(step)),
            [(sign, one)] => {
                Product::of(&Term::Binary(BinaryOp::Mul, Box::new(Term::Number(*sign)), Box::new(one.clone())), graph)
            }
            several => Product::of(&product::sum_term(&several.to_vec()), graph),
        };
        out.split(graph, t, rho);
        Ok(out)
    }

    /// Takes the decay apart.
    fn split(&mut self, graph: &Graph, t: IndexId, rho: Product) {
        let moves = |x: &Term| x.mentions(&[t]);
        let mut body = Body::of_product(rho, graph);
        let (mut varying, constant): (Vec<_>, Vec<_>) = body.factors.drain(..).partition(|(x, _)| moves(x));
        varying.retain(|f| match exponent_or_nothing(f) {
            Some(exponent) => {
                self.exponent.push((1.0, exponent));
                false
            }
            None => true,
        });
        body.factors = constant;
        let mut rest = Product::one();
        rest.factors = varying;
        let mut weights = vec![];
        for mut w in body.weights.drain(..) {
            let (mut varying, mut constant): (Sum, Sum) = w.exponent.iter().cloned().partition(|(_, x)| moves(x));
            // Relative to a maximum only both together are known to be at most 1.
            let falls = |sum: &Sum| {
                let finite = sum.iter().map(|(c, x)| (*c, guard::as_if_finite(x))).collect();
                w.at_most_one(&finite, graph)
            };
            if w.base == reassociate::Base::E && !varying.is_empty() && !falls(&varying) && falls(&w.exponent) {
                varying = w.exponent.clone();
                constant.clear();
            }
            match &w.base {
                reassociate::Base::E => product::append(&mut self.exponent, varying, 1.0),
                reassociate::Base::Two => product::append(&mut self.exponent, varying, std::f64::consts::LN_2),
                reassociate::Base::Of(b) if moves(b) => {
                    rest.factors.extend(w.power(&w.exponent).map(|x| (x, 1.0)));
                    continue;
                }
                reassociate::Base::Of(_) => rest.factors.extend(w.power(&varying).map(|x| (x, 1.0))),
            }
            w.exponent = constant;
            weights.push(w);
        }
        body.weights = weights;
        let constant = body.term();
        self.constant = (constant != Term::Number(1.0)).then_some(constant);
        self.factor = (!rest.factors.is_empty()).then(|| rest.term());
    }

    /// `term` after a stretch that decays so.
    pub fn decayed(&self, decay: Option<Term>, term: Term) -> Term {
        match (self.over, decay) {
            (Monoid::Sum, decay) => super::times(decay, term),
            (_, None) => term,
            (_, Some(added)) => Term::Binary(BinaryOp::Add, Box::new(term), Box::new(added)),
        }
    }

    /// Whether nothing happens to the slice before.
    pub fn is_bare(&self) -> bool {
        self.constant.is_none() && self.exponent.is_empty() && self.factor.is_none()
    }

    /// Whether the decay depends on an index.
    pub fn decay_carries(&self, i: IndexId) -> bool {
        let mut terms = self.constant.iter().chain(&self.factor).chain(self.exponent.iter().map(|(_, t)| t));
        terms.any(|t| t.mentions(&[i]))
    }

    /// The decay as it is written, for people.
    pub fn shown(&self, graph: &Graph) -> String {
        if self.over != Monoid::Sum {
            let all = self.constant.iter().map(|c| (1.0, c.clone())).chain(self.exponent.iter().cloned());
            return show::term(graph, &product::sum_term(&all.collect()));
        }
        let mut p = Product::one();
        p.exponent = self.exponent.clone();
        p.factors = self.constant.iter().chain(&self.factor).map(|t| (t.clone(), 1.0)).collect();
        show::term(graph, &p.term())
    }
}

impl Summand {
    pub fn of(graph: &Graph, t: IndexId, monoid: Monoid, sign: f64, addend: &Term) -> Self {
        let neutral = if monoid == Monoid::Sum { 0.0 } else { extrema::neutral(monoid) };
        let r = crate::Reduction {
            monoid,
            over: vec![t],
            filter: vec![],
            body: if sign < 0.0 { Term::Unary(UnaryOp::Neg, Box::new(addend.clone())) } else { addend.clone() },
            streaming: crate::Streaming::default(),
        };
        let (body, conditions) = filter::stripped(graph, &r, neutral);
        let mut body = Product::of(&body, graph);
        body.coefficient *= sign.abs();
        Self { body, conditions }
    }

    /// What is added at position `n`, and under which conditions.
    pub fn at(&self, t: IndexId, n: IndexId) -> Result<(Term, Vec<Term>), Why> {
        let body = moved(&self.body.term(), t, n)?;
        let filter = self.conditions.iter().map(|c| moved(c, t, n)).collect::<Result<_, _>>()?;
        Ok((body, filter))
    }

    /// Its factors at position `n`: those that carry one of `indices`, and the others with the coefficient.
    pub fn split(&self, t: IndexId, n: IndexId, indices: &[IndexId]) -> Result<(Product, Product), Why> {
        let (mut left, mut right) = self.body.clone().partition(|x| x.mentions(indices));
        // What is subtracted in an exponent stays with what it is subtracted from: `exp(x - max x)` is no `exp(x)`.
        for (own, other) in [(&mut left.exponent, &mut right.exponent), (&mut left.exponent2, &mut right.exponent2)] {
            let mut carried = BTreeSet::new();
            own.iter().for_each(|(_, t)| t.indices(&mut carried));
            let stays = |t: &Term| {
                let mut free = BTreeSet::new();
                t.indices(&mut free);
                !own.is_empty() && free.is_subset(&carried)
            };
            let (with, rest): (Sum, Sum) = std::mem::take(other).into_iter().partition(|(_, t)| stays(t));
            *other = rest;
            own.extend(with);
        }
        for p in [&mut left, &mut right] {
            for f in p.factors.iter_mut().map(|f| &mut f.0) {
                *f = moved(f, t, n)?;
            }
            for e in p.exponent.iter_mut().chain(&mut p.exponent2).map(|e| &mut e.1) {
                *e = moved(e, t, n)?;
            }
        }
        Ok((left, right))
    }
}

/// An addend of a step, under the conditions whose branches it stands in: whether they hold.
struct Addend {
    sign: f64,
    term: Term,
    branches: Vec<(Term, bool)>,
    /// Whether it may be multiplied out.
    whole: bool,
}

/// The addends of a step. `where(c, a, b) = where(c, a, 0) + where(c, 0, b)`, if c does not depend on a state.
fn addends(t: &Term, sign: f64, branches: &[(Term, bool)], any: &dyn Fn(&Term) -> bool, out: &mut Vec<Addend>) {
    match t {
        Term::Binary(BinaryOp::Add, a, b) => [a, b].into_iter().for_each(|t| addends(t, sign, branches, any, out)),
        Term::Binary(BinaryOp::Sub, a, b) => {
            addends(a, sign, branches, any, out);
            addends(b, -sign, branches, any, out);
        }
        Term::Unary(UnaryOp::Neg, x) => addends(x, -sign, branches, any, out),
        Term::Select(c, a, b) if any(t) && !any(c) => {
            for (branch, holds) in [(a, true), (b, false)] {
                let mut inner = branches.to_vec();
                inner.push(((**c).clone(), holds));
                addends(branch, sign, &inner, any, out);
            }
        }
        Term::Number(0.0) if !branches.is_empty() => {}
        other => out.push(Addend { sign, term: other.clone(), branches: branches.to_vec(), whole: true }),
    }
}

/// What is neutral where another branch is taken.
pub(super) fn under(branches: &[(Term, bool)], term: Term, neutral: f64) -> Term {
    branches.iter().rev().fold(term, |t, (c, holds)| {
        let (c, t, other) = (Box::new(c.clone()), Box::new(t), Box::new(Term::Number(neutral)));
        if *holds { Term::Select(c, t, other) } else { Term::Select(c, other, t) }
    })
}

/// The exponent of a factor that is a power of e, or 1, under a condition, and else 0: such a step forgets what was, and
/// what lies between two positions tells whether one did.
fn exponent_or_nothing((factor, power): &(Term, f64)) -> Option<Term> {
    let Term::Select(c, a, b) = factor else { return None };
    let exponent = |t: &Term| match t {
        Term::Number(1.0) => Some(Term::Number(0.0)),
        Term::Number(0.0) => Some(Term::Number(f64::NEG_INFINITY)),
        Term::Unary(UnaryOp::Exp, x) => Some((**x).clone()),
        _ => None,
    };
    let nothing = [a, b].iter().any(|t| t.as_number() == Some(0.0));
    let select = || Some(Term::Select(c.clone(), Box::new(exponent(a)?), Box::new(exponent(b)?)));
    if nothing && *power == 1.0 { select() } else { None }
}

/// A term at position `n` in place of `t`.
pub(super) fn moved(x: &Term, t: IndexId, n: IndexId) -> Result<Term, Why> {
    x.substitute(&|i| (i == t).then(|| IndexExpr::var(n)))
        .ok_or_else(|| ("a step gathers by its position".to_string(), Some(reassociate::GATHERED.to_string())))
}

/// The indices a product carries.
pub(super) fn indices(p: &Product) -> BTreeSet<IndexId> {
    let mut out = BTreeSet::new();
    p.term().indices(&mut out);
    out
}

/// The slice of another state, or one further back of this one, that a term is a multiple of.
fn earlier(graph: &Graph, t: &Term, state: NodeId, states: &[NodeId]) -> Option<String> {
    let p = Product::of(t, graph);
    let of_state = |t: &Term| t.any_read(&|n| states.contains(&n));
    let mut found = p.factors.iter().filter(|(f, _)| of_state(f));
    let (Some((slice @ Term::Read(n, at), 1.0)), None) = (found.next(), found.next()) else { return None };
    let Def::Iterative { dim, .. } = &graph[*n].def else { return None };
    let back = at.get(*dim)?.as_shifted_var()?.1;
    let own = *n == state && back == 0;
    (back <= 0 && !own).then(|| show::term(graph, slice))
}
