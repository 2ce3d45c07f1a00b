//! Size expressions: `L - R + 1`, `M / M0`.

use super::Resolver;
use crate::syntax::ast::{Expr, ExprKind, Program};
use crate::{BinaryOp, Diagnostic, RankDefault, RankId, SizeExpr, Span, UnaryOp};

/// Every integer up to here, and none beyond, is one f64 of its own.
const LARGEST_INTEGER: i64 = (1 << 53) - 1;
/// Largest number of factors in one size or index expression, so that a product of two is quickly made (and then
/// refused if it has more).
const MAX_PARTS: usize = 64;

impl<'p> Resolver<'p> {
    /// The defaults of `rank M = …`.
    pub(super) fn rank_sizes(&mut self, program: &'p Program<'p>) {
        for item in &program.ranks {
            let (Some(size), Some(&rank)) = (&item.size, self.names.ranks.get(item.name.text)) else { continue };
            let default = match &size.kind {
                ExprKind::Binary(BinaryOp::Div, a, b) => {
                    let (numerator, denominator) = (self.size(a), self.size(b));
                    let denominator = denominator.filter(|d| self.positive(d, b.span, "divide by"));
                    numerator.zip(denominator)
                }
                _ => self.size(size).map(|numerator| (numerator, SizeExpr::constant(1))),
            };
            let Some((numerator, denominator)) = default else { continue };
            if denominator.as_constant() == Some(1) && numerator.as_constant().is_some_and(|n| n < 0) {
                self.report.add(Diagnostic::error("negative-size", size.span, "a size cannot be negative"));
                continue;
            }
            self.cascade.ranks[rank.0 as usize].default = Some(RankDefault { numerator, denominator });
        }
        self.cyclic_ranks();
    }

    /// A size: integers and ranks with `+ - *`.
    fn size(&mut self, e: &Expr<'p>) -> Option<SizeExpr> {
        match &e.kind {
            ExprKind::Number(value) => self.integer(*value, e.span).map(SizeExpr::constant),
            ExprKind::Name(name) => match self.names.ranks.get(*name) {
                Some(&rank) => Some(SizeExpr::rank(rank)),
                None => {
                    self.unknown_rank(name, e.span);
                    None
                }
            },
            ExprKind::Unary(UnaryOp::Neg, x) => Some(self.size(x)?.scale(-1)),
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), a, b) => {
                let (a, b) = (self.size(a), self.size(b));
                let (a, b) = (a?, b?);
                let out = match op {
                    BinaryOp::Add => a.add(&b),
                    BinaryOp::Sub => a.add(&b.scale(-1)),
                    _ => a.mul(&b),
                };
                self.modest(out, e.span)
            }
            _ => {
                self.report.add(
                    Diagnostic::error(
                        "not-a-size",
                        e.span,
                        "a size is made of integers and ranks with `+`, `-` and `*`",
                    )
                    .hint("one division is possible, outermost: `rank M1 = (M + 1) / M0`"),
                );
                None
            }
        }
    }

    /// A size that may divide: not a constant below 1.
    pub(super) fn positive(&mut self, size: &SizeExpr, span: Span, verb: &str) -> bool {
        let fine = size.as_constant().is_none_or(|c| c > 0);
        if !fine {
            self.report.add(Diagnostic::error("not-positive", span, format!("cannot {verb} what is not positive")));
        }
        fine
    }

    /// The same size if it is of a size to work with.
    pub(super) fn modest(&mut self, size: SizeExpr, span: Span) -> Option<SizeExpr> {
        if size_parts(&size) > MAX_PARTS {
            self.too_complex(span);
            return None;
        }
        if size.terms().iter().any(|(_, c)| c.unsigned_abs() > LARGEST_INTEGER.unsigned_abs()) {
            self.too_large(span);
            return None;
        }
        Some(size)
    }

    /// Whether something has few enough parts; reports if not.
    pub(super) fn few_parts(&mut self, parts: usize, span: Span) -> bool {
        if parts > MAX_PARTS {
            self.too_complex(span);
        }
        parts <= MAX_PARTS
    }

    /// A number that must be an integer.
    pub(super) fn integer(&mut self, value: f64, span: Span) -> Option<i64> {
        if value.fract() != 0.0 {
            self.report.add(Diagnostic::error("not-an-integer", span, "sizes and positions are integers"));
            None
        } else if value.abs() > LARGEST_INTEGER as f64 {
            self.too_large(span);
            None
        } else {
            Some(value as i64)
        }
    }

    fn too_large(&mut self, span: Span) {
        self.report.add(Diagnostic::error(
            "integer-too-large",
            span,
            "this integer is too large: the largest is 2^53 - 1",
        ));
    }

    fn too_complex(&mut self, span: Span) {
        self.report.add(
            Diagnostic::error("too-complex", span, "this index or size has too many terms once multiplied out")
                .hint("give a part of it a rank of its own: `rank A = …`"),
        );
    }

    /// `rank A = B` and `rank B = A`.
    fn cyclic_ranks(&mut self) {
        let needs = |rank: RankId| -> Vec<RankId> {
            let default = self.cascade[rank].default.as_ref();
            default.map_or(vec![], |d| d.numerator.ranks().chain(d.denominator.ranks()).collect())
        };
        // Peel off ranks whose sizes need nothing unknown; what stays is on a cycle or needs one.
        let count = self.cascade.ranks.len();
        let mut users = vec![vec![]; count];
        let mut missing = vec![0usize; count];
        for rank in (0..count as u32).map(RankId) {
            for needed in needs(rank) {
                users[needed.0 as usize].push(rank);
                missing[rank.0 as usize] += 1;
            }
        }
        let mut ready: Vec<usize> = (0..count).filter(|&r| missing[r] == 0).collect();
        while let Some(rank) = ready.pop() {
            for user in std::mem::take(&mut users[rank]) {
                missing[user.0 as usize] -= 1;
                if missing[user.0 as usize] == 0 {
                    ready.push(user.0 as usize);
                }
            }
        }
        // Follow needs among what stays until a rank comes up again: that is the cycle.
        let Some(start) = (0..count).find(|&r| missing[r] > 0) else { return };
        let mut path = vec![RankId(start as u32)];
        let mut seen = std::collections::BTreeMap::from([(path[0], 0)]);
        let circle = loop {
            let next = needs(path[path.len() - 1]).into_iter().find(|r| missing[r.0 as usize] > 0);
            let Some(next) = next else { return };
            path.push(next);
            if let Some(first) = seen.insert(next, path.len() - 1) {
                break &path[first..];
            }
        };
        let names: Vec<_> = circle.iter().take(9).map(|&r| format!("`{}`", self.cascade[r].name)).collect();
        let span = self.cascade[circle[0]].span;
        let message = format!("these sizes go round in a circle: {}", names.join(" needs "));
        self.report.add(
            Diagnostic::error("cyclic-rank", span, message)
                .hint("leave out one of these defaults and let the caller give that size"),
        );
    }
}

/// How many factors a size has.
pub(super) fn size_parts(size: &SizeExpr) -> usize {
    size.terms().iter().map(|(ranks, _)| 1 + ranks.len()).sum()
}
