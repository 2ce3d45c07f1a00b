//! Extrema in another order: `max_n (max_d (q(m,d) + k(n,d)) + v(n)) = max_d (q(m,d) + max_n (k(n,d) + v(n)))`.
//!
//! What adds distributes over a maximum and over a minimum as a factor does over a sum, so two extrema of one kind change places as two sums
//! do, over a prefix `n <= m` too: the inner one is then a running extremum.
//!
//! Conditions: the inner extremum is an addend of the outer one's body and not rounded; the addends that carry n do not carry the indices of the
//! query side, which are the result's indices that only addends without n bring in; conditions carry n, or the inner indices, or neither.

use super::Rewriting;
use super::build::{Join, State, rename_placeholders};
use super::insert::{fresh_index, insert, placeholder};
use super::prefix::Prefix;
use super::site::{Site, open_maps};
use crate::derive::inline::rounds;
use crate::derive::{filter, guard};
use crate::product::{self, Sum};
use crate::{Def, Graph, Node, NodeId, Recurrence, Reduction, Rule, Step, Streaming, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Two extrema taken together.
struct Both {
    /// The outer one's conditions that make a prefix.
    prefix: Option<Prefix>,
    inner: Vec<IndexId>,
    inside: Sum,
    outside: Sum,
    inside_filter: Vec<Term>,
    outside_filter: Vec<Term>,
}

/// The graph with the extremum at `id` in another order. Nothing where a condition fails.
pub(super) fn exchanged(shared: &Rc<Graph>, id: NodeId) -> Option<Rewriting> {
    let node = &shared[id];
    let Def::Reduce(r) = &node.def else { return None };
    let (op, identity) = match r.monoid {
        Monoid::Max => (BinaryOp::Max, f64::NEG_INFINITY),
        Monoid::Min => (BinaryOp::Min, f64::INFINITY),
        _ => return None,
    };
    if shared.recurrences.iter().any(|r| r.members.contains(&id)) || node.dtype == Some(DType::I32) {
        return None;
    }
    let (body, conditions) = filter::stripped(shared, r, identity);
    let addends = product::sum(&open_maps(shared, &body, &r.over, false));
    (0..addends.len()).find_map(|k| {
        let mut site = Site { graph: shared.clone(), id, node: node.clone(), over: r.over.clone(), spans: vec![] };
        let both = site.both(r.monoid, &addends, &conditions, k)?;
        site.exchange_extrema(&both, (r.monoid, op, identity))
    })
}

impl Site {
    /// The addends with the `k`-th, if that is an extremum, taken apart.
    fn both(&mut self, monoid: Monoid, addends: &Sum, conditions: &[Term], k: usize) -> Option<Both> {
        let (1.0, Term::Read(n, at)) = &addends[k] else { return None };
        let node = self.graph[*n].clone();
        let Def::Reduce(r) = &node.def else { return None };
        let member = self.graph.recurrences.iter().any(|r| r.members.contains(n));
        let (over, axes) = (self.over.clone(), self.node.axes.clone());
        let carries = |t: &Term| t.mentions(&over);
        if r.monoid != monoid || member || rounds(&node) || r.over.is_empty() || !carries(&addends[k].1) {
            return None;
        }
        let mut rest = addends.clone();
        rest.remove(k);
        let mut taken: BTreeSet<IndexId> = axes.iter().chain(&over).copied().collect();
        rest.iter().map(|a| &a.1).chain(conditions).for_each(|t| t.indices(&mut taken));
        let mut inner = vec![];
        for &i in &r.over {
            inner.push(if taken.contains(&i) { fresh_index(Rc::make_mut(&mut self.graph), i) } else { i });
        }
        let place = |i: IndexId| match r.over.iter().position(|&o| o == i) {
            Some(k) => Some(IndexExpr::var(inner[k])),
            None => node.axes.iter().position(|&a| a == i).map(|k| at[k].clone()),
        };
        let mut all = product::sum(&open_maps(&self.graph, &r.body, &r.over, false).substitute(&place)?);
        let own = r.filter.iter().map(|t| t.substitute(&place)).collect::<Option<Vec<_>>>()?;
        let apart = |t: &Term| t.mentions(&inner) && !t.mentions(&over);
        let asked: Vec<Term> = all.iter().map(|a| &a.1).chain(&own).filter(|t| apart(t)).cloned().collect();
        product::append(&mut all, rest, 1.0);
        let (inside, outside): (Sum, Sum) = all.into_iter().partition(|(_, t)| carries(t));
        let query: Vec<IndexId> = axes
            .iter()
            .copied()
            .filter(|&i| asked.iter().any(|t| t.mentions(&[i])) && !inside.iter().any(|(_, t)| t.mentions(&[i])))
            .collect();
        let tied = |t: &Term| t.mentions(&query) && carries(t);
        let (tying, others): (Vec<Term>, Vec<Term>) = conditions.iter().cloned().chain(own).partition(|t| tied(t));
        let prefix = match tying.is_empty() {
            true => None,
            false => Some(Prefix::of(&self.graph, &tying, &over).ok()?),
        };
        if query.is_empty() || inside.iter().any(|(_, t)| prefix.is_some_and(|p| t.mentions(&[p.up_to]))) {
            return None;
        }
        let (inside_filter, outside_filter): (Vec<Term>, Vec<Term>) = others.into_iter().partition(|t| carries(t));
        let about = |t: &Term| !t.mentions(&inner) && !t.mentions(&axes);
        // Under what does not carry the inner indices there is something for all of them or for none.
        if outside_filter.iter().any(about) {
            return None;
        }
        Some(Both { prefix, inner, inside, outside, inside_filter, outside_filter })
    }

    fn exchange_extrema(&self, both: &Both, (monoid, op, identity): (Monoid, BinaryOp, f64)) -> Option<Rewriting> {
        let mut g = (*self.graph).clone();
        let inside = product::sum_term(&both.inside);
        let (state, read) = match &both.prefix {
            Some(p) => {
                let kept = |old: Term| old;
                let filters = &both.inside_filter;
                let state = State { inside: &inside, filters, kept: &kept, uses: &[], join: Join::Op(op), identity };
                self.state_node(p, state, &both.inner, g.recurrences.len()).ok()?
            }
            None => self.inner_extremum(both, monoid, inside),
        };
        let outside = product::sum_term(&both.outside);
        let add = |read: Term| Term::Binary(BinaryOp::Add, Box::new(outside.clone()), Box::new(read));
        let reduction = Reduction {
            monoid,
            over: both.inner.clone(),
            filter: both.outside_filter.clone(),
            // Over nothing it is the identity, whatever is added.
            body: guard::unless_identity(&read, identity, add),
            streaming: Streaming::default(),
        };
        let step = self.tell_exchange(both, &state, &reduction);
        let def = Def::Reduce(reduction);
        let made = insert(&mut g, self.id, vec![state], Node { def, ..self.node.clone() });
        if let Some(p) = &both.prefix {
            let rank = g.cascade[p.up_to].rank;
            g.recurrences.push(Recurrence { rank, index: p.up_to, members: made, within: vec![] });
        }
        Some(Rewriting { exchanged: vec![], graph: g, steps: step })
    }

    fn inner_extremum(&self, both: &Both, monoid: Monoid, body: Term) -> (Node, Term) {
        let mut free = BTreeSet::new();
        body.indices(&mut free);
        both.inside_filter.iter().for_each(|t| t.indices(&mut free));
        self.over.iter().for_each(|i| _ = free.remove(i));
        let axes = self.order(&free, &both.inner, None);
        let (over, filter) = (self.over.clone(), both.inside_filter.clone());
        let reduction = Reduction { monoid, over, filter, body, streaming: Streaming::default() };
        let node = self.part("inner", axes.clone(), Def::Reduce(reduction));
        (node, Term::Read(placeholder(0), axes.into_iter().map(IndexExpr::var).collect()))
    }

    fn tell_exchange(&self, both: &Both, state: &Node, after: &Reduction) -> Vec<Step> {
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let Def::Reduce(written) = &self.graph[self.id].def else { return vec![] };
        let shown = self.with(std::slice::from_ref(state));
        let renamed = |def: &Def| show::def(&shown, &rename_placeholders(def, self.graph.nodes.len()));
        let kind = written.monoid.name(&self.graph.cascade);
        let mut plain = after.clone();
        plain.body = show::unguarded(&plain.body);
        let after = renamed(&Def::Reduce(plain));
        let definition = match both.prefix {
            None => format!(", where {} = {}", show::place(&self.graph, state), renamed(&state.def)),
            Some(_) => String::new(),
        };
        let base = Step {
            rule: Rule::Reassociate,
            statement: self.node.statement.unwrap_or(0),
            node: self.node.name.clone(),
            ranks: self.over.iter().map(|&i| self.graph.cascade[self.graph.cascade[i].rank].name.clone()).collect(),
            why: format!(
                "{} does not carry {}, and + distributes over the {kind} over {} and that over {}, which change places",
                show::term(&self.graph, &product::sum_term(&both.outside)),
                names(&self.over),
                names(&self.over),
                names(&both.inner)
            ),
            before: show::reduction(&self.graph, written),
            after: format!("{after}{definition}"),
        };
        let Some(p) = &both.prefix else { return vec![base] };
        let (n, m) = (names(&[p.of]), names(&[p.up_to]));
        let carried = Step {
            rule: Rule::Prefix,
            node: state.name.clone(),
            why: format!("the positions {n} that {m} sees are those that {m} - 1 sees and one more"),
            before: after,
            after: format!("{} = {}", self.next_slice(state, &m), renamed(&state.def)),
            ..base.clone()
        };
        vec![base, carried]
    }
}
