//! The slices of a tensor: all of it at once, or one at 0 and one at `t + 1`.

use super::Resolver;
use super::targets::Definition;
use crate::syntax::ast::StatementItem;
use crate::{Diagnostic, IndexExpr, RankId, Span};
use std::collections::BTreeMap;

/// What one statement defines of its tensor.
pub(super) struct Slice {
    /// Per dimension its rank; `None` where the position is fixed.
    pub ranks: Vec<Option<RankId>>,
    /// The dimension written at `t + 1`.
    pub step: Option<usize>,
    /// A dimension with a fixed position.
    pub fixed: Option<usize>,
}

impl<'p> Resolver<'p> {
    /// The slice that a left-hand side means: per dimension an index, `t + 1`, or a fixed position.
    pub(super) fn slice(&mut self, at: &[IndexExpr], item: &StatementItem<'p>) -> Option<Slice> {
        let mut slice = Slice { ranks: vec![], step: None, fixed: None };
        let mut seen = BTreeMap::new();
        let mut fine = true;
        for (dim, (e, written)) in at.iter().zip(&item.at).enumerate() {
            let span = written.span;
            match e.as_shifted_var() {
                Some((index, shift)) => {
                    fine &= match shift {
                        0 => true,
                        1 => self.one(&mut slice.step, dim, "stepped", span),
                        _ => self.other_step(span),
                    };
                    if let Some(first) = seen.insert(index, span) {
                        fine = false;
                        let message = format!("`{}` stands twice on the left", self.cascade[index].name);
                        self.report.add(
                            Diagnostic::error("duplicate-index", span, message)
                                .label(first, "first here")
                                .hint("give each dimension an index of its own, `index s, t in T`, and choose with `where(s == t, …, 0)`"),
                        );
                    }
                    slice.ranks.push(Some(self.cascade[index].rank));
                }
                None if e.terms.is_empty() => {
                    fine &= self.one(&mut slice.fixed, dim, "fixed", span);
                    slice.ranks.push(None);
                }
                None => {
                    fine = false;
                    self.report.add(
                        Diagnostic::error(
                            "bad-target",
                            span,
                            "a definition is for every value of an index, not of a formula",
                        )
                        .hint("on the left write an index, `t + 1` for a recurrence, or a fixed position"),
                    );
                }
            }
        }
        if let (Some(_), Some(fixed)) = (slice.step, slice.fixed) {
            fine = false;
            self.report.add(
                Diagnostic::error("bad-target", item.at[fixed].span, "a recurrence defines whole slices at `t + 1`")
                    .hint("write an index here"),
            );
        }
        fine.then_some(slice)
    }

    fn one(&mut self, place: &mut Option<usize>, dim: usize, what: &str, span: Span) -> bool {
        let first = place.is_none();
        *place = Some(dim);
        if !first {
            self.report.add(Diagnostic::error(
                "bad-target",
                span,
                format!("only one dimension of a tensor can be {what}"),
            ));
        }
        first
    }

    fn other_step(&mut self, span: Span) -> bool {
        self.report.add(
            Diagnostic::error(
                "unsupported-step",
                span,
                "a recurrence goes forward by one position: it writes at `t + 1`",
            )
            .hint("shift the reads instead, `H[t+1] = … H[t] …`; the slice before `H[t]` is a tensor of its own: `G[t+1] = H[t]`"),
        );
        false
    }

    /// Whether the slices make up one tensor, and which of its dimensions is iterative (if any).
    pub(super) fn whole(
        &mut self,
        definition: &Definition<'p>,
        items: &[&StatementItem<'p>],
        slices: &[Slice],
    ) -> Option<Option<usize>> {
        let name = definition.name.text;
        let Some(step) = slices.iter().position(|s| s.step.is_some()) else { return self.at_once(name, items, slices) };
        let dim = slices[step].step?;
        let mut fine = true;
        let mut initial = None;
        for (k, slice) in slices.iter().enumerate().filter(|(k, _)| *k != step) {
            if slice.fixed == Some(dim) {
                fine &= self.initial(items[k], dim);
                if let Some(first) = initial {
                    let first: &StatementItem<'p> = items[first];
                    self.report.twice(format!("`{name}` gets its first slice twice"), first.span, items[k].span);
                    fine = false;
                }
                initial = Some(k);
                fine &= self.same_ranks(slice, &slices[step], items[k], items[step]);
            } else {
                self.report.twice(format!("`{name}` is defined twice"), items[step].span, items[k].span);
                fine = false;
            }
        }
        if initial.is_none() && self.names.unread.contains(name) {
            return None;
        }
        if initial.is_none() && fine {
            let at: Vec<_> = items[step].at.iter().enumerate().map(|(d, e)| self.written(e, d == dim)).collect();
            self.report.add(
                Diagnostic::error(
                    "missing-initial-slice",
                    items[step].name.span,
                    format!("`{name}` steps from a slice that nothing defines"),
                )
                .hint(format!("say where it starts: `{name}[{}] = 0`", at.join(","))),
            );
            fine = false;
        }
        fine.then_some(Some(dim))
    }

    /// A tensor without recurrence: one statement, all of it.
    fn at_once(&mut self, name: &str, items: &[&StatementItem<'p>], slices: &[Slice]) -> Option<Option<usize>> {
        let mut fine = true;
        if self.names.unread.contains(name) {
            return None;
        }
        if let Some(k) = slices.iter().position(|s| s.fixed.is_some()) {
            fine = false;
            let message = format!("this defines one slice of `{name}` only");
            let d = Diagnostic::error("slice-without-recurrence", items[k].name.span, message);
            let all = slices.iter().position(|s| s.fixed.is_none());
            self.report.add(match all {
                Some(all) => d
                    .label(items[all].name.span, "and this all of it")
                    .hint(format!("a recurrence writes at `t + 1`: `{name}[t+1] = … {name}[t] …`")),
                None => d
                    .hint("define all of it, or add the recurrence that goes on from here at `t + 1`")
                    .hint("to treat some positions differently, write `where(t == 0, …, …)`"),
            });
        } else {
            for again in &items[1..] {
                fine = false;
                self.report.twice(format!("`{name}` is defined twice"), items[0].span, again.span);
            }
        }
        fine.then_some(None)
    }

    /// A fixed slice must be the first.
    fn initial(&mut self, item: &StatementItem<'p>, dim: usize) -> bool {
        let first = matches!(item.at[dim].kind, crate::syntax::ast::ExprKind::Number(0.0));
        if !first {
            self.report.add(
                Diagnostic::error(
                    "bad-target",
                    item.at[dim].span,
                    "a recurrence starts with slice 0; it defines all others itself",
                )
                .hint("write 0 here"),
            );
        }
        first
    }

    fn same_ranks(&mut self, slice: &Slice, step: &Slice, item: &StatementItem<'p>, main: &StatementItem<'p>) -> bool {
        let mut fine = true;
        for (dim, (a, b)) in slice.ranks.iter().zip(&step.ranks).enumerate() {
            if let (Some(a), Some(b)) = (*a, *b)
                && a != b
            {
                fine = false;
                let message = format!(
                    "this dimension is {} here and {} in the recurrence",
                    self.cascade[a].name, self.cascade[b].name
                );
                self.report.add(
                    Diagnostic::error("rank-conflict", item.at[dim].span, message)
                        .label(main.at[dim].span, "the recurrence"),
                );
            }
        }
        fine
    }

    fn written(&self, e: &crate::syntax::ast::Expr<'p>, iterative: bool) -> String {
        match e.kind {
            crate::syntax::ast::ExprKind::Name(name) if !iterative => name.to_owned(),
            _ => "0".to_owned(),
        }
    }
}
