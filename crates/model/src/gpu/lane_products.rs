//! What products cost beside their multiply-adds where lanes compute them.
//!
//! A thread has a block of `r` by `c` elements of the result. For four terms it reads `r + c` times 16 bytes of shared memory,
//! where factors are f32 and lie so that four neighbours are of one thread, and multiplies `4 r c` times; other factors are read
//! one by one. Blocks at the edges of the result are computed whole. All that takes turns in the same
//! slots, in which a core starts as many instructions a cycle as it has arithmetic lanes. What is read has a pipe of its
//! own, which the few sets of threads of a core do not keep wholly beside the slots. And a multiply-add has three registers to
//! read, of two banks that give one each a cycle: where none is still there from the instruction before, or two are in
//! one bank, it takes the slot of another.

use super::cycles::Clock;
use super::lying::{Lying, Read, lying};
use crate::count::elements;
use crate::nest::{Loop, grid_loops, sides};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Kernel, Op, Program, ValueId, grid_points};
use std::collections::{BTreeMap, BTreeSet};

/// Elements that a read brings where factors are f32.
const WIDE: f64 = 4.0;
/// Instructions of a thread for a term beside reads and multiply-adds. This and what follows is not measured on a machine but
/// counted in the code that NVRTC 13.0 makes for sm_90a (`docs/gpu-log.md`, test `lane_code`): 11 for eight terms.
const BESIDE_TERM: f64 = 11.0 / 8.0;
/// The same for a chunk.
const BESIDE_CHUNK: f64 = 55.0;
/// The same for a copy by the thread, of up to 16 bytes: at constant distances from the one before; and with an address of its own,
/// or a test whether it is there: 11.25 to 12.25.
const BESIDE_COPY: [f64; 2] = [3.1, 11.5];
/// Instructions beside a read of 16 bytes along the sum, where a thread has groups of neighbouring columns: 144 for 32 reads.
const BESIDE_ALONG: f64 = 4.5;
/// Instructions beside a read of one element of a left factor whose rows lie side by side: 143 for 64 reads.
const BESIDE_ACROSS: f64 = 2.2;
/// Slots that are lost at a multiply-add because two of its registers are in one bank; and at one with both factors new, of
/// which there is one in every row of a thread's block. Counted: 0.45 with rows of 8, 0.35 with rows of 16.
const CLASHES: [f64; 2] = [0.25, 1.6];
/// Instructions beside a read of one element: conversion too.
const BESIDE_SINGLE: f64 = 2.0;

/// Sets of threads that fill the lanes where they stand as a matrix unit has them: f32 products of linear attention take twice as long with one as with
/// two (H200, 64 by 256 and 32 by 128 for 64 by 128; docs/gpu-log.md).
const SETS: f64 = 2.0;

/// How a block stands on a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand<'a> {
    /// Threads of the block.
    pub threads: usize,
    /// Blocks of the core.
    pub blocks: usize,
    /// Bytes of one chunk of factors for which a block waits, because there is no room to copy the next one meanwhile; 0 where
    /// there is.
    pub awaited: u64,
    /// Axes whose rows warps share as a matrix unit has them, where one takes other products of the kernel.
    pub rows: &'a BTreeSet<AxisId>,
}

/// Seconds of all cores at work that a kernel's products take beside their multiply-adds; products that a matrix unit takes are
/// left out. `None` without any.
pub(super) fn beside(
    program: &Program,
    kernel: &Kernel,
    clock: &Clock<'_>,
    in_unit: &BTreeMap<ValueId, usize>,
    stand: Stand<'_>,
) -> Option<f64> {
    let threads = stand.threads as f64;
    let mut found = Count {
        program,
        kernel,
        in_unit,
        clock,
        threads,
        needed: 0.0,
        multiplied: 0.0,
        issued: 0.0,
        lost: 0.0,
        read: 0.0,
        alone: 0.0,
        chunks: 0.0,
        rows: stand.rows,
    };
    found.ops(&kernel.body, &mut grid_loops(kernel));
    let (cores, points) = (clock.machine.cores.max(1), grid_points(kernel).max(1));
    let blocks = stand.blocks as f64;
    // Sets of threads that fill the lanes once. A warp has one instruction at a time: fewer threads leave lanes without any.
    let sets = threads * blocks / clock.lanes.arithmetic as f64;
    let filled = if stand.rows.is_empty() { sets.min(1.0) } else { (sets / SETS).min(1.0) };
    // Other sets cover a read. Those of one block leave its barriers together and read together, those of others do not.
    // A warp waits as long where there are too few of them to fill the lanes.
    let covers = sets.max(1.0) * blocks.min(sets.max(1.0)) * filled;
    let shown = clock.calibration.reads_show / covers * found.read / clock.shared;
    // At every chunk the whole block waits for its last warp.
    let wait = clock.calibration.own_stage
        + match stand.awaited {
            0 => 0.0,
            bytes => clock.latency + bytes as f64 / clock.outside,
        };
    let starts = clock.calibration.task + clock.latency;
    let waits = (wait * found.chunks + starts * points as f64) / blocks;
    let all = clock.hertz * cores as f64;
    // As many slots as multiply-adds at the machine's rate.
    let slots = 2.0 * (found.issued + found.lost) / clock.machine.rate(DType::F32).0;
    let alone = found.alone / (found.clock.shared * all);
    let each = (found.multiplied + slots + alone) / filled - found.needed + (shown + waits) / all;
    // As the multiply-adds, until the core with the most blocks has done them.
    let busiest = (points.div_ceil(cores) * cores) as f64 / points as f64;
    (found.chunks > 0.0).then_some(each * busiest)
}

struct Count<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    in_unit: &'a BTreeMap<ValueId, usize>,
    clock: &'a Clock<'a>,
    threads: f64,
    /// Seconds of the multiply-adds that are asked for, with all lanes of all cores at work.
    needed: f64,
    /// The same of those that are made: with what tiles reach beyond the result's edges.
    multiplied: f64,
    /// Instructions beside multiply-adds.
    issued: f64,
    /// Slots of multiply-adds whose registers take another cycle to read.
    lost: f64,
    /// Bytes of shared memory; and those of products whose reads nothing covers.
    read: f64,
    alone: f64,
    /// Tiles of factors that are multiplied.
    chunks: f64,
    /// As [`Stand::rows`].
    rows: &'a BTreeSet<AxisId>,
}

impl<'a> Count<'a> {
    fn ops(&mut self, ops: &'a [Op], loops: &mut Vec<Loop>) {
        for op in ops {
            match op {
                Op::Mma { dst, a, b, .. } if !self.in_unit.contains_key(a) => self.product([*dst, *a, *b], loops),
                Op::Stream { axis, within, guards, body, .. } => {
                    loops.push(Loop::stream(*axis, within, guards));
                    self.ops(body, loops);
                    loops.pop();
                }
                _ => {}
            }
        }
    }

    fn product(&mut self, [dst, a, b]: [ValueId; 3], loops: &[Loop]) {
        let axes: BTreeSet<AxisId> = sides(self.kernel, a).into_iter().chain(sides(self.kernel, b)).collect();
        let terms = elements(self.kernel, loops, &axes) as f64;
        let size = |axis: &AxisId| self.kernel.axis(*axis).tile.min(self.kernel.axis(*axis).extent).max(1) as f64;
        let own: Vec<f64> = sides(self.kernel, dst).iter().map(size).collect();
        // As square as the tile is, of powers of two.
        let each = (own.iter().product::<f64>() / self.threads).max(1.0);
        let down = each.sqrt().log2().floor().exp2().min(own.iter().copied().fold(f64::INFINITY, f64::min)).max(1.0);
        let across = each / down;
        let fragment = self.kernel.value(dst).rows.filter(|rows| self.rows.contains(rows)).map(|rows| {
            // A thread has two rows of each sixteen, and two columns of each eight.
            let warps = self.threads / 32.0;
            let down = 2.0 * (size(&rows) / (16.0 * warps)).ceil();
            (rows, down, (own.iter().product::<f64>() / size(&rows) / 4.0).max(2.0))
        });
        let bytes = |v: ValueId| self.kernel.value(v).dtype.bytes().max(4) as f64;
        let f32s = [a, b].iter().all(|v| self.kernel.value(*v).dtype == DType::F32);
        let chunks = terms / axes.iter().map(size).product::<f64>();
        let whole = |axis: &AxisId| {
            let extent = self.kernel.axis(*axis).extent.max(1) as f64;
            (extent / size(axis)).ceil() * size(axis) / extent
        };
        let rate = [a, b].map(|v| self.clock.machine.rate(self.kernel.value(v).dtype).0);
        let seconds = 2.0 * terms / rate[0].min(rate[1]);
        self.needed += seconds;
        let terms = terms * sides(self.kernel, dst).iter().map(whole).product::<f64>();
        self.multiplied += seconds * sides(self.kernel, dst).iter().map(whole).product::<f64>();
        let term = if f32s { BESIDE_TERM } else { 0.0 };
        self.issued += terms * term / each;
        self.issued += chunks * BESIDE_CHUNK * self.threads;
        // A thread's rows are multiplied by as many columns, and the other way round.
        let uses = match fragment {
            Some((rows, down, across)) => {
                [a, b].map(|v| if sides(self.kernel, v).contains(&rows) { across } else { down })
            }
            None => [across.max(down), across.min(down)],
        };
        for (v, uses) in [a, b].into_iter().zip(uses) {
            let lies = if f32s { lying(self.program, self.kernel, dst, v) } else { Lying::singly() };
            let joined = self.clock.calibration.reads_joined;
            let (at_once, beside, part) = match lies.read {
                Read::Wide => (WIDE, 0.0, joined),
                Read::Along => (WIDE, BESIDE_ALONG, joined),
                Read::Single => (1.0, 0.0, 1.0),
                Read::Across => (1.0, BESIDE_ACROSS, 1.0),
                Read::Converted => (1.0, BESIDE_SINGLE, 1.0),
            };
            self.issued += terms / uses * (1.0 + beside) / at_once;
            if fragment.is_some() {
                self.alone += terms * bytes(v) / uses;
            } else {
                self.read += part * terms * bytes(v) / uses;
            }
            let tile = sides(self.kernel, v).iter().map(size).product::<f64>() * bytes(v);
            self.issued += chunks * BESIDE_COPY[usize::from(!lies.constant)] * tile / lies.copied;
        }
        // Wider numbers are multiplied at half the rate or less, and their registers are there in time.
        if bytes(a) <= 4.0 {
            self.lost += terms * (CLASHES[0] + CLASHES[1] / across.max(down));
        }
        self.chunks += chunks;
    }
}
