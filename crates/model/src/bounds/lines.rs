//! The least that rectangles take which fill a result, by the lines across it.
//!
//! Either a line lies across what some rectangles fill, from one side to the other, or none does. With a line there are two parts, of which the same is true. Without one each line of positions
//! meets two of them at least, so that together they are as long as twice both sides: what that takes is a case of its own, and so is a single one. All lines are tried, for all sizes of parts.
//! Where a side is long its positions are counted in steps, rounded down: both parts of a line have one step less together.

/// Steps along a side, at most.
const STEPS: usize = 256;

/// The least for a result of these sides, if one or several rectangles without a line across take so much or more. No less for a larger result.
pub(super) fn least_by_lines(sides: [usize; 2], takes: &dyn Fn(f64, f64) -> f64) -> f64 {
    let step = sides.map(|n| n.div_ceil(STEPS).max(1));
    let [rows, columns] = [0, 1].map(|k| sides[k] / step[k]);
    let lost = step.map(|s| usize::from(s > 1));
    let mut least = vec![vec![f64::INFINITY; columns + 1]; rows + 1];
    for r in 1 - lost[0]..=rows {
        for s in 1 - lost[1]..=columns {
            let mut best = takes((r * step[0]) as f64, (s * step[1]) as f64);
            let parts =
                |n: usize, lost: usize| (1 - lost..=n / 2).filter_map(move |k| Some((k, n.checked_sub(k + lost)?)));
            for (one, other) in parts(r, lost[0]).filter(|p| p.0 < r && p.1 < r) {
                best = best.min(least[one][s] + least[other][s]);
            }
            for (one, other) in parts(s, lost[1]).filter(|p| p.0 < s && p.1 < s) {
                best = best.min(least[r][one] + least[r][other]);
            }
            least[r][s] = best;
        }
    }
    least[rows][columns]
}
