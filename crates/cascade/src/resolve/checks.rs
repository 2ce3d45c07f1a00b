//! Things that are declared and never used.

use super::Resolver;
use crate::syntax::ast::{OpItem, Program};
use crate::{Diagnostic, Expr, ExprKind, ParamId, Role};
use std::collections::BTreeSet;

impl<'p> Resolver<'p> {
    /// Warnings; none while there are errors, which may be the reason.
    pub(super) fn unused(&mut self, program: &'p Program<'p>, ops: &[&OpItem<'p>]) {
        if self.report.has_errors() {
            return;
        }
        for tensor in self.names.tensors.values().filter(|t| !t.read) {
            let (code, what) = match self.cascade[tensor.id].role {
                Role::Input => ("unused-input", "input"),
                Role::Intermediate => ("unused-tensor", "tensor"),
                Role::Output => continue,
            };
            let message = format!("{what} `{}` is never read", self.cascade[tensor.id].name);
            let mut warning = Diagnostic::warning(code, tensor.span, message);
            if code == "unused-tensor" {
                warning = warning.hint("to return it, declare it as an output");
            }
            self.report.add(warning);
        }
        for item in ops {
            let message = format!("op `{}` is never used", item.name.text);
            self.report.add(Diagnostic::warning("unused-op", item.name.span, message));
        }
        let mut used = BTreeSet::new();
        let values = self.cascade.statements.iter().map(|s| &s.value);
        values.chain(self.cascade.monoids.iter().map(|m| &m.combine)).for_each(|e| params(e, &mut used));
        for item in &program.params {
            if self.names.params.get(item.name.text).is_some_and(|p| !used.contains(p)) {
                let message = format!("parameter `{}` is never used", item.name.text);
                self.report.add(Diagnostic::warning("unused-param", item.name.span, message));
            }
        }
    }
}

fn params(expr: &Expr, out: &mut BTreeSet<ParamId>) {
    if let ExprKind::Param(id) = expr.kind {
        out.insert(id);
    }
    expr.for_each_child(&mut |child| params(child, out));
}
