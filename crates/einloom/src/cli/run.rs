//! `einloom run`: tensors in, tensors out.

use super::args::{Backend, RunArgs};
use super::data::Sources;
use super::failure::Failure;
use super::passes::Ordered;
use super::progress::Progress;
use super::table::Table;
use super::ui::Ui;
use super::values::OutputTarget;
use super::{prepare, source, units};
use einloom::formats::{Destination, FileError, Format, Stored, to_stored, write_npy, write_safetensors};
use einloom::gpu::Gpu;
use einloom::verify::{Verified, verify};
use einloom::{Derived, Error, Finding, Outcome, Planned, RunOptions, Tensor};
use einloom_cascade::Cascade;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct RunJson {
    backend: &'static str,
    seconds: f64,
    kernels: Vec<KernelJson>,
    outputs: Ordered<OutputJson>,
    isa: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<String>,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    seconds: f64,
    skipped_chunks: u64,
    serial: Option<&'static str>,
}

/// Errors are there with `--verify`; one that is not finite is null.
#[derive(Debug, Serialize)]
struct OutputJson {
    shape: Vec<usize>,
    dtype: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_abs_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rel_l2_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance: Option<f64>,
    /// Why it does not agree, if that is the text's own doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
}

pub(crate) fn command(ui: &mut Ui, args: &RunArgs) -> Result<(), Failure> {
    let gpu = (args.backend == Backend::Cuda).then(Gpu::open).transpose()?;
    let derived = source::checked(ui, &args.source)?.derive();
    if ui.global.dump.is_some_and(|d| d <= super::args::Stage::Derivation) {
        return super::dumped(ui, &derived).map(|_| ());
    }
    let sources = Sources::open(ui, derived.cascade(), &args.inputs)?;
    let given = prepare::given(&args.sizing, sources.shapes())?;
    let arch = gpu.as_ref().map(|gpu| args.gpu.target(gpu)).transpose()?.map(|t| t.arch);
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, args.backend, arch)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let destinations = destinations(derived.cascade(), &args.outputs)?;
    prepare::memory(&planned, args.verify)?;
    let inputs = sources.load(ui, &planned)?;
    let outcome = match &gpu {
        Some(gpu) => run_on(ui, gpu, args, &planned, &inputs)?,
        None => run(ui, args, &planned, &inputs)?,
    };
    let backend = gpu.as_ref().map_or_else(|| format!("cpu ({})", outcome.report.isa), Gpu::description);
    let verified = match args.verify {
        true => Some(compare(ui, &planned, &inputs, &outcome)?),
        false => None,
    };
    let agrees = verified.as_ref().is_none_or(|v| v.iter().all(Verified::agrees));
    if agrees {
        write(destinations, &outcome)?;
    }
    let mut data = json(&planned, &outcome, verified.as_deref(), args.backend);
    let explanation = args.explain.then(|| explanation(&derived, &planned));
    let text = || explanation.clone().unwrap_or_default() + &text(&planned, &outcome, verified.as_deref(), &backend);
    data.explanation = explanation.clone();
    ui.result(text, &data)?;
    if agrees { Ok(()) } else { Err(Failure::Told) }
}

/// The road so far, in the order in which it is gone.
fn explanation(derived: &Derived, planned: &Planned) -> String {
    let boxes = [
        ("the derivation", einloom_algebra::explain(derived.derivation())),
        ("the plan", super::plan::text(derived, planned)),
        ("the tile program", einloom_tile::print(planned.program())),
    ];
    let mut out: String = boxes.iter().map(|(name, text)| format!("== {name}\n{text}\n")).collect();
    out += "== the run\n";
    out
}

fn run(ui: &Ui, args: &RunArgs, planned: &Planned, inputs: &BTreeMap<String, Tensor>) -> Result<Outcome, Failure> {
    let progress = Progress::start(ui, "running");
    let tell = |part: f64| progress.at(part);
    let options = RunOptions {
        threads: args.target.threads.map(|t| t as usize),
        progress: ui.shows_progress().then_some(&tell),
        ..RunOptions::default()
    };
    Ok(planned.compile()?.run(inputs, &options)?)
}

fn run_on(
    ui: &Ui,
    gpu: &Gpu,
    args: &RunArgs,
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<Outcome, Failure> {
    let program = planned.compile_for_target(gpu, &args.gpu.target(gpu)?)?;
    program.fallbacks().iter().for_each(|f| ui.note(f));
    Ok(program.run(inputs)?)
}

fn compare(
    ui: &Ui,
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
    outcome: &Outcome,
) -> Result<Vec<Verified>, Failure> {
    let progress = Progress::start(ui, "evaluating the meaning");
    Ok(verify(planned, inputs, &outcome.outputs, &mut |part| progress.at(part))?)
}

/// A file that will be written, and the outputs that go into it.
type Destined = (Destination, Format, Vec<String>);

/// Opens what will be written, before long work.
fn destinations(cascade: &Cascade, targets: &[OutputTarget]) -> Result<Vec<Destined>, Failure> {
    let names: Vec<String> = cascade.outputs.iter().map(|&o| cascade[o].name.clone()).collect();
    let mut destinations = vec![];
    for target in targets {
        let (file, tensors) = match target {
            OutputTarget::All { file } => (file, names.clone()),
            OutputTarget::One { tensor, file } if names.contains(tensor) => (file, vec![tensor.clone()]),
            OutputTarget::One { tensor, .. } => {
                let finding = Finding::error("unknown-tensor", format!("there is no output {tensor}"));
                return Err(Error::Input(finding.hint(Some(format!("the outputs are {}", names.join(", "))))).into());
            }
        };
        let format = Format::of(file)?;
        if format == Format::Npy && tensors.len() != 1 {
            let hint = format!("name one: --output {}={}", names[0], file.display());
            return Err(FileError::new(file, "a .npy file holds one array, the program has more outputs")
                .hint(hint)
                .into());
        }
        destinations.push((Destination::open(file)?, format, tensors));
    }
    Ok(destinations)
}

fn write(destinations: Vec<Destined>, outcome: &Outcome) -> Result<(), Failure> {
    let stored = |name: &String| {
        let tensor = outcome.outputs.get(name)?;
        Some((name.clone(), to_stored(tensor.dtype(), tensor.dims(), tensor.bytes().to_vec())))
    };
    for (destination, format, names) in destinations {
        let arrays: Vec<(String, Stored)> = names.iter().filter_map(stored).collect();
        destination.write(|out| match (format, arrays.as_slice()) {
            (Format::Npy, [(_, array), ..]) => write_npy(out, array),
            _ => {
                let named: Vec<(&str, &Stored)> = arrays.iter().map(|(n, a)| (n.as_str(), a)).collect();
                write_safetensors(out, &named)
            }
        })?;
    }
    Ok(())
}

fn json(planned: &Planned, outcome: &Outcome, verified: Option<&[Verified]>, backend: Backend) -> RunJson {
    let kernel = |k: &einloom_cpu::KernelReport| KernelJson {
        name: k.name.clone(),
        seconds: k.seconds,
        skipped_chunks: k.skipped_chunks,
        serial: k.serial,
    };
    let output = |(name, tensor): (&str, &Tensor)| {
        let found = verified.and_then(|all| all.iter().find(|v| v.output == name));
        let json = OutputJson {
            shape: tensor.dims().to_vec(),
            dtype: tensor.dtype().to_string(),
            max_abs_error: found.map(|v| v.distance.max_abs),
            rel_l2_error: found.map(|v| v.distance.rel_l2),
            error: found.map(|v| v.distance.scaled),
            tolerance: found.map(|v| v.tolerance.total()),
            range: found.and_then(|v| v.range.as_ref()).map(ToString::to_string),
        };
        (name.to_owned(), json)
    };
    RunJson {
        backend: match backend {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
        },
        seconds: outcome.report.seconds,
        kernels: outcome.report.kernels.iter().map(kernel).collect(),
        outputs: Ordered(outputs(planned, outcome).map(output).collect()),
        isa: outcome.report.isa,
        verified: verified.map(|all| all.iter().all(Verified::agrees)),
        explanation: None,
    }
}

/// The outputs in the order in which the program declares them.
fn outputs<'a>(planned: &'a Planned, outcome: &'a Outcome) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
    let cascade = planned.cascade();
    let names = cascade.outputs.iter().map(|&o| cascade[o].name.as_str());
    names.filter_map(|name| Some((name, outcome.outputs.get(name)?)))
}

fn text(planned: &Planned, outcome: &Outcome, verified: Option<&[Verified]>, backend: &str) -> String {
    let report = &outcome.report;
    let count = report.kernels.len();
    let mut out = format!(
        "{} on {backend}: {} in {count} kernel{}\n",
        planned.cascade().name,
        units::seconds(report.seconds),
        if count == 1 { "" } else { "s" }
    );
    for k in &report.kernels {
        out += &format!("  {}: {}", k.name, units::seconds(k.seconds));
        if k.skipped_chunks > 0 {
            out += &format!(", {} chunks skipped", k.skipped_chunks);
        }
        if let Some(why) = k.serial {
            out += &format!(", on one thread: {why}");
        }
        out.push('\n');
    }
    let mut table = Table::new(match verified {
        Some(_) => &["output", "shape", "type", "max abs error", "rel L2 error", "error", "allowed", ""],
        None => &["output", "shape", "type"],
    });
    let mut formulas = String::new();
    for (name, tensor) in outputs(planned, outcome) {
        let mut row = vec![name.to_owned(), format!("{:?}", tensor.dims()), tensor.dtype().to_string()];
        if let Some(v) = verified.and_then(|all| all.iter().find(|v| v.output == name)) {
            let number = |x: f64| format!("{x:.1e}");
            row.extend([number(v.distance.max_abs), number(v.distance.rel_l2), number(v.distance.scaled)]);
            row.extend([
                number(v.tolerance.total()),
                match v.verdict() {
                    "agrees" => "agrees",
                    "range" => "OUT OF RANGE",
                    _ => "DISAGREES",
                }
                .into(),
            ]);
            if let Some(finding) = &v.range {
                formulas += &format!("  {name}: {finding}; everything else of it agrees\n");
            }
            if v.undetermined > 0 {
                let of = "elements that the text's own rounding does not determine, excused one by one";
                formulas += &format!("  {name}: {of}: {}\n", v.undetermined);
            }
            formulas += &format!("  allowed for {name}: {}\n", v.tolerance);
        }
        table.row(row);
    }
    out += &table.text();
    if verified.is_some() {
        out += "`error` is the largest difference from the meaning, relative to the largest value of its row\n";
        out += &formulas;
    }
    out
}
