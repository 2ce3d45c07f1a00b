//! Maps whose results are left factors of the contraction that follows: it has them made while it multiplies.

use super::place::Place;
use super::worker::Worker;
use crate::compile::{self, Carrier, Contract, ElementKind, ExpressionPlan, Leaf, Tile};
use crate::kernels::amx::Engaged;
use crate::kernels::contract::Layout;
use crate::kernels::exp::Strips;
use crate::kernels::fold::Monoid;
use crate::kernels::strip::{Operand, Step};
use einloom_tile::{ValueId, coverage};

/// Anchored exponentials: of a tile, times a number, less an anchor for each row.
struct Exponentials {
    of: ValueId,
    by: f32,
    less: ValueId,
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
        let (Some(unit), Some(parts)) = (self.job.tiles, contract.parts) else { return false };
        let tiles = self.tiles();
        let Some(job) = self.exponentials(tiles.tile(dst), plan) else { return false };
        let ([rows, columns], result) = (<[usize; 2]>::from(tiles.lengths(dst)), tiles.lengths(contract.dst));
        let summed = match ends.folds.as_slice() {
            [] => false,
            [fold] if fold.monoid == Monoid::Sum && !fold.across => true,
            _ => return false,
        };
        let packs = match tiles.layout(contract.right) {
            Some(Layout::Packed(right)) => usize::from(right.parts) == parts[1],
            Some(Layout::Panels) => false,
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
        let (from, less) = (job.of, job.less);
        self.contract_as::<f32>(contract, times, |this, tiles, _| {
            let (from, less) = (tiles.rows::<f32>(from), tiles.rows::<f32>(less));
            let less = &less.data[..rows];
            let sums = sums.as_deref_mut();
            let mut made = Strips { from: from.data, pitch: from.pitch, by: job.by, less, columns, sums };
            this.run_made(&mut made, &engaged, parts, &mut room);
        });
        self.arena.packed = room;
        self.engaged = Some(engaged);
        if let (Some(sums), [fold]) = (sums, ends.folds.as_slice()) {
            self.total(fold, sums, 1.0);
        }
        true
    }

    /// What the map computes, if it is anchored exponentials of a tile in f32, the anchors one per row of the result.
    fn exponentials(&self, dst: Tile, plan: &ExpressionPlan) -> Option<Exponentials> {
        if plan.wide || dst.carrier != Carrier::F32 {
            return None;
        }
        let strips = plan.variant(|p| coverage(p, &self.windows));
        let &[
            Step::Copy { d: 0, from: Operand::Leaf(of) },
            Step::ScaledExp { d: 0, by: Operand::Const(by), less: Operand::Leaf(less) },
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
        Some(Exponentials { of: leaf(of, ElementKind::Full)?, by: by as f32, less: leaf(less, ElementKind::Outer)? })
    }
}
