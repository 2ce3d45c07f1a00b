//! How long a core works at its blocks.

use super::block::Block;
use super::cycles::{Bound, CoreTime, Team};
use super::uses::each;
use einloom_tile::{AxisId, Op, Window, grid_steps, initial_windows, set_grid_point, stream_range};
use std::collections::{BTreeMap, BTreeSet};

/// Points of the grid that are looked at where they differ, at most, beside the first and the last.
const SAMPLES: usize = 8;

/// Where cycles go.
#[derive(Default)]
struct Spent {
    /// By what bounds the chunk at hand.
    bound: BTreeMap<Bound, f64>,
    /// Of each part of a core.
    busy: BTreeMap<Bound, f64>,
}

impl Spent {
    fn add(&mut self, other: &Spent, times: f64) {
        other.bound.iter().for_each(|(&b, c)| *self.bound.entry(b).or_default() += c * times);
        other.busy.iter().for_each(|(&b, c)| *self.busy.entry(b).or_default() += c * times);
    }
}

impl Block<'_> {
    /// Time if only cores counted, and what it goes to. `first`: cycles until the first stage has arrived.
    pub(super) fn core_seconds(&self, team: &Team, points: usize, first: f64) -> CoreTime {
        let name = |b: Bound| b.name(self.unit.map(|u| u.name.as_str()));
        if points == 0 {
            return CoreTime { seconds: 0.0, bound: name(Bound::Latency), parts: vec![] };
        }
        let mut windows = initial_windows(self.kernel);
        let mut spent = Spent::default();
        let mut each = vec![];
        for point in self.samples(points) {
            set_grid_point(self.kernel, point, &mut windows);
            each.push(self.body_cycles(&self.kernel.body, &mut windows, team, &mut spent, true));
        }
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let (mut longest, mut shortest) = (0.0f64, f64::INFINITY);
        // Their mean is that of equal parts; the shortest and the longest are at the ends, if anywhere.
        let ends = if each.len() > 1 { vec![0, points - 1] } else { vec![] };
        for point in ends {
            set_grid_point(self.kernel, point, &mut windows);
            each.push(self.body_cycles(&self.kernel.body, &mut windows, team, &mut Spent::default(), true));
        }
        for &cycles in &each {
            (longest, shortest) = (longest.max(cycles), shortest.min(cycles));
        }
        let cores = self.clock.machine.cores.max(1);
        // Equal tasks come in waves. Of others the longest go first, so that at the end little is left over.
        let cycles = match longest > 1.01 * shortest {
            true => longest.max(mean * points as f64 / cores as f64) + shortest,
            false => mean * points.div_ceil(cores) as f64,
        };
        let bound = spent.bound.iter().fold((Bound::Latency, 0.0), |a, (&b, &c)| if c > a.1 { (b, c) } else { a });
        // Of all points on average, so that a wave that is not full shows.
        let part = points as f64 / (cores as f64 * self.samples(points).len() as f64 * self.clock.hertz);
        let waited = spent.bound.get(&Bound::Latency).map(|&c| (Bound::Latency, c));
        let parts = spent.busy.iter().map(|(&b, &c)| (b, c)).chain(waited);
        CoreTime {
            seconds: (cycles + first + self.clock.latency) / self.clock.hertz,
            bound: name(bound.0),
            parts: parts.map(|(b, c)| (name(b), c * part)).collect(),
        }
    }

    /// Points of the grid that stand for all: only axes that some stream's range depends on matter.
    fn samples(&self, points: usize) -> Vec<usize> {
        let mut steering = BTreeSet::new();
        each(&self.kernel.body, &mut |op| {
            if let Op::Stream { within, .. } = op {
                steering.extend(within.all.iter().flat_map(|e| &e.terms).map(|t| t.1));
            }
        });
        let steps = |a: &AxisId| if steering.contains(a) { grid_steps(self.kernel.axis(*a)) } else { 1 };
        let combinations: usize = self.kernel.grid.iter().map(steps).product();
        let count = combinations.clamp(1, SAMPLES);
        let at = |k: usize| {
            // Spread evenly, in the middle of equal parts; then to a point of the whole grid, others at 0.
            let mut left = (2 * k + 1) * combinations / (2 * count);
            let (mut point, mut stride) = (0, 1);
            for axis in self.kernel.grid.iter().rev() {
                let own = steps(axis);
                point += left % own * stride;
                left /= own;
                stride *= grid_steps(self.kernel.axis(*axis));
            }
            point.min(points - 1)
        };
        (0..count).map(at).collect()
    }

    /// Chunks of a stream, and for how many each stands: the first and the last may be partial.
    fn picks(&self, axis: AxisId, count: usize) -> Vec<(usize, usize)> {
        let all = match (count, self.placed.contains(&axis)) {
            (0 | 1, _) => [(0, count), (0, 0), (0, 0)],
            // Where a chunk stands does not matter, only how long the last one is.
            (_, false) => [(0, count - 1), (count - 1, 1), (0, 0)],
            (_, true) => [(0, 1), (count / 2, count - 2), (count - 1, 1)],
        };
        all.into_iter().filter(|pick| pick.1 > 0).collect()
    }

    /// Cycles of a core for a body; `whole` for that of the kernel.
    fn body_cycles(&self, ops: &[Op], windows: &mut Vec<Window>, team: &Team, spent: &mut Spent, whole: bool) -> f64 {
        let mut busy = self.busy(ops, windows);
        let mut inner = 0.0;
        for op in ops {
            let Op::Stream { axis, within, body, .. } = op else { continue };
            let decl = self.kernel.axis(*axis);
            let (low, high) = stream_range(decl.extent, *axis, within, windows);
            let first = low - low % decl.tile;
            let count = (high - first).div_ceil(decl.tile);
            let before = windows[axis.at()];
            for (k, times) in self.picks(*axis, count) {
                let base = first + k * decl.tile;
                windows[axis.at()] = Window { base, len: decl.tile.min(high - base) };
                let mut own = Spent::default();
                inner += self.body_cycles(body, windows, team, &mut own, false) * times as f64;
                spent.add(&own, times as f64);
            }
            windows[axis.at()] = before;
        }
        if whole {
            // Tiles that stay are awaited at the start of a task.
            if self.unit.is_none_or(|u| u.feeder_threads == 0) {
                inner += self.clock.calibration.start;
            }
            let resident =
                self.shared.iter().any(|v| ops.iter().any(|o| matches!(o, Op::Load { dst, .. } if dst == v)));
            busy.waits += self.clock.calibration.task + if resident { self.clock.latency } else { 0.0 };
        }
        let (cycles, bound) = team.cycles(&busy);
        *spent.bound.entry(bound).or_default() += cycles;
        busy.pipes().into_iter().for_each(|(c, b)| *spent.busy.entry(b).or_default() += c);
        cycles + inner
    }
}
