//! Which traversal of its indices each reduction belongs to.

use crate::{Def, Graph, NodeId};
use std::collections::BTreeMap;

/// For every node the reductions it transitively needs, with their levels.
type Needs = BTreeMap<NodeId, usize>;

/// Sets [`crate::Streaming::level`] of every reduction: one more than that of any reduction over a shared index whose
/// complete value it needs; an anchor's own level where it reads only the running value.
pub fn assign(graph: &mut Graph) {
    let mut needs: Vec<Needs> = vec![Needs::new(); graph.nodes.len()];
    for id in graph.ids() {
        let mut own = Needs::new();
        for operand in graph.operands(id) {
            // A member of a recurrence may need a later one; its level cannot matter to itself.
            if operand.node < id {
                merge(&mut own, &needs[operand.node.0 as usize]);
                if let Def::Reduce(r) = &graph[operand.node].def {
                    own.insert(operand.node, r.streaming.level);
                }
            }
        }
        if let Def::Reduce(r) = &graph[id].def {
            let shares = |a: NodeId| match &graph[a].def {
                Def::Reduce(other) => other.over.iter().any(|i| r.over.contains(i)),
                _ => false,
            };
            let barrier = |a: NodeId| usize::from(!r.streaming.anchors.contains(&a) && shares(a));
            let level = own.iter().map(|(&a, &level)| level + barrier(a)).max().unwrap_or(0);
            if let Def::Reduce(r) = &mut graph.nodes[id.0 as usize].def {
                r.streaming.level = level;
            }
        }
        needs[id.0 as usize] = own;
    }
}

fn merge(into: &mut Needs, from: &Needs) {
    for (&k, &v) in from {
        into.insert(k, v);
    }
}
