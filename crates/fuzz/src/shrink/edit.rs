//! Edits of a checked program that leave it well-formed as text: it is printed and checked again.

use einloom_cascade::{Cascade, DType, Expr, ExprKind, IndexAtom, IndexExpr, Monoid, Role, TensorId};
use std::collections::BTreeSet;

/// The program without what its outputs do not need.
pub(super) fn without_unused(cascade: &Cascade) -> Cascade {
    let mut needed: BTreeSet<TensorId> = cascade.outputs.iter().copied().collect();
    loop {
        let before = needed.len();
        for s in cascade.statements.iter().filter(|s| needed.contains(&s.target)).collect::<Vec<_>>() {
            reads(&s.value, &mut |t| _ = needed.insert(t));
        }
        if needed.len() == before {
            break;
        }
    }
    let mut out = cascade.clone();
    out.statements.retain(|s| needed.contains(&s.target));
    for (k, tensor) in out.tensors.iter_mut().enumerate() {
        if tensor.role == Role::Input && !needed.contains(&TensorId(k as u32)) {
            // Without a statement nothing prints it.
            tensor.role = Role::Intermediate;
        }
    }
    out
}

fn reads(expr: &Expr, f: &mut dyn FnMut(TensorId)) {
    if let ExprKind::Read { tensor, at } = &expr.kind {
        f(*tensor);
        at.iter().for_each(|e| e.visit_gathers(&mut |t| f(t)));
    }
    expr.for_each_child(&mut |child| reads(child, f));
}

/// The program with only this output.
pub(super) fn only_output(cascade: &Cascade, keep: TensorId) -> Cascade {
    let mut out = cascade.clone();
    for &o in cascade.outputs.iter().filter(|o| **o != keep) {
        out.tensors[o.0 as usize].role = Role::Intermediate;
    }
    out.outputs = vec![keep];
    without_unused(&out)
}

/// The program with a computed tensor given by the caller instead.
pub(super) fn given(cascade: &Cascade, id: TensorId) -> Option<Cascade> {
    let tensor = &cascade[id];
    if tensor.role != Role::Intermediate || tensor.iterative.is_some() || tensor.ranks.len() != tensor.extents.len() {
        return None;
    }
    let mut out = cascade.clone();
    out.statements.retain(|s| s.target != id);
    let tensor = &mut out.tensors[id.0 as usize];
    tensor.role = Role::Input;
    tensor.dtype = tensor.dtype.or(Some(DType::F32));
    Some(without_unused(&out))
}

/// Number of expressions in a program, statement by statement.
pub(super) fn count(expr: &Expr) -> usize {
    let mut n = 1;
    expr.for_each_child(&mut |child| n += count(child));
    n
}

/// What could stand in place of an expression, smallest first.
pub(super) fn replacements(expr: &Expr) -> Vec<ExprKind> {
    let mut out = vec![];
    if !matches!(expr.kind, ExprKind::Number(_)) {
        out.extend([ExprKind::Number(0.0), ExprKind::Number(1.0)]);
    }
    match &expr.kind {
        ExprKind::Unary(_, x) => out.push(x.kind.clone()),
        ExprKind::Binary(_, a, b) => out.extend([a.kind.clone(), b.kind.clone()]),
        ExprKind::Select(_, a, b) => out.extend([a.kind.clone(), b.kind.clone()]),
        ExprKind::Reduce { monoid, over, filter, body } => {
            let with = |monoid: Monoid, filter: Option<Box<Expr>>| ExprKind::Reduce {
                monoid,
                over: over.clone(),
                filter,
                body: body.clone(),
            };
            // Valid only where nothing reduced is left in it; the checker tells.
            out.push(body.kind.clone());
            if filter.is_some() {
                out.push(with(*monoid, None));
            }
            for simpler in [Monoid::Sum, Monoid::Max] {
                if *monoid > simpler && !(*monoid == Monoid::Max && simpler == Monoid::Sum) {
                    out.push(with(simpler, filter.clone()));
                }
            }
        }
        ExprKind::Read { tensor, at } => {
            for (k, e) in at.iter().enumerate() {
                if let Some((_, IndexAtom::Gather { at: inner, .. })) = e.terms.first() {
                    for e in inner {
                        let mut at: Vec<IndexExpr> = at.clone();
                        at[k] = e.clone();
                        out.push(ExprKind::Read { tensor: *tensor, at });
                    }
                }
            }
        }
        _ => {}
    }
    out
}

/// The expression with its `n`th subexpression (parents first) replaced.
pub(super) fn replace(expr: &Expr, n: usize, by: &ExprKind) -> Expr {
    fn go(expr: &mut Expr, n: &mut usize, by: &ExprKind) {
        if *n == 0 {
            expr.kind = by.clone();
            *n = usize::MAX;
            return;
        }
        if *n == usize::MAX {
            return;
        }
        *n -= 1;
        match &mut expr.kind {
            ExprKind::Unary(_, x) => go(x, n, by),
            ExprKind::Binary(_, a, b) => [a, b].into_iter().for_each(|e| go(e, n, by)),
            ExprKind::Select(c, a, b) => [c, a, b].into_iter().for_each(|e| go(e, n, by)),
            ExprKind::Reduce { filter, body, .. } => {
                if let Some(filter) = filter {
                    go(filter, n, by);
                }
                go(body, n, by);
            }
            _ => {}
        }
    }
    let mut out = expr.clone();
    go(&mut out, &mut { n }, by);
    out
}

/// The `n`th subexpression, parents first.
pub(super) fn nth(expr: &Expr, n: usize) -> Option<&Expr> {
    fn go<'a>(expr: &'a Expr, n: &mut usize) -> Option<&'a Expr> {
        if *n == 0 {
            return Some(expr);
        }
        *n -= 1;
        let mut children = vec![];
        expr.for_each_child(&mut |c| children.push(c));
        children.into_iter().find_map(|c| go(c, n))
    }
    go(expr, &mut { n })
}
