//! `einloom study`: spatial chips compared.

mod json;
mod plots;
mod svg;
mod tables;

use super::args::StudyArgs;
use super::failure::Failure;
use super::ui::Ui;
use super::values::Assignment;
use einloom::studies::{failure, find};
use einloom_spatial::{Configuration, Problem, Study};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn command(ui: &Ui, args: &StudyArgs) -> Result<(), Failure> {
    let mut study = find(&args.study)?;
    if let Some(side) = args.array {
        for c in &mut study.configurations {
            c.chip = c.chip.with_array(side as usize);
        }
    }
    let accounting = args.accounting.clone().unwrap_or_else(|| study.accounting.clone());
    study.faults(&accounting).map_err(failure)?;
    if args.sizes.is_empty() {
        return whole(ui, args, &study, &accounting);
    }
    let sizes = sizes(&study, args)?;
    let faults = |c: &Configuration| c.faults(&accounting);
    let points = study.points(&sizes, !args.linear.is_empty(), &faults).map_err(failure)?;
    ui.result(|| tables::points(&study, &points, &accounting), &json::points(&study, &sizes, &points, &accounting))
}

/// The sizes that the command line gives.
fn sizes(study: &Study, args: &StudyArgs) -> Result<BTreeMap<String, usize>, Failure> {
    let known = study.ranks();
    let mut problems = vec![];
    let mut sizes = BTreeMap::new();
    for Assignment { rank, size } in args.sizes.iter().chain(&args.linear) {
        if !known.contains(rank) {
            problems.push(unknown(rank, &known));
        } else if *size == 0 {
            problems.push(Problem::new(rank, "the size is 0"));
        } else if sizes.insert(rank.clone(), *size).is_some_and(|before| before != *size) {
            problems.push(Problem::new(rank, "has two sizes"));
        }
    }
    if problems.is_empty() { Ok(sizes) } else { Err(failure(problems).into()) }
}

fn unknown(rank: &str, known: &BTreeSet<String>) -> Problem {
    let all: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = format!("its ranks are {}", all.join(", "));
    Problem::new("", format!("the study has no rank {rank}")).hint(hint)
}

/// Every workload at every length, averages, faults and the sweep.
fn whole(ui: &Ui, args: &StudyArgs, study: &Study, accounting: &str) -> Result<(), Failure> {
    let faults = |c: &Configuration| c.faults(accounting);
    let rows = study.rows(&faults).map_err(failure)?;
    if rows.is_empty() {
        let hint = "give --size, or add [[workload]] and [lengths] to the study";
        let problem = Problem::new("", "the study has no workloads or no lengths").hint(hint);
        return Err(failure(vec![problem]).into());
    }
    let mut averages = vec![];
    for name in study.accountings() {
        let rows = study.rows(&|c| c.faults(&name)).map_err(failure)?;
        averages.push((name.clone(), study.means(&rows)));
    }
    let effects = study.effects(&study.accounting).map_err(failure)?;
    let sweep = study.sweep(&faults).map_err(failure)?;
    if let Some(folder) = &args.plots {
        plots::write(folder, study, &rows, &sweep)?;
    }
    let whole = json::Whole { study, accounting, rows: &rows, averages: &averages, effects: &effects, sweep: &sweep };
    ui.result(|| tables::whole(&whole), &whole.to_json())
}
