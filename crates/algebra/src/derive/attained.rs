//! Reductions over the elements that attain an extremum: `sum(n: x == max(n) x) f`.
//!
//! While the extremum so far stands, what was reduced so far is of elements that attain it; when it moves none of them does any
//! more, and the state is empty again. So a count of the largest elements, or a sum, product or extremum of what stands beside
//! them, streams with the extremum.
//!
//! The one element at the position of an extremum is told by that position instead, and may be of any other thing: `sum(n: n == argmax(n) x) f`.
//!
//! Conditions: one condition of the reduction, as a filter or outside which its body is neutral, compares `x` with the largest or
//! smallest `x` over the same indices and under the reduction's other conditions, for equality or for what cannot be but equality
//! (`x >= max x`), or the position with that of an extremum over the same indices; neither is rounded; and the body, without what
//! leaves it, waits for nothing. A NaN equals nothing: where the extremum is one nothing is reduced. An exponent that is relative
//! to something is taken relative to its own maximum over these elements.

use super::filter;
use super::inline::{self, Cancelled};
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, product, show};
use einloom_cascade::{BinaryOp, DType, Monoid, UnaryOp};

/// How a condition tells elements by an extremum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// Those that attain it.
    Attained,
    /// All others. Where the extremum is a NaN that is all of them.
    Others,
    /// What is on this side of it. Where the extremum is a NaN that is none of them.
    Within,
}

/// The extremum that a condition asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Its state.
    pub best: NodeId,
    /// The state by which an element is told: the extremum itself, or its position.
    pub told: NodeId,
    /// Which elements it leaves.
    pub tells: Tells,
    /// The condition, with that state in it.
    pub condition: Term,
}

impl Deriver<'_> {
    /// The extremum by which the reduction's only waiting condition tells its elements, and that condition.
    pub(super) fn only_asked(&self, r: &Reduction) -> Option<(Asked, Term)> {
        let waiting: Vec<&Term> = r.filter.iter().filter(|f| self.waits(f, &r.over, 0)).collect();
        let [condition] = waiting.as_slice() else { return None };
        Some((self.asked(condition, r)?, (*condition).clone()))
    }

    /// The extremum that a condition asks for, if it asks for one and nothing else.
    fn asked(&self, condition: &Term, r: &Reduction) -> Option<Asked> {
        self.asked_by_position(condition, r).or_else(|| self.asked_by_value(condition, r))
    }

    fn asked_by_position(&self, condition: &Term, r: &Reduction) -> Option<Asked> {
        let (comparison, turned) = unless_not(condition);
        let Term::Binary(op @ (BinaryOp::Eq | BinaryOp::Ne), a, b) = comparison else { return None };
        let position = self.position(&r.over);
        let extremum = match (**a == position, **b == position) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        let (first, best) = self.first_position_of(extremum, r)?;
        let tells = if (*op == BinaryOp::Eq) == turned { Tells::Others } else { Tells::Attained };
        let op = if tells == Tells::Attained { BinaryOp::Eq } else { BinaryOp::Ne };
        let condition = Term::Binary(op, Box::new(position), Box::new(self.out.read(first)));
        Some(Asked { best, told: first, tells, condition })
    }

    /// The state that holds a position of an extremum over the reduced indices, and that extremum's, if the term is that position.
    fn first_position_of(&self, t: &Term, r: &Reduction) -> Option<(NodeId, NodeId)> {
        if let Term::Read(n, at) = t
            && let Def::Map(def) = &self.out[*n].def
        {
            // Positions are whole numbers.
            let exact = !inline::rounds(&self.out[*n]) || self.out[*n].dtype == Some(DType::I32);
            return if exact && self.out.is_plain(*n, at) { self.first_position_of(def, r) } else { None };
        }
        let Term::Select(_, _, first) = t else { return None };
        let Term::Read(first, at) = &**first else { return None };
        let best = self.extremum_of_first(*first, &r.over)?;
        let own = self.out.is_plain(*first, at) && *t == super::arg::found_or_none(self.out.read(*first));
        (own && !self.pinned.contains_key(first) && !self.pinned.contains_key(&best)).then_some((*first, best))
    }

    fn asked_by_value(&self, condition: &Term, r: &Reduction) -> Option<Asked> {
        let (comparison, turned) = unless_not(condition);
        let Term::Binary(op, a, b) = comparison else { return None };
        let mut difference = product::sum(a);
        product::append(&mut difference, product::sum(b), -1.0);
        (0..difference.len()).find_map(|k| {
            let (c, Term::Read(n, at)) = &difference[k] else { return None };
            let Def::Reduce(extremum) = &self.out[*n].def else { return None };
            // c·(extremum - x), so the sign of c and the comparison say which way the two differ.
            let beyond = match extremum.monoid {
                Monoid::Max => *c > 0.0,
                Monoid::Min => *c < 0.0,
                _ => return None,
            };
            let tells = match (op, turned) {
                (BinaryOp::Eq, false) => Tells::Attained,
                (BinaryOp::Ne, false) | (BinaryOp::Eq, true) => Tells::Others,
                // The difference is never on the other side of 0.
                (BinaryOp::Le, false) if beyond => Tells::Attained,
                (BinaryOp::Ge, false) if !beyond => Tells::Attained,
                (BinaryOp::Le, true) if beyond => Tells::Others,
                (BinaryOp::Ge, true) if !beyond => Tells::Others,
                (BinaryOp::Gt, false) if beyond => Tells::Within,
                (BinaryOp::Lt, false) if !beyond => Tells::Within,
                _ => return None,
            };
            let mut rest = difference.clone();
            rest.remove(k);
            product::append(&mut rest, product::sum(&extremum.body), *c);
            let others: Vec<&Term> = r.filter.iter().filter(|f| *f != condition).collect();
            let same = extremum.over == r.over && extremum.filter.iter().collect::<Vec<_>>() == others;
            let own = rest.is_empty() && same && extremum.streaming.anchors.is_empty();
            let exact = self.out.is_plain(*n, at) && !inline::rounds(&self.out[*n]) && !self.pinned.contains_key(n);
            (own && exact).then(|| Asked { best: *n, told: *n, tells, condition: condition.clone() })
        })
    }

    /// A reduction over the elements that attain an extremum, or over all others, as a state beside it; `None` if its conditions say
    /// no such thing, or its body waits.
    pub(super) fn told_by_extremum(&mut self, id: NodeId, node: &Node, r: &Reduction) -> Option<NodeId> {
        let identity = match r.monoid {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
            _ => return None,
        };
        let before = show::reduction(&self.out, r);
        let (body, filter) = filter::with_all_conditions(&self.out, r, identity);
        let mut r = Reduction { body, filter, ..r.clone() };
        let (asked, condition) = self.only_asked(&r)?;
        if asked.tells != Tells::Attained {
            // What it reads may be read again for another reason: then it had better waited.
            if self.kept.contains(&id) {
                return None;
            }
            self.pointless.insert(id);
        }
        r.filter.retain(|f| *f != condition);
        r.body = self.inline_barriers(&r.body, &r.over);
        let (state, value) = match r.monoid {
            Monoid::Sum => self.sum_told(node, &mut r, &asked)?,
            Monoid::Max | Monoid::Min => self.extremum_told(node, &mut r, &asked, identity)?,
            _ if self.waits(&r.body, &r.over, 0) => return None,
            _ => {
                let state = self.told(node, &r, &asked, identity);
                (state, self.out.read(state))
            }
        };
        // Nothing is within a NaN.
        let value = match asked.tells {
            Tells::Within => {
                let best = self.out.read(asked.best);
                let number = Term::Binary(BinaryOp::Eq, Box::new(best.clone()), Box::new(best));
                guard::where_some(number, value, identity)
            }
            Tells::Attained | Tells::Others => value,
        };
        let Cancelled { value, rest, .. } = self.cancel(&value);
        let best = &self.out[asked.best].name;
        let why = match asked.tells {
            Tells::Attained => format!(
                "{best} is the extremum so far: while it stands what was reduced is of elements that attain it, and when it moves none of them does"
            ),
            Tells::Others | Tells::Within => format!(
                "{best} is the extremum so far: when it moves, what attained it until then joins the others, and nothing is ever taken away from them"
            ),
        };
        let Def::Reduce(made) = &self.out[state].def else { return None };
        let after = format!("{} = {}", self.out[state].name, show::reduction(&self.out, made));
        self.step(Rule::Split, node, &r.over, why, before, after);
        Some(self.push_map(Node { def: Def::Map(value), ..node.clone() }, rest))
    }

    fn told(&mut self, node: &Node, r: &Reduction, asked: &Asked, identity: f64) -> NodeId {
        match asked.tells {
            Tells::Attained => self.attained(node, r, asked, identity),
            Tells::Others | Tells::Within => self.others(node, r, asked, identity),
        }
    }

    /// A sum's state, and its value with what leaves it.
    fn sum_told(&mut self, node: &Node, r: &mut Reduction, asked: &Asked) -> Option<(NodeId, Term)> {
        let over = r.over.clone();
        let (mut inside, mut outside) = Product::of(&r.body, &self.out).partition(|t| t.mentions(&over));
        if !outside.is_one() {
            r.body = inside.term();
        }
        if self.waits(&r.body, &over, 0) {
            return None;
        }
        let relative = !(outside.exponent.is_empty() && outside.exponent2.is_empty());
        let carries = !(inside.exponent.is_empty() && inside.exponent2.is_empty());
        let (state, mut value) = if relative && carries {
            let [exponent, shift] = [&mut inside, &mut outside].map(|p| {
                let mut sum = std::mem::take(&mut p.exponent);
                product::append(&mut sum, std::mem::take(&mut p.exponent2), std::f64::consts::LN_2);
                sum
            });
            r.body = inside.term();
            let (state, max) = self.told_exponentials(node, r, asked, &exponent);
            let (read, max) = (self.out.read(state), self.out.read(max));
            (state, super::separate::shifted(read, &max, &shift, false))
        } else {
            let state = self.told(node, r, asked, 0.0);
            (state, self.out.read(state))
        };
        if relative || !outside.is_one() {
            // Over nothing it is 0, whatever leaves.
            let one = Reduction { monoid: Monoid::Max, body: Term::Number(1.0), ..r.clone() };
            let any = self.told(node, &one, asked, f64::NEG_INFINITY);
            let some = Term::Binary(BinaryOp::Gt, Box::new(self.out.read(any)), Box::new(Term::Number(0.0)));
            if !outside.is_one() {
                value = Term::Binary(BinaryOp::Mul, Box::new(value), Box::new(outside.term()));
            }
            value = guard::where_some(some, value, 0.0);
        }
        Some((state, value))
    }

    /// The same of an extremum.
    fn extremum_told(
        &mut self,
        node: &Node,
        r: &mut Reduction,
        asked: &Asked,
        identity: f64,
    ) -> Option<(NodeId, Term)> {
        if !self.waits(&r.body, &r.over, 0) {
            let state = self.told(node, r, asked, identity);
            return Some((state, self.out.read(state)));
        }
        let left = self.leave(&r.body, &r.over, 0, true).filter(|l| l.exponential.is_none())?;
        r.body = left.body.clone();
        let state = self.told(node, r, asked, identity);
        let value = guard::unless_identity(&self.out.read(state), identity, |value| {
            let value = match left.factor.is_one() {
                true => value,
                false => Term::Binary(BinaryOp::Mul, Box::new(value), Box::new(left.factor.term())),
            };
            let add = |sum, (c, t): &(f64, Term)| {
                let addend = product::sum_term(&vec![(*c, t.clone())]);
                Term::Binary(BinaryOp::Add, Box::new(sum), Box::new(addend))
            };
            left.addend.iter().fold(value, add)
        });
        Some((state, value))
    }
}

/// A condition without a negation, and whether there was one.
fn unless_not(condition: &Term) -> (&Term, bool) {
    match condition {
        Term::Unary(UnaryOp::Not, x) => (x, true),
        other => (other, false),
    }
}
