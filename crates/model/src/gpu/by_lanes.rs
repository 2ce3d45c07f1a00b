//! Whether the tiles of a kernel fit a core when its lanes multiply, because no matrix unit takes some product.
//!
//! Every factor then has a place of its own in shared memory, computed ones too, in whole words: other threads read
//! it. Everything else is held in registers by as many threads as leave each few elements of the largest tile.

use super::block::Block;
use super::cycles::Clock;
use super::lane_products::{Stand, beside};
use super::operand;
use super::registers::pressure;
use super::run::{SHARED_RESERVE, too_much};
use super::structure::Structure;
use super::uses::{each, reads};
use crate::nest::sides;
use einloom_machine::Machine;
use einloom_tile::{AxisId, Kernel, Op, Program, ValueId, grid_points};
use std::collections::{BTreeMap, BTreeSet};

/// Elements of the largest tile that a thread should hold.
const ELEMENTS: usize = 32;
/// The same of one that is only multiplied, which a thread multiplies by blocks: the most first, with the threads that a block
/// has at least then.
const BLOCKS: [(usize, usize); 2] = [(128, 128), (64, 32)];
/// Registers for the factors of such a block, and beside whatever else a thread holds.
const FACTORS: [usize; 2] = [64, 32];
/// Stages of copies that are taken, with the part of shared memory that they may fill: more where two blocks still fit.
const STAGES: [(u64, u64); 3] = [(4, 2), (3, 2), (2, 1)];
/// Registers beside tiles: addresses, factors on their way, counters.
const RESERVE: usize = 40;
/// A thread that needs more than this many times its registers waits for memory most of the time.
const SPILLED: usize = 3;
/// Bytes through which reductions pass from warp to warp, and vectors from one arrangement of threads to another.
const EXCHANGE: u64 = 8 << 10;
/// The part of the time of what is not multiplied, waits and all, that shows beside products by lanes, if what keeps the lanes busy is not
/// more: measured on an H200, f32 attention of 16 heads of 4096 tokens of 64 in 20 tiles, full and causal (docs/gpu-log.md, "Products by
/// lanes beside reductions").
const WAITS_SHOW: f64 = 0.2;
/// Rows and columns that a block's matrix instructions may reach beyond a tile's, in a kernel that has some.
const REACH: usize = 32;

/// What a kernel takes of a core whose lanes compute its products.
#[derive(Clone, Debug, PartialEq)]
pub struct ByLanes {
    /// Threads of a block.
    pub threads: usize,
    /// Registers of a thread at the worst point of the kernel, estimated.
    pub registers: usize,
    /// Registers that it can have.
    pub register_limit: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u64,
    /// Bytes that it can have.
    pub shared_limit: u64,
    /// By axis, in the kernel's order: bytes of the tiles that are smaller if its tile is, those in shared memory
    /// first, then those in registers.
    pub by_axis: Vec<[u64; 2]>,
    /// Seconds that products by lanes take of the cores beside their multiply-adds. `None` where lanes compute none, and where no result has two
    /// sides: then how threads stand is not known here.
    pub beside_products: Option<f64>,
    /// Seconds of the cores for what is not multiplied, maps, reductions and their waits, if it fits; 0 where products are all that
    /// streams have. Where `beside_products` is known, which has most of the waits, only what shows beside it.
    pub rest: f64,
    /// How many times longer all that takes because points of the grid differ in length, where `beside_products` is known.
    pub uneven: f64,
    /// Blocks of a core at once.
    pub blocks: usize,
    /// Stages of the copies of what streams: with one nothing is copied while another chunk is multiplied.
    pub stages: u64,
}

impl ByLanes {
    /// Why it does not fit, if it does not.
    pub fn misfit(&self) -> Option<String> {
        if self.shared_needed() > self.shared_limit {
            return Some(too_much(self.shared_needed(), self.shared_limit));
        }
        let bearable = SPILLED * self.register_limit;
        (self.registers > bearable).then(|| format!("{} registers a thread are more than {bearable}", self.registers))
    }

    /// How many times too large it is where it fits least; 1 or less if it fits.
    pub fn excess(&self) -> f64 {
        let shared = self.shared_needed() as f64 / self.shared_limit.max(1) as f64;
        shared.max(self.registers as f64 / (SPILLED * self.register_limit).max(1) as f64)
    }

    /// Bytes of shared memory without which no block runs.
    pub fn shared_needed(&self) -> u64 {
        self.shared_bytes.max(SHARED_RESERVE)
    }

    /// How many times longer it takes because some of its registers are in memory; 1 if none is.
    pub fn slowdown(&self) -> f64 {
        (self.registers as f64 / self.register_limit.max(1) as f64).max(1.0)
    }
}

/// What a kernel of a well-formed program takes of the machine's cores where lanes multiply; `None` on a machine whose
/// cores are not a GPU's.
pub fn by_lanes(program: &Program, kernel: &Kernel, machine: &Machine) -> Option<ByLanes> {
    by_lanes_of(program, kernel, machine, &Structure::of(kernel))
}

/// The same of a kernel whose structure is known.
pub fn by_lanes_of(program: &Program, kernel: &Kernel, machine: &Machine, structure: &Structure) -> Option<ByLanes> {
    let lanes = machine.lanes.as_ref()?;
    let clock = Clock::new(machine, lanes);
    let in_unit = in_unit(kernel, machine);
    let mut factors = BTreeSet::new();
    let (mut reduces, mut others, mut results) = (false, BTreeSet::new(), vec![]);
    each(&kernel.body, &mut |op| match op {
        Op::Mma { dst, a, b, acc } => {
            factors.extend([*a, *b]);
            others.extend(*acc);
            results.push(*dst);
        }
        op => {
            reduces |= matches!(op, Op::Reduce { .. });
            others.extend(reads(op));
        }
    });
    let bytes = |v: ValueId| shared_bytes(kernel, v, in_unit.get(&v).copied());
    let mut block = Block::of_lanes(program, kernel, structure, clock, 32);
    // What is only multiplied goes from memory to shared memory and is never held.
    block.shared =
        factors.iter().filter(|v| block.structure.loaded.contains(v) && !others.contains(v)).copied().collect();
    let kept = in_registers(kernel, &in_unit, &block.structure.loaded);
    let rows = unit_rows(kernel, &in_unit);
    if !rows.is_empty() {
        // Nor is what is computed to be multiplied, once it is there.
        block.shared.extend(factors.iter().filter(|v| !kept.contains(v) && !others.contains(v)));
    }
    let fused = block.structure.fused.clone();
    let all = (0..kernel.values.len() as u32).map(ValueId);
    let held: Vec<ValueId> = all.filter(|v| !block.shared.contains(v) && !fused.contains_key(v)).collect();
    block.alone = (0..kernel.axes.len() as u32).map(AxisId).collect();
    for &v in &held {
        let sides = sides(kernel, v);
        if sides.len() == 2 {
            block.alone.retain(|axis| !sides.contains(axis));
        }
    }
    let elements = |v: &ValueId| block.elements(*v) as usize;
    // Threads enough also to multiply.
    let multiplied = factors.iter().map(|v| elements(v) / 4).max();
    let largest = held.iter().map(elements).chain(multiplied).max().unwrap_or(1);
    let most = if reduces && in_unit.is_empty() { lanes.block_threads } else { lanes.block_threads / 2 };
    // Matrix instructions leave the number of threads to their tile's rows.
    let most = if in_unit.is_empty() { most } else { most.min(128) };
    let streams = |v: &&ValueId| block.structure.loaded.contains(*v) && !block.stays(**v);
    let area = results.iter().filter(|v| sides(kernel, **v).len() == 2).map(elements).max();
    let by_blocks = area.is_some() && !reduces && in_unit.is_empty() && factors.iter().all(|v| streams(&v));
    let at_most = |threads: usize| threads.clamp(32, most.max(32));
    let common = at_most(largest.div_ceil(ELEMENTS).next_power_of_two());
    let mut at_once = 0;
    if let Some(area) = area.filter(|_| by_blocks) {
        for (elements, least) in BLOCKS {
            block.threads = at_most(32 * (area / elements / 32).next_power_of_two()).min(common);
            block.settle();
            let held = pressure(&block).ceil() as usize;
            at_once = FACTORS[0] + if held > elements { FACTORS[1] } else { 0 };
            if block.threads >= least && held + RESERVE + at_once <= lanes.registers {
                break;
            }
        }
    } else {
        // Warps without rows would have nothing to multiply.
        let most = rows.iter().map(|rows| block.size(*rows)).max();
        block.threads = most.map_or(common, |rows| 32 * rows.div_ceil(16).next_power_of_two().min(4));
        block.settle();
    }
    let registers = pressure(&block).ceil() as usize + RESERVE;
    let register_limit = (clock.registers() / block.threads / 8 * 8).min(lanes.registers);
    let passing: BTreeSet<ValueId> =
        factors.union(&block.structure.picked).filter(|v| !kept.contains(v)).copied().collect();
    let shared: u64 = passing.iter().map(|&v| bytes(v)).sum();
    let by_axis = (0..kernel.axes.len() as u32).map(|k| {
        let own = |v: &ValueId| sides(kernel, *v).contains(&AxisId(k));
        let here = passing.iter().filter(|v| own(v)).map(|&v| bytes(v)).sum();
        [here, held.iter().filter(|v| own(v)).map(|&v| 4 * block.elements(v) as u64).sum()]
    });
    // Tiles that are all alike stay with their threads.
    let of_threads = held.iter().map(|&v| sides(kernel, v)).filter(|s| !s.is_empty()).collect::<BTreeSet<_>>();
    let passes = !passing.is_empty() || reduces || of_threads.len() > 1;
    let shared_bytes = if passes { shared + EXCHANGE + SHARED_RESERVE } else { 0 };
    let shared_limit = clock.shared_capacity();
    // What is loaded in a stream is copied ahead where there is room.
    let streamed: u64 =
        factors.iter().filter(|v| block.structure.loaded.contains(v) && !block.stays(**v)).map(|&v| bytes(v)).sum();
    let with = |stages: u64| shared_bytes + (stages - 1) * streamed;
    let stages = STAGES.iter().find(|(n, part)| with(*n) <= shared_limit / part).map_or(1, |s| s.0);
    let stages = if streamed == 0 { 1 } else { stages };
    let by_shared = shared_limit.checked_div(with(stages)).map_or(usize::MAX, |n| n as usize);
    let by_registers = clock.registers() / ((registers + at_once).min(register_limit.max(1)).max(1) * block.threads);
    let by_points = grid_points(kernel).div_ceil(machine.cores.max(1));
    let blocks = by_shared.min(by_registers).min(lanes.threads / block.threads).min(by_points).max(1);
    // Of several products of a chunk one is multiplied while the factors of another are copied.
    let awaited = if stages == 1 && together(&kernel.body) < 2 { streamed } else { 0 };
    let mut found = ByLanes {
        beside_products: None,
        rest: 0.0,
        uneven: 1.0,
        blocks,
        stages,
        threads: block.threads,
        registers,
        register_limit,
        shared_bytes,
        shared_limit,
        by_axis: by_axis.collect(),
    };
    if found.misfit().is_some() {
        return Some(found);
    }
    if area.is_some() {
        let stand = Stand { threads: block.threads, blocks, awaited, rows: &rows };
        found.beside_products = beside(program, kernel, &clock, &in_unit, stand);
    }
    let between = kernel.body.iter().any(|op| matches!(op, Op::Stream { body, .. } if changes(body)));
    if between || !by_blocks || found.beside_products.is_none() {
        let rest = block.core_seconds(&block.task(grid_points(kernel)), &block.team(1, blocks), 0.0);
        (found.rest, found.uneven) = match found.beside_products {
            Some(_) => {
                // Nothing else covers the waits of a core that has one block, and none after it.
                let shows = if grid_points(kernel) <= machine.cores { 1.0 } else { WAITS_SHOW };
                (rest.busiest.max(shows * rest.seconds / rest.uneven), rest.uneven)
            }
            None => (rest.seconds, 1.0),
        };
    }
    Some(found)
}

/// The most products that one body has.
fn together(ops: &[Op]) -> usize {
    let own = ops.iter().filter(|op| matches!(op, Op::Mma { .. })).count();
    let inside = ops.iter().map(|op| if let Op::Stream { body, .. } = op { together(body) } else { 0 });
    inside.fold(own, usize::max)
}

/// Whether something is done beside loads, stores and products.
fn changes(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Map { .. } | Op::Reduce { .. } | Op::Pick { .. } => true,
        Op::Stream { body, .. } => changes(body),
        _ => false,
    })
}

/// Factors of the products that a matrix unit takes, with the bytes of an element there.
fn in_unit(kernel: &Kernel, machine: &Machine) -> BTreeMap<ValueId, usize> {
    let mut out: BTreeMap<ValueId, usize> = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        let Op::Mma { dst, a, b, .. } = op else { return };
        let flat = [dst, a, b].iter().any(|v| sides(kernel, **v).len() < 2);
        let narrow = |v: &ValueId| kernel.value(*v).dtype.bytes() <= 2;
        if !flat && narrow(a) && narrow(b) && machine.matrix.iter().any(|u| operand(kernel, u, *a, *b).is_some()) {
            out.extend([(*a, 2), (*b, 2)]);
        }
    });
    out
}

/// Axes of the rows of products that a matrix unit takes.
fn unit_rows(kernel: &Kernel, in_unit: &BTreeMap<ValueId, usize>) -> BTreeSet<AxisId> {
    let mut rows = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Mma { dst, a, .. } = op
            && in_unit.contains_key(a)
        {
            rows.extend(kernel.value(*dst).rows);
        }
    });
    rows
}

/// Left factors of such products that are not loaded: threads have them as they computed them.
fn in_registers(kernel: &Kernel, in_unit: &BTreeMap<ValueId, usize>, loaded: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Mma { dst, a, b, .. } = op
            && in_unit.contains_key(a)
        {
            let rows = kernel.value(*dst).rows;
            let left = [*a, *b].into_iter().find(|v| kernel.value(*v).rows == rows);
            out.extend(left.filter(|v| !loaded.contains(v)));
        }
    });
    out
}

/// Bytes of a factor in shared memory: rows are padded to an odd number of 16-byte chunks, whichever axis they run
/// along, or further, to what instructions of a matrix unit reach.
fn shared_bytes(kernel: &Kernel, v: ValueId, in_unit: Option<usize>) -> u64 {
    let value = kernel.value(v);
    if value.rows.is_none() && value.cols.is_none() {
        return 0;
    }
    let element = in_unit.unwrap_or_else(|| value.dtype.bytes().max(4)) as u64;
    let size = |axis: Option<AxisId>| {
        let size = axis.map_or(1, |a| kernel.axis(a).tile.min(kernel.axis(a).extent).max(1));
        if in_unit.is_some() { size.next_multiple_of(REACH) as u64 } else { size as u64 }
    };
    let [rows, cols] = [size(value.rows), size(value.cols)];
    let along = |rows: u64, row: u64| (rows * ((row * element).div_ceil(16) | 1) * 16).next_multiple_of(128);
    match (value.rows, value.cols) {
        (Some(_), Some(_)) => along(rows, cols).max(along(cols, rows)),
        _ => along(1, rows.max(cols)),
    }
}
