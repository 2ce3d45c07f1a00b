//! Chunks that end early. Where a stream's condition ends the last chunk before its tile does, what lies beyond is
//! copied all the same. It needs no test of its own if the body already makes it neutral: wherever the condition fails,
//! what is summed or multiplied along the stream is 0, and what a maximum runs over is -inf.

use crate::rewrite::finite::Finite;
use crate::schedule::Product;
use crate::schedule::facts::Facts;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{Affine, AxisId, Op, Predicate, Scalar, TileMonoid, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the chunks of the stream can be taken as whole.
pub(crate) fn is_neutral(
    facts: &Facts<'_>,
    products: &BTreeMap<ValueId, Product>,
    axis: AxisId,
    within: &Predicate,
    body: &[Op],
) -> bool {
    let decl = facts.kernel.axis(axis);
    if within.all.is_empty() || !decl.extent.is_multiple_of(decl.tile) {
        return false;
    }
    let finite = Finite::new(&facts.kernel.body);
    let (mut zero, mut lowest) = (BTreeSet::new(), BTreeSet::new());
    for op in body {
        match op {
            Op::Map { dst, expr } => {
                if is_lowest(expr, within) {
                    lowest.insert(*dst);
                } else if is_zero(expr, within, &zero, &lowest, &finite) {
                    zero.insert(*dst);
                }
            }
            Op::Reduce { src, axis: over, monoid, .. } if *over == axis => {
                let known = match monoid {
                    TileMonoid::Sum => &zero,
                    TileMonoid::Max => &lowest,
                    _ => return false,
                };
                if !known.contains(src) {
                    return false;
                }
            }
            Op::Mma { dst, .. } => {
                let Some(p) = products.get(dst) else { return false };
                if p.sum == axis && !(p.left_in_registers && zero.contains(&p.left)) {
                    return false;
                }
            }
            Op::Store { src, .. } if facts.axes(*src).contains(&axis) => return false,
            Op::Stream { .. } | Op::SkipUnless { .. } => return false,
            _ => {}
        }
    }
    true
}

fn is_lowest(expr: &Scalar, within: &Predicate) -> bool {
    matches!(expr, Scalar::Select(p, _, k) if implies(p, within) && **k == Scalar::Const(f64::NEG_INFINITY))
}

fn is_zero(
    expr: &Scalar,
    within: &Predicate,
    zero: &BTreeSet<ValueId>,
    lowest: &BTreeSet<ValueId>,
    finite: &Finite,
) -> bool {
    match expr {
        Scalar::Tile(v) => zero.contains(v),
        Scalar::Round(_, x) => is_zero(x, within, zero, lowest, finite),
        Scalar::Select(p, _, k) => implies(p, within) && **k == Scalar::Const(0.0),
        Scalar::Unary(UnaryOp::Exp, x) => {
            let Scalar::Binary(BinaryOp::Sub, t, m) = &**x else { return false };
            let t = match &**t {
                Scalar::Binary(BinaryOp::Mul, t, c) if matches!(**c, Scalar::Const(c) if c > 0.0) => t,
                _ => t,
            };
            let bounded = matches!(&**m, Scalar::Tile(m) if finite.holds(*m));
            matches!(&**t, Scalar::Tile(t) if lowest.contains(t)) && bounded
        }
        _ => false,
    }
}

/// Whether the test fails wherever the condition does.
fn implies(test: &Scalar, within: &Predicate) -> bool {
    if let Scalar::Binary(BinaryOp::And, a, b) = test {
        return implies(a, within) || implies(b, within);
    }
    let Scalar::Within(p) = test else { return false };
    let sorted = |a: &Affine| {
        let mut a = a.clone();
        a.terms.sort_by_key(|t| t.1);
        a
    };
    within.all.iter().all(|w| p.all.iter().any(|a| sorted(a) == sorted(w)))
}
