//! What a simulation found.

use std::collections::BTreeMap;
use std::fmt;

/// Why an array issued nothing in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The pipeline of tiles is not full yet.
    Start,
    /// The pipeline of tiles runs out.
    End,
    /// Another array is not done with the phase before.
    Phase,
    /// An operand is not computed yet.
    Dependency,
    /// An operand is computed and on its way: filling, draining, hops between arrays and accesses to the buffer.
    Flight,
    /// DRAM has not delivered an operand.
    Dram,
    /// Rows of an operand are shifted into the array.
    Fill,
    /// The buffer has no room for a result.
    Buffer,
    /// The registers of the elements have no room for a word.
    Registers,
    /// The queue at the edge of another array is full.
    Queue,
}

impl Cause {
    /// In a word, as `--json` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Phase => "phase",
            Self::Dependency => "dependency",
            Self::Flight => "flight",
            Self::Dram => "dram",
            Self::Fill => "fill",
            Self::Buffer => "buffer",
            Self::Registers => "registers",
            Self::Queue => "queue",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the pipeline of tiles fills",
            Self::End => "the pipeline of tiles runs out",
            Self::Phase => "another array is not done with the phase",
            Self::Dependency => "an operand is not computed yet",
            Self::Flight => "an operand is on its way through arrays and buffer",
            Self::Dram => "DRAM has not delivered an operand",
            Self::Fill => "rows are shifted into the array",
            Self::Buffer => "the buffer is full",
            Self::Registers => "the registers of the elements are full",
            Self::Queue => "the queue at the other array's edge is full",
        })
    }
}

/// Busy cycles by time, in at most 64 intervals of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Cycles of an interval.
    pub interval: u64,
    /// Busy cycles of every interval.
    pub busy: Vec<u64>,
}

impl Default for Profile {
    fn default() -> Self {
        Self { interval: 1, busy: vec![] }
    }
}

impl Profile {
    const MOST: usize = 64;

    pub(super) fn add(&mut self, mut start: u64, mut cycles: u64) {
        while (start + cycles).div_ceil(self.interval) > Self::MOST as u64 {
            self.busy = self.busy.chunks(2).map(|c| c.iter().sum()).collect();
            self.interval *= 2;
        }
        while cycles > 0 {
            let at = (start / self.interval) as usize;
            if self.busy.len() <= at {
                self.busy.resize(at + 1, 0);
            }
            let here = cycles.min(self.interval - start % self.interval);
            self.busy[at] += here;
            start += here;
            cycles -= here;
        }
    }
}

/// Starts of the same phase while tiles come and go.
#[derive(Clone, Debug, Default)]
pub(super) struct Steady {
    first: Option<(u64, i64)>,
    latest: Option<(u64, i64)>,
}

impl Steady {
    /// An operation starts; `steady` is from which group on all Einsums take part, and when new tiles end.
    pub fn start(&mut self, group: u64, at: i64, steady: (u64, u64)) {
        if group < steady.0 || group >= steady.1 {
            return;
        }
        match (self.first, self.latest) {
            (None, _) => self.first = Some((group, at)),
            (_, Some((g, _))) if g >= group => {}
            _ => self.latest = Some((group, at)),
        }
    }

    /// Cycles from one group to the next.
    pub fn cycles_per_group(&self) -> Option<f64> {
        let ((g0, t0), (g1, t1)) = (self.first?, self.latest?);
        (g1 > g0).then(|| (t1 - t0) as f64 / (g1 - g0) as f64)
    }
}

/// One wave of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Which of the kernel's Einsums, in the order of [`KernelRun::einsums`].
    pub part: usize,
    /// Which instance of the cascade.
    pub instance: usize,
    /// Which tile of the instance.
    pub tile: usize,
    /// When the first element starts it, in its array's frame.
    pub at: i64,
    /// How long each element is at it.
    pub cycles: u64,
}

/// One array in one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayRun {
    /// Its name.
    pub name: String,
    /// Cycles in which it computes.
    pub busy: u64,
    /// The part of all element-cycles in which an element computes.
    pub elements: f64,
    /// Cycles of a tile while all Einsums take part; `None` if that time is too short.
    pub cycles_per_tile: Option<f64>,
    /// Idle cycles by cause.
    pub stalls: BTreeMap<Cause, u64>,
    /// Busy cycles by time.
    pub profile: Profile,
    /// The most words in the registers of an element.
    pub registers: u64,
    /// Cycles by which its first element starts later than that of the array above it.
    pub offset: i64,
    /// Every wave, if it was asked for.
    pub trace: Vec<Wave>,
}

/// One Einsum in one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct EinsumRun {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub array: String,
    /// Cycles in which its array is at it.
    pub busy: u64,
    /// Tiles behind the newest one.
    pub lag: usize,
    /// The most words that wait at the edge of another array, for one of its elements.
    pub queue: u64,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRun {
    /// Its name.
    pub name: String,
    /// Until the last element is done and the last word written.
    pub cycles: u64,
    /// Tiles of all instances.
    pub tiles: usize,
    /// In the order of the chip.
    pub arrays: Vec<ArrayRun>,
    /// In the order of the binding.
    pub einsums: Vec<EinsumRun>,
    /// Cycles in which DRAM's channel moves words.
    pub dram_busy: f64,
    /// Bytes between DRAM and the buffer, both directions.
    pub traffic_bytes: u64,
    /// The most bytes in the buffer.
    pub buffer_bytes: u64,
}

/// A simulated run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// All kernels, one after the other.
    pub cycles: u64,
    /// The same by the chip's clock.
    pub seconds: f64,
    /// By array: the part of the time in which it computes.
    pub utilisation: BTreeMap<String, f64>,
    /// In the order in which they run.
    pub kernels: Vec<KernelRun>,
    /// By instance, if numbers were computed: the cascade's outputs.
    pub outputs: Vec<einloom_cascade::meaning::Arrays>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

impl Simulated {
    /// Bytes between DRAM and the buffer, both directions.
    pub fn traffic_bytes(&self) -> u64 {
        self.kernels.iter().map(|k| k.traffic_bytes).sum()
    }
}
