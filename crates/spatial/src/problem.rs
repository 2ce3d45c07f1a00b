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
