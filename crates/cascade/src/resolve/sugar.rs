//! Sugar: what a textbook names and this language expands in plain sight.

use super::Resolver;
use super::build::Built;
use crate::{BinaryOp, ExprKind, IndexId, Monoid, SizeExpr, Span, UnaryOp};

type Filter = Option<Built>;

impl Resolver<'_> {
    /// `exp(x - max x) / sum exp(x - max x)`; 0 where the filter does not hold.
    pub(super) fn softmax(&mut self, over: Vec<IndexId>, filter: Filter, x: Built, span: Span) -> Option<Built> {
        let shifted = self.shifted(&over, &filter, x, span)?;
        let exp = self.unary(UnaryOp::Exp, shifted, span)?;
        let numerator = self.copy(&exp)?;
        let normaliser = self.over(Monoid::Sum, &over, &filter, exp, span)?;
        let share = self.binary(BinaryOp::Div, numerator, normaliser, span)?;
        match filter {
            Some(filter) => {
                let zero = self.constant(0.0, span)?;
                self.select(filter, share, zero, span)
            }
            None => Some(share),
        }
    }

    /// `log(sum exp(x - max x)) + max x`.
    pub(super) fn logsumexp(&mut self, over: Vec<IndexId>, filter: Filter, x: Built, span: Span) -> Option<Built> {
        let again = self.copy(&x)?;
        let max = self.over(Monoid::Max, &over, &filter, again, span)?;
        let shifted = self.shifted(&over, &filter, x, span)?;
        let exp = self.unary(UnaryOp::Exp, shifted, span)?;
        let sum = self.over(Monoid::Sum, &over, &filter, exp, span)?;
        let log = self.unary(UnaryOp::Log, sum, span)?;
        self.binary(BinaryOp::Add, log, max, span)
    }

    /// `sum x / N`, or the number of positions where the filter holds.
    pub(super) fn mean(&mut self, over: Vec<IndexId>, filter: Filter, x: Built, span: Span) -> Option<Built> {
        let sum = self.over(Monoid::Sum, &over, &filter, x, span)?;
        let count = match filter {
            Some(_) => {
                let one = self.constant(1.0, span)?;
                self.over(Monoid::Sum, &over, &filter, one, span)?
            }
            None => self.positions(&over, span)?,
        };
        self.binary(BinaryOp::Div, sum, count, span)
    }

    /// `mean (x - mean x)^2`.
    pub(super) fn var(&mut self, over: Vec<IndexId>, filter: Filter, x: Built, span: Span) -> Option<Built> {
        let (again, same) = (self.copy(&x)?, self.same(&filter)?);
        let mean = self.mean(over.clone(), same, again, span)?;
        let deviation = self.binary(BinaryOp::Sub, x, mean, span)?;
        let two = self.constant(2.0, span)?;
        let square = self.binary(BinaryOp::Pow, deviation, two, span)?;
        self.mean(over, filter, square, span)
    }

    /// `x - max x`.
    fn shifted(&mut self, over: &[IndexId], filter: &Filter, x: Built, span: Span) -> Option<Built> {
        let again = self.copy(&x)?;
        let max = self.over(Monoid::Max, over, filter, again, span)?;
        self.binary(BinaryOp::Sub, x, max, span)
    }

    fn over(&mut self, monoid: Monoid, over: &[IndexId], filter: &Filter, body: Built, span: Span) -> Option<Built> {
        let filter = self.same(filter)?;
        self.reduce(monoid, over.to_vec(), filter, body, span)
    }

    /// A copy of the filter; `None` when the budget is spent.
    fn same(&mut self, filter: &Filter) -> Option<Filter> {
        match filter {
            Some(filter) => self.copy(filter).map(Some),
            None => Some(None),
        }
    }

    /// The number of positions of all these indices.
    fn positions(&mut self, over: &[IndexId], span: Span) -> Option<Built> {
        let mut out: Option<Built> = None;
        for &index in over {
            let size = ExprKind::Size(SizeExpr::rank(self.cascade[index].rank));
            let size = self.leaf(size, false, span)?;
            out = Some(match out {
                Some(product) => self.binary(BinaryOp::Mul, product, size, span)?,
                None => size,
            });
        }
        out
    }

    fn constant(&mut self, value: f64, span: Span) -> Option<Built> {
        self.leaf(ExprKind::Number(value), false, span)
    }
}
