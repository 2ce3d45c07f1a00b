//! Why a fibre is read again where no rule has said it.
//!
//! Rules tell what they did not do to a reduction. That something is wanted along a rank whose elements all go into what it needs, in a
//! reduction over something else, in a recurrence, or through another index of the rank, is no rule's condition: it is read off the passes.

use super::inline;
use crate::{Def, Graph, NodeId, Passes, Refusal, Rule, passes};
use einloom_cascade::{IndexId, RankId};
use std::collections::BTreeSet;

/// What is said of ranks along which an input is read more than once, and of which nothing is said.
pub(super) fn unsaid(derived: &Graph, found: &Passes, said: &[Refusal]) -> Vec<Refusal> {
    let of = |r: &Refusal| matches!(r.rule, Rule::Separate | Rule::Defer | Rule::Inline);
    let ranks = found.ranks.iter().filter(|p| p.derived > 1);
    let ranks = ranks.filter(|p| !said.iter().any(|r| of(r) && r.ranks.contains(&p.rank)));
    ranks
        .filter_map(|p| {
            let tensor = p.tensors.iter().find(|t| t.derived > 1)?;
            told(derived, &p.rank, &tensor.tensor, &tensor.derived_by)
        })
        .collect()
}

/// What of the second pass waits for what of the first.
fn told(graph: &Graph, rank: &str, tensor: &str, by: &[Vec<String>]) -> Option<Refusal> {
    let cascade = &graph.cascade;
    let of = cascade.ranks.iter().position(|r| r.name == rank)?;
    // Ranks that are declared equal are one.
    let root = passes::same(graph, RankId(of as u32));
    let same = |i: IndexId| passes::same(graph, cascade[i].rank) == root;
    let nodes = |k: usize| graph.ids().filter(move |&n| by[k].contains(&graph[n].name));
    let over_rank = |&n: &NodeId| {
        let Def::Reduce(r) = &graph[n].def else { return false };
        r.over.iter().any(|&i| same(i))
    };
    let waits = |n: NodeId| -> BTreeSet<NodeId> {
        graph.operands(n).iter().flat_map(|o| inline::completed(graph, &graph.read(o.node))).collect()
    };
    let (reader, complete) = nodes(1).find_map(|n| Some((n, waits(n).into_iter().find(over_rank)?)))?;
    let node = &graph[reader];
    let along: Vec<&str> = node.axes.iter().filter(|&&i| same(i)).map(|&i| cascade[i].name.as_str()).collect();
    let complete = &graph[complete].name;
    Some(Refusal {
        rule: Rule::Defer,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: vec![rank.to_string()],
        reason: format!(
            "{} needs {complete}, which is over all of {rank}, and {tensor} along {rank} beside it",
            node.name
        ),
        hint: (!along.is_empty()).then(|| {
            format!(
                "{} is made for every {}; if only a sum over them were wanted, {complete} might leave it",
                node.name,
                along.join(", ")
            )
        }),
        span: node.span,
    })
}
