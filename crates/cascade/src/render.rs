//! Diagnostics as plain text, for logs and tests.

use crate::{Diagnostic, Severity, Span};

/// `line:column: error[code]: message`, then the explaining places and the hints, one a line.
/// Lines and columns count from 1, columns in characters.
pub fn render_plain(diagnostic: &Diagnostic, text: &str) -> String {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut out =
        format!("{}: {severity}[{}]: {}\n", place(diagnostic.span, text), diagnostic.code, diagnostic.message);
    for (span, label) in &diagnostic.labels {
        out.push_str(&format!("  {}: {label}\n", place(*span, text)));
    }
    for hint in &diagnostic.hints {
        out.push_str(&format!("  hint: {hint}\n"));
    }
    out
}

fn place(span: Span, text: &str) -> String {
    let before = text.get(..span.start as usize).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{line}:{column}")
}
