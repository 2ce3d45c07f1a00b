//! Traffic between the memory of a GPU and its L2.
//!
//! Two analyses, of which the smaller counts per tensor: the reuse analysis, which knows what stays in L2, and blocks
//! in step: those that run at the same time and read the same elements read them at about the same time, so that they
//! come in once. The second supposes that backends order tasks so that those of one wave share most. Tiles take no room
//! in L2: they live in the cores.
//!
//! What plans are timed by and what reports show is this one count.
//!
//! Blocks in step stay so while they compute: who is ahead misses, who follows finds. Where memory is all that they wait for
//! each gets what it gets of it, and they come apart by a part of their way ([`Calibration::apart`]). What one has read
//! stays in L2 until as much as that holds has come in: blocks further apart read it from memory once more.
//!
//! [`Calibration::apart`]: einloom_machine::Calibration

use crate::bounds::compulsory;
use crate::levels::{Into, Reuse, Traffic};
use crate::nest::{Loop, Nest, coord_axes};
use crate::transfers::innermost;
use einloom_machine::{Bytes, Level, Machine};
use einloom_tile::{Axis, AxisId, Kernel, Program, TensorId, Window, grid_points, grid_steps, stream_range};
use std::collections::{BTreeMap, BTreeSet};

/// The traffic of one kernel, counted when it is first asked for.
pub(super) struct Device<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
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
    nest: Nest,
    /// What loads and stores move.
    inner: Traffic,
    /// What must move.
    least: Traffic,
    loads: Vec<Load>,
}

/// What a kernel loads of a tensor at places that the same axes of the grid move.
struct Load {
    tensor: TensorId,
    axes: BTreeSet<AxisId>,
    elements: u64,
}

impl<'a> Device<'a> {
    pub fn new(program: &'a Program, kernel: &'a Kernel) -> Self {
        Self { program, kernel, counted: None, known: BTreeMap::new() }
    }

    /// What the outermost level has to do, `blocks` of the kernel being on a core at once.
    pub fn outside(&mut self, machine: &Machine, blocks: usize) -> Outside {
        if let Some(known) = self.known.get(&blocks) {
            return known.clone();
        }
        let (program, kernel) = (self.program, self.kernel);
        let counted = self.counted.get_or_insert_with(|| Counted::new(program, kernel));
        let outside = counted.outside(program, kernel, machine, blocks);
        self.known.insert(blocks, outside.clone());
        outside
    }
}

/// What passes into the L2 of a machine with lanes, `blocks` of the kernel being on a core at once.
pub(crate) fn l2_traffic(program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> Into {
    Counted::new(program, kernel).l2_traffic(program, kernel, machine, blocks).0
}

impl Counted {
    fn new(program: &Program, kernel: &Kernel) -> Self {
        let nest = Nest::new(kernel);
        let inner = innermost(program, kernel, &nest);
        let (resident_bytes, element, held, in_place) = (0, None, None, false);
        let least = compulsory(&Reuse { program, kernel, nest: &nest, resident_bytes, element, held, in_place });
        let loads = loads(program, kernel, &nest);
        Self { nest, inner, least, loads }
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
        let (resident_bytes, element, held, in_place) = (0, None, None, false);
        let reuse = Reuse { program, kernel, nest: &self.nest, resident_bytes, element, held, in_place };
        // As many blocks as run on a core at once share what is a core's there.
        let blocks = blocks.max(1);
        let part = |c: Bytes| Bytes((c.0 as f64 * kept(machine) / blocks as f64) as u64);
        let share = |l: &Level| Level { capacity: l.capacity.map(part), ..l.clone() };
        let stays = machine.trunk().nth(1).map(|l2| reuse.traffic_into(&share(l2)));
        let together = grid_points(kernel).min(machine.cores.max(1) * blocks);
        let wave = wave(program, kernel, &self.loads, together);
        let (mut traffic, mut shared) = (Traffic::new(), vec![]);
        for (tensor, (read, written)) in self.inner.iter() {
            let floor = self.least.get(tensor).map_or(0, |t| t.0);
            let stays = stays.as_ref().and_then(|s| s.traffic.get(tensor)).map_or(read, |t| t.0);
            let own = self.loads.iter().filter(|l| l.tensor == tensor);
            let own: Vec<(f64, f64)> =
                own.map(|l| (in_step(&wave, &l.axes), l.elements as f64)).map(|(n, all)| (n, all / n)).collect();
            let together: u64 = own.iter().map(|o| o.1.ceil() as u64).sum();
            *traffic.of(tensor) = (together.min(stays).max(floor.min(read)), written);
            let part =
                traffic.of(tensor).0 as f64 / together.max(1) as f64 * program.tensor(tensor).dtype.bytes() as f64;
            shared.extend(own.into_iter().filter(|o| o.0 > 1.0).map(|(n, each)| (n, part * each * (n - 1.0))));
        }
        let held = stays.map_or(0, |s| s.resident_bytes.saturating_mul(blocks as u64));
        (Into { without: traffic.clone(), traffic, resident_bytes: held }, shared)
    }
}

/// The part of the cache that all cores share which can be relied upon.
fn kept(machine: &Machine) -> f64 {
    machine.lanes.as_ref().map_or(1.0, |l| l.calibration.kept)
}

/// What is loaded, an array that is read at several places once for each of them.
fn loads(program: &Program, kernel: &Kernel, nest: &Nest) -> Vec<Load> {
    let mut out: Vec<Load> = vec![];
    for (k, access) in nest.accesses.iter().enumerate().filter(|(_, a)| !a.store) {
        let mut axes: BTreeSet<AxisId> = nest.depends[access.tile.at()].iter().copied().collect();
        access.at.iter().for_each(|c| axes.extend(coord_axes(c)));
        // A stream's range moves with the axes of its condition. What it reads is the same, unless no range meets the next.
        axes.extend(kernel.grid.iter().filter(|&&a| access.loops.iter().any(|l| parts(kernel, l, a))));
        axes.retain(|a| kernel.grid.contains(a));
        let elements = nest.moved(program, kernel, k);
        match out.iter_mut().find(|l| l.tensor == access.tensor && l.axes == axes) {
            Some(known) => known.elements = known.elements.saturating_add(elements),
            None => out.push(Load { tensor: access.tensor, axes, elements }),
        }
    }
    out
}

/// Whether a stream's ranges at two windows of an axis of the grid that follow each other have nothing in common.
fn parts(kernel: &Kernel, stream: &Loop, grid: AxisId) -> bool {
    let Some(within) = stream.within.as_ref().filter(|w| w.all.iter().any(|e| e.terms.iter().any(|t| t.1 == grid)))
    else {
        return false;
    };
    let axis = kernel.axis(grid);
    if grid_steps(axis) < 2 {
        return false;
    }
    let all = |a: &Axis| Window { base: 0, len: a.extent };
    let mut windows: Vec<Window> = kernel.axes.iter().map(all).collect();
    let mut range = |step: usize| {
        let base = step * axis.tile;
        windows[grid.at()] = Window { base, len: axis.tile.min(axis.extent - base) };
        stream_range(kernel.axis(stream.axis).extent, stream.axis, within, &windows)
    };
    let [(from, to), (next, last)] = [range(0), range(1)];
    to <= next || last <= from
}

/// How many tasks of a wave read the same elements at places that these axes move.
fn in_step(wave: &BTreeMap<AxisId, usize>, axes: &BTreeSet<AxisId>) -> f64 {
    let still = wave.iter().filter(|(a, _)| !axes.contains(a));
    still.map(|(_, &n)| n as f64).product::<f64>().max(1.0)
}

/// The shape of a wave, in tasks along each axis of the grid: grown along the axis that saves most.
fn wave(program: &Program, kernel: &Kernel, loads: &[Load], together: usize) -> BTreeMap<AxisId, usize> {
    let mut wave: BTreeMap<AxisId, usize> = kernel.grid.iter().map(|&a| (a, 1)).collect();
    let bytes = |wave: &BTreeMap<AxisId, usize>| -> f64 {
        let one = |l: &Load| l.elements as f64 * program.tensor(l.tensor).dtype.bytes() as f64 / in_step(wave, &l.axes);
        loads.iter().map(one).sum()
    };
    loop {
        let tasks: usize = wave.values().product();
        let mut best: Option<(f64, AxisId)> = None;
        for &axis in &kernel.grid {
            let now = wave[&axis];
            if 2 * tasks > together.next_power_of_two() || 2 * now > grid_steps(kernel.axis(axis)).next_power_of_two() {
                continue;
            }
            let mut grown = wave.clone();
            grown.insert(axis, 2 * now);
            let cost = bytes(&grown);
            if best.is_none_or(|b| cost < b.0) {
                best = Some((cost, axis));
            }
        }
        let Some((_, axis)) = best else { return wave };
        wave.entry(axis).and_modify(|n| *n *= 2);
    }
}
