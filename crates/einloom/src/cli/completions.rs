//! `einloom completions`: a script for the user's shell.

use super::args::Cli;
use super::failure::Failure;
use super::ui::Ui;
use clap::CommandFactory;

pub(crate) fn command(ui: &Ui, shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(shell, &mut Cli::command(), "einloom", &mut script);
    ui.text(&String::from_utf8_lossy(&script))
}
