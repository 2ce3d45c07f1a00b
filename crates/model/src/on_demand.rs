//! Loads that come in element by element where they are read, and need a place all the same.
//!
//! An operation goes along the two axes of what it makes, one inside the other. A load that lacks the inner one has one element there at a time; a load that
//! lacks the outer one is asked for again and again, and stays. So of loads that lack different axes either kind may pass by the other, which is there as a whole.

use crate::gpu::uses::{each, reads, written};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// One way to go along the axes of operations that make elements of what they load.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnDemand {
    /// Loads that stay as a whole.
    pub stays: BTreeSet<ValueId>,
    /// Loads of which one element is there at a time, while others stay.
    pub passes: BTreeSet<ValueId>,
    /// Elements that are there besides: of each load that passes one, and one that is made of them.
    pub beside: usize,
}

impl OnDemand {
    /// All ways, for loads and maps that are made where they are read.
    pub fn all(kernel: &Kernel, fused: &BTreeMap<ValueId, Vec<ValueId>>) -> Vec<Self> {
        let (mut defs, mut ops) = (BTreeMap::new(), vec![]);
        each(&kernel.body, &mut |op| {
            written(op).into_iter().for_each(|v| _ = defs.insert(v, op));
            if written(op).is_none_or(|v| !fused.contains_key(&v)) {
                ops.push(op);
            }
        });
        let apart: Vec<_> = ops.into_iter().filter_map(|op| Read::new(kernel, op, &defs, fused)).collect();
        let ways = if apart.iter().any(|r| r.lacks.iter().all(|l| !l.is_empty())) { vec![0, 1] } else { vec![0] };
        ways.into_iter().map(|inner| apart.iter().fold(Self::default(), |way, read| way.with(read, inner))).collect()
    }

    /// With another operation, along this one of its axes inside.
    fn with(mut self, read: &Read, inner: usize) -> Self {
        let [passing, staying] = [&read.lacks[inner], &read.lacks[1 - inner]];
        let stays = if passing.is_empty() { 0 } else { staying.len() };
        if stays > 0 {
            self.stays.extend(staying);
            self.passes.extend(passing);
        }
        let (reduces, at_hand) = (read.reduces, read.whole + read.lacks.iter().map(Vec::len).sum::<usize>() - stays);
        // What passes is asked for again by the next element, so that no result takes its place.
        let made = usize::from((reduces || stays > 0) && read.whole == 0);
        if reduces || stays > 0 {
            self.beside = self.beside.max(at_hand + made - usize::from(!reduces && read.whole > 0));
        }
        self
    }
}

/// What an operation loads element by element.
struct Read {
    /// Loads that lack each of the axes, but not both.
    lacks: [Vec<ValueId>; 2],
    /// How many lack none.
    whole: usize,
    /// Whether what is made of them is summed or reduced, and not put in the place of one of them.
    reduces: bool,
}

impl Read {
    fn new(
        kernel: &Kernel,
        op: &Op,
        defs: &BTreeMap<ValueId, &Op>,
        fused: &BTreeMap<ValueId, Vec<ValueId>>,
    ) -> Option<Self> {
        let over = match op {
            Op::Map { dst, .. } => *dst,
            Op::Reduce { src, .. } | Op::Store { src, .. } => *src,
            _ => return None,
        };
        let value = kernel.value(over);
        let (mut loads, mut left) = (BTreeSet::new(), reads(op));
        while let Some(v) = left.pop() {
            match defs.get(&v) {
                Some(Op::Load { .. }) if fused.contains_key(&v) => _ = loads.insert(v),
                Some(map @ Op::Map { .. }) if fused.contains_key(&v) => left.extend(reads(map)),
                _ => {}
            }
        }
        if loads.is_empty() {
            return None;
        }
        let lacks = |v: &ValueId, axis: Option<AxisId>| axis.is_some_and(|a| !sides(kernel, *v).contains(&a));
        let [rows, cols] = [value.rows, value.cols];
        let only = |one, other| loads.iter().filter(|v| lacks(v, one) && !lacks(v, other)).copied().collect();
        let whole = loads.iter().filter(|v| !lacks(v, rows) && !lacks(v, cols)).count();
        let reduces = matches!(op, Op::Reduce { .. });
        Some(Self { lacks: [only(cols, rows), only(rows, cols)], whole, reduces })
    }
}
