//! Simulations as tables.

use super::{Outcome, SimulateArgs};
use crate::cli::table::Table;
use crate::cli::units;
use einloom_spatial::{Cause, Simulated, Study};
use std::fmt::Write;

pub(super) fn outcomes(study: &Study, args: &SimulateArgs, all: &[Outcome]) -> String {
    let instances = if args.instances == 1 { String::new() } else { format!(", {} instances", args.instances) };
    let mut out = format!("{}, simulated cycle by cycle{instances}\n", study.name);
    for o in all {
        let _ = write!(out, "\n{}", outcome(study, o));
    }
    out
}

fn outcome(study: &Study, o: &Outcome) -> String {
    let lengths = study.length_ranks.iter().filter_map(|r| Some(format!("{r}={}", o.sizes.get(r)?)));
    let sizes = lengths.collect::<Vec<_>>().join(" ");
    let mut out = format!("{} {sizes}\n", o.configuration.title);
    let arrays: Vec<String> = o.configuration.chip.arrays.iter().map(|a| a.name.clone()).collect();
    let mut head = vec!["".to_owned(), "cycles".to_owned(), "a tile".to_owned()];
    head.extend(arrays.iter().map(|a| format!("{a} busy")));
    head.push("DRAM traffic".to_owned());
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    table.row(closed(o, &arrays));
    table.row(simulated("simulated", &o.run, &arrays));
    if let Some((run, _)) = &o.relaxed {
        table.row(simulated("tiles further apart", run, &arrays));
    }
    out += &table.text();
    out += &why(o);
    if let Some((run, lags)) = &o.relaxed {
        let lags: Vec<String> = lags.iter().map(|(n, l)| format!("{n} {l}")).collect();
        let _ = writeln!(out, "  further apart: {} tiles behind the newest one", lags.join(", "));
        out += &depth(run, "  with tiles further apart, ");
    }
    out += &depth(&o.run, "  ");
    if !o.depths.is_empty() {
        out += &depths(o, &arrays);
    }
    if let Some(error) = o.error {
        let _ = writeln!(out, "  outputs differ from the meaning by at most {error:.1e} of the largest value");
    }
    for note in &o.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// The closed form's cycles, all kernels.
pub(super) fn closed_cycles(o: &Outcome) -> f64 {
    o.closed.seconds * o.configuration.chip.clock.0
}

fn closed(o: &Outcome, arrays: &[String]) -> Vec<String> {
    let tile: f64 = o.closed.kernels.iter().map(|k| k.cycles / k.tiles.max(1.0)).sum();
    let mut cells = vec!["closed form".to_owned(), format!("{:.0}", closed_cycles(o)), format!("{tile:.1}")];
    cells.extend(arrays.iter().map(|a| percent(o.closed.utilisation.get(a).copied().unwrap_or(0.0))));
    cells.push(units::bytes(o.closed.traffic_bytes));
    cells
}

/// Cycles of a tile while all Einsums take part, of all kernels together.
pub(super) fn cycles_per_tile(run: &Simulated) -> Option<f64> {
    let of = |k: &einloom_spatial::KernelRun| k.arrays.iter().filter_map(|a| a.cycles_per_tile).reduce(f64::max);
    run.kernels.iter().map(of).sum()
}

fn simulated(name: &str, run: &Simulated, arrays: &[String]) -> Vec<String> {
    let tile = cycles_per_tile(run).map_or("-".to_owned(), |c| format!("{c:.1}"));
    let mut cells = vec![name.to_owned(), run.cycles.to_string(), tile];
    cells.extend(arrays.iter().map(|a| percent(run.utilisation.get(a).copied().unwrap_or(0.0))));
    cells.push(units::bytes(run.traffic_bytes() as f64));
    cells
}

/// Why the simulated run takes longer than the closed form: the busiest array's cycles, one by one.
fn why(o: &Outcome) -> String {
    let mut out = String::new();
    for (run, closed) in o.run.kernels.iter().zip(&o.closed.kernels) {
        let Some(main) = run.arrays.iter().max_by_key(|a| a.busy) else { continue };
        let more = run.cycles as f64 - closed.cycles.max(closed.seconds * o.configuration.chip.clock.0);
        let _ = writeln!(
            out,
            "  {}: {} computes in {} of {} cycles ({:+.0} to the closed form); in the others",
            run.name, main.name, main.busy, run.cycles, more
        );
        let mut stalls: Vec<(&Cause, &u64)> = main.stalls.iter().filter(|s| *s.1 > 0).collect();
        stalls.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (cause, cycles) in stalls {
            let _ = writeln!(out, "    {cycles:>9}  {cause}");
        }
        let _ = writeln!(out, "    {}  busy over time", strip(main.profile.interval, &main.profile.busy));
    }
    out
}

/// How busy an array is over time, in eight steps.
fn strip(interval: u64, busy: &[u64]) -> String {
    let steps = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let one = |&b: &u64| steps[((b * 8).div_ceil(interval.max(1)).clamp(1, 8) - 1) as usize];
    busy.iter().map(one).collect()
}

/// What is piled up at the most.
fn depth(run: &Simulated, before: &str) -> String {
    let mut out = String::new();
    for kernel in &run.kernels {
        let of = |a: &einloom_spatial::ArrayRun| format!("{} {}", a.name, a.registers);
        let registers: Vec<String> = kernel.arrays.iter().filter(|a| a.registers > 0).map(of).collect();
        let queues: Vec<String> =
            kernel.einsums.iter().filter(|e| e.queue > 0).map(|e| format!("{} {}", e.name, e.queue)).collect();
        let list = |l: &[String]| if l.is_empty() { "none".to_owned() } else { l.join(", ") };
        let _ = writeln!(
            out,
            "{before}{} needs words in an element's registers: {}; at an array's edge: {}; in the buffer {}",
            kernel.name,
            list(&registers),
            list(&queues),
            units::bytes(kernel.buffer_bytes as f64)
        );
    }
    out
}

fn depths(o: &Outcome, arrays: &[String]) -> String {
    let mut head = vec!["  registers".to_owned(), "cycles".to_owned(), "a tile".to_owned()];
    head.extend(arrays.iter().map(|a| format!("{a} busy")));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, run) in &o.depths {
        match run {
            Some(run) => {
                let mut cells = simulated(&n.to_string(), run, arrays);
                cells.pop();
                table.row(cells);
            }
            None => table.row([n.to_string(), "waits for itself for ever".to_owned()]),
        }
    }
    table.text()
}
