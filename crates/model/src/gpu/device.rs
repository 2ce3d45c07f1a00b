//! Traffic between the memory of a GPU and its L2.
//!
//! Two analyses, of which the smaller counts per tensor: the reuse analysis, which knows what stays in L2, and blocks
//! in step: those that run at the same time and read the same elements read them at about the same time, so that they
//! come in once. The second supposes that backends order tasks so that those of one wave share most. Tiles take no room
//! in L2: they live in the cores.
//!
//! What plans are timed by and what reports show is this one count.

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
    /// Seconds by the number of blocks of a core.
    known: BTreeMap<usize, f64>,
}

/// What of it does not depend on how many blocks a core holds.
struct Counted {
    nest: Nest,
    /// What loads and stores move.
    inner: Traffic,
    /// What must move.
    least: Traffic,
    axes: BTreeMap<TensorId, BTreeSet<AxisId>>,
}

impl<'a> Device<'a> {
    pub fn new(program: &'a Program, kernel: &'a Kernel) -> Self {
        Self { program, kernel, counted: None, known: BTreeMap::new() }
    }

    /// Seconds at the outermost level's bandwidth.
    pub fn seconds(&mut self, machine: &Machine, blocks: usize) -> f64 {
        if let Some(known) = self.known.get(&blocks) {
            return *known;
        }
        let (program, kernel) = (self.program, self.kernel);
        let counted = self.counted.get_or_insert_with(|| Counted::new(program, kernel));
        let seconds = counted.seconds(program, kernel, machine, blocks);
        self.known.insert(blocks, seconds);
        seconds
    }
}

/// What passes into the L2 of a machine with lanes, `blocks` of the kernel being on a core at once.
pub(crate) fn l2_traffic(program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> Into {
    Counted::new(program, kernel).l2_traffic(program, kernel, machine, blocks)
}

impl Counted {
    fn new(program: &Program, kernel: &Kernel) -> Self {
        let nest = Nest::new(kernel);
        let inner = innermost(program, kernel, &nest);
        let least = compulsory(&Reuse { program, kernel, nest: &nest, resident_bytes: 0, element: None, held: None });
        let axes = tensor_axes(kernel, &nest);
        Self { nest, inner, least, axes }
    }

    fn seconds(&self, program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> f64 {
        let Some(outer) = machine.trunk().next() else { return 0.0 };
        let into = self.l2_traffic(program, kernel, machine, blocks);
        let size = |t: TensorId| program.tensor(t).dtype.bytes() as f64;
        let bytes: f64 = into.traffic.iter().map(|(t, (read, written))| (read as f64 + written as f64) * size(t)).sum();
        bytes / outer.bandwidth.0
    }

    fn l2_traffic(&self, program: &Program, kernel: &Kernel, machine: &Machine, blocks: usize) -> Into {
        let reuse = Reuse { program, kernel, nest: &self.nest, resident_bytes: 0, element: None, held: None };
        // As many blocks as run on a core at once share what is a core's there.
        let blocks = blocks.max(1);
        let kept = machine.lanes.as_ref().map_or(1.0, |l| l.calibration.kept);
        let part = |c: Bytes| Bytes((c.0 as f64 * kept / blocks as f64) as u64);
        let share = |l: &Level| Level { capacity: l.capacity.map(part), ..l.clone() };
        let stays = machine.trunk().nth(1).map(|l2| reuse.traffic_into(&share(l2)));
        let together = grid_points(kernel).min(machine.cores.max(1) * blocks);
        let wave = wave(program, kernel, &self.inner, &self.axes, together);
        let mut traffic = Traffic::new();
        for (tensor, (read, written)) in self.inner.iter() {
            let shared = in_step(&wave, self.axes.get(&tensor));
            let floor = self.least.get(tensor).map_or(0, |t| t.0);
            let stays = stays.as_ref().and_then(|s| s.traffic.get(tensor)).map_or(read, |t| t.0);
            let together = (read as f64 / shared).ceil() as u64;
            *traffic.of(tensor) = (together.min(stays).max(floor.min(read)), written);
        }
        let held = stays.map_or(0, |s| s.resident_bytes.saturating_mul(blocks as u64));
        Into { without: traffic.clone(), traffic, resident_bytes: held }
    }
}

/// The axes of the grid that move each tensor's accesses.
fn tensor_axes(kernel: &Kernel, nest: &Nest) -> BTreeMap<TensorId, BTreeSet<AxisId>> {
    let mut out: BTreeMap<TensorId, BTreeSet<AxisId>> = BTreeMap::new();
    for access in &nest.accesses {
        let axes = out.entry(access.tensor).or_default();
        axes.extend(nest.depends[access.tile.at()].iter().copied());
        access.at.iter().for_each(|c| axes.extend(coord_axes(c)));
        // A stream's range moves with the axes of its condition. What it reads is the same, unless no range meets the next.
        axes.extend(kernel.grid.iter().filter(|&&a| access.loops.iter().any(|l| parts(kernel, l, a))));
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

/// How many tasks of a wave read the same elements of a tensor.
fn in_step(wave: &BTreeMap<AxisId, usize>, axes: Option<&BTreeSet<AxisId>>) -> f64 {
    let still = wave.iter().filter(|(a, _)| axes.is_none_or(|x| !x.contains(a)));
    still.map(|(_, &n)| n as f64).product::<f64>().max(1.0)
}

/// The shape of a wave, in tasks along each axis of the grid: grown along the axis that saves most.
fn wave(
    program: &Program,
    kernel: &Kernel,
    inner: &Traffic,
    axes: &BTreeMap<TensorId, BTreeSet<AxisId>>,
    together: usize,
) -> BTreeMap<AxisId, usize> {
    let mut wave: BTreeMap<AxisId, usize> = kernel.grid.iter().map(|&a| (a, 1)).collect();
    let bytes = |wave: &BTreeMap<AxisId, usize>| -> f64 {
        let one = |(t, n): (TensorId, (u64, u64))| {
            n.0 as f64 * program.tensor(t).dtype.bytes() as f64 / in_step(wave, axes.get(&t))
        };
        inner.iter().map(one).sum()
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
