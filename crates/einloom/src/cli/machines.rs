//! `einloom machines`: the machines that plans can be made for.

use super::args::MachinesArgs;
use super::failure::Failure;
use super::table::Table;
use super::ui::Ui;
use einloom_machine::{BUILT_IN, Machine};
use serde::Serialize;

/// A machine as `--json` shows it. Bytes, hertz, bytes per second, operations per second.
#[derive(Debug, Serialize)]
struct MachineJson {
    name: String,
    description: String,
    cores: usize,
    clock: f64,
    levels: Vec<LevelJson>,
    rates: std::collections::BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
struct LevelJson {
    name: String,
    capacity: Option<u64>,
    shared_by: usize,
    bandwidth: f64,
}

pub(crate) fn command(ui: &Ui, args: &MachinesArgs) -> Result<(), Failure> {
    let host = einloom::host::machine();
    if args.detect {
        return ui.result(|| einloom::machines::to_toml(&host), &to_json(&host));
    }
    let mut machines = vec![host];
    for (name, _) in BUILT_IN {
        machines.push(einloom::machines::find(name)?);
    }
    let text = || {
        let mut table = Table::new(&["name", "cores", "memory levels", "description"]);
        for m in &machines {
            let level = |l: &einloom_machine::Level| match l.capacity {
                Some(capacity) => format!("{} {capacity}", l.name),
                None => l.name.clone(),
            };
            let levels: Vec<String> = m.levels.iter().map(level).collect();
            table.row([m.name.clone(), m.cores.to_string(), levels.join(" > "), m.description.clone()]);
        }
        table.text()
    };
    ui.result(text, &machines.iter().map(to_json).collect::<Vec<_>>())
}

fn to_json(m: &Machine) -> MachineJson {
    let level = |l: &einloom_machine::Level| LevelJson {
        name: l.name.clone(),
        capacity: l.capacity.map(|b| b.0),
        shared_by: l.shared_by,
        bandwidth: l.bandwidth.0,
    };
    MachineJson {
        name: m.name.clone(),
        description: m.description.clone(),
        cores: m.cores,
        clock: m.clock.0,
        levels: m.levels.iter().map(level).collect(),
        rates: m.rates.iter().map(|(d, r)| (d.to_string(), r.0)).collect(),
    }
}
