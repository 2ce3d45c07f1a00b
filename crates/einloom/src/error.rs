//! Everything that can go wrong on the road, as data.

use crate::formats::FileError;
use einloom_cascade::meaning::MeaningError;
use einloom_cascade::{BindError, Diagnostic, Severity, Span};
use einloom_cpu::{BuildError, RunError};
use std::fmt;

/// Why the road ends here.
#[derive(Clone, Debug)]
pub enum Error {
    /// The text has no meaning.
    Source(Vec<Diagnostic>),
    /// Sizes, parameters or shapes do not make the program runnable.
    Bind(Vec<BindError>),
    /// A file.
    File(FileError),
    /// A tensor that is given does not fit the program.
    Input(Finding),
    /// A machine's description is wrong.
    Machine(Vec<Finding>),
    /// A study, or what it names, is wrong.
    Study(Vec<Finding>),
    /// No plan.
    Plan(einloom_plan::PlanError),
    /// The tile program cannot be executed.
    Build(BuildError),
    /// The kernels stopped.
    Run(RunError),
    /// The GPU backend.
    Gpu {
        /// What happened.
        finding: Box<Finding>,
        /// Whether this machine lacks what it takes, rather than the program being wrong.
        lacks: bool,
    },
    /// The reference meaning stopped.
    Meaning(MeaningError),
    /// This machine has too little memory.
    Memory {
        /// For what.
        what: String,
        /// Needed, if it is known.
        bytes: Option<u64>,
        /// There, if it is known.
        available: Option<u64>,
    },
}

/// One thing to tell the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name in kebab case.
    pub code: String,
    /// The message to keep if only one thing can be shown.
    pub message: String,
    /// The place in the program's text, where there is one.
    pub span: Option<Span>,
    /// Other places that explain it.
    pub labels: Vec<(Span, String)>,
    /// What to do instead.
    pub hints: Vec<String>,
}

impl Finding {
    /// An error without a place.
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: code.into(),
            message: message.into(),
            span: None,
            labels: vec![],
            hints: vec![],
        }
    }

    /// Adds what to do instead.
    pub fn hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hints.extend(hint.map(Into::into));
        self
    }

    /// Adds the place.
    pub fn at(mut self, span: Option<Span>) -> Self {
        self.span = span;
        self
    }
}

impl From<&Diagnostic> for Finding {
    fn from(d: &Diagnostic) -> Self {
        Self {
            severity: d.severity,
            code: d.code.into(),
            message: d.message.clone(),
            span: Some(d.span),
            labels: d.labels.clone(),
            hints: d.hints.clone(),
        }
    }
}

impl Error {
    /// What to tell the user: at least one finding.
    pub fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Source(diagnostics) => diagnostics.iter().map(Finding::from).collect(),
            Self::Bind(errors) => {
                let one = |e: &BindError| Finding::error(e.code, &e.message).hint(e.hint.clone()).at(e.span);
                errors.iter().map(one).collect()
            }
            Self::File(e) => vec![Finding::error("file", e.to_string()).hint(e.hint.clone())],
            Self::Input(finding) => vec![finding.clone()],
            Self::Gpu { finding, .. } => vec![(**finding).clone()],
            Self::Machine(findings) | Self::Study(findings) => findings.clone(),
            Self::Plan(e) => vec![crate::road::plan_finding(e)],
            Self::Build(e) => {
                let bug = matches!(e, BuildError::Defects(_)).then_some("this is a bug in einloom: please report it");
                vec![Finding::error("build", e.to_string()).hint(bug)]
            }
            Self::Run(e) => vec![Finding::error("run", e.to_string())],
            Self::Meaning(e) => vec![Finding::error("meaning", e.to_string()).at(e.span())],
            Self::Memory { what, bytes, available } => {
                let size = |b: u64| einloom_machine::Bytes(b).to_string();
                let mut message = format!("this machine has too little memory for {what}");
                if let Some(bytes) = bytes {
                    message += &format!(": {} needed", size(*bytes));
                }
                if let Some(available) = available {
                    message += &format!(", {} free", size(*available));
                }
                vec![Finding::error("memory", message).hint(Some("give smaller sizes"))]
            }
        }
    }

    /// Whether the program and its data are right and this machine cannot run them.
    pub fn is_machines_fault(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::Meaning(MeaningError::OutOfMemory { .. }) => true,
            Self::Run(e) => matches!(e, RunError::Memory { .. } | RunError::Threads { .. }),
            Self::Build(e) => matches!(e, BuildError::Isa { .. }),
            Self::Gpu { lacks, .. } => *lacks,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.findings();
        for (k, finding) in findings.iter().enumerate() {
            write!(f, "{}{}", if k > 0 { "; " } else { "" }, finding.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<MeaningError> for Error {
    fn from(error: MeaningError) -> Self {
        Self::Meaning(error)
    }
}
