//! Reads that leave their tensor whatever the sizes are: `X[t - 1]`, which no condition keeps from position -1.
//!
//! Only what is sure is said here: no condition stands around the read, its position is an index and a constant, and the
//! tensor has as many elements there as the index has positions, give or take a constant. All else is for
//! [`crate::bind`], which knows the sizes. Over an empty rank nothing is read; that such a program would run on nothing is
//! no reason to let it pass.

use super::Resolver;
use crate::{Diagnostic, Expr, ExprKind, IndexExpr, SizeExpr, Span, TensorId, spell};

impl Resolver<'_> {
    /// Errors for reads that are outside at every size but 0.
    pub(super) fn ranges(&mut self) {
        let mut found = vec![];
        self.cascade
            .statements
            .iter()
            .for_each(|s| reads(&s.value, &mut |t, at, span| found.push((t, at.to_vec(), span))));
        for (tensor, at, span) in found {
            (0..at.len()).for_each(|dim| self.range(tensor, &at, dim, span));
        }
    }

    fn range(&mut self, tensor: TensorId, at: &[IndexExpr], dim: usize, span: Span) {
        let cascade = &self.cascade;
        let Some((index, shift)) = at[dim].as_shifted_var() else { return };
        let Some(extent) = cascade[tensor].extents.get(dim) else { return };
        let positions = SizeExpr::rank(cascade[index].rank);
        // How many elements there are beyond the last position of the index.
        let beyond = extent.add(&positions.scale(-1)).as_constant();
        let (name, rank) = (&cascade[index].name, &cascade[cascade[index].rank].name);
        let (text, place, size) =
            (spell::read(cascade, tensor, at), spell::index(cascade, &at[dim]), spell::size(cascade, extent));
        let (whither, test) = match beyond {
            _ if shift < 0 => (format!("position {shift} at {name} = 0"), format!("{place} >= 0")),
            Some(beyond) if shift > beyond => {
                (format!("past the last of {size} elements at {name} = {rank} - 1"), format!("{place} < {size}"))
            }
            _ => return,
        };
        let message = format!("{text} reads {whither}, whatever the sizes are");
        let mut error = Diagnostic::error("out-of-range", span, message)
            .hint(format!("read it only where it exists: `where({test}, {text}, 0)`, or a filter `{test}`"));
        if cascade[tensor].iterative == Some(dim) && shift < 0 {
            let own = &cascade[tensor].name;
            error = error.hint(format!(
                "the slice before `{own}[{name}]` is a tensor of its own with a start of its own: `G[0] = …`, `G[{name}+1] = {own}[{name}]`"
            ));
        }
        self.report.add(error);
    }
}

/// The reads that stand under no condition.
fn reads(expr: &Expr, found: &mut dyn FnMut(TensorId, &[IndexExpr], Span)) {
    match &expr.kind {
        ExprKind::Read { tensor, at } => found(*tensor, at, expr.span),
        ExprKind::Select(condition, ..) => reads(condition, found),
        ExprKind::Reduce { filter: Some(filter), .. } => reads(filter, found),
        _ => expr.for_each_child(&mut |child| reads(child, found)),
    }
}
