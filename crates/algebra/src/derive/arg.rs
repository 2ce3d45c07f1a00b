//! Positions of extrema: the extremum, and the first position at which it is attained.
//!
//! `argmax(n) x = min(n) where(x == max(n) x, n, inf)`, and the minimum streams beside the maximum: while the maximum
//! stands, positions found remain; when it moves, none of the earlier elements attains it and the state is empty
//! again. A NaN is as extreme as can be: the first one is attained by what equals nothing, not even itself, and stands.
//!
//! Of what is a strict function of one value the position is that of the largest or smallest such value: see [`super::ends`].

use super::ends::{At, Ends};
use super::inline::Cancelled;
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Reduction, Repair, Rule, Streaming, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr};

fn binary(op: BinaryOp, a: &Term, b: &Term) -> Term {
    Term::Binary(op, Box::new(a.clone()), Box::new(b.clone()))
}

/// The first position that attains an extremum, and that extremum's state.
struct Found {
    best: NodeId,
    position: Term,
}

impl Deriver<'_> {
    pub(super) fn arg(&mut self, node: Node, r: Reduction) -> NodeId {
        let before = show::reduction(&self.out, &r);
        if let Some(def) = self.first_of_others(&node, &r) {
            let after = show::def(&self.out, &def);
            let why = "when the extremum moves, the element that attained it until then joins the others, and is the first of them if it is the most extreme".to_string();
            self.step(Rule::Split, &node, &r.over, why, before, after);
            return self.push(Node { def, ..node });
        }
        self.refuse_filters(&node, &r);
        let body = self.inline_barriers(&r.body, &r.over);
        let barriers = self.barriers(&body, &r.over);
        let def = match self.first_floor_of_ends(&r, &body, &barriers) {
            Some(ends) if self.filters_ready(&r) => return self.arg_at_ends(node, &r, &ends, before),
            _ => {
                if !barriers.is_empty() {
                    let (reason, hint) = self.why_no_position(&r, &body, &barriers);
                    self.refuse(Rule::Separate, &node, &r.over, reason, Some(hint));
                    barriers.into_iter().for_each(|n| self.must_not_be_scaled(n));
                }
                let mut operands = vec![];
                self.out.reads(&r.body, &mut operands);
                let reads: Vec<NodeId> = operands.iter().map(|o| o.node).collect();
                reads.into_iter().for_each(|n| self.must_not_be_scaled(n));
                let found = self.first(&node, r.clone());
                self.explain_first(&node, &r.over, &found, &before)
            }
        };
        self.push(Node { def, ..node })
    }

    /// The body as a strict function, for the first traversal in which it is one.
    fn first_floor_of_ends(&self, r: &Reduction, body: &Term, barriers: &[NodeId]) -> Option<Ends> {
        let last = barriers.iter().map(|&b| self.levels.of(b)).max()?;
        (0..=last).find_map(|floor| self.ends(r.monoid, body, &r.over, floor).filter(|e| is_strict(e, r.monoid)))
    }

    /// The position of an extremum of a function of one value.
    fn arg_at_ends(&mut self, node: Node, r: &Reduction, ends: &Ends, before: String) -> NodeId {
        self.must_have_cancelled(r, &ends.value);
        let of = |monoid: Monoid| Reduction { monoid, body: ends.value.clone(), ..r.clone() };
        let high = (ends.at != At::Smallest).then(|| self.first(&node, of(Monoid::ArgMax)));
        let low = (ends.at != At::Largest).then(|| self.first(&node, of(Monoid::ArgMin)));
        let mut value = match (&high, &low) {
            (Some(high), Some(low)) => {
                let [h, l] = [high, low].map(|f| ends.of(&self.out.read(f.best)));
                let (first, second) = if r.monoid == Monoid::ArgMax { (high, low) } else { (low, high) };
                let both = binary(BinaryOp::Min, &high.position, &low.position);
                let otherwise = Term::Select(
                    Box::new(binary(BinaryOp::Gt, &l, &h)),
                    Box::new(second.position.clone()),
                    Box::new(both),
                );
                Term::Select(
                    Box::new(binary(BinaryOp::Gt, &h, &l)),
                    Box::new(first.position.clone()),
                    Box::new(otherwise),
                )
            }
            (Some(one), None) | (None, Some(one)) => one.position.clone(),
            (None, None) => Term::Number(-1.0),
        };
        let states: Vec<NodeId> = [&high, &low].into_iter().flatten().map(|f| f.best).collect();
        // Where all elements are alike the first one is as good as any.
        if let Some(differ) = ends.shaped.unless.iter().cloned().reduce(|a, b| binary(BinaryOp::And, &a, &b)) {
            let first = self.first_position(&node, r);
            value = Term::Select(Box::new(differ), Box::new(value), Box::new(first));
        }
        let Cancelled { value, rest, .. } = self.cancel(&value);
        let def = Def::Map(value);
        let why = format!(
            "{}, so its position is that of the extremum of that: {}",
            self.moves_text(ends),
            self.names(&states)
        );
        let after = self.text_of(&def);
        self.step(Rule::Ends, &node, &r.over, why, before.clone(), after);
        for found in [high, low].into_iter().flatten() {
            self.explain_first(&node, &r.over, &found, &before);
        }
        self.push_map(Node { def, ..node }, rest)
    }

    fn text_of(&self, def: &Def) -> String {
        match def {
            Def::Map(t) => show::term(&self.out, &show::unguarded(t)),
            def => show::def(&self.out, def),
        }
    }

    /// The first position that a filter lets through; -1 if there is none.
    fn first_position(&mut self, node: &Node, r: &Reduction) -> Term {
        if r.filter.is_empty() {
            let some = guard::some_positions(&self.out.cascade, &r.over);
            return Term::Select(Box::new(some), Box::new(Term::Number(0.0)), Box::new(Term::Number(-1.0)));
        }
        let body = self.position(&r.over);
        let first = Reduction { monoid: Monoid::Min, body, streaming: Streaming::default(), ..r.clone() };
        let first = self.reduction_node(node, "least", first);
        found_or_none(self.out.read(first))
    }

    /// Row-major position over the reduced indices.
    pub(super) fn position(&self, over: &[IndexId]) -> Term {
        let mut position = Term::Number(0.0);
        for (k, &i) in over.iter().enumerate() {
            let p = Term::Position(i);
            position = match k {
                0 => p,
                _ => {
                    let size = Term::Size(SizeExpr::rank(self.out.cascade[i].rank));
                    binary(BinaryOp::Add, &binary(BinaryOp::Mul, &position, &size), &p)
                }
            };
        }
        position
    }

    /// The states of a position: the extremum so far, and the first position that attains it.
    fn first(&mut self, node: &Node, mut r: Reduction) -> Found {
        let (monoid, what) = if r.monoid == Monoid::ArgMax { (Monoid::Max, "max") } else { (Monoid::Min, "min") };
        r.monoid = monoid;
        let best = self.reduction_node(node, what, r.clone());
        let none = Term::Number(f64::INFINITY);
        let at: Vec<IndexExpr> = self.out[best].axes.iter().map(|&i| IndexExpr::var(i)).collect();
        let (new, old) = (Term::Read(best, at.clone()), Term::Old(best, at));
        let body = Term::Select(Box::new(same_or_nan(&r.body, &new)), Box::new(self.position(&r.over)), Box::new(none));
        let repair = Repair {
            combine: BinaryOp::Add,
            factor: Term::Number(0.0),
            plus: None,
            keep_if: Some(same_or_nan(&old, &new)),
        };
        let streaming = Streaming { level: 0, anchors: vec![best], repair: Some(repair) };
        let first = self.reduction_node(node, "first", Reduction { monoid: Monoid::Min, body, streaming, ..r });
        Found { best, position: found_or_none(self.out.read(first)) }
    }

    /// The extremum of which a node is the state of the first position, as [`Self::first`] makes it.
    pub(super) fn extremum_of_first(&self, n: NodeId, over: &[IndexId]) -> Option<NodeId> {
        let Def::Reduce(first) = &self.out[n].def else { return None };
        let &[best] = first.streaming.anchors.as_slice() else { return None };
        let Def::Reduce(r) = &self.out[best].def else { return None };
        let Term::Select(c, position, _) = &first.body else { return None };
        let own = **c == same_or_nan(&r.body, &self.out.read(best)) && **position == self.position(over);
        let whole = first.over == over && first.filter == r.filter && r.streaming.anchors.is_empty();
        (own && whole && first.monoid == Monoid::Min).then_some(best)
    }

    fn explain_first(&mut self, node: &Node, over: &[IndexId], found: &Found, before: &str) -> Def {
        let def = Def::Map(found.position.clone());
        let mut first = String::new();
        found.position.visit(&mut |t| {
            if let Term::Read(n, _) = t {
                first.clone_from(&self.out[*n].name);
            }
        });
        let why = format!(
            "{} is the extremum so far and {first} the first position that attains it, void when the extremum moves",
            self.out[found.best].name
        );
        let after = show::def(&self.out, &def);
        self.step(Rule::Split, node, over, why, before.into(), after);
        def
    }

    fn why_no_position(&self, r: &Reduction, body: &Term, barriers: &[NodeId]) -> (String, String) {
        let shown = show::term(&self.out, &show::unguarded(body));
        let hint = "what does not change which element is the largest may be left out of the text: a positive factor, an addend";
        match self.ends(r.monoid, body, &r.over, 0) {
            // Alike where it is looked for.
            Some(_) => {
                let reason = format!(
                    "different elements may look equal in {shown}, and the first of those is not the first extremum of what it is made of, so it needs {} for every element",
                    self.names(barriers)
                );
                (reason, "the position of the extremum of what the function is applied to would stream".into())
            }
            None if self.shape(body, &r.over, 0).is_some() => self.why_no_end(r, body, barriers),
            None => {
                let reason = format!("the position of the extremum needs {} for every element", self.names(barriers));
                (reason, hint.into())
            }
        }
    }
}

/// Whether different values differ at the end that is looked for.
fn is_strict(ends: &Ends, monoid: Monoid) -> bool {
    let [low, high] = ends.shaped.saturates;
    ends.shaped.strict && !ends.shaped.bounded && !if monoid == Monoid::ArgMax { high } else { low }
}

/// Whether `a` is `b`, or a NaN.
pub(super) fn same_or_nan(a: &Term, b: &Term) -> Term {
    binary(BinaryOp::Or, &binary(BinaryOp::Eq, a, b), &binary(BinaryOp::Ne, a, a))
}

/// A position, or -1 where none was found.
pub(super) fn found_or_none(read: Term) -> Term {
    let empty = binary(BinaryOp::Eq, &read, &Term::Number(f64::INFINITY));
    Term::Select(Box::new(empty), Box::new(Term::Number(-1.0)), Box::new(read))
}
