//! What the buffer holds, and so how often DRAM delivers each tensor.

use super::access::accesses;
use super::cycles::{KernelCycles, array_cycles};
use super::setup::Setup;
use crate::{Beside, Block, Dataflow, Kernel, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::RankId;
use std::collections::{BTreeMap, BTreeSet};

/// The dataflow taken for a kernel.
pub(super) struct Flow<'a> {
    pub dataflow: &'a Dataflow,
    /// Blocks of the outermost rank.
    pub blocks: usize,
    /// Tiles of a block.
    pub block_tiles: usize,
    pub held_bytes: f64,
    /// Words that DRAM puts into the buffer, all instances; what the dataflow does not hold streams past it.
    pub filled: f64,
    pub traffic_bytes: f64,
    pub seconds: f64,
    /// The part of what the buffer should hold that it has no room for.
    pub overflow: f64,
}

/// The first of the binding's dataflows that fits and is fast enough.
pub(super) fn choose<'a>(setup: &Setup<'a>, k: usize, cost: &KernelCycles<'_>) -> Result<Flow<'a>, Vec<Problem>> {
    let kernel = &setup.setting.binding.kernels[k];
    let compute_seconds = cost.cycles / setup.setting.chip.clock.0;
    let mut all = kernel.dataflows.iter().map(|dataflow| One { setup, k, dataflow });
    let flow = all.find_map(|one| {
        let (blocks, tiles) = one.fit(compute_seconds)?;
        let flow = one.flow(blocks, tiles, one.words(blocks));
        one.is_fast_enough(flow.seconds).then_some(flow)
    });
    let mut flow = flow.ok_or_else(|| vec![nothing_fits(setup, kernel)])?;
    if flow.overflow > 0.0 {
        // That part of what the buffer would be filled with, read for and written to goes to DRAM instead.
        let words = accesses(setup, k, cost, &flow);
        let more = flow.overflow * (words.read + words.written - 2.0 * flow.filled);
        flow.traffic_bytes += more * setup.setting.chip.word.0 as f64;
        flow.seconds = flow.traffic_bytes / setup.setting.chip.dram.bandwidth.0;
    }
    Ok(flow)
}

fn nothing_fits(setup: &Setup<'_>, kernel: &Kernel) -> Problem {
    let capacity = setup.setting.chip.buffer.capacity;
    let message = format!("nothing that its dataflows hold fits the buffer of {capacity}");
    let hint = "add a dataflow that holds less, or smaller tiles";
    Problem::new(format!("kernel {}", kernel.name), message).of(&setup.setting.binding.name).hint(hint)
}

/// Words of a tensor that the buffer holds at a time; `None` if the dataflow does not hold it.
pub(super) fn held_part(setup: &Setup<'_>, k: usize, flow: &Flow<'_>, node: NodeId) -> Option<f64> {
    let named = |names: &[String]| names.iter().any(|n| setup.setting.program.node(n) == Some(node));
    let whole = named(&flow.dataflow.whole);
    let one = One { setup, k, dataflow: flow.dataflow };
    let size = |r: RankId| setup.bound.size(r);
    (whole || named(&flow.dataflow.holds)).then(|| one.part(node, whole, flow.block_tiles, &size))
}

/// One dataflow of one kernel.
struct One<'s, 'a> {
    setup: &'s Setup<'a>,
    k: usize,
    dataflow: &'a Dataflow,
}

impl<'a> One<'_, 'a> {
    /// Whether DRAM keeps up with what it must keep up with.
    fn is_fast_enough(&self, seconds: f64) -> bool {
        let Some(within) = &self.dataflow.within else { return true };
        let chip = self.setup.setting.chip;
        let cascade = &self.setup.setting.program.graph.cascade;
        let multiple = |r: RankId| within.multiples.get(&cascade[r].name).and_then(|e| e.on(chip)).unwrap_or(1);
        let size = |r: RankId| self.setup.bound.size(r).next_multiple_of(multiple(r).max(1));
        let cycles = array_cycles(self.setup, &self.setup.setting.binding.kernels[self.k], &within.array, &size);
        seconds <= cycles / chip.clock.0
    }

    /// Blocks and tiles of a block, if it fits.
    fn fit(&self, compute_seconds: f64) -> Option<(usize, usize)> {
        let Some(block) = &self.dataflow.block else {
            return self.fits(1, &|r| self.setup.bound.size(r)).then_some((1, 1));
        };
        let cascade = &self.setup.setting.program.graph.cascade;
        let rank = cascade.rank(block.rank())?;
        let tile = self.tile(rank);
        let pieces = self.setup.pieces(rank, tile).max(1);
        let own = |r: RankId| self.setup.bound.size(r);
        match block {
            Block::Largest { as_at, most, .. } if as_at.is_empty() => {
                let small = |n: &usize| *n == 1 || most.is_none_or(|most| n.saturating_mul(tile) <= most);
                let n = divisors(pieces).rev().find(|n| small(n) && self.fits(*n, &own))?;
                Some((pieces / n, n))
            }
            Block::Largest { as_at, .. } => {
                let size = |r: RankId| as_at.get(&cascade[r].name).copied().unwrap_or(own(r));
                let pieces_there = size(rank).div_ceil(tile).max(1);
                let n = divisors(pieces_there).rev().find(|&n| self.fits(n, &size))?;
                let blocks = pieces_there / n;
                Some((blocks, pieces.div_ceil(blocks)))
            }
            Block::Balanced { least, .. } => {
                let fitting: Vec<usize> = divisors(pieces).filter(|&n| self.fits(n, &own)).collect();
                let largest = *fitting.last()?;
                let fast = |n: &&usize| **n >= *least && self.seconds(self.words(pieces / **n)) <= compute_seconds;
                let n = fitting.iter().find(fast).copied().unwrap_or(largest);
                Some((pieces / n, n))
            }
            Block::Fixed { size, .. } => {
                // A block is at least a tile.
                let n = size.div_ceil(tile);
                let blocks = own(rank).div_ceil(tile.max(*size)).max(1);
                self.fits(n, &own).then_some((blocks, n))
            }
        }
    }

    fn flow(&self, blocks: usize, block_tiles: usize, words: Words) -> Flow<'a> {
        let size = |r: RankId| self.setup.bound.size(r);
        let held_bytes = self.held(block_tiles, &size) + self.beside(block_tiles, &size);
        let overflow = match self.dataflow.beside.is_empty() {
            true => 0.0,
            false => (1.0 - self.capacity() / held_bytes).max(0.0),
        };
        Flow {
            dataflow: self.dataflow,
            blocks,
            block_tiles,
            held_bytes,
            overflow,
            filled: words.filled,
            traffic_bytes: words.all * self.setup.setting.chip.word.0 as f64,
            seconds: self.seconds(words),
        }
    }

    fn seconds(&self, words: Words) -> f64 {
        let chip = self.setup.setting.chip;
        words.all * chip.word.0 as f64 / chip.dram.bandwidth.0
    }

    fn tile(&self, rank: RankId) -> usize {
        self.setup.tiles[self.k].get(&rank).copied().unwrap_or(usize::MAX)
    }

    fn fits(&self, block_tiles: usize, size: &dyn Fn(RankId) -> usize) -> bool {
        self.held(block_tiles, size) <= self.capacity()
    }

    fn capacity(&self) -> f64 {
        self.dataflow.capacity.unwrap_or(self.setup.setting.chip.buffer.capacity).0 as f64
    }

    /// Bytes beside what is held: two parts of each tensor.
    fn beside(&self, block_tiles: usize, size: &dyn Fn(RankId) -> usize) -> f64 {
        let program = self.setup.setting.program;
        let block = self.dataflow.block.as_ref().and_then(|b| program.graph.cascade.rank(b.rank()));
        let part = |(name, beside): (&String, &Beside)| -> f64 {
            let Some(node) = program.node(name) else { return 0.0 };
            let extent = |r: RankId| match beside {
                Beside::Whole => size(r),
                Beside::Block if Some(r) == block => size(r).min(self.tile(r).saturating_mul(block_tiles)),
                Beside::Block | Beside::Tile => size(r).min(self.tile(r)),
            };
            program.dims(node).into_iter().map(|r| extent(r) as f64).product()
        };
        2.0 * self.dataflow.beside.iter().map(part).sum::<f64>() * self.setup.setting.chip.word.0 as f64
    }

    /// Bytes that the buffer holds for blocks of so many tiles.
    fn held(&self, block_tiles: usize, size: &dyn Fn(RankId) -> usize) -> f64 {
        let node = |name: &String| self.setup.setting.program.node(name);
        let parts = self.dataflow.holds.iter().filter_map(node).map(|n| self.part(n, false, block_tiles, size));
        let wholes = self.dataflow.whole.iter().filter_map(node).map(|n| self.part(n, true, block_tiles, size));
        parts.chain(wholes).sum::<f64>() * self.setup.setting.chip.word.0 as f64
    }

    /// Words of a tensor that the buffer holds for blocks of so many tiles.
    fn part(&self, node: NodeId, whole: bool, block_tiles: usize, size: &dyn Fn(RankId) -> usize) -> f64 {
        let program = self.setup.setting.program;
        let block = self.dataflow.block.as_ref().and_then(|b| program.graph.cascade.rank(b.rank()));
        let is_uncut = |r: RankId| self.dataflow.uncut.contains(&program.graph.cascade[r].name);
        let extent = |r: RankId| {
            let n = if Some(r) == block { self.tile(r).saturating_mul(block_tiles) } else { self.tile(r) };
            if whole || is_uncut(r) { size(r) } else { size(r).min(n) }
        };
        program.dims(node).into_iter().map(|r| extent(r) as f64).product()
    }

    /// Words between DRAM and the chip for all instances. What is read in this kernel and does not come from it is
    /// read once, or once a block if it does not carry the rank that is cut; what others need is written once; what
    /// spills is written and read.
    fn words(&self, blocks: usize) -> Words {
        let setup = self.setup;
        let program = setup.setting.program;
        let nodes = |names: &[String]| -> BTreeSet<NodeId> { names.iter().filter_map(|n| program.node(n)).collect() };
        let beside = |part: Beside| -> Vec<String> {
            self.dataflow.beside.iter().filter(|b| *b.1 == part).map(|b| b.0.clone()).collect()
        };
        let holds = nodes(&[self.dataflow.holds.clone(), beside(Beside::Block)].concat());
        let whole = nodes(&[self.dataflow.whole.clone(), beside(Beside::Whole)].concat());
        let reloads = nodes(&beside(Beside::Tile));
        let block = self.dataflow.block.as_ref().and_then(|b| program.graph.cascade.rank(b.rank()));
        let here = |node: NodeId| setup.kernel_of.get(&node) == Some(&self.k);
        let mut reads: BTreeMap<NodeId, f64> = BTreeMap::new();
        let mut held: BTreeSet<NodeId> = BTreeSet::new();
        let mut written: BTreeMap<NodeId, f64> = BTreeMap::new();
        for einsum in &program.einsums {
            for &operand in &einsum.operands {
                let root = program.root(operand);
                match (here(einsum.node), here(root)) {
                    (true, false) => {
                        let is_whole = whole.contains(&root) || whole.contains(&operand);
                        let again = block.is_some_and(|r| !program.dims(operand).contains(&r)) && !is_whole;
                        let mut times = if again { blocks as f64 } else { 1.0 };
                        if reloads.contains(&operand) || reloads.contains(&root) {
                            let tiles =
                                self.setup.tiles[self.k].iter().filter(|(r, _)| !program.dims(operand).contains(r));
                            times = tiles.map(|(r, n)| setup.pieces(*r, *n) as f64).product();
                        }
                        let entry = reads.entry(root).or_default();
                        *entry = entry.max(times * self.size(root));
                        if is_whole || holds.contains(&operand) || holds.contains(&root) {
                            held.insert(root);
                        }
                    }
                    (false, true) => drop(written.insert(root, self.size(root))),
                    _ => {}
                }
            }
            if here(einsum.node) && program.graph.outputs.contains(&einsum.node) {
                written.insert(einsum.node, self.size(einsum.node));
            }
        }
        let spilled: f64 = nodes(&self.dataflow.spills).into_iter().map(|n| self.size(n)).sum();
        let all = reads.values().chain(written.values()).sum::<f64>() + 2.0 * spilled;
        let filled: f64 = reads.iter().filter(|(n, _)| held.contains(n)).map(|(_, words)| words).sum();
        Words { all, filled }.scaled(setup.setting.instances)
    }

    /// Elements of a tensor.
    fn size(&self, node: NodeId) -> f64 {
        let program = self.setup.setting.program;
        program.dims(node).into_iter().map(|r| self.setup.bound.size(r) as f64).product()
    }
}

/// Words between DRAM and the chip.
#[derive(Clone, Copy)]
struct Words {
    all: f64,
    /// Into the buffer.
    filled: f64,
}

impl Words {
    fn scaled(self, by: f64) -> Self {
        Self { all: self.all * by, filled: self.filled * by }
    }
}

/// All divisors of a number of at least 1, from the smallest.
fn divisors(n: usize) -> impl DoubleEndedIterator<Item = usize> {
    let small: Vec<usize> = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let mut all: Vec<usize> = small.iter().map(|d| n / d).chain(small.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}
