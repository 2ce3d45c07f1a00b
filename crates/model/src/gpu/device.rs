//! Traffic between the memory of a GPU and its L2.
//!
//! Two analyses, of which the smaller counts per tensor: the reuse analysis, which knows what stays in L2, and blocks
//! in step: those that run at the same time and read the same elements read them at about the same time, so that they
//! come in once. Which run at the same time follows from the order in which the points of the grid are visited, by blocks of L2
//! ([`visits`]); of a kernel that has none yet the wave is supposed that shares most. Tiles take no room in L2: they live in
//! the cores.
//!
//! What plans are timed by and what reports show is this one count.
//!
//! Blocks in step stay so while they compute: who is ahead misses, who follows finds. Where memory is all that they wait for
//! each gets what it gets of it, and they come apart by a part of their way ([`Calibration::apart`]). What one has read
//! stays in L2 until as much as that holds has come in: blocks further apart read it from memory once more.
//!
//! [`Calibration::apart`]: einloom_machine::Calibration

use crate::blocks::{into_cache, keeps_order};
use crate::bounds::compulsory;
use crate::counts::Counts;
use crate::levels::{Into, Reuse, Traffic};
use crate::loads::{Load, loads};
use crate::nest::Nest;
use crate::transfers::innermost;
use einloom_machine::{Bytes, Level, Machine};
use einloom_tile::{AxisId, Kernel, Program, TensorId, grid_points, grid_steps, visits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The traffic of one kernel, counted when it is first asked for.
pub(super) struct Device<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// Those of the kernel, for all sizes of its tiles.
    counts: &'a Arc<Counts>,
    counted: Option<Counted>,
    /// By the number of blocks of a core.
    known: BTreeMap<usize, Outside>,
}

/// What the outermost level has to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    /// Seconds at its bandwidth, with blocks in step.
    pub seconds: f64,
    /// What blocks of a wave share: how many share it, and seconds more if each read it for itself.
    shared: Vec<(f64, f64)>,
    /// How long what was read stays, as a part of a block's way.
    window: f64,
}

impl Outside {
    /// Seconds of the level where the cores alone take `cores`, and how many of them are for what is read again.
    pub fn beside(&self, cores: f64, apart: f64) -> (f64, f64) {
        // Only who waits for memory comes apart.
        let apart = if self.seconds > cores { apart } else { 0.0 };
        // They come apart evenly, and whoever finds something keeps it there for the next: only where neighbours are further apart
        // than the window one looks for it in vain.
        let lost = |sharers: f64| (1.0 - self.window * (sharers - 1.0) / apart.max(f64::MIN_POSITIVE)).max(0.0);
        let again: f64 = self.shared.iter().map(|&(sharers, seconds)| lost(sharers) * seconds).sum();
        (self.seconds + again, again)
    }
}

/// What of it does not depend on how many blocks a core holds.
struct Counted {
    /// For this order of the grid.
    nest: Nest,
    grid: Vec<AxisId>,
    /// What loads and stores move.
    inner: Traffic,
    /// What must move.
    least: Traffic,
    loads: Vec<Load>,
}

impl<'a> Device<'a> {
    pub fn new(program: &'a Program, kernel: &'a Kernel, counts: &'a Arc<Counts>) -> Self {
        Self { program, kernel, counts, counted: None, known: BTreeMap::new() }
    }

    /// What the outermost level has to do, `blocks` of the kernel being on a core at once.
    pub fn outside(&mut self, machine: &Machine, blocks: usize) -> Outside {
        if let Some(known) = self.known.get(&blocks) {
            return known.clone();
        }
        let (program, kernel, counts) = (self.program, self.kernel, self.counts);
        let counted = self.counted.get_or_insert_with(|| Counted::new(program, kernel, counts));
        let outside = counted.outside(program, kernel, machine, blocks);
        self.known.insert(blocks, outside.clone());
        outside
    }
}

/// What passes into L2 by the order in which a kernel's points are visited, for callers that compare some.
pub struct ByOrder<'a> {
    program: &'a Program,
    machine: &'a Machine,
    blocks: usize,
    counted: Counted,
}

impl<'a> ByOrder<'a> {
    /// For a kernel of the program in any order, `blocks` of it being on a core of a machine with lanes at once.
    pub fn new(program: &'a Program, kernel: &Kernel, machine: &'a Machine, blocks: usize) -> Self {
        Self { program, machine, blocks: blocks.max(1), counted: Counted::new(program, kernel, &Arc::default()) }
    }

    /// Whether points that differ along an axis of the grid read the same.
    pub fn shares(&self, axis: AxisId) -> bool {
        self.counted.loads.iter().any(|l| !l.axes.contains(&axis))
    }

    /// Bytes that are read at places that an axis of the grid moves: points along any other axis may share them.
    pub fn moved_by(&self, axis: AxisId) -> u64 {
        let bytes = |l: &Load| l.elements.saturating_mul(self.program.tensor(l.tensor).dtype.bytes() as u64);
        self.counted.loads.iter().filter(|l| l.axes.contains(&axis)).map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes that must be read: in no order less passes.
    pub fn least(&self) -> f64 {
        self.read(|tensor, read| self.counted.floor(tensor, read) as f64)
    }

    /// Bytes that are read if blocks of a wave read in step, and nothing stays from one wave to the next.
    pub fn in_step(&self, kernel: &Kernel) -> f64 {
        let wave = wave_in_order(kernel, under_way(kernel, self.machine, self.blocks));
        self.read(|tensor, read| {
            (self.counted.together(tensor, &wave).ceil()).max(self.counted.floor(tensor, read) as f64)
        })
    }

    /// Bytes that are read.
    pub fn bytes(&self, kernel: &Kernel) -> f64 {
        let into = self.counted.l2_traffic(self.program, kernel, self.machine, self.blocks).0;
        self.read(|tensor, _| into.traffic.get(tensor).map_or(0.0, |t| t.0 as f64))
    }

    fn read(&self, of: impl Fn(TensorId, u64) -> f64) -> f64 {
        let bytes = |t: TensorId| self.program.tensor(t).dtype.bytes() as f64;
        self.counted.inner.iter().map(|(t, (read, _))| of(t, read) * bytes(t)).sum()
    }
}

/// What passes into the L2 of a machine with lanes, `blocks` of the kernel being on a core at once.
pub(crate) fn l2_traffic(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    blocks: usize,
    counts: &Arc<Counts>,
) -> Into {
    Counted::new(program, kernel, counts).l2_traffic(program, kernel, machine, blocks).0
}

impl Counted {
    fn new(program: &Program, kernel: &Kernel, counts: &Arc<Counts>) -> Self {
        let nest = Nest::with(kernel, counts.clone());
        let inner = innermost(program, kernel, &nest);
        let (resident_bytes, element, held, in_place) = (0, None, None, false);
        let least = compulsory(&Reuse { program, kernel, nest: &nest, resident_bytes, element, held, in_place });
        let loads = loads(program, kernel, &nest, |_| true);
        Self { nest, grid: kernel.grid.clone(), inner, least, loads }
    }

    fn outside(&self, program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> Outside {
        let Some(outer) = machine.trunk().next() else { return Outside::default() };
        let (into, shared) = self.l2_traffic(program, kernel, machine, blocks);
        let size = |t: TensorId| program.tensor(t).dtype.bytes() as f64;
        let sum = |part: &dyn Fn((u64, u64)) -> f64, traffic: &Traffic| -> f64 {
            traffic.iter().map(|(t, moved)| part(moved) * size(t)).sum()
        };
        let bytes = sum(&|(read, written)| read as f64 + written as f64, &into.traffic);
        let read = sum(&|(read, _)| read as f64, &into.traffic);
        let waves = grid_points(kernel).div_ceil((machine.cores.max(1) * blocks.max(1)).max(1)).max(1);
        let capacity = machine.trunk().nth(1).and_then(|l2| l2.capacity).map_or(0.0, |c| c.0 as f64);
        Outside {
            seconds: bytes / outer.bandwidth.0,
            shared: shared.into_iter().map(|(n, bytes)| (n, bytes / outer.bandwidth.0)).collect(),
            window: capacity * kept(machine) * waves as f64 / read.max(1.0),
        }
    }

    /// With blocks in step; and what blocks of a wave share: how many, and bytes more if each read it for itself.
    fn l2_traffic(
        &self,
        program: &Program,
        kernel: &Kernel,
        machine: &Machine,
        blocks: usize,
    ) -> (Into, Vec<(f64, f64)>) {
        let blocks = blocks.max(1);
        let stays = self.stays(program, kernel, machine, blocks);
        let together = under_way(kernel, machine, blocks);
        let wave = match kernel.blocks.is_empty() {
            true => wave(program, kernel, &self.loads, together),
            false => wave_in_order(kernel, together),
        };
        let (mut traffic, mut shared) = (Traffic::new(), vec![]);
        for (tensor, (read, written)) in self.inner.iter() {
            let stays = stays.as_ref().and_then(|s| s.traffic.get(tensor)).map_or(read, |t| t.0);
            let own = self.loads.iter().filter(|l| l.tensor == tensor);
            let own: Vec<(f64, f64)> =
                own.map(|l| (in_step(&wave, &l.axes), l.elements as f64)).map(|(n, all)| (n, all / n)).collect();
            let together: u64 = own.iter().map(|o| o.1.ceil() as u64).sum();
            *traffic.of(tensor) = (together.min(stays).max(self.floor(tensor, read)), written);
            let part =
                traffic.of(tensor).0 as f64 / together.max(1) as f64 * program.tensor(tensor).dtype.bytes() as f64;
            shared.extend(own.into_iter().filter(|o| o.0 > 1.0).map(|(n, each)| (n, part * each * (n - 1.0))));
        }
        let held = stays.map_or(0, |s| s.resident_bytes.saturating_mul(blocks as u64));
        (Into { without: traffic.clone(), traffic, resident_bytes: held }, shared)
    }

    /// What passes if only what stays in L2 need not come again.
    fn stays(&self, program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> Option<Into> {
        let l2 = machine.trunk().nth(1)?;
        let (resident_bytes, element, held, in_place) = (0, None, None, false);
        let capacity = |part: f64| l2.capacity.map(|c| Bytes((c.0 as f64 * kept(machine) / part) as u64));
        let in_grid_order = || {
            let other = (kernel.grid != self.grid).then(|| Nest::new(kernel));
            let nest = other.as_ref().unwrap_or(&self.nest);
            let reuse = Reuse { program, kernel, nest, resident_bytes, element, held, in_place };
            // As many blocks as run on a core at once share what is a core's there.
            reuse.traffic_into(&Level { capacity: capacity(blocks as f64), ..l2.clone() })
        };
        let Some(block) = kernel.blocks.first() else { return Some(in_grid_order()) };
        let in_grid_order = keeps_order(kernel, block).then(in_grid_order);
        let points: usize = visits(kernel).iter().map(|v| v.side).product();
        let active = under_way(kernel, machine, blocks).div_ceil(points.max(1));
        let l2 = Level { capacity: capacity(1.0), ..l2.clone() };
        let Some(mut into) = into_cache(program, kernel, block, &l2, active, (0, false)) else { return in_grid_order };
        into.resident_bytes = into.resident_bytes.div_ceil(blocks as u64);
        if let Some(other) = in_grid_order {
            into.resident_bytes = into.resident_bytes.min(other.resident_bytes);
            into.traffic = into.traffic.smaller(&other.traffic);
        }
        Some(into)
    }

    /// Elements of a tensor that must be read of those that are.
    fn floor(&self, tensor: TensorId, read: u64) -> u64 {
        self.least.get(tensor).map_or(0, |t| t.0).min(read)
    }

    /// Elements of a tensor that are read by blocks in step.
    fn together(&self, tensor: TensorId, wave: &Wave) -> f64 {
        let own = self.loads.iter().filter(|l| l.tensor == tensor);
        own.map(|l| (l.elements as f64 / in_step(wave, &l.axes)).ceil()).sum()
    }
}

/// Points of the grid that are under way at once, `blocks` on each core.
fn under_way(kernel: &Kernel, machine: &Machine, blocks: usize) -> usize {
    grid_points(kernel).min(machine.cores.max(1) * blocks)
}

/// The part of the cache that all cores share which can be relied upon.
fn kept(machine: &Machine) -> f64 {
    machine.lanes.as_ref().map_or(1.0, |l| l.calibration.kept)
}

/// The shape of a wave, in tasks along each axis of the grid.
type Wave = BTreeMap<AxisId, f64>;

/// How many tasks of a wave read the same elements at places that these axes move.
fn in_step(wave: &Wave, axes: &BTreeSet<AxisId>) -> f64 {
    let still = wave.iter().filter(|(a, _)| !axes.contains(a));
    still.map(|(_, &n)| n).product::<f64>().max(1.0)
}

/// The wave of so many tasks that follow each other in the order in which points are visited.
fn wave_in_order(kernel: &Kernel, together: usize) -> Wave {
    let visits = visits(kernel);
    let mut wave: Wave = kernel.grid.iter().map(|&a| (a, 1.0)).collect();
    let mut left = together as f64;
    let inside = visits.iter().rev().map(|v| (v, v.side));
    let outside = visits.iter().rev().map(|v| (v, v.steps.div_ceil(v.side.max(1))));
    for (visit, count) in inside.chain(outside) {
        let takes = (count as f64).min(left).max(1.0);
        left /= takes;
        // The last block of an axis may be a part of one.
        wave.entry(visit.axis).and_modify(|n| *n = (*n * takes).min(visit.steps as f64));
    }
    wave
}

/// The wave that shares most: grown along the axis that saves most.
fn wave(program: &Program, kernel: &Kernel, loads: &[Load], together: usize) -> Wave {
    let mut wave: Wave = kernel.grid.iter().map(|&a| (a, 1.0)).collect();
    let bytes = |wave: &Wave| -> f64 {
        let one = |l: &Load| l.elements as f64 * program.tensor(l.tensor).dtype.bytes() as f64 / in_step(wave, &l.axes);
        loads.iter().map(one).sum()
    };
    loop {
        let tasks: f64 = wave.values().product();
        let mut best: Option<(f64, AxisId)> = None;
        for &axis in &kernel.grid {
            let now = wave[&axis];
            let most = grid_steps(kernel.axis(axis)).next_power_of_two() as f64;
            if 2.0 * tasks > together.next_power_of_two() as f64 || 2.0 * now > most {
                continue;
            }
            let mut grown = wave.clone();
            grown.insert(axis, 2.0 * now);
            let cost = bytes(&grown);
            if best.is_none_or(|b| cost < b.0) {
                best = Some((cost, axis));
            }
        }
        let Some((_, axis)) = best else { return wave };
        wave.entry(axis).and_modify(|n| *n *= 2.0);
    }
}
