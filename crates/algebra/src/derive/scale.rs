//! Sums relative to a running extremum: `Σ (|x| / max|x|)^k`, as a norm is computed that must not overflow.
//!
//! The factor `max|x|^-k` does not carry the reduced indices and could leave, but then `Σ |x|^k` may overflow where the text
//! does not. So the state is `Σ (x / M)^k` with the maximum `M` so far; when it moves to `M'` the state is multiplied with
//! `(M / M')^k <= 1`.
//!
//! Conditions: a factor of the sum is divided by the largest magnitude of that very factor, over the same indices and under
//! the same conditions, which moves in this traversal; and all such divisors together have a higher power than the first, for
//! a number's own first power overflows no sooner than the number. Of several the one with the highest power is the anchor.
//! An anchor that is 0 or not finite is replaced by 1, which is as good an anchor: then nothing but zeros has been met, or the
//! text has no number either.

use super::separate::{Anchor, to_old};
use super::{Deriver, guard};
use crate::{Def, NodeId, Product, Reduction, Term};
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};

/// What is summed relative to its extremum.
pub(super) struct Scaling {
    pub anchor: Anchor,
    /// The summand, relative to the anchor.
    pub inside: Product,
    /// What stays outside, without the anchor's power.
    pub outside: Product,
    /// What the finished state is multiplied with: 1 where the anchor is a positive number.
    pub left: Term,
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// The anchor, or 1 where it is none.
fn usable(x: &Term) -> Term {
    let positive = binary(BinaryOp::Gt, x.clone(), Term::Number(0.0));
    let good = binary(BinaryOp::And, positive, guard::is_finite(x));
    Term::Select(Box::new(good), Box::new(x.clone()), Box::new(Term::Number(1.0)))
}

fn raise(t: Term, power: f64) -> Term {
    if power == 1.0 { t } else { binary(BinaryOp::Pow, t, Term::Number(power)) }
}

fn without_sign(t: &Term) -> &Term {
    match t {
        Term::Unary(UnaryOp::Abs, x) => x,
        other => other,
    }
}

impl Deriver<'_> {
    /// The sum of `inside` times `outside` relative to an extremum that divides it, if there is such a one.
    pub(super) fn scaling(&self, r: &Reduction, inside: &Product, outside: &Product, floor: usize) -> Option<Scaling> {
        let found = outside.factors.iter().enumerate().filter_map(|(place, (base, power))| {
            let Term::Read(n, at) = base else { return None };
            let magnitude =
                self.moving_magnitude(*n, r, floor).filter(|_| *power < 0.0 && self.out.is_plain(*n, at))?;
            let own = |(f, p): &(Term, f64)| *p >= -power && without_sign(f) == without_sign(magnitude);
            Some((place, *n, -power, inside.factors.iter().position(own)?))
        });
        let found: Vec<(usize, NodeId, f64, usize)> = found.collect();
        let total: f64 = found.iter().map(|f| f.2).sum();
        let (place, n, k, factor) = found.into_iter().reduce(|a, b| if b.2 > a.2 { b } else { a })?;
        if total <= 1.0 {
            return None;
        }
        let base = &outside.factors[place].0;
        let mut scaled = inside.clone();
        let (f, p) = scaled.factors.remove(factor);
        let anchor = usable(base);
        scaled.factors.push((binary(BinaryOp::Div, f.clone(), anchor.clone()), k));
        if p > k {
            scaled.factors.push((f, p - k));
        }
        let mut rest = outside.clone();
        rest.factors.remove(place);
        let moved = raise(binary(BinaryOp::Div, usable(&to_old(base)), anchor.clone()), k);
        Some(Scaling {
            anchor: Anchor { exponent: vec![], state: Some(n), factor: Some(moved) },
            inside: scaled,
            outside: rest,
            left: raise(binary(BinaryOp::Div, anchor, base.clone()), k),
        })
    }

    /// What a reduction of this traversal gives the largest magnitude of, over the same elements.
    fn moving_magnitude(&self, n: NodeId, r: &Reduction, floor: usize) -> Option<&Term> {
        let Def::Reduce(max) = &self.out[n].def else { return None };
        let same = max.monoid == Monoid::Max && max.over == r.over && max.filter == r.filter;
        let moves = max.streaming.anchors.is_empty() && self.levels.of(n) >= floor && !self.pinned.contains_key(&n);
        let magnitude = crate::sign::nonnegative(&max.body, &self.out) && !super::inline::rounds(&self.out[n]);
        (same && moves && magnitude).then_some(&max.body)
    }
}
