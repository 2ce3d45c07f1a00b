//! Reductions of which few elements are read: `z[t, y[t]]` for each `t`, of a `z[t,v]` that is a sum, is such a sum at one `v` for each
//! `t`. It is computed there, and `z` need not be in memory for it.
//!
//! Conditions: every index that the places move with is a place by itself, so that no element is read twice and one axis is gone at least;
//! what is read is neither an output, which is there in any case, nor a member of a recurrence; the conditions under which it is read say
//! nothing of other indices, and they become those of the sum: what they do not let be asked is not asked here. Pointwise definitions are
//! put in place of their reads on the way, unless they round.

use super::reassociate::{insert, placeholder};
use super::{filter, inline, rebuild};
use crate::{Def, Graph, Node, NodeId, Reduction, Rule, Step, Streaming, Term, flatten, show};
use einloom_cascade::{IndexExpr, IndexId, SizeExpr};
use std::collections::BTreeSet;

/// What the form is called in which such elements are computed alone.
pub(super) const ALONE: &str = "elements alone where few are read";

/// What the form is called in which such reductions are whole.
pub(super) const WHOLE: &str = "whole where few elements are read";

/// Definitions are followed this far.
const DEPTH: usize = 8;

/// The graph in which such elements have sums of their own, and what was done.
pub(super) fn few(graph: &Graph) -> (Graph, Vec<Step>) {
    let (mut out, mut steps) = (graph.clone(), vec![]);
    for id in graph.ids().rev() {
        if graph.recurrences.iter().any(|r| r.members.contains(&id)) {
            continue;
        }
        let taken = out.nodes.clone();
        let mut e = Elements { graph, taken: &taken, reader: &graph[id], made: vec![], told: vec![], depth: 0 };
        let def = match &e.reader.def {
            Def::Map(t) => Def::Map(e.walk(t, &[])),
            Def::Reduce(r) => {
                // In order: a condition may be one that only those before it let be asked.
                let (mut filter, mut conditions) = (vec![], vec![]);
                for f in &r.filter {
                    filter.push(e.walk(f, &conditions));
                    conditions.push(f.clone());
                }
                Def::Reduce(Reduction { body: e.walk(&r.body, &conditions), filter, ..r.clone() })
            }
            Def::Input | Def::Iterative { .. } => continue,
        };
        let (made, told) = (e.made, e.told);
        if made.is_empty() {
            continue;
        }
        // From the last node to the first: numbers of those before stay as they are.
        let new = insert(&mut out, id, made, Node { def, ..graph[id].clone() });
        steps.extend(new.into_iter().zip(told).map(|(n, (whole, before))| {
            let (node, Def::Reduce(r)) = (&out[n], &graph[whole].def) else { unreachable!("only reductions are made") };
            Step {
                rule: Rule::Elements,
                statement: node.statement.unwrap_or(0),
                node: node.name.clone(),
                ranks: r.over.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect(),
                why: format!("{} reads one element of {} at each of its positions", graph[id].name, graph[whole].name),
                before,
                after: match &node.def {
                    Def::Reduce(r) => format!("{} = {}", node.name, show::reduction(&out, r)),
                    _ => String::new(),
                },
            }
        }));
    }
    if steps.is_empty() {
        return (out, steps);
    }
    rebuild::prune(&mut out);
    crate::level::assign(&mut out);
    (out, steps)
}

/// What is found in one node's definition.
struct Elements<'a> {
    graph: &'a Graph,
    /// Nodes whose names are taken.
    taken: &'a [Node],
    reader: &'a Node,
    /// The new nodes, in order.
    made: Vec<Node>,
    /// For each of them which node it has elements of, and the read that it is for.
    told: Vec<(NodeId, String)>,
    depth: usize,
}

impl Elements<'_> {
    /// The term, met under these conditions, with elements of their own in place of such reads.
    fn walk(&mut self, t: &Term, conditions: &[Term]) -> Term {
        let under = |c: Term| conditions.iter().cloned().chain([c]).collect::<Vec<_>>();
        match t {
            Term::Read(n, at) => self.element(*n, at, conditions).unwrap_or_else(|| t.clone()),
            Term::Select(c, a, b) => {
                let (held, failed) = (under((**c).clone()), under(filter::negate(c)));
                let c = self.walk(c, conditions);
                Term::Select(Box::new(c), Box::new(self.walk(a, &held)), Box::new(self.walk(b, &failed)))
            }
            _ => t.map_children(&mut |t| self.walk(t, conditions)),
        }
    }

    /// An element of a node as what is computed for it alone.
    fn element(&mut self, n: NodeId, at: &[IndexExpr], conditions: &[Term]) -> Option<Term> {
        let node = &self.graph[n];
        let loops = self.graph.recurrences.iter().any(|r| r.members.contains(&n));
        if loops || self.graph.outputs.contains(&n) || self.graph.is_plain(n, at) || self.depth == DEPTH {
            return None;
        }
        let own = axes_of(at)?;
        let rank = |i: IndexId| self.graph.cascade[i].rank;
        // Places that are there under any condition need none.
        let there = at.iter().zip(&node.axes).all(|(e, &i)| e.as_var().is_some_and(|j| rank(j) == rank(i)));
        let conditions = if there { &[] } else { conditions };
        let foreign = |t: &Term| {
            let mut all = BTreeSet::new();
            t.indices(&mut all);
            all.iter().any(|i| !own.iter().any(|(j, _)| j == i))
        };
        if conditions.iter().any(foreign) {
            return None;
        }
        let before = self.made.len();
        self.depth += 1;
        let value = match &node.def {
            Def::Map(t) if !inline::rounds(node) => {
                let place = |i: IndexId| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone());
                t.substitute(&place).map(|t| self.walk(&t, conditions))
            }
            Def::Reduce(r) => self.reduced(n, r, at, &own, conditions),
            _ => None,
        };
        self.depth -= 1;
        // What has no such reduction in it is put in place where it is read, by the rule for that.
        value.filter(|_| self.made.len() > before)
    }

    /// The reduction at these places, under these conditions, as a read of a node of its own.
    fn reduced(
        &mut self,
        n: NodeId,
        r: &Reduction,
        at: &[IndexExpr],
        own: &[(IndexId, usize)],
        conditions: &[Term],
    ) -> Option<Term> {
        // Under its own names `C[i,i]` and `C[j,j]` are elements of one node.
        let (graph, axes) = (self.graph, &self.graph[n].axes);
        let same = own.iter().all(|&(i, k)| graph.cascade[i].rank == graph.cascade[axes[k]].rank);
        let name = |i: IndexId| own.iter().find(|o| o.0 == i).map(|&(i, k)| if same { axes[k] } else { i });
        let to = |i: IndexId| name(i).map(IndexExpr::var);
        let places: Vec<IndexExpr> = at.iter().map(|e| e.map_indices(&|i| name(i).unwrap_or(i))).collect();
        let place = |i: IndexId| axes.iter().position(|&a| a == i).map(|k| places[k].clone());
        let named: Vec<IndexId> = own.iter().filter_map(|o| name(o.0)).collect();
        if r.over.iter().any(|i| named.contains(i)) {
            return None;
        }
        let moved = |all: &[Term], f: &dyn Fn(&Term) -> Option<Term>| all.iter().map(f).collect::<Option<Vec<_>>>();
        let there = moved(&r.filter, &|t| t.substitute(&place))?;
        let body = r.body.substitute(&place)?;
        let mut held = moved(conditions, &|t| t.substitute(&to))?;
        let mut filter = held.clone();
        for f in there {
            filter.push(self.walk(&f, &held));
            held.push(f);
        }
        let body = self.walk(&body, &held);
        let made = Reduction { filter, body, streaming: Streaming::default(), ..r.clone() };
        let read = own.iter().map(|o| IndexExpr::var(o.0)).collect();
        Some(Term::Read(self.push(n, at, named, made), read))
    }

    /// The node with this definition.
    fn push(&mut self, of: NodeId, at: &[IndexExpr], axes: Vec<IndexId>, r: Reduction) -> NodeId {
        let (whole, def) = (&self.graph[of], Def::Reduce(r));
        if let Some(k) = self.made.iter().position(|n| n.def == def && n.axes == axes && n.dtype == whole.dtype) {
            return placeholder(k);
        }
        let read = show::term(self.graph, &Term::Read(of, at.to_vec()));
        let taken: Vec<Node> = self.taken.iter().chain(&self.made).cloned().collect();
        self.made.push(Node {
            name: flatten::fresh_name(&taken, &format!("{}.at", whole.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect(),
            axes,
            def,
            dtype: whole.dtype,
            tensor: None,
            statement: self.reader.statement,
            span: self.reader.span,
        });
        self.told.push((of, read));
        placeholder(self.made.len() - 1)
    }
}

/// The indices that are places by themselves, each with the first such place, if the others move with these alone and are one at least.
fn axes_of(at: &[IndexExpr]) -> Option<Vec<(IndexId, usize)>> {
    let mut axes: Vec<(IndexId, usize)> = vec![];
    for (k, e) in at.iter().enumerate() {
        axes.extend(e.as_var().filter(|i| axes.iter().all(|o| o.0 != *i)).map(|i| (i, k)));
    }
    let mut all = true;
    at.iter().for_each(|e| e.visit_indices(&mut |i| all &= axes.iter().any(|o| o.0 == i)));
    (all && axes.len() < at.len()).then_some(axes)
}
