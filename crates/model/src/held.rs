//! How many elements of tiles must be in a memory at once, if a program places them as tightly as it can.

use crate::by_rows::{ByRows, TailByRows};
use crate::gpu::registers::{Loop, Moments};
use crate::gpu::uses::{fused, reads};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::BTreeSet;

/// The most elements of tiles that are alive at once at one point of the grid. Accumulators are updated in place, and so
/// are tiles by maps that are their last reader; a map that is read once is computed where it is read. A stream's body is
/// computed row by row where that holds less, what follows the last one as well, and factors of products pass by its rows element by element where that does: see the
/// module `by_rows`. Clipped tiles count as full ones.
///
/// ```
/// use einloom_cascade::DType::F32;
/// // 64 x 128 sums and 64 x 32 of one factor; of the other one element at a time.
/// let program = einloom_tile::by_hand::matmul([256, 256, 256], [64, 128, 32], F32).expect("well-formed");
/// assert_eq!(einloom_model::held_elements(&program.kernels[0]), 64 * 128 + 64 * 32 + 1);
/// ```
pub fn held_elements(kernel: &Kernel) -> u64 {
    Held::new(kernel).elements(kernel)
}

/// What a kernel holds, found once for all sizes of its tiles.
#[derive(Clone, Debug)]
pub struct Held {
    /// Outside the innermost streams, before the end of the last one.
    moments: Moments,
    /// After it, operation by operation and by rows.
    tail: (Moments, Vec<TailByRows>),
    /// In each innermost stream, operation by operation and by rows.
    streams: Vec<(Moments, Vec<ByRows>)>,
    /// By tile.
    sides: Vec<Vec<AxisId>>,
}

impl Held {
    /// Of this kernel, and of all that differ from it in extents and tiles alone.
    pub fn new(kernel: &Kernel) -> Self {
        // Other operations still read their operands while they write.
        let replaces = |op: &Op, v: ValueId| match op {
            Op::Map { .. } => true,
            Op::Mma { acc, .. } | Op::Reduce { acc, .. } => acc.is_some_and(|a| a == v),
            other => reads(other).is_empty(),
        };
        let all = (0..kernel.values.len() as u32).map(ValueId);
        let fused = fused(kernel);
        let (moments, loops, tail) = Moments::by_loop(kernel, &fused, &replaces);
        let by_rows = TailByRows::all(kernel, &tail, &fused);
        let one = |l: Loop<'_>| {
            let rows = ByRows::all(kernel, &l, &fused, &replaces);
            (l.moments.distinct(), rows)
        };
        Self {
            moments: moments.distinct(),
            tail: (tail.moments.distinct(), by_rows),
            streams: loops.into_iter().map(one).collect(),
            sides: all.map(|v| sides(kernel, v).into_iter().collect()).collect(),
        }
    }

    /// [`held_elements`] of a kernel with these tiles.
    pub fn elements(&self, kernel: &Kernel) -> u64 {
        self.with(kernel, &BTreeSet::new())
    }

    /// The same where some tiles stay from one point of the grid, or one chunk, to the next: nothing takes their place
    /// meanwhile.
    pub(crate) fn with(&self, kernel: &Kernel, kept: &BTreeSet<ValueId>) -> u64 {
        let side = |a: AxisId| kernel.axis(a).tile.min(kernel.axis(a).extent) as f64;
        let sizes: Vec<f64> = self.sides.iter().map(|s| s.iter().map(|&a| side(a)).product()).collect();
        let stream = |(moments, rows): &(Moments, Vec<ByRows>)| {
            let whole = moments.most(&sizes, kept);
            rows.iter().map(|r| r.most(&sizes, side(r.axis), kept)).fold(whole, f64::min)
        };
        let (tail, rows) = &self.tail;
        let tail = rows.iter().map(|r| r.most(&sizes, side(r.axis), kept)).fold(tail.most(&sizes, kept), f64::min);
        let outside = self.moments.most(&sizes, kept).max(tail);
        self.streams.iter().map(stream).fold(outside, f64::max) as u64
    }
}
