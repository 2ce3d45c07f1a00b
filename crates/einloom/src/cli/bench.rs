//! `einloom bench`: how fast it runs, next to how fast it should.

use super::args::{Backend, BenchArgs, Source};
use super::data::Sources;
use super::failure::Failure;
use super::progress::Progress;
use super::ui::Ui;
use super::{prepare, source, suite, units};
use einloom::gpu::{Gpu, GpuProgram};
use einloom::{Error, Planned, RunOptions, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(crate) struct BenchJson {
    median_seconds: f64,
    seconds: Vec<f64>,
    predicted_seconds: f64,
    flops: f64,
    bytes: u64,
    /// Of one run, on a GPU.
    host_seconds_per_launch: Option<f64>,
    /// Which way a GPU goes.
    path: Option<PathJson>,
}

#[derive(Debug, Serialize)]
struct PathJson {
    arch: String,
    kernels: usize,
    bulk_copied: usize,
    fallbacks: Vec<String>,
}

pub(crate) fn command(ui: &mut Ui, args: &BenchArgs) -> Result<(), Failure> {
    let gpu = (args.backend == Backend::Cuda).then(Gpu::open).transpose()?;
    if let Some(path) = &args.suite {
        return suite::command(ui, args, gpu.as_ref(), path);
    }
    // The grammar lets nothing else through.
    let Some(file) = args.file.clone() else { return Err(Failure::usage("no program is given", "name a file")) };
    let derived = source::checked(ui, &Source { file })?.derive();
    let sources = Sources::open(ui, derived.cascade(), &args.inputs)?;
    let given = prepare::given(&args.sizing, sources.shapes())?;
    let arch = gpu.as_ref().map(|gpu| args.gpu.target(gpu)).transpose()?.map(|t| t.arch);
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, args.backend, arch)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    prepare::memory(&planned, false)?;
    let inputs = sources.load(ui, &planned)?;
    let data = match &gpu {
        Some(gpu) => {
            let program = planned.compile_for_target(gpu, &args.gpu.target(gpu)?)?;
            on_the_gpu(args, &planned, &program, &inputs, &mut gpu.evicting_memory()?)?
        }
        None => on_the_processor(ui, args, &planned, &inputs)?,
    };
    ui.result(|| text(&planned.cascade().name, &data), &data)
}

/// The measurement for people.
pub(crate) fn text(name: &str, data: &BenchJson) -> String {
    let median = data.median_seconds;
    let best = data.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let mut out = format!(
        "{name}: median {} of {} runs, best {}\n  {}, {} of compulsory traffic, {} predicted\n",
        units::seconds(median),
        data.seconds.len(),
        units::seconds(best),
        units::rate(data.flops / median, "FLOP/s"),
        units::rate(data.bytes as f64 / median, "B/s"),
        units::seconds(data.predicted_seconds),
    );
    if let (Some(host), Some(path)) = (data.host_seconds_per_launch, &data.path) {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        out += &format!(
            "  {} of the host per launch; {}, {} with bulk copies, {} for {}\n",
            units::seconds(host),
            count(path.kernels, "kernel"),
            path.bulk_copied,
            count(path.fallbacks.len(), "slower way"),
            path.arch,
        );
    }
    out
}

/// What a planned program should take, with the times that it took.
fn measured(planned: &Planned, seconds: Vec<f64>) -> BenchJson {
    let transfers = planned.transfers();
    BenchJson {
        median_seconds: median(&seconds),
        seconds,
        predicted_seconds: planned.seconds(),
        flops: transfers.iter().map(|k| k.flops).sum(),
        bytes: planned.compulsory_bytes(),
        host_seconds_per_launch: None,
        path: None,
    }
}

/// Times a program on a GPU; `evicting` is what [`Gpu::evicting_memory`] gives.
pub(crate) fn on_the_gpu(
    args: &BenchArgs,
    planned: &Planned,
    program: &GpuProgram<'_>,
    inputs: &BTreeMap<String, Tensor>,
    evicting: &mut einloom_cuda::runtime::Buffer,
) -> Result<BenchJson, Error> {
    let times = program.time(inputs, args.warmup, args.repeat, evicting)?;
    let path = program.path();
    let path = PathJson {
        arch: path.arch.to_string(),
        kernels: path.kernels,
        bulk_copied: path.bulk_copied,
        fallbacks: program.fallbacks(),
    };
    let host_seconds_per_launch = Some(median(&times.host));
    Ok(BenchJson { host_seconds_per_launch, path: Some(path), ..measured(planned, times.device) })
}

/// Times a program on this computer's processor.
pub(crate) fn on_the_processor(
    ui: &Ui,
    args: &BenchArgs,
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<BenchJson, Error> {
    let compiled = planned.compile()?;
    let mut outputs = compiled.outputs()?;
    let options = RunOptions { threads: args.target.threads.map(|t| t as usize), ..RunOptions::default() };
    let progress = Progress::start(ui, "timing");
    let total = args.warmup + args.repeat;
    let mut seconds = vec![];
    for k in 0..total {
        progress.at(f64::from(k) / f64::from(total));
        let report = compiled.run_into(inputs, &mut outputs, &options)?;
        if k >= args.warmup {
            seconds.push(report.seconds);
        }
    }
    Ok(measured(planned, seconds))
}

fn median(seconds: &[f64]) -> f64 {
    if seconds.is_empty() {
        return 0.0;
    }
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(super::median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(super::median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
