//! The least that rectangles take which fill a result, by the lines across it.
//!
//! Either a line lies across what some rectangles fill, from one side to the other, or none does. With a line there are two parts, of which the same is true. Without one there is a single
//! rectangle, or there are five at least, of which one touches no side ([`round_about`]): what these take is said by the caller. All lines are tried, for all sizes of parts.
//! Where a side is long its positions are counted in steps, rounded down: both parts of a line have one step less together.

/// Steps along a side, at most.
const STEPS: usize = 384;

/// The fewest rectangles without a line across what they fill, if they are several.
///
/// A line between rectangles that is as long as can be ends where it meets one across, as it does not go from side to side. From such an end inside go along the line that it meets to an end of that
/// one inside, and so on: each time the way turns, and some time it comes back to where it was. What it goes round about touches no side. Of the others no two corners are in one rectangle,
/// as one that is as long as a side has a line beside it.
pub(super) const ROUND_ABOUT: usize = 5;

/// What fills every result up to some size takes at least.
pub(super) struct Lines {
    /// Positions of a step along each side.
    step: [usize; 2],
    /// By steps of both sides.
    least: Vec<Vec<f64>>,
    /// The least for all of it if a line is across.
    pub across: f64,
}

impl Lines {
    /// For results up to these sides, if one or several rectangles without a line across take so much or more. No less for a larger result.
    pub fn new(sides: [usize; 2], takes: &dyn Fn(f64, f64) -> f64) -> Self {
        let step = sides.map(|n| n.div_ceil(STEPS).max(1));
        let [rows, columns] = [0, 1].map(|k| sides[k] / step[k]);
        let lost = step.map(|s| usize::from(s > 1));
        let mut found = Self { step, least: vec![vec![f64::INFINITY; columns + 1]; rows + 1], across: f64::INFINITY };
        for r in 1 - lost[0]..=rows {
            // Side by side for all columns, as this is done most often.
            let mut best = vec![f64::INFINITY; columns + 1];
            for (one, other) in parts(r, lost[0]) {
                let both = found.least[one].iter().zip(&found.least[other]);
                best.iter_mut().zip(both).for_each(|(best, (x, y))| *best = best.min(x + y));
            }
            for s in 1 - lost[1]..=columns {
                let row = &found.least[r];
                let across = parts(s, lost[1]).map(|(one, other)| row[one] + row[other]).fold(best[s], f64::min);
                found.across = across;
                found.least[r][s] = across.min(takes((r * step[0]) as f64, (s * step[1]) as f64));
            }
        }
        found
    }

    /// The least for a result of these sides, none of them longer than the longest.
    pub fn least(&self, sides: [usize; 2]) -> f64 {
        match sides {
            [0, _] | [_, 0] => 0.0,
            [r, s] => self.least[r / self.step[0]][s / self.step[1]],
        }
    }
}

/// Both parts of so many steps, of which so many are lost; each is less than all.
fn parts(all: usize, lost: usize) -> impl Iterator<Item = (usize, usize)> {
    let both = (1 - lost..=all / 2).filter_map(move |one| Some((one, all.checked_sub(one + lost)?)));
    both.filter(move |&(one, other)| one < all && other < all)
}
