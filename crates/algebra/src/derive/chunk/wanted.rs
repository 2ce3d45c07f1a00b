//! States that are outputs: `output h` of `h[t+1] = a·h[t] + u`. Chunks keep a state at their ends only, so the output becomes a
//! tensor of its own, `h[t+1]` of a state that nobody else sees: no step of it needs the one before.
//!
//! Condition: the state starts from one slice, at position 0.

use crate::derive::rebuild;
use crate::flatten::fresh_name;
use crate::{Def, Graph, NodeId, Recurrence, Term};
use einloom_cascade::{IndexExpr, SizeExpr};

/// What the state of an output is called.
const STATE: &str = "state";

/// The graph with the outputs of a recurrence apart from its states; `None` if there are none.
pub(super) fn apart(graph: &Graph, r: usize) -> Option<Graph> {
    let is_wanted = |n: &NodeId| {
        let starts = |initial: &[(SizeExpr, Term)]| matches!(initial, [(at, _)] if at.as_constant() == Some(0));
        graph.outputs.contains(n) && matches!(&graph[*n].def, Def::Iterative { initial, .. } if starts(initial))
    };
    let wanted: Vec<NodeId> = graph.recurrences[r].members.iter().copied().filter(is_wanted).collect();
    let mut out = graph.clone();
    for &n in &wanted {
        let name = fresh_name(&out.nodes, &format!("{}.{STATE}", graph[n].name));
        out.nodes.push(crate::Node { name, tensor: None, ..graph[n].clone() });
        let state = NodeId(out.nodes.len() as u32 - 1);
        for node in &mut out.nodes {
            rebuild::map_terms(&mut node.def, &mut |t| renamed(t, n, state));
        }
        let own = out.recurrences.len();
        let Recurrence { rank, index, .. } = out.recurrences[r];
        out.recurrences.push(Recurrence { rank, index, members: vec![n], within: vec![] });
        out.recurrences[r].members.iter_mut().filter(|m| **m == n).for_each(|m| *m = state);
        let axes = out[n].axes.clone();
        if let Def::Iterative { recurrence, step, .. } = &mut out.nodes[n.0 as usize].def {
            let later = |i| {
                if i == index {
                    IndexExpr::var(i).add(&IndexExpr::fixed(SizeExpr::constant(1)))
                } else {
                    IndexExpr::var(i)
                }
            };
            *recurrence = own;
            *step = Term::Read(state, axes.into_iter().map(later).collect());
        }
    }
    (!wanted.is_empty()).then_some(out)
}

/// A text about such states as one about the outputs that they are.
pub(super) fn told(text: &str) -> String {
    text.replace(&format!(".{STATE} "), " ").replace(&format!(".{STATE}["), "[")
}

fn renamed(t: &Term, from: NodeId, to: NodeId) -> Term {
    let rename = |n: &NodeId| if *n == from { to } else { *n };
    match t.map_children(&mut |c| renamed(c, from, to)) {
        Term::Read(n, at) => Term::Read(rename(&n), at),
        Term::Old(n, at) => Term::Old(rename(&n), at),
        other => other,
    }
}
