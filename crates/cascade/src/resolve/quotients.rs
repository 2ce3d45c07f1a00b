//! Quotients of positions in comparisons: `m / 8 == n / 8` divides exactly, and so compares `m` with `n`, where inside brackets
//! the same text rounds down.

use super::Resolver;
use super::build::Built;
use crate::{BinaryOp, Diagnostic, Expr, ExprKind, Span, UnaryOp};

impl Resolver<'_> {
    /// Warns of a comparison of positions that rounding down would make another one: where both sides divide, or where one
    /// does and the sides are to be equal. `n <= m / 2` is the same either way.
    pub(super) fn exact_quotients(&mut self, op: BinaryOp, a: &Built, b: &Built) {
        let (mut left, mut right) = (None, None);
        if !op.is_comparison() || !position(&a.expr, &mut left) || !position(&b.expr, &mut right) {
            return;
        }
        let equal = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        let Some(span) = (if equal { left.or(right) } else { left.and(right) }) else { return };
        let message = "this quotient of positions is not rounded: only inside brackets does `/` round down";
        self.report.add(Diagnostic::warning("exact-quotient", span, message).hint(
            "for the part that a position lies in write `floor(m / 8)`; to compare exactly, multiply the other side",
        ));
    }
}

/// Whether it is made of positions, sizes and numbers alone; and the first quotient of a position in it that is not rounded.
fn position(e: &Expr, quotient: &mut Option<Span>) -> bool {
    match &e.kind {
        ExprKind::Number(_) | ExprKind::Size(_) | ExprKind::Position(_) => true,
        ExprKind::Unary(UnaryOp::Neg, x) => position(x, quotient),
        ExprKind::Unary(UnaryOp::Floor | UnaryOp::Round, x) => position(x, &mut None),
        ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div), a, b) => {
            if *op == BinaryOp::Div && moves(a) && !moves(b) {
                quotient.get_or_insert(e.span);
            }
            position(a, quotient) && position(b, quotient)
        }
        _ => false,
    }
}

/// Whether a position stands in it.
fn moves(e: &Expr) -> bool {
    let mut found = matches!(e.kind, ExprKind::Position(_));
    e.for_each_child(&mut |child| found |= moves(child));
    found
}
