//! Sums relative to a running extremum: `Σ (|x| / max|x|)^k`, as a norm is computed that must not overflow, and powers of other
//! quotients, `Σ (x / a)^k`.
//!
//! The factor `a^-k` does not carry the reduced indices and could leave, but then `Σ x^k` may overflow where the text
//! does not. So the state is `Σ (x / M)^k` with the maximum `M` of `|x|` so far; when it moves to `M'` the state is multiplied
//! with `(M / M')^k <= 1`, and in the end with `(M / a)^k`.
//!
//! Conditions: a factor of the sum is divided by the largest magnitude of that very factor, over the same indices and under
//! the same conditions, which moves in this traversal; and all such divisors together have a higher power than the first, for
//! a number's own first power overflows no sooner than the number. Of several the one with the highest power is the anchor.
//! A positive number may be added to the magnitude, against divisions by 0: such a divisor is the anchor as it stands.
//! Or it is divided by anything else, or multiplied with it, and both have one power that leaves the range easily (see
//! [`super::whole`]). What is complete before the sum starts needs no anchor: the quotient stays as it is.
//! An anchor that is 0 or not finite is replaced by 1, which is as good an anchor: then nothing but zeros has been met, or the
//! text has no number either.

use super::separate::{Anchor, to_old};
use super::whole::{Quotient, magnitude, quotient};
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Term, sign};
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};

/// What is summed relative to its extremum.
pub(super) struct Scaling {
    pub anchor: Anchor,
    /// The summand, relative to the anchor.
    pub inside: Product,
    /// What stays outside, without the anchor's power.
    pub outside: Product,
    /// What the finished state is multiplied with, as a base and its power: 1 where the anchor is what divides, and a positive
    /// number.
    pub left: Option<(Term, Term)>,
}

/// Powers up to this are taken one factor at a time.
const FACTORS: f64 = 8.0;

/// `value · base^power`, whole powers one factor after the other: where the power alone has no number (1 over a tiny number
/// that is added against divisions by 0) the value may be 0, or small enough.
pub(super) fn times_power(value: Term, base: &Term, power: &Term) -> Term {
    match power.as_number() {
        Some(k) if k.fract() == 0.0 && (1.0..=FACTORS).contains(&k) => {
            (0..k as u32).fold(value, |all, _| binary(BinaryOp::Mul, all, base.clone()))
        }
        _ => binary(BinaryOp::Mul, value, raise(base.clone(), power)),
    }
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn raise(t: Term, power: &Term) -> Term {
    if *power == Term::Number(1.0) { t } else { binary(BinaryOp::Pow, t, power.clone()) }
}

/// `x` of `max(x, 0)`.
fn not_below_zero(t: &Term) -> &Term {
    match t {
        Term::Binary(BinaryOp::Max, x, zero) if **zero == Term::Number(0.0) => x,
        other => other,
    }
}

/// The magnitude of a divisor that is one and a positive number, of what is not negative (see [`super::pieces`]), and whether it is more
/// than that.
fn divisor(t: &Term) -> (&Term, bool) {
    match t {
        Term::Binary(BinaryOp::Add, x, c) if sign::positive_constant(c) => (divisor(x).0, true),
        Term::Binary(BinaryOp::Add, c, x) if sign::positive_constant(c) => (divisor(x).0, true),
        other => (not_below_zero(other), false),
    }
}

fn without_sign(t: &Term) -> &Term {
    match t {
        Term::Unary(UnaryOp::Abs, x) => x,
        other => other,
    }
}

/// What a sum relative to `base` is multiplied with when that moves. Where there was nothing to be relative to, all that was
/// summed is 0, or infinite.
fn moved(base: &Term, power: &Term) -> Term {
    let old = to_old(base);
    let ratio = raise(binary(BinaryOp::Div, old.clone(), guard::usable(base)), power);
    guard::where_some(guard::is_usable(&old), ratio, 1.0)
}

impl Deriver<'_> {
    /// The sum of `inside` times `outside` relative to an extremum, if something that divides it asks for one.
    pub(super) fn scaling(
        &mut self,
        node: &Node,
        r: &Reduction,
        inside: &Product,
        outside: &Product,
        floor: usize,
    ) -> Option<Scaling> {
        if let Some(own) = self.own_scaling(r, inside, outside, floor) {
            return Some(own);
        }
        let Quotient { inside: factor, outside: place, over, by, power } = quotient(inside, outside)?;
        let (mut scaled, mut rest) = (inside.clone(), outside.clone());
        scaled.factors.remove(factor);
        rest.factors.remove(place);
        let whole = |t: Term| Product { factors: vec![(t, 1.0)], ..Product::one() }.times(&by).term();
        let mut push = |base: Term| match power.as_number() {
            Some(k) => scaled.factors.push((base, k)),
            None => scaled.factors.push((raise(base, &power), 1.0)),
        };
        if !self.waits(&by.term(), &r.over, floor) {
            push(whole(over));
            return Some(Scaling { anchor: Anchor::default(), inside: scaled, outside: rest, left: None });
        }
        if let [(base, -1.0)] = by.factors.as_slice()
            && let Some((n, base)) = self.own_divisor(base, r, floor)
            && self.largest_of(n).is_some_and(|m| without_sign(m) == without_sign(&over))
        {
            push(binary(BinaryOp::Div, over, guard::usable(&base)));
            let factor = Some(moved(&base, &power));
            let anchor = Anchor { states: vec![n], factor, ..Anchor::default() };
            let left = Some((binary(BinaryOp::Div, guard::usable(&base), base), power));
            return Some(Scaling { anchor, inside: scaled, outside: rest, left });
        }
        let (state, value) = self.running_max(node, &magnitude(&over, &self.out), &r.over, &r.filter);
        let usable = guard::usable(&value);
        push(binary(BinaryOp::Div, over, usable.clone()));
        let mut anchor = Anchor::default();
        if self.levels.of(state) >= floor {
            (anchor.states, anchor.factor) = (vec![state], Some(moved(&value, &power)));
        }
        Some(Scaling { anchor, inside: scaled, outside: rest, left: Some((whole(usable), power)) })
    }

    /// Relative to the sum's own extremum, if that divides it.
    fn own_scaling(&self, r: &Reduction, inside: &Product, outside: &Product, floor: usize) -> Option<Scaling> {
        let found = outside.factors.iter().enumerate().filter_map(|(place, (base, power))| {
            let (n, divisor) = self.own_divisor(base, r, floor).filter(|_| *power < 0.0)?;
            let magnitude = self.largest_of(n)?;
            let own = |(f, p): &(Term, f64)| *p >= -power && without_sign(f) == without_sign(magnitude);
            Some((place, (n, divisor), -power, inside.factors.iter().position(own)?))
        });
        let found: Vec<(usize, (NodeId, Term), f64, usize)> = found.collect();
        let total: f64 = found.iter().map(|f| f.2).sum();
        let (place, (n, base), k, factor) = found.into_iter().reduce(|a, b| if b.2 > a.2 { b } else { a })?;
        if total <= 1.0 {
            return None;
        }
        let mut scaled = inside.clone();
        let (f, p) = scaled.factors.remove(factor);
        let anchor = guard::usable(&base);
        scaled.factors.push((binary(BinaryOp::Div, f.clone(), anchor.clone()), k));
        if p > k {
            scaled.factors.push((f, p - k));
        }
        let mut rest = outside.clone();
        rest.factors.remove(place);
        let k = Term::Number(k);
        Some(Scaling {
            anchor: Anchor { states: vec![n], factor: Some(moved(&base, &k)), ..Anchor::default() },
            inside: scaled,
            outside: rest,
            left: Some((binary(BinaryOp::Div, anchor, base), k)),
        })
    }

    /// The maximum of magnitudes that moves in this traversal, over the same elements, if that is what a divisor is, or is a positive
    /// number less than; and the divisor in its terms.
    fn own_divisor(&self, base: &Term, r: &Reduction, floor: usize) -> Option<(NodeId, Term)> {
        let mut base = base.clone();
        while let Term::Read(n, at) = &base
            && let Def::Map(term) = &self.out[*n].def
            && self.out.is_plain(*n, at)
            && !super::inline::rounds(&self.out[*n])
        {
            base = term.clone();
        }
        let (magnitude, more) = divisor(&base);
        let Term::Read(n, at) = magnitude else { return None };
        let plain = self.out.is_plain(*n, at) && self.moving_magnitude(*n, r, floor).is_some();
        let n = plain.then_some(*n)?;
        Some((n, if more { base } else { magnitude.clone() }))
    }

    /// What a maximum is of.
    fn largest_of(&self, n: NodeId) -> Option<&Term> {
        if let Def::Reduce(max) = &self.out[n].def { Some(&max.body) } else { None }
    }

    /// What a reduction of this traversal gives the largest magnitude of, over the same elements.
    fn moving_magnitude(&self, n: NodeId, r: &Reduction, floor: usize) -> Option<&Term> {
        let Def::Reduce(max) = &self.out[n].def else { return None };
        let same = max.monoid == Monoid::Max && max.over == r.over && max.filter == r.filter;
        let moves = max.streaming.anchors.is_empty() && self.levels.of(n) >= floor && !self.pinned.contains_key(&n);
        let magnitude = sign::nonnegative(&max.body, &self.out) && !super::inline::rounds(&self.out[n]);
        (same && moves && magnitude).then_some(&max.body)
    }
}
