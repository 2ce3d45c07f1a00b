//! Exponentials of what a tile of truths leaves. Where `y = mask ? x : -∞` is there already, `mask ? exp(x - a) : 0` is `exp(y - a)`, as
//! long as `a` is finite: the exponential of what a mask leaves needs no mask of its own. The same where several conditions are tested in
//! turn, of which those on positions stay: where they do not hold is known without looking at elements, which is better.
//!
//! Conditions: some mask is a tile; `y` is in f32, as the exponential's argument; `a` is chosen to be finite, element by element, where
//! it is made.

use super::reuse::map;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Kernel, Op, Scalar, ValueId};

/// Rewrites the kernel.
pub(super) fn rewrite(kernel: &mut Kernel) {
    let mut ops = kernel.body.clone();
    body(kernel, &mut ops, &mut Known::default());
    kernel.body = ops;
}

/// What tiles that were made are.
#[derive(Clone, Default)]
struct Known {
    /// Of a tile: whether another is finite.
    tests: Vec<(ValueId, ValueId)>,
    /// Those whose every element is finite.
    finite: Vec<ValueId>,
    left: Vec<Left>,
}

/// What some conditions, tested in turn, leave of a tile, infinitely little elsewhere.
#[derive(Clone)]
struct Left {
    conditions: Vec<Scalar>,
    of: ValueId,
    dst: ValueId,
}

fn body(kernel: &Kernel, ops: &mut [Op], known: &mut Known) {
    for op in ops {
        match op {
            // What a chunk computes is its own.
            Op::Stream { body: inner, .. } => body(kernel, inner, &mut known.clone()),
            Op::Map { dst, expr } => {
                *expr = replaced(expr, known);
                known.learn(kernel, *dst, expr);
            }
            _ => {}
        }
    }
}

impl Known {
    fn learn(&mut self, kernel: &Kernel, dst: ValueId, expr: &Scalar) {
        if let Some(of) = tested(expr) {
            self.tests.push((dst, of));
        }
        if let Scalar::Select(test, x, other) = expr
            && let (Scalar::Tile(test), Scalar::Tile(x), Scalar::Const(other)) = (&**test, &**x, &**other)
            && other.is_finite()
            && self.tests.contains(&(*test, *x))
        {
            self.finite.push(dst);
        }
        let narrow = |v: ValueId| kernel.value(v).dtype == DType::F32;
        if let (conditions, Scalar::Tile(of)) = chosen(expr, f64::NEG_INFINITY)
            && conditions.iter().any(|c| matches!(c, Scalar::Tile(_)))
            && narrow(dst)
            && narrow(*of)
        {
            let conditions = conditions.into_iter().cloned().collect();
            self.left.push(Left { conditions, of: *of, dst });
        }
    }
}

/// The conditions that are tested in turn before an expression is a number, and what it is where all hold.
fn chosen(expr: &Scalar, otherwise: f64) -> (Vec<&Scalar>, &Scalar) {
    let (mut conditions, mut rest) = (vec![], expr);
    while let Scalar::Select(condition, x, other) = rest
        && **other == Scalar::Const(otherwise)
    {
        conditions.push(&**condition);
        rest = x;
    }
    (conditions, rest)
}

/// The tile of which an expression tells whether it is finite.
fn tested(expr: &Scalar) -> Option<ValueId> {
    let Scalar::Binary(BinaryOp::Lt, magnitude, most) = expr else { return None };
    let (Scalar::Unary(UnaryOp::Abs, of), Scalar::Const(f64::INFINITY)) = (&**magnitude, &**most) else { return None };
    if let Scalar::Tile(of) = **of { Some(of) } else { None }
}

fn replaced(expr: &Scalar, known: &Known) -> Scalar {
    if let (conditions, Scalar::Unary(UnaryOp::Exp, difference)) = chosen(expr, 0.0)
        && let Scalar::Binary(BinaryOp::Sub, x, a) = &**difference
        && let (Scalar::Tile(x), Scalar::Tile(finite)) = (&**x, &**a)
        && known.finite.contains(finite)
        && let Some(left) =
            known.left.iter().find(|left| left.of == *x && left.conditions.iter().eq(conditions.iter().copied()))
    {
        let less = Scalar::Binary(BinaryOp::Sub, Box::new(Scalar::Tile(left.dst)), a.clone());
        let places = conditions.into_iter().rev().filter(|c| matches!(c, Scalar::Within(_)));
        return places.fold(Scalar::Unary(UnaryOp::Exp, Box::new(less)), |exp, place| {
            Scalar::Select(Box::new(place.clone()), Box::new(exp), Box::new(Scalar::Const(0.0)))
        });
    }
    map(expr, &|part| replaced(part, known))
}
