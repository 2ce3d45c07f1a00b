//! Where a command's words go: results to standard output, everything else to standard error.

use super::args::{Color, Global};
use super::failure::Failure;
use super::render::{self, SourceText};
use einloom::Finding;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// The user's terminal, pipe or file.
#[derive(Debug)]
pub(crate) struct Ui {
    pub global: Global,
    /// The text that findings are about, once it is read.
    pub source: Option<SourceText>,
}

impl Ui {
    /// Prints a result: the text, or the data with `--json`.
    pub fn result(&self, text: impl FnOnce() -> String, data: &impl Serialize) -> Result<(), Failure> {
        if self.global.json { self.json(data) } else { self.text(&text()) }
    }

    /// Prints text to standard output.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
    }

    /// Prints data to standard output, one line of JSON a call.
    pub fn json(&self, data: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string(data).map_err(|e| Failure::Output(e.into()))?;
        text.push('\n');
        self.text(&text)
    }

    /// Something worth knowing that is no result.
    pub fn note(&self, text: &str) {
        if !self.global.quiet {
            self.err(&format!("note: {text}\n"));
        }
    }

    /// Shows findings with their source.
    pub fn findings(&self, findings: &[Finding]) {
        self.err(&render::render(findings, self.source.as_ref(), self.colours()));
    }

    /// Reports a failure and gives its exit status. With `--json` standard output still is JSON.
    pub fn fail(&self, failure: &Failure) -> u8 {
        let findings = failure.findings();
        if !findings.is_empty() {
            self.findings(&findings);
            if self.global.json {
                let errors = render::to_json(&findings, self.source.as_ref());
                // Standard error has told already.
                let _ = self.json(&render::ErrorsJson { errors });
            }
        }
        failure.status()
    }

    /// Whether standard error is a terminal: then it may tell what differs from run to run.
    pub fn is_watched(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Whether a person is watching who wants to see progress.
    pub fn shows_progress(&self) -> bool {
        !self.global.quiet && std::io::stderr().is_terminal()
    }

    fn colours(&self) -> bool {
        match self.global.color {
            Color::Always => true,
            Color::Never => false,
            // The convention of no-color.org: set and not empty.
            Color::Auto => {
                let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
                std::io::stderr().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }

    fn err(&self, text: &str) {
        // Nobody is left to tell when standard error is gone.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
