//! Maps of tiles in part of which a predicate holds: where it does not, they give a number, and nothing need be computed.

use super::source::live;
use super::worker::Worker;
use crate::compile::{Contract, ExpressionPlan, Fold, Passing, Strips, Tile};
use crate::kernels::fold::Monoid;
use crate::kernels::live::Live;
use crate::kernels::strip::{Operand, Step};
use einloom_tile::{AxisId, Coverage, Predicate, ValueId, coverage};

/// What a map computes where a predicate holds, and where that is.
pub(super) struct Somewhere<'p> {
    pub strips: &'p Strips,
    /// What the elements are elsewhere.
    pub elsewhere: f64,
    pub predicate: &'p Predicate,
    pub live: Live,
}

impl Worker<'_> {
    /// Of a map to a tile of the layout of `like`: if exactly one of its predicates holds for some elements here and for others
    /// not, and it gives those a number.
    pub(super) fn somewhere<'p>(&self, like: ValueId, plan: &'p ExpressionPlan) -> Option<Somewhere<'p>> {
        let mut partial = plan.predicates.iter().filter(|p| coverage(p, &self.windows) == Coverage::Partial);
        let (Some(predicate), None) = (partial.next(), partial.next()) else { return None };
        let at = |there: Coverage| plan.variant(|p| if p == predicate { there } else { coverage(p, &self.windows) });
        let &[Step::Copy { d: 0, from: Operand::Const(elsewhere) }] = at(Coverage::Empty).steps.as_slice() else {
            return None;
        };
        let live = live(self.tiles(), self.job.plan.tiles[like.at()], predicate);
        Some(Somewhere { strips: at(Coverage::Full), elsewhere, predicate, live })
    }

    /// What multiply-adds may leave out of a contraction: the elements of the left factor that are not 0, with the result's rows as its
    /// rows, and those of the result that are wanted; `None` if all.
    pub(super) fn masks(&self, contract: &Contract) -> [Option<Live>; 2] {
        let partial = |p: &&Predicate| coverage(p, &self.windows) == Coverage::Partial;
        let result = contract.masks.wanted.as_ref().filter(partial);
        let result = result.map(|p| live(self.tiles(), self.job.plan.tiles[contract.dst.at()], p));
        let left = contract.masks.left.as_ref().and_then(|plan| match self.somewhere(contract.left, plan)? {
            Somewhere { elsewhere: 0.0, predicate, live: along, .. } => {
                let tile = self.job.plan.tiles[contract.left.at()];
                let across = Tile { outer: tile.inner, inner: tile.outer, ..tile };
                let sums = |axis: Option<AxisId>| axis == Some(contract.sum);
                match [tile.outer, tile.inner] {
                    [_, inner] if sums(inner) => Some(along),
                    [outer, Some(_)] if sums(outer) => Some(live(self.tiles(), across, predicate)),
                    _ => None,
                }
            }
            _ => None,
        });
        [left, result]
    }

    /// Whether the reduction of a contraction's result can be made in passing here, though a map may lie between; of which
    /// elements, if not of all: the map leaves these as they are, and makes of others what changes nothing.
    pub(super) fn reduced(&self, result: ValueId, passing: &Passing) -> Option<Option<Live>> {
        let Some(plan) = &passing.unless else { return Some(None) };
        self.left_as_they_are(result, plan, passing.fold.monoid)
    }

    /// Whether it was, and nothing is left to do for the map itself, which has these reductions.
    pub(super) fn passed(&self, result: ValueId, plan: &ExpressionPlan, folds: &[Fold]) -> bool {
        let [fold] = folds else { return false };
        self.left_as_they_are(result, plan, fold.monoid).is_some()
    }

    fn left_as_they_are(&self, result: ValueId, plan: &ExpressionPlan, monoid: Monoid) -> Option<Option<Live>> {
        if plan.variant(|p| coverage(p, &self.windows)).copies(result) {
            return Some(None);
        }
        let Somewhere { strips, elsewhere, live, .. } = self.somewhere(result, plan)?;
        let identity = f64::from(monoid.identity());
        (strips.copies(result) && elsewhere == identity).then_some(Some(live))
    }
}
