//! Diagnostics as data; the command line renders them.

use crate::Span;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The program has no meaning.
    Error,
    /// The program has a meaning, though perhaps not the intended one.
    Warning,
}

/// One finding about the source text, in the user's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name in kebab case, such as `unknown-tensor`.
    pub code: &'static str,
    /// The message to keep if only one thing can be shown.
    pub message: String,
    /// The place the message is about.
    pub span: Span,
    /// Other places that explain it, each with a short text.
    pub labels: Vec<(Span, String)>,
    /// What to write instead.
    pub hints: Vec<String>,
}

impl Diagnostic {
    /// An error with no labels and no hints yet.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, message: message.into(), span, labels: vec![], hints: vec![] }
    }

    /// A warning with no labels and no hints yet.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// Adds what to write instead.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hints.push(text.into());
        self
    }

    /// Adds another place.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    /// Whether the program has no meaning because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
