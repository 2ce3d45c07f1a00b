//! `einloom bench`: how fast it runs, next to how fast it should.

use super::args::{Backend, BenchArgs};
use super::data::Sources;
use super::failure::Failure;
use super::progress::Progress;
use super::ui::Ui;
use super::{prepare, source, units};
use einloom::gpu::Gpu;
use einloom::{Planned, RunOptions, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct BenchJson {
    median_seconds: f64,
    seconds: Vec<f64>,
    predicted_seconds: f64,
    flops: f64,
    bytes: u64,
}

pub(crate) fn command(ui: &mut Ui, args: &BenchArgs) -> Result<(), Failure> {
    let gpu = (args.backend == Backend::Cuda).then(Gpu::open).transpose()?;
    let derived = source::checked(ui, &args.source)?.derive();
    let sources = Sources::open(ui, derived.cascade(), &args.inputs)?;
    let given = prepare::given(&args.sizing, sources.shapes())?;
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, args.backend)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    prepare::memory(&planned, false)?;
    let inputs = sources.load(ui, &planned)?;
    let seconds = match &gpu {
        Some(gpu) => planned.compile_for(gpu)?.time(&inputs, args.warmup, args.repeat)?,
        None => on_the_processor(ui, args, &planned, &inputs)?,
    };
    let median = median(&seconds);
    let transfers = planned.transfers();
    let predicted: f64 = transfers.iter().map(|k| k.seconds).sum();
    let flops: f64 = transfers.iter().map(|k| k.flops).sum();
    let bytes: u64 = planned.compulsory_bytes();
    let text = || {
        let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        format!(
            "{}: median {} of {} runs, best {}\n  {}, {} of compulsory traffic, {} predicted\n",
            planned.cascade().name,
            units::seconds(median),
            seconds.len(),
            units::seconds(best),
            units::rate(flops / median, "FLOP/s"),
            units::rate(bytes as f64 / median, "B/s"),
            units::seconds(predicted),
        )
    };
    let data =
        BenchJson { median_seconds: median, seconds: seconds.clone(), predicted_seconds: predicted, flops, bytes };
    ui.result(text, &data)
}

fn on_the_processor(
    ui: &Ui,
    args: &BenchArgs,
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<Vec<f64>, Failure> {
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
    Ok(seconds)
}

fn median(seconds: &[f64]) -> f64 {
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
