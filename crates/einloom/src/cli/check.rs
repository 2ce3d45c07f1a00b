//! `einloom check`: all diagnostics at once.

use super::args::{Source, Stage};
use super::failure::Failure;
use super::ui::Ui;
use super::{render, source};
use einloom::Finding;

pub(crate) fn command(ui: &mut Ui, args: &Source) -> Result<(), Failure> {
    let program = source::read(ui, args)?;
    let findings: Vec<Finding> = program.diagnostics().iter().map(Finding::from).collect();
    let errors = program.diagnostics().iter().filter(|d| d.is_error()).count();
    ui.findings(&findings);
    if ui.global.json {
        ui.json(&render::to_json(&findings, ui.source.as_ref()))?;
    }
    if errors > 0 {
        return Err(Failure::Told);
    }
    let checked = program.check()?;
    let cascade = checked.cascade();
    match ui.global.dump {
        Some(Stage::Cascade) => ui.text(&einloom_cascade::print(cascade)),
        Some(stage) => Err(super::dump_elsewhere(stage)),
        None if ui.global.json => Ok(()),
        None => {
            let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let parts = [
                count(cascade.inputs().count(), "input"),
                count(cascade.statements.len(), "statement"),
                count(cascade.outputs.len(), "output"),
                count(findings.len(), "warning"),
            ];
            ui.text(&format!("{}: {}\n", cascade.name, parts.join(", ")))
        }
    }
}
