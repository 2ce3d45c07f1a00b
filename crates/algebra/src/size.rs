//! How large terms can be, as far as their form shows it.

use crate::sign::{self, DEPTH};
use crate::{Def, Graph, Product, Term, product};
use einloom_cascade::{BinaryOp, DType, UnaryOp};

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
        Term::Unary(UnaryOp::Rsqrt, x) => sign::is_one_and_more(x, graph, depth - 1),
        Term::Binary(BinaryOp::Mul, a, b) => go(a) && go(b),
        Term::Binary(BinaryOp::Min | BinaryOp::Max, ..) => {
            is_one_at_most(term, graph, depth - 1) && is_minus_one_at_least(term, graph, depth - 1)
        }
        Term::Binary(BinaryOp::Div, a, b) => {
            go(a) && sign::is_one_and_more(b, graph, depth - 1) || is_part(a, b, graph, depth - 1)
        }
        // What is left of 1, or of less.
        Term::Binary(BinaryOp::Sub, a, b) => {
            matches!(**a, Term::Number(v) if (0.0..=1.0).contains(&v))
                && go(b)
                && sign::at_least_zero(b, graph, depth - 1)
        }
        Term::Binary(BinaryOp::Pow, a, b) => go(a) && matches!(**b, Term::Number(p) if p >= 0.0),
        Term::Binary(op, ..) if op.is_predicate() => true,
        // What is added where something holds, and what where it does not.
        Term::Binary(BinaryOp::Add, x, y) => match (&**x, &**y) {
            (Term::Select(c, a, b), Term::Select(d, e, f)) if c == d => [(a, e), (b, f)].into_iter().all(|(x, y)| {
                let zero = |t: &Term| t.as_number() == Some(0.0);
                zero(x) && go(y) || zero(y) && go(x)
            }),
            _ => is_average(term, graph, depth),
        },
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => matches!(&graph[*n].def, Def::Map(t) if go(t)),
        _ => false,
    }
}

/// Whether `a` is a part of `b`: at least 0 and no more than that, as `f` is of `f + i` for an `i` that is not negative. Then `a / b` lies
/// between 0 and 1, and is no number where both are 0. Sums and quotients that are rounded are so as well: they are monotone.
fn is_part(a: &Term, b: &Term, graph: &Graph, depth: usize) -> bool {
    sign::at_least_zero(a, graph, depth) && is_no_more(a, b, graph, depth)
}

fn is_no_more(a: &Term, b: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |a: &Term, b: &Term| is_no_more(a, b, graph, depth - 1);
    let mut more = product::sum(b);
    product::append(&mut more, product::sum(a), -1.0);
    let nonnegative = |(c, t): &(f64, Term)| match *c > 0.0 {
        true => sign::at_least_zero(t, graph, depth - 1),
        false => sign::at_most_zero(t, graph, depth - 1),
    };
    if more.iter().all(nonnegative) {
        return true;
    }
    match (a, b) {
        (_, Term::Binary(BinaryOp::Max, x, y)) => go(a, x) || go(a, y),
        (Term::Binary(BinaryOp::Min, x, y), _) => go(x, b) || go(y, b),
        // One definition at a time: what is added may be a definition that both have.
        _ => opened(b, graph).is_some_and(|b| go(a, &b)) || opened(a, graph).is_some_and(|a| go(&a, b)),
    }
}

/// What a read of a pointwise definition that does not round reads.
fn opened(t: &Term, graph: &Graph) -> Option<Term> {
    let Term::Read(n, at) = t else { return None };
    let node = &graph[*n];
    let Def::Map(def) = &node.def else { return None };
    if !matches!(node.dtype, None | Some(DType::F64 | DType::F32)) {
        return None;
    }
    def.substitute(&|i| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone()))
}

/// Whether a sum is of parts of what lies between -1 and 1: of numbers of times that come to 1 at most, or `x·a + (1 - x)·b` for an x
/// between 0 and 1.
fn is_average(term: &Term, graph: &Graph, depth: usize) -> bool {
    let go = |t: &Term| is_within_one(t, graph, depth - 1);
    let addends = product::sum(term);
    if addends.iter().map(|(c, _)| c.abs()).sum::<f64>() <= 1.0 && addends.iter().all(|(_, t)| go(t)) {
        return true;
    }
    let Term::Binary(BinaryOp::Add, a, b) = term else { return false };
    let without = |t: &Term, factor: &Term| {
        let mut p = Product::of(t, graph);
        let at = p.factors.iter().position(|f| f.0 == *factor && f.1 == 1.0)?;
        p.factors.remove(at);
        Some(p.term())
    };
    let part = |x: &Term, a: &Term, b: &Term| {
        let rest = Term::Binary(BinaryOp::Sub, Box::new(Term::Number(1.0)), Box::new(x.clone()));
        let fits = |left: Option<Term>| left.is_some_and(|left| go(&left));
        go(x) && sign::at_least_zero(x, graph, depth - 1) && fits(without(a, x)) && fits(without(b, &rest))
    };
    let factors = |t: &Term| Product::of(t, graph).factors.into_iter().map(|f| f.0).collect::<Vec<_>>();
    factors(a).iter().any(|x| part(x, a, b)) || factors(b).iter().any(|x| part(x, b, a))
}

fn is_one_at_most(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| is_one_at_most(t, graph, depth - 1);
    match term {
        Term::Binary(BinaryOp::Min, a, b) => go(a) || go(b),
        Term::Binary(BinaryOp::Max, a, b) => go(a) && go(b),
        _ => is_within_one(term, graph, depth - 1) || sign::at_most_zero(term, graph, depth - 1),
    }
}

fn is_minus_one_at_least(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| is_minus_one_at_least(t, graph, depth - 1);
    match term {
        Term::Binary(BinaryOp::Max, a, b) => go(a) || go(b),
        Term::Binary(BinaryOp::Min, a, b) => go(a) && go(b),
        _ => is_within_one(term, graph, depth - 1) || sign::at_least_zero(term, graph, depth - 1),
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
