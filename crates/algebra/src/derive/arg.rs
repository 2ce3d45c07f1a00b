//! Positions of extrema: the extremum, and the first position at which it is attained.
//!
//! `argmax(n) x = min(n) where(x == max(n) x, n, inf)`, and the minimum streams beside the maximum: while the maximum
//! stands, positions found remain; when it moves, none of the earlier elements attains it and the state is empty
//! again. A NaN is as extreme as can be: the first one is attained by what equals nothing, not even itself, and stands.

use super::Deriver;
use crate::{Def, Node, NodeId, Reduction, Repair, Rule, Streaming, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, Monoid, SizeExpr};

impl Deriver<'_> {
    pub(super) fn arg(&mut self, node: Node, mut r: Reduction) -> NodeId {
        let before = show::reduction(&self.out, &r);
        let barriers = self.barriers(&r.body, &r.over);
        let over = r.over.clone();
        self.refuse_filters(&node, &r);
        if !barriers.is_empty() {
            let reason = format!("the position of the extremum needs {} for every element", self.names(&barriers));
            let hint = "what does not change which element is the largest may be left out of the text: a positive factor, an addend";
            self.refuse(Rule::Separate, &node, &over, reason, Some(hint.into()));
            let reads = barriers.clone();
            reads.into_iter().for_each(|n| self.must_not_be_scaled(n));
        }
        let (monoid, what) = if r.monoid == Monoid::ArgMax { (Monoid::Max, "max") } else { (Monoid::Min, "min") };
        r.monoid = monoid;
        let best = self.reduction_node(&node, what, r.clone());
        // Row-major position over the reduced indices.
        let mut position = Term::Number(0.0);
        for (k, &i) in over.iter().enumerate() {
            let p = Term::Position(i);
            position = if k == 0 {
                p
            } else {
                let size = Term::Size(SizeExpr::rank(self.out.cascade[i].rank));
                let scaled = Term::Binary(BinaryOp::Mul, Box::new(position), Box::new(size));
                Term::Binary(BinaryOp::Add, Box::new(scaled), Box::new(p))
            };
        }
        let none = Term::Number(f64::INFINITY);
        let at: Vec<IndexExpr> = self.out[best].axes.iter().map(|&i| IndexExpr::var(i)).collect();
        let (new, old) = (Term::Read(best, at.clone()), Term::Old(best, at));
        let binary = |op: BinaryOp, a: &Term, b: &Term| Term::Binary(op, Box::new(a.clone()), Box::new(b.clone()));
        let same_or_nan =
            |a: &Term, b: &Term| binary(BinaryOp::Or, &binary(BinaryOp::Eq, a, b), &binary(BinaryOp::Ne, a, a));
        let attained = same_or_nan(&r.body, &new);
        let body = Term::Select(Box::new(attained), Box::new(position), Box::new(none.clone()));
        let repair = Repair {
            combine: BinaryOp::Add,
            factor: Term::Number(0.0),
            plus: None,
            keep_if: Some(same_or_nan(&old, &new)),
        };
        let streaming = Streaming { level: 0, anchors: vec![best], repair: Some(repair) };
        let first = self.reduction_node(&node, "first", Reduction { monoid: Monoid::Min, body, streaming, ..r });
        let read = self.out.read(first);
        let empty = Term::Binary(BinaryOp::Eq, Box::new(read.clone()), Box::new(none));
        let def = Def::Map(Term::Select(Box::new(empty), Box::new(Term::Number(-1.0)), Box::new(read)));
        let why = format!(
            "{} is the extremum so far and {} the first position that attains it, void when the extremum moves",
            self.out[best].name, self.out[first].name
        );
        let after = show::def(&self.out, &def);
        self.step(Rule::Split, &node, &over, why, before, after);
        self.push(Node { def, ..node })
    }
}
