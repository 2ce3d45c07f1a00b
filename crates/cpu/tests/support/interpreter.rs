//! The meaning of tile programs, in the plainest form.

use einloom_cascade::DType;
use einloom_cascade::numeric::round;
use einloom_cpu::TensorTraffic;
use einloom_tile::{
    Affine, AxisId, Coord, CoordAtom, Init, Kernel, Op, Predicate, Program, Scalar, TensorId, TensorRole, TileMonoid,
    ValueId, Window, chunks, grid_points, initial_windows, set_grid_point,
};

pub struct Outcome {
    pub outputs: Vec<Vec<f64>>,
    pub kernels: Vec<KernelOutcome>,
}

pub struct KernelOutcome {
    pub traffic: Vec<TensorTraffic>,
    pub skipped: u64,
}

/// A load outside its tensor: dimension and coordinate.
#[derive(Debug, PartialEq)]
pub struct Outside(pub usize, pub i64);

pub fn run(program: &Program, inputs: &[Vec<f64>]) -> Result<Outcome, Outside> {
    let mut given = inputs.iter();
    let mut tensors: Vec<Vec<f64>> = vec![];
    for tensor in &program.tensors {
        let zeros = vec![0.0; tensor.dims.iter().product()];
        let values = if tensor.role == TensorRole::Input { given.next().expect("an input").clone() } else { zeros };
        tensors.push(values.iter().map(|&x| round(tensor.dtype, x)).collect());
    }
    let mut kernels = vec![];
    for kernel in &program.kernels {
        let count = program.tensors.len();
        let mut m = Machine {
            program,
            kernel,
            windows: initial_windows(kernel),
            tiles: vec![vec![]; kernel.values.len()],
            tensors: &mut tensors,
            loaded: vec![0; count],
            stored: vec![0; count],
            skipped: 0,
        };
        for point in 0..grid_points(kernel) {
            set_grid_point(kernel, point, &mut m.windows);
            m.ops(&kernel.body)?;
        }
        let traffic = (0..count)
            .filter(|&t| m.loaded[t] + m.stored[t] > 0)
            .map(|t| TensorTraffic { tensor: TensorId(t as u32), loaded_bytes: m.loaded[t], stored_bytes: m.stored[t] })
            .collect();
        kernels.push(KernelOutcome { traffic, skipped: m.skipped });
    }
    let outputs = program.tensors.iter().zip(tensors).filter(|(t, _)| t.role == TensorRole::Output);
    Ok(Outcome { outputs: outputs.map(|(_, x)| x).collect(), kernels })
}

struct Machine<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    windows: Vec<Window>,
    /// Row-major over the windows of the declared axes.
    tiles: Vec<Vec<f64>>,
    tensors: &'a mut Vec<Vec<f64>>,
    loaded: Vec<u64>,
    stored: Vec<u64>,
    skipped: u64,
}

/// Steps into the windows of some axes.
type At<'a> = &'a [(AxisId, usize)];

impl Machine<'_> {
    fn length(&self, axis: Option<AxisId>) -> usize {
        axis.map_or(1, |a| self.windows[a.at()].len)
    }

    /// Every element of a tile: steps along its axes, row-major.
    fn elements(&self, v: ValueId) -> Vec<Vec<(AxisId, usize)>> {
        let decl = self.kernel.value(v);
        let mut out = vec![];
        for r in 0..self.length(decl.rows) {
            for c in 0..self.length(decl.cols) {
                out.push(decl.rows.map(|a| (a, r)).into_iter().chain(decl.cols.map(|a| (a, c))).collect());
            }
        }
        out
    }

    fn element(&self, v: ValueId, at: At<'_>) -> f64 {
        let decl = self.kernel.value(v);
        let step = |axis: Option<AxisId>| at.iter().find(|s| Some(s.0) == axis).map_or(0, |s| s.1);
        self.tiles[v.at()][step(decl.rows) * self.length(decl.cols) + step(decl.cols)]
    }

    fn position(&self, axis: AxisId, at: At<'_>) -> i64 {
        (self.windows[axis.at()].base + at.iter().find(|s| s.0 == axis).map_or(0, |s| s.1)) as i64
    }

    fn coordinate(&self, coord: &Coord, at: At<'_>) -> i64 {
        let atom = |atom: &CoordAtom| match atom {
            CoordAtom::Axis(a) => self.position(*a, at),
            CoordAtom::Floor(inner, d) => self.coordinate(inner, at).div_euclid(*d),
            CoordAtom::Tile(v) => self.element(*v, at) as i64,
        };
        coord.offset + coord.terms.iter().map(|(c, a)| c * atom(a)).sum::<i64>()
    }

    /// The place in memory, or the first dimension that is left.
    fn place(&self, tensor: TensorId, coords: &[Coord], at: At<'_>) -> Result<usize, Outside> {
        let mut place = 0;
        for (k, (coord, &size)) in coords.iter().zip(&self.program.tensor(tensor).dims).enumerate() {
            let x = self.coordinate(coord, at);
            if x < 0 || x >= size as i64 {
                return Err(Outside(k, x));
            }
            place = place * size + x as usize;
        }
        Ok(place)
    }

    fn holds(&self, p: &Predicate, at: At<'_>) -> bool {
        let value = |a: &Affine| a.constant + a.terms.iter().map(|&(c, x)| c * self.position(x, at)).sum::<i64>();
        p.all.iter().all(|a| value(a) >= 0)
    }

    fn scalar(&self, e: &Scalar, at: At<'_>, arguments: &[f64]) -> f64 {
        let again = |e: &Scalar| self.scalar(e, at, arguments);
        match e {
            Scalar::Const(x) => *x,
            Scalar::Tile(v) => self.element(*v, at),
            Scalar::Position(a) => self.position(*a, at) as f64,
            Scalar::Within(p) => f64::from(self.holds(p, at)),
            Scalar::Argument(k) => arguments[*k as usize],
            Scalar::Round(d, x) => round(*d, again(x)),
            Scalar::Unary(op, x) => op.apply(again(x)),
            Scalar::Binary(op, x, y) => op.apply(again(x), again(y)),
            Scalar::Select(c, x, y) => again(if again(c) != 0.0 { x } else { y }),
        }
    }

    fn set(&mut self, v: ValueId, values: Vec<f64>) {
        let dtype = self.kernel.value(v).dtype;
        self.tiles[v.at()] = values.into_iter().map(|x| round(dtype, x)).collect();
    }

    fn combine(&self, monoid: &TileMonoid, x: f64, y: f64) -> f64 {
        use einloom_cascade::BinaryOp;
        match monoid {
            TileMonoid::Sum => x + y,
            TileMonoid::Prod => x * y,
            TileMonoid::Max => BinaryOp::Max.apply(x, y),
            TileMonoid::Min => BinaryOp::Min.apply(x, y),
            TileMonoid::Custom { combine, .. } => self.scalar(combine, &[], &[x, y]),
        }
    }

    /// False if the chunk is to be left.
    fn ops(&mut self, ops: &[Op]) -> Result<bool, Outside> {
        for op in ops {
            match op {
                Op::Load { dst, tensor, at, fill } => {
                    let mut values = vec![];
                    for step in self.elements(*dst) {
                        values.push(match (self.place(*tensor, at, &step), fill) {
                            (Ok(place), _) => {
                                self.loaded[tensor.at()] += self.program.tensor(*tensor).dtype.bytes() as u64;
                                self.tensors[tensor.at()][place]
                            }
                            (Err(_), Some(x)) => *x,
                            (Err(outside), None) => return Err(outside),
                        });
                    }
                    self.set(*dst, values);
                }
                Op::Store { tensor, at, src } => {
                    let dtype = self.program.tensor(*tensor).dtype;
                    for step in self.elements(*src) {
                        let place = self.place(*tensor, at, &step)?;
                        self.tensors[tensor.at()][place] = round(dtype, self.element(*src, &step));
                        self.stored[tensor.at()] += dtype.bytes() as u64;
                    }
                }
                Op::Map { dst, expr } => {
                    let values = self.elements(*dst).iter().map(|at| self.scalar(expr, at, &[])).collect();
                    self.set(*dst, values);
                }
                Op::Mma { dst, a, b, acc } => {
                    let sides = |v: ValueId| {
                        let d = self.kernel.value(v);
                        [d.rows, d.cols].into_iter().flatten().collect::<Vec<_>>()
                    };
                    let (sa, sb, sd) = (sides(*a), sides(*b), sides(*dst));
                    let k = *sa.iter().find(|x| sb.contains(x) && !sd.contains(x)).expect("a summed axis");
                    let exact = [a, b].iter().all(|v| self.kernel.value(**v).dtype.is_integer());
                    let narrow = !exact && self.kernel.value(*dst).dtype != DType::F64;
                    let factor = |v: ValueId, at: At<'_>| {
                        let x = self.element(v, at);
                        if narrow { round(DType::F32, x) } else { x }
                    };
                    let mut values = vec![];
                    for step in self.elements(*dst) {
                        let mut sum = acc.map_or(0.0, |acc| self.element(acc, &step));
                        for x in 0..self.length(Some(k)) {
                            let mut at = step.clone();
                            at.push((k, x));
                            sum += factor(*a, &at) * factor(*b, &at);
                        }
                        values.push(sum);
                    }
                    self.set(*dst, values);
                }
                Op::Reduce { dst, src, axis, monoid, acc } => {
                    let mut values = vec![];
                    for step in self.elements(*dst) {
                        let mut total = monoid.identity();
                        for x in 0..self.length(Some(*axis)) {
                            let mut at = step.clone();
                            at.push((*axis, x));
                            total = self.combine(monoid, total, self.element(*src, &at));
                        }
                        if let Some(acc) = acc {
                            total = self.combine(monoid, self.element(*acc, &step), total);
                        }
                        values.push(total);
                    }
                    self.set(*dst, values);
                }
                Op::Pick { dst, src, axis, at, fill } => {
                    let mut values = vec![];
                    for step in self.elements(*dst) {
                        let x = usize::try_from(self.coordinate(at, &step)).ok();
                        values.push(match x.filter(|x| *x < self.length(Some(*axis))) {
                            Some(x) => self.element(*src, &[vec![(*axis, x)], step].concat()),
                            None => *fill,
                        });
                    }
                    self.set(*dst, values);
                }
                Op::Stream { axis, within, states, body, .. } => {
                    for state in states {
                        let values = match &state.init {
                            Init::Const(x) => vec![*x; self.elements(state.value).len()],
                            Init::Value(v) => self.tiles[v.at()].clone(),
                        };
                        self.set(state.value, values);
                    }
                    for chunk in chunks(self.kernel, *axis, within, &self.windows) {
                        self.windows[axis.at()] = chunk;
                        if self.ops(body)? {
                            let next: Vec<_> = states.iter().map(|s| self.tiles[s.next.at()].clone()).collect();
                            states.iter().zip(next).for_each(|(s, x)| self.set(s.value, x));
                        } else {
                            self.skipped += 1;
                        }
                    }
                }
                Op::SkipUnless { any } => {
                    if self.tiles[any.at()].iter().all(|&x| x == 0.0) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}
