//! From an expression of the program to [`Code`]: sizes and parameters become numbers, index expressions offsets.

use super::code::{Access, Atom, Code, Dim, Fold, Linear, Loop, Memo, Place, Reduction, Statement};
use crate::bind::{Bound, Region};
use crate::{Cascade, Expr, ExprKind, IndexAtom, IndexExpr, IndexId, Monoid, RankId, Span, TensorId};
use std::collections::BTreeSet;

/// Larger tables are not kept: the reduction is evaluated again wherever it stands.
const LARGEST_MEMO: usize = 1 << 24;

struct Compiler<'a> {
    cascade: &'a Cascade,
    bound: &'a Bound,
    /// The loops around the current place, outermost first; the same index again hides the outer one.
    scope: Vec<Loop>,
    memos: Vec<usize>,
}

/// Statement number `number`, whose index over `iterated` is set by the recurrence it belongs to.
pub(super) fn statement(cascade: &Cascade, bound: &Bound, number: usize, iterated: Option<RankId>) -> Statement {
    let statement = &cascade.statements[number];
    let mut indices = vec![];
    let mut collect = |i| {
        if !indices.contains(&i) {
            indices.push(i)
        }
    };
    statement.at.iter().for_each(|e| e.visit_indices(&mut collect));
    let iterated = iterated.and_then(|rank| indices.iter().copied().find(|&i| cascade[i].rank == rank));
    indices.retain(|&i| Some(i) != iterated);
    let mut compiler = Compiler { cascade, bound, scope: vec![], memos: vec![] };
    let loops = compiler.loops(&indices);
    compiler.scope.clone_from(&loops);
    let value = compiler.expr(&statement.value);
    let at = compiler.access(statement.target, &statement.at, statement.span);
    Statement { target: statement.target, at, loops, iterated, value, memos: compiler.memos }
}

impl Compiler<'_> {
    fn loops(&self, indices: &[IndexId]) -> Vec<Loop> {
        indices.iter().map(|&index| Loop { index, size: self.bound.size(self.cascade[index].rank) }).collect()
    }

    fn expr(&mut self, expr: &Expr) -> Code {
        match &expr.kind {
            ExprKind::Number(value) => Code::Number(*value),
            ExprKind::Param(param) => Code::Number(self.bound.param(*param)),
            ExprKind::Size(size) => Code::Number(self.bound.extent(size) as f64),
            ExprKind::Position(index) => Code::Position(*index),
            ExprKind::Argument(number) => Code::Argument(*number),
            ExprKind::Read { tensor, at } => Code::Read(self.access(*tensor, at, expr.span)),
            // What depends on sizes and parameters alone, such as sqrt(D), is a number by now.
            ExprKind::Unary(op, x) => match self.expr(x) {
                Code::Number(x) => Code::Number(op.apply(x)),
                x => Code::Unary(*op, Box::new(x)),
            },
            ExprKind::Binary(op, a, b) => match (self.expr(a), self.expr(b)) {
                (Code::Number(a), Code::Number(b)) => Code::Number(op.apply(a, b)),
                (a, b) => Code::Binary(*op, Box::new(a), Box::new(b)),
            },
            ExprKind::Select(c, a, b) => Code::Select(Box::new([self.expr(c), self.expr(a), self.expr(b)])),
            ExprKind::Reduce { monoid, over, filter, body } => {
                let memo = self.memo(expr);
                let loops = self.loops(over);
                let outside = self.scope.len();
                self.scope.extend(&loops);
                let filter = filter.as_ref().map(|f| self.expr(f));
                let body = self.expr(body);
                self.scope.truncate(outside);
                Code::Reduce(Box::new(Reduction { fold: self.fold(*monoid), loops, filter, body, memo }))
            }
        }
    }

    fn fold(&mut self, monoid: Monoid) -> Fold {
        let Monoid::Custom(id) = monoid else { return Fold::Builtin(monoid) };
        let cascade = self.cascade;
        Fold::Custom { combine: self.expr(&cascade[id].combine), identity: cascade[id].identity }
    }

    /// A table for the reduction's values, if it would otherwise be evaluated at several points with the same result.
    fn memo(&mut self, reduction: &Expr) -> Option<Memo> {
        let free = free_indices(reduction);
        let mut place = Linear::default();
        let (mut entries, mut evaluations) = (1usize, 1usize);
        for (depth, l) in self.scope.iter().enumerate().rev() {
            let hidden = self.scope[depth + 1..].iter().any(|inner| inner.index == l.index);
            evaluations = evaluations.saturating_mul(l.size);
            if !hidden && free.contains(&l.index) {
                place.terms.push((entries as i64, l.index));
                entries = entries.saturating_mul(l.size);
            }
        }
        if entries >= evaluations || entries > LARGEST_MEMO {
            return None;
        }
        self.memos.push(entries);
        Some(Memo { table: self.memos.len() - 1, place, entries })
    }

    fn access(&self, tensor: TensorId, at: &[IndexExpr], span: Span) -> Access {
        let shape = self.bound.shape(self.cascade, tensor);
        // Inside wherever its indices are, whatever conditions stand around it.
        let mut region = Region::new(self.cascade, self.bound);
        at.iter().for_each(|e| e.visit_indices(&mut |i| region.enter(i)));
        let inside = |(expr, &extent): (&IndexExpr, &usize)| {
            let affine = expr.terms.iter().all(|(_, atom)| matches!(atom, IndexAtom::Var(_)));
            affine && region.interval(expr).is_some_and(|(low, high)| low >= 0 && high < extent as i128)
        };
        let proven = at.iter().zip(&shape).all(inside);
        let mut stride = 1;
        let mut strides = vec![1; shape.len()];
        for (dim, &extent) in shape.iter().enumerate().rev() {
            strides[dim] = stride;
            stride *= extent.max(1);
        }
        let dims = at.iter().zip(shape).zip(strides).map(|((expr, extent), stride)| Dim {
            terms: self.terms(expr, span),
            offset: self.bound.extent(&expr.offset),
            extent: extent as i64,
            stride,
        });
        let place = if proven { Place::Proven(linear(dims)) } else { Place::Tested { dims: dims.collect(), span } };
        Access { tensor, place }
    }

    fn terms(&self, expr: &IndexExpr, span: Span) -> Vec<(i64, Atom)> {
        let atom = |atom: &IndexAtom| match atom {
            IndexAtom::Var(index) => Atom::Var(*index),
            IndexAtom::Floor { numerator, denominator } => Atom::Floor {
                terms: self.terms(numerator, span),
                offset: self.bound.extent(&numerator.offset),
                denominator: self.bound.extent(denominator),
            },
            IndexAtom::Gather { tensor, at } => Atom::Gather(self.access(*tensor, at, span)),
        };
        expr.terms.iter().map(|(c, a)| (self.bound.extent(c), atom(a))).collect()
    }
}

/// The offset that dimensions of plain indices come to. Partial sums may wrap: the whole is inside the tensor.
fn linear(dims: impl Iterator<Item = Dim>) -> Linear {
    let mut out = Linear::default();
    for dim in dims {
        let stride = dim.stride as i64;
        out.offset = out.offset.wrapping_add(dim.offset.wrapping_mul(stride));
        for (c, atom) in dim.terms {
            let Atom::Var(index) = atom else { continue };
            let c = c.wrapping_mul(stride);
            match out.terms.iter_mut().find(|(_, i)| *i == index) {
                Some((total, _)) => *total = total.wrapping_add(c),
                None => out.terms.push((c, index)),
            }
        }
    }
    out
}

/// The indices whose positions decide the value of `expr`.
fn free_indices(expr: &Expr) -> BTreeSet<IndexId> {
    let mut free = BTreeSet::new();
    match &expr.kind {
        ExprKind::Position(index) => {
            free.insert(*index);
        }
        ExprKind::Read { at, .. } => at.iter().for_each(|e| {
            e.visit_indices(&mut |i| {
                free.insert(i);
            })
        }),
        _ => expr.for_each_child(&mut |child| free.extend(free_indices(child))),
    }
    if let ExprKind::Reduce { over, .. } = &expr.kind {
        over.iter().for_each(|i| {
            free.remove(i);
        });
    }
    free
}
