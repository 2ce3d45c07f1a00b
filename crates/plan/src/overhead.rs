//! What issuing tile operations costs, whatever their size: why tiles must not be small. How long each takes is the
//! machine's (`[overhead]`).

use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_machine::{Level, Machine};
use einloom_model::passed_again;
use einloom_tile::{
    AxisId, AxisKind, CoordAtom, Guard, Interval, Kernel, Op, Scalar, Window, chunks, grid_points, grid_steps,
    initial_windows, interval,
};

/// See [`seconds_of_sums`].
const UNHIDDEN: f64 = 2.0;

/// The part of a kernel's time that does not depend on how large its tiles are.
pub(crate) fn seconds(kernel: &Kernel, machine: &Machine) -> f64 {
    let each = &machine.overhead;
    each.kernel.0 + per_core(kernel, machine, &|_, _| 1.0) * each.operation.0
}

/// What it costs that sums of products are added to in parts: registers hold a few of them, so that a tile of sums passes the innermost
/// memory that holds it, in and out, with every product of tiles. Nothing of that is hidden where each part of a product starts and ends, so it
/// takes twice what its bandwidth says. Measured on a Zen 3, f32, one thread, 512 to 2048 cubed: tiles of 128 by 256 take 3 to 5 % longer for 128 steps each
/// than for 256. For kernels that do nothing but multiply: where more is done with the sums, larger tiles were found to gain more than this
/// says they lose (docs/model.md).
pub(crate) fn seconds_of_sums(kernel: &Kernel, machine: &Machine) -> f64 {
    let passes = |op: &Op, windows: &[Window]| {
        let Op::Mma { dst, acc: Some(_), .. } = op else { return 0.0 };
        let tile = kernel.value(*dst);
        let len = |axis: Option<AxisId>| axis.map_or(1, |a| windows[a.at()].len) as f64;
        let bytes = len(tile.rows) * len(tile.cols) * tile.dtype.bytes() as f64;
        let holds = |l: &&Level| l.per_core().is_none_or(|c| c.0 as f64 >= bytes);
        let level = machine.trunk().rfind(holds);
        level.map_or(0.0, |l| UNHIDDEN * 2.0 * bytes / l.bandwidth.0)
    };
    per_core(kernel, machine, &passes) * machine.cores.max(1) as f64
}

/// What it costs that tiles are parts of rows: a row of a tile that is not a tensor's whole row, or the next of which
/// does not follow it, is a run of its own. So is every element of a tile across the rows of which other points of the grid have the
/// rest: a line that one of them writes is another's next.
pub(crate) fn seconds_of_runs(kernel: &Kernel, machine: &Machine) -> f64 {
    let runs = |op: &Op, windows: &[Window]| {
        let (Op::Load { dst: tile, at, .. } | Op::Store { src: tile, at, .. }) = op else { return 0.0 };
        let tile = kernel.value(*tile);
        let Some(last) = at.last() else { return 0.0 };
        let along = |holds: &dyn Fn(&AxisId) -> bool| {
            last.terms.iter().any(|(_, t)| matches!(t, CoordAtom::Axis(i) if holds(i)))
        };
        let moves = |a: &AxisId| along(&|i| i == a);
        let is_shared = along(&|i| kernel.axis(*i).kind == AxisKind::Grid);
        let len = |axis: Option<AxisId>| axis.map_or(1, |a| windows[a.at()].len) as f64;
        let elements = len(tile.rows) * len(tile.cols);
        match [tile.rows, tile.cols].into_iter().flatten().find(moves) {
            Some(along) if kernel.axis(along).kind == AxisKind::Whole => 0.0,
            // One row alone is read as such.
            Some(_) if tile.rows.is_none() || tile.cols.is_none() => 0.0,
            Some(along) => elements / len(Some(along)),
            None if is_shared && elements > 1.0 => match op {
                Op::Store { .. } => elements,
                _ => elements * BY_ITSELF,
            },
            None if tile.rows.is_some() && tile.cols.is_some() => len(tile.rows),
            None => 0.0,
        }
    };
    per_core(kernel, machine, &runs) * machine.overhead.run.0
}

/// The part of a run that an element takes which is read so.
const BY_ITSELF: f64 = 0.125;

/// What it costs that elements of a tile are chosen by where they are, one beside the other: the condition is computed for each, copied and
/// applied, and what is reduced of them is passed once more. Where it holds for all elements, or for none, it costs nothing. For kernels that do not
/// multiply: where products follow, the condition is part of what makes their factors.
pub(crate) fn seconds_of_masks(kernel: &Kernel, machine: &Machine) -> f64 {
    if multiplies(&kernel.body) {
        return 0.0;
    }
    let masks = |op: &Op, windows: &[Window]| {
        let Op::Map { dst, expr } = op else { return 0.0 };
        let tile = kernel.value(*dst);
        let (Some(rows), Some(cols)) = (tile.rows, tile.cols) else { return 0.0 };
        match divides(expr, windows) {
            true => (windows[rows.at()].len * windows[cols.at()].len) as f64,
            false => 0.0,
        }
    };
    per_core(kernel, machine, &masks) * MASK * machine.overhead.operation.0
}

/// The part of what an operation takes that each such element takes: 16.8 million of them, of tiles of 256 by 256, take a Zen 3 18.5 ms.
const MASK: f64 = 0.011;

/// Whether an expression has a condition on positions that holds for some elements of the windows and not for others.
fn divides(expr: &Scalar, windows: &[Window]) -> bool {
    match expr {
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => false,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => divides(x, windows),
        Scalar::Binary(_, x, y) => divides(x, windows) || divides(y, windows),
        Scalar::Select(c, x, y) => {
            let asks = of_positions(c).map(|g| interval(&g, windows, &|_| Interval::ANY));
            asks.is_some_and(|i| i.low < i.high) || [x, y].into_iter().any(|x| divides(x, windows))
        }
    }
}

/// A condition that depends on positions alone.
fn of_positions(condition: &Scalar) -> Option<Guard> {
    Some(match condition {
        Scalar::Const(x) => Guard::Const(*x),
        Scalar::Position(a) => Guard::Position(*a),
        Scalar::Within(p) => Guard::Within(p.clone()),
        Scalar::Unary(op @ (UnaryOp::Not | UnaryOp::Neg | UnaryOp::Abs), x) => {
            Guard::Unary(*op, Box::new(of_positions(x)?))
        }
        Scalar::Binary(op, x, y) if op.is_comparison() || COMBINE.contains(op) => {
            Guard::Binary(*op, Box::new(of_positions(x)?), Box::new(of_positions(y)?))
        }
        _ => return None,
    })
}

/// What positions and conditions are put together with.
const COMBINE: [BinaryOp; 5] = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::And, BinaryOp::Or];

/// Whether there is a product of tiles.
pub(crate) fn multiplies(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Mma { .. } => true,
        Op::Stream { body, .. } => multiplies(body),
        _ => false,
    })
}

/// Bytes that the tiles of all cores move again between their operations, where they are not held close.
pub(crate) fn bytes_passed_again(kernel: &Kernel, machine: &Machine) -> f64 {
    let passed = passed_again(kernel);
    let bytes = |op: &Op, windows: &[Window]| {
        let (Op::Load { dst, .. } | Op::Map { dst, .. } | Op::Reduce { dst, .. } | Op::Pick { dst, .. }) = op else {
            return 0.0;
        };
        let Some(&times) = passed.get(dst) else { return 0.0 };
        let tile = kernel.value(*dst);
        let len = |axis: Option<AxisId>| axis.map_or(1, |a| windows[a.at()].len) as f64;
        times as f64 * len(tile.rows) * len(tile.cols) * tile.dtype.bytes() as f64
    };
    per_core(kernel, machine, &bytes) * machine.cores.max(1) as f64
}

/// What one core sums up over all operations that it executes. The point in the middle of each axis of the grid stands for all; on a GPU that
/// in the middle of all points, which of causal rows is a short one. What an operation takes there was estimated with it, and is too much with the other one: linear
/// attention gets tiles of 256 keys, which take 1.8 times as long (H200, 4 by 4 heads of 4096 rows of 64: 1.87 and 1.05 ms).
fn per_core(kernel: &Kernel, machine: &Machine, of: &dyn Fn(&Op, &[Window]) -> f64) -> f64 {
    let points = grid_points(kernel);
    if points == 0 {
        return 0.0;
    }
    let mut windows = initial_windows(kernel);
    let mut middle = points / 2;
    // In the order of the text, whichever the grid has.
    let mut axes = kernel.grid.clone();
    axes.sort();
    for id in axes.into_iter().rev() {
        let axis = kernel.axis(id);
        let steps = grid_steps(axis);
        let step = if machine.lanes.is_some() { middle % steps } else { steps / 2 };
        middle /= steps;
        let base = step * axis.tile;
        windows[id.at()] = Window { base, len: axis.tile.min(axis.extent - base) };
    }
    visits(kernel, &kernel.body, &mut windows, of) * points.div_ceil(machine.cores.max(1)) as f64
}

fn visits(kernel: &Kernel, ops: &[Op], windows: &mut Vec<Window>, of: &dyn Fn(&Op, &[Window]) -> f64) -> f64 {
    let mut sum = 0.0;
    for op in ops {
        sum += match op {
            Op::Stream { axis, within, body, .. } => {
                let list = chunks(kernel, *axis, within, windows);
                let count = list.clone().count();
                let Some(middle) = list.clone().nth(count / 2) else { continue };
                let before = windows[axis.at()];
                windows[axis.at()] = middle;
                let each = visits(kernel, body, windows, of);
                windows[axis.at()] = before;
                each * count as f64
            }
            op => of(op, windows),
        };
    }
    sum
}
