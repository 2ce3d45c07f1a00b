//! What a kernel computes a second time because the first time a special case was kept out of it: where `m2 = guard ? m :
//! c` and a tile holds `f(x, m2)`, an element of `f(x, m)` is that tile's wherever the guard holds. The guard is tested
//! once per row, so only where it fails is `f` computed again. Exact: where the guard holds, `m2` *is* `m`.
//!
//! Conditions: the same operations on the same operands otherwise; both results have the same axes; the guard lacks one
//! of them; the tile is unrounded f32; `f` has a function that costs more than reading an element back; and
//! [`super::again`] does not say that reading it back costs more after all.

use super::again::is_made_again;
use einloom_cascade::{DType, UnaryOp};
use einloom_tile::{Kernel, Op, Program, Scalar, ValueId};

/// Rewrites the kernel.
pub(super) fn reuse(program: &Program, kernel: &mut Kernel) {
    let mut ops = kernel.body.clone();
    body((program, kernel), &mut ops, &mut Known::default());
    kernel.body = ops;
}

/// What has been computed so far.
#[derive(Clone, Default)]
struct Known {
    guarded: Vec<Guarded>,
    computed: Vec<Computed>,
}

/// `dst = guard ? value : constant`.
#[derive(Clone, Copy)]
struct Guarded {
    dst: ValueId,
    guard: ValueId,
    value: ValueId,
}

/// Where `guard` holds, `tile` is `expr`.
#[derive(Clone)]
struct Computed {
    guard: ValueId,
    expr: Scalar,
    tile: ValueId,
}

fn body((program, kernel): (&Program, &Kernel), ops: &mut [Op], known: &mut Known) {
    for op in ops {
        match op {
            // What a chunk computes is its own.
            Op::Stream { body: inner, .. } => body((program, kernel), inner, &mut known.clone()),
            Op::Map { dst, expr } => {
                if !is_made_again(program, kernel, *dst, expr) {
                    *expr = replaced(kernel, *dst, expr, &known.computed);
                }
                if let Scalar::Select(guard, value, other) = &*expr
                    && let (Scalar::Tile(guard), Scalar::Tile(value), Scalar::Const(_)) = (&**guard, &**value, &**other)
                {
                    known.guarded.push(Guarded { dst: *dst, guard: *guard, value: *value });
                }
                if kernel.value(*dst).dtype == DType::F32 && is_costly(expr) {
                    for g in &known.guarded {
                        if mentions(expr, g.dst) && lacks_a_side(kernel, g.guard, *dst) {
                            let expr = with(expr, g.dst, g.value);
                            known.computed.push(Computed { guard: g.guard, expr, tile: *dst });
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn lacks_a_side(kernel: &Kernel, guard: ValueId, dst: ValueId) -> bool {
    let (guard, dst) = (kernel.value(guard), kernel.value(dst));
    let sides = [guard.rows, guard.cols];
    [dst.rows, dst.cols].into_iter().flatten().any(|a| !sides.contains(&Some(a)))
}

fn replaced(kernel: &Kernel, dst: ValueId, expr: &Scalar, computed: &[Computed]) -> Scalar {
    let (to, sides) = (kernel.value(dst), |v: ValueId| (kernel.value(v).rows, kernel.value(v).cols));
    let narrow = !matches!(to.dtype, DType::F64 | DType::I32);
    let same = |c: &&Computed| narrow && c.expr == *expr && sides(c.tile) == sides(dst);
    if let Some(c) = computed.iter().find(same) {
        let part = |v| Box::new(Scalar::Tile(v));
        return Scalar::Select(part(c.guard), part(c.tile), Box::new(expr.clone()));
    }
    map(expr, &|e| replaced(kernel, dst, e, computed))
}

/// The expression with `f` applied to its parts.
pub(super) fn map(expr: &Scalar, f: &dyn Fn(&Scalar) -> Scalar) -> Scalar {
    let part = |e: &Scalar| Box::new(f(e));
    match expr {
        Scalar::Round(d, x) => Scalar::Round(*d, part(x)),
        Scalar::Unary(op, x) => Scalar::Unary(*op, part(x)),
        Scalar::Binary(op, x, y) => Scalar::Binary(*op, part(x), part(y)),
        Scalar::Select(c, x, y) => Scalar::Select(part(c), part(x), part(y)),
        leaf => leaf.clone(),
    }
}

/// `expr` with `to` in the place of `from`.
fn with(expr: &Scalar, from: ValueId, to: ValueId) -> Scalar {
    if *expr == Scalar::Tile(from) { Scalar::Tile(to) } else { map(expr, &|e| with(e, from, to)) }
}

pub(super) fn any(expr: &Scalar, test: &dyn Fn(&Scalar) -> bool) -> bool {
    test(expr)
        || match expr {
            Scalar::Round(_, x) | Scalar::Unary(_, x) => any(x, test),
            Scalar::Binary(_, x, y) => any(x, test) || any(y, test),
            Scalar::Select(c, x, y) => any(c, test) || any(x, test) || any(y, test),
            _ => false,
        }
}

fn mentions(expr: &Scalar, v: ValueId) -> bool {
    any(expr, &|e| *e == Scalar::Tile(v))
}

/// Whether it has a function of more than a few instructions.
fn is_costly(expr: &Scalar) -> bool {
    any(expr, &|e| match e {
        Scalar::Unary(op, _) => !matches!(
            op,
            UnaryOp::Neg
                | UnaryOp::Not
                | UnaryOp::Abs
                | UnaryOp::Sqrt
                | UnaryOp::Floor
                | UnaryOp::Round
                | UnaryOp::Sign
                | UnaryOp::Relu
        ),
        _ => false,
    })
}
