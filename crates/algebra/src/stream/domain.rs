//! What a graph can be evaluated over.

use crate::{Graph, NodeId, Term, argument_term};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, DType, Monoid, ParamId, UnaryOp, numeric};

/// Values, and the operations of the language on them.
pub trait Domain {
    /// One element.
    type Value: Clone;

    /// The elements of an input, in row-major order; `None` if it is not given.
    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Self::Value>>;
    /// A constant.
    fn number(&self, v: f64) -> Self::Value;
    /// A size or a position.
    fn integer(&self, v: i64) -> Self::Value;
    /// A parameter.
    fn param(&self, p: ParamId) -> Self::Value;
    /// A function of one value.
    fn unary(&self, op: UnaryOp, x: &Self::Value) -> Self::Value;
    /// A function of two values.
    fn binary(&self, op: BinaryOp, a: &Self::Value, b: &Self::Value) -> Self::Value;
    /// Whether a truth value is true.
    fn holds(&self, v: &Self::Value) -> bool;
    /// Which a truth value is that may as well be the other, if [`Domain::either`] says what follows.
    fn in_doubt(&self, _v: &Self::Value) -> Option<bool> {
        None
    }
    /// What stands for two values of which a truth value takes the first, and may take the other.
    fn either(&self, first: Self::Value, _other: Self::Value) -> Self::Value {
        first
    }
    /// The value as a position in a tensor.
    fn position(&self, v: &Self::Value) -> Option<i64>;
    /// Rounds to a number type.
    fn round(&self, dtype: DType, v: Self::Value) -> Self::Value;
    /// What a step made of a tensor of the text, as later steps see it.
    fn slice(&self, v: Self::Value) -> Self::Value {
        v
    }
    /// A reduction over nothing.
    fn identity(&self, m: Monoid) -> Self::Value;
    /// A reduction over one element.
    fn single(&self, m: Monoid, v: Self::Value) -> Self::Value;
    /// Two reductions put together.
    fn combine(&self, m: Monoid, a: &Self::Value, b: &Self::Value) -> Option<Self::Value>;
    /// Whether `a` is a more extreme value than `b` (for argmax and argmin).
    fn beats(&self, m: Monoid, a: &Self::Value, b: &Self::Value) -> bool;
    /// Whether the second of two values is the more extreme, and the position of the one that is, of theirs.
    fn extremum(&self, m: Monoid, [a, b]: [&Self::Value; 2], [at, other]: [Self::Value; 2]) -> (bool, Self::Value) {
        let second = self.beats(m, b, a);
        (second, if second { other } else { at })
    }
}

/// f64, as the meaning has it.
pub struct Reals<'a> {
    /// The graph that is evaluated.
    pub graph: &'a Graph,
    /// Its sizes and parameters.
    pub bound: &'a Bound,
    /// Its inputs, by name.
    pub inputs: &'a Arrays,
}

impl Domain for Reals<'_> {
    type Value = f64;

    fn input(&self, node: NodeId, _count: usize) -> Option<Vec<f64>> {
        let node = &self.graph[node];
        let given = self.inputs.get(&node.name)?;
        Some(given.values.iter().map(|&v| node.dtype.map_or(v, |d| numeric::round(d, v))).collect())
    }

    fn number(&self, v: f64) -> f64 {
        v
    }

    fn integer(&self, v: i64) -> f64 {
        v as f64
    }

    fn param(&self, p: ParamId) -> f64 {
        self.bound.param(p)
    }

    fn unary(&self, op: UnaryOp, x: &f64) -> f64 {
        op.apply(*x)
    }

    fn binary(&self, op: BinaryOp, a: &f64, b: &f64) -> f64 {
        op.apply(*a, *b)
    }

    fn holds(&self, v: &f64) -> bool {
        *v != 0.0
    }

    fn position(&self, v: &f64) -> Option<i64> {
        Some(*v as i64)
    }

    fn round(&self, dtype: DType, v: f64) -> f64 {
        numeric::round(dtype, v)
    }

    fn identity(&self, m: Monoid) -> f64 {
        match m {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
            Monoid::ArgMax | Monoid::ArgMin => -1.0,
            Monoid::Custom(id) => self.graph.cascade[id].identity,
        }
    }

    fn single(&self, _m: Monoid, v: f64) -> f64 {
        v
    }

    fn combine(&self, m: Monoid, a: &f64, b: &f64) -> Option<f64> {
        combine(self, self.graph, m, [a, b])
    }

    fn beats(&self, m: Monoid, a: &f64, b: &f64) -> bool {
        let beyond = if m == Monoid::ArgMax { a > b } else { a < b };
        // A NaN is as extreme as can be, and the first one stands.
        beyond || a.is_nan() && !b.is_nan()
    }
}

/// f64, each value becoming what a function of it and of how it is made says.
pub struct Followed<'a, F> {
    /// The numbers.
    pub reals: Reals<'a>,
    /// What becomes of a value.
    pub each: F,
}

/// The operation that made a value of [`Followed`], with its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Made {
    Unary(UnaryOp, f64),
    Binary(BinaryOp, f64, f64),
}

impl<F: Fn(Made, f64) -> f64> Domain for Followed<'_, F> {
    type Value = f64;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<f64>> {
        self.reals.input(node, count)
    }

    fn number(&self, v: f64) -> f64 {
        v
    }

    fn integer(&self, v: i64) -> f64 {
        self.reals.integer(v)
    }

    fn param(&self, p: ParamId) -> f64 {
        self.reals.param(p)
    }

    fn unary(&self, op: UnaryOp, x: &f64) -> f64 {
        (self.each)(Made::Unary(op, *x), op.apply(*x))
    }

    fn binary(&self, op: BinaryOp, a: &f64, b: &f64) -> f64 {
        (self.each)(Made::Binary(op, *a, *b), op.apply(*a, *b))
    }

    fn holds(&self, v: &f64) -> bool {
        self.reals.holds(v)
    }

    fn position(&self, v: &f64) -> Option<i64> {
        self.reals.position(v)
    }

    fn round(&self, dtype: DType, v: f64) -> f64 {
        self.reals.round(dtype, v)
    }

    fn identity(&self, m: Monoid) -> f64 {
        self.reals.identity(m)
    }

    fn single(&self, m: Monoid, v: f64) -> f64 {
        self.reals.single(m, v)
    }

    fn combine(&self, m: Monoid, a: &f64, b: &f64) -> Option<f64> {
        combine(self, self.reals.graph, m, [a, b])
    }

    fn beats(&self, m: Monoid, a: &f64, b: &f64) -> bool {
        self.reals.beats(m, a, b)
    }
}

/// Two reductions put together by the operations that monoids are made of; none are positions of extrema.
pub fn combine<D: Domain>(domain: &D, graph: &Graph, m: Monoid, [a, b]: [&D::Value; 2]) -> Option<D::Value> {
    let op = match m {
        Monoid::Sum => BinaryOp::Add,
        Monoid::Prod => BinaryOp::Mul,
        Monoid::Max => BinaryOp::Max,
        Monoid::Min => BinaryOp::Min,
        Monoid::ArgMax | Monoid::ArgMin => return None,
        Monoid::Custom(id) => return apply(domain, &argument_term(&graph.cascade[id].combine)?, [a, b]),
    };
    Some(domain.binary(op, a, b))
}

/// The value of a monoid's body at two arguments.
pub fn apply<D: Domain>(domain: &D, term: &Term, arguments: [&D::Value; 2]) -> Option<D::Value> {
    Some(match term {
        Term::Argument(k) => (*arguments.get(*k as usize)?).clone(),
        Term::Number(v) => domain.number(*v),
        Term::Param(p) => domain.param(*p),
        Term::Unary(op, x) => domain.unary(*op, &apply(domain, x, arguments)?),
        Term::Binary(op, a, b) => domain.binary(*op, &apply(domain, a, arguments)?, &apply(domain, b, arguments)?),
        Term::Select(c, a, b) => {
            let holds = apply(domain, c, arguments)?;
            choose(domain, &holds, [&|| apply(domain, a, arguments), &|| apply(domain, b, arguments)])?
        }
        Term::Size(_) | Term::Position(_) | Term::Read(..) | Term::Old(..) => return None,
    })
}

/// One of two values.
pub(super) fn choose<D: Domain>(
    domain: &D,
    truth: &D::Value,
    [a, b]: [&dyn Fn() -> Option<D::Value>; 2],
) -> Option<D::Value> {
    if let Some(first) = domain.in_doubt(truth)
        && let (Some(a), Some(b)) = (a(), b())
    {
        return Some(if first { domain.either(a, b) } else { domain.either(b, a) });
    }
    if domain.holds(truth) { a() } else { b() }
}
