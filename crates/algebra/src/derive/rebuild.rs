//! The walk over the graph: old nodes in, new nodes out, and what is no longer needed removed.

use super::{Deriver, inline};
use crate::{Def, Graph, NodeId, Recurrence, Rule, Term, level};
use einloom_cascade::{IndexId, Monoid};
use std::collections::BTreeSet;

/// The number of a node that is not made yet.
const UNKNOWN: NodeId = NodeId(u32::MAX);

impl Deriver<'_> {
    pub(super) fn run(&mut self) {
        let members: BTreeSet<NodeId> = self.old.recurrences.iter().flat_map(|r| r.members.iter().copied()).collect();
        self.new_of = vec![UNKNOWN; self.old.nodes.len()];
        for id in self.old.ids() {
            if self.new_of[id.0 as usize] != UNKNOWN {
                continue;
            }
            if members.contains(&id) {
                self.recurrence_of(id);
            } else {
                let new = self.node(id);
                self.new_of[id.0 as usize] = new;
            }
        }
        self.out.outputs = self.old.outputs.iter().map(|o| self.new_of[o.0 as usize]).collect();
        for &o in &self.out.outputs.clone() {
            self.must_not_be_scaled(o);
        }
    }

    /// The members of a recurrence keep their order, as they are computed position by position; a reduction among them is derived as
    /// any other is, and what it becomes is computed at the same positions.
    fn recurrence_of(&mut self, id: NodeId) {
        let number = self.old.recurrences.iter().position(|r| r.members.contains(&id)).expect("is a member");
        let old = self.old.recurrences[number].clone();
        self.explain_recurrence(&old);
        let number = self.out.recurrences.len();
        // Iterative tensors are read before they are complete, so their places come first.
        let mut places: Vec<NodeId> = old.members.clone();
        places.retain(|&m| matches!(self.old[m].def, Def::Iterative { .. }));
        places.sort_unstable();
        for &m in &places {
            let mut node = self.old[m].clone();
            if let Def::Iterative { recurrence, initial, step, .. } = &mut node.def {
                *recurrence = number;
                initial.iter_mut().for_each(|(_, t)| *t = self.known(t));
                *step = self.known(step);
            }
            self.new_of[m.0 as usize] = self.push(node);
        }
        let mut members = vec![];
        for &m in &old.members {
            let new = self.new_of[m.0 as usize];
            if new != UNKNOWN {
                members.push(new);
                continue;
            }
            let before = self.out.nodes.len();
            self.new_of[m.0 as usize] = self.node(m);
            members.extend((before..self.out.nodes.len()).map(|n| NodeId(n as u32)));
        }
        for &m in &places {
            let new = self.new_of[m.0 as usize];
            let mut def = self.old[m].def.clone();
            renumber(&mut def, &|n| self.new_of[n.0 as usize]);
            if let Def::Iterative { recurrence, .. } = &mut def {
                *recurrence = number;
            }
            self.out.nodes[new.0 as usize].def = def;
            for operand in self.old.operands(m) {
                self.must_not_be_scaled(self.new_of[operand.node.0 as usize]);
            }
        }
        self.out.recurrences.push(Recurrence { rank: old.rank, index: old.index, members, within: vec![] });
    }

    /// A term of `old` as far as what it reads is made.
    fn known(&self, t: &Term) -> Term {
        let made = |n: NodeId| self.new_of[n.0 as usize] != UNKNOWN;
        let t = t.replace_reads(&mut |n, _| (!made(n)).then_some(Term::Number(0.0)));
        t.rename_nodes(&|n| self.new_of[n.0 as usize])
    }

    /// Derives one node that is no state.
    fn node(&mut self, id: NodeId) -> NodeId {
        let mut node = self.old[id].clone();
        let new_of = self.new_of.clone();
        let rename = |t: &Term| t.rename_nodes(&|n| new_of[n.0 as usize]);
        match node.def.clone() {
            Def::Input => self.push(node),
            Def::Map(t) => {
                let t = self.inline_displaced(&rename(&t), &node);
                let super::inline::Cancelled { value: t, rest, .. } = self.cancel(&t);
                self.note_store(&node, &t);
                node.def = Def::Map(t);
                self.push_map(node, rest)
            }
            Def::Reduce(mut r) => {
                r.body = self.inline_displaced(&rename(&r.body), &node);
                r.filter = r.filter.iter().map(|t| self.inline_displaced(&rename(t), &node)).collect();
                match r.monoid {
                    Monoid::ArgMax | Monoid::ArgMin => self.arg(node, r),
                    Monoid::Sum => self.sum(id, node, r),
                    Monoid::Max | Monoid::Min => self.extremum(id, node, r),
                    Monoid::Prod | Monoid::Custom(_) => self.opaque(id, node, r),
                }
            }
            Def::Iterative { .. } => self.push(node),
        }
    }

    /// Says which extra pass a stored tensor itself causes.
    pub(super) fn note_store(&mut self, node: &crate::Node, t: &Term) {
        let stored = node.tensor.is_some_and(|t| self.old.cascade.outputs.contains(&t));
        if !stored {
            return;
        }
        for a in inline::completed(&self.out, t) {
            let Def::Reduce(r) = &self.out[a].def else { continue };
            let over = r.over.clone();
            let carried: Vec<IndexId> = over.iter().copied().filter(|i| node.axes.contains(i)).collect();
            if !carried.is_empty() {
                let reason = format!(
                    "{} is wanted for every {}, and each of its elements needs {} over all of them",
                    node.name,
                    self.index_names(&carried),
                    self.out[a].name
                );
                let hint = format!(
                    "if only a sum over {} were wanted of it, {} would leave that sum",
                    self.index_names(&carried),
                    self.out[a].name
                );
                self.refuse(Rule::Defer, node, &over, reason, Some(hint));
                return;
            }
        }
    }

    pub(super) fn index_names(&self, over: &[IndexId]) -> String {
        over.iter().map(|&i| self.old.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Removes what no output needs and assigns levels.
    pub(super) fn finish(&mut self) {
        prune(&mut self.out);
        level::assign(&mut self.out);
    }
}

/// Removes what no output needs, gathers included.
pub(super) fn prune(graph: &mut Graph) {
    let mut live = vec![false; graph.nodes.len()];
    let mut todo: Vec<NodeId> = graph.outputs.clone();
    // The caller may give any input, wanted or not.
    todo.extend(graph.ids().filter(|&n| graph[n].def == Def::Input));
    while let Some(id) = todo.pop() {
        if std::mem::replace(&mut live[id.0 as usize], true) {
            continue;
        }
        todo.extend(graph.operands(id).iter().map(|o| o.node));
        if let Some(r) = graph.recurrences.iter().find(|r| r.members.contains(&id)) {
            todo.extend(r.members.iter().copied());
        }
    }
    let mut number = vec![NodeId(u32::MAX); live.len()];
    let mut nodes = vec![];
    for (k, node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        if live[k] {
            number[k] = NodeId(nodes.len() as u32);
            nodes.push(node);
        }
    }
    let to = |n: NodeId| number[n.0 as usize];
    for node in &mut nodes {
        renumber(&mut node.def, &to);
    }
    graph.nodes = nodes;
    graph.outputs.iter_mut().for_each(|o| *o = to(*o));
    let kept: Vec<bool> = graph.recurrences.iter().map(|r| r.members.iter().any(|m| live[m.0 as usize])).collect();
    let places: Vec<usize> = (0..kept.len()).map(|k| kept[..k].iter().filter(|&&kept| kept).count()).collect();
    for node in &mut graph.nodes {
        if let Def::Iterative { recurrence, .. } = &mut node.def {
            *recurrence = places[*recurrence];
        }
    }
    let mut k = 0;
    graph.recurrences.retain(|_| {
        k += 1;
        kept[k - 1]
    });
    graph.recurrences.iter_mut().for_each(|r| r.members.iter_mut().for_each(|m| *m = to(*m)));
}

/// The definition with its nodes renumbered.
pub(super) fn renumber(def: &mut Def, to: &impl Fn(NodeId) -> NodeId) {
    map_terms(def, &mut |t| t.rename_nodes(to));
    if let Def::Reduce(r) = def {
        r.streaming.anchors.iter_mut().for_each(|a| *a = to(*a));
    }
}

/// The definition with every term of it replaced, those of repairs too.
pub(super) fn map_terms(def: &mut Def, to: &mut dyn FnMut(&Term) -> Term) {
    match def {
        Def::Input => {}
        Def::Map(t) => *t = to(t),
        Def::Reduce(r) => {
            r.body = to(&r.body);
            r.filter.iter_mut().for_each(|t| *t = to(t));
            if let Some(repair) = &mut r.streaming.repair {
                repair.factor = to(&repair.factor);
                repair.plus = repair.plus.as_ref().map(&mut *to);
                repair.keep_if = repair.keep_if.as_ref().map(&mut *to);
            }
        }
        Def::Iterative { initial, step, .. } => {
            initial.iter_mut().for_each(|(_, t)| *t = to(t));
            *step = to(step);
        }
    }
}
