//! Cycles of one core: its rates, and how what its parts do adds up. The waits and shares that no datasheet tells stand in
//! the machine's description ([`einloom_machine::Calibration`]), each with what it was fitted to.

use super::OnGpu;
use super::device::Outside;
use einloom_cascade::DType;
use einloom_machine::{Calibration, Lanes, Machine, MatrixUnit};

/// Instructions per 16 bytes that a group copies itself.
pub(super) const COPY_INSTRUCTIONS: f64 = 4.0;

/// A core's rates, per cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock<'a> {
    pub machine: &'a Machine,
    pub lanes: &'a Lanes,
    /// Cycles per second.
    pub hertz: f64,
    /// Bytes of its private memory.
    pub shared: f64,
    /// Bytes of its share of the level outside that.
    pub outside: f64,
    /// Cycles from asking for a tile to its first bytes.
    pub latency: f64,
    pub calibration: &'a Calibration,
}

impl<'a> Clock<'a> {
    pub fn new(machine: &'a Machine, lanes: &'a Lanes) -> Self {
        let hertz = machine.clock.0.max(1.0);
        let all = hertz * machine.cores.max(1) as f64;
        let mut inwards = machine.trunk().rev().map(|l| l.bandwidth.0 / all);
        let shared = inwards.next().unwrap_or(f64::INFINITY);
        let outside = inwards.next().unwrap_or(shared);
        Self {
            machine,
            lanes,
            hertz,
            shared,
            outside,
            latency: lanes.latency.0 * hertz,
            calibration: &lanes.calibration,
        }
    }

    /// Multiply-adds that the unit sustains.
    pub fn products(&self, unit: &MatrixUnit, operand: DType) -> f64 {
        let all = self.machine.rate(operand).0 * unit.sustained / 2.0;
        all / (self.hertz * self.machine.cores.max(1) as f64)
    }

    /// Bytes of shared memory that a block can have.
    pub fn shared_capacity(&self) -> u64 {
        let private = self.machine.trunk().rev().find(|l| l.shared_by <= 1);
        private.and_then(|l| l.capacity).map_or(0, |c| c.0)
    }

    /// Registers of a core.
    pub fn registers(&self) -> usize {
        self.machine.registers().map_or(usize::MAX >> 8, |b| b.0 as usize / 4)
    }
}

/// Cycles that some operations keep each part of a core busy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    /// Products that need nothing that is computed in the same chunk.
    pub leading: f64,
    /// Products that do.
    pub trailing: f64,
    /// Of shared memory.
    pub shared: f64,
    /// Of that, for the factors of a unit's products.
    pub fragments: f64,
    /// Of the core's share of the level outside it.
    pub outside: f64,
    /// Of that, for what is loaded straight into registers.
    pub direct: f64,
    pub special: f64,
    pub arithmetic: f64,
    /// Waiting that a group cannot hide from itself.
    pub waits: f64,
    /// Of that, for barriers of the whole block.
    pub barriers: f64,
    /// Positions of a loop that goes one by one that one wait is for, because they are neighbours in memory; 0 where it is for something else.
    pub neighbours: f64,
    /// The longest that a stage of a ring is not free: from the request to the release.
    pub ring: f64,
}

impl Busy {
    /// What works at the same time.
    pub fn pipes(&self) -> [(f64, Bound); 5] {
        [
            (self.leading + self.trailing, Bound::Products),
            (self.shared, Bound::Shared),
            (self.outside, Bound::Outside),
            (self.special, Bound::Special),
            (self.arithmetic, Bound::Arithmetic),
        ]
    }
}

/// How a block's groups work at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team {
    pub unit_asynchronous: bool,
    /// All groups copy and wait together: only another block works meanwhile.
    pub together: bool,
    /// Groups of the block.
    pub groups: f64,
    /// The part of a core's rates that one group can use.
    pub share: f64,
    /// How many times one group fills the core's lanes.
    pub covers: f64,
    /// Stages of each ring.
    pub stages: f64,
    /// Blocks on the core.
    pub blocks: f64,
    /// See [`Calibration::shows`].
    pub shows: f64,
}

/// What bounds a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bound {
    Products,
    Shared,
    Outside,
    Special,
    Arithmetic,
    Latency,
}

impl Team {
    /// Cycles of a core per block for what keeps it this busy, and what they go to.
    pub fn cycles(&self, busy: &Busy) -> (f64, Bound) {
        let products = busy.leading + busy.trailing;
        let scalar = busy.special + busy.arithmetic;
        // A group's own way through the chunk.
        let own = 1.0 / (self.groups * self.share);
        let (leading, trailing) = (busy.leading * own, busy.trailing * own);
        // One set of threads does one thing at a time, several cover each other.
        let (most, least) = (busy.special.max(busy.arithmetic), busy.special.min(busy.arithmetic));
        let scalar_own = (most + least / self.covers) * own;
        let after = if self.unit_asynchronous { trailing.max(scalar_own) } else { trailing + scalar_own };
        let chain = (leading + after + busy.direct + busy.waits) / self.blocks;
        let longest = busy.pipes().into_iter().fold((0.0, Bound::Products), |a, b| if b.0 > a.0 { b } else { a });
        let most = products.max(busy.special).max(busy.arithmetic);
        let others = products + scalar + busy.waits / self.blocks - most;
        let sets = (self.groups * self.share * self.blocks * self.covers).max(1.0);
        let idle = if self.together && self.blocks < 2.0 { busy.barriers } else { 0.0 };
        // The busier the others are beside the longest, the harder it is for it to find its turn among them. Products that
        // threads issue one by one take turns with all they issue, the loads of their fragments too.
        let beside = (others / longest.0.max(1.0)).min(2.0);
        let (beside, others) = match self.unit_asynchronous {
            true => (beside, others),
            false => (beside.max(1.0), others + most + busy.fragments - most.max(busy.fragments)),
        };
        let shows = 3.0 * self.shows / (2.0 + sets);
        let mut best = (longest.0 + shows * beside * others + idle, longest.1);
        for waited in [chain, busy.ring / (self.stages.max(1.0) * self.blocks)] {
            if waited > best.0 {
                best = (waited, Bound::Latency);
            }
        }
        best
    }
}

impl Bound {
    pub fn name(self, unit: Option<&str>) -> String {
        match self {
            Self::Products => unit.unwrap_or("products").to_string(),
            Self::Shared => "shared memory".to_string(),
            Self::Outside => "L2".to_string(),
            Self::Special => "special functions".to_string(),
            Self::Arithmetic => "arithmetic".to_string(),
            Self::Latency => "latency".to_string(),
        }
    }
}

/// What a core's time goes to.
#[derive(Clone, Debug)]
pub(super) struct CoreTime {
    pub seconds: f64,
    /// How many times longer it takes because points of the grid differ in length; 1 where they do not.
    pub uneven: f64,
    /// Seconds of the part that is busy longest, on the core with the most points.
    pub busiest: f64,
    /// What bounds it most of the time.
    pub bound: String,
    /// How long each part of a core is busy on average.
    pub parts: Vec<(String, f64)>,
}

impl OnGpu {
    /// With the time of a core and the time of the device's memory.
    pub(super) fn timed(mut self, core: &CoreTime, outside: Outside, apart: f64) -> Self {
        let (device, again) = outside.beside(core.seconds, apart);
        self.again = again / device.max(f64::MIN_POSITIVE);
        let (long, short) = if core.seconds >= device { (core.seconds, device) } else { (device, core.seconds) };
        // The two overlap, but for the first and the last tiles.
        self.seconds = long + 0.1 * short;
        self.bound_by = if core.seconds >= device { core.bound.clone() } else { "device memory".to_string() };
        self.parts = core.parts.clone();
        self.parts.push(("device memory".to_string(), device));
        self.parts.retain(|p| p.1 > 0.0);
        self.parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        self
    }
}
