//! Copies of tiles.

use super::place::{Place, Rows, pitch};
use super::worker::Worker;
use crate::compile::Carrier;
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::transpose;
use bytemuck::Pod;
use einloom_tile::ValueId;

/// Side of the blocks in which matrices are transposed.
const BLOCK: usize = transpose::SIDE;

/// `to[j, i] = from[i, j]`.
pub(super) struct Transpose<'a, T> {
    pub rows: usize,
    pub columns: usize,
    pub from: Rows<'a, T>,
    pub to: &'a mut [T],
    /// Elements from row to row of `to`.
    pub pitch: usize,
}

impl<T: Pod + Default> Work for Transpose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { rows, columns, from, to, pitch } = self;
        for i0 in (0..rows).step_by(BLOCK) {
            let height = BLOCK.min(rows - i0);
            for j0 in (0..columns).step_by(BLOCK) {
                let width = BLOCK.min(columns - j0);
                let whole = height == BLOCK && width == BLOCK;
                if whole
                    && transpose::block::<I, T>(
                        &from.data[i0 * from.pitch + j0..],
                        from.pitch,
                        &mut to[j0 * pitch + i0..],
                        pitch,
                    )
                {
                    continue;
                }
                let mut block = [[T::default(); BLOCK]; BLOCK];
                for (i, line) in block.iter_mut().enumerate().take(height) {
                    let source = &from.data[(i0 + i) * from.pitch + j0..][..width];
                    if let Ok(source) = <&[T; BLOCK]>::try_from(source) {
                        *line = *source;
                    } else {
                        line[..width].copy_from_slice(source);
                    }
                }
                for j in 0..width {
                    let column: [T; BLOCK] = std::array::from_fn(|i| block[i][j]);
                    let target = &mut to[(j0 + j) * pitch + i0..][..height];
                    if let Ok(target) = <&mut [T; BLOCK]>::try_from(&mut *target) {
                        *target = column;
                    } else {
                        target.copy_from_slice(&column[..height]);
                    }
                }
            }
        }
    }
}

impl Worker<'_> {
    /// `dst` is `src` with inner and outer axis exchanged.
    pub(super) fn relayout(&mut self, dst: ValueId, src: ValueId) {
        match self.job.plan.tiles[dst.at()].carrier {
            Carrier::F64 => self.relayout_as::<f64>(dst, src),
            // Only moved: what the bits mean does not matter.
            Carrier::F32 | Carrier::I32 => self.relayout_as::<f32>(dst, src),
        }
    }

    fn relayout_as<T: Pod + Default>(&mut self, dst: ValueId, src: ValueId) {
        let slot = self.job.plan.tiles[dst.at()].slot;
        let mut target = std::mem::take(&mut self.arena.slots[slot]);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        let pitch = pitch(rows);
        let to = target.get_mut::<T>(columns * pitch);
        dispatch(self.job.token, Transpose { rows, columns, from: tiles.rows::<T>(src), to, pitch });
        self.arena.slots[slot] = target;
        self.places[dst.at()] = Place::Slot;
    }

    /// `dst` gets the elements of `src`, which has the same axes; their number types may differ.
    pub(super) fn copy(&mut self, dst: ValueId, src: ValueId) {
        let (to, from) = (self.job.plan.tiles[dst.at()], self.job.plan.tiles[src.at()]);
        if to.dtype == from.dtype {
            match to.carrier {
                Carrier::F64 => self.copy_as::<f64>(dst, src),
                Carrier::F32 | Carrier::I32 => self.copy_as::<f32>(dst, src),
            }
            return;
        }
        let mut target = std::mem::take(&mut self.arena.slots[to.slot]);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        for r in 0..rows {
            let element = |c| einloom_cascade::numeric::round(to.dtype, tiles.element::<f64>(src, r, c));
            let at = r * pitch(columns);
            let len = rows * pitch(columns);
            match to.carrier {
                Carrier::F32 => (0..columns).for_each(|c| target.get_mut::<f32>(len)[at + c] = element(c) as f32),
                Carrier::F64 => (0..columns).for_each(|c| target.get_mut::<f64>(len)[at + c] = element(c)),
                Carrier::I32 => (0..columns).for_each(|c| target.get_mut::<i32>(len)[at + c] = element(c) as i32),
            }
        }
        self.arena.slots[to.slot] = target;
        self.places[dst.at()] = Place::Slot;
    }

    fn copy_as<T: Pod>(&mut self, dst: ValueId, src: ValueId) {
        let slot = self.job.plan.tiles[dst.at()].slot;
        if self.tiles().is_in(src, slot) {
            return;
        }
        let mut target = std::mem::take(&mut self.arena.slots[slot]);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        let (from, pitch) = (tiles.rows::<T>(src), pitch(columns));
        let to = target.get_mut::<T>(rows * pitch);
        for r in 0..rows {
            to[r * pitch..][..columns].copy_from_slice(&from.data[r * from.pitch..][..columns]);
        }
        self.arena.slots[slot] = target;
        self.places[dst.at()] = Place::Slot;
    }
}
