//! Accesses to the shared buffer.
//!
//! The buffer serves what the binding's dataflow holds and what goes through it between arrays; everything else streams
//! between DRAM and the arrays. A tile of a tensor is read for every tile of the Einsum that needs it. Einsums that run
//! on the same array in the same phase and the same pass share what they read, and hand results on without the buffer.

use super::cycles::{EinsumCycles, KernelCycles};
use super::dataflow::{Flow, held_part};
use super::setup::Setup;
use crate::Beside;
use einloom_algebra::{Def, NodeId};
use einloom_cascade::RankId;
use std::collections::{BTreeMap, BTreeSet};

/// Words between the buffer and its users, all instances.
#[derive(Default)]
pub(super) struct Accesses {
    pub read: f64,
    pub written: f64,
    /// Reads that a fault of the accounting adds; `read` does not have them.
    pub again: f64,
}

/// Who shares a read: Einsums of the same phase, array and pass that take part in the same tiles.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Sharing {
    phase: usize,
    array: String,
    pass: usize,
    tiles: BTreeSet<RankId>,
    node: NodeId,
}

pub(super) fn accesses(setup: &Setup<'_>, k: usize, cost: &KernelCycles<'_>, flow: &Flow<'_>) -> Accesses {
    let program = setup.setting.program;
    let kernel = &setup.setting.binding.kernels[k];
    let beside = flow.dataflow.beside.iter().filter(|b| *b.1 != Beside::Tile).map(|b| b.0);
    let held = flow.dataflow.holds.iter().chain(&flow.dataflow.whole).chain(beside);
    let named = held.chain(&kernel.through);
    let buffered: BTreeSet<NodeId> = named.filter_map(|n| program.node(n)).collect();
    let spilled: BTreeSet<NodeId> = flow.dataflow.spills.iter().filter_map(|n| program.node(n)).collect();
    let in_buffer = |array: &str, node: NodeId| {
        let past = spilled.contains(&node) && flow.dataflow.past.iter().any(|a| a == array);
        !past && (buffered.contains(&node) || buffered.contains(&program.root(node)))
    };
    let passes = passes(setup, k, cost);
    let sharing = |e: &EinsumCycles<'_>, node: NodeId| Sharing {
        phase: e.phase,
        array: e.array.to_owned(),
        pass: passes.of(e.einsum.node),
        tiles: e.einsum.ranks.iter().filter(|r| setup.is_cut(k, **r)).copied().collect(),
        node,
    };
    let mut made = BTreeSet::new();
    let mut reads = BTreeMap::new();
    let mut out = Accesses { written: flow.filled, ..Accesses::default() };
    for e in &cost.einsums {
        let node = e.einsum.node;
        for &operand in &e.einsum.operands {
            // A recurrence reads what it made one step ago, which another tile did.
            let fresh = operand != node && made.contains(&sharing(e, operand));
            if in_buffer(e.array, operand) && !fresh {
                reads.insert(sharing(e, operand), read(setup, k, &e.einsum.ranks, operand));
            }
        }
        if in_buffer(e.array, node) {
            let (again, written) = accumulated(setup, k, e);
            out.read += again;
            out.written += written;
            if setup.first_reads_wrap() {
                let part = held_part(setup, k, flow, node).unwrap_or_else(|| passes.live(setup, cost, node));
                out.again += miscounted(words(setup, &program.dims(node), &e.einsum.ranks), part);
            }
        }
        made.insert(sharing(e, node));
    }
    out.read += reads.values().sum::<f64>();
    out
}

/// First reads that are counted after all. How many there are is the size of the result; the published model's tool
/// computes it as the size times the part that the buffer has at a time over that part, in 64 bits. Both in words.
fn miscounted(size: f64, part: f64) -> f64 {
    let part = (part as u128).max(1);
    let left_out = ((size as u128 * part) as u64) as u128 / part;
    size - left_out as f64
}

/// Which traversal of the tiles each Einsum of a kernel belongs to.
struct Passes {
    /// One more than that of a complete reduction over tiles that the Einsum needs for every tile; 0 if it needs none.
    number: BTreeMap<NodeId, usize>,
    /// The ranks of such reductions.
    waited: BTreeSet<RankId>,
}

impl Passes {
    fn of(&self, node: NodeId) -> usize {
        self.number.get(&node).copied().unwrap_or(0)
    }

    /// Words of a result that wait in the buffer at least: whole fibres for a later pass, otherwise one.
    fn live(&self, setup: &Setup<'_>, cost: &KernelCycles<'_>, node: NodeId) -> f64 {
        let program = setup.setting.program;
        let reads = |e: &EinsumCycles<'_>| e.einsum.operands.iter().any(|&o| program.root(o) == node);
        if !cost.einsums.iter().any(|e| reads(e) && self.of(e.einsum.node) > self.of(node)) {
            return 1.0;
        }
        let fibres = program.dims(node).into_iter().filter(|r| self.waited.contains(r));
        fibres.map(|r| setup.bound.size(r) as f64).product()
    }
}

fn passes(setup: &Setup<'_>, k: usize, cost: &KernelCycles<'_>) -> Passes {
    let program = setup.setting.program;
    let mut out = Passes { number: BTreeMap::new(), waited: BTreeSet::new() };
    let here: BTreeSet<NodeId> = cost.einsums.iter().map(|e| e.einsum.node).collect();
    for einsum in program.einsums.iter().filter(|e| here.contains(&e.node)) {
        let mut pass = 0;
        for &operand in &einsum.operands {
            let node = program.root(operand);
            let waited: Vec<RankId> = match &program.graph[node].def {
                Def::Reduce(r) => {
                    let ranks = r.over.iter().map(|i| program.graph.cascade[*i].rank);
                    let of_all = |r: &RankId| einsum.ranks.contains(r) && !program.dims(node).contains(r);
                    ranks.filter(|&r| setup.is_cut(k, r)).filter(of_all).collect()
                }
                _ => vec![],
            };
            pass = pass.max(out.of(node) + usize::from(!waited.is_empty()));
            out.waited.extend(waited);
        }
        out.number.insert(einsum.node, pass);
    }
    out
}

/// Words of an operand that an Einsum with this iteration space reads: what a tile needs, for every tile.
fn read(setup: &Setup<'_>, k: usize, space: &[RankId], operand: NodeId) -> f64 {
    let dims = setup.setting.program.dims(operand);
    let again = space.iter().filter(|r| !dims.contains(r));
    let times: f64 = again.filter_map(|r| setup.tiles[k].get(r).map(|&n| setup.pieces(*r, n) as f64)).product();
    words(setup, &dims, space) * times
}

/// Words of a result read and written: a sum over several tiles is written after each, and read before each but the
/// first.
fn accumulated(setup: &Setup<'_>, k: usize, e: &EinsumCycles<'_>) -> (f64, f64) {
    let dims = setup.setting.program.dims(e.einsum.node);
    let once = words(setup, &dims, &e.einsum.ranks);
    let reduced = e.einsum.ranks.iter().filter(|r| !dims.contains(r));
    let times: f64 = reduced.filter_map(|r| setup.tiles[k].get(r).map(|&n| setup.pieces(*r, n) as f64)).product();
    (once * (times - 1.0).max(0.0), once * times)
}

/// Elements of a tensor as seen from an iteration space: of a rank that it does not have, one position is read.
fn words(setup: &Setup<'_>, dims: &[RankId], space: &[RankId]) -> f64 {
    let sizes = dims.iter().filter(|r| space.contains(r)).map(|r| setup.bound.size(*r) as f64);
    sizes.product::<f64>() * setup.setting.instances
}
