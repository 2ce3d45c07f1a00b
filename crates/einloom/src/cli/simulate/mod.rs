//! `einloom simulate`: spatial chips cycle by cycle, beside their closed forms.

mod json;
pub(super) mod room;
mod tables;

use super::failure::Failure;
use super::progress::Progress;
use super::ui::Ui;
use super::values::{Assignment, Words};
use clap::Args;
use einloom::random::random_values;
use einloom::studies::{failure, find};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_spatial::{
    Binding, Configuration, Evaluation, Options, Problem, Setting, Simulated, Study, evaluate, filled_up, lags,
    simulate,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Without `--configuration` all configurations of the study. The closed form, the binding as it is, and the same
/// binding with tiles so far apart that nothing waits for what is on its way stand side by side.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A built-in study (fusemax), or a study of yours (.toml)
    #[arg(value_name = "NAME|FILE")]
    pub study: String,
    /// Sizes of one instance, such as M=4096,P=4096,E=64,F=64
    #[arg(long = "size", short = 's', value_name = "RANK=SIZE", value_delimiter = ',', required = true)]
    pub sizes: Vec<Assignment>,
    /// Only these configurations
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub configuration: Vec<String>,
    /// A binding in place of the configuration's (.toml)
    #[arg(long, value_name = "FILE")]
    pub binding: Option<PathBuf>,
    /// Also at these values of the ranks that the study calls lengths
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub lengths: Vec<usize>,
    /// Instances of the cascade, one after the other without a pause
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub instances: u32,
    /// Registers of an element in place of the chip's, such as 2d=16,1d=64
    #[arg(long, value_name = "ARRAY=WORDS", value_delimiter = ',')]
    pub registers: Vec<Words>,
    /// Words that wait at the edge of an array for one of its elements, for each tensor
    #[arg(long, value_name = "WORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue: Option<u32>,
    /// Also with each number of registers from 1 to this, for the array with the most elements, and tiles as far apart
    /// as is best then
    #[arg(long, value_name = "WORDS", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depths: Option<u32>,
    /// Arrays do not wait for each other at the end of a phase
    #[arg(long)]
    pub free: bool,
    /// Arrays of this side in place of the chips': the longest sides, shorter ones in proportion
    #[arg(long, value_name = "SIDE", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub array: Option<u32>,
    /// How to count, by a name that the chips' files give; the study's own if not given
    #[arg(long, value_name = "NAME")]
    pub accounting: Option<String>,
    /// Cycles only: no numbers are computed
    #[arg(long)]
    pub timing: bool,
    /// Compare the outputs with the meaning
    #[arg(long, conflicts_with = "timing")]
    pub verify: bool,
    /// Seed of the inputs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
}

/// One configuration at one set of sizes.
pub(super) struct Outcome {
    pub configuration: Configuration,
    pub sizes: BTreeMap<String, usize>,
    pub closed: Evaluation,
    pub run: Simulated,
    /// With tiles further apart, if that changes anything; and how far.
    pub relaxed: Option<(Simulated, BTreeMap<String, usize>)>,
    /// The largest difference from the meaning, relative to the largest value of an output.
    pub error: Option<f64>,
    /// By number of registers: the fastest run with tiles as near as the binding says or further apart, if one ends.
    pub depths: Vec<(usize, Option<Simulated>)>,
    pub notes: Vec<String>,
}

pub(crate) fn command(ui: &Ui, args: &SimulateArgs) -> Result<(), Failure> {
    let mut study = find(&args.study)?;
    if let Some(file) = &args.binding {
        let name = file.display().to_string();
        let source = super::source::text(file)?;
        let binding = Binding::parse(&name, &source.text).map_err(failure)?;
        for c in study.configurations.iter_mut().filter(|c| args.configuration.contains(&c.name)) {
            c.binding = binding.clone();
        }
        if args.configuration.len() != 1 {
            return Err(Failure::usage(
                "--binding takes the place of one configuration's",
                "name it by --configuration",
            ));
        }
    }
    if let Some(side) = args.array {
        for c in &mut study.configurations {
            c.chip = c.chip.with_array(side as usize);
        }
    }
    let chosen = chosen(&study, &args.configuration)?;
    let sizes = sizes(&study, args)?;
    let mut all = vec![sizes.clone()];
    for &n in &args.lengths {
        let mut more = sizes.clone();
        more.extend(study.length_ranks.iter().map(|r| (r.clone(), n)));
        all.push(more);
    }
    let accounting = args.accounting.clone().unwrap_or_else(|| study.accounting.clone());
    let mut out = vec![];
    for c in &chosen {
        let faults = c.faults(&accounting).map_err(failure)?;
        for (k, sizes) in all.iter().enumerate() {
            out.push(outcome(ui, args, c, sizes, &faults, k == 0)?);
        }
    }
    let wrong = out.iter().any(|o| o.error.is_some_and(|e| e.is_nan() || e > 1e-6));
    ui.result(|| tables::outcomes(&study, args, &out), &json::outcomes(&study, args, &out))?;
    if wrong { Err(Failure::Told) } else { Ok(()) }
}

fn chosen(study: &Study, names: &[String]) -> Result<Vec<Configuration>, Failure> {
    if names.is_empty() {
        return Ok(study.configurations.clone());
    }
    let one = |name: &String| {
        study.configuration(name).cloned().ok_or_else(|| {
            let all: Vec<&str> = study.configurations.iter().map(|c| c.name.as_str()).collect();
            let problem = Problem::new("", format!("the study has no configuration `{name}`"));
            failure(vec![problem.hint(format!("it has {}", all.join(", ")))]).into()
        })
    };
    names.iter().map(one).collect()
}

fn sizes(study: &Study, args: &SimulateArgs) -> Result<BTreeMap<String, usize>, Failure> {
    let known = study.ranks();
    let mut problems = vec![];
    let mut sizes = BTreeMap::new();
    for Assignment { rank, size } in &args.sizes {
        if !known.contains(rank) {
            let all: Vec<&str> = known.iter().map(String::as_str).collect();
            let problem = Problem::new("", format!("the study has no rank {rank}"));
            problems.push(problem.hint(format!("its ranks are {}", all.join(", "))));
        } else if *size == 0 {
            problems.push(Problem::new(rank, "the size is 0"));
        } else if sizes.insert(rank.clone(), *size).is_some_and(|before| before != *size) {
            problems.push(Problem::new(rank, "has two sizes"));
        }
    }
    if problems.is_empty() { Ok(sizes) } else { Err(failure(problems).into()) }
}

fn options(args: &SimulateArgs, c: &Configuration) -> Result<Options, Failure> {
    let mut registers = BTreeMap::new();
    for Words { array, words } in &args.registers {
        if c.chip.array(array).is_none() {
            let all: Vec<&str> = c.chip.arrays.iter().map(|a| a.name.as_str()).collect();
            let problem = Problem::new("--registers", format!("the chip {} has no array `{array}`", c.chip.name));
            return Err(failure(vec![problem.hint(format!("its arrays are {}", all.join(", ")))]).into());
        }
        registers.insert(array.clone(), *words);
    }
    let queue = args.queue.map(|n| n as usize);
    Ok(Options { instances: args.instances as usize, registers, queue, free: args.free, trace: false })
}

fn setting<'a>(
    c: &'a Configuration,
    binding: &'a Binding,
    sizes: &'a BTreeMap<String, usize>,
    faults: &'a BTreeSet<String>,
    instances: u32,
) -> Setting<'a> {
    let instances = f64::from(instances);
    Setting { program: &c.program, chip: &c.chip, binding, sizes, instances, faults }
}

fn outcome(
    ui: &Ui,
    args: &SimulateArgs,
    c: &Configuration,
    sizes: &BTreeMap<String, usize>,
    faults: &BTreeSet<String>,
    with_depths: bool,
) -> Result<Outcome, Failure> {
    let mut options = options(args, c)?;
    let on_chip = options.clone();
    let within = |problems: Vec<Problem>| -> Failure {
        failure(problems.into_iter().map(|p| p.within(&c.name)).collect()).into()
    };
    let closed = evaluate(&setting(c, &c.binding, sizes, faults, args.instances)).map_err(within)?;
    let inputs = if args.timing { None } else { Some(inputs(args, c, sizes).map_err(within)?) };
    let go = |binding: &Binding, options: &Options, inputs: Option<&[Arrays]>| {
        let progress = Progress::start(ui, "simulating");
        simulate(&setting(c, binding, sizes, faults, args.instances), options, inputs, &mut |part| progress.at(part))
    };
    let own = setting(c, &c.binding, sizes, faults, args.instances);
    let progress = Progress::start(ui, "simulating");
    let with_room = room::simulate(&own, &mut options, inputs.as_deref(), &mut |part| progress.at(part));
    drop(progress);
    let (run, mut notes) = with_room.map_err(within)?;
    notes.extend(run.notes.clone());
    notes.extend(closed.notes.clone());
    let error = match &inputs {
        Some(inputs) if args.verify => Some(error(c, sizes, inputs, &run.outputs)?),
        _ => None,
    };
    let apart = relax(&setting(c, &c.binding, sizes, faults, args.instances), &closed, 1.0);
    let relaxed = apart.as_ref().and_then(|binding| {
        let run = match go(binding, &options, None) {
            Ok(run) => run,
            Err(problems) => {
                notes.extend(problems.iter().map(|p| format!("with tiles further apart, {}", p.message)));
                return None;
            }
        };
        let lags = binding.kernels.iter().flat_map(|k| k.lags.clone()).collect();
        Some((run, lags))
    });
    let relaxed = relaxed.filter(|(r, _)| r.cycles != run.cycles);
    let mut depths = vec![];
    if let Some(most) = args.depths.filter(|_| with_depths)
        && let Some(main) = c.chip.arrays.iter().max_by_key(|a| a.elements())
    {
        // The nearer the tiles, the fewer words wait, and the more the arrays do.
        let mut tried = vec![c.binding.clone()];
        for slower in [1.0, 1.5, 2.0, 3.0, 6.0] {
            let own = setting(c, &c.binding, sizes, faults, args.instances);
            tried.extend(relax(&own, &closed, slower).filter(|b| !tried.contains(b)));
        }
        for n in 1..=most as usize {
            let mut options = on_chip.clone();
            options.registers.insert(main.name.clone(), n);
            let runs = tried.iter().filter_map(|binding| go(binding, &options, None).ok());
            depths.push((n, runs.min_by_key(|run| run.cycles)));
        }
    }
    let (configuration, sizes) = (c.clone(), sizes.clone());
    Ok(Outcome { configuration, sizes, closed, run, relaxed, error, depths, notes })
}

/// The binding with tiles so far apart that nothing would wait for what is on its way if a tile took `slower` times
/// what it takes, if there is one.
fn relax(setting: &Setting<'_>, closed: &Evaluation, slower: f64) -> Option<Binding> {
    let mut binding = setting.binding.clone();
    let tile = closed.kernels.iter().map(|k| k.cycles / k.tiles.max(1.0)).fold(f64::INFINITY, f64::min);
    let all = lags(setting, tile * slower).ok()?;
    for kernel in &mut binding.kernels {
        let own: Vec<String> = kernel.einsums().map(str::to_owned).collect();
        kernel.lags = all.iter().filter(|(n, _)| own.contains(n)).map(|(n, l)| (n.clone(), *l)).collect();
    }
    Some(binding)
}

fn inputs(
    args: &SimulateArgs,
    c: &Configuration,
    sizes: &BTreeMap<String, usize>,
) -> Result<Vec<Arrays>, Vec<Problem>> {
    let cascade = &c.program.graph.cascade;
    let bound = c.program.bind(&bound_sizes(c, sizes))?;
    let one = |instance: u64| {
        let named = cascade.inputs().map(|t| {
            let values = random_values(cascade, &bound, t, args.seed.wrapping_add(instance << 32));
            (cascade[t].name.clone(), Array { shape: bound.shape(cascade, t), values })
        });
        named.collect()
    };
    Ok((0..u64::from(args.instances)).map(one).collect())
}

/// Sizes with those that the binding takes from the chip, filled up to whole tiles as the simulation has them.
fn bound_sizes(c: &Configuration, sizes: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    filled_up(&setting(c, &c.binding, sizes, &BTreeSet::new(), 1))
}

fn error(
    c: &Configuration,
    sizes: &BTreeMap<String, usize>,
    inputs: &[Arrays],
    outputs: &[Arrays],
) -> Result<f64, Failure> {
    let bound = c.program.bind(&bound_sizes(c, sizes)).map_err(failure)?;
    let mut worst: f64 = 0.0;
    for (inputs, outputs) in inputs.iter().zip(outputs) {
        let expected = meaning::evaluate(&c.program.graph.cascade, &bound, inputs)
            .map_err(|e| Failure::from(failure(vec![Problem::new("meaning", e.to_string())])))?;
        for (name, array) in &expected {
            let found = outputs.get(name).map_or(&[][..], |a| &a.values);
            if found.len() != array.values.len() {
                return Ok(f64::NAN);
            }
            let largest = array.values.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
            for (x, y) in found.iter().zip(&array.values) {
                let off = (x - y).abs() / largest;
                worst = if off.is_nan() { f64::NAN } else { worst.max(off) };
            }
        }
    }
    Ok(worst)
}
