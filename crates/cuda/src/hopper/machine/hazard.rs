//! What can go wrong, and where.

use std::fmt;

/// What went wrong, as a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HazardKind {
    /// Nobody can go on.
    Deadlock,
    /// A stage is read before it is full.
    EarlyRead,
    /// A stage is filled or given away while somebody may still read it.
    Overwrite,
    /// A copy is started into a stage that has not been acquired.
    Unacquired,
    /// Registers are touched while a product in flight works on them.
    Registers,
    /// Registers are read that hold another tile, or none.
    Undefined,
    /// A tile is read that was made for other positions than those it is used at.
    Stale,
    /// More arrivals on a barrier than its phase has.
    Arrivals,
    /// Something is released, or passed on, that is not held.
    NotHeld,
    /// Something reaches a block of a cluster that has not initialised its barriers yet, or has left.
    Absent,
    /// A grid point is not computed, or more than once.
    Points,
    /// At the end something is still held, in flight or not read.
    Leftover,
    /// Regions of shared memory overlap or do not fit.
    Memory,
    /// The schedule does not belong to the kernel: a step asks for what there is not.
    Malformed,
}

/// A step of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub block: usize,
    /// Producer or consumer, with its number.
    pub role: String,
    /// The grid point, as axes' windows, and the chunk.
    pub at: String,
    /// The step.
    pub step: String,
}

/// An execution that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// What class of thing went wrong.
    pub kind: HazardKind,
    /// At which step; `None` if it is no single step's.
    pub place: Option<Place>,
    /// What went wrong.
    pub explanation: String,
}

impl Hazard {
    pub(super) fn new(kind: HazardKind, explanation: impl Into<String>) -> Self {
        Self { kind, place: None, explanation: explanation.into() }
    }

    pub(super) fn malformed(explanation: impl Into<String>) -> Self {
        Self::new(HazardKind::Malformed, explanation)
    }

    pub(super) fn at(mut self, place: impl FnOnce() -> Place) -> Self {
        self.place.get_or_insert_with(place);
        self
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(p) = &self.place {
            write!(f, "block {}, {}, {}, `{}`: ", p.block, p.role, p.at, p.step)?;
        }
        f.write_str(&self.explanation)
    }
}

impl std::error::Error for Hazard {}
