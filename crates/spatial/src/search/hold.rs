//! What the buffer can hold: inputs and running values of a tile; and of what a later pass reads, either whole fibres,
//! or nothing, so that it goes to DRAM and back.

use crate::{Block, Dataflow, Program};
use einloom_algebra::{Def, NodeId};
use einloom_cascade::RankId;
use std::collections::{BTreeMap, BTreeSet};

/// More tensors than this are not chosen one by one.
const MOST_CHOICES: usize = 6;

/// Ranks that count the parts of a rank that is cut: both occur in one view of a larger rank.
pub(super) fn outer_parts(program: &Program, part: RankId) -> BTreeSet<RankId> {
    let graph = &program.graph;
    let mut out = BTreeSet::new();
    for id in graph.ids() {
        let Def::Map(einloom_algebra::Term::Read(_, at)) = &graph[id].def else { continue };
        for e in at.iter().filter(|e| e.terms.len() > 1) {
            let mut ranks = vec![];
            e.visit_indices(&mut |i| ranks.push(graph.cascade[i].rank));
            if ranks.contains(&part) {
                out.extend(ranks.into_iter().filter(|r| *r != part));
            }
        }
    }
    out
}

/// By node: the traversal of the cut ranks in which it is computed; and the ranks for whose completion later ones wait.
fn passes(program: &Program, cut: &[RankId]) -> (BTreeMap<NodeId, usize>, BTreeSet<RankId>) {
    let mut pass: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut waited = BTreeSet::new();
    for einsum in &program.einsums {
        let mut own = 0;
        for &operand in &einsum.operands {
            let node = program.root(operand);
            if node == einsum.node {
                continue;
            }
            let dims = program.dims(node);
            let mut waits = false;
            if let Def::Reduce(r) = &program.graph[node].def {
                for rank in r.over.iter().map(|i| program.graph.cascade[*i].rank) {
                    if cut.contains(&rank) && einsum.ranks.contains(&rank) && !dims.contains(&rank) {
                        // Over a part alone it is complete with each tile.
                        waits |= !is_whole_in_tile(program, cut, node, rank);
                        waited.insert(rank);
                    }
                }
            }
            own = own.max(pass.get(&node).copied().unwrap_or(0) + usize::from(waits));
        }
        pass.insert(einsum.node, own);
    }
    (pass, waited)
}

/// Whether a tile has the whole of a rank: it is one part of a larger one that the result still carries.
fn is_whole_in_tile(program: &Program, cut: &[RankId], node: NodeId, rank: RankId) -> bool {
    let dims = program.dims(node);
    let parts = outer_parts(program, rank);
    !parts.is_empty() && parts.iter().any(|p| cut.contains(p) && dims.contains(p))
}

/// Every choice; the one that holds the most first.
pub(super) fn dataflows(program: &Program, cut: &[RankId], columns: RankId) -> Vec<Dataflow> {
    let graph = &program.graph;
    let name = |n: NodeId| graph[n].name.clone();
    let rank_name = |r: &RankId| graph.cascade[*r].name.clone();
    let (pass, waited) = passes(program, cut);
    let computed: BTreeSet<NodeId> = program.einsums.iter().map(|e| e.node).collect();
    let mut inputs = BTreeSet::new();
    let mut state = BTreeSet::new();
    let mut across = BTreeSet::new();
    for einsum in &program.einsums {
        if matches!(graph[einsum.node].def, Def::Iterative { .. }) {
            state.insert(einsum.node);
        }
        let dims = program.dims(einsum.node);
        let over =
            |r: &RankId| cut.contains(r) && !dims.contains(r) && !is_whole_in_tile(program, cut, einsum.node, *r);
        if einsum.ranks.iter().any(over) {
            state.insert(einsum.node);
        }
        for &operand in &einsum.operands {
            let root = program.root(operand);
            if !computed.contains(&root) {
                inputs.insert(operand);
            } else if pass.get(&root) < pass.get(&einsum.node)
                && program.dims(root).iter().any(|r| cut.contains(r) && *r != columns)
            {
                across.insert(root);
            }
        }
    }
    let across: Vec<NodeId> = across.into_iter().take(MOST_CHOICES).collect();
    let uncut: BTreeSet<RankId> =
        across.iter().flat_map(|n| program.dims(*n)).filter(|r| *r != columns && cut.contains(r)).collect();
    let block = cut.contains(&columns).then(|| Block::Largest {
        rank: rank_name(&columns),
        as_at: BTreeMap::new(),
        most: None,
    });
    let mut out = vec![];
    for choice in 0..1usize << across.len() {
        let (spilled, held): (Vec<_>, Vec<_>) = across.iter().enumerate().partition(|(k, _)| choice >> k & 1 == 1);
        let mut holds: Vec<String> = held.iter().map(|(_, n)| name(**n)).collect();
        // Whole fibres leave no room to count the inputs' tiles beside them: those stream.
        let whole = !held.is_empty() && !waited.is_empty();
        if !whole {
            holds.extend(inputs.iter().map(|n| name(*n)));
        }
        holds.extend(state.iter().filter(|n| !across.contains(n)).map(|n| name(*n)));
        out.push(Dataflow {
            block: block.clone(),
            holds,
            uncut: if whole { uncut.iter().map(rank_name).collect() } else { vec![] },
            spills: spilled.iter().map(|(_, n)| name(**n)).collect(),
            ..Dataflow::default()
        });
    }
    out
}
