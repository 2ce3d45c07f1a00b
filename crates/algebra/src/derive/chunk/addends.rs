//! Sums that read a state beside something else: `Σ_d q·(h + u)` as `Σ_d q·h + Σ_d q·u`. A chunk reads the first, and the
//! second no longer waits for the state.
//!
//! Conditions: the body multiplies out into a few products; each of them that reads states is a product with one slice of one;
//! and nothing is repaired by the running value of the sum. What cancels between h and u is lost to no more than a rounding of
//! h, which has been rounded anyway.

use super::{Rewriter, times};
use crate::derive::guard;
use crate::{Def, Node, NodeId, Product, Reduction, Term, product, show};
use einloom_cascade::{IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

impl Rewriter<'_> {
    /// Takes the readers of `states` apart where they are such sums.
    pub(super) fn take_apart(&mut self, states: &[NodeId]) {
        let readers: Vec<NodeId> = self.graph.ids().filter(|n| self.reads_any(*n, states)).collect();
        for reader in readers {
            let node = self.graph[reader].clone();
            let Def::Reduce(r) = &node.def else { continue };
            if r.monoid != Monoid::Sum || r.over.contains(&self.t) || self.is_anchored(reader, r) {
                continue;
            }
            let Some((read, rest)) = self.addends(r, states) else { continue };
            let before = show::def(&self.graph, &node.def);
            let mut value: Vec<(f64, Term)> = vec![];
            for (c, t) in read {
                let axes = node.axes.clone();
                value.push((c, self.part(&node, axes, r, t)));
            }
            if !rest.is_empty() {
                value.push((1.0, self.unread(&node, r, &product::sum_term(&rest))));
            }
            self.graph.nodes[reader.0 as usize].def = Def::Map(product::sum_term(&value));
            let after = show::def(&self.graph, &self.graph[reader].def);
            let why =
                "a sum of sums is a sum for each addend, of which only those with a slice of the state wait for it";
            self.tell(&node, why.into(), before, after);
        }
    }

    /// The addends with a slice of a state, and those without; nothing where the sum stays whole.
    fn addends(&self, r: &Reduction, states: &[NodeId]) -> Option<(product::Sum, product::Sum)> {
        let any = |t: &Term| t.any_read(&|n| states.contains(&n));
        let all = product::sum(&r.body);
        if all.len() < 2 || r.filter.iter().any(any) {
            return None;
        }
        let (read, rest): (product::Sum, product::Sum) = all.into_iter().partition(|(_, t)| any(t));
        let is_read = |(_, t): &(f64, Term)| {
            let p = Product::of(t, &self.graph);
            let mut found = p.factors.iter().filter(|(f, _)| any(f));
            let one = matches!(found.next(), Some((Term::Read(..), power)) if *power == 1.0) && found.next().is_none();
            one && !p.exponent.iter().chain(&p.exponent2).any(|(_, t)| any(t))
        };
        read.iter().all(is_read).then_some((read, rest))
    }

    /// `Σ_over body` as a node of its own.
    fn part(&mut self, like: &Node, axes: Vec<IndexId>, r: &Reduction, body: Term) -> Term {
        let node = Node {
            name: crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.part", like.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect(),
            def: Def::Reduce(Reduction { body, ..r.clone() }),
            axes,
            dtype: None,
            tensor: None,
            ..like.clone()
        };
        self.graph.nodes.push(node);
        self.graph.read(NodeId(self.graph.nodes.len() as u32 - 1))
    }

    /// The sum of what reads no state, without the factors that do not carry what is summed over.
    fn unread(&mut self, like: &Node, r: &Reduction, body: &Term) -> Term {
        let (inside, outside) = match r.filter.is_empty() {
            true => Product::of(body, &self.graph).partition(|t| t.mentions(&r.over)),
            // A filter may leave nothing, and then the text does not look at the factors.
            false => (Product::of(body, &self.graph), Product::one()),
        };
        let mut free = BTreeSet::new();
        inside.term().indices(&mut free);
        r.filter.iter().for_each(|t| t.indices(&mut free));
        let axes = like.axes.iter().copied().filter(|i| free.contains(i)).collect();
        let sum = self.part(like, axes, r, inside.term());
        if outside.is_one() {
            return sum;
        }
        let some = guard::some_positions(&self.graph.cascade, &r.over);
        guard::where_some(some, times(Some(outside.term()), sum), 0.0)
    }
}
