//! Contractions of tiles.

use super::place::{Rows, pitch};
use super::worker::Worker;
use crate::compile::{Carrier, Product};
use crate::kernels::contract::{Contraction, Dots, Element, Start};
use bytemuck::Pod;
use einloom_tile::{AxisId, ValueId};

impl Worker<'_> {
    pub(super) fn contract(
        &mut self,
        dst: ValueId,
        factors: [ValueId; 2],
        start: Option<ValueId>,
        sum: AxisId,
        product: Product,
    ) {
        match self.job.plan.tiles[dst.at()].carrier {
            Carrier::F32 => self.contract_as::<f32>(dst, factors, start, sum, product),
            Carrier::F64 => self.contract_as::<f64>(dst, factors, start, sum, product),
            Carrier::I32 => self.contract_as::<i32>(dst, factors, start, sum, product),
        }
    }

    fn contract_as<T: Element + Pod>(
        &mut self,
        dst: ValueId,
        [left, right]: [ValueId; 2],
        start: Option<ValueId>,
        sum: AxisId,
        product: Product,
    ) {
        let tile = self.job.plan.tiles[dst.at()];
        let mut target = std::mem::take(&mut self.arena.slots[tile.slot]);
        let tiles = self.tiles();
        let (m, n) = tiles.lengths(dst);
        let k = self.windows[sum.at()].len;
        let c_i = pitch(n);
        let c = target.get_mut::<T>(m * c_i);
        let (a, b) = (tiles.rows::<T>(left), tiles.rows::<T>(right));
        // The tile whose buffer was taken is the one that the result replaces.
        let start = match start {
            None => Start::Zero,
            Some(v) if tiles.is_in(v, tile.slot) => Start::Kept,
            Some(v) => {
                let Rows { data, pitch } = tiles.rows::<T>(v);
                Start::From(data, pitch)
            }
        };
        match product {
            Product::Broadcast => {
                let l = tiles.tile(left);
                let (a_i, a_k) = match (l.inner == Some(sum), l.outer) {
                    (true, None) => (0, 1),
                    (true, Some(_)) => (a.pitch, 1),
                    (false, _) => (1, a.pitch),
                };
                let job = Contraction { m, n, k, a: a.data, a_i, a_k, b: b.data, b_k: b.pitch, c, c_i, start };
                job.run(self.job.token);
            }
            Product::Dot => {
                let start = match start {
                    Start::From(data, pitch) => {
                        for i in 0..m {
                            c[i * c_i..][..n].copy_from_slice(&data[i * pitch..][..n]);
                        }
                        Start::Kept
                    }
                    other => other,
                };
                let job = Dots { m, n, k, a: a.data, a_i: a.pitch, b: b.data, b_j: b.pitch, c, c_i, c_j: 1, start };
                job.run(self.job.token);
            }
        }
        self.arena.slots[tile.slot] = target;
        self.places[dst.at()] = super::place::Place::Slot;
    }
}
