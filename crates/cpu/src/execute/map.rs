//! Elementwise operations on tiles.

use super::arena::{Buffer, Scratch};
use super::diagonals::diagonals;
use super::elementwise::{Elementwise, Ends, Gather, Outlet, Sink};
use super::place::{Place, Tiles, lengths, pitch};
use super::source::{Source, source};
use super::worker::Worker;
use crate::compile::{self, Carrier, ExpressionPlan, Fold, Leaf, Strips, Tile};
use crate::kernels::contract::PackedLeft;
use crate::kernels::fold::Monoid;
use crate::kernels::isa::{Token, dispatch};
use crate::kernels::real::Real;
use crate::kernels::strip;
use crate::kernels::unit::UnitToken;
use bytemuck::Pod;
use einloom_tile::{AxisId, ValueId, coverage};
use smallvec::SmallVec;

/// Of a few leaves, without memory of their own.
pub(super) type Sources<'a, T> = SmallVec<[Source<'a, T>; 6]>;

/// Where the leaves of a strip program are that computes a tile, whose own buffer, if it has one, may hold some; the one of which that is
/// told is the strip itself.
pub(super) fn sources<'a, T: Real + Pod>(
    (tiles, tile, own): (Tiles<'a>, Tile, Option<(usize, &Buffer)>),
    (carrier, token): (Carrier, Token),
    strips: &Strips,
    in_place: Option<&Leaf>,
    scratch: &mut Scratch<T>,
) -> Sources<'a, T> {
    let parts = strips.leaves.iter().map(|l| if let Leaf::Differences(d) = l { d.registers } else { 1 });
    scratch.reserve(parts.fold(strips.registers, usize::max), strips.leaves.len());
    let mut sources = Sources::new();
    for (number, leaf) in strips.leaves.iter().enumerate() {
        let Scratch { registers, vectors, row, .. } = &mut *scratch;
        if in_place == Some(leaf) {
            sources.push(Source::InPlace);
            continue;
        }
        let from = source(tiles, tile, own, carrier, leaf, &mut vectors[number]);
        if let Leaf::Differences(of) = leaf {
            let base = |axis: Option<AxisId>| axis.map_or(0, |axis| tiles.windows[axis.at()].base);
            let lengths = <[usize; 2]>::from(lengths(tile, tiles.windows));
            let at = [[tile.outer, tile.inner].map(base), lengths];
            diagonals(token, of, at, &sources, &mut vectors[number], (registers, row));
        }
        sources.push(from);
    }
    sources
}

impl Worker<'_> {
    pub(super) fn map(&mut self, dst: ValueId, plan: &ExpressionPlan, ends: &compile::Ends) {
        self.live[dst.at()] = None;
        if ends.passed.is_some_and(|v| self.passed(v, plan, &ends.folds)) {
            return;
        }
        if ends.dropped && ends.store.is_none() && ends.folds.iter().all(|fold| self.changes_nothing(plan, fold)) {
            let folds = ends.folds.iter();
            return folds
                .for_each(|fold| self.finish(fold, &vec![fold.monoid.identity(); self.tiles().lengths(fold.dst).1]));
        }
        let unit = self.job.unit.and_then(|unit| ends.packed.map(|parts| (unit, parts)));
        if unit.is_some_and(|unit| self.exponentiate(dst, (plan, ends), unit)) {
            return;
        }
        if plan.wide {
            if self.compared(dst, plan, ends) {
                return;
            }
            let mut scratch = std::mem::take(&mut self.arena.wide);
            self.map_as::<f64>(dst, plan, (ends, None), &mut scratch);
            self.arena.wide = scratch;
        } else {
            let mut scratch = std::mem::take(&mut self.arena.narrow);
            // What cannot be told from its parts is computed again.
            if !self.map_as::<f32>(dst, plan, (ends, unit), &mut scratch) {
                self.map_as::<f32>(dst, plan, (ends, None), &mut scratch);
            }
            self.arena.narrow = scratch;
        }
    }

    /// Whether a reduction goes on from what no element can change: of elements that are one number or another the largest one, where
    /// every result is at least that already; and the least one likewise.
    fn changes_nothing(&self, plan: &ExpressionPlan, fold: &Fold) -> bool {
        let (Some(start), steps) = (fold.start, &plan.variant(|p| coverage(p, &self.windows)).steps) else {
            return false;
        };
        let mut numbers = vec![];
        for step in steps {
            match *step {
                strip::Step::Copy { d: 0, from: strip::Operand::Const(x) } => numbers.push(x as f32),
                strip::Step::Select { d: 0, other: strip::Operand::Const(x), .. } => numbers.push(x as f32),
                _ => return false,
            }
        }
        let tiles = self.tiles();
        let Some(before) = tiles.rows::<f32>(start).data.get(..tiles.lengths(start).1) else { return false };
        match fold.monoid {
            _ if numbers.is_empty() => false,
            Monoid::Max => numbers.into_iter().all(|x| before.iter().all(|y| *y >= x)),
            Monoid::Min => numbers.into_iter().all(|x| before.iter().all(|y| *y <= x)),
            Monoid::Sum | Monoid::Prod => false,
        }
    }

    /// Whether what is packed is the sum of its parts; nothing else is done if not.
    fn map_as<T: Real + Pod>(
        &mut self,
        dst: ValueId,
        plan: &ExpressionPlan,
        (ends, unit): (&compile::Ends, Option<(UnitToken, usize)>),
        scratch: &mut Scratch<T>,
    ) -> bool {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, columns) = self.tiles().lengths(dst);
        let spare = &mut self.arena.partials;
        let mut folds: Vec<Gather> =
            ends.folds.iter().map(|f| Gather::new(f.monoid, f.across, [rows, columns], spare)).collect();
        let (mut asked, mut none) = (std::mem::take(&mut self.asked), vec![]);
        let mut most = std::mem::take(&mut self.arena.most);
        let (mut place, mut zero) = (Place::Slot, false);
        if rows > 0 && columns > 0 {
            let strips = plan.variant(|p| coverage(p, &self.windows));
            let mut target = if ends.dropped { None } else { Some(std::mem::take(&mut self.arena.slots[tile.slot])) };
            let pitch = pitch(columns);
            let len = unit.map_or(rows * pitch, |(_, parts)| PackedLeft::len([rows, columns], parts));
            let carrier = if plan.wide { Carrier::F64 } else { Carrier::F32 };
            let own = target.as_ref().map(|buffer| (tile.slot, buffer));
            let sources = sources((self.tiles(), tile, own), (carrier, self.job.token), strips, None, scratch);
            let sink = match (&mut target, tile.carrier) {
                (None, _) => Sink::Nowhere,
                (Some(target), _) if let Some((unit, parts)) = unit => {
                    Sink::Packed(PackedLeft::new(unit, target.get_mut(len), [rows, columns], parts, &mut most))
                }
                (Some(target), Carrier::I32) => Sink::Integers(target.get_mut(len)),
                (Some(target), same) if same == carrier => Sink::Same(target.get_mut(len)),
                (Some(target), _) => Sink::Floats(target.get_mut(len)),
            };
            let store = ends.store.as_ref().map(|(tensor, access)| {
                let (start, outer, _) = self.place_in_memory(access);
                let dtype = self.job.program.tensor(*tensor).dtype;
                Outlet { memory: &self.job.tensors[tensor.at()], dtype, start, outer }
            });
            let asked = if ends.waits { &mut none } else { &mut asked };
            let ends = Ends { folds: &mut folds, store, asked, waits: ends.waits, zero: &mut zero };
            let range =
                dispatch(self.job.token, Elementwise { strips, sources, sink, ends, rows, columns, pitch, scratch });
            if let Some(range) = range {
                place = Place::Packed(range);
            }
            if let Some(target) = target {
                self.arena.slots[tile.slot] = target;
            }
        }
        (self.asked, self.arena.most) = (asked, most);
        self.zeros[dst.at()] = zero;
        if matches!((place, unit), (Place::Packed(range), Some((_, 2..))) if !range.is_all()) {
            return false;
        }
        if let Some((tensor, _)) = &ends.store {
            let bytes = rows * columns * self.job.program.tensor(*tensor).dtype.bytes();
            self.stored[tensor.at()] += bytes as u64;
        }
        self.places[dst.at()] = place;
        for (fold, gathered) in ends.folds.iter().zip(folds) {
            let count = if fold.across { columns } else { rows };
            let mut totals = std::mem::take(&mut self.arena.totals);
            gathered.totals(self.job.token, &mut totals, &mut self.arena.partials);
            self.finish(fold, &totals[..count]);
            self.arena.totals = totals;
        }
        true
    }

    /// Gives a reduction its result.
    pub(super) fn finish(&mut self, fold: &Fold, totals: &[f32]) {
        let count = totals.len();
        let tile = self.job.plan.tiles[fold.dst.at()];
        let monoid = fold.monoid;
        // The start may be in the result's own place.
        let mut slot = std::mem::take(&mut self.arena.slots[tile.slot]);
        let result = &mut slot.get_mut::<f32>(count)[..count];
        match fold.start {
            Some(start) if self.tiles().is_in(start, tile.slot) => {}
            Some(start) => result.copy_from_slice(&self.tiles().rows::<f32>(start).data[..count]),
            None => {}
        }
        if fold.start.is_some() {
            monoid.combine_all(result, totals);
        } else {
            result.copy_from_slice(totals);
        }
        strip::round(result, tile.dtype);
        self.arena.slots[tile.slot] = slot;
        self.places[fold.dst.at()] = Place::Slot;
    }
}
