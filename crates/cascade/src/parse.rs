//! The way in: text to cascade.

use crate::resolve::{Report, resolve};
use crate::{Cascade, Diagnostic, Span};

/// Texts longer than this (in bytes) are refused unread.
const LONGEST: usize = 16 << 20;

/// What a text means, and everything that is wrong with it.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What could be understood. It must not be executed if any diagnostic [is an error](Diagnostic::is_error).
    pub cascade: Cascade,
    /// All findings, by their place in the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether the cascade has no meaning.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Reads a cascade. Never fails: see [`Parsed::diagnostics`]. Time and memory are bounded by the length of the text
/// (ops and sugar may expand to a bounded multiple of it), and so is recursion.
///
/// ```
/// let parsed = einloom_cascade::parse("input X[m,n]: f32\noutput Y: f32\nY[m] = sum(n) X[m,n]");
/// assert!(parsed.diagnostics.is_empty());
/// assert_eq!(parsed.cascade.statements.len(), 1);
/// ```
pub fn parse(text: &str) -> Parsed {
    let mut report = Report::default();
    if text.len() > LONGEST {
        let message = format!("the text is longer than {} MiB", LONGEST >> 20);
        report.add(Diagnostic::error("too-long", Span::default(), message));
        return Parsed { cascade: Cascade::default(), diagnostics: report.finish() };
    }
    let program = crate::syntax::parse_program(text, &mut report);
    let cascade = resolve(&program, text.len(), &mut report);
    Parsed { cascade, diagnostics: report.finish() }
}
