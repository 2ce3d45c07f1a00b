//! New nodes in a graph, before the node that they replace a part of.

use crate::derive::rebuild::renumber;
use crate::{Graph, Node, NodeId};
use einloom_cascade::{Index, IndexId};

/// Stands for the `k`-th new node in terms that are made before its place is known.
pub(in crate::derive) fn placeholder(k: usize) -> NodeId {
    NodeId(u32::MAX - k as u32)
}

/// The graph with `new` in front of node `at`, whose own definition becomes `replaced`. Terms of both name new nodes
/// by [`placeholder`], others by their old numbers. Returns the new nodes' numbers.
pub(in crate::derive) fn insert(graph: &mut Graph, at: NodeId, new: Vec<Node>, replaced: Node) -> Vec<NodeId> {
    let count = new.len() as u32;
    let to = |n: NodeId| match u32::MAX - n.0 {
        k if k < count => NodeId(at.0 + k),
        _ if n >= at => NodeId(n.0 + count),
        _ => n,
    };
    graph.nodes[at.0 as usize] = replaced;
    graph.nodes.splice(at.0 as usize..at.0 as usize, new);
    graph.nodes.iter_mut().for_each(|n| renumber(&mut n.def, &to));
    graph.outputs.iter_mut().for_each(|o| *o = to(*o));
    graph.recurrences.iter_mut().for_each(|r| r.members.iter_mut().for_each(|m| *m = to(*m)));
    (0..count).map(|k| NodeId(at.0 + k)).collect()
}

/// Another index over the rank of `like`, under a name that no index has.
pub(in crate::derive) fn fresh_index(graph: &mut Graph, like: IndexId) -> IndexId {
    let Index { name, rank } = graph.cascade[like].clone();
    let taken = |n: &str| graph.cascade.indices.iter().any(|i| i.name == n);
    let name = (2..).map(|k| format!("{name}{k}")).find(|n| !taken(n)).unwrap_or(name);
    graph.cascade.indices.push(Index { name, rank });
    IndexId(graph.cascade.indices.len() as u32 - 1)
}
