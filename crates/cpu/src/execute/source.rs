//! Where the leaves of an elementwise operation are.

use super::arena::Buffer;
use super::place::{Rows, Tiles, lengths};
use crate::compile::{Carrier, ElementKind, Leaf, Tile};
use crate::kernels::live::Live;
use crate::kernels::math::f16_to_f32;
use crate::kernels::real::Real;
use crate::kernels::truths::{self, Bits};
use bytemuck::Pod;
use einloom_cascade::DType;
use einloom_cascade::numeric::bf16_to_f32;
use einloom_tile::{AxisId, Predicate, ValueId};

/// Where a leaf's elements come from.
pub(super) enum Source<'a, T> {
    /// The memory of the result itself.
    InPlace,
    /// A tile of the same carrier as the computation.
    Rows(Rows<'a, T>),
    /// A tile in f32, to be widened.
    Floats(Rows<'a, f32>),
    /// A tile in bf16, to be widened.
    Bf16(Rows<'a, u16>),
    /// A tile in f16, to be widened.
    F16(Rows<'a, u16>),
    /// An integer tile.
    Integers(Rows<'a, i32>),
    /// One element per row, in the scratch vector of the leaf's number.
    PerRow,
    /// One element per column, in a tile.
    Columns(&'a [T]),
    /// One element per column, in the scratch vector of the leaf's number.
    PerColumn,
    Same(T),
    /// 1 there, else 0.
    Holds(Live),
    /// 1 where the bit is set, else 0.
    Bits(Bits<'a>),
    /// The same of one bit per column.
    ColumnBits(Vec<u32>),
    /// One element per diagonal, the last row's first, in the scratch vector of the leaf's number.
    Diagonals,
}

impl<T: Real> Source<'_, T> {
    /// Copies elements of a row, from a column on, of a tile of so many rows; `vector` is the leaf's. What has no elements of its own
    /// copies nothing.
    #[inline(always)]
    pub(super) fn copy(&self, vector: &[T], rows: usize, [row, column]: [usize; 2], to: &mut [T]) {
        let width = to.len();
        match self {
            Source::Rows(from) => to.copy_from_slice(&from.data[row * from.pitch + column..][..width]),
            Source::Floats(from) => {
                let from = &from.data[row * from.pitch + column..][..width];
                for (x, &y) in to.iter_mut().zip(from) {
                    *x = T::from_f32(y);
                }
            }
            Source::Bf16(from) => {
                let from = &from.data[row * from.pitch + column..][..width];
                for (x, &y) in to.iter_mut().zip(from) {
                    *x = T::from_f32(bf16_to_f32(y));
                }
            }
            Source::F16(from) => {
                let from = &from.data[row * from.pitch + column..][..width];
                for (x, &y) in to.iter_mut().zip(from) {
                    *x = T::from_f32(f16_to_f32(y));
                }
            }
            Source::Integers(from) => {
                let from = &from.data[row * from.pitch + column..][..width];
                for (x, &y) in to.iter_mut().zip(from) {
                    *x = T::from_i32(y);
                }
            }
            Source::PerRow => to.fill(vector[row]),
            Source::Columns(from) => to.copy_from_slice(&from[column..][..width]),
            Source::PerColumn => to.copy_from_slice(&vector[column..][..width]),
            Source::Diagonals => to.copy_from_slice(&vector[rows - 1 - row + column..][..width]),
            Source::Holds(live) => holds(live, row, column, to),
            Source::Bits(bits) => truths::numbers(bits.row(row, column), to),
            Source::ColumnBits(bits) => truths::numbers(&bits[column / truths::WORD..], to),
            Source::InPlace | Source::Same(_) => {}
        }
    }
}

/// Where the elements of `leaf` come from in a map to `dst`, whose own buffer, if it has one, may hold a leaf.
pub(super) fn source<'a, T: Real + Pod>(
    tiles: Tiles<'a>,
    dst: Tile,
    own: Option<(usize, &Buffer)>,
    carrier: Carrier,
    leaf: &Leaf,
    vector: &mut Vec<T>,
) -> Source<'a, T> {
    let in_place = |v: ValueId| own.filter(|(slot, _)| tiles.is_in(v, *slot)).map(|(_, buffer)| buffer);
    let window = |axis: AxisId| tiles.windows[axis.at()];
    // What has no rows is one row: its columns are elements, and what all have in common is that of the row.
    let row = dst.outer.is_none() && dst.inner.is_some();
    vector.clear();
    match leaf {
        Leaf::Tile(v, ElementKind::Full) => {
            let tile = tiles.tile(*v);
            if let Some(bits) = tiles.bits(*v) {
                Source::Bits(bits)
            } else if in_place(*v).is_some() {
                Source::InPlace
            } else if let Some((from, rows)) = tiles.encoded(*v) {
                if from == DType::Bf16 { Source::Bf16(rows) } else { Source::F16(rows) }
            } else if tile.carrier == carrier {
                Source::Rows(tiles.rows(*v))
            } else if tile.carrier == Carrier::I32 {
                Source::Integers(tiles.rows(*v))
            } else {
                Source::Floats(tiles.rows(*v))
            }
        }
        Leaf::Tile(v, kind @ (ElementKind::Outer | ElementKind::Inner)) => {
            let (_, columns) = tiles.lengths(*v);
            let inner = *kind == ElementKind::Inner;
            if let Some((from, rows)) = tiles.encoded(*v) {
                let bf16 = from == DType::Bf16;
                // For one row strip by strip, as the row's own elements; for several once.
                if inner && dst.outer.is_none_or(|axis| window(axis).len == 1) {
                    return if bf16 { Source::Bf16(rows) } else { Source::F16(rows) };
                }
                let decode = |&x: &u16| T::from_f32(if bf16 { bf16_to_f32(x) } else { f16_to_f32(x) });
                vector.extend(rows.data[..columns].iter().map(decode));
            } else {
                match tiles.tile(*v).carrier {
                    same if inner && row && same == carrier => return Source::Rows(tiles.rows(*v)),
                    same if inner && same == carrier => return Source::Columns(&tiles.rows::<T>(*v).data[..columns]),
                    Carrier::F32 => vector.extend(tiles.rows(*v).data[..columns].iter().map(|&x| T::from_f32(x))),
                    Carrier::F64 => vector.extend(tiles.rows(*v).data[..columns].iter().map(|&x| T::from_f64(x))),
                    Carrier::I32 => vector.extend(tiles.rows(*v).data[..columns].iter().map(|&x| T::from_i32(x))),
                }
            }
            if inner { Source::PerColumn } else { Source::PerRow }
        }
        Leaf::Tile(v, ElementKind::Single) => {
            let x = match (in_place(*v), tiles.tile(*v).carrier) {
                (None, _) => tiles.element(*v, 0, 0),
                // A result of one element may take the place of an operand of one element.
                (Some(own), Carrier::F32) => T::from_f32(own.get()[0]),
                (Some(own), Carrier::F64) => T::from_f64(own.get()[0]),
                (Some(own), Carrier::I32) => T::from_i32(own.get()[0]),
            };
            if row {
                vector.push(x);
                return Source::PerRow;
            }
            Source::Same(x)
        }
        Leaf::Position(axis, kind) => {
            let window = window(*axis);
            let positions = window.base..window.base + window.len;
            match kind {
                ElementKind::Single => return Source::Same(T::from_f64(window.base as f64)),
                ElementKind::Outer | ElementKind::Inner | ElementKind::Full => {
                    vector.extend(positions.map(|p| T::from_f64(p as f64)));
                }
            }
            if *kind == ElementKind::Outer { Source::PerRow } else { Source::PerColumn }
        }
        Leaf::Within(predicate) => Source::Holds(live(tiles, dst, predicate)),
        Leaf::Differences(_) => Source::Diagonals,
    }
}

/// Where a predicate holds in a tile.
pub(super) fn live(tiles: Tiles<'_>, tile: Tile, predicate: &Predicate) -> Live {
    let conjunct = |affine: &einloom_tile::Affine| {
        let mut out = [0, 0, affine.constant];
        for &(c, axis) in &affine.terms {
            out[2] += c * tiles.windows[axis.at()].base as i64;
            out[0] += if tile.outer == Some(axis) { c } else { 0 };
            out[1] += if tile.inner == Some(axis) { c } else { 0 };
        }
        out
    };
    Live::new(predicate.all.iter().map(conjunct).collect(), lengths(tile, tiles.windows).1)
}

/// Sets `out[c]` to whether the predicate holds in row `row` at column `first + c`.
#[inline(always)]
pub(super) fn holds<T: Real>(live: &Live, row: usize, first: usize, out: &mut [T]) {
    let live = live.row(row);
    let [low, high] = [live.start, live.end].map(|end| end.saturating_sub(first).min(out.len()));
    out[..low].fill(T::default());
    out[low..high].fill(T::ONE);
    out[high..].fill(T::default());
}
