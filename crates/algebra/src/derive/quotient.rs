//! Quotients in which exponentials do not cancel as factors: `x·exp(m) / (c + y·exp(m)) = x / (c·exp(-m) + y)`, as a softmax
//! with a one or a sink in its divisor has them.
//!
//! Condition: a product with an exponential of an anchor is divided by one sum, some addends of which have the same
//! exponential as a factor and the others none of an anchor. Where `exp(-m)` overflows, `exp(m)` is 0 as written, and either
//! makes the quotient 0. What is divided is no sum: `exp(-m)` beside an addend of that would be infinity over infinity.

use super::inline::exponential_of;
use super::polynomial::flat;
use crate::{Graph, NodeId, Product, Term, product};
use einloom_cascade::BinaryOp;
use std::collections::BTreeSet;

/// The term with such quotients divided through; nothing if exponentials of the anchors would remain.
pub(super) fn divided(term: &Term, anchors: &BTreeSet<NodeId>, graph: &Graph) -> Option<Term> {
    // Without the factors that come in, no exponential may be left.
    let bare = rewritten(term, anchors, graph, false);
    (!exponential_of(&bare, anchors)).then(|| rewritten(term, anchors, graph, true))
}

fn rewritten(term: &Term, anchors: &BTreeSet<NodeId>, graph: &Graph, whole: bool) -> Term {
    let quotient = match term {
        Term::Binary(BinaryOp::Mul | BinaryOp::Div, ..) => quotient(term, anchors, graph, whole),
        _ => None,
    };
    quotient.unwrap_or_else(|| term.map_children(&mut |t| rewritten(t, anchors, graph, whole)))
}

fn quotient(term: &Term, anchors: &BTreeSet<NodeId>, graph: &Graph, whole: bool) -> Option<Term> {
    let mut p = Product::of(term, graph);
    let of_anchor = |(_, t): &(f64, Term)| t.any_read(&|n| anchors.contains(&n));
    let (shift, rest): (product::Sum, product::Sum) = p.exponent.into_iter().partition(of_anchor);
    if shift.is_empty() {
        return None;
    }
    p.exponent = rest;
    let mut divisors = p.factors.iter_mut().filter(|(base, power)| *power == -1.0 && exponential_of(base, anchors));
    let (Some((divisor, _)), None) = (divisors.next(), divisors.next()) else { return None };
    let mut addends = vec![];
    flat(divisor, 1.0, &mut addends);
    let mut sum = vec![];
    for (sign, addend) in addends {
        let mut own = Product::of(addend, graph);
        let (theirs, free): (product::Sum, product::Sum) = own.exponent.iter().cloned().partition(of_anchor);
        own.exponent = free;
        let mut difference = theirs.clone();
        product::append(&mut difference, shift.clone(), -1.0);
        match (theirs.is_empty(), difference.is_empty()) {
            (false, true) => {}
            (true, _) if whole => product::append(&mut own.exponent, shift.clone(), -1.0),
            (true, _) => {}
            _ => return None,
        }
        sum.push((sign, own.term()));
    }
    *divisor = product::sum_term(&sum);
    Some(p.term())
}
