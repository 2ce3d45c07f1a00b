//! Maps whose results are left factors of the contraction that follows: it has them made while it multiplies.

use super::partly::Somewhere;
use super::place::Place;
use super::worker::Worker;
use crate::compile::{self, Carrier, Contract, ElementKind, ExpressionPlan, Leaf, summed};
use crate::kernels::contract::{Layout, PackedLeft};
use crate::kernels::exp::{self, Strips};
use crate::kernels::fold::Monoid;
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::live::Live;
use crate::kernels::strip::{Operand, Step};
use crate::kernels::unit::{Engaged, UnitToken};
use einloom_tile::{ValueId, coverage};

/// Anchored exponentials: of a tile, times a number, less an anchor for each row.
pub(super) struct Exponentials {
    pub of: ValueId,
    pub by: f32,
    pub less: ValueId,
    /// Others are 0; all are exponentials, if that is not told.
    pub live: Option<Live>,
}

/// Exponentials of whole rows, for one instruction set.
struct Whole<'a, 't>(exp::Rows<'a, 't>);

impl Work for Whole<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Instructions>(self) -> bool {
        exp::rows::<I>(self.0)
    }
}

impl Worker<'_> {
    /// Runs a map and the contraction that follows, if the map takes anchored exponentials here and the right factor can be
    /// packed; nothing is done if not.
    pub(super) fn made(
        &mut self,
        dst: ValueId,
        (plan, ends): (&ExpressionPlan, &compile::Ends),
        contract: &Contract,
    ) -> bool {
        let (Some(unit), Some(parts)) = (self.job.unit, contract.parts) else { return false };
        let tiles = self.tiles();
        let Some(job) = self.exponentials(dst, plan) else { return false };
        let ([rows, columns], result) = (<[usize; 2]>::from(tiles.lengths(dst)), tiles.lengths(contract.dst));
        let Some(summed) = summed(ends) else { return false };
        let packs = match tiles.layout(contract.right) {
            Some(Layout::Packed(right)) => usize::from(right.parts) == parts[1],
            Some(Layout::Panels(_)) => false,
            Some(Layout::Rows(_)) | None => {
                matches!(self.places[contract.right.at()], Place::Slot | Place::View(..) | Place::Kept(_))
            }
        };
        // With one part there is little to multiply beside so many exponentials, and nothing is gained (measured).
        let there = parts[0] > 1 && rows > 0 && columns > 0 && result.1 > 0 && ends.packed == Some(parts[0]);
        if !packs || !there || ends.store.is_some() || contract.fold.is_some() {
            return false;
        }
        let mut sums = summed.then(|| self.partials(rows, Monoid::Sum));
        let engaged = self.engaged.take().unwrap_or_else(|| Engaged::new(unit));
        let mut room = std::mem::take(&mut self.arena.packed);
        // The contraction takes no element of its left factor, so that its place is free to say.
        self.places[dst.at()] = Place::Slot;
        let times = Some(contract.times).filter(|x| *x != 1.0);
        let (from, less, live) = (job.of, job.less, job.live.as_ref());
        self.contract_as::<f32>(contract, times, |this, tiles, _| {
            let (from, less) = (tiles.rows::<f32>(from), tiles.rows::<f32>(less));
            let less = &less.data[..rows];
            let sums = sums.as_deref_mut();
            let mut made = Strips { from: from.data, pitch: from.pitch, by: job.by, less, columns, live, sums };
            this.run_made(&mut made, &engaged, parts, &mut room);
        });
        self.arena.packed = room;
        self.engaged = Some(engaged);
        if let (Some(sums), [fold]) = (sums, ends.folds.as_slice()) {
            self.total(fold, sums, 1.0);
        }
        true
    }

    /// Runs a map that packs its result, if it takes anchored exponentials of some elements here and gives 0 for the others;
    /// nothing is done if not.
    pub(super) fn exponentiate(
        &mut self,
        dst: ValueId,
        (plan, ends): (&ExpressionPlan, &compile::Ends),
        (unit, parts): (UnitToken, usize),
    ) -> bool {
        let Some(Exponentials { of, by, less, live: Some(live) }) = self.exponentials(dst, plan) else { return false };
        let tiles = self.tiles();
        let (slot, [rows, columns]) = (tiles.tile(dst).slot, <[usize; 2]>::from(tiles.lengths(dst)));
        let Some(summed) = summed(ends) else { return false };
        if rows == 0
            || columns == 0
            || ends.store.is_some()
            || ends.dropped
            || tiles.is_in(of, slot)
            || tiles.is_in(less, slot)
        {
            return false;
        }
        let mut sums = summed.then(|| self.partials(rows, Monoid::Sum));
        let (mut most, mut target) =
            (std::mem::take(&mut self.arena.most), std::mem::take(&mut self.arena.slots[slot]));
        let target_len = PackedLeft::len([rows, columns], parts);
        let mut to = PackedLeft::new(unit, target.get_mut(target_len), [rows, columns], parts, &mut most);
        let tiles = self.tiles();
        let (from, less) = (tiles.rows::<f32>(of), &tiles.rows::<f32>(less).data[..rows]);
        let (live_here, partials) = (Some(&live), sums.as_deref_mut());
        let job = exp::Rows {
            from: from.data,
            pitch: from.pitch,
            by,
            less,
            columns,
            live: live_here,
            to: &mut to,
            sums: partials,
        };
        let done = dispatch(self.job.token, Whole(job));
        let range = to.range();
        (self.arena.most, self.arena.slots[slot]) = (most, target);
        // What cannot be told from its parts is computed again.
        if !done || parts > 1 && !range.is_all() {
            self.arena.partials.extend(sums);
            return false;
        }
        self.places[dst.at()] = Place::Packed(range);
        self.live[dst.at()] = Some(live);
        if let (Some(sums), [fold]) = (sums, ends.folds.as_slice()) {
            self.total(fold, sums, 1.0);
        }
        true
    }

    /// What the map computes, if it is anchored exponentials of a tile in f32, the anchors one per row of the result.
    pub(super) fn exponentials(&self, value: ValueId, plan: &ExpressionPlan) -> Option<Exponentials> {
        let dst = self.job.plan.tiles[value.at()];
        if plan.wide || dst.carrier != Carrier::F32 {
            return None;
        }
        let (strips, live) = match self.somewhere(value, plan) {
            Some(Somewhere { strips, elsewhere: 0.0, live, .. }) => (strips, Some(live)),
            _ => (plan.variant(|p| coverage(p, &self.windows)), None),
        };
        let &[
            Step::Copy { d: 0, from: Operand::Leaf(of) },
            Step::ScaledExp { d: 0, by: Operand::Const(by), less: Operand::Leaf(less), .. },
        ] = strips.steps.as_slice()
        else {
            return None;
        };
        let tiles = self.tiles();
        let leaf = |number: u16, kind: ElementKind| match strips.leaves.get(usize::from(number)) {
            Some(Leaf::Tile(v, k)) if *k == kind && tiles.tile(*v).carrier == Carrier::F32 => {
                let lies = matches!(self.places[v.at()], Place::Slot | Place::View(..));
                lies.then_some(*v)
            }
            _ => None,
        };
        Some(Exponentials {
            of: leaf(of, ElementKind::Full)?,
            by: by as f32,
            less: leaf(less, ElementKind::Outer)?,
            live,
        })
    }
}
