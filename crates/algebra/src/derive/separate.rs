//! Sums: `Σ g(x)·h(c) = h(c)·Σ g(x)`, and for exponentials relative to their running maximum.
//!
//! The body is read as a product. A factor that does not carry the reduced indices leaves (defer). What remains must
//! not need any other reduction over them, except in exponents: `exp(a(x) + b(c))` becomes `exp(a(x) - M)` with
//! `M = max a(x)` so far (the anchor), and `exp(M + b(c))` leaves. When the anchor moves from `M` to `M'` the state is
//! multiplied with `exp(M - M') <= 1`. An anchor that is not finite is replaced by 0, which is as good an anchor.
//! Whole powers of sums that mix both (`(x - c)^2`) become a vector of states: see [`super::moments`].
//!
//! What cannot be separated makes the sum wait for a later traversal. There every reduction of earlier traversals is
//! complete, so only what is left to wait for need be separated.

use super::filter::Before;
use super::inline::Cancelled;
use super::polynomial::{Expansion, NotFinite, Polynomial};
use super::scale::{Scaling, times_power};
use super::{Deriver, apart, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Streaming, Term, product, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, UnaryOp};

/// The sum's body as a product, with its kinds of factors.
pub(super) struct Separated {
    /// Carries the reduced indices; exponents of e are in `exponent`, not in here.
    pub inside: Product,
    /// Does not; leaves the sum.
    pub outside: Product,
    /// The part of e's exponent that carries the reduced indices.
    pub exponent: product::Sum,
    /// The part that does not.
    pub shift: product::Sum,
    /// Factors that are neither inside nor outside.
    pub mixed: Option<Polynomial>,
}

/// What leaves a sum from under conditions that became filters, and is not met where none of them holds.
struct Under {
    /// Factors.
    factor: Product,
    /// Whether a part of the exponent does.
    shift: bool,
    /// Whether what mixes the indices with other reductions stands there.
    mixed: bool,
    /// What a masked element is if its mask stands in an exponent: `exp(-inf + shift)`.
    masked: Option<Term>,
}

/// The exponential in every state of one sum.
#[derive(Default)]
pub(super) struct Anchor {
    /// The exponent relative to the anchor, as it stands in a state.
    pub exponent: product::Sum,
    /// Exponents that stay exponentials of their own.
    pub apart: Vec<product::Sum>,
    /// The maxima's states, of those that move in this traversal.
    pub states: Vec<NodeId>,
    /// What a state is multiplied with when it moves.
    pub factor: Option<Term>,
}

impl Deriver<'_> {
    pub(super) fn sum(&mut self, id: NodeId, node: Node, mut r: Reduction) -> NodeId {
        if let Some(made) = self.told_by_extremum(id, &node, &r) {
            return made;
        }
        let own = self.hoist_filter(&node, &mut r);
        let before = show::reduction(&self.out, &r);
        let body = self.inline_barriers(&r.body, &r.over);
        let whole = body.clone();
        let body = self.without_what_cancels(&node, body, &r.over);
        if body == whole && self.stays_waiting(&node, &r, &body) {
            return self.barred(node, r, None);
        }
        let body =
            self.with_pieces_opened(&node, body, &r.over, |s, body, other| s.separates_better(body, other, &r.over));
        let body = self.with_logarithms_opened(&node, body, &r.over);
        let exact = node.dtype == Some(DType::I32);
        if let Some(groups) = apart::groups(&r, &body).filter(|_| !exact && own.body.is_none()) {
            return self.product_of_sums(id, node, r, groups, before);
        }
        let barriers = self.barriers(&body, &r.over);
        let owed = self.owed(&node, &barriers);
        if self.kept.contains(&id) && !owed.is_empty() {
            let reason = format!(
                "{} is wanted for every {}, and each of its elements needs {}, which is over all of them: it must wait, and what it reads would be read before that and again",
                node.name,
                self.index_names(&node.axes),
                self.names(&owed)
            );
            let hint =
                format!("if only a sum of {} were wanted, {} would leave that sum", node.name, self.names(&owed));
            return self.barred(node, r, Some((reason, hint)));
        }
        if !owed.is_empty() {
            self.pointless.insert(id);
        }
        // Integers are summed exactly as they are.
        if exact || !self.filters_ready(&r) {
            let place = self.barred(node.clone(), r.clone(), None);
            if self.refuse_filters(&node, &r) {
                // Said.
            } else if !barriers.is_empty() {
                let (reason, hint) = match self.split(&body, &r.over, 0) {
                    Err(why) => self.why_not(&why, &r.over, 0),
                    Ok(_) => {
                        let reason =
                            format!("a sum of integers is exact as it is, and waits for {}", self.names(&barriers));
                        (reason, Some("an annotation as f32 would let it separate, with rounding".into()))
                    }
                };
                self.refuse(crate::Rule::Separate, &node, &r.over, reason, hint);
            }
            return place;
        }
        // The first traversal in which the sum can be computed.
        let last = barriers.iter().map(|&b| self.levels.of(b) + 1).max().unwrap_or(0);
        let (mut found, mut floor) = (None, 0);
        while floor <= last {
            match self.split(&body, &r.over, floor) {
                Ok(parts) if floor == 0 && self.only_adds(&body, &parts, &r.over) => {
                    return self.sum_of_sums(id, node, Reduction { body, ..r }, before);
                }
                Ok(parts) => {
                    found = Some((floor, parts));
                    break;
                }
                // As a whole it is centred inside, where addends that are taken apart cancel.
                Err(_) if floor == 0 && self.inner_whole(&r.over, &body).is_some() => {
                    let inner = self.inner_whole(&r.over, &body).unwrap_or_default();
                    return self.one_in_another(id, node, Reduction { body, ..r }, inner, before);
                }
                Err(_) if floor == 0 && self.addends_split(&body, &r.over) => {
                    return self.sum_of_sums(id, node, Reduction { body, ..r }, before);
                }
                Err(_) if floor == 0 && self.condition_leaves(&body, &r.over).is_some() => {
                    return self.sums_by_condition(id, node, Reduction { body, ..r }, before);
                }
                Err(_) if floor == 0 && self.inner_indices(&r, &body).is_some() => {
                    let inner = self.inner_indices(&r, &body).unwrap_or_default();
                    return self.one_in_another(id, node, Reduction { body, ..r }, inner, before);
                }
                Err(why) => {
                    // Of a body that would not separate with its logarithms opened either, what is left then is to blame.
                    let left = self.opened(&body, &r.over, &mut vec![]);
                    let (reason, hint) = match self.split(&left, &r.over, floor) {
                        Err(left) => self.why_not(&left, &r.over, floor),
                        Ok(_) => self.why_not(&why, &r.over, floor),
                    };
                    self.refuse(crate::Rule::Separate, &node, &r.over, reason, hint);
                    // It fails for the same reason until all that the culprit waits for is complete.
                    let waits = why.culprit().map(|t| self.barriers(t, &r.over)).unwrap_or_default();
                    let complete = waits.iter().map(|&b| self.levels.of(b) + 1).max().unwrap_or(0);
                    floor = complete.max(floor + 1);
                }
            }
        }
        let Some((floor, mut parts)) = found else { return self.barred(node, r, None) };
        self.stay_with_maximum(&mut parts, &r);
        let anchored = !parts.exponent.is_empty() && (!parts.shift.is_empty() || !self.unanchored.contains(&id));
        if !anchored {
            self.must_have_cancelled(&r, &body);
        }
        if parts.outside.is_one() && !anchored && parts.mixed.is_none() {
            return self.barred(node, Reduction { body, ..r }, None);
        }
        let plain = parts.exponent.is_empty() && parts.mixed.is_none() && own.body.is_none();
        if plain && let Some(scaling) = self.scaling(&node, &r, &parts.inside, &parts.outside, floor) {
            return self.sum_relative(node, r, scaling, before);
        }
        let bare = self.bare(&own, &r.over, &parts, floor);
        self.rebuild_sum(id, node, r, parts, floor, anchored, own.filter, bare, before)
    }

    /// An addend that carries no reduced index leaves an exponent, unless a maximum of the exponent with that addend is what the
    /// exponentials are divided by: then that maximum is the anchor, and no second one has to run beside it.
    fn stay_with_maximum(&self, parts: &mut Separated, r: &Reduction) {
        let with = |(c, t): &(f64, Term)| {
            let Term::Read(n, at) = t else { return None };
            let Def::Reduce(m) = &self.out[*n].def else { return None };
            let same = *c == -1.0 && m.monoid == Monoid::Max && m.over == r.over && m.filter == r.filter;
            if !same || !self.out.is_plain(*n, at) || super::inline::rounds(&self.out[*n]) {
                return None;
            }
            let whole = product::sum(&m.body);
            let left: product::Sum = whole.iter().filter(|a| !parts.exponent.contains(a)).cloned().collect();
            let all = whole.len() == left.len() + parts.exponent.len();
            (all && !left.is_empty() && left.iter().all(|a| parts.shift.contains(a))).then_some((whole, left))
        };
        if let Some((whole, left)) = parts.shift.iter().find_map(with) {
            parts.exponent = whole;
            parts.shift.retain(|a| !left.contains(a));
        }
    }

    /// Those of these reductions that a node needs at every one of its positions and that are over all of these.
    fn owed(&self, node: &Node, barriers: &[NodeId]) -> Vec<NodeId> {
        let over =
            |n: &NodeId| matches!(&self.out[*n].def, Def::Reduce(r) if r.over.iter().any(|i| node.axes.contains(i)));
        barriers.iter().copied().filter(over).collect()
    }

    /// The sum relative to an extremum that divides it: see [`super::scale`].
    fn sum_relative(&mut self, node: Node, r: Reduction, scaling: Scaling, before: String) -> NodeId {
        let Scaling { anchor, inside, outside, left } = scaling;
        let over = r.over.clone();
        let inner = anchor.reduction(&r, inside);
        let state = self.reduction_node(&node, "acc", inner.clone());
        let why = match anchor.factor.as_ref().map(|f| show::term(&self.out, &show::unguarded(f))) {
            Some(factor) => format!(
                "relative to {}, the maximum so far, nothing overflows that does not as written; it only grows, so the factor {factor} is at most 1",
                self.names(&inner.streaming.anchors)
            ),
            None => {
                "the quotient stays whole: its power may be a number where the quotient of powers is none".to_string()
            }
        };
        let mut value = self.out.read(state);
        if let Some((base, power)) = left {
            value = times_power(value, &base, &power);
        }
        if !outside.is_one() {
            value = times(value, &outside);
        }
        let after = self.state_text(&inner);
        self.step(crate::Rule::Separate, &node, &over, why, before, after);
        let seen = self.seen(&node, &over, &r.filter);
        let Cancelled { value, rest, .. } = self.cancel(&guard::where_some(seen, value, 0.0));
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }

    /// What leaves the sum from under conditions that became filters.
    fn bare(&mut self, own: &Before, over: &[IndexId], parts: &Separated, floor: usize) -> Under {
        let Some(opened) = &own.body else {
            return Under { factor: Product::one(), shift: false, mixed: false, masked: None };
        };
        let opened = self.inline_barriers(opened, over);
        let (inside, mut everywhere) = Product::of(&opened, &self.out).partition(|t| t.mentions(over));
        let mut shift = parts.shift.clone();
        if !parts.exponent.is_empty() {
            product::append(&mut shift, std::mem::take(&mut everywhere.exponent), -1.0);
            product::append(&mut shift, std::mem::take(&mut everywhere.exponent2), -std::f64::consts::LN_2);
        }
        let waits = |(t, _): &(Term, f64)| !matches!(t, Term::Select(..)) && self.waits(t, over, floor);
        // A mask in an exponent of which nothing else carries the indices: what stands beside it there does not count
        // where it masks, unless it is infinite too.
        let mut masked = None;
        if parts.exponent.is_empty() && !(inside.exponent.is_empty() && inside.exponent2.is_empty()) {
            let mut beside = std::mem::take(&mut everywhere.exponent);
            product::append(&mut beside, std::mem::take(&mut everywhere.exponent2), std::f64::consts::LN_2);
            beside.push((1.0, Term::Number(f64::NEG_INFINITY)));
            masked = Some(Term::Unary(UnaryOp::Exp, Box::new(product::sum_term(&beside))));
        }
        Under {
            masked,
            factor: parts.outside.without(&everywhere),
            shift: !shift.is_empty(),
            mixed: !inside.factors.iter().any(waits),
        }
    }

    /// Whether a term needs the value of a reduction over the indices that no traversal before `floor` completes.
    pub(super) fn waits(&self, t: &Term, over: &[IndexId], floor: usize) -> bool {
        let mut operands = vec![];
        self.out.reads(t, &mut operands);
        let late = |&b: &NodeId| self.levels.of(b) >= floor && self.is_over(b, over);
        operands.iter().any(|o| self.needed(o.node).iter().any(late))
    }

    /// Reads the body as a product, and what mixes the indices with what it waits for as a polynomial. An error if that
    /// is not one.
    pub(super) fn split(&self, body: &Term, over: &[IndexId], floor: usize) -> Result<Separated, NotFinite> {
        let carries = |t: &Term| t.mentions(over);
        let waits = |t: &Term| self.waits(t, over, floor);
        // The coefficient costs nothing outside.
        let (mut inside, mut outside) = Product::of(body, &self.out).partition(carries);
        let (mut mixed, ready): (Vec<_>, Vec<_>) = inside.factors.drain(..).partition(|(t, _)| waits(t));
        inside.factors = ready;
        self.keep_quotients(&mut mixed, &mut outside);
        if let Some((c, t)) = inside.exponent.iter().chain(&inside.exponent2).find(|(_, t)| waits(t)) {
            return Err(NotFinite::Exponent(product::sum_term(&vec![(c.signum(), t.clone())])));
        }
        let extremum = |u: &Product, number: f64, rest: &product::Sum| {
            let rest = self.opened_addends(rest, true);
            rest.iter().any(|(c, t)| *c == number && self.is_extremum_of(t, u, over).is_some())
        };
        let expansion = Expansion { graph: &self.out, carries: &carries, waits: &waits, extremum: &extremum };
        let mixed = if mixed.is_empty() { None } else { Some(expansion.expand(&mixed)?) };
        if inside.exponent.is_empty() && inside.exponent2.is_empty() {
            return Ok(Separated { inside, outside, exponent: vec![], shift: vec![], mixed });
        }
        // Powers of two join those of e: one anchor serves both.
        let ln2 = std::f64::consts::LN_2;
        let mut exponent = std::mem::take(&mut inside.exponent);
        product::append(&mut exponent, std::mem::take(&mut inside.exponent2), ln2);
        let mut shift = std::mem::take(&mut outside.exponent);
        product::append(&mut shift, std::mem::take(&mut outside.exponent2), ln2);
        Ok(Separated { inside, outside, exponent, shift, mixed })
    }

    #[allow(clippy::too_many_arguments)] // The parts of one rewriting.
    fn rebuild_sum(
        &mut self,
        id: NodeId,
        node: Node,
        r: Reduction,
        parts: Separated,
        floor: usize,
        anchored: bool,
        own_filter: Vec<Term>,
        under: Under,
        before: String,
    ) -> NodeId {
        let over = r.over.clone();
        // What the finished states are multiplied with: the maximum's state, its value and the rest of the exponent.
        let mut shift: Vec<(NodeId, Term, product::Sum)> = vec![];
        let mut anchor = Anchor { exponent: parts.exponent.clone(), ..Anchor::default() };
        if anchored && let Some(groups) = self.exponents_apart(&parts, &r) {
            anchor = Anchor::default();
            for [exponent, beside] in groups {
                let (own, state, value) = self.anchor(&node, &r, &exponent, floor);
                anchor.join(own);
                shift.push((state, value, beside));
            }
        } else if anchored {
            let (state, value);
            (anchor, state, value) = self.anchor(&node, &r, &parts.exponent, floor);
            shift.push((state, value, parts.shift.clone()));
        }
        let (inner, mut value) = match &parts.mixed {
            None => {
                let inner = anchor.reduction(&r, parts.inside);
                let state = self.reduction_node(&node, "acc", inner.clone());
                (inner, self.out.read(state))
            }
            Some(mixed) => self.moments(&node, &r, &parts.inside, mixed, &anchor, floor, &before),
        };
        let stabilised = anchored && parts.shift.is_empty();
        for (_, max, shift) in &shift {
            value = shifted(value, max, shift, stabilised);
        }
        let factor = parts.outside;
        let inner_factor = under.factor;
        let number = inner_factor.is_number() && inner_factor.coefficient.is_finite();
        let hidden = !number || !shift.is_empty() && under.shift || parts.mixed.is_some() && under.mixed;
        if hidden {
            // An element that a condition masks meets nothing of what stands under it.
            if !inner_factor.is_one() {
                value = times(value, &inner_factor);
            }
            let seen = self.seen(&node, &over, &r.filter);
            value = match under.masked {
                Some(masked) => Term::Select(Box::new(seen), Box::new(value), Box::new(masked)),
                None => guard::where_some(seen, value, 0.0),
            };
        }
        let rest = if hidden { factor.without(&inner_factor) } else { factor.clone() };
        if !rest.is_one() {
            value = times(value, &rest);
        }
        let moved = shift.iter().any(|(_, _, s)| !s.is_empty());
        if !factor.is_number() || !factor.coefficient.is_finite() || moved || parts.mixed.is_some() {
            let seen = self.seen(&node, &over, &own_filter);
            value = guard::where_some(seen, value, 0.0);
        }
        let Cancelled { value, mut rest, divided } = self.cancel(&value);
        self.explain_sum(&node, &over, &before, &inner, &factor, anchored, stabilised, &value);
        self.note_store(&node, &value);
        if let [(anchor, ..)] = shift[..]
            && stabilised
        {
            let anchors = [anchor].into();
            match &mut rest {
                Some(rest) => {
                    rest.origins.insert(id);
                    rest.anchors.insert(anchor);
                }
                None if !divided.contains(&anchor) && super::inline::exponential_of(&value, &anchors) => {
                    rest = Some(super::Scaled { origins: [id].into(), term: value.clone(), anchors });
                }
                None => {}
            }
        }
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }
}

impl Deriver<'_> {
    /// An exponent relative to its running maximum; the maximum's state, and its value.
    pub(super) fn anchor(
        &mut self,
        node: &Node,
        r: &Reduction,
        exponent: &product::Sum,
        floor: usize,
    ) -> (Anchor, NodeId, Term) {
        let (state, value) = self.running_max(node, &product::sum_term(exponent), &r.over, &r.filter);
        let finite = guard::finite(&value);
        // The exponent in the maximum's own words, so that a chunk computes it once.
        let mut own = match &self.out[state].def {
            Def::Reduce(m) if value == self.out.read(state) => vec![(1.0, m.body.clone())],
            _ => exponent.clone(),
        };
        product::append(&mut own, vec![(-1.0, finite.clone())], 1.0);
        let mut anchor = Anchor { exponent: own, ..Anchor::default() };
        // One that an earlier traversal completes does not move.
        if self.levels.of(state) >= floor {
            anchor.states.push(state);
            anchor.factor = Some(ratio(&value, &finite));
        }
        (anchor, state, value)
    }
}

impl Anchor {
    /// Both exponentials, each by itself.
    fn join(&mut self, other: Anchor) {
        self.apart.push(other.exponent);
        self.states.extend(other.states);
        self.factor = match (self.factor.take(), other.factor) {
            (Some(a), Some(b)) => Some(Term::Binary(BinaryOp::Mul, Box::new(a), Box::new(b))),
            (a, b) => a.or(b),
        };
    }

    /// The sum of `inside` times the exponential, as a state.
    pub(super) fn reduction(&self, r: &Reduction, mut inside: Product) -> Reduction {
        product::append(&mut inside.exponent, self.exponent.clone(), 1.0);
        let exponential = |e: &product::Sum| (Term::Unary(UnaryOp::Exp, Box::new(product::sum_term(e))), 1.0);
        inside.factors.extend(self.apart.iter().map(exponential));
        let mut streaming = Streaming::default();
        if let Some(factor) = &self.factor {
            let repair = Repair { combine: BinaryOp::Mul, factor: factor.clone(), plus: None, keep_if: None };
            streaming = Streaming { level: 0, anchors: self.states.clone(), repair: Some(repair) };
        }
        Reduction { body: inside.term(), streaming, ..r.clone() }
    }
}

/// `exp(old - new)`, with the new anchor made finite. The old one need not be: while it is -inf the state is 0, and
/// so is its factor, so `exp(-inf - -inf)` is never evaluated.
fn ratio(value: &Term, anchor: &Term) -> Term {
    let difference = Term::Binary(BinaryOp::Sub, Box::new(to_old(value)), Box::new(anchor.clone()));
    Term::Unary(UnaryOp::Exp, Box::new(difference))
}

/// The same term of the values before the chunk.
pub(super) fn to_old(t: &Term) -> Term {
    match t {
        Term::Read(n, at) => Term::Old(*n, at.clone() as Vec<IndexExpr>),
        other => other.map_children(&mut to_old),
    }
}

/// `state · exp(anchor + shift)`, where the anchor was `max` if that is finite and 0 if not.
pub(super) fn shifted(state: Term, max: &Term, shift: &product::Sum, symbolic: bool) -> Term {
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
