//! Nodes in an order in which each needs only earlier ones, with the members of a recurrence side by side.

use crate::derive::rebuild::renumber;
use crate::{Def, Graph, NodeId};
use std::collections::BTreeSet;

/// The graph in such an order, otherwise as it was; nothing if there is none.
pub(in crate::derive) fn sorted(graph: &Graph) -> Option<Graph> {
    let group = |n: NodeId| graph.recurrences.iter().position(|r| r.members.contains(&n));
    let together = |n: NodeId| group(n).map_or_else(|| vec![n], |r| graph.recurrences[r].members.clone());
    let needs = |n: NodeId| -> BTreeSet<NodeId> {
        let own = together(n);
        let all = own.iter().flat_map(|&m| graph.operands(m)).map(|o| o.node);
        all.filter(|o| !own.contains(o)).collect()
    };
    let mut order: Vec<NodeId> = vec![];
    let mut placed = BTreeSet::new();
    let mut left: Vec<NodeId> = graph.ids().collect();
    while !left.is_empty() {
        let next = *left.iter().find(|&&n| needs(n).iter().all(|m| placed.contains(m)))?;
        let own = in_order(graph, &together(next))?;
        placed.extend(own.iter().copied());
        left.retain(|n| !own.contains(n));
        order.extend(own);
    }
    let mut number = vec![NodeId(0); order.len()];
    for (k, n) in order.iter().enumerate() {
        number[n.0 as usize] = NodeId(k as u32);
    }
    let to = |n: NodeId| number[n.0 as usize];
    let mut out = graph.clone();
    out.nodes = order.iter().map(|&n| graph[n].clone()).collect();
    out.nodes.iter_mut().for_each(|n| renumber(&mut n.def, &to));
    out.outputs.iter_mut().for_each(|o| *o = to(*o));
    for r in &mut out.recurrences {
        r.members.iter_mut().for_each(|m| *m = to(*m));
        if !r.within.is_empty() {
            r.members.sort();
        }
    }
    Some(out)
}

/// The members of a recurrence in the order of a chunk: two that were joined may need each other's parts. States are
/// read as they were at its start, so they come when what they add is there.
fn in_order(graph: &Graph, members: &[NodeId]) -> Option<Vec<NodeId>> {
    let chunked = graph.recurrences.iter().any(|r| !r.within.is_empty() && r.members.contains(&members[0]));
    if !chunked {
        return Some(members.to_vec());
    }
    let state = |n: NodeId| matches!(graph[n].def, Def::Iterative { .. });
    let mut left = members.to_vec();
    let mut order = vec![];
    while !left.is_empty() {
        let waits =
            |m: NodeId| graph.operands(m).iter().any(|o| o.node != m && !state(o.node) && left.contains(&o.node));
        let k = left.iter().position(|&m| !waits(m))?;
        order.push(left.remove(k));
    }
    Some(order)
}
