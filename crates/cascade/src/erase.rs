//! Cascades without their places.

use crate::{Cascade, Expr, ExprKind, Span};

/// The same cascade with every span empty: what remains is what the text means.
pub fn erase_spans(cascade: &Cascade) -> Cascade {
    let mut out = cascade.clone();
    out.ranks.iter_mut().for_each(|r| r.span = Span::default());
    out.params.iter_mut().for_each(|p| p.span = Span::default());
    out.tensors.iter_mut().for_each(|t| t.span = Span::default());
    for monoid in &mut out.monoids {
        monoid.span = Span::default();
        erase(&mut monoid.combine);
    }
    for statement in &mut out.statements {
        statement.span = Span::default();
        erase(&mut statement.value);
    }
    out
}

fn erase(expr: &mut Expr) {
    expr.span = Span::default();
    match &mut expr.kind {
        ExprKind::Unary(_, x) => erase(x),
        ExprKind::Binary(_, a, b) => {
            erase(a);
            erase(b);
        }
        ExprKind::Select(c, a, b) => {
            erase(c);
            erase(a);
            erase(b);
        }
        ExprKind::Reduce { filter, body, .. } => {
            if let Some(filter) = filter {
                erase(filter);
            }
            erase(body);
        }
        _ => {}
    }
}
