//! Errors as exceptions of the package: `einloom.errors` makes them from findings, with the source line.

use crate::text::Text;
use einloom::{Error, Finding};
use einloom_cascade::{Severity, Span};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// What an exception says, before it is one: it can be made where Python may not be called.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The name of the exception's class in `einloom.errors`.
    pub class: &'static str,
    /// At least one.
    pub findings: Vec<Finding>,
}

impl Failure {
    /// With one finding.
    pub fn new(class: &'static str, code: &str, message: impl Into<String>) -> Self {
        Self { class, findings: vec![Finding::error(code, message.into())] }
    }

    /// Adds the place.
    pub fn at(mut self, span: Option<Span>) -> Self {
        self.findings.iter_mut().for_each(|f| f.span = span);
        self
    }

    /// Adds what to do instead.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(f) = self.findings.first_mut() {
            f.hints.push(hint.into());
        }
        self
    }

    /// The exception.
    pub fn raise(&self, py: Python<'_>, text: &Text) -> PyErr {
        self.exception(py, text).unwrap_or_else(|e| e)
    }

    fn exception(&self, py: Python<'_>, text: &Text) -> PyResult<PyErr> {
        static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let make = MAKE.get_or_try_init(py, || -> PyResult<_> {
            Ok(py.import("einloom.errors")?.getattr("_from_findings")?.unbind())
        })?;
        let findings: Vec<_> = self.findings.iter().map(|f| plain(f, text)).collect();
        Ok(PyErr::from_value(make.bind(py).call1((self.class, text.name.as_str(), findings))?))
    }
}

/// `(severity, code, message, place, hints)`, a place being `(line, column, end column, the line's text)`.
type Plain<'a> = (&'static str, &'a str, &'a str, Option<(usize, usize, usize, String)>, Vec<String>);

fn plain<'a>(finding: &'a Finding, text: &Text) -> Plain<'a> {
    // The command line's way to say a keyword argument.
    let in_python = |hint: &String| hint.replace("`--size ", "`").replace("`--param ", "`");
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let place = finding.span.map(|span| text.place(span)).map(|p| (p.line, p.column, p.end_column, p.text));
    let hints = finding.hints.iter().map(in_python).collect();
    (severity, &finding.code, &finding.message, place, hints)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let findings = error.findings();
        let class = match &error {
            Error::Source(_) => "CascadeError",
            Error::Bind(errors) => errors.first().map_or("ShapeError", |e| bind_class(e.code)),
            Error::Plan(_) => "PlanError",
            Error::Gpu { lacks: true, .. } => "DeviceError",
            Error::Machine(_) => "MachineError",
            Error::Memory { .. } => "OutOfMemory",
            Error::Run(e) => run_class(e),
            _ => "EinloomError",
        };
        Self { class, findings }
    }
}

/// The class for what binding refuses, by its stable code.
fn bind_class(code: &str) -> &'static str {
    match code {
        "missing-size" | "missing-param" => "MissingInput",
        "unknown-rank" | "unknown-param" | "unknown-tensor" => "UnknownInput",
        _ => "ShapeError",
    }
}

/// The class for what stops a run on the processor.
pub(crate) fn run_class(error: &einloom_cpu::RunError) -> &'static str {
    use einloom_cpu::RunError;
    match error {
        RunError::OutOfRange { .. } => "OutOfRange",
        RunError::Memory { .. } => "OutOfMemory",
        RunError::Value { .. } => "DtypeError",
        _ => "EinloomError",
    }
}
