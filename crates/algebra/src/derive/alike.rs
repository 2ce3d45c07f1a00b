//! Recurrences that are alike are computed once: two rewritings may have made the same.

use super::chunk::sorted;
use super::rebuild::{prune, renumber};
use crate::{Def, Graph, NodeId};
use einloom_cascade::IndexExpr;

/// Has readers of a recurrence that equals an earlier one read that.
///
/// Condition: each has one member, of the same steps over the same ranks; and that of the later one is no tensor of the text.
pub(super) fn merge(graph: &mut Graph) {
    let alone: Vec<NodeId> = (graph.recurrences.iter())
        .filter_map(|r| match r.members.as_slice() {
            &[m] if r.within.is_empty() && matches!(graph[m].def, Def::Iterative { .. }) => Some(m),
            _ => None,
        })
        .collect();
    let equal = |later: NodeId| alone.iter().copied().filter(|&n| n < later && alike(graph, n, later)).min();
    let pairs: Vec<(NodeId, NodeId)> =
        alone.iter().filter(|n| graph[**n].tensor.is_none()).filter_map(|&n| Some((n, equal(n)?))).collect();
    if pairs.is_empty() {
        return;
    }
    let mut merged = graph.clone();
    let to = |n: NodeId| pairs.iter().find(|p| p.0 == n).map_or(n, |p| p.1);
    for n in merged.ids().collect::<Vec<_>>() {
        if to(n) == n {
            renumber(&mut merged.nodes[n.0 as usize].def, &to);
        }
    }
    prune(&mut merged);
    if let Some(sorted) = sorted(&merged) {
        *graph = sorted;
    }
}

/// Whether two recurrences have the same slices.
fn alike(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (one, other) = (&graph[a], &graph[b]);
    let (Def::Iterative { dim, initial, step, .. }, Def::Iterative { dim: d, initial: i, step: s, .. }) =
        (&one.def, &other.def)
    else {
        return false;
    };
    if (dim, one.dtype, &one.extents) != (d, other.dtype, &other.extents) {
        return false;
    }
    let place = |i| other.axes.iter().position(|&a| a == i).map(|k| IndexExpr::var(one.axes[k]));
    let own = |t: &crate::Term| Some(t.substitute(&place)?.rename_nodes(&|n| if n == b { a } else { n }));
    let starts = initial.len() == i.len()
        && initial.iter().zip(i).all(|(x, y)| x.0 == y.0 && own(&y.1).is_some_and(|t| t == x.1));
    starts && own(s).is_some_and(|t| t == *step)
}
