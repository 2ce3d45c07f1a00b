//! Weights that are made of all positions between two: `exp(Σ_{n < u <= m} a(u))` and `Π_{n < u <= m} g(u)`.
//!
//! Such a sum is `c(m) - c(n)` with `c` the sum over all positions up to one, and what an exponent with it decays by from step to step
//! is `a(m)` alone: `c` is only written down so that both parts are seen, and is not there in what is made. A product decays by `g(m)`.
//!
//! Conditions: the conditions of the inner reduction bound its one index from below by n and from above by m, at distances that are known;
//! its body carries neither; under the outer sum's prefix the range between is never less than empty, and at its latest position
//! it is empty, or one element. A product's factors lie between -1 and 1 by their form, as for any decay.

use super::fresh_index;
use super::prefix::{Prefix, Why, bound};
use super::site::{Parts, Site};
use crate::derive::inline;
use crate::product::Sum;
use crate::{Def, Graph, Node, NodeId, Reduction, Streaming, Term, show, size};
use einloom_cascade::{BinaryOp, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A reduction over the positions `n + after < u <= m + to`.
struct Between {
    body: Term,
    u: IndexId,
    after: i64,
    to: i64,
}

/// A factor that is a product of what stands between two positions.
#[derive(Clone)]
pub(super) struct Ratio {
    body: Term,
    u: IndexId,
    after: i64,
    /// As written.
    shown: Term,
}

fn shifted(i: IndexId, k: i64) -> IndexExpr {
    let mut e = IndexExpr::var(i);
    e.offset = SizeExpr::constant(k);
    e
}

impl Site {
    /// The parts with every such sum in an exponent as a difference, and every such product told apart.
    pub(super) fn open_between(&mut self, parts: &mut Parts) {
        let ties = |f: &&Term| f.mentions(&self.over) && f.mentions(&self.node.axes) && !f.any_read(&|_| true);
        let tying: Vec<Term> = parts.filter.iter().filter(ties).cloned().collect();
        let Ok(p) = Prefix::of(&self.graph, &tying, &self.over) else { return };
        for w in &mut parts.factors.weights {
            let mut opened: Sum = vec![];
            for (c, t) in std::mem::take(&mut w.exponent) {
                match self.span_of(&t, Monoid::Sum, &p) {
                    Some(b) => {
                        let [last, first] = [shifted(p.up_to, b.to), shifted(p.of, b.after)];
                        let (c_node, axes) = self.up_to(&b);
                        let at = |e: IndexExpr| {
                            let mut at: Vec<IndexExpr> = axes.iter().map(|&i| IndexExpr::var(i)).collect();
                            at.push(e);
                            Term::Read(c_node, at)
                        };
                        opened.extend([(c, at(last)), (-c, at(first))]);
                    }
                    None => opened.push((c, t)),
                }
            }
            w.exponent = opened;
        }
        let (mut rest, mut ratios) = (vec![], vec![]);
        for (t, power) in std::mem::take(&mut parts.factors.factors) {
            match self.span_of(&t, Monoid::Prod, &p).filter(|b| power == 1.0 && b.to == p.offset + b.after) {
                Some(b) => ratios.push(Ratio { body: b.body, u: b.u, after: b.after, shown: t }),
                None => rest.push((t, power)),
            }
        }
        parts.factors.factors = rest;
        parts.ratios.extend(ratios);
    }

    /// A read of a reduction over what stands between the two positions.
    fn span_of(&mut self, t: &Term, monoid: Monoid, p: &Prefix) -> Option<Between> {
        let Term::Read(n, at) = t else { return None };
        let node = self.graph[*n].clone();
        let Def::Reduce(r) = &node.def else { return None };
        let &[own] = r.over.as_slice() else { return None };
        let member = self.graph.recurrences.iter().any(|r| r.members.contains(n));
        if r.monoid != monoid || !r.streaming.anchors.is_empty() || member || inline::rounds(&node) {
            return None;
        }
        let u = fresh_index(Rc::make_mut(&mut self.graph), own);
        let place = |u: &IndexExpr| {
            let u = u.clone();
            let axes = node.axes.clone();
            move |i: IndexId| match i == own {
                true => Some(u.clone()),
                false => axes.iter().position(|&a| a == i).map(|k| at[k].clone()),
            }
        };
        // Read from the end its positions are counted from there too.
        let last = SizeExpr::rank(self.graph.cascade[own].rank).add(&SizeExpr::constant(-1));
        let from_end = IndexExpr { terms: vec![(SizeExpr::constant(-1), IndexAtom::Var(u))], offset: last };
        [IndexExpr::var(u), from_end].into_iter().find_map(|e| {
            let place = place(&e);
            let body = r.body.substitute(&place)?;
            let filter = r.filter.iter().map(|f| f.substitute(&place)).collect::<Option<Vec<_>>>()?;
            let [a, b] = filter.as_slice() else { return None };
            let (a, b) = (bound(a, u)?, bound(b, u)?);
            let ((true, Some((m, to))), (false, Some((n, from)))) = (if a.0 { (a, b) } else { (b, a) }) else {
                return None;
            };
            let own = m == p.up_to && n == p.of && !body.mentions(&[m, n]);
            let after = from - 1;
            // Of the latest position it is empty, or one element.
            (own && (0..=1).contains(&(to - after - p.offset))).then_some(Between { body, u, after, to })
        })
    }

    /// The sum over all positions up to one, and the indices that it carries besides.
    fn up_to(&mut self, b: &Between) -> (NodeId, Vec<IndexId>) {
        let graph = Rc::make_mut(&mut self.graph);
        let p = fresh_index(graph, b.u);
        let mut free = BTreeSet::new();
        b.body.indices(&mut free);
        free.remove(&b.u);
        let others: Vec<IndexId> = free.into_iter().collect();
        let axes: Vec<IndexId> = others.iter().copied().chain([p]).collect();
        let up_to = Term::Binary(BinaryOp::Le, Box::new(Term::Position(b.u)), Box::new(Term::Position(p)));
        let def = Def::Reduce(Reduction {
            monoid: Monoid::Sum,
            over: vec![b.u],
            filter: vec![up_to],
            body: b.body.clone(),
            streaming: Streaming::default(),
        });
        let node = Node {
            name: crate::flatten::fresh_name(&graph.nodes, &format!("{}.between", self.node.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(graph.cascade[i].rank)).collect(),
            axes,
            def,
            dtype: None,
            tensor: None,
            ..self.node.clone()
        };
        graph.nodes.push(node);
        let made = NodeId(graph.nodes.len() as u32 - 1);
        self.spans.push(made);
        (made, others)
    }

    /// Whether a term reads a sum that is only written down to be cancelled.
    pub(super) fn reads_span(&self, t: &Term) -> bool {
        t.any_read(&|n| self.spans.contains(&n))
    }
}

impl Ratio {
    /// What the state is multiplied with at a step.
    ///
    /// # Errors
    /// That it may be of any size.
    pub fn per_step(&self, p: &Prefix, graph: &Graph) -> Result<Term, Why> {
        let m = p.up_to;
        let back = p.taken() + self.after;
        let gather = || ("its factors gather by a position".to_string(), Some(super::GATHERED.to_string()));
        let here = self.body.substitute(&|i| (i == self.u).then(|| shifted(m, back))).ok_or_else(gather)?;
        if !size::within_one(&here, graph) {
            let (shown, here) = (show::term(graph, &self.shown), show::term(graph, &here));
            let reason = format!(
                "the weight {shown} decays by {here} a step, whose size is not known: relative to the latest position it may overflow"
            );
            let hint = "a factor between -1 and 1 by its form would do, such as sigmoid(a), tanh(a) or exp(-abs(a))";
            return Err((reason, Some(hint.into())));
        }
        Ok(since(back, m, here, 1.0))
    }
}

/// A term that reads `back` positions away: where there is none the state is empty, and any number will do.
pub(super) fn since(back: i64, m: IndexId, here: Term, otherwise: f64) -> Term {
    if back >= 0 {
        return here;
    }
    let there = Term::Binary(BinaryOp::Ge, Box::new(Term::Position(m)), Box::new(Term::Number(-back as f64)));
    Term::Select(Box::new(there), Box::new(here), Box::new(Term::Number(otherwise)))
}
