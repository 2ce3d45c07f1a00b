//! A reduction's body as factors of what the reduction distributes over.

use crate::derive::inline;
use crate::derive::reassociate::Body;
use crate::{Def, Graph, NodeId, Term, product, sign};
use einloom_cascade::{BinaryOp, DType, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

/// What joins the factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Joined {
    /// `·`, which distributes over a sum, and over an extremum where it is with what cannot be negative.
    Times,
    /// `+`, which distributes over an extremum.
    Plus,
    /// An extremum of two, which distributes over every extremum.
    Extreme(BinaryOp),
}

/// How far definitions are put in place of reads.
const DEPTH: usize = 4;

impl Joined {
    /// What may join the factors of this body.
    pub fn of(monoid: Monoid, body: &Term) -> Self {
        match (monoid, body) {
            (Monoid::Max | Monoid::Min, Term::Binary(op @ (BinaryOp::Max | BinaryOp::Min), ..)) => Self::Extreme(*op),
            (Monoid::Max | Monoid::Min, _) if product::sum(body).len() > 1 => Self::Plus,
            _ => Self::Times,
        }
    }

    /// The factors of a term. A definition that is a product of factors with other indices each is put in place of its read.
    /// Of an exponential all is one factor: parts of it may overflow where it does not. With `split` it is taken apart all
    /// the same, to say so.
    pub fn factors(self, graph: &Graph, term: &Term, split: bool) -> Vec<Term> {
        self.opened(graph, term, split, DEPTH)
    }

    fn opened(self, graph: &Graph, term: &Term, split: bool, depth: usize) -> Vec<Term> {
        let mut out = vec![];
        for t in self.parts(graph, term, split) {
            match self.definition(graph, &t).filter(|_| depth > 0) {
                Some(def) => {
                    let inner = self.opened(graph, &def, split, depth - 1);
                    let all = indices(&t);
                    let smaller = inner.len() > 1 && inner.iter().any(|f| indices(f) != all);
                    if smaller { out.extend(inner) } else { out.push(t) }
                }
                None => out.push(t),
            }
        }
        out
    }

    fn definition(self, graph: &Graph, t: &Term) -> Option<Term> {
        let Term::Read(n, at) = t else { return None };
        let node = &graph[*n];
        let Def::Map(def) = &node.def else { return None };
        if inline::rounds(node) || node.axes.len() != at.len() {
            return None;
        }
        def.substitute(&|i| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone()))
    }

    fn parts(self, graph: &Graph, term: &Term, split: bool) -> Vec<Term> {
        match self {
            Self::Times => {
                let body = Body::of(term, graph);
                let one = Body { coefficient: 1.0, factors: vec![], weights: vec![] };
                let mut out: Vec<Term> = vec![];
                if body.coefficient != 1.0 {
                    out.push(Term::Number(body.coefficient));
                }
                out.extend(body.factors.iter().map(|f| Body { factors: vec![f.clone()], ..one.clone() }.term()));
                for w in &body.weights {
                    let whole = vec![w.exponent.clone()];
                    let sums = if split { w.exponent.iter().map(|e| vec![e.clone()]).collect() } else { whole };
                    out.extend(sums.iter().filter_map(|s| w.power(s)));
                }
                out
            }
            Self::Plus => product::sum(term).into_iter().map(|part| product::sum_term(&vec![part])).collect(),
            Self::Extreme(op) => match term {
                Term::Binary(o, a, b) if *o == op => {
                    [a, b].into_iter().flat_map(|t| self.parts(graph, t, split)).collect()
                }
                _ => vec![term.clone()],
            },
        }
    }

    /// The factors as one term.
    pub fn term(self, factors: &[Term]) -> Term {
        let binary = |op| move |a: Term, b: Term| Term::Binary(op, Box::new(a), Box::new(b));
        let all = factors.iter().cloned();
        let joined = match self {
            Self::Times => all.reduce(|a, b| match b {
                // What divides goes on dividing.
                Term::Binary(BinaryOp::Div, one, b) if *one == Term::Number(1.0) => {
                    Term::Binary(BinaryOp::Div, Box::new(a), b)
                }
                b => binary(BinaryOp::Mul)(a, b),
            }),
            Self::Plus => {
                return product::sum_term(&all.map(|t| product::sum(&t)).fold(vec![], |mut sum, t| {
                    product::append(&mut sum, t, 1.0);
                    sum
                }));
            }
            Self::Extreme(op) => all.reduce(binary(op)),
        };
        joined.unwrap_or(Term::Number(1.0))
    }

    /// Whether a factor may join a reduction that was made: see [`super`].
    pub fn may_join(self, monoid: Monoid, factor: &Term, graph: &Graph) -> bool {
        self != Self::Times || monoid == Monoid::Sum || sign::nonnegative(factor, graph)
    }

    /// Whether what a reduction over nothing gives stays so whatever joins it: then no guard is needed.
    pub fn keeps_nothing(self, monoid: Monoid, factors: &[Term], graph: &Graph) -> bool {
        let finite = || factors.iter().all(|f| sign::finite(f, graph) && !has_size(f));
        match self {
            Self::Times => monoid == Monoid::Sum && finite(),
            Self::Plus => finite(),
            Self::Extreme(op) => matches!((monoid, op), (Monoid::Max, BinaryOp::Min) | (Monoid::Min, BinaryOp::Max)),
        }
    }
}

/// The indices of a term.
pub(super) fn indices(t: &Term) -> BTreeSet<IndexId> {
    let mut out = BTreeSet::new();
    t.indices(&mut out);
    out
}

fn has_size(t: &Term) -> bool {
    let mut found = false;
    t.visit(&mut |t| found |= matches!(t, Term::Size(_)));
    found
}

/// Whether all that it reads is there at all positions of its indices, whatever conditions hold.
pub(super) fn reads_everywhere(t: &Term, graph: &Graph) -> bool {
    let mut plain = true;
    t.visit(&mut |t| {
        if let Term::Read(n, at) = t {
            let is = |(e, extent): (&IndexExpr, &SizeExpr)| {
                e.as_var().is_some_and(|i| *extent == SizeExpr::rank(graph.cascade[i].rank))
            };
            plain &= at.len() == graph[*n].extents.len() && at.iter().zip(&graph[*n].extents).all(is);
        }
    });
    plain
}

/// Whether a term gathers.
pub(super) fn gathers(t: &Term) -> bool {
    let gather = |e: &IndexExpr| {
        let mut found = e.terms.iter().any(|(_, a)| matches!(a, IndexAtom::Gather { .. }));
        e.visit_gathers(&mut |_| found = true);
        found
    };
    let mut found = false;
    t.visit(&mut |t| {
        if let Term::Read(_, at) = t {
            found |= at.iter().any(gather);
        }
    });
    found
}

/// Whether the values of a term are made of elements of a type that passes the test.
pub(super) fn made_of(t: &Term, graph: &Graph, test: &dyn Fn(DType) -> bool) -> bool {
    fn go(t: &Term, graph: &Graph, test: &dyn Fn(DType) -> bool, seen: &mut BTreeSet<NodeId>) -> bool {
        match t {
            Term::Read(n, _) | Term::Old(n, _) => {
                if !seen.insert(*n) {
                    return false;
                }
                match (&graph[*n].def, graph[*n].dtype) {
                    (_, Some(d)) => test(d),
                    (Def::Map(t), None) => go(t, graph, test, seen),
                    (Def::Reduce(r), None) => go(&r.body, graph, test, seen),
                    (Def::Iterative { step, .. }, None) => go(step, graph, test, seen),
                    (Def::Input, None) => false,
                }
            }
            Term::Binary(op, ..) if op.is_predicate() => false,
            Term::Select(_, a, b) => go(a, graph, test, seen) || go(b, graph, test, seen),
            other => {
                let mut found = false;
                other.for_each_child(&mut |c| found |= go(c, graph, test, seen));
                found
            }
        }
    }
    go(t, graph, test, &mut BTreeSet::new())
}
