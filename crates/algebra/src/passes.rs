//! Passes: how often each input's fibre must be traversed, per rank (FuseMax, section III; the executable rule is
//! stated in ARCHITECTURE.md).
//!
//! For a rank, an Einsum's *level* counts the complete traversals that must be over before it can start: an operand
//! that does not move with the Einsum's index and stems from a full reduction over the rank adds one. An input's
//! passes are the number of distinct levels at which Einsums read its whole fibre. A reduction over one part of a
//! split rank is not a full one.
//!
//! An operand that moves with the index may stem from a full reduction over another index of the rank: each of its
//! elements then needs the whole fibre of what was reduced, so whatever else reads that very input waits for it. What
//! grows with the index, as a sum over all positions up to it does, has what it needs when the traversal comes there.
//! Ranks that are declared equal are one.

use crate::{Def, Graph, Node, NodeId, Operand};
use einloom_cascade::{IndexAtom, IndexExpr, IndexId, RankId, SizeExpr};
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
    let root = same(graph, rank);
    let parts = partitions(graph, root);
    for id in graph.ids() {
        let node = facts_of(graph, id, root, &parts, &facts, &mut levels);
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

/// Inputs whose fibre is read, each with the level before which it cannot be.
type Roots = BTreeMap<NodeId, usize>;

/// What the analysis of one rank knows of a node.
#[derive(Default)]
struct Facts {
    /// Per axis that runs over the rank or a part of it: the level of its traversal, and the inputs whose fibre it
    /// descends from, each with the level at which it is read if that is a later one.
    axes: BTreeMap<IndexId, (usize, Roots)>,
    /// Ranks of the family that were reduced on the way here.
    reduced: BTreeSet<RankId>,
    /// Per input the ranks of the family along which each element here needs all of it, and the highest level of the
    /// reductions over them.
    fibres: BTreeMap<NodeId, (BTreeSet<RankId>, usize)>,
    /// The highest level of those reductions.
    done: usize,
}

/// Ways in which the rank is split: `m1*M0 + m0` over a dimension of rank M gives `[M1, M0]`.
fn partitions(graph: &Graph, rank: RankId) -> BTreeSet<Vec<RankId>> {
    let mut out = BTreeSet::new();
    for id in graph.ids() {
        for operand in graph.operands(id) {
            for (extent, e) in graph[operand.node].extents.iter().zip(operand.at) {
                if covers(graph, extent, rank) {
                    out.extend(mixed_radix(graph, e));
                }
            }
        }
    }
    out
}

/// The ranks of an index expression that counts in mixed radix: each coefficient is the product of the sizes of the
/// ranks after it.
fn mixed_radix(graph: &Graph, e: &IndexExpr) -> Option<Vec<RankId>> {
    if e.terms.len() < 2 || e.offset.as_constant() != Some(0) {
        return None;
    }
    let mut terms: Vec<_> = e
        .terms
        .iter()
        .map(|(c, atom)| match atom {
            IndexAtom::Var(i) => Some((c.clone(), graph.cascade[*i].rank)),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let mut ranks = vec![];
    let mut weight = einloom_cascade::SizeExpr::constant(1);
    while !terms.is_empty() {
        let k = terms.iter().position(|(c, _)| *c == weight)?;
        let (_, rank) = terms.remove(k);
        weight = weight.mul(&einloom_cascade::SizeExpr::rank(rank));
        ranks.insert(0, same(graph, rank));
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
    let rank_of = |i: IndexId| same(graph, graph.cascade[i].rank);
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
            for (root, (ranks, done)) in &f.fibres {
                let known = own.fibres.entry(*root).or_default();
                known.0.extend(ranks);
                known.1 = known.1.max(*done);
            }
        }
    }
    let full =
        |f: &BTreeSet<RankId>| f.contains(&rank) || parts.iter().any(|split| split.iter().all(|r| f.contains(r)));
    for group in groups(graph, &iterated, rank, parts) {
        let mut level = 0;
        // Per operand the inputs that it brings in.
        let mut brings = |operand: &Operand<'_>| {
            let dims = moving_dims(operand.at, &group.indices);
            let Some(f) = known(operand.node) else { return Roots::new() };
            if dims.is_empty() {
                let barrier = full(&f.reduced) && !anchors.contains(&operand.node);
                level = level.max(f.done + usize::from(barrier));
                return Roots::new();
            }
            let source = &graph[operand.node];
            if source.def == Def::Input {
                let whole = |d: &usize| covers(graph, &source.extents[*d], rank);
                let counts = dims.iter().any(whole) || covers_parts(graph, source, &dims, parts);
                return if counts { [(operand.node, 0)].into() } else { Roots::new() };
            }
            let (mut moved, mut inherited) = (BTreeSet::new(), Roots::new());
            for &d in &dims {
                moved.extend(vars(&operand.at[d]).into_iter().filter(|i| group.indices.contains(i)));
                if let Some((l, r)) = source.axes.get(d).and_then(|axis| f.axes.get(axis)) {
                    level = level.max(*l);
                    r.iter().for_each(|(&root, &at)| later(&mut inherited, root, at));
                }
            }
            if moved.len() == group.indices.len() { inherited } else { Roots::new() }
        };
        let brought: Vec<Roots> = operands.iter().map(&mut brings).collect();
        let mut roots = Roots::new();
        for (k, own) in brought.iter().enumerate() {
            for (&root, &at) in own {
                later(&mut roots, root, at);
                // Once all of it has been met an operand brings it in no more than it did.
                let needs = |n: NodeId| {
                    let (ranks, done) = known(n)?.fibres.get(&root)?;
                    full(ranks).then_some(done + 1)
                };
                let met = needs(operands[k].node);
                let others = operands.iter().map(|o| o.node).filter(|n| *n != operands[k].node && !anchors.contains(n));
                others.filter_map(needs).filter(|at| Some(*at) > met).for_each(|at| later(&mut roots, root, at));
            }
        }
        roots.values_mut().for_each(|at| *at = level.max(*at));
        // A statement that only renames elements is a view: it traverses nothing itself.
        let view = matches!(node.def, Def::Map(crate::Term::Read(..)));
        if group.whole && !view {
            for (root, at) in &roots {
                let readers = levels.entry(*root).or_default().entry(*at).or_default();
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        for &i in &group.indices {
            let rank = same(graph, graph.cascade[i].rank);
            if over.contains(&i) {
                own.done = roots.values().copied().fold(own.done.max(level), usize::max);
                // What reads nothing traverses nothing: a number of positions is there when sizes are.
                if !operands.is_empty() {
                    own.reduced.insert(rank);
                }
                if !grows(graph, node, i) {
                    for (root, &at) in &roots {
                        let known = own.fibres.entry(*root).or_default();
                        known.0.insert(rank);
                        known.1 = known.1.max(at);
                    }
                }
            } else {
                own.axes.insert(i, (level, roots.clone()));
            }
        }
    }
    own
}

/// An input is read at this level at the earliest.
fn later(roots: &mut Roots, root: NodeId, at: usize) {
    let known = roots.entry(root).or_default();
    *known = at.max(*known);
}

/// Whether a condition bounds a reduced index by an axis of the same rank: then an element needs no more than what a
/// traversal along that axis has met.
fn grows(graph: &Graph, node: &Node, i: IndexId) -> bool {
    let Def::Reduce(r) = &node.def else { return false };
    r.filter.iter().any(|f| {
        let Some((_, Some((axis, _)))) = crate::derive::bound(f, i) else { return false };
        node.axes.contains(&axis) && same(graph, graph.cascade[axis].rank) == same(graph, graph.cascade[i].rank)
    })
}

/// The rank that a rank is declared to be the same as, or itself.
pub(crate) fn same(graph: &Graph, mut rank: RankId) -> RankId {
    for _ in 0..graph.cascade.ranks.len() {
        let declared = graph.cascade[rank].default.as_ref().filter(|d| d.denominator.as_constant() == Some(1));
        match declared.and_then(|d| d.numerator.as_rank()) {
            Some(other) => rank = other,
            None => break,
        }
    }
    rank
}

/// Whether a dimension has the rank.
fn covers(graph: &Graph, extent: &SizeExpr, rank: RankId) -> bool {
    extent.as_rank().is_some_and(|r| same(graph, r) == rank)
}

fn covers_parts(graph: &Graph, source: &Node, dims: &[usize], parts: &BTreeSet<Vec<RankId>>) -> bool {
    parts.iter().any(|split| split.iter().all(|r| dims.iter().any(|&d| covers(graph, &source.extents[d], *r))))
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
