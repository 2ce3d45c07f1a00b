//! The rules for scalar expressions and predicates.

use super::body::Walk;
use crate::{AxisId, AxisKind, Kernel, Predicate, Scalar, TileMonoid, ValueId};

/// Whether the axis's window never has more than one position.
pub(super) fn single(kernel: &Kernel, id: AxisId) -> bool {
    let axis = kernel.axis(id);
    // A whole axis of extent 0 has tile 1 and no position.
    axis.extent == 1 || axis.tile == 1 && axis.kind != AxisKind::Whole
}

impl Walk<'_> {
    /// `expr` as the elements of `dst`.
    pub(super) fn elementwise(&mut self, dst: ValueId, expr: &Scalar) {
        match expr {
            Scalar::Const(_) => {}
            Scalar::Argument(_) => self.fault("a monoid's argument outside a monoid".to_string()),
            Scalar::Tile(leaf) => {
                if self.read(*leaf) {
                    self.broadcasts(*leaf, dst);
                }
            }
            Scalar::Position(axis) => self.position(*axis, dst),
            Scalar::Within(predicate) => self.predicate(predicate, |walk, axis| {
                walk.position(axis, dst);
                true
            }),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.elementwise(dst, x),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.elementwise(dst, e)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.elementwise(dst, e)),
        }
    }

    /// `leaf` may be used as an element of `dst`: it has no axis that `dst` lacks.
    pub(super) fn broadcasts(&mut self, leaf: ValueId, dst: ValueId) -> bool {
        let sides = self.sides(dst);
        let ok = self.sides(leaf).iter().all(|a| sides.contains(a));
        if !ok {
            let (leaf, dst) = (self.value_name(leaf), self.value_name(dst));
            self.fault(format!("`{leaf}` does not broadcast to `{dst}`: it has an axis that `{dst}` lacks"));
        }
        ok
    }

    /// The position along `axis` may be used as an element of `tile`.
    pub(super) fn position(&mut self, axis: AxisId, tile: ValueId) {
        if self.open(axis) && !self.sides(tile).contains(&axis) && !single(self.kernel, axis) {
            let (axis, tile) = (self.axis_name(axis), self.value_name(tile));
            self.fault(format!("the position along `{axis}` is not one number: `{tile}` lacks the axis"));
        }
    }

    /// The terms of a predicate are canonical and their axes have windows; `each` may ask for more.
    pub(super) fn predicate(&mut self, predicate: &Predicate, each: impl Fn(&mut Self, AxisId) -> bool) {
        for affine in &predicate.all {
            for (k, &(c, axis)) in affine.terms.iter().enumerate() {
                if c == 0 {
                    self.fault("a predicate has a coefficient 0".to_string());
                }
                if affine.terms[..k].iter().any(|t| t.1 == axis) {
                    self.fault(format!("a predicate names axis {} twice", axis.0));
                } else if axis.at() >= self.kernel.axes.len() || self.needs_window(axis) {
                    self.open(axis);
                } else {
                    each(self, axis);
                }
            }
        }
    }

    fn needs_window(&self, axis: AxisId) -> bool {
        self.kernel.axis(axis).kind == AxisKind::Stream && !self.streams.iter().any(|s| s.0 == axis)
    }

    /// A custom monoid is over its two arguments and constants alone.
    pub(super) fn monoid(&mut self, monoid: &TileMonoid) {
        if let TileMonoid::Custom { name, combine, .. } = monoid
            && !over_arguments(combine)
        {
            self.fault(format!("monoid `{name}` uses more than its two arguments and constants"));
        }
    }
}

fn over_arguments(expr: &Scalar) -> bool {
    match expr {
        Scalar::Const(_) => true,
        Scalar::Argument(k) => *k < 2,
        Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) => false,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => over_arguments(x),
        Scalar::Binary(_, x, y) => over_arguments(x) && over_arguments(y),
        Scalar::Select(c, x, y) => over_arguments(c) && over_arguments(x) && over_arguments(y),
    }
}
