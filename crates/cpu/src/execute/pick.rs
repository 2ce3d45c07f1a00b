//! Elements picked from a tile along one axis.

use super::load::{At, valid};
use super::place::{Place, pitch};
use super::worker::Worker;
use crate::compile::{Carrier, Picked};
use bytemuck::Pod;
use einloom_cascade::numeric::round;
use einloom_tile::{AxisId, ValueId};

impl Worker<'_> {
    /// See [`einloom_tile::Op::Pick`].
    pub(super) fn pick(&mut self, dst: ValueId, src: ValueId, picked: &Picked) {
        let tile = self.job.plan.tiles[dst.at()];
        let fill = round(tile.dtype, picked.fill);
        match tile.carrier {
            Carrier::F32 => self.pick_as(dst, src, picked, fill as f32),
            Carrier::F64 => self.pick_as(dst, src, picked, fill),
            Carrier::I32 => self.pick_as(dst, src, picked, fill as i32),
        }
    }

    fn pick_as<T: Pod>(&mut self, dst: ValueId, src: ValueId, picked: &Picked, fill: T) {
        let tile = self.job.plan.tiles[dst.at()];
        let mut target = std::mem::take(&mut self.arena.slots[tile.slot]);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(dst);
        let (from, source) = (tiles.rows::<T>(src), tiles.tile(src));
        // From position to position along the axis, and along the source's other axis.
        let (step, other, beside) = match source.inner == Some(picked.axis) {
            true => (1, source.outer, from.pitch),
            false => (from.pitch, source.inner, 1),
        };
        let along = |axis: Option<AxisId>| if axis.is_some() && axis == other { beside } else { 0 };
        let (down, across) = (along(tile.outer), along(tile.inner));
        let (at, pitch) = (&picked.at, pitch(columns));
        let to = target.get_mut::<T>(rows * pitch);
        for row in 0..rows {
            let line = &mut to[row * pitch..][..columns];
            // Runs of elements whose positions are a step apart: whole rows, or single elements of bent rows.
            let run = if at.bends_inner { 1 } else { columns.max(1) };
            for (number, line) in line.chunks_mut(run).enumerate() {
                let column = number * run;
                let x = self.coordinate(at, tile, At { row, column });
                let (low, high) = valid(x, if at.bends_inner { 0 } else { at.inner }, line.len(), at.size);
                line[..low].fill(fill);
                line[high..].fill(fill);
                if low < high {
                    let first = (x + at.inner * low as i64) as usize * step + row * down + (column + low) * across;
                    let steps = at.inner * step as i64 + across as i64;
                    copy(&mut line[low..high], from.data, first, steps);
                }
            }
        }
        self.arena.slots[tile.slot] = target;
        self.places[dst.at()] = Place::Slot;
    }
}

/// `to[k] = from[first + k * step]`.
fn copy<T: Pod>(to: &mut [T], from: &[T], first: usize, step: i64) {
    match step {
        0 => to.fill(from[first]),
        1 => to.copy_from_slice(&from[first..][..to.len()]),
        _ => {
            let mut at = first as i64;
            for x in to {
                *x = from[at as usize];
                at += step;
            }
        }
    }
}
