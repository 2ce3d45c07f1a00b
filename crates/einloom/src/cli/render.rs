//! Findings for people: the message, the source line with carets, hints; and the same as JSON.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet, Title};
use einloom::Finding;
use einloom_cascade::{Severity, Span};
use serde::Serialize;

/// A program's text with the name to show for it.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub name: String,
    pub text: String,
}

/// The findings as text, each with the lines of the source it is about.
pub(crate) fn render(findings: &[Finding], source: Option<&SourceText>, colours: bool) -> String {
    let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
    let one = |finding: &Finding| match (finding.span, source) {
        (Some(span), Some(source)) => renderer.render(&[excerpt(finding, span, source)]) + "\n",
        _ => {
            let mut text = renderer.render(&[Group::with_title(title(finding))]) + "\n";
            finding.hints.iter().for_each(|hint| text += &format!("  = help: {hint}\n"));
            text
        }
    };
    findings.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn title(finding: &Finding) -> Title<'_> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    level.primary_title(&finding.message).id(&*finding.code)
}

fn excerpt<'a>(finding: &'a Finding, span: Span, source: &'a SourceText) -> Group<'a> {
    let mut snippet = Snippet::source(&source.text)
        .path(&source.name)
        .annotation(AnnotationKind::Primary.span(inside(&source.text, span)));
    for (span, text) in &finding.labels {
        snippet = snippet.annotation(AnnotationKind::Context.span(inside(&source.text, *span)).label(text));
    }
    let hints = finding.hints.iter().map(|hint| Level::HELP.message(hint));
    title(finding).element(snippet).elements(hints)
}

/// The span, made to fit the text whatever it says: the renderer insists on characters' boundaries.
fn inside(text: &str, span: Span) -> std::ops::Range<usize> {
    let floor = |at: u32| {
        let mut at = (at as usize).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (start, end) = (floor(span.start), floor(span.end));
    start..end.max(start)
}

/// A place in the source as JSON: bytes from 0, line and column from 1 (columns count characters).
#[derive(Debug, Serialize)]
pub(crate) struct Place {
    start: u32,
    end: u32,
    line: usize,
    column: usize,
}

impl Place {
    /// Of a span of this text.
    pub fn of(span: Span, text: &str) -> Self {
        let before = &text[..inside(text, span).start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            start: span.start,
            end: span.end,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct FindingJson<'a> {
    severity: &'static str,
    code: &'a str,
    message: &'a str,
    span: Option<Place>,
    labels: Vec<LabelJson<'a>>,
    hints: &'a [String],
}

/// What standard output holds instead of a result.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorsJson<'a> {
    pub errors: Vec<FindingJson<'a>>,
}

#[derive(Debug, Serialize)]
struct LabelJson<'a> {
    span: Place,
    text: &'a str,
}

/// The findings as data.
pub(crate) fn to_json<'a>(findings: &'a [Finding], source: Option<&SourceText>) -> Vec<FindingJson<'a>> {
    let text = source.map_or("", |s| s.text.as_str());
    let one = |finding: &'a Finding| FindingJson {
        severity: match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        code: &finding.code,
        message: &finding.message,
        span: finding.span.map(|span| Place::of(span, text)),
        labels: finding.labels.iter().map(|(s, t)| LabelJson { span: Place::of(*s, text), text: t }).collect(),
        hints: &finding.hints,
    };
    findings.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(start: usize, end: usize) -> Finding {
        Finding {
            severity: Severity::Error,
            code: "unknown-tensor".into(),
            message: "there is no tensor X".into(),
            span: Some(Span::new(start, end)),
            labels: vec![],
            hints: vec!["its tensors are A".into()],
        }
    }

    #[test]
    fn a_finding_shows_its_line() {
        let source = SourceText { name: "a.ein".into(), text: "input A[m]\nB[m] = X[m]\n".into() };
        let expected = "error[unknown-tensor]: there is no tensor X
 --> a.ein:2:8
  |
2 | B[m] = X[m]
  |        ^^^^
  |
  = help: its tensors are A\n";
        assert_eq!(render(&[finding(18, 22)], Some(&source), false), expected);
    }

    #[test]
    fn no_span_breaks_the_renderer() {
        let source = SourceText { name: "a.ein".into(), text: "é # ü\n".into() };
        for (start, end) in [(1, 2), (0, 100), (100, 200), (5, 2), (0, 0), (8, 8)] {
            assert!(render(&[finding(start, end)], Some(&source), false).contains("there is no tensor X"));
            Place::of(Span::new(start, end), &source.text);
        }
        assert!(render(&[finding(1, 2)], None, true).contains("there is no tensor X"));
    }
}
