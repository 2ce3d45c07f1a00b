//! Expressions as text, with no more parentheses than reading them back needs.

use super::index;
use crate::syntax::{binding, level};
use crate::{BinaryOp, Cascade, Expr, ExprKind, UnaryOp};

/// An expression; `arguments` are the names of a monoid's values.
pub(super) fn expression(e: &Expr, cascade: &Cascade, arguments: Option<&[String; 2]>) -> String {
    let mut printer = Printer { cascade, arguments, out: String::new() };
    printer.expression(e, level::OR);
    printer.out
}

/// A number.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
    if magnitude == std::f64::consts::PI {
        format!("{sign}pi")
    } else if magnitude == 0.0 || (1e-4..1e15).contains(&magnitude) || !magnitude.is_finite() {
        format!("{sign}{magnitude}")
    } else {
        format!("{sign}{magnitude:e}")
    }
}

struct Printer<'c> {
    cascade: &'c Cascade,
    arguments: Option<&'c [String; 2]>,
    out: String,
}

impl Printer<'_> {
    /// `e` where an operand that binds at least as tightly as `min` is read.
    fn expression(&mut self, e: &Expr, min: u8) {
        if own_level(e) >= min {
            self.bare(e);
        } else {
            self.out.push('(');
            self.bare(e);
            self.out.push(')');
        }
    }

    fn bare(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Number(value) => self.out.push_str(&number(*value)),
            ExprKind::Param(id) => self.out.push_str(&self.cascade[*id].name),
            ExprKind::Size(size) => self.out.push_str(&index::bracketed(&index::size(size, self.cascade))),
            ExprKind::Position(i) => self.out.push_str(&self.cascade[*i].name),
            ExprKind::Argument(k) => self.out.push_str(self.arguments.map_or("", |a| &a[usize::from(*k != 0)])),
            ExprKind::Read { tensor, at } => {
                self.out.push_str(&self.cascade[*tensor].name);
                self.out.push_str(&index::brackets(at, self.cascade));
            }
            ExprKind::Unary(UnaryOp::Neg, x) => {
                self.out.push('-');
                self.expression(x, level::NEG);
            }
            ExprKind::Unary(UnaryOp::Not, x) => {
                self.out.push_str("not ");
                self.expression(x, level::NOT);
            }
            ExprKind::Unary(op, x) => self.call(op.name(), &[x]),
            ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => self.call(op.symbol(), &[a, b]),
            ExprKind::Binary(op, a, b) => self.operator(*op, a, b),
            ExprKind::Select(c, a, b) => self.call("where", &[c, a, b]),
            ExprKind::Reduce { .. } => self.reduction(e),
        }
    }

    fn operator(&mut self, op: BinaryOp, a: &Expr, b: &Expr) {
        let level = binding(op);
        let (left, right) = match op {
            BinaryOp::Pow => (level + 1, level),
            _ if op.is_comparison() => (level + 1, level + 1),
            _ => (level, level + 1),
        };
        // A reduction on the left of `*` would take it into its body.
        let swallows = level == level::MUL && matches!(a.kind, ExprKind::Reduce { .. });
        self.expression(a, if swallows { level::ATOM } else { left });
        self.out.push_str(&format!(" {} ", op.symbol()));
        self.expression(b, right);
    }

    fn reduction(&mut self, e: &Expr) {
        let ExprKind::Reduce { monoid, over, filter, body } = &e.kind else { return };
        if let crate::Monoid::Custom(_) = monoid {
            self.out.push_str("reduce ");
        }
        let over: Vec<_> = over.iter().map(|&i| self.cascade[i].name.as_str()).collect();
        self.out.push_str(&format!("{}({}", monoid.name(self.cascade), over.join(", ")));
        if let Some(filter) = filter {
            self.out.push_str(": ");
            self.expression(filter, level::OR);
        }
        self.out.push_str(") ");
        let start = self.out.len();
        self.expression(body, level::MUL);
        // `max(n) - x` would be a function's value minus x.
        if self.out[start..].starts_with('-') {
            self.out.insert(start, '(');
            self.out.push(')');
        }
    }

    fn call(&mut self, name: &str, arguments: &[&Expr]) {
        self.out.push_str(name);
        for (k, argument) in arguments.iter().enumerate() {
            self.out.push_str(if k == 0 { "(" } else { ", " });
            self.expression(argument, level::OR);
        }
        self.out.push(')');
    }
}

/// How tightly an expression binds as an operand. A reduction reads like a product.
fn own_level(e: &Expr) -> u8 {
    match &e.kind {
        ExprKind::Number(value) if value.is_sign_negative() => level::NEG,
        ExprKind::Unary(UnaryOp::Neg, _) => level::NEG,
        ExprKind::Unary(UnaryOp::Not, _) => level::NOT,
        ExprKind::Binary(op, _, _) => binding(*op),
        ExprKind::Reduce { .. } => level::MUL,
        _ => level::ATOM,
    }
}
