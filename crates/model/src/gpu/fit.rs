//! Whether a matrix unit takes the products of a kernel, and which axis its groups share.

use super::operand;
use super::uses::{each, written};
use crate::nest::sides;
use einloom_cascade::DType;
use einloom_machine::MatrixUnit;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::BTreeSet;

/// The axis along which groups own rows: one that the result of every product has.
pub(super) fn row_axis(kernel: &Kernel, unit: &MatrixUnit) -> Result<AxisId, String> {
    let mut common: Option<Vec<AxisId>> = None;
    let mut problem = None;
    each(&kernel.body, &mut |op| {
        let Op::Mma { dst, a, b, .. } = op else { return };
        let name = &kernel.value(*dst).name;
        if sides(kernel, *dst).len() < 2 || sides(kernel, *a).len() < 2 || sides(kernel, *b).len() < 2 {
            problem.get_or_insert(format!("{name} = mma has a tile of fewer than two axes"));
        } else if kernel.value(*dst).dtype == DType::F64 || operand(kernel, unit, *a, *b).is_none() {
            let [a, b] = [*a, *b].map(|v| kernel.value(v).dtype);
            problem.get_or_insert(format!("{name} = mma multiplies {a} by {b}"));
        }
        let value = kernel.value(*dst);
        let own: Vec<AxisId> = [value.rows, value.cols].into_iter().flatten().collect();
        common = Some(match common.take() {
            None => own,
            Some(before) => before.into_iter().filter(|axis| own.contains(axis)).collect(),
        });
    });
    if let Some(problem) = problem {
        return Err(problem);
    }
    let loaded = loaded(kernel);
    let mut reason = "its products have no axis in common".to_string();
    for axis in common.unwrap_or_default() {
        match rows_along(kernel, unit, axis, &loaded) {
            Ok(()) => return Ok(axis),
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

/// Tiles that come from memory as they are.
pub(super) fn loaded(kernel: &Kernel) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Load { dst, .. } = op {
            out.insert(*dst);
        }
    });
    out
}

/// Whether groups can own rows along this axis.
fn rows_along(kernel: &Kernel, unit: &MatrixUnit, axis: AxisId, loaded: &BTreeSet<ValueId>) -> Result<(), String> {
    let name = &kernel.axis(axis).name;
    let mut problem = None;
    let fed = unit.feeder_threads > 0;
    let mut factors = BTreeSet::new();
    each(&kernel.body, &mut |op| match op {
        Op::Mma { dst, a, b, .. } => {
            factors.extend([*a, *b]);
            let right = if sides(kernel, *a).contains(&axis) { *b } else { *a };
            if fed && !loaded.contains(&right) {
                let dst = &kernel.value(*dst).name;
                problem = Some(format!("the right factor of {dst} = mma is computed, and only copies feed it"));
            }
        }
        Op::Reduce { dst, axis: over, .. } if fed && *over == axis => {
            let dst = &kernel.value(*dst).name;
            problem = Some(format!("{dst} is reduced along {name}, over rows of several groups"));
        }
        Op::Pick { dst, .. } if fed => {
            let dst = &kernel.value(*dst).name;
            problem = Some(format!("{dst} is picked from rows of other groups, which do not wait for each other"));
        }
        Op::SkipUnless { any } if fed => {
            let any = &kernel.value(*any).name;
            problem = Some(format!("{any} decides whether a chunk is skipped, and copies run ahead of it"));
        }
        Op::Stream { body, .. } if fed && body.iter().any(|o| matches!(o, Op::Stream { .. })) => {
            problem = Some("a stream runs inside a stream".to_string());
        }
        _ => {}
    });
    if let Some(problem) = problem {
        return Err(problem);
    }
    let mut across = None;
    each(&kernel.body, &mut |op| {
        let Some(v) = written(op) else { return };
        let own = sides(kernel, v);
        if own.len() == 2 && !own.contains(&axis) && !(factors.contains(&v) && loaded.contains(&v)) {
            across = Some(v);
        }
    });
    match across.filter(|_| fed) {
        Some(v) => Err(format!("{} has no rows along {name}", kernel.value(v).name)),
        None => Ok(()),
    }
}

/// Whether each row of a tile has to lie within one group: it is reduced or multiplied further in registers, or the
/// unit reads a row's factor for all columns.
pub(super) fn whole_rows(kernel: &Kernel, unit: &MatrixUnit) -> bool {
    let loaded = loaded(kernel);
    let mut found = unit.shared_right;
    each(&kernel.body, &mut |op| match op {
        Op::Reduce { src, .. } => found |= sides(kernel, *src).len() == 2,
        Op::Mma { a, b, .. } => found |= !loaded.contains(a) || !loaded.contains(b),
        _ => {}
    });
    found
}
