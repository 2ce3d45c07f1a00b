//! What products cost beside their multiply-adds where lanes compute them.
//!
//! A thread has a block of `r` by `c` elements of the result. For four terms it reads `r + c` times 16 bytes of shared memory,
//! where factors are f32, and multiplies `4 r c` times; other factors are read one by one. All that takes turns in the same
//! slots, in which a core starts as many instructions a cycle as it has arithmetic lanes, and what is read has a pipe of its
//! own, which the few sets of threads of a core do not keep wholly beside the slots.

use super::cycles::Clock;
use crate::count::elements;
use crate::nest::{Loop, grid_loops, sides};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Elements that a read brings where factors are f32.
const WIDE: f64 = 4.0;
/// Instructions beside a read: addresses and the loop's. Counted in the machine code that nvcc 13.0 makes for sm_90a: 200 beside
/// 32 reads and 512 multiply-adds (`docs/gpu-log.md`).
const BESIDE_READ: f64 = 200.0 / 32.0;
/// Instructions beside a read of one element: conversion too.
const BESIDE_SINGLE: f64 = 2.0;

/// How a block stands on a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// Threads of the block.
    pub threads: usize,
    /// Blocks of the core.
    pub blocks: usize,
    /// Bytes of one chunk of factors for which a block waits, because there is no room to copy the next one meanwhile; 0 where
    /// there is.
    pub awaited: u64,
}

/// Seconds of all cores at work that a kernel's products take beside their multiply-adds; products that a matrix unit takes are
/// left out. `None` without any.
pub(super) fn beside(
    kernel: &Kernel,
    clock: &Clock<'_>,
    in_unit: &BTreeMap<ValueId, usize>,
    stand: Stand,
) -> Option<f64> {
    let threads = stand.threads as f64;
    let mut found = Count { kernel, in_unit, threads, issued: 0.0, read: 0.0, chunks: 0.0 };
    found.ops(&kernel.body, &mut grid_loops(kernel));
    let lanes = clock.lanes.arithmetic as f64;
    // Sets of threads that fill the lanes once: as for products of a unit that threads issue one by one.
    let sets = (stand.threads as f64 * stand.blocks as f64 / lanes).max(1.0);
    let shows = 3.0 * clock.calibration.shows / (2.0 + sets);
    let all = clock.hertz * clock.machine.cores.max(1) as f64;
    let wait = match stand.awaited {
        0 => 0.0,
        bytes => (clock.latency + bytes as f64 / clock.outside) / stand.blocks as f64,
    };
    let cycles = found.issued / lanes + shows * found.read / clock.shared + wait * found.chunks;
    (found.chunks > 0.0).then(|| cycles / all)
}

struct Count<'a> {
    kernel: &'a Kernel,
    in_unit: &'a BTreeMap<ValueId, usize>,
    threads: f64,
    /// Instructions beside multiply-adds.
    issued: f64,
    /// Bytes of shared memory.
    read: f64,
    /// Tiles of factors that are multiplied.
    chunks: f64,
}

impl<'a> Count<'a> {
    fn ops(&mut self, ops: &'a [Op], loops: &mut Vec<Loop<'a>>) {
        for op in ops {
            match op {
                Op::Mma { dst, a, b, .. } if !self.in_unit.contains_key(a) => self.product([*dst, *a, *b], loops),
                Op::Stream { axis, within, body, .. } => {
                    loops.push(Loop { axis: *axis, within: Some(within) });
                    self.ops(body, loops);
                    loops.pop();
                }
                _ => {}
            }
        }
    }

    fn product(&mut self, [dst, a, b]: [ValueId; 3], loops: &[Loop<'a>]) {
        let axes: BTreeSet<AxisId> = sides(self.kernel, a).union(&sides(self.kernel, b)).copied().collect();
        let terms = elements(self.kernel, loops, &axes) as f64;
        let size = |axis: &AxisId| self.kernel.axis(*axis).tile.min(self.kernel.axis(*axis).extent).max(1) as f64;
        let own: Vec<f64> = sides(self.kernel, dst).iter().map(size).collect();
        // As square as the tile is.
        let each = (own.iter().product::<f64>() / self.threads).max(1.0);
        let down = each.sqrt().min(own.iter().copied().fold(f64::INFINITY, f64::min)).max(1.0);
        let across = each / down;
        let bytes = |v: ValueId| self.kernel.value(v).dtype.bytes().max(4) as f64;
        let wide = [a, b].iter().all(|v| self.kernel.value(*v).dtype == DType::F32);
        let (at_once, beside) = if wide { (WIDE, BESIDE_READ) } else { (1.0, BESIDE_SINGLE) };
        let reads = (1.0 / down + 1.0 / across) / at_once;
        self.issued += terms * reads * (1.0 + beside);
        self.read += terms * (bytes(a) / across.min(down) + bytes(b) / across.max(down));
        self.chunks += terms / axes.iter().map(size).product::<f64>();
    }
}
