//! The simulated run of one kernel.
//!
//! Every array issues steps in order. A step is a *wave*: the element in row `i` and column `j` does it `i + j` hops
//! after the first one, whatever came before, because operands and partial sums move one element a hop. So an array is
//! told by the times of its first element alone, in the array's own *frame*: the array at the foot of another one
//! starts its frame as much later as a wave takes to get there. A wave that is under way cannot be held up; it is
//! issued when all that it will meet will be there. `tests/simulate` moves words between single elements and finds the
//! same cycles.

mod dram;
mod issue;
mod ready;
mod route;

use super::fetch::{Fetches, fetches};
use super::nest::Nest;
use super::part::{At, Carried, Part};
use super::pool::Pool;
use super::shape::{Extents, Shape, Sides, shape};
use super::{Cause, Options, lag};
use crate::Setting;
use crate::evaluate::KernelLayout;
use einloom_cascade::Bound;
use route::{Routes, reserve, routes};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What stays the same during a run.
pub(super) struct Setup<'a> {
    pub setting: &'a Setting<'a>,
    pub kernel: usize,
    pub options: &'a Options,
    pub bound: &'a Bound,
    pub layout: &'a KernelLayout<'a>,
    pub nest: &'a Nest,
    pub parts: &'a [Part<'a>],
    pub sides: &'a [Sides],
}

/// An Einsum on a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub part: u16,
    pub instance: u32,
    pub tile: u32,
    /// Step of the newest tile times phases plus phase.
    pub group: u64,
    /// Where its fetches start in [`Fetches::of_op`].
    pub fetches: u32,
}

/// A part of a tensor that was computed, until its last use.
#[derive(Debug, Default)]
pub(super) struct Made {
    part: usize,
    key: (u16, u32, u64),
    /// By word of an element: when it is done, in the frame of its array.
    done: Vec<Option<i64>>,
    /// Tiles that still contribute.
    open: u32,
    /// Operations that still need it, and DRAM if it is written there.
    uses: u32,
    /// By word: uses left in the registers of the elements that made it.
    here: Vec<u16>,
    /// By array at whose edge it waits, and word: uses left.
    edge: Vec<(usize, Vec<u16>)>,
    /// When the last row has left the array, for a result that is spread over rows.
    left: Option<i64>,
    bytes: u64,
    last_use: i64,
    /// The numbers, row-major over the tensor's extents in the tile.
    pub values: Vec<f64>,
}

/// An operation under way.
#[derive(Debug)]
struct Active {
    op: Op,
    shape: usize,
    step: usize,
    /// By read: the slot that it reads, once it is there.
    slots: Vec<Option<usize>>,
    result: Option<usize>,
}

/// One array's progress.
#[derive(Debug, Default)]
struct Array {
    next: usize,
    active: Vec<Active>,
    turn: usize,
    free: i64,
    /// Ends of the latest groups.
    ends: VecDeque<(u64, i64)>,
    fill_free: i64,
    drain_free: i64,
}

/// The next wave of an array.
enum Next {
    Finished,
    Waits(String),
    At(i64, Cause, Option<i64>),
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By array.
    pub arrays: Vec<ArrayCounts>,
    /// By part: cycles in which its array was at it.
    pub busy: Vec<u64>,
    /// Cycles until everything is done, DRAM too.
    pub cycles: u64,
    pub dram_busy: f64,
    pub dram_words: u64,
    pub buffer_peak: u64,
    /// By array: the most words in an element's registers.
    pub registers: Vec<u64>,
    /// By tensor and array: the most words at its edge, for one element.
    pub queues: BTreeMap<(String, usize), u64>,
    /// By array: issue of every wave, if wanted.
    pub trace: Vec<Vec<super::Wave>>,
}

/// Counts of one array.
#[derive(Debug, Default)]
pub(super) struct ArrayCounts {
    pub busy: u64,
    /// Busy cycles times the part of the elements that were used.
    pub used: f64,
    pub stalls: BTreeMap<Cause, u64>,
    pub first: Option<i64>,
    pub end: i64,
    /// Busy cycles by time.
    pub profile: super::report::Profile,
    /// Start of every tile's first operation: the first and the latest in the steady part.
    pub steady: super::report::Steady,
}

pub(super) struct Engine<'a> {
    setup: &'a Setup<'a>,
    ops: Vec<Vec<Op>>,
    fetches: Fetches,
    shapes: Vec<Shape>,
    shape_of: HashMap<(u16, u64), usize>,
    arrays: Vec<Array>,
    offsets: Vec<i64>,
    registers: Vec<Pool>,
    queues: HashMap<(usize, usize), Pool>,
    buffer: Pool,
    /// Room of the buffer for what the arrays compute, and how much of it is taken.
    reserve: u64,
    computed: u64,
    routes: Vec<Routes>,
    made: Vec<Made>,
    unused: Vec<usize>,
    found: HashMap<(u16, u32, u64), usize>,
    next_chunk: usize,
    writes: BTreeMap<(i64, usize), (usize, u64)>,
    written: usize,
    dram_free: f64,
    pub counts: Counts,
    issued: u64,
    total: u64,
}

impl<'a> Setup<'a> {
    pub fn extents(&self, tile: usize) -> Extents<'_> {
        Extents { bound: self.bound, nest: self.nest, at: self.nest.at(tile) }
    }

    /// Which part of a tensor an operation means, as a number.
    pub fn key(&self, op: &Op, at: &[At]) -> u64 {
        let tile = self.nest.at(op.tile as usize);
        at.iter().zip(tile).zip(&self.nest.cuts).fold(0, |key, ((at, &x), cut)| {
            let x = match at {
                At::Whole => 0,
                At::Same | At::Before => u64::from(x),
                At::After => u64::from(x) + 1,
                At::Final => cut.pieces as u64,
            };
            key * (cut.pieces as u64 + 1) + x
        })
    }

    /// Which part of its tensor an operation makes.
    fn result(&self, op: &Op) -> u64 {
        let at: Vec<At> = self.parts[op.part as usize]
            .result
            .iter()
            .map(|c| match c {
                Carried::No => At::Whole,
                Carried::Yes => At::Same,
                Carried::Slices => At::After,
            })
            .collect();
        self.key(op, &at)
    }

    fn operations(&self) -> Vec<Vec<Op>> {
        let kernel = &self.setting.binding.kernels[self.kernel];
        let tiles = self.nest.tiles();
        let all = tiles * self.options.instances;
        let phases = kernel.phases.len() as u64;
        let lags = self.parts.iter().map(|p| p.lag).max().unwrap_or(0);
        let mut by_place: Vec<usize> = (0..self.parts.len()).collect();
        by_place.sort_by_key(|&p| (self.parts[p].phase, self.parts[p].array, self.parts[p].order));
        let mut out = vec![vec![]; self.setting.chip.arrays.len()];
        for step in 0..all + lags {
            for &p in &by_place {
                let part = &self.parts[p];
                let Some(tile) = step.checked_sub(part.lag).filter(|&t| t < all) else { continue };
                let (instance, tile) = (tile / tiles, tile % tiles);
                if lag::runs(self.nest, part, tile) {
                    out[part.array].push(Op {
                        part: p as u16,
                        instance: instance as u32,
                        tile: tile as u32,
                        group: step as u64 * phases + part.phase as u64,
                        fetches: 0,
                    });
                }
            }
        }
        out
    }

    /// The last step in which a tile is new, as a group: after it, the pipeline runs out.
    pub fn steady(&self) -> (u64, u64) {
        let kernel = &self.setting.binding.kernels[self.kernel];
        let lags = self.parts.iter().map(|p| p.lag).max().unwrap_or(0) as u64;
        let phases = kernel.phases.len() as u64;
        let all = (self.nest.tiles() * self.options.instances) as u64;
        (lags * phases, all * phases)
    }
}

/// By part and read: cycles from the maker's frame to the reader's; `None` if the value stays where it is, or comes
/// from DRAM.
pub(super) fn latencies(setup: &Setup<'_>) -> Vec<Vec<Option<i64>>> {
    let one = |r: &route::Route| match r.by {
        route::By::Local | route::By::Dram => None,
        route::By::Edge | route::By::Buffer => Some(r.latency + r.fill),
    };
    routes(setup).iter().map(|p| p.reads.iter().map(one).collect()).collect()
}

impl<'a> Engine<'a> {
    pub fn new(setup: &'a Setup<'a>) -> Self {
        let chip = setup.setting.chip;
        let timing = &chip.timing;
        let mut ops = setup.operations();
        let fetches = fetches(setup, &mut ops);
        let tallest = chip.arrays.iter().map(|a| a.rows).max().unwrap_or(1);
        let offset = |rows: usize| if rows == 1 && tallest > 1 { (tallest as u64 * timing.hop) as i64 } else { 0 };
        let registers = |a: &crate::Array| {
            let given = setup.options.registers.get(&a.name).copied();
            Pool::new(given.or(a.element.registers.map(|r| r.entries)).map(|n| n as u64))
        };
        let trace = if setup.options.trace { vec![vec![]; chip.arrays.len()] } else { vec![] };
        let counts = Counts {
            arrays: chip.arrays.iter().map(|_| ArrayCounts::default()).collect(),
            busy: vec![0; setup.parts.len()],
            trace,
            ..Counts::default()
        };
        Self {
            arrays: ops.iter().map(|_| Array::default()).collect(),
            offsets: chip.arrays.iter().map(|a| offset(a.rows)).collect(),
            registers: chip.arrays.iter().map(registers).collect(),
            queues: HashMap::new(),
            buffer: Pool::new(Some(chip.buffer.capacity.0)),
            reserve: reserve(setup, &ops),
            computed: 0,
            routes: routes(setup),
            made: vec![],
            unused: vec![],
            found: HashMap::new(),
            next_chunk: 0,
            writes: BTreeMap::new(),
            written: 0,
            dram_free: 0.0,
            counts,
            issued: 0,
            total: ops.iter().map(|o| o.len() as u64).sum(),
            ops,
            fetches,
            shapes: vec![],
            shape_of: HashMap::new(),
            setup,
        }
    }

    /// Runs until everything is done. `value` computes the numbers of an operation once all its steps are issued.
    ///
    /// # Errors
    /// What everything waits for that never comes.
    pub fn run(&mut self, value: &mut issue::Value<'_>, progress: &mut dyn FnMut(f64)) -> Result<(), String> {
        let report = (self.total / 500).max(1);
        loop {
            let mut best: Option<(i64, usize, i64, Cause, Option<i64>)> = None;
            let mut waits = vec![];
            for a in 0..self.arrays.len() {
                match self.next(a) {
                    (_, Next::Finished) => {}
                    (_, Next::Waits(why)) => waits.push(why),
                    (turn, Next::At(at, cause, known)) => {
                        self.arrays[a].turn = turn;
                        let time = at + self.offsets[a];
                        if best.as_ref().is_none_or(|b| time < b.0) {
                            best = Some((time, a, at, cause, known));
                        }
                    }
                }
            }
            let dram = self.next_transfer();
            if let Some((at, transfer)) = dram
                && best.as_ref().is_none_or(|b| at <= b.0 as f64)
            {
                self.transfer(at, transfer);
            } else if let Some((_, a, at, cause, known)) = best {
                let before = self.issued;
                self.issue(a, at, cause, known, value);
                if before != self.issued && self.issued.is_multiple_of(report) {
                    progress(self.issued as f64 / self.total.max(1) as f64);
                }
            } else if waits.is_empty() {
                break;
            } else {
                let buffer = match self.fetches.chunks.get(self.next_chunk) {
                    Some(c) if self.buffer.room(self.bytes(c.words)).is_none() => {
                        format!("; the buffer has no room for the next part of {}", self.name(c.node))
                    }
                    _ => String::new(),
                };
                return Err(format!("{}{buffer}", waits.join("; ")));
            }
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        let hop = self.setup.setting.chip.timing.hop;
        let mut end = self.dram_free.ceil();
        for ((array, counts), (of, offset)) in self
            .arrays
            .iter()
            .zip(&mut self.counts.arrays)
            .zip(self.setup.setting.chip.arrays.iter().zip(&self.offsets))
        {
            counts.end = array.free;
            if counts.first.is_some() {
                let skew = (of.rows + of.columns).saturating_sub(2) as u64 * hop;
                end = end.max((array.free + offset + skew as i64) as f64);
            }
        }
        self.counts.cycles = end as u64;
        self.counts.buffer_peak = self.buffer.peak;
        self.counts.registers = self.registers.iter().map(|p| p.peak).collect();
        for (&(part, array), pool) in &self.queues {
            let name = self.setup.parts[part].einsum.name.clone();
            self.counts.queues.insert((name, array), pool.peak);
        }
    }

    /// Where a frame starts, by array.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// The numbers in a slot.
    pub fn values(&self, slot: usize) -> &[f64] {
        &self.made[slot].values
    }

    /// Whether a slot's tensor needs no further tile.
    pub fn is_complete(&self, slot: usize) -> bool {
        self.made[slot].open == 0
    }

    fn name(&self, node: einloom_algebra::NodeId) -> &str {
        &self.setup.setting.program.graph[node].name
    }

    fn bytes(&self, words: u64) -> u64 {
        words * self.setup.setting.chip.word.0
    }

    fn shape(&mut self, op: &Op) -> usize {
        let nest = self.setup.nest;
        let at = nest.at(op.tile as usize);
        let short = |c: usize| nest.range(c, at[c]).1 < nest.cuts[c].tile;
        let mask = (0..nest.cuts.len()).fold(0u64, |m, c| m * 2 + u64::from(short(c)));
        if let Some(&known) = self.shape_of.get(&(op.part, mask)) {
            return known;
        }
        let setting = self.setup.setting;
        let kept = |name: &String| setting.faults.contains(name);
        let split: Vec<_> =
            setting.binding.faults.iter().filter(|(n, _)| kept(n)).flat_map(|(_, f)| f.split.clone()).collect();
        let is_split = |o: &crate::Operation| split.contains(o);
        let new = shape(
            setting.program,
            setting.chip,
            self.setup.sides,
            self.setup.parts,
            op.part as usize,
            &is_split,
            &self.setup.extents(op.tile as usize),
        );
        self.shapes.push(new);
        self.shape_of.insert((op.part, mask), self.shapes.len() - 1);
        self.shapes.len() - 1
    }
}
