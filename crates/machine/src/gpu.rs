//! What one core of a GPU issues and holds, and its matrix units.

use crate::{Bytes, Seconds};
use einloom_cascade::DType;

/// The threads of a core: what they issue per cycle, and how many registers they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lanes {
    /// Threads that issue an instruction per cycle; an f32 multiply-add is one.
    pub arithmetic: usize,
    /// Threads that issue an exponential, logarithm, reciprocal or root per cycle.
    pub special: usize,
    /// Threads that a core holds at most.
    pub threads: usize,
    /// Threads of a block at most.
    pub block_threads: usize,
    /// Registers of 4 bytes that a thread has at most.
    pub registers: usize,
    /// From asking memory for a tile to its first bytes, under load.
    pub latency: Seconds,
    /// What no datasheet tells.
    pub calibration: Calibration,
}

/// Waits in cycles, and shares, that no datasheet tells: measured or fitted, for all kernels alike. The default is what
/// was fitted on one H200, see `machines/h200_sxm.toml`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// From a product's last operand to its result.
    pub product: f64,
    /// A reduction across the lanes that share a row.
    pub shuffles: f64,
    /// A reduction across warps, with the barrier that it needs.
    pub across_warps: f64,
    /// Awaiting and releasing a stage that others fill.
    pub stage: f64,
    /// The same where the groups fill it themselves: two barriers of the whole block.
    pub own_stage: f64,
    /// A load into registers that is used at once and finds its data in the shared cache.
    pub load: f64,
    /// What a block, or a task of a block that stays, waits for before it does anything.
    pub task: f64,
    /// From the start of one block on a core to that of the next.
    pub start: f64,
    /// The part of the time of what is not the slowest that shows if it takes as long as the slowest, for one set of
    /// threads that fills the core's lanes: of `n` sets `3 / (2 + n)` of it.
    pub shows: f64,
    /// The part of the cache that all cores share which can be relied upon.
    pub kept: f64,
    /// By how much of its way through a kernel a block that only waits for memory comes apart from others that began with it.
    pub apart: f64,
    /// Of reads of factors that lanes multiply: the part of the time of shared memory that shows where one set of threads
    /// fills the core's lanes, with nobody to cover it.
    pub reads_show: f64,
    /// The turns that such a read of 16 bytes a lane takes, as a part of those that its bytes would: lanes that stand next to
    /// each other read the same.
    pub reads_joined: f64,
}

impl Calibration {
    /// The waits, in cycles of a core, by their keys.
    pub fn waits(&self) -> [(&'static str, f64); 8] {
        [
            ("product", self.product),
            ("shuffles", self.shuffles),
            ("across_warps", self.across_warps),
            ("stage", self.stage),
            ("own_stage", self.own_stage),
            ("load", self.load),
            ("task", self.task),
            ("start", self.start),
        ]
    }

    /// The shares, by their keys.
    pub fn shares(&self) -> [(&'static str, f64); 5] {
        [
            ("shows", self.shows),
            ("kept", self.kept),
            ("apart", self.apart),
            ("reads_show", self.reads_show),
            ("reads_joined", self.reads_joined),
        ]
    }
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            product: 128.0,
            shuffles: 80.0,
            across_warps: 250.0,
            stage: 60.0,
            own_stage: 200.0,
            load: 600.0,
            task: 500.0,
            start: 100.0,
            shows: 0.3,
            kept: 0.64,
            apart: 0.08,
            reads_show: 0.45,
            reads_joined: 0.5,
        }
    }
}

/// A matrix unit: multiplies tiles, issued by groups of threads that each own some rows of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixUnit {
    /// What it is called in options.
    pub name: String,
    /// Number types of its factors.
    pub operands: Vec<DType>,
    /// The part of the machine's rate that it sustains.
    pub sustained: f64,
    /// Rows of the result that one instruction computes.
    pub rows: usize,
    /// Columns that one instruction computes at most.
    pub columns: usize,
    /// Columns come in multiples of this.
    pub column_step: usize,
    /// Of a factor's row, what one instruction sums over: an element of each of its number types at least.
    pub depth: Bytes,
    /// Threads that issue one instruction together, and hold its result in their registers.
    pub group_threads: usize,
    /// How many groups of a block may multiply. All of them, and the feeder, are no more threads than a block has.
    pub groups: Vec<usize>,
    /// Instructions' rows that a group stacks at most.
    pub row_blocks: usize,
    /// Threads of a block that only copy tiles; 0 if the groups do it themselves.
    pub feeder_threads: usize,
    /// Registers of such a thread.
    pub feeder_registers: usize,
    /// Registers of a group's thread that are for no tile: addresses, loop counters, operands in flight. Fewer than a
    /// thread may have with the fewest groups.
    pub reserve: usize,
    /// Products run while their group goes on.
    pub asynchronous: bool,
    /// Every instruction reads its right factor from shared memory. Otherwise a group reads it once into registers
    /// and uses it for all of its rows.
    pub shared_right: bool,
}

impl MatrixUnit {
    /// Elements of a factor that one instruction sums over.
    pub fn depth_of(&self, operand: DType) -> usize {
        (self.depth.0 as usize / operand.bytes().max(1)).max(1)
    }
}
