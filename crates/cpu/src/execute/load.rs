//! Loads of tiles.

use super::arena::Buffer;
use super::convert::{Block, load};
use super::elementwise::Following;
use super::kept::{KeptTile, Key, LEAST};
use super::place::{Place, lengths, pitch};
use super::worker::Worker;
use crate::RunError;
use crate::compile::{Access, Carrier, Dimension, Keep, Tile, Viewable};
use crate::kernels::contract::{Elements, Layout, Matrix, PackColumns, PackRight, Packed, PackedLeft, panel};
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::memory::{Asked, Line};
use crate::kernels::truths;
use einloom_cascade::DType;
use einloom_cascade::numeric::round;
use einloom_tile::{AxisId, Coord, CoordAtom, TensorId, ValueId, is_whole};

/// How far a block of rows reaches: first and last coordinate in one dimension.
fn reach(dimension: &Dimension, base: i64, rows: usize, columns: usize) -> (i64, i64) {
    let outer = dimension.outer * (rows as i64 - 1);
    let inner = dimension.inner * (columns as i64 - 1);
    (base + outer.min(0) + inner.min(0), base + outer.max(0) + inner.max(0))
}

/// The loop variables that lead to one element.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub row: usize,
    pub column: usize,
}

/// What may become of a tile that is loaded: see [`crate::compile::Step::Load`].
#[derive(Clone, Copy)]
pub(super) struct Loading {
    pub view: Viewable,
    pub ahead: bool,
    pub kept: Keep,
    pub again: bool,
}

/// Rows of truth values that become bits.
struct Bits<'a> {
    bytes: &'a [u8],
    start: i64,
    outer: i64,
    columns: usize,
    to: &'a mut [u32],
}

impl Work for Bits<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        for (row, to) in self.to.chunks_exact_mut(truths::words(self.columns)).enumerate() {
            let from = (self.start + self.outer * row as i64) as usize;
            truths::of_bytes::<I>(&self.bytes[from..][..self.columns], to);
        }
    }
}

impl<'a> Worker<'a> {
    pub(super) fn load(
        &mut self,
        dst: ValueId,
        tensor: TensorId,
        access: &Access,
        fill: Option<f64>,
        Loading { view, ahead, kept, again }: Loading,
    ) -> Result<(), RunError> {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, columns) = self.tiles().lengths(dst);
        self.places[dst.at()] = Place::Slot;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let loaded = if let Some(block) = self.block(tile, access) {
            self.ask_for_following(tile, tensor, access, block);
            let (start, outer) = (block.start as usize, block.outer as usize);
            match view {
                _ if matches!(kept, Keep::Packed(_)) && self.load_kept(dst, tensor, (access, block), (kept, ahead)) => {
                }
                Viewable::Near if is_adjacent(block) && !competes(block, tile.carrier.bytes()) => {
                    self.places[dst.at()] = Place::View(tensor, start, outer);
                }
                Viewable::Rows if stays_near(block, tile.carrier.bytes()) => {
                    self.places[dst.at()] = Place::View(tensor, start, outer);
                }
                Viewable::Bits if is_adjacent(block) => self.load_bits(dst, tensor, block),
                Viewable::Added if is_adjacent(block) => self.places[dst.at()] = Place::View(tensor, start, outer),
                Viewable::Terms if is_adjacent(block) && !competes_behind(block, tile.carrier.bytes()) => {
                    self.places[dst.at()] = Place::View(tensor, start, outer);
                }
                Viewable::Encoded if stays_near(block, 2) || self.job.unit.is_some() && is_adjacent(block) => {
                    self.places[dst.at()] = Place::Encoded(tensor, start, outer)
                }
                Viewable::Once if is_adjacent(block) => {
                    let there = self.job.program.tensor(tensor).dtype;
                    self.places[dst.at()] = match there {
                        DType::Bf16 => Place::Encoded(tensor, start, outer),
                        _ => Place::View(tensor, start, outer),
                    };
                }
                Viewable::Left(parts) if self.job.unit.is_some() => self.load_left((dst, parts), tensor, Some(block)),
                _ if kept != Keep::No && self.load_kept(dst, tensor, (access, block), (kept, ahead)) => {}
                _ if ahead => self.load_ahead(dst, tensor, access, block),
                _ => self.load_block(tile, tensor, block),
            }
            Ok(rows * columns)
        } else {
            let loaded = self.load_rows(dst, tensor, access, fill);
            if let (Viewable::Left(parts), true) = (view, self.job.unit.is_some() && loaded.is_ok()) {
                self.load_left((dst, parts), tensor, None);
            }
            loaded
        };
        let loaded = loaded?;
        let counted = if again { 0 } else { loaded };
        self.loaded[tensor.at()] += (counted * self.job.program.tensor(tensor).dtype.bytes()) as u64;
        Ok(())
    }

    fn load_bits(&mut self, dst: ValueId, tensor: TensorId, block: Block) {
        let Block { start, outer, rows, columns, .. } = block;
        let (slot, words) = (self.job.plan.tiles[dst.at()].slot, truths::words(columns));
        let bytes: &[u8] = self.job.tensors[tensor.at()].elements();
        let to = &mut self.arena.slots[slot].get_mut::<u32>(rows * words)[..rows * words];
        dispatch(self.job.token, Bits { bytes, start, outer, columns, to });
        self.places[dst.at()] = Place::Bits;
    }

    /// Has maps ask for what the tile is at this thread's next point, if rows of it are adjacent and it is another.
    fn ask_for_following(&mut self, tile: Tile, tensor: TensorId, access: &Access, here: Block) {
        if self.streams || self.following.is_empty() || here.inner != 1 {
            return;
        }
        std::mem::swap(&mut self.windows, &mut self.following);
        let next = self.block(tile, access);
        std::mem::swap(&mut self.windows, &mut self.following);
        let Some(next) = next.filter(|next| next.start != here.start) else { return };
        if let (Ok(start), Ok(outer)) = (usize::try_from(next.start), usize::try_from(next.outer)) {
            let size = self.job.program.tensor(tensor).dtype.bytes();
            let bytes: &[u8] = self.job.tensors[tensor.at()].elements();
            let at = bytes.as_ptr().wrapping_add(start * size);
            let asked = Asked::new(at, next.rows, [next.columns * size, outer * size]);
            self.asked.push(Following { asked, size });
        }
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
            outer: access.outer(),
            inner: access.inner(),
            rows,
            columns,
            to: 0,
            pitch: pitch(columns),
        });
        self.arena.coordinates = base;
        block
    }

    /// Finds the tile among those that are kept, or keeps it; false, and nothing done, where there is no room
    /// for it or it is small.
    fn load_kept(
        &mut self,
        dst: ValueId,
        tensor: TensorId,
        (access, block): (&Access, Block),
        (keep, ahead): (Keep, bool),
    ) -> bool {
        let tile = self.job.plan.tiles[dst.at()];
        let panels = keep == Keep::Panels;
        let token = self.job.token;
        let layout = |b: Block| match keep {
            Keep::Packed(parts) => Layout::Packed(Packed::new(parts)),
            _ if panels => Layout::Panels(panel(token)),
            _ => Layout::Rows(b.pitch),
        };
        let size = |b: Block| layout(b).len(b.rows, b.columns) * tile.carrier.bytes();
        let (key, bytes) = (Key::new(dst.at(), block), size(block));
        let kernel = &self.job.plan.kernel;
        let whole = |axis: AxisId| is_whole(kernel.axis(axis), self.windows[axis.at()]);
        // What ends where a condition does is another at the next point, and would not be found again.
        if bytes < LEAST || ![tile.outer, tile.inner].into_iter().flatten().all(whole) {
            return false;
        }
        let number = match self.kept.find(&key) {
            Some(number) => number,
            None if !self.kept.has_room(bytes) => return false,
            None => {
                let mut layout = layout(block);
                let copied = if ahead { self.copied(dst, tensor, block, layout) } else { None };
                let buffer = copied.unwrap_or_else(|| {
                    let mut buffer = self.arena.spare.pop().unwrap_or_default();
                    match &mut layout {
                        Layout::Rows(_) => self.load_into(&mut buffer, tile, tensor, block),
                        Layout::Panels(panel) => self.load_panels((&mut buffer, *panel), tile, tensor, block),
                        Layout::Packed(packed) => match self.packed(tile, tensor, block, *packed, &mut buffer) {
                            Some(done) => *packed = done,
                            None => {
                                self.load_block(tile, tensor, block);
                                std::mem::swap(&mut buffer, &mut self.arena.slots[tile.slot]);
                                layout = Layout::Rows(block.pitch);
                            }
                        },
                    }
                    buffer
                });
                self.kept.keep(key, KeptTile { buffer, layout }, bytes)
            }
        };
        self.places[dst.at()] = Place::Kept(number);
        if ahead && let Some(next) = self.next_block(tile, access) {
            let found = self.kept.find(&Key::new(dst.at(), next));
            if panels {
                let at = found.map(|number| self.kept.tiles()[number].buffer.get::<f32>().as_ptr());
                self.ahead.get_or_insert_default().expect(at);
            }
            if found.is_none() && self.kept.has_room(size(next)) {
                let spare = self.arena.spare.pop().unwrap_or_default();
                let whole = self.next.is_none_or(|(axis, window)| is_whole(self.job.plan.kernel.axis(axis), window));
                self.want(dst, tensor, next, if whole { layout(next) } else { Layout::Rows(next.pitch) }, spare);
            }
        }
        true
    }

    /// Packs the tile as a left factor of the processor's matrix unit, from its slot if it is no block of the tensor; leaves
    /// it in the slot if it holds what cannot be told from the parts.
    fn load_left(&mut self, (dst, parts): (ValueId, usize), tensor: TensorId, block: Option<Block>) {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, terms) = lengths(tile, &self.windows);
        let there = block.and_then(|block| self.matrix(tensor, tile, block));
        if let (None, Some(block)) = (there, block) {
            self.load_block(tile, tensor, block);
        }
        let mut packed = self.arena.spare.pop().unwrap_or_default();
        let (from, between) = match there {
            Some(Matrix { elements, pitch, .. }) => (elements, pitch),
            None => (Elements::F32(self.arena.slots[tile.slot].get()), pitch(terms)),
        };
        let elements = PackedLeft::len([rows, terms], parts);
        let to = packed.lines_mut(elements.div_ceil(size_of::<Line>() / size_of::<f32>()));
        let range = PackedLeft::pack(self.job.token, (from, between), [rows, terms], parts, to);
        if parts == 1 || range.is_all() {
            std::mem::swap(&mut self.arena.slots[tile.slot], &mut packed);
            self.places[dst.at()] = Place::Packed(range);
        } else if let (Some(_), Some(block)) = (there, block) {
            self.load_block(tile, tensor, block);
        }
        self.arena.spare.push(packed);
    }

    /// Packs the tile for the processor's matrix unit; `None` if it holds what cannot be told from the parts.
    fn packed(
        &mut self,
        tile: Tile,
        tensor: TensorId,
        block: Block,
        wanted: Packed,
        to: &mut Buffer,
    ) -> Option<Packed> {
        let (terms, columns, parts) = (block.rows, block.columns, usize::from(wanted.parts));
        if let (1, Some((from, pitch))) = (parts, self.columns(tensor, tile, block)) {
            let to = to.lines_mut(wanted.lines(terms, columns));
            return Some(dispatch(self.job.token, PackColumns { from, pitch, terms, columns, to }));
        }
        // What is narrower than the tile is widened first: it is packed in as many parts as the tile's type has.
        let there = self.matrix(tensor, tile, block).filter(|_| self.job.program.tensor(tensor).dtype == tile.dtype);
        if there.is_none() {
            self.load_block(tile, tensor, block);
        }
        let (from, pitch) = match there {
            Some(Matrix { elements, pitch, .. }) => (elements, pitch),
            None => (Elements::F32(self.arena.slots[tile.slot].get()), block.pitch),
        };
        let to = to.lines_mut(wanted.lines(terms, columns));
        let packed = dispatch(self.job.token, PackRight { from, pitch, terms, columns, parts, to });
        packed.is_all().then_some(packed)
    }

    /// The tile, if a contraction has copied it in passing.
    fn copied(&mut self, dst: ValueId, tensor: TensorId, block: Block, layout: Layout) -> Option<Buffer> {
        let matrix = self.matrix(tensor, self.job.plan.tiles[dst.at()], block)?;
        self.ahead.as_mut()?.take(dst.at(), matrix, layout).map(Buffer::of)
    }

    /// The tile's elements in the stream's next chunk, if there is one and they all exist.
    fn next_block(&mut self, tile: Tile, access: &Access) -> Option<Block> {
        let (axis, window) = self.next?;
        let here = std::mem::replace(&mut self.windows[axis.at()], window);
        let next = self.block(tile, access);
        self.windows[axis.at()] = here;
        next
    }

    /// Has the tile of the next chunk copied in passing, if it can be.
    fn want(&mut self, dst: ValueId, tensor: TensorId, next: Block, layout: Layout, spare: Buffer) {
        match self.matrix(tensor, self.job.plan.tiles[dst.at()], next) {
            Some(matrix) => {
                self.ahead.get_or_insert_default().want(dst.at(), matrix, spare.into_lines(), layout);
            }
            None => {
                self.arena.spare.push(spare);
                self.ask(dst, tensor, next);
            }
        }
    }

    /// Has memory asked for in passing whose rows are the tile's columns: what is not adjacent takes longest to come.
    fn ask(&mut self, dst: ValueId, tensor: TensorId, next: Block) {
        let size = self.job.program.tensor(tensor).dtype.bytes();
        if let (Ok(start), Ok(inner), 1) = (usize::try_from(next.start), usize::try_from(next.inner), next.outer) {
            let bytes: &[u8] = self.job.tensors[tensor.at()].elements();
            let start = bytes.as_ptr().wrapping_add(start * size);
            let run = [next.rows * size, inner * size];
            self.ahead.get_or_insert_default().ask(dst.at(), start, next.columns, run);
        }
    }

    /// Loads a tile that a contraction may have copied in passing, and leaves the next chunk's to the contractions to
    /// come.
    fn load_ahead(&mut self, dst: ValueId, tensor: TensorId, access: &Access, block: Block) {
        let tile = self.job.plan.tiles[dst.at()];
        let spare = match self.copied(dst, tensor, block, Layout::Rows(block.pitch)) {
            Some(copied) => std::mem::replace(&mut self.arena.slots[tile.slot], copied),
            None => {
                self.load_block(tile, tensor, block);
                self.arena.spare.pop().unwrap_or_default()
            }
        };
        match self.next_block(tile, access) {
            Some(next) => self.want(dst, tensor, next, Layout::Rows(next.pitch), spare),
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

    /// The block's columns, as rows of bf16 so far apart, if they lie so.
    fn columns(&self, tensor: TensorId, tile: Tile, block: Block) -> Option<(&'a [u16], usize)> {
        let (from, shared) = (self.job.program.tensor(tensor).dtype, &self.job.tensors[tensor.at()]);
        let (start, pitch) = (usize::try_from(block.start).ok()?, usize::try_from(block.inner).ok()?);
        let len = block.columns.checked_sub(1)?.checked_mul(pitch)?.checked_add(block.rows)?;
        let lies = block.outer == 1 && block.rows > 0 && (from, tile.dtype) == (DType::Bf16, DType::Bf16);
        shared.elements().get(start..start.checked_add(len)?).filter(|_| lies).map(|from| (from, pitch))
    }

    fn load_block(&mut self, tile: Tile, tensor: TensorId, block: Block) {
        let mut slot = std::mem::take(&mut self.arena.slots[tile.slot]);
        self.load_into(&mut slot, tile, tensor, block);
        self.arena.slots[tile.slot] = slot;
    }

    fn load_panels(&self, (buffer, panel): (&mut Buffer, usize), tile: Tile, tensor: TensorId, block: Block) {
        for first in (0..block.columns).step_by(panel) {
            let columns = panel.min(block.columns - first);
            let (start, to) = (block.start + first as i64 * block.inner, block.to + first * block.rows);
            self.load_into(buffer, tile, tensor, Block { start, columns, to, pitch: panel, ..block });
        }
        // The last panel is as wide as the others.
        buffer.get_mut::<f32>(Layout::Panels(panel).len(block.rows, block.columns));
    }

    fn load_into(&self, buffer: &mut Buffer, tile: Tile, tensor: TensorId, block: Block) {
        let from = self.job.program.tensor(tensor).dtype;
        load(self.job.token, &self.job.tensors[tensor.at()], from, buffer, tile.dtype, block);
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
    pub(super) fn coordinate(&self, d: &Dimension, tile: Tile, at: At) -> i64 {
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
pub(super) fn valid(x: i64, step: i64, count: usize, size: usize) -> (usize, usize) {
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

/// Whether rows are so far apart that they would not stay in a second-level cache: there are not as many lines for
/// addresses so far apart.
fn competes_behind(block: Block, bytes: usize) -> bool {
    /// Bytes after which addresses share a set, and lines of a set, of the smaller ones that are about.
    const PERIOD: usize = 64 << 10;
    const WAYS: usize = 16;
    let (step, row) = (block.outer as usize * bytes, block.columns * bytes);
    // The largest power of two that divides the step: rows begin at so many bytes of a period.
    let apart = 1usize << step.trailing_zeros().min(PERIOD.trailing_zeros());
    let reached = PERIOD / apart * row.min(apart);
    block.rows * row > WAYS * reached
}

/// Whether a block that is gone through row by row can be used where it is, and is still near when it is gone through
/// again: its rows follow each other, or are few.
fn stays_near(block: Block, bytes: usize) -> bool {
    is_adjacent(block) && (block.outer == block.columns as i64 || !competes(block, bytes))
}
