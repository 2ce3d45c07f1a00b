//! Maps of tiles in part of which a predicate holds: where it does not, they give a number, and nothing need be computed.

use super::source::live;
use super::worker::Worker;
use crate::compile::{ExpressionPlan, Fold, Passing, Strips};
use crate::kernels::fold::Monoid;
use crate::kernels::live::Live;
use crate::kernels::strip::{Operand, Step};
use einloom_tile::{Coverage, ValueId, coverage};

/// What a map computes where a predicate holds, and where that is.
pub(super) struct Somewhere<'p> {
    pub strips: &'p Strips,
    /// What the elements are elsewhere.
    pub elsewhere: f64,
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
        Some(Somewhere { strips: at(Coverage::Full), elsewhere, live })
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
        let Somewhere { strips, elsewhere, live } = self.somewhere(result, plan)?;
        let identity = f64::from(monoid.identity());
        (strips.copies(result) && elsewhere == identity).then_some(Some(live))
    }
}
