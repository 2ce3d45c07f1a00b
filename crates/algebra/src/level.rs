//! Which traversal of its indices each reduction belongs to.

use crate::{Def, Graph, NodeId};
use std::collections::BTreeMap;

/// For every node the reductions it transitively needs, with their levels.
type Needs = BTreeMap<NodeId, usize>;

/// Levels of a graph that grows node by node.
#[derive(Default)]
pub struct Levels {
    needs: Vec<Needs>,
    own: Vec<usize>,
}

impl Levels {
    /// The level of the next node of the graph: one more than that of any reduction over a shared index whose complete
    /// value it needs; an anchor's own level where it reads only the running value. 0 for what is no reduction.
    pub fn push(&mut self, graph: &Graph) -> usize {
        let id = NodeId(self.needs.len() as u32);
        let mut needs = Needs::new();
        for operand in graph.operands(id) {
            // A member of a recurrence may need a later one; its level cannot matter to itself.
            if operand.node < id {
                needs.extend(&self.needs[operand.node.0 as usize]);
                if let Def::Reduce(_) = &graph[operand.node].def {
                    needs.insert(operand.node, self.own[operand.node.0 as usize]);
                }
            }
        }
        let mut level = 0;
        if let Def::Reduce(r) = &graph[id].def {
            let shares = |a: NodeId| match &graph[a].def {
                Def::Reduce(other) => other.over.iter().any(|i| r.over.contains(i)),
                _ => false,
            };
            let barrier = |a: NodeId| usize::from(!r.streaming.anchors.contains(&a) && shares(a));
            level = needs.iter().map(|(&a, &level)| level + barrier(a)).max().unwrap_or(0);
        }
        self.needs.push(needs);
        self.own.push(level);
        level
    }

    /// The level of a node.
    pub fn of(&self, id: NodeId) -> usize {
        self.own.get(id.0 as usize).copied().unwrap_or(0)
    }
}

/// Sets [`crate::Streaming::level`] of every reduction.
pub fn assign(graph: &mut Graph) {
    let mut levels = Levels::default();
    for id in graph.ids() {
        let level = levels.push(graph);
        if let Def::Reduce(r) = &mut graph.nodes[id.0 as usize].def {
            r.streaming.level = level;
        }
    }
}
