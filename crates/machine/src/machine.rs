//! The description of a machine.

use crate::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, JoulesPerByte, Lanes, MatrixUnit};
use einloom_cascade::DType;
use std::collections::BTreeMap;

/// A machine: equal cores under a chain of memory levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What it is called on the command line.
    pub name: String,
    /// What it is, for people, and which of its figures are assumed.
    pub description: String,
    /// Cores (on a GPU: streaming multiprocessors). At least 1.
    pub cores: usize,
    /// The cores' clock.
    pub clock: Hertz,
    /// Registers of one core, if they hold enough to be worth planning for. Not a level: they may be larger than
    /// the level above them.
    pub registers: Option<Bytes>,
    /// Memory levels, outermost first; each one's parent is the one before it. At least 1.
    pub levels: Vec<Level>,
    /// Multiply-adds count as two. All cores together, by the number type of the operands; f32 is always there.
    pub rates: BTreeMap<DType, FlopsPerSecond>,
    /// The threads of a core, where a core is a GPU's: then plans count registers and issue slots.
    pub lanes: Option<Lanes>,
    /// Its matrix units, best first; another may be asked for by name.
    pub matrix: Vec<MatrixUnit>,
}

/// One level of the memory hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name, such as `L2`.
    pub name: String,
    /// Bytes one instance holds; `None` for an outermost level without a limit that matters.
    pub capacity: Option<Bytes>,
    /// How many cores share one instance: all of them for device memory, 1 for a private cache.
    pub shared_by: usize,
    /// Between this level and the next one in (after the last level: the cores), all instances together.
    pub bandwidth: BytesPerSecond,
    /// Energy per byte moved between this level and the next one in, where it is known.
    pub energy: Option<JoulesPerByte>,
}

impl Machine {
    /// Arithmetic on this number type. A type without its own rate is computed in f32.
    pub fn rate(&self, dtype: DType) -> FlopsPerSecond {
        let f32_rate = || self.rates.get(&DType::F32).copied();
        self.rates.get(&dtype).copied().or_else(f32_rate).unwrap_or(FlopsPerSecond(0.0))
    }

    /// The level with this name.
    pub fn level(&self, name: &str) -> Option<&Level> {
        self.levels.iter().find(|l| l.name == name)
    }
}

impl Level {
    /// The part of one instance's capacity that each core has if all of them work; `None` without a limit.
    pub fn per_core(&self) -> Option<Bytes> {
        self.capacity.map(|c| Bytes(c.0 / self.shared_by.max(1) as u64))
    }
}
