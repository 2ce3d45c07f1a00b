//! How busy the operations of one body keep the parts of a core.

use super::block::Block;
use super::cycles::{Busy, COPY_INSTRUCTIONS};
use super::operand;
use crate::nest::sides;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{AxisId, AxisKind, Coord, CoordAtom, Coverage, Op, Scalar, TensorId, ValueId, Window, coverage};
use std::collections::BTreeSet;

/// Bytes that memory gives at a time.
const SECTOR: f64 = 32.0;
/// Bytes that L2 could give at each of the requests that it takes. Measured on an H100: columns of a matrix in bf16 that are
/// summed in tiles of 16, 32, 64 and 128 neighbours take 1.60, 1.08, 0.77 and 0.72 ms for 2 GiB (docs/gpu-log.md).
const REQUEST: f64 = 128.0;
/// Instructions of a thread to load two elements: the address, the load, two conversions.
const LOAD_INSTRUCTIONS: f64 = 4.0;

/// The part of a load's wait that a load of one element at every position has, which asks for little: 61 to 65 cycles a position were measured where eight of f32
/// come together (averages of 1, 3 and 64 signals on an H200), 500 for each load.
const ALONE: f64 = 0.83;

impl Block<'_> {
    /// The operations directly in a body, their whole tiles: an instruction does not become shorter at an edge.
    pub(super) fn busy(&self, ops: &[Op], windows: &[Window]) -> Busy {
        let mut busy = Busy::default();
        let mut computed = BTreeSet::new();
        let (mut direct, mut singly) = (false, 0.0f64);
        for op in ops {
            match op {
                Op::Load { dst, tensor, at, .. } => {
                    let bytes = self.window_elements(*dst, windows) * self.program.tensor(*tensor).dtype.bytes() as f64;
                    busy.outside += bytes / self.clock.outside;
                    if self.shared.contains(dst) {
                        self.copied(*dst, &mut busy);
                    } else {
                        busy.direct += bytes / self.clock.outside;
                        self.scattered(*dst, bytes, &mut busy);
                        let wasted = self.wasted(*tensor, at, bytes);
                        busy.outside += wasted;
                        busy.direct += wasted;
                        direct |= self.elements(*dst) > 1.0;
                        singly = singly.max(self.one_by_one(*tensor, at));
                    }
                }
                Op::Store { tensor, src, at } => {
                    let bytes = self.window_elements(*src, windows) * self.program.tensor(*tensor).dtype.bytes() as f64;
                    busy.outside += bytes / self.clock.outside;
                    busy.outside += self.wasted(*tensor, at, bytes);
                    busy.arithmetic += self.elements(*src) / self.lanes();
                }
                Op::Map { dst, expr } => {
                    let (arithmetic, special) = self.functions(expr, sides(self.kernel, *dst).len(), windows);
                    let times = if self.structure.rare.contains(dst) { 0.0 } else { self.times(*dst) };
                    busy.arithmetic += arithmetic * times / self.lanes();
                    busy.special += special * times / self.clock.lanes.special as f64;
                    computed.insert(*dst);
                }
                Op::Reduce { dst, src, axis, .. } => {
                    busy.arithmetic += self.elements(*src) / self.lanes();
                    busy.waits += self.reduction_wait(*src, *axis);
                    computed.insert(*dst);
                }
                Op::Pick { dst, src, .. } => {
                    // Lanes leave the tile to each other in shared memory.
                    let [from, to] = [*src, *dst].map(|v| self.elements(v) * self.kernel.value(v).dtype.bytes() as f64);
                    busy.shared += (from + to) / self.clock.shared;
                    busy.arithmetic += (self.elements(*src) + 2.0 * self.elements(*dst)) / self.lanes();
                    busy.waits += self.clock.calibration.across_warps;
                    computed.insert(*dst);
                }
                Op::Mma { dst, a, b, .. } => {
                    self.product([*dst, *a, *b], &computed, &mut busy);
                    computed.insert(*dst);
                }
                Op::Stream { .. } | Op::SkipUnless { .. } => {}
            }
        }
        if direct {
            busy.waits += if self.unit.is_some() { self.clock.calibration.load } else { self.clock.latency };
        } else if singly > 0.0 {
            busy.waits += singly * ALONE * self.clock.calibration.load;
            busy.neighbours = 1.0 / singly;
        }
        self.rings(ops, &mut busy);
        busy
    }

    fn lanes(&self) -> f64 {
        self.clock.lanes.arithmetic as f64
    }

    /// Elements of a tile within the windows.
    fn window_elements(&self, v: ValueId, windows: &[Window]) -> f64 {
        sides(self.kernel, v).into_iter().map(|a| windows[a.at()].len as f64).product()
    }

    /// Threads that compute an element of a tile, all elements together: what broadcasts, several have.
    fn times(&self, v: ValueId) -> f64 {
        match sides(self.kernel, v).len() {
            2 => self.elements(v),
            _ => self.registers(v).max(1.0) * self.threads as f64,
        }
    }

    /// A tile that arrives in shared memory.
    fn copied(&self, v: ValueId, busy: &mut Busy) {
        let bytes = self.shared_bytes(v) as f64;
        busy.shared += bytes / self.clock.shared;
        if self.unit.is_some_and(|u| u.feeder_threads == 0) {
            busy.arithmetic += bytes / 16.0 * COPY_INSTRUCTIONS / self.lanes();
        }
    }

    /// A tile that threads load into the fragments in which a matrix unit has its rows: four threads of a row have two
    /// elements each beside one another, which is less than what memory gives at a time.
    fn scattered(&self, v: ValueId, bytes: f64, busy: &mut Busy) {
        if self.unit.is_none() || sides(self.kernel, v).len() < 2 {
            return;
        }
        let together = 8.0 * self.kernel.value(v).dtype.bytes() as f64;
        let wasted = bytes * (SECTOR / together - 1.0).max(0.0) / self.clock.outside;
        busy.outside += wasted;
        busy.direct += wasted;
        busy.arithmetic += self.elements(v) / 2.0 * LOAD_INSTRUCTIONS / self.lanes();
    }

    /// Time for what L2 could have given with the bytes that lanes ask for, in runs that are shorter.
    fn wasted(&self, tensor: TensorId, at: &[Coord], bytes: f64) -> f64 {
        if self.unit.is_some() {
            return 0.0;
        }
        let decl = self.program.tensor(tensor);
        let mut run = decl.dtype.bytes() as f64;
        for (coord, &extent) in at.iter().zip(&decl.dims).rev() {
            let (touched, closed) = match coord.terms.as_slice() {
                [] => (1, extent == 1),
                [(1, CoordAtom::Axis(axis))] => (self.size(*axis).min(extent), self.size(*axis) >= extent),
                // Neighbours ask for one element, or for the next.
                [(1, CoordAtom::Floor(inner, _))] if inner.terms.len() == 1 => match inner.terms[0] {
                    (1, CoordAtom::Axis(axis)) => (self.size(axis), false),
                    _ => (1, false),
                },
                // In steps, or wherever data say.
                _ => (1, false),
            };
            run *= touched as f64;
            // What is next to it in memory is part of the tile only where this dimension is whole.
            if !closed {
                break;
            }
        }
        bytes * (REQUEST / run - 1.0).max(0.0) / self.clock.outside
    }

    /// Where a stream goes one by one and an element comes in at every position, how many of them are waited for: neighbours in memory come together.
    fn one_by_one(&self, tensor: TensorId, at: &[Coord]) -> f64 {
        let moves = |atom: &CoordAtom| match atom {
            CoordAtom::Axis(a) => {
                let axis = self.kernel.axis(*a);
                axis.kind == AxisKind::Stream && axis.tile == 1 && axis.extent > 1
            }
            _ => false,
        };
        let moving = |c: &Coord| c.terms.iter().any(|(_, atom)| moves(atom));
        match at.split_last() {
            Some((_, others)) if others.iter().any(moving) => 1.0,
            Some((last, _)) if moving(last) => self.program.tensor(tensor).dtype.bytes() as f64 / SECTOR,
            _ => 0.0,
        }
    }

    fn reduction_wait(&self, src: ValueId, axis: AxisId) -> f64 {
        let value = self.kernel.value(src);
        let rows = value.rows.map_or(1, |a| self.size(a));
        match self.rows {
            Some(own) if own == axis => self.clock.calibration.across_warps,
            Some(_) => self.clock.calibration.shuffles,
            None if value.cols != Some(axis) || self.threads_of_row(rows) > 32 => self.clock.calibration.across_warps,
            None => self.clock.calibration.shuffles,
        }
    }

    /// A product on the unit.
    fn product(&self, [dst, a, b]: [ValueId; 3], computed: &BTreeSet<ValueId>, busy: &mut Busy) {
        let (Some(unit), Some(rows)) = (self.unit, self.rows) else { return };
        let Some(dtype) = operand(self.kernel, unit, a, b) else { return };
        let (left, right) = if sides(self.kernel, a).contains(&rows) { (a, b) } else { (b, a) };
        let own = sides(self.kernel, dst);
        let deep: usize =
            sides(self.kernel, right).iter().filter(|x| !own.contains(x)).map(|&x| self.size(x)).product();
        let deep = deep.next_multiple_of(unit.depth_of(dtype)) as f64;
        let high = self.size(rows) as f64;
        let wide: f64 = own.into_iter().filter(|x| *x != rows).map(|x| self.size(x) as f64).product();
        let cycles = high * wide * deep / self.clock.products(unit, dtype);
        match [left, right].iter().any(|v| computed.contains(v)) {
            true => busy.trailing += cycles,
            false => busy.leading += cycles,
        }
        let bytes = dtype.bytes() as f64;
        let [down, across] = self.groups.map(|g| g as f64);
        // How often the right factor is read: by every instruction's rows, or once by every group.
        let rights = if unit.shared_right { high / unit.rows as f64 } else { down };
        let mut read = wide * deep * bytes * rights;
        if self.shared.contains(&left) {
            let lefts = if unit.shared_right { (wide / unit.columns as f64).ceil() } else { across };
            read += high * deep * bytes * lefts;
        }
        if !self.structure.loaded.contains(&right) {
            // Written by those who computed it, behind a barrier.
            read += wide * deep * bytes;
            busy.waits += self.clock.calibration.across_warps;
        }
        busy.shared += read / self.clock.shared;
        busy.fragments += read / self.clock.shared;
        busy.waits += self.clock.calibration.product;
    }

    /// Rings: the streamed tiles of one product arrive together and are held while it is computed.
    fn rings(&self, ops: &[Op], busy: &mut Busy) {
        let loads: BTreeSet<ValueId> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Load { dst, .. } if self.shared.contains(dst) => Some(*dst),
                _ => None,
            })
            .collect();
        for op in ops {
            let Op::Mma { dst, a, b, .. } = op else { continue };
            let own: Vec<ValueId> = [*a, *b].into_iter().filter(|v| loads.contains(v)).collect();
            if own.is_empty() {
                continue;
            }
            let mut held = Busy::default();
            self.product([*dst, *a, *b], &BTreeSet::new(), &mut held);
            let bytes: f64 = own.iter().map(|&v| self.shared_bytes(v) as f64).sum();
            let turn = self.clock.latency + bytes / self.clock.outside + held.leading;
            busy.ring = busy.ring.max(turn);
            match self.unit.is_some_and(|u| u.feeder_threads > 0) {
                true => busy.waits += self.clock.calibration.stage,
                false => {
                    busy.waits += self.clock.calibration.own_stage;
                    busy.barriers += self.clock.calibration.own_stage;
                }
            }
        }
    }

    /// Arithmetic and special instructions per element of a tile with this many axes.
    fn functions(&self, expr: &Scalar, axes: usize, windows: &[Window]) -> (f64, f64) {
        let plus = |own: (f64, f64), parts: &[&Scalar]| {
            parts.iter().map(|e| self.functions(e, axes, windows)).fold(own, |a, b| (a.0 + b.0, a.1 + b.1))
        };
        match expr {
            Scalar::Const(_) | Scalar::Tile(_) | Scalar::Argument(_) => (0.0, 0.0),
            Scalar::Position(_) => (1.0, 0.0),
            // Chunks in which it holds everywhere are computed without the test.
            Scalar::Within(p) => match coverage(p, windows) {
                Coverage::Partial => (2.0 * p.all.len() as f64, 0.0),
                _ => (0.0, 0.0),
            },
            // Two elements at once.
            Scalar::Round(_, x) => plus((0.5, 0.0), &[x]),
            Scalar::Unary(op, x) => plus(unary(*op), &[x]),
            // What broadcasts is inverted once per row.
            Scalar::Binary(BinaryOp::Div, x, y) if self.broadcasts(y, axes) => plus((1.0, 0.0), &[x]),
            Scalar::Binary(op, x, y) => plus(binary(*op, x, y), &[x, y]),
            Scalar::Select(c, x, y) => match &**c {
                Scalar::Within(p) => match coverage(p, windows) {
                    Coverage::Full => self.functions(x, axes, windows),
                    Coverage::Empty => self.functions(y, axes, windows),
                    Coverage::Partial => plus((1.0, 0.0), &[c, x, y]),
                },
                _ => plus((1.0, 0.0), &[c, x, y]),
            },
        }
    }
}

impl Block<'_> {
    /// Whether an expression is that of a tile with fewer axes, or of none.
    fn broadcasts(&self, expr: &Scalar, axes: usize) -> bool {
        match expr {
            Scalar::Const(_) => true,
            Scalar::Tile(v) => sides(self.kernel, *v).len() < axes,
            _ => false,
        }
    }
}

/// Arithmetic and special instructions of a function of one value: those of the backend's short forms, or else of the
/// code that nvcc 13.0 makes for sm_90a.
fn unary(op: UnaryOp) -> (f64, f64) {
    match op {
        UnaryOp::Neg | UnaryOp::Abs => (0.0, 0.0),
        UnaryOp::Exp2 => (0.0, 1.0),
        UnaryOp::Exp | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Sqrt | UnaryOp::Rsqrt => (1.0, 1.0),
        UnaryOp::Log1p => (30.0, 0.0),
        UnaryOp::Sigmoid | UnaryOp::Silu => (3.0, 2.0),
        UnaryOp::Tanh => (14.0, 1.0),
        UnaryOp::Erf | UnaryOp::Gelu => (27.0, 1.0),
        // Without the reduction of large arguments.
        UnaryOp::Sin | UnaryOp::Cos => (30.0, 0.0),
        UnaryOp::Not | UnaryOp::Floor | UnaryOp::Round | UnaryOp::Sign | UnaryOp::Relu => (1.0, 0.0),
    }
}

fn binary(op: BinaryOp, left: &Scalar, right: &Scalar) -> (f64, f64) {
    match (op, left, right) {
        // As many factors; powers of two; others are a library's function.
        (BinaryOp::Pow, _, Scalar::Const(c)) if [2.0, 3.0, 4.0].contains(c) => (2.0, 0.0),
        (BinaryOp::Pow, Scalar::Const(c), _) if *c > 0.0 && *c != 1.0 => (9.0, 1.0),
        (BinaryOp::Pow, ..) => (80.0, 2.0),
        (BinaryOp::Div, ..) => (2.0, 1.0),
        _ => (1.0, 0.0),
    }
}
