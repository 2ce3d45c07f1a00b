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

use crate::plane::{Place, Plane};
use std::collections::BTreeSet;

/// Cuts, at most.
const CUTS: usize = 3;
/// Tiles of a part that is cut off: along the cut, and across it.
const ACROSS: usize = 8;
const ALONG: usize = 24;

/// Which index, and how many positions are cut off.
type Cuts = Vec<(usize, usize)>;

impl Plane {
    /// The best parts that take less than `limit`.
    pub fn sections(&self, limit: f64) -> Option<Vec<Place>> {
        let (_, cuts) = self.cuts(self.extents, CUTS, limit)?;
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

    fn cuts(&self, sides: [usize; 2], most: usize, limit: f64) -> Option<(f64, Cuts)> {
        let mut best = Some((self.evenly(sides[0], sides[1]), vec![])).filter(|b| b.0 < limit);
        if most == 0 {
            return best;
        }
        for index in [0, 1] {
            for len in self.ends(sides, index) {
                let limit = best.as_ref().map_or(limit, |b| b.0);
                let (mut part, mut left) = (sides, sides);
                (part[index], left[index]) = (len, sides[index] - len);
                let takes = self.evenly(part[0], part[1]);
                if takes + self.at_least(left[0], left[1]) >= limit {
                    continue;
                }
                if let Some((more, cuts)) = self.cuts(left, most - 1, limit - takes) {
                    best = Some((takes + more, [vec![(index, len)], cuts].concat()));
                }
            }
        }
        best
    }

    /// Where parts end that full tiles fill.
    fn ends(&self, sides: [usize; 2], index: usize) -> BTreeSet<usize> {
        let other = sides[1 - index];
        let tiles = (1..=ACROSS.min(other)).map(|across| self.most[1 - index][other.div_ceil(across)]);
        let ends = tiles.flat_map(|tile| (1..=ALONG).map(move |times| times * tile));
        ends.filter(|&end| end > 0 && end < sides[index]).collect()
    }
}
