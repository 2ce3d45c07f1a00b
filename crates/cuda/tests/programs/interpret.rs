//! A tile program, operation by operation, in f64: the plain loop that everything is compared with.

use einloom_cascade::numeric::round;
use einloom_cascade::{BinaryOp, DType};
use einloom_tile::{
    Affine, AxisId, Coord, CoordAtom, Init, Kernel, Op, Program, Scalar, TileMonoid, ValueId, Window, chunks,
    grid_points, initial_windows, set_grid_point,
};

/// Every tensor of the program after it ran; inputs are given, others start as zeros.
pub fn interpret(program: &Program, tensors: &mut [Vec<f64>]) {
    for kernel in &program.kernels {
        let mut windows = initial_windows(kernel);
        for point in 0..grid_points(kernel) {
            set_grid_point(kernel, point, &mut windows);
            let mut run =
                Run { program, kernel, tensors, windows: windows.clone(), values: vec![vec![]; kernel.values.len()] };
            run.ops(&kernel.body);
        }
    }
}

struct Run<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    tensors: &'a mut [Vec<f64>],
    windows: Vec<Window>,
    values: Vec<Vec<f64>>,
}

impl Run<'_> {
    /// Steps into the windows of a value's rows and columns, for each of its elements.
    fn elements(&self, v: ValueId) -> Vec<(usize, usize)> {
        let decl = self.kernel.value(v);
        let len = |axis: Option<AxisId>| axis.map_or(1, |a| self.windows[a.at()].len);
        let (rows, cols) = (len(decl.rows), len(decl.cols));
        (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))).collect()
    }

    /// Where an axis stands at an element of `v`.
    fn position(&self, v: ValueId, at: (usize, usize), axis: AxisId) -> i64 {
        let decl = self.kernel.value(v);
        let step = if decl.rows == Some(axis) {
            at.0
        } else if decl.cols == Some(axis) {
            at.1
        } else {
            0
        };
        (self.windows[axis.at()].base + step) as i64
    }

    /// The element of `leaf` that broadcasts to an element of `v`; `extra` overrides one axis's position.
    fn element(&self, leaf: ValueId, v: ValueId, at: (usize, usize), extra: Option<(AxisId, usize)>) -> f64 {
        let decl = self.kernel.value(leaf);
        let step = |axis: Option<AxisId>| {
            axis.map_or(0, |a| match extra {
                Some((x, s)) if x == a => s,
                _ => self.position(v, at, a) as usize - self.windows[a.at()].base,
            })
        };
        let cols = decl.cols.map_or(1, |a| self.windows[a.at()].len);
        self.values[leaf.at()][step(decl.rows) * cols + step(decl.cols)]
    }

    fn put(&mut self, dst: ValueId, elements: Vec<f64>) {
        let dtype = self.kernel.value(dst).dtype;
        self.values[dst.at()] = elements.into_iter().map(|x| round(dtype, x)).collect();
    }

    fn coord(&self, coord: &Coord, v: ValueId, at: (usize, usize)) -> i64 {
        let atom = |a: &CoordAtom| match a {
            CoordAtom::Axis(axis) => self.position(v, at, *axis),
            CoordAtom::Floor(inner, d) => self.coord(inner, v, at).div_euclid(*d),
            CoordAtom::Tile(ids) => self.element(*ids, v, at, None) as i64,
        };
        coord.offset + coord.terms.iter().map(|(c, a)| c * atom(a)).sum::<i64>()
    }

    /// The place of an element in its tensor; `None` outside.
    fn place(&self, dims: &[usize], at: &[Coord], v: ValueId, element: (usize, usize)) -> Option<usize> {
        let mut place = 0;
        for (coord, &dim) in at.iter().zip(dims) {
            let x = usize::try_from(self.coord(coord, v, element)).ok().filter(|x| *x < dim)?;
            place = place * dim + x;
        }
        Some(place)
    }

    fn ops(&mut self, ops: &[Op]) -> bool {
        ops.iter().all(|op| self.op(op))
    }

    /// False if the chunk is skipped.
    fn op(&mut self, op: &Op) -> bool {
        match op {
            Op::Load { dst, tensor, at, fill } => {
                let dims = &self.program.tensor(*tensor).dims;
                let data = &self.tensors[tensor.at()];
                let load = |e| self.place(dims, at, *dst, e).map_or(fill.unwrap_or(f64::NAN), |p| data[p]);
                let loaded = self.elements(*dst).into_iter().map(load).collect();
                self.put(*dst, loaded);
            }
            Op::Store { tensor, at, src } => {
                let decl = self.program.tensor(*tensor);
                for e in self.elements(*src) {
                    let x = self.element(*src, *src, e, None);
                    if let Some(place) = self.place(&decl.dims, at, *src, e) {
                        self.tensors[tensor.at()][place] = round(decl.dtype, x);
                    }
                }
            }
            Op::Map { dst, expr } => {
                let out = self.elements(*dst).into_iter().map(|e| self.scalar(expr, *dst, e)).collect();
                self.put(*dst, out);
            }
            Op::Mma { dst, a, b, acc } => {
                let (da, db, dd) = (self.kernel.value(*a), self.kernel.value(*b), self.kernel.value(*dst));
                let has = |d: &einloom_tile::ValueDecl, x| d.rows == Some(x) || d.cols == Some(x);
                let sum = [da.rows, da.cols].into_iter().flatten().find(|&x| has(db, x) && !has(dd, x));
                let Some(sum) = sum else { return true };
                let terms = self.windows[sum.at()].len;
                let product = |e| {
                    let term =
                        |k| self.element(*a, *dst, e, Some((sum, k))) * self.element(*b, *dst, e, Some((sum, k)));
                    (0..terms).map(term).sum::<f64>() + acc.map_or(0.0, |c| self.element(c, *dst, e, None))
                };
                let out = self.elements(*dst).into_iter().map(product).collect();
                self.put(*dst, out);
            }
            Op::Reduce { dst, src, axis, monoid, acc } => {
                let terms = self.windows[axis.at()].len;
                let fold = |e| {
                    let all = (0..terms).map(|k| self.element(*src, *dst, e, Some((*axis, k))));
                    let x = all.fold(monoid.identity(), |x, y| combine(monoid, x, y));
                    acc.map_or(x, |c| combine(monoid, self.element(c, *dst, e, None), x))
                };
                let out = self.elements(*dst).into_iter().map(fold).collect();
                self.put(*dst, out);
            }
            Op::Stream { axis, within, states, body } => {
                for s in states {
                    let n = self.elements(s.value).len();
                    let start = match s.init {
                        Init::Const(x) => vec![x; n],
                        Init::Value(v) => self.values[v.at()].clone(),
                    };
                    self.put(s.value, start);
                }
                for window in chunks(self.kernel, *axis, within, &self.windows).collect::<Vec<_>>() {
                    self.windows[axis.at()] = window;
                    if self.ops(body) {
                        let next: Vec<_> = states.iter().map(|s| self.values[s.next.at()].clone()).collect();
                        for (s, x) in states.iter().zip(next) {
                            self.values[s.value.at()] = x;
                        }
                    }
                }
            }
            Op::SkipUnless { any } => return self.values[any.at()].iter().any(|x| *x != 0.0),
        }
        true
    }

    fn scalar(&self, expr: &Scalar, v: ValueId, at: (usize, usize)) -> f64 {
        let again = |e: &Scalar| self.scalar(e, v, at);
        match expr {
            Scalar::Const(x) => *x,
            Scalar::Tile(leaf) => self.element(*leaf, v, at, None),
            Scalar::Position(axis) => self.position(v, at, *axis) as f64,
            Scalar::Within(p) => {
                let value =
                    |a: &Affine| a.constant + a.terms.iter().map(|&(c, x)| c * self.position(v, at, x)).sum::<i64>();
                f64::from(p.all.iter().all(|a| value(a) >= 0))
            }
            Scalar::Argument(_) => f64::NAN,
            Scalar::Round(d, x) => round(*d, again(x)),
            Scalar::Unary(op, x) => op.apply(again(x)),
            Scalar::Binary(op, x, y) => op.apply(again(x), again(y)),
            Scalar::Select(c, x, y) => again(if again(c) != 0.0 { x } else { y }),
        }
    }
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

/// How far results may be apart, beyond a rounding to the output's own number type: by what is summed on the way.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 2e-4,
        DType::Tf32 => 1e-3,
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        DType::E4m3 => 0.15,
        DType::E5m2 => 0.3,
        _ => 1.01,
    }
}
