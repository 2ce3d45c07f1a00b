//! Maximum and minimum: `max(x·c) = max(x)·c` for `c >= 0`, `max(x + c) = max(x) + c`, `max(exp(x + c)) = exp(max(x) + c)`.

use super::inline::Cancelled;
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Streaming, Term, product, show, sign};
use einloom_cascade::{BinaryOp, DType, IndexId, Monoid, UnaryOp};

/// A reduced body without what could leave, and how to put that back: `value = body-reduction · factor + addend`, or
/// `exp(body-reduction + shift) · factor + addend`.
pub(super) struct Left {
    pub body: Term,
    /// The reduced body is its exponential: exp grows with its exponent, so the extremum is taken of that.
    pub exponential: Option<product::Sum>,
    pub factor: Product,
    pub addend: product::Sum,
}

impl Left {
    /// Whether the same has left.
    fn takes_the_same(&self, other: &Self) -> bool {
        (&self.exponential, &self.factor, &self.addend) == (&other.exponential, &other.factor, &other.addend)
    }
}

impl Deriver<'_> {
    pub(super) fn extremum(&mut self, id: NodeId, node: Node, mut r: Reduction) -> NodeId {
        if let Some(made) = self.told_by_extremum(id, &node, &r) {
            return made;
        }
        let own = self.hoist_filter(&node, &mut r);
        let before = show::reduction(&self.out, &r);
        let body = self.inline_barriers(&r.body, &r.over);
        if self.stays_waiting(&node, &r, &body) {
            return self.barred(node, r, None);
        }
        let leaves = |s: &Self, t: &Term| s.leave(t, &r.over, 0, true).is_some();
        let body = self.with_pieces_opened(&node, body, &r.over, |s, body, other| !leaves(s, body) && leaves(s, other));
        let barriers = self.barriers(&body, &r.over);
        if self.refuse_filters(&node, &r) || barriers.is_empty() {
            return self.barred(node, r, None);
        }
        // The first traversal in which it can be taken.
        let last = barriers.iter().map(|&b| self.levels.of(b)).max().unwrap_or(0);
        let mut found = None;
        for floor in 0..=last {
            if let Some(left) = self.leave(&body, &r.over, floor, true) {
                found = Some(left);
                break;
            }
            // With its conditions in place, if it is a function of one value so.
            if let Some(whole) = own.body.clone().map(|b| self.inline_barriers(&b, &r.over))
                && let Some(ends) = self.ends(r.monoid, &whole, &r.over, floor)
            {
                let r = Reduction { filter: own.filter, ..r };
                return self.extremum_at_ends(node, r, &ends, before);
            }
            if let Some(ends) = self.ends(r.monoid, &body, &r.over, floor) {
                return self.extremum_at_ends(node, r, &ends, before);
            }
            if floor == 0
                && let Some(inner) = self.inner_indices(&r, &body)
            {
                return self.one_in_another(id, node, Reduction { body, ..r }, inner, before);
            }
            if floor == 0 {
                let (reason, hint) = self.why_no_end(&r, &body, &barriers);
                self.refuse(Rule::Separate, &node, &r.over.clone(), reason, Some(hint));
            }
        }
        let Some(left) = found else { return self.barred(node, r, None) };
        self.must_have_cancelled(&r, &left.body);
        let over = r.over.clone();
        let state = self.reduction_node(
            &node,
            r.monoid.name(&self.old.cascade.clone()),
            Reduction { body: left.body.clone(), ..r.clone() },
        );
        let mut value = self.out.read(state);
        if let Some(shift) = &left.exponential {
            let mut exponent = vec![(1.0, value)];
            product::append(&mut exponent, shift.clone(), 1.0);
            value = Term::Unary(UnaryOp::Exp, Box::new(product::sum_term(&exponent)));
        }
        if !left.factor.is_one() {
            value = Term::Binary(BinaryOp::Mul, Box::new(value), Box::new(left.factor.term()));
        }
        for (c, t) in &left.addend {
            value = Term::Binary(BinaryOp::Add, Box::new(value), Box::new(product::sum_term(&vec![(*c, t.clone())])));
        }
        let identity = if r.monoid == Monoid::Max { f64::NEG_INFINITY } else { f64::INFINITY };
        // What leaves from under a condition that became a filter is not met where that does not hold.
        let everywhere =
            own.body.map(|b| self.inline_barriers(&b, &over)).and_then(|b| self.leave(&b, &over, 0, false));
        let hidden = everywhere.is_some_and(|e| !e.takes_the_same(&left));
        let seen = self.seen(&node, &over, if hidden { &r.filter } else { &own.filter });
        let Cancelled { value, rest, .. } = self.cancel(&guard::where_some(seen, value, identity));
        let def = Def::Map(value);
        let mut leaving: Vec<String> = vec![];
        if !left.factor.is_one() {
            leaving.push(format!("the factor {}", show::term(&self.out, &left.factor.term())));
        }
        if !left.addend.is_empty() {
            leaving.push(format!("the addend {}", show::term(&self.out, &product::sum_term(&left.addend))));
        }
        if let Some(shift) = left.exponential.as_ref().filter(|s| !s.is_empty()) {
            leaving.push(format!("the exponent's addend {}", show::term(&self.out, &product::sum_term(shift))));
        }
        let why = format!(
            "{} leaves {}: it does not carry {}",
            leaving.join(" and "),
            r.monoid.name(&self.out.cascade),
            self.index_names(&over)
        );
        let after = match &def {
            Def::Map(t) => show::term(&self.out, &show::unguarded(t)),
            other => show::def(&self.out, other),
        };
        self.step(Rule::Defer, &node, &over, why, before, after);
        self.push_map(Node { def, ..node }, rest)
    }

    /// Whether what a body waits for leaves an extremum over these indices.
    pub(super) fn leaves(&self, body: &Term, over: &[IndexId]) -> bool {
        self.leave(body, over, 0, true).is_some()
    }

    /// Takes out of `body` what does not carry the reduced indices. `None` if what remains still needs a reduction
    /// over them that no traversal before `floor` completes, and must not.
    pub(super) fn leave(&self, body: &Term, over: &[IndexId], floor: usize, free: bool) -> Option<Left> {
        let stays = |t: &Term| t.mentions(over);
        let (mut x, addend): (product::Sum, product::Sum) = product::sum(body).into_iter().partition(|(_, t)| stays(t));
        let mut factor = Product::one();
        let mut exponential = None;
        // Several addends may share no factor; one alone may give its own.
        if let [(c, t)] = x.as_slice() {
            let c = *c;
            let p = Product::of(t, &self.out);
            let (mut keep, mut leave) = p.partition(|t| stays(t));
            let removable = leave.factors.iter().all(|(t, _)| sign::nonnegative(t, &self.out));
            let shifts = !leave.exponent.is_empty() || !leave.exponent2.is_empty();
            let alone = keep.factors.is_empty() && keep.exponent2.is_empty() && c * leave.coefficient > 0.0;
            if removable && shifts && alone && leave.exponent2.is_empty() {
                exponential = Some(std::mem::take(&mut leave.exponent));
                x = std::mem::take(&mut keep.exponent);
                factor = Product { coefficient: leave.coefficient * c, ..leave };
            } else if removable && (!shifts || keep.exponent.is_empty() && keep.exponent2.is_empty()) {
                keep.coefficient *= leave.coefficient * c;
                x = vec![(1.0, keep.term())];
                factor = Product { coefficient: 1.0, ..leave };
            }
        }
        let body = product::sum_term(&x);
        let done = !x.is_empty() && !self.waits(&body, over, floor);
        (done || !free).then_some(Left { body, exponential, factor, addend })
    }

    /// The running maximum of `exponent` over the reduced indices, as a state and the term that gives its value.
    /// A positive constant factor leaves, so that equal maxima are found equal.
    pub(super) fn running_max(
        &mut self,
        node: &Node,
        exponent: &Term,
        over: &[IndexId],
        filter: &[Term],
    ) -> (NodeId, Term) {
        let sum = product::sum(exponent);
        let plain = self.plain(exponent, over);
        // The program may take this very maximum itself, in other words.
        let same = |n: &NodeId| match &self.out[*n].def {
            Def::Reduce(r) => {
                r.monoid == Monoid::Max
                    && r.over == over
                    && r.filter == filter
                    && (product::sum(&r.body) == sum || self.plain(&r.body, over) == plain)
                    && !super::inline::rounds(&self.out[*n])
                    && self.out[*n].axes.iter().all(|a| node.axes.contains(a))
            }
            _ => false,
        };
        if let Some(n) = self.out.ids().find(same) {
            return (n, self.out.read(n));
        }
        let (mut body, mut factor) = (exponent.clone(), Product::one());
        if let [(c, t)] = sum.as_slice() {
            let (keep, leave) = Product::of(t, &self.out).partition(|t| !sign::positive_constant(t));
            let inner = keep.term();
            if *c * leave.coefficient > 0.0 && leave.exponent.is_empty() && keep.coefficient > 0.0 {
                factor = Product { coefficient: *c * leave.coefficient * keep.coefficient, ..leave };
                body = Product { coefficient: 1.0, ..Product::of(&inner, &self.out) }.term();
            }
        }
        let reduction = Reduction {
            monoid: Monoid::Max,
            over: over.to_vec(),
            filter: filter.to_vec(),
            body,
            streaming: Streaming::default(),
        };
        let state = self.reduction_node(node, "max", reduction);
        let value = self.out.read(state);
        if factor.is_one() {
            return (state, value);
        }
        let (with, scale) = (factor.term(), self.out.read(state));
        (state, Term::Binary(BinaryOp::Mul, Box::new(scale), Box::new(with)))
    }

    /// A term as a sum of products, with what an exponent would have in place of its definitions.
    fn plain(&self, t: &Term, over: &[IndexId]) -> product::Sum {
        let t = self.with_definitions(t, over).unwrap_or_else(|| t.clone());
        let mut all = vec![];
        for (c, t) in product::sum(&t) {
            let mut p = Product::of(&t, &self.out);
            let c = c * std::mem::replace(&mut p.coefficient, 1.0);
            product::append(&mut all, vec![(c, p.term())], 1.0);
        }
        all
    }

    pub(super) fn names(&self, nodes: &[NodeId]) -> String {
        nodes.iter().map(|&n| self.out[n].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether no filter waits for a reduction over the reduced indices.
    pub(super) fn filters_ready(&self, r: &Reduction) -> bool {
        !r.filter.iter().any(|f| self.waits(f, &r.over, 0))
    }

    /// Says that a filter waits for a reduction over the reduced indices, if one does.
    pub(super) fn refuse_filters(&mut self, node: &Node, r: &Reduction) -> bool {
        if self.filters_ready(r) {
            return false;
        }
        let body = self.inline_barriers(&r.body, &r.over);
        if self.waits(&body, &r.over, 0)
            && let Some((_, condition)) = self.only_asked(r)
        {
            let [shown, body] = [&condition, &body].map(|t| show::term(&self.out, &show::unguarded(t)));
            let reason = format!("{shown} alone would not wait, but beside it {body} does");
            let hint = "factors without the reduced indices would leave, and so would what is subtracted in an exponent; powers of differences do not";
            self.refuse(Rule::Separate, node, &r.over, reason, Some(hint.into()));
            return true;
        }
        let waiting: Vec<&Term> = r.filter.iter().filter(|f| self.waits(f, &r.over, 0)).collect();
        let shown: Vec<String> = waiting.iter().map(|f| show::term(&self.out, f)).collect();
        // Elements on both sides of something that moves.
        let compares =
            |f: &&Term| matches!(f, Term::Binary(BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge, ..));
        let needs = self.barriers(waiting[0], &r.over);
        let reason = match waiting.iter().all(compares) && waiting.len() == 1 {
            true => format!(
                "{} needs {} complete: whenever that moves elements come in or fall out one by one, and what is reduced so far does not tell which",
                shown.join(" and "),
                self.names(&needs)
            ),
            false => format!(
                "{} needs another reduction over the same indices complete, so which elements it is over is not known before",
                shown.join(" and ")
            ),
        };
        let hint = "a condition on positions, or on values that no reduction over these indices makes, would not wait; nor would that an element is the largest or smallest, or is none of these";
        self.refuse(Rule::Separate, node, &r.over, reason, Some(hint.into()));
        true
    }

    /// Keeps a reduction as it is; with a reason and what would remove it, says why that costs a pass.
    pub(super) fn barred(&mut self, mut node: Node, r: Reduction, reason: Option<(String, String)>) -> NodeId {
        for t in r.filter.iter().chain([&r.body]) {
            let mut operands = vec![];
            self.out.reads(t, &mut operands);
            let reads: Vec<NodeId> = operands.iter().map(|o| o.node).collect();
            reads.into_iter().for_each(|n| self.must_not_be_scaled(n));
        }
        if let Some((reason, hint)) = reason {
            let over = r.over.clone();
            self.refuse(Rule::Separate, &node, &over, reason, Some(hint));
        }
        if !super::inline::rounds(&node)
            && let Some(place) = self.shared(&node, &r)
        {
            return place;
        }
        node.def = Def::Reduce(r);
        self.push(node)
    }

    /// Another node that computes this very reduction: same monoid, indices, conditions and body. A tensor of the
    /// program then only reads it.
    fn shared(&mut self, node: &Node, r: &Reduction) -> Option<NodeId> {
        let other = self.find_equal(r, |n| !self.pinned.contains_key(&n))?;
        let wide = |n: &Node| n.dtype == Some(DType::F64);
        if self.out[other].axes.iter().any(|a| !node.axes.contains(a)) || wide(&self.out[other]) != wide(node) {
            return None;
        }
        let read = self.out.read(other);
        let (before, after) = (show::reduction(&self.out, r), show::term(&self.out, &read));
        let why = format!("{} is the same reduction over the same elements", self.out[other].name);
        let over = r.over.clone();
        self.step(Rule::Share, node, &over, why, before, after);
        if node.tensor.is_none() && self.out[other].axes == node.axes {
            return Some(other);
        }
        Some(self.push(Node { def: Def::Map(read), ..node.clone() }))
    }

    /// A product or a user's monoid: nothing is known to distribute over it.
    pub(super) fn opaque(&mut self, id: NodeId, node: Node, mut r: Reduction) -> NodeId {
        if let Some(made) = self.told_by_extremum(id, &node, &r) {
            return made;
        }
        self.hoist_filter(&node, &mut r);
        if self.filters_ready(&r)
            && let Some(made) = self.product_of_exponentials(id, &node, &r)
        {
            return made;
        }
        self.refuse_filters(&node, &r);
        let barriers = self.barriers(&r.body, &r.over);
        let reason = (!barriers.is_empty()).then(|| {
            let monoid = r.monoid.name(&self.out.cascade);
            let reason = format!("its body needs {}, and nothing is known to distribute over {monoid}", self.names(&barriers));
            (reason, "sums, maxima and minima can be repaired; a product of positive factors is the exponential of a sum of logarithms, and written as one it cannot leave the range of the numbers on its way".to_string())
        });
        self.barred(node, r, reason)
    }
}
