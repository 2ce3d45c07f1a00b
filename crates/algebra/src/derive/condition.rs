//! Conditions that do not carry the reduced indices: `Σ where(c, f, g)·h = where(c, Σ f·h, Σ g·h)`, where the body does not separate
//! as a whole but each branch may.
//!
//! Conditions: the choice is a factor of the body, it does not carry the indices, and what each branch makes of the body separates,
//! as a whole or by its addends. A branch that is 0 makes a sum that is 0. So what a reduction inside leaves guarded against having
//! nothing to reduce is open to the reduction around it.

use super::Deriver;
use super::inline::Cancelled;
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, show};
use einloom_cascade::IndexId;

/// More choices than this, one in the other, are not taken apart.
const DEEPEST: usize = 4;

/// A body as a choice between two.
pub(super) struct Choice {
    condition: Term,
    then: Term,
    otherwise: Term,
}

impl Deriver<'_> {
    /// The body as a choice by a condition that leaves a sum over the indices, if what it chooses from separates.
    pub(super) fn condition_leaves(&self, body: &Term, over: &[IndexId]) -> Option<Choice> {
        self.choice(body, over, DEEPEST)
    }

    fn choice(&self, body: &Term, over: &[IndexId], depth: usize) -> Option<Choice> {
        let p = Product::of(body, &self.out);
        let place = p.factors.iter().position(
            |(t, power)| matches!(t, Term::Select(c, ..) if *power == 1.0 && t.mentions(over) && !c.mentions(over)),
        )?;
        let Term::Select(condition, a, b) = &p.factors[place].0 else { return None };
        let with = |branch: &Term| {
            let mut rest = p.clone();
            rest.factors.remove(place);
            match branch.as_number() {
                Some(0.0) => Term::Number(0.0),
                _ if rest.is_one() => branch.clone(),
                _ => rest.times(&Product::of(branch, &self.out)).term(),
            }
        };
        let separates = |t: &Term| {
            self.split(t, over, 0).is_ok()
                || self.addends_split(t, over)
                || depth > 0 && self.choice(t, over, depth - 1).is_some()
        };
        let (then, otherwise) = (with(a), with(b));
        (separates(&then) && separates(&otherwise)).then(|| Choice {
            condition: (**condition).clone(),
            then,
            otherwise,
        })
    }

    /// The sums of what a condition chooses from.
    pub(super) fn sums_by_condition(&mut self, id: NodeId, node: Node, r: Reduction, before: String) -> NodeId {
        let Some(Choice { condition, then, otherwise }) = self.condition_leaves(&r.body, &r.over) else {
            return self.barred(node, r, None);
        };
        let sum_of = |d: &mut Self, body: Term| {
            if body == Term::Number(0.0) {
                return body;
            }
            let name = crate::flatten::fresh_name(&d.out.nodes, &format!("{}.part", node.name));
            let part = Node { name, tensor: None, dtype: None, ..node.clone() };
            let made = d.sum(id, part, Reduction { body, ..r.clone() });
            d.out.read(made)
        };
        let (then, otherwise) = (sum_of(self, then), sum_of(self, otherwise));
        let value = Term::Select(Box::new(condition.clone()), Box::new(then), Box::new(otherwise));
        let after = show::term(&self.out, &show::unguarded(&value));
        let why = format!(
            "{} does not carry {}, so it may be asked of the sums",
            show::term(&self.out, &condition),
            self.index_names(&r.over)
        );
        self.step(Rule::Defer, &node, &r.over, why, before, after);
        let Cancelled { value, rest, .. } = self.cancel(&value);
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }
}
