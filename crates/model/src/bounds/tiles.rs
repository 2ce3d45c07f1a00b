//! What must come in for a product whose pieces are whole in number.
//!
//! `2abc/√M` lets `2.1` squares be held one after the other. A result that `2.1` squares cover takes three pieces, and pieces that
//! divide it are no squares. Here is what that costs, for orders in which one thing rests and the others pass by it.
//!
//! The result has `q` rows and `n` columns, `k` products are summed up for each of its elements, and `M` elements fit. *Groups* follow one
//! another: no product of one is made before those of the one before are; what rests of a group has its place from the group's first product to
//! its last; every sum stays until it is complete; and an element that passes comes in once for the group. What rests is
//!
//! - rows of a factor, all `k` elements of each, while all of the other passes; or
//! - whole rows of the result; or
//! - *tiles* of the result, some of its rows by some of its columns, for each of which `2M` elements of factors are needed at least.
//!
//! Of rows of a factor some elements may have no place: they come in again for each column of the other that passes.
//!
//! Either all groups are of one of the first two kinds; or they are of any kinds, if neither factor fits that passes by rows.
//!
//! *What is held besides.* Let `r` rows by `s` columns of sums rest. Of one step, a column of `r` and a row of `s` elements of the factors, some element is
//! the first to be done with. All that it meets has come in by then, and is not done: `min(r, s)` others are there, so that `r s + min(r, s) + 1 ≤ M`. Of `p`
//! rows of a factor and one column of the other, of `k` elements, some row is the first to be done with. If another has not begun, the `k` elements are
//! there and the row's sum; else `p` sums are, and an element: `p k + min(p, k) + 1 ≤ M`.
//!
//! *What stays.* Of what a group needs that passes, `U_i`, only that need not come in which is there at the last product of the group before, or, if that
//! is later and less, at its own first one: no more than `M - max(p_{i-1}, p_i)`, where `p_i` is what rests of a group. The maxima sum up to what rests
//! of all groups but for the least one: each group before that has the maximum with the next, each after it that with the one before. So
//!
//! `Σ U_i + Σ p_i - min p_i - (G - 1) M`
//!
//! comes in beside what comes in once. Rows of a factor come in for their own group alone, `p_i` elements of the `U_i`: those that are there at a cut do not pass.

use super::few::{FEW, Few};
use super::filled::{Strip, least_filled};
use super::{Incoming, ProjectiveNest};
use lined::Lined;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

mod lined;

/// Sides up to this long are gone through shape by shape.
const MOST_SIDE: f64 = 1024.0;
/// Of more tiles than so many a whole number is as good as any.
const MOST_TILES: f64 = 256.0;
/// Numbers of tiles beyond the fewest that are gone through one by one.
const MORE_TILES: usize = 12;
/// Products whose bounds are kept, at most.
const MOST_FOUND: usize = 4096;

/// A product of matrices, in elements.
#[derive(Clone, Copy, Debug)]
struct Product {
    /// Rows and columns of the result.
    sides: [f64; 2],
    /// Products that are summed up for each of its elements.
    steps: f64,
    memory: f64,
}

impl ProjectiveNest {
    /// What must come in for a product of two matrices, in orders of the module's three kinds, whichever takes least. `None` where the nest is no
    /// such product, or no more than everything once is known.
    pub fn incoming_in_tiles(&self, capacity: f64) -> Option<Incoming> {
        let common = self.arrays.iter().map(|a| a.over.clone()).reduce(|a, b| &a & &b)?;
        let (sums, factors): (Vec<_>, Vec<_>) = self.arrays.iter().partition(|a| a.sum);
        let ([sum], [one, other]) = (&sums[..], &factors[..]) else { return None };
        let [sum_over, one_over, other_over] = [sum, one, other].map(|a| &a.over - &common);
        let [rows, columns, steps] =
            [&one_over & &sum_over, &other_over & &sum_over, &(&one_over & &other_over) - &sum_over];
        let all: BTreeSet<usize> = (0..self.extents.len()).collect();
        let is_product = one_over == &rows | &steps && other_over == &columns | &steps && sum_over == &rows | &columns;
        let alike = [one, other].iter().all(|a| a.bytes == sum.bytes && a.read_bytes == a.bytes);
        if !is_product || !alike || sum.bytes <= 0.0 || self.points < self.positions(&all) {
            return None;
        }
        let product = Product {
            sides: [&rows, &columns].map(|i| self.positions(i)),
            steps: self.positions(&steps),
            memory: (capacity / sum.bytes).floor(),
        };
        let once = product.sides.iter().sum::<f64>() * product.steps;
        let least = product.least().filter(|&least| least > once)?;
        let bytes = self.positions(&common) * sum.bytes;
        Some(Incoming { passing: (least - once) * bytes, resting: once * bytes })
    }
}

impl Product {
    /// Elements of the factors that come in, at least; `None` if there is no such order. What was found is kept: plans ask for few products,
    /// again and again.
    fn least(self) -> Option<f64> {
        static FOUND: Mutex<Option<HashMap<[u64; 4], Option<f64>>>> = Mutex::new(None);
        let all = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let [q, n] = self.sides;
        let key = [q, n, self.steps, self.memory].map(f64::to_bits);
        if let Some(found) = all().get_or_insert_default().get(&key).copied() {
            return found;
        }
        let found = self.found();
        let mut all = all();
        let all = all.get_or_insert_default();
        if all.len() >= MOST_FOUND {
            all.clear();
        }
        all.insert(key, found);
        found
    }

    fn found(self) -> Option<f64> {
        let [q, n] = self.sides;
        let rows = |rows: f64, columns: f64, row: f64| rows * self.steps + self.groups(rows, row, columns * self.steps);
        let crowded = |rows: f64, columns: f64| rows * self.steps + self.crowded_groups(rows, columns);
        let of_factors = rows(q, n, self.steps).min(rows(n, q, self.steps)).min(crowded(q, n)).min(crowded(n, q));
        let of_results = rows(q, n, n).min(rows(n, q, q));
        let least = of_factors.min(of_results).min(self.tiles());
        Some(least).filter(|l| l.is_finite())
    }

    /// What passes by so many rows of so many elements each that rest in groups, if all of `passing` is needed for each group.
    ///
    /// `G` groups of at most `p` rows take `G C - (G - 1)(M - R / G)`, where `R` is what all rows hold: the least group has no more than
    /// `R / G`. That grows with `G` where more passes than fits; else it is concave in `G`, so that it is least for the fewest or the most groups.
    fn groups(self, count: f64, row: f64, passing: f64) -> f64 {
        let memory = self.memory;
        let fitting = most_beside(row, memory);
        if fitting < 1.0 {
            return f64::INFINITY;
        }
        let least = |groups: f64| groups * passing - (groups - 1.0) * (memory - count * row / groups);
        let fewest = least((count / fitting).ceil());
        if passing > memory { fewest } else { fewest.min(least(count)).max(passing) }
    }

    /// What passes, and comes in again, by so many rows of a factor in fewer groups than would fit.
    ///
    /// Of groups of `p_i` rows `Σ x_i` elements stay and the others, `R - Σ x_i`, come in for each of the columns that pass, not once. In all no fewer do than in groups of as many rows each,
    /// as what does not stay is convex in `p`, or nearly: it is counted as no more than `k` for the first row that does not fit, and `k` for each other one.
    fn crowded_groups(self, count: f64, columns: f64) -> f64 {
        let Self { steps: k, memory, .. } = self;
        let (fitting, passing) = (most_beside(k, memory).max(0.0), columns * k);
        let first = ((fitting + 1.0) * k - self.stays(fitting + 1.0)).min(k);
        let comes = |p: f64| if p <= fitting { 0.0 } else { first + (p - fitting - 1.0) * k };
        let takes = |groups: f64| {
            let rows = (count / groups).floor();
            let longer = count - rows * groups;
            let again = (groups - longer) * comes(rows) + longer * comes(rows + 1.0);
            let stays = memory - (count * k - again) / groups;
            (groups * passing - (groups - 1.0) * stays, (columns - 1.0) * again)
        };
        let all = |groups: f64| {
            let (passes, more) = takes(groups);
            passes.max(passing) + more
        };
        // What comes in again is linear in the number of groups while all have more rows than fit, and while some do; so is what passes,
        // then, and the least is at an end of these pieces or where all that passes comes in once.
        let most = if fitting < 1.0 { count } else { (count / fitting).ceil() - 1.0 };
        let all_longer = (count / (fitting + 1.0)).floor().min(most);
        let mut best = f64::INFINITY;
        for [from, to] in [[1.0, all_longer], [all_longer + 1.0, most]] {
            if from > to {
                continue;
            }
            let [first, last] = [from, to].map(|groups| takes(groups).0);
            let bend = from + (passing - first) / (last - first) * (to - from);
            let bends = [bend.floor(), bend.ceil()].into_iter().filter(|b| (from..=to).contains(b));
            best = [from, to].into_iter().chain(bends).map(all).fold(best, f64::min);
        }
        best
    }

    /// Whole tiles, of which each needs twice as much of the factors as fits.
    fn tiles(self) -> f64 {
        let [q, n] = self.sides;
        let most = (self.memory - 2.0).min(q * n);
        if most < 1.0 {
            return f64::INFINITY;
        }
        let numbered = self.numbered(most);
        let few = q * n <= MOST_TILES * most && q.max(n) <= MOST_SIDE;
        if !few {
            return numbered.min(self.by_elements());
        }
        let lined = Lined::new(self, most);
        let alone = numbered.max(self.filled(&lined, false));
        alone.min(self.filled(&lined, true))
    }

    /// What tiles and groups of rows take for each element of the result, and the memory once, where sides are too long to go through. Groups of rows take least for an element where they
    /// are as large as can be; and so do tiles, or where they are squares as long as the shorter side, or where they need `2M`: between these what they take is `x + y p` or `x + y √p`, `y √p > -2x`.
    fn by_elements(self) -> f64 {
        let Self { sides: [q, n], steps: k, memory } = self;
        let rows = |row: f64, rows: f64, columns: f64| match most_beside(row, memory).min(rows) {
            fitting if fitting >= 1.0 && columns * k > memory => {
                Some([(fitting + columns) * k, fitting * row, fitting * columns])
            }
            _ => None,
        };
        // One row more than fits; each other one takes `k` for an element, as if nothing stayed.
        let crowded = |rows: f64, columns: f64| {
            let more = most_beside(k, memory).max(0.0) + 1.0;
            let stays = self.stays(more);
            (more <= rows && columns * k > memory).then_some([
                columns * (k + more * k - stays) + stays,
                stays,
                more * columns,
            ])
        };
        let most = (memory - 2.0).min(q * n);
        let fewest = self.fewest(most);
        let tiles = |sums: f64| Some([self.needs(sums).max(2.0 * memory), sums, sums]);
        let shorter = q.min(n).powi(2).clamp(fewest, most);
        let all: Vec<[f64; 3]> =
            [tiles(most), tiles(shorter), tiles(fewest), rows(k, q, n), rows(n, q, n), rows(k, n, q), rows(q, n, q)]
                .into_iter()
                .chain([crowded(q, n), crowded(n, q)])
                .flatten()
                .collect();
        let largest = all.iter().map(|a| a[2]).fold(0.0, f64::max);
        let weight = 1.0 - 1.0 / (q * n / largest).ceil();
        let price = |&[needs, rests, elements]: &[f64; 3]| (needs + weight * rests - memory) / elements;
        all.iter().map(price).fold(k, f64::min) * q * n + memory
    }

    /// Elements of the factors that so many sums need, at least: `r` rows by `s` columns need `(r + s) k`.
    fn needs(self, sums: f64) -> f64 {
        let shorter = self.sides[0].min(self.sides[1]);
        let half = if sums <= shorter * shorter { 2.0 * sums.sqrt() } else { shorter + sums / shorter };
        half * self.steps
    }

    /// The most sums that may need less than `2M`, or a little less.
    fn fewest(self, most: f64) -> f64 {
        let (mut low, mut high) = (0.0, most);
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            if self.needs(middle) < 2.0 * self.memory { low = middle } else { high = middle }
        }
        low.max(1.0)
    }

    /// The least for `G` tiles that hold the `V` sums, for the best `G`.
    ///
    /// With `U(p) = max(needs(p), 2M)`, which fewer sums than `p₀` do not lower, the least of `Σ U(p_i) + V - min p_i - (G - 1) M` is
    /// found where all tiles but one are as large as can be, or as the least, or hold `p₀`: from `p₀` on it is concave in the `p_i` while one of them
    /// stays the least. More tiles take more than the chord of `U(p) + p - M` from `p₀` to the most says, which grows with `G`.
    fn numbered(self, most: f64) -> f64 {
        let (memory, all) = (self.memory, self.sides[0] * self.sides[1]);
        let needed = |p: f64| self.needs(p).max(2.0 * memory);
        let fewest = self.fewest(most);
        let takes = |p: f64| needed(p) + p - memory;
        let slope = if most - fewest > 1.0 { (takes(most) - takes(fewest)) / (most - fewest) } else { 0.0 };
        let each = if slope > 0.0 { takes(most) - slope * most } else { takes(fewest) };
        if each < 0.0 {
            return 0.0;
        }
        let chord = |tiles: f64| (each * tiles + slope * all + memory - all / tiles).max(0.0);
        if all > MOST_TILES * most {
            return chord(all / most);
        }
        let first = (all / most).ceil() as usize;
        let mut best = f64::INFINITY;
        for count in first..first + MORE_TILES {
            let tiles = count as f64;
            if chord(tiles) >= best {
                return best;
            }
            let credit = (tiles - 1.0) * memory;
            for full in 0..count {
                let (full, others) = (full as f64, (count - full) as f64);
                let alike = (all - full * most) / others;
                if (fewest..=most).contains(&alike) {
                    best = best.min(full * needed(most) + others * needed(alike) + all - alike - credit);
                }
                let left = all - full * most - (others - 1.0) * fewest;
                if others > 1.0 && left <= most {
                    let ends = full * needed(most) + (others - 1.0) * needed(fewest);
                    best = best.min(ends + needed(left.max(fewest)) + all - fewest - credit);
                }
            }
        }
        best.min(chord((first + MORE_TILES) as f64))
    }

    /// The least for rectangles that fill the result: of tiles alone, or with a group of rows at least.
    fn filled(self, lined: &Lined, rows: bool) -> f64 {
        let strips = |weight: f64| self.strips(weight).into_iter().filter(|s| rows || !s.marked).collect();
        let sides = self.sides.map(|side| side as usize);
        let known = |count: usize, more: bool| {
            let weight = 1.0 - 1.0 / count as f64;
            let takes = |r: usize, s: usize| self.takes([r as f64, s as f64], weight, rows);
            let few = if count <= FEW && !more { Few::new(sides, count, &takes).least(sides, count) } else { 0.0 };
            few.max(if rows { lined.with_rows(weight) } else { lined.alone(weight, count as f64, more) })
        };
        least_filled(sides, &strips, &known, rows) + self.memory
    }

    /// What a rectangle takes as a tile, or, if they may be, as a group of rows, as [`strips`](Self::strips) have it; or less, so that none takes less than a smaller one.
    fn takes(self, [r, s]: [f64; 2], weight: f64, rows: bool) -> f64 {
        let Self { sides: [q, n], steps: k, memory } = self;
        let fits = r * s + r.min(s) < memory;
        let needs = |least: f64| if fits { ((r + s) * k).max(least) + weight * r * s - memory } else { f64::INFINITY };
        let group = |count: f64, passing: f64| {
            let stays = self.stays(count).max(0.0);
            needs(0.0).min(passing * (k + count * k - stays) + (1.0 + weight) * stays - memory)
        };
        let of_rows = if rows && s == n && n * k > memory { group(r, n) } else { f64::INFINITY };
        let of_columns = if rows && r == q && q * k > memory { group(s, q) } else { f64::INFINITY };
        needs(2.0 * memory).min(of_rows).min(of_columns)
    }

    /// All tiles, and groups of rows, which are marked, with what one takes where of what rests a part of `weight` counts.
    fn strips(self, weight: f64) -> Vec<Strip> {
        let Self { sides: [q, n], steps: k, memory } = self;
        let mut strips = vec![];
        let [whole_rows, whole_columns] = [n * k > memory, q * k > memory];
        let fitting = most_beside(k, memory);
        for rows in 1..=q as usize {
            let r = rows as f64;
            let takes = [r * k - memory, k + weight * r];
            let most = most_beside(r, memory).min(n);
            let fewest = (2.0 * memory / k - r).ceil().max(1.0);
            let mut add = |from: f64, to: f64, takes: [f64; 2], marked: bool| {
                if from <= to {
                    strips.push(Strip { rows, from: from as usize, to: to as usize, takes, marked, dear: false });
                }
            };
            add(fewest, most, takes, false);
            if whole_rows && most == n && fewest > n {
                add(n, n, takes, true);
            }
            if whole_columns && r == q {
                add(1.0, most.min(fewest - 1.0), takes, true);
                add(1.0, fitting.min(n), [q * k - memory, (1.0 + weight) * k], true);
            }
            if whole_rows && r <= fitting {
                add(n, n, [n * k + (1.0 + weight) * r * k - memory, 0.0], true);
            }
        }
        strips.extend(self.crowded(weight).into_iter().flatten());
        strips
    }

    /// Groups of more rows of a factor than fit. Beside `x` elements that stay `min(p, k) + 1` others are there, and the others of the `p k` come in for
    /// each element of what passes by.
    fn crowded(self, weight: f64) -> [Vec<Strip>; 2] {
        let Self { sides: [q, n], steps: k, memory } = self;
        let more = most_beside(k, memory).max(0.0) + 1.0;
        let takes = |rows: f64, passing: f64| {
            let stays = self.stays(rows);
            passing * (k + rows * k - stays) + (1.0 + weight) * stays - memory
        };
        let strip = |rows: f64, from: f64, to: f64, takes: [f64; 2]| {
            let [rows, from, to] = [rows, from, to].map(|x| x as usize);
            Strip { rows, from, to, takes, marked: true, dear: true }
        };
        let rows = (more as usize..=q as usize).filter(|_| n * k > memory);
        let rows = rows.map(|r| strip(r as f64, n, n, [takes(r as f64, n), 0.0])).collect();
        // What columns take is linear up to `k` of them and from there on.
        let linear = |[from, to]: [f64; 2]| {
            let [first, last] = [takes(from, q), takes(to, q)];
            let each = if to > from { (last - first) / (to - from) } else { 0.0 };
            strip(q, from, to, [first - each * from, each])
        };
        let ends = [[more, n.min(k)], [more.max(k), n]].into_iter().filter(|e| e[0] <= e[1] && q * k > memory);
        [rows, ends.map(linear).collect()]
    }

    /// Elements that may stay of a group of so many rows of a factor.
    fn stays(self, rows: f64) -> f64 {
        (rows * self.steps).min(self.memory - rows.min(self.steps) - 1.0)
    }
}

/// The most pieces of `piece` elements each that fit, with one element more than the fewer of the two.
fn most_beside(piece: f64, memory: f64) -> f64 {
    let beside = |pieces: f64, more: f64| ((memory - more) / pieces).floor();
    beside(piece, piece + 1.0).max(beside(piece + 1.0, 1.0))
}

#[cfg(test)]
pub(super) mod tests;
