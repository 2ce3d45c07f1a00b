//! What issuing tile operations costs, whatever their size: why tiles must not be small. How long each takes is the
//! machine's (`[overhead]`).

use einloom_machine::{Level, Machine};
use einloom_model::passed_again;
use einloom_tile::{AxisId, AxisKind, Kernel, Op, Window, chunks, grid_points, grid_steps, initial_windows};

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
/// does not follow it, is a run of its own.
pub(crate) fn seconds_of_runs(kernel: &Kernel, machine: &Machine) -> f64 {
    let runs = |op: &Op, windows: &[Window]| {
        let (Op::Load { dst: tile, .. } | Op::Store { src: tile, .. }) = op else { return 0.0 };
        let tile = kernel.value(*tile);
        let (Some(rows), Some(cols)) = (tile.rows, tile.cols) else { return 0.0 };
        let whole = kernel.axis(cols).kind == AxisKind::Whole;
        if whole { 0.0 } else { windows[rows.at()].len as f64 }
    };
    per_core(kernel, machine, &runs) * machine.overhead.run.0
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
