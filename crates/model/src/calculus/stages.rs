//! When what is computed: bodies of streams, and what stands between them.
//!
//! Straight parts have even times and bodies of streams odd ones. A box that reads the complete value of a
//! streamed reduction waits for the end of that stream; one that reads its running value (the anchor of a derived
//! form) does not. What moves along a stream is computed in every body that needs it.

use super::Partition;
use super::diagram::{Diagram, Kernel};
use einloom_algebra::{Def, NodeId};
use einloom_cascade::IndexId;
use std::collections::{BTreeMap, BTreeSet};

/// What a box is to the streams of its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Moves along no stream.
    Straight,
    /// Computed batch by batch.
    Batch,
    /// Accumulated along a stream.
    State,
}

/// The times of a kernel's boxes.
#[derive(Debug)]
pub(super) struct Stages {
    /// When each box is computed; several times only for batches.
    pub times: BTreeMap<NodeId, BTreeSet<usize>>,
    /// What each box is.
    pub roles: BTreeMap<NodeId, Role>,
    /// The last time.
    pub last: usize,
}

impl Stages {
    pub fn new(d: &Diagram, kernel: &Kernel, partition: &Partition) -> Self {
        let streamed = |i: &IndexId| partition.depth(d.index_name(*i)).is_some();
        let mut roles = BTreeMap::new();
        let mut first: BTreeMap<NodeId, usize> = BTreeMap::new();
        for &n in &kernel.nodes {
            let node = &d.graph[n];
            let over = match &node.def {
                Def::Reduce(r) => r.over.iter().any(streamed),
                _ => false,
            };
            let role = match (over, node.axes.iter().any(streamed)) {
                (true, _) => Role::State,
                (false, true) => Role::Batch,
                (false, false) => Role::Straight,
            };
            let anchors = match &node.def {
                Def::Reduce(r) => r.streaming.anchors.as_slice(),
                _ => &[],
            };
            let ready = d.graph.operands(n).into_iter().map(|o| {
                let time = first.get(&o.node).copied().unwrap_or(0);
                let complete = roles.get(&o.node) == Some(&Role::State) && !anchors.contains(&o.node);
                time + usize::from(complete)
            });
            let ready = ready.max().unwrap_or(0);
            let wants_odd = role != Role::Straight;
            first.insert(n, if (ready % 2 == 1) == wants_odd { ready } else { ready + 1 });
            roles.insert(n, role);
        }
        let last = first.values().copied().max().unwrap_or(0);
        let mut times: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
        for &n in kernel.nodes.iter().rev() {
            let own = first[&n];
            // A batch is computed where it is read; a root that is stored batch by batch, once.
            let batch = roles[&n] == Role::Batch && !kernel.roots.contains(&n);
            let at = if batch { times.remove(&n).unwrap_or_default() } else { BTreeSet::from([own]) };
            for operand in d.graph.operands(n) {
                if roles.get(&operand.node) == Some(&Role::Batch) {
                    times.entry(operand.node).or_default().extend(&at);
                }
            }
            times.insert(n, at);
        }
        Self { times, roles, last }
    }

    /// The times at which a box is computed.
    pub fn of(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        self.times.get(&node).into_iter().flatten().copied()
    }
}
