//! Passes: how often each input's fibre must be traversed, per rank (FuseMax, section III; the executable rule is
//! stated in ARCHITECTURE.md).
//!
//! For a rank, an Einsum's *level* counts the complete traversals that must be over before it can start: an operand
//! that does not move with the Einsum's index and stems from a full reduction over the rank adds one. An input's
//! passes are the number of distinct levels at which Einsums read its whole fibre. A reduction over one part of a
//! split rank is not a full one.

use crate::{Def, Graph, NodeId};
use einloom_cascade::{Cascade, IndexAtom, IndexExpr, IndexId, RankId};
use std::collections::{BTreeMap, BTreeSet};

/// Passes of a whole program, as written and as derived.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passes {
    /// One per rank over which some input is traversed, in the cascade's order.
    pub ranks: Vec<RankPasses>,
}

/// Passes over one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RankPasses {
    /// The rank's name.
    pub rank: String,
    /// The largest of the tensors' numbers, as written.
    pub written: usize,
    /// The same, as derived.
    pub derived: usize,
    /// One per input that has the rank.
    pub tensors: Vec<TensorPasses>,
}

/// Passes over one input's fibre.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorPasses {
    /// The input's name.
    pub tensor: String,
    /// As written.
    pub written: usize,
    /// As derived.
    pub derived: usize,
    /// Elements of the fibre that must be live at once (or be read again), as derived: the rank's name where the
    /// fibre is read in two or more passes, `tile` where any tile will do.
    pub footprint: String,
    /// What is computed in each traversal of the fibre, as written: one list of names per pass, in order.
    pub written_by: Vec<Vec<String>>,
    /// The same, as derived.
    pub derived_by: Vec<Vec<String>>,
}

/// Compares the passes of a program as written with those of its derived form.
pub fn compare(written: &Graph, derived: &Graph) -> Passes {
    let cascade = &written.cascade;
    let mut ranks = vec![];
    for k in 0..cascade.ranks.len() as u32 {
        let (w, d) = (traversals(written, RankId(k)), traversals(derived, RankId(k)));
        let name = &cascade.ranks[k as usize].name;
        let tensors: Vec<TensorPasses> = w
            .iter()
            .map(|(tensor, written_by)| {
                let derived_by = d.iter().find(|(other, _)| other == tensor).map_or(vec![], |(_, by)| by.clone());
                let (written, derived) = (written_by.len(), derived_by.len());
                let footprint = if derived >= 2 { name.clone() } else { "tile".into() };
                let (tensor, written_by) = (tensor.clone(), written_by.clone());
                TensorPasses { tensor, written, derived, footprint, written_by, derived_by }
            })
            .collect();
        if let Some(most) = tensors.iter().map(|t| t.written).max() {
            let derived = tensors.iter().map(|t| t.derived).max().unwrap_or(0);
            ranks.push(RankPasses { rank: name.clone(), written: most, derived, tensors });
        }
    }
    Passes { ranks }
}

/// Whether the second graph reads some input's fibre in more passes than the first.
pub(crate) fn more(written: &Graph, derived: &Graph) -> bool {
    let ranks = (0..written.cascade.ranks.len() as u32).map(RankId);
    ranks.into_iter().any(|rank| {
        let before = count(written, rank);
        let more = |(tensor, passes): (String, usize)| before.iter().any(|b| b.0 == tensor && b.1 < passes);
        count(derived, rank).into_iter().any(more)
    })
}

/// Per input that has the rank, in order of declaration, the number of passes over its fibre.
pub fn count(graph: &Graph, rank: RankId) -> Vec<(String, usize)> {
    traversals(graph, rank).into_iter().map(|(tensor, by)| (tensor, by.len())).collect()
}

/// Per input that has the rank, in order of declaration, what is computed in each traversal of its fibre.
fn traversals(graph: &Graph, rank: RankId) -> Vec<(String, Vec<Vec<String>>)> {
    let mut levels = Levels::new();
    let mut facts: Vec<Facts> = vec![];
    let parts = partitions(graph, rank);
    for id in graph.ids() {
        let node = facts_of(graph, id, rank, &parts, &facts, &mut levels);
        facts.push(node);
    }
    let touched: BTreeSet<NodeId> = graph.ids().flat_map(|id| graph.operands(id)).map(|o| o.node).collect();
    let mut out = vec![];
    for id in graph.ids().filter(|id| graph[*id].def == Def::Input && touched.contains(id)) {
        if graph[id].extents.iter().any(|e| e.as_rank() == Some(rank)) {
            // Read, though not as a fibre (a gather, a window): its elements are visited once.
            let name = |n: &NodeId| graph[*n].name.clone();
            let by = levels.get(&id).map(|l| l.values().map(|nodes| nodes.iter().map(name).collect()).collect());
            out.push((graph[id].name.clone(), by.unwrap_or_else(|| vec![vec![]])));
        }
    }
    out
}

/// Per input, the levels at which its whole fibre is read, and by which nodes.
type Levels = BTreeMap<NodeId, BTreeMap<usize, Vec<NodeId>>>;

/// What the analysis of one rank knows of a node.
#[derive(Default)]
struct Facts {
    /// Per axis that runs over the rank or a part of it: the level of its traversal, and the inputs whose fibre it
    /// descends from.
    axes: BTreeMap<IndexId, (usize, BTreeSet<NodeId>)>,
    /// Ranks of the family that were reduced on the way here.
    reduced: BTreeSet<RankId>,
    /// The highest level of those reductions.
    done: usize,
}

/// Ways in which the rank is split: `m1*M0 + m0` over a dimension of rank M gives `[M1, M0]`.
fn partitions(graph: &Graph, rank: RankId) -> BTreeSet<Vec<RankId>> {
    let mut out = BTreeSet::new();
    for id in graph.ids() {
        for operand in graph.operands(id) {
            for (extent, e) in graph[operand.node].extents.iter().zip(operand.at) {
                if extent.as_rank() == Some(rank) {
                    out.extend(mixed_radix(&graph.cascade, e));
                }
            }
        }
    }
    out
}

/// The ranks of an index expression that counts in mixed radix: each coefficient is the product of the sizes of the
/// ranks after it.
fn mixed_radix(cascade: &Cascade, e: &IndexExpr) -> Option<Vec<RankId>> {
    if e.terms.len() < 2 || e.offset.as_constant() != Some(0) {
        return None;
    }
    let mut terms: Vec<_> = e
        .terms
        .iter()
        .map(|(c, atom)| match atom {
            IndexAtom::Var(i) => Some((c.clone(), cascade[*i].rank)),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let mut ranks = vec![];
    let mut weight = einloom_cascade::SizeExpr::constant(1);
    while !terms.is_empty() {
        let k = terms.iter().position(|(c, _)| *c == weight)?;
        let (_, rank) = terms.remove(k);
        weight = weight.mul(&einloom_cascade::SizeExpr::rank(rank));
        ranks.insert(0, rank);
    }
    Some(ranks)
}

/// Indices of one node that together move along the rank.
struct Group {
    indices: Vec<IndexId>,
    /// Whether they cover the rank, and not only a part of it.
    whole: bool,
}

fn groups(graph: &Graph, iterated: &[IndexId], rank: RankId, parts: &BTreeSet<Vec<RankId>>) -> Vec<Group> {
    let rank_of = |i: IndexId| graph.cascade[i].rank;
    let mut out: Vec<Group> =
        iterated.iter().filter(|&&i| rank_of(i) == rank).map(|&i| Group { indices: vec![i], whole: true }).collect();
    for split in parts {
        let indices: Vec<IndexId> = iterated.iter().copied().filter(|&i| split.contains(&rank_of(i))).collect();
        let whole = split.iter().all(|r| indices.iter().any(|&i| rank_of(i) == *r));
        if !indices.is_empty() {
            out.push(Group { indices, whole });
        }
    }
    out
}

fn facts_of(
    graph: &Graph,
    id: NodeId,
    rank: RankId,
    parts: &BTreeSet<Vec<RankId>>,
    facts: &[Facts],
    levels: &mut Levels,
) -> Facts {
    let node = &graph[id];
    let mut own = Facts::default();
    let (over, anchors) = match &node.def {
        Def::Reduce(r) => (r.over.clone(), r.streaming.anchors.as_slice()),
        _ => (vec![], &[][..]),
    };
    let iterated: Vec<IndexId> = node.axes.iter().chain(&over).copied().collect();
    let operands = graph.operands(id);
    // A member of a recurrence may read a later one: it is never a full reduction, so nothing is lost.
    let known = |n: NodeId| facts.get(n.0 as usize);
    for operand in &operands {
        if let Some(f) = known(operand.node) {
            own.reduced.extend(&f.reduced);
            own.done = own.done.max(f.done);
        }
    }
    let full =
        |f: &Facts| f.reduced.contains(&rank) || parts.iter().any(|split| split.iter().all(|r| f.reduced.contains(r)));
    for group in groups(graph, &iterated, rank, parts) {
        let (mut level, mut roots) = (0, BTreeSet::new());
        for operand in &operands {
            let dims = moving_dims(operand.at, &group.indices);
            let Some(f) = known(operand.node) else { continue };
            if dims.is_empty() {
                let barrier = full(f) && !anchors.contains(&operand.node);
                level = level.max(f.done + usize::from(barrier));
                continue;
            }
            let source = &graph[operand.node];
            if source.def == Def::Input {
                let covers = |d: &usize| source.extents[*d].as_rank() == Some(rank);
                if dims.iter().any(covers) || covers_parts(source, &dims, parts) {
                    roots.insert(operand.node);
                }
                continue;
            }
            let mut moved = BTreeSet::new();
            let mut inherited = BTreeSet::new();
            for &d in &dims {
                moved.extend(vars(&operand.at[d]).into_iter().filter(|i| group.indices.contains(i)));
                if let Some((l, r)) = source.axes.get(d).and_then(|axis| f.axes.get(axis)) {
                    level = level.max(*l);
                    inherited.extend(r.iter().copied());
                }
            }
            if moved.len() == group.indices.len() {
                roots.extend(inherited);
            }
        }
        // A statement that only renames elements is a view: it traverses nothing itself.
        let view = matches!(node.def, Def::Map(crate::Term::Read(..)));
        if group.whole && !view {
            for root in &roots {
                let readers = levels.entry(*root).or_default().entry(level).or_default();
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        for &i in &group.indices {
            if over.contains(&i) {
                own.done = own.done.max(level);
                own.reduced.insert(graph.cascade[i].rank);
            } else {
                own.axes.insert(i, (level, roots.clone()));
            }
        }
    }
    own
}

fn covers_parts(source: &crate::Node, dims: &[usize], parts: &BTreeSet<Vec<RankId>>) -> bool {
    parts.iter().any(|split| split.iter().all(|r| dims.iter().any(|&d| source.extents[d].as_rank() == Some(*r))))
}

/// Dimensions at which an access moves with any of the indices.
fn moving_dims(at: &[IndexExpr], indices: &[IndexId]) -> Vec<usize> {
    (0..at.len()).filter(|&d| vars(&at[d]).iter().any(|i| indices.contains(i))).collect()
}

/// The indices an access moves with directly; positions that come out of a gather follow no order.
fn vars(e: &IndexExpr) -> Vec<IndexId> {
    let mut out = vec![];
    for (_, atom) in &e.terms {
        match atom {
            IndexAtom::Var(i) => out.push(*i),
            IndexAtom::Floor { numerator, .. } => out.extend(vars(numerator)),
            IndexAtom::Gather { .. } => {}
        }
    }
    out
}
