//! Emission by demand: asking for a tile places it in the outermost loop in which all that it depends on is known, so
//! that loop-invariant work leaves loops by itself. Equal expressions are equal ids, so what two readers need is
//! computed once per place.

mod guards;
mod iterate;
mod lag;
mod load;
mod orient;
mod pick;
mod rounding;
mod store;
mod traverse;
mod update;
mod value;

use crate::PlanError;
use crate::cone::Cone;
use crate::expr::{ExprId, Exprs};
use crate::lower::LoweredCone;
use crate::problem::Problem;
use crate::tiling::Tiling;
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::{DType, IndexId};
use einloom_tile::{Axis, AxisId, AxisKind, Kernel, Op, ValueDecl, ValueId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Why a kernel cannot be emitted under a tiling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fail {
    /// A value would have more than two tiled axes.
    TooManyAxes {
        /// The tiled indices it carries.
        indices: BTreeSet<IndexId>,
        /// For each element it reads the tiled indices that it carries, in the order of its dimensions.
        leaves: Vec<Vec<IndexId>>,
    },
    /// No tiling helps.
    Unsupported(PlanError),
}

impl From<PlanError> for Fail {
    fn from(e: PlanError) -> Self {
        Self::Unsupported(e)
    }
}

/// The axes down and across.
type Sides = (Option<AxisId>, Option<AxisId>);

/// The kernel that computes a cone, whether it computes some reduction more often than once per element, and notes. Its
/// tensors are numbered by node; the caller renumbers them. With `lag`, anchors may lag behind (see [`lag`]).
#[allow(clippy::too_many_arguments)] // What one kernel depends on.
pub(crate) fn emit(
    p: &Problem,
    x: &mut Exprs,
    types: &mut Types,
    cone: &Cone,
    lowered: LoweredCone,
    tiling: &Tiling,
    name: &str,
    lag: bool,
) -> Result<(Kernel, bool, Vec<String>), Fail> {
    let kernel = Kernel { name: name.to_string(), ..Kernel::default() };
    let unguarded = load::unguarded(x, &lowered);
    let orient = orient::Orientation::new(p, x, cone, tiling);
    let mut e = Emitter {
        p,
        x,
        types,
        cone,
        l: lowered,
        tiling,
        unguarded,
        orient,
        kernel,
        scopes: vec![],
        stream_axes: BTreeMap::new(),
        finals: BTreeMap::new(),
        updates: BTreeMap::new(),
        behind: BTreeMap::new(),
        pending: vec![],
        updating: vec![],
        lag,
        notes: vec![],
    };
    e.open_kernel();
    e.iterate()?;
    e.store_roots()?;
    e.kernel.body = e.scopes.pop().map(|s| s.ops).unwrap_or_default();
    let repeats = e.repeats();
    Ok((e.kernel, repeats, e.notes))
}

struct Emitter<'a> {
    p: &'a Problem,
    x: &'a mut Exprs,
    types: &'a mut Types,
    cone: &'a Cone,
    l: LoweredCone,
    tiling: &'a Tiling,
    /// Reads that happen whatever the conditions around them say.
    unguarded: BTreeSet<ExprId>,
    orient: orient::Orientation,
    kernel: Kernel,
    /// The kernel's body and the open streams, outermost first.
    scopes: Vec<Scope>,
    /// Stream axes made so far, by index.
    stream_axes: BTreeMap<IndexId, Vec<AxisId>>,
    /// Iterative tensors after their loop.
    finals: BTreeMap<NodeId, ValueId>,
    /// At how many places each reduction is computed.
    updates: BTreeMap<NodeId, usize>,
    /// Old values of anchors where states are moved after their stream.
    behind: BTreeMap<NodeId, ValueId>,
    /// Reductions whose loops are being made: what needs them complete joins no loop that they wait for.
    pending: Vec<NodeId>,
    /// Reductions whose chunks are being made: none can be part of its own.
    updating: Vec<NodeId>,
    /// Whether anchors may lag behind, and chunks are best left out before anything of them is copied.
    lag: bool,
    /// Which conditions leave no chunks out by intervals, and why.
    notes: Vec<String>,
}

/// A list of operations under construction.
#[derive(Default)]
struct Scope {
    ops: Vec<Op>,
    bindings: BTreeMap<IndexId, AxisId>,
    /// Tiles that exist, by expression and shape.
    memo: FxHashMap<(ExprId, Sides), ValueId>,
    /// The reductions whose chunk is computed here, and the iterative tensors whose step is.
    running: BTreeMap<NodeId, Running>,
}

/// A state: its value before the chunk, and after it once that is computed.
struct Running {
    old: ValueId,
    new: Option<ValueId>,
    /// If its readers use an older value: that one.
    lag: Option<Lagging>,
    /// If they need the complete one, which an earlier loop has computed, and only repairs the running one.
    complete: Option<ValueId>,
}

/// The value that stands for a running one: before the chunk, and after it once that is known.
#[derive(Clone, Copy)]
struct Lagging {
    old: ValueId,
    new: Option<ValueId>,
    of: lag::Lag,
}

impl Emitter<'_> {
    fn open_kernel(&mut self) {
        let mut scope = Scope::default();
        for &i in &self.tiling.grid {
            let axis = self.new_axis(i, AxisKind::Grid);
            self.kernel.grid.push(axis);
            scope.bindings.insert(i, axis);
        }
        let whole = self.tiling.cuts.iter().filter(|c| c.1.kind == AxisKind::Whole);
        for i in whole.map(|c| *c.0).collect::<Vec<_>>() {
            let axis = self.new_axis(i, AxisKind::Whole);
            scope.bindings.insert(i, axis);
        }
        self.scopes.push(scope);
    }

    fn repeats(&mut self) -> bool {
        let places = std::mem::take(&mut self.updates);
        places.into_iter().any(|(n, places)| {
            let read = self.x.plain(n, &self.p[n].axes);
            let free = &self.l.facts.of(self.p, self.x, read).free;
            let idle = |i: &&IndexId| !free.contains(i) && self.tiling.cuts[i].tile < self.p[**i].extent;
            places > 1 || self.tiling.grid.iter().any(|i| idle(&i))
        })
    }

    fn new_axis(&mut self, i: IndexId, kind: AxisKind) -> AxisId {
        let tile = self.tiling.cuts.get(&i).map_or(1, |c| c.tile.max(1));
        let index = &self.p[i];
        self.kernel.axes.push(Axis { name: index.name.clone(), extent: index.extent, tile, kind });
        AxisId(self.kernel.axes.len() as u32 - 1)
    }

    /// A stream axis of the index over which no stream is open here.
    fn stream_axis(&mut self, i: IndexId) -> AxisId {
        let open = |a: &AxisId| self.scopes.iter().any(|s| s.bindings.values().any(|b| b == a));
        if let Some(axes) = self.stream_axes.get(&i)
            && let Some(&free) = axes.iter().find(|a| !open(a))
        {
            return free;
        }
        let axis = self.new_axis(i, AxisKind::Stream);
        self.stream_axes.entry(i).or_default().push(axis);
        axis
    }

    fn new_value(&mut self, name: String, sides: Sides, dtype: DType) -> ValueId {
        self.kernel.values.push(ValueDecl { name, rows: sides.0, cols: sides.1, dtype });
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    fn push(&mut self, op: Op) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.ops.push(op);
        }
    }

    /// The innermost scope in which the index has a window, and its axis.
    fn binding(&self, i: IndexId) -> Result<(usize, AxisId), Fail> {
        let found = self.scopes.iter().enumerate().rev().find_map(|(k, s)| s.bindings.get(&i).map(|&a| (k, a)));
        found.ok_or_else(|| {
            let reason = "it is needed where no loop gives it a position";
            PlanError::unsupported(&self.p[i].name, reason).into()
        })
    }

    fn axis_of(&self, i: IndexId) -> Result<AxisId, Fail> {
        Ok(self.binding(i)?.1)
    }

    /// The outermost scope in which an expression can be computed.
    fn depth(&mut self, e: ExprId) -> Result<usize, Fail> {
        let fact = self.l.facts.of(self.p, self.x, e);
        let mut depth = 0;
        for &i in &fact.free {
            depth = depth.max(self.binding(i)?.0);
        }
        for (k, scope) in self.scopes.iter().enumerate() {
            for &n in scope.running.keys().filter(|n| fact.reach.contains(n)) {
                self.in_own_loop(n, k)?;
                depth = depth.max(k);
            }
        }
        Ok(depth)
    }

    /// Runs `f` with the scopes up to `depth` only.
    fn at_depth<T>(&mut self, depth: usize, f: impl FnOnce(&mut Self) -> Result<T, Fail>) -> Result<T, Fail> {
        let inner = self.scopes.split_off(depth + 1);
        let result = f(self);
        self.scopes.extend(inner);
        result
    }

    fn tiled(&self, indices: &BTreeSet<IndexId>) -> BTreeSet<IndexId> {
        indices.iter().copied().filter(|&i| self.tiling.tiled(i)).collect()
    }
}
