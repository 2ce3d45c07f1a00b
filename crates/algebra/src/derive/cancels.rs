//! What is added and subtracted alike: `(x - c) - (y - c) = x - y`, where c is what the sum would wait for.
//!
//! Condition: with equal addends put together nothing is left in the difference that waits, and something that carries the indices is.
//! Both are equal wherever c is a number, and the difference loses fewer digits without it. A difference of which nothing is left is
//! there for where it is none.

use super::Deriver;
use crate::{Node, Rule, Term, product, show};
use einloom_cascade::{BinaryOp, IndexId};

impl Deriver<'_> {
    /// The body of a sum without what cancels in it and would have to be waited for.
    pub(super) fn without_what_cancels(&mut self, node: &Node, body: Term, over: &[IndexId]) -> Term {
        let mut steps = vec![];
        let short = self.cancelling(&body, over, &mut steps);
        for (before, after) in steps {
            let why = format!("what {} needs complete is added and subtracted alike", node.name);
            let (before, after) = (show::term(&self.out, &before), show::term(&self.out, &after));
            self.step(Rule::Separate, node, over, why, before, after);
        }
        short
    }

    fn cancelling(&self, t: &Term, over: &[IndexId], steps: &mut Vec<(Term, Term)>) -> Term {
        if !self.waits(t, over, 0) {
            return t.clone();
        }
        if let Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) = t
            && t.mentions(over)
        {
            let short = product::sum_term(&product::sum(t));
            if short.mentions(over) && !self.waits(&short, over, 0) {
                if !steps.iter().any(|(before, _)| before == t) {
                    steps.push((t.clone(), short.clone()));
                }
                return short;
            }
        }
        t.map_children(&mut |t| self.cancelling(t, over, steps))
    }
}
