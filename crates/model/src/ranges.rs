//! How long the ranges of a loop are together, over the windows of a loop outside it that its conditions mention.
//!
//! Under a causal mask a stream over `n` ends where the rows `m` of its point of the grid end: each point has a range of its own. The
//! ends are the least of some lines and the greatest of others, as functions of the point's number, so the numbers of points fall into
//! a few stretches with one line at each end. Over a stretch lengths are an arithmetic series, and numbers of chunks one of
//! floors, which is a count of lattice points below a line.
//!
//! Condition: the loop's own factor in each of its conditions divides that of the other loop, times its tile, so that ends
//! are lines.

use einloom_tile::{AxisId, Predicate, Window};

/// A value at window number `i`: `at + by * i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    at: i128,
    by: i128,
}

impl Line {
    fn value(self, i: i128) -> i128 {
        self.at + self.by * i
    }

    /// The first number from which on this line is negative, or ceases to be.
    fn turns(self) -> Option<i128> {
        match self.by {
            0 => None,
            up if up > 0 => Some(-self.at.div_euclid(up)),
            down => Some(self.at.div_euclid(-down) + 1),
        }
    }

    fn minus(self, other: Self, more: i128) -> Self {
        Self { at: self.at - other.at - more, by: self.by - other.by }
    }

    /// The sum over a stretch of numbers, and that of its quotients by `d`, each rounded down.
    fn sum(self, from: i128, to: i128) -> i128 {
        self.floors(from, to, 1)
    }

    fn floors(self, from: i128, to: i128, d: i128) -> i128 {
        floors(to - from, self.by, self.value(from), d)
    }
}

/// Windows that follow each other, all of the same length: what a loop outside another runs over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub axis: AxisId,
    pub first: Window,
    pub count: usize,
}

/// A stretch of windows for which a loop's range is not empty and its ends move along one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The numbers of its windows.
    from: i128,
    to: i128,
    low: Line,
    high: Line,
}

impl Stretch {
    /// How many windows.
    pub fn count(&self) -> i128 {
        self.to - self.from
    }

    /// The positions of all ranges together, each begun at a multiple of the tile.
    pub fn lengths(&self, tile: usize) -> i128 {
        let tile = tile as i128;
        self.high.sum(self.from, self.to) - tile * self.low.floors(self.from, self.to, tile)
    }

    /// The chunks of all ranges together.
    pub fn chunks(&self, tile: usize) -> i128 {
        let tile = tile as i128;
        let up = Line { at: self.high.at + tile - 1, ..self.high };
        up.floors(self.from, self.to, tile) - self.low.floors(self.from, self.to, tile)
    }

    /// The longest range, begun at a multiple of the tile.
    pub fn longest(&self, tile: usize) -> i128 {
        let tile = tile as i128;
        let length = |i: i128| self.high.value(i) - tile * self.low.value(i).div_euclid(tile);
        match self.low.by % tile {
            0 => length(self.from).max(length(self.to - 1)),
            // The beginning falls back by a part of a tile, in no order.
            _ => (self.from..self.to).map(length).max().unwrap_or(0),
        }
    }

    /// At least how many positions its ranges cover together, each begun at a multiple of the tile, and between which they all lie: all if
    /// each begins where the one before ends or sooner, or none before the one before ends; else those of the longest.
    fn covered(&self, tile: usize) -> ([i128; 2], i128) {
        let size = tile as i128;
        let begin = |i: i128| size * self.low.value(i).div_euclid(size);
        let ends = [self.from, self.to - 1];
        let hull = [
            ends.map(begin)[0].min(ends.map(begin)[1]),
            ends.map(|i| self.high.value(i)).into_iter().fold(0, i128::max),
        ];
        let rises = self.low.by >= 0 && self.high.by >= 0;
        // What lies between a range's end and the beginning of the next, at both ends of the stretch.
        let gap = |i: i128| self.low.value(i + 1) - self.high.value(i);
        let gaps = [gap(self.from), gap((self.to - 2).max(self.from))];
        let aligned = self.low.at % size == 0 && self.low.by % size == 0;
        let apart = if aligned { 0 } else { size - 1 };
        let covered = match rises {
            true if self.count() > 1 && gaps.iter().all(|&g| g >= apart) => self.lengths(tile),
            true if self.count() > 1 && gaps.iter().all(|&g| g <= 0) => hull[1] - hull[0],
            _ => self.longest(tile),
        };
        (hull, covered)
    }
}

/// At least how many positions the ranges of all stretches cover together.
pub(crate) fn covered(stretches: &[Stretch], tile: usize) -> i128 {
    let mut all: Vec<([i128; 2], i128)> = stretches.iter().map(|s| s.covered(tile)).collect();
    all.sort_unstable();
    let (mut total, mut end) = (0, 0);
    for ([from, to], covered) in all {
        // What begins before the others end may be the same positions; what is without gaps has more behind them.
        let behind = if covered == to - from { (to - end).max(0) } else { 0 };
        total = if from >= end { total + covered } else { covered.max(total + behind) };
        end = end.max(to);
    }
    total
}

/// The stretches of a loop over `axis` of this extent under conditions, where the axes but that of `outer` stand as in `windows`; as
/// [`einloom_tile::stream_range`] has it one by one. `None` where an end is no line.
pub(crate) fn stretches(
    extent: usize,
    axis: AxisId,
    within: &Predicate,
    outer: Windows,
    windows: &[Window],
) -> Option<Vec<Stretch>> {
    let mut low = vec![Line { at: 0, by: 0 }];
    let mut high = vec![Line { at: extent as i128, by: 0 }];
    // What must not be negative.
    let mut holds = vec![];
    for affine in &within.all {
        let own: i128 = affine.terms.iter().filter(|t| t.1 == axis).map(|t| i128::from(t.0)).sum();
        let mut rest = Line { at: i128::from(affine.constant), by: 0 };
        for &(c, other) in affine.terms.iter().filter(|t| t.1 != axis) {
            let window = if other == outer.axis { outer.first } else { windows[other.at()] };
            let last = (window.base + window.len).saturating_sub(1) as i128;
            let c = i128::from(c);
            rest.at += if c > 0 { c * last } else { c * window.base as i128 };
            rest.by += if other == outer.axis { c * window.len as i128 } else { 0 };
        }
        if own != 0 && rest.by % own != 0 {
            return None;
        }
        match own {
            0 => holds.push(rest),
            c if c > 0 => low.push(Line { at: -rest.at.div_euclid(c), by: -rest.by / c }),
            c => high.push(Line { at: rest.at.div_euclid(-c) + 1, by: rest.by / -c }),
        }
    }
    let apart = |lines: &[Line]| -> Vec<Line> {
        (1..lines.len()).flat_map(|k| lines[..k].iter().map(move |l| lines[k].minus(*l, 0))).collect()
    };
    // No range where its ends meet.
    holds.extend(low.iter().flat_map(|l| high.iter().map(|h| h.minus(*l, 1))));
    let count = outer.count as i128;
    let turning = apart(&low).into_iter().chain(apart(&high)).chain(holds.iter().copied()).filter_map(Line::turns);
    let mut ends: Vec<i128> = turning.filter(|t| (1..count).contains(t)).chain([0, count]).collect();
    ends.sort_unstable();
    ends.dedup();
    let found = ends.windows(2).filter_map(|ends| {
        let (from, to) = (ends[0], ends[1]);
        // Lines that meet at the beginning part until the end.
        let key = |l: &&Line| (l.value(from), l.value(to - 1));
        let (low, high) = (*low.iter().max_by_key(key)?, *high.iter().min_by_key(key)?);
        holds.iter().all(|h| h.value(from) >= 0).then_some(Stretch { from, to, low, high })
    });
    Some(found.collect())
}

/// The sum of `⌊(by * i + at) / d⌋` over `i` from 0 to `n - 1`: whole parts first; what is left are the lattice points below a line
/// that rises by less than one a step, and counted by rows in place of columns it is such a sum again, of fewer terms.
fn floors(n: i128, by: i128, at: i128, d: i128) -> i128 {
    let whole = n * (n - 1) / 2 * by.div_euclid(d) + n * at.div_euclid(d);
    let (by, at) = (by.rem_euclid(d), at.rem_euclid(d));
    let top = by * n + at;
    if top < d { whole } else { whole + floors(top / d, d, top % d, by) }
}

#[cfg(test)]
mod tests {
    use super::{Windows, floors, stretches};
    use einloom_tile::{Affine, AxisId, Predicate, Window, stream_range};
    use std::collections::BTreeSet;

    #[test]
    fn quotients_are_summed_as_one_by_one() {
        for (n, d) in [(0_i128, 3_i128), (1, 1), (7, 5), (40, 12)] {
            for by in -15..15 {
                for at in -9..30 {
                    let each: i128 = (0..n).map(|i| (by * i + at).div_euclid(d)).sum();
                    assert_eq!(floors(n, by, at, d), each, "{n} terms of ({by} i + {at}) / {d}");
                }
            }
        }
    }

    /// Two conditions with factors of either sign on two loops, and on one that stands: ranges as they are found one by one.
    #[test]
    fn ranges_are_as_long_as_one_by_one() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |from: i64, to: i64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            from + (state % (to - from + 1) as u64) as i64
        };
        let (outer, inner, still) = (AxisId(0), AxisId(1), AxisId(2));
        let (mut lines, mut not_empty) = (0, 0);
        let [mut least, mut most] = [0, 0];
        for case in 0..20_000 {
            let (own_tile, tile, extent) = (random(1, 9) as usize, random(1, 9) as usize, random(1, 40) as usize);
            let condition = |random: &mut dyn FnMut(i64, i64) -> i64| Affine {
                constant: random(-30, 30),
                terms: vec![(random(-2, 2), outer), (random(-2, 2), inner), (random(-1, 1), still)],
            };
            let all = (0..random(1, 3)).map(|_| condition(&mut random)).collect();
            let within = Predicate { all };
            let mut windows = [Window::default(), Window::default(), Window { base: random(0, 9) as usize, len: 2 }];
            let first = Window { base: random(0, 3) as usize * own_tile, len: own_tile };
            let outer = Windows { axis: outer, first, count: random(1, 20) as usize };
            let Some(found) = stretches(extent, inner, &within, outer, &windows) else { continue };
            lines += 1;
            let (mut count, mut lengths, mut chunks, mut longest) = (0, 0, 0, 0);
            let mut touched = BTreeSet::new();
            for i in 0..outer.count {
                windows[0] = Window { base: first.base + i * own_tile, len: own_tile };
                let (low, high) = stream_range(extent, inner, &within, &windows);
                if low < high {
                    let length = high - (low - low % tile);
                    count += 1;
                    lengths += length as i128;
                    chunks += length.div_ceil(tile) as i128;
                    longest = longest.max(length as i128);
                    touched.extend(low - low % tile..high);
                }
            }
            let sum = |of: &dyn Fn(&super::Stretch) -> i128| found.iter().map(of).sum::<i128>();
            assert_eq!(sum(&|s| s.count()), count, "case {case}: {within:?} {outer:?} {extent}");
            assert_eq!(sum(&|s| s.lengths(tile)), lengths, "case {case}");
            assert_eq!(sum(&|s| s.chunks(tile)), chunks, "case {case}");
            assert_eq!(found.iter().map(|s| s.longest(tile)).max().unwrap_or(0), longest, "case {case}");
            let covered = super::covered(&found, tile);
            assert!(covered <= touched.len() as i128 && covered >= longest, "case {case}: {covered} of {touched:?}");
            [least, most] = [least + covered, most + touched.len() as i128];
            not_empty += i128::from(count > 0);
        }
        assert!(lines > 10_000 && not_empty > 5_000, "{lines} {not_empty}");
        // Tiles that cut a range of another one are what is missing.
        assert!(least * 10 > most * 7, "{least} of {most}");
    }

    /// Shares of a loop, begun at multiples of its tile, and windows that overlap: all that they cover.
    #[test]
    fn shares_and_overlapping_windows_cover_all() {
        let (outer, inner) = (AxisId(0), AxisId(1));
        let between = |from: i64, to: i64, step: i64| Predicate {
            all: vec![
                Affine { constant: -from, terms: vec![(-step, outer), (1, inner)] },
                Affine { constant: to - 1, terms: vec![(step, outer), (-1, inner)] },
            ],
        };
        let covered = |within: &Predicate, count: usize, extent: usize, tile: usize| {
            let windows = [Window { base: 0, len: 1 }, Window::default()];
            let outer = Windows { axis: outer, first: windows[0], count };
            super::covered(&stretches(extent, inner, within, outer, &windows).expect("lines"), tile)
        };
        assert_eq!(covered(&between(0, 12, 12), 5, 55, 4), 55, "shares of 12, the last of 7");
        assert_eq!(covered(&between(-3, 9, 4), 5, 55, 1), 25, "each window begins inside the one before");
        assert_eq!(covered(&between(0, 4, 12), 5, 55, 4), 20, "between them nothing is touched");
    }
}
