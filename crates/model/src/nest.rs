//! A kernel's loops, and what is accessed under them.

use crate::bounds::needed::NeededAt;
use crate::bounds::read_in_any_tiles;
use crate::count::iterations;
use crate::counts::{Counts, What};
use crate::element::moved;
use crate::guarded::{are_few, known};
use crate::region::{Lean, largest, touched};
use arrayvec::ArrayVec;
use einloom_tile::{
    Affine, AxisId, Coord, CoordAtom, Guard, Kernel, Op, Predicate, Program, Scalar, TensorId, ValueId,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// A loop around an operation: an axis of the grid, or a stream.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub axis: AxisId,
    /// Where the stream runs; `None` for the grid.
    pub within: Option<Arc<Predicate>>,
    /// Of its guards those that positions alone decide.
    pub guards: Arc<[Guard]>,
}

impl Loop {
    pub fn stream(axis: AxisId, within: &Predicate, guards: &[Guard]) -> Self {
        Self { axis, within: Some(Arc::new(within.clone())), guards: known(guards) }
    }

    /// One that runs over all of its axis.
    pub fn over(axis: AxisId) -> Self {
        Self { axis, within: None, guards: known(&[]) }
    }

    /// The conditions on where it runs.
    pub fn conditions(&self) -> &[Affine] {
        self.within.as_ref().map_or(&[], |w| &w.all)
    }

    /// The axes that what it runs over depends on, its own one too where it is mentioned.
    pub fn steered_by(&self) -> impl Iterator<Item = AxisId> + use<'_> {
        let terms = self.conditions().iter().flat_map(|e| &e.terms).map(|t| t.1);
        terms.chain(self.guards.iter().flat_map(Guard::axes))
    }
}

/// One load or store with the loops around it, outermost first; the grid's come first.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub tensor: TensorId,
    pub at: Vec<Coord>,
    /// The tile that is loaded or stored.
    pub tile: ValueId,
    pub store: bool,
    /// A load that may reach outside the tensor.
    pub filled: bool,
    pub loops: Vec<Loop>,
    /// Of each loop whether a coordinate moves with it.
    pub moves: Vec<bool>,
    /// Of each loop whether all its iterations bring in the same: no coordinate moves with it, and no condition of it or of a loop inside
    /// it mentions it or one outside.
    pub again: Vec<bool>,
    /// Whether data decide a coordinate.
    pub gathers: bool,
    /// Where its numbers by depth begin among those of all accesses.
    first: usize,
}

/// The operations of a kernel's or a stream's body that are of interest here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    /// Numbers of the accesses directly in it.
    pub accesses: Vec<usize>,
    /// The streams directly in it.
    pub streams: Vec<Body>,
    /// Numbers of every access in it, also inside streams.
    pub all: Vec<usize>,
}

/// A kernel taken apart, whatever its tiles.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub accesses: Vec<Access>,
    pub body: Body,
    /// Per value, the axes that its elements depend on, also those it has no side for.
    pub depends: Vec<BTreeSet<AxisId>>,
    /// Under which conditions values are needed.
    pub needed: NeededAt,
    /// Whether what is executed or accessed depends on data.
    data_dependent: bool,
    /// Streams with guards that positions alone decide.
    pub guarded: Vec<(AxisId, Arc<[Guard]>)>,
}

/// The same for some tiles, with what was counted already: levels ask for the same, and other tiles for much of it.
pub(crate) struct Nest {
    parts: Arc<Parts>,
    pub counts: Arc<Counts>,
    /// For these tiles, by access and depth: what is touched, and iterations; [`UNKNOWN`] until it is asked for.
    own: Vec<Cell<[u64; 2]>>,
}

const UNKNOWN: u64 = u64::MAX;

impl Deref for Nest {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Nest {
    /// What an access touches at a depth: see [`touched`].
    pub fn touched(&self, program: &Program, kernel: &Kernel, k: usize, depth: usize, lean: Lean) -> u64 {
        let count = || {
            let parts = || touched(program, kernel, self, k, depth, lean);
            self.counts.of(kernel, What::Touched(k, depth, lean == Lean::High), parts)
        };
        if lean == Lean::Low { count() } else { self.once(k, depth, 0, count) }
    }

    /// The most that an access touches in one region of a depth.
    pub fn largest(&self, program: &Program, kernel: &Kernel, k: usize, depth: usize) -> u64 {
        let parts = || largest(program, kernel, self, k, depth);
        let dims = program.tensor(self.accesses[k].tensor).dims.iter();
        let size = dims.fold(1u64, |n, &d| n.saturating_mul(d as u64));
        self.counts.of(kernel, What::Largest(k, depth), parts).min(size)
    }

    /// Elements that an access moves.
    pub fn moved(&self, program: &Program, kernel: &Kernel, k: usize) -> u64 {
        let parts = || moved(program, kernel, &self.accesses[k], &self.counts);
        self.counts.of(kernel, What::Moved(k), parts)
    }

    /// Elements of a load in a stream with guards that are read with any tiles, at least.
    pub fn read_in_any_tiles(&self, kernel: &Kernel, k: usize) -> u64 {
        self.counts.least(k, || read_in_any_tiles(kernel, self, k))
    }

    /// Iterations of the first so many loops around an access.
    pub fn iterations(&self, kernel: &Kernel, k: usize, depth: usize) -> u64 {
        self.once(k, depth, 1, || {
            let loops = &self.accesses[k].loops;
            let parts = || iterations(kernel, &loops[..depth.min(loops.len())]).groups(&self.counts);
            self.counts.of(kernel, What::Iterations(k, depth), parts)
        })
    }

    /// Whether more may be counted than happens: data decide it, or what guards leave is not told apart with these tiles.
    pub fn data_dependent(&self, kernel: &Kernel) -> bool {
        self.data_dependent || self.guarded.iter().any(|(axis, guards)| !are_few(kernel, *axis, guards))
    }

    /// One of the two numbers of an access and a depth, counted if it was not asked for yet.
    fn once(&self, k: usize, depth: usize, which: usize, count: impl FnOnce() -> u64) -> u64 {
        let cell = &self.own[self.number(k, depth)];
        if cell.get()[which] == UNKNOWN {
            let value = count();
            let mut both = cell.get();
            both[which] = value;
            cell.set(both);
        }
        cell.get()[which]
    }

    /// A number that is the same for accesses and depths that touch the same elements; what these are as text.
    pub fn place(&self, k: usize, depth: usize, text: impl FnOnce() -> String) -> usize {
        self.counts.place(self.number(k, depth), text)
    }

    /// The number of an access and a depth among all.
    fn number(&self, k: usize, depth: usize) -> usize {
        let access = &self.accesses[k];
        access.first + depth.min(access.loops.len())
    }

    /// Iterations of the first so many loops of the grid.
    pub fn points(&self, kernel: &Kernel, depth: usize) -> u64 {
        let loops = grid_loops(kernel);
        let parts = || iterations(kernel, &loops[..depth.min(loops.len())]).groups(&self.counts);
        self.counts.of(kernel, What::Points(depth), parts)
    }

    pub fn new(kernel: &Kernel) -> Self {
        Self::with(kernel, Arc::default())
    }

    /// The same where something was counted of this kernel already, with these tiles or others.
    pub fn with(kernel: &Kernel, counts: Arc<Counts>) -> Self {
        let parts = counts.parts(|| Parts::new(kernel));
        let numbers = parts.accesses.last().map_or(0, |a| a.first + a.loops.len() + 1);
        Self { parts, counts, own: vec![Cell::new([UNKNOWN; 2]); numbers] }
    }
}

impl Parts {
    fn new(kernel: &Kernel) -> Self {
        let mut parts = Self { depends: vec![BTreeSet::new(); kernel.values.len()], ..Self::default() };
        parts.body = parts.body(kernel, &kernel.body, &mut grid_loops(kernel));
        parts.needed = NeededAt::new(kernel);
        parts
    }

    fn body(&mut self, kernel: &Kernel, ops: &[Op], loops: &mut Vec<Loop>) -> Body {
        let mut body = Body::default();
        for op in ops {
            match op {
                Op::Load { dst, tensor, at, fill } => {
                    let gathers = at.iter().any(|c| !tiles(c).is_empty());
                    self.data_dependent |= gathers && fill.is_some();
                    let mut depends = side_set(kernel, *dst);
                    for coord in at {
                        depends.extend(coord_axes(coord));
                        tiles(coord).into_iter().for_each(|v| depends.extend(self.depends[v.at()].iter().copied()));
                    }
                    self.depends[dst.at()] = depends;
                    body.accesses.push(self.access(*tensor, at, *dst, [false, fill.is_some()], loops));
                }
                Op::Store { tensor, at, src } => {
                    body.accesses.push(self.access(*tensor, at, *src, [true, false], loops));
                }
                Op::Map { dst, expr } => {
                    let mut depends = side_set(kernel, *dst);
                    self.scalar(expr, &mut depends);
                    self.depends[dst.at()] = depends;
                }
                Op::Mma { dst, a, b, acc } => self.combine(kernel, *dst, &[Some(*a), Some(*b), *acc]),
                Op::Reduce { dst, src, acc, .. } => self.combine(kernel, *dst, &[Some(*src), *acc]),
                Op::Pick { dst, src, axis, at, .. } => {
                    // The axis itself is whole wherever it is; the positions may depend on more.
                    let mut depends = side_set(kernel, *dst);
                    depends.extend(self.depends[src.at()].iter().copied().filter(|a| a != axis));
                    depends.extend(coord_axes(at));
                    tiles(at).into_iter().for_each(|v| depends.extend(self.depends[v.at()].iter().copied()));
                    self.depends[dst.at()] = depends;
                }
                Op::Stream { axis, within, guards, states, body: inner } => {
                    let known = known(guards);
                    self.data_dependent |= known.len() < guards.len();
                    if !known.is_empty() {
                        self.guarded.push((*axis, known));
                    }
                    for state in states {
                        self.depends[state.value.at()] = side_set(kernel, state.value);
                    }
                    loops.push(Loop::stream(*axis, within, guards));
                    body.streams.push(self.body(kernel, inner, loops));
                    loops.pop();
                    for state in states {
                        let next = self.depends[state.next.at()].clone();
                        self.depends[state.value.at()].extend(next.into_iter().filter(|a| a != axis));
                    }
                }
                Op::SkipUnless { .. } => self.data_dependent = true,
            }
        }
        body.all.clone_from(&body.accesses);
        body.streams.iter().for_each(|s| body.all.extend(&s.all));
        body
    }

    /// Takes down an access; gives its number.
    fn access(
        &mut self,
        tensor: TensorId,
        at: &[Coord],
        tile: ValueId,
        [store, filled]: [bool; 2],
        loops: &[Loop],
    ) -> usize {
        let moves: Vec<bool> = loops.iter().map(|l| at.iter().any(|c| mentions(c, l.axis))).collect();
        let steered = |j: usize| {
            let mut axes = loops[j..].iter().flat_map(Loop::steered_by);
            axes.any(|a| loops[..=j].iter().any(|l| l.axis == a))
        };
        let again = (0..loops.len()).map(|j| !moves[j] && !steered(j)).collect();
        let gathers = at.iter().any(|c| !tiles(c).is_empty());
        let first = self.accesses.last().map_or(0, |a| a.first + a.loops.len() + 1);
        let (at, loops) = (at.to_vec(), loops.to_vec());
        self.accesses.push(Access { tensor, at, tile, store, filled, loops, moves, again, gathers, first });
        self.accesses.len() - 1
    }

    /// A result over its operands; the axis that is summed or reduced is none of its sides and goes.
    fn combine(&mut self, kernel: &Kernel, dst: ValueId, operands: &[Option<ValueId>]) {
        let mut own = BTreeSet::new();
        let mut out = side_set(kernel, dst);
        for operand in operands.iter().flatten() {
            own.extend(sides(kernel, *operand));
            out.extend(self.depends[operand.at()].iter().copied());
        }
        let kept = sides(kernel, dst);
        out.retain(|a| kept.contains(a) || !own.contains(a));
        self.depends[dst.at()] = out;
    }

    fn scalar(&self, expr: &Scalar, out: &mut BTreeSet<AxisId>) {
        match expr {
            Scalar::Const(_) | Scalar::Argument(_) => {}
            Scalar::Tile(v) => out.extend(self.depends[v.at()].iter().copied()),
            Scalar::Position(a) => {
                out.insert(*a);
            }
            Scalar::Within(p) => out.extend(p.all.iter().flat_map(|e| &e.terms).map(|t| t.1)),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.scalar(x, out),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.scalar(e, out)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.scalar(e, out)),
        }
    }
}

/// The loops around a kernel's body.
pub(crate) fn grid_loops(kernel: &Kernel) -> Vec<Loop> {
    kernel.grid.iter().map(|&axis| Loop::over(axis)).collect()
}

/// The axes of a tile's sides, ascending, each once.
pub(crate) type Sides = ArrayVec<AxisId, 2>;

/// The axes of a tile's sides.
pub(crate) fn sides(kernel: &Kernel, value: ValueId) -> Sides {
    let value = kernel.value(value);
    let mut out = Sides::new();
    match (value.rows, value.cols) {
        (Some(a), Some(b)) if a != b => out.extend([a.min(b), a.max(b)]),
        (rows, cols) => out.extend(rows.or(cols)),
    }
    out
}

/// The same as a set to which others come.
pub(crate) fn side_set(kernel: &Kernel, value: ValueId) -> BTreeSet<AxisId> {
    sides(kernel, value).into_iter().collect()
}

/// The axes whose positions a coordinate mentions, also inside divisions.
pub(crate) fn coord_axes(coord: &Coord) -> BTreeSet<AxisId> {
    let mut out = BTreeSet::new();
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(a) => {
                out.insert(*a);
            }
            CoordAtom::Floor(numerator, _) => out.extend(coord_axes(numerator)),
            CoordAtom::Tile(_) => {}
        }
    }
    out
}

/// Whether a coordinate moves with an axis.
fn mentions(coord: &Coord, axis: AxisId) -> bool {
    coord.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Axis(a) => *a == axis,
        CoordAtom::Floor(inner, _) => mentions(inner, axis),
        CoordAtom::Tile(_) => false,
    })
}

/// The tiles that a coordinate gathers with.
pub(crate) fn tiles(coord: &Coord) -> Vec<ValueId> {
    let each = |(_, atom): &(i64, CoordAtom)| match atom {
        CoordAtom::Axis(_) => vec![],
        CoordAtom::Floor(numerator, _) => tiles(numerator),
        CoordAtom::Tile(v) => vec![*v],
    };
    coord.terms.iter().flat_map(each).collect()
}
