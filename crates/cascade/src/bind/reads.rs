//! Every read stays inside its tensor, as far as that can be known before the data are.

use super::region::{Reach, Region};
use super::{BindError, Bound};
use crate::{Cascade, Expr, ExprKind, IndexAtom, IndexExpr, IndexId, SizeExpr, Span, TensorId, spell};

/// What a walk over all reads finds.
pub(super) struct Reads<'a> {
    cascade: &'a Cascade,
    bound: &'a Bound,
    pub(super) errors: Vec<BindError>,
    pub(super) unproven: Vec<Span>,
    /// Those of them whose position is known but for conditions that could not be followed.
    pub(super) undecided: Vec<BindError>,
}

/// An element that a statement defines or an expression reads.
struct Access<'a> {
    tensor: TensorId,
    at: &'a [IndexExpr],
    span: Span,
    verb: &'static str,
}

/// Walks every statement.
pub(super) fn check<'a>(cascade: &'a Cascade, bound: &'a Bound) -> Reads<'a> {
    let mut reads = Reads { cascade, bound, errors: vec![], unproven: vec![], undecided: vec![] };
    for statement in &cascade.statements {
        let mut region = Region::new(cascade, bound);
        statement.at.iter().for_each(|e| e.visit_indices(&mut |i| region.enter(i)));
        let target = Access { tensor: statement.target, at: &statement.at, span: statement.span, verb: "defines" };
        reads.access(&target, &region);
        reads.expr(&statement.value, &region);
    }
    for monoid in &cascade.monoids {
        reads.expr(&monoid.combine, &Region::new(cascade, bound));
    }
    reads
}

impl Reads<'_> {
    fn expr(&mut self, expr: &Expr, region: &Region) {
        match &expr.kind {
            ExprKind::Size(size) => self.size(size, expr.span),
            ExprKind::Read { tensor, at } => {
                self.access(&Access { tensor: *tensor, at, span: expr.span, verb: "reads" }, region);
            }
            ExprKind::Select(condition, then, otherwise) => {
                self.expr(condition, region);
                for (branch, truth) in [(then, true), (otherwise, false)] {
                    let mut inside = region.clone();
                    inside.assume(condition, truth);
                    self.expr(branch, &inside);
                }
            }
            ExprKind::Reduce { over, filter, body, .. } => {
                let mut inside = region.clone();
                over.iter().for_each(|&i| inside.enter(i));
                if let Some(filter) = filter {
                    self.expr(filter, &inside);
                    inside.assume(filter, true);
                }
                self.expr(body, &inside);
            }
            _ => expr.for_each_child(&mut |child| self.expr(child, region)),
        }
    }

    fn access(&mut self, access: &Access, region: &Region) {
        let &Access { tensor, at, span, .. } = access;
        for (dim, expr) in at.iter().enumerate() {
            self.index(expr, span, region);
            let Some(extent) = self.cascade[tensor].extents.get(dim) else { continue };
            let extent = self.bound.extent(extent);
            match region.reach(expr, extent.into()) {
                Reach::Inside => {}
                Reach::Outside(position, witness) => {
                    self.outside(access, dim, position, &witness);
                }
                Reach::Unknown => {
                    if self.unproven.last() != Some(&span) {
                        self.unproven.push(span);
                    }
                    let mut gathers = false;
                    expr.visit_gathers(&mut |_| gathers = true);
                    if !gathers {
                        self.undecided(access, dim);
                    }
                }
            }
        }
    }

    /// The parts of an index expression: sizes that fit, divisors that divide, gathers that are reads themselves.
    fn index(&mut self, expr: &IndexExpr, span: Span, region: &Region) {
        self.size(&expr.offset, span);
        for (coefficient, atom) in &expr.terms {
            self.size(coefficient, span);
            match atom {
                IndexAtom::Var(_) => {}
                IndexAtom::Floor { numerator, denominator } => {
                    self.size(denominator, span);
                    self.index(numerator, span, region);
                    let divisor = self.bound.extent(denominator);
                    if divisor <= 0 && !region.is_empty() {
                        let name = spell::size(self.cascade, denominator);
                        let message = format!("{} divides by {divisor}", spell::index(self.cascade, expr));
                        self.push(BindError::new("bad-divisor", &name, message).at(span));
                    }
                }
                IndexAtom::Gather { tensor, at } => {
                    self.access(&Access { tensor: *tensor, at, span, verb: "reads" }, region);
                }
            }
        }
        if let Some((low, high)) = region.interval(expr)
            && (low < i64::MIN.into() || high > i64::MAX.into())
        {
            let text = spell::index(self.cascade, expr);
            self.push(BindError::new("size-overflow", &text, format!("the position {text} leaves 64 bits")).at(span));
        }
    }

    fn size(&mut self, size: &SizeExpr, span: Span) {
        if self.bound.try_extent(size).is_none() {
            let text = spell::size(self.cascade, size);
            self.push(BindError::new("size-overflow", &text, format!("the size {text} leaves 64 bits")).at(span));
        }
    }

    fn undecided(&mut self, access: &Access, dim: usize) {
        let &Access { tensor, at, span, .. } = access;
        let text = spell::read(self.cascade, tensor, at);
        let index = spell::index(self.cascade, &at[dim]);
        let extent = spell::size(self.cascade, &self.cascade[tensor].extents[dim]);
        let message = format!("no condition shows that {text} stays within {extent}");
        let error = BindError::new("undecided-range", &self.cascade[tensor].name, message).at(span);
        self.undecided.push(
            error.hint(format!("say so where it is read: `where({index} >= 0 and {index} < {extent}, {text}, 0)`")),
        );
    }

    fn outside(&mut self, access: &Access, dim: usize, position: i128, witness: &[(IndexId, i128)]) {
        let &Access { tensor, at, span, verb } = access;
        let cascade = self.cascade;
        let extent = spell::size(cascade, &cascade[tensor].extents[dim]);
        let count = self.bound.extent(&cascade[tensor].extents[dim]);
        let text = spell::read(cascade, tensor, at);
        let mut message = format!("{text} {verb} position {position} of {extent}, which has {count} elements");
        for (k, (index, at)) in witness.iter().enumerate() {
            message += &format!("{} {} = {at}", if k == 0 { ", at" } else { "," }, cascade[*index].name);
        }
        let mut error = BindError::new("out-of-range", &cascade[tensor].name, message).at(span);
        if verb == "reads" && !witness.is_empty() {
            let index = spell::index(cascade, &at[dim]);
            let test = if position < 0 { format!("{index} >= 0") } else { format!("{index} < {extent}") };
            error =
                error.hint(format!("read it only where it exists: `where({test}, {text}, 0)`, or a filter `{test}`"));
        }
        self.push(error);
    }

    /// One message per place: sugar may have copied the read.
    fn push(&mut self, error: BindError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}
