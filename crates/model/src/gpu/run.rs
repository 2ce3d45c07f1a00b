//! Whether a block fits a core: registers, shared memory, and how many of them at once.

use super::block::Block;
use super::cycles::{CoreTime, Team};
use super::device::Device;
use super::registers::pressure;
use super::uses::each;
use super::{Below, Depth, OnGpu};
use crate::nest::sides;
use einloom_machine::MatrixUnit;
use einloom_tile::{AxisId, Op, ValueId, grid_points, grid_steps};
use std::collections::BTreeMap;

/// Shared memory for barriers, and for where the first tile must begin.
pub(super) const SHARED_RESERVE: u64 = 1024;
/// Why so many bytes of shared memory have no place in so many, for people.
pub(super) fn too_much(need: u64, have: u64) -> String {
    let text = |bytes: u64, kib: u64| if bytes < 1024 { format!("{bytes} B") } else { format!("{kib} KiB") };
    format!("{} of shared memory are more than {}", text(need, need.div_ceil(1024)), text(have, have / 1024))
}

/// Stages that are looked at, at most: with a feeder that runs ahead, and where groups copy themselves.
const MOST_STAGES: [u64; 2] = [8, 4];
/// Stages beyond these hide nothing more: the calibration was fitted to kernels with up to as many.
const HIDING: u64 = 4;
/// Registers that a thread has at most for one tile where nothing multiplies: code is unrolled over them.
const LANE_REGISTERS: f64 = 32.0;
/// Registers that an instruction of a unit with a feeder takes beside its sums: ptxas of CUDA 13.0 asks for 154 where 256
/// columns take 128.
const BESIDE_SUMS: usize = 26;
/// No thread holds more than so many times the registers that it can have: what is beyond them is in memory.
const BEARABLE: usize = 4;
/// Registers beside a computed factor.
const LEFT_RESERVE: usize = 40;
/// Registers beside the tiles of a thread that multiplies nothing: addresses, counters.
const LANE_RESERVE: usize = 24;

impl Block<'_> {
    /// Whether it fits, and how long the kernel takes in the best depth of its pipelines, if that is less than `limit`
    /// seconds.
    pub fn run(&self, device: &mut Device<'_>, limit: f64) -> Result<Below, String> {
        let (registers, register_limit) = self.register_use()?;
        let shared_limit = self.clock.shared_capacity();
        let (fixed, stage, streamed) = self.shared_use();
        let room = shared_limit.saturating_sub(SHARED_RESERVE + fixed);
        let fewest = if streamed { 2 } else { 1 };
        let most = MOST_STAGES[usize::from(self.unit.is_none_or(|u| u.feeder_threads == 0))];
        let fit = room.checked_div(stage).map_or(0, |n| n.min(most));
        if fixed + SHARED_RESERVE > shared_limit || stage > 0 && fit < fewest {
            return Err(too_much(fixed + SHARED_RESERVE + fewest * stage, shared_limit));
        }
        let points = grid_points(self.kernel);
        let task = self.task(points);
        let first = stage as f64 / self.clock.outside;
        let shared_bytes = |stages: u64| if fixed + stage == 0 { 0 } else { fixed + stages * stage + SHARED_RESERVE };
        // The cores alone, by depth, deepest first: of equally fast ones the deepest hides most.
        let depths = if stage > 0 { fewest..=fit } else { 0..=0 };
        let mut cores: Vec<(Team, CoreTime, u64)> = vec![];
        for stages in depths.rev() {
            let team = self.team(stages, self.blocks(registers, shared_bytes(stages), points));
            cores.push((team, self.core_seconds(&task, &team, first), stages));
        }
        let least = cores.iter().map(|c| c.1.seconds).fold(f64::INFINITY, f64::min);
        // Memory can only add to it.
        if least >= limit {
            return Ok(Below::Slower(least));
        }
        let mut best: Option<OnGpu> = None;
        let mut depths = vec![];
        for (team, core, stages) in cores {
            let blocks = team.blocks as usize;
            // What a core takes alone is a bound that may be enough.
            let limit = best.as_ref().map_or(f64::INFINITY, |b| b.seconds);
            if core.seconds >= limit {
                depths.push(Depth { stages: stages as usize, blocks, seconds: core.seconds });
                continue;
            }
            let found = OnGpu {
                groups: self.groups,
                threads: self.threads,
                registers,
                register_limit,
                shared_bytes: shared_bytes(stages),
                shared_limit,
                stages: stages as usize,
                blocks,
                seconds: 0.0,
                bound_by: String::new(),
                parts: vec![],
                again: 0.0,
                unit: self.unit.map(|u| u.name.clone()),
                depths: vec![],
            };
            let outside = device.outside(self.clock.machine, blocks);
            let mut found = found.timed(&core, outside, self.clock.calibration.apart);
            if self.unit.is_none() && points > self.clock.machine.cores {
                // Blocks that share cores end one by one, and what is left keeps neither cores nor memory busy: about as
                // long as a block takes alone. The constants for products were fitted to times that include it.
                found.seconds += self.core_seconds(&task.alone(), &Team { blocks: 1.0, ..team }, first).seconds;
            }
            depths.push(Depth { stages: stages as usize, blocks, seconds: found.seconds });
            if found.seconds < limit {
                best = Some(found);
            }
        }
        let Some(mut found) = best else { return Ok(Below::Slower(least)) };
        depths.retain(|d| d.stages != found.stages);
        found.depths = depths;
        Ok(if found.seconds < limit { Below::Found(found) } else { Below::Slower(found.seconds) })
    }

    /// How the block's groups work with so many stages and so many blocks of a core.
    pub(super) fn team(&self, stages: u64, blocks: usize) -> Team {
        let lanes = self.clock.lanes.arithmetic as f64;
        let share = self.unit.map_or(self.threads, |u| u.group_threads) as f64 / lanes;
        Team {
            unit_asynchronous: self.unit.is_some_and(|u| u.asynchronous),
            together: self.unit.is_some_and(|u| u.feeder_threads == 0),
            groups: if self.unit.is_some() { (self.groups[0] * self.groups[1]) as f64 } else { 1.0 },
            share: share.min(1.0),
            covers: share.max(1.0),
            stages: stages.min(HIDING) as f64,
            blocks: blocks as f64,
            shows: self.clock.calibration.shows,
        }
    }

    /// Registers of a thread, and how many it can have.
    fn register_use(&self) -> Result<(usize, usize), String> {
        let lanes = self.clock.lanes;
        let feeder = self.unit.map_or(0, |u| u.feeder_threads * u.feeder_registers);
        // Registers are given out by eights.
        let limit = (self.clock.registers().saturating_sub(feeder) / self.threads / 8 * 8).min(lanes.registers);
        let reserve = self.unit.map_or(LANE_RESERVE, |u| u.reserve);
        let mut tiles = pressure(self);
        if self.unit.is_some_and(|u| u.asynchronous) {
            // The next chunk's first products run while this one's last still read their left factors.
            let mut copies: BTreeMap<ValueId, f64> = BTreeMap::new();
            each(&self.kernel.body, &mut |op| {
                if let Op::Mma { a, b, .. } = op {
                    copies.extend(
                        [*a, *b].map(|v| (v, if self.structure.loaded.contains(&v) { 0.0 } else { self.registers(v) })),
                    );
                }
            });
            tiles += copies.values().sum::<f64>();
        }
        let largest = self.largest();
        if self.unit.is_none() && largest > LANE_REGISTERS {
            return Err(format!("{largest} registers of a tile are too many for each of {} threads", self.threads));
        }
        if let Some(unit) = self.unit.filter(|u| u.feeder_threads > 0) {
            // Before groups give registers to each other all threads have as many, and one instruction takes no more.
            let start = self.clock.registers() / (self.threads + unit.feeder_threads) / 8 * 8;
            let takes = self.widest(unit) * unit.rows / unit.group_threads + BESIDE_SUMS;
            if takes > start {
                return Err(format!("an instruction takes {takes} registers a thread, of {start} at the start"));
            }
        }
        let registers = tiles.ceil() as usize + reserve;
        if registers > limit {
            return Err(format!("{registers} registers a thread are more than {limit}"));
        }
        if self.unit.is_some_and(|u| u.feeder_threads == 0) {
            let (left, bearable) = (self.structure.left.as_ref(), BEARABLE * lanes.registers);
            let held = left.map_or(0, |l| l.registers(self.kernel) + LEFT_RESERVE);
            if held > bearable {
                return Err(format!("{held} registers a thread for a computed factor are more than {bearable}"));
            }
        }
        Ok((registers, limit))
    }

    /// Columns of the widest instruction.
    fn widest(&self, unit: &MatrixUnit) -> usize {
        let mut widest = 0;
        each(&self.kernel.body, &mut |op| {
            if let Op::Mma { dst, .. } = op {
                let across = sides(self.kernel, *dst).into_iter().filter(|x| self.rows != Some(*x));
                let columns: usize = across.map(|x| self.size(x)).product();
                widest = widest.max((columns / self.groups[1]).next_multiple_of(16).min(unit.columns));
            }
        });
        widest
    }

    /// Registers of a thread for its largest tile. One that is made where it is read has those of what it is made from.
    fn largest(&self) -> f64 {
        let most = |tiles: &[ValueId]| tiles.iter().map(|&v| self.registers(v)).fold(0.0, f64::max);
        let values = (0..self.kernel.values.len() as u32).map(ValueId);
        let held = values.map(|v| match self.structure.fused.get(&v) {
            Some(sources) if !sources.is_empty() => most(sources),
            _ => most(&[v]),
        });
        held.fold(0.0, f64::max)
    }

    /// Bytes of shared memory that stay, those of one stage of all rings, and whether some ring is filled again.
    fn shared_use(&self) -> (u64, u64, bool) {
        let (mut fixed, mut stage, mut streamed) = (0, 0, false);
        self.shared_of(&self.kernel.body, None, &mut |v, stream, bytes| match stream {
            Some(axis) if self.structure.loaded.contains(&v) => {
                stage += bytes;
                streamed |= grid_steps(self.kernel.axis(axis)) > 1;
            }
            _ => fixed += bytes,
        });
        let picked = self.structure.picked.iter().filter(|v| !self.shared.contains(v));
        fixed += picked.map(|&v| self.shared_bytes(v)).sum::<u64>();
        (fixed, stage, streamed)
    }

    fn shared_of(&self, ops: &[Op], stream: Option<AxisId>, f: &mut dyn FnMut(ValueId, Option<AxisId>, u64)) {
        for op in ops {
            match op {
                Op::Stream { axis, body, .. } => self.shared_of(body, Some(*axis), f),
                Op::Load { dst, .. } | Op::Map { dst, .. } | Op::Mma { dst, .. } if self.shared.contains(dst) => {
                    f(*dst, stream, self.shared_bytes(*dst));
                }
                _ => {}
            }
        }
    }

    fn blocks(&self, registers: usize, shared_bytes: u64, points: usize) -> usize {
        // A block with a feeder stays, and takes all registers.
        if self.unit.is_some_and(|u| u.feeder_threads > 0) {
            return 1;
        }
        let lanes = self.clock.lanes;
        let registers = registers.next_multiple_of(8) * self.threads;
        let by_shared = self.clock.shared_capacity().checked_div(shared_bytes).map_or(usize::MAX, |n| n as usize);
        let by_points = points.div_ceil(self.clock.machine.cores.max(1));
        let most = (self.clock.registers() / registers.max(1)).min(lanes.threads / self.threads);
        most.min(by_shared).min(by_points).clamp(1, 32)
    }
}
