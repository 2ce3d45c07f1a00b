//! Reductions over the positions themselves: `Σ_t w[t]·h[t+1]`, and `Σ_td q[t,d]·h[t+1,d]` as `Σ_t Σ_d`. What they read of a state at one
//! position becomes a tensor of its own, which a chunk computes, and the reduction no longer waits for the state.
//!
//! Conditions: each element is read at its own place, and by no condition; one sum becomes two only if nothing is repaired by its running
//! value, nor it by another's.

use super::Rewriter;
use crate::{Def, Node, NodeId, Reduction, Term, show};
use einloom_cascade::{IndexId, Monoid, SizeExpr};

impl Rewriter<'_> {
    /// Takes what reductions over the positions read of `states` out of them.
    pub(super) fn take_slices_out(&mut self, states: &[NodeId]) {
        let readers: Vec<NodeId> = self.graph.ids().filter(|n| self.reads_any(*n, states)).collect();
        for reader in readers {
            let node = self.graph[reader].clone();
            let Def::Reduce(r) = &node.def else { continue };
            let any = |t: &Term| t.any_read(&|n| states.contains(&n));
            if !r.over.contains(&self.t) || r.filter.iter().any(any) {
                continue;
            }
            let others: Vec<IndexId> = r.over.iter().copied().filter(|i| *i != self.t).collect();
            let outer = match r.monoid {
                Monoid::Sum if !others.is_empty() && !self.is_anchored(reader, r) => {
                    let mut axes = node.axes.clone();
                    axes.push(self.t);
                    let inner = Def::Reduce(Reduction { over: others, ..r.clone() });
                    let body = self.own_tensor(&node, axes, inner);
                    Some(Reduction { over: vec![self.t], body, filter: vec![], ..r.clone() })
                }
                _ => self.slices_out(&node, r, states),
            };
            let Some(outer) = outer else { continue };
            let before = show::def(&self.graph, &node.def);
            self.graph.nodes[reader.0 as usize].def = Def::Reduce(outer);
            let after = show::def(&self.graph, &self.graph[reader].def);
            let why = "what a position sees of the state is a tensor of its own, which a chunk computes";
            self.tell(&node, why.into(), before, after);
        }
    }

    /// The reduction with every slice as a tensor of its own; nothing where one is read at other places than its own.
    fn slices_out(&mut self, like: &Node, r: &Reduction, states: &[NodeId]) -> Option<Reduction> {
        let mut slices: Vec<Term> = vec![];
        r.body.visit(&mut |t| {
            if matches!(t, Term::Read(n, _) if states.contains(n)) && !slices.contains(t) {
                slices.push(t.clone());
            }
        });
        let mut made = vec![];
        for slice in slices {
            let Term::Read(n, at) = &slice else { return None };
            let Def::Iterative { dim, .. } = self.graph[*n].def else { return None };
            let axes = self.graph[*n].axes.clone();
            let own = |(d, i): (usize, &IndexId)| match d == dim {
                true => matches!(at[d].as_shifted_var(), Some((i, 0..=1)) if i == self.t),
                false => at[d].as_var() == Some(*i),
            };
            if !axes.iter().enumerate().all(own) {
                return None;
            }
            let axes = axes.iter().enumerate().map(|(d, i)| if d == dim { self.t } else { *i }).collect();
            made.push((slice.clone(), self.own_tensor(like, axes, Def::Map(slice))));
        }
        Some(Reduction { body: replaced(&r.body, &made), ..r.clone() })
    }

    /// A definition as a node of its own, read at its axes; the same as before if it has been made already.
    fn own_tensor(&mut self, like: &Node, axes: Vec<IndexId>, def: Def) -> Term {
        let same = |n: &NodeId| {
            let node = &self.graph[*n];
            node.def == def && node.axes == axes && node.tensor.is_none() && node.dtype.is_none()
        };
        if let Some(n) = self.graph.ids().find(same) {
            return self.graph.read(n);
        }
        let node = Node {
            name: crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.slice", like.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect(),
            def,
            axes,
            dtype: None,
            tensor: None,
            ..like.clone()
        };
        self.graph.nodes.push(node);
        self.graph.read(NodeId(self.graph.nodes.len() as u32 - 1))
    }

    /// Whether a reduction is repaired by another's running value, or another by its.
    pub(super) fn is_anchored(&self, n: NodeId, r: &Reduction) -> bool {
        let anchors = self.graph.nodes.iter().filter_map(|n| match &n.def {
            Def::Reduce(r) => Some(&r.streaming.anchors),
            _ => None,
        });
        !r.streaming.anchors.is_empty() || anchors.flatten().any(|a| *a == n)
    }
}

/// The term with some of its parts replaced.
fn replaced(t: &Term, by: &[(Term, Term)]) -> Term {
    match by.iter().find(|(from, _)| from == t) {
        Some((_, to)) => to.clone(),
        None => t.map_children(&mut |c| replaced(c, by)),
    }
}
