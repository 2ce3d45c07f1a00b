//! What tiles, and groups of rows beside them, take by the lines across the result.
//!
//! A group of rows is as long as a side of the result, and none lies the other way where one does: what it leaves are strips as long as that side, which tiles fill alone.
//! So all numbers of rows that groups have are tried, and of the others what tiles take for a strip of as many.
//!
//! What any tiles take grows with the part of what rests that counts, evenly. So what is known of all of it and of a lesser part says what is in between.

use super::super::lines::{Lines, ROUND_ABOUT};
use super::{Product, most_beside};

/// What is known of all tiles, and of a part of what rests.
pub(super) struct Lined {
    product: Product,
    /// For how much of what rests, the lesser first.
    weights: [f64; 2],
    /// Of tiles with a line across the result.
    across: [f64; 2],
    /// Of groups of rows, at least one, and tiles beside them.
    with_rows: [f64; 2],
    chords: [Chord; 2],
}

/// What a tile takes beyond the memory, at least: `each`, and `slope` for each of its sums.
#[derive(Clone, Copy)]
struct Chord {
    each: f64,
    slope: f64,
}

impl Lined {
    /// For tiles of `most` sums or less.
    pub fn new(product: Product, most: f64) -> Self {
        let [q, n] = product.sides;
        let weights = [1.0 - 1.0 / (q * n / most).ceil().min(2.0), 1.0];
        let chords = weights.map(|weight| product.chord(weight, most));
        let sides = product.sides.map(|side| side as usize);
        let mut with_rows = [f64::INFINITY; 2];
        let mut across = [f64::INFINITY; 2];
        for (k, &weight) in weights.iter().enumerate() {
            let takes = |r: f64, s: f64| {
                let single = product.takes([r, s], weight, false);
                single.min(product.without_a_line([r, s], weight, chords[k], ROUND_ABOUT as f64))
            };
            let lines = Lines::new(sides, &takes);
            across[k] = lines.across;
            with_rows[k] = product.rows_and_tiles(weight, &lines);
        }
        Self { product, weights, across, with_rows, chords }
    }

    /// What tiles alone take, so many or, if `more`, as many at least; 0 for one, which leaves no line.
    pub fn alone(&self, weight: f64, count: f64, more: bool) -> f64 {
        if count < 2.0 {
            return 0.0;
        }
        let Self { product, weights, chords, .. } = self;
        let across = self.between(weight, self.across);
        let five = ROUND_ABOUT as f64;
        let from = count.max(five);
        let without = [0, 1].map(|k| product.without_a_line(product.sides, weights[k], chords[k], from));
        let without = match more {
            true => self.between(weight, without),
            false if count == five => product.five(weight),
            false => product.round_about(product.sides, weight, from),
        };
        across.min(without)
    }

    /// What groups of rows and tiles take together, at least one group; 0 where less of what rests counts than is known of.
    pub fn with_rows(&self, weight: f64) -> f64 {
        if weight < self.weights[0] { 0.0 } else { self.between(weight, self.with_rows) }
    }

    fn between(&self, weight: f64, [less, all]: [f64; 2]) -> f64 {
        let [from, to] = self.weights;
        let part = (weight - from) / (to - from);
        if less.is_infinite() || all.is_infinite() { less } else { less + part * (all - less) }
    }
}

impl Product {
    /// What a tile takes is concave from the fewest sums that need `2M` on, and before them it takes the memory and what rests.
    fn chord(self, weight: f64, most: f64) -> Chord {
        let fewest = self.fewest(most);
        let one = |p: f64| self.needs(p).max(2.0 * self.memory) + weight * p - self.memory;
        match most - fewest > 1.0 {
            true => {
                let slope = (one(most) - one(fewest)) / (most - fewest);
                Chord { each: one(most) - slope * most, slope }
            }
            false => Chord { each: self.memory, slope: weight },
        }
    }

    /// What so many tiles without a line across `r` rows and `s` columns take, and no more of them less than that but for what each takes less.
    ///
    /// No tile lies along a whole side. So the sides of those at the border are as long as twice `r + s` together; and beside these each but for the four at the corners has a side of one at least, and one that
    /// is at no border, of which there is one, has two, for which it needs `2M`.
    fn round_about(self, [r, s]: [f64; 2], weight: f64, count: f64) -> f64 {
        let Self { steps: k, memory, .. } = self;
        2.0 * (r + s) * k + weight * r * s - 3.0 * memory - (count - ROUND_ABOUT as f64) * (memory - k).max(0.0)
    }

    /// The same of five tiles: four round about one. Of `a` columns the first has, its neighbour along the side the others, and so `b` of the opposite side; where these differ the rows differ by no
    /// less than what the tiles cannot hold, and the one in the middle has what both differ by.
    fn five(self, weight: f64) -> f64 {
        let Self { sides: [q, n], steps: k, memory } = self;
        let most: Vec<f64> = (0..=n as usize).map(|s| most_beside(s.max(1) as f64, memory).min(q - 1.0)).collect();
        let mut least = f64::INFINITY;
        for a in 1..n as usize {
            for b in a + 1..n as usize {
                let [one, next, other, last] = [a, n as usize - a, n as usize - b, b].map(|s| most[s]);
                if one + last >= q && next + other >= q {
                    let middle = [(q - last - next).max(1.0), (b - a) as f64];
                    least = if middle[0] <= most[b - a] { least.min(middle[0] + middle[1]) } else { least };
                }
            }
        }
        let outside = 2.0 * (q + n) * k + weight * q * n - ROUND_ABOUT as f64 * memory;
        outside + (least * k).max(2.0 * memory)
    }

    /// The least for `from` tiles or more without a line across `r` rows and `s` columns: what is [round about](Self::round_about) falls with their number, and what each takes by itself grows.
    fn without_a_line(self, [r, s]: [f64; 2], weight: f64, Chord { each, slope }: Chord, from: f64) -> f64 {
        let first = self.round_about([r, s], weight, from);
        let falls = (self.memory - self.steps).max(0.0);
        let grows = |each: f64, others: f64| {
            let here = each * from + others;
            let more = if falls + each > 0.0 { ((first - here) / (falls + each)).max(0.0) } else { 0.0 };
            here + each * more
        };
        grows(self.memory, 0.0).max(if each < 0.0 { 0.0 } else { grows(each, slope * r * s) })
    }

    /// The least for groups of rows and tiles, at least one group, whichever way these lie.
    fn rows_and_tiles(self, weight: f64, lines: &Lines) -> f64 {
        let sides = self.sides.map(|side| side as usize);
        let along = |index: usize| {
            let (all, other) = (sides[index], self.sides[1 - index]);
            let place = |rows: usize, columns: usize| if index == 0 { [rows, columns] } else { [columns, rows] };
            let group = |rows: usize| self.takes(place(rows, sides[1 - index]).map(|n| n as f64), weight, true);
            if other * self.steps <= self.memory {
                return f64::INFINITY;
            }
            let groups: Vec<f64> = (0..=all).map(|rows| if rows == 0 { f64::INFINITY } else { group(rows) }).collect();
            let mut least = groups.clone();
            for rows in 1..=all {
                let two = (1..=rows / 2).map(|one| least[one] + least[rows - one]);
                least[rows] = two.fold(least[rows], f64::min);
            }
            let beside = |rows: usize| least[rows] + lines.least(place(all - rows, sides[1 - index]));
            (1..=all).map(beside).fold(f64::INFINITY, f64::min)
        };
        along(0).min(along(1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lines::tests::in_two;
    use super::super::tests::cuts;
    use super::{Lined, Product};

    /// Every number of tiles, with a line across and round about, against all that there are.
    #[test]
    fn no_number_of_tiles_takes_less() {
        let (mut tried, mut round_about, mut near) = (0, 0, 0);
        for (sides, memory) in [[3, 3], [4, 4]].into_iter().flat_map(|s| [4, 5, 6, 7].map(|m| (s, m))) {
            for steps in [4, 30] {
                let [q, n, k, all] = [sides[0], sides[1], steps, memory].map(|x: usize| x as f64);
                let product = Product { sides: [q, n], steps: k, memory: all };
                let fits = |r: usize, s: usize| r * s + r.min(s) < memory && (r + s) * steps >= 2 * memory;
                let mut least = vec![[f64::INFINITY; 2]; sides[0] * sides[1] + 1];
                cuts(0, sides, &fits, &mut vec![], &mut |tiles| {
                    let count = tiles.len();
                    let takes = tiles.iter().map(|t| (t[2] + t[3]) as f64 * k - all).sum::<f64>();
                    let found = takes + (1.0 - 1.0 / count as f64) * q * n;
                    let place = &mut least[count][usize::from(in_two(tiles).is_none())];
                    *place = place.min(found);
                });
                let lined = Lined::new(product, (all - 2.0).min(q * n));
                let best = least.iter().flatten().copied().fold(f64::INFINITY, f64::min);
                let mut told = f64::INFINITY;
                let first = (q * n / (all - 2.0).min(q * n)).ceil() as usize;
                for count in first.max(2)..least.len() {
                    let weight = 1.0 - 1.0 / count as f64;
                    let [so_many, more] = [false, true].map(|more| lined.alone(weight, count as f64, more));
                    let [with, without] = least[count];
                    let case = format!("{count} of {sides:?} by {steps} in {memory}");
                    assert!(so_many <= with.min(without) + 1e-6, "{case}: {so_many} of {with} and {without}");
                    let all = least[count..].iter().flatten().copied().fold(f64::INFINITY, f64::min);
                    assert!(more <= all + 1e-6, "{case} or more: {more} of {all}");
                    told = told.min(so_many);
                    round_about += usize::from(without.is_finite());
                }
                tried += usize::from(best.is_finite());
                near += usize::from(best.is_finite() && told > 0.9 * best);
            }
        }
        assert!(tried > 8 && 3 * near > tried && round_about > 10, "{near} of {tried}, {round_about} round about");
    }

    /// Four tiles round about a fifth, by all places of them.
    #[test]
    fn five_tiles_lie_round_about_one() {
        let mut tried = 0;
        for ([q, n], memory) in [[6, 6], [7, 9], [12, 8]].into_iter().flat_map(|s| (4..40).map(move |m| (s, m))) {
            let product = Product { sides: [q as f64, n as f64], steps: 50.0, memory: memory as f64 };
            let fits = |r: usize, s: usize| r * s + r.min(s) < memory;
            let mut least = f64::INFINITY;
            let pairs = |side: usize| (1..side).flat_map(move |low| (low + 1..side).map(move |high| [low, high]));
            for ([a, b], [d, c]) in pairs(n).flat_map(|ab| pairs(q).map(move |dc| (ab, dc))) {
                let tiles = [[c, a], [d, n - a], [q - d, n - b], [q - c, b], [c - d, b - a]];
                if tiles.iter().all(|t| fits(t[0], t[1])) {
                    let takes = |t: &[usize; 2]| ((t[0] + t[1]) as f64 * 50.0).max(2.0 * memory as f64) - memory as f64;
                    least = least.min(tiles.iter().map(takes).sum::<f64>() + 0.8 * (q * n) as f64);
                }
            }
            let found = product.five(0.8);
            assert!(found == least || (found - least).abs() < 1e-6, "{q} by {n} in {memory}: {found} of {least}");
            tried += usize::from(least.is_finite());
        }
        assert!(tried > 30, "{tried}");
    }
}
