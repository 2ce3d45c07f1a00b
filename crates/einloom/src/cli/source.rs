//! Reads a program.

use super::args;
use super::failure::Failure;
use super::render::SourceText;
use super::ui::Ui;
use einloom::formats::FileError;
use einloom::{Error, Finding, Program};
use std::io::Read;
use std::path::Path;

/// Longer texts are no programs; places in the text are 32-bit.
const LONGEST: u64 = 16 << 20;

/// Reads the program's text; findings are shown with its lines from now on.
pub(crate) fn read(ui: &mut Ui, source: &args::Source) -> Result<Program, Failure> {
    let source = text(&source.file)?;
    let program = Program::from_text(&source.text);
    ui.source = Some(source);
    Ok(program)
}

/// The text of a program, and what to call it.
pub(crate) fn text(path: &Path) -> Result<SourceText, Failure> {
    let stdin = path == Path::new("-");
    let name = if stdin { "<stdin>".to_owned() } else { path.display().to_string() };
    let shown = Path::new(&name);
    let io = |e: std::io::Error| FileError::io(shown, "cannot read it", &e);
    let mut bytes = vec![];
    if stdin {
        std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    } else {
        let file = std::fs::File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(FileError::new(path, "cannot read it: it is a directory").into());
        }
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    }
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::new(shown, "it is too long for a program: more than 16 MiB").into());
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1;
        FileError::new(shown, format!("it is not UTF-8 text: byte {at}, in line {line}")).hint("save it as UTF-8")
    })?;
    Ok(SourceText { name, text })
}

/// Reads a program that must have a meaning. Warnings are shown.
pub(crate) fn checked(ui: &mut Ui, source: &args::Source) -> Result<einloom::Checked, Failure> {
    let program = read(ui, source)?;
    let warnings: Vec<Finding> = program.diagnostics().iter().filter(|d| !d.is_error()).map(Finding::from).collect();
    let checked = program.check().map_err(|e| match e {
        // All of them at once, in the order of the text.
        Error::Source(_) => Failure::Road(e),
        other => other.into(),
    })?;
    if !ui.global.quiet {
        ui.findings(&warnings);
    }
    Ok(checked)
}
