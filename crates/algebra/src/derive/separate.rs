//! Sums: `Σ g(x)·h(c) = h(c)·Σ g(x)`, and for exponentials relative to their running maximum.
//!
//! The body is read as a product. A factor that does not carry the reduced indices leaves (defer). What remains must
//! not need any other reduction over them, except in exponents: `exp(a(x) + b(c))` becomes `exp(a(x) - M)` with
//! `M = max a(x)` so far (the anchor), and `exp(M + b(c))` leaves. When the anchor moves from `M` to `M'` the state is
//! multiplied with `exp(M - M') <= 1`. An anchor that is not finite is replaced by 0, which is as good an anchor.

use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Rule, Streaming, Term, product, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, UnaryOp};

/// The sum's body as a product, with its two kinds of factors.
struct Separated {
    /// Carries the reduced indices; exponents of e are in `exponent`, not in here.
    inside: Product,
    /// Does not; leaves the sum.
    outside: Product,
    /// The part of e's exponent that carries the reduced indices.
    exponent: product::Sum,
    /// The part that does not.
    shift: product::Sum,
}

impl Deriver<'_> {
    pub(super) fn sum(&mut self, id: NodeId, node: Node, mut r: Reduction) -> NodeId {
        let own_filter = self.hoist_filter(&node, &mut r);
        let before = show::reduction(&self.out, &r);
        let body = self.inline_barriers(&r.body, &r.over);
        let barriers = self.barriers(&body, &r.over);
        // Integers are summed exactly as they are.
        if node.dtype == Some(DType::I32) || !self.filters_ready(&r) {
            let place = self.barred(node.clone(), r.clone(), None);
            if !self.filters_ready(&r) {
                let reason = "its filter needs another reduction over the same indices complete".to_string();
                self.refuse(Rule::Separate, &node, &r.over, reason, None);
            } else if !barriers.is_empty() {
                let (reason, hint) = self.why_not(&body, &r.over, &barriers);
                self.refuse(Rule::Separate, &node, &r.over, reason, hint);
            }
            return place;
        }
        let Some(parts) = self.split(&body, &r.over) else {
            if barriers.is_empty() {
                return self.barred(node, r, None);
            }
            let (reason, hint) = self.why_not(&body, &r.over, &barriers);
            let place = self.barred(node.clone(), r.clone(), None);
            self.refuse(Rule::Separate, &node, &r.over, reason, hint);
            return place;
        };
        let anchored = !parts.exponent.is_empty() && (!parts.shift.is_empty() || !self.unanchored.contains(&id));
        if parts.outside.is_one() && !anchored {
            return self.barred(node, Reduction { body, ..r }, None);
        }
        self.rebuild_sum(id, node, r, parts, anchored, own_filter, before)
    }

    /// Reads the body as a product. `None` if some factor that carries the indices still needs a reduction over them.
    fn split(&self, body: &Term, over: &[IndexId]) -> Option<Separated> {
        let carries = |t: &Term| t.mentions(over);
        let (mut inside, mut outside) = Product::of(body, &self.out).partition(carries);
        // The coefficient costs nothing outside.
        outside.coefficient = std::mem::replace(&mut inside.coefficient, 1.0);
        let ready = |t: &Term| self.barriers(t, over).is_empty();
        let exponents = inside.exponent.iter().chain(&inside.exponent2).map(|(_, t)| t);
        if !inside.factors.iter().map(|(t, _)| t).chain(exponents).all(ready) {
            return None;
        }
        if inside.exponent.is_empty() && inside.exponent2.is_empty() {
            return Some(Separated { inside, outside, exponent: vec![], shift: vec![] });
        }
        // Powers of two join those of e: one anchor serves both.
        let ln2 = std::f64::consts::LN_2;
        let mut exponent = std::mem::take(&mut inside.exponent);
        product::append(&mut exponent, std::mem::take(&mut inside.exponent2), ln2);
        let mut shift = std::mem::take(&mut outside.exponent);
        product::append(&mut shift, std::mem::take(&mut outside.exponent2), ln2);
        Some(Separated { inside, outside, exponent, shift })
    }

    #[allow(clippy::too_many_arguments)] // The parts of one rewriting.
    fn rebuild_sum(
        &mut self,
        id: NodeId,
        node: Node,
        r: Reduction,
        parts: Separated,
        anchored: bool,
        own_filter: Vec<Term>,
        before: String,
    ) -> NodeId {
        let over = r.over.clone();
        let mut inner = r.clone();
        let mut inside = parts.inside;
        // What the finished state is multiplied with: (where the anchor is finite, where it is not).
        let mut shift: Option<(NodeId, Term, product::Sum)> = None;
        if anchored {
            let exponent = product::sum_term(&parts.exponent);
            let (state, value) = self.running_max(&node, &exponent, &over, &r.filter);
            let anchor = guard::finite(&value);
            // The exponent in the maximum's own words, so that a chunk computes it once.
            inside.exponent = match &self.out[state].def {
                Def::Reduce(m) if value == self.out.read(state) => vec![(1.0, m.body.clone())],
                _ => parts.exponent.clone(),
            };
            product::append(&mut inside.exponent, vec![(-1.0, anchor.clone())], 1.0);
            inner.streaming = Streaming { level: 0, anchors: vec![state], repair: Some(repair(&value, &anchor)) };
            shift = Some((state, value, parts.shift.clone()));
        } else {
            inside.exponent = parts.exponent.clone();
        }
        inner.body = inside.term();
        let state = self.reduction_node(&node, "acc", inner.clone());
        let mut value = self.out.read(state);
        let stabilised = anchored && parts.shift.is_empty();
        if let Some((_, max, shift)) = &shift {
            value = shifted(value, max, shift, stabilised);
        }
        let factor = parts.outside;
        if !factor.is_one() {
            value = times(value, &factor);
        }
        if !factor.is_number() || matches!(&shift, Some((_, _, s)) if !s.is_empty()) {
            let seen = self.seen(&node, &over, &own_filter);
            value = guard::where_some(seen, value, 0.0);
        }
        let (value, mut rest) = self.cancel(&value);
        self.explain_sum(&node, &over, &before, &inner, &factor, anchored, stabilised, &value);
        if let Some((anchor, ..)) = shift
            && stabilised
        {
            let anchors = [anchor].into();
            match &mut rest {
                Some(rest) => {
                    rest.origins.insert(id);
                    rest.anchors.insert(anchor);
                }
                None if super::inline::exponential_of(&value, &anchors) => {
                    rest = Some(super::Scaled { origins: [id].into(), term: value.clone(), anchors });
                }
                None => {}
            }
        }
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }

    #[allow(clippy::too_many_arguments)] // The parts of one explanation.
    fn explain_sum(
        &mut self,
        node: &Node,
        over: &[IndexId],
        before: &str,
        inner: &Reduction,
        factor: &Product,
        anchored: bool,
        stabilised: bool,
        value: &Term,
    ) {
        let names = self.index_names(over);
        let bare = Reduction { body: show::unguarded(&inner.body), ..inner.clone() };
        let (state, value) = (show::reduction(&self.out, &bare), show::term(&self.out, &show::unguarded(value)));
        if !factor.is_one() {
            let why =
                format!("{} does not carry {names}, and · distributes over sum", show::term(&self.out, &factor.term()));
            self.step(Rule::Defer, node, over, why, before.into(), value.clone());
        }
        if anchored {
            let exponent = match &inner.streaming.repair {
                Some(r) => show::term(&self.out, &show::unguarded(&r.factor)),
                None => String::new(),
            };
            let (rule, why) = if stabilised {
                (
                    Rule::Stabilise,
                    format!(
                        "exp overflows and every consumer is unchanged when all exponents are shifted alike; anchored at their running maximum, repair {exponent} <= 1 because a maximum only grows"
                    ),
                )
            } else {
                (
                    Rule::Separate,
                    format!(
                        "exp(x - c) = exp(x)·exp(-c) and · distributes over sum; repair {exponent} <= 1 because a maximum only grows"
                    ),
                )
            };
            self.step(rule, node, over, why, before.into(), state);
        }
    }

    /// Which condition failed, in the user's terms.
    fn why_not(&self, body: &Term, over: &[IndexId], barriers: &[NodeId]) -> (String, Option<String>) {
        let index = self.index_names(over);
        let product = Product::of(body, &self.out);
        let culprit = product
            .factors
            .iter()
            .map(|(t, _)| t)
            .chain(product.exponent.iter().chain(&product.exponent2).map(|(_, t)| t))
            .find(|t| t.mentions(over) && !self.barriers(t, over).is_empty());
        let Some(culprit) = culprit else { return (format!("needs {} complete", self.names(barriers)), None) };
        let shown = show::term(&self.out, culprit);
        let needs = self.names(&self.barriers(culprit, over));
        let hint = match culprit {
            Term::Read(n, _) if super::inline::rounds(&self.out[*n]) => Some(format!(
                "{} is rounded to {}, and rounding does not commute with a later change of {needs}",
                self.out[*n].name,
                self.out[*n].dtype.map_or("", |d| d.name())
            )),
            Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => Some(
                "a sum of terms that separate differently needs a vector of states, which this rule does not make"
                    .into(),
            ),
            _ => None,
        };
        (format!("{shown} is not a product of a function of {index} and a function of {needs}"), hint)
    }
}

/// `exp(old - new)`, with the new anchor made finite. The old one need not be: while it is -inf the state is 0, and
/// so is its factor, so `exp(-inf - -inf)` is never evaluated.
fn repair(value: &Term, anchor: &Term) -> Repair {
    let old = to_old(value);
    let difference = Term::Binary(BinaryOp::Sub, Box::new(old), Box::new(anchor.clone()));
    Repair { combine: BinaryOp::Mul, factor: Term::Unary(UnaryOp::Exp, Box::new(difference)), keep_if: None }
}

fn to_old(t: &Term) -> Term {
    match t {
        Term::Read(n, at) => Term::Old(*n, at.clone() as Vec<IndexExpr>),
        other => other.map_children(&mut to_old),
    }
}

/// `state · exp(anchor + shift)`, where the anchor was `max` if that is finite and 0 if not.
fn shifted(state: Term, max: &Term, shift: &product::Sum, symbolic: bool) -> Term {
    let times_exp = |state: Term, exponent: product::Sum| {
        if exponent.is_empty() {
            return state;
        }
        let exp = Term::Unary(UnaryOp::Exp, Box::new(product::sum_term(&exponent)));
        Term::Binary(BinaryOp::Mul, Box::new(state), Box::new(exp))
    };
    if symbolic {
        return times_exp(state, vec![(1.0, guard::finite(max))]);
    }
    // `max` as it would appear in a sum, so that `max - max` is nothing.
    let mut moved = shift.clone();
    product::append(&mut moved, product::sum(max), 1.0);
    let finite = times_exp(state.clone(), moved);
    // Elsewhere it must not be: inf - inf is what the program as written would have met too.
    let mut met = vec![(1.0, max.clone())];
    met.extend(shift.iter().cloned());
    let met = product::sum_term(&met);
    let exp = Term::Unary(UnaryOp::Exp, Box::new(met));
    let otherwise = Term::Binary(BinaryOp::Mul, Box::new(state), Box::new(exp));
    if finite == otherwise {
        return finite;
    }
    Term::Select(Box::new(guard::is_finite(max)), Box::new(finite), Box::new(otherwise))
}

fn times(value: Term, factor: &Product) -> Term {
    match factor.term() {
        Term::Binary(BinaryOp::Div, a, b) if *a == Term::Number(1.0) => Term::Binary(BinaryOp::Div, Box::new(value), b),
        Term::Binary(BinaryOp::Div, a, b) => {
            let over = Term::Binary(BinaryOp::Mul, Box::new(value), a);
            Term::Binary(BinaryOp::Div, Box::new(over), b)
        }
        t => Term::Binary(BinaryOp::Mul, Box::new(value), Box::new(t)),
    }
}
