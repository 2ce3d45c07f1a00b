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
//! Counted is one visit an iteration, though there may be more.

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
    /// Visits of the loop that an element need not make if it stays, for each time it comes in.
    spared: u64,
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
    /// Takes what `free` bytes keep off the traffic; the accesses come with the depth that they were counted at. Gives the
    /// bytes that are used.
    pub(crate) fn keep(&self, counted: Vec<(usize, usize)>, free: u64, active: u64, traffic: &mut Traffic) -> u64 {
        let Some(element) = self.element.filter(|_| active == 1) else { return 0 };
        let room = free / element;
        if room == 0 {
            return 0;
        }
        let mut candidates: Vec<Candidate> =
            counted.iter().filter_map(|&(k, depth)| self.candidate(k, depth)).collect();
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
            let kept = left.min(c.largest);
            let Some((read, _)) = traffic.get(c.tensor) else { continue };
            let comes = read.saturating_sub(c.gain(kept));
            // What has to come is at most the tensor, and seldom needs to be counted.
            let dims = &self.program.tensor(c.tensor).dims;
            let floor = match dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)) {
                size if comes >= size.min(read) => 0,
                _ => least.get_or_insert_with(|| compulsory(self)).get(c.tensor).map_or(0, |t| t.0),
            };
            traffic.of(c.tensor).0 = comes.max(floor.min(read));
            left -= kept;
        }
        (room - left).saturating_mul(element)
    }

    /// The best that keeping a part of what an access brings in can do.
    fn candidate(&self, k: usize, depth: usize) -> Option<Candidate> {
        let access = &self.nest.accesses[k];
        if access.store || access.gathers {
            return None;
        }
        let loops = &access.loops;
        let each = (0..depth.min(loops.len())).filter_map(|j| {
            if !access.again[j] {
                return None;
            }
            let [before, with] = [j, j + 1].map(|j| self.nest.iterations(self.kernel, k, j));
            if before == 0 || with % before != 0 || with / before < 2 {
                return None;
            }
            // As a region has it, which has no more than the tensor.
            let size = self.program.tensor(access.tensor).dims.iter().fold(before, |n, &d| n.saturating_mul(d as u64));
            let sum = self.nest.touched(self.program, self.kernel, k, j, Lean::High).min(size);
            // Windows at the edge are shorter than the others: the largest part is at most this many times the mean.
            let longer = (0..j).filter(|&l| access.moves[l]).map(|l| {
                let axis = self.kernel.axis(loops[l].axis);
                let all = axis.extent.div_ceil(axis.tile.max(1)) * axis.tile;
                all as f64 / axis.extent.max(1) as f64
            });
            let mean = sum as f64 / before as f64;
            let largest = (mean * longer.product::<f64>()).ceil() as u64;
            Some(Candidate {
                tensor: access.tensor,
                place: self.place(k, j),
                sum,
                largest: largest.max(1),
                spared: with / before - 1,
            })
        });
        each.max_by_key(|c| c.gain(1 << 20))
    }
}
