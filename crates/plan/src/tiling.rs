//! How each index of a kernel is cut.

use einloom_cascade::IndexId;
use einloom_tile::AxisKind;
use std::collections::BTreeMap;

/// An index's kind and tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub kind: AxisKind,
    pub tile: usize,
    pub extent: usize,
}

/// The cut of every index of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub cuts: BTreeMap<IndexId, Cut>,
    /// The grid, outermost first.
    pub grid: Vec<IndexId>,
}

impl Tiling {
    /// Whether tiles have a side along the index: any number of positions but exactly one.
    pub(crate) fn tiled(&self, index: IndexId) -> bool {
        self.cuts.get(&index).is_some_and(|c| c.tile > 1 && c.extent != 1)
    }

    pub(crate) fn kind(&self, index: IndexId) -> AxisKind {
        self.cuts.get(&index).map_or(AxisKind::Stream, |c| c.kind)
    }
}
