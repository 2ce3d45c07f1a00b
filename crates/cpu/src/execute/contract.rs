//! Contractions of tiles.

use super::place::{Place, Rows, Tiles, pitch};
use super::worker::Worker;
use crate::compile::{Carrier, Contract, ElementKind, Fold, Passing, Product};
use crate::kernels::contract::{Contraction, Dots, Element, Layout, Masks, Partly, Scale, Side, Start};
use crate::kernels::fold::{Monoid, Partial, Totals};
use crate::kernels::isa::dispatch;
use crate::kernels::live::Live;
use crate::kernels::unit::Engaged;
use bytemuck::Pod;
use einloom_tile::{Coverage, Predicate, ValueId, coverage};

impl Worker<'_> {
    pub(super) fn contract(&mut self, contract: &Contract) {
        let token = self.job.token;
        match self.job.plan.tiles[contract.dst.at()].carrier {
            Carrier::F32 => {
                let times = Some(contract.times).filter(|x| *x != 1.0);
                if let (Some(unit), Some(parts)) = (self.job.unit, contract.parts) {
                    let mut room = std::mem::take(&mut self.arena.packed);
                    let engaged = self.engaged.take().unwrap_or_else(|| Engaged::new(unit));
                    let mut partials = vec![];
                    let reduced = contract.fold.as_ref().and_then(|p| Some((p, self.reduced(contract.dst, p)?)));
                    let passing = reduced.as_ref().map(|(passing, _)| *passing);
                    let result = reduced.as_ref().and_then(|(_, live)| live.as_ref());
                    if let Some(Passing { fold, .. }) = passing {
                        let (rows, _) = self.tiles().lengths(contract.dst);
                        partials = self.partials(rows, fold.monoid);
                    }
                    let fold = passing.map(|p| (p.fold.monoid, &mut partials[..]));
                    let left = self.live[contract.left.at()].take();
                    let unread = passing.is_some_and(|p| p.only);
                    let partly = Partly { left: left.as_ref(), result, unread };
                    self.contract_as::<f32>(contract, times, |job, _, codes| match codes {
                        Some(Rows { data, pitch }) => {
                            let job = Contraction { a_i: pitch, a_k: 1, ..job };
                            job.run_tiles(Some(data), &engaged, parts, &mut room, fold, partly);
                        }
                        None => job.run_tiles(None, &engaged, parts, &mut room, fold, partly),
                    });
                    self.arena.packed = room;
                    self.engaged = Some(engaged);
                    self.live[contract.left.at()] = left;
                    if let Some(Passing { fold, times, .. }) = passing {
                        self.total(fold, partials, *times);
                    }
                    return;
                }
                let [mut left, result] = self.masks(contract);
                if self.adds_nothing(contract) {
                    left = Some(Live::new(vec![[0, 0, -1]], self.windows[contract.sum.at()].len));
                }
                let masks = Masks { left: left.as_ref(), result: result.as_ref() };
                self.contract_as::<f32>(contract, times, |job, _, _| job.run_but(masks, token));
            }
            Carrier::F64 => self.contract_as::<f64>(contract, None, |job, _, _| job.run(token)),
            Carrier::I32 => self.contract_as::<i32>(contract, None, |job, _, _| job.run(token)),
        }
    }

    /// Whether nothing reads the result here, as the predicates of all its readers tell: then it holds anything.
    pub(super) fn unwanted(&mut self, contract: &Contract) -> bool {
        let nowhere = |p: &Predicate| coverage(p, &self.windows) == Coverage::Empty;
        if !contract.masks.wanted.as_ref().is_some_and(nowhere) {
            return false;
        }
        let (m, n) = self.tiles().lengths(contract.dst);
        self.arena.slots[self.job.plan.tiles[contract.dst.at()].slot].get_mut::<f32>(m * pitch(n));
        self.places[contract.dst.at()] = Place::Slot;
        true
    }

    /// Whether all products are 0: a factor is, and the other one has no infinity.
    fn adds_nothing(&self, contract: &Contract) -> bool {
        if !self.zeros[contract.left.at()] || contract.product != Product::Broadcast {
            return false;
        }
        let tiles = self.tiles();
        let (n, k) = (tiles.lengths(contract.dst).1, self.windows[contract.sum.at()].len);
        let Rows { data, pitch } = tiles.rows::<f32>(contract.right);
        match tiles.layout(contract.right) {
            None => (0..k).all(|term| finite(&data[term * pitch..][..n])),
            // What fills up the last panel may be anything: then nothing is lost but time.
            Some(layout @ (Layout::Panels(_) | Layout::Rows(_))) => finite(&data[..layout.len(k, n)]),
            Some(Layout::Packed(_)) => false,
        }
    }

    /// Gives a reduction its result from partial results of the rows, times a number.
    pub(super) fn total(&mut self, fold: &Fold, partials: Vec<Partial>, times: f32) {
        let mut totals = std::mem::take(&mut self.arena.totals);
        totals.resize(partials.len(), 0.0);
        dispatch(self.job.token, Totals { monoid: fold.monoid, rows: &partials, result: &mut totals });
        if times != 1.0 {
            totals.iter_mut().for_each(|x| *x *= times);
        }
        self.finish(fold, &totals);
        self.arena.totals = totals;
        self.arena.partials.push(partials);
    }

    /// Partial results of so many rows, to begin with.
    pub(super) fn partials(&mut self, rows: usize, monoid: Monoid) -> Vec<Partial> {
        let mut partials = self.arena.partials.pop().unwrap_or_default();
        partials.clear();
        partials.resize(rows, Partial::all(monoid.identity()));
        partials
    }

    /// Runs it by `run`, which is given the tiles besides, and the left factor's elements where they are still bf16.
    pub(super) fn contract_as<T: Element + Pod>(
        &mut self,
        contract: &Contract,
        times: Option<T>,
        run: impl FnOnce(Contraction<'_, '_, T>, Tiles<'_>, Option<Rows<'_, u16>>),
    ) {
        let &Contract { dst, left, right, start, sum, product, scale, apart, ref sides, .. } = contract;
        let packed = if let Place::Packed(range) = self.places[left.at()] { Some(range) } else { None };
        let tile = self.job.plan.tiles[dst.at()];
        let mut target = std::mem::take(&mut self.arena.slots[tile.slot]);
        let mut ahead = self.ahead.take().unwrap_or_default();
        let tiles = self.tiles();
        let (m, n) = tiles.lengths(dst);
        let k = self.windows[sum.at()].len;
        let c_i = pitch(n);
        let c = target.get_mut::<T>(m * c_i);
        let (a, b) = (tiles.rows::<T>(left), tiles.rows::<T>(right));
        // The tile whose buffer was taken is the one that the result replaces.
        let vector = |(v, kind): (ValueId, ElementKind)| match kind {
            ElementKind::Outer => Scale::Rows(tiles.rows::<T>(v).data),
            ElementKind::Inner | ElementKind::Full => Scale::Columns(tiles.rows::<T>(v).data),
            ElementKind::Single => Scale::Same(tiles.rows::<T>(v).data[0]),
        };
        let start = match start {
            None if sides.is_some() => Start::Sides(std::array::from_fn(|number| {
                let side = sides.as_ref()?[number].as_ref()?;
                Some(Side { of: vector((side.of, side.kind)), by: if side.negated { T::MINUS } else { T::ONE } })
            })),
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
                let scale = scale.map_or(if apart { Scale::Apart } else { Scale::One }, vector);
                let job = Contraction {
                    m,
                    n,
                    k,
                    a: a.data,
                    a_i,
                    a_k,
                    b: b.data,
                    b_layout: tiles.layout(right).unwrap_or(Layout::Rows(b.pitch)),
                    c,
                    c_i,
                    start,
                    scale,
                    times,
                    ahead: &mut ahead,
                    packed,
                };
                run(job, tiles, tiles.encoded(left).map(|(_, rows)| rows));
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
        self.ahead = Some(ahead);
        self.arena.slots[tile.slot] = target;
        self.places[dst.at()] = Place::Slot;
    }
}

/// Whether none of these is infinite or no number.
fn finite(all: &[f32]) -> bool {
    // The largest exponent is theirs alone.
    all.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7f80_0000)) != 0x7f80_0000
}
