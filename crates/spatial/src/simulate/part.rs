//! The Einsums of a kernel as a simulation sees them: where they run, and which tiles of what they read.

use super::nest::Nest;
use crate::evaluate::KernelLayout;
use crate::{Einsum, Problem, Program, Setting};
use einloom_algebra::{Def, NodeId, Term};
use einloom_cascade::{Bound, IndexExpr, RankId};
use std::collections::BTreeSet;

/// An Einsum in its place.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub einsum: &'a Einsum,
    /// Index of its array on the chip.
    pub array: usize,
    pub phase: usize,
    /// Its place in the order of the phase and array.
    pub order: usize,
    /// Tiles behind the newest one: as the binding says, or more.
    pub lag: usize,
    /// As the binding says.
    pub given_lag: Option<usize>,
    /// By cut: how it takes part.
    pub along: Vec<Along>,
    pub reads: Vec<Read>,
    /// Its result by cut.
    pub result: Vec<Carried>,
    /// Other kernels or the caller want its result.
    pub exported: bool,
    /// Its result is read, or written, in the buffer.
    pub in_buffer: bool,
}

/// How an Einsum takes part in the tiles of one cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// In each.
    Every,
    /// It does not have the rank and needs nothing that does: in the first.
    First,
    /// It does not have the rank and needs something that does: in the last.
    Last,
}

/// How a tensor is spread over the tiles of one cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// It does not have the rank.
    No,
    /// One part for each piece.
    Yes,
    /// A recurrence: one slice for each position, and the one before the first.
    Slices,
}

/// Which part of a tensor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// All there is: the tensor does not have the rank.
    Whole,
    /// That of the Einsum's own tile.
    Same,
    /// The slice before the tile's step of a recurrence.
    Before,
    /// The slice after it.
    After,
    /// The slice after the last step.
    Final,
}

/// One tensor that an Einsum reads.
#[derive(Debug)]
pub(super) struct Read {
    pub node: NodeId,
    /// The part that computes it; `None` if DRAM delivers it.
    pub from: Option<usize>,
    /// By cut.
    pub at: Vec<At>,
    /// It takes the way through the buffer. Otherwise it comes straight from the elements that computed it.
    pub buffered: bool,
    /// Indices of the slots in the term that mean this read.
    pub text: Vec<Vec<IndexExpr>>,
}

/// The Einsums of kernel `k`, in the order of the binding.
pub(super) fn parts<'a>(
    setting: &Setting<'a>,
    k: usize,
    bound: &Bound,
    layout: &KernelLayout<'_>,
    nest: &Nest,
) -> Result<Vec<Part<'a>>, Vec<Problem>> {
    let (program, kernel) = (setting.program, &setting.binding.kernels[k]);
    let mut parts = vec![];
    for (phase, runs) in kernel.phases.iter().enumerate() {
        for (array, names) in &runs.runs {
            let Some(array) = setting.chip.arrays.iter().position(|a| a.name == *array) else { continue };
            for (order, einsum) in names.iter().filter_map(|n| program.einsum(n)).enumerate() {
                let given_lag = kernel.lags.get(&einsum.name).copied();
                let lag = given_lag.unwrap_or(0);
                let (along, reads, result) = (vec![], vec![], carried(program, nest, einsum.node));
                let exported = exported(setting, k, einsum.node);
                parts.push(Part {
                    einsum,
                    array,
                    phase,
                    order,
                    lag,
                    given_lag,
                    along,
                    reads,
                    result,
                    exported,
                    in_buffer: exported,
                });
            }
        }
    }
    let nodes: Vec<NodeId> = parts.iter().map(|p| p.einsum.node).collect();
    let mut problems = vec![];
    for part in &mut parts {
        let name = &part.einsum.name;
        let mut fail = |message: String, hint: &str| {
            problems.push(Problem::new(format!("Einsum {name}"), message).hint(hint));
        };
        let own: Vec<bool> = nest.cuts.iter().map(|c| part.einsum.ranks.contains(&c.rank)).collect();
        for (cut, _) in nest.cuts.iter().zip(&own).filter(|(c, own)| **own && c.pieces > 1) {
            if part.einsum.ranks.iter().filter(|r| **r == cut.rank).count() > 1 {
                let rank = &program.graph.cascade[cut.rank].name;
                fail(format!("walks the rank {rank}, which is cut, by two indices"), "leave that rank whole");
            }
        }
        if let Def::Iterative { dim, .. } = &program.graph[part.einsum.node].def {
            let rank = program.dims(part.einsum.node)[*dim];
            if nest.cut(rank).is_none_or(|c| nest.cuts[c].tile != 1) {
                let rank = &program.graph.cascade[rank].name;
                fail(format!("steps along {rank}, of which a tile has several positions"), "cut it into tiles of 1");
            }
        }
        match reads(program, bound, nest, &nodes, part) {
            Ok(reads) => part.reads = reads,
            Err(message) => fail(message, "the simulator hands on tiles, and only to the same positions"),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    along(program, nest, &mut parts);
    buffered(program, kernel, layout, nest, &mut parts);
    Ok(parts)
}

fn exported(setting: &Setting<'_>, k: usize, node: NodeId) -> bool {
    let here: BTreeSet<&str> = setting.binding.kernels[k].einsums().collect();
    let program = setting.program;
    let elsewhere = program.einsums.iter().filter(|e| !here.contains(e.name.as_str()));
    let read = elsewhere.flat_map(|e| &e.operands).any(|&o| program.root(o) == node);
    read || program.graph.outputs.iter().any(|&o| program.root(o) == node)
}

fn is_iterated(program: &Program, node: NodeId, rank: RankId) -> bool {
    match &program.graph[node].def {
        Def::Iterative { dim, .. } => program.dims(node).get(*dim) == Some(&rank),
        _ => false,
    }
}

fn carried(program: &Program, nest: &Nest, node: NodeId) -> Vec<Carried> {
    let dims = program.dims(node);
    let one = |rank: RankId| {
        if is_iterated(program, node, rank) {
            Carried::Slices
        } else if dims.contains(&rank) {
            Carried::Yes
        } else {
            Carried::No
        }
    };
    nest.cuts.iter().map(|c| one(c.rank)).collect()
}

fn reads(
    program: &Program,
    bound: &Bound,
    nest: &Nest,
    nodes: &[NodeId],
    part: &Part<'_>,
) -> Result<Vec<Read>, String> {
    let graph = &program.graph;
    let mut terms: Vec<&Term> = vec![];
    match &graph[part.einsum.node].def {
        Def::Input => {}
        Def::Map(t) => terms.push(t),
        Def::Reduce(r) => {
            terms.extend(&r.filter);
            terms.push(&r.body);
        }
        Def::Iterative { step, initial, .. } => {
            terms.push(step);
            let mut plain = true;
            initial.iter().for_each(|(_, t)| t.visit(&mut |t| plain &= !matches!(t, Term::Read(..) | Term::Old(..))));
            if !plain {
                return Err("starts from elements of a tensor".to_owned());
            }
        }
    }
    let mut out: Vec<Read> = vec![];
    let mut wrong = None;
    for term in terms {
        term.visit(&mut |t| {
            let Term::Read(node, at) = t else { return };
            let from = nodes.iter().position(|n| n == node);
            let name = &graph[*node].name;
            if from.is_none() && nodes.contains(&program.root(*node)) {
                wrong = Some(format!("reads {name}, which renames what this kernel computes"));
                return;
            }
            match positions(program, bound, nest, part, *node, at, from.is_some()) {
                None => wrong = Some(format!("reads {name} at positions of other tiles than its own")),
                Some(places) => match out.iter_mut().find(|r| r.node == *node && r.at == places) {
                    Some(read) => read.text.push(at.clone()),
                    None => out.push(Read { node: *node, from, at: places, buffered: false, text: vec![at.clone()] }),
                },
            }
        });
    }
    wrong.map_or(Ok(out), Err)
}

/// Which part a read means along every cut; `None` if that is none of the kinds above.
fn positions(
    program: &Program,
    bound: &Bound,
    nest: &Nest,
    part: &Part<'_>,
    node: NodeId,
    at: &[IndexExpr],
    computed: bool,
) -> Option<Vec<At>> {
    let dims = program.dims(node);
    let cascade = &program.graph.cascade;
    let mut out = vec![At::Whole; nest.cuts.len()];
    for (c, cut) in nest.cuts.iter().enumerate() {
        let own = part.einsum.ranks.contains(&cut.rank);
        let Some(d) = dims.iter().position(|r| *r == cut.rank) else { continue };
        if !computed {
            // A tensor in DRAM can be read anywhere; the tile of the same number is what is moved.
            out[c] = if own { At::Same } else { At::Whole };
            continue;
        }
        let same = |i: einloom_cascade::IndexId| own && cascade[i].rank == cut.rank;
        out[c] = if is_iterated(program, node, cut.rank) {
            match at[d].as_shifted_var() {
                Some((i, 0)) if same(i) => At::Before,
                Some((i, 1)) if same(i) => At::After,
                None if at[d].terms.is_empty() && bound.extent(&at[d].offset) == cut.size as i64 => At::Final,
                _ => return None,
            }
        } else {
            match at[d].as_var() {
                Some(i) if same(i) => At::Same,
                _ if cut.pieces == 1 => At::Same,
                _ => return None,
            }
        };
    }
    Some(out)
}

/// Einsums that lack a cut rank run in its first tile, or in its last if they need what is complete only then.
fn along(program: &Program, nest: &Nest, parts: &mut [Part<'_>]) {
    let depends = |node: NodeId, rank: RankId| {
        let mut open = vec![node];
        let mut seen = BTreeSet::new();
        while let Some(n) = open.pop() {
            if !seen.insert(n) {
                continue;
            }
            let einsum = program.einsums.iter().find(|e| e.node == n);
            if einsum.is_some_and(|e| e.ranks.contains(&rank)) {
                return true;
            }
            open.extend(program.graph.operands(n).iter().map(|o| o.node));
        }
        false
    };
    for part in parts {
        let einsum = part.einsum;
        let one = |rank: RankId| {
            if einsum.ranks.contains(&rank) {
                Along::Every
            } else if depends(einsum.node, rank) {
                Along::Last
            } else {
                Along::First
            }
        };
        part.along = nest.cuts.iter().map(|c| one(c.rank)).collect();
    }
}

/// What takes the way through the buffer: what the binding says, and what another tile needs than the one that made it.
fn buffered(program: &Program, kernel: &crate::Kernel, layout: &KernelLayout<'_>, nest: &Nest, parts: &mut [Part<'_>]) {
    let through: BTreeSet<NodeId> =
        kernel.through.iter().chain(&layout.dataflow.spills).filter_map(|n| program.node(n)).collect();
    let mut in_buffer = vec![];
    for p in 0..parts.len() {
        for r in 0..parts[p].reads.len() {
            let read = &parts[p].reads[r];
            let Some(from) = read.from else { continue };
            let elsewhere = !super::lag::same_tile(nest, &parts[p], read, &parts[from]);
            if elsewhere || through.contains(&read.node) {
                in_buffer.push(from);
                parts[p].reads[r].buffered = true;
            }
        }
    }
    for (p, part) in parts.iter_mut().enumerate() {
        // A sum over several tiles waits in the buffer between them.
        let over = |(c, carried): (usize, &Carried)| {
            *carried == Carried::No && part.along[c] == Along::Every && nest.cuts[c].pieces > 1
        };
        let partial = part.result.iter().enumerate().any(over);
        part.in_buffer |= partial || in_buffer.contains(&p);
    }
}
