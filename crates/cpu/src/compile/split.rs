//! Rewrites a kernel into operations that the primitives compute directly, in the language of tile programs itself:
//! - a part of an expression that lacks one of the result's axes becomes a value of its own, computed once per row or
//!   column and not once per element;
//! - a comparison of numbers that are wider or narrower than those around it becomes a value of its own, and so does what
//!   is rounded, so that numbers are the same whatever becomes of them, and whatever decides about them;
//! - a sum of as many equal numbers as an axis is long is their product, where that is exact;
//! - a contraction's factors and result get the number type that it is computed in.

use super::{Carrier, simplify};
use einloom_cascade::numeric::round;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{AxisId, AxisKind, Kernel, Op, Scalar, TileMonoid, ValueDecl, ValueId, is_wide_type};
use std::collections::{BTreeMap, BTreeSet};

/// The rewritten kernel.
pub(super) fn split(kernel: &Kernel) -> Kernel {
    let mut out = kernel.clone();
    let body = std::mem::take(&mut out.body);
    out.body = ops(&mut out, body, &mut BTreeMap::new());
    out
}

/// `constants`: the values that are the same number everywhere.
fn ops(kernel: &mut Kernel, body: Vec<Op>, constants: &mut BTreeMap<ValueId, f64>) -> Vec<Op> {
    let mut out = vec![];
    for op in body {
        match op {
            Op::Map { dst, expr } => {
                let sides = sides(kernel, dst);
                let dtype = kernel.value(dst).dtype;
                let around = match &expr {
                    Scalar::Binary(op, x, y) if op.is_comparison() && !is_wide_type(dtype) => {
                        kernel.is_wide(x) || kernel.is_wide(y)
                    }
                    expr => kernel.rounds_wide(dtype, expr),
                };
                let expr = apart(kernel, expr, &sides, around, &mut out);
                let wide = is_wide(kernel, dst, &expr);
                let expr = simplify::simplify(&expr, wide);
                let expr = if is_operation(&expr) { lift(kernel, expr, &sides, wide, &mut out) } else { expr };
                if let Scalar::Const(x) = expr {
                    constants.insert(dst, round(kernel.value(dst).dtype, x));
                }
                out.push(Op::Map { dst, expr });
            }
            Op::Mma { dst, a, b, acc } => mma(kernel, dst, a, b, acc, &mut out),
            Op::Stream { axis, within, guards, states, body } => {
                let body = ops(kernel, body, constants);
                out.push(Op::Stream { axis, within, guards, states, body });
            }
            Op::Reduce { dst, src, axis, monoid: TileMonoid::Sum, acc: None } => {
                let sum = constants.get(&src).and_then(|x| equal_numbers(kernel, axis, *x));
                out.push(match sum {
                    Some(sum) => Op::Map { dst, expr: Scalar::Const(sum) },
                    None => Op::Reduce { dst, src, axis, monoid: TileMonoid::Sum, acc: None },
                });
            }
            other => out.push(other),
        }
    }
    out
}

/// The sum of `x` along an axis, if every partial sum of it is a whole number that f32 holds.
fn equal_numbers(kernel: &Kernel, axis: AxisId, x: f64) -> Option<f64> {
    let axis = kernel.axis(axis);
    let sum = x * axis.extent as f64;
    let exact = x.fract() == 0.0 && sum.abs() <= f64::from(1 << 24);
    (axis.kind == AxisKind::Whole && exact).then_some(sum)
}

/// Whether an expression that has no part of another width is computed in f64.
pub(super) fn is_wide(kernel: &Kernel, dst: ValueId, expr: &Scalar) -> bool {
    let mut found = is_wide_type(kernel.value(dst).dtype);
    expr.visit(&mut |e| {
        found |= matches!(e, Scalar::Tile(_) | Scalar::Position(_) | Scalar::Round(..)) && kernel.is_wide(e)
    });
    found
}

/// Moves what is compared or rounded and of the other width than `wide` into values of their own. Narrow numbers that are
/// compared as they are may be compared as wide ones.
fn apart(kernel: &mut Kernel, expr: Scalar, all: &BTreeSet<AxisId>, wide: bool, out: &mut Vec<Op>) -> Scalar {
    let again = |kernel: &mut Kernel, e: Box<Scalar>, wide: bool, out: &mut Vec<Op>| {
        Box::new(apart(kernel, *e, all, wide, out))
    };
    match expr {
        Scalar::Binary(op, x, y) if op.is_comparison() => {
            let own = kernel.is_wide(&x) || kernel.is_wide(&y);
            let (x, y) = (again(kernel, x, own, out), again(kernel, y, own, out));
            let as_they_are = !own && !is_operation(&x) && !is_operation(&y);
            let expr = Scalar::Binary(op, x, y);
            // Small whole numbers, and nothing else.
            let positions = !own && !mentions_tiles(&expr);
            if own == wide || as_they_are || positions {
                return expr;
            }
            value(kernel, expr, all, (own, DType::B1), out)
        }
        Scalar::Round(dtype, x) => {
            let own = kernel.rounds_wide(dtype, &x);
            let x = again(kernel, x, own, out);
            if own == wide || !own && !is_operation(&x) {
                return Scalar::Round(dtype, x);
            }
            // What is rounded to a type that f32 has is an f32.
            let expr = if own { Scalar::Round(dtype, x) } else { *x };
            let expr = value(kernel, expr, all, (own, DType::F32), out);
            if own || dtype == DType::F32 { expr } else { Scalar::Round(dtype, Box::new(expr)) }
        }
        Scalar::Unary(UnaryOp::Not, x) => Scalar::Unary(UnaryOp::Not, decided(kernel, x, all, wide, out)),
        Scalar::Unary(op, x) => Scalar::Unary(op, again(kernel, x, wide, out)),
        Scalar::Binary(op, x, y) if op.is_predicate() => {
            let x = decided(kernel, x, all, wide, out);
            Scalar::Binary(op, x, decided(kernel, y, all, wide, out))
        }
        Scalar::Binary(op, x, y) => {
            let x = again(kernel, x, wide, out);
            Scalar::Binary(op, x, again(kernel, y, wide, out))
        }
        Scalar::Select(c, x, y) => {
            let c = decided(kernel, c, all, wide, out);
            let x = again(kernel, x, wide, out);
            Scalar::Select(c, x, again(kernel, y, wide, out))
        }
        leaf => leaf,
    }
}

/// [`apart`] of what is taken as a condition: a number holds where it is not 0.
fn decided(kernel: &mut Kernel, x: Box<Scalar>, all: &BTreeSet<AxisId>, wide: bool, out: &mut Vec<Op>) -> Box<Scalar> {
    let x = match kernel.is_wide(&x) {
        true => Scalar::Binary(BinaryOp::Ne, x, Box::new(Scalar::Const(0.0))),
        false => *x,
    };
    Box::new(apart(kernel, x, all, wide, out))
}

/// A tile of its own for a part of an expression over the axes `all`.
fn value(
    kernel: &mut Kernel,
    expr: Scalar,
    all: &BTreeSet<AxisId>,
    (wide, dtype): (bool, DType),
    out: &mut Vec<Op>,
) -> Scalar {
    let axes = axes(kernel, &expr, all);
    let expr = lift(kernel, simplify::simplify(&expr, wide), &axes, wide, out);
    let mut sides = axes.iter().copied();
    let name = if dtype == DType::B1 { "holds" } else { "rounded" };
    let dst = declare(kernel, name, sides.next(), sides.next(), dtype);
    out.push(Op::Map { dst, expr });
    Scalar::Tile(dst)
}

fn mentions_tiles(expr: &Scalar) -> bool {
    let mut found = false;
    expr.visit(&mut |e| found |= matches!(e, Scalar::Tile(_)));
    found
}

trait Visit {
    fn visit(&self, f: &mut impl FnMut(&Scalar));
}

impl Visit for Scalar {
    fn visit(&self, f: &mut impl FnMut(&Scalar)) {
        f(self);
        match self {
            Scalar::Round(_, x) | Scalar::Unary(_, x) => x.visit(f),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| e.visit(f)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| e.visit(f)),
            Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => {}
        }
    }
}

fn sides(kernel: &Kernel, value: ValueId) -> BTreeSet<AxisId> {
    let value = kernel.value(value);
    [value.rows, value.cols].into_iter().flatten().collect()
}

fn is_operation(expr: &Scalar) -> bool {
    matches!(expr, Scalar::Round(..) | Scalar::Unary(..) | Scalar::Binary(..) | Scalar::Select(..))
}

/// The axes among `within` that the expression varies along.
fn axes(kernel: &Kernel, expr: &Scalar, within: &BTreeSet<AxisId>) -> BTreeSet<AxisId> {
    let mut out = BTreeSet::new();
    expr.visit(&mut |e| match e {
        Scalar::Tile(v) => out.extend(sides(kernel, *v)),
        Scalar::Position(a) => out.extend(within.contains(a).then_some(*a)),
        Scalar::Within(p) => {
            out.extend(p.all.iter().flat_map(|a| &a.terms).map(|t| t.1).filter(|a| within.contains(a)))
        }
        _ => {}
    });
    out
}

/// Moves the largest parts of `expr` that lack an axis of the result into values of their own.
fn lift(kernel: &mut Kernel, expr: Scalar, all: &BTreeSet<AxisId>, wide: bool, out: &mut Vec<Op>) -> Scalar {
    let own = axes(kernel, &expr, all);
    if own.len() < all.len() && is_operation(&expr) {
        // Constants alone are left: they are folded where that is exact.
        let mut leaves = false;
        expr.visit(&mut |e| leaves |= matches!(e, Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_)));
        if leaves {
            let inner = lift_parts(kernel, expr, &own, wide, out);
            return Scalar::Tile(define(kernel, &own, wide, inner, out));
        }
    }
    lift_parts(kernel, expr, all, wide, out)
}

fn lift_parts(kernel: &mut Kernel, expr: Scalar, all: &BTreeSet<AxisId>, wide: bool, out: &mut Vec<Op>) -> Scalar {
    let mut part = |e: Box<Scalar>| Box::new(lift(kernel, *e, all, wide, out));
    match expr {
        Scalar::Round(d, x) => Scalar::Round(d, part(x)),
        Scalar::Unary(op, x) => Scalar::Unary(op, part(x)),
        Scalar::Binary(op, x, y) => Scalar::Binary(op, part(x), part(y)),
        // A predicate stays with its branches: it decides which of them are computed at all.
        Scalar::Select(c, x, y) if matches!(*c, Scalar::Within(_)) => Scalar::Select(c, part(x), part(y)),
        Scalar::Select(c, x, y) => Scalar::Select(part(c), part(x), part(y)),
        leaf => leaf,
    }
}

fn define(kernel: &mut Kernel, axes: &BTreeSet<AxisId>, wide: bool, expr: Scalar, out: &mut Vec<Op>) -> ValueId {
    let mut axes = axes.iter().copied();
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let dst = declare(kernel, "part", axes.next(), axes.next(), dtype);
    out.push(Op::Map { dst, expr });
    dst
}

fn declare(kernel: &mut Kernel, name: &str, rows: Option<AxisId>, cols: Option<AxisId>, dtype: DType) -> ValueId {
    kernel.values.push(ValueDecl { name: name.to_string(), rows, cols, dtype });
    ValueId(kernel.values.len() as u32 - 1)
}

/// Factors of one carrier, and a result that needs no rounding; conversions become maps.
fn mma(kernel: &mut Kernel, dst: ValueId, a: ValueId, b: ValueId, acc: Option<ValueId>, out: &mut Vec<Op>) {
    let dtype = |v: ValueId, kernel: &Kernel| kernel.value(v).dtype;
    let exact = if dtype(a, kernel).is_integer() && dtype(b, kernel).is_integer() {
        DType::I32
    } else if dtype(dst, kernel) == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let convert = |v: ValueId, kernel: &mut Kernel, out: &mut Vec<Op>| {
        let decl = kernel.value(v).clone();
        if Carrier::of(decl.dtype) == Carrier::of(exact) {
            return v;
        }
        let dst = declare(kernel, &decl.name, decl.rows, decl.cols, exact);
        out.push(Op::Map { dst, expr: Scalar::Tile(v) });
        dst
    };
    let (a, b) = (convert(a, kernel, out), convert(b, kernel, out));
    let direct = |v: ValueId, kernel: &Kernel| dtype(v, kernel) == exact;
    if direct(dst, kernel) && acc.is_none_or(|v| Carrier::of(dtype(v, kernel)) == Carrier::of(exact)) {
        out.push(Op::Mma { dst, a, b, acc });
        return;
    }
    let decl = kernel.value(dst).clone();
    let sum = declare(kernel, "sum", decl.rows, decl.cols, exact);
    out.push(Op::Mma { dst: sum, a, b, acc: None });
    let expr = match acc {
        Some(acc) => Scalar::Binary(BinaryOp::Add, Box::new(Scalar::Tile(acc)), Box::new(Scalar::Tile(sum))),
        None => Scalar::Tile(sum),
    };
    out.push(Op::Map { dst, expr });
}
