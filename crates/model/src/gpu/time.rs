//! How long a core works at its blocks.

use super::block::Block;
use super::cycles::{Bound, Busy, CoreTime, Team};
use super::uses::each;
use crate::guarded::{Left as GuardsLeave, axes, counts_what_guards_leave, known as known_guards};
use einloom_tile::{
    AxisId, Op, Predicate, Scalar, Window, coverage, grid_steps, initial_windows, set_grid_point, stream_range,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Points of the grid that are looked at where they differ, at most, beside the first and the last.
const SAMPLES: usize = 8;

/// Registers of a thread for what a loop loads ahead.
const AHEAD: usize = 64;

/// Where cycles go.
#[derive(Default)]
struct Spent {
    /// By what bounds the chunk at hand.
    bound: BTreeMap<Bound, f64>,
    /// Of each part of a core.
    busy: BTreeMap<Bound, f64>,
}

/// What a core does at one point of the grid, however its threads are arranged in time.
#[derive(Clone, Debug, Default)]
struct Point {
    /// The bodies that it goes through, with how often.
    bodies: Vec<(Busy, f64)>,
    /// Cycles before it begins.
    before: f64,
}

/// What a core does, counted once for every depth of its pipelines.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// Points that stand for all.
    samples: Vec<Point>,
    /// The first and the last, where points differ.
    ends: Vec<Point>,
    points: usize,
}

impl Task {
    /// The same at one point alone.
    pub(super) fn alone(&self) -> Self {
        Self { samples: self.samples[..self.samples.len().min(1)].to_vec(), ends: vec![], points: self.points.min(1) }
    }
}

impl Point {
    fn cycles(&self, team: &Team, spent: &mut Spent) -> f64 {
        let mut sum = self.before;
        for (busy, times) in &self.bodies {
            let (cycles, bound) = team.cycles(busy);
            sum += cycles * times;
            *spent.bound.entry(bound).or_default() += cycles * times;
            busy.pipes().into_iter().for_each(|(c, b)| *spent.busy.entry(b).or_default() += c * times);
        }
        sum
    }
}

/// What bodies do, which is the same at many points: it follows from how long windows are, and from where conditions hold in them.
#[derive(Default)]
struct Known<'k> {
    /// The conditions in a body, by where it is.
    conditions: FxHashMap<*const Op, Vec<&'k Predicate>>,
    busy: FxHashMap<Vec<usize>, Busy>,
}

impl<'k> Known<'k> {
    fn busy(&mut self, ops: &'k [Op], windows: &[Window], of: impl FnOnce() -> Busy) -> Busy {
        let conditions = self.conditions.entry(ops.as_ptr()).or_insert_with(|| {
            let mut out = vec![];
            for op in ops {
                if let Op::Map { expr, .. } = op {
                    conditions(expr, &mut out);
                }
            }
            out
        });
        let covered = conditions.iter().map(|p| coverage(p, windows) as usize);
        let key = [ops.as_ptr() as usize].into_iter().chain(windows.iter().map(|w| w.len)).chain(covered);
        *self.busy.entry(key.collect()).or_insert_with(of)
    }
}

/// The conditions that a function of one element tests.
fn conditions<'k>(expr: &'k Scalar, out: &mut Vec<&'k Predicate>) {
    match expr {
        Scalar::Within(p) => out.push(p),
        Scalar::Round(_, x) | Scalar::Unary(_, x) => conditions(x, out),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|x| conditions(x, out)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|x| conditions(x, out)),
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Argument(_) | Scalar::Position(_) => {}
    }
}

impl Block<'_> {
    /// What a core does at `points` of the grid.
    pub(super) fn task(&self, points: usize) -> Task {
        let mut windows = initial_windows(self.kernel);
        let mut known = Known::default();
        let mut at = |point: usize| {
            set_grid_point(self.kernel, point, &mut windows);
            let mut out = Point::default();
            self.bodies(&self.kernel.body, &mut windows, 1.0, (true, 1.0), (&mut known, &mut out));
            out
        };
        let samples: Vec<Point> =
            if points == 0 { vec![] } else { self.samples(points).into_iter().map(&mut at).collect() };
        let ends = if samples.len() > 1 { [0, points - 1].map(at).to_vec() } else { vec![] };
        Task { samples, ends, points }
    }

    /// Time if only cores counted, and what it goes to. `first`: cycles until the first stage has arrived.
    pub(super) fn core_seconds(&self, task: &Task, team: &Team, first: f64) -> CoreTime {
        let name = |b: Bound| b.name(self.unit.map(|u| u.name.as_str()));
        if task.samples.is_empty() {
            return CoreTime { seconds: 0.0, uneven: 1.0, busiest: 0.0, bound: name(Bound::Latency), parts: vec![] };
        }
        let (points, count) = (task.points, task.samples.len() as f64);
        let mut spent = Spent::default();
        let mut each: Vec<f64> = task.samples.iter().map(|p| p.cycles(team, &mut spent)).collect();
        let mean = each.iter().sum::<f64>() / count;
        // However they are dealt out, some core has as many of those that take so long, or longer.
        let cores = self.clock.machine.cores.max(1);
        let mut falling = each.clone();
        falling.sort_by(|a, b| b.total_cmp(a));
        let as_long = |(k, cycles): (usize, &f64)| {
            let tasks = ((k as f64 + 0.5) * points as f64 / count) as usize;
            cycles * tasks.div_ceil(cores) as f64
        };
        let least = falling.iter().enumerate().map(as_long).fold(0.0, f64::max);
        // Their mean is that of equal parts; the shortest and the longest are at the ends, if anywhere.
        each.extend(task.ends.iter().map(|p| p.cycles(team, &mut Spent::default())));
        let (mut longest, mut shortest) = (0.0f64, f64::INFINITY);
        for &cycles in &each {
            (longest, shortest) = (longest.max(cycles), shortest.min(cycles));
        }
        // Equal tasks come in waves. Of others the longest go first, so that at the end little is left over.
        let alike = mean * points.div_ceil(cores) as f64;
        let cycles = match longest > 1.01 * shortest {
            true => longest.max(mean * points as f64 / cores as f64).max(least) + shortest,
            false => alike,
        };
        let bound = spent.bound.iter().fold((Bound::Latency, 0.0), |a, (&b, &c)| if c > a.1 { (b, c) } else { a });
        // Of all points on average, so that a wave that is not full shows.
        let part = points as f64 / (cores as f64 * count * self.clock.hertz);
        let waited = spent.bound.get(&Bound::Latency).map(|&c| (Bound::Latency, c));
        let parts = spent.busy.iter().map(|(&b, &c)| (b, c)).chain(waited);
        CoreTime {
            seconds: (cycles + first + self.clock.latency) / self.clock.hertz,
            uneven: (cycles / alike.max(f64::MIN_POSITIVE)).max(1.0),
            busiest: spent.busy.values().fold(0.0, |a, &b| b.max(a)) / count * points.div_ceil(cores) as f64
                / self.clock.hertz,
            bound: name(bound.0),
            parts: parts.map(|(b, c)| (name(b), c * part)).collect(),
        }
    }

    /// Points of the grid that stand for all: only axes that some stream's range depends on matter.
    fn samples(&self, points: usize) -> Vec<usize> {
        let mut steering = BTreeSet::new();
        each(&self.kernel.body, &mut |op| {
            if let Op::Stream { within, guards, .. } = op {
                steering.extend(within.all.iter().flat_map(|e| &e.terms).map(|t| t.1));
                steering.extend(axes(&known_guards(guards)));
            }
        });
        let steps = |a: &AxisId| if steering.contains(a) { grid_steps(self.kernel.axis(*a)) } else { 1 };
        let combinations: usize = self.kernel.grid.iter().map(steps).product();
        let several = self.kernel.grid.iter().filter(|a| steps(a) > 1).count() > 1;
        let count = combinations.clamp(1, if several { 2 * SAMPLES } else { SAMPLES });
        let at = |k: usize| {
            // Spread evenly, in the middle of equal parts; then to a point of the whole grid, others at 0.
            let mut left = (2 * k + 1) * combinations / (2 * count);
            let (mut point, mut stride, mut turn) = (0, 1, 1);
            for axis in self.kernel.grid.iter().rev() {
                let own = steps(axis);
                // Of several axes each by itself, all of them together.
                let place = match several && combinations > count {
                    true => (2 * k + 1) * turn % (2 * count) * own / (2 * count),
                    false => left % own,
                };
                turn += if own > 1 { 2 } else { 0 };
                point += place * stride;
                left /= own;
                stride *= grid_steps(self.kernel.axis(*axis));
            }
            point.min(points - 1)
        };
        (0..count).map(at).collect()
    }

    /// Chunks of a stream, and for how many each stands: the first and the last may be partial.
    fn picks(&self, axis: AxisId, count: usize) -> Vec<(usize, usize)> {
        let all = match (count, self.structure.placed.contains(&axis)) {
            (0 | 1, _) => [(0, count), (0, 0), (0, 0)],
            // Where a chunk stands does not matter, only how long the last one is.
            (_, false) => [(0, count - 1), (count - 1, 1), (0, 0)],
            (_, true) => [(0, 1), (count / 2, count - 2), (count - 1, 1)],
        };
        all.into_iter().filter(|pick| pick.1 > 0).collect()
    }

    /// Positions of a loop that goes one by one for which all that they load is on its way at once: the emitter writes as many one after the other
    /// as registers hold, where threads neither wait for each other nor load what they store.
    fn together(&self, axis: AxisId, body: &[Op]) -> f64 {
        let (mut loaded, mut stored, mut registers) = (vec![], vec![], 0);
        for op in body {
            match op {
                Op::Load { dst, tensor, .. } if self.unit.is_none() && !self.shared.contains(dst) => {
                    loaded.push(*tensor);
                    registers += (self.elements(*dst) as usize).div_ceil(self.threads);
                }
                Op::Store { tensor, .. } => stored.push(*tensor),
                Op::Map { .. } => {}
                _ => return 1.0,
            }
        }
        let alone = self.kernel.axis(axis).tile == 1 && loaded.iter().all(|t| !stored.contains(t));
        let fits = |n: &usize| alone && !loaded.is_empty() && n * registers <= AHEAD;
        [8, 4, 2].into_iter().find(fits).unwrap_or(1) as f64
    }

    /// What a body does `times` times, and the streams in it; `whole` for that of the kernel.
    /// `together` positions of a loop wait as one.
    fn bodies<'k>(
        &self,
        ops: &'k [Op],
        windows: &mut Vec<Window>,
        times: f64,
        (whole, together): (bool, f64),
        (known, out): (&mut Known<'k>, &mut Point),
    ) {
        let mut busy = known.busy(ops, windows, || self.busy(ops, windows));
        // Neighbours come together however many positions are on their way.
        busy.waits /= (together / busy.neighbours.max(1.0)).max(1.0);
        for op in ops {
            let Op::Stream { axis, within, guards, body, .. } = op else { continue };
            let decl = self.kernel.axis(*axis);
            let (low, high) = stream_range(decl.extent, *axis, within, windows);
            let first = low - low % decl.tile;
            let all = Window { base: first, len: high.saturating_sub(first) };
            let left = counts_what_guards_leave(self.kernel, *axis, guards)
                .then(|| GuardsLeave::of(&known_guards(guards), (*axis, decl.tile), all, windows));
            let count = left.as_ref().map_or((high - first).div_ceil(decl.tile), GuardsLeave::count);
            let before = windows[axis.at()];
            let together = self.together(*axis, body);
            for (k, part) in self.picks(*axis, count) {
                let plain = |base: usize| Window { base, len: decl.tile.min(high - base) };
                let chunk = left.as_ref().and_then(|l| l.chunks().nth(k));
                windows[axis.at()] = chunk.unwrap_or_else(|| plain(first + k * decl.tile));
                self.bodies(body, windows, times * part as f64, (false, together), (&mut *known, &mut *out));
            }
            windows[axis.at()] = before;
        }
        if whole {
            // Tiles that stay are awaited at the start of a task.
            if self.unit.is_none_or(|u| u.feeder_threads == 0) {
                out.before += self.clock.calibration.start;
            }
            let resident =
                self.shared.iter().any(|v| ops.iter().any(|o| matches!(o, Op::Load { dst, .. } if dst == v)));
            busy.waits += self.clock.calibration.task + if resident { self.clock.latency } else { 0.0 };
        }
        out.bodies.push((busy, times));
    }
}
