//! Masks once. All rules are exact:
//!
//! * `where(p, where(q, x, k), k)` is `where(p and q, x, k)`.
//! * `where(p, exp(x * c - m), 0)` is `exp(t * c - m)` if the same body has a tile `t = where(p, x, -inf)`, `c > 0`, and
//!   `m` is finite because it was made so: see [`super::finite`]. Then `p` is tested once.
//! * `where(p, x, x * f)` is `x * where(p, 1, f)`: if `p` and `f` are rows, the choice is made once per row.

use super::finite::Finite;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Kernel, Op, Scalar, ValueId};

/// Applies the first rule to every map of the body, so that other rules find one choice.
pub(super) fn join(body: &mut [Op]) {
    for op in body {
        match op {
            Op::Stream { body, .. } => join(body),
            Op::Map { expr, .. } => joined(expr),
            _ => {}
        }
    }
}

fn joined(expr: &mut Scalar) {
    match expr {
        Scalar::Unary(_, x) | Scalar::Round(_, x) => joined(x),
        Scalar::Binary(_, x, y) => {
            joined(x);
            joined(y);
        }
        Scalar::Select(_, x, y) => {
            joined(x);
            joined(y);
        }
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => {}
    }
    if let Scalar::Select(p, inner, k) = expr
        && let Scalar::Select(q, x, l) = &**inner
        && k == l
        && matches!(**k, Scalar::Const(_))
    {
        let both = Scalar::Binary(BinaryOp::And, p.clone(), q.clone());
        *expr = Scalar::Select(Box::new(both), x.clone(), k.clone());
    }
}

/// Applies the other rules to every map of the kernel.
pub(super) fn share(kernel: &mut Kernel) {
    let finite = Finite::new(&kernel.body);
    let mut body = std::mem::take(&mut kernel.body);
    block(kernel, &finite, &mut body);
    kernel.body = body;
}

fn block(kernel: &Kernel, finite: &Finite, body: &mut [Op]) {
    // Tiles `where(p, x, -inf)` of this body so far.
    let mut masked: Vec<(ValueId, Scalar)> = vec![];
    for op in body.iter_mut() {
        match op {
            Op::Stream { body, .. } => block(kernel, finite, body),
            Op::Map { dst, expr } => {
                if single(kernel, expr) {
                    choice(expr);
                    exponent(kernel, finite, &masked, expr);
                }
                if kernel.value(*dst).dtype == DType::F32
                    && matches!(&*expr, Scalar::Select(_, _, k) if **k == Scalar::Const(f64::NEG_INFINITY))
                {
                    masked.push((*dst, expr.clone()));
                }
            }
            _ => {}
        }
    }
}

/// Whether the expression is computed in f32, conditions aside.
fn single(kernel: &Kernel, expr: &Scalar) -> bool {
    match expr {
        Scalar::Tile(v) => !matches!(kernel.value(*v).dtype, DType::F64 | DType::I32),
        Scalar::Const(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => true,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => single(kernel, x),
        Scalar::Binary(_, x, y) | Scalar::Select(_, x, y) => single(kernel, x) && single(kernel, y),
    }
}

fn choice(expr: &mut Scalar) {
    match expr {
        Scalar::Unary(_, x) | Scalar::Round(_, x) => choice(x),
        Scalar::Binary(_, x, y) => {
            choice(x);
            choice(y);
        }
        _ => {}
    }
    if let Scalar::Select(p, x, y) = expr
        && let Scalar::Binary(BinaryOp::Mul, factor, f) = &**y
        && factor == x
        && matches!(**x, Scalar::Tile(_))
    {
        let f = Scalar::Select(p.clone(), Box::new(Scalar::Const(1.0)), f.clone());
        *expr = Scalar::Binary(BinaryOp::Mul, x.clone(), Box::new(f));
    }
}

fn exponent(kernel: &Kernel, finite: &Finite, masked: &[(ValueId, Scalar)], expr: &mut Scalar) {
    let Scalar::Select(p, exp, zero) = &*expr else { return };
    let (Scalar::Unary(UnaryOp::Exp, difference), Scalar::Const(0.0)) = (&**exp, &**zero) else { return };
    let Scalar::Binary(BinaryOp::Sub, scaled, m) = &**difference else { return };
    let Scalar::Tile(m) = **m else { return };
    if !finite.holds(m) {
        return;
    }
    let (x, c) = match &**scaled {
        Scalar::Binary(BinaryOp::Mul, x, c) => match **c {
            Scalar::Const(c) if c > 0.0 && c.is_finite() => (&**x, Some(c)),
            _ => return,
        },
        x => (x, None),
    };
    let Scalar::Tile(v) = x else { return };
    let wanted = |s: &Scalar| matches!(s, Scalar::Select(q, y, _) if q == p && **y == Scalar::Tile(*v));
    let Some((t, _)) = masked.iter().find(|(t, s)| wanted(s) && same_axes(kernel, *t, *v)) else { return };
    let t = Scalar::Tile(*t);
    let scaled = match c {
        Some(c) => Scalar::Binary(BinaryOp::Mul, Box::new(t), Box::new(Scalar::Const(c))),
        None => t,
    };
    let difference = Scalar::Binary(BinaryOp::Sub, Box::new(scaled), Box::new(Scalar::Tile(m)));
    *expr = Scalar::Unary(UnaryOp::Exp, Box::new(difference));
}

fn same_axes(kernel: &Kernel, a: ValueId, b: ValueId) -> bool {
    let axes = |v| (kernel.value(v).rows, kernel.value(v).cols);
    axes(a) == axes(b)
}
