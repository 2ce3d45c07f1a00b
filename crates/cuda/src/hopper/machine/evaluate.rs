//! Single operations of a tile program on tiles of f64, rounded where tiles and tensors have a number type: what every
//! executor of this crate that runs on the CPU computes with.

use super::contract::{Matrix, contract};
use einloom_cascade::numeric::round;
use einloom_cascade::{BinaryOp, DType};
use einloom_tile::{
    Affine, AxisId, Coord, CoordAtom, Kernel, Op, Program, Scalar, TensorId, TileMonoid, ValueId, Window,
};

/// What an operation reads.
pub trait Values {
    /// The elements of a tile, row by row, as long as the current windows of its axes.
    fn tile(&self, v: ValueId) -> &[f64];
    /// An element of a tensor by its row-major place; `None` if nothing has been written there.
    fn element(&self, tensor: TensorId, place: usize) -> Option<f64>;
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The tile gets these elements, row by row.
    Tile(ValueId, Vec<f64>),
    /// The tensor gets these elements at these row-major places.
    Stored(TensorId, Vec<(usize, f64)>),
    /// Whether some element holds of the tile that a skip tests.
    Tested(bool),
}

/// Why an operation has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It loads an element that nothing has written.
    Unwritten {
        /// Of this tensor.
        tensor: TensorId,
        /// Its row-major place.
        place: usize,
    },
    /// A stream, which is not a single operation, or a product of factors without a common axis.
    NotSingle,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unwritten { tensor, place } => {
                write!(f, "element {place} of tensor {} is loaded, and nothing has written it", tensor.0)
            }
            Self::NotSingle => f.write_str("a stream, or a product of factors without a common axis"),
        }
    }
}

impl std::error::Error for Fault {}

/// Where every axis stands.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The program.
    pub program: &'a Program,
    /// Its kernel.
    pub kernel: &'a Kernel,
    /// One per axis.
    pub windows: &'a [Window],
}

impl Scope<'_> {
    /// The windows of a tile's rows and columns; one position for a side without an axis.
    pub fn sides(&self, v: ValueId) -> [Window; 2] {
        let decl = self.kernel.value(v);
        [decl.rows, decl.cols].map(|a| a.map_or(Window { base: 0, len: 1 }, |a| self.windows[a.at()]))
    }

    /// What a single operation does, in f64 between roundings.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn evaluate(&self, values: &impl Values, op: &Op) -> Result<Effect, Fault> {
        let tile = |dst: ValueId, elements| Effect::Tile(dst, rounded(self.kernel.value(dst).dtype, elements));
        match op {
            Op::Load { dst, tensor, at, fill } => {
                let dims = &self.program.tensor(*tensor).dims;
                let load = |e| match self.place(values, dims, at, *dst, e) {
                    Some(place) => values.element(*tensor, place).ok_or(Fault::Unwritten { tensor: *tensor, place }),
                    None => Ok(fill.unwrap_or(f64::NAN)),
                };
                let loaded: Result<Vec<f64>, Fault> = self.elements(*dst).map(load).collect();
                Ok(tile(*dst, loaded?))
            }
            Op::Store { tensor, at, src } => {
                let decl = self.program.tensor(*tensor);
                let elements = self.elements(*src).zip(values.tile(*src));
                let store = |(e, &x)| Some((self.place(values, &decl.dims, at, *src, e)?, round(decl.dtype, x)));
                Ok(Effect::Stored(*tensor, elements.filter_map(store).collect()))
            }
            Op::Map { dst, expr } => Ok(tile(*dst, self.scalar(values, expr, *dst))),
            Op::Mma { dst, a, b, acc } => {
                let mut out = self.product(values, *dst, *a, *b).ok_or(Fault::NotSingle)?;
                if let Some(acc) = acc {
                    out.iter_mut().zip(values.tile(*acc)).for_each(|(x, y)| *x += y);
                }
                Ok(tile(*dst, out))
            }
            Op::Reduce { dst, src, axis, monoid, acc } => {
                let mut out = self.reduction(values, *src, *axis, monoid);
                if let Some(acc) = acc {
                    out.iter_mut().zip(values.tile(*acc)).for_each(|(x, y)| *x = combine(monoid, *y, *x));
                }
                Ok(tile(*dst, out))
            }
            Op::Pick { dst, src, axis, at, fill } => {
                let (from, [_, across]) = (self.kernel.value(*src), self.sides(*src));
                let pick = |e| {
                    let x = self.coord(values, at, *dst, e);
                    let found = usize::try_from(x).ok().filter(|x| *x < self.kernel.axis(*axis).extent);
                    let Some(x) = found else { return *fill };
                    let step = |side: Option<AxisId>| match side {
                        Some(a) if a == *axis => x,
                        Some(a) => (self.position(*dst, e, a) as usize).saturating_sub(self.windows[a.at()].base),
                        None => 0,
                    };
                    values.tile(*src)[step(from.rows) * across.len + step(from.cols)]
                };
                Ok(tile(*dst, self.elements(*dst).map(pick).collect()))
            }
            Op::SkipUnless { any } => Ok(Effect::Tested(values.tile(*any).iter().any(|x| *x != 0.0))),
            Op::Stream { .. } => Err(Fault::NotSingle),
        }
    }

    /// Steps into the windows of a tile's rows and columns, for each of its elements.
    fn elements(&self, v: ValueId) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [rows, cols] = self.sides(v);
        (0..rows.len).flat_map(move |r| (0..cols.len).map(move |c| (r, c)))
    }

    /// Where an axis stands at an element of `v`.
    fn position(&self, v: ValueId, at: (usize, usize), axis: AxisId) -> i64 {
        let decl = self.kernel.value(v);
        let step = match axis {
            a if decl.rows == Some(a) => at.0,
            a if decl.cols == Some(a) => at.1,
            _ => 0,
        };
        (self.windows[axis.at()].base + step) as i64
    }

    /// The place in `leaf` that broadcasts to an element of `v`.
    fn broadcast(&self, leaf: ValueId, v: ValueId, at: (usize, usize)) -> usize {
        let (decl, to) = (self.kernel.value(leaf), self.kernel.value(v));
        let step = |axis: Option<AxisId>| match axis {
            Some(a) if to.rows == Some(a) => at.0,
            Some(a) if to.cols == Some(a) => at.1,
            _ => 0,
        };
        step(decl.rows) * self.sides(leaf)[1].len + step(decl.cols)
    }

    fn coord(&self, values: &impl Values, coord: &Coord, v: ValueId, at: (usize, usize)) -> i64 {
        let atom = |a: &CoordAtom| match a {
            CoordAtom::Axis(axis) => self.position(v, at, *axis),
            CoordAtom::Floor(inner, d) => self.coord(values, inner, v, at).div_euclid(*d),
            CoordAtom::Tile(ids) => values.tile(*ids)[self.broadcast(*ids, v, at)] as i64,
        };
        coord.offset + coord.terms.iter().map(|(c, a)| c * atom(a)).sum::<i64>()
    }

    /// The place of an element in its tensor; `None` outside.
    fn place(
        &self,
        values: &impl Values,
        dims: &[usize],
        at: &[Coord],
        v: ValueId,
        element: (usize, usize),
    ) -> Option<usize> {
        let mut place = 0;
        for (coord, &dim) in at.iter().zip(dims) {
            let x = usize::try_from(self.coord(values, coord, v, element)).ok().filter(|x| *x < dim)?;
            place = place * dim + x;
        }
        Some(place)
    }

    /// The expression at every element of `v`.
    fn scalar(&self, values: &impl Values, expr: &Scalar, v: ValueId) -> Vec<f64> {
        let again = |e: &Scalar| self.scalar(values, e, v);
        let each = |f: &dyn Fn((usize, usize)) -> f64| self.elements(v).map(f).collect();
        match expr {
            Scalar::Const(x) => each(&|_| *x),
            Scalar::Tile(leaf) => {
                let tile = values.tile(*leaf);
                each(&|e| tile[self.broadcast(*leaf, v, e)])
            }
            Scalar::Position(axis) => each(&|e| self.position(v, e, *axis) as f64),
            Scalar::Within(p) => {
                let value =
                    |a: &Affine, e| a.constant + a.terms.iter().map(|&(c, x)| c * self.position(v, e, x)).sum::<i64>();
                each(&|e| f64::from(p.all.iter().all(|a| value(a, e) >= 0)))
            }
            // Only custom monoids have arguments: see `custom`.
            Scalar::Argument(_) => each(&|_| f64::NAN),
            Scalar::Round(d, x) => again(x).into_iter().map(|x| round(*d, x)).collect(),
            Scalar::Unary(op, x) => again(x).into_iter().map(|x| op.apply(x)).collect(),
            Scalar::Binary(op, x, y) => again(x).into_iter().zip(again(y)).map(|(x, y)| op.apply(x, y)).collect(),
            Scalar::Select(c, x, y) => {
                let arms = again(x).into_iter().zip(again(y));
                again(c).into_iter().zip(arms).map(|(c, (x, y))| if c != 0.0 { x } else { y }).collect()
            }
        }
    }

    /// `Σ_k a·b` in the layout of `dst`.
    fn product(&self, values: &impl Values, dst: ValueId, a: ValueId, b: ValueId) -> Option<Vec<f64>> {
        let sum = summed(self.kernel, dst, a, b)?;
        let matrix = |v: ValueId| {
            let decl = self.kernel.value(v);
            let [rows, cols] = self.sides(v);
            let tile = values.tile(v);
            let (kept, terms) = if decl.cols == Some(sum) { (rows.len, cols.len) } else { (cols.len, rows.len) };
            let at = |r: usize, c: usize| tile[r * cols.len + c];
            Matrix::new(kept, terms, |x, k| if decl.cols == Some(sum) { at(x, k) } else { at(k, x) })
        };
        let turned = self.kernel.value(dst).rows.is_some() && self.kernel.value(dst).rows == kept(self.kernel, b, sum);
        Some(if turned { contract(&matrix(b), &matrix(a)) } else { contract(&matrix(a), &matrix(b)) })
    }

    fn reduction(&self, values: &impl Values, src: ValueId, axis: AxisId, monoid: &TileMonoid) -> Vec<f64> {
        let [rows, cols] = self.sides(src);
        let tile = values.tile(src);
        let fold = |terms: &mut dyn Iterator<Item = usize>| {
            terms.fold(monoid.identity(), |x, place| combine(monoid, x, tile[place]))
        };
        if self.kernel.value(src).rows == Some(axis) {
            (0..cols.len).map(|c| fold(&mut (0..rows.len).map(|r| r * cols.len + c))).collect()
        } else {
            (0..rows.len).map(|r| fold(&mut (0..cols.len).map(|c| r * cols.len + c))).collect()
        }
    }
}

/// The axis that a product sums over.
pub(super) fn summed(kernel: &Kernel, dst: ValueId, a: ValueId, b: ValueId) -> Option<AxisId> {
    let has = |v: ValueId, axis: AxisId| [kernel.value(v).rows, kernel.value(v).cols].contains(&Some(axis));
    [kernel.value(a).rows, kernel.value(a).cols].into_iter().flatten().find(|&x| has(b, x) && !has(dst, x))
}

/// The other axis of a factor.
pub(super) fn kept(kernel: &Kernel, factor: ValueId, sum: AxisId) -> Option<AxisId> {
    [kernel.value(factor).rows, kernel.value(factor).cols].into_iter().flatten().find(|&x| x != sum)
}

fn combine(monoid: &TileMonoid, x: f64, y: f64) -> f64 {
    match monoid {
        TileMonoid::Sum => x + y,
        TileMonoid::Prod => x * y,
        TileMonoid::Max => BinaryOp::Max.apply(x, y),
        TileMonoid::Min => BinaryOp::Min.apply(x, y),
        TileMonoid::Custom { combine, .. } => custom(combine, x, y),
    }
}

fn custom(expr: &Scalar, x: f64, y: f64) -> f64 {
    let again = |e: &Scalar| custom(e, x, y);
    match expr {
        Scalar::Const(c) => *c,
        Scalar::Argument(k) => [x, y][usize::from(*k != 0)],
        Scalar::Round(d, e) => round(*d, again(e)),
        Scalar::Unary(op, e) => op.apply(again(e)),
        Scalar::Binary(op, a, b) => op.apply(again(a), again(b)),
        Scalar::Select(c, a, b) => again(if again(c) != 0.0 { a } else { b }),
        Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) => f64::NAN,
    }
}

/// The value of `dtype` that stands for each element.
pub(super) fn rounded(dtype: DType, elements: impl IntoIterator<Item = f64>) -> Vec<f64> {
    elements.into_iter().map(|x| round(dtype, x)).collect()
}
