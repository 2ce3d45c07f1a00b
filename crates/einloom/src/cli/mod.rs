//! From arguments to an exit status: 0 done, 1 the program or its data is wrong, 2 usage, 3 the machine lacks something.

mod args;
mod arguments;
mod bench;
mod bind;
mod check;
mod compare;
mod completions;
mod data;
mod derive;
mod doctor;
mod emit;
mod explain;
mod failure;
mod formula;
mod kernel_formula;
mod machines;
mod passes;
mod plan;
mod prepare;
mod progress;
mod proof;
mod render;
mod run;
mod simulate;
mod source;
mod study;
mod suite;
mod sweep;
mod table;
mod teaal;
mod ui;
mod units;
mod values;
mod verify;

use args::{Cli, Command, Stage};
use clap::Parser;
use einloom::Derived;
use einloom_cascade::Cascade;
use failure::Failure;
use std::process::ExitCode;
use ui::Ui;

/// The whole program.
pub(crate) fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are no errors; a pipe that is closed early is none either.
            let _ = e.print();
            if e.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
                arguments::as_json(&e);
            }
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let mut ui = Ui { global: cli.global, source: None };
    let result = match &cli.command {
        Command::Check(args) => check::command(&mut ui, args),
        Command::Passes(args) => passes::command(&mut ui, args),
        Command::Derive(args) => derive::command(&mut ui, args),
        Command::Plan(args) => plan::command(&mut ui, args),
        Command::Formula(args) => formula::command(&mut ui, args),
        Command::Compare(args) => compare::command(&mut ui, args),
        Command::Sweep(args) => sweep::command(&mut ui, args),
        Command::Run(args) => run::command(&mut ui, args),
        Command::Verify(args) => verify::command(&mut ui, args),
        Command::Bench(args) => bench::command(&mut ui, args),
        Command::Emit(args) => emit::command(&mut ui, args),
        Command::Machines(args) => machines::command(&ui, args),
        Command::Study(args) => study::command(&ui, args),
        Command::Simulate(args) => simulate::command(&ui, args),
        Command::Bind(args) => bind::command(&ui, args),
        Command::Teaal(args) => teaal::command(&ui, args),
        Command::Doctor => doctor::command(&ui),
        Command::Completions { shell } => completions::command(&ui, *shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(ui.fail(&failure)),
    }
}

/// A panic is our mistake, not the user's: say so. The exit status then is 101.
fn report_bug(panic: &std::panic::PanicHookInfo) {
    let payload = panic.payload();
    let said = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
    eprintln!(
        "internal error: {}{place}\nThis is a bug in einloom {}, not in your program. Please report it with the program's text and \
         the command.",
        said.unwrap_or("no message"),
        env!("CARGO_PKG_VERSION")
    );
}

/// Prints the box that `--dump` asks for, if it is one of a program without sizes. Whether it did.
fn dumped(ui: &Ui, derived: &Derived) -> Result<bool, Failure> {
    match ui.global.dump {
        None => Ok(false),
        Some(Stage::Cascade) => ui.text(&einloom_cascade::print(derived.cascade())).map(|()| true),
        Some(Stage::Derivation) => ui.text(&einloom_algebra::explain(derived.derivation())).map(|()| true),
        Some(stage) => Err(dump_elsewhere(stage)),
    }
}

fn dump_elsewhere(stage: Stage) -> Failure {
    let (name, commands) = match stage {
        Stage::Cascade => ("cascade", "every command that reads a program"),
        Stage::Derivation => ("derivation", "passes, derive, plan, run, bench and emit"),
        Stage::Plan => ("plan", "plan, run, bench and emit, which know sizes"),
        Stage::Tile => ("tile", "plan, run, bench and emit, which know sizes"),
        Stage::Kernel => ("kernel", "plan, run, bench and emit, which know sizes"),
    };
    Failure::usage(format!("this command does not reach --dump={name}"), format!("--dump={name} works with {commands}"))
}

/// What a statement defines: how people speak of it.
fn target(cascade: &Cascade, statement: usize) -> String {
    cascade.statements.get(statement).map_or_else(String::new, |s| cascade[s.target].name.clone())
}
