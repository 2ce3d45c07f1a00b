//! The least that rectangles take which fill a result, by prices of its points.
//!
//! Each point of a result lies in one rectangle. Whatever price a point has, rectangles take no less than all points cost and, for each of them, the least that one takes
//! beyond what its points cost. Where that is no less than nothing, more rectangles take no less. So any prices give a bound, and the best are found by a linear program, rectangle
//! by rectangle that takes less than its prices say.
//!
//! Prices are sums of products of one function for rows and one for columns: the share that `r` of `L` positions have is `r / L`; or of positions `0, t, 2t, …`, `N` in all, at most
//! `min(N, ⌈r / t⌉)` lie among `r` that follow one another. With `N = 2` and both ends that says that a rectangle which is no whole side has at most one of its ends: it is what `1.05` squares
//! cost more than one. That one of some kind has to be there is a price as well, of which each of that kind has all.

/// Even positions, beside the ends, that have prices of their own: up to so many along both sides.
const BOTH: usize = 5;
/// Up to so many along one side, whatever the other, where rectangles as long as the other side leave no room for more.
const ONE: usize = 24;
/// Rounds of a search for prices, each with more rectangles.
const ROUNDS: usize = 24;
/// Rectangles that a round adds, at most.
const ADDED: usize = 24;
/// How near the best prices a search comes.
const CLOSE: f64 = 5e-4;
/// Steps of a linear program, at most: prices are prices wherever it ends.
const STEPS: usize = 600;

/// A kind of rectangles: of `r` rows those of so many columns, `from ..= to`, all of which take as much more for each column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    pub rows: usize,
    pub from: usize,
    pub to: usize,
    /// What the rectangle without columns takes, and each of its columns.
    pub takes: [f64; 2],
    /// Whether it is of a kind of which there may have to be one.
    pub marked: bool,
    /// Whether it takes so much more than others that few of them are in the best: what they leave no room for has no price.
    pub dear: bool,
}

/// Numbers of rectangles beyond the fewest that are gone through one by one.
const MORE: usize = 12;

/// The least that rectangles take which fill a result, whatever their number `G`, if so many take what `strips(1 - 1/G)` say. If `marked`, one of those that are
/// marked is there at least. What else is known of so many, or of as many and more, is `known`, or 0. Without end where no rectangle is.
pub(super) fn least_filled(
    extents: [usize; 2],
    strips: &dyn Fn(f64) -> Vec<Strip>,
    known: &dyn Fn(usize, bool) -> f64,
    marked: bool,
) -> f64 {
    let at = |count: f64| Filled::new(extents, strips(1.0 - 1.0 / count), marked);
    let largest = strips(1.0).iter().map(|s| s.rows * s.to).max().unwrap_or(0);
    if largest == 0 {
        return f64::INFINITY;
    }
    let mut count = (extents[0] * extents[1]).div_ceil(largest) as f64;
    let mut best = f64::INFINITY;
    for _ in 0..MORE {
        let more = at(count).least(count, true).max(known(count as usize, true));
        if best <= more {
            return best;
        }
        best = best.min(at(count).least(count, false).max(more).max(known(count as usize, false)));
        count += 1.0;
    }
    best.min(at(count).least(count, true).max(known(count as usize, true)))
}

/// The shares of positions that follow one another along a side.
struct Side {
    /// By the number of positions, those of all ways to count beside one another.
    shares: Vec<f64>,
    /// Ways to count.
    ways: usize,
    /// Numbers of positions of which one less has a smaller share by some way, or is the last to have as small a one.
    steps: Vec<usize>,
}

impl Side {
    /// With ways to count so many even positions beside the first.
    fn new(len: usize, parts: &[usize]) -> Self {
        let even = |n: usize| n as f64 / len as f64;
        let (mut by_way, mut steps) = (vec![(0..=len).map(even).collect::<Vec<_>>()], vec![]);
        for &parts in parts {
            let between = (len - 1) / parts;
            let all = (len - 1) / between + 1;
            let share = |n: usize| n.div_ceil(between).min(all) as f64 / all as f64;
            by_way.push((0..=len).map(share).collect());
            steps.extend((0..all).flat_map(|k| [k * between, k * between + 1]).filter(|&n| n > 0 && n <= len));
        }
        steps.push(len);
        steps.sort_unstable();
        steps.dedup();
        let shares = (0..=len).flat_map(|n| by_way.iter().map(move |way| way[n])).collect();
        Self { shares, ways: by_way.len(), steps }
    }

    /// The shares of so many positions, by all ways to count.
    fn of(&self, positions: usize) -> &[f64] {
        &self.shares[positions * self.ways..][..self.ways]
    }
}

/// A rectangle by what it counts of each price, and what it takes.
pub(super) struct Shape {
    pub counts: Vec<f64>,
    pub takes: f64,
}

/// Rectangles that fill a result.
pub(super) struct Filled {
    sides: [Side; 2],
    strips: Vec<Strip>,
    /// Which ways to count have a price together.
    pairs: Vec<[usize; 2]>,
    /// Whether one of the marked ones has to be there.
    marked: bool,
}

impl Filled {
    /// Rectangles that fill so many rows and columns; if `marked`, one of those that are marked at least.
    pub fn new(extents: [usize; 2], strips: Vec<Strip>, marked: bool) -> Self {
        // As many as those that are as long as a side leave no room for.
        let widest = |marked: bool| {
            let of_it = || strips.iter().filter(move |s| s.marked == marked && !s.dear);
            let rows = of_it().filter(|s| s.to == extents[1]).map(|s| s.rows).max();
            [rows, of_it().filter(|s| s.rows == extents[0]).map(|s| s.to).max()]
        };
        let widest = [widest(false), widest(true)];
        let side = |k: usize| {
            let len = extents[k].max(1);
            let full = widest.iter().filter_map(|w| w[k]).map(|w| len.div_ceil(w) - 1).filter(|&p| p <= ONE);
            let mut parts: Vec<usize> = (1..=BOTH).chain(full).filter(|&p| p > 0 && p < len).collect();
            parts.dedup();
            Side::new(len, &parts)
        };
        let sides = [side(0), side(1)];
        let [rows, columns] = [0, 1].map(|k| sides[k].ways);
        let all = (0..rows).flat_map(|a| (0..columns).map(move |b| [a, b]));
        let pairs = all.filter(|&[a, b]| a.max(b) <= BOTH || a.min(b) == 0).collect();
        Self { sides, strips, pairs, marked }
    }

    /// What `count` rectangles take at least; if `more`, what as many or more do. Without end where there are none.
    pub fn least(&self, count: f64, more: bool) -> f64 {
        let mut prices = vec![0.0; self.pairs.len() + usize::from(self.marked)];
        // To begin with a price for each element alone.
        prices[0] = 1.0;
        prices[0] = self.beyond(&prices).worth;
        if !prices[0].is_finite() {
            return f64::INFINITY;
        }
        let (mut shapes, mut best, mut least) = (vec![], 0.0f64, f64::INFINITY);
        for _ in 0..ROUNDS {
            let Beyond { least: beyond, worth, farthest } = self.beyond(&prices);
            let all: f64 = prices.iter().sum();
            let fewer = more && beyond < 0.0;
            best = best.max(if fewer { all * worth.min(1.0) } else { all + count * beyond });
            let before = shapes.len();
            for part in farthest.chunks(farthest.len().div_ceil(ADDED)) {
                let one = part.iter().min_by(|a, b| a.below.total_cmp(&b.below));
                shapes.extend(one.filter(|s| s.below < least).map(|s| self.shape(s)));
            }
            if shapes.len() == before {
                break;
            }
            let (found, each, value) = dearest(&shapes, prices.len(), count, more);
            if value <= best * (1.0 + CLOSE) {
                break;
            }
            (prices, least) = (found, each);
        }
        best
    }

    fn shape(&self, &Farthest { rows, columns, takes, marked, .. }: &Farthest) -> Shape {
        let [of_rows, of_columns] = [self.sides[0].of(rows), self.sides[1].of(columns)];
        let counts = self.pairs.iter().map(|&[a, b]| of_rows[a] * of_columns[b]);
        let mark = self.marked.then(|| f64::from(u8::from(marked)));
        Shape { counts: counts.chain(mark).collect(), takes }
    }

    /// What rectangles take beyond these prices of their points.
    fn beyond(&self, prices: &[f64]) -> Beyond {
        let [by_rows, columns] = &self.sides;
        let mut found = Beyond { least: f64::INFINITY, worth: f64::INFINITY, farthest: vec![] };
        let mut by_column = vec![0.0; columns.ways];
        for strip in &self.strips {
            by_column.fill(0.0);
            let of_rows = by_rows.of(strip.rows);
            for (&[a, b], price) in self.pairs.iter().zip(prices) {
                by_column[b] += price * of_rows[a];
            }
            // Between two steps both are linear.
            let first = columns.steps.partition_point(|&s| s <= strip.from);
            let inside = columns.steps[first..].iter().copied().take_while(|&s| s < strip.to);
            let mark = prices.get(self.pairs.len()).filter(|_| strip.marked).copied().unwrap_or(0.0);
            let (rows, marked) = (strip.rows, strip.marked);
            let mut farthest = Farthest { below: f64::INFINITY, rows, columns: 0, takes: 0.0, marked };
            for s in [strip.from, strip.to].into_iter().chain(inside) {
                let takes = strip.takes[0] + strip.takes[1] * s as f64;
                let counts = mark + by_column.iter().zip(columns.of(s)).map(|(p, share)| p * share).sum::<f64>();
                if takes - counts < farthest.below {
                    farthest = Farthest { below: takes - counts, columns: s, takes, ..farthest };
                }
                if counts > 0.0 {
                    found.worth = found.worth.min(takes / counts);
                }
            }
            found.least = found.least.min(farthest.below);
            found.farthest.push(farthest);
        }
        found
    }
}

/// What rectangles take beyond prices.
struct Beyond {
    /// The least.
    least: f64,
    /// The least for each of its prices.
    worth: f64,
    /// Of each strip the rectangle that takes least beyond its prices.
    farthest: Vec<Farthest>,
}

/// A rectangle, what it takes, and how much of that is beyond its prices.
struct Farthest {
    below: f64,
    rows: usize,
    columns: usize,
    takes: f64,
    marked: bool,
}

/// The prices for which `count` of these rectangles take most, what each of them takes beyond its prices at least, and what all take. If `more` of them are to take no less, that is no less than nothing.
pub(super) fn dearest(shapes: &[Shape], prices: usize, count: f64, more: bool) -> (Vec<f64>, f64, f64) {
    let scale = shapes.iter().map(|s| s.takes).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    // One row a rectangle, and one that ends it: prices may else be without end.
    let width = prices + 3;
    let mut rows: Vec<Vec<f64>> = shapes
        .iter()
        .map(|s| [&s.counts[..], &[1.0, -1.0, s.takes / scale]].concat())
        .chain([[&vec![1.0; prices][..], &[1.0, 0.0, 8.0 * count + 8.0]].concat()])
        .collect();
    let mut gain: Vec<f64> = [&vec![1.0; prices][..], &[count, -count, 0.0]].concat();
    if more {
        gain[prices + 1] = f64::NEG_INFINITY;
    }
    // Variables are numbered, those of rows after those of columns.
    let mut columns: Vec<usize> = (0..width - 1).collect();
    let mut basis: Vec<usize> = (width - 1..width - 1 + rows.len()).collect();
    for _ in 0..STEPS {
        let entering = (0..width - 1).filter(|&k| gain[k] > 1e-9).max_by(|&a, &b| gain[a].total_cmp(&gain[b]));
        let Some(column) = entering else { break };
        let ratio = |r: &Vec<f64>| r[width - 1].max(0.0) / r[column];
        let leaving = (0..rows.len())
            .filter(|&r| rows[r][column] > 1e-9)
            .min_by(|&a, &b| ratio(&rows[a]).total_cmp(&ratio(&rows[b])));
        let Some(row) = leaving else { break };
        std::mem::swap(&mut columns[column], &mut basis[row]);
        let pivot = rows[row][column];
        rows[row][column] = 1.0;
        rows[row].iter_mut().for_each(|x| *x /= pivot);
        let by = rows[row].clone();
        let eliminate = |other: &mut Vec<f64>| {
            let factor = other[column];
            if factor == 0.0 || factor == f64::NEG_INFINITY {
                return;
            }
            other[column] = 0.0;
            other.iter_mut().zip(&by).for_each(|(x, y)| *x -= factor * y);
        };
        rows.iter_mut().enumerate().filter(|(r, _)| *r != row).for_each(|(_, other)| eliminate(other));
        eliminate(&mut gain);
    }
    let value = |variable: usize| {
        let row = basis.iter().position(|&b| b == variable);
        row.map_or(0.0, |r| rows[r][width - 1].max(0.0) * scale)
    };
    ((0..prices).map(value).collect(), value(prices) - value(prices + 1), -gain[width - 1] * scale)
}
