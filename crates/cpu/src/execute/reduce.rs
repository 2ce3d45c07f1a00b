//! Reductions of tiles along one axis.

use super::place::{Place, Rows};
use super::worker::Worker;
use crate::compile::Carrier;
use crate::kernels::fold::{Fold, Monoid};
use einloom_cascade::numeric::round;
use einloom_tile::{AxisId, Scalar, TileMonoid, ValueId};

impl Worker<'_> {
    pub(super) fn reduce(
        &mut self,
        dst: ValueId,
        src: ValueId,
        axis: AxisId,
        monoid: &TileMonoid,
        start: Option<ValueId>,
    ) {
        let floats = |v: ValueId| self.job.plan.tiles[v.at()].carrier == Carrier::F32;
        let built_in = match monoid {
            TileMonoid::Sum => Some(Monoid::Sum),
            TileMonoid::Prod => Some(Monoid::Prod),
            TileMonoid::Max => Some(Monoid::Max),
            TileMonoid::Min => Some(Monoid::Min),
            TileMonoid::Custom { .. } => None,
        };
        match built_in {
            Some(monoid) if floats(src) && floats(dst) && start.is_none_or(floats) => {
                self.reduce_floats(dst, src, axis, monoid, start);
            }
            _ => self.reduce_any(dst, src, axis, monoid, start),
        }
        self.places[dst.at()] = Place::Slot;
    }

    fn reduce_floats(&mut self, dst: ValueId, src: ValueId, axis: AxisId, monoid: Monoid, start: Option<ValueId>) {
        let tile = self.job.plan.tiles[dst.at()];
        let mut scratch = std::mem::take(&mut self.arena.narrow);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        let across = tiles.tile(src).inner == Some(axis);
        let len = if across { rows } else { columns };
        scratch.row.resize(scratch.row.len().max(len), 0.0);
        let result = &mut scratch.row[..len];
        Fold { from: tiles.rows::<f32>(src), rows, columns, across, monoid, result }.run(self.job.token);
        if let Some(start) = start {
            let start = tiles.rows::<f32>(start).data;
            for (x, &y) in result.iter_mut().zip(start) {
                *x = monoid.combine(y, *x);
            }
        }
        crate::kernels::strip::round(result, tile.dtype);
        self.arena.slots[tile.slot].get_mut::<f32>(len)[..len].copy_from_slice(&scratch.row[..len]);
        self.arena.narrow = scratch;
    }

    /// In f64, for number types and monoids that are not worth a kernel.
    fn reduce_any(&mut self, dst: ValueId, src: ValueId, axis: AxisId, monoid: &TileMonoid, start: Option<ValueId>) {
        let tile = self.job.plan.tiles[dst.at()];
        let mut scratch = std::mem::take(&mut self.arena.wide);
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        let across = tiles.tile(src).inner == Some(axis);
        let len = if across { rows } else { columns };
        let totals = &mut scratch.row;
        totals.clear();
        totals.resize(len, monoid.identity());
        match tiles.tile(src).carrier {
            Carrier::F32 => fold_any(tiles.rows::<f32>(src), rows, columns, across, monoid, totals, f64::from),
            Carrier::F64 => fold_any(tiles.rows::<f64>(src), rows, columns, across, monoid, totals, |x| x),
            Carrier::I32 => fold_any(tiles.rows::<i32>(src), rows, columns, across, monoid, totals, f64::from),
        }
        if let Some(start) = start {
            for (i, x) in totals.iter_mut().enumerate() {
                *x = combine(monoid, tiles.element(start, 0, i), *x);
            }
        }
        totals.iter_mut().for_each(|x| *x = round(tile.dtype, *x));
        let slot = &mut self.arena.slots[tile.slot];
        match tile.carrier {
            Carrier::F32 => put(slot.get_mut::<f32>(len), totals, |x| x as f32),
            Carrier::F64 => put(slot.get_mut::<f64>(len), totals, |x| x),
            Carrier::I32 => put(slot.get_mut::<i32>(len), totals, |x| x as i32),
        }
        self.arena.wide = scratch;
    }
}

fn put<T>(to: &mut [T], from: &[f64], f: impl Fn(f64) -> T) {
    to.iter_mut().zip(from).for_each(|(x, &y)| *x = f(y));
}

fn fold_any<T: Copy>(
    from: Rows<'_, T>,
    rows: usize,
    columns: usize,
    across: bool,
    monoid: &TileMonoid,
    totals: &mut [f64],
    real: impl Fn(T) -> f64,
) {
    let mut fold = |f: &dyn Fn(f64, f64) -> f64| {
        for r in 0..rows {
            let row = &from.data[r * from.pitch..][..columns];
            if across {
                totals[r] = row.iter().fold(totals[r], |sum, &x| f(sum, real(x)));
            } else {
                totals.iter_mut().zip(row).for_each(|(sum, &x)| *sum = f(*sum, real(x)));
            }
        }
    };
    match monoid {
        TileMonoid::Sum => fold(&|x, y| x + y),
        TileMonoid::Prod => fold(&|x, y| x * y),
        _ => fold(&|x, y| combine(monoid, x, y)),
    }
}

fn combine(monoid: &TileMonoid, x: f64, y: f64) -> f64 {
    use einloom_cascade::BinaryOp;
    match monoid {
        TileMonoid::Sum => x + y,
        TileMonoid::Prod => x * y,
        TileMonoid::Max => BinaryOp::Max.apply(x, y),
        TileMonoid::Min => BinaryOp::Min.apply(x, y),
        TileMonoid::Custom { combine, .. } => evaluate(combine, [x, y]),
    }
}

/// A custom monoid's result. The verifier allows arguments and constants only.
fn evaluate(expr: &Scalar, arguments: [f64; 2]) -> f64 {
    let again = |e: &Scalar| evaluate(e, arguments);
    match expr {
        Scalar::Const(x) => *x,
        Scalar::Argument(k) => arguments[usize::from(*k != 0)],
        Scalar::Round(d, x) => round(*d, again(x)),
        Scalar::Unary(op, x) => op.apply(again(x)),
        Scalar::Binary(op, x, y) => op.apply(again(x), again(y)),
        Scalar::Select(c, x, y) => again(if again(c) != 0.0 { x } else { y }),
        Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) => f64::NAN,
    }
}
