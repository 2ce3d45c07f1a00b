//! Where a tile's elements are in memory.

use super::Tile;
use einloom_tile::{AxisId, Coord, CoordAtom, TensorDecl, ValueId};

/// The coordinates of a tile's elements, sorted by what they depend on.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// One per dimension of the tensor.
    pub dimensions: Vec<Dimension>,
    /// Integer tiles that coordinates are read from.
    pub tiles: Vec<ValueId>,
}

/// One coordinate: `offset + Σ c · position(axis) + irregular terms`.
#[derive(Clone, Debug)]
pub(crate) struct Dimension {
    /// Elements in memory from one coordinate to the next.
    pub stride: usize,
    /// Number of coordinates.
    pub size: usize,
    pub offset: i64,
    /// Every axis with its coefficient, the tile's own included: what counts is where their windows begin.
    pub axes: Vec<(i64, AxisId)>,
    /// Coefficient of the tile's outer axis.
    pub outer: i64,
    /// Coefficient of the tile's inner axis.
    pub inner: i64,
    /// Divisions and gathers.
    pub irregular: Vec<(i64, CoordAtom)>,
    /// An irregular term varies along the tile's outer axis.
    pub bends_outer: bool,
    /// An irregular term varies along the tile's inner axis.
    pub bends_inner: bool,
}

/// Where elements are picked from a tile: see [`einloom_tile::Op::Pick`].
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub axis: AxisId,
    /// The position along the axis. It has no memory of its own, and so no stride.
    pub at: Dimension,
    /// Integer tiles that it is read from.
    pub tiles: Vec<ValueId>,
    /// Elements whose position the axis does not have.
    pub fill: f64,
}

impl Picked {
    /// Sorts the positions `at` of `tile`'s elements along an axis so long.
    pub(super) fn new(axis: (AxisId, usize), at: &Coord, fill: f64, tile: Tile, tiles: &[Tile]) -> Self {
        let mut gathers = vec![];
        gather_tiles(at, &mut gathers);
        Self { axis: axis.0, at: Dimension::new(at, axis.1, 0, tile, tiles), tiles: gathers, fill }
    }
}

impl Access {
    /// Sorts the coordinates `at` of `tile`'s elements in `tensor`; `tiles` says which axes a tile has.
    pub(super) fn new(at: &[Coord], tensor: &TensorDecl, tile: Tile, tiles: &[Tile]) -> Self {
        let mut dimensions: Vec<Dimension> = vec![];
        let mut gathers = vec![];
        for ((coord, &size), stride) in at.iter().zip(&tensor.dims).zip(tensor.strides()) {
            dimensions.push(Dimension::new(coord, size, stride, tile, tiles));
            gather_tiles(coord, &mut gathers);
        }
        Self { dimensions, tiles: gathers }
    }
}

impl Access {
    /// Elements in memory from row to row of the tile.
    pub(crate) fn outer(&self) -> i64 {
        self.dimensions.iter().map(|d| d.outer * d.stride as i64).sum()
    }

    /// Elements in memory along a row of the tile.
    pub(crate) fn inner(&self) -> i64 {
        self.dimensions.iter().map(|d| d.inner * d.stride as i64).sum()
    }

    /// Whether the rows are adjacent elements.
    pub(super) fn is_adjacent(&self) -> bool {
        self.inner() == 1 && self.outer() >= 0 && self.dimensions.iter().all(|d| !d.bends_outer && !d.bends_inner)
    }

    /// Whether rows are so far apart that many of them compete for the same few lines of the caches.
    pub(super) fn competes(&self, bytes: i64) -> bool {
        self.outer() * bytes % 2048 == 0
    }
}

impl Dimension {
    fn new(coord: &Coord, size: usize, stride: usize, tile: Tile, tiles: &[Tile]) -> Self {
        let mut out = Self {
            stride,
            size,
            offset: coord.offset,
            axes: vec![],
            outer: 0,
            inner: 0,
            irregular: vec![],
            bends_outer: false,
            bends_inner: false,
        };
        for (c, atom) in &coord.terms {
            if let CoordAtom::Axis(axis) = atom {
                out.axes.push((*c, *axis));
                if Some(*axis) == tile.outer {
                    out.outer += c;
                }
                if Some(*axis) == tile.inner {
                    out.inner += c;
                }
            } else {
                out.bends_outer |= tile.outer.is_some_and(|a| varies(atom, a, tiles));
                out.bends_inner |= tile.inner.is_some_and(|a| varies(atom, a, tiles));
                out.irregular.push((*c, atom.clone()));
            }
        }
        out
    }
}

fn varies(atom: &CoordAtom, axis: AxisId, tiles: &[Tile]) -> bool {
    match atom {
        CoordAtom::Axis(a) => *a == axis,
        CoordAtom::Floor(inner, _) => inner.terms.iter().any(|t| varies(&t.1, axis, tiles)),
        CoordAtom::Tile(v) => {
            let tile = tiles[v.at()];
            tile.outer == Some(axis) || tile.inner == Some(axis)
        }
    }
}

fn gather_tiles(coord: &Coord, out: &mut Vec<ValueId>) {
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(_) => {}
            CoordAtom::Floor(inner, _) => gather_tiles(inner, out),
            CoordAtom::Tile(v) => out.push(*v),
        }
    }
}
