//! Registers: how many the tiles of a thread take at the worst point of the kernel.

use super::block::Block;
use super::uses::{reads, written};
use einloom_tile::{Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The largest sum of the registers of tiles that are alive together. A tile that is made element by element from one
/// that dies takes its place, a state's next value the state's, and a map that is read once takes none.
pub(super) fn pressure(block: &Block<'_>) -> f64 {
    peak(block.kernel, &block.fused, &|v| block.registers(v), &|_, _| true, &BTreeSet::new())
}

/// The largest sum of the sizes of tiles that are alive together; `fused` tiles are made where they are read. Where
/// `replaces(op, v)`, the result of an operation may take the place of a tile `v` that dies there and is no smaller. Tiles
/// that are `kept` are there all the time.
pub(crate) fn peak(
    kernel: &Kernel,
    fused: &BTreeMap<ValueId, Vec<ValueId>>,
    size: &dyn Fn(ValueId) -> f64,
    replaces: &dyn Fn(&Op, ValueId) -> bool,
    kept: &BTreeSet<ValueId>,
) -> f64 {
    let mut count = Count { size, replaces, fused, kept, worst: 0.0 };
    count.body(&kernel.body, &BTreeSet::new());
    count.worst
}

struct Count<'b> {
    size: &'b dyn Fn(ValueId) -> f64,
    replaces: &'b dyn Fn(&Op, ValueId) -> bool,
    fused: &'b BTreeMap<ValueId, Vec<ValueId>>,
    kept: &'b BTreeSet<ValueId>,
    worst: f64,
}

impl Count<'_> {
    fn sources(&self, op: &Op) -> BTreeSet<ValueId> {
        reads(op).into_iter().flat_map(|v| self.fused.get(&v).cloned().unwrap_or(vec![v])).collect()
    }

    /// Tiles alive before `ops`, given those alive after.
    fn body(&mut self, ops: &[Op], after: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
        let mut alive = after.clone();
        for op in ops.iter().rev() {
            if let Op::Stream { states, body, .. } = op {
                let mut end = alive.clone();
                for s in states {
                    end.remove(&s.value);
                    end.insert(s.next);
                }
                // What the body needs from outside stays alive through all chunks.
                let mut outside = BTreeSet::new();
                self.needs(body, &mut outside);
                end.extend(outside.into_iter().filter(|v| states.iter().all(|s| s.value != *v)));
                let start = self.body(body, &end);
                alive.extend(start);
                states.iter().for_each(|s| {
                    alive.remove(&s.value);
                    alive.remove(&s.next);
                });
            }
            if written(op).is_some_and(|dst| self.fused.contains_key(&dst)) {
                continue;
            }
            let sources = self.sources(op);
            if let Some(dst) = written(op) {
                // The result appears while the operands still exist, but for one whose place it takes.
                let mut dying: Vec<ValueId> = sources.iter().copied().filter(|v| !alive.contains(v)).collect();
                let size = (self.size)(dst);
                if let Some(k) = dying.iter().position(|&v| (self.size)(v) >= size && (self.replaces)(op, v)) {
                    dying.remove(k);
                }
                let mut both = alive.clone();
                both.insert(dst);
                both.extend(dying);
                self.note(&both);
                alive.remove(&dst);
            }
            alive.extend(sources);
            self.note(&alive);
        }
        alive
    }

    /// The tiles that a body reads and does not write. Streams inside it begin with states of their own.
    fn needs(&self, ops: &[Op], out: &mut BTreeSet<ValueId>) {
        let mut own = BTreeSet::new();
        for op in ops {
            out.extend(self.sources(op).into_iter().filter(|v| !own.contains(v)));
            own.extend(written(op));
            if let Op::Stream { states, body, .. } = op {
                let mut inside = BTreeSet::new();
                self.needs(body, &mut inside);
                inside.extend(states.iter().map(|s| s.next).filter(|v| !writes(body, *v)));
                own.extend(states.iter().map(|s| s.value));
                out.extend(inside.into_iter().filter(|v| !own.contains(v)));
            }
        }
    }

    fn note(&mut self, alive: &BTreeSet<ValueId>) {
        let sum: f64 = alive.union(self.kept).map(|&v| (self.size)(v)).sum();
        self.worst = self.worst.max(sum);
    }
}

/// Whether some operation of the body itself writes this tile.
fn writes(ops: &[Op], v: ValueId) -> bool {
    ops.iter().any(|op| written(op) == Some(v))
}
