//! Reads that leave their tensor whatever the sizes are: `X[t - 1]`, which no condition keeps from position -1.
//!
//! Only what is sure is said here: no condition stands around the read, its position is a sum of indices, and the first or
//! the last position that it comes to is outside at every size at which there is one ([`never_negative`]). All else is for
//! [`crate::bind`], which knows the sizes. Over an empty rank nothing is read; that such a program would run on nothing is
//! no reason to let it pass. Where it takes the sizes that ranks have by default, it is a warning: a caller may give others.

use super::Resolver;
use crate::{
    Cascade, Diagnostic, Expr, ExprKind, IndexAtom, IndexExpr, IndexId, RankId, SizeExpr, Span, TensorId, spell,
};
use std::collections::BTreeSet;

/// Defaults of ranks are put in so many times at most: one may be made of others.
const DEFAULTS: usize = 8;
/// Longer sizes are not looked at.
const LONGEST: usize = 64;

impl Resolver<'_> {
    /// Errors for reads that are outside at every size but 0, warnings for those that are at every default one.
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
        let Some(extent) = cascade[tensor].extents.get(dim) else { return };
        let (place, size) = (spell::index(cascade, &at[dim]), spell::size(cascade, extent));
        // What is read at all has positions for each of its indices.
        let mut some = BTreeSet::new();
        at.iter().for_each(|e| e.visit_indices(&mut |i| _ = some.insert(cascade[i].rank)));
        let Some((first, last)) = ends(cascade, &at[dim], &some) else { return };
        let below = first.position.scale(-1).add(&SizeExpr::constant(-1));
        let beyond = last.position.add(&extent.scale(-1));
        let sure = never_negative(&below, &some) || never_negative(&beyond, &some);
        let by_default = || defaults(cascade, &beyond).is_some_and(|size| never_negative(&size, &some));
        let (whither, test) = if never_negative(&below, &some) {
            let position = first.position.as_constant();
            let position = position.map_or("a negative position".to_owned(), |p| format!("position {p}"));
            (format!("{position}{}", first.witness(cascade)), format!("{place} >= 0"))
        } else if sure || by_default() {
            (format!("past the last of {size} elements{}", last.witness(cascade)), format!("{place} < {size}"))
        } else {
            return;
        };
        let text = spell::read(cascade, tensor, at);
        let hint = if at[dim].terms.is_empty() {
            format!("there are positions 0 to {} - 1", spell::size(cascade, extent))
        } else {
            format!("read it only where it exists: `where({test}, {text}, 0)`, or a filter `{test}`")
        };
        if !sure {
            let message = format!("{text} reads {whither}, unless {size} is given another size than its default");
            self.report.add(Diagnostic::warning("out-of-range-by-default", span, message).hint(hint));
            return;
        }
        let mut error =
            Diagnostic::error("out-of-range", span, format!("{text} reads {whither}, whatever the sizes are"))
                .hint(hint);
        if let Some((index, shift)) = at[dim].as_shifted_var()
            && cascade[tensor].iterative == Some(dim)
            && shift < 0
        {
            let (name, own) = (&cascade[index].name, &cascade[tensor].name);
            error = error.hint(format!(
                "the slice before `{own}[{name}]` is a tensor of its own with a start of its own: `G[0] = …`, `G[{name}+1] = {own}[{name}]`"
            ));
        }
        self.report.add(error);
    }
}

/// The first or the last position that an index expression comes to, and which of its indices are at their ends there.
#[derive(Clone, Default)]
struct End {
    position: SizeExpr,
    /// Indices, and whether each is at its last position.
    at: Vec<(IndexId, bool)>,
}

impl End {
    fn add(&mut self, coefficient: &SizeExpr, index: IndexId, cascade: &Cascade, is_last: bool) {
        if is_last {
            let last = SizeExpr::rank(cascade[index].rank).add(&SizeExpr::constant(-1));
            self.position = self.position.add(&coefficient.mul(&last));
        }
        self.at.push((index, is_last));
    }

    /// ` at m = 0, n = N - 1`.
    fn witness(&self, cascade: &Cascade) -> String {
        let one = |&(index, is_last): &(IndexId, bool)| {
            let name = &cascade[index].name;
            if is_last { format!("{name} = {} - 1", cascade[cascade[index].rank].name) } else { format!("{name} = 0") }
        };
        let all: Vec<_> = self.at.iter().map(one).collect();
        if all.is_empty() { String::new() } else { format!(" at {}", all.join(", ")) }
    }
}

/// Both ends of a sum of indices, each of which stands in it once; nothing where a factor may be of either sign.
fn ends(cascade: &Cascade, e: &IndexExpr, some: &BTreeSet<RankId>) -> Option<(End, End)> {
    let mut first = End { position: e.offset.clone(), at: vec![] };
    let mut last = first.clone();
    for (coefficient, atom) in &e.terms {
        let IndexAtom::Var(index) = atom else { return None };
        let rises = never_negative(coefficient, some);
        if !rises && !never_negative(&coefficient.scale(-1), some) {
            return None;
        }
        first.add(coefficient, *index, cascade, !rises);
        last.add(coefficient, *index, cascade, rises);
    }
    Some((first, last))
}

/// Whether it is at least 0 for all sizes from 0 on, from 1 on where there is some position: with each of these one more than a
/// number from 0 on and multiplied out, no coefficient is negative.
fn never_negative(size: &SizeExpr, some: &BTreeSet<RankId>) -> bool {
    let mut out = SizeExpr::default();
    for (ranks, coefficient) in size.terms() {
        if ranks.len() > 6 || out.terms().len() > LONGEST {
            return false;
        }
        let more = ranks.iter().fold(SizeExpr::constant(*coefficient), |product, &rank| {
            product.mul(&SizeExpr::rank(rank).add(&SizeExpr::constant(some.contains(&rank).into())))
        });
        out = out.add(&more);
    }
    out.terms().iter().all(|(_, coefficient)| *coefficient >= 0)
}

/// The same with the sizes that ranks have by default, as far as these do not divide; nothing if there is none.
fn defaults(cascade: &Cascade, size: &SizeExpr) -> Option<SizeExpr> {
    let default = |rank: RankId| {
        let known = cascade[rank].default.as_ref().filter(|d| d.denominator.as_constant() == Some(1));
        known.map(|d| d.numerator.clone())
    };
    let mut out = size.clone();
    for round in 0..DEFAULTS {
        if !out.ranks().any(|rank| default(rank).is_some()) {
            return (round > 0).then_some(out);
        }
        let mut next = SizeExpr::default();
        for (ranks, coefficient) in out.terms() {
            let short = |size: SizeExpr| (size.terms().len() <= LONGEST).then_some(size);
            let product = ranks.iter().try_fold(SizeExpr::constant(*coefficient), |product, &rank| {
                short(product.mul(&default(rank).unwrap_or_else(|| SizeExpr::rank(rank))))
            });
            next = short(next.add(&product?))?;
        }
        out = next;
    }
    None
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
