//! What must come in of columns, for orders in which more of a row stays than for any order.
//!
//! Rows of results are whole in number, and so is how often columns pass by them. What [`ProjectiveNest::incoming`] gives for any order
//! does not count that. Here are two bounds that do, each for the orders that it names.

use super::beside::Beside;
use super::{Incoming, NestArray, ProjectiveNest};
use std::collections::BTreeSet;

/// A nest of rows and columns: of the first, then of the second.
pub(super) struct Sides {
    /// Bytes of one.
    pub held: [f64; 2],
    /// Those of them that are read.
    pub read: [f64; 2],
    /// Bytes of a column that a row uses only when its weight is complete, held and read.
    pub last: f64,
    pub last_read: f64,
    /// Bytes of a row's sums.
    pub sums: f64,
    /// How many there are.
    pub positions: [f64; 2],
    /// How often all of it is repeated.
    pub repeated: f64,
}

/// Pieces that are there from some moment to another each.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    /// Bytes of all of them.
    pub all: f64,
    /// How many there are, all alike: a memory holds a whole number of them. Infinitely many where nothing is known of their size.
    pub count: f64,
}

impl Pieces {
    /// What passes a memory beside them, if each of them meets `C` bytes while it is there, which come in as often as one likes: at least `C`,
    /// which it is where all pieces may be there at once; without end where the memory holds no piece. `beside` bytes are there
    /// besides when a piece meets something: a piece is there from the first such moment to the last.
    ///
    /// *Passes.* Of pieces of `R` bytes in all, `w` each, at most `⌊(M - b) / w⌋` are there when one begins or ends: of intervals, of which no more than so many meet,
    /// `G ≥ ⌈(R / w) / ⌊(M - b) / w⌋⌉` are apart.
    ///
    /// *What stays.* Let `G` be the most that are apart; `t_g` when `g` of them may be over at the earliest, `b_g` when so many may begin at
    /// the latest that with `g` before they are `G`: `t_g < b_g`. Cut time at `t_1 … t_k` and `b_{k+1} … b_{G-1}`: an interval lies between
    /// two cuts, so that `C` is used there, and comes in but for what was there at the cut before. A piece is there at one of the cuts, if it
    /// does not lie between `t_k` and `b_{k+1}`. It lies so for one `k` of the `G` at most: for a second, `l > k`, it would lie between `t_l`
    /// and `b_l`, with `l` before it and `G - l` after. So for some `k` the pieces that are there at cuts are `(G-1)/G` of all, and at least
    /// `G C - (G-1) (M - R / G)` comes in. It grows with `G` if `C > M`. Else it is concave in `G`, and least for the fewest pieces that can be apart
    /// or for all of them; no more are.
    fn passes(self, passing: f64, memory: f64, beside: f64) -> f64 {
        let room = memory - beside;
        if self.all <= room || passing <= memory && self.count.is_infinite() {
            return passing;
        }
        match (room * self.count / self.all).floor() {
            f64::INFINITY => self.apart((self.all / room).ceil(), passing, memory),
            fitting if fitting < 1.0 => f64::INFINITY,
            fitting => self.apart((self.count / fitting).ceil(), passing, memory),
        }
    }

    /// The same where so many pieces are apart in time at least.
    pub fn apart(self, fewest: f64, passing: f64, memory: f64) -> f64 {
        let least = |groups: f64| groups * passing - (groups - 1.0) * (memory - self.all / groups);
        match passing <= memory {
            true => least(fewest).min(least(self.count)).max(passing),
            false => least(fewest),
        }
    }
}

impl Pieces {
    /// The least that passes, and comes in again, in groups that follow one another of which some have more pieces than the memory holds: `fitting`, which need not be whole. Of a group of `p` at least
    /// `(p - fitting) size` elements have no place, and come in for each of so many `passes` of what passes by, not once.
    pub fn crowded(self, fitting: f64, size: f64, [passing, passes]: [f64; 2], memory: f64) -> f64 {
        let Self { all, count } = self;
        let (fitting, mut best) = (fitting.max(0.0), f64::INFINITY);
        let mut groups = if fitting < 1.0 { count } else { (count / fitting.floor()).ceil() - 1.0 };
        while groups >= 1.0 {
            // What has no place is convex in a group's pieces, so that groups that are nearly alike have least of it.
            let fewer = (count / groups).floor();
            let longer = count - fewer * groups;
            let comes = |pieces: f64| (pieces - fitting).max(0.0) * size;
            let again = (groups - longer) * comes(fewer) + longer * comes(fewer + 1.0);
            let more = (passes - 1.0) * again;
            let stays = memory - (all - again) / groups;
            best = best.min((groups * passing - (groups - 1.0) * stays).max(passing) + more);
            // Fewer groups have more of it.
            if more + passing >= best {
                break;
            }
            groups -= 1.0;
        }
        best
    }
}

impl ProjectiveNest {
    /// The same for orders in groups: rows of results are in groups that follow one another; all that belongs to a row (what is
    /// read of it, its sums and `carried` bytes more) is there from its first use to its last; and what comes in of a column while
    /// a group is there is used by all its rows, so that it comes in once for the group. `None` where the nest is not one of
    /// rows and columns, all of which meet, at least three of these; where the columns fit; where no row or every row does.
    ///
    /// *Passes.* With `p` rows of `w` bytes in a group, `p w` and what is held beside them fit `M`: [`Beside`] has how much that is. So groups
    /// have at most `a` rows, and of `q` rows there are `G ≥ ⌈q / a⌉` groups.
    ///
    /// *What stays.* In each group some row ends first; from when the row that begins last begins until then all rows of the
    /// group are there, and all columns are used: whoever begins last needs all of the first one, whoever ends first all of the
    /// last one. Cut time between two groups either where a row of the earlier one ends first or where one of the later one
    /// begins last, where the group is larger. All columns `C` are used between two cuts, and come in but for what is there at
    /// the cut before, at most `M - w max(p_i, p_{i+1})`. As `max(p_i, p_{i+1}) ≥ ((G-i) p_i + i p_{i+1}) / G`, the sum of these
    /// maxima is at least `q (G-1) / G`, and at least `G C - (G-1) (M - w q / G)` comes in. It grows with `G`, as `C > M`.
    pub fn incoming_in_groups(&self, capacity: f64, beside: &Beside) -> Option<Incoming> {
        let Sides { held, read, last, positions: [q, n], repeated, .. } = self.sides(beside)?;
        let fitting = beside.rows(capacity, held, last);
        let all = n * read[1];
        if fitting < 1.0 || fitting >= q || held[1] <= 0.0 || n < 3.0 || all <= capacity {
            return None;
        }
        let groups = (q / fitting).ceil();
        let passing = groups * all - (groups - 1.0) * (capacity - held[0] * q / groups);
        Some(Incoming { passing: repeated * passing.max(all), resting: repeated * q * read[0] })
    }

    /// The same for more orders: the sums of a row may be computed in parts, for each of which the row's weights are made again.
    /// Every row is there from its first use to its last; every sum from before the first weight for it is made until its last
    /// addition; and all weights for it are made meanwhile. Columns come in as often as one likes. `None` where the nest is not one of
    /// rows and columns, all of which meet; where what weights are made of fits by itself; and where all rows may be there at once.
    ///
    /// While a sum is there, it is *open*, all `C` bytes that weights are made of are used. An open sum is there with its row, so that with
    /// each there are `w` bytes of a row over its sums: these are the pieces of `Pieces::passes`, `q w` bytes in all.
    pub fn incoming_with_sums(&self, capacity: f64, beside: &Beside) -> Option<Incoming> {
        let Sides { held, read, last, last_read, positions: [q, n], repeated, .. } = self.sides(beside)?;
        let first = n * (read[1] - last_read);
        if first <= capacity || last <= 0.0 || held[0] <= 0.0 {
            return None;
        }
        let sums = Pieces { all: q * held[0], count: f64::INFINITY };
        if sums.all <= capacity {
            return None;
        }
        let passing = sums.passes(first, capacity, 0.0) + n * last_read;
        Some(Incoming { passing: repeated * passing, resting: repeated * q * read[0] })
    }

    /// The same for orders in which one side stays: all that is read of rows with what they carry, or all that weights are made of besides,
    /// is there from the first use to the last product. Of the rest each piece comes in once, and is there from before the first weight for it is
    /// made until its last use:
    ///
    /// - beside the rows the sums, while all that weights are made of passes;
    /// - beside what weights are made of either the rows, while what they multiply passes, or what they multiply, column of the
    ///   results by column, while the rows pass.
    ///
    /// Of the three the least, by `Pieces::passes` in what the side that stays leaves free. `None` where the nest is not one of rows and
    /// columns, all of which meet; where neither side fits; and where all comes in once.
    pub fn incoming_beside_a_side(&self, capacity: f64, beside: &Beside) -> Option<Incoming> {
        let Sides { held, read, last, last_read, sums, positions: [q, n], repeated } = self.sides(beside)?;
        if last <= 0.0 || read.iter().chain(&held).any(|&b| b <= 0.0) {
            return None;
        }
        let [rows, first] = [q * (held[0] - sums), n * (held[1] - last)];
        // A column of the results needs as much of what is multiplied, if each of its elements is for one result.
        let results = if last == sums { sums / beside.number.max(1.0) } else { f64::INFINITY };
        let pieces = |all: f64, count: f64| Pieces { all, count };
        // What passes more than once, if this stays. Beside a piece there are, when it is used, an element of what passes and a number that is
        // made of it; beside a row at least the number.
        let more = |stays: f64, resting: Pieces, numbers: f64, passing: f64| match capacity - stays {
            free if free <= numbers * beside.number => f64::INFINITY,
            free => resting.passes(passing, free, numbers * beside.number) - passing,
        };
        let least = more(rows, pieces(q * sums, f64::INFINITY), 2.0, n * (read[1] - last_read))
            .min(more(first, pieces(rows, q), 1.0, n * last_read))
            .min(more(first, pieces(n * last, results), 2.0, q * read[0]));
        let once = q * read[0] + n * read[1];
        let found = Incoming { passing: repeated * least, resting: repeated * once };
        Some(found).filter(|_| least > 0.0 && least.is_finite())
    }

    /// What must come in for one contraction in orders of two kinds, whichever takes less:
    ///
    /// - a factor comes in once, row by row: each of its rows, that is all of it that one position of the indices that stay in the result
    ///   needs, is there from its first use to its last. Every such row meets all of the other factors: `Pieces::passes`, with the factor for
    ///   which that is least;
    /// - sums stay: none is begun and completed while as much comes in as the memory holds twice, of what moves most bytes. Then no piece of the computation has
    ///   complete sums in which so much comes in, and those of [`ProjectiveNest::incoming`] that have none bound it.
    ///
    /// `None` where a row does not meet all, and where all may come in once.
    pub fn incoming_beside_a_factor_or_sums(&self, capacity: f64) -> Option<Incoming> {
        let all: BTreeSet<usize> = (0..self.extents.len()).collect();
        let common = self.arrays.iter().map(|a| a.over.clone()).reduce(|a, b| &a & &b)?;
        let kept: BTreeSet<usize> = self.arrays.iter().filter(|a| a.sum).flat_map(|a| &a.over - &common).collect();
        if self.points < self.positions(&all) || !self.arrays.iter().any(|a| a.sum) {
            return None;
        }
        let bytes = |a: &&NestArray| a.bytes * self.positions(&(&a.over - &common));
        let read = |a: &&NestArray| a.read_bytes * self.positions(&(&a.over - &common));
        let factors = || self.arrays.iter().filter(|a| !a.sum);
        let more = |resting: &NestArray| {
            let rows = &resting.over & &kept;
            // An element of what passes, and the sum that it is for.
            let beside =
                factors().chain(self.arrays.iter().filter(|a| a.sum)).map(|a| a.bytes).fold(f64::INFINITY, f64::min)
                    * 2.0;
            // What moves with the rows is met by its own alone.
            let met = || factors().filter(|a| a.over.is_disjoint(&rows));
            let passing: f64 = met().map(|a| read(&a)).sum();
            match rows.is_empty() || passing <= 0.0 {
                true => 0.0,
                false => {
                    let rows = Pieces { all: bytes(&resting), count: self.positions(&rows) };
                    rows.passes(passing, capacity, beside) - passing
                }
            }
        };
        let least = factors().map(more).reduce(f64::min).filter(|&least| least > 0.0 && least.is_finite())?;
        let repeated = self.positions(&common);
        let once = Incoming { passing: repeated * least, resting: repeated * factors().map(|a| read(&a)).sum::<f64>() };
        let sums = self.incoming_in_parts_of(capacity, 2.0 * capacity);
        [once, sums].into_iter().min_by(|a, b| a.all().total_cmp(&b.all()))
    }

    /// The nest as one of rows and columns, all of which meet.
    pub(super) fn sides(&self, beside: &Beside) -> Option<Sides> {
        let all: BTreeSet<usize> = (0..self.extents.len()).collect();
        let sums = self.arrays.iter().filter(|a| a.sum);
        let rows = sums.map(|a| a.over.clone()).reduce(|a, b| &a & &b)?;
        // What moves every array repeats the rest.
        let common = self.arrays.iter().map(|a| a.over.clone()).reduce(|a, b| &a & &b)?;
        let rows = &rows - &common;
        let columns = &(&all - &rows) - &common;
        if rows.is_empty() || columns.is_empty() || self.points < self.positions(&all) {
            return None;
        }
        let mut found = Sides {
            held: [beside.carried, 0.0],
            read: [0.0, 0.0],
            last: 0.0,
            last_read: 0.0,
            sums: 0.0,
            positions: [&rows, &columns].map(|s| self.positions(s)),
            repeated: self.positions(&common),
        };
        for a in &self.arrays {
            let over = &a.over - &common;
            let side = if over == rows { 0 } else { 1 };
            if !over.is_empty() && over != rows && over != columns {
                return None;
            }
            if !over.is_empty() {
                found.held[side] += a.bytes;
                found.read[side] += a.read_bytes;
                if side == 1 && beside.last.contains(&a.name) {
                    found.last += a.bytes;
                    found.last_read += a.read_bytes;
                }
                found.sums += if a.sum { a.bytes } else { 0.0 };
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, NestArray, Pieces, ProjectiveNest};
    use std::collections::{BTreeMap, BTreeSet};

    /// The least that comes in of the columns over all ways to put rows in groups, largest groups first or in any order: of what
    /// is there between two groups as much stays as fits beside the larger one.
    fn least(rows: usize, most: usize, before: Option<usize>, all: f64, memory: f64, row: f64) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        let group = |p: usize| {
            let stays = before.map_or(0.0, |b| memory - row * b.max(p) as f64);
            all - stays + least(rows - p, most, Some(p), all, memory, row)
        };
        (1..=most.min(rows)).map(group).fold(f64::INFINITY, f64::min)
    }

    fn array(name: &str, over: usize, bytes: f64, read_bytes: f64, sum: bool) -> NestArray {
        NestArray { name: name.to_string(), over: BTreeSet::from([over]), bytes, read_bytes, again_bytes: bytes, sum }
    }

    #[test]
    fn no_groups_take_less() {
        let (mut near, mut tried) = (0, 0);
        for (q, n, d) in (4..12).flat_map(|q| [(q, 5, 1), (q, 7, 2), (q, 9, 3)]) {
            let width = d as f64;
            let arrays = vec![
                array("Q", 0, width, width, false),
                array("K", 1, width, width, false),
                array("V", 1, width, width, false),
                array("O", 0, width, 0.0, true),
            ];
            let nest =
                ProjectiveNest { extents: vec![q, n], points: (q * n) as f64, arrays, ..ProjectiveNest::default() };
            let beside = Beside { carried: 2.0, numbers: 3, number: 1.0, last: BTreeSet::from(["V".to_string()]) };
            for capacity in 1..2 * n * d {
                let memory = capacity as f64;
                let fit = beside.rows(memory, [2.0 * width + 2.0, 2.0 * width], width);
                let Some(found) = nest.incoming_in_groups(memory, &beside) else { continue };
                let all = (2 * n * d) as f64;
                let least = least(q as usize, fit as usize, None, all, memory, 2.0 * width + 2.0);
                assert!(found.passing <= least + 1e-6, "{q} {n} {d} {memory}: {} of {least}", found.passing);
                (tried, near) = (tried + 1, near + usize::from(found.passing > 0.98 * least));
            }
        }
        assert!(tried > 100 && near > tried / 3, "{near} of {tried}");
    }

    /// What is told of a nest is what [`Pieces`] say of its arrays.
    #[test]
    fn the_side_that_stays_and_the_factor_that_comes_once_are_found() {
        // 40 rows and 30 columns of 4 elements: keys fit 150 elements, keys and values do not.
        let arrays = |width: f64| {
            vec![
                array("Q", 0, width, width, false),
                array("K", 1, width, width, false),
                array("V", 1, width, width, false),
                array("O", 0, width, 0.0, true),
            ]
        };
        let nest =
            ProjectiveNest { extents: vec![40, 30], points: 1200.0, arrays: arrays(4.0), ..ProjectiveNest::default() };
        let beside = Beside { carried: 2.0, numbers: 3, number: 1.0, last: BTreeSet::from(["V".to_string()]) };
        let all = |memory: f64| nest.incoming_beside_a_side(memory, &beside).map(|i| i.all());
        // One column of values beside the keys at a time, and two numbers: rows pass four times, of which 32 - 30 elements are kept.
        assert_eq!(all(152.0), Some(4.0 * 160.0 - 3.0 * 2.0 + 120.0 + 120.0));
        // Two at a time, so that rows pass twice, and 82 - 60 elements of them stay.
        assert_eq!(all(202.0), Some(2.0 * 160.0 - 22.0 + 120.0 + 120.0));
        // Keys and values fit, with what is beside them.
        assert_eq!(all(242.0), None);
        assert!(all(241.0).is_some());
        // Neither keys fit, nor rows with what they carry.
        assert_eq!(all(119.0), None);

        let over = |a: usize, b: usize| BTreeSet::from([a, b]);
        let factor = |name: &str, over: BTreeSet<usize>, sum: bool| NestArray {
            name: name.to_string(),
            over,
            bytes: 1.0,
            read_bytes: if sum { 0.0 } else { 1.0 },
            again_bytes: 1.0,
            sum,
        };
        let arrays =
            vec![factor("A", over(0, 2), false), factor("B", over(2, 1), false), factor("C", over(0, 1), true)];
        let product = ProjectiveNest { extents: vec![20, 30, 2], points: 1200.0, arrays, ..ProjectiveNest::default() };
        // 15 columns of B at a time beside two elements, and A twice but for 32 - 30 of it; of 15 rows of A B would come in twice.
        assert_eq!(product.incoming_beside_a_factor_or_sums(32.0).map(|i| i.all()), Some(60.0 + 2.0 * 40.0 - 2.0));
        // A fits.
        assert_eq!(product.incoming_beside_a_factor_or_sums(42.0), None);
    }

    /// A sum that is there from one slot of time to another.
    type Interval = (usize, usize);

    /// The fewest elements that come in of `columns` if every interval has to meet all of them, by trying what is present at some moment of
    /// each slot and what stays to the next; `None` if the intervals do not fit.
    fn fewest(intervals: &[Interval], row: usize, columns: u32, memory: usize) -> Option<u32> {
        let slots = intervals.iter().map(|i| i.1 + 1).max().unwrap_or(0);
        let all = (1usize << columns) - 1;
        let room = |t: usize| {
            let open = intervals.iter().filter(|i| i.0 <= t && t <= i.1).count();
            memory.checked_sub(open * row).filter(|r| *r > 0)
        };
        // What is there, and what each interval has met, with the elements that came in so far.
        let mut states = BTreeMap::from([((0usize, vec![0usize; intervals.len()]), 0u32)]);
        for t in 0..slots {
            let here = room(t)?;
            let after = if t + 1 < slots { here.min(room(t + 1)?) } else { here };
            let mut next: BTreeMap<(usize, Vec<usize>), u32> = BTreeMap::new();
            for ((there, met), cost) in states {
                for present in (0..=all).filter(|p| p & there == there) {
                    let cost = cost + (present & !there).count_ones();
                    let mut met = met.clone();
                    let open = intervals.iter().zip(&mut met).filter(|(i, _)| i.0 <= t && t <= i.1);
                    open.for_each(|(_, m)| *m |= present);
                    if intervals.iter().zip(&met).any(|(i, m)| i.1 == t && *m != all) {
                        continue;
                    }
                    for stays in (0..=all).filter(|s| s & !present == 0 && s.count_ones() as usize <= after) {
                        let best = next.entry((stays, met.clone())).or_insert(cost);
                        *best = cost.min(*best);
                    }
                }
            }
            states = next;
        }
        states.into_values().min()
    }

    #[test]
    fn no_order_of_pieces_takes_less() {
        let (mut state, mut tried, mut near) = (0x9E37_79B9_7F4A_7C15u64, 0, 0);
        let mut draw = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % n
        };
        while tried < 400 {
            let (columns, slots, size) = (3 + draw(2), 1 + draw(4), 1 + draw(2));
            let memory = 2 + draw(columns + 1);
            let intervals: Vec<Interval> = (0..2 + draw(4)).map(|_| (draw(slots), draw(slots))).collect();
            let intervals: Vec<Interval> = intervals.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let Some(fewest) = fewest(&intervals, size, columns as u32, memory) else { continue };
            let (pieces, passing) = (intervals.len(), columns as f64);
            let found =
                Pieces { all: (pieces * size) as f64, count: pieces as f64 }.passes(passing, memory as f64, 1.0);
            let more = found > passing;
            assert!(
                found <= f64::from(fewest) + 1e-6,
                "{intervals:?} of {size}, {columns} columns, {memory}: {found} of {fewest}"
            );
            (tried, near) = (tried + usize::from(more), near + usize::from(more && found > f64::from(fewest) - 1.0));
        }
        assert!(10 * near > tried, "{near} of {tried}");
    }
}
