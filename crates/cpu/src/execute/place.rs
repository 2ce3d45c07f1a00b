//! Where tiles are.

use crate::compile::{Plan, Tile};
use crate::kernels::contract::{Layout, Range};
use crate::kernels::memory::Shared;
use crate::kernels::real::Real;
use crate::kernels::truths::{Bits, words};
use bytemuck::Pod;
use einloom_cascade::DType;
use einloom_tile::{Program, TensorId, ValueId, Window};

use super::arena::Buffer;
use super::kept::KeptTile;

/// Where a tile's elements are at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In its slot.
    Slot,
    /// In its slot, packed as a left factor of the processor's matrix unit, with this range: only contractions read it.
    Packed(Range),
    /// In its slot, truth values as bits: only maps and skips read it.
    Bits,
    /// The tile of this number of those that are kept.
    Kept(usize),
    /// In a tensor, from this element on, with this many elements from row to row.
    View(TensorId, usize, usize),
    /// The same, in the tensor's own narrower type: only maps read it, strip by strip.
    Encoded(TensorId, usize, usize),
}

/// Everything that tiles are read from.
#[derive(Clone, Copy)]
pub(crate) struct Tiles<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub windows: &'a [Window],
    pub places: &'a [Place],
    pub slots: &'a [Buffer],
    pub kept: &'a [KeptTile],
    pub tensors: &'a [Shared<'a>],
}

/// Rows of adjacent elements.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, T> {
    pub data: &'a [T],
    /// Elements from one row to the next.
    pub pitch: usize,
}

/// Lengths of a tile: rows, elements per row.
pub(crate) fn lengths(tile: Tile, windows: &[Window]) -> (usize, usize) {
    let length = |a: einloom_tile::AxisId| windows[a.at()].len;
    (tile.outer.map_or(1, length), tile.inner.map_or(1, length))
}

/// Elements from row to row in a slot. Rows a large power of two apart would compete for the same few lines of the
/// first-level cache, when a contraction reads some columns of many rows.
pub(crate) fn pitch(columns: usize) -> usize {
    if columns >= 256 && columns.is_multiple_of(64) { columns + 16 } else { columns }
}

impl<'a> Tiles<'a> {
    pub(crate) fn tile(&self, v: ValueId) -> Tile {
        self.plan.tiles[v.at()]
    }

    pub(crate) fn lengths(&self, v: ValueId) -> (usize, usize) {
        lengths(self.tile(v), self.windows)
    }

    /// The tile's elements. `T` must be what its carrier holds.
    pub(crate) fn rows<T: Pod>(&self, v: ValueId) -> Rows<'a, T> {
        match self.places[v.at()] {
            Place::Slot | Place::Packed(_) => {
                Rows { data: self.slots[self.tile(v).slot].get(), pitch: pitch(self.lengths(v).1) }
            }
            Place::Kept(number) => Rows { data: self.kept[number].buffer.get(), pitch: pitch(self.lengths(v).1) },
            Place::View(tensor, start, pitch) => {
                let data = self.tensors[tensor.at()].elements();
                Rows { data: data.get(start..).unwrap_or(&[]), pitch }
            }
            Place::Encoded(..) | Place::Bits => Rows { data: &[], pitch: 0 },
        }
    }

    /// How a tile lies that is kept; of others [`Tiles::rows`] tells it.
    pub(crate) fn layout(&self, v: ValueId) -> Option<Layout> {
        if let Place::Kept(number) = self.places[v.at()] { Some(self.kept[number].layout) } else { None }
    }

    /// The elements of a tile that is left in its tensor's 16-bit type, and that type.
    pub(crate) fn encoded(&self, v: ValueId) -> Option<(DType, Rows<'a, u16>)> {
        let Place::Encoded(tensor, start, pitch) = self.places[v.at()] else { return None };
        let data = self.tensors[tensor.at()].elements();
        Some((self.program.tensor(tensor).dtype, Rows { data: data.get(start..).unwrap_or(&[]), pitch }))
    }

    /// The truth values of a tile that holds them as bits.
    pub(crate) fn bits(&self, v: ValueId) -> Option<Bits<'a>> {
        let bits = Bits { words: self.slots[self.tile(v).slot].get(), pitch: words(self.lengths(v).1) };
        (self.places[v.at()] == Place::Bits).then_some(bits)
    }

    /// Whether the tile is in this slot.
    pub(crate) fn is_in(&self, v: ValueId, slot: usize) -> bool {
        matches!(self.places[v.at()], Place::Slot | Place::Bits) && self.tile(v).slot == slot
    }

    /// The tile's only element, or the one at `at` of a tile with one axis.
    pub(crate) fn element<T: Real>(&self, v: ValueId, row: usize, column: usize) -> T {
        use crate::compile::Carrier;
        fn get<T: Pod>(rows: Rows<'_, T>, row: usize, column: usize) -> T {
            rows.data[row * rows.pitch + column]
        }
        match self.tile(v).carrier {
            Carrier::F32 => T::from_f32(get(self.rows::<f32>(v), row, column)),
            Carrier::F64 => T::from_f64(get(self.rows::<f64>(v), row, column)),
            Carrier::I32 => T::from_i32(get(self.rows::<i32>(v), row, column)),
        }
    }
}
