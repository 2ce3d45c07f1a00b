//! From tile programs to plans: everything about a kernel that does not depend on data or on where its windows stand.
//!
//! A value's sides are named by axes, so that "rows" and "columns" mean nothing to a plan: it has an *inner* axis, whose
//! elements are adjacent in memory, and an *outer* one. Which is which is chosen per value ([`layout`]).

mod access;
mod again;
mod anchored;
mod beside;
mod differences;
mod expression;
mod kept;
mod layout;
mod lower;
mod masks;

mod piecewise;
mod products;
mod reuse;
mod selected;
mod simplify;
mod slots;
mod split;
mod sweep;
mod tiles;
mod truths;
mod twice;

pub(crate) use access::{Access, Dimension, Picked};
pub(crate) use anchored::{Anchored, summed};
pub(crate) use differences::Differences;
pub(crate) use expression::{ElementKind, ExpressionPlan, Leaf, Strips};
pub(crate) use masks::Masks;
pub(crate) use tiles::{Rates, Unit};

use crate::BuildError;
use crate::kernels::fold::Monoid;
use einloom_cascade::DType;
use einloom_tile::{AxisId, Guard, Init, Kernel, Predicate, Program, TensorId, TileMonoid, ValueId, Visit};
use std::collections::BTreeSet;

/// How a tile's elements are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// f32 and all narrower floating-point types, and truth values (1 and 0).
    F32,
    /// f64.
    F64,
    /// Every integer type.
    I32,
}

impl Carrier {
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::F64,
            d if d.is_integer() => Self::I32,
            _ => Self::F32,
        }
    }

    /// Bytes per element.
    pub(crate) fn bytes(self) -> usize {
        if self == Self::F64 { 8 } else { 4 }
    }
}

/// A tile of a planned kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    /// The axis between whose elements the pitch lies. `None` unless the tile has two axes.
    pub outer: Option<AxisId>,
    /// The axis whose elements are adjacent.
    pub inner: Option<AxisId>,
    pub dtype: DType,
    pub carrier: Carrier,
    /// The buffer that holds it, unless it is a view of a tensor.
    pub slot: usize,
}

/// A stream's state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Carried {
    pub value: ValueId,
    pub init: Init,
    pub next: ValueId,
}

/// How a contraction is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// The columns of `right` are adjacent: sums of broadcast elements of `left` times rows of `right`.
    Broadcast,
    /// The terms of both factors are adjacent.
    Dot,
}

/// Whether a loaded tile's elements may stay where they are, if those of a row are adjacent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Viewable {
    /// They are moved.
    No,
    /// They may, unless its rows compete for the same lines of the cache.
    Near,
    /// They may, also where whole rows follow each other: nothing goes down its columns.
    Rows,
    /// They may, unless its rows compete for the second-level cache: contractions broadcast them one after the other.
    Terms,
    /// They may although they are of a narrower type: what reads them converts each strip.
    Encoded,
    /// They may, of f32 or bf16: contractions that the processor's matrix unit computes pack each of them once.
    Once,
    /// They may: a contraction adds each of them once, block by block, and asks for the next block's.
    Added,
    /// They are truth values, and become bits.
    Bits,
    /// They are packed in so many parts, of f32 or bf16: contractions of an inner stream, which the processor's matrix unit
    /// computes, would pack each of them many times as their left factor.
    Left(usize),
}

/// Whether a loaded tile is the same at the next points of the grid and had better be kept for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is not.
    No,
    /// Row after row.
    Rows,
    /// In panels: nothing reads it but contractions, as their right factor.
    Panels,
    /// It need not be kept, as it may stay where it is; but the processor's matrix unit, if it computes the contractions
    /// whose right factor it is, would pack it again and again.
    Unpacked,
    /// Packed for the processor's matrix unit, in so many parts: nothing reads it but contractions that it computes, as
    /// their right factor.
    Packed(u8),
}

/// What else becomes of a map's elements, strip by strip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub folds: Vec<Fold>,
    /// Where the rows go, the elements of each adjacent.
    pub store: Option<(TensorId, Access)>,
    /// Nothing else reads them: there is no tile.
    pub dropped: bool,
    /// Where the map only copies this tile, the contraction that gives it has reduced it already.
    pub passed: Option<ValueId>,
    /// The tile is packed for the processor's matrix unit, in so many parts of bf16: nothing reads it but a contraction, as
    /// its left factor.
    pub packed: Option<usize>,
    /// What is read next is asked for by a later map.
    pub waits: bool,
    /// The tile is truth values, as bits.
    pub bits: bool,
}

impl Ends {
    /// Whether the tile is all that is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.folds.is_empty() && self.store.is_none()
    }
}

/// A reduction along the rows of a map, `dst = start ⊕ ⊕ row`, or across them, into one result per column.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub dst: ValueId,
    pub monoid: Monoid,
    pub start: Option<ValueId>,
    /// Across the rows.
    pub across: bool,
}

/// A reduction of what a contraction gives.
#[derive(Clone, Debug)]
pub(crate) struct Passing {
    pub fold: Fold,
    /// What its results are multiplied by: a number that is not negative, so that the largest stays the largest.
    pub times: f32,
    /// A map follows that reduces what it makes of the elements. It is left out where it leaves them as they are, or leaves
    /// some and makes of the others what changes nothing; elsewhere this reduction is.
    pub unless: Option<ExpressionPlan>,
    /// Nothing reads the elements of which that map makes a number.
    pub only: bool,
}

/// `dst = (start · scale + Σ left · right) · times`, or `start + (Σ left · right) · times` if that is `apart`; all of one
/// carrier. `right` carries `dst`'s inner axis, `left` its outer one.
#[derive(Clone, Debug)]
pub(crate) struct Contract {
    pub dst: ValueId,
    pub left: ValueId,
    pub right: ValueId,
    pub start: Option<ValueId>,
    /// The axis that is summed over.
    pub sum: AxisId,
    pub product: Product,
    /// What the start is multiplied by, and how that varies: not with both axes.
    pub scale: Option<(ValueId, ElementKind)>,
    /// The start is added to the product of the sums and `times`.
    pub apart: bool,
    /// What the result is multiplied by.
    pub times: f32,
    /// Numbers of rows or of columns that are added after that, and only without a start. Most contractions have none.
    pub sides: Option<Box<[Option<Side>; 2]>>,
    /// How many numbers of bf16 the elements of the factors are the sums of, if the processor's matrix unit computes it.
    pub parts: Option<[usize; 2]>,
    /// The map just before makes the left factor, which nothing else reads, and may do so while the unit multiplies.
    pub made: bool,
    /// A reduction along the rows of the result, which sees them on their way to it.
    pub fold: Option<Passing>,
    /// Nothing is wanted of the result but exponentials, which may be made at once.
    pub anchored: Option<Anchored>,
    /// Nothing is wanted of the result but what the map that follows makes of each element and packs.
    pub piecewise: bool,
    /// What need not be multiplied.
    pub masks: Masks,
}

impl Contract {
    /// What is added in the end, in that order.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.sides.iter().flat_map(|sides| sides.iter().flatten())
    }
}

/// Numbers that a contraction adds to all of a row or of a column, or subtracts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Side {
    pub of: ValueId,
    /// How they vary: not with both axes.
    pub kind: ElementKind,
    pub negated: bool,
}

/// One operation of a planned kernel.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Load {
        dst: ValueId,
        tensor: TensorId,
        access: Access,
        fill: Option<f64>,
        view: Viewable,
        /// A contraction of the same stream may copy the next chunk's tile in passing.
        ahead: bool,
        /// The tile is the same at the next points of the grid: it is kept for them.
        kept: Keep,
        /// Another load of the same elements is counted.
        again: bool,
    },
    Store {
        tensor: TensorId,
        access: Access,
        src: ValueId,
    },
    Map {
        dst: ValueId,
        plan: ExpressionPlan,
        ends: Ends,
    },
    /// The same elements with inner and outer axis exchanged.
    Relayout {
        dst: ValueId,
        src: ValueId,
    },
    Contract(Contract),
    Reduce {
        dst: ValueId,
        src: ValueId,
        axis: AxisId,
        monoid: TileMonoid,
        start: Option<ValueId>,
    },
    Pick {
        dst: ValueId,
        src: ValueId,
        picked: Picked,
    },
    Stream {
        axis: AxisId,
        within: Predicate,
        guards: Vec<Guard>,
        states: Vec<Carried>,
        body: Vec<Step>,
    },
    SkipUnless {
        any: ValueId,
    },
}

impl Step {
    /// The tensor that the step itself writes, if it does.
    pub(crate) fn stores_to(&self) -> Option<TensorId> {
        match self {
            Self::Store { tensor, .. } => Some(*tensor),
            Self::Map { ends, .. } => ends.store.as_ref().map(|(tensor, _)| *tensor),
            _ => None,
        }
    }
}

/// The tiles that a step itself reads, each once unless it reads it as different operands.
fn reads(step: &Step) -> Vec<ValueId> {
    match step {
        Step::Load { access, .. } => access.tiles.clone(),
        Step::Store { access, src, .. } => access.tiles.iter().copied().chain([*src]).collect(),
        Step::Map { plan, ends, .. } => {
            let leaves = plan.variants.iter().flat_map(|v| &v.leaves);
            let tiles = leaves.filter_map(|l| if let Leaf::Tile(v, _) = l { Some(*v) } else { None });
            let starts = ends.folds.iter().filter_map(|f| f.start);
            let coordinates = ends.store.iter().flat_map(|(_, access)| access.tiles.iter().copied());
            tiles.collect::<BTreeSet<_>>().into_iter().chain(starts).chain(coordinates).collect()
        }
        Step::Relayout { src, .. } => vec![*src],
        Step::Contract(c) => {
            let start = c.fold.as_ref().and_then(|p| p.fold.start);
            [c.left, c.right]
                .into_iter()
                .chain(c.start)
                .chain(c.scale.map(|(v, _)| v))
                .chain(c.sides().map(|s| s.of))
                .chain(start)
                .collect()
        }
        Step::Reduce { src, start, .. } => [*src].into_iter().chain(*start).collect(),
        Step::Pick { src, picked, .. } => picked.tiles.iter().copied().chain([*src]).collect(),
        Step::Stream { states, .. } => {
            let init = |s: &Carried| if let Init::Value(v) = s.init { Some(v) } else { None };
            states.iter().filter_map(init).collect()
        }
        Step::SkipUnless { any } => vec![*any],
    }
}

/// How often every tile is read, streams' states included.
fn uses(tiles: &[Tile], steps: &[Step]) -> Vec<usize> {
    let mut out = vec![0; tiles.len()];
    each_step(steps, &mut |step| {
        reads(step).iter().for_each(|v| out[v.at()] += 1);
        if let Step::Stream { states, .. } = step {
            states.iter().for_each(|s| [s.value, s.next].iter().for_each(|v| out[v.at()] += 1));
        }
    });
    out
}

/// The tiles that a step itself writes.
fn writes(step: &Step) -> Vec<ValueId> {
    match step {
        Step::Map { dst, ends, .. } => {
            let tile = (!ends.dropped).then_some(*dst);
            tile.into_iter().chain(ends.folds.iter().map(|f| f.dst)).collect()
        }
        Step::Load { dst, .. } | Step::Relayout { dst, .. } | Step::Reduce { dst, .. } | Step::Pick { dst, .. } => {
            vec![*dst]
        }
        Step::Contract(c) => [c.dst].into_iter().chain(c.fold.as_ref().map(|p| p.fold.dst)).collect(),
        Step::Store { .. } | Step::Stream { .. } | Step::SkipUnless { .. } => vec![],
    }
}

/// Calls `f` with every step, those of streams included.
pub(crate) fn each_step<'a>(steps: &'a [Step], f: &mut impl FnMut(&'a Step)) {
    for step in steps {
        f(step);
        if let Step::Stream { body, .. } = step {
            each_step(body, f);
        }
    }
}

/// A kernel ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The kernel with the values that planning added; its body is no longer used.
    pub kernel: Kernel,
    /// One per value of `kernel`.
    pub tiles: Vec<Tile>,
    pub body: Vec<Step>,
    /// Number of buffers that `tiles` name.
    pub slots: usize,
    /// The axes of the grid on the way through its points.
    pub visits: Vec<Visit>,
    /// Whether points of the grid may run at the same time.
    pub parallel: bool,
}

/// Plans one kernel of a verified program, for a processor that has a matrix unit or none.
pub(crate) fn compile(program: &Program, kernel: &Kernel, unit: Option<Unit>) -> Result<Plan, BuildError> {
    let mut kernel = kernel.clone();
    reuse::reuse(program, &mut kernel);
    selected::rewrite(&mut kernel);
    let again = twice::split(program, &mut kernel);
    let kernel = split::split(&kernel);
    let inner = layout::choose(program, &kernel, unit);
    lower::lower(program, (kernel, again), &inner, unit)
}

/// Results with at most this many rows are computed row by row rather than by rearranging a factor.
const FEW: usize = 4;

#[cfg(test)]
mod tests;
