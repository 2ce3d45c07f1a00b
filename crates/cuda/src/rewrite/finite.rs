//! Tiles whose elements are finite because they were made so.

use crate::schedule::facts::each_op;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{Init, Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// How a kernel's tiles are made, as far as that tells whether they are finite:
///
/// * a finite constant is, and a choice between two that are;
/// * `where(abs(y) < inf, y, k)` is with a finite `k`, the test by itself or in a tile;
/// * a state is that starts so, if its next value is whenever it is (by induction over the chunks).
pub(crate) struct Finite {
    made: BTreeMap<ValueId, Scalar>,
    states: BTreeMap<ValueId, (Init, ValueId)>,
}

impl Finite {
    /// Of a kernel's operations.
    pub(crate) fn new(body: &[Op]) -> Self {
        let (mut made, mut states) = (BTreeMap::new(), BTreeMap::new());
        each_op(body, &mut |op| match op {
            Op::Map { dst, expr } => {
                made.insert(*dst, expr.clone());
            }
            Op::Stream { states: all, .. } => {
                states.extend(all.iter().map(|s| (s.value, (s.init.clone(), s.next))));
            }
            _ => {}
        });
        Self { made, states }
    }

    /// Whether every element of the tile is finite.
    pub(crate) fn holds(&self, v: ValueId) -> bool {
        self.tile(v, &mut BTreeSet::new())
    }

    /// The same, if the states in `assumed` are.
    fn tile(&self, v: ValueId, assumed: &mut BTreeSet<ValueId>) -> bool {
        if let Some(expr) = self.made.get(&v) {
            return self.expr(expr, assumed);
        }
        let Some((init, next)) = self.states.get(&v) else { return false };
        if !assumed.insert(v) {
            return true;
        }
        let starts = match init {
            Init::Const(c) => is_finite(*c),
            Init::Value(first) => self.tile(*first, assumed),
        };
        starts && self.tile(*next, assumed)
    }

    fn expr(&self, expr: &Scalar, assumed: &mut BTreeSet<ValueId>) -> bool {
        match expr {
            Scalar::Const(c) => is_finite(*c),
            Scalar::Tile(v) => self.tile(*v, assumed),
            Scalar::Select(test, y, k) => (self.tests(test, y) || self.expr(y, assumed)) && self.expr(k, assumed),
            _ => false,
        }
    }

    /// Whether the test is `abs(y) < inf`.
    fn tests(&self, test: &Scalar, y: &Scalar) -> bool {
        match test {
            Scalar::Tile(v) => self.made.get(v).is_some_and(|test| self.tests(test, y)),
            Scalar::Binary(BinaryOp::Lt, magnitude, limit) => {
                matches!(&**magnitude, Scalar::Unary(UnaryOp::Abs, of) if **of == *y)
                    && **limit == Scalar::Const(f64::INFINITY)
            }
            _ => false,
        }
    }
}

/// As a number of f32.
fn is_finite(c: f64) -> bool {
    (c as f32).is_finite()
}
