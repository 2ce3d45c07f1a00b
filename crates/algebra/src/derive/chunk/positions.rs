//! Reductions over the positions themselves: `Σ_t w[t]·h[t+1]`, and `Σ_td q[t,d]·h[t+1,d]` as `Σ_t Σ_d`. What they read of a state at one
//! position becomes a tensor of its own, which a chunk computes, and the reduction no longer waits for the state.
//!
//! What another recurrence reads of a state, what is read at positions of another index, from either end, such as `h[n+1]` or `h[T-t]`, and what anything but a
//! map at its own place reads of an extremum, is lent in the same way.
//!
//! Conditions: what is not lent is read at its own place, each element, and by no condition; one sum becomes two only if nothing is repaired by its running
//! value, nor it by another's.

use super::Rewriter;
use super::step::Affine;
use crate::derive::rebuild;
use crate::{Def, Node, NodeId, Reduction, Term, show};
use einloom_cascade::{IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};

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

    /// Makes tensors of what other recurrences read of the states, and of what cannot be read of an extremum inside a chunk.
    pub(super) fn lend_slices(&mut self, affine: &[Affine]) {
        let states: Vec<NodeId> = affine.iter().map(|a| a.state).collect();
        for reader in self.graph.ids().filter(|n| !states.contains(n)).collect::<Vec<_>>() {
            for a in affine {
                let waits = self.has_positions(reader) && self.lend_last(a.state, reader);
                let lends = match &self.graph[reader].def {
                    Def::Input => false,
                    Def::Map(_) if a.over == Monoid::Sum => {
                        waits || self.is_elsewhere(reader) || self.reads_along_another(reader, a.state)
                    }
                    Def::Map(_) => !self.reads_in_place(reader, a.state) || self.reads_more(reader, &states),
                    Def::Reduce(_) => waits || a.over != Monoid::Sum || self.reads_along_another(reader, a.state),
                    Def::Iterative { .. } => true,
                };
                if lends {
                    self.lend(a.state, reader);
                }
            }
        }
    }

    /// Whether another loop over chunks computes a node.
    fn is_elsewhere(&self, n: NodeId) -> bool {
        let own = |k: usize| k == self.r || self.beside == Some(k);
        let mut others = self.graph.recurrences.iter().enumerate().filter(|(k, _)| !own(*k));
        others.any(|(_, r)| r.members.contains(&n))
    }

    /// Whether a node needs something else that needs one of the states.
    fn reads_more(&self, n: NodeId, states: &[NodeId]) -> bool {
        self.graph.operands(n).iter().any(|o| !states.contains(&o.node) && self.reaches(o.node, states))
    }

    /// Whether all that a node reads of a state moves with the positions, every element at its own place.
    fn reads_in_place(&self, reader: NodeId, state: NodeId) -> bool {
        let mut all = true;
        self.terms(reader, &mut |t| {
            t.visit(&mut |t| {
                if let Term::Read(n, at) = t
                    && *n == state
                {
                    let own = at.iter().zip(&self.graph[state].axes).all(|(e, &i)| match i == self.t {
                        true => e.terms.is_empty() || matches!(e.as_shifted_var(), Some((v, 0..=1)) if v == i),
                        false => e.as_var() == Some(i),
                    });
                    all &= own;
                }
            });
        });
        all
    }

    /// Whether a node reads slices of a state at positions of another index than the recurrence's, or from their end.
    fn reads_along_another(&self, reader: NodeId, state: NodeId) -> bool {
        let Def::Iterative { dim, .. } = self.graph[state].def else { return false };
        let mut found = false;
        self.terms(reader, &mut |t| {
            t.visit(&mut |t| {
                if let Term::Read(n, at) = t
                    && *n == state
                {
                    found |= self.place(&at[dim]).is_some_and(|p| p.at != IndexExpr::var(self.t));
                }
            });
        });
        found
    }

    /// Where among the slices a position lies: those after each step if it is `i + 1` or `T - i` for an index of the same rank, those before if it
    /// is `i` or `T - 1 - i`.
    fn place(&self, position: &IndexExpr) -> Option<Place> {
        let rank = self.graph.cascade[self.t].rank;
        let [(coefficient, IndexAtom::Var(i))] = position.terms.as_slice() else { return None };
        if self.graph.cascade[*i].rank != rank {
            return None;
        }
        let from = match coefficient.as_constant() {
            Some(1) => SizeExpr::constant(0),
            Some(-1) => SizeExpr::rank(rank).add(&SizeExpr::constant(-1)),
            _ => return None,
        };
        let later @ 0..=1 = position.offset.add(&from.scale(-1)).as_constant()? else { return None };
        let mut at = IndexExpr::fixed(from);
        at.push(coefficient.clone(), IndexAtom::Var(*i));
        Some(Place { at, later })
    }

    /// Whether a node has elements, or sums some, at several positions of the recurrence's rank: none of them is there when the last slice is.
    fn has_positions(&self, n: NodeId) -> bool {
        let node = &self.graph[n];
        let over = if let Def::Reduce(r) = &node.def { r.over.as_slice() } else { &[] };
        let rank = |i: IndexId| self.graph.cascade[i].rank;
        node.axes.iter().chain(over).any(|&i| rank(i) == rank(self.t))
    }

    /// The last slice of a state as a tensor, if a node reads it.
    fn lend_last(&mut self, state: NodeId, reader: NodeId) -> bool {
        let node = self.graph[state].clone();
        let Def::Iterative { dim, .. } = node.def else { return false };
        let mut last: Vec<(Term, Vec<IndexExpr>)> = vec![];
        self.terms(reader, &mut |t| {
            t.visit(&mut |t| {
                if let Term::Read(n, at) = t
                    && *n == state
                    && at[dim].terms.is_empty()
                    && at[dim].offset.as_constant() != Some(0)
                    && last.iter().all(|l| l.0 != *t)
                {
                    last.push((t.clone(), at.clone()));
                }
            });
        });
        let mut made = vec![];
        for (slice, mut at) in last {
            let own = |(d, &i): (usize, &IndexId)| if d == dim { at[d].clone() } else { IndexExpr::var(i) };
            let def = Def::Map(Term::Read(state, node.axes.iter().enumerate().map(own).collect()));
            let axes = node.axes.iter().copied().filter(|&i| i != node.axes[dim]).collect();
            let Term::Read(lent, _) = self.own_tensor(&node, axes, def) else { continue };
            at.remove(dim);
            made.push((slice, Term::Read(lent, at)));
        }
        rebuild::map_terms(&mut self.graph.nodes[reader.0 as usize].def, &mut |t| replaced(t, &made));
        !made.is_empty()
    }

    /// Slices of a state that a node reads, at positions of any index of the same rank, as tensors.
    fn lend(&mut self, state: NodeId, reader: NodeId) {
        let node = self.graph[state].clone();
        let Def::Iterative { dim, .. } = node.def else { return };
        let mut slices: Vec<(Term, Vec<IndexExpr>, Place)> = vec![];
        self.terms(reader, &mut |t| {
            t.visit(&mut |t| {
                if let Term::Read(n, at) = t
                    && *n == state
                    && let Some(place) = self.place(&at[dim])
                    && slices.iter().all(|s| s.0 != *t)
                {
                    slices.push((t.clone(), at.clone(), place));
                }
            });
        });
        let mut made = vec![];
        for (slice, mut at, place) in slices {
            let own = |&a: &IndexId| {
                let offset = if a == self.t { place.later } else { 0 };
                IndexExpr::var(a).add(&IndexExpr::fixed(SizeExpr::constant(offset)))
            };
            let def = Def::Map(Term::Read(state, node.axes.iter().map(own).collect()));
            let Term::Read(lent, _) = self.own_tensor(&node, node.axes.clone(), def) else { continue };
            at[dim] = place.at;
            made.push((slice, Term::Read(lent, at)));
        }
        rebuild::map_terms(&mut self.graph.nodes[reader.0 as usize].def, &mut |t| replaced(t, &made));
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

/// A position among the slices of a state.
struct Place {
    at: IndexExpr,
    /// 1 for those after each step, 0 for those before.
    later: i64,
}

/// The term with some of its parts replaced.
fn replaced(t: &Term, by: &[(Term, Term)]) -> Term {
    match by.iter().find(|(from, _)| from == t) {
        Some((_, to)) => to.clone(),
        None => t.map_children(&mut |c| replaced(c, by)),
    }
}
