//! Calls: functions, `where`, `max` and `min` of values, and the user's ops and monoids.

use super::Resolver;
use super::build::Built;
use super::elsewhere;
use super::scope::Frame;
use crate::syntax::ast::{Expr, Name, OpItem, Program};
use crate::{BinaryOp, Diagnostic, ExprKind, MonoidDef, MonoidId, Span, UnaryOp};

impl<'p> Resolver<'p> {
    /// `name(arguments)`.
    pub(super) fn call(&mut self, name: Name<'p>, arguments: &'p [Expr<'p>], span: Span) -> Option<Built> {
        let values: Vec<_> = arguments.iter().map(|a| self.value(a)).collect();
        let op = UnaryOp::NAMED.into_iter().find(|op| op.name() == name.text);
        if let Some(op) = op {
            let [x] = self.arity(name, span, values)?;
            return self.unary(op, x?, span);
        }
        match name.text {
            "where" => {
                let [c, a, b] = self.arity(name, span, values)?;
                self.select(c?, a?, b?, span)
            }
            "max" => self.extremum(BinaryOp::Max, name, values, span),
            "min" => self.extremum(BinaryOp::Min, name, values, span),
            _ => self.op_call(name, values, span),
        }
    }

    fn extremum(&mut self, op: BinaryOp, name: Name<'p>, values: Vec<Option<Built>>, span: Span) -> Option<Built> {
        if values.len() < 2 {
            self.wrong_arity(name, span, "two or more arguments", values.len());
            return None;
        }
        let mut values = values.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
        let mut out = values.next()?;
        for value in values {
            out = self.binary(op, out, value, span)?;
        }
        Some(out)
    }

    fn op_call(&mut self, name: Name<'p>, values: Vec<Option<Built>>, span: Span) -> Option<Built> {
        let Some(op) = self.names.ops.get_mut(name.text) else {
            self.unknown_function(name);
            return None;
        };
        op.called = true;
        let item = op.item;
        if item.arguments.len() != values.len() {
            let plural = if item.arguments.len() == 1 { "" } else { "s" };
            self.wrong_arity(name, span, &format!("{} argument{plural}", item.arguments.len()), values.len());
            return None;
        }
        if op.looked_at && values.iter().all(Option::is_none) {
            return None;
        }
        self.expand(item, values, span)
    }

    /// The body of an op with values for its arguments.
    fn expand(&mut self, item: &'p OpItem<'p>, values: Vec<Option<Built>>, span: Span) -> Option<Built> {
        let name = item.name.text;
        if self.scope.frames.iter().any(|f| f.name == name) {
            self.report.add(
                Diagnostic::error("recursive-op", span, format!("op `{name}` calls itself"))
                    .label(item.name.span, "defined here")
                    .hint("an op stands for its body; for repetition write a recurrence, a tensor at `t + 1`"),
            );
            return None;
        }
        let arguments = item.arguments.iter().map(|a| a.text).zip(values).collect();
        self.scope.frames.push(Frame::new(name, arguments, false));
        let out = item.body.as_ref().and_then(|body| self.value(body));
        self.scope.frames.pop();
        out
    }

    /// The ops that no statement calls; looks for mistakes in them.
    pub(super) fn uncalled_ops(&mut self) -> Vec<&'p OpItem<'p>> {
        let uncalled: Vec<_> = self.names.ops.values().filter(|op| !op.called).map(|op| op.item).collect();
        for item in &uncalled {
            self.scope.clear();
            let unknown = item.arguments.iter().map(|_| None).collect();
            self.expand(item, unknown, item.name.span);
            if let Some(op) = self.names.ops.get_mut(item.name.text) {
                op.looked_at = true;
            }
        }
        uncalled
    }

    /// The user's reductions.
    pub(super) fn monoids(&mut self, program: &'p Program<'p>) {
        for item in &program.monoids {
            if let Some(&first) = self.names.monoids.get(item.name.text) {
                let first = self.cascade[first].span;
                self.report.twice(format!("monoid `{}` is defined twice", item.name.text), first, item.name.span);
                continue;
            }
            self.distinct_arguments(&item.arguments);
            let combine = match (&item.combine, &item.arguments[..]) {
                (Some((body, _)), &[a, b]) => self.combine(item.name.text, [a, b], body),
                (_, &[_, _]) => None,
                (_, arguments) => {
                    let message =
                        format!("a monoid combines two values, and `{}` takes {}", item.name.text, arguments.len());
                    let hint = format!(
                        "write `monoid {}(a, b) = … identity …`; more than two are combined two by two",
                        item.name.text
                    );
                    self.report.add(Diagnostic::error("wrong-arity", item.name.span, message).hint(hint));
                    None
                }
            };
            // After a mistake the name stays known, so that its uses are not mistakes too.
            let combine = combine.unwrap_or_else(|| crate::Expr::new(ExprKind::Argument(0), item.name.span));
            let identity = item.combine.as_ref().map_or(0.0, |(_, identity)| *identity);
            let arguments = [0, 1].map(|k| item.arguments.get(k).map_or("", |a| a.text).to_owned());
            let id = MonoidId(self.cascade.monoids.len() as u32);
            let (name, span) = (item.name.text.to_owned(), item.name.span);
            self.cascade.monoids.push(MonoidDef { name, arguments, combine, identity, span });
            self.names.monoids.insert(item.name.text, id);
        }
    }

    fn combine(&mut self, name: &'p str, arguments: [Name<'p>; 2], body: &'p Expr<'p>) -> Option<crate::Expr> {
        self.scope.clear();
        let mut known = std::collections::BTreeMap::new();
        for (k, argument) in arguments.into_iter().enumerate() {
            known.insert(argument.text, self.leaf(ExprKind::Argument(k as u8), false, argument.span));
        }
        self.scope.frames.push(Frame::new(name, known, true));
        let out = self.value(body);
        self.scope.frames.pop();
        let out = out?;
        self.number(&out)?;
        Some(out.expr)
    }

    fn arity<const N: usize>(
        &mut self,
        name: Name<'p>,
        span: Span,
        values: Vec<Option<Built>>,
    ) -> Option<[Option<Built>; N]> {
        let found = values.len();
        let fixed = values.try_into().ok();
        if fixed.is_none() {
            let plural = if N == 1 { "" } else { "s" };
            self.wrong_arity(name, span, &format!("{N} argument{plural}"), found);
        }
        fixed
    }

    #[cold]
    fn wrong_arity(&mut self, name: Name<'p>, span: Span, takes: &str, found: usize) {
        let mut d = Diagnostic::error("wrong-arity", span, format!("`{}` takes {takes}, not {found}", name.text));
        if name.text == "where" {
            d = d.hint("write `where(condition, then, otherwise)`");
        }
        if UnaryOp::NAMED.iter().any(|op| op.name() == name.text) {
            d = d.hint(format!("write `{}(x)`", name.text));
        } else if matches!(name.text, "min" | "max") {
            d = d.hint(format!("write `{0}(a, b)`, or `{0}(n) X[n]` for the reduction", name.text));
        }
        if let Some(op) = self.names.ops.get(name.text) {
            let arguments: Vec<_> = op.item.arguments.iter().map(|a| a.text).collect();
            d = d.label(op.item.name.span, "defined here");
            d = d.hint(format!("write `{}({})`", name.text, arguments.join(", ")));
        }
        self.report.add(d);
    }

    #[cold]
    fn unknown_function(&mut self, name: Name<'p>) {
        let mut d = Diagnostic::error("unknown-function", name.span, format!("there is no function `{}`", name.text));
        let named = UnaryOp::NAMED.into_iter().map(|op| -> &'p str { op.name() });
        let functions = named.chain(["where", "max", "min", "sum", "prod", "mean"]);
        if self.names.tensors.contains_key(name.text) {
            d = d.hint(format!("`{0}` is a tensor: read it with brackets, `{0}[…]`", name.text));
        } else if self.names.monoids.contains_key(name.text) {
            d = d.hint(format!("`{0}` is a monoid: write `reduce {0}(n) X[n]`", name.text));
        } else if let Some(way) = elsewhere::function(name.text) {
            d = d.hint(way);
        } else if let Some(near) = self.report.suggest(name.text, functions.chain(self.names.ops.keys().copied())) {
            d = d.hint(format!("did you mean `{near}`?"));
        } else {
            d = d.hint(format!("define it: `op {}(x) = …`", name.text));
        }
        self.report.add(d);
    }
}
