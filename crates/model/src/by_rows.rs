//! A stream's body row by row.
//!
//! Operation by operation a body holds whole tiles of what lies between its results and what it loads: of attention, three
//! numbers of each row besides those that pass from one chunk to the next. Where no row of such tiles depends on another one,
//! all operations can be done for a row before the next row begins, and one row of them is held at a time.
//!
//! Conditions, for rows along an axis: the body has no stream, no store and no condition on data in it; no operation
//! sums or reduces along the axis. Then what has no such rows is loaded and computed first and stays until the last row is
//! done; what states hold of a row is replaced in place.

use crate::gpu::registers::Loop;
use crate::gpu::uses::{reads, written};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// What a body holds if it goes through the rows along an axis one by one.
#[derive(Clone, Debug)]
pub(crate) struct ByRows {
    pub axis: AxisId,
    /// Whole tiles: from outside, of states, and without rows along the axis.
    whole: Vec<ValueId>,
    /// Tiles of which there is one row, by moment.
    rows: Vec<Vec<ValueId>>,
}

impl ByRows {
    /// Every axis along which the body can go.
    pub fn all(
        kernel: &Kernel,
        body: &Loop<'_>,
        fused: &BTreeMap<ValueId, Vec<ValueId>>,
        replaces: &dyn Fn(&Op, ValueId) -> bool,
    ) -> Vec<Self> {
        let written = body.ops.iter().filter_map(written);
        let axes: BTreeSet<AxisId> = written.flat_map(|v| sides(kernel, v)).collect();
        axes.into_iter().filter_map(|axis| Self::new(kernel, body, axis, fused, replaces)).collect()
    }

    fn new(
        kernel: &Kernel,
        body: &Loop<'_>,
        axis: AxisId,
        fused: &BTreeMap<ValueId, Vec<ValueId>>,
        replaces: &dyn Fn(&Op, ValueId) -> bool,
    ) -> Option<Self> {
        let has = |v: ValueId| sides(kernel, v).contains(&axis);
        for op in body.ops {
            match op {
                Op::Load { .. } | Op::Map { .. } | Op::Mma { .. } | Op::Reduce { .. } => {}
                Op::Stream { .. } | Op::Store { .. } | Op::SkipUnless { .. } => return None,
            }
            if written(op).is_some_and(|dst| !has(dst)) && reads(op).into_iter().any(has) {
                return None;
            }
        }
        let ops: Vec<(&Op, ValueId)> = body.ops.iter().filter_map(|op| Some((op, written(op)?))).collect();
        let ops: Vec<(&Op, ValueId)> = ops.into_iter().filter(|(_, dst)| !fused.contains_key(dst)).collect();
        let sources = |op: &Op| -> BTreeSet<ValueId> {
            reads(op).into_iter().flat_map(|v| fused.get(&v).cloned().unwrap_or(vec![v])).collect()
        };
        // What is read for the last time by each operation.
        let mut alive: BTreeSet<ValueId> = body.states.iter().map(|s| s.next).collect();
        let mut after = vec![];
        for (op, dst) in ops.iter().rev() {
            let dying: Vec<ValueId> = sources(op).into_iter().filter(|v| !alive.contains(v)).collect();
            after.push((alive.clone(), dying));
            alive.remove(dst);
            alive.extend(sources(op));
        }
        after.reverse();
        // Rows that lie where a state's row was.
        let mut placed: BTreeSet<ValueId> = body.states.iter().map(|s| s.value).filter(|&v| has(v)).collect();
        let own: BTreeSet<ValueId> = ops.iter().map(|o| o.1).filter(|&v| has(v)).collect();
        let mut rows = vec![];
        for ((op, dst), (alive, dying)) in ops.iter().zip(&after) {
            let fits = |v: &&ValueId| replaces(op, **v) && sides(kernel, **v) == sides(kernel, *dst);
            let replaced = dying.iter().filter(fits).max_by_key(|v| placed.contains(v)).copied();
            if replaced.is_some_and(|v| placed.contains(&v)) {
                placed.insert(*dst);
            }
            let there =
                alive.iter().copied().chain(dying.iter().copied().filter(|v| Some(*v) != replaced)).chain([*dst]);
            let there: BTreeSet<ValueId> = there.filter(|v| own.contains(v) && !placed.contains(v)).collect();
            rows.push(there.into_iter().collect());
        }
        rows.sort();
        rows.dedup();
        let states = body.states.iter().map(|s| s.value);
        let without = ops.iter().map(|o| o.1).filter(|v| !own.contains(v));
        let whole: BTreeSet<ValueId> = body.outside.iter().copied().chain(states).chain(without).collect();
        Some(Self { axis, whole: whole.into_iter().collect(), rows })
    }

    /// The largest sum of sizes, with `side` rows in a tile; tiles that are `kept` are there all the time.
    pub fn most(&self, sizes: &[f64], side: f64, kept: &BTreeSet<ValueId>) -> f64 {
        let size = |v: &ValueId| if kept.contains(v) { 0.0 } else { sizes[v.at()] };
        let beside: f64 = kept.iter().map(|v| sizes[v.at()]).sum();
        let row = |values: &Vec<ValueId>| values.iter().map(size).sum::<f64>() / side.max(1.0);
        beside + self.whole.iter().map(size).sum::<f64>() + self.rows.iter().map(row).fold(0.0, f64::max)
    }
}
