//! `einloom bind`: how a cascade runs best on a spatial chip.

use super::failure::Failure;
use super::progress::Progress;
use super::simulate::room;
use super::table::Table;
use super::ui::Ui;
use super::units;
use super::values::Assignment;
use clap::Args;
use einloom::formats::FileError;
use einloom::studies::{chip, failure};
use einloom_spatial::{
    Binding, Chip, Evaluation, Found, Options, Problem, Program, Setting, Split, Wanted, evaluate, search, splits,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

/// Einsums are given to arrays, ranks to their sides, tiles to steps and tensors to the buffer; every choice is scored
/// by the closed form; the best few are simulated, and the one that takes the fewest cycles is the best.
#[derive(Clone, Debug, Args)]
pub(crate) struct BindArgs {
    /// Programs (.ein) that compute the same; the first is what others are compared with
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// A built-in chip (fusemax, flat), or a description of yours (.toml)
    #[arg(long, value_name = "NAME|FILE")]
    pub chip: String,
    /// Sizes of one instance, such as M=4096,P=4096,E=64,F=64
    #[arg(long = "size", short = 's', value_name = "RANK=SIZE", value_delimiter = ',', required = true)]
    pub sizes: Vec<Assignment>,
    /// Instances of the cascade
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub instances: u64,
    /// Also with arrays of other sides on the same area
    #[arg(long)]
    pub split: bool,
    /// Compare with these bindings of the first program: built-in (interleaved, cascade, …), or yours (.toml)
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',')]
    pub against: Vec<String>,
    /// How many bindings to show for each program
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub best: u32,
    /// Write the first program's best binding here
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not simulate what is found
    #[arg(long)]
    pub no_simulation: bool,
}

#[derive(Debug, Serialize)]
struct Json {
    chip: String,
    programs: Vec<ProgramJson>,
    splits: Vec<SplitJson>,
}

#[derive(Debug, Serialize)]
struct ProgramJson {
    name: String,
    tried: usize,
    found: Vec<BindingJson>,
    against: Vec<BindingJson>,
    simulated: Option<SimulatedJson>,
    not_simulated: Option<String>,
    refused: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
struct BindingJson {
    name: String,
    description: String,
    seconds: f64,
    cycles_per_tile: f64,
    traffic_bytes: f64,
    energy_joules: f64,
    utilisation: BTreeMap<String, f64>,
    simulated_cycles: Option<u64>,
    runs: BTreeMap<String, Vec<String>>,
    lags: BTreeMap<String, usize>,
    holds: Vec<String>,
    spills: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SimulatedJson {
    cycles: u64,
    utilisation: BTreeMap<String, f64>,
    registers: BTreeMap<String, u64>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SplitJson {
    arrays: BTreeMap<String, (usize, usize)>,
    area_square_metres: f64,
    seconds: f64,
    energy_joules: f64,
}

pub(crate) fn command(ui: &Ui, args: &BindArgs) -> Result<(), Failure> {
    let chip = chip(&args.chip)?;
    let sizes: BTreeMap<String, usize> = args.sizes.iter().map(|a| (a.rank.clone(), a.size)).collect();
    if let Some((rank, _)) = sizes.iter().find(|s| *s.1 == 0) {
        return Err(failure(vec![Problem::new(rank, "the size is 0")]).into());
    }
    let faults = BTreeSet::new();
    let progress = Progress::start(ui, "searching");
    let mut json = Json { chip: chip.name.clone(), programs: vec![], splits: vec![] };
    let mut first = None;
    for (k, file) in args.files.iter().enumerate() {
        let source = super::source::text(file)?;
        let program = Program::parse(&source.name, &source.text).map_err(failure)?;
        let instances = args.instances as f64;
        let wanted = Wanted { program: &program, chip: &chip, sizes: &sizes, instances, faults: &faults };
        let against = if k == 0 { compared(args, &wanted)? } else { vec![] };
        let mut search = search(&wanted).map_err(failure)?;
        let mut runs = if args.no_simulation { vec![] } else { by_simulation(&wanted, &mut search.found) };
        let cycles: Vec<Option<u64>> = runs.iter().map(|r| r.as_ref().ok().map(|run| run.cycles)).collect();
        let (simulated, not_simulated) = match runs.is_empty() {
            true => (None, None),
            false => match runs.swap_remove(0) {
                Ok(run) => (Some(run), None),
                Err(why) => (None, Some(why)),
            },
        };
        let found = search.found.iter().take(args.best as usize).enumerate();
        json.programs.push(ProgramJson {
            name: program.graph.cascade.name.clone(),
            tried: search.tried,
            found: found.map(|(n, f)| binding(&f.binding, &f.evaluation, cycles.get(n).copied().flatten())).collect(),
            against,
            simulated,
            not_simulated,
            refused: search.refused,
        });
        if k == 0 && args.split {
            json.splits = splits(&wanted).map_err(failure)?.iter().map(split).collect();
        }
        first.get_or_insert(search.found[0].binding.clone());
        progress.at((k + 1) as f64 / args.files.len() as f64);
    }
    drop(progress);
    if let (Some(path), Some(binding)) = (&args.output, first) {
        std::fs::write(path, binding.to_toml()).map_err(|e| FileError::io(path, "cannot write it", &e))?;
    }
    ui.result(|| text(&chip, &json), &json)
}

fn compared(args: &BindArgs, wanted: &Wanted<'_>) -> Result<Vec<BindingJson>, Failure> {
    let mut out = vec![];
    for name in &args.against {
        let other = einloom::studies::binding(name)?;
        let Wanted { program, chip, sizes, instances, faults } = *wanted;
        let cost = evaluate(&Setting { program, chip, binding: &other, sizes, instances, faults }).map_err(failure)?;
        let run = if args.no_simulation { None } else { simulated(wanted, &other).ok() };
        out.push(binding(&other, &cost, run.map(|r| r.cycles)));
    }
    Ok(out)
}

/// How many of the best bindings are simulated, and by how much longer than the best they may take by the closed form.
const SIMULATED: (usize, f64) = (3, 2.0);

/// Simulates the best few and brings them into the order of what they take then: those that the chip's registers have
/// room for first, those that cannot be simulated last.
fn by_simulation(wanted: &Wanted<'_>, found: &mut [Found]) -> Vec<Result<SimulatedJson, String>> {
    let most = found.first().map_or(0.0, |f| f.evaluation.seconds * SIMULATED.1);
    let few = found.iter().take(SIMULATED.0).take_while(|f| f.evaluation.seconds <= most).count();
    let mut all: Vec<_> = found[..few].iter().map(|f| (f.clone(), simulated(wanted, &f.binding))).collect();
    let fits = |run: &SimulatedJson| {
        let entries = |a: &str| wanted.chip.array(a).and_then(|a| a.element.registers).map(|r| r.entries as u64);
        run.registers.iter().all(|(array, &n)| entries(array).is_none_or(|entries| n <= entries))
    };
    all.sort_by_key(|(_, run)| run.as_ref().map_or((2, 0), |run| (u8::from(!fits(run)), run.cycles)));
    let (best, runs): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    found[..few].clone_from_slice(&best);
    runs
}

/// One instance, cycles only.
///
/// # Errors
/// Why it cannot be simulated.
fn simulated(wanted: &Wanted<'_>, binding: &Binding) -> Result<SimulatedJson, String> {
    let Wanted { program, chip, sizes, faults, .. } = *wanted;
    let setting = Setting { program, chip, binding, sizes, instances: 1.0, faults };
    let (run, mut notes) = room::simulate(&setting, &mut Options::default(), None, &mut |_| {})
        .map_err(|all| all.first().map_or(String::new(), ToString::to_string))?;
    notes.extend(evaluate(&setting).map(|e| e.notes).unwrap_or_default());
    let registers = run.kernels.iter().flat_map(|k| &k.arrays).map(|a| (a.name.clone(), a.registers)).collect();
    Ok(SimulatedJson { cycles: run.cycles, utilisation: run.utilisation, registers, notes })
}

fn binding(b: &Binding, cost: &Evaluation, simulated_cycles: Option<u64>) -> BindingJson {
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (array, names) in b.kernels.iter().flat_map(|k| &k.phases).flat_map(|p| &p.runs) {
        runs.entry(array.clone()).or_default().extend(names.clone());
    }
    let flow = b.kernels.first().and_then(|k| k.dataflows.first());
    BindingJson {
        name: b.name.clone(),
        description: b.description.clone(),
        seconds: cost.seconds,
        cycles_per_tile: cost.kernels.iter().map(|k| k.cycles / k.tiles.max(1.0)).sum(),
        simulated_cycles,
        traffic_bytes: cost.traffic_bytes,
        energy_joules: cost.energy.total(),
        utilisation: cost.utilisation.clone(),
        runs,
        lags: b.kernels.iter().flat_map(|k| k.lags.clone()).collect(),
        holds: flow.map(|f| f.holds.clone()).unwrap_or_default(),
        spills: flow.map(|f| f.spills.clone()).unwrap_or_default(),
    }
}

fn split(s: &Split) -> SplitJson {
    SplitJson {
        arrays: s.chip.arrays.iter().map(|a| (a.name.clone(), (a.rows, a.columns))).collect(),
        area_square_metres: s.area.0,
        seconds: s.best.evaluation.seconds,
        energy_joules: s.best.evaluation.energy.total(),
    }
}

fn text(chip: &Chip, json: &Json) -> String {
    let mut out = format!("bindings found for {}\n", json.chip);
    let arrays: Vec<&str> = chip.arrays.iter().map(|a| a.name.as_str()).collect();
    let mut head = vec!["program".to_owned(), "binding".to_owned(), "time".to_owned(), "to the best".to_owned()];
    head.extend(["cycles a tile", "DRAM traffic", "energy"].map(str::to_owned));
    head.extend(arrays.iter().map(|a| format!("{a} busy")));
    let all = || json.programs.iter().flat_map(|p| p.against.iter().chain(&p.found));
    let any_run = all().any(|b| b.simulated_cycles.is_some());
    head.extend(any_run.then(|| "cycles simulated".to_owned()));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let first = json.programs.first().into_iter().flat_map(|p| &p.found);
    let best = first.map(|f| f.seconds).fold(f64::INFINITY, f64::min);
    for p in &json.programs {
        for b in p.against.iter().chain(&p.found) {
            let mut cells = vec![p.name.clone(), b.name.clone(), units::seconds(b.seconds)];
            cells.push(format!("{:.3}x", b.seconds / best));
            cells.push(format!("{:.1}", b.cycles_per_tile));
            cells.extend([units::bytes(b.traffic_bytes), einloom_machine::Joules(b.energy_joules).to_string()]);
            let busy = |a: &&str| format!("{:.1} %", b.utilisation.get(*a).copied().unwrap_or(0.0) * 100.0);
            cells.extend(arrays.iter().map(busy));
            let cycles = || b.simulated_cycles.map_or("-".to_owned(), |n| n.to_string());
            cells.extend(any_run.then(cycles));
            table.row(cells);
        }
    }
    out += &table.text();
    for p in &json.programs {
        let Some(b) = p.found.first() else { continue };
        let _ = writeln!(out, "\n{}: {}, the best of {} evaluated; {}", p.name, b.name, p.tried, b.description);
        for (array, names) in &b.runs {
            let _ = writeln!(out, "  {array}: {}", names.join(", "));
        }
        let _ = writeln!(out, "  the buffer holds {}", or_none(&b.holds));
        if !b.spills.is_empty() {
            let _ = writeln!(out, "  to DRAM and back: {}", b.spills.join(", "));
        }
        if let Some(s) = &p.simulated {
            let busy: Vec<String> = s.utilisation.iter().map(|(a, u)| format!("{a} {:.1} %", u * 100.0)).collect();
            let registers: Vec<String> = s.registers.iter().map(|(a, n)| format!("{a} {n}")).collect();
            let (busy, registers) = (busy.join(", "), registers.join(", "));
            let _ = writeln!(
                out,
                "  one instance simulated: {} cycles, busy {busy}, words in an element's registers {registers}",
                s.cycles
            );
            for note in &s.notes {
                let _ = writeln!(out, "  note: {note}");
            }
        }
        if let Some(why) = &p.not_simulated {
            let _ = writeln!(out, "  not simulated: {why}");
        }
    }
    if !json.splits.is_empty() {
        out += "\nother sides of the arrays on at most the same area\n";
        let mut head = vec!["time".to_owned(), "area".to_owned(), "energy".to_owned()];
        head.extend(arrays.iter().map(|a| (*a).to_owned()));
        let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
        for s in json.splits.iter().take(8) {
            let mut cells =
                vec![units::seconds(s.seconds), einloom_machine::SquareMetres(s.area_square_metres).to_string()];
            cells.push(einloom_machine::Joules(s.energy_joules).to_string());
            let side = |a: &&str| s.arrays.get(*a).map_or(String::new(), |(r, c)| format!("{r}x{c}"));
            cells.extend(arrays.iter().map(side));
            table.row(cells);
        }
        out += &table.text();
    }
    out
}

fn or_none(list: &[String]) -> String {
    if list.is_empty() { "nothing".to_owned() } else { list.join(", ") }
}
