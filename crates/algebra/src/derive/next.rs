//! The position of the extremum of all elements but the one at another extremum's position: the second best.
//!
//! Beside the extremum of the others stands the first position that attains it. When the first extremum moves, the element at its
//! position joins the others: it is then their extremum, or ties with it, or is neither. The position stays while the extremum of the
//! others does.
//!
//! Conditions: the only condition that waits tells the others by position (see [`super::attained`]), and the body waits for nothing.

use super::arg::{found_or_none, same_or_nan};
use super::attained::Tells;
use super::{Deriver, separate};
use crate::{Def, Node, Reduction, Repair, Streaming, Term};
use einloom_cascade::{BinaryOp, Monoid};

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn choice(c: &Term, a: Term, b: Term) -> Term {
    Term::Select(Box::new(c.clone()), Box::new(a), Box::new(b))
}

impl Deriver<'_> {
    /// The position of an extremum of the others, as a state beside theirs.
    pub(super) fn first_of_others(&mut self, node: &Node, r: &Reduction) -> Option<Def> {
        let (asked, condition) = self.only_asked(r)?;
        let body = self.inline_barriers(&r.body, &r.over);
        if asked.tells != Tells::Others || asked.told == asked.best || self.waits(&body, &r.over, 0) {
            return None;
        }
        let (monoid, identity) = match r.monoid {
            Monoid::ArgMax => (Monoid::Max, f64::NEG_INFINITY),
            _ => (Monoid::Min, f64::INFINITY),
        };
        let filter: Vec<Term> = r.filter.iter().filter(|f| **f != condition).cloned().collect();
        let of = Reduction { monoid, filter, body, ..r.clone() };
        let most = self.others(node, &of, &asked, identity);
        let fallen = self.fallen(node, &of, &asked, identity);
        // Where it joins, if the conditions let it.
        let lets = matches!(&self.out[asked.best].def, Def::Reduce(best) if best.filter == of.filter);
        let place = match lets {
            true => asked.told,
            false => {
                let body = self.position(&r.over);
                let of = Reduction { monoid: Monoid::Min, body, ..of.clone() };
                self.attained(node, &of, &asked, f64::INFINITY)
            }
        };
        let (new, first) = (self.out.read(most), self.old(place));
        let joins = binary(
            BinaryOp::And,
            binary(BinaryOp::Ne, self.old(asked.told), self.out.read(asked.told)),
            same_or_nan(&self.old(fallen), &new),
        );
        let stays = same_or_nan(&separate::to_old(&new), &new);
        // The first of both where they tie. Else nothing of the state is left: no position is less than 0.
        let none = Term::Number(f64::INFINITY);
        let least = choice(&joins, choice(&stays, first.clone(), Term::Number(0.0)), none.clone());
        let alone =
            binary(BinaryOp::And, joins.clone(), Term::Unary(einloom_cascade::UnaryOp::Not, Box::new(stays.clone())));
        let repair = Repair {
            combine: BinaryOp::Min,
            factor: least,
            plus: Some(choice(&alone, first, Term::Number(-0.0))),
            keep_if: Some(binary(BinaryOp::Or, joins, stays)),
        };
        let attained = binary(BinaryOp::And, asked.condition.clone(), same_or_nan(&of.body, &new));
        let body = choice(&attained, self.position(&r.over), none);
        let streaming = Streaming { level: 0, anchors: asked.anchors([fallen, place, most]), repair: Some(repair) };
        let next = self.reduction_node(node, "first", Reduction { monoid: Monoid::Min, body, streaming, ..of });
        Some(Def::Map(found_or_none(self.out.read(next))))
    }
}
