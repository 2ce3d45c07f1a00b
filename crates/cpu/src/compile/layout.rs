//! Which side of each tile is adjacent in memory. Values that elementwise operations and states connect share one
//! choice, so that no operation between them has to exchange sides; loads, stores and contractions vote for what is
//! cheapest for them, in moved elements.

use super::Unit;
use crate::kernels::contract::parts;
use einloom_tile::{AxisId, Coord, CoordAtom, Init, Kernel, Op, Program, Scalar, TensorId, ValueId};

/// The inner axis of every value that has an axis.
pub(super) fn choose(program: &Program, kernel: &Kernel, unit: Option<Unit>) -> Vec<Option<AxisId>> {
    let mut votes = Votes {
        program,
        kernel,
        unit,
        loaded: vec![false; kernel.values.len()],
        parent: (0..kernel.values.len()).collect(),
        balance: vec![0.0; kernel.values.len()],
        depth: vec![0; kernel.values.len()],
    };
    votes.connect(&kernel.body);
    votes.memory(&kernel.body, 0);
    votes.rows(&kernel.body, 0);
    votes.contractions(&kernel.body, 0);
    votes.rights(&kernel.body, 0);
    (0..kernel.values.len()).map(|v| votes.inner(ValueId(v as u32))).collect()
}

/// A stream is taken to run this many chunks: what stands outside costs that much less.
const CHUNKS: f64 = 16.0;

/// Rows of fewer elements than this are short.
const SHORT: f64 = 32.0;
/// What each short row costs a step that goes row by row, in moved elements.
const EACH_ROW: f64 = 16.0;

struct Votes<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    /// The matrix unit, if there is one: it wants its factors packed.
    unit: Option<Unit>,
    /// Whether the value is loaded.
    loaded: Vec<bool>,
    parent: Vec<usize>,
    /// Per class: cost of having the smaller axis inner less that of the larger one.
    balance: Vec<f64>,
    /// Streams around the operation that writes the value.
    depth: Vec<u32>,
}

impl Votes<'_> {
    fn root(&self, mut v: usize) -> usize {
        while self.parent[v] != v {
            v = self.parent[v];
        }
        v
    }

    fn sides(&self, v: ValueId) -> (Option<AxisId>, Option<AxisId>) {
        let decl = self.kernel.value(v);
        (decl.rows.min(decl.cols), decl.rows.max(decl.cols))
    }

    fn join(&mut self, a: ValueId, b: ValueId) {
        if self.sides(a) == self.sides(b) && self.sides(a).0.is_some() {
            let (a, b) = (self.root(a.at()), self.root(b.at()));
            self.parent[a] = b;
        }
    }

    fn inner(&self, v: ValueId) -> Option<AxisId> {
        match self.sides(v) {
            (None, one) => one,
            (small, large) => {
                let balance = self.balance[self.root(v.at())];
                // Undecided: as declared, rows of adjacent columns.
                let small_inner = if balance == 0.0 { self.kernel.value(v).cols == small } else { balance < 0.0 };
                if small_inner { small } else { large }
            }
        }
    }

    /// Whether anything has been said about the value.
    fn decided(&self, v: ValueId) -> bool {
        self.balance[self.root(v.at())] != 0.0
    }

    /// `axis` as the inner one saves `cost`.
    fn vote(&mut self, v: ValueId, axis: AxisId, cost: f64) {
        if let (Some(small), Some(_)) = self.sides(v) {
            let root = self.root(v.at());
            self.balance[root] += if axis == small { -cost } else { cost };
        }
    }

    fn length(&self, axis: Option<AxisId>) -> f64 {
        axis.map_or(1.0, |a| {
            let a = self.kernel.axis(a);
            a.tile.min(a.extent) as f64
        })
    }

    fn elements(&self, v: ValueId) -> f64 {
        let decl = self.kernel.value(v);
        self.length(decl.rows) * self.length(decl.cols)
    }

    fn connect(&mut self, body: &[Op]) {
        for op in body {
            match op {
                Op::Map { dst, expr } => self.connect_leaves(*dst, expr),
                Op::Mma { dst, acc: Some(acc), .. } => self.join(*dst, *acc),
                // Rows of what lies alike are copied.
                Op::Pick { dst, src, .. } => self.join(*dst, *src),
                Op::Stream { states, body, .. } => {
                    for state in states {
                        self.join(state.value, state.next);
                        if let Init::Value(init) = state.init {
                            self.join(state.value, init);
                        }
                    }
                    self.connect(body);
                }
                _ => {}
            }
        }
    }

    fn connect_leaves(&mut self, dst: ValueId, expr: &Scalar) {
        match expr {
            Scalar::Tile(leaf) => self.join(dst, *leaf),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.connect_leaves(dst, x),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.connect_leaves(dst, e)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.connect_leaves(dst, e)),
            _ => {}
        }
    }

    /// Loads and stores vote for the axis along which memory is adjacent.
    fn memory(&mut self, body: &[Op], depth: u32) {
        let often = CHUNKS.powi(depth as i32);
        for op in body {
            match op {
                Op::Load { dst, tensor, at, .. } => {
                    self.depth[dst.at()] = depth;
                    self.loaded[dst.at()] = true;
                    if let Some(axis) = self.adjacent(*dst, *tensor, at) {
                        self.vote(*dst, axis, often * self.elements(*dst));
                    }
                }
                Op::Store { tensor, at, src } => {
                    if let Some(axis) = self.adjacent(*src, *tensor, at) {
                        self.vote(*src, axis, often * self.elements(*src));
                    }
                }
                Op::Map { dst, .. } | Op::Mma { dst, .. } | Op::Reduce { dst, .. } | Op::Pick { dst, .. } => {
                    self.depth[dst.at()] = depth;
                }
                Op::Stream { states, body, .. } => {
                    for state in states {
                        self.depth[state.value.at()] = depth + 1;
                    }
                    self.memory(body, depth + 1);
                }
                Op::SkipUnless { .. } => {}
            }
        }
    }

    /// Steps that go row by row, as each row has a number of its own or becomes one, vote against short rows.
    fn rows(&mut self, body: &[Op], depth: u32) {
        for op in body {
            match op {
                Op::Map { dst, expr } if self.one_side(expr) => self.against_short(*dst, depth),
                Op::Reduce { src, .. } => self.against_short(*src, depth),
                Op::Stream { body, .. } => self.rows(body, depth + 1),
                _ => {}
            }
        }
    }

    fn against_short(&mut self, v: ValueId, depth: u32) {
        let (Some(small), Some(large)) = self.sides(v) else { return };
        let cost = |inner: AxisId| {
            let length = self.length(Some(inner));
            if length < SHORT { EACH_ROW * self.elements(v) / length } else { 0.0 }
        };
        let (by_small, by_large) = (cost(small), cost(large));
        let better = if by_small < by_large { small } else { large };
        self.vote(v, better, (by_small - by_large).abs() * CHUNKS.powi(depth as i32));
    }

    /// Whether the expression reads values that lie along one of the sides alone.
    fn one_side(&self, expr: &Scalar) -> bool {
        let one = |e: &Scalar| self.one_side(e);
        match expr {
            Scalar::Tile(leaf) => matches!(self.sides(*leaf), (None, Some(_))),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => one(x),
            Scalar::Binary(_, x, y) => one(x) || one(y),
            Scalar::Select(c, x, y) => one(c) || one(x) || one(y),
            _ => false,
        }
    }

    /// The axis of the tile that moves by the fewest elements in memory; the other one if an axis must be gathered.
    fn adjacent(&self, v: ValueId, tensor: TensorId, at: &[Coord]) -> Option<AxisId> {
        let (Some(small), Some(large)) = self.sides(v) else { return None };
        let step = |axis: AxisId| {
            let strides = self.program.tensor(tensor).strides();
            let steps = at.iter().zip(strides).map(|(coord, stride)| stride as f64 * self.reach(coord, axis));
            let total = steps.sum::<f64>();
            // Not moving at all is no reason to be inner.
            if total == 0.0 { f64::INFINITY } else { total }
        };
        Some(if step(small) < step(large) { small } else { large })
    }

    fn reach(&self, coord: &Coord, axis: AxisId) -> f64 {
        let term = |(c, atom): &(i64, CoordAtom)| match atom {
            CoordAtom::Axis(a) if *a == axis => c.unsigned_abs() as f64,
            CoordAtom::Axis(_) => 0.0,
            // Steps of a division or a gather are not known: worse than any row.
            CoordAtom::Floor(inner, _) if self.reach(inner, axis) > 0.0 => 1e9,
            CoordAtom::Floor(..) => 0.0,
            CoordAtom::Tile(v) => {
                if [self.sides(*v).0, self.sides(*v).1].contains(&Some(axis)) {
                    1e9
                } else {
                    0.0
                }
            }
        };
        coord.terms.iter().map(term).sum()
    }

    /// Contractions vote for the result's inner axis that needs the least rearranging of a factor.
    fn contractions(&mut self, body: &[Op], depth: u32) {
        for op in body {
            match op {
                Op::Mma { dst, a, b, .. } => self.contraction(*dst, *a, *b, depth),
                Op::Stream { body, .. } => self.contractions(body, depth + 1),
                _ => {}
            }
        }
    }

    fn contraction(&mut self, dst: ValueId, a: ValueId, b: ValueId, depth: u32) {
        let decl = self.kernel.value(dst);
        let (Some(rows), Some(cols)) = (decl.rows, decl.cols) else { return };
        let owner = |axis: AxisId| {
            let decl = self.kernel.value(a);
            if decl.rows == Some(axis) || decl.cols == Some(axis) { a } else { b }
        };
        let often = CHUNKS.powi(depth as i32);
        let cost = |axis: AxisId| {
            let factor = owner(axis);
            let other = if factor == a { b } else { a };
            let rearrange = if self.packs(dst, a, b, axis) {
                // Both are packed, however they lie: the right one where it is made, the left one each time.
                let made = CHUNKS.powi(self.depth[factor.at()].min(depth) as i32);
                self.elements(factor) * made + self.elements(other) * often
            } else if !self.decided(factor) || self.inner(factor) == Some(axis) {
                0.0
            } else if self.few(dst, axis) && self.inner(other) != self.outside(dst, axis) {
                // Row by row: every element is read once, a register at a time.
                self.elements(factor) * often / 8.0
            } else {
                // About as much as a multiplication of a register per element.
                self.elements(factor) * CHUNKS.powi(self.depth[factor.at()].min(depth) as i32)
            };
            // Registers that are not full.
            let length = self.length(Some(axis));
            let waste = ((length / 16.0).ceil() * 16.0 / length - 1.0) * self.elements(a) * self.elements(b)
                / 16.0
                / self.summed(dst, a);
            rearrange + waste * often
        };
        let (by_rows, by_cols) = (cost(rows), cost(cols));
        let best = if by_rows < by_cols { rows } else { cols };
        self.vote(dst, best, (by_rows - by_cols).abs().max(0.5));
        let factor = owner(best);
        if !self.decided(factor) {
            self.vote(factor, best, 0.5);
        }
        // A left factor is packed from adjacent terms: one that is computed with others is brought into that form first,
        // each time.
        let left = if factor == a { b } else { a };
        if self.packs(dst, a, b, best)
            && !self.loaded[left.at()]
            && let Some(terms) = self.summed_axis(dst, a)
        {
            self.vote(left, terms, self.elements(left) * often);
        }
    }

    /// Whether the matrix unit may multiply these factors, with `inner` as the result's inner axis.
    fn packs(&self, dst: ValueId, a: ValueId, b: ValueId, inner: AxisId) -> bool {
        let parts = [a, b].map(|v| parts(self.kernel.value(v).dtype));
        !self.few(dst, inner) && self.unit.is_some_and(|unit| unit.may(parts))
    }

    /// Right factors that the unit multiplies, and that are loaded for that alone, are loaded the way they are packed:
    /// what is packed is kept wherever it can be used again.
    fn rights(&mut self, body: &[Op], depth: u32) {
        for op in body {
            match op {
                Op::Mma { dst, a, b, .. } => {
                    let Some(inner) = self.inner(*dst) else { continue };
                    let decl = self.kernel.value(*a);
                    let right = if [decl.rows, decl.cols].contains(&Some(inner)) { *a } else { *b };
                    let alone = (0..self.parent.len()).filter(|&v| self.root(v) == self.root(right.at())).count() == 1;
                    if self.packs(*dst, *a, *b, inner) && self.loaded[right.at()] && alone {
                        self.vote(right, inner, 2.0 * self.elements(right) * CHUNKS.powi(depth as i32));
                    }
                }
                Op::Stream { body, .. } => self.rights(body, depth + 1),
                _ => {}
            }
        }
    }

    /// The result's other axis.
    fn outside(&self, dst: ValueId, axis: AxisId) -> Option<AxisId> {
        let decl = self.kernel.value(dst);
        if decl.rows == Some(axis) { decl.cols } else { decl.rows }
    }

    /// Whether the result has few elements across `axis`.
    fn few(&self, dst: ValueId, axis: AxisId) -> bool {
        self.length(self.outside(dst, axis)) <= super::FEW as f64
    }

    /// Length of the summed axis.
    fn summed(&self, dst: ValueId, a: ValueId) -> f64 {
        self.length(self.summed_axis(dst, a)).max(1.0)
    }

    fn summed_axis(&self, dst: ValueId, a: ValueId) -> Option<AxisId> {
        let (dst, a) = (self.kernel.value(dst), self.kernel.value(a));
        let mut axes = [a.rows, a.cols].into_iter().flatten();
        axes.find(|x| Some(*x) != dst.rows && Some(*x) != dst.cols)
    }
}
