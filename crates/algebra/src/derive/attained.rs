//! Reductions over the elements that attain an extremum: `sum(n: x == max(n) x) f`.
//!
//! While the extremum so far stands, what was reduced so far is of elements that attain it; when it moves none of them does any
//! more, and the state is empty again. So a count of the largest elements, or a sum, product or extremum of what stands beside
//! them, streams with the extremum.
//!
//! Conditions: one condition of the reduction, as a filter or outside which its body is neutral, compares `x` with the largest or smallest `x` over the same indices and under the reduction's other
//! conditions, for equality or for what cannot be but equality (`x >= max x`); that extremum is not rounded; and the body, without what leaves it, waits for nothing. A NaN equals nothing: where the extremum is one nothing is reduced.

use super::inline::Cancelled;
use super::{Deriver, filter, guard, inline};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Rule, Streaming, Term, product, show};
use einloom_cascade::{BinaryOp, Monoid};

impl Deriver<'_> {
    /// The extremum that a condition says an element attains, if it says that and nothing else.
    fn attains(&self, condition: &Term, r: &Reduction) -> Option<NodeId> {
        let Term::Binary(op, a, b) = condition else { return None };
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
            let equality = match op {
                BinaryOp::Eq => true,
                // The difference is never on the other side of 0.
                BinaryOp::Le => beyond,
                BinaryOp::Ge => !beyond,
                _ => false,
            };
            let mut rest = difference.clone();
            rest.remove(k);
            product::append(&mut rest, product::sum(&extremum.body), *c);
            let others: Vec<&Term> = r.filter.iter().filter(|f| *f != condition).collect();
            let same = extremum.over == r.over && extremum.filter.iter().collect::<Vec<_>>() == others;
            let own = equality && rest.is_empty() && same && extremum.streaming.anchors.is_empty();
            let exact = self.out.is_plain(*n, at) && !inline::rounds(&self.out[*n]) && !self.pinned.contains_key(n);
            (own && exact).then_some(*n)
        })
    }

    /// A reduction over the elements that attain an extremum, as a state beside it; `None` if its conditions say no such thing, or its
    /// body waits.
    pub(super) fn over_attained(&mut self, node: &Node, r: &Reduction) -> Option<NodeId> {
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
        let waiting: Vec<&Term> = r.filter.iter().filter(|f| self.waits(f, &r.over, 0)).collect();
        let [condition] = waiting.as_slice() else { return None };
        let condition = (*condition).clone();
        let extremum = self.attains(&condition, &r)?;
        r.filter.retain(|f| *f != condition);
        let body = self.inline_barriers(&r.body, &r.over);
        let (inside, outside) = match r.monoid {
            Monoid::Sum => Product::of(&body, &self.out).partition(|t| t.mentions(&r.over)),
            _ => (Product { factors: vec![(body.clone(), 1.0)], ..Product::one() }, Product::one()),
        };
        let whole = outside.is_one();
        let inner = if whole { body } else { inside.term() };
        if self.waits(&inner, &r.over, 0) {
            return None;
        }
        let (new, Term::Read(n, at)) = (self.out.read(extremum), self.out.read(extremum)) else { return None };
        let keep = Term::Binary(BinaryOp::Eq, Box::new(Term::Old(n, at)), Box::new(new));
        let repair = Repair { combine: BinaryOp::Mul, factor: Term::Number(1.0), plus: None, keep_if: Some(keep) };
        let streaming = Streaming { level: 0, anchors: vec![extremum], repair: Some(repair) };
        let masked = Term::Select(Box::new(condition), Box::new(inner), Box::new(Term::Number(identity)));
        let state = Reduction { body: masked, streaming, ..r.clone() };
        let made = self.reduction_node(node, "attained", state);
        let mut value = self.out.read(made);
        if !whole {
            // Over nothing it is 0, whatever leaves.
            let seen = Term::Binary(BinaryOp::Ne, Box::new(value.clone()), Box::new(Term::Number(0.0)));
            value = Term::Binary(BinaryOp::Mul, Box::new(value), Box::new(outside.term()));
            value = guard::where_some(seen, value, 0.0);
        }
        let Cancelled { value, rest, .. } = self.cancel(&value);
        let why = format!(
            "{} is the extremum so far: while it stands what was reduced is of elements that attain it, and when it moves none of them does",
            self.out[extremum].name
        );
        let after = format!(
            "{} = {}",
            self.out[made].name,
            match &self.out[made].def {
                Def::Reduce(r) => show::reduction(&self.out, r),
                _ => String::new(),
            }
        );
        self.step(Rule::Split, node, &r.over, why, before, after);
        Some(self.push_map(Node { def: Def::Map(value), ..node.clone() }, rest))
    }
}
