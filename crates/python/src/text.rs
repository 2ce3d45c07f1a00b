//! A program's text and places in it.

use einloom_cascade::Span;

/// A program's text with the name to show for it.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// A path, or something in angle brackets.
    pub name: String,
    pub text: String,
}

/// A place: line and columns from 1, columns in characters.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub line: usize,
    pub column: usize,
    pub end_column: usize,
    /// The whole line.
    pub text: String,
}

impl Text {
    /// Where a span begins; it is cut where its line ends.
    pub fn place(&self, span: Span) -> Place {
        let text = self.text.as_str();
        let floor =
            |at: u32| (0..=(at as usize).min(text.len())).rev().find(|&k| text.is_char_boundary(k)).unwrap_or(0);
        let start = floor(span.start);
        let first = text[..start].rfind('\n').map_or(0, |k| k + 1);
        let last = text[start..].find('\n').map_or(text.len(), |k| start + k);
        let end = floor(span.end).clamp(start, last);
        let column = text[first..start].chars().count() + 1;
        Place {
            line: text[..start].matches('\n').count() + 1,
            column,
            end_column: column + text[start..end].chars().count().max(1),
            text: text[first..last].to_string(),
        }
    }
}
