//! The least that two, three or four rectangles take which fill a result.
//!
//! So few always leave a line across what they fill: one side of it is one rectangle, or two on either side. All lines are tried, that is all places of the first, and for each all of
//! the next. Where sides are long a line may lie anywhere between two places, and each part of it is counted as the least that it may be: what a rectangle takes must be no less for a larger one.

/// Rectangles, at most: five may lie round about one of them.
pub(super) const FEW: usize = 4;
/// Places of a line along a side, at most, for two, for three and for four rectangles, as each has one line more.
const PLACES: [usize; FEW - 1] = [1024, 512, 96];

/// Rectangles of one result.
pub(super) struct Few<'a> {
    /// What one of so many rows and columns takes, without end if there is none.
    pub takes: &'a dyn Fn(usize, usize) -> f64,
    /// Positions between two places along each side.
    step: [usize; 2],
}

impl<'a> Few<'a> {
    /// To ask for so many at most.
    pub fn new(extents: [usize; 2], count: usize, takes: &'a dyn Fn(usize, usize) -> f64) -> Self {
        let places = PLACES[count.clamp(2, FEW) - 2];
        Self { takes, step: extents.map(|n| n.div_ceil(places).max(1)) }
    }

    /// The least that so many take.
    pub fn least(&self, sides: [usize; 2], count: usize) -> f64 {
        let mut best = if count == 1 { (self.takes)(sides[0], sides[1]) } else { f64::INFINITY };
        // As many in one part as in the other, or fewer.
        for few in 1..=count / 2 {
            for index in [0, 1] {
                best = best.min(self.across(sides, index, [few, count - few], best));
            }
        }
        best
    }

    /// The same for a line across, with so many in both parts.
    fn across(&self, sides: [usize; 2], index: usize, counts: [usize; 2], limit: f64) -> f64 {
        let (step, all) = (self.step[index], sides[index]);
        let mut best = limit;
        for place in (0..all).step_by(step) {
            // Somewhere from the first position that leaves something to the last.
            let [first, last] = [place.max(1), (place + step - 1).min(all - 1)];
            if first > last {
                continue;
            }
            let [mut part, mut other] = [sides; 2];
            (part[index], other[index]) = (first, all - last);
            let takes = self.least(part, counts[0]);
            if takes >= best && counts[0] == 1 {
                // A larger one takes no less.
                break;
            } else if takes >= best {
                continue;
            }
            best = best.min(takes + self.least(other, counts[1]));
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiles::tests::cuts;
    use super::{FEW, Few};

    #[test]
    fn no_way_to_fill_takes_less() {
        let mut tried = 0;
        for (sides, most) in [[3, 4], [4, 4], [2, 6]].into_iter().flat_map(|s| (3..14).map(move |m| (s, m))) {
            let fits = |r: usize, s: usize| r * s <= most;
            let takes = |r: usize, s: usize| if fits(r, s) { (7 * (r + s) + r * s) as f64 } else { f64::INFINITY };
            let few = Few::new(sides, FEW, &takes);
            let mut least = [f64::INFINITY; FEW + 1];
            cuts(0, sides, &fits, &mut vec![], &mut |tiles| {
                if tiles.len() <= FEW {
                    let all = tiles.iter().map(|t| takes(t[2], t[3])).sum();
                    least[tiles.len()] = least[tiles.len()].min(all);
                }
            });
            for (count, &least) in least.iter().enumerate().skip(1) {
                assert_eq!(few.least(sides, count), least, "{count} of {most} in {sides:?}");
                tried += usize::from(least.is_finite());
            }
        }
        assert!(tried > 40, "{tried}");
    }
}
