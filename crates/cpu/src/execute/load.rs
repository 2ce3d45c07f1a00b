//! Loads of tiles.

use super::arena::Buffer;
use super::convert::{Block, load};
use super::place::{Place, lengths, pitch};
use super::worker::Worker;
use crate::RunError;
use crate::compile::{Access, Carrier, Dimension, Tile, Viewable};
use crate::kernels::contract::Matrix;
use einloom_cascade::DType;
use einloom_cascade::numeric::round;
use einloom_tile::{AxisId, Coord, CoordAtom, TensorId, ValueId};

/// How far a block of rows reaches: first and last coordinate in one dimension.
fn reach(dimension: &Dimension, base: i64, rows: usize, columns: usize) -> (i64, i64) {
    let outer = dimension.outer * (rows as i64 - 1);
    let inner = dimension.inner * (columns as i64 - 1);
    (base + outer.min(0) + inner.min(0), base + outer.max(0) + inner.max(0))
}

/// The loop variables that lead to one element.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    column: usize,
}

impl<'a> Worker<'a> {
    pub(super) fn load(
        &mut self,
        dst: ValueId,
        tensor: TensorId,
        access: &Access,
        fill: Option<f64>,
        (view, ahead): (Viewable, bool),
    ) -> Result<(), RunError> {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, columns) = self.tiles().lengths(dst);
        self.places[dst.at()] = Place::Slot;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let loaded = if let Some(block) = self.block(tile, access) {
            let (start, outer) = (block.start as usize, block.outer as usize);
            match view {
                Viewable::Near if is_adjacent(block) && !competes(block, tile.carrier.bytes()) => {
                    self.places[dst.at()] = Place::View(tensor, start, outer);
                }
                Viewable::Rows if stays_near(block, tile.carrier.bytes()) => {
                    self.places[dst.at()] = Place::View(tensor, start, outer);
                }
                Viewable::Encoded if stays_near(block, 2) => {
                    self.places[dst.at()] = Place::Encoded(tensor, start, outer)
                }
                _ if ahead => self.load_ahead(dst, tensor, access, block),
                _ => self.load_block(tile, tensor, block),
            }
            Ok(rows * columns)
        } else {
            self.load_rows(dst, tensor, access, fill)
        };
        self.loaded[tensor.at()] += (loaded? * self.job.program.tensor(tensor).dtype.bytes()) as u64;
        Ok(())
    }

    /// The tile's elements in memory, if they all exist and the steps between them are the same everywhere.
    fn block(&mut self, tile: Tile, access: &Access) -> Option<Block> {
        let (rows, columns) = lengths(tile, &self.windows);
        let bends = |d: &Dimension| d.bends_outer || d.bends_inner;
        let mut base = std::mem::take(&mut self.arena.coordinates);
        base.clear();
        let start = At { row: 0, column: 0 };
        base.extend(access.dimensions.iter().map(|d| if bends(d) { 0 } else { self.coordinate(d, tile, start) }));
        let inside = |(d, &x): (&Dimension, &i64)| {
            let (low, high) = reach(d, x, rows, columns);
            !bends(d) && low >= 0 && high < d.size as i64
        };
        let regular = access.dimensions.iter().zip(&base).all(inside);
        let sum = |f: &dyn Fn((&Dimension, &i64)) -> i64| access.dimensions.iter().zip(&base).map(f).sum::<i64>();
        let block = regular.then(|| Block {
            start: sum(&|(d, &x)| x * d.stride as i64),
            outer: sum(&|(d, _)| d.outer * d.stride as i64),
            inner: sum(&|(d, _)| d.inner * d.stride as i64),
            rows,
            columns,
            to: 0,
            pitch: pitch(columns),
        });
        self.arena.coordinates = base;
        block
    }

    /// Loads a tile that a contraction may have copied in passing, and leaves the next chunk's to the contractions to
    /// come.
    fn load_ahead(&mut self, dst: ValueId, tensor: TensorId, access: &Access, block: Block) {
        let tile = self.job.plan.tiles[dst.at()];
        let copied = self
            .matrix(tensor, tile, block)
            .and_then(|matrix| self.ahead.as_mut()?.take(dst.at(), matrix, block.pitch))
            .map(Buffer::of);
        let spare = match copied {
            Some(copied) => std::mem::replace(&mut self.arena.slots[tile.slot], copied),
            None => {
                self.load_block(tile, tensor, block);
                self.arena.spare.pop().unwrap_or_default()
            }
        };
        let next = self.next.and_then(|(axis, window)| {
            let here = std::mem::replace(&mut self.windows[axis.at()], window);
            let next = self.block(tile, access);
            self.windows[axis.at()] = here;
            next
        });
        match next.and_then(|next| Some((self.matrix(tensor, tile, next)?, next.pitch))) {
            Some((matrix, pitch)) => {
                self.ahead.get_or_insert_default().want(dst.at(), matrix, spare.into_lines(), pitch)
            }
            None => self.arena.spare.push(spare),
        }
    }

    /// The block as one that can be copied in passing.
    fn matrix(&self, tensor: TensorId, tile: Tile, block: Block) -> Option<Matrix<'a>> {
        let (from, shared) = (self.job.program.tensor(tensor).dtype, &self.job.tensors[tensor.at()]);
        let (start, pitch) = (usize::try_from(block.start).ok()?, usize::try_from(block.outer).ok()?);
        let lengths = [block.rows, block.columns];
        if block.inner != 1 {
            return None;
        }
        match (from, tile.dtype) {
            (DType::F32, DType::F32) => Matrix::f32(shared.elements(), start, lengths, pitch),
            (DType::Bf16, DType::F32 | DType::Bf16) => Matrix::bf16(shared.elements(), start, lengths, pitch),
            _ => None,
        }
    }

    fn load_block(&mut self, tile: Tile, tensor: TensorId, block: Block) {
        let from = self.job.program.tensor(tensor).dtype;
        let slot = &mut self.arena.slots[tile.slot];
        load(self.job.token, &self.job.tensors[tensor.at()], from, slot, tile.dtype, block);
    }

    /// Row by row, each as far as it lies inside the tensor; the number of elements that do.
    fn load_rows(
        &mut self,
        dst: ValueId,
        tensor: TensorId,
        access: &Access,
        fill: Option<f64>,
    ) -> Result<usize, RunError> {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, columns) = self.tiles().lengths(dst);
        let pitch = pitch(columns);
        if let Some(x) = fill {
            self.fill(tile, rows * pitch, x);
        }
        let step = access.dimensions.iter().map(|d| d.inner * d.stride as i64).sum();
        let bent = access.dimensions.iter().any(|d| d.bends_inner);
        let mut loaded = 0;
        for row in 0..rows {
            // Runs of elements that a step apart reach: whole rows, or single elements of bent rows.
            let mut column = 0;
            while column < columns {
                let at = At { row, column };
                let mut end = if bent { column + 1 } else { columns };
                let mut first = column;
                let mut start = 0;
                for (number, d) in access.dimensions.iter().enumerate() {
                    let x = self.coordinate(d, tile, at);
                    let (low, high) = valid(x, if bent { 0 } else { d.inner }, end - column, d.size);
                    if fill.is_none() && (low > 0 || high < end - column) {
                        let bad = if low > 0 { 0 } else { high };
                        let at = At { row, column: column + bad };
                        return Err(self.out_of_range(tensor, number, d, tile, at));
                    }
                    first = first.max(column + low);
                    end = end.min(column + high);
                    start += x * d.stride as i64;
                }
                if first < end {
                    let start = start + step * (first - column) as i64;
                    let to = row * pitch + first;
                    let block = Block { start, outer: 0, inner: step, rows: 1, columns: end - first, to, pitch };
                    self.load_block(tile, tensor, block);
                    loaded += end - first;
                }
                column = if bent { column + 1 } else { columns };
            }
        }
        Ok(loaded)
    }

    fn fill(&mut self, tile: Tile, len: usize, x: f64) {
        let x = round(tile.dtype, x);
        let slot = &mut self.arena.slots[tile.slot];
        match tile.carrier {
            Carrier::F32 => slot.get_mut::<f32>(len)[..len].fill(x as f32),
            Carrier::F64 => slot.get_mut::<f64>(len)[..len].fill(x),
            Carrier::I32 => slot.get_mut::<i32>(len)[..len].fill(x as i32),
        }
    }

    /// The coordinate of an element of the tile.
    fn coordinate(&self, d: &Dimension, tile: Tile, at: At) -> i64 {
        let mut x = d.offset + d.outer * at.row as i64 + d.inner * at.column as i64;
        for &(c, axis) in &d.axes {
            x += c * self.windows[axis.at()].base as i64;
        }
        for (c, atom) in &d.irregular {
            x += c * self.atom(atom, tile, at);
        }
        x
    }

    fn atom(&self, atom: &CoordAtom, tile: Tile, at: At) -> i64 {
        match atom {
            CoordAtom::Axis(axis) => (self.windows[axis.at()].base + steps(tile, *axis, at)) as i64,
            CoordAtom::Floor(inner, d) => {
                let Coord { terms, offset } = &**inner;
                let sum = terms.iter().map(|(c, atom)| c * self.atom(atom, tile, at)).sum::<i64>();
                (offset + sum).div_euclid(*d)
            }
            CoordAtom::Tile(v) => {
                let tiles = self.tiles();
                let source = tiles.tile(*v);
                let along = |axis: Option<AxisId>| axis.map_or(0, |a| steps(tile, a, at));
                tiles.element::<f64>(*v, along(source.outer), along(source.inner)) as i64
            }
        }
    }

    fn out_of_range(&self, tensor: TensorId, dimension: usize, d: &Dimension, tile: Tile, at: At) -> RunError {
        let position = |axis: AxisId| {
            let name = self.job.plan.kernel.axis(axis).name.clone();
            (name, self.windows[axis.at()].base + steps(tile, axis, at))
        };
        RunError::OutOfRange {
            kernel: self.job.plan.kernel.name.clone(),
            tensor: self.job.program.tensor(tensor).name.clone(),
            dimension,
            coordinate: self.coordinate(d, tile, at),
            size: d.size,
            position: [tile.outer, tile.inner].into_iter().flatten().map(position).collect(),
        }
    }
}

/// How far an element is into the window of an axis.
fn steps(tile: Tile, axis: AxisId, at: At) -> usize {
    if tile.outer == Some(axis) {
        at.row
    } else if tile.inner == Some(axis) {
        at.column
    } else {
        0
    }
}

/// The steps `low..high` of `0..count` for which `x + step * i` lies in `0..size`.
fn valid(x: i64, step: i64, count: usize, size: usize) -> (usize, usize) {
    let (size, count) = (size as i64, count as i64);
    let (low, high) = match step {
        0 if (0..size).contains(&x) => (0, count),
        0 => (0, 0),
        s if s > 0 => ((-x).div_euclid(s) + i64::from((-x).rem_euclid(s) != 0), (size - 1 - x).div_euclid(s) + 1),
        s => ((x - size + 1).div_euclid(-s) + i64::from((x - size + 1).rem_euclid(-s) != 0), x.div_euclid(-s) + 1),
    };
    let low = low.clamp(0, count);
    (low as usize, high.clamp(low, count) as usize)
}

/// Whether a block can be used where it is: its rows are adjacent elements.
fn is_adjacent(block: Block) -> bool {
    (block.inner == 1 || block.columns == 1) && block.outer >= 0
}

/// Whether rows are so far apart that they would all compete for the same few lines of the caches.
fn competes(block: Block, bytes: usize) -> bool {
    block.rows > 8 && block.outer * bytes as i64 % 2048 == 0
}

/// Whether a block that is gone through row by row can be used where it is, and is still near when it is gone through
/// again: its rows follow each other, or are few.
fn stays_near(block: Block, bytes: usize) -> bool {
    is_adjacent(block) && (block.outer == block.columns as i64 || !competes(block, bytes))
}
