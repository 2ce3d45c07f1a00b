//! `einloom machines`: the machines that plans can be made for.

use super::args::MachinesArgs;
use super::failure::Failure;
use super::table::Table;
use super::ui::Ui;
use einloom_cascade::DType;
use einloom_machine::{BUILT_IN, Level, LevelKind, Machine, Pipe};
use serde::Serialize;
use std::collections::BTreeMap;

/// A machine as `--json` shows it. Bytes, hertz, bytes per second, operations per second.
#[derive(Debug, Serialize)]
struct MachineJson {
    name: String,
    description: String,
    cores: usize,
    clock: f64,
    /// Bytes that each element counts in a capacity, on an abstract machine.
    element: Option<u64>,
    /// Watts that it may draw, where known.
    power: Option<f64>,
    overhead: OverheadJson,
    levels: Vec<LevelJson>,
    /// The fastest pipe's, by number type.
    rates: BTreeMap<String, f64>,
    pipes: Vec<PipeJson>,
    /// Of cores with lanes, waits in cycles and shares that no datasheet tells, by their keys.
    calibration: Option<BTreeMap<&'static str, f64>>,
}

/// Seconds: to start a kernel, to dispatch a tile operation, until a run of elements arrives that follows no other.
#[derive(Debug, Serialize)]
struct OverheadJson {
    kernel: f64,
    operation: f64,
    run: f64,
    /// Side of the squares of a tile that are left out where a mask leaves nothing of them.
    masked: Option<usize>,
    /// The part of the time of faster levels that adds to that of the slowest in row operations.
    inner_shows: f64,
}

#[derive(Debug, Serialize)]
struct LevelJson {
    name: String,
    capacity: Option<u64>,
    /// The level outside it; `null` for the outermost.
    parent: Option<String>,
    kind: &'static str,
    shared_by: usize,
    /// Instances.
    count: usize,
    /// `null` where it is never what limits.
    bandwidth: Option<f64>,
    /// Joules per byte, where known.
    energy: Option<f64>,
}

#[derive(Debug, Serialize)]
struct PipeJson {
    name: String,
    work: &'static str,
    rates: BTreeMap<String, f64>,
    /// Joules per operation, where known.
    energy: BTreeMap<String, f64>,
}

pub(crate) fn command(ui: &Ui, args: &MachinesArgs) -> Result<(), Failure> {
    if args.detect {
        let host = einloom::host::measured_machine();
        return ui.result(|| einloom::machines::to_toml(&host), &to_json(&host));
    }
    let host = einloom::host::machine();
    if !args.names.is_empty() {
        let machines = args.names.iter().map(|n| einloom::machines::find(n)).collect::<Result<Vec<_>, _>>()?;
        let text = || machines.iter().map(detail).collect::<Vec<_>>().join("\n");
        return ui.result(text, &machines.iter().map(to_json).collect::<Vec<_>>());
    }
    let mut machines = vec![host];
    for (name, _) in BUILT_IN {
        machines.push(einloom::machines::find(name)?);
    }
    let text = || {
        let mut table = Table::new(&["name", "cores", "levels", "description"]);
        for m in &machines {
            table.row([m.name.clone(), m.cores.to_string(), tree(m, None), m.description.clone()]);
        }
        table.text()
    };
    ui.result(text, &machines.iter().map(to_json).collect::<Vec<_>>())
}

/// All of one machine.
fn detail(m: &Machine) -> String {
    let many = if m.cores == 1 { "" } else { "s" };
    let mut out = format!("{}: {}\n{} core{many} at {}\n", m.name, m.description, m.cores, m.clock);
    if let Some(element) = m.element {
        out += &format!("every element is held in {element}\n");
    }
    if let Some(power) = m.power {
        out += &format!("may draw {power}\n");
    }
    // An abstract machine starts nothing: what it does is counted.
    if m.element.is_none() {
        let each = &m.overhead;
        out += &format!(
            "{} to start a kernel, {} to dispatch a tile operation, {} until a run of elements begins\n",
            each.kernel, each.operation, each.run
        );
        if let Some(side) = each.masked {
            out += &format!(
                "squares of {side} by {side} elements are left out of a tile where a mask leaves nothing of them\n"
            );
        }
    }
    if let Some(lanes) = &m.lanes {
        let list = |all: &[(&str, f64)]| all.iter().map(|(key, x)| format!("{key} {x}")).collect::<Vec<_>>().join(", ");
        let (waits, shares) = (lanes.calibration.waits(), lanes.calibration.shares());
        out += &format!("a core waits, in cycles: {}\nshares: {}\n", list(&waits), list(&shares));
    }
    let mut table = Table::new(&["level", "inside", "kind", "count", "capacity", "bandwidth", "energy"]);
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    for l in &m.levels {
        table.row([
            l.name.clone(),
            or(l.parent.map(|p| m.levels[p].name.clone())),
            l.kind.name().to_string(),
            (m.cores / l.shared_by.max(1)).to_string(),
            or(l.capacity.map(|c| c.to_string())),
            or(Some(l.bandwidth).filter(|b| b.0.is_finite()).map(|b| b.to_string())),
            or(l.energy.map(|e| e.to_string())),
        ]);
    }
    out += &table.text();
    let mut table = Table::new(&["pipe", "work", "type", "rate", "energy"]);
    for p in &m.pipes {
        for (dtype, rate) in &p.rates {
            let energy = or(p.energy.get(dtype).map(|e| e.to_string()));
            table.row([p.name.clone(), p.work.name().to_string(), dtype.to_string(), rate.to_string(), energy]);
        }
    }
    out + &table.text()
}

/// The levels inside `outer`, those side by side in brackets.
fn tree(m: &Machine, outer: Option<usize>) -> String {
    let inside = m.levels.iter().enumerate().filter(|(_, l)| l.parent == outer);
    let branch = |(k, l): (usize, &Level)| {
        let inner = tree(m, Some(k));
        let own = match l.capacity {
            Some(capacity) if l.kind != LevelKind::Exchange => format!("{} {capacity}", l.name),
            _ => l.name.clone(),
        };
        if inner.is_empty() { own } else { format!("{own} > {inner}") }
    };
    let branches: Vec<String> = inside.map(branch).collect();
    if branches.len() > 1 { format!("({})", branches.join(") (")) } else { branches.concat() }
}

fn to_json(m: &Machine) -> MachineJson {
    let level = |l: &Level| LevelJson {
        name: l.name.clone(),
        capacity: l.capacity.map(|b| b.0),
        parent: l.parent.map(|p| m.levels[p].name.clone()),
        kind: l.kind.name(),
        shared_by: l.shared_by,
        count: m.cores / l.shared_by.max(1),
        bandwidth: Some(l.bandwidth.0).filter(|b| b.is_finite()),
        energy: l.energy.map(|e| e.0),
    };
    let pipe = |p: &Pipe| PipeJson {
        name: p.name.clone(),
        work: p.work.name(),
        rates: p.rates.iter().map(|(d, r)| (d.to_string(), r.0)).collect(),
        energy: p.energy.iter().map(|(d, e)| (d.to_string(), e.0)).collect(),
    };
    let computed = DType::ALL.into_iter().filter(|d| m.pipes.iter().any(|p| p.rates.contains_key(d)));
    MachineJson {
        name: m.name.clone(),
        description: m.description.clone(),
        cores: m.cores,
        clock: m.clock.0,
        element: m.element.map(|b| b.0),
        power: m.power.map(|w| w.0),
        overhead: OverheadJson {
            kernel: m.overhead.kernel.0,
            operation: m.overhead.operation.0,
            run: m.overhead.run.0,
            masked: m.overhead.masked,
            inner_shows: m.overhead.inner_shows,
        },
        levels: m.levels.iter().map(level).collect(),
        rates: computed.map(|d| (d.to_string(), m.rate(d).0)).collect(),
        pipes: m.pipes.iter().map(pipe).collect(),
        calibration: m
            .lanes
            .as_ref()
            .map(|l| l.calibration.waits().into_iter().chain(l.calibration.shares()).collect()),
    }
}
