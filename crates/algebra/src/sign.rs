//! Signs of terms, and whether they are finite, as far as their form shows it.

use crate::{Def, Graph, Term, product, size};
use einloom_cascade::{BinaryOp, DType, IndexExpr, Monoid, SizeExpr, UnaryOp};

/// How far definitions are followed.
pub(crate) const DEPTH: usize = 12;

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
        Term::Unary(UnaryOp::Log | UnaryOp::Log2, x) => matches!(**x, Term::Number(v) if v > 1.0 && v.is_finite()),
        Term::Binary(
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow | BinaryOp::Min | BinaryOp::Max,
            a,
            b,
        ) => positive_constant(a) && positive_constant(b),
        _ => false,
    }
}

/// Whether the term is more than zero wherever it is a finite number and does not underflow.
pub fn positive(term: &Term, graph: &Graph) -> bool {
    above_zero(term, graph, DEPTH)
}

fn above_zero(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| above_zero(t, graph, depth - 1);
    let nonnegative = |t: &Term| at_least_zero(t, graph, depth - 1);
    match term {
        Term::Unary(UnaryOp::Sqrt | UnaryOp::Rsqrt, x) => go(x),
        Term::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min, a, b) => go(a) && go(b),
        Term::Binary(BinaryOp::Add, a, b) => go(a) && nonnegative(b) || go(b) && nonnegative(a),
        Term::Binary(BinaryOp::Max, a, b) => go(a) || go(b),
        Term::Binary(BinaryOp::Pow, a, p) => p.as_number().is_some() && go(a),
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => matches!(&graph[*n].def, Def::Map(t) if go(t)),
        constant => positive_constant(constant),
    }
}

/// Whether the term is a maximum less one of the elements that it is of, or an element less their minimum: `c·(max u - u)`.
fn is_beyond_an_element(term: &Term, graph: &Graph) -> bool {
    let extremum = |n| matches!(&graph[n].def, Def::Reduce(r) if matches!(r.monoid, Monoid::Max | Monoid::Min));
    if !term.any_read(&extremum) {
        return false;
    }
    let sum = product::sum(term);
    (0..sum.len()).any(|k| {
        let (c, Term::Read(n, at)) = &sum[k] else { return false };
        let (node, Def::Reduce(r)) = (&graph[*n], &graph[*n].def) else { return false };
        let exact = matches!(node.dtype, None | Some(DType::F64 | DType::F32));
        let largest = match r.monoid {
            Monoid::Max => *c > 0.0,
            Monoid::Min => *c < 0.0,
            _ => false,
        };
        let mut rest = sum.clone();
        rest.remove(k);
        product::append(&mut rest, product::sum(&r.body), *c);
        largest
            && exact
            && r.filter.is_empty()
            && r.streaming.anchors.is_empty()
            && graph.is_plain(*n, at)
            && rest.is_empty()
    })
}

/// Whether the term is what a step of a running maximum takes the larger of, less what the step makes of it: `a[t] + m[t] - m[t+1]`
/// with `m[t+1] = max(a[t] + m[t], b[t])`, or the opposite of a running minimum.
fn is_below_its_step(term: &Term, graph: &Graph) -> bool {
    let sum = product::sum(term);
    let step_of = |n: &crate::NodeId, at: &[IndexExpr]| {
        let node = &graph[*n];
        let Def::Iterative { dim, step, .. } = &node.def else { return None };
        let exact = matches!(node.dtype, None | Some(DType::F64 | DType::F32));
        let before = |d: usize| {
            let mut e = at[d].clone();
            if d == *dim {
                e.offset = e.offset.add(&SizeExpr::constant(-1));
            }
            e
        };
        let place = |i| node.axes.iter().position(|&a| a == i).map(before);
        let later = at[*dim].as_shifted_var().is_some_and(|(_, k)| k >= 1);
        if exact && later { step.substitute(&place) } else { None }
    };
    (0..sum.len()).any(|k| {
        let (c, Term::Read(n, at)) = &sum[k] else { return false };
        let Some(Term::Binary(op, a, b)) = step_of(n, at) else { return false };
        let below = match op {
            BinaryOp::Max => *c < 0.0,
            BinaryOp::Min => *c > 0.0,
            _ => false,
        };
        let mut rest = sum.clone();
        rest.remove(k);
        let cancels = |option: &Term| {
            let mut rest = rest.clone();
            product::append(&mut rest, product::sum(option), *c);
            rest.is_empty()
        };
        below && (cancels(&a) || cancels(&b))
    })
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

/// Whether the term is a number from 1 on and addends that cannot be negative.
pub(crate) fn is_one_and_more(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| is_one_and_more(t, graph, depth - 1);
    match term {
        Term::Number(v) => *v >= 1.0,
        Term::Binary(BinaryOp::Add, a, b) => {
            let nonnegative = |t: &Term| at_least_zero(t, graph, depth - 1);
            go(a) && nonnegative(b) || nonnegative(a) && go(b)
        }
        Term::Read(n, _) => matches!(&graph[*n].def, Def::Map(t) if go(t)),
        _ => false,
    }
}

/// Whether the term is at most zero wherever it is a number.
pub fn nonpositive(term: &Term, graph: &Graph) -> bool {
    at_most_zero(term, graph, DEPTH)
}

pub(crate) fn at_most_zero(term: &Term, graph: &Graph, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let go = |t: &Term| at_most_zero(t, graph, depth - 1);
    let nonnegative = |t: &Term| at_least_zero(t, graph, depth - 1);
    match term {
        Term::Number(v) => *v <= 0.0,
        Term::Unary(op, x) => match op {
            UnaryOp::Neg => nonnegative(x),
            UnaryOp::Log | UnaryOp::Log2 => size::is_within_one(x, graph, depth - 1),
            UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Floor | UnaryOp::Round | UnaryOp::Sign => go(x),
            _ => false,
        },
        Term::Binary(op, a, b) => match op {
            BinaryOp::Add | BinaryOp::Sub if is_below_its_step(term, graph) => true,
            BinaryOp::Mul | BinaryOp::Div => go(a) && nonnegative(b) || nonnegative(a) && go(b),
            BinaryOp::Sub => go(a) && nonnegative(b),
            BinaryOp::Add | BinaryOp::Max => go(a) && go(b),
            BinaryOp::Min => go(a) || go(b),
            _ => false,
        },
        Term::Select(_, a, b) => go(a) && go(b),
        Term::Read(n, _) => match &graph[*n].def {
            Def::Map(t) => go(t),
            // A minimum over nothing is inf.
            Def::Reduce(r) => matches!(r.monoid, Monoid::Sum | Monoid::Max) && go(&r.body),
            _ => false,
        },
        _ => false,
    }
}

pub(crate) fn at_least_zero(term: &Term, graph: &Graph, depth: usize) -> bool {
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
            | UnaryOp::Gelu
            | UnaryOp::Log1p => go(x),
            UnaryOp::Neg => at_most_zero(x, graph, depth - 1),
            UnaryOp::Log | UnaryOp::Log2 => is_one_and_more(x, graph, depth - 1),
            _ => false,
        },
        Term::Binary(op, a, b) => match op {
            BinaryOp::Mul if a == b => true,
            BinaryOp::Add | BinaryOp::Sub if is_beyond_an_element(term, graph) => true,
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
