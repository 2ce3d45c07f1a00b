//! The rules for loads and stores: coordinates, static bounds, and stores that would race.

use super::body::Walk;
use super::scalars::single;
use crate::{AxisId, AxisKind, Coord, CoordAtom, TensorId, ValueId, Window, grid_steps, stream_range};
use std::collections::BTreeSet;

impl Walk<'_> {
    pub(super) fn load(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], filled: bool) {
        let sound = self.coordinates(dst, tensor, at);
        if sound && !filled {
            self.in_bounds(tensor, at);
        }
    }

    pub(super) fn store(&mut self, src: ValueId, tensor: TensorId, at: &[Coord]) {
        if at.iter().any(gathers) {
            self.fault("a store's coordinates depend on data".to_string());
        } else if self.coordinates(src, tensor, at) {
            self.in_bounds(tensor, at);
            self.no_race(src, tensor, at);
        }
    }

    /// Number of coordinates, and what they may mention. True if they can be looked at further.
    fn coordinates(&mut self, tile: ValueId, tensor: TensorId, at: &[Coord]) -> bool {
        let Some(decl) = self.program.tensors.get(tensor.at()) else {
            self.fault(format!("tensor {} is not declared", tensor.0));
            return false;
        };
        if at.len() != decl.dims.len() {
            self.fault(format!("`{}` has {} dimensions, not {}", decl.name, decl.dims.len(), at.len()));
            return false;
        }
        let mut ok = true;
        for coord in at {
            ok &= self.coordinate(tile, coord);
        }
        ok
    }

    /// What a coordinate of a tile's elements may mention. True if it can be looked at further.
    pub(super) fn coordinate(&mut self, tile: ValueId, coord: &Coord) -> bool {
        let mut ok = true;
        for (_, atom) in &coord.terms {
            match atom {
                CoordAtom::Axis(axis) if axis.at() >= self.kernel.axes.len() => ok = self.open(*axis),
                CoordAtom::Axis(axis) => self.position(*axis, tile),
                CoordAtom::Floor(numerator, denominator) => {
                    ok &= self.coordinate(tile, numerator);
                    if *denominator <= 0 {
                        self.fault(format!("a coordinate is divided by {denominator}, which is not positive"));
                        ok = false;
                    }
                }
                CoordAtom::Tile(ids) if self.read(*ids) => {
                    ok &= self.broadcasts(*ids, tile);
                    if !self.kernel.value(*ids).dtype.is_integer() {
                        self.fault(format!("`{}` is used as a coordinate but is no integer", self.value_name(*ids)));
                        ok = false;
                    }
                }
                CoordAtom::Tile(_) => ok = false,
            }
        }
        ok
    }

    /// Every coordinate that does not depend on data lies in the tensor, wherever the loops can stand.
    fn in_bounds(&mut self, tensor: TensorId, at: &[Coord]) {
        let Some(positions) = self.positions() else { return };
        let mut mentioned = BTreeSet::new();
        at.iter().for_each(|coord| axes_of(coord, &mut mentioned));
        if mentioned.iter().any(|a| positions[a.at()].len == 0) {
            // The tile has no elements.
            return;
        }
        let decl = &self.program.tensors[tensor.at()];
        for (coord, &dim) in at.iter().zip(&decl.dims) {
            let mut axes = BTreeSet::new();
            axes_of(coord, &mut axes);
            if gathers(coord) || self.related(&axes) {
                continue;
            }
            let (low, high) = range(coord, &positions);
            if low < 0 || high >= dim as i128 {
                let text = format!("a coordinate of `{}` runs over {low}..={high}, outside 0..{dim}", decl.name);
                self.fault(text);
            }
        }
    }

    /// Where each axis can stand, or nothing if some loop here has no steps. Axes closed here have no positions.
    fn positions(&self) -> Option<Vec<Window>> {
        let kernel = self.kernel;
        let standing = |axis: &crate::Axis| if axis.kind == AxisKind::Stream { 0 } else { axis.extent };
        let mut out: Vec<Window> = kernel.axes.iter().map(|a| Window { base: 0, len: standing(a) }).collect();
        if kernel.axes.iter().any(|a| a.kind == AxisKind::Grid && a.extent == 0) {
            return None;
        }
        for &(axis, within) in &self.streams {
            let decl = kernel.axis(axis);
            let (low, high) = stream_range(decl.extent, axis, within, &out);
            if low >= high {
                return None;
            }
            let base = low - low % decl.tile;
            out[axis.at()] = Window { base, len: high - base };
        }
        Some(out)
    }

    /// Whether an enclosing stream relates two of these axes to each other, so that their ranges say too little.
    fn related(&self, axes: &BTreeSet<AxisId>) -> bool {
        let conditions = self.streams.iter().flat_map(|s| &s.1.all);
        conditions.into_iter().any(|c| c.terms.iter().filter(|t| axes.contains(&t.1)).count() > 1)
    }

    /// No two points of the grid, and no two elements of the tile, write to the same element: the coordinates
    /// determine every grid axis and both of the tile's axes.
    fn no_race(&mut self, src: ValueId, tensor: TensorId, at: &[Coord]) {
        let kernel = self.kernel;
        let mut known = BTreeSet::new();
        loop {
            let before = known.len();
            for coord in at {
                self.determined(coord, &mut known);
            }
            if known.len() == before {
                break;
            }
        }
        let name = &self.program.tensors[tensor.at()].name;
        for &axis in &kernel.grid {
            if grid_steps(kernel.axis(axis)) > 1 && !known.contains(&axis) {
                let axis = self.axis_name(axis);
                self.fault(format!("writes to `{name}` race: its coordinates do not determine grid axis `{axis}`"));
            }
        }
        for axis in self.sides(src) {
            let moves = kernel.axis(axis).kind == AxisKind::Grid && grid_steps(kernel.axis(axis)) > 1;
            if !moves && !single(kernel, axis) && !known.contains(&axis) {
                let axis = self.axis_name(axis);
                self.fault(format!("writes to `{name}` overlap: its coordinates do not determine axis `{axis}`"));
            }
        }
    }

    /// Adds the axes that this coordinate's value determines once those in `known` are: all of them, if the
    /// others' terms are digits of a mixed-radix number (each step is longer than all smaller ones together).
    fn determined(&self, coord: &Coord, known: &mut BTreeSet<AxisId>) {
        let mut digits = vec![];
        for (c, atom) in &coord.terms {
            match atom {
                CoordAtom::Axis(a) if known.contains(a) => {}
                CoordAtom::Axis(a) => digits.push((i128::from(*c).abs(), *a)),
                _ => return,
            }
        }
        digits.sort_unstable();
        let mut reach = 0;
        for &(step, axis) in &digits {
            if step <= reach {
                return;
            }
            reach += step * (self.kernel.axis(axis).extent as i128 - 1).max(0);
        }
        known.extend(digits.iter().map(|d| d.1));
    }
}

/// Smallest and largest value, each axis on its own.
fn range(coord: &Coord, positions: &[Window]) -> (i128, i128) {
    let (mut low, mut high) = (i128::from(coord.offset), i128::from(coord.offset));
    for (c, atom) in &coord.terms {
        let c = i128::from(*c);
        let (first, last) = match atom {
            CoordAtom::Axis(a) => {
                let w = positions[a.at()];
                (w.base as i128, (w.base + w.len) as i128 - 1)
            }
            CoordAtom::Floor(numerator, d) => {
                let (first, last) = range(numerator, positions);
                (first.div_euclid(i128::from(*d)), last.div_euclid(i128::from(*d)))
            }
            CoordAtom::Tile(_) => (0, 0),
        };
        low += (c * first).min(c * last);
        high += (c * first).max(c * last);
    }
    (low, high)
}

fn axes_of(coord: &Coord, out: &mut BTreeSet<AxisId>) {
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(a) => {
                out.insert(*a);
            }
            CoordAtom::Floor(numerator, _) => axes_of(numerator, out),
            CoordAtom::Tile(_) => {}
        }
    }
}

fn gathers(coord: &Coord) -> bool {
    coord.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Axis(_) => false,
        CoordAtom::Floor(numerator, _) => gathers(numerator),
        CoordAtom::Tile(_) => true,
    })
}
