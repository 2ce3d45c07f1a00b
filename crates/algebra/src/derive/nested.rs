//! Reductions over several indices that wait for reductions over some of them: `Σ_gi (x(g,i) - c(g))²` with `c(g) = Σ_i x` is
//! `Σ_g Σ_i (x(g,i) - c(g))²`, whose inner sum streams beside c.
//!
//! Conditions: all that the body waits for, in a sum all that its factors with the indices wait for, is over some of the indices and carries
//! others of them, none of it is over the others, and as a reduction over those alone the body separates, by its addends or with its
//! logarithms opened too.

use super::Deriver;
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, show};
use einloom_cascade::{IndexId, Monoid, SizeExpr};

impl Deriver<'_> {
    /// The indices of the inner reduction, if one inside another separates.
    pub(super) fn inner_indices(&self, r: &Reduction, body: &Term) -> Option<Vec<IndexId>> {
        self.inner_of(r.monoid, &r.over, body)
    }

    /// Of a reduction over these.
    pub(super) fn inner_of(&self, monoid: Monoid, over: &[IndexId], body: &Term) -> Option<Vec<IndexId>> {
        let inner = self.waited_for(monoid, over, body)?;
        let each = |body: &Term| self.split(body, &inner, 0).is_ok() || self.addends_split(body, &inner);
        let separates = match monoid {
            Monoid::Sum => each(body) || each(&self.opened(body, &inner, &mut vec![])),
            monoid => self.ends(monoid, body, &inner, 0).is_some() || self.leaves(body, &inner),
        };
        separates.then_some(inner)
    }

    /// Of a sum over these whose body separates inside as a whole: what cancels between its addends then is about the same centre,
    /// where sums of addends cancel when they are complete.
    pub(super) fn inner_whole(&self, over: &[IndexId], body: &Term) -> Option<Vec<IndexId>> {
        let inner = self.waited_for(Monoid::Sum, over, body)?;
        self.split(body, &inner, 0).is_ok().then_some(inner)
    }

    /// The indices of what a body waits for, where there are others and nothing that it waits for is over these.
    fn waited_for(&self, monoid: Monoid, over: &[IndexId], body: &Term) -> Option<Vec<IndexId>> {
        if over.len() < 2 {
            return None;
        }
        let barriers = match monoid {
            Monoid::Sum => self.joined(body, over),
            _ => self.barriers(body, over),
        };
        let of = |n: &NodeId| match &self.out[*n].def {
            Def::Reduce(b) => b.over.clone(),
            _ => vec![],
        };
        let waited: Vec<IndexId> = barriers.iter().flat_map(of).collect();
        let (inner, outer): (Vec<IndexId>, Vec<IndexId>) = over.iter().partition(|i| waited.contains(i));
        let apart = barriers.iter().all(|n| !of(n).iter().any(|i| outer.contains(i)));
        (!inner.is_empty() && !outer.is_empty() && apart).then_some(inner)
    }

    /// What those factors of a sum's body wait for that carry the indices and wait: the others leave.
    fn joined(&self, body: &Term, over: &[IndexId]) -> Vec<NodeId> {
        let (inside, _) = Product::of(body, &self.out).partition(|t| t.mentions(over));
        let factors = inside.factors.iter().map(|(t, _)| t);
        let addends = inside.exponent.iter().chain(&inside.exponent2).map(|(_, t)| t);
        let mut found: Vec<NodeId> = factors.chain(addends).flat_map(|t| self.barriers(t, over)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The reduction as one over these indices inside one over the others.
    pub(super) fn one_in_another(
        &mut self,
        id: NodeId,
        node: Node,
        r: Reduction,
        inner: Vec<IndexId>,
        before: String,
    ) -> NodeId {
        let outer: Vec<IndexId> = r.over.iter().copied().filter(|i| !inner.contains(i)).collect();
        let (of_inner, of_outer): (Vec<Term>, Vec<Term>) = r.filter.iter().cloned().partition(|f| f.mentions(&inner));
        let mut part = Node {
            name: crate::flatten::fresh_name(&self.out.nodes, &format!("{}.part", node.name)),
            tensor: None,
            dtype: None,
            ..node.clone()
        };
        for &i in &outer {
            part.axes.push(i);
            part.extents.push(SizeExpr::rank(self.out.cascade[i].rank));
        }
        let [names, others] = [&inner, &outer].map(|list| self.index_names(list));
        let why =
            format!("what it waits for is over {names} alone, so it is one over {names} inside one over {others}");
        let shown = Reduction { over: inner.clone(), filter: of_inner.clone(), ..r.clone() };
        let after = format!("{} = {}", part.name, show::reduction(&self.out, &shown));
        self.step(Rule::Distribute, &node, &r.over, why, before, after);
        let made = self.again(id, part, Reduction { over: inner, filter: of_inner, ..r.clone() });
        let body = self.out.read(made);
        self.again(id, node, Reduction { over: outer, filter: of_outer, body, ..r })
    }

    fn again(&mut self, id: NodeId, node: Node, r: Reduction) -> NodeId {
        match r.monoid {
            Monoid::Sum => self.sum(id, node, r),
            _ => self.extremum(id, node, r),
        }
    }
}
