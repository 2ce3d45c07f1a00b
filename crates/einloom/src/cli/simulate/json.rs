//! Simulations as data.

use super::tables::{closed_cycles, cycles_per_tile};
use super::{Outcome, SimulateArgs};
use einloom_spatial::{Simulated, Study};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub(super) struct Json {
    study: String,
    instances: u32,
    runs: Vec<OutcomeJson>,
}

#[derive(Debug, Serialize)]
struct OutcomeJson {
    configuration: String,
    sizes: BTreeMap<String, usize>,
    closed_form: ClosedJson,
    simulated: RunJson,
    /// With tiles so far apart that nothing waits for what is on its way.
    further_apart: Option<RunJson>,
    /// From the meaning, relative to the largest value.
    error: Option<f64>,
    depths: Vec<DepthJson>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ClosedJson {
    cycles: f64,
    seconds: f64,
    traffic_bytes: f64,
    utilisation: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
struct RunJson {
    cycles: u64,
    seconds: f64,
    traffic_bytes: u64,
    utilisation: BTreeMap<String, f64>,
    cycles_per_tile: Option<f64>,
    kernels: Vec<KernelJson>,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    cycles: u64,
    tiles: usize,
    dram_busy_cycles: f64,
    buffer_bytes: u64,
    arrays: BTreeMap<String, ArrayJson>,
    lags: BTreeMap<String, usize>,
    queues: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct ArrayJson {
    busy: u64,
    /// The part of element-cycles in which an element computes.
    elements: f64,
    cycles_per_tile: Option<f64>,
    stalls: BTreeMap<&'static str, u64>,
    registers: u64,
    profile: ProfileJson,
}

#[derive(Debug, Serialize)]
struct ProfileJson {
    interval: u64,
    busy: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct DepthJson {
    registers: usize,
    cycles: Option<u64>,
    utilisation: Option<BTreeMap<String, f64>>,
}

pub(super) fn outcomes(study: &Study, args: &SimulateArgs, all: &[Outcome]) -> Json {
    Json { study: study.name.clone(), instances: args.instances, runs: all.iter().map(outcome).collect() }
}

fn outcome(o: &Outcome) -> OutcomeJson {
    let depth = |(registers, run): &(usize, Option<Simulated>)| DepthJson {
        registers: *registers,
        cycles: run.as_ref().map(|r| r.cycles),
        utilisation: run.as_ref().map(|r| r.utilisation.clone()),
    };
    OutcomeJson {
        configuration: o.configuration.name.clone(),
        sizes: o.sizes.clone(),
        closed_form: ClosedJson {
            cycles: closed_cycles(o),
            seconds: o.closed.seconds,
            traffic_bytes: o.closed.traffic_bytes,
            utilisation: o.closed.utilisation.clone(),
        },
        simulated: run(&o.run),
        further_apart: o.relaxed.as_ref().map(|r| run(&r.0)),
        error: o.error,
        depths: o.depths.iter().map(depth).collect(),
        notes: o.notes.clone(),
    }
}

fn run(r: &Simulated) -> RunJson {
    let kernel = |k: &einloom_spatial::KernelRun| KernelJson {
        name: k.name.clone(),
        cycles: k.cycles,
        tiles: k.tiles,
        dram_busy_cycles: k.dram_busy,
        buffer_bytes: k.buffer_bytes,
        arrays: k.arrays.iter().map(|a| (a.name.clone(), array(a))).collect(),
        lags: k.einsums.iter().map(|e| (e.name.clone(), e.lag)).collect(),
        queues: k.einsums.iter().filter(|e| e.queue > 0).map(|e| (e.name.clone(), e.queue)).collect(),
    };
    RunJson {
        cycles: r.cycles,
        seconds: r.seconds,
        traffic_bytes: r.traffic_bytes(),
        utilisation: r.utilisation.clone(),
        cycles_per_tile: cycles_per_tile(r),
        kernels: r.kernels.iter().map(kernel).collect(),
    }
}

fn array(a: &einloom_spatial::ArrayRun) -> ArrayJson {
    ArrayJson {
        busy: a.busy,
        elements: a.elements,
        cycles_per_tile: a.cycles_per_tile,
        stalls: a.stalls.iter().map(|(c, n)| (c.name(), *n)).collect(),
        registers: a.registers,
        profile: ProfileJson { interval: a.profile.interval, busy: a.profile.busy.clone() },
    }
}
