//! A stream's body row by row.
//!
//! Operation by operation a body holds whole tiles of what lies between its results and what it loads: of attention, three
//! numbers of each row besides those that pass from one chunk to the next. Where no row of such tiles depends on another one,
//! all operations can be done for a row before the next row begins, and one row of them is held at a time.
//!
//! Conditions, for rows along an axis: the body has no stream, no store and no condition on data in it; no operation
//! sums or reduces along the axis. Then what has no such rows is loaded and computed first and stays until the last row is
//! done; what states hold of a row is replaced in place.
//!
//! Where rows are few and what they meet is long, another order holds less: a product's factor without rows *passes* by all rows
//! element by element, and only between such products is it done row by row. Each row that waits then holds what it has
//! before or after these operations, of attention one number, but neither a key nor a value is there as a whole. Condition for
//! a factor: it is loaded in the body, at a place that no tile tells, and the product alone reads it.
//!
//! What follows the last stream, of attention the division by the sums of weights, goes row by row as well, if no row of it depends on another one. What was
//! there before, and what has no such rows, is there until the last row is stored. So does all of a kernel without a stream that has one product and reduces nothing else: one row of
//! results is held at a time beside a factor that has no rows, and one term of the other factor.

use crate::gpu::registers::{Loop, Tail};
use crate::gpu::uses::{reads, written};
use crate::kinds::{Kinds, Tiles, largest};
use crate::nest::sides;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Which values each map that is made where it is read reads.
type Fused = BTreeMap<ValueId, Vec<ValueId>>;

/// What a body holds if it goes through the rows along an axis one by one.
#[derive(Clone, Debug)]
pub(crate) struct ByRows {
    pub axis: AxisId,
    /// Whole tiles: from outside, of states, and without rows along the axis.
    whole: Vec<ValueId>,
    moments: Vec<Moment>,
}

/// What is there of the tiles with rows at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    /// Of the row at hand.
    row: Vec<ValueId>,
    /// Of every other row.
    others: Vec<ValueId>,
    /// Elements of factors that pass.
    passing: usize,
}

/// The same by kinds of tiles, without moments at which no more is there than at another one; also of what follows the last stream.
#[derive(Clone, Debug)]
pub(crate) struct RowsByKind {
    axis: AxisId,
    whole: Tiles,
    /// Of the row at hand, of every other row, and elements that pass.
    moments: Vec<(Tiles, Tiles, usize)>,
}

impl RowsByKind {
    fn new(axis: AxisId, whole: Tiles, moments: impl Iterator<Item = (Tiles, Tiles, usize)>) -> Self {
        let no_more = |a: &(Tiles, Tiles, usize), b: &(Tiles, Tiles, usize)| {
            a.0.are_among(&b.0) && a.1.are_among(&b.1) && a.2 <= b.2
        };
        Self { axis, whole, moments: largest(moments, no_more) }
    }

    /// The largest sum of the sizes of kinds, with so many rows in a tile.
    pub fn most(&self, sizes: &[f64], rows: impl Fn(AxisId) -> f64) -> f64 {
        let side = rows(self.axis).max(1.0);
        let sum = |tiles: &Tiles| tiles.elements(sizes) / side;
        let moment = |m: &(Tiles, Tiles, usize)| sum(&m.0) + (side - 1.0) * sum(&m.1) + m.2 as f64;
        self.whole.elements(sizes) + self.moments.iter().map(moment).fold(0.0, f64::max)
    }
}

/// An operation, its result, what is alive after it, and what dies at it.
struct Step<'k> {
    op: &'k Op,
    dst: ValueId,
    alive: BTreeSet<ValueId>,
    dying: Vec<ValueId>,
}

impl ByRows {
    /// Every way in which the body can go along an axis.
    pub fn all(kernel: &Kernel, body: &Loop<'_>, fused: &Fused, replaces: &dyn Fn(&Op, ValueId) -> bool) -> Vec<Self> {
        let written = body.ops.iter().filter_map(written);
        let axes: BTreeSet<AxisId> = written.flat_map(|v| sides(kernel, v)).collect();
        let ways = |axis: AxisId| {
            let passing = passing(kernel, body, axis);
            let pass = (!passing.is_empty()).then(|| Self::new(kernel, body, axis, fused, replaces, &passing));
            [Self::new(kernel, body, axis, fused, replaces, &BTreeSet::new()), pass.flatten()]
        };
        axes.into_iter().flat_map(ways).flatten().collect()
    }

    fn new(
        kernel: &Kernel,
        body: &Loop<'_>,
        axis: AxisId,
        fused: &Fused,
        replaces: &dyn Fn(&Op, ValueId) -> bool,
        passing: &BTreeSet<ValueId>,
    ) -> Option<Self> {
        let has = |v: ValueId| sides(kernel, v).contains(&axis);
        for op in body.ops {
            match op {
                Op::Load { .. } | Op::Map { .. } | Op::Mma { .. } | Op::Reduce { .. } => {}
                // What is picked may be of any row.
                Op::Stream { .. } | Op::Store { .. } | Op::Pick { .. } | Op::SkipUnless { .. } => return None,
            }
            if written(op).is_some_and(|dst| !has(dst)) && reads(op).into_iter().any(has) {
                return None;
            }
        }
        let steps = steps(body, fused);
        // Rows that lie where a state's row was, and which.
        let mut placed: BTreeMap<ValueId, ValueId> =
            body.states.iter().map(|s| s.value).filter(|&v| has(v)).map(|v| (v, v)).collect();
        let slots: Vec<ValueId> = placed.keys().copied().collect();
        let own: BTreeSet<ValueId> = steps.iter().map(|s| s.dst).filter(|&v| has(v)).collect();
        // Of the values that are alive while all rows wait, those that no state's place is free for.
        let waiting = |alive: &BTreeSet<ValueId>, placed: &BTreeMap<ValueId, ValueId>| -> Vec<ValueId> {
            let taken: BTreeSet<ValueId> = alive.iter().filter_map(|v| placed.get(v)).copied().collect();
            let mut free: Vec<ValueId> = slots.iter().copied().filter(|s| !taken.contains(s)).collect();
            let stays = |v: &ValueId| match free.iter().position(|&s| sides(kernel, s) == sides(kernel, *v)) {
                Some(k) => {
                    free.swap_remove(k);
                    false
                }
                None => true,
            };
            alive.iter().copied().filter(|v| own.contains(v) && !placed.contains_key(v)).filter(stays).collect()
        };
        let mut moments = BTreeSet::new();
        let (mut before, mut rows) = (vec![], vec![]);
        let mut close = |rows: &mut Vec<Vec<ValueId>>, before: &[ValueId], after: &[ValueId]| {
            for row in rows.drain(..) {
                for others in [before, after] {
                    moments.insert(Moment { row: row.clone(), others: others.to_vec(), passing: 0 });
                }
            }
        };
        let mut at_once = vec![];
        let mut alive_before: BTreeSet<ValueId> = slots.iter().copied().collect();
        for Step { op, dst, alive, dying } in &steps {
            let fits = |v: &&ValueId| replaces(op, **v) && sides(kernel, **v) == sides(kernel, *dst);
            let replaced = dying.iter().filter(fits).max_by_key(|v| placed.contains_key(v)).copied();
            let alone = reads(op).iter().filter(|v| passing.contains(v)).count();
            if alone > 0 {
                let ahead = waiting(&alive_before, &placed);
                close(&mut rows, &before, &ahead);
            }
            if let Some(slot) = replaced.and_then(|v| placed.get(&v)).copied() {
                placed.insert(*dst, slot);
            }
            let there =
                alive.iter().copied().chain(dying.iter().copied().filter(|v| Some(*v) != replaced)).chain([*dst]);
            let there: BTreeSet<ValueId> = there.collect();
            if alone > 0 {
                let all = waiting(&there, &placed);
                at_once.push(Moment { row: all.clone(), others: all, passing: alone });
                before = waiting(alive, &placed);
            } else {
                rows.push(there.into_iter().filter(|v| own.contains(v) && !placed.contains_key(v)).collect());
            }
            alive_before.clone_from(alive);
        }
        // After the last operation what states hold is in their places.
        close(&mut rows, &before, &[]);
        moments.extend(at_once);
        let states = body.states.iter().map(|s| s.value);
        let without = steps.iter().map(|s| s.dst).filter(|v| !own.contains(v) && !passing.contains(v));
        let whole: BTreeSet<ValueId> = body.outside.iter().copied().chain(states).chain(without).collect();
        Some(Self { axis, whole: whole.into_iter().collect(), moments: moments.into_iter().collect() })
    }

    pub fn by_kind(&self, kinds: &Kinds) -> RowsByKind {
        let tiles = |values: &[ValueId]| kinds.tiles(values.iter().copied());
        let moments = self.moments.iter().map(|m| (tiles(&m.row), tiles(&m.others), m.passing));
        RowsByKind::new(self.axis, tiles(&self.whole), moments)
    }

    pub fn count(&self) -> usize {
        self.moments.len()
    }

    /// What is there all the time, of these sizes.
    pub fn whole(&self, sizes: &[f64]) -> f64 {
        self.whole.iter().map(|v| sizes[v.at()]).sum()
    }

    /// What is there at one of the moments beside that, with `side` rows in a tile.
    pub fn sum(&self, moment: usize, sizes: &[f64], side: f64) -> f64 {
        let side = side.max(1.0);
        let sum = |values: &[ValueId]| values.iter().map(|v| sizes[v.at()]).sum::<f64>() / side;
        let m = &self.moments[moment];
        sum(&m.row) + (side - 1.0) * sum(&m.others) + m.passing as f64
    }
}

/// What is held after the last stream if it goes through the rows along an axis one by one.
#[derive(Clone, Debug)]
pub(crate) struct TailByRows {
    pub axis: AxisId,
    /// There from the first row to the last: what was there before, and what has no such rows.
    whole: Vec<ValueId>,
    /// Of the row at hand, each with whether it passes element by element.
    rows: Vec<Vec<(ValueId, bool)>>,
}

impl TailByRows {
    /// Every axis that it can go along.
    pub fn all(kernel: &Kernel, tail: &Tail<'_>, fused: &Fused) -> Vec<Self> {
        let in_rows = |op: &Op| matches!(op, Op::Load { .. } | Op::Map { .. } | Op::Mma { .. } | Op::Store { .. });
        let products = tail.ops.iter().filter(|op| matches!(op, Op::Mma { .. })).count();
        if !tail.ops.iter().all(in_rows) || products > 1 {
            return vec![];
        }
        let own = || tail.ops.iter().filter_map(written).filter(|v| !fused.contains_key(v));
        let axes: BTreeSet<AxisId> = own().flat_map(|v| sides(kernel, v)).collect();
        let has = |v: ValueId, axis: &AxisId| sides(kernel, v).contains(axis);
        // No row depends on another one: what has no rows is of nothing that has.
        let apart = |axis: &AxisId| {
            tail.ops.iter().all(|op| {
                let made = if let Op::Store { src, .. } = op { Some(*src) } else { written(op) };
                made.is_none_or(|v| has(v, axis)) || !reads(op).into_iter().any(|v| has(v, axis))
            })
        };
        let alike = |one, other| sides(kernel, one) == sides(kernel, other);
        let along = |axis: AxisId| {
            let passing = factors(tail, &|v| has(v, &axis));
            let rows = |there: BTreeSet<ValueId>| {
                own().filter(|v| has(*v, &axis) && there.contains(v)).map(|v| (v, passing.contains(&v))).collect()
            };
            let rows: BTreeSet<Vec<(ValueId, bool)>> = tail.moments.sets(&alike).map(rows).collect();
            // What is loaded where it is read, and lacks the axis, is asked for by every row.
            let again = tail.ops.iter().filter(|op| matches!(op, Op::Load { .. })).filter_map(written);
            let again = again.filter(|v| fused.contains_key(v) && !sides(kernel, *v).is_empty());
            let others = own().chain(again).filter(|v| !has(*v, &axis));
            let whole: BTreeSet<ValueId> = tail.before.iter().copied().chain(others).collect();
            Self { axis, whole: whole.into_iter().collect(), rows: rows.into_iter().collect() }
        };
        axes.into_iter().filter(apart).map(along).collect()
    }

    pub fn by_kind(&self, kinds: &Kinds) -> RowsByKind {
        let there: BTreeSet<ValueId> = self.whole.iter().copied().collect();
        let one = |row: &Vec<(ValueId, bool)>| {
            let passing = row.iter().filter(|v| v.1).count();
            (kinds.tiles(row.iter().filter(|v| !v.1).map(|v| v.0)), Tiles::default(), passing)
        };
        RowsByKind::new(self.axis, kinds.tiles(there.into_iter()), self.rows.iter().map(one))
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// What is there all the time, of these sizes.
    pub fn whole(&self, sizes: &[f64]) -> f64 {
        self.whole.iter().map(|v| sizes[v.at()]).sum()
    }

    /// What is there of one of the rows beside that, with `side` of them in a tile. Of what passes one element, unless it stays, which has no size then.
    pub fn sum(&self, row: usize, sizes: &[f64], side: f64) -> f64 {
        let one = |&(v, passes): &(ValueId, bool)| match sizes[v.at()] {
            0.0 => 0.0,
            _ if passes => 1.0,
            size => size / side.max(1.0),
        };
        self.rows[row].iter().map(one).sum()
    }
}

/// Factors with rows that only a product with something without rows reads: of a row's terms one is there at a time.
fn factors(tail: &Tail<'_>, has: &dyn Fn(ValueId) -> bool) -> BTreeSet<ValueId> {
    let loaded = tail.ops.iter().filter(|op| matches!(op, Op::Load { .. })).filter_map(written);
    let readers = |v: ValueId| tail.ops.iter().flat_map(reads).filter(|r| *r == v).count();
    let factor = |op: &Op, v: ValueId| matches!(op, Op::Mma { a, b, .. } if *a == v && !has(*b) || *b == v && !has(*a));
    loaded.filter(|&v| readers(v) == 1 && has(v) && tail.ops.iter().any(|op| factor(op, v))).collect()
}

/// The operations of a body that hold a result, with what is read for the last time by each.
fn steps<'k>(body: &Loop<'k>, fused: &Fused) -> Vec<Step<'k>> {
    let sources = |op: &Op| -> BTreeSet<ValueId> {
        reads(op).into_iter().flat_map(|v| fused.get(&v).cloned().unwrap_or(vec![v])).collect()
    };
    let mut alive: BTreeSet<ValueId> = body.states.iter().map(|s| s.next).collect();
    let mut steps = vec![];
    for op in body.ops.iter().rev() {
        let Some(dst) = written(op).filter(|dst| !fused.contains_key(dst)) else { continue };
        let dying = sources(op).into_iter().filter(|v| !alive.contains(v)).collect();
        steps.push(Step { op, dst, alive: alive.clone(), dying });
        alive.remove(&dst);
        alive.extend(sources(op));
    }
    steps.reverse();
    steps
}

/// Factors that pass element by element.
fn passing(kernel: &Kernel, body: &Loop<'_>, axis: AxisId) -> BTreeSet<ValueId> {
    let readers = |v: ValueId| -> usize {
        let states = body.states.iter().filter(|s| s.next == v).count();
        states + body.ops.iter().flat_map(reads).filter(|r| *r == v).count()
    };
    let loaded = body.ops.iter().filter(|op| matches!(op, Op::Load { .. }) && reads(op).is_empty());
    let loaded: BTreeSet<ValueId> = loaded.filter_map(written).collect();
    let has = |v: ValueId| sides(kernel, v).contains(&axis);
    // The other factor has the rows, and is there as a whole.
    let factor = |op: &Op| match op {
        Op::Mma { a, b, .. } if has(*a) != has(*b) => Some(if has(*a) { *b } else { *a }),
        _ => None,
    };
    body.ops.iter().filter_map(factor).filter(|&f| loaded.contains(&f) && readers(f) == 1).collect()
}
