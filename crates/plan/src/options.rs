//! What a caller asks of the planner and gets from it.

use crate::indices::{Indices, Roots};
use crate::lost::Lost;
use crate::merged::Merge;
use crate::parts::Part;
use crate::quotients::Split;
use crate::shares::{Idle, Shares};
use crate::too_large::TooLarge;
use einloom_model::OnGpu;
use einloom_tile::Program;
use std::collections::BTreeMap;
use std::fmt;

/// How the planner may go about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// No liberties with rounding at all, whatever the other options say.
    pub exact: bool,
    /// Tile sizes by index name, in place of the planner's choice. One as large as the index makes it whole where
    /// that is possible.
    pub tiles: BTreeMap<String, usize>,
    /// In how many shares reductions over an index are computed, by its name, those over all others in one piece; in place of the planner's
    /// choice.
    pub shares: Option<BTreeMap<String, usize>>,
    /// Whether indices that always go together may be one.
    pub merge: Merging,
    /// Round the wider operand of a contraction to the number type of the narrower one, as tensor cores want it.
    pub narrow_contractions: bool,
    /// Whether several nodes may share a kernel.
    pub fuse: Fusion,
    /// Whether chunks of a recurrence are side by side.
    pub chunks: Chunks,
    /// Plan for the machine's matrix unit of this name. Without it for the first that takes a kernel's products.
    pub matrix: Option<String>,
    /// Tiles that a backend has refused for want of room: no GPU's kernel has them, nor larger ones.
    pub too_large: Vec<TooLarge>,
    /// Any plan that computes the program, drawn from this number, in place of the one that is predicted to be fastest, wherever
    /// nothing else here is asked for: for tests of what comes after the planner. For processors alone, and without predicted times.
    pub drawn: Option<u64>,
}

/// Whether several nodes of the graph may share a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fusion {
    /// Where the predicted time says so.
    #[default]
    Auto,
    /// One kernel per reduction and per output; pointwise parts are computed where they are read.
    None,
}

/// Whether the chunks of a recurrence that goes by chunks are computed side by side, from states in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunks {
    /// Where the predicted time says so.
    #[default]
    Auto,
    /// One after the other.
    InOrder,
    /// Side by side wherever that is possible.
    SideBySide,
}

/// Whether indices that always go together are one, as [`Merge`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    /// Where the predicted time says so.
    #[default]
    Auto,
    /// They stay apart: the caller's arrays may lie in memory in any way, and two dimensions of one need not be one.
    Never,
    /// Wherever it is possible.
    Always,
}

/// A program with the reasons for its form.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to run.
    pub program: Program,
    /// One per kernel of the program.
    pub kernels: Vec<PlannedKernel>,
    /// Predicted time of all kernels.
    pub seconds: f64,
    /// The same if of tiles that are about as fast each kernel had the fastest, and not the roundest.
    pub least_seconds: f64,
    /// Indices that are two in its program.
    pub splits: Vec<Split>,
    /// Indices that are one in its program.
    pub merges: Vec<Merge>,
    /// Indices that reductions of it go through in shares.
    pub shares: Vec<Shares>,
    /// What the kernels store, of the plan and of the best with other indices, by these.
    pub(crate) divided: Vec<(Indices, Roots)>,
    /// Kernels of it that leave cores idle.
    pub(crate) idle: Vec<Idle>,
    /// Its search ended early because of them.
    pub(crate) unfinished: bool,
    /// What the search for it has looked at.
    pub work: Work,
    /// The best of the plans that were worked out and not taken, best first.
    pub lost: Vec<Lost>,
}

/// What a search has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Kernels for which tiles were looked for.
    pub kernels: usize,
    /// Kernels that were written down, once per way to cut their indices.
    pub emitted: usize,
    /// Tilings that were looked at.
    pub tilings: usize,
    /// Of those, the ones that a bound on their time excluded before all was counted.
    pub pruned: usize,
}

impl Work {
    /// Tilings that cost as much to write down as a kernel does.
    const EMITTED: usize = 4;

    /// Items of a program that is large, and of one whose kernels are no smaller than the smallest are taken to be.
    const LARGE: usize = 30;
    const SMALL: usize = 6;

    /// What was done, in tilings of a large program: those of one of so many items are smaller.
    pub(crate) fn done(&self, items: usize) -> usize {
        (self.tilings + Self::EMITTED * self.emitted) * items.clamp(Self::SMALL, Self::LARGE) / Self::LARGE
    }
}

impl std::ops::Add for Work {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.kernels += other.kernels;
        self.emitted += other.emitted;
        self.tilings += other.tilings;
        self.pruned += other.pruned;
    }
}

/// What one kernel does, and why it looks as it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedKernel {
    /// Its name in the program.
    pub name: String,
    /// The source statements it computes or helps to compute, by number, ascending.
    pub statements: Vec<usize>,
    /// The indices it partitions in parallel, with their tile sizes.
    pub group: Vec<(String, usize)>,
    /// The indices it visits in order, with their tile sizes.
    pub stream: Vec<(String, usize)>,
    /// The nodes it writes to memory.
    pub materialised: Vec<String>,
    /// Why it ends where it does, why an axis has tile 1, what was tried and lost with which predicted time.
    pub notes: Vec<String>,
    /// Predicted time, launch included: what the planner went by.
    pub seconds: f64,
    /// What takes most of it.
    pub bound_by: String,
    /// How long each resource is busy meanwhile. They overlap.
    pub parts: Vec<(String, f64)>,
    /// On a GPU, how it runs on a core: groups, registers, shared memory, predicted time. `None` on other machines, and
    /// where no tiling fits a core as it is; `notes` then tells why.
    pub gpu: Option<OnGpu>,
    /// What part of it this kernel computes, if another one computes the rest.
    pub part: Option<Part>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanError {
    /// The tensor, or the part of one, at which planning stopped.
    pub subject: String,
    /// What is in the way.
    pub reason: String,
    /// If it is the capacity of a memory: what the part needs, in elements where the machine counts these, else in bytes.
    pub needed: Option<u64>,
    /// What to do instead.
    pub hint: Option<String>,
}

impl PlanError {
    pub(crate) fn unsupported(subject: &str, reason: impl Into<String>) -> Self {
        Self { subject: subject.to_string(), reason: reason.into(), needed: None, hint: None }
    }

    /// Adds what to do instead.
    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot plan `{}`: {}", self.subject, self.reason)
    }
}

impl std::error::Error for PlanError {}
