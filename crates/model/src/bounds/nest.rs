//! How many points of a projective loop nest can be computed per byte that is brought in.
//!
//! Points are positions of several indices; arrays are indexed by some of them each. A piece of the computation that
//! touches at most `X` bytes has at most `ψ(X)` points. By the Hölder-Brascamp-Lieb inequality for projections a set of
//! points is no larger than `Π |φ_j|^{s_j}` whenever the exponents of the arrays that carry an index sum to 1 or more,
//! for each index; an index may be taken as whole instead (Christ et al. 2013; Dinh and Demmel, "Communication-Optimal
//! Tilings for Projective Nested Loops with Arbitrary Bounds", SPAA 2020). The product is largest where array `j` has
//! the part `s_j / σ` of the bytes, `σ = Σ s_j`, so
//!
//! `ψ(X) = Π_whole N_i · Π_j (s_j X / (σ w_j))^{s_j}`.
//!
//! Cut a computation into pieces in each of which `X - M` bytes come in: with the `M` that were there they touch `X`,
//! so that there are `V / ψ(X)` pieces, and `V (X - M) / ψ(X)` bytes come in, for every `X` (Hong and Kung 1981; Irony,
//! Toledo and Tiskin 2004; constants as in Kwasniewski et al., "COSMA", SC 2019, theorem 1: for a matmul
//! `2mnk/√M + mn`, the results being stored once more).

use super::simplex::{Solution, pack};
use num_rational::Ratio;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An array of a nest.
#[derive(Clone, Debug, PartialEq)]
pub struct NestArray {
    /// Its name.
    pub name: String,
    /// The indices that move it, by their places in [`ProjectiveNest::extents`].
    pub over: BTreeSet<usize>,
    /// Bytes held per position of these indices: more than an element where other dimensions are taken whole.
    pub bytes: f64,
    /// Bytes read per position; 0 for what is only accumulated. They differ from those held on machines that count elements.
    pub read_bytes: f64,
    /// Bytes that move per position whenever it comes in again: what is not read at first has gone out before.
    pub again_bytes: f64,
    /// Whether points are summed into it.
    pub sum: bool,
}

/// A projective loop nest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectiveNest {
    /// Positions of each index.
    pub extents: Vec<u64>,
    /// Points that are computed: the product of the extents, or fewer under a condition.
    pub points: f64,
    /// The fewest positions of an index that are summed into one element, where a condition leaves fewer than all of them.
    pub shortest: BTreeMap<usize, u64>,
    /// Under a condition: the points of longer sums alone, and the fewest positions that each of these sums has of the index.
    pub longer: Vec<(f64, BTreeMap<usize, u64>)>,
    /// The arrays.
    pub arrays: Vec<NestArray>,
}

/// The solution of a nest's linear program and of its dual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exponents {
    /// `σ`: a memory of `M` holds the factors of `M^σ` points, up to a constant.
    pub sum: Ratio<i64>,
    /// `s_j`, of each array.
    pub arrays: Vec<Ratio<i64>>,
    /// Of the tile shape that reaches it: `M^{y_i}` positions of index `i`, up to constants.
    pub tile: Vec<Ratio<i64>>,
}

/// What must come in, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Incoming {
    /// Bytes that pass by what rests in memory.
    pub passing: f64,
    /// Bytes of what rests: at least the smallest set of arrays that move alike is brought in besides.
    pub resting: f64,
}

impl Incoming {
    /// Both parts together.
    pub fn all(self) -> f64 {
        self.passing + self.resting
    }
}

/// Arrays that move along the same indices, held together.
#[derive(Clone, Debug)]
struct Alike {
    over: BTreeSet<usize>,
    bytes: f64,
    /// Whether other nests touch one of them.
    shared: bool,
}

/// One way to bound the points: `scale · (X - fixed)^sigma`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Power {
    scale: f64,
    fixed: f64,
    pub sigma: f64,
    /// The part of `sigma` that is of arrays which other nests touch as well.
    pub shared: f64,
}

impl Power {
    pub fn at(&self, bytes: f64) -> f64 {
        self.scale * (bytes - self.fixed).max(0.0).powf(self.sigma)
    }
}

impl ProjectiveNest {
    /// The exponents of the linear program for indices without end. `None` if some index moves no array.
    pub fn exponents(&self) -> Option<Exponents> {
        let rows: Vec<Vec<usize>> = self.arrays.iter().map(|a| a.over.iter().copied().collect()).collect();
        let Solution { value, primal, dual } = pack(&rows, self.extents.len())?;
        Some(Exponents { sum: value, arrays: dual, tile: primal })
    }

    /// The nest, and those of its longer sums alone: what bounds one of them bounds the whole.
    pub(super) fn parts(&self) -> impl Iterator<Item = Self> + '_ {
        let own = std::iter::once((self.points, self.shortest.clone())).chain(self.longer.iter().cloned());
        own.map(|(points, shortest)| Self { points, shortest, longer: vec![], ..self.clone() })
    }

    /// Bytes that must be read if fast memory holds `capacity` bytes.
    pub fn incoming(&self, capacity: f64) -> Incoming {
        self.least(capacity, self.ways(true, &|_| false), self.resting(), f64::INFINITY)
    }

    /// The same where what rests may be several sets of arrays: of the bytes `X` that the best piece touches `M = X (σ - 1) / σ` were
    /// there, so that arrays rest whose exponents sum up to `σ - 1`, and of these those that have least to read come in once.
    pub(super) fn incoming_beside_all_that_rests(&self, capacity: f64) -> Incoming {
        let exponents = self.exponents().filter(|_| self.arrays.len() <= 10);
        let resting = exponents.map_or(0.0, |Exponents { sum, arrays, .. }| {
            let rest = |set: &usize| {
                let of = (0..arrays.len()).filter(|k| set >> k & 1 == 1);
                of.map(|k| arrays[k]).fold(Ratio::from_integer(0), |a, b| a + b) >= sum - 1
            };
            let read = |set: usize| -> f64 {
                let of = self.arrays.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1);
                of.map(|(_, a)| a.read_bytes * self.met(&a.over)).sum()
            };
            (0..1usize << arrays.len()).filter(rest).map(read).fold(f64::INFINITY, f64::min)
        });
        self.least(capacity, self.ways(true, &|_| false), resting, f64::INFINITY)
    }

    /// The same for computations that hold sums while they are incomplete.
    pub fn incoming_in_parts(&self, capacity: f64) -> Incoming {
        self.least(capacity, vec![], self.resting(), f64::INFINITY)
    }

    /// The same for computations in which no sum is begun and completed while so many bytes come in.
    pub(super) fn incoming_in_parts_of(&self, capacity: f64, comes: f64) -> Incoming {
        self.least(capacity, vec![], self.resting(), capacity + comes)
    }

    /// From pieces that touch no more than `largest` bytes.
    fn least(&self, capacity: f64, complete: Vec<Power>, rests: f64, largest: f64) -> Incoming {
        let partial = self.ways(false, &|_| false);
        let total = self.touched().min(largest);
        let most = |ways: &[Power], x: f64| ways.iter().map(|w| w.at(x)).fold(f64::INFINITY, f64::min);
        let mut best = Incoming::default();
        let mut consider = |x: f64| {
            // Pieces in which sums are complete need not hold them: whichever kind has more points bounds both.
            let (p, c) = (most(&partial, x), if complete.is_empty() { 0.0 } else { most(&complete, x) });
            let points = p.max(c);
            if points.is_finite() && points > 0.0 && self.points >= points {
                let passing = self.points * (x - capacity) / points;
                if passing > best.passing {
                    let resting = rests * (1.0 - c / p).clamp(0.0, 1.0);
                    best = Incoming { passing, resting };
                }
            }
        };
        if capacity <= 0.0 || total <= capacity {
            return best;
        }
        Self::sizes(partial.iter().chain(&complete), capacity, total).for_each(&mut consider);
        best
    }

    /// Bytes of all arrays.
    pub(super) fn touched(&self) -> f64 {
        self.arrays.iter().map(|a| a.again_bytes * self.positions(&a.over)).sum()
    }

    /// How many bytes pieces may touch that are tried: the optimum of each power by itself; and a sweep for where several meet.
    pub(super) fn sizes<'w>(
        ways: impl Iterator<Item = &'w Power>,
        capacity: f64,
        total: f64,
    ) -> impl Iterator<Item = f64> {
        let optimum = move |w: &Power| w.fixed + (w.sigma * (capacity - w.fixed) / (w.sigma - 1.0)).max(0.0);
        let single = ways.filter(|w| w.sigma > 1.0).map(optimum).filter(move |&x| x > capacity && x <= total);
        let steps = if total > capacity { 96 } else { 0 };
        let sweep = (1..=steps).map(move |k| capacity * (total / capacity).powf(f64::from(k) / f64::from(steps)));
        single.chain(sweep)
    }

    /// The smallest set of arrays that move along the same indices, read once.
    fn resting(&self) -> f64 {
        let mut sets: Vec<(&BTreeSet<usize>, f64)> = vec![];
        for a in &self.arrays {
            let bytes = a.read_bytes * self.met(&a.over);
            match sets.iter_mut().find(|s| *s.0 == a.over) {
                Some(set) => set.1 += bytes,
                None => sets.push((&a.over, bytes)),
            }
        }
        sets.into_iter().map(|s| s.1).reduce(f64::min).unwrap_or(0.0)
    }

    pub(super) fn positions(&self, over: &BTreeSet<usize>) -> f64 {
        over.iter().filter_map(|&i| self.extents.get(i)).map(|&n| n as f64).product()
    }

    /// Positions of indices that are summed over, if they are as few as in any complete sum.
    fn fewest(&self, over: &BTreeSet<usize>) -> f64 {
        over.iter()
            .map(|i| self.shortest.get(i).map_or_else(|| self.positions(&BTreeSet::from([*i])), |&n| n as f64))
            .product()
    }

    /// Positions of these indices that points have, at least: each is that of as many points as the others have positions.
    fn met(&self, over: &BTreeSet<usize>) -> f64 {
        let others = (0..self.extents.len()).filter(|i| !over.contains(i)).collect();
        self.points / self.positions(&others).max(1.0)
    }

    /// Bounds on the points of a piece. `complete`: of pieces whose sums are complete, so that what is summed over is
    /// whole and sums are not held.
    pub(super) fn ways(&self, complete: bool, shared: &dyn Fn(&NestArray) -> bool) -> Vec<Power> {
        let sums: Vec<&NestArray> = self.arrays.iter().filter(|a| a.sum).collect();
        let all: BTreeSet<usize> = (0..self.extents.len()).collect();
        let summed: BTreeSet<usize> = match (complete, sums.as_slice()) {
            (false, _) => BTreeSet::new(),
            (true, []) => return vec![],
            (true, sums) => all.iter().copied().filter(|i| sums.iter().all(|a| !a.over.contains(i))).collect(),
        };
        // Arrays that move alike are held together.
        let mut arrays: Vec<Alike> = vec![];
        for a in self.arrays.iter().filter(|a| !(complete && a.sum)) {
            let whole: BTreeSet<usize> = a.over.intersection(&summed).copied().collect();
            let (over, bytes) = (&a.over - &summed, a.again_bytes * self.fewest(&whole));
            match arrays.iter_mut().find(|x| x.over == over) {
                Some(x) => (x.bytes, x.shared) = (x.bytes + bytes, x.shared || shared(a)),
                None => arrays.push(Alike { over, bytes, shared: shared(a) }),
            }
        }
        let factor = self.positions(&summed);
        let mut ways = self.powers(&(&all - &summed), arrays.clone(), factor);
        // Indices that move every array only repeat the rest: as bounds of one repetition grow faster than bytes, a
        // piece has no more points than if all its bytes were spent on one. Then what does not move otherwise is
        // needed as a whole.
        let common = arrays.iter().map(|a| a.over.clone()).reduce(|a, b| &a & &b).unwrap_or_default();
        if !common.is_empty() {
            arrays.iter_mut().for_each(|a| a.over = &a.over - &common);
            let rest = self.powers(&(&(&all - &summed) - &common), arrays, factor);
            ways.extend(rest.into_iter().filter(|w| w.sigma >= 1.0));
        }
        ways
    }

    fn powers(&self, of: &BTreeSet<usize>, mut arrays: Vec<Alike>, factor: f64) -> Vec<Power> {
        let classes = self.classes(of, &arrays);
        let fixed: f64 = arrays.iter().filter(|a| a.over.is_empty()).map(|a| a.bytes).sum();
        arrays.retain(|a| !a.over.is_empty());
        // Each subset of the classes but all of them may be taken as whole; more than a few are not tried.
        let tried = classes.len().min(10);
        let subsets = (0..1usize << tried).take((1usize << tried) - usize::from(tried == classes.len()));
        subsets.flat_map(|w| self.way(&classes, w, &arrays, factor, fixed)).collect()
    }

    /// Indices in sets that move the same arrays: each set is one index of the product of its positions.
    fn classes(&self, of: &BTreeSet<usize>, arrays: &[Alike]) -> Vec<BTreeSet<usize>> {
        let mut classes: Vec<(Vec<bool>, BTreeSet<usize>)> = vec![];
        for &i in of {
            let moves: Vec<bool> = arrays.iter().map(|a| a.over.contains(&i)).collect();
            match classes.iter_mut().find(|c| c.0 == moves) {
                Some(class) => drop(class.1.insert(i)),
                None => classes.push((moves, BTreeSet::from([i]))),
            }
        }
        classes.into_iter().map(|c| c.1).collect()
    }

    /// By exponents of least sum, of which the linear program may have several, and by the means of two: between them are those by
    /// which points that need a part of each array are fewest.
    fn way(&self, classes: &[BTreeSet<usize>], whole: usize, arrays: &[Alike], factor: f64, fixed: f64) -> Vec<Power> {
        let is_whole = |c: usize| c < usize::BITS as usize && whole >> c & 1 == 1;
        let free: Vec<&BTreeSet<usize>> = (0..classes.len()).filter(|&c| !is_whole(c)).map(|c| &classes[c]).collect();
        let rows: Vec<Vec<usize>> =
            arrays.iter().map(|a| (0..free.len()).filter(|&c| !a.over.is_disjoint(free[c])).collect()).collect();
        let Some(found) = vertices(rows, free.len()) else { return vec![] };
        let (sigma, vertices) = (found.sigma, &found.exponents);
        let factor: f64 =
            (0..classes.len()).filter(|&c| is_whole(c)).map(|c| self.positions(&classes[c])).product::<f64>() * factor;
        let power = |exponents: &[f64]| {
            let parts = arrays.iter().zip(exponents).filter(|(_, s)| **s > 0.0);
            let scale = parts.map(|(a, &s)| (s / (sigma * a.bytes)).powf(s)).product::<f64>() * factor;
            let shared = arrays.iter().zip(exponents).filter(|(a, _)| a.shared).map(|(_, s)| s).sum();
            Power { scale, fixed, sigma, shared }
        };
        let mean = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(x, y)| (x + y) / 2.0).collect() };
        let pairs = vertices.iter().enumerate().flat_map(|(k, a)| vertices[k..].iter().map(move |b| mean(a, b)));
        pairs.map(|s| power(&s)).collect()
    }
}

/// Exponents of least sum.
#[derive(Debug)]
struct Vertices {
    sigma: f64,
    /// Of each array, in all ways that were found.
    exponents: Vec<Vec<f64>>,
}

/// Those of a linear program, which nests of many sizes have in common: each is solved once.
fn vertices(rows: Vec<Vec<usize>>, indices: usize) -> Option<Rc<Vertices>> {
    type Known = FxHashMap<(Vec<Vec<usize>>, usize), Option<Rc<Vertices>>>;
    thread_local! {
        static KNOWN: RefCell<Known> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        let key = (rows, indices);
        if let Some(found) = known.get(&key) {
            return found.clone();
        }
        let found = solved(&key.0, indices).map(Rc::new);
        known.insert(key, found.clone());
        found
    })
}

/// Another order of arrays or indices may find other exponents.
fn solved(rows: &[Vec<usize>], indices: usize) -> Option<Vertices> {
    let one = pack(rows, indices)?;
    let mut vertices = BTreeSet::from([one.dual]);
    for first in 0..rows.len() {
        let turned: Vec<Vec<usize>> = rows[first..].iter().chain(&rows[..first]).cloned().collect();
        let mirrored = turned.iter().map(|r| r.iter().map(|c| indices - 1 - c).collect()).collect();
        for rows in [turned, mirrored] {
            if let Some(mut found) = pack(&rows, indices) {
                found.dual.rotate_right(first);
                vertices.insert(found.dual);
            }
        }
    }
    let real = |q: &Ratio<i64>| *q.numer() as f64 / *q.denom() as f64;
    let exponents = vertices.iter().map(|v| v.iter().map(real).collect()).collect();
    Some(Vertices { sigma: real(&one.value), exponents })
}
