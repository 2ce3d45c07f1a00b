//! Syntax tree to [`Cascade`]: names, shapes, index expressions, sugar and ops, recurrences, order.

mod build;
mod calls;
mod canonical;
mod checks;
mod declarations;
mod dependencies;
mod elsewhere;
mod expressions;
mod indices;
mod laws;
mod names;
mod order;
mod quotients;
mod range;
mod recurrence;
mod report;
mod scope;
mod sizes;
mod sugar;
mod targets;

use crate::syntax::ast::Program;
use crate::{Cascade, Span, Statement};
use names::Names;
use scope::Scope;

pub(crate) use names::{implied_rank, nearest};
pub(crate) use report::Report;

/// The state of resolving: the cascade so far and what is known of its names.
struct Resolver<'p> {
    cascade: Cascade,
    names: Names<'p>,
    scope: Scope<'p>,
    report: &'p mut Report,
    /// Nodes that may still be made, for ops and sugar multiply what is written; `None` once there was not enough.
    budget: Option<usize>,
}

/// Everything that could be understood of the program; the rest is in the report.
pub(crate) fn resolve<'p>(program: &'p Program<'p>, text_length: usize, report: &'p mut Report) -> Cascade {
    let mut resolver = Resolver {
        cascade: Cascade::default(),
        names: Names::default(),
        scope: Scope::default(),
        report,
        budget: Some(build::BUDGET + 4 * text_length),
    };
    resolver.names.unread = program.unread.iter().map(|name| name.text).collect();
    resolver.header(program);
    resolver.declare(program);
    resolver.inputs(program);
    let targets = resolver.targets(program);
    resolver.rank_sizes(program);
    resolver.monoids(program);
    resolver.laws();
    // Which statement of the text a statement of the cascade is; some have no value to keep.
    for (item, at) in program.statements.iter().zip(targets) {
        let value = resolver.statement_value(item, at.as_deref());
        let target = resolver.names.tensors.get(item.name.text).map(|t| t.id);
        if let (Some(target), Some(at), Some(value)) = (target, at, value) {
            resolver.cascade.statements.push(Statement { target, at, value, span: item.span });
        }
    }
    let uncalled = resolver.uncalled_ops();
    if !resolver.report.has_errors() {
        resolver.order();
    }
    if !resolver.report.has_errors() {
        resolver.ranges();
    }
    resolver.unused(program, &uncalled);
    canonical::canonical(resolver.cascade)
}

impl Resolver<'_> {
    fn header(&mut self, program: &Program<'_>) {
        self.cascade.name = program.headers.first().map_or("cascade", |h| h.text).to_owned();
        for again in program.headers.iter().skip(1) {
            self.report.twice("a cascade has one name", program.headers[0].span, again.span);
            self.report.hint_last("leave one of them out; two programs are two files");
        }
    }
}

/// An empty place at the end of one.
fn end_of(span: Span) -> Span {
    Span { start: span.end, end: span.end }
}
