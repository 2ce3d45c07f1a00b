//! Exponentials of what a tile of truths leaves. Where `y = mask ? x : -∞` is there already, `mask ? exp(x - a) : 0` is `exp(y - a)`, as
//! long as `a` is finite: the exponential of what a mask leaves needs no mask of its own.
//!
//! Conditions: the mask is a tile (what a predicate leaves is known without looking at elements, which is better); `y` is in f32, as the
//! exponential's argument; `a` is chosen to be finite, element by element, where it is made.

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
    /// Mask, what it leaves elements of, and what is left.
    left: Vec<[ValueId; 3]>,
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
        let Scalar::Select(mask, x, other) = expr else { return };
        let (Scalar::Tile(mask), Scalar::Tile(x), Scalar::Const(other)) = (&**mask, &**x, &**other) else { return };
        if other.is_finite() && self.tests.contains(&(*mask, *x)) {
            self.finite.push(dst);
        }
        let narrow = |v: ValueId| kernel.value(v).dtype == DType::F32;
        if *other == f64::NEG_INFINITY && narrow(dst) && narrow(*x) {
            self.left.push([*mask, *x, dst]);
        }
    }
}

/// The tile of which an expression tells whether it is finite.
fn tested(expr: &Scalar) -> Option<ValueId> {
    let Scalar::Binary(BinaryOp::Lt, magnitude, most) = expr else { return None };
    let (Scalar::Unary(UnaryOp::Abs, of), Scalar::Const(f64::INFINITY)) = (&**magnitude, &**most) else { return None };
    if let Scalar::Tile(of) = **of { Some(of) } else { None }
}

fn replaced(expr: &Scalar, known: &Known) -> Scalar {
    if let Scalar::Select(mask, exp, zero) = expr
        && let (Scalar::Tile(mask), Scalar::Unary(UnaryOp::Exp, difference)) = (&**mask, &**exp)
        && let (Scalar::Binary(BinaryOp::Sub, x, a), Scalar::Const(0.0)) = (&**difference, &**zero)
        && let (Scalar::Tile(x), Scalar::Tile(finite)) = (&**x, &**a)
        && known.finite.contains(finite)
        && let Some([.., left]) = known.left.iter().find(|[m, of, _]| m == mask && of == x)
    {
        let less = Scalar::Binary(BinaryOp::Sub, Box::new(Scalar::Tile(*left)), a.clone());
        return Scalar::Unary(UnaryOp::Exp, Box::new(less));
    }
    map(expr, &|part| replaced(part, known))
}
