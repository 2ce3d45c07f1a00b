//! Contractions whose results a map changes and packs, a piece at a time while it is near.

use super::anchored::Made;
use super::between::Ahead;
use super::place::Place;
use super::worker::Worker;
use crate::compile::{Contract, ElementKind, Leaf, Step};
use crate::kernels::contract::{Layout, PackedLeft, Scores};
use crate::kernels::unit::Engaged;
use einloom_tile::coverage;

impl<'a> Worker<'a> {
    /// Runs a contraction and the map that follows. False, and nothing done, if the contraction's factors are not packed, or the map
    /// computes some elements only.
    pub(super) fn piecewise(&mut self, contract: &'a Contract, rest: &'a [Step]) -> bool {
        let (true, Some(unit), Some(Step::Map { dst, plan, .. })) = (contract.piecewise, self.job.unit, rest.first())
        else {
            return false;
        };
        let tiles = self.tiles();
        let packed = match (self.places[contract.left.at()], tiles.layout(contract.right)) {
            (Place::Packed(_), Some(Layout::Packed(right))) => right.parts == 1,
            _ => false,
        };
        let ([rows, columns], terms) =
            (<[usize; 2]>::from(tiles.lengths(contract.dst)), self.windows[contract.sum.at()].len);
        if !packed || self.live[contract.left.at()].is_some() || rows == 0 || columns == 0 || terms == 0 {
            return false;
        }
        let strips = plan.variant(|p| coverage(p, &self.windows));
        let slot = tiles.tile(*dst).slot;
        let own = Leaf::Tile(contract.dst, ElementKind::Full);
        let free = |leaf: &Leaf| match leaf {
            Leaf::Tile(v, _) => !tiles.is_in(*v, slot) || *leaf == own,
            Leaf::Within(_) => false,
            _ => true,
        };
        let apart = [contract.left, contract.right].into_iter().all(|v| tiles.tile(v).slot != slot);
        if !apart || !strips.leaves.contains(&own) || !strips.leaves.iter().all(free) {
            return false;
        }
        let engaged = self.engaged.take().unwrap_or_else(|| Engaged::new(unit));
        let (mut room, mut scratch) = (std::mem::take(&mut self.arena.packed), std::mem::take(&mut self.arena.narrow));
        let (mut most, mut target) =
            (std::mem::take(&mut self.arena.most), std::mem::take(&mut self.arena.slots[slot]));
        let lengths = [rows, columns];
        let mut to = PackedLeft::new(unit, target.get_mut(PackedLeft::len(lengths, 1)), lengths, 1, &mut most);
        {
            let tiles = self.tiles();
            let (left, right) = (tiles.rows::<f32>(contract.left).data, tiles.rows::<f32>(contract.right).data);
            let scores = Scores { parts: [1, 1], left, right, lengths: [rows, columns, terms], live: None };
            let mut change = self.change(contract, (*dst, plan), Ahead::default(), &mut scratch);
            change.is_rounded();
            scores.pack(&engaged, &mut room, &mut to, &mut change);
        }
        let range = to.range();
        (self.arena.most, self.arena.slots[slot]) = (most, target);
        (self.arena.packed, self.arena.narrow) = (room, scratch);
        self.engaged = Some(engaged);
        self.places[dst.at()] = Place::Packed(range);
        self.live[dst.at()] = None;
        self.beforehand.push(Made::packed(*dst));
        true
    }
}
