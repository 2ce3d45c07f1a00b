//! The least that rectangles take which fill a result, by the lines across it.
//!
//! Either a line lies across what some rectangles fill, from one side to the other, or none does. With a line there are two parts, of which the same is true. Without one there is a single
//! rectangle, or there are five at least, of which one touches no side ([`ROUND_ABOUT`]): what these take is said by the caller. All lines are tried, for all sizes of parts.
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
                best.iter_mut().zip(both).for_each(|(best, (x, y))| *best = less(*best, x + y));
            }
            for (s, &lined) in best.iter().enumerate().skip(1 - lost[1]) {
                let row = &found.least[r];
                let across = less(lined, in_two(row, s, lost[1]));
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

/// As `f64::min` of numbers, in one instruction.
fn less(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// The least that both parts of so many steps take together.
fn in_two(row: &[f64], all: usize, lost: usize) -> f64 {
    let (from, Some(both)) = (1 - lost, all.checked_sub(lost)) else { return f64::INFINITY };
    let Some(ones) = row.get(from..=both / 2) else { return f64::INFINITY };
    let others = &row[both - both / 2..=both - from];
    // Four at a time.
    let mut least = [f64::INFINITY; 4];
    let (ones, others) = (ones.chunks_exact(4), others.rchunks_exact(4));
    let rest = ones.remainder().iter().zip(others.remainder().iter().rev());
    let rest = rest.fold(f64::INFINITY, |least, (x, y)| less(least, x + y));
    for (one, other) in ones.zip(others) {
        for k in 0..4 {
            least[k] = less(least[k], one[k] + other[3 - k]);
        }
    }
    least.into_iter().fold(rest, less)
}

/// Both parts of so many steps, of which so many are lost; each is less than all.
fn parts(all: usize, lost: usize) -> impl Iterator<Item = (usize, usize)> {
    let both = (1 - lost..=all / 2).filter_map(move |one| Some((one, all.checked_sub(one + lost)?)));
    both.filter(move |&(one, other)| one < all && other < all)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tiles::tests::cuts;
    use super::{Lines, ROUND_ABOUT, STEPS};

    /// First row and column of a rectangle, and how many it has.
    type Tile = [usize; 4];

    /// Both parts of some rectangles by a line across what they fill.
    pub(in super::super) fn in_two(tiles: &[Tile]) -> Option<[Vec<Tile>; 2]> {
        let both = |k: usize, at: usize| tiles.iter().copied().partition(|t: &Tile| t[k] + t[k + 2] <= at);
        let lines = tiles.iter().flat_map(|t| [(0, t[0]), (1, t[1])]);
        let across = |&(k, at): &(usize, usize)| {
            tiles.iter().any(|t| t[k] < at) && tiles.iter().all(|t| t[k] >= at || t[k] + t[k + 2] <= at)
        };
        lines.into_iter().find(across).map(|(k, at)| both(k, at)).map(|(one, other): (Vec<_>, Vec<_>)| [one, other])
    }

    /// Whether lines across leave single rectangles.
    fn by_lines(tiles: &[Tile]) -> bool {
        tiles.len() == 1 || in_two(tiles).is_some_and(|parts| parts.iter().all(|p| by_lines(p)))
    }

    #[test]
    fn what_has_no_line_goes_round_about() {
        let (mut without, mut fewest) = (0, usize::MAX);
        for sides in [[2, 6], [3, 3], [3, 4], [4, 4]] {
            cuts(0, sides, &|_, _| true, &mut vec![], &mut |tiles| {
                if tiles.len() == 1 || in_two(tiles).is_some() {
                    return;
                }
                let at = |t: &Tile, k: usize| usize::from(t[k] == 0) + usize::from(t[k] + t[k + 2] == sides[k]);
                let middle = tiles.iter().filter(|t| at(t, 0) + at(t, 1) == 0).count();
                let corners = tiles.iter().filter(|t| at(t, 0) == 1 && at(t, 1) == 1).count();
                assert!(middle > 0 && corners == 4, "{tiles:?}");
                (without, fewest) = (without + 1, fewest.min(tiles.len()));
            });
        }
        assert!(without > 50 && fewest == ROUND_ABOUT, "{without}, {fewest}");
    }

    #[test]
    fn no_way_to_fill_takes_less() {
        let mut without = 0;
        for (sides, most) in [[3, 3], [3, 4]].into_iter().flat_map(|s| (2..10).map(move |m| (s, m))) {
            let fits = |r: usize, s: usize| r * s <= most;
            let [mut lined, mut any] = [f64::INFINITY; 2];
            let one = |r: f64, s: f64| if r * s <= most as f64 { 7.0 * (r + s) + r * s } else { f64::INFINITY };
            cuts(0, sides, &fits, &mut vec![], &mut |tiles| {
                let all = tiles.iter().map(|t| one(t[2] as f64, t[3] as f64)).sum::<f64>();
                any = any.min(all);
                if by_lines(tiles) {
                    lined = lined.min(all);
                }
            });
            assert_eq!(Lines::new(sides, &one).least(sides), lined, "{most} in {sides:?}");
            // Sides round about are twice those of what is filled, and a little more.
            let either = |r: f64, s: f64| one(r, s).min(7.0 * (2.0 * (r + s) + 2.0) + r * s);
            let found = Lines::new(sides, &either).least(sides);
            assert!(found <= any, "{most} in {sides:?}: {found} of {any}");
            without += usize::from(found < lined);
        }
        assert!(without > 0);
    }

    #[test]
    fn steps_of_long_sides_take_no_more() {
        let mut less = 0;
        for (long, most) in [(5, 2), (11, 3), (23, 7)].map(|(times, most)| (times * STEPS / 4 + times, most * times)) {
            let takes = |r: f64, s: f64| if r * s <= 3.0 * most as f64 { r + 40.0 * s + 9.0 } else { f64::INFINITY };
            // Three columns, whole or in parts: each of them is cut by rows, as many as fit.
            let by_rows = |columns: f64| {
                let fits = (3.0 * most as f64 / columns).floor();
                long as f64 + (long as f64 / fits).ceil() * (40.0 * columns + 9.0)
            };
            let all = by_rows(3.0).min(by_rows(2.0) + by_rows(1.0)).min(3.0 * by_rows(1.0));
            let found = Lines::new([long, 3], &takes).least([long, 3]);
            assert!(found <= all && found > 0.8 * all, "{long}, {most}: {found} of {all}");
            less += usize::from(found < all);
        }
        assert!(less > 0);
    }
}
