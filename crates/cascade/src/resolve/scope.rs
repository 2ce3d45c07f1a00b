//! What a bare name may mean at the place that is being resolved.

use super::build::Built;
use crate::{Expr, ExprKind, IndexId, Span};
use std::collections::{BTreeMap, BTreeSet};

/// The bound indices and, inside an op or a monoid, the arguments.
#[derive(Debug, Default)]
pub(super) struct Scope<'p> {
    /// The indices that the statement being resolved binds.
    bound: Bindings,
    /// The ops being expanded, outermost first. Only the innermost is visible.
    pub frames: Vec<Frame<'p>>,
    /// Depth of the recursion over expressions.
    pub depth: u32,
    /// Indices of this statement whose missing binding was reported.
    pub reported: BTreeSet<IndexId>,
    /// Indices of this statement that a reduction before the place at hand was over, each with what the last one is called.
    pub ended: BTreeMap<IndexId, (&'p str, Span)>,
}

/// An op or a monoid whose body is being resolved.
#[derive(Debug)]
pub(super) struct Frame<'p> {
    pub name: &'p str,
    /// `None`: a mistake in the argument was reported, or the op is only being checked.
    pub arguments: BTreeMap<&'p str, Option<Built>>,
    /// The indices that reductions of the body bind.
    bound: Bindings,
    /// Whether it is a monoid, which combines values and may read nothing.
    pub monoid: bool,
}

impl<'p> Frame<'p> {
    pub fn new(name: &'p str, arguments: BTreeMap<&'p str, Option<Built>>, monoid: bool) -> Self {
        Self { name, arguments, bound: Bindings::default(), monoid }
    }

    /// An index of `expr` that a reduction of the body would capture.
    pub fn captures(&self, expr: &Expr) -> Option<IndexId> {
        if self.bound.0.is_empty() {
            return None;
        }
        free_indices(expr).into_iter().find(|&i| self.bound.contains(i))
    }
}

impl Scope<'_> {
    pub fn bind(&mut self, index: IndexId) {
        self.bindings().add(index);
    }

    pub fn unbind(&mut self, index: IndexId) {
        self.bindings().remove(index);
    }

    /// Whether an index has a value here. An op sees the indices of its own reductions only.
    pub fn is_bound(&self, index: IndexId) -> bool {
        self.frames.last().map_or(&self.bound, |frame| &frame.bound).contains(index)
    }

    fn bindings(&mut self) -> &mut Bindings {
        self.frames.last_mut().map_or(&mut self.bound, |frame| &mut frame.bound)
    }

    /// Starts another statement.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// How often each index is bound: an inner reduction may bind one again.
#[derive(Debug, Default)]
struct Bindings(BTreeMap<IndexId, u32>);

impl Bindings {
    fn add(&mut self, index: IndexId) {
        *self.0.entry(index).or_default() += 1;
    }

    fn remove(&mut self, index: IndexId) {
        match self.0.get_mut(&index) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.0.remove(&index);
            }
        }
    }

    fn contains(&self, index: IndexId) -> bool {
        self.0.contains_key(&index)
    }
}

/// The indices that `expr` needs from around it.
fn free_indices(expr: &Expr) -> BTreeSet<IndexId> {
    fn go(expr: &Expr, bound: &mut Bindings, out: &mut BTreeSet<IndexId>) {
        let mut found = |i: IndexId| {
            if !bound.contains(i) {
                out.insert(i);
            }
        };
        match &expr.kind {
            ExprKind::Position(i) => found(*i),
            ExprKind::Read { at, .. } => at.iter().for_each(|e| e.visit_indices(&mut found)),
            ExprKind::Reduce { over, .. } => {
                over.iter().for_each(|&i| bound.add(i));
                expr.for_each_child(&mut |c| go(c, bound, out));
                over.iter().for_each(|&i| bound.remove(i));
            }
            _ => expr.for_each_child(&mut |c| go(c, bound, out)),
        }
    }
    let mut out = BTreeSet::new();
    go(expr, &mut Bindings::default(), &mut out);
    out
}
