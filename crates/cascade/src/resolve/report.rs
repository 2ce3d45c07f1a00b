//! Collects diagnostics: no duplicates, and not more than a person would read.

use crate::{Diagnostic, Span};
use std::collections::BTreeSet;

const MAX_DIAGNOSTICS: usize = 100;

/// The diagnostics so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    diagnostics: Vec<Diagnostic>,
    seen: BTreeSet<(Span, &'static str, String)>,
    /// Whether the last `add` was kept.
    last_kept: bool,
    left_out: usize,
    has_errors: bool,
}

impl Report {
    /// Adds a finding, unless it is known already.
    pub fn add(&mut self, diagnostic: Diagnostic) {
        self.has_errors |= diagnostic.is_error();
        self.last_kept = false;
        if self.is_full() {
            self.left_out += 1;
        } else if self.seen.insert((diagnostic.span, diagnostic.code, diagnostic.message.clone())) {
            self.last_kept = true;
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds a hint to the finding that was just added.
    pub fn hint_last(&mut self, hint: impl Into<String>) {
        if let Some(last) = self.diagnostics.last_mut()
            && self.last_kept
        {
            last.hints.push(hint.into());
        }
    }

    /// Adds another place to the finding that was just added.
    pub fn label_last(&mut self, span: Span, text: impl Into<String>) {
        if let Some(last) = self.diagnostics.last_mut()
            && self.last_kept
        {
            last.labels.push((span, text.into()));
        }
    }

    /// Something is defined again.
    pub fn twice(&mut self, message: impl Into<String>, first: Span, again: Span) {
        self.add(Diagnostic::error("defined-twice", again, message).label(first, "first here"));
    }

    /// What a mistyped name may have meant. Nothing once findings are only counted: no effort need go into them.
    pub fn suggest<'c>(&self, name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
        if self.is_full() { None } else { super::nearest(name, candidates) }
    }

    fn is_full(&self) -> bool {
        self.diagnostics.len() >= MAX_DIAGNOSTICS
    }

    /// Whether an error was found.
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// All findings by their place in the text.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|d| (d.span.start, d.span.end));
        if self.left_out > 0
            && let Some(last) = self.diagnostics.last().map(|d| d.span)
        {
            let message = format!("{} more findings are not shown", self.left_out);
            self.diagnostics.push(if self.has_errors {
                Diagnostic::error("too-many-findings", last, message)
            } else {
                Diagnostic::warning("too-many-findings", last, message)
            });
        }
        self.diagnostics
    }
}
