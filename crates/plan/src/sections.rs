//! Kernels in a few parts, each cut off along a whole side of what the ones before leave, for a machine whose innermost memory counts elements.
//!
//! ```text
//! 1 1 1 1 1
//! 2 2 3 3 3
//! 2 2 4 4 4
//! 2 2 4 4 4
//! ```
//!
//! Tiles of one size leave over as much as one more row of them along a whole side. A part that full tiles fill leaves what is over to
//! parts with tiles of their own, or in which other things stay: of a product, tiles of sums in one part and rows of a factor in another. Found are the
//! places by what rectangles take that come in once (`plane.rs`); what the parts move is then counted as ever.

use crate::parts::WORTH;
use crate::plane::{MOST, Place, Plane};
use rustc_hash::FxHashMap;

/// Cuts, at most.
const CUTS: usize = 3;
/// Tiles of a part that is cut off: along the cut, and across it.
const ACROSS: usize = 8;
const ALONG: usize = 24;

/// Sides whose cuts are looked for, at most: of 4096 by 2048 positions the best three cuts, which move 0.6 % less than the best that are found so, are among the first
/// 8192.
const MOST_SIDES: usize = 2048;

/// Which index, and how many positions are cut off.
type Cuts = Vec<(usize, usize)>;

/// Of sides with so many cuts at most: the best cuts with what they take, or a limit that all take at least. Cuts in another order leave the same
/// sides, and so do other multiples of one tile.
type Known = FxHashMap<([usize; 2], usize), Result<(f64, Cuts), f64>>;

impl Plane {
    /// The best parts that take less than `limit`.
    pub fn sections(&self, limit: f64) -> Option<Vec<Place>> {
        let mut known = Known::default();
        // What fewer cuts take ends the search of more of them soon: one more has to gain.
        let (_, cuts) = (1..=CUTS).fold(None, |best: Option<(f64, Cuts)>, most| {
            let limit = best.as_ref().map_or(limit, |b| (1.0 - WORTH) * b.0);
            self.cuts(self.extents, most, limit, &mut known).or(best)
        })?;
        let mut left: Place = self.extents.map(|n| (0, n));
        let mut places = vec![];
        for (index, len) in cuts {
            let mut part = left;
            part[index].1 = len;
            left[index] = (left[index].0 + len, left[index].1 - len);
            places.push(part);
        }
        Some(places.into_iter().chain([left]).collect())
    }

    fn cuts(&self, sides: [usize; 2], most: usize, limit: f64, known: &mut Known) -> Option<(f64, Cuts)> {
        match known.get(&(sides, most)) {
            Some(Ok(found)) => return Some(found).filter(|b| b.0 < limit).cloned(),
            Some(Err(least)) if limit <= *least => return None,
            _ => {}
        }
        if known.len() >= MOST_SIDES {
            return None;
        }
        let mut best = Some((self.even(sides[0], sides[1], MOST), vec![])).filter(|b| b.0 < limit);
        if most == 0 {
            return best;
        }
        let after = |(index, len): (usize, usize)| {
            let mut left = sides;
            left[index] -= len;
            left
        };
        let places = [0, 1].into_iter().flat_map(|index| {
            let ends = self.ends(sides, index);
            let takes = self.evenly(index, &ends, sides[1 - index]);
            ends.into_iter().map(move |len| (index, len)).zip(takes)
        });
        let least = |place| self.at_least(after(place)[0], after(place)[1]);
        let mut open: Vec<(f64, f64, (usize, usize))> = places
            .map(|(place, takes)| (takes + least(place), takes, place))
            .filter(|o| o.0 < best.as_ref().map_or(limit, |b| b.0))
            .collect();
        // What may take least first: it ends the search of the others soonest.
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (least, takes, place) in open {
            let limit = best.as_ref().map_or(limit, |b| b.0);
            if least >= limit {
                break;
            }
            if let Some((more, cuts)) = self.cuts(after(place), most - 1, limit - takes, known) {
                best = Some((takes + more, [vec![place], cuts].concat()));
            }
        }
        known.insert((sides, most), best.clone().ok_or(limit));
        best
    }

    /// Where parts end that full tiles fill.
    fn ends(&self, sides: [usize; 2], index: usize) -> Vec<usize> {
        let other = sides[1 - index];
        let tiles = (1..=ACROSS.min(other)).map(|across| self.most[1 - index][other.div_ceil(across)]);
        let ends = tiles.flat_map(|tile| (1..=ALONG).map(move |times| times * tile));
        let mut ends: Vec<usize> = ends.filter(|&end| end > 0 && end < sides[index]).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
