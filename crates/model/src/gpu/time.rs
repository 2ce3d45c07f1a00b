//! How long a core works at its blocks.

use super::block::Block;
use super::cycles::{Bound, START, TASK, Team};
use super::uses::each;
use einloom_tile::{AxisId, Op, Window, chunks, grid_steps, initial_windows, set_grid_point};
use std::collections::{BTreeMap, BTreeSet};

/// Points of the grid that are looked at where they differ.
const SAMPLES: usize = 32;

impl Block<'_> {
    /// Time if only cores counted, and what it goes to. `first`: cycles until the first stage has arrived.
    pub(super) fn core_seconds(&self, team: &Team, points: usize, first: f64) -> (f64, Bound) {
        if points == 0 {
            return (0.0, Bound::Latency);
        }
        let mut windows = initial_windows(self.kernel);
        let mut spent: BTreeMap<Bound, f64> = BTreeMap::new();
        let mut each = vec![];
        for point in self.samples(points) {
            set_grid_point(self.kernel, point, &mut windows);
            each.push(self.body_cycles(&self.kernel.body, &mut windows, team, &mut spent, true));
        }
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let longest = each.iter().copied().fold(0.0, f64::max);
        let shortest = each.iter().copied().fold(f64::INFINITY, f64::min);
        let cores = self.clock.machine.cores.max(1);
        // Equal tasks come in waves. Of others the longest go first, so that at the end little is left over.
        let cycles = match longest > 1.01 * shortest {
            true => longest.max(mean * points as f64 / cores as f64) + shortest,
            false => mean * points.div_ceil(cores) as f64,
        };
        let bound = spent.into_iter().fold((Bound::Latency, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        ((cycles + first + self.clock.latency) / self.clock.hertz, bound.0)
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

    /// Cycles of a core for a body; `whole` for that of the kernel.
    fn body_cycles(
        &self,
        ops: &[Op],
        windows: &mut Vec<Window>,
        team: &Team,
        spent: &mut BTreeMap<Bound, f64>,
        whole: bool,
    ) -> f64 {
        let mut busy = self.busy(ops, windows);
        let mut inner = 0.0;
        for op in ops {
            let Op::Stream { axis, within, body, .. } = op else { continue };
            let list = chunks(self.kernel, *axis, within, windows);
            let count = list.clone().count();
            let before = windows[axis.at()];
            // The first and the last may be partial; one stands for those between.
            let picks = [(0, 1), (count / 2, count.saturating_sub(2)), (count.saturating_sub(1), 1)];
            for (k, times) in picks.into_iter().take(if count < 2 { count } else { 3 }) {
                let Some(window) = list.clone().nth(k) else { continue };
                windows[axis.at()] = window;
                let mut own = BTreeMap::new();
                inner += self.body_cycles(body, windows, team, &mut own, false) * times as f64;
                own.into_iter().for_each(|(b, c)| *spent.entry(b).or_default() += c * times as f64);
            }
            windows[axis.at()] = before;
        }
        if whole {
            // Tiles that stay are awaited at the start of a task.
            if self.unit.is_none_or(|u| u.feeder_threads == 0) {
                inner += START;
            }
            let resident =
                self.shared.iter().any(|v| ops.iter().any(|o| matches!(o, Op::Load { dst, .. } if dst == v)));
            busy.waits += TASK + if resident { self.clock.latency } else { 0.0 };
        }
        let (cycles, bound) = team.cycles(&busy);
        *spent.entry(bound).or_default() += cycles;
        cycles + inner
    }
}
