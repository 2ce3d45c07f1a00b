//! The normalised cascade: one reduction per node, everything else pointwise. Both the program as written and the
//! derived program have this form, so that the planner can lower either.

use einloom_cascade::{
    BinaryOp, Cascade, DType, IndexExpr, IndexId, Monoid, ParamId, RankId, SizeExpr, Span, TensorId, UnaryOp,
};

/// Names a [`Node`] of its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Nodes in an order in which each needs only earlier ones (the members of one recurrence may need each other).
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The program it came from: names, ranks, indices, number types. Gathers in index expressions name its tensors.
    pub cascade: Cascade,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The nodes that hold the cascade's outputs, in the order of [`Cascade::outputs`].
    pub outputs: Vec<NodeId>,
    /// The recurrences.
    pub recurrences: Vec<Recurrence>,
}

/// An array: one value for every position of its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The tensor's name, or that of the tensor it is part of followed by what it is, such as `O.sum`.
    pub name: String,
    /// Its dimensions, as the indices over which `def` is written. No index twice. Empty for inputs, whose
    /// dimensions have only `extents`.
    pub axes: Vec<IndexId>,
    /// Extent per dimension (differs from the index's rank only for iterative tensors).
    pub extents: Vec<SizeExpr>,
    /// How it is computed.
    pub def: Def,
    /// The declared number type; `None` computes in f32 (f64 or i32 where its operands are).
    pub dtype: Option<DType>,
    /// The tensor of the cascade that it is, if any.
    pub tensor: Option<TensorId>,
    /// The statement it comes from; `None` for inputs.
    pub statement: Option<usize>,
    /// Its place in the source.
    pub span: Span,
}

/// How a node is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Def {
    /// Given by the caller.
    Input,
    /// Pointwise.
    Map(Term),
    /// A reduction.
    Reduce(Reduction),
    /// An iterative tensor: slice `position` of its iterative dimension from `initial` (a fixed position each),
    /// slice `t + 1` from `step`, a term over the node's axes with the iterative axis standing for `t`.
    Iterative {
        /// Which recurrence of the graph it belongs to.
        recurrence: usize,
        /// Which of its dimensions is iterative.
        dim: usize,
        /// Slices defined outside the loop: position and term.
        initial: Vec<(SizeExpr, Term)>,
        /// The slice at `t + 1`.
        step: Term,
    },
}

/// Nodes that must be computed together, position by position of one index.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// The iterative rank.
    pub rank: RankId,
    /// The index that stands for the position in all members.
    pub index: IndexId,
    /// Members in the order in which they are computed at one position: iterative nodes, and the maps and
    /// reductions that lie on a cycle with them.
    pub members: Vec<NodeId>,
    /// If not empty, positions are taken in *chunks* of any size. Then these indices, over the same rank, run over the
    /// positions of the chunk only, and so does `index` in members that are not iterative; an iterative member's step
    /// leads from the start of a chunk, where it is [`Term::Old`], to its end, and is known at ends of chunks only.
    pub within: Vec<IndexId>,
}

/// `⊕ over (filter) body`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// With what.
    pub monoid: Monoid,
    /// Over which indices; none of them is an axis of the node.
    pub over: Vec<IndexId>,
    /// All of these must hold (a conjunction, split at `and`).
    pub filter: Vec<Term>,
    /// Of what.
    pub body: Term,
    /// How it streams with the other reductions over the same indices.
    pub streaming: Streaming,
}

/// How a reduction takes part in a traversal of the indices it reduces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Streaming {
    /// The traversal of these indices in which it is computed: 0 is the first. Reductions over the same indices at
    /// the same level share one traversal; one at a higher level needs values of lower ones *complete*.
    pub level: usize,
    /// Reductions of the same traversal whose *running* values `body` reads. Empty: it reads none.
    pub anchors: Vec<NodeId>,
    /// What the state so far is multiplied with (for sum) or shifted by (for max and min; `combine` tells) when the
    /// anchors move: a term in which [`Term::Old`] is an anchor's value before the chunk and [`Term::Read`] after it.
    pub repair: Option<Repair>,
}

/// Moves a state from the old anchors to the new: `state = state ∘ factor + plus`.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// `Mul` or `Add`, or an extremum, for what joins an extremum.
    pub combine: BinaryOp,
    /// The factor `ρ(old → new)`.
    pub factor: Term,
    /// What other states contribute: one row of the linear map by which a *vector* of states moves. It reads these
    /// states as [`Term::Old`]; they are among the anchors, and all anchors must then be running values of the same
    /// traversal, or all be complete.
    pub plus: Option<Term>,
    /// If given: where it does not hold the state falls back to the monoid's identity instead.
    pub keep_if: Option<Term>,
}

/// A scalar expression over nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A constant.
    Number(f64),
    /// A parameter of the cascade.
    Param(ParamId),
    /// A polynomial of sizes as a value.
    Size(SizeExpr),
    /// The position of an index as a value.
    Position(IndexId),
    /// An element of a node.
    Read(NodeId, Vec<IndexExpr>),
    /// In a [`Repair`]: an anchor's value before the current chunk. In a recurrence by chunks: an iterative member at
    /// the start of the current chunk, whatever stands at the iterative dimension.
    Old(NodeId, Vec<IndexExpr>),
    /// An argument of a user's monoid.
    Argument(u8),
    /// A function of one value.
    Unary(UnaryOp, Box<Term>),
    /// A function of two values.
    Binary(BinaryOp, Box<Term>, Box<Term>),
    /// `where(condition, then, otherwise)`.
    Select(Box<Term>, Box<Term>, Box<Term>),
}

impl std::ops::Index<NodeId> for Graph {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

impl Graph {
    /// All nodes' names.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The node that holds a tensor of the cascade.
    pub fn node_of(&self, tensor: TensorId) -> Option<NodeId> {
        self.ids().find(|&n| self[n].tensor == Some(tensor))
    }
}

impl Term {
    /// Calls `f` on every direct subterm.
    pub fn for_each_child<'a>(&'a self, f: &mut impl FnMut(&'a Term)) {
        match self {
            Term::Unary(_, x) => f(x),
            Term::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            Term::Select(c, a, b) => {
                f(c);
                f(a);
                f(b);
            }
            _ => {}
        }
    }

    /// The same term with every direct subterm replaced.
    pub fn map_children(&self, f: &mut impl FnMut(&Term) -> Term) -> Term {
        match self {
            Term::Unary(op, x) => Term::Unary(*op, Box::new(f(x))),
            Term::Binary(op, a, b) => Term::Binary(*op, Box::new(f(a)), Box::new(f(b))),
            Term::Select(c, a, b) => Term::Select(Box::new(f(c)), Box::new(f(a)), Box::new(f(b))),
            leaf => leaf.clone(),
        }
    }

    /// Calls `f` on this term and every term below it, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Term)) {
        fn go<'a>(t: &'a Term, f: &mut dyn FnMut(&'a Term)) {
            f(t);
            t.for_each_child(&mut |c| go(c, f));
        }
        go(self, f)
    }
}
