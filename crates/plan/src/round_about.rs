//! Kernels in five parts that lie round about a small one, for a machine whose innermost memory counts elements.
//!
//! ```text
//! 1 1 1 2 2
//! 1 1 1 2 2
//! 1 1 1 5 3
//! 4 4 4 4 3
//! ```
//!
//! Four tiles that just fail to hold a result leave a rest in its middle that is as small as what they lack; a line across the result would leave
//! more tiles along a whole side. So do even tiles of each part. Found are the places by what rectangles take that come in once (`plane.rs`);
//! what the parts move is then counted as ever.

use crate::plane::{Place, Plane};

/// Tiles of a part along each index, at most.
const MOST: usize = 4;
/// Places along the second index that are looked at first.
const PLACES: usize = 64;

/// Where the parts end: rows and columns of the first, rows of the second, columns of the third.
type Places = [usize; 4];

impl Plane {
    /// The best five parts, where they take less than `limit`.
    pub fn round_about(&self, limit: f64) -> Option<Vec<Place>> {
        let places = self.best().filter(|b| b.0 < limit)?.1;
        Some(self.parts(places).collect())
    }

    /// What the parts move and where they end, at best.
    fn best(&self) -> Option<(f64, Places)> {
        let columns = self.extents[1];
        let step = columns.div_ceil(PLACES);
        let at = |column: usize| self.at(column);
        let least = |a: &(f64, Places), b: &(f64, Places)| a.0.total_cmp(&b.0);
        let near = (1..columns).step_by(step).filter_map(at).min_by(least)?.1[1];
        (near.saturating_sub(step).max(1)..(near + step + 1).min(columns)).filter_map(at).min_by(least)
    }

    /// The best where the first part has so many columns. The others end where their tiles do.
    fn at(&self, column: usize) -> Option<(f64, Places)> {
        let [q, n] = self.extents;
        // Rows that whole tiles take, so many tiles along them.
        let ends = |k: usize, beside: usize| {
            let all = (1..=MOST.min(beside)).map(move |parts| self.most[1 - k][beside.div_ceil(parts)]);
            let ends = all.flat_map(|tile| (1..=MOST).map(move |times| times * tile));
            let mut ends: Vec<usize> = ends.filter(|&end| end > 0 && end < self.extents[k]).collect();
            ends.sort_unstable();
            ends.dedup();
            ends
        };
        let mut best: Option<(f64, Places)> = None;
        let (firsts, seconds) = (ends(0, column), ends(0, n - column));
        for &second in &seconds {
            let right = self.even(second, n - column, MOST);
            for third in ends(1, q - second) {
                let third = third.min(n - column);
                // What is left takes its share at least.
                let beside = right + self.even(q - second, third, MOST);
                let rest = q * n - second * (n - column) - (q - second) * third;
                if best.as_ref().is_some_and(|b| beside + self.at_least(1, rest) >= b.0) {
                    continue;
                }
                for &first in firsts.iter().filter(|&&f| f >= second) {
                    let places = [first, column, second, third];
                    let takes = self.parts(places).map(|[rows, columns]| self.even(rows.1, columns.1, MOST)).sum();
                    if best.as_ref().is_none_or(|b| takes < b.0) {
                        best = Some((takes, places));
                    }
                }
            }
        }
        best
    }

    /// The parts, by the first position and how many along both indices.
    fn parts(&self, [first, column, second, third]: Places) -> impl Iterator<Item = Place> {
        let [q, n] = self.extents;
        let parts = [
            [(0, first), (0, column)],
            [(0, second), (column, n - column)],
            [(second, q - second), (n - third, third)],
            [(first, q - first), (0, n - third)],
            [(second, first - second), (column, n - third - column)],
        ];
        parts.into_iter().filter(|[rows, columns]| rows.1 > 0 && columns.1 > 0)
    }
}
