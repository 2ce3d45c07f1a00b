//! The syntax tree: what was written, nothing resolved.

use crate::{BinaryOp, Span, UnaryOp};

/// A name with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub text: &'a str,
    pub span: Span,
}

/// All items of a text by kind, each in source order. A part that could not be read is `None`, so that the names
/// around it stay known.
#[derive(Debug, Default)]
pub(crate) struct Program<'a> {
    pub headers: Vec<Name<'a>>,
    pub inputs: Vec<Declared<'a>>,
    pub outputs: Vec<Declared<'a>>,
    pub ranks: Vec<RankItem<'a>>,
    pub params: Vec<ParamItem<'a>>,
    pub indices: Vec<IndexItem<'a>>,
    pub ops: Vec<OpItem<'a>>,
    pub monoids: Vec<MonoidItem<'a>>,
    pub statements: Vec<StatementItem<'a>>,
    /// What statements define whose left sides could not be read.
    pub unread: Vec<Name<'a>>,
}

/// `X[m,n]: bf16` in a list of inputs or outputs.
#[derive(Debug)]
pub(crate) struct Declared<'a> {
    pub name: Name<'a>,
    /// `None` without brackets.
    pub at: Option<Vec<Expr<'a>>>,
    /// Its own or the next one of the list; `None` if there is none.
    pub dtype: Option<Name<'a>>,
}

/// `rank M`, `rank M = size`.
#[derive(Debug)]
pub(crate) struct RankItem<'a> {
    pub name: Name<'a>,
    pub size: Option<Expr<'a>>,
}

/// `param scale`, `param scale = 0.125`.
#[derive(Debug)]
pub(crate) struct ParamItem<'a> {
    pub name: Name<'a>,
    pub value: Option<f64>,
}

/// `index s, t in T`.
#[derive(Debug)]
pub(crate) struct IndexItem<'a> {
    pub names: Vec<Name<'a>>,
    pub rank: Name<'a>,
}

/// `op name(x, y) = body`.
#[derive(Debug)]
pub(crate) struct OpItem<'a> {
    pub name: Name<'a>,
    pub arguments: Vec<Name<'a>>,
    pub body: Option<Expr<'a>>,
}

/// `monoid name(a, b) = combine identity c`.
#[derive(Debug)]
pub(crate) struct MonoidItem<'a> {
    pub name: Name<'a>,
    pub arguments: Vec<Name<'a>>,
    pub combine: Option<(Expr<'a>, f64)>,
}

/// `X[m,n]: bf16 = value`.
#[derive(Debug)]
pub(crate) struct StatementItem<'a> {
    pub name: Name<'a>,
    pub at: Vec<Expr<'a>>,
    pub dtype: Option<Name<'a>>,
    pub value: Option<Expr<'a>>,
    pub span: Span,
}

/// An expression with its place.
#[derive(Debug)]
pub(crate) struct Expr<'a> {
    pub kind: ExprKind<'a>,
    pub span: Span,
    /// Nodes on the longest way down; bounded, so that every recursion over the tree is.
    pub height: u32,
}

/// The forms of an expression. Index expressions have the same syntax and are told apart when they are resolved.
#[derive(Debug)]
pub(crate) enum ExprKind<'a> {
    Number(f64),
    /// A name by itself.
    Name(&'a str),
    /// `X[…]`.
    Read {
        name: Name<'a>,
        at: Vec<Expr<'a>>,
    },
    Unary(UnaryOp, Box<Expr<'a>>),
    Binary(BinaryOp, Box<Expr<'a>>, Box<Expr<'a>>),
    /// `f(…)`: a function, `where`, the user's op, or `max` and `min` of values.
    Call {
        name: Name<'a>,
        arguments: Vec<Expr<'a>>,
    },
    /// `sum(i: filter) body` and its kin.
    Reduce(Box<Reduce<'a>>),
}

/// A reduction, or sugar that looks like one.
#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    pub name: Name<'a>,
    /// Written `reduce name(…)`: the name is the user's monoid.
    pub custom: bool,
    pub over: Vec<Name<'a>>,
    pub filter: Option<Expr<'a>>,
    pub body: Expr<'a>,
}

impl<'a> Expr<'a> {
    pub fn new(kind: ExprKind<'a>, span: Span) -> Self {
        let mut height = 0;
        let mut out = Self { kind, span, height };
        out.for_each_child(&mut |child| height = height.max(child.height));
        out.height = height + 1;
        out
    }

    /// Calls `f` on every direct part, index expressions and filters included.
    pub fn for_each_child<'e>(&'e self, f: &mut impl FnMut(&'e Expr<'a>)) {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Name(_) => {}
            ExprKind::Read { at, .. } => at.iter().for_each(f),
            ExprKind::Unary(_, x) => f(x),
            ExprKind::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            ExprKind::Call { arguments, .. } => arguments.iter().for_each(f),
            ExprKind::Reduce(reduce) => {
                if let Some(filter) = &reduce.filter {
                    f(filter);
                }
                f(&reduce.body);
            }
        }
    }
}
