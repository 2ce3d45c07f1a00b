//! Who reads what: uses of tiles, and maps that need no registers of their own.

use crate::nest::tiles;
use einloom_cascade::BinaryOp;
use einloom_tile::{AxisId, Init, Kernel, Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Calls `f` on every operation, those of streams after the stream itself.
pub(crate) fn each<'a>(ops: &'a [Op], f: &mut dyn FnMut(&'a Op)) {
    for op in ops {
        f(op);
        if let Op::Stream { body, .. } = op {
            each(body, f);
        }
    }
}

/// The tiles that an operation reads; of a stream, those that its states start with.
pub(crate) fn reads(op: &Op) -> Vec<ValueId> {
    match op {
        Op::Load { at, .. } => at.iter().flat_map(tiles).collect(),
        Op::Store { at, src, .. } => at.iter().flat_map(tiles).chain([*src]).collect(),
        Op::Map { expr, .. } => {
            let mut out = vec![];
            leaves(expr, &mut out);
            out
        }
        Op::Mma { a, b, acc, .. } => [*a, *b].into_iter().chain(*acc).collect(),
        Op::Reduce { src, acc, .. } => [*src].into_iter().chain(*acc).collect(),
        Op::Pick { src, at, .. } => [*src].into_iter().chain(tiles(at)).collect(),
        Op::Stream { states, .. } => {
            let start = |s: &einloom_tile::State| match s.init {
                Init::Value(v) => Some(v),
                Init::Const(_) => None,
            };
            states.iter().filter_map(start).collect()
        }
        Op::SkipUnless { any } => vec![*any],
    }
}

/// The axes that conditions and positions mention.
pub(super) fn placed(kernel: &Kernel) -> BTreeSet<AxisId> {
    let mut out = BTreeSet::new();
    each(&kernel.body, &mut |op| match op {
        Op::Map { expr, .. } => positions(expr, &mut out),
        Op::Stream { within, .. } => out.extend(within.all.iter().flat_map(|e| &e.terms).map(|t| t.1)),
        _ => {}
    });
    out
}

fn positions(expr: &Scalar, out: &mut BTreeSet<AxisId>) {
    match expr {
        Scalar::Const(_) | Scalar::Argument(_) | Scalar::Tile(_) => {}
        Scalar::Position(axis) => _ = out.insert(*axis),
        Scalar::Within(p) => out.extend(p.all.iter().flat_map(|e| &e.terms).map(|t| t.1)),
        Scalar::Round(_, x) | Scalar::Unary(_, x) => positions(x, out),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| positions(e, out)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| positions(e, out)),
    }
}

/// Tiles multiplied by a factor with fewer axes that is 1 wherever a condition does not hold.
pub(super) fn rare(kernel: &Kernel) -> BTreeSet<ValueId> {
    let axes = |v: ValueId| {
        let value = kernel.value(v);
        usize::from(value.rows.is_some()) + usize::from(value.cols.is_some())
    };
    let mut factors = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Map { dst, expr: Scalar::Select(c, _, otherwise) } = op
            && matches!((&**c, &**otherwise), (Scalar::Tile(_), Scalar::Const(one)) if *one == 1.0)
        {
            factors.insert(*dst);
        }
    });
    let mut out = BTreeSet::new();
    each(&kernel.body, &mut |op| {
        if let Op::Map { dst, expr: Scalar::Binary(BinaryOp::Mul, x, y) } = op
            && let (Scalar::Tile(a), Scalar::Tile(b)) = (&**x, &**y)
            && [a, b].into_iter().any(|f| factors.contains(f) && axes(*dst) > axes(*f))
        {
            out.insert(*dst);
        }
    });
    out
}

/// The tile that an operation writes.
pub(crate) fn written(op: &Op) -> Option<ValueId> {
    match op {
        Op::Load { dst, .. }
        | Op::Map { dst, .. }
        | Op::Mma { dst, .. }
        | Op::Reduce { dst, .. }
        | Op::Pick { dst, .. } => Some(*dst),
        Op::Store { .. } | Op::Stream { .. } | Op::SkipUnless { .. } => None,
    }
}

fn leaves(expr: &Scalar, out: &mut Vec<ValueId>) {
    match expr {
        Scalar::Tile(v) => out.push(*v),
        Scalar::Const(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => {}
        Scalar::Round(_, x) | Scalar::Unary(_, x) => leaves(x, out),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| leaves(e, out)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| leaves(e, out)),
    }
}

/// Maps, and loads outside streams, whose only reader is a map, a reduction or a store beside them: their elements are
/// made where they are read. To each the tiles that are then read instead. In a stream loads come early, to be in time.
pub(crate) fn fused(kernel: &Kernel) -> BTreeMap<ValueId, Vec<ValueId>> {
    fused_but(kernel, &BTreeSet::new())
}

/// The same where some loads stay as a whole.
pub(crate) fn fused_but(kernel: &Kernel, stays: &BTreeSet<ValueId>) -> BTreeMap<ValueId, Vec<ValueId>> {
    let mut readers: BTreeMap<ValueId, usize> = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        let next = match op {
            Op::Stream { states, .. } => states.iter().map(|s| s.next).collect(),
            _ => vec![],
        };
        for v in reads(op).into_iter().chain(next) {
            *readers.entry(v).or_default() += 1;
        }
    });
    stays.iter().for_each(|v| _ = readers.remove(v));
    let mut out = BTreeMap::new();
    fuse(&kernel.body, true, &readers, &mut out);
    out
}

fn fuse(ops: &[Op], outside: bool, readers: &BTreeMap<ValueId, usize>, out: &mut BTreeMap<ValueId, Vec<ValueId>>) {
    let makes_on_demand = |op: &&Op| matches!(op, Op::Map { .. } | Op::Reduce { .. } | Op::Store { .. });
    let here: BTreeSet<ValueId> = ops.iter().filter(makes_on_demand).flat_map(reads).collect();
    for op in ops {
        match op {
            Op::Load { .. } if !outside => {}
            Op::Map { dst, .. } | Op::Load { dst, .. } if readers.get(dst) == Some(&1) && here.contains(dst) => {
                let sources = reads(op).into_iter().flat_map(|v| out.get(&v).cloned().unwrap_or(vec![v])).collect();
                out.insert(*dst, sources);
            }
            Op::Stream { body, .. } => fuse(body, false, readers, out),
            _ => {}
        }
    }
}
