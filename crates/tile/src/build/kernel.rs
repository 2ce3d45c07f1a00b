//! Builds one kernel.

use crate::{
    Axis, AxisId, AxisKind, Coord, CoordAtom, Defect, Init, Kernel, Op, Predicate, Scalar, State, TensorDecl, TensorId,
    TileMonoid, ValueDecl, ValueId,
};
use einloom_cascade::{BinaryOp, DType, UnaryOp};

/// Builds one kernel. Operations are executed in the order in which they are added.
#[derive(Debug)]
pub struct KernelBuilder<'a> {
    tensors: &'a [TensorDecl],
    kernel: Kernel,
    /// The bodies of the streams being built, innermost last; the first is the kernel's own.
    open: Vec<Vec<Op>>,
    defects: Vec<Defect>,
}

/// A state to be carried by a stream: see [`carry`] and [`carry_from`].
#[derive(Clone, Debug)]
pub struct Carry {
    name: String,
    axes: Vec<AxisId>,
    dtype: Option<DType>,
    init: Init,
}

/// A state over `axes` that starts as `init` everywhere. It is f32 unless [`Carry::typed`] says otherwise.
pub fn carry(name: impl Into<String>, axes: impl IntoIterator<Item = AxisId>, init: f64) -> Carry {
    let axes = axes.into_iter().collect();
    Carry { name: name.into(), axes, dtype: Some(DType::F32), init: Init::Const(init) }
}

/// A state that starts as a tile, with its axes and number type.
pub fn carry_from(name: impl Into<String>, start: ValueId) -> Carry {
    Carry { name: name.into(), axes: vec![], dtype: None, init: Init::Value(start) }
}

impl Carry {
    /// With this number type.
    pub fn typed(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }
}

impl<'a> KernelBuilder<'a> {
    pub(super) fn new(tensors: &'a [TensorDecl], kernel: Kernel) -> Self {
        Self { tensors, kernel, open: vec![vec![]], defects: vec![] }
    }

    pub(super) fn finish(mut self) -> (Kernel, Vec<Defect>) {
        self.kernel.body = self.open.swap_remove(0);
        (self.kernel, self.defects)
    }

    /// Says what the kernel computes, for people.
    pub fn comment(&mut self, text: impl Into<String>) {
        self.kernel.comments.push(text.into());
    }

    /// An axis of the grid, inside those declared before it.
    pub fn grid(&mut self, name: impl Into<String>, extent: usize, tile: usize) -> AxisId {
        let id = self.axis(Axis { name: name.into(), extent, tile, kind: AxisKind::Grid });
        self.kernel.grid.push(id);
        id
    }

    /// An axis for [`Self::stream`].
    pub fn stream_axis(&mut self, name: impl Into<String>, extent: usize, tile: usize) -> AxisId {
        self.axis(Axis { name: name.into(), extent, tile, kind: AxisKind::Stream })
    }

    /// An axis that every tile takes whole.
    pub fn whole(&mut self, name: impl Into<String>, extent: usize) -> AxisId {
        self.axis(Axis { name: name.into(), extent, tile: extent.max(1), kind: AxisKind::Whole })
    }

    fn axis(&mut self, axis: Axis) -> AxisId {
        self.kernel.axes.push(axis);
        AxisId(self.kernel.axes.len() as u32 - 1)
    }

    /// Declares a tile; an operation given to [`Self::push`] must write it.
    pub fn value(&mut self, name: impl Into<String>, axes: &[AxisId], dtype: DType) -> ValueId {
        let name = name.into();
        if axes.len() > 2 {
            self.defect(format!("tile `{name}` would have {} axes; a tile has at most two", axes.len()));
        }
        let (rows, cols) = (axes.first().copied(), axes.get(1).copied());
        self.kernel.values.push(ValueDecl { name, rows, cols, dtype });
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    /// Adds an operation as it is.
    pub fn push(&mut self, op: Op) {
        if let Some(body) = self.open.last_mut() {
            body.push(op);
        }
    }

    /// `tensor[at]` as a tile of the tensor's number type. Its axes are those of the coordinates that may have
    /// more than one position (and those of gathered tiles), in order of appearance.
    pub fn load<C: Into<Coord>>(
        &mut self,
        name: impl Into<String>,
        tensor: TensorId,
        at: impl IntoIterator<Item = C>,
    ) -> ValueId {
        self.load_with(name, tensor, at, None)
    }

    /// As [`Self::load`]; elements outside the tensor are `fill`.
    pub fn load_or<C: Into<Coord>>(
        &mut self,
        name: impl Into<String>,
        tensor: TensorId,
        at: impl IntoIterator<Item = C>,
        fill: f64,
    ) -> ValueId {
        self.load_with(name, tensor, at, Some(fill))
    }

    fn load_with<C: Into<Coord>>(
        &mut self,
        name: impl Into<String>,
        tensor: TensorId,
        at: impl IntoIterator<Item = C>,
        fill: Option<f64>,
    ) -> ValueId {
        let at: Vec<Coord> = at.into_iter().map(Into::into).collect();
        let mut axes = vec![];
        at.iter().for_each(|coord| self.coord_axes(coord, &mut axes));
        let dtype = self.tensors.get(tensor.at()).map_or(DType::F32, |t| t.dtype);
        let dst = self.value(name, &axes, dtype);
        self.push(Op::Load { dst, tensor, at, fill });
        dst
    }

    /// `tensor[at] = element`, rounded to the tensor's number type. An expression becomes a tile first.
    pub fn store<C: Into<Coord>>(
        &mut self,
        tensor: TensorId,
        at: impl IntoIterator<Item = C>,
        element: impl Into<Scalar>,
    ) {
        let src = match element.into() {
            Scalar::Tile(tile) => tile,
            expr => {
                let name = self.tensors.get(tensor.at()).map_or_else(String::new, |t| t.name.to_lowercase());
                self.map(name, expr)
            }
        };
        let at = at.into_iter().map(Into::into).collect();
        self.push(Op::Store { tensor, at, src });
    }

    /// A tile computed elementwise. Its axes are its leaves' axes, the widest leaf's first. Its number type is that
    /// of an outermost [`Scalar::round_to`], b1 for a condition, f64 if a leaf is f64, else f32.
    pub fn map(&mut self, name: impl Into<String>, expr: impl Into<Scalar>) -> ValueId {
        let expr = expr.into();
        let mut shapes = vec![];
        self.leaf_shapes(&expr, &mut shapes);
        // Stable: among equals the first leaf decides.
        shapes.sort_by_key(|s| std::cmp::Reverse(s.len()));
        let mut axes = vec![];
        for axis in shapes.into_iter().flatten() {
            if !axes.contains(&axis) {
                axes.push(axis);
            }
        }
        self.map_over(name, &axes, expr)
    }

    /// As [`Self::map`], with these axes, for a tile that is wider than its leaves.
    pub fn map_over(&mut self, name: impl Into<String>, axes: &[AxisId], expr: impl Into<Scalar>) -> ValueId {
        let (dtype, expr) = match expr.into() {
            Scalar::Round(dtype, inner) => (dtype, *inner),
            expr if is_condition(&expr) => (DType::B1, expr),
            expr => (if self.has_f64(&expr) { DType::F64 } else { DType::F32 }, expr),
        };
        let dst = self.value(name, axes, dtype);
        self.push(Op::Map { dst, expr });
        dst
    }

    /// `Σ_k a·b`, `k` being the axis that they share. Rows are `a`'s other axis, columns `b`'s.
    pub fn mma(&mut self, name: impl Into<String>, a: ValueId, b: ValueId) -> ValueId {
        let (left, right) = (self.axes(a), self.axes(b));
        let free = |x: &[AxisId], y: &[AxisId]| x.iter().copied().filter(|s| !y.contains(s)).collect::<Vec<_>>();
        let mut sides = [free(&left, &right), free(&right, &left)];
        // A row vector times a matrix is a row vector.
        if sides[0].is_empty() {
            sides.swap(0, 1);
        }
        let dtype = self.product_dtype(a, b);
        let dst = self.value(name, &sides.concat(), dtype);
        self.push(Op::Mma { dst, a, b, acc: None });
        dst
    }

    /// `acc + Σ_k a·b`, with `acc`'s axes.
    pub fn mma_onto(&mut self, name: impl Into<String>, acc: impl Into<Scalar>, a: ValueId, b: ValueId) -> ValueId {
        let acc = self.tile(acc);
        let dtype = self.product_dtype(a, b);
        let axes = self.axes(acc);
        let dst = self.value(name, &axes, dtype);
        self.push(Op::Mma { dst, a, b, acc: Some(acc) });
        dst
    }

    /// `⊕_axis src`, with `src`'s number type if it is wider than f32.
    pub fn reduce(&mut self, name: impl Into<String>, monoid: TileMonoid, src: ValueId, axis: AxisId) -> ValueId {
        self.reduce_with(name.into(), monoid, src, axis, None)
    }

    /// `acc ⊕ ⊕_axis src`.
    pub fn reduce_onto(
        &mut self,
        name: impl Into<String>,
        monoid: TileMonoid,
        acc: impl Into<Scalar>,
        src: ValueId,
        axis: AxisId,
    ) -> ValueId {
        let acc = self.tile(acc);
        self.reduce_with(name.into(), monoid, src, axis, Some(acc))
    }

    fn reduce_with(
        &mut self,
        name: String,
        monoid: TileMonoid,
        src: ValueId,
        axis: AxisId,
        acc: Option<ValueId>,
    ) -> ValueId {
        let mut axes = self.axes(src);
        axes.retain(|&a| a != axis);
        let dtype = match self.dtype(src) {
            wide @ (DType::F64 | DType::I32) => wide,
            _ => DType::F32,
        };
        let dst = self.value(name, &axes, dtype);
        self.push(Op::Reduce { dst, src, axis, monoid, acc });
        dst
    }

    /// The elements of `src` at the positions `at` along `axis`, `fill` where there are none: a tile with these axes.
    pub fn pick(
        &mut self,
        name: impl Into<String>,
        axes: &[AxisId],
        src: ValueId,
        axis: AxisId,
        at: impl Into<Coord>,
        fill: f64,
    ) -> ValueId {
        let dtype = self.dtype(src);
        let dst = self.value(name, axes, dtype);
        self.push(Op::Pick { dst, src, axis, at: at.into(), fill });
        dst
    }

    /// Streams over `axis` where `within` holds. `body` gets the states as they are before a chunk and gives them as
    /// they are after it; the result is the states after the last chunk.
    pub fn stream<const N: usize>(
        &mut self,
        axis: AxisId,
        within: Predicate,
        carries: [Carry; N],
        body: impl FnOnce(&mut Self, [ValueId; N]) -> [ValueId; N],
    ) -> [ValueId; N] {
        let inits = carries.each_ref().map(|c| c.init.clone());
        let values = carries.map(|c| {
            let (axes, dtype) = match c.init {
                Init::Value(start) => (self.axes(start), c.dtype.unwrap_or(self.dtype(start))),
                Init::Const(_) => (c.axes, c.dtype.unwrap_or(DType::F32)),
            };
            self.value(c.name, &axes, dtype)
        });
        self.open.push(vec![]);
        let next = body(self, values);
        let body = self.open.pop().unwrap_or_default();
        let states = inits.into_iter().zip(values).zip(next);
        let states = states.map(|((init, value), next)| State { value, init, next }).collect();
        self.push(Op::Stream { axis, within, guards: vec![], states, body });
        values
    }

    /// Goes on with the stream's next chunk unless some element of the b1 tile `any` holds.
    pub fn skip_unless(&mut self, any: impl Into<Scalar>) {
        let any = self.tile(any);
        self.push(Op::SkipUnless { any });
    }

    /// The element's tile, made if it is not one yet.
    fn tile(&mut self, element: impl Into<Scalar>) -> ValueId {
        match element.into() {
            Scalar::Tile(tile) => tile,
            expr => self.map("", expr),
        }
    }

    fn axes(&self, value: ValueId) -> Vec<AxisId> {
        let decl = self.kernel.values.get(value.at());
        decl.into_iter().flat_map(|v| [v.rows, v.cols]).flatten().collect()
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.kernel.values.get(value.at()).map_or(DType::F32, |v| v.dtype)
    }

    /// What products and sums are computed in: see [`Op::Mma`].
    fn product_dtype(&self, a: ValueId, b: ValueId) -> DType {
        match (self.dtype(a), self.dtype(b)) {
            (a, b) if a.is_integer() && b.is_integer() => DType::I32,
            (DType::F64, _) | (_, DType::F64) => DType::F64,
            _ => DType::F32,
        }
    }

    fn coord_axes(&self, coord: &Coord, axes: &mut Vec<AxisId>) {
        for (_, atom) in &coord.terms {
            match atom {
                CoordAtom::Axis(a) if !self.moves_by_one(*a) => add(axes, [*a]),
                CoordAtom::Axis(_) => {}
                CoordAtom::Floor(numerator, _) => self.coord_axes(numerator, axes),
                CoordAtom::Tile(ids) => add(axes, self.axes(*ids)),
            }
        }
    }

    /// The axes of every leaf that has some.
    fn leaf_shapes(&self, expr: &Scalar, shapes: &mut Vec<Vec<AxisId>>) {
        match expr {
            Scalar::Const(_) | Scalar::Argument(_) => {}
            Scalar::Tile(v) => shapes.push(self.axes(*v)),
            Scalar::Position(a) if !self.moves_by_one(*a) => shapes.push(vec![*a]),
            Scalar::Position(_) => {}
            Scalar::Within(p) => {
                let mut axes = vec![];
                add(&mut axes, p.all.iter().flat_map(|e| &e.terms).map(|t| t.1).filter(|&a| !self.moves_by_one(a)));
                shapes.push(axes);
            }
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.leaf_shapes(x, shapes),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.leaf_shapes(e, shapes)),
            Scalar::Select(c, x, y) => [x, y, c].into_iter().for_each(|e| self.leaf_shapes(e, shapes)),
        }
    }

    fn has_f64(&self, expr: &Scalar) -> bool {
        match expr {
            Scalar::Tile(v) => self.dtype(*v) == DType::F64,
            Scalar::Unary(_, x) => self.has_f64(x),
            Scalar::Binary(_, x, y) | Scalar::Select(_, x, y) => self.has_f64(x) || self.has_f64(y),
            _ => false,
        }
    }

    /// Whether the axis's window is one position by declaration, so that it makes no side of a tile.
    fn moves_by_one(&self, id: AxisId) -> bool {
        self.kernel.axes.get(id.at()).is_some_and(|a| a.tile == 1 && a.kind != AxisKind::Whole)
    }

    fn defect(&mut self, message: String) {
        self.defects.push(Defect { kernel: self.kernel.name.clone(), op: vec![], message });
    }
}

fn add(axes: &mut Vec<AxisId>, more: impl IntoIterator<Item = AxisId>) {
    for axis in more {
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
}

fn is_condition(expr: &Scalar) -> bool {
    match expr {
        Scalar::Within(_) | Scalar::Unary(UnaryOp::Not, _) => true,
        Scalar::Binary(op, ..) => op.is_predicate() && !matches!(op, BinaryOp::Min | BinaryOp::Max),
        _ => false,
    }
}
