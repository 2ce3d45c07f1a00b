//! From the rewritten kernel and the chosen layouts to steps.

use super::{
    Access, Carried, Carrier, Contract, Ends, ExpressionPlan, FEW, Keep, Masks, Picked, Plan, Product, Step, Tile,
    Unit, Viewable, anchored, beside, kept, masks, piecewise, products, slots, split, sweep, tiles as unit_tiles,
    truths,
};
use crate::BuildError;
use einloom_tile::{
    AxisId, Coord, CoordAtom, Kernel, Op, Program, Scalar, TensorId, ValueDecl, ValueId, anchors, grid_steps, visits,
};
use std::collections::{BTreeMap, BTreeSet};

/// Plans `kernel`, whose values have the given inner axes, and which loads some of them again.
pub(super) fn lower(
    program: &Program,
    (kernel, again): (Kernel, BTreeSet<ValueId>),
    inner: &[Option<AxisId>],
    unit: Option<Unit>,
) -> Result<Plan, BuildError> {
    let parallel = !stores_meet(&kernel);
    let anchors = anchors(&kernel);
    let mut below = anchors.clone();
    beside::chosen(&kernel.body, &mut below);
    let tile = |(value, inner): (&ValueDecl, &Option<AxisId>)| Tile {
        outer: [value.rows, value.cols].into_iter().flatten().find(|a| Some(*a) != *inner),
        inner: *inner,
        dtype: value.dtype,
        carrier: Carrier::of(value.dtype),
        slot: usize::MAX,
    };
    let tiles = kernel.values.iter().zip(inner).map(tile).collect();
    let (exchanged, states) = (BTreeMap::new(), BTreeSet::new());
    let mut lower = Lower { program, kernel, again, tiles, exchanged, states };
    let body = std::mem::take(&mut lower.kernel.body);
    lower.find_exchanges(&body);
    lower.find_states(&body);
    let mut steps = vec![];
    lower.body(&body, &mut steps)?;
    beside::end(&mut steps, &below);
    let Lower { mut kernel, mut tiles, .. } = lower;
    products::absorb(&tiles, &mut steps, unit);
    sweep::join(program, &mut kernel, &mut tiles, &mut steps);
    super::again::leave_asking(&mut steps);
    let uses = super::uses(&tiles, &steps);
    truths::find(program, &tiles, &mut steps, &uses);
    kept::leave_terms(&tiles, &mut steps);
    kept::keep(program, &kernel, &tiles, &mut steps);
    if let Some(unit) = unit {
        unit_tiles::choose(program, (&kernel, &tiles), &mut steps, unit);
    }
    kept::leave_unpacked(&mut steps);
    let uses = super::uses(&tiles, &steps);
    anchored::find(&tiles, &anchors, &mut steps, &uses);
    piecewise::find(&tiles, &mut steps, &uses);
    masks::find(&tiles, &mut steps, &uses);
    let slots = slots::assign(&kernel, &mut tiles, &steps);
    anchored::check(&tiles, &mut steps);
    let visits = visits(&kernel);
    Ok(Plan { parallel, kernel, tiles, body: steps, slots, visits })
}

struct Lower<'a> {
    program: &'a Program,
    kernel: Kernel,
    /// Values that are loaded again.
    again: BTreeSet<ValueId>,
    tiles: Vec<Tile>,
    /// Values that are also needed with inner and outer axis exchanged, and what holds them then.
    exchanged: BTreeMap<ValueId, ValueId>,
    /// Values that take part in a stream's states: they must be in buffers.
    states: BTreeSet<ValueId>,
}

/// How an [`Op::Mma`] is to be computed.
struct Roles {
    left: ValueId,
    right: ValueId,
    sum: AxisId,
    product: Product,
    /// `right` is needed with its sides exchanged.
    exchange: bool,
}

impl Lower<'_> {
    fn tile(&self, v: ValueId) -> Tile {
        self.tiles[v.at()]
    }

    fn has(&self, v: ValueId, axis: Option<AxisId>) -> bool {
        let tile = self.tile(v);
        axis.is_some() && (tile.outer == axis || tile.inner == axis)
    }

    fn roles(&self, dst: ValueId, a: ValueId, b: ValueId) -> Option<Roles> {
        let tile = self.tile(dst);
        // `right` runs along the result's inner axis.
        let (left, right) = if self.has(a, tile.inner) { (b, a) } else { (a, b) };
        let sides = |v: ValueId| [self.tile(v).outer, self.tile(v).inner].into_iter().flatten();
        let sum = sides(a).find(|x| self.has(b, Some(*x)) && !self.has(dst, Some(*x)))?;
        let (l, r) = (self.tile(left), self.tile(right));
        // Without columns the terms are all that `right` has.
        let terms = r.inner == Some(sum) && (tile.inner.is_some() || r.outer.is_none());
        if !terms {
            return Some(Roles { left, right, sum, product: Product::Broadcast, exchange: false });
        }
        let rows = tile.outer.map_or(1, |axis| self.kernel.axis(axis).tile.min(self.kernel.axis(axis).extent));
        let dot = l.inner == Some(sum) && rows <= FEW || tile.inner.is_none();
        let product = if dot { Product::Dot } else { Product::Broadcast };
        Some(Roles { left, right, sum, product, exchange: !dot })
    }

    /// Declares the exchanged form of every value that some operation needs.
    fn find_exchanges(&mut self, body: &[Op]) {
        for op in body {
            match op {
                Op::Map { dst, expr } => self.exchange_leaves(*dst, expr),
                Op::Mma { dst, a, b, acc } => {
                    if let Some(Roles { right, exchange: true, .. }) = self.roles(*dst, *a, *b) {
                        self.exchange(right);
                    }
                    if let Some(acc) = acc {
                        self.match_layout(*dst, *acc);
                    }
                }
                Op::Stream { states, body, .. } => {
                    for state in states {
                        if let einloom_tile::Init::Value(init) = state.init {
                            self.match_layout(state.value, init);
                        }
                    }
                    self.find_exchanges(body);
                }
                _ => {}
            }
        }
    }

    fn exchange_leaves(&mut self, dst: ValueId, expr: &Scalar) {
        match expr {
            Scalar::Tile(leaf) => self.match_layout(dst, *leaf),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.exchange_leaves(dst, x),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.exchange_leaves(dst, e)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.exchange_leaves(dst, e)),
            _ => {}
        }
    }

    fn match_layout(&mut self, dst: ValueId, leaf: ValueId) {
        if self.tile(leaf).outer.is_some() && self.tile(leaf).inner != self.tile(dst).inner {
            self.exchange(leaf);
        }
    }

    fn exchange(&mut self, v: ValueId) {
        if self.exchanged.contains_key(&v) {
            return;
        }
        let (tile, decl) = (self.tile(v), self.kernel.value(v).clone());
        self.exchanged.insert(v, ValueId(self.tiles.len() as u32));
        self.tiles.push(Tile { outer: tile.inner, inner: tile.outer, ..tile });
        self.kernel.values.push(decl);
    }

    /// `v` in the layout of `dst`.
    fn like(&self, dst: ValueId, v: ValueId) -> ValueId {
        let same = self.tile(v).outer.is_none() || self.tile(v).inner == self.tile(dst).inner;
        if same { v } else { self.exchanged.get(&v).copied().unwrap_or(v) }
    }

    fn find_states(&mut self, body: &[Op]) {
        for op in body {
            if let Op::Stream { states, body, .. } = op {
                self.states.extend(states.iter().flat_map(|s| [s.value, s.next]));
                self.find_states(body);
            }
        }
    }

    fn body(&mut self, body: &[Op], out: &mut Vec<Step>) -> Result<(), BuildError> {
        for op in body {
            self.op(op, out)?;
            // Exchanged forms are made where the value is, so that they leave streams with it.
            match op {
                Op::Load { dst, .. }
                | Op::Map { dst, .. }
                | Op::Mma { dst, .. }
                | Op::Reduce { dst, .. }
                | Op::Pick { dst, .. } => {
                    self.relayout(*dst, out);
                }
                Op::Stream { states, .. } => states.iter().for_each(|s| self.relayout(s.value, out)),
                Op::Store { .. } | Op::SkipUnless { .. } => {}
            }
        }
        Ok(())
    }

    fn relayout(&self, v: ValueId, out: &mut Vec<Step>) {
        if let Some(&dst) = self.exchanged.get(&v) {
            out.push(Step::Relayout { dst, src: v });
        }
    }

    fn op(&mut self, op: &Op, out: &mut Vec<Step>) -> Result<(), BuildError> {
        match op {
            Op::Load { dst, tensor, at, fill } => {
                let access = Access::new(at, self.program.tensor(*tensor), self.tile(*dst), &self.tiles);
                let view = if self.is_viewable(*dst, *tensor) { Viewable::Near } else { Viewable::No };
                out.push(Step::Load {
                    dst: *dst,
                    tensor: *tensor,
                    access,
                    fill: *fill,
                    view,
                    ahead: false,
                    kept: Keep::No,
                    again: self.again.contains(dst),
                });
            }
            Op::Store { tensor, at, src } => {
                let access = Access::new(at, self.program.tensor(*tensor), self.tile(*src), &self.tiles);
                out.push(Step::Store { tensor: *tensor, access, src: *src });
            }
            Op::Map { dst, expr } => {
                let wide = split::is_wide(&self.kernel, *dst, expr);
                let expr = self.relaid(*dst, expr);
                let plan = ExpressionPlan::new(self.tile(*dst), &expr, wide, &self.tiles);
                out.push(Step::Map { dst: *dst, plan, ends: Ends::default() });
            }
            Op::Mma { dst, a, b, acc } => {
                let Some(Roles { left, right, sum, product, exchange }) = self.roles(*dst, *a, *b) else {
                    return Err(self.unsupported("a contraction without a summed axis"));
                };
                let right = if exchange { self.exchanged.get(&right).copied().unwrap_or(right) } else { right };
                let start = acc.map(|acc| self.like(*dst, acc));
                let dst = *dst;
                out.push(Step::Contract(Contract {
                    dst,
                    left,
                    right,
                    start,
                    sum,
                    product,
                    scale: None,
                    apart: false,
                    times: 1.0,
                    sides: None,
                    parts: None,
                    made: false,
                    fold: None,
                    anchored: None,
                    piecewise: false,
                    masks: Masks::default(),
                }));
            }
            Op::Reduce { dst, src, axis, monoid, acc } => {
                let (dst, src, axis, monoid, start) = (*dst, *src, *axis, monoid.clone(), *acc);
                out.push(Step::Reduce { dst, src, axis, monoid, start });
            }
            Op::Pick { dst, src, axis, at, fill } => {
                let along = (*axis, self.kernel.axis(*axis).extent);
                let picked = Picked::new(along, at, *fill, self.tile(*dst), &self.tiles);
                out.push(Step::Pick { dst: *dst, src: *src, picked });
            }
            Op::SkipUnless { any } => out.push(Step::SkipUnless { any: *any }),
            Op::Stream { axis, within, guards, states, body } => {
                let carried = states.iter().map(|s| {
                    let init = match &s.init {
                        einloom_tile::Init::Value(v) => einloom_tile::Init::Value(self.like(s.value, *v)),
                        constant => constant.clone(),
                    };
                    Carried { value: s.value, init, next: s.next }
                });
                let states_plan: Vec<Carried> = carried.collect();
                let mut steps = vec![];
                states.iter().for_each(|s| self.relayout(s.value, &mut steps));
                self.body(body, &mut steps)?;
                out.push(Step::Stream {
                    axis: *axis,
                    within: within.clone(),
                    guards: guards.clone(),
                    states: states_plan,
                    body: steps,
                });
            }
        }
        Ok(())
    }

    /// The expression with its leaves in the layout of `dst`.
    fn relaid(&self, dst: ValueId, expr: &Scalar) -> Scalar {
        let again = |e: &Scalar| Box::new(self.relaid(dst, e));
        match expr {
            Scalar::Tile(v) => Scalar::Tile(self.like(dst, *v)),
            Scalar::Round(d, x) => Scalar::Round(*d, again(x)),
            Scalar::Unary(op, x) => Scalar::Unary(*op, again(x)),
            Scalar::Binary(op, x, y) => Scalar::Binary(*op, again(x), again(y)),
            Scalar::Select(c, x, y) => Scalar::Select(again(c), again(x), again(y)),
            leaf => leaf.clone(),
        }
    }

    /// Whether the tensor's elements are the tile's: no conversion, and a buffer is not needed for other reasons.
    fn is_viewable(&self, v: ValueId, tensor: TensorId) -> bool {
        use einloom_cascade::DType::{F32, F64, I32};
        let dtype = self.program.tensor(tensor).dtype;
        dtype == self.tile(v).dtype && matches!(dtype, F32 | F64 | I32) && !self.states.contains(&v)
    }

    fn unsupported(&self, what: &str) -> BuildError {
        BuildError::Unsupported { kernel: self.kernel.name.clone(), what: what.to_string() }
    }
}

/// Whether a point of the grid may store where another does: each store is known not to race with itself, but not with another one to the same
/// tensor. They do not meet if along every axis of the grid that has several steps some dimension is that axis in all of them.
fn stores_meet(kernel: &Kernel) -> bool {
    fn collect<'k>(ops: &'k [Op], out: &mut BTreeMap<TensorId, Vec<&'k [Coord]>>) {
        for op in ops {
            match op {
                Op::Store { tensor, at, .. } => out.entry(*tensor).or_default().push(at),
                Op::Stream { body, .. } => collect(body, out),
                _ => {}
            }
        }
    }
    let mut stores = BTreeMap::new();
    collect(&kernel.body, &mut stores);
    let apart = |all: &[&[Coord]], axis: AxisId| {
        let own = |coord: &Coord| coord.terms.as_slice() == [(1, CoordAtom::Axis(axis))];
        let mut first = all[0].iter().enumerate().filter(|(_, c)| own(c));
        first.any(|(dim, coord)| all.iter().all(|at| at.get(dim) == Some(coord)))
    };
    let several = |axis: &&AxisId| grid_steps(kernel.axis(**axis)) > 1;
    stores.values().filter(|all| all.len() > 1).any(|all| !kernel.grid.iter().filter(several).all(|&a| apart(all, a)))
}
