//! Decays over a stretch of positions inside a chunk.
//!
//! The part of the decay that is the same at every step is raised to the stretch's length; exponents add up; other factors
//! are multiplied. So no decay is ever divided by another. A stretch between two positions inside the chunk takes the
//! difference of two sums of exponents from the chunk's start. A step whose decay is 0, such as `exp(-inf)`, must not
//! enter these, since `-inf - -inf` is no number and a huge exponent would take the digits of all others: such steps count
//! as exponent 0, and where one lies in the stretch the decay is 0.
//!
//! The difference of two such sums is off by the last digit of the larger: in f32 by 2^-24 of what a whole chunk decays,
//! however short the stretch is. So every exponent is taken apart into a multiple of [`GRAIN`], of which a chunk's sums are exact,
//! and a rest below it, of which they are small; that costs two more additions beside an exponential. From the chunk's start on
//! no difference is taken, and what an exponent as large as that is off by, its exponential makes nothing of: there one sum does,
//! except inside a sum over an index that the decay carries, which has both at hand.
//!
//! What an extremum's steps add is summed over each stretch by itself ([`super::extrema`]).

use super::step::Affine;
use super::{Rewriter, times};
use crate::{Def, Reduction, Streaming, Term, product};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};

/// What the coarse parts of exponents are multiples of, as its inverse: their sums are exact in f32 up to 2^24 of it, which
/// is 65536, and an exponent of less than -104 has a decay of 0 there. The rests of a thousand steps sum up to no more
/// than 2, whose last digit is 2^-23.
const GRAIN: f64 = 256.0;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

impl Rewriter<'_> {
    /// The product of the decays at the positions after `from` (nothing: from the chunk's first) and up to `to`, that one
    /// included or not (nothing: up to the chunk's last). Nothing if it is 1.
    pub(super) fn stretch(&mut self, a: &Affine, from: Option<IndexId>, to: Option<(IndexId, bool)>) -> Option<Term> {
        self.stretched(a, from, to, false)
    }

    /// The same inside a sum over an index that the decay carries.
    pub(super) fn stretch_inside(&mut self, a: &Affine, from: Option<IndexId>, to: (IndexId, bool)) -> Option<Term> {
        self.stretched(a, from, Some(to), true)
    }

    fn stretched(
        &mut self,
        a: &Affine,
        from: Option<IndexId>,
        to: Option<(IndexId, bool)>,
        apart: bool,
    ) -> Option<Term> {
        if a.over != Monoid::Sum {
            return self.added_up(a, from, to);
        }
        let mut out = None;
        if let Some(constant) = a.constant.clone() {
            let length = self.length(a, from, to);
            let whole = from.is_none() && to.is_none_or(|t| t.1);
            out = Some(if whole { power(constant, length) } else { power_or_one(constant, length) });
        }
        if !a.exponent.is_empty() {
            out = Some(times(out, self.exponential(a, from, to, apart)));
        }
        if let Some(factor) = a.factor.clone() {
            let product = self.over_stretch(a, Monoid::Prod, &factor, vec![], from, to);
            out = Some(times(out, product));
        }
        out
    }

    /// What an extremum's steps add over a stretch.
    fn added_up(&mut self, a: &Affine, from: Option<IndexId>, to: Option<(IndexId, bool)>) -> Option<Term> {
        let constant = a.constant.clone().map(|c| {
            let length = self.length(a, from, to);
            let finite = c.as_number().is_some_and(f64::is_finite);
            let all = binary(BinaryOp::Mul, c, length.clone());
            // A stretch of no positions adds nothing, not `inf · 0`.
            let none = || Box::new(binary(BinaryOp::Eq, length, Term::Number(0.0)));
            if finite { all } else { Term::Select(none(), Box::new(Term::Number(0.0)), Box::new(all)) }
        });
        let varying = (!a.exponent.is_empty())
            .then(|| self.over_stretch(a, Monoid::Sum, &product::sum_term(&a.exponent), vec![], from, to));
        match (constant, varying) {
            (Some(c), Some(v)) => Some(binary(BinaryOp::Add, c, v)),
            (c, v) => c.or(v),
        }
    }

    /// `exp` of the sum of the exponents of a stretch, which are taken apart if a difference of two sums is to keep the
    /// digits of a short stretch.
    fn exponential(&mut self, a: &Affine, from: Option<IndexId>, to: Option<(IndexId, bool)>, apart: bool) -> Term {
        let exp = |x| Term::Unary(UnaryOp::Exp, Box::new(x));
        let zero = || Term::Number(0.0);
        let exponent = product::sum_term(&a.exponent);
        let decay = exp(exponent.clone());
        let Some(to) = to else {
            return exp(self.over_stretch(a, Monoid::Sum, &exponent, vec![], from, to));
        };
        let kept = binary(BinaryOp::Ne, decay.clone(), zero());
        let counted = Term::Select(Box::new(kept), Box::new(exponent), Box::new(zero()));
        let parts = match (apart || from.is_some()) && !all_literal(&counted) {
            true => {
                let coarse = coarse(&counted);
                vec![coarse.clone(), binary(BinaryOp::Sub, counted, coarse)]
            }
            false => vec![counted],
        };
        let mut up_to = |to| -> Vec<Term> {
            parts.iter().map(|part| self.over_stretch(a, Monoid::Sum, part, vec![], None, Some(to))).collect()
        };
        let (mut sums, lower) = (up_to(to), from.map(|from| up_to((from, true))));
        if let Some(lower) = lower {
            sums = sums.into_iter().zip(lower).map(|(upper, lower)| binary(BinaryOp::Sub, upper, lower)).collect();
        }
        let sum = sums.into_iter().reduce(|a, b| binary(BinaryOp::Add, a, b)).unwrap_or(zero());
        // The last step up to there that keeps nothing; -inf if none does.
        let void = vec![binary(BinaryOp::Eq, decay, zero())];
        let last = self.over_stretch(a, Monoid::Max, &Term::Position(self.t), void, None, Some(to));
        let holds = match from {
            None => binary(BinaryOp::Lt, last, zero()),
            Some(from) => binary(BinaryOp::Le, last, Term::Position(from)),
        };
        Term::Select(Box::new(holds), Box::new(exp(sum)), Box::new(zero()))
    }

    /// `⊕(s: from < s <= to and filter) body`, with s in the chunk.
    fn over_stretch(
        &mut self,
        a: &Affine,
        monoid: Monoid,
        body: &Term,
        conditions: Vec<Term>,
        from: Option<IndexId>,
        to: Option<(IndexId, bool)>,
    ) -> Term {
        let (s, t) = (self.s, self.t);
        let (Ok(body), Ok(conditions)) = (
            super::step::moved(body, t, s),
            conditions.iter().map(|c| super::step::moved(c, t, s)).collect::<Result<Vec<_>, _>>(),
        ) else {
            return Term::Number(f64::NAN);
        };
        let mut filter = vec![];
        if let Some(from) = from {
            filter.push(binary(BinaryOp::Gt, Term::Position(s), Term::Position(from)));
        }
        if let Some((to, included)) = to {
            let op = if included { BinaryOp::Le } else { BinaryOp::Lt };
            filter.push(binary(op, Term::Position(s), Term::Position(to)));
        }
        filter.extend(conditions);
        let like = self.graph[a.state].clone();
        let streaming = Streaming::default();
        self.member(&like, super::DECAY, Def::Reduce(Reduction { monoid, over: vec![s], filter, body, streaming }))
    }

    /// Number of positions of a stretch.
    fn length(&mut self, a: &Affine, from: Option<IndexId>, to: Option<(IndexId, bool)>) -> Term {
        let (to, included) = match to {
            Some((to, included)) => (Term::Position(to), included),
            None => (self.edge(a, Monoid::Max), true),
        };
        let (from, after) = match from {
            Some(from) => (Term::Position(from), 0.0),
            None => (self.edge(a, Monoid::Min), 1.0),
        };
        let difference = binary(BinaryOp::Sub, to, from);
        match after - if included { 0.0 } else { 1.0 } {
            0.0 => difference,
            -1.0 => binary(BinaryOp::Sub, difference, Term::Number(1.0)),
            more => binary(BinaryOp::Add, difference, Term::Number(more)),
        }
    }

    /// The first or last position of the chunk.
    fn edge(&mut self, a: &Affine, monoid: Monoid) -> Term {
        let like = self.graph[a.state].clone();
        let what = if monoid == Monoid::Min { "first" } else { "last" };
        let (body, streaming) = (Term::Position(self.s), Streaming::default());
        self.member(&like, what, Def::Reduce(Reduction { monoid, over: vec![self.s], filter: vec![], body, streaming }))
    }
}

/// Whether a term chooses among numbers alone, whose sums are exact.
fn all_literal(t: &Term) -> bool {
    match t {
        Term::Select(_, a, b) => all_literal(a) && all_literal(b),
        t => t.as_number().is_some_and(|v| v.fract() == 0.0 || v.is_infinite()),
    }
}

/// The nearest multiple of the grain.
fn coarse(exponent: &Term) -> Term {
    let grains = binary(BinaryOp::Mul, exponent.clone(), Term::Number(GRAIN));
    binary(BinaryOp::Mul, Term::Unary(UnaryOp::Round, Box::new(grains)), Term::Number(1.0 / GRAIN))
}

/// The same, and 1 for a stretch of no positions, whatever the base: `exp(-inf · 0)` is no number.
fn power_or_one(base: Term, length: Term) -> Term {
    let none = binary(BinaryOp::Eq, length.clone(), Term::Number(0.0));
    Term::Select(Box::new(none), Box::new(Term::Number(1.0)), Box::new(power(base, length)))
}

/// `base^length`, through the exponent where the base is a power of e.
fn power(base: Term, length: Term) -> Term {
    match base {
        Term::Unary(op @ (UnaryOp::Exp | UnaryOp::Exp2), x) => {
            Term::Unary(op, Box::new(binary(BinaryOp::Mul, *x, length)))
        }
        base => binary(BinaryOp::Pow, base, length),
    }
}
