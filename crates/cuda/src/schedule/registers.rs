//! Registers: how many the tiles of a thread take at the worst point of the kernel.

use super::facts::{Facts, written};
use super::frame::Side;
use super::frames::Frames;
use super::inline;
use einloom_tile::{Op, ValueId};
use std::collections::BTreeSet;

/// Registers of one tile of a thread; 0 for a tile that lives in shared memory only.
pub(crate) fn of_tile(facts: &Facts<'_>, frames: &Frames, v: ValueId) -> usize {
    let Some(f) = frames.of.get(&v) else {
        return if facts.axes(v).is_empty() { facts.carrier(v).words() } else { 0 };
    };
    let frame = &frames.frames[f.0];
    let along = |side| {
        let axis = facts.axes(v).into_iter().find(|a| frame.sides.get(a) == Some(&side));
        axis.map(|a| facts.size(a))
    };
    frame.registers(along(Side::Down), along(Side::Across), facts.carrier(v))
}

/// The largest sum of the registers of tiles that are alive together. A tile that takes over another's place (a state
/// and what is added to it) is counted once.
pub(crate) fn pressure(facts: &Facts<'_>, frames: &Frames, packed: &BTreeSet<ValueId>) -> usize {
    pressure_without(facts, frames, packed, &BTreeSet::new())
}

/// As [`pressure`], where some tiles are computed where they are read and take no registers.
pub(super) fn pressure_without(
    facts: &Facts<'_>,
    frames: &Frames,
    packed: &BTreeSet<ValueId>,
    inlined: &BTreeSet<ValueId>,
) -> usize {
    let registers = |v: ValueId| of_tile(facts, frames, v) / if packed.contains(&v) { 2 } else { 1 };
    let mut count = Count { facts, inlined, registers: &registers, worst: 0 };
    count.block(&facts.kernel.body, &BTreeSet::new());
    count.worst
}

struct Count<'a> {
    facts: &'a Facts<'a>,
    inlined: &'a BTreeSet<ValueId>,
    registers: &'a dyn Fn(ValueId) -> usize,
    worst: usize,
}

impl Count<'_> {
    /// Tiles alive before `ops`, given those alive after.
    fn block(&mut self, ops: &[Op], after: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
        let mut alive = after.clone();
        for op in ops.iter().rev() {
            if let Op::Stream { states, body, .. } = op {
                // A state's place holds its next value too, so that both count once.
                let mut inside = alive.clone();
                inside.extend(states.iter().map(|s| s.value));
                let mut end = inside.clone();
                for s in states {
                    end.remove(&s.value);
                    end.insert(s.next);
                }
                let start = self.block(body, &end);
                inside.extend(start);
                self.note(&inside);
                // What the body needs from outside stays alive through all chunks.
                alive.extend(inside);
                states.iter().for_each(|s| {
                    alive.remove(&s.value);
                    alive.remove(&s.next);
                });
            }
            if written(op).is_some_and(|v| self.inlined.contains(&v)) {
                continue;
            }
            let operands = inline::operands(self.facts, self.inlined, op);
            if let Some(dst) = written(op) {
                // The result appears while the operands still exist, but for one that it replaces element by element.
                let mut both = alive.clone();
                both.insert(dst);
                let mut dying: Vec<ValueId> = operands.iter().copied().filter(|v| !alive.contains(v)).collect();
                let replaced = dying.iter().position(|&v| (self.registers)(v) >= (self.registers)(dst));
                if let Some(k) = replaced {
                    dying.remove(k);
                }
                both.extend(dying);
                self.note(&both);
                alive.remove(&dst);
            }
            alive.extend(operands);
            self.note(&alive);
        }
        alive
    }

    fn note(&mut self, alive: &BTreeSet<ValueId>) {
        let sum = alive.iter().map(|&v| (self.registers)(v)).sum();
        self.worst = self.worst.max(sum);
    }
}
