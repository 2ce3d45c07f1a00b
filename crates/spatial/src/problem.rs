//! What is wrong with an input, and where.

use std::fmt;

/// One mistake in a chip, a binding, a study, or in how they fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named; empty if it is about no file.
    pub file: String,
    /// From 1; 0 if it has no place in the text.
    pub line: usize,
    /// In characters, from 1; 0 if it has no place in the text.
    pub column: usize,
    /// What it is about, such as `array 2 rows`; may be empty.
    pub field: String,
    /// The name in the file that it is about, where there is one and no place is known.
    pub subject: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to write instead, if that can be told.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a place.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), ..Self::default() }
    }

    /// The same with what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same as a problem about this name.
    pub fn about(mut self, subject: &str) -> Self {
        self.subject = Some(subject.to_owned());
        self
    }

    /// The same with the place at which the text has its subject, in quotes or as a word, if it has.
    pub fn found_in(mut self, file: &str, text: &str) -> Self {
        self.file = file.to_owned();
        let Some(subject) = &self.subject else { return self };
        let places = text.match_indices(subject.as_str());
        let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
        let whole = |at: usize| !word(text[..at].chars().last()) && !word(text[at + subject.len()..].chars().next());
        let quoted = |at: usize| text[..at].ends_with(['"', '\'']);
        let all: Vec<usize> = places.map(|(at, _)| at).filter(|&at| whole(at)).collect();
        if let Some(&at) = all.iter().find(|&&at| quoted(at)).or(all.first()) {
            self.line = text[..at].matches('\n').count() + 1;
            self.column = text[..at].chars().rev().take_while(|&c| c != '\n').count() + 1;
        }
        self
    }

    /// The same as a problem of one configuration.
    pub fn within(mut self, configuration: &str) -> Self {
        self.field =
            if self.field.is_empty() { configuration.to_owned() } else { format!("{configuration}, {}", self.field) };
        self
    }

    /// The same as a problem of this file.
    pub fn of(mut self, file: &str) -> Self {
        self.file = file.to_owned();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if !self.file.is_empty() || self.line > 0 {
            write!(f, " ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
