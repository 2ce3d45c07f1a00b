//! What issuing tile operations costs, whatever their size: why tiles must not be small.

use einloom_machine::Machine;
use einloom_tile::{Kernel, Op, Window, chunks, grid_points, initial_windows, set_grid_point};

/// Seconds to dispatch one tile operation.
const PER_OPERATION: f64 = 100e-9;
/// Seconds to start a kernel.
pub(crate) const PER_KERNEL: f64 = 5e-6;

/// The part of a kernel's time that does not depend on how large its tiles are. The middle point of the grid stands
/// for all.
pub(crate) fn seconds(kernel: &Kernel, machine: &Machine) -> f64 {
    let points = grid_points(kernel);
    if points == 0 {
        return PER_KERNEL;
    }
    let mut windows = initial_windows(kernel);
    set_grid_point(kernel, points / 2, &mut windows);
    let operations = visits(kernel, &kernel.body, &mut windows) * points as f64;
    let waves = points.div_ceil(machine.cores.max(1)) as f64 / points as f64;
    PER_KERNEL + operations * PER_OPERATION * waves
}

fn visits(kernel: &Kernel, ops: &[Op], windows: &mut Vec<Window>) -> f64 {
    let mut sum = 0.0;
    for op in ops {
        sum += match op {
            Op::Stream { axis, within, body, .. } => {
                let list = chunks(kernel, *axis, within, windows);
                let count = list.clone().count();
                let Some(middle) = list.clone().nth(count / 2) else { continue };
                let before = windows[axis.at()];
                windows[axis.at()] = middle;
                let each = visits(kernel, body, windows);
                windows[axis.at()] = before;
                each * count as f64
            }
            _ => 1.0,
        };
    }
    sum
}
