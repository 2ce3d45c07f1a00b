//! How many bytes of tiles are live at once.

use crate::gpu::uses::{each, fused, reads};
use einloom_tile::{Coord, Init, Kernel, Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The largest total size of tiles that are live at the same time at one point of the grid. A tile lives from the
/// operation that writes it to the last one that reads it; what a stream's body reads from outside lives through the
/// stream, and so do its states. Clipped tiles count as full ones.
pub(crate) fn resident_bytes(kernel: &Kernel) -> u64 {
    resident_but(kernel, &BTreeSet::new())
}

/// The same without the results of maps that are made where they are read: a processor makes them strip by strip.
pub(crate) fn resident_in_passing(kernel: &Kernel) -> u64 {
    let made_there = fused(kernel);
    let mut none = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Map { dst, .. } = op
            && made_there.contains_key(dst)
        {
            none.insert(*dst);
        }
    });
    resident_but(kernel, &none)
}

/// The same as all that is live at once, without what is loaded for one map of a product's result and nothing else, as a bias of scores: a
/// processor reads it strip by strip where it lies, while the result is near.
pub fn resident_but_passing(kernel: &Kernel) -> u64 {
    let (mut loaded, mut products) = (BTreeSet::new(), BTreeSet::new());
    let mut readers = BTreeMap::<ValueId, (usize, bool)>::new();
    each(&kernel.body, &mut |op| {
        match op {
            Op::Load { dst, .. } => loaded.extend([*dst]),
            Op::Mma { dst, .. } => products.extend([*dst]),
            _ => {}
        }
        let beside = matches!(op, Op::Map { .. }) && reads(op).iter().any(|v| products.contains(v));
        for v in reads(op) {
            let (count, maps) = readers.entry(v).or_insert((0, true));
            (*count, *maps) = (*count + 1, *maps && beside);
        }
    });
    loaded.retain(|v| readers.get(v).is_some_and(|r| *r == (1, true)));
    resident_but(kernel, &loaded)
}

fn resident_but(kernel: &Kernel, none: &BTreeSet<ValueId>) -> u64 {
    let mut lives = Lives { written: vec![0; kernel.values.len()], reads: vec![], streams: vec![], now: 0 };
    lives.ops(&kernel.body);
    let mut changes: Vec<(usize, bool, u64)> = vec![];
    for (k, _) in kernel.values.iter().enumerate().filter(|(k, _)| !none.contains(&ValueId(*k as u32))) {
        let written = lives.written[k];
        let last = lives.reads.iter().filter(|r| r.0.at() == k).map(|r| lives.lasts(written, r.1)).max();
        let Some(last) = last else { continue };
        let bytes = tile_bytes(kernel, ValueId(k as u32));
        changes.push((written, true, bytes));
        changes.push((last, false, bytes));
    }
    // At one moment tiles are written before those that are read die: both are needed.
    changes.sort_by_key(|c| (c.0, !c.1));
    let (mut live, mut peak) = (0u64, 0u64);
    for (_, born, bytes) in changes {
        live = if born { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        peak = peak.max(live);
    }
    peak
}

/// A tile's size.
fn tile_bytes(kernel: &Kernel, value: ValueId) -> u64 {
    let value = kernel.value(value);
    let side =
        |axis: Option<einloom_tile::AxisId>| axis.map_or(1, |a| kernel.axis(a).tile.min(kernel.axis(a).extent) as u64);
    side(value.rows).saturating_mul(side(value.cols)).saturating_mul(value.dtype.bytes() as u64)
}

struct Lives {
    /// When each value is written.
    written: Vec<usize>,
    /// Who is read when.
    reads: Vec<(ValueId, usize)>,
    /// When each stream starts and ends.
    streams: Vec<(usize, usize)>,
    now: usize,
}

impl Lives {
    /// Until when a value lives that was written and is read at these times: through every stream in between.
    fn lasts(&self, written: usize, read: usize) -> usize {
        let through = self.streams.iter().filter(|&&(start, end)| written < start && start <= read && read <= end);
        through.map(|s| s.1).max().unwrap_or(read).max(read)
    }

    fn ops(&mut self, ops: &[Op]) {
        for op in ops {
            self.now += 1;
            match op {
                Op::Load { dst, at, .. } => {
                    at.iter().for_each(|c| self.coord(c));
                    self.written[dst.at()] = self.now;
                }
                Op::Store { at, src, .. } => {
                    at.iter().for_each(|c| self.coord(c));
                    self.read(*src);
                }
                Op::Map { dst, expr } => {
                    self.scalar(expr);
                    self.written[dst.at()] = self.now;
                }
                Op::Mma { dst, a, b, acc } => {
                    [Some(*a), Some(*b), *acc].into_iter().flatten().for_each(|v| self.read(v));
                    self.written[dst.at()] = self.now;
                }
                Op::Reduce { dst, src, acc, .. } => {
                    [Some(*src), *acc].into_iter().flatten().for_each(|v| self.read(v));
                    self.written[dst.at()] = self.now;
                }
                Op::Pick { dst, src, at, .. } => {
                    self.read(*src);
                    self.coord(at);
                    self.written[dst.at()] = self.now;
                }
                Op::Stream { states, body, .. } => {
                    for state in states {
                        if let Init::Value(v) = state.init {
                            self.read(v);
                        }
                        self.written[state.value.at()] = self.now;
                    }
                    self.now += 1;
                    let start = self.now;
                    self.ops(body);
                    self.now += 1;
                    for state in states {
                        self.read(state.next);
                        self.read(state.value);
                    }
                    self.streams.push((start, self.now));
                }
                Op::SkipUnless { any } => self.read(*any),
            }
        }
    }

    fn read(&mut self, value: ValueId) {
        self.reads.push((value, self.now));
    }

    fn coord(&mut self, coord: &Coord) {
        crate::nest::tiles(coord).into_iter().for_each(|v| self.read(v));
    }

    fn scalar(&mut self, expr: &Scalar) {
        match expr {
            Scalar::Tile(v) => self.read(*v),
            Scalar::Const(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => {}
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.scalar(x),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.scalar(e)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.scalar(e)),
        }
    }
}
