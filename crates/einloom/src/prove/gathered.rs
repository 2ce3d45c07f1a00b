//! Positions outside a tensor under a condition: the text has no value there, a program reads 0 and goes on.
//!
//! It may stand under the condition as written, or come under one where its statement is computed for the elements that are read alone.

use einloom_cascade::{Cascade, Expr, ExprKind, Span, TensorId};

/// Whether the read at this place, or every read of what it is a part of, stands under a condition.
pub(super) fn under_condition(cascade: &Cascade, place: Span) -> bool {
    let here = |e: &Expr| matches!(e.kind, ExprKind::Read { .. }) && e.span == place;
    let mut found = cascade.statements.iter().filter_map(|s| Some((s.target, all_under(&s.value, false, &here)?)));
    found.next().is_some_and(|(target, under)| under || read_under(cascade, target, cascade.statements.len()))
}

/// Whether a tensor is read under conditions only; `depth` bounds how many statements lie between.
fn read_under(cascade: &Cascade, tensor: TensorId, depth: usize) -> bool {
    if depth == 0 || cascade.outputs.contains(&tensor) {
        return false;
    }
    let here = |e: &Expr| matches!(&e.kind, ExprKind::Read { tensor: t, .. } if *t == tensor);
    cascade.statements.iter().all(|s| match all_under(&s.value, false, &here) {
        Some(under) => under || read_under(cascade, s.target, depth - 1),
        None => true,
    })
}

/// Whether all that is looked for stands under a condition; nothing if there is none of it.
fn all_under(e: &Expr, under: bool, here: &impl Fn(&Expr) -> bool) -> Option<bool> {
    if here(e) {
        return Some(under);
    }
    let both = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(a), Some(b)) => Some(a && b),
        (a, b) => a.or(b),
    };
    match &e.kind {
        ExprKind::Unary(_, x) => all_under(x, under, here),
        ExprKind::Binary(_, a, b) => both(all_under(a, under, here), all_under(b, under, here)),
        ExprKind::Select(c, a, b) => {
            let branches = both(all_under(a, true, here), all_under(b, true, here));
            both(all_under(c, under, here), branches)
        }
        ExprKind::Reduce { filter, body, .. } => {
            let asked = filter.as_ref().and_then(|f| all_under(f, under, here));
            both(asked, all_under(body, under || filter.is_some(), here))
        }
        ExprKind::Number(_)
        | ExprKind::Param(_)
        | ExprKind::Size(_)
        | ExprKind::Position(_)
        | ExprKind::Argument(_)
        | ExprKind::Read { .. } => None,
    }
}
