//! Why a command did not do what it was asked, and with which exit status it says so.

use einloom::{Error, Finding};

/// A command's unhappy end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The program or its data is wrong (status 1), or the machine lacks something for it (3).
    Road(Error),
    /// What was asked for makes no sense (2).
    Usage(Finding),
    /// The result says already what is wrong (1), such as a verification that failed.
    Told,
    /// Standard output is gone or full.
    Output(std::io::Error),
}

impl Failure {
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage(Finding::error("usage", message).hint(Some(hint)))
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Road(e) if e.is_machines_fault() => 3,
            Self::Road(_) | Self::Told => 1,
            Self::Usage(_) => 2,
            // Whoever read our output has seen enough.
            Self::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => 1,
        }
    }

    /// What to tell the user; nothing where all is said.
    pub fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Road(e) => e.findings(),
            Self::Usage(f) => vec![f.clone()],
            Self::Told => vec![],
            Self::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe => vec![],
            Self::Output(e) => vec![Finding::error("output", format!("cannot write the output: {e}"))],
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Road(error)
    }
}

impl From<einloom::formats::FileError> for Failure {
    fn from(error: einloom::formats::FileError) -> Self {
        Self::Road(error.into())
    }
}
