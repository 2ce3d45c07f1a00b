//! The meaning of a tile program, element by element in f64: what the planner's programs are checked with. Values of
//! f32 keep their f64; narrower types round.

use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{BinaryOp, DType, numeric};
use einloom_tile::{
    AxisId, Coord, CoordAtom, Extremes, Init, Interval, Kernel, Op, Predicate, Program, Scalar, TensorId, TileMonoid,
    ValueId, Window, first_position, grid_points, initial_windows, set_grid_point, visited,
};
use std::collections::BTreeMap;

/// The program's tensors after it has run.
pub fn interpret(program: &Program, inputs: &Arrays) -> Result<Arrays, String> {
    let mut memory: Vec<Vec<f64>> = vec![];
    for t in &program.tensors {
        let size: usize = t.dims.iter().product();
        memory.push(match inputs.get(&t.name) {
            Some(a) => a.values.iter().map(|&v| round(t.dtype, v)).collect(),
            None => vec![f64::NAN; size],
        });
    }
    for kernel in &program.kernels {
        if !kernel.blocks.is_empty() {
            by_blocks(program, kernel, &mut memory)?;
            continue;
        }
        let mut windows = initial_windows(kernel);
        for point in 0..grid_points(kernel) {
            set_grid_point(kernel, point, &mut windows);
            let values = vec![None; kernel.values.len()];
            let mut run = Run { program, kernel, memory: &mut memory, windows: windows.clone(), values, part: None };
            run.ops(&kernel.body)?;
        }
    }
    let named = program.tensors.iter().zip(memory);
    Ok(named.map(|(t, values)| (t.name.clone(), Array { shape: t.shape().to_vec(), values })).collect())
}

fn round(dtype: DType, v: f64) -> f64 {
    if matches!(dtype, DType::F64 | DType::F32) { v } else { numeric::round(dtype, v) }
}

struct Run<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    memory: &'a mut Vec<Vec<f64>>,
    windows: Vec<Window>,
    values: Vec<Option<Vec<f64>>>,
    /// What of the kernel's stream is gone through now, where its blocks have parts of it.
    part: Option<Part>,
}

/// A part of a kernel's stream, and what its states were before and are behind it.
struct Part {
    axis: AxisId,
    window: Window,
    end: bool,
    waiting: Option<Vec<Option<Vec<f64>>>>,
}

/// Runs a kernel block by block, and in each point by point; states wait between the parts of a stream.
fn by_blocks(program: &Program, kernel: &Kernel, memory: &mut Vec<Vec<f64>>) -> Result<(), String> {
    let stream = kernel.outer_stream();
    let mut order = kernel.grid.clone();
    order.extend(stream);
    let all: Vec<Window> = order.iter().map(|&a| Window { base: 0, len: kernel.axis(a).extent }).collect();
    let mut visits = vec![all];
    for block in &kernel.blocks {
        let side = |a: AxisId| block.sides.iter().find(|s| s.0 == a).map(|s| s.1);
        visits = visits.iter().flat_map(|v| cut(&order, stream, v, &side)).collect();
    }
    // In the innermost memory points have a tile each, and the stream is whole in its part.
    let tile = |a: AxisId| (Some(a) != stream).then(|| kernel.axis(a).tile);
    let mut waiting = BTreeMap::new();
    for visit in visits.iter().flat_map(|v| cut(&order, stream, v, &tile)) {
        let mut windows = initial_windows(kernel);
        kernel.grid.iter().zip(&visit).for_each(|(a, w)| windows[a.at()] = *w);
        let point: Vec<usize> = visit[..kernel.grid.len()].iter().map(|w| w.base).collect();
        let part = stream.map(|axis| {
            let window = visit[kernel.grid.len()];
            let end = window.base + window.len == kernel.axis(axis).extent;
            Part { axis, window, end, waiting: waiting.remove(&point).flatten() }
        });
        let values = vec![None; kernel.values.len()];
        let mut run = Run { program, kernel, memory: &mut *memory, windows, values, part };
        run.ops(&kernel.body)?;
        waiting.insert(point, run.part.and_then(|p| p.waiting));
    }
    Ok(())
}

/// Windows of these axes cut to these lengths, the last axis fastest. A stream over nothing has its states all the same.
fn cut(
    order: &[AxisId],
    stream: Option<AxisId>,
    whole: &[Window],
    side: &dyn Fn(AxisId) -> Option<usize>,
) -> Vec<Vec<Window>> {
    let mut out = vec![vec![]];
    for (&axis, w) in order.iter().zip(whole) {
        let (end, side) = (w.base + w.len, side(axis).unwrap_or(w.len.max(1)));
        let mut parts: Vec<Window> =
            (w.base..end).step_by(side).map(|base| Window { base, len: side.min(end - base) }).collect();
        if w.len == 0 && Some(axis) == stream {
            parts.push(*w);
        }
        out = out.iter().flat_map(|v| parts.iter().map(move |p| [v.clone(), vec![*p]].concat())).collect();
    }
    out
}

/// Where an element stands: a position per axis of its tile; other axes stand at their window.
#[derive(Clone, Copy)]
struct At {
    rows: Option<(AxisId, usize)>,
    cols: Option<(AxisId, usize)>,
}

impl Run<'_> {
    /// What memory holds where a guard looks.
    fn extremes(&self, e: &Extremes, windows: &[Window]) -> Interval {
        let at = |tensor: TensorId| {
            let decl = self.program.tensor(tensor);
            let mut place = 0;
            for (coord, &size) in e.places.iter().zip(&decl.dims) {
                let x = first_position(coord, windows).expect("no gather");
                assert!((0..size as i64).contains(&x), "a guard looks outside {}", decl.name);
                place = place * size + x as usize;
            }
            let value = self.memory[tensor.at()][place];
            assert!(!value.is_nan(), "a guard reads {} before it is written", decl.name);
            value
        };
        Interval { low: at(e.low), high: at(e.high) }
    }

    fn len(&self, axis: Option<AxisId>) -> usize {
        axis.map_or(1, |a| self.windows[a.at()].len)
    }

    fn points(&self, v: ValueId) -> Vec<At> {
        let decl = self.kernel.value(v);
        let mut out = vec![];
        for r in 0..self.len(decl.rows) {
            for c in 0..self.len(decl.cols) {
                out.push(At { rows: decl.rows.map(|a| (a, r)), cols: decl.cols.map(|a| (a, c)) });
            }
        }
        out
    }

    fn offset(&self, axis: AxisId, at: At) -> usize {
        [at.rows, at.cols].into_iter().flatten().find(|x| x.0 == axis).map_or(0, |x| x.1)
    }

    fn position(&self, axis: AxisId, at: At) -> i64 {
        (self.windows[axis.at()].base + self.offset(axis, at)) as i64
    }

    fn get(&self, v: ValueId, at: At) -> Result<f64, String> {
        let decl = self.kernel.value(v);
        let r = decl.rows.map_or(0, |a| self.offset(a, at));
        let c = decl.cols.map_or(0, |a| self.offset(a, at));
        let tile = self.values[v.at()].as_ref().ok_or("a tile is read before it is written")?;
        Ok(tile[r * self.len(decl.cols) + c])
    }

    fn set(&mut self, v: ValueId, tile: Vec<f64>) {
        let dtype = self.kernel.value(v).dtype;
        self.values[v.at()] = Some(tile.into_iter().map(|x| round(dtype, x)).collect());
    }

    fn coord(&self, c: &Coord, at: At) -> Result<i64, String> {
        let mut sum = c.offset;
        for (k, atom) in &c.terms {
            sum += k * match atom {
                CoordAtom::Axis(a) => self.position(*a, at),
                CoordAtom::Floor(n, d) => self.coord(n, at)?.div_euclid(*d),
                CoordAtom::Tile(v) => self.get(*v, at)? as i64,
            };
        }
        Ok(sum)
    }

    fn place(&self, tensor: usize, at: &[Coord], point: At) -> Result<Option<usize>, String> {
        let mut place = 0;
        for (c, &dim) in at.iter().zip(&self.program.tensors[tensor].dims) {
            let x = self.coord(c, point)?;
            if x < 0 || x >= dim as i64 {
                return Ok(None);
            }
            place = place * dim + x as usize;
        }
        Ok(Some(place))
    }

    fn holds(&self, p: &Predicate, at: At) -> bool {
        p.all.iter().all(|a| a.constant + a.terms.iter().map(|&(c, x)| c * self.position(x, at)).sum::<i64>() >= 0)
    }

    fn scalar(&self, e: &Scalar, at: At, arguments: [f64; 2]) -> Result<f64, String> {
        let go = |e: &Scalar| self.scalar(e, at, arguments);
        Ok(match e {
            Scalar::Const(v) => *v,
            Scalar::Tile(v) => self.get(*v, at)?,
            Scalar::Position(a) => self.position(*a, at) as f64,
            Scalar::Within(p) => f64::from(self.holds(p, at)),
            Scalar::Argument(k) => arguments[usize::from(*k)],
            Scalar::Round(d, x) => round(*d, go(x)?),
            Scalar::Unary(op, x) => op.apply(go(x)?),
            Scalar::Binary(op, x, y) => op.apply(go(x)?, go(y)?),
            Scalar::Select(c, x, y) => go(if go(c)? != 0.0 { x } else { y })?,
        })
    }

    fn combine(&self, monoid: &TileMonoid, a: f64, b: f64) -> Result<f64, String> {
        let nowhere = At { rows: None, cols: None };
        Ok(match monoid {
            TileMonoid::Sum => a + b,
            TileMonoid::Prod => a * b,
            TileMonoid::Max => BinaryOp::Max.apply(a, b),
            TileMonoid::Min => BinaryOp::Min.apply(a, b),
            TileMonoid::Custom { combine, .. } => self.scalar(combine, nowhere, [a, b])?,
        })
    }

    /// Whether the list was left by a skip.
    fn ops(&mut self, ops: &[Op]) -> Result<bool, String> {
        for op in ops {
            match op {
                Op::Load { dst, tensor, at, fill } => {
                    let mut tile = vec![];
                    for p in self.points(*dst) {
                        tile.push(match (self.place(tensor.at(), at, p)?, fill) {
                            (Some(k), _) => self.memory[tensor.at()][k],
                            (None, Some(v)) => *v,
                            (None, None) => return Err("a load leaves its tensor".to_string()),
                        });
                    }
                    self.set(*dst, tile);
                }
                Op::Store { tensor, at, src } => {
                    let dtype = self.program.tensor(*tensor).dtype;
                    for p in self.points(*src) {
                        let v = round(dtype, self.get(*src, p)?);
                        let k = self.place(tensor.at(), at, p)?.ok_or("a store leaves its tensor")?;
                        self.memory[tensor.at()][k] = v;
                    }
                }
                Op::Map { dst, expr } => {
                    let tile = self.points(*dst).into_iter().map(|p| self.scalar(expr, p, [0.0; 2]));
                    let tile = tile.collect::<Result<_, _>>()?;
                    self.set(*dst, tile);
                }
                Op::Mma { dst, a, b, acc } => {
                    let (ta, tb, td) = (self.kernel.value(*a), self.kernel.value(*b), self.kernel.value(*dst));
                    let sides = |v: &einloom_tile::ValueDecl| [v.rows, v.cols];
                    let shared = sides(ta).into_iter().flatten();
                    let k = shared.filter(|s| sides(tb).contains(&Some(*s)) && !sides(td).contains(&Some(*s)));
                    let k: Vec<AxisId> = k.collect();
                    let [k] = k[..] else { return Err("an mma without its axis".to_string()) };
                    let mut tile = vec![];
                    for p in self.points(*dst) {
                        let mut sum = acc.map_or(Ok(0.0), |v| self.get(v, p))?;
                        for x in 0..self.windows[k.at()].len {
                            let with = |side: Option<AxisId>| match side {
                                Some(s) if s == k => Some((k, x)),
                                Some(s) => Some((s, self.offset(s, p))),
                                None => None,
                            };
                            let pa = At { rows: with(ta.rows), cols: with(ta.cols) };
                            let pb = At { rows: with(tb.rows), cols: with(tb.cols) };
                            sum += self.get(*a, pa)? * self.get(*b, pb)?;
                        }
                        tile.push(sum);
                    }
                    self.set(*dst, tile);
                }
                Op::Reduce { dst, src, axis, monoid, acc } => {
                    let from = self.kernel.value(*src).clone();
                    let mut tile = vec![];
                    for p in self.points(*dst) {
                        let mut sum = acc.map_or(Ok(monoid.identity()), |v| self.get(v, p))?;
                        for x in 0..self.windows[axis.at()].len {
                            let with = |side: Option<AxisId>| match side {
                                Some(s) if s == *axis => Some((s, x)),
                                Some(s) => Some((s, self.offset(s, p))),
                                None => None,
                            };
                            let at = At { rows: with(from.rows), cols: with(from.cols) };
                            sum = self.combine(monoid, sum, self.get(*src, at)?)?;
                        }
                        tile.push(sum);
                    }
                    self.set(*dst, tile);
                }
                Op::Pick { dst, src, axis, at, fill } => {
                    let from = self.kernel.value(*src).clone();
                    let mut tile = vec![];
                    for p in self.points(*dst) {
                        let x = self.coord(at, p)?;
                        let x = usize::try_from(x).ok().filter(|x| *x < self.windows[axis.at()].len);
                        let Some(x) = x else {
                            tile.push(*fill);
                            continue;
                        };
                        let with = |side: Option<AxisId>| match side {
                            Some(s) if s == *axis => Some((s, x)),
                            Some(s) => Some((s, self.offset(s, p))),
                            None => None,
                        };
                        tile.push(self.get(*src, At { rows: with(from.rows), cols: with(from.cols) })?);
                    }
                    self.set(*dst, tile);
                }
                Op::Stream { axis, within, guards, states, body } => {
                    let mut part = self.part.take_if(|p| p.axis == *axis);
                    let waiting = part.as_mut().and_then(|p| p.waiting.take());
                    for s in states {
                        let tile = match s.init {
                            Init::Const(v) => vec![v; self.points(s.value).len()],
                            Init::Value(v) => {
                                self.points(s.value).into_iter().map(|p| self.get(v, p)).collect::<Result<_, _>>()?
                            }
                        };
                        self.set(s.value, tile);
                    }
                    for (s, tile) in states.iter().zip(waiting.into_iter().flatten()) {
                        self.values[s.value.at()] = tile;
                    }
                    let element = |e: &Extremes, windows: &[Window]| self.extremes(e, windows);
                    let list = visited(self.kernel, (*axis, within, guards), &self.windows, &element);
                    let in_part = |w: &Window| {
                        part.as_ref().is_none_or(|p| (p.window.base..p.window.base + p.window.len).contains(&w.base))
                    };
                    let list: Vec<Window> = list.filter(in_part).collect();
                    for window in list {
                        self.windows[axis.at()] = window;
                        if self.ops(body)? {
                            continue;
                        }
                        let next: Vec<_> = states.iter().map(|s| self.values[s.next.at()].clone()).collect();
                        for (s, v) in states.iter().zip(next) {
                            self.values[s.value.at()] = v;
                        }
                    }
                    self.windows[axis.at()] = Window::default();
                    if let Some(part) = part.as_mut().filter(|p| !p.end) {
                        part.waiting = Some(states.iter().map(|s| self.values[s.value.at()].clone()).collect());
                    }
                    let ends = part.as_ref().is_none_or(|p| p.end);
                    self.part = self.part.take().or(part);
                    if !ends {
                        return Ok(true);
                    }
                }
                Op::SkipUnless { any } => {
                    let tile = self.values[any.at()].as_ref().ok_or("a skip reads nothing")?;
                    if tile.iter().all(|&v| v == 0.0) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}
