//! Machines by name or file.

use crate::formats::FileError;
use crate::{Error, Finding};
use einloom_cascade::DType;
use einloom_machine::{BUILT_IN, Level, LevelKind, Machine, MatrixUnit, Pipe};
use std::fmt::Write;
use std::path::Path;

/// The machine with this name: `host` for this one, a built-in one, or a description in a file that ends in `.toml`.
///
/// # Errors
/// A name that is not known, a file that cannot be read, or all mistakes of a description.
pub fn find(name: &str) -> Result<Machine, Error> {
    if name == "host" {
        return Ok(crate::host::machine());
    }
    if let Some(machine) = einloom_machine::built_in(name) {
        return Ok(machine);
    }
    if !name.ends_with(".toml") {
        let names: Vec<&str> = BUILT_IN.iter().map(|m| m.0).collect();
        let hint = format!("the built-in machines are host, {}; a file of yours ends in .toml", names.join(", "));
        return Err(Error::Machine(vec![
            Finding::error("unknown-machine", format!("there is no machine `{name}`")).hint(Some(hint)),
        ]));
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path).map_err(|e| FileError::io(path, "cannot read it", &e))?;
    einloom_machine::parse(&text).map_err(|errors| {
        let one = |e: einloom_machine::MachineError| {
            let place = if e.field.is_empty() { String::new() } else { format!("{}: ", e.field) };
            Finding::error("machine", format!("{name}:{}:{}: {place}{}", e.line, e.column, e.message)).hint(e.hint)
        };
        Error::Machine(errors.into_iter().map(one).collect())
    })
}

/// The built-in machine that the first GPU here is called after, such as `h100` for an `NVIDIA H100 80GB HBM3`; `h200` where
/// there is none, or one that no description is for.
pub fn card() -> &'static str {
    let Ok(device) = einloom_cuda::runtime::Device::open() else { return "h200" };
    called(&device.name())
}

fn called(card: &str) -> &'static str {
    let plain = |s: &str| s.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let card = plain(card);
    BUILT_IN.iter().map(|m| m.0).find(|name| card.contains(&plain(name))).unwrap_or("h200")
}

/// The same machine with this many cores: what all cores shared, all of them share; what was private to some grows
/// or shrinks with them.
pub fn with_cores(mut machine: Machine, cores: usize) -> Machine {
    let cores = cores.max(1);
    let part = cores as f64 / machine.cores.max(1) as f64;
    for level in &mut machine.levels {
        if level.shared_by >= machine.cores {
            level.shared_by = cores;
        } else {
            level.shared_by = level.shared_by.min(cores);
            level.bandwidth.0 *= part;
        }
    }
    machine.pipes.iter_mut().flat_map(|p| p.rates.values_mut()).for_each(|rate| rate.0 *= part);
    machine.cores = cores;
    machine
}

/// A machine's description, which [`einloom_machine::parse`] reads.
pub fn to_toml(machine: &Machine) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "name = {}\ndescription = {}", quoted(&machine.name), quoted(&machine.description));
    let _ = writeln!(out, "cores = {}\nclock = \"{}\"", machine.cores, machine.clock);
    if let Some(element) = machine.element {
        let _ = writeln!(out, "element = \"{element}\"");
    }
    if let Some(power) = machine.power {
        let _ = writeln!(out, "power = \"{power}\"");
    }
    let o = &machine.overhead;
    let _ =
        writeln!(out, "\n[overhead]\nkernel = \"{}\"\noperation = \"{}\"\nrun = \"{}\"", o.kernel, o.operation, o.run);
    if let Some(side) = o.masked {
        let _ = writeln!(out, "masked = {side}");
    }
    let _ = writeln!(out, "inner_shows = {:?}", o.inner_shows);
    machine.levels.iter().enumerate().for_each(|(k, level)| out += &level_toml(machine, k, level));
    machine.pipes.iter().for_each(|pipe| out += &pipe_toml(pipe));
    if let Some(l) = &machine.lanes {
        let _ = writeln!(out, "\n[lanes]\narithmetic = {}\nspecial = {}", l.arithmetic, l.special);
        let _ =
            writeln!(out, "threads = {}\nblock_threads = {}\nregisters = {}", l.threads, l.block_threads, l.registers);
        let _ = writeln!(out, "latency = \"{}\"", l.latency);
        out += &calibration_toml(&l.calibration);
    }
    machine.matrix.iter().for_each(|unit| out += &matrix_toml(unit));
    out
}

fn level_toml(machine: &Machine, place: usize, level: &Level) -> String {
    let mut out = format!("\n[[level]]\nname = {}\n", quoted(&level.name));
    if level.kind != LevelKind::Memory {
        let _ = writeln!(out, "kind = \"{}\"", level.kind.name());
    }
    // The one before is the parent unless another is named.
    if let Some(parent) = level.parent.filter(|&p| p + 1 != place) {
        let _ = writeln!(out, "parent = {}", quoted(&machine.levels[parent].name));
    }
    // Cores that exchange have what is inside, which a change of it would contradict.
    if let Some(capacity) = level.capacity.filter(|_| level.kind != LevelKind::Exchange) {
        let _ = writeln!(out, "capacity = \"{capacity}\"");
    }
    let _ = writeln!(out, "shared_by = {}", level.shared_by);
    if level.bandwidth.0.is_finite() {
        let _ = writeln!(out, "bandwidth = \"{}\"", level.bandwidth);
    }
    if let Some(energy) = level.energy {
        let _ = writeln!(out, "energy = \"{energy}\"");
    }
    out
}

fn pipe_toml(pipe: &Pipe) -> String {
    let mut out = format!("\n[[pipe]]\nname = {}\nwork = \"{}\"\n", quoted(&pipe.name), pipe.work.name());
    out.push_str("[pipe.rates]\n");
    for (dtype, rate) in &pipe.rates {
        let _ = writeln!(out, "{dtype} = \"{rate}\"");
    }
    if !pipe.energy.is_empty() {
        out.push_str("[pipe.energy]\n");
        for (dtype, energy) in &pipe.energy {
            let _ = writeln!(out, "{dtype} = \"{energy}\"");
        }
    }
    out
}

fn calibration_toml(c: &einloom_machine::Calibration) -> String {
    let mut out = "\n[calibration]\n".to_string();
    for (key, cycles) in c.waits() {
        let _ = writeln!(out, "{key} = {cycles}");
    }
    for (key, share) in c.shares() {
        let _ = writeln!(out, "{key} = {share:?}");
    }
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn matrix_toml(unit: &MatrixUnit) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let operands = list(unit.operands.iter().map(|d| format!("\"{d}\"")).collect());
    let groups = list(unit.groups.iter().map(usize::to_string).collect());
    let mut out = format!("\n[[matrix]]\nname = {}\noperands = {operands}\n", quoted(&unit.name));
    let _ = writeln!(out, "sustained = {:?}\nrows = {}\ncolumns = {}", unit.sustained, unit.rows, unit.columns);
    let _ = writeln!(out, "column_step = {}\ndepth = \"{}\"", unit.column_step, unit.depth);
    let _ = writeln!(out, "group_threads = {}\ngroups = {groups}", unit.group_threads);
    let _ = writeln!(out, "row_blocks = {}\nreserve = {}", unit.row_blocks, unit.reserve);
    if unit.feeder_threads > 0 {
        let (threads, registers) = (unit.feeder_threads, unit.feeder_registers);
        let _ = writeln!(out, "feeder_threads = {threads}\nfeeder_registers = {registers}");
    }
    let _ = writeln!(out, "asynchronous = {}\nshared_right = {}", unit.asynchronous, unit.shared_right);
    out
}

/// Whether the language's one liberty with rounding is taken for a machine: a contraction's wider factor becomes the
/// narrower one's type where a unit multiplies that type faster. The planner still asks for each kernel which is faster.
pub fn rounds_wider_factors(machine: &Machine) -> bool {
    !machine.matrix.is_empty() || machine.rate(DType::Bf16).0 > machine.rate(DType::F32).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_read_back() {
        for (name, _) in BUILT_IN {
            let machine = find(name).unwrap();
            assert_eq!(einloom_machine::parse(&to_toml(&machine)).unwrap(), machine, "{name}");
        }
    }

    #[test]
    fn a_card_is_known_by_its_name() {
        let cards =
            ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA H200", "NVIDIA L4"];
        assert_eq!(cards.map(super::called), ["h100", "a100", "rtx-4090", "h200", "h200"]);
    }

    #[test]
    fn this_machine_can_be_described() {
        let machine = crate::host::machine();
        let again = einloom_machine::parse(&to_toml(&machine)).unwrap();
        assert_eq!((again.cores, again.levels.len()), (machine.cores, machine.levels.len()));
        assert_eq!(again.registers(), machine.registers());
    }

    #[test]
    fn wider_factors_are_rounded_where_a_unit_multiplies_the_narrower_type_faster() {
        let processor = |features: &[&str]| {
            let features = features.iter().map(|f| f.to_string()).collect();
            einloom_machine::host(&einloom_machine::HostFacts { cores: 2, features, ..Default::default() })
        };
        assert!(super::rounds_wider_factors(&processor(&["avx512f", "amx_tile", "amx_bf16"])));
        assert!(super::rounds_wider_factors(&processor(&["avx512f", "avx512_bf16", "avx512vbmi"])));
        assert!(!super::rounds_wider_factors(&processor(&["avx512f", "avx512_bf16"])));
        let named = |name: &str| super::rounds_wider_factors(&einloom_machine::built_in(name).expect("built in"));
        assert!(named("h200") && !named("cpu-generic"));
    }
}
