//! Values: syntax to checked expressions.

use super::Resolver;
use super::build::Built;
use crate::syntax::ast::{Expr, ExprKind, Name, Reduce, StatementItem};
use crate::{DType, Diagnostic, IndexExpr, IndexId, Monoid, SizeExpr, Span};

/// Bound of the recursion over a value, through ops as well.
const MAX_DEPTH: u32 = 450;

impl<'p> Resolver<'p> {
    /// The right-hand side of a statement whose target is understood; looks for mistakes in any case.
    pub(super) fn statement_value(
        &mut self,
        item: &'p StatementItem<'p>,
        at: Option<&[IndexExpr]>,
    ) -> Option<crate::Expr> {
        self.scope.clear();
        for e in at.unwrap_or_default() {
            e.visit_indices(&mut |i| self.scope.bind(i));
        }
        if at.is_none() {
            // Do not report the target's mistakes again at every use of its indices.
            let all: Vec<_> = self.names.indices.values().copied().take(1000).collect();
            self.scope.reported.extend(all);
        }
        let value = self.value(item.value.as_ref()?)?;
        let tensor = self.names.tensors.get(item.name.text).map(|t| t.id)?;
        let wants_truth = self.cascade[tensor].dtype == Some(DType::B1);
        match (wants_truth, value.truth) {
            (true, false) => {
                self.report.add(
                    Diagnostic::error(
                        "number-as-bool",
                        value.expr.span,
                        format!("`{}` holds truth values (b1)", item.name.text),
                    )
                    .hint("compare the number: `… != 0`"),
                );
                None
            }
            (false, true) => {
                self.report.add(
                    Diagnostic::error(
                        "bool-as-number",
                        value.expr.span,
                        format!("`{}` holds numbers, and this is a truth value", item.name.text),
                    )
                    .hint("turn it into a number, `where(condition, 1, 0)`, or give the tensor the type `: b1`"),
                );
                None
            }
            _ => Some(value.expr),
        }
    }

    /// An expression; `None` after a mistake, which is in the report.
    pub(super) fn value(&mut self, e: &'p Expr<'p>) -> Option<Built> {
        if self.scope.depth >= MAX_DEPTH {
            self.too_deep(e.span);
            return None;
        }
        self.spend(1, e.span)?;
        self.scope.depth += 1;
        let out = match &e.kind {
            ExprKind::Number(value) => self.leaf(crate::ExprKind::Number(*value), false, e.span),
            ExprKind::Name(name) => self.bare_name(name, e.span),
            ExprKind::Read { name, at } => self.read(*name, at, e.span),
            ExprKind::Unary(op, x) => self.value(x).and_then(|x| self.unary(*op, x, e.span)),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                a.zip(b).and_then(|(a, b)| {
                    self.exact_quotients(*op, &a, &b);
                    self.binary(*op, a, b, e.span)
                })
            }
            ExprKind::Call { name, arguments } => self.call(*name, arguments, e.span),
            ExprKind::Reduce(reduce) => self.reduction(reduce, e.span),
        };
        self.scope.depth -= 1;
        out
    }

    fn bare_name(&mut self, name: &'p str, span: Span) -> Option<Built> {
        if let Some(frame) = self.scope.frames.last()
            && let Some(argument) = frame.arguments.get(name)
        {
            let argument = argument.clone()?;
            if let Some(index) = frame.captures(&argument.expr) {
                self.capture(name, index, span);
                return None;
            }
            return self.copy(&argument);
        }
        let constant = match name {
            "inf" => Some(f64::INFINITY),
            "pi" => Some(std::f64::consts::PI),
            _ => None,
        };
        if let Some(value) = constant {
            return self.leaf(crate::ExprKind::Number(value), false, span);
        }
        if let Some(&index) = self.names.indices.get(name) {
            if !self.scope.is_bound(index) {
                self.unbound(index, span);
                return None;
            }
            return self.leaf(crate::ExprKind::Position(index), false, span);
        }
        if let Some(&param) = self.names.params.get(name) {
            return self.leaf(crate::ExprKind::Param(param), false, span);
        }
        if let Some(&rank) = self.names.ranks.get(name) {
            self.size_or_tensor(name, span);
            return self.leaf(crate::ExprKind::Size(SizeExpr::rank(rank)), false, span);
        }
        if self.names.tensors.contains_key(name) {
            return self.read(Name { text: name, span }, &[], span);
        }
        self.unknown_name(name, span);
        None
    }

    fn read(&mut self, name: Name<'p>, at: &[Expr<'p>], span: Span) -> Option<Built> {
        let at = self.index_exprs(at);
        let (tensor, at) = self.tensor_read(name, at, span)?;
        let truth = self.cascade[tensor].dtype == Some(DType::B1);
        self.leaf(crate::ExprKind::Read { tensor, at }, truth, span)
    }

    fn reduction(&mut self, reduce: &'p Reduce<'p>, span: Span) -> Option<Built> {
        let monoid = if reduce.custom { self.custom(reduce.name) } else { self.built_in(reduce.name.text) };
        let over = self.reduced(&reduce.over);
        let bound = over.as_deref().unwrap_or_default().to_vec();
        if matches!(monoid, Some(Reduction::Softmax)) {
            // The result still has a value for every position, so these must come from around it.
            for (&index, name) in bound.iter().zip(&reduce.over) {
                if !self.scope.is_bound(index) {
                    self.unbound_softmax(index, name.span);
                    return None;
                }
            }
        }
        bound.iter().for_each(|&i| self.scope.bind(i));
        let filter = reduce.filter.as_ref().map(|f| self.value(f));
        let body = self.value(&reduce.body);
        bound.iter().for_each(|&i| self.scope.unbind(i));
        self.scope.ended.extend(bound.iter().map(|&i| (i, (reduce.name.text, reduce.name.span))));
        let filter = match filter {
            Some(filter) => Some(filter?),
            None => None,
        };
        let (monoid, over, body) = (monoid?, over?, body?);
        match monoid {
            Reduction::Monoid(monoid) => self.reduce(monoid, over, filter, body, span),
            Reduction::Softmax => self.softmax(over, filter, body, span),
            Reduction::LogSumExp => self.logsumexp(over, filter, body, span),
            Reduction::Mean => self.mean(over, filter, body, span),
            Reduction::Var => self.var(over, filter, body, span),
        }
    }

    fn built_in(&self, name: &str) -> Option<Reduction> {
        Some(match name {
            "sum" => Reduction::Monoid(Monoid::Sum),
            "prod" => Reduction::Monoid(Monoid::Prod),
            "max" => Reduction::Monoid(Monoid::Max),
            "min" => Reduction::Monoid(Monoid::Min),
            "argmax" => Reduction::Monoid(Monoid::ArgMax),
            "argmin" => Reduction::Monoid(Monoid::ArgMin),
            "softmax" => Reduction::Softmax,
            "logsumexp" => Reduction::LogSumExp,
            "mean" => Reduction::Mean,
            "var" => Reduction::Var,
            _ => return None,
        })
    }

    fn custom(&mut self, name: Name<'p>) -> Option<Reduction> {
        if let Some(&id) = self.names.monoids.get(name.text) {
            return Some(Reduction::Monoid(Monoid::Custom(id)));
        }
        let mut d = Diagnostic::error("unknown-monoid", name.span, format!("there is no monoid `{}`", name.text));
        if let Some(near) = self.report.suggest(name.text, self.names.monoids.keys().copied()) {
            d = d.hint(format!("did you mean `{near}`?"));
        } else {
            d = d.hint(format!("define it: `monoid {}(a, b) = … identity …`", name.text));
        }
        self.report.add(d);
        None
    }

    /// The indices of a reduction.
    fn reduced(&mut self, names: &[Name<'p>]) -> Option<Vec<IndexId>> {
        if self.scope.frames.last().is_some_and(|f| f.monoid) {
            self.report.add(Diagnostic::error(
                "tensor-in-monoid",
                names[0].span,
                "a monoid combines two values and reduces nothing",
            ));
            return None;
        }
        let mut out = std::collections::BTreeMap::new();
        let mut order = vec![];
        let mut fine = true;
        for &name in names {
            match self.names.indices.get(name.text) {
                Some(&index) => {
                    if let Some(first) = out.insert(index, name.span) {
                        let message = format!("`{}` is reduced twice by one reduction", name.text);
                        self.report
                            .add(Diagnostic::error("duplicate-index", name.span, message).label(first, "first here"));
                        fine = false;
                    }
                    order.push(index);
                }
                None => {
                    fine = false;
                    if self.is_free(name) {
                        self.not_lower_case(name);
                    }
                }
            }
        }
        fine.then_some(order)
    }

    /// An index that nothing binds.
    #[cold]
    pub(super) fn unbound(&mut self, index: IndexId, span: Span) {
        if !self.scope.reported.insert(index) {
            return;
        }
        let name = &self.cascade[index].name;
        let d = match self.scope.frames.last() {
            Some(frame) => {
                Diagnostic::error("unbound-index", span, format!("index `{name}` has no value inside `{}`", frame.name))
                    .hint(format!("reduce over it there, `sum({name}) …`, or pass what depends on it as an argument"))
            }
            None => Diagnostic::error(
                "unbound-index",
                span,
                format!("index `{name}` is neither in the brackets on the left nor reduced"),
            )
            .hint(format!("reduce over it, such as `sum({name}) …`, or add `{name}` on the left")),
        };
        // As often as not it was meant to stand in the reduction before.
        let d = match self.scope.ended.get(&index) {
            Some((word, before)) if self.scope.frames.is_empty() => d
                .label(*before, "ends before it")
                .hint(format!("a reduction ends before `+`, `-`, a comparison and a closing bracket: `{word}({name}) (…)` has all of it")),
            _ => d,
        };
        self.report.add(d);
    }

    #[cold]
    fn unbound_softmax(&mut self, index: IndexId, span: Span) {
        let name = &self.cascade[index].name;
        let message = format!("softmax has a value for every `{name}`, and nothing around it says for which");
        self.report.add(
            Diagnostic::error("unbound-index", span, message)
                .hint(format!("add `{name}` on the left, or reduce over it around the softmax")),
        );
    }

    #[cold]
    fn capture(&mut self, argument: &str, index: IndexId, span: Span) {
        let name = &self.cascade[index].name;
        let message =
            format!("what is given as `{argument}` mentions index `{name}`, which the op itself reduces over");
        self.report.add(
            Diagnostic::error("index-capture", span, message)
                .hint(format!("an op works on values; to reduce what the caller gives over `{name}`, write the reduction at the call"))
                .hint(format!("if the two have nothing to do with each other, call the op's own index differently: `index {name}_ in …`")),
        );
    }

    /// A bare name that is a rank's, and a tensor's too.
    fn size_or_tensor(&mut self, name: &str, span: Span) {
        let Some(tensor) = self.names.tensors.get(name).filter(|t| t.dims > 0) else { return };
        let message = format!("`{name}` without brackets is the size of the rank, not the tensor of that name");
        self.report.add(
            Diagnostic::warning("size-or-tensor", span, message).label(tensor.span, "the tensor").hint(format!(
                "for its elements write `{name}[…]`; if the size is meant, give the tensor another name"
            )),
        );
    }

    /// A bare name that means nothing.
    #[cold]
    pub(super) fn unknown_name(&mut self, name: &str, span: Span) {
        if self.names.unread.contains(name) {
            return;
        }
        let d = Diagnostic::error("unknown-name", span, format!("nothing is called `{name}`"));
        let scalars = self.names.tensors.iter().filter(|(_, t)| t.dims == 0).map(|(name, _)| *name);
        let arguments = self.scope.frames.last().into_iter().flat_map(|f| f.arguments.keys().copied());
        let known = self.names.indices.keys().chain(self.names.params.keys()).copied();
        let known = known.chain(self.names.ranks.keys().map(String::as_str)).chain(scalars).chain(arguments);
        let near = self.report.suggest(name, known);
        let d = match near {
            Some(near) => d.hint(format!("did you mean `{near}`?")),
            None if super::names::is_rank_name(name) => {
                d.hint(format!("if it is a size that no index runs along, declare it: `rank {name}`"))
            }
            None => d.hint(format!("if it is a scalar of the caller's, declare it: `param {name}`")),
        };
        self.report.add(d);
    }

    /// A rank that nothing makes known.
    #[cold]
    pub(super) fn unknown_rank(&mut self, name: &str, span: Span) {
        let mut d = Diagnostic::error("unknown-rank", span, format!("there is no rank `{name}`"));
        if let Some(near) = self.report.suggest(name, self.names.ranks.keys().map(String::as_str)) {
            d = d.hint(format!("did you mean `{near}`?"));
        } else if super::names::is_rank_name(name) {
            d = d.hint(format!("if it is a size that no index runs along, declare it: `rank {name}`"));
        }
        self.report.add(d);
    }
}

/// What is written `name(indices) body`.
enum Reduction {
    Monoid(Monoid),
    Softmax,
    LogSumExp,
    Mean,
    Var,
}
