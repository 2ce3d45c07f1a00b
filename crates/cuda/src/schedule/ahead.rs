//! Loops that go position by position with what they load on its way for several positions at once.
//!
//! A recurrence's step waits for the one before it, and not for what it loads: written one after the other, several steps have all their loads
//! first. Conditions: the loop goes one by one, does nothing but load into registers, compute and store, so that no thread waits for
//! another, and loads nothing that it stores.

use super::Schedule;
use super::facts::{Facts, each_op};
use einloom_tile::{AxisId, Op};

/// Registers of a thread for what is on its way.
const REGISTERS: usize = 64;

/// Positions that are written one after the other; 1 where a condition fails.
pub(crate) fn ahead(facts: &Facts<'_>, schedule: &Schedule, axis: AxisId, body: &[Op]) -> usize {
    let (mut loaded, mut stored, mut elements) = (vec![], vec![], 0);
    for op in body {
        match op {
            Op::Load { dst, tensor, .. } if schedule.home(*dst).shared.is_none() => {
                loaded.push(*tensor);
                let size = facts.axes(*dst).iter().map(|&a| facts.size(a)).product::<usize>();
                elements += size.div_ceil(schedule.threads());
            }
            Op::Store { tensor, .. } => stored.push(*tensor),
            Op::Map { .. } => {}
            _ => return 1,
        }
    }
    let alone = facts.kernel.axis(axis).tile == 1 && loaded.iter().all(|t| !stored.contains(t));
    let fits = |n: &usize| alone && !loaded.is_empty() && n * elements <= REGISTERS;
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Registers that a kernel with such a loop should have beside its tiles' for each thread; 0 without one.
pub(super) fn registers(facts: &Facts<'_>, schedule: &Schedule) -> usize {
    let mut found = 0;
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Stream { axis, guards, body, .. } = op
            && guards.is_empty()
            && ahead(facts, schedule, *axis, body) > 1
        {
            found = REGISTERS;
        }
    });
    found
}
