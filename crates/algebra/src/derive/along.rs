//! Reductions over the positions of a recurrence, taken along with it: `max(t) r[t + 1]` is a state beside `r`, of which the last slice has all.
//!
//! Condition: it is a sum, a product or an extremum, of numbers that are not integers (sums of these are exact as they are); what is reduced reads the recurrence at its
//! position or the one after, and nothing else that is made of it, once at most [`MOST_OPENED`] pointwise definitions are in place of what reads them. Then
//! no slice need be kept for a second traversal. Chunks of the recurrence are given up for it, so this makes an alternative.

use super::inline;
use super::reassociate::{Rewriting, insert, placeholder};
use super::rebuild::renumber;
use crate::{Def, Graph, Node, NodeId, Operand, Recurrence, Reduction, Rule, Step, Streaming, Term, flatten, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

/// The graph in which all such reductions go along with their recurrences, if there are any.
pub(super) fn alternative(written: &Graph) -> Option<Rewriting> {
    let mut out = Rewriting { graph: written.clone(), steps: vec![], exchanged: vec![] };
    let names: Vec<String> = written.nodes.iter().map(|n| n.name.clone()).collect();
    for name in names {
        let Some(id) = out.graph.ids().find(|&n| out.graph[n].name == name) else { continue };
        if let Some((graph, step)) = taken_along(&out.graph, id) {
            out.graph = graph;
            out.steps.push(step);
        }
    }
    super::rebuild::prune(&mut out.graph);
    (!out.steps.is_empty()).then_some(out)
}

fn taken_along(graph: &Graph, id: NodeId) -> Option<(Graph, Step)> {
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let (op, identity) = match r.monoid {
        Monoid::Sum => (BinaryOp::Add, 0.0),
        Monoid::Prod => (BinaryOp::Mul, 1.0),
        Monoid::Max => (BinaryOp::Max, f64::NEG_INFINITY),
        Monoid::Min => (BinaryOp::Min, f64::INFINITY),
        Monoid::ArgMax | Monoid::ArgMin | Monoid::Custom(_) => return None,
    };
    let inside = graph.recurrences.iter().any(|r| r.members.contains(&id));
    if inside || node.dtype.is_some_and(DType::is_integer) || integers(graph, &r.body) {
        return None;
    }
    let filter = r.filter.iter().cloned().reduce(|a, b| Term::Binary(BinaryOp::And, Box::new(a), Box::new(b)));
    let otherwise = Box::new(Term::Number(identity));
    let body = match filter {
        Some(c) => Term::Select(Box::new(c), Box::new(r.body.clone()), otherwise),
        None => r.body.clone(),
    };
    let of = |(k, all): (usize, &Recurrence)| {
        let over = r.over.iter().copied().find(|&i| graph.cascade[i].rank == all.rank)?;
        let body = opened(graph, &body, &all.members, &mut MOST_OPENED.clone());
        let own = all.within.is_empty() && !node.axes.contains(&all.index) && !r.over.contains(&all.index);
        (own || over == all.index).then_some(())?;
        goes_along(graph, &body, over, &all.members).then_some((k, over, body))
    };
    let (number, over, body) = graph.recurrences.iter().enumerate().find_map(of)?;
    let Recurrence { rank, index, .. } = graph.recurrences[number];
    let summand = body.substitute(&|i| (i == over).then(|| IndexExpr::var(index)))?;
    let others: Vec<IndexId> = r.over.iter().copied().filter(|&i| i != over).collect();
    let axes: Vec<IndexId> = node.axes.iter().copied().chain([index]).chain(others.iter().copied()).collect();
    let dim = node.axes.len();
    let at = |position: IndexExpr| -> Vec<IndexExpr> {
        let place = |(k, &i): (usize, &IndexId)| if k == dim { position.clone() } else { IndexExpr::var(i) };
        axes.iter().enumerate().map(place).collect()
    };
    let state = placeholder(0);
    let before = Box::new(Term::Read(state, at(IndexExpr::var(index))));
    let step = Term::Binary(op, before, Box::new(summand));
    let initial = vec![(SizeExpr::constant(0), Term::Number(identity))];
    let size = |&i: &IndexId| SizeExpr::rank(graph.cascade[i].rank);
    let mut extents: Vec<SizeExpr> = axes.iter().map(size).collect();
    extents[dim] = extents[dim].add(&SizeExpr::constant(1));
    let name = flatten::fresh_name(&graph.nodes, &format!("{}.along", node.name));
    let def = Def::Iterative { recurrence: number, dim, initial, step };
    let made = Node { name, def, axes: axes.clone(), extents, dtype: None, tensor: None, ..node.clone() };
    let mut end = IndexExpr::var(index);
    (end.terms, end.offset) = (vec![], SizeExpr::rank(rank));
    let whole = Term::Read(state, at(end));
    let def = match others.is_empty() {
        true => Def::Map(whole),
        false => {
            let streaming = Streaming::default();
            Def::Reduce(Reduction { monoid: r.monoid, over: others, filter: vec![], body: whole, streaming })
        }
    };
    let names: Vec<&str> = graph.recurrences[number].members.iter().map(|&m| graph[m].name.as_str()).collect();
    let told = Step {
        rule: Rule::Prefix,
        statement: node.statement.unwrap_or(0),
        node: made.name.clone(),
        ranks: vec![graph.cascade[rank].name.clone()],
        why: format!(
            "what is reduced is made of {} at one position, so a state beside it takes in an element a step, and the last slice has all",
            names.join(", ")
        ),
        before: show::reduction(graph, r),
        after: format!("{}, where it begins with {identity}", show::term(graph, &body)),
    };
    let mut out = graph.clone();
    let added = insert(&mut out, id, vec![made], Node { def, ..node.clone() });
    out.recurrences[number].members.extend(added);
    sort(&mut out);
    Some((out, told))
}

/// The members of a node's recurrence.
fn beside(graph: &Graph, n: NodeId) -> &[NodeId] {
    graph.recurrences.iter().find(|r| r.members.contains(&n)).map_or(&[], |r| &r.members)
}

/// Puts what a node is made of before it, and the members of a recurrence after each other.
fn sort(graph: &mut Graph) {
    let (mut order, mut seen): (Vec<NodeId>, _) = (vec![], BTreeSet::new());
    // Nodes of which what they are made of is in place when they are met again.
    let mut todo: Vec<(NodeId, bool)> = graph.ids().map(|n| (n, false)).rev().collect();
    while let Some((n, ready)) = todo.pop() {
        let mut unit = beside(graph, n).to_vec();
        if unit.is_empty() {
            unit.push(n);
        }
        unit.sort_unstable();
        if ready {
            order.extend(unit);
        } else if seen.insert(unit[0]) {
            todo.push((n, true));
            let before: BTreeSet<NodeId> = unit.iter().flat_map(|&m| graph.operands(m)).map(|o| o.node).collect();
            todo.extend(before.into_iter().filter(|m| !unit.contains(m)).rev().map(|m| (m, false)));
        }
    }
    let mut number = vec![NodeId(0); order.len()];
    order.iter().enumerate().for_each(|(k, n)| number[n.0 as usize] = NodeId(k as u32));
    let to = |n: NodeId| number[n.0 as usize];
    let mut nodes: Vec<Node> = order.iter().map(|&n| graph[n].clone()).collect();
    nodes.iter_mut().for_each(|n| renumber(&mut n.def, &to));
    graph.nodes = nodes;
    graph.outputs.iter_mut().for_each(|o| *o = to(*o));
    graph.recurrences.iter_mut().for_each(|r| r.members.iter_mut().for_each(|m| *m = to(*m)));
}

/// Whether it adds up integers, which are exact as they are.
fn integers(graph: &Graph, body: &Term) -> bool {
    let integer = |n: NodeId| graph[n].dtype.is_some_and(DType::is_integer);
    body.any_read(&integer) && !body.any_read(&|n| !integer(n))
}

/// More definitions than this are not put in place of what reads them: each may be read twice by the next.
const MOST_OPENED: usize = 64;

/// The body with pointwise definitions of these nodes in place of what reads them, as long as there are `left`.
fn opened(graph: &Graph, t: &Term, members: &[NodeId], left: &mut usize) -> Term {
    t.replace_reads(&mut |n, at| {
        let node = &graph[n];
        let Def::Map(def) = &node.def else { return None };
        if members.contains(&n)
            || inline::rounds(node)
            || !def.any_read(&|m| members.contains(&m) || made_of(graph, m, members))
        {
            return None;
        }
        let place = |i: IndexId| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone());
        *left = left.checked_sub(1)?;
        def.substitute(&place).map(|t| opened(graph, &t, members, left))
    })
}

/// Whether a node outside the recurrence is made of one of its members.
fn made_of(graph: &Graph, n: NodeId, members: &[NodeId]) -> bool {
    let mut seen = BTreeSet::new();
    let mut todo = vec![n];
    while let Some(n) = todo.pop() {
        if members.contains(&n) {
            return true;
        }
        if seen.insert(n) {
            todo.extend(graph.operands(n).into_iter().map(|o| o.node));
            // One recurrence waits for all that its members are made of.
            todo.extend(beside(graph, n));
        }
    }
    false
}

/// Whether it reads the members, all of them at the position `over` or the one after, and nothing that is made of them.
fn goes_along(graph: &Graph, body: &Term, over: IndexId, members: &[NodeId]) -> bool {
    let mut reads = vec![];
    graph.reads(body, &mut reads);
    let here = |e: &IndexExpr| e.as_shifted_var().is_some_and(|(i, by)| i == over && (0..=1).contains(&by));
    let elsewhere = |e: &IndexExpr| {
        let mut found = false;
        e.visit_indices(&mut |i| found |= i == over);
        !found
    };
    let slice = |o: &Operand<'_>| match graph[o.node].def {
        Def::Iterative { dim, .. } if members.contains(&o.node) => {
            Some(o.at.iter().enumerate().all(|(d, e)| if d == dim { here(e) } else { elsewhere(e) }))
        }
        _ => None,
    };
    reads.iter().any(|o| slice(o).is_some())
        && reads.iter().all(|o| slice(o).unwrap_or_else(|| !made_of(graph, o.node, members)))
}
