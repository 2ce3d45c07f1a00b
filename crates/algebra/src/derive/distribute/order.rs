//! In which order the indices of a product are reduced.
//!
//! Reducing an index joins all factors that carry it, so what an index costs depends on which were reduced before it and
//! not on their order: an exact dynamic program over subsets. Costs are polynomials in sizes, and a subset keeps every way that
//! is cheapest at some sizes, as far as [`KEPT`] reaches; beyond [`EXACT`] indices the cheapest next one is taken.

use einloom_cascade::{RankId, SizeExpr};
use std::collections::{BTreeMap, BTreeSet};

/// More indices than this are reduced greedily.
const EXACT: usize = 8;
/// More ways than this of reducing one subset are not kept.
const KEPT: usize = 8;
/// More orders than this are not offered.
const OFFERED: usize = 6;
/// An element of an intermediate costs as much as so many operations: it is written and read again.
const ELEMENT: i64 = 4;

/// Indices as bits.
pub(super) type Set = u64;

/// A product and what of it is reduced.
pub(super) struct Problem {
    /// Per factor the indices that it carries, and whether a reduction may be multiplied with it.
    pub factors: Vec<(Set, bool)>,
    /// The reduced indices.
    pub over: Set,
    /// Those of them that are reduced last.
    pub last: Set,
    /// The indices of the result.
    pub axes: Set,
    /// Per bit the index's rank.
    pub ranks: Vec<RankId>,
}

/// One inner reduction.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub over: Set,
    /// Which factors it joins; the result of the `k`-th reduction is the `k`-th after the factors.
    pub joins: Vec<usize>,
}

/// Inner reductions, what is left being reduced last.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub inner: Vec<Inner>,
    /// Operations, and elements of intermediates as operations.
    pub cost: SizeExpr,
}

/// A factor that is still there.
#[derive(Clone, Copy)]
struct Left {
    number: usize,
    carries: Set,
    joins: bool,
}

#[derive(Clone)]
struct Way {
    factors: Vec<Left>,
    done: Order,
}

impl Problem {
    /// What one reduction over everything costs.
    pub fn flat(&self) -> SizeExpr {
        self.closed(&self.start()).cost
    }

    /// The orders that are clearly cheaper than one reduction over everything: at all sizes of less degree, or a product of
    /// two factors where there were more. Those that are as cheap as another at all sizes are left out.
    pub fn orders(&self) -> Vec<Order> {
        let free: Vec<Set> =
            (0..self.ranks.len()).map(|k| 1 << k).filter(|b| self.over & !self.last & b != 0).collect();
        let mut found = if free.len() > EXACT { self.greedy() } else { self.exact(&free) };
        let flat = self.closed(&self.start()).cost;
        found.retain(|o| !o.inner.is_empty() && self.pays(&o.cost, &flat));
        self.few(found)
    }

    fn exact(&self, free: &[Set]) -> Vec<Order> {
        let mut ways: BTreeMap<Set, Vec<Way>> = BTreeMap::from([(0, vec![self.start()])]);
        let mut found: Vec<Order> = vec![];
        // A subset has a smaller number than what contains it.
        while let Some((done, here)) = ways.pop_first() {
            for way in here {
                keep(&mut found, self.closed(&way), |o| &o.cost, usize::MAX);
                for &index in free.iter().filter(|&b| done & b == 0) {
                    if let Some((over, next)) = self.reduced(&way, index) {
                        keep(ways.entry(done | over).or_default(), next, |w| &w.done.cost, KEPT);
                    }
                }
            }
        }
        found
    }

    fn greedy(&self) -> Vec<Order> {
        let equal = |cost: &SizeExpr| at(cost, &|_| 64.0);
        let cheaper = |a: &SizeExpr, b: &SizeExpr| equal(a).total_cmp(&equal(b));
        let (mut way, mut free) = (self.start(), self.over & !self.last);
        let mut found = vec![self.closed(&way)];
        loop {
            let indices = (0..self.ranks.len()).map(|k| 1 << k).filter(|b| free & b != 0);
            let next = indices.filter_map(|b| self.reduced(&way, b));
            let Some((over, next)) = next.min_by(|a, b| cheaper(&a.1.done.cost, &b.1.done.cost)) else { break };
            free &= !over;
            found.push(self.closed(&next));
            way = next;
        }
        found.into_iter().min_by(|a, b| cheaper(&a.cost, &b.cost)).into_iter().collect()
    }

    fn start(&self) -> Way {
        let left = |(number, &(carries, joins)): (usize, &(Set, bool))| Left { number, carries, joins };
        let factors = self.factors.iter().enumerate().map(left).collect();
        Way { factors, done: Order { inner: vec![], cost: SizeExpr::constant(0) } }
    }

    /// After an index is reduced, with all that only the same factors carry; nothing where nothing would be left to reduce, or
    /// what is left must not multiply a reduction.
    fn reduced(&self, way: &Way, index: Set) -> Option<(Set, Way)> {
        let (joined, rest): (Vec<Left>, Vec<Left>) = way.factors.iter().partition(|f| f.carries & index != 0);
        let outside = rest.iter().fold(self.axes | self.last, |all, f| all | f.carries);
        let inside = joined.iter().fold(0, |all, f| all | f.carries);
        let over = inside & self.over & !outside;
        let left = rest.iter().fold(inside & !over, |all, f| all | f.carries) & self.over;
        if over & index == 0 || left == 0 || !rest.iter().all(|f| f.joins) {
            return None;
        }
        let carries = inside & !over;
        let mut factors = rest;
        let number = self.factors.len() + way.done.inner.len();
        factors.push(Left { number, carries, joins: joined.iter().all(|f| f.joins) });
        let own = self.product(inside).scale(joined.len() as i64).add(&self.product(carries).scale(ELEMENT));
        let mut done = way.done.clone();
        done.cost = done.cost.add(&own);
        done.inner.push(Inner { over, joins: joined.iter().map(|f| f.number).collect() });
        Some((over, Way { factors, done }))
    }

    /// With what is left reduced at once.
    fn closed(&self, way: &Way) -> Order {
        let carried = way.factors.iter().fold(self.axes, |all, f| all | f.carries);
        let joined = way.factors.iter().filter(|f| f.carries & self.over != 0).count();
        let own = self.product(carried).scale(joined as i64);
        Order { cost: way.done.cost.add(&own), ..way.done.clone() }
    }

    fn product(&self, indices: Set) -> SizeExpr {
        let sizes = self.ranks.iter().enumerate().filter(|(k, _)| indices & (1 << k) != 0);
        sizes.fold(SizeExpr::constant(1), |all, (_, &r)| all.mul(&SizeExpr::rank(r)))
    }

    fn pays(&self, cost: &SizeExpr, flat: &SizeExpr) -> bool {
        let Some((all, factors)) = flat.terms().first() else { return false };
        let whole: i64 = cost.terms().iter().filter(|(ranks, _)| ranks == all).map(|t| t.1).sum();
        cost.terms().iter().all(|(ranks, _)| divides(ranks, all)) && (whole == 0 || whole <= 2 && *factors > 2)
    }

    /// As many as are offered: of more, those that are cheapest at some typical sizes.
    fn few(&self, mut found: Vec<Order>) -> Vec<Order> {
        let ranks: Vec<RankId> = self.ranks.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |r: RankId| ranks.iter().position(|&o| o == r).unwrap_or(0);
        found.sort_by(|a, b| at(&a.cost, &|_| 64.0).total_cmp(&at(&b.cost, &|_| 64.0)));
        if found.len() <= OFFERED {
            return found;
        }
        let count = ranks.len() as i32;
        let rising = (0..count).map(|k| 4f64.powi(k + 2)).collect::<Vec<_>>();
        let one = |k: i32, size: f64| (0..count).map(|j| if j == k { size } else { 128.0 }).collect::<Vec<_>>();
        let reduced = |small: f64, large: f64| -> Vec<f64> {
            let over = |r: &RankId| self.ranks.iter().enumerate().any(|(k, o)| o == r && self.over & (1 << k) != 0);
            ranks.iter().map(|r| if over(r) { small } else { large }).collect()
        };
        let mut samples = vec![vec![64.0; ranks.len()], reduced(16.0, 256.0), reduced(256.0, 16.0)];
        samples.push(rising.iter().rev().copied().collect());
        samples.push(rising);
        samples.extend((0..count).flat_map(|k| [one(k, 8.0), one(k, 2048.0)]));
        let mut taken: Vec<usize> = vec![];
        for sizes in samples {
            let cost = |k: &usize| at(&found[*k].cost, &|r| sizes[place(r)]);
            let best = (0..found.len()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
            taken.extend(best.filter(|k| !taken.contains(k)));
        }
        taken.truncate(OFFERED);
        taken.into_iter().map(|k| found[k].clone()).collect()
    }
}

/// A cost at some sizes.
fn at(cost: &SizeExpr, size: &dyn Fn(RankId) -> f64) -> f64 {
    cost.terms().iter().map(|(ranks, c)| ranks.iter().map(|&r| size(r)).product::<f64>() * *c as f64).sum()
}

/// Whether one product of sizes is a part of another; both are sorted.
fn divides(part: &[RankId], of: &[RankId]) -> bool {
    let mut rest = of.iter();
    part.iter().all(|r| rest.any(|o| o == r))
}

/// Whether one cost is no more than some multiple of another at all sizes.
fn bounded(cost: &SizeExpr, by: &SizeExpr) -> bool {
    cost.terms().iter().all(|(part, _)| by.terms().iter().any(|(of, _)| divides(part, of)))
}

/// Adds a way unless one is there that is as cheap at all sizes; ways that are dearer at all sizes go.
fn keep<T>(all: &mut Vec<T>, new: T, cost: impl Fn(&T) -> &SizeExpr, most: usize) {
    let largest = |c: &SizeExpr, part: &[RankId]| !c.terms().iter().any(|(of, _)| of != part && divides(part, of));
    let total = |c: &SizeExpr| c.terms().iter().filter(|t| largest(c, &t.0)).map(|t| t.1).sum::<i64>();
    let beats = |a: &SizeExpr, b: &SizeExpr| bounded(a, b) && (!bounded(b, a) || total(a) <= total(b));
    if all.iter().any(|a| beats(cost(a), cost(&new))) {
        return;
    }
    all.retain(|a| !beats(cost(&new), cost(a)));
    all.push(new);
    if all.len() > most {
        all.sort_by(|a, b| at(cost(a), &|_| 64.0).total_cmp(&at(cost(b), &|_| 64.0)));
        all.truncate(most);
    }
}
