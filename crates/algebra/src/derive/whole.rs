//! Powers of quotients: `(x / a)^k` is `x^k / a^k`, but `x^k` may leave the range of the numbers where the quotient does not.
//! So it is with products, `(x·r)^k`.
//!
//! So from the third power on such a factor stays with what it divides or multiplies. Conditions: it reads data (a number or a
//! size moves the range by no more than itself), and has the same power as that, or half of it, as a reciprocal root has.

use super::Deriver;
use super::polynomial::{FAR_POWER, flat};
use crate::{Graph, NodeId, Product, Term, product, sign};
use einloom_cascade::{BinaryOp, UnaryOp};
use std::collections::BTreeSet;

/// A factor of a sum and one that leaves it, of one power.
pub(super) struct Quotient {
    /// Which of the factors inside, and which outside.
    pub inside: usize,
    pub outside: usize,
    /// What carries the indices.
    pub over: Term,
    /// What it is multiplied with.
    pub by: Product,
    /// Their common power.
    pub power: Term,
}

/// A base to a power, numbers as exponents or not.
fn power_of((base, power): &(Term, f64)) -> (&Term, Term) {
    match base {
        Term::Binary(BinaryOp::Pow, x, p) if power.abs() == 1.0 => (x, (**p).clone()),
        _ => (base, Term::Number(power.abs())),
    }
}

/// Whether powers so high may leave the range: a power that is no number may be any.
fn far(power: &Term) -> bool {
    power.as_number().is_none_or(|p| p >= FAR_POWER)
}

fn reads(t: &Term) -> bool {
    t.any_read(&|_| true)
}

/// A factor inside with one outside, both to one power that is far.
pub(super) fn quotient(inside: &Product, outside: &Product) -> Option<Quotient> {
    let all = outside.factors.iter().enumerate().filter(|(_, f)| reads(&f.0));
    let mut found = all.filter_map(|(place, leaves)| {
        let (base, power) = power_of(leaves);
        let share = |f: &(Term, f64)| {
            let (_, own) = power_of(f);
            let (own_number, number) = (own.as_number(), power.as_number());
            let share = match (own_number, number) {
                _ if own == power => 1.0,
                (Some(a), Some(b)) if a == 2.0 * b => 0.5,
                _ => return None,
            };
            (f.1 > 0.0 && far(&own)).then_some(share)
        };
        let (inside, share) = inside.factors.iter().enumerate().find_map(|(k, f)| Some(((k, f), share(f)?)))?;
        let (over, power) = power_of(inside.1);
        let by = Product { factors: vec![(base.clone(), share * leaves.1.signum())], ..Product::one() };
        Some(Quotient { inside: inside.0, outside: place, over: over.clone(), by, power })
    });
    found.next()
}

/// What a quotient's power grows with: its magnitude.
pub(super) fn magnitude(t: &Term, graph: &Graph) -> Term {
    if sign::nonnegative(t, graph) { t.clone() } else { Term::Unary(UnaryOp::Abs, Box::new(t.clone())) }
}

impl Deriver<'_> {
    /// Puts factors that are outside a sum back to the sums, mixed with what they wait for, that they divide or multiply. Where
    /// several could be meant it is the one that needs most of what the factor needs.
    pub(super) fn keep_quotients(&self, mixed: &mut [(Term, f64)], outside: &mut Product) {
        if mixed.iter().map(|f| f.1).sum::<f64>() < FAR_POWER {
            return;
        }
        outside.factors.retain(|(base, power)| {
            let fits = |f: &&mut (Term, f64)| f.1 == power.abs() || f.1 == 2.0 * power.abs();
            if !reads(base) {
                return true;
            }
            let needs = self.needs(base);
            let shared = |f: &&mut (Term, f64)| self.needs(&f.0).intersection(&needs).count();
            let Some(f) = mixed.iter_mut().filter(fits).max_by_key(shared) else { return true };
            let by = Product { factors: vec![(base.clone(), power / f.1)], ..Product::one() };
            let mut addends = vec![];
            flat(&f.0, 1.0, &mut addends);
            let whole = |(sign, t): (f64, &Term)| (sign, Product::of(t, &self.out).times(&by).term());
            let sum: product::Sum = addends.into_iter().map(whole).collect();
            f.0 = product::sum_term(&sum);
            false
        });
    }

    fn needs(&self, t: &Term) -> BTreeSet<NodeId> {
        let mut operands = vec![];
        self.out.reads(t, &mut operands);
        operands.iter().flat_map(|o| self.needed(o.node).iter().copied().collect::<Vec<_>>()).collect()
    }
}
