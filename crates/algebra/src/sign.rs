//! Signs of terms, and whether they are finite, as far as their form shows it.

use crate::{Def, Graph, Term};
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};

/// How far definitions are followed.
const DEPTH: usize = 12;

/// Whether the term is at least zero wherever it is a number.
pub fn nonnegative(term: &Term, graph: &Graph) -> bool {
    at_least_zero(term, graph, DEPTH)
}

/// Whether the term is a positive finite number that depends on nothing but literals and (non-empty) sizes.
pub fn positive_constant(term: &Term) -> bool {
    match term {
        Term::Number(v) => *v > 0.0 && v.is_finite(),
        Term::Size(s) => s.terms().iter().all(|(_, c)| *c > 0) && !s.terms().is_empty(),
        Term::Unary(UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Abs, x) => positive_constant(x),
        Term::Binary(
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow | BinaryOp::Min | BinaryOp::Max,
            a,
            b,
        ) => positive_constant(a) && positive_constant(b),
        _ => false,
    }
}

/// Whether the term is a finite number wherever the inputs that it reads are, unless it overflows.
pub fn finite(term: &Term, graph: &Graph) -> bool {
    is_finite(term, graph, DEPTH)
}

fn is_finite(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| is_finite(t, graph, depth - 1);
    match term {
        Term::Number(v) => v.is_finite(),
        Term::Param(_) | Term::Size(_) | Term::Position(_) => true,
        Term::Read(n, _) => match &graph[*n].def {
            Def::Input => true,
            Def::Map(t) => go(t),
            // Over nothing an extremum is infinite.
            Def::Reduce(r) => matches!(r.monoid, Monoid::Sum | Monoid::Prod) && go(&r.body),
            Def::Iterative { .. } => false,
        },
        Term::Unary(op, x) => match op {
            UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p | UnaryOp::Rsqrt => false,
            UnaryOp::Sqrt => go(x) && at_least_zero(x, graph, depth - 1),
            _ => go(x),
        },
        Term::Binary(op, a, b) => match op {
            BinaryOp::Div => go(a) && positive_constant(b),
            BinaryOp::Pow => go(a) && b.as_number().is_some_and(|p| p >= 0.0 && p.fract() == 0.0),
            op if op.is_predicate() => true,
            _ => go(a) && go(b),
        },
        Term::Select(_, a, b) => go(a) && go(b),
        _ => false,
    }
}

fn at_least_zero(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| at_least_zero(t, graph, depth - 1);
    match term {
        Term::Number(v) => *v >= 0.0,
        Term::Size(s) => s.terms().iter().all(|(_, c)| *c > 0),
        Term::Position(_) => true,
        Term::Unary(op, x) => match op {
            UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Sigmoid
            | UnaryOp::Relu => true,
            UnaryOp::Tanh
            | UnaryOp::Erf
            | UnaryOp::Floor
            | UnaryOp::Round
            | UnaryOp::Sign
            | UnaryOp::Silu
            | UnaryOp::Gelu => go(x),
            _ => false,
        },
        Term::Binary(op, a, b) => match op {
            BinaryOp::Mul if a == b => true,
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min => go(a) && go(b),
            BinaryOp::Max => go(a) || go(b),
            BinaryOp::Pow => go(a) || b.as_number().is_some_and(|p| (p / 2.0).fract() == 0.0),
            op if op.is_predicate() => true,
            _ => false,
        },
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => match &graph[*n].def {
            Def::Map(t) => go(t),
            // A maximum over nothing is -inf, so only a minimum, a sum or a product keeps the sign.
            Def::Reduce(r) => matches!(r.monoid, Monoid::Sum | Monoid::Prod | Monoid::Min) && go(&r.body),
            _ => false,
        },
        Term::Param(_) | Term::Old(..) | Term::Argument(_) => false,
    }
}
