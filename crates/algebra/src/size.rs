//! How large terms can be, as far as their form shows it.

use crate::sign::{self, DEPTH};
use crate::{Def, Graph, Term};
use einloom_cascade::{BinaryOp, UnaryOp};

/// Whether the term lies between -1 and 1 wherever it is a number.
pub fn within_one(term: &Term, graph: &Graph) -> bool {
    is_within_one(term, graph, DEPTH)
}

pub(crate) fn is_within_one(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| is_within_one(t, graph, depth - 1);
    match term {
        Term::Number(v) => v.abs() <= 1.0,
        Term::Unary(
            UnaryOp::Sigmoid | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sign | UnaryOp::Sin | UnaryOp::Cos,
            _,
        ) => true,
        Term::Unary(UnaryOp::Exp | UnaryOp::Exp2, x) => sign::at_most_zero(x, graph, depth - 1),
        Term::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Sqrt, x) => go(x),
        Term::Binary(BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max, a, b) => go(a) && go(b),
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => matches!(&graph[*n].def, Def::Map(t) if go(t)),
        _ => false,
    }
}

/// Whether the term is finite wherever inputs are: nothing that it is made of overflows.
pub fn stays_finite(term: &Term, graph: &Graph) -> bool {
    does_stay_finite(term, graph, DEPTH)
}

fn does_stay_finite(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| does_stay_finite(t, graph, depth - 1);
    match term {
        Term::Number(v) => v.is_finite(),
        Term::Param(_) | Term::Size(_) | Term::Position(_) => true,
        Term::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu, x) => go(x),
        Term::Binary(BinaryOp::Min | BinaryOp::Max, a, b) => go(a) && go(b),
        Term::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => within_one(a, graph) && within_one(b, graph),
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => match &graph[*n].def {
            Def::Input => true,
            Def::Map(t) => go(t),
            _ => false,
        },
        _ => within_one(term, graph),
    }
}
