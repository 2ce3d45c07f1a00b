//! States of the elements that attain an extremum so far, and of all others.
//!
//! While the extremum stands, both stay. When it moves, nothing attains it any more but what is new; what did until then joins the
//! others. So the state of the others only ever gains elements: none is taken out of it, and nothing cancels. Both also hold for
//! two states that are put together, of which one has the extremum of both.

use super::attained::{Asked, Tells};
use super::{Deriver, guard, separate};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Streaming, Term, product};
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn exp(t: Term) -> Term {
    Term::Unary(UnaryOp::Exp, Box::new(t))
}

/// The exponential in the two states, each relative to the largest exponent of its own elements.
struct Relative {
    /// The exponent.
    exponent: Term,
    /// The state of its maximum over the elements that attain the extremum.
    attained: NodeId,
    /// That over the others.
    others: Option<NodeId>,
}

impl Asked {
    pub(super) fn anchors(&self, more: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let mut out = vec![self.best];
        [self.told].into_iter().chain(more).for_each(|n| {
            if !out.contains(&n) {
                out.push(n);
            }
        });
        out
    }

    /// What holds of an element that attains the extremum.
    fn attains(&self) -> Term {
        match self.tells {
            Tells::Attained => self.condition.clone(),
            Tells::Others | Tells::Within => Term::Unary(UnaryOp::Not, Box::new(self.condition.clone())),
        }
    }
}

impl Deriver<'_> {
    /// `told` before the chunk.
    pub(super) fn old(&self, n: NodeId) -> Term {
        separate::to_old(&self.out.read(n))
    }

    /// Whether the extremum of the state before the chunk still stands.
    pub(super) fn stands(&self, asked: &Asked) -> Term {
        binary(BinaryOp::Eq, self.old(asked.told), self.out.read(asked.told))
    }

    /// The state over the elements that attain the extremum.
    pub(super) fn attained(&mut self, node: &Node, r: &Reduction, asked: &Asked, identity: f64) -> NodeId {
        self.attained_relative(node, r, asked, identity, None)
    }

    /// The same for what joins the others, and for what is relative to it: where the extremum is a NaN either may be one too.
    pub(super) fn fallen(&mut self, node: &Node, r: &Reduction, asked: &Asked, identity: f64) -> NodeId {
        // The extremum itself is one.
        if let Def::Reduce(best) = &self.out[asked.best].def
            && (best.monoid, &best.filter) == (r.monoid, &r.filter)
            && product::sum(&best.body) == product::sum(&r.body)
        {
            return asked.best;
        }
        self.attained(node, r, asked, identity)
    }

    fn attained_relative(
        &mut self,
        node: &Node,
        r: &Reduction,
        asked: &Asked,
        identity: f64,
        relative: Option<&Relative>,
    ) -> NodeId {
        let maximum = relative.map(|e| e.attained).filter(|m| *m != asked.best);
        let factor = maximum.map_or(Term::Number(1.0), |m| {
            let moved = binary(BinaryOp::Sub, self.old(m), guard::finite(&self.out.read(m)));
            exp(moved)
        });
        let repair = Repair { combine: BinaryOp::Mul, factor, plus: None, keep_if: Some(self.stands(asked)) };
        let streaming = Streaming { level: 0, anchors: asked.anchors(maximum), repair: Some(repair) };
        let body = match relative {
            Some(e) => self.relative_to(&r.body, &e.exponent, e.attained),
            None => r.body.clone(),
        };
        let body = Term::Select(Box::new(asked.attains()), Box::new(body), Box::new(Term::Number(identity)));
        self.reduction_node(node, "attained", Reduction { body, streaming, ..r.clone() })
    }

    /// `body · exp(exponent - max)`.
    fn relative_to(&self, body: &Term, exponent: &Term, max: NodeId) -> Term {
        let mut sum = product::sum(exponent);
        product::append(&mut sum, vec![(-1.0, guard::finite(&self.out.read(max)))], 1.0);
        let mut p = Product::of(body, &self.out);
        product::append(&mut p.exponent, sum, 1.0);
        p.term()
    }

    /// The state over all others.
    pub(super) fn others(&mut self, node: &Node, r: &Reduction, asked: &Asked, identity: f64) -> NodeId {
        let attained = self.fallen(node, r, asked, identity);
        self.others_relative(node, r, asked, identity, attained, None)
    }

    fn others_relative(
        &mut self,
        node: &Node,
        r: &Reduction,
        asked: &Asked,
        identity: f64,
        attained: NodeId,
        relative: Option<&Relative>,
    ) -> NodeId {
        let joins =
            |what: Term| Term::Select(Box::new(self.stands(asked)), Box::new(Term::Number(identity)), Box::new(what));
        // What a repair adds tells that the states which it reads move together; this adds nothing, not even to -0.
        let nothing = Some(Term::Number(-0.0));
        let (mut repair, mut maxima) = match r.monoid {
            Monoid::Sum => {
                let (combine, factor, plus) = (BinaryOp::Mul, Term::Number(1.0), Some(joins(self.old(attained))));
                (Repair { combine, factor, plus, keep_if: None }, vec![])
            }
            monoid => {
                let combine = match monoid {
                    Monoid::Max => BinaryOp::Max,
                    Monoid::Min => BinaryOp::Min,
                    _ => BinaryOp::Mul,
                };
                (Repair { combine, factor: joins(self.old(attained)), plus: nothing, keep_if: None }, vec![])
            }
        };
        let mut body = r.body.clone();
        if let Some(e) = relative
            && let Some(max) = e.others
        {
            let to = guard::finite(&self.out.read(max));
            let moved = |from: Term| exp(binary(BinaryOp::Sub, from, to.clone()));
            let fallen = binary(BinaryOp::Mul, self.old(attained), moved(self.old(e.attained)));
            repair = Repair { factor: moved(self.old(max)), plus: Some(joins(fallen)), ..repair };
            maxima = vec![e.attained, max];
            body = self.relative_to(&body, &e.exponent, max);
        }
        let attains = Box::new(asked.condition.clone());
        let body = Term::Select(attains, Box::new(body), Box::new(Term::Number(identity)));
        let streaming =
            Streaming { level: 0, anchors: asked.anchors(maxima.into_iter().chain([attained])), repair: Some(repair) };
        self.reduction_node(node, "others", Reduction { body, streaming, ..r.clone() })
    }

    /// The sum of `r.body · exp(exponent)` over those elements, relative to the largest exponent of any of them, and that maximum.
    pub(super) fn told_exponentials(
        &mut self,
        node: &Node,
        r: &Reduction,
        asked: &Asked,
        exponent: &product::Sum,
    ) -> (NodeId, NodeId) {
        let exponent = product::sum_term(exponent);
        let largest = Reduction { monoid: Monoid::Max, body: exponent.clone(), ..r.clone() };
        let attained = self.fallen(node, &largest, asked, f64::NEG_INFINITY);
        let mut relative = Relative { exponent, attained, others: None };
        let state = self.attained_relative(node, r, asked, 0.0, Some(&relative));
        if asked.tells == Tells::Attained {
            return (state, attained);
        }
        let others = self.others(node, &largest, asked, f64::NEG_INFINITY);
        relative.others = Some(others);
        (self.others_relative(node, r, asked, 0.0, state, Some(&relative)), others)
    }
}
