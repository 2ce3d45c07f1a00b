//! The tile program: what moves and in what order. How it is executed is a backend's business.
//!
//! A kernel is executed once per point of its grid, the points in any order and in parallel. Its body is a list of
//! operations on two-dimensional tiles ("values"). Sizes are concrete; edges are handled by *clipping*: an axis
//! has a current window `base..base + len` with `len <= tile`, and a tile has exactly the lengths of its axes'
//! windows. No element outside the extents exists, so no operation needs padding or a neutral element for edges.

use crate::{Guard, Layout};
use einloom_cascade::{BinaryOp, DType, UnaryOp};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// Its place in the list it names.
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Names a [`TensorDecl`] of its program.
    TensorId,
    /// Names an [`Axis`] of its kernel.
    AxisId,
    /// Names a [`ValueDecl`] of its kernel.
    ValueId,
}

/// Kernels over tensors, executed in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Every array in memory.
    pub tensors: Vec<TensorDecl>,
    /// Executed one after the other.
    pub kernels: Vec<Kernel>,
}

/// What a tensor is to the program's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// Given.
    Input,
    /// Returned.
    Output,
    /// Lives between kernels of this program.
    Temporary,
}

/// An array in memory: dense and row-major, unless it has a layout of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDecl {
    /// Its name.
    pub name: String,
    /// Elements per dimension; may be empty (a scalar) or hold zeros.
    pub dims: Vec<usize>,
    /// The caller's shape, where one of its dimensions is several of `dims`: the same elements in the same order. `None` if it is
    /// `dims`.
    pub shape: Option<Vec<usize>>,
    /// Number type in memory.
    pub dtype: DType,
    /// What it is to the caller.
    pub role: TensorRole,
    /// Where a caller's array has its elements otherwise.
    pub layout: Option<Layout>,
}

/// One launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What it computes, for people: source statements as text, one per entry.
    pub comments: Vec<String>,
    /// Every axis that the body mentions.
    pub axes: Vec<Axis>,
    /// The axes with [`AxisKind::Grid`], outermost first.
    pub grid: Vec<AxisId>,
    /// Every tile that the body mentions.
    pub values: Vec<ValueDecl>,
    /// Executed per point of the grid.
    pub body: Vec<Op>,
    /// Chunks of every stream that are held or under way at once, as the plan supposes; a backend that cannot have as
    /// many has its own choice. `None` where nothing is supposed.
    pub stages: Option<usize>,
    /// In which order points and chunks are visited, for memories outside the innermost, outermost first. A permission: what
    /// is computed is the same in any order. Empty where nothing is supposed.
    pub blocks: Vec<Block>,
}

/// A part of a kernel that is finished before the next one begins: the points of the grid whose windows lie in it, each with
/// so much of the kernel's stream. Between parts of the stream its states wait in the memory; operations before the stream
/// come again, those behind it wait for its last part.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The memory that keeps what the block uses again, by its name in a machine.
    pub memory: String,
    /// Positions along axes of the grid and, in a kernel with one stream that is in no other, along that one. Whole numbers of
    /// tiles, and of the sides of blocks inside it, or the extent. Any other stream is whole.
    pub sides: Vec<(AxisId, usize)>,
}

/// An index of the program with its tile size.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The index's name, such as `m`.
    pub name: String,
    /// Positions `0..extent`.
    pub extent: usize,
    /// Largest window; at least 1. For [`AxisKind::Whole`] at least `extent`.
    pub tile: usize,
    /// How its window moves.
    pub kind: AxisKind,
}

/// How an axis's window moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// Set by the grid point.
    Grid,
    /// Set by a [`Op::Stream`] over it, and only meaningful inside.
    Stream,
    /// Always `0..extent`.
    Whole,
}

/// A tile: a matrix whose sides are axes' windows. A side that is `None` has length 1 and broadcasts.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueDecl {
    /// Its name, for people.
    pub name: String,
    /// The axis down.
    pub rows: Option<AxisId>,
    /// The axis across; never the same as `rows`.
    pub cols: Option<AxisId>,
    /// Its number type. Writing a value rounds to it (to nearest even; integers also saturate).
    pub dtype: DType,
}

/// `Σ coefficient · position(axis) + constant`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affine {
    /// Coefficients, none zero, no axis twice.
    pub terms: Vec<(i64, AxisId)>,
    /// Added.
    pub constant: i64,
}

/// Holds where every affine expression is at least zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Predicate {
    /// All of them; none means always true.
    pub all: Vec<Affine>,
}

/// One coordinate of an element in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coord {
    /// Coefficients and what they multiply.
    pub terms: Vec<(i64, CoordAtom)>,
    /// Added.
    pub offset: i64,
}

/// What a coordinate is affine in.
#[derive(Clone, Debug, PartialEq)]
pub enum CoordAtom {
    /// The element's position along an axis: one of the tile's two axes, or an axis whose window is one position.
    Axis(AxisId),
    /// `floor(numerator / denominator)`, denominator positive.
    Floor(Box<Coord>, i64),
    /// The element of an integer tile that broadcasts to the loaded tile's shape: a gather.
    Tile(ValueId),
}

/// Operations on tiles. Every value is written by exactly one operation before it is read, except a stream's states.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `dst[r, c] = tensor[at(r, c)]`.
    Load {
        /// The tile.
        dst: ValueId,
        /// From.
        tensor: TensorId,
        /// One per dimension.
        at: Vec<Coord>,
        /// `None`: every element must lie inside the tensor (a gather outside is a run-time error).
        /// `Some(v)`: elements outside are `v`.
        fill: Option<f64>,
    },
    /// `tensor[at(r, c)] = src[r, c]`, rounded to the tensor's number type.
    Store {
        /// To.
        tensor: TensorId,
        /// One per dimension.
        at: Vec<Coord>,
        /// The tile.
        src: ValueId,
    },
    /// `dst = expr`, elementwise, leaves broadcast to `dst`'s shape.
    Map {
        /// The tile.
        dst: ValueId,
        /// Its elements.
        expr: Scalar,
    },
    /// `dst = acc + Σ_k a·b`. `k` is the one axis that `a` and `b` share and `dst` lacks; each other axis of `a`
    /// and `b` is an axis of `dst`, not the same one. Either may be stored either way round. Products and sums are
    /// exact in i32 for integer operands, in f64 if `dst` is f64, else in f32.
    Mma {
        /// The result.
        dst: ValueId,
        /// One factor.
        a: ValueId,
        /// The other.
        b: ValueId,
        /// Added if given; same axes as `dst`.
        acc: Option<ValueId>,
    },
    /// `dst = acc ⊕ ⊕_axis src`: `dst` has `src`'s axes less `axis`.
    Reduce {
        /// The result.
        dst: ValueId,
        /// Reduced.
        src: ValueId,
        /// Along.
        axis: AxisId,
        /// With.
        monoid: TileMonoid,
        /// Combined with the result if given; same axes as `dst`.
        acc: Option<ValueId>,
    },
    /// `dst[r, c] = src` where its position along `axis` is `at(r, c)` and that along its other axis, if it has one, is the
    /// element's own. `axis` is one whose positions are all there ([`AxisKind::Whole`]); `dst` has `src`'s other axis and
    /// `src`'s number type. Nothing is computed: an element is the very number that it is in `src`.
    Pick {
        /// The result.
        dst: ValueId,
        /// Picked from.
        src: ValueId,
        /// Along.
        axis: AxisId,
        /// Where; its axes and tiles are those of `dst`.
        at: Coord,
        /// Elements whose position `axis` does not have.
        fill: f64,
    },
    /// Moves the window of `axis` over the chunks that [`crate::chunks`] lists, in ascending order.
    Stream {
        /// A [`AxisKind::Stream`] axis.
        axis: AxisId,
        /// Chunks in which this holds nowhere are not visited.
        within: Predicate,
        /// Chunks in which one of these holds nowhere, as far as intervals tell, need not be visited: the body leaves
        /// the states as they are wherever one fails.
        guards: Vec<Guard>,
        /// Carried from chunk to chunk.
        states: Vec<State>,
        /// Executed per chunk.
        body: Vec<Op>,
    },
    /// Directly in a stream's body: goes on with the next chunk, states unchanged, unless some element holds.
    SkipUnless {
        /// A b1 tile.
        any: ValueId,
    },
}

/// A value carried by a stream. In the body `value` is what the previous chunk left (before the first, `init`);
/// after the stream it is the last chunk's `next`.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Readable in the body and after the stream.
    pub value: ValueId,
    /// Before the first chunk.
    pub init: Init,
    /// Written by the body; same axes and number type as `value`. Not readable after the stream.
    pub next: ValueId,
}

/// A state before its stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Every element.
    Const(f64),
    /// Another tile with the same axes.
    Value(ValueId),
}

/// What tiles reduce with.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum TileMonoid {
    Sum,
    Prod,
    Max,
    Min,
    /// `combine` is over [`Scalar::Argument`] 0 and 1 and constants.
    Custom {
        name: String,
        combine: Box<Scalar>,
        identity: f64,
    },
}

impl TileMonoid {
    /// The value over nothing.
    pub fn identity(&self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Prod => 1.0,
            Self::Max => f64::NEG_INFINITY,
            Self::Min => f64::INFINITY,
            Self::Custom { identity, .. } => *identity,
        }
    }
}

/// A scalar expression over tiles. It is computed in f64 if it is wide ([`Kernel::is_wide`]) or the destination is f64 or
/// i32, else in f32 (in which all narrower types are exact). Three things are computed as wide as they are, whatever is
/// around them, so that their numbers are the same everywhere: what is rounded, what is compared and what decides. A
/// number is rounded to f32 by being computed in f32, or once more from f64.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A constant.
    Const(f64),
    /// The element of a tile, broadcast.
    Tile(ValueId),
    /// The element's position along an axis: one of the destination's, or one whose window is one position.
    Position(AxisId),
    /// Whether the predicate holds at the element (axes as for [`Scalar::Position`]).
    Within(Predicate),
    /// An argument of a custom monoid.
    Argument(u8),
    /// Rounded to a number type.
    Round(DType, Box<Scalar>),
    /// A function of one value.
    Unary(UnaryOp, Box<Scalar>),
    /// A function of two values.
    Binary(BinaryOp, Box<Scalar>, Box<Scalar>),
    /// `condition ? then : otherwise`.
    Select(Box<Scalar>, Box<Scalar>, Box<Scalar>),
}

impl Affine {
    /// Just the position along an axis.
    pub fn axis(axis: AxisId) -> Self {
        Self { terms: vec![(1, axis)], constant: 0 }
    }

    /// What an axis is multiplied by, 0 if it does not occur.
    pub fn coefficient(&self, axis: AxisId) -> i64 {
        self.terms.iter().filter(|t| t.1 == axis).map(|t| t.0).sum()
    }
}

impl Coord {
    /// Just the position along an axis.
    pub fn axis(axis: AxisId) -> Self {
        Self { terms: vec![(1, CoordAtom::Axis(axis))], offset: 0 }
    }

    /// A fixed position.
    pub fn fixed(offset: i64) -> Self {
        Self { terms: vec![], offset }
    }
}

/// Whether numbers of this type are computed with in f64: f32 has not all of them.
pub fn is_wide_type(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::I32)
}

impl Kernel {
    /// The axis of the stream that is in no other, if there is one and it is the only one.
    pub fn outer_stream(&self) -> Option<AxisId> {
        let mut streams = self.body.iter().filter_map(|op| match op {
            Op::Stream { axis, .. } => Some(*axis),
            _ => None,
        });
        streams.next().filter(|_| streams.next().is_none())
    }

    /// Whether the number that an expression gives is one of f64: an operand is f64 or i32, or rounded to one of them, or a
    /// position that may exceed 2^24. Truth values are not.
    pub fn is_wide(&self, expr: &Scalar) -> bool {
        match expr {
            Scalar::Tile(v) => is_wide_type(self.value(*v).dtype),
            Scalar::Position(a) => self.axis(*a).extent > 1 << 24,
            Scalar::Round(d, _) => is_wide_type(*d),
            Scalar::Const(_) | Scalar::Within(_) | Scalar::Argument(_) | Scalar::Unary(UnaryOp::Not, _) => false,
            Scalar::Unary(_, x) => self.is_wide(x),
            Scalar::Binary(op, x, y) => !op.is_predicate() && (self.is_wide(x) || self.is_wide(y)),
            Scalar::Select(_, x, y) => self.is_wide(x) || self.is_wide(y),
        }
    }

    /// Whether what is rounded to `dtype` is computed in f64.
    pub fn rounds_wide(&self, dtype: DType, expr: &Scalar) -> bool {
        is_wide_type(dtype) || self.is_wide(expr)
    }

    /// The axis.
    pub fn axis(&self, id: AxisId) -> &Axis {
        &self.axes[id.at()]
    }

    /// The tile's declaration.
    pub fn value(&self, id: ValueId) -> &ValueDecl {
        &self.values[id.at()]
    }
}

impl Program {
    /// The tensor's declaration.
    pub fn tensor(&self, id: TensorId) -> &TensorDecl {
        &self.tensors[id.at()]
    }
}
