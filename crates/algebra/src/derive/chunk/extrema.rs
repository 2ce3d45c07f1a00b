//! Steps that are extrema of what is added to the slice before: `h[t+1] = max(h[t] + a_t, b_t)`, which is affine with a maximum for the sum
//! and a sum for the product.
//!
//! Such steps compose, `max(max(h + a, b) + a', b') = max(h + (a + a'), max(b + a', b'))`. What is added over a stretch is summed over its
//! positions, one stretch at a time: nothing is subtracted, so that an addend such as -inf or -1e30, which rules a way out, takes nothing
//! from the stretches beside it.
//!
//! Conditions: one extremum, maximum or minimum, in all of the step; the slice before stands under sums and conditions only, itself not
//! subtracted, and no condition depends on it.

use super::Why;
use super::step::{Affine, Summand, under};
use crate::{Graph, NodeId, Term, product, show};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};

/// One of what the extremum is taken of: these summands, under these conditions.
struct Part {
    /// Whether the slice before is added to them.
    own: bool,
    sum: product::Sum,
    branches: Vec<(Term, bool)>,
}

/// Reads a step as an extremum; nothing if it has none of the slice before.
pub(super) fn of(
    graph: &Graph,
    t: IndexId,
    state: NodeId,
    states: &[NodeId],
    step: &Term,
) -> Option<Result<Affine, Why>> {
    let any = |t: &Term| t.any_read(&|n| states.contains(&n));
    let itself = graph.read(state);
    let mut reading = Reading { graph, any: &any, itself: &itself, monoid: None, parts: vec![] };
    let found = reading.read(step, &vec![], &[]);
    // Without one it is for sums to say what is wrong.
    let monoid = reading.monoid?;
    let name = &graph[state].name;
    let why = |what: String| {
        let hint =
            format!("steps max({name} + a, b), or all of them min, where neither a nor b reads a state, would do");
        (what, Some(hint))
    };
    if let Err(what) = found {
        return Some(Err(why(what)));
    }
    let mut out = Affine { state, over: monoid, constant: None, exponent: vec![], factor: None, summands: vec![] };
    let mut kept: Option<Term> = None;
    for part in reading.parts {
        let term = under(&part.branches, product::sum_term(&part.sum), neutral(monoid));
        if !part.own {
            out.summands.push(Summand::of(graph, t, monoid, 1.0, &term));
            continue;
        }
        kept = Some(match kept {
            Some(other) => joined(monoid, other, term),
            None => term,
        });
    }
    let Some(kept) = kept else {
        return Some(Err(why(format!("nothing of the slice of {name} before is kept"))));
    };
    let added = product::sum(&kept).into_iter().filter(|(c, _)| *c != 0.0);
    let (varying, constant): (product::Sum, product::Sum) = added.partition(|(_, x)| x.mentions(&[t]));
    out.exponent = varying;
    out.constant = (!constant.is_empty()).then(|| product::sum_term(&constant));
    Some(Ok(out))
}

/// What an extremum of nothing is.
pub(super) fn neutral(monoid: Monoid) -> f64 {
    if monoid == Monoid::Min { f64::INFINITY } else { f64::NEG_INFINITY }
}

/// The extremum of two.
pub(super) fn joined(monoid: Monoid, a: Term, b: Term) -> Term {
    let op = if monoid == Monoid::Min { BinaryOp::Min } else { BinaryOp::Max };
    Term::Binary(op, Box::new(a), Box::new(b))
}

struct Reading<'a> {
    graph: &'a Graph,
    any: &'a dyn Fn(&Term) -> bool,
    itself: &'a Term,
    monoid: Option<Monoid>,
    parts: Vec<Part>,
}

impl Reading<'_> {
    /// What `term` adds to the parts, with `more` added to it; or what it is not.
    fn read(&mut self, term: &Term, more: &product::Sum, branches: &[(Term, bool)]) -> Result<(), String> {
        let shown = |what: &str| format!("{} {what}", show::term(self.graph, term));
        let with = |x: &Term, sign: f64| {
            let mut sum = more.clone();
            product::append(&mut sum, product::sum(x), sign);
            sum
        };
        if !(self.any)(term) {
            self.parts.push(Part { own: false, sum: with(term, 1.0), branches: branches.to_vec() });
            return Ok(());
        }
        match term {
            t if t == self.itself => {
                self.parts.push(Part { own: true, sum: more.clone(), branches: branches.to_vec() });
                Ok(())
            }
            Term::Binary(op @ (BinaryOp::Max | BinaryOp::Min), a, b) => {
                self.takes(if *op == BinaryOp::Max { Monoid::Max } else { Monoid::Min }, term)?;
                self.read(a, more, branches)?;
                self.read(b, more, branches)
            }
            Term::Unary(UnaryOp::Relu, x) => {
                self.takes(Monoid::Max, term)?;
                self.read(x, more, branches)?;
                self.read(&Term::Number(0.0), more, branches)
            }
            Term::Binary(BinaryOp::Add, a, b) if !(self.any)(b) => self.read(a, &with(b, 1.0), branches),
            Term::Binary(BinaryOp::Add, a, b) if !(self.any)(a) => self.read(b, &with(a, 1.0), branches),
            Term::Binary(BinaryOp::Sub, a, b) if !(self.any)(b) => self.read(a, &with(b, -1.0), branches),
            Term::Select(c, a, b) if !(self.any)(c) => {
                for (branch, holds) in [(a, true), (b, false)] {
                    let mut inner = branches.to_vec();
                    inner.push(((**c).clone(), holds));
                    self.read(branch, more, &inner)?;
                }
                Ok(())
            }
            _ => Err(shown("is no sum with the slice before")),
        }
    }

    fn takes(&mut self, monoid: Monoid, term: &Term) -> Result<(), String> {
        match self.monoid.replace(monoid) {
            Some(other) if other != monoid => {
                Err(format!("{} is a minimum of a maximum, or the other way about", show::term(self.graph, term)))
            }
            _ => Ok(()),
        }
    }
}
