//! The checked program: names resolved, sugar and user operators expanded, one meaning.

use crate::{BinaryOp, DType, IndexExpr, SizeExpr, Span, UnaryOp};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident => $list:ident : $item:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl std::ops::Index<$name> for Cascade {
            type Output = $item;
            fn index(&self, id: $name) -> &$item {
                &self.$list[id.0 as usize]
            }
        }
    )*};
}

ids! {
    /// Names a [`Rank`] of its cascade.
    RankId => ranks: Rank,
    /// Names an [`Index`] of its cascade.
    IndexId => indices: Index,
    /// Names a [`Param`] of its cascade.
    ParamId => params: Param,
    /// Names a [`MonoidDef`] of its cascade.
    MonoidId => monoids: MonoidDef,
    /// Names a [`Tensor`] of its cascade.
    TensorId => tensors: Tensor,
}

/// A cascade of Einsums: tensors, and statements that define them elementwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cascade {
    /// Its name; `cascade` if the text gives none.
    pub name: String,
    /// The ranks, in order of first appearance.
    pub ranks: Vec<Rank>,
    /// The indices, in order of first appearance.
    pub indices: Vec<Index>,
    /// The scalar parameters.
    pub params: Vec<Param>,
    /// The user's reductions.
    pub monoids: Vec<MonoidDef>,
    /// Inputs first, then what statements define, in order of definition.
    pub tensors: Vec<Tensor>,
    /// The outputs, in the order in which they were declared.
    pub outputs: Vec<TensorId>,
    /// The statements, in source order.
    pub statements: Vec<Statement>,
    /// The order in which statements can be executed: each step needs only earlier ones.
    pub order: Vec<Step>,
}

/// One step of [`Cascade::order`].
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The statement with this number, over its whole iteration space.
    Once(usize),
    /// A recurrence: for each position of `rank` from 0, all of these statements in this order.
    /// Statements of one recurrence may name its index differently; each has exactly one index over `rank`.
    Iterate {
        /// The iterative rank.
        rank: RankId,
        /// Statement numbers, in an order in which each needs only earlier ones at the same position.
        statements: Vec<usize>,
    },
}

/// A dimension's name; its size is known when the program is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    /// Upper case, such as `M`.
    pub name: String,
    /// The size when the caller gives none.
    pub default: Option<RankDefault>,
    /// First appearance or declaration.
    pub span: Span,
}

/// `numerator / denominator` over the sizes of other ranks; the division must be exact.
#[derive(Clone, Debug, PartialEq)]
pub struct RankDefault {
    /// Divided.
    pub numerator: SizeExpr,
    /// Divides.
    pub denominator: SizeExpr,
}

/// A variable that ranges over a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// Lower case, such as `m`.
    pub name: String,
    /// What it ranges over.
    pub rank: RankId,
}

/// A scalar of the caller's.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its value when the caller gives none.
    pub default: Option<f64>,
    /// Its declaration.
    pub span: Span,
}

/// `monoid name(a, b) = combine identity c`.
#[derive(Clone, Debug, PartialEq)]
pub struct MonoidDef {
    /// Its name.
    pub name: String,
    /// The two arguments' names, for printing.
    pub arguments: [String; 2],
    /// An expression over `Argument(0)` and `Argument(1)`, constants, params and sizes.
    pub combine: Expr,
    /// The value of a reduction over nothing; neutral for `combine`.
    pub identity: f64,
    /// Its declaration.
    pub span: Span,
}

/// What a tensor is to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Given by the caller.
    Input,
    /// Returned to the caller.
    Output,
    /// Neither.
    Intermediate,
}

/// A named array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// What it is to the caller.
    pub role: Role,
    /// The rank each dimension runs over. For a tensor written at `t + 1` the iterative dimension's rank is `T`
    /// although it has `T + 1` elements: see [`Tensor::extents`].
    pub ranks: Vec<RankId>,
    /// Number of elements per dimension.
    pub extents: Vec<SizeExpr>,
    /// The declared number type; `None` for an intermediate without annotation (f32, unrounded in the meaning).
    pub dtype: Option<DType>,
    /// The dimension that is written at `t + 1`, if any.
    pub iterative: Option<usize>,
    /// Declaration, or first definition.
    pub span: Span,
}

/// `target[at] = value`, for every value of the indices in `at`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The tensor it defines (all of it, or one slice of an iterative tensor).
    pub target: TensorId,
    /// Per dimension an index, `t + 1`, or a position fixed by constants and sizes.
    pub at: Vec<IndexExpr>,
    /// The right-hand side.
    pub value: Expr,
    /// The whole statement.
    pub span: Span,
}

/// A scalar expression with its place.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands. Not compared by `==`.
    pub span: Span,
}

/// Equal up to spans.
impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// The forms of a scalar expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Number(f64),
    /// A scalar parameter.
    Param(ParamId),
    /// The size of a rank (or a polynomial of sizes) used as a value.
    Size(SizeExpr),
    /// The position of an index used as a value.
    Position(IndexId),
    /// An argument of the monoid being defined; only inside [`MonoidDef::combine`].
    Argument(u8),
    /// An element of a tensor.
    Read {
        /// The tensor.
        tensor: TensorId,
        /// One index expression per dimension.
        at: Vec<IndexExpr>,
    },
    /// A function of one value.
    Unary(UnaryOp, Box<Expr>),
    /// A function of two values.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `where(condition, then, otherwise)`. Only the chosen branch is evaluated.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A reduction.
    Reduce {
        /// With what.
        monoid: Monoid,
        /// Over which indices (bound in `filter` and `body`), at least one.
        over: Vec<IndexId>,
        /// Only where this holds.
        filter: Option<Box<Expr>>,
        /// Of what.
        body: Box<Expr>,
    },
}

/// What a reduction combines with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Monoid {
    /// Addition; 0 over nothing.
    Sum,
    /// Multiplication; 1 over nothing.
    Prod,
    /// Maximum; -inf over nothing.
    Max,
    /// Minimum; +inf over nothing.
    Min,
    /// The first position (row-major over the reduced indices) of the maximum; -1 over nothing.
    ArgMax,
    /// The first position of the minimum; -1 over nothing.
    ArgMin,
    /// The user's.
    Custom(MonoidId),
}

impl Monoid {
    /// Its spelling; `name` spells the user's.
    pub fn name(self, cascade: &Cascade) -> &str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::ArgMax => "argmax",
            Self::ArgMin => "argmin",
            Self::Custom(id) => &cascade[id].name,
        }
    }
}

/// The kind of value an expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// An integer (integer tensors, sizes, positions and what `+ - * min max` make of them).
    Int,
    /// Anything else.
    Real,
}

impl Cascade {
    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<TensorId> {
        self.tensors.iter().position(|t| t.name == name).map(|k| TensorId(k as u32))
    }

    /// The rank with this name.
    pub fn rank(&self, name: &str) -> Option<RankId> {
        self.ranks.iter().position(|r| r.name == name).map(|k| RankId(k as u32))
    }

    /// The inputs, in the order of their declarations.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        (0..self.tensors.len() as u32).map(TensorId).filter(|&t| self[t].role == Role::Input)
    }

    /// The kind of value `expr` has in this cascade.
    pub fn kind(&self, expr: &Expr) -> Kind {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::Param(_) | ExprKind::Argument(_) => match expr.kind {
                ExprKind::Number(v) if v.fract() == 0.0 => Kind::Int,
                _ => Kind::Real,
            },
            ExprKind::Size(_) | ExprKind::Position(_) => Kind::Int,
            ExprKind::Read { tensor, .. } => match self[*tensor].dtype {
                Some(DType::B1) => Kind::Bool,
                Some(d) if d.is_integer() => Kind::Int,
                _ => Kind::Real,
            },
            ExprKind::Unary(op, x) => match op {
                UnaryOp::Not => Kind::Bool,
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu => self.kind(x),
                _ => Kind::Real,
            },
            ExprKind::Binary(op, a, b) => match op {
                _ if op.is_predicate() => Kind::Bool,
                BinaryOp::Div | BinaryOp::Pow => Kind::Real,
                _ => self.kind(a).join(self.kind(b)),
            },
            ExprKind::Select(_, a, b) => self.kind(a).join(self.kind(b)),
            ExprKind::Reduce { monoid, body, .. } => match monoid {
                Monoid::ArgMax | Monoid::ArgMin => Kind::Int,
                Monoid::Custom(_) => Kind::Real,
                // An extremum over nothing is infinite, so an Int would lie; sums and products stay integers.
                _ => self.kind(body),
            },
        }
    }
}

impl Kind {
    fn join(self, other: Kind) -> Kind {
        if self == other { self } else { Kind::Real }
    }
}

impl Expr {
    /// An expression at a place.
    pub fn new(kind: ExprKind, span: Span) -> Self {
        Self { kind, span }
    }

    /// Calls `f` on every direct subexpression, including a reduction's filter.
    pub fn for_each_child<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        match &self.kind {
            ExprKind::Unary(_, x) => f(x),
            ExprKind::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            ExprKind::Select(c, a, b) => {
                f(c);
                f(a);
                f(b);
            }
            ExprKind::Reduce { filter, body, .. } => {
                if let Some(filter) = filter {
                    f(filter);
                }
                f(body);
            }
            _ => {}
        }
    }
}
