//! What DRAM delivers: parts of tensors, in the order of their first use.

use super::engine::{Op, Setup};
use super::part::At;
use crate::Beside;
use einloom_algebra::NodeId;
use std::collections::{BTreeSet, HashMap};

/// A part of a tensor that is moved at once.
#[derive(Debug)]
pub(super) struct Chunk {
    pub node: NodeId,
    pub words: u64,
    /// Operations that will use it.
    pub uses: u32,
    /// When it is in the buffer, once that is known.
    pub arrival: Option<i64>,
}

/// All chunks of a run, and which one each operation needs.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    pub chunks: Vec<Chunk>,
    /// By read of an operation that DRAM serves, in the order of the operations.
    pub of_op: Vec<u32>,
}

/// Goes through the operations in their order. What the dataflow holds is moved once, or once a block if it does not
/// carry what the blocks are made of; what it does not hold is moved again unless the tile before has used it.
pub(super) fn fetches(setup: &Setup<'_>, ops: &mut [Vec<Op>]) -> Fetches {
    let program = setup.setting.program;
    let flow = setup.layout.dataflow;
    let nodes = |names: &[String]| -> BTreeSet<NodeId> { names.iter().filter_map(|n| program.node(n)).collect() };
    let (mut holds, mut whole) = (nodes(&flow.holds), nodes(&flow.whole));
    for (name, part) in &flow.beside {
        match part {
            Beside::Tile => {}
            Beside::Block => holds.extend(program.node(name)),
            Beside::Whole => whole.extend(program.node(name)),
        }
    }
    let within = |set: &BTreeSet<NodeId>, n: NodeId| set.contains(&n) || set.contains(&program.root(n));
    let mut out = Fetches::default();
    let mut known: HashMap<(u32, u32, u64, usize), u32> = HashMap::new();
    let mut latest: HashMap<(usize, usize), (u64, u32, u64, u32)> = HashMap::new();
    let mut order: Vec<(u64, usize, usize)> = vec![];
    for (a, list) in ops.iter().enumerate() {
        order.extend(list.iter().enumerate().map(|(k, op)| (op.group, a, k)));
    }
    order.sort_unstable();
    for (_, a, k) in order {
        let op = &mut ops[a][k];
        let part = &setup.parts[op.part as usize];
        op.fetches = out.of_op.len() as u32;
        for (r, read) in part.reads.iter().enumerate().filter(|(_, r)| r.from.is_none()) {
            let key = setup.key(op, &read.at);
            let global = op.instance as u64 * setup.nest.tiles() as u64 + op.tile as u64;
            let is_whole = within(&whole, read.node);
            let chunk = if is_whole || within(&holds, read.node) {
                let block = if is_whole { 0 } else { setup.nest.block(op.tile as usize) };
                let id = (read.node.0, op.instance, key, block);
                *known.entry(id).or_insert_with(|| out.push(setup, op, read.node, &read.at))
            } else {
                match latest.get(&(op.part as usize, r)) {
                    Some(&(k, i, tile, chunk)) if k == key && i == op.instance && tile + 1 >= global => chunk,
                    _ => out.push(setup, op, read.node, &read.at),
                }
            };
            latest.insert((op.part as usize, r), (key, op.instance, global, chunk));
            out.chunks[chunk as usize].uses += 1;
            out.of_op.push(chunk);
        }
    }
    out
}

impl Fetches {
    fn push(&mut self, setup: &Setup<'_>, op: &Op, node: NodeId, at: &[At]) -> u32 {
        let extents = setup.extents(op.tile as usize);
        let words: usize = setup
            .setting
            .program
            .dims(node)
            .into_iter()
            .map(|rank| match setup.nest.cut(rank) {
                Some(cut) if at[cut] == At::Whole => setup.nest.cuts[cut].size,
                _ => extents.of(rank),
            })
            .product();
        self.chunks.push(Chunk { node, words: words as u64, uses: 0, arrival: None });
        self.chunks.len() as u32 - 1
    }
}
