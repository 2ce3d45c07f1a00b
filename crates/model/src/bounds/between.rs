//! Numbers that a row holds beside what it keeps, from the first product with a column to the last.
//!
//! Where one sum makes, element by element, the weights of another one, a row and a column have a number of their own between
//! the two: the sum while it is incomplete, what is computed of it, the weight. Of attention these are the score, the maximum so
//! far and the one before.

use crate::gpu::uses::{fused, reads, written};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, State, ValueId};
use std::collections::BTreeSet;

/// Numbers of one row and one column that the operations of a stream's body hold at once, in their order, any result in the
/// place of any number that nothing reads later. Counted are those beyond the states that the row carries from column to
/// column, at the worst moment, from the first of `sums` to the contraction `result`. `None` where there is a moment without
/// such a number, or the body is not one of loads, maps, sums and reductions that contains them all.
pub(super) fn between(
    kernel: &Kernel,
    (states, ops): (&[State], &[Op]),
    sums: &[ValueId],
    result: ValueId,
    [rows, columns]: [&BTreeSet<AxisId>; 2],
) -> Option<usize> {
    if ops.iter().any(|op| matches!(op, Op::Stream { .. } | Op::Store { .. } | Op::SkipUnless { .. })) {
        return None;
    }
    let fused = fused(kernel);
    // One number of a row, or of a row and a column.
    let number = |v: &ValueId| {
        let own = sides(kernel, *v);
        own.iter().any(|a| rows.contains(a)) && own.iter().all(|a| rows.contains(a) || columns.contains(a))
    };
    let made: BTreeSet<ValueId> = ops.iter().filter_map(written).chain(states.iter().map(|s| s.value)).collect();
    let carried = states.iter().filter(|s| number(&s.value)).count();
    let numbers = |alive: &BTreeSet<ValueId>| alive.iter().filter(|v| made.contains(v) && number(v)).count();
    let (mut alive, mut inside) = (states.iter().map(|s| s.next).collect::<BTreeSet<_>>(), false);
    let (mut left, mut most) = (sums.len(), 0);
    for op in ops.iter().rev() {
        let Some(dst) = written(op).filter(|d| !fused.contains_key(d)) else { continue };
        // The weights are there until the last product with them is added.
        let after = numbers(&alive);
        alive.remove(&dst);
        alive.extend(reads(op).into_iter().flat_map(|v| fused.get(&v).cloned().unwrap_or(vec![v])));
        if inside {
            most = most.max(after.checked_sub(carried + 1)? + 1);
        }
        inside |= dst == result;
        left -= usize::from(inside && sums.contains(&dst));
        if inside && left == 0 {
            return Some(most);
        }
    }
    None
}
