//! What must come in for contractions one after the other, each by itself, where what the first ones give stays for the last, or goes out and comes in again.

use super::ProjectiveNest;
use super::nest::{NestArray, Power};
use std::collections::BTreeSet;

/// Contractions of which the last sums up what is made of the others' sums, its *weights*, element by element.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart {
    /// Those that make weights.
    pub first: Vec<ProjectiveNest>,
    /// That which sums them up, if it reads anything else.
    pub last: Option<ProjectiveNest>,
    /// Its array of weights.
    pub weights: String,
    /// Bytes that all weights are held in, and that move if each goes out once: nothing where they are stored in any case, as that is counted already.
    pub stored: [f64; 2],
}

/// A nest, whether its sums may be complete within a piece, and what bounds the points of a piece.
struct Part<'n> {
    nest: &'n ProjectiveNest,
    partial: Vec<Power>,
    complete: Vec<Power>,
}

impl Apart {
    /// The most bytes that this gives for any highest price: see the module `prices`.
    ///
    /// Weights of which the sums are complete within a piece of the computation, but not what is made of them, are there after it or go out. So
    /// either sums of weights are held while they are incomplete, or each weight goes out once: the less of both. Results are stored at last,
    /// which is not counted here; so that a piece in which they are complete need not hold them.
    pub fn bytes(&self, capacity: f64) -> f64 {
        match &self.last {
            None => self.bytes_with(None, capacity),
            Some(last) => last.parts().map(|part| self.bytes_with(Some(&part), capacity)).fold(0.0, f64::max),
        }
    }

    fn bytes_with(&self, last: Option<&ProjectiveNest>, capacity: f64) -> f64 {
        let nests = || self.first.iter().chain(last);
        let prices: BTreeSet<u64> = nests().flat_map(ProjectiveNest::highest_prices).map(f64::to_bits).collect();
        let at = |price: f64| {
            let first: Vec<_> = self.first.iter().map(|n| n.at(price)).collect();
            let last = last.map(|n| n.at(price));
            let [held, moved] = self.stored;
            let goes_out = (moved / price).min(held);
            let [kept, out] = [false, true].map(|complete| self.least(&first, last.as_ref(), complete, capacity));
            price * kept.min(out + goes_out)
        };
        prices.into_iter().map(f64::from_bits).map(at).fold(0.0, f64::max)
    }

    /// What comes in beside what rests: for all of them together, or for that which needs most.
    fn least(&self, first: &[ProjectiveNest], last: Option<&ProjectiveNest>, complete: bool, capacity: f64) -> f64 {
        let all = || first.iter().map(|n| (n, complete)).chain(last.map(|n| (n, true)));
        let alone = |(n, complete): (&ProjectiveNest, bool)| {
            if complete { n.incoming(capacity).passing } else { n.incoming_in_parts(capacity).passing }
        };
        all().map(alone).fold(self.together(&all().collect::<Vec<_>>(), complete, capacity), f64::max)
    }

    /// In a piece that touches `X` bytes each contraction has at most `ψ_j(x_j)` points, if it touches `x_j` of them. What several touch counts in each `x_j`.
    /// With that given, `ψ_j` is convex in the rest of `x_j`, if its exponents but for those of what is shared come to 1 or more; so that
    /// the sum of `V_j(piece) / ψ_j(X)` is most where all the rest is spent on one contraction, which is 1. There are `Σ V_j / ψ_j(X)` pieces then, in each of
    /// which `X - M` come in. Exponents for which that fails are left out; of contractions that have no others nothing is added.
    ///
    /// As a piece does no better with several than with one, pieces that are of `one` each are cut as is best for it: where weights go out, what makes them
    /// is done before what uses them.
    fn together(&self, nests: &[(&ProjectiveNest, bool)], one: bool, capacity: f64) -> f64 {
        let shared = |k: usize, a: &NestArray| {
            let of_others = nests.iter().enumerate().filter(|(j, _)| *j != k).flat_map(|(_, n)| &n.0.arrays);
            a.name == self.weights
                || a.sum && k < self.first.len()
                || of_others.filter(|o| !o.sum).any(|o| o.name == a.name)
        };
        let part = |(k, &(nest, complete)): (usize, &(&'_ ProjectiveNest, bool))| {
            let ways = |complete: bool| {
                let all = nest.ways(complete, &|a| shared(k, a));
                let left: Vec<Power> = all.iter().copied().filter(|w| w.sigma - w.shared >= 1.0).collect();
                // Where pieces of one kind could have any number of points nothing is known.
                (!left.is_empty() || all.is_empty()).then_some(left)
            };
            let complete = if complete { ways(true) } else { Some(vec![]) };
            Some((nest.touched(), ways(false).filter(|ways| !ways.is_empty())?, complete?))
        };
        let parts: Vec<Part<'_>> = nests
            .iter()
            .enumerate()
            .filter_map(|(k, n)| Some((n.0, part((k, n))?)))
            .filter(|(_, (touched, ..))| *touched > capacity)
            .map(|(nest, (_, partial, complete))| Part { nest, partial, complete })
            .collect();
        let most = |ways: &[Power], x: f64| ways.iter().map(|w| w.at(x)).fold(f64::INFINITY, f64::min);
        let pieces = |p: &Part<'_>, x: f64| {
            let complete = if p.complete.is_empty() { 0.0 } else { most(&p.complete, x) };
            let points = most(&p.partial, x).max(complete);
            let counts = points.is_finite() && points > 0.0 && p.nest.points >= points && x <= p.nest.touched();
            if counts { p.nest.points / points } else { 0.0 }
        };
        let comes = |parts: &[Part<'_>]| -> f64 {
            let total = parts.iter().map(|p| p.nest.touched()).fold(0.0, f64::max);
            let ways = parts.iter().flat_map(|p| p.partial.iter().chain(&p.complete));
            let of = |x: f64| (x - capacity) * parts.iter().map(|p| pieces(p, x)).sum::<f64>();
            ProjectiveNest::sizes(ways, capacity, total).map(of).fold(0.0, f64::max)
        };
        if one { parts.chunks(1).map(comes).sum() } else { comes(&parts) }
    }
}
