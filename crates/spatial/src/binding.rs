//! Which Einsum runs on which array and when, and what the buffer holds meanwhile.

mod read;

use crate::{Chip, Operation};
use einloom_machine::Bytes;
use std::collections::BTreeMap;

/// How a cascade runs on a chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Ranks of the cascade whose sizes follow the chip's.
    pub sizes: BTreeMap<String, Extent>,
    /// By array: which rank runs along which of its sides.
    pub space: BTreeMap<String, Space>,
    /// What runs one after the other, with all that is read and written between them going through DRAM.
    pub kernels: Vec<Kernel>,
    /// Known faults of published counts that concern this binding, by name.
    pub faults: BTreeMap<String, BindingFault>,
}

/// A number of positions of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// This many.
    Size(usize),
    /// As many as an array has rows.
    Rows(String),
    /// As many as an array has columns.
    Columns(String),
}

/// Which ranks an array computes at once; what a side has no rank for, it repeats or leaves idle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Along its rows.
    pub rows: Option<String>,
    /// Along its columns.
    pub columns: Option<String>,
}

/// Einsums that run fused, tile by tile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Ranks that are cut, and into pieces of how many positions. All others are whole in a tile.
    pub tile: BTreeMap<String, Extent>,
    /// What runs during one tile, in this order. A phase ends when all arrays are done with it.
    pub phases: Vec<Phase>,
    /// By Einsum: how many tiles it is behind the newest one. 0 if not given.
    pub lags: BTreeMap<String, usize>,
    /// What may be held in the buffer; the first that fits is taken.
    pub dataflows: Vec<Dataflow>,
    /// Tensors that go through the buffer between Einsums of this kernel.
    pub through: Vec<String>,
}

/// What the arrays do at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// By array: Einsums, one after the other.
    pub runs: BTreeMap<String, Vec<String>>,
    /// The array whose filling and draining the phase waits for before it starts, as many cycles a tile as it has rows.
    pub drains: Option<String>,
    /// Elements take a step of each Einsum in turn. Counts are the same; a simulation needs fewer registers.
    pub in_turn: bool,
}

/// What the buffer holds, and so what DRAM must deliver how often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataflow {
    /// The rank that is cut outermost: what carries it stays, what does not is read again for every block.
    pub block: Option<Block>,
    /// Tensors of which the buffer holds what one block and one tile need.
    pub holds: Vec<String>,
    /// Ranks that are not cut into tiles in what it holds.
    pub uncut: Vec<String>,
    /// Tensors that it holds whole: read once, whatever is cut.
    pub whole: Vec<String>,
    /// Tensors of which two parts, one in use and one on its way, lie beside what it holds. What then exceeds the
    /// capacity overflows: that part of every access to the buffer goes to DRAM.
    pub beside: BTreeMap<String, Beside>,
    /// It is taken only where DRAM is as fast as this.
    pub within: Option<Within>,
    /// Tensors that are computed and used in this kernel and go to DRAM and back.
    pub spills: Vec<String>,
    /// Arrays that exchange what spills with DRAM past the buffer.
    pub past: Vec<String>,
    /// What the published model took for the buffer's capacity, where that is not the chip's.
    pub capacity: Option<Bytes>,
}

/// Which part of a tensor lies beside what a dataflow holds, and so how often DRAM delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// A tile's: it streams to the arrays past the buffer, for every tile, also along ranks that it does not have.
    Tile,
    /// A block's: it goes through the buffer, once a block if it does not carry the rank that is cut.
    Block,
    /// All of it, delivered once.
    Whole,
}

/// A time that DRAM is not to exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct Within {
    /// That of this array's Einsums alone,
    pub array: String,
    /// with these ranks filled up to whole multiples.
    pub multiples: BTreeMap<String, Extent>,
}

/// How large the blocks of a rank are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The most tiles that fit and divide the rank.
    Largest {
        /// Which rank.
        rank: String,
        /// The number of blocks is the one found at these sizes.
        as_at: BTreeMap<String, usize>,
        /// At most this many positions.
        most: Option<usize>,
    },
    /// The fewest tiles, at least these, with which DRAM is not slower than the arrays; the most that fit if none is.
    Balanced {
        /// Which rank.
        rank: String,
        /// At least this many tiles.
        least: usize,
    },
    /// Always this many positions.
    Fixed {
        /// Which rank.
        rank: String,
        /// Positions.
        size: usize,
    },
}

/// A fault of published counts that concerns a binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindingFault {
    /// What goes wrong, for people.
    pub description: String,
    /// Operations whose energy is not charged.
    pub uncharged: Vec<Operation>,
    /// Operations that are charged as the parts they can be done in.
    pub split: Vec<Operation>,
}

impl Block {
    /// The rank that is cut.
    pub fn rank(&self) -> &str {
        match self {
            Self::Largest { rank, .. } | Self::Balanced { rank, .. } | Self::Fixed { rank, .. } => rank,
        }
    }
}

impl Extent {
    /// How many positions that are on a chip; `None` if the chip has no such array.
    pub fn on(&self, chip: &Chip) -> Option<usize> {
        match self {
            Self::Size(n) => Some(*n),
            Self::Rows(array) => chip.array(array).map(|a| a.rows),
            Self::Columns(array) => chip.array(array).map(|a| a.columns),
        }
    }
}

impl Kernel {
    /// Every Einsum that runs in it.
    pub fn einsums(&self) -> impl Iterator<Item = &str> {
        self.phases.iter().flat_map(|p| p.runs.values().flatten()).map(String::as_str)
    }
}
