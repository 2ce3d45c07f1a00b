//! Makes expressions: the one place that checks truth values against numbers and bounds the tree.

use super::Resolver;
use crate::{BinaryOp, Diagnostic, Expr, ExprKind, IndexId, Monoid, Span, UnaryOp};

/// Nodes that a short text may grow to. Only ops and sugar make more nodes than are written.
pub(super) const BUDGET: usize = 400_000;

/// Longest way down an expression: later stages recurse over it.
const MAX_HEIGHT: u32 = 200;

/// A checked expression.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub expr: Expr,
    /// Whether it is a truth value.
    pub truth: bool,
    height: u32,
    nodes: usize,
}

impl Resolver<'_> {
    /// An expression without parts.
    pub(super) fn leaf(&mut self, kind: ExprKind, truth: bool, span: Span) -> Option<Built> {
        self.spend(1, span)?;
        Some(Built { expr: Expr::new(kind, span), truth, height: 1, nodes: 1 })
    }

    /// Another copy, which takes of the budget.
    pub(super) fn copy(&mut self, x: &Built) -> Option<Built> {
        self.spend(x.nodes, x.expr.span)?;
        Some(x.clone())
    }

    pub(super) fn unary(&mut self, op: UnaryOp, x: Built, span: Span) -> Option<Built> {
        if op == UnaryOp::Not {
            self.condition(&x)?
        } else {
            self.number(&x)?
        }
        // The sign of a literal is part of it, so that printing and parsing agree.
        if let (UnaryOp::Neg, ExprKind::Number(value)) = (op, &x.expr.kind) {
            return self.leaf(ExprKind::Number(-value), false, span);
        }
        self.node([&x.shape()], span)?.finish(op == UnaryOp::Not, span, ExprKind::Unary(op, Box::new(x.expr)))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Built, b: Built, span: Span) -> Option<Built> {
        let logic = matches!(op, BinaryOp::And | BinaryOp::Or);
        let fine = if logic { [self.condition(&a), self.condition(&b)] } else { [self.number(&a), self.number(&b)] };
        fine.into_iter().collect::<Option<()>>()?;
        let shape = self.node([&a.shape(), &b.shape()], span)?;
        shape.finish(op.is_predicate(), span, ExprKind::Binary(op, Box::new(a.expr), Box::new(b.expr)))
    }

    pub(super) fn select(&mut self, c: Built, a: Built, b: Built, span: Span) -> Option<Built> {
        let fine = self.condition(&c);
        if a.truth != b.truth {
            self.report.add(
                Diagnostic::error("bool-as-number", span, "one branch is a truth value and the other a number")
                    .hint("turn the truth value into a number: `where(condition, 1, 0)`"),
            );
            return None;
        }
        fine?;
        let shape = self.node([&c.shape(), &a.shape(), &b.shape()], span)?;
        let truth = a.truth;
        shape.finish(truth, span, ExprKind::Select(Box::new(c.expr), Box::new(a.expr), Box::new(b.expr)))
    }

    pub(super) fn reduce(
        &mut self,
        monoid: Monoid,
        over: Vec<IndexId>,
        filter: Option<Built>,
        body: Built,
        span: Span,
    ) -> Option<Built> {
        let fine = filter.as_ref().map_or(Some(()), |f| self.condition(f));
        self.number(&body)?;
        fine?;
        let shape = match &filter {
            Some(filter) => self.node([&filter.shape(), &body.shape()], span)?,
            None => self.node([&body.shape()], span)?,
        };
        let filter = filter.map(|f| Box::new(f.expr));
        shape.finish(false, span, ExprKind::Reduce { monoid, over, filter, body: Box::new(body.expr) })
    }

    /// Takes `nodes` of the budget.
    pub(super) fn spend(&mut self, nodes: usize, span: Span) -> Option<()> {
        let left = self.budget?.checked_sub(nodes);
        if left.is_none() {
            self.report.add(
                Diagnostic::error("too-large", span, "the program becomes too large once ops and sugar are expanded")
                    .hint("name repeated parts in statements of their own"),
            );
        }
        self.budget = left;
        left.map(drop)
    }

    fn node<const N: usize>(&mut self, parts: [&Shape; N], span: Span) -> Option<Shape> {
        self.spend(1, span)?;
        let height = 1 + parts.iter().map(|p| p.height).max().unwrap_or(0);
        let nodes = 1 + parts.iter().map(|p| p.nodes).sum::<usize>();
        if height > MAX_HEIGHT {
            self.too_deep(span);
            return None;
        }
        Some(Shape { height, nodes })
    }

    /// Reports that an expression is nested too deeply.
    #[cold]
    pub(super) fn too_deep(&mut self, span: Span) {
        self.report.add(
            Diagnostic::error("too-deep", span, "this expression is nested too deeply")
                .hint("name a part of it in a statement of its own"),
        );
    }

    /// Requires a number.
    pub(super) fn number(&mut self, x: &Built) -> Option<()> {
        if !x.truth {
            return Some(());
        }
        self.report.add(
            Diagnostic::error("bool-as-number", x.expr.span, "this is a truth value where a number is needed")
                .hint("turn it into a number: `where(condition, 1, 0)`"),
        );
        None
    }

    /// Requires a truth value.
    pub(super) fn condition(&mut self, x: &Built) -> Option<()> {
        if x.truth {
            return Some(());
        }
        self.report.add(
            Diagnostic::error("number-as-bool", x.expr.span, "this is a number where a truth value is needed")
                .hint("compare it: `… != 0`"),
        );
        None
    }
}

/// What is counted of an expression.
struct Shape {
    height: u32,
    nodes: usize,
}

impl Shape {
    fn finish(self, truth: bool, span: Span, kind: ExprKind) -> Option<Built> {
        Some(Built { expr: Expr::new(kind, span), truth, height: self.height, nodes: self.nodes })
    }
}

impl Built {
    fn shape(&self) -> Shape {
        Shape { height: self.height, nodes: self.nodes }
    }
}
