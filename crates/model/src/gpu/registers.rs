//! Registers: how many the tiles of a thread take at the worst point of the kernel.

use super::block::Block;
use super::uses::{reads, written};
use crate::kinds::{Kinds, Tiles, largest};
use einloom_tile::{Kernel, Op, State, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The largest sum of the registers of tiles that are alive together. A tile that is made element by element from one
/// that dies takes its place, a state's next value the state's, and a map that is read once takes none.
pub(super) fn pressure(block: &Block<'_>) -> f64 {
    let sizes: Vec<f64> = (0..block.kernel.values.len() as u32).map(|v| block.registers(ValueId(v))).collect();
    block.structure.moments.most(&sizes)
}

/// Which tiles are alive together, whatever their sizes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    all: Vec<Moment>,
}

/// Tiles at one place of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    alive: Vec<ValueId>,
    /// Those that are read there for the last time, and whether the result may take their place.
    dying: Vec<(ValueId, bool)>,
    result: Option<ValueId>,
}

impl Moment {
    fn values(&self) -> impl Iterator<Item = ValueId> {
        self.alive.iter().copied().chain(self.dying.iter().map(|d| d.0)).chain(self.result)
    }
}

/// A set of values, a bit each.
struct Values(Vec<u64>);

impl Values {
    fn of(values: impl Iterator<Item = ValueId>) -> Self {
        let mut bits = vec![];
        for v in values {
            let word = v.at() / 64;
            if word >= bits.len() {
                bits.resize(word + 1, 0);
            }
            bits[word] |= 1u64 << (v.at() % 64);
        }
        Self(bits)
    }

    fn are_among(&self, others: &Self) -> bool {
        self.0.iter().enumerate().all(|(k, word)| word & !others.0.get(k).copied().unwrap_or(0) == 0)
    }
}

impl Moments {
    pub(crate) fn new(
        kernel: &Kernel,
        fused: &BTreeMap<ValueId, Vec<ValueId>>,
        replaces: &dyn Fn(&Op, ValueId) -> bool,
    ) -> Self {
        let mut count = Count { replaces, fused, found: Self::default(), loops: None };
        count.body(&kernel.body, &BTreeSet::new());
        count.found
    }

    /// The same without those in the innermost streams, and these by themselves; and what follows the last stream by itself.
    pub(crate) fn by_loop<'k>(
        kernel: &'k Kernel,
        fused: &BTreeMap<ValueId, Vec<ValueId>>,
        replaces: &dyn Fn(&Op, ValueId) -> bool,
    ) -> (Self, Vec<Loop<'k>>, Tail<'k>) {
        let mut count = Count { replaces, fused, found: Self::default(), loops: Some(vec![]) };
        let end = kernel.body.iter().rposition(|op| matches!(op, Op::Stream { .. })).map_or(0, |k| k + 1);
        let (head, ops) = kernel.body.split_at(end);
        let before = count.body(ops, &BTreeSet::new());
        let moments = std::mem::take(&mut count.found);
        count.body(head, &before);
        (count.found, count.loops.unwrap_or_default(), Tail { ops, before, moments })
    }

    /// Each once, without those of which everything is alive at another one too.
    pub(crate) fn distinct(mut self) -> Self {
        self.all.sort();
        self.all.dedup();
        let of = |m: &Moment| [Values::of(m.alive.iter().copied()), Values::of(m.values())];
        let sets: Vec<[Values; 2]> = self.all.iter().map(of).collect();
        // Of moments that are no more than each other the first stays.
        let less = |k: usize, other: usize| sets[k][1].are_among(&sets[other][0]);
        let covered = |k: usize| (0..sets.len()).any(|o| o != k && less(k, o) && (o < k || !less(o, k)));
        let stays: Vec<bool> = (0..sets.len()).map(|k| !covered(k)).collect();
        let mut at = stays.iter();
        self.all.retain(|_| at.next() != Some(&false));
        self
    }

    /// The values at each moment, a result in the place of one of those that die there if they are `alike`.
    pub(crate) fn sets(&self, alike: &impl Fn(ValueId, ValueId) -> bool) -> impl Iterator<Item = BTreeSet<ValueId>> {
        self.all.iter().map(|m| {
            let takes = |d: &&(ValueId, bool)| d.1 && m.result.is_some_and(|r| alike(d.0, r));
            let replaced = m.dying.iter().find(takes).map(|d| d.0);
            let dying = m.dying.iter().map(|d| d.0).filter(|v| Some(*v) != replaced);
            m.alive.iter().copied().chain(dying).chain(m.result).collect()
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The sum at one of the moments of what counts of each size. A result takes the place of what is no smaller.
    pub(crate) fn sum(&self, moment: usize, sizes: &[f64], counted: &[f64]) -> f64 {
        let of = |sizes: &[f64], v: ValueId| sizes.get(v.at()).copied().unwrap_or_default();
        let Some(moment) = self.all.get(moment) else { return 0.0 };
        let mut sum = moment.alive.iter().map(|&v| of(counted, v)).sum::<f64>();
        if let Some(result) = moment.result {
            let replaced = moment.dying.iter().position(|&(v, may)| may && of(sizes, v) >= of(sizes, result));
            let dying = moment.dying.iter().enumerate().filter(|(k, d)| Some(*k) != replaced && d.0 != result);
            sum += dying.map(|(_, &(v, _))| of(counted, v)).sum::<f64>();
            // It is alive already if something reads it later.
            if !moment.alive.contains(&result) {
                sum += of(counted, result);
            }
        }
        sum
    }

    /// The largest sum of sizes.
    fn most(&self, sizes: &[f64]) -> f64 {
        (0..self.all.len()).map(|m| self.sum(m, sizes, sizes)).fold(0.0, f64::max)
    }
}

/// The same as [`Moments`] by kinds of tiles, without those at which no more is there than at another one.
#[derive(Clone, Debug)]
pub(crate) struct MomentsByKind(Vec<MomentByKind>);

#[derive(Clone, Debug)]
struct MomentByKind {
    alive: Tiles,
    /// The kinds of those that are read there for the last time, whether the result may take their place, and whether each is the result itself.
    dying: Vec<(usize, bool, bool)>,
    /// Its kind, and whether it was not alive already.
    result: Option<(usize, bool)>,
    /// The most that can be there.
    all: Tiles,
}

impl Moments {
    pub(crate) fn by_kind(&self, kinds: &Kinds) -> MomentsByKind {
        let one = |m: &Moment| {
            let result = m.result.map(|r| (kinds.of(r), !m.alive.contains(&r)));
            MomentByKind {
                alive: kinds.tiles(m.alive.iter().copied()),
                dying: m.dying.iter().map(|&(v, may)| (kinds.of(v), may, Some(v) == m.result)).collect(),
                result,
                all: kinds.tiles(m.values()),
            }
        };
        let no_more = |a: &MomentByKind, b: &MomentByKind| {
            a.all.are_among(&b.alive) || a.dying == b.dying && a.result == b.result && a.alive.are_among(&b.alive)
        };
        MomentsByKind(largest(self.all.iter().map(one), no_more))
    }
}

impl MomentsByKind {
    /// The largest sum of the sizes of kinds.
    pub(crate) fn most(&self, sizes: &[f64]) -> f64 {
        let sum = |m: &MomentByKind| {
            let mut sum = m.alive.elements(sizes);
            if let Some((result, apart)) = m.result {
                let replaced = m.dying.iter().position(|d| d.1 && sizes[d.0] >= sizes[result]);
                let dying = m.dying.iter().enumerate().filter(|(k, d)| Some(*k) != replaced && !d.2);
                sum += dying.map(|(_, d)| sizes[d.0]).sum::<f64>() + if apart { sizes[result] } else { 0.0 };
            }
            sum
        };
        self.0.iter().map(sum).fold(0.0, f64::max)
    }
}

/// The operations after a kernel's last stream.
pub(crate) struct Tail<'k> {
    pub ops: &'k [Op],
    /// What is alive before them.
    pub before: BTreeSet<ValueId>,
    pub moments: Moments,
}

/// A stream without streams in it.
pub(crate) struct Loop<'k> {
    pub states: &'k [State],
    pub ops: &'k [Op],
    /// What is alive beside it from its beginning to its end, states not counted.
    pub outside: BTreeSet<ValueId>,
    pub moments: Moments,
}

struct Count<'b, 'k> {
    replaces: &'b dyn Fn(&Op, ValueId) -> bool,
    fused: &'b BTreeMap<ValueId, Vec<ValueId>>,
    found: Moments,
    /// The innermost streams, if they are told apart.
    loops: Option<Vec<Loop<'k>>>,
}

impl<'k> Count<'_, 'k> {
    fn sources(&self, op: &Op) -> BTreeSet<ValueId> {
        reads(op).into_iter().flat_map(|v| self.fused.get(&v).cloned().unwrap_or(vec![v])).collect()
    }

    /// Tiles alive before `ops`, given those alive after.
    fn body(&mut self, ops: &'k [Op], after: &BTreeSet<ValueId>) -> BTreeSet<ValueId> {
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
                let before = self.found.all.len();
                let start = self.body(body, &end);
                let inner = body.iter().any(|op| matches!(op, Op::Stream { .. }));
                if let Some(loops) = self.loops.as_mut().filter(|_| !inner) {
                    let moments = Moments { all: self.found.all.split_off(before) };
                    let held = |v: &ValueId| states.iter().any(|s| s.value == *v || s.next == *v && writes(body, *v));
                    let outside = end.into_iter().filter(|v| !held(v)).collect();
                    loops.push(Loop { states, ops: body, outside, moments });
                }
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
                let dying = sources.iter().filter(|v| !alive.contains(v)).map(|&v| (v, (self.replaces)(op, v)));
                let alive = alive.iter().copied().collect();
                let moment = Moment { alive, dying: dying.collect(), result: Some(dst) };
                self.found.all.push(moment);
            }
            written(op).iter().for_each(|dst| _ = alive.remove(dst));
            alive.extend(sources);
            self.found.all.push(Moment { alive: alive.iter().copied().collect(), dying: vec![], result: None });
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
}

/// Whether some operation of the body itself writes this tile.
fn writes(ops: &[Op], v: ValueId) -> bool {
    ops.iter().any(|op| written(op) == Some(v))
}
