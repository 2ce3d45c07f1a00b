//! What must come in of rows and columns whose sums are computed in groups, tile by tile of the results.
//!
//! There are `q` rows and `n` columns. What is read of a row are `d'` elements, with what it carries; what weights are made of are `d` elements of a column; and each of the `e`
//! results of a row sums up products of weights with another element of each column. *Groups* follow one another as in the module `tiles`: what rests of one has its
//! place from its first product to its last, and what passes comes in once for it. No weight goes out. Either
//!
//! - one side stays all the time, all rows or all that weights are made of, and groups of what is beside it follow one another; or
//! - *tiles* of results do, `p` rows by `c` of their results: the rows rest with their sums, and all that weights are made of passes, with what is multiplied for the `c` results.
//!
//! *Beside all rows* `c` columns of results rest, `q c` sums, and a column that passes takes as much besides as [`Beside`] has a group of `q` rows meet, `c` of whose elements wait for
//! the weight. *Beside what weights are made of* either rows rest while what they multiply passes: of a column of the results `n` elements meet `p` sums, each with each,
//! so that one more than the fewer of the two are there at some moment, with a weight. Or `c n` elements rest that are multiplied, while rows pass: when the first of a row's `n`
//! weights has been used for all `c` sums, these are there with what the row carries, and either all its elements, if a weight is still to be begun, with the first, or a number for each of the `n`.
//!
//! Where a few elements of the values that should stay have no place, they may come in again for each row.
//!
//! *Tiles*, for each of which more of the columns passes than fits. Let `a` of them have all `e` results of their rows, `P` rows at most each, and `b` others fewer. Then `r = q - a P`
//! rows are in none of the `a`, and it is enough to count those in the others, at most `r` in each: each row is in two of these at least, so that the `p` sum up to `2 r`, and the `p c` to
//! `e r`. Whatever the prices of both counts, the others take what `r` rows cost, and `b` times the least that a tile takes beyond what it counts. If that is no less than nothing, more
//! tiles take no less. Of two others each has all `r` rows, and one of them half of the results.

use super::beside::Beside;
use super::filled::{Shape, Strip, dearest, least_filled};
use super::orders::{Pieces, Sides};
use super::{Incoming, ProjectiveNest};

/// Numbers of tiles of one kind that are gone through one by one.
const MOST_TILES: usize = 64;
/// Rounds of a search for the best prices, each with one tile more.
const ROUNDS: usize = 32;
/// How near the best prices a search comes.
const CLOSE: f64 = 1e-6;

/// Times the best price.
const LOWER: f64 = 0.998;

/// Rows and columns, in numbers.
struct Chain {
    /// How many there are.
    rows: f64,
    columns: f64,
    /// What is held of a row beside its sums.
    row: f64,
    /// What weights are made of, of a column.
    first: f64,
    results: f64,
    memory: f64,
}

impl ProjectiveNest {
    /// What must come in, in orders of the module's kinds, whichever takes least. `None` where the nest is not one of rows and columns, all of which meet; where a result
    /// does not take one element of a column each; where what is read moves more bytes of one array than of another; and where all comes in once.
    pub fn incoming_in_results(&self, capacity: f64, beside: &Beside) -> Option<Incoming> {
        let Sides { held, read, last, sums, positions: [rows, columns], repeated, .. } = self.sides(beside)?;
        let number = beside.number.max(1.0);
        let alike = self.arrays.iter().filter(|a| !a.sum).all(|a| a.read_bytes == a.bytes);
        if !alike || last <= 0.0 || last != sums || read.iter().chain(&held).any(|&b| b <= 0.0) {
            return None;
        }
        let [memory, carried, row, first, results] =
            [capacity, beside.carried, held[0] - sums, held[1] - last, last].map(|b| b / number);
        let chain = Chain { rows, columns, row, first, results, memory };
        // Rows of tiles with so many results.
        let fitting = |results: f64| {
            let [row, column] = [held[0] - sums + results * number, held[1] - last + results * number];
            beside.rows(capacity, [row, column], results * number)
        };
        let [of_row, of_column] = [read[0] / (row - carried), read[1] / held[1] * number];
        let [by_rows, by_sums, by_values] = chain.beside_a_side(carried, beside.numbers as f64);
        let sides = (by_rows.min(by_sums) * of_column).min(by_values * of_row);
        let least = sides.min(chain.in_tiles(&fitting) * of_column);
        let found = Incoming { passing: repeated * least, resting: repeated * (rows * read[0] + columns * read[1]) };
        Some(found).filter(|_| least > 0.0 && least.is_finite())
    }
}

impl Chain {
    /// What comes in more than once where one side stays: of columns beside all rows and beside what weights are made of; of rows beside that.
    fn beside_a_side(&self, carried: f64, numbers: f64) -> [f64; 3] {
        let Self { rows, columns, row, first, results, memory } = *self;
        let more = |count: f64, size: f64, fitting: f64, passing: f64, memory: f64| match fitting.floor() {
            fitting if fitting < 1.0 => f64::INFINITY,
            fitting => Pieces { all: count * size, count }.apart((count / fitting).ceil(), passing, memory) - passing,
        };
        let beside_rows = memory - rows * row;
        let parts = ((beside_rows - first - numbers) / (rows + 1.0))
            .max((beside_rows - (rows - 1.0) - numbers.min(2.0)) / rows);
        let beside_columns = memory - columns * first;
        let groups = ((beside_columns - columns - 2.0) / row).max((beside_columns - 2.0) / (row + 1.0));
        let values = (beside_columns - carried - columns.min(row - carried + 1.0)) / (columns + 1.0);
        let passing = rows * (row - carried);
        let all = Pieces { all: results * columns, count: results };
        let crowded = all.crowded(values, columns, [passing, rows], beside_columns);
        [
            more(results, rows, parts, columns * first, beside_rows),
            more(rows, row, groups, columns * results, beside_columns),
            more(results, columns, values, passing, beside_columns).min(crowded - passing),
        ]
    }

    /// What comes in of columns beyond once for tiles of results, of whose rows so many fit. Without end where nothing is known.
    fn in_tiles(&self, fitting: &dyn Fn(f64) -> f64) -> f64 {
        let Self { rows, columns, row, first, results, memory } = *self;
        let whole = fitting(results).max(0.0);
        if columns * (first + results) <= memory || (rows / whole) > MOST_TILES as f64 {
            return f64::INFINITY;
        }
        // Tiles with fewer results, by these and their rows.
        let fewest = (memory / columns - first).ceil().max(1.0) as usize;
        let sizes: Vec<(f64, f64)> =
            (fewest..results as usize).map(|c| (c as f64, fitting(c as f64))).filter(|s| s.1 >= 1.0).collect();
        let takes = |results: f64, rows: f64, tiles: f64| {
            columns * (first + results) + (1.0 - 1.0 / tiles) * rows * (row + results) - memory
        };
        let mut best = f64::INFINITY;
        for full in (0..=(rows / whole).ceil() as usize).rev() {
            let full = full as f64;
            let left = (rows - full * whole).max(0.0);
            let of_full = |tiles: f64| {
                full * (columns * (first + results) - memory) + (1.0 - 1.0 / tiles) * (rows - left) * (row + results)
            };
            if left == 0.0 {
                best = best.min(of_full(full) + memory);
                continue;
            }
            let ends = ends(&sizes, left);
            let shapes = |tiles: f64| -> Vec<[f64; 3]> {
                ends.iter().map(|&(c, p)| [p * c / results / left, p / 2.0 / left, takes(c, p, tiles)]).collect()
            };
            if (best - memory - of_full(full + 2.0)) <= per_row(&shapes(2.0)) {
                // With fewer that have all results it is no less, if it is not for one of them less.
                continue;
            }
            for others in 2..=MOST_TILES {
                let tiles = full + others as f64;
                if others == 2 && fitting((results / 2.0).ceil()) < left {
                    continue;
                }
                let (found, beyond) = priced(&shapes(tiles), others as f64);
                best = best.min(of_full(tiles) + found + memory);
                if beyond >= 0.0 {
                    break;
                }
                if others == MOST_TILES {
                    return 0.0;
                }
            }
        }
        best.max(self.filled(fitting, fewest)) - columns * (first + results)
    }

    /// The same where each tile is of rows and results that follow one another, so that tiles fill all results: see the module `filled`. It counts
    /// that what two tiles leave over takes a third one.
    fn filled(&self, fitting: &dyn Fn(f64) -> f64, fewest: usize) -> f64 {
        let Self { rows, columns, row, first, results, memory } = *self;
        let fitting: Vec<usize> = (0..=results as usize).map(|c| fitting(c as f64).clamp(0.0, rows) as usize).collect();
        let strips = |weight: f64| {
            let of = |c: usize| {
                let all = c as f64;
                let takes = [columns * (first + all) - memory, weight * (row + all)];
                Strip { rows: c, from: 1, to: fitting[c], takes, marked: false, dear: false }
            };
            (fewest.max(1)..=results as usize).filter(|&c| fitting[c] > 0).map(of).collect()
        };
        least_filled([results as usize, rows as usize], &strips, &|_, _| 0.0, false) + memory
    }
}

/// Tiles, by their results and rows, of which at most so many: all that is counted of a tile grows evenly with either, so that the others
/// are between these.
fn ends(sizes: &[(f64, f64)], most: f64) -> Vec<(f64, f64)> {
    let all: Vec<(f64, f64)> = sizes.iter().map(|&(c, p)| (c, p.min(most))).collect();
    let runs = all.chunk_by(|a, b| a.1 == b.1).flat_map(|run| [run[0], run[run.len() - 1]]);
    let single = [sizes.first(), sizes.last()].into_iter().flatten().map(|s| (s.0, 1.0));
    let mut out: Vec<(f64, f64)> = runs.chain(single).collect();
    out.dedup();
    out
}

/// The least that tiles take, by two counts that have to come to 1 each, whatever their number.
fn per_row(shapes: &[[f64; 3]]) -> f64 {
    let least = |weight: f64| {
        let one = |s: &[f64; 3]| s[2] / (weight * s[0] + (1.0 - weight) * s[1]);
        shapes.iter().map(one).fold(f64::INFINITY, f64::min)
    };
    [0.0, 0.25, 0.5, 0.75, 1.0].map(least).into_iter().fold(0.0, f64::max)
}

/// The least that so many tiles take by the same counts, and the least that one takes beyond what it counts. Without end if so many cannot.
/// Any prices give a bound; the best are those of a linear program, tile by tile that takes less than its prices say.
fn priced(shapes: &[[f64; 3]], tiles: f64) -> (f64, f64) {
    let most = |k: usize| shapes.iter().map(|s| s[k]).fold(0.0, f64::max);
    if tiles * most(0) < 1.0 || tiles * most(1) < 1.0 {
        return (f64::INFINITY, -1.0);
    }
    let below = |s: &[f64; 3], [a, b]: [f64; 2]| s[2] - a * s[0] - b * s[1];
    let beyond = |by: [f64; 2]| shapes.iter().map(|s| below(s, by)).fold(f64::INFINITY, f64::min);
    let value = |by: [f64; 2], least: f64| by[0] + by[1] + tiles * least;
    let (mut prices, mut least) = ([0.0; 2], beyond([0.0; 2]));
    let (mut tried, mut taken) = (prices, vec![]);
    for _ in 0..ROUNDS {
        let farthest = shapes.iter().min_by(|s, t| below(s, tried).total_cmp(&below(t, tried)));
        taken.extend(farthest.map(|&[rows, sums, takes]| Shape { counts: vec![rows, sums], takes }));
        let (found, _, all) = dearest(&taken, 2, tiles, false);
        tried = [found[0], found[1]];
        let reached = beyond(tried);
        if value(tried, reached) > value(prices, least) {
            (prices, least) = (tried, reached);
        }
        if all <= value(prices, least) * (1.0 + CLOSE) {
            break;
        }
    }
    let lower = prices.map(|p| LOWER * p);
    match beyond(lower) {
        // Where more tiles take no less, prices that are a little lower say so.
        enough if least < 0.0 && enough >= 0.0 => (value(lower, enough), 0.0),
        _ => (value(prices, least), least),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiles::tests::cuts;
    use super::super::{Beside, NestArray, ProjectiveNest};
    use super::Chain;
    use std::collections::BTreeSet;

    fn beside(carried: f64) -> Beside {
        Beside { carried, numbers: 3, number: 1.0, last: BTreeSet::from(["V".to_string()]) }
    }

    /// What comes in of columns for tiles of results, `[row, result, rows, results]`, in the best order of them.
    fn in_best_order(tiles: &[[usize; 4]], [n, d, row]: [usize; 3], memory: usize, last: Option<[usize; 4]>) -> usize {
        let next = (0..tiles.len()).map(|k| {
            let [_, left, p, c] = tiles[k];
            let stays = last.map_or(0, |[_, from, rows, results]| {
                let both = (left + c).min(from + results).saturating_sub(left.max(from));
                (n * (d + both)).min(memory - (p * (row + c)).max(rows * (row + results)))
            });
            let rest: Vec<_> = tiles.iter().enumerate().filter(|t| t.0 != k).map(|t| *t.1).collect();
            n * (d + c) - stays + in_best_order(&rest, [n, d, row], memory, Some(tiles[k]))
        });
        next.min().unwrap_or(0)
    }

    #[test]
    fn no_tiles_of_results_take_less() {
        let (mut tried, mut near) = (0, 0);
        for ([q, e], d, n) in
            [[3, 2], [4, 3], [5, 2], [6, 2]].into_iter().flat_map(|s| [(s, 2, 9), (s, 3, 12), (s, 5, 8), (s, 2, 25)])
        {
            for memory in (12..2 * q * (d + e) + 20).step_by(5) {
                let row = d + 2;
                let fitting = |results: f64| {
                    let [row, column] = [row as f64 + results, d as f64 + results];
                    beside(2.0).rows(memory as f64, [row, column], results)
                };
                let fits = |p: usize, c: usize| fitting(c as f64) >= p as f64 && n * (d + c) >= memory;
                let mut least = usize::MAX;
                cuts(0, [q, e], &fits, &mut vec![], &mut |tiles| {
                    if tiles.len() <= 5 {
                        least = least.min(in_best_order(tiles, [n, d, row], memory, None));
                    }
                });
                let [rows, columns, held, first, results] = [q, n, row, d, e].map(|x| x as f64);
                let chain = Chain { rows, columns, row: held, first, results, memory: memory as f64 };
                let found = chain.in_tiles(&fitting) + columns * (first + results);
                if least < usize::MAX && found.is_finite() {
                    let case = format!("{q} rows of {d} and {e}, {n} columns, {memory}: {found} of {least}");
                    assert!(found <= least as f64 * (1.0 + 1e-6), "{case}");
                    (tried, near) = (tried + 1, near + usize::from(found > 0.9 * least as f64));
                }
            }
        }
        assert!(tried > 100 && 2 * near > tried, "{near} of {tried}");
    }

    /// 40 rows and 30 columns of 4 elements: keys fit 150 elements, keys and values do not.
    #[test]
    fn what_rests_takes_room_beside_it() {
        let more = |memory: f64| {
            let chain = Chain { rows: 40.0, columns: 30.0, row: 6.0, first: 4.0, results: 4.0, memory };
            chain.beside_a_side(2.0, 3.0)
        };
        let none = f64::INFINITY;
        let rows = |memory: f64, groups: f64| groups * 120.0 - (groups - 1.0) * (memory - 120.0 - 240.0 / groups);
        let found = more(152.0);
        assert_eq!(found[..2], [none, rows(152.0, 10.0).min(rows(152.0, 40.0)) - 120.0]);
        // Values that come in for each row are not worth it.
        assert!(found[2] > 8.0 * 160.0);
        // Two columns have a place in 202, and rows pass twice, but for what stays of them.
        assert_eq!(more(202.0)[2], 160.0 - (82.0 - 60.0));
        // Values that fit beside the keys come in once.
        assert_eq!(more(250.0)[1], 0.0);
        // All rows with two of four sums each fit 327 numbers, a key and two values, and three numbers.
        assert_eq!(more(240.0 + 80.0 + 4.0 + 2.0 + 3.0)[0], (120.0f64 - (89.0 - 80.0)).max(0.0));
        assert_eq!(more(240.0 + 80.0 + 4.0 + 2.0 + 2.0)[0], 3.0 * 120.0 - 3.0 * (88.0 - 40.0));
    }

    #[test]
    fn no_more_is_told_than_of_rows_and_columns() {
        let array = |name: &str, over: usize, sum: bool| NestArray {
            name: name.to_string(),
            over: BTreeSet::from([over]),
            bytes: 4.0,
            read_bytes: if sum { 0.0 } else { 4.0 },
            again_bytes: 4.0,
            sum,
        };
        let arrays = vec![array("Q", 0, false), array("K", 1, false), array("V", 1, false), array("O", 0, true)];
        let nest = ProjectiveNest { extents: vec![40, 30], points: 1200.0, arrays, ..ProjectiveNest::default() };
        let all = |memory: f64, beside: &Beside| nest.incoming_in_results(memory, beside).map(|i| i.all());
        assert_eq!(all(202.0, &beside(2.0)), Some(2.0 * 160.0 - (82.0 - 60.0) + 120.0 + 120.0));
        assert_eq!(all(250.0, &beside(2.0)), None, "all comes in once");
        let other = Beside { last: BTreeSet::new(), ..beside(2.0) };
        assert_eq!(all(202.0, &other), None, "nothing of a column waits for a weight");
    }
}
