//! From two levels to many: prices, bytes, caches and clusters ("FlashAttention on a Napkin", sections 4 and 5).

use super::optimum::power;
use super::{Optimum, Poly, Symbol};
use num_rational::Ratio;

/// A level that is fed: how much it holds, and what a value costs on its way into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feed {
    /// Values it holds.
    pub capacity: f64,
    /// Seconds or joules per value.
    pub price: f64,
}

/// Transfers in bytes for values of so many bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct PerBytes<'a> {
    optimum: &'a Optimum,
    bytes: f64,
}

/// Cores that can copy to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// How many do.
    pub cores: f64,
    /// Price of a value that comes from the upper level while they do not.
    pub alone: f64,
    /// Price of a value that comes from another core.
    pub exchanged: f64,
}

impl Optimum {
    /// What all levels together cost: each is fed what the optimum for its capacity moves.
    pub fn levels(&self, feeds: &[Feed], size: impl Fn(&Symbol) -> f64) -> f64 {
        feeds.iter().map(|f| f.price * self.eval(f.capacity, &size)).sum()
    }

    /// With values of so many bytes.
    pub fn in_bytes(&self, bytes: f64) -> PerBytes<'_> {
        PerBytes { optimum: self, bytes }
    }

    /// Values that enter a middle level which keeps intermediate results until they are complete: it lets through
    /// what a capacity of all the lower level's cores together would. `None` if it has not room for that many groups.
    pub fn cached(&self, capacity: f64, cores: f64, needed_groups: f64, size: impl Fn(&Symbol) -> f64) -> Option<f64> {
        (cores >= needed_groups).then(|| self.eval(capacity * cores, size))
    }

    /// The least capacity at which moving costs no more than computing: `H* / K ≤ values_per_operation`.
    /// `None` if no capacity is enough, or any is.
    pub fn least_capacity(&self, work: &Poly, values_per_operation: f64, size: impl Fn(&Symbol) -> f64) -> Option<f64> {
        least(|m| self.eval(m, &size) / work.eval(&size) <= values_per_operation)
    }

    /// The least size of one rank for which, at this capacity, moving costs no more than computing.
    /// `None` if no size is enough, or any is.
    pub fn least_size(
        &self,
        rank: &Symbol,
        capacity: f64,
        work: &Poly,
        values_per_operation: f64,
        size: impl Fn(&Symbol) -> f64,
    ) -> Option<f64> {
        least(|n| {
            let with = |s: &Symbol| if s == rank { n } else { size(s) };
            self.eval(capacity, with) / work.eval(with) <= values_per_operation
        })
    }
}

/// The least value from which on a condition holds that stays true, between 1 and 1e18.
fn least(holds: impl Fn(f64) -> bool) -> Option<f64> {
    let (mut low, mut high) = (0.0, 18.0 * std::f64::consts::LN_10);
    if holds(1.0) || !holds(f64::exp(high)) {
        return None;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if holds(f64::exp(middle)) { high = middle } else { low = middle }
    }
    Some(f64::exp(high))
}

impl PerBytes<'_> {
    /// Bytes moved at this capacity in bytes: every term grows by the bytes of a value to the power `1 + β`.
    pub fn eval(&self, capacity: f64, size: impl Fn(&Symbol) -> f64) -> f64 {
        self.terms(capacity, size).iter().map(|t| t.1).sum()
    }

    /// The same, term by term, each with its `β`.
    pub fn terms(&self, capacity: f64, size: impl Fn(&Symbol) -> f64) -> Vec<(Ratio<i64>, f64)> {
        let one = Ratio::from(1);
        let bytes =
            |t: &super::OptimumTerm| t.alpha.eval(&size) * power(self.bytes, one + t.beta) * power(capacity, -t.beta);
        self.optimum.terms.iter().map(|t| (t.beta, bytes(t))).collect()
    }
}

/// What cores of this capacity save by copying to each other (theorem 3): they act as a level in between that holds
/// what all of them hold, at the difference in price.
pub fn exchange_gain(optimum: &Optimum, exchange: Exchange, capacity: f64, size: impl Fn(&Symbol) -> f64) -> f64 {
    let all = optimum.eval(capacity, &size) - optimum.eval(capacity * exchange.cores, &size);
    (exchange.alone - exchange.exchanged) * all
}

/// How many warpgroups (or other groups of threads that each need their own) fit: what a resource has, less what the
/// block needs, by what each needs.
pub fn warpgroups(resource: f64, block: f64, each: f64) -> f64 {
    ((resource - block) / each).max(0.0)
}
