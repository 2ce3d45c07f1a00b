//! Why a plan is what it is: what lost to it, what more of each resource would buy, where its energy goes.

use super::plan::{kernels, time};
use super::table::Table;
use super::units;
use einloom::Planned;
use einloom_machine::{Machine, Watts};
use einloom_model::Energy;
use einloom_plan::Doubled;
use serde::Serialize;
use std::collections::BTreeMap;

/// Plans that lost, as many are told.
const TOLD: usize = 5;

/// A plan that lost, and the resource that it lost by.
#[derive(Debug, Serialize)]
pub(crate) struct LostJson {
    plan: String,
    seconds: f64,
    bound_by: String,
    reason: String,
}

/// Twice of a resource: the time of a plan made for it, and how many times faster that is.
#[derive(Debug, Serialize)]
pub(crate) struct DoubledJson {
    resource: String,
    seconds: f64,
    faster: f64,
}

/// What the search looked at.
#[derive(Debug, Serialize)]
pub(crate) struct WorkJson {
    kernels: usize,
    emitted: usize,
    tilings: usize,
    pruned: usize,
}

/// Joules by level and pipe where they are known, and what is not.
#[derive(Debug, Serialize)]
pub(crate) struct EnergyJson {
    known_joules: BTreeMap<String, f64>,
    unknown: Vec<String>,
    /// What is known of it, per second of the predicted time.
    known_watts: f64,
    /// What the machine may draw, where that is known and this is more.
    limit_watts: Option<f64>,
}

/// The energy of a kernel that is predicted to take so long.
pub(crate) fn energy(energy: &Energy, seconds: f64, machine: &Machine) -> EnergyJson {
    let known_watts = if seconds > 0.0 { energy.known_joules() / seconds } else { 0.0 };
    EnergyJson {
        known_joules: energy.known.iter().cloned().collect(),
        unknown: energy.unknown.clone(),
        known_watts,
        limit_watts: machine.power.map(|p| p.0).filter(|&limit| known_watts > limit),
    }
}

pub(crate) fn lost(planned: &Planned) -> Vec<LostJson> {
    let one = |l: &einloom_plan::Lost| LostJson {
        plan: l.what.clone(),
        seconds: l.seconds,
        bound_by: l.bound_by.clone(),
        reason: l.reason.clone(),
    };
    planned.lost().iter().take(TOLD).map(one).collect()
}

pub(crate) fn doubled(planned: &Planned, doubled: &[Doubled]) -> Vec<DoubledJson> {
    let one = |d: &Doubled| DoubledJson {
        resource: d.resource.clone(),
        seconds: d.seconds,
        faster: planned.seconds() / d.seconds,
    };
    doubled.iter().map(one).collect()
}

pub(crate) fn work(planned: &Planned) -> WorkJson {
    let w = planned.work();
    WorkJson { kernels: w.kernels, emitted: w.emitted, tilings: w.tilings, pruned: w.pruned }
}

/// What the search looked at, for people.
pub(crate) fn work_text(planned: &Planned) -> String {
    let w = planned.work();
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!(
        "{} of {}, {} of them excluded by a bound",
        count(w.tilings, "tiling"),
        count(w.kernels, "kernel"),
        w.pruned
    )
}

/// All of it for people.
pub(crate) fn text(planned: &Planned, doubled: &[Doubled]) -> String {
    let mut out = format!("\nlooked at {}\n", work_text(planned));
    if planned.machine().element.is_some() {
        let taken = units::seconds(planned.seconds());
        out += &format!(
            "times from here on are of what passes the memories, as the planner goes by: {taken} as planned\n"
        );
    }
    if !planned.lost().is_empty() {
        out += "\nlost to this plan\n";
        let mut table = Table::new(&["plan", "time", "bound by", "why"]);
        for l in planned.lost().iter().take(TOLD) {
            table.row([l.what.clone(), units::seconds(l.seconds), l.bound_by.clone(), l.reason.clone()]);
        }
        out += &table.text();
    }
    out += "\ntwice of each resource, planned again\n";
    let mut table = Table::new(&["resource", "time", "times faster"]);
    for d in doubled {
        table.row([d.resource.clone(), units::seconds(d.seconds), format!("{:.2}", planned.seconds() / d.seconds)]);
    }
    out += &table.text();
    out += &moved(planned);
    out += "\nenergy\n";
    let mut table = Table::new(&["kernel", "joules", "known power", "known parts", "unknown"]);
    let mut over = String::new();
    for (kernel, transfers) in kernels(planned) {
        let energy = &transfers.energy;
        let told = self::energy(energy, time(planned, kernel, transfers).0, planned.machine());
        if let Some(limit) = told.limit_watts {
            let (name, machine) = (&kernel.name, &planned.machine().name);
            over += &format!(
                "  {name} would draw {}, more than the {} that {machine} may: its figures of energy, measured one by one, count \
                 something twice, or it runs slower than predicted\n",
                Watts(told.known_watts),
                Watts(limit)
            );
        }
        let parts: Vec<String> = energy.known.iter().map(|(name, j)| format!("{name} {}", joules(*j))).collect();
        let unknown = if energy.unknown.is_empty() { "-".to_string() } else { energy.unknown.join(", ") };
        table.row([kernel.name.clone(), total(energy), Watts(told.known_watts).to_string(), parts.join(", "), unknown]);
    }
    out + &table.text() + &over
}

/// Bytes of each tensor through each level, in both directions.
fn moved(planned: &Planned) -> String {
    let mut out = "\nbytes by level and tensor, in and out\n".to_string();
    let mut table = Table::new(&["kernel", "level", "tensor", "loaded", "stored"]);
    for (kernel, transfers) in kernels(planned) {
        for level in &transfers.levels {
            for t in &level.tensors {
                let name = planned.program().tensor(t.tensor).name.clone();
                let [loaded, stored] = [t.loaded_bytes, t.stored_bytes].map(|b| units::bytes(b as f64));
                table.row([kernel.name.clone(), level.level.clone(), name, loaded, stored]);
            }
        }
    }
    out += &table.text();
    out
}

/// All of it, or `unknown`: what is known of it alone would look like all.
pub(crate) fn total(energy: &Energy) -> String {
    energy.joules().map_or_else(|| "unknown".to_string(), joules)
}

/// Joules for people.
pub(crate) fn joules(value: f64) -> String {
    let (factor, unit) = match value {
        v if v >= 1.0 => (1.0, "J"),
        v if v >= 1e-3 => (1e3, "mJ"),
        v if v >= 1e-6 => (1e6, "µJ"),
        _ => (1e9, "nJ"),
    };
    format!("{:.3} {unit}", value * factor)
}
