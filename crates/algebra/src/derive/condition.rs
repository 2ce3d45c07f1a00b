//! Conditions that do not carry the reduced indices: `Σ where(c, f, g)·h = where(c, Σ f·h, Σ g·h)`, where the body does not separate
//! as a whole but each branch may.
//!
//! Conditions: the choice is a factor of the body or anywhere in it, it does not carry the indices, and what each branch makes of the body separates,
//! as a whole, by its addends or with its logarithms opened. What else chooses by that condition is the same branch's. A branch that is 0
//! makes a sum that is 0. So what a reduction inside leaves guarded against having nothing to reduce is open to the reduction around it.
//!
//! A condition that does carry them chooses element by element: `Σ where(c, f, g)·h = Σ(c) f·h + Σ(not c) g·h`, if it waits for nothing.
//! Each sum skips what the other one takes, so nothing of a branch that is not taken is ever met.

use super::inline::Cancelled;
use super::{Deriver, filter};
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, show};
use einloom_cascade::{BinaryOp, IndexId};

/// More choices than this, one in the other, are not taken apart.
const DEEPEST: usize = 4;

/// A body as a choice between two.
pub(super) struct Choice {
    condition: Term,
    then: Term,
    otherwise: Term,
    /// It carries the indices.
    of_elements: bool,
}

impl Deriver<'_> {
    /// The body as a choice by a condition that leaves a sum over the indices, or divides it, if what it chooses from separates.
    pub(super) fn condition_leaves(&self, body: &Term, over: &[IndexId]) -> Option<Choice> {
        self.choice(body, over, DEEPEST)
    }

    fn choice(&self, body: &Term, over: &[IndexId], depth: usize) -> Option<Choice> {
        let p = Product::of(body, &self.out);
        let chooses = |t: &Term| matches!(t, Term::Select(c, ..) if t.mentions(over) && !self.waits(c, over, 0));
        let place = p.factors.iter().position(|(t, power)| *power == 1.0 && chooses(t));
        let mut inner = None;
        body.visit(&mut |t| {
            if inner.is_none() && chooses(t) {
                inner = Some(t.clone());
            }
        });
        let Term::Select(condition, ..) = place.map(|k| p.factors[k].0.clone()).or(inner)? else { return None };
        let branch = |holds: bool| {
            let mut rest = p.clone();
            let branch = place.map(|k| given(&rest.factors.remove(k).0, &condition, holds));
            let Some(branch) = branch else { return given(body, &condition, holds) };
            match branch.as_number() {
                Some(0.0) => Term::Number(0.0),
                _ if rest.is_one() => branch,
                _ => {
                    let rest = Product::of(&given(&rest.term(), &condition, holds), &self.out);
                    rest.times(&Product::of(&branch, &self.out)).term()
                }
            }
        };
        let each = |t: &Term| self.split(t, over, 0).is_ok() || self.addends_split(t, over);
        let separates = |t: &Term| {
            each(t)
                || each(&self.opened(t, over, &mut vec![]))
                || depth > 0 && self.choice(t, over, depth - 1).is_some()
        };
        let (then, otherwise) = (branch(true), branch(false));
        let of_elements = condition.mentions(over);
        let choice = Choice { condition: *condition, then, otherwise, of_elements };
        (separates(&choice.then) && separates(&choice.otherwise)).then_some(choice)
    }

    /// The sums of what a condition chooses from.
    pub(super) fn sums_by_condition(&mut self, id: NodeId, node: Node, r: Reduction, before: String) -> NodeId {
        let Some(Choice { condition, then, otherwise, of_elements }) = self.condition_leaves(&r.body, &r.over) else {
            return self.barred(node, r, None);
        };
        let sum_of = |d: &mut Self, body: Term, under: Term| {
            if body == Term::Number(0.0) {
                return body;
            }
            let name = crate::flatten::fresh_name(&d.out.nodes, &format!("{}.part", node.name));
            let part = Node { name, tensor: None, dtype: None, ..node.clone() };
            let mut own = Reduction { body, ..r.clone() };
            if of_elements {
                filter::split(&under, &mut own.filter);
            }
            let made = d.sum(id, part, own);
            d.out.read(made)
        };
        let then = sum_of(self, then, condition.clone());
        let otherwise = sum_of(self, otherwise, filter::negate(&condition));
        let shown = show::term(&self.out, &condition);
        let value = match of_elements {
            true => Term::Binary(BinaryOp::Add, Box::new(then), Box::new(otherwise)),
            false => Term::Select(Box::new(condition), Box::new(then), Box::new(otherwise)),
        };
        let after = show::term(&self.out, &show::unguarded(&value));
        let (rule, why) = match of_elements {
            true => (
                Rule::Filter,
                format!("the elements for which {shown} and all others are summed apart, as either sum separates"),
            ),
            false => {
                let names = self.index_names(&r.over);
                (Rule::Defer, format!("{shown} does not carry {names}, so it may be asked of the sums"))
            }
        };
        self.step(rule, &node, &r.over, why, before, after);
        let Cancelled { value, rest, .. } = self.cancel(&value);
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }
}

/// A term where a condition is known to hold, or not to.
fn given(t: &Term, condition: &Term, holds: bool) -> Term {
    match t {
        Term::Select(c, a, b) if **c == *condition => given(if holds { a } else { b }, condition, holds),
        _ => t.map_children(&mut |t| given(t, condition, holds)),
    }
}
