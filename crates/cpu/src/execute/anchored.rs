//! Contractions whose results become exponentials at once, below an anchor that is known beforehand.

use super::arena::Scratch;
use super::between::{Ahead, Change};
use super::make::Exponentials;
use super::map::sources;
use super::place::Place;
use super::worker::Worker;
use crate::compile::{Anchored, Carrier, Contract, ElementKind, ExpressionPlan, Leaf, Step, summed};
use crate::kernels::contract::{Between, Layout, PackedLeft, Room, Scores, Weights};
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::unit::{Engaged, SIDE};
use einloom_tile::{ValueId, coverage};

/// What scores that rise by it within a chunk rise by in the next one too, as if they had risen too much: a part of what exponentials may be.
const RISE: f32 = 8.0;

/// Exponentials that were made before their map's turn came, with the sums of their rows.
pub(crate) struct Made<'a> {
    dst: ValueId,
    sums: Option<Vec<Partial>>,
    /// Results of maps that have run already.
    ready: &'a [ValueId],
}

/// Whether all that a map makes of some results is the same along rows or columns, or goes by their places.
fn goes_by_sides(plan: &ExpressionPlan, results: ValueId) -> bool {
    let leaves = plan.variants.iter().flat_map(|strips| &strips.leaves);
    leaves.into_iter().all(|leaf| !matches!(leaf, Leaf::Tile(v, ElementKind::Full) if *v != results))
}

impl Made<'_> {
    /// Of a map that has packed its result and does nothing else.
    pub(super) fn packed(dst: ValueId) -> Self {
        Self { dst, sums: None, ready: &[] }
    }
}

impl<'a> Worker<'a> {
    /// Runs a contraction and the map that follows it, up to the map's reduction, with an anchor that may be less than the
    /// result's maximum; `rest` are the steps from it on. False if it cannot be done here, or if exponentials become too large:
    /// then nothing is done that the steps do not do again.
    pub(super) fn anchored(&mut self, contract: &'a Contract, rest: &'a [Step]) -> bool {
        let Some(Anchored { between, map, less, ready }) = &contract.anchored else { return false };
        let Some(passing) = between.as_ref().or(contract.fold.as_ref()) else { return false };
        // Where scores rose too much three times, they may do so again.
        let refused = self.refused.iter().filter(|v| **v == contract.dst).count();
        if refused > 2 {
            return false;
        }
        let (Some(unit), Some(Step::Map { dst, plan, ends })) = (self.job.unit, rest.get(*map)) else { return false };
        let change = match (between, rest.get(1)) {
            (None, _) => None,
            (Some(_), Some(Step::Map { dst, plan, .. })) => Some((*dst, plan)),
            (Some(_), _) => return false,
        };
        let of = change.map_or(contract.dst, |(of, _)| of);
        let (Some(start), Some(summed), tiles) = (passing.fold.start, summed(ends), self.tiles()) else { return false };
        let ([rows, columns], terms) =
            (<[usize; 2]>::from(tiles.lengths(contract.dst)), self.windows[contract.sum.at()].len);
        let Some(parts) = contract.parts else { return false };
        let packed = match (self.places[contract.left.at()], tiles.layout(contract.right)) {
            (Place::Packed(left), Some(Layout::Packed(right))) => {
                usize::from(right.parts) == parts[1] && (parts == [1, 1] || left.multiplies(right.range))
            }
            _ => false,
        };
        if !packed || self.live[contract.left.at()].is_some() || rows == 0 || columns == 0 || terms == 0 {
            return false;
        }
        let Some(there) = self.reduced(of, passing) else { return false };
        let engaged = self.engaged.take().unwrap_or_else(|| Engaged::new(unit));
        let (mut room, mut scratch) = (std::mem::take(&mut self.arena.packed), std::mem::take(&mut self.arena.narrow));

        // Where there is no anchor yet, or one was too low before, some results give one.
        let mut totals = std::mem::take(&mut self.arena.totals);
        totals.clear();
        totals.resize(rows, Monoid::Max.identity());
        let tiles = self.tiles();
        let data = |v: ValueId| tiles.rows::<f32>(v).data;
        let scores = |live| Scores {
            parts,
            left: data(contract.left),
            right: data(contract.right),
            lengths: [rows, columns, terms],
            live,
        };
        let before = &data(start)[..rows];
        // Rising once, they may rise on, so that the last ones are the largest. What changes them by rows and columns may let them rise from the start.
        let starts = before.iter().any(|x| !x.is_finite());
        let looks: &[bool] = match refused {
            0 if change.is_some_and(|(_, plan)| goes_by_sides(plan, contract.dst)) => &[false, true],
            0 => &[false],
            1 => &[true],
            _ => &[false, true],
        };
        let mut rises = false;
        if refused > 0 || starts {
            let mut change = change.map(|change| self.change(contract, change, Ahead::default(), &mut scratch));
            for last in looks {
                let between = change.as_mut().map(|change| change as &mut dyn Between);
                let first = (*last && refused == 0).then(|| totals.clone());
                scores(there.as_ref()).some_tops(&engaged, &mut room, *last, (before, &mut totals), between);
                let rise = |(x, y): (&f32, &f32)| (y - x) * passing.times > RISE;
                rises |= first.is_some_and(|first| first.iter().zip(&totals).any(rise));
            }
            totals.iter_mut().for_each(|x| *x *= passing.times);
        }
        // Where a change left nothing of a row, all of it was looked at.
        let fits = |x: f32| x.is_finite() || change.is_some() && x == f32::NEG_INFINITY;
        let known = before.iter().zip(&totals).all(|(x, y)| fits(x.max(*y)));
        if known {
            self.finish(&passing.fold, &totals);
        }
        self.arena.totals = totals;
        let made = known && {
            for step in less {
                if let Some(Step::Map { dst, plan, ends }) = rest.get(*step) {
                    self.map(*dst, plan, ends);
                }
            }
            // Its place is looked at, and nothing else of it.
            self.places[of.at()] = Place::Slot;
            match self.exponentials(*dst, plan) {
                Some(job) if job.of == of => self.weigh(
                    (contract, change, self.ahead_of(of)),
                    (*dst, ready),
                    job,
                    summed,
                    &engaged,
                    (&mut room, &mut scratch),
                ),
                _ => false,
            }
        };
        (self.arena.packed, self.arena.narrow) = (room, scratch);
        self.engaged = Some(engaged);
        if known && !made || rises {
            self.refused.push(contract.dst);
        }
        made
    }

    /// What a map makes of the results of a contraction.
    pub(super) fn change<'s>(
        &'s self,
        contract: &Contract,
        (dst, plan): (ValueId, &ExpressionPlan),
        ahead: Ahead,
        scratch: &'s mut Scratch<f32>,
    ) -> Change<'s> {
        let (tiles, tile) = (self.tiles(), self.job.plan.tiles[dst.at()]);
        let lengths = <[usize; 2]>::from(tiles.lengths(dst));
        let strips = plan.variant(|p| coverage(p, &self.windows));
        let own = Leaf::Tile(contract.dst, ElementKind::Full);
        let sources = sources((tiles, tile, None), (Carrier::F32, self.job.token), strips, Some(&own), scratch);
        Change::new(self.job.token, strips, contract.times, sources, (lengths, ahead), scratch)
    }

    /// What to ask for of what scores are changed by: of the stream's next chunk, besides the next piece.
    fn ahead_of(&self, scores: ValueId) -> Ahead {
        let along = self.job.plan.tiles[scores.at()].inner;
        let next = self.next.filter(|(axis, _)| Some(*axis) == along);
        let tile = next.map(|(axis, window)| window.base as isize - self.windows[axis.at()].base as isize);
        Ahead { tile, squares: 0 }
    }

    fn weigh(
        &mut self,
        (contract, change, ahead): (&Contract, Option<(ValueId, &ExpressionPlan)>, Ahead),
        (dst, ready): (ValueId, &'a [ValueId]),
        job: Exponentials,
        summed: bool,
        engaged: &Engaged,
        (room, scratch): (&mut Room, &mut Scratch<f32>),
    ) -> bool {
        let (Some(unit), Some(parts)) = (self.job.unit, contract.parts) else { return false };
        let made = if parts == [1, 1] { 1 } else { 3 };
        let tiles = self.tiles();
        let (slot, [rows, columns]) = (tiles.tile(dst).slot, <[usize; 2]>::from(tiles.lengths(dst)));
        let leaves = change.into_iter().flat_map(|(_, plan)| &plan.variants).flat_map(|strips| &strips.leaves);
        let read = leaves.filter_map(|leaf| match leaf {
            Leaf::Tile(v, _) if *v != contract.dst => Some(*v),
            _ => None,
        });
        if [job.less, contract.left, contract.right].into_iter().chain(read).any(|v| tiles.is_in(v, slot)) {
            return false;
        }
        let terms = self.windows[contract.sum.at()].len;
        let mut sums = summed.then(|| self.partials(rows.next_multiple_of(2 * SIDE), Monoid::Sum));
        let (mut most, mut target) =
            (std::mem::take(&mut self.arena.most), std::mem::take(&mut self.arena.slots[slot]));
        let len = PackedLeft::len([rows, columns], made);
        let mut to = PackedLeft::new(unit, target.get_mut(len), [rows, columns], made, &mut most);
        let tiles = self.tiles();
        let data = |v: ValueId| tiles.rows::<f32>(v).data;
        let (left, right, lengths) = (data(contract.left), data(contract.right), [rows, columns, terms]);
        let scores = Scores { parts, left, right, lengths, live: job.live.as_ref() };
        let (less, partials) = (&data(job.less)[..rows], sums.as_deref_mut());
        let mut change = change.map(|change| self.change(contract, change, ahead, scratch));
        let mut by = job.by;
        if let Some(times) = change.as_ref().and_then(Change::multiple) {
            by *= times;
            change = None;
        }
        let between = change.as_mut().map(|change| change as &mut dyn Between);
        let good = scores.exponentiate(engaged, room, Weights { by, less, to: &mut to, sums: partials }, between);
        let range = to.range();
        drop(change);
        (self.arena.most, self.arena.slots[slot]) = (most, target);
        if !good {
            self.arena.partials.extend(sums);
            return false;
        }
        if let Some(sums) = &mut sums {
            sums.truncate(rows);
        }
        self.places[dst.at()] = Place::Packed(range);
        self.live[dst.at()] = job.live;
        self.beforehand.push(Made { dst, sums, ready });
        true
    }

    /// Whether the map has run already, or its exponentials have been made; their reduction is then made too.
    pub(super) fn was_made(&mut self, dst: ValueId, folds: &[crate::compile::Fold]) -> bool {
        // Another contraction's may be made before the first one's turn comes.
        if self.beforehand.iter().any(|made| made.ready.contains(&dst)) {
            return true;
        }
        let Some(number) = self.beforehand.iter().position(|made| made.dst == dst) else { return false };
        let Made { sums, .. } = self.beforehand.swap_remove(number);
        if let (Some(sums), [fold]) = (sums, folds) {
            self.total(fold, sums, 1.0);
        }
        true
    }
}
