//! What a memory keeps beside tiles, where programs decide what it holds.
//!
//! Tiles seldom fill a memory to the last element. Where a loop brings the same elements in again in each of its iterations,
//! because the array does not move with it, as many of them as there is room for stay there meanwhile: they come in once for
//! the whole loop. A sweep over `F` elements, made `n` times with room for `R`, brings in `F + (n - 1)(F - R)`: that is what
//! the best replacement does with a cyclic sequence (Belady 1966). A cache that drops what was used longest ago would keep
//! nothing of it, so this is for machines that count elements, whose memories hold what a program says.
//!
//! Conditions, without which nothing of an array is kept: it is loaded at coordinates that no data decide; the memory has one
//! core; the loop's iterations all bring in the same, so that no condition of a loop inside it mentions it or one outside.
//! Counted is what loops further in ask for as well, each element as often as all on average.

use crate::bounds::compulsory;
use crate::levels::{Reuse, Traffic};
use crate::region::Lean;
use einloom_tile::TensorId;
use std::collections::BTreeSet;

/// A part of an array that one loop brings in again and again.
struct Candidate {
    tensor: TensorId,
    place: usize,
    /// Elements that come in over the iterations of the loops outside, each time once.
    sum: u64,
    /// The most that an iteration of these brings in, at least.
    largest: u64,
    /// Visits that an element need not make if it stays, for each time that it comes in for the loop.
    spared: u64,
    /// Elements of it that are there anyway, as those that a region touches are.
    there: u64,
}

impl Candidate {
    /// Elements that need not come in for `room` elements that are kept: parts at the edge are smaller than the largest, and
    /// keep in proportion.
    fn gain(&self, room: u64) -> u64 {
        let kept = u128::from(self.sum) * u128::from(room) / u128::from(self.largest.max(1));
        u64::try_from(kept).unwrap_or(u64::MAX).saturating_mul(self.spared)
    }
}

impl Reuse<'_> {
    /// Takes what `free` bytes keep off the traffic; the accesses come with the depth that they were counted at. What regions of depth
    /// `held` touch is there beside the `free` bytes, and is no second copy of what stays as a whole. Gives the bytes that are used.
    pub(crate) fn keep(
        &self,
        counted: Vec<(usize, usize)>,
        held: Option<usize>,
        free: u64,
        active: u64,
        traffic: &mut Traffic,
    ) -> u64 {
        let Some(element) = self.element.filter(|_| active == 1) else { return 0 };
        let room = free / element;
        if room == 0 {
            return 0;
        }
        let mut candidates: Vec<Candidate> =
            counted.iter().filter_map(|&(k, depth)| self.candidate(k, depth, held)).collect();
        if candidates.is_empty() {
            return 0;
        }
        // What spares most for an element goes first; the order of equals is that of the program.
        candidates.sort_by_key(|c| std::cmp::Reverse(c.gain(1 << 20)));
        let mut least = None;
        let (mut left, mut places) = (room, BTreeSet::new());
        for c in candidates {
            if !places.insert((c.tensor, c.place)) {
                continue;
            }
            let more = c.largest.saturating_sub(c.there);
            let kept = if left >= more { c.largest } else { left };
            let Some((read, _)) = traffic.get(c.tensor) else { continue };
            let comes = read.saturating_sub(c.gain(kept));
            // What has to come is at most the tensor, and seldom needs to be counted.
            let dims = &self.program.tensor(c.tensor).dims;
            let floor = match dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)) {
                size if comes >= size.min(read) => 0,
                _ => least.get_or_insert_with(|| compulsory(self)).get(c.tensor).map_or(0, |t| t.0),
            };
            traffic.of(c.tensor).0 = comes.max(floor.min(read));
            left -= kept.min(more);
        }
        (room - left).saturating_mul(element)
    }

    /// The best that keeping a part of what an access brings in can do.
    fn candidate(&self, k: usize, depth: usize, held: Option<usize>) -> Option<Candidate> {
        let access = &self.nest.accesses[k];
        if access.store || access.gathers {
            return None;
        }
        let there = held.filter(|&d| d == depth).map_or(0, |d| self.in_region(k, d));
        let loops = &access.loops;
        // As a region has it, which has no more than the tensor.
        let touched = |depth: usize| {
            let regions = self.nest.iterations(self.kernel, k, depth);
            let size = self.program.tensor(access.tensor).dims.iter().fold(regions, |n, &d| n.saturating_mul(d as u64));
            self.nest.touched(self.program, self.kernel, k, depth, Lean::High).min(size)
        };
        let all = touched(depth);
        let each = (0..depth.min(loops.len())).filter_map(|j| {
            if !access.again[j] {
                return None;
            }
            let [before, with] = [j, j + 1].map(|j| self.nest.iterations(self.kernel, k, j));
            if before == 0 || with % before != 0 || with / before < 2 {
                return None;
            }
            let sum = touched(j);
            // All that asks for it in there finds it, in loops further in as well.
            let visits = all / sum.max(1);
            let largest = self.nest.largest(self.program, self.kernel, k, j);
            Some(Candidate {
                tensor: access.tensor,
                place: self.place(k, j),
                sum,
                largest: largest.max(1),
                spared: visits.saturating_sub(1),
                there,
            })
        });
        each.max_by_key(|c| c.gain(1 << 20))
    }

    /// Elements that a region of this depth touches by an access beside its tile, at most.
    fn in_region(&self, k: usize, depth: usize) -> u64 {
        let regions = self.nest.iterations(self.kernel, k, depth);
        if regions == 0 || self.is_tile(k, depth, regions) {
            return 0;
        }
        self.nest.largest(self.program, self.kernel, k, depth)
    }
}
