//! A cycle-level simulation of a cascade on a chip under a binding, with the real numbers.
//!
//! Tiles go through the arrays one behind the other, as far behind as the binding says. What is counted and what is
//! not:
//!
//! - **Waves.** An array issues one step at a time, which reaches the element in row `i` and column `j` after `i + j`
//!   hops. Sums over rows come out at the foot of their column, where the array below takes them up; what comes back
//!   enters at the top. So a round trip through both arrays takes as many cycles as the array has rows.
//! - **Phases** of the binding end together on all arrays, in the frame of their waves; with [`Options::free`] arrays wait
//!   only for operands.
//! - **Words** that an Einsum leaves for another stay in registers of their element, in the queue at the other array's
//!   edge, or in the buffer, as the binding says; each has its depth, and who finds no room waits.
//! - **DRAM** has one channel at its rate. It fetches ahead in the order of use as far as the buffer has room.
//! - Results that are spread over rows leave row by row, and operands spread over rows and columns enter so, on links of
//!   their own beside the computation.
//! - Not counted: conflicts between the banks of the buffer.
//!
//! Numbers are computed a tile at a time, in the order of the simulated operations, from tiles that are in the
//! simulated machine at that time; they are f64, rounded where the cascade says.

mod code;
mod engine;
mod fetch;
mod lag;
mod nest;
mod part;
mod pool;
mod report;
mod shape;
mod timing;
mod values;

pub use report::{ArrayRun, Cause, EinsumRun, KernelRun, Profile, Simulated, Wave};
pub use timing::Timing;

use crate::evaluate::layout;
use crate::{Problem, Setting};
use einloom_cascade::meaning::Arrays;
use engine::{Counts, Engine, Setup};
use nest::Nest;
use part::Part;
use shape::Sides;
use std::collections::BTreeMap;
use values::Values;

/// What a simulation leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Instances of the cascade, one after the other without a pause.
    pub instances: usize,
    /// Registers of an element by array, in place of the chip's.
    pub registers: BTreeMap<String, usize>,
    /// Depth of the queues at edges in words, in place of the chip's.
    pub queue: Option<usize>,
    /// Arrays do not wait for each other at the end of a phase.
    pub free: bool,
    /// Every wave is reported.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { instances: 1, registers: BTreeMap::new(), queue: None, free: false, trace: false }
    }
}

/// Simulates a setting; its number of instances is that of the options. With `inputs`, one set for each instance, the
/// numbers are computed too. `progress` is told how much is done, from 0 to 1.
///
/// # Errors
/// Every reason why the inputs do not fit together; what the simulator does not execute; a binding in which everything
/// waits.
pub fn simulate(
    setting: &Setting<'_>,
    options: &Options,
    inputs: Option<&[Arrays]>,
    progress: &mut dyn FnMut(f64),
) -> Result<Simulated, Vec<Problem>> {
    let layout = layout(setting)?;
    let (program, chip) = (setting.program, setting.chip);
    let sides: Vec<Sides> =
        chip.arrays.iter().map(|a| Sides::of(program, setting.binding.space.get(&a.name), a.rows, a.columns)).collect();
    let mut values = inputs.map(|i| Values::new(program, &layout.bound, i, options.instances)).transpose()?;
    let mut out = Simulated::default();
    let kernels = setting.binding.kernels.len() as f64;
    for (k, kernel) in layout.kernels.iter().enumerate() {
        let name = &setting.binding.kernels[k].name;
        let field = format!("kernel {name}");
        if let Some(tensor) = kernel.dataflow.spills.first() {
            let message = format!("{tensor} goes to DRAM and back, which is not simulated");
            let problem = Problem::new(field, message).of(&setting.binding.name);
            return Err(vec![problem.hint("simulate sizes at which it fits the buffer")]);
        }
        let nest = Nest::new(program, &layout.bound, kernel)?;
        let mut parts = part::parts(setting, k, &layout.bound, kernel, &nest)?;
        out.notes.extend(
            lag::raise(&nest, &mut parts, &|_, _| 0)
                .map_err(|all| all.into_iter().map(|p| p.of(&setting.binding.name)).collect::<Vec<_>>())?,
        );
        let setup = Setup {
            setting,
            kernel: k,
            options,
            bound: &layout.bound,
            layout: kernel,
            nest: &nest,
            parts: &parts,
            sides: &sides,
        };
        if let Some(values) = &mut values {
            values.kernel(&setup)?;
        }
        let mut engine = Engine::new(&setup);
        let done = engine.run(
            &mut |op, engine, slots, result| values.as_mut().map(|v| v.run(&setup, op, engine, slots, result)),
            &mut |part| progress((k as f64 + part) / kernels),
        );
        done.map_err(|why| vec![stuck(setting, name, &why)])?;
        let offsets = engine.offsets().to_vec();
        let run = kernel_run(&setup, engine.counts, &offsets);
        out.cycles += run.cycles;
        out.kernels.push(run);
    }
    for array in &chip.arrays {
        let busy = out.kernels.iter().flat_map(|k| &k.arrays).filter(|a| a.name == array.name).map(|a| a.busy);
        let part = busy.sum::<u64>() as f64 / out.cycles.max(1) as f64;
        out.utilisation.insert(array.name.clone(), part);
    }
    out.seconds = out.cycles as f64 / chip.clock.0;
    out.outputs = values.map(Values::outputs).unwrap_or_default();
    Ok(out)
}

/// By Einsum of a binding: how many tiles it should be behind the newest one so that nothing waits for
/// what is on its way, if a tile takes `cycles` on the busiest array. No Einsum waits for a value of another array that
/// was made in its own step.
///
/// # Errors
/// As [`simulate`].
pub fn lags(setting: &Setting<'_>, cycles: f64) -> Result<BTreeMap<String, usize>, Vec<Problem>> {
    let layout = layout(setting)?;
    let (program, chip) = (setting.program, setting.chip);
    let sides: Vec<Sides> =
        chip.arrays.iter().map(|a| Sides::of(program, setting.binding.space.get(&a.name), a.rows, a.columns)).collect();
    let options = Options::default();
    let mut out = BTreeMap::new();
    for (k, kernel) in layout.kernels.iter().enumerate() {
        let nest = Nest::new(program, &layout.bound, kernel)?;
        let mut parts = part::parts(setting, k, &layout.bound, kernel, &nest)?;
        let latencies = {
            let (bound, parts) = (&layout.bound, parts.as_slice());
            let (nest, sides) = (&nest, sides.as_slice());
            let setup = Setup { setting, kernel: k, options: &options, bound, layout: kernel, nest, parts, sides };
            engine::latencies(&setup)
        };
        let more = |p: usize, r: usize| match latencies[p][r] {
            None => 0,
            Some(latency) => 1 + (latency.max(0) as f64 / cycles.max(1.0)).ceil() as i64,
        };
        // Where a recurrence is shorter than the way, waiting cannot be avoided.
        parts.iter_mut().for_each(|p| p.lag = 0);
        if lag::raise(&nest, &mut parts, &more).is_ok() {
            lag::delay(&nest, &mut parts, &more);
        } else {
            parts.iter_mut().for_each(|p| p.lag = p.given_lag.unwrap_or(0));
            lag::raise(&nest, &mut parts, &|_, _| 0)?;
        }
        out.extend(parts.iter().filter(|p| p.lag > 0).map(|p| (p.einsum.name.clone(), p.lag)));
    }
    Ok(out)
}

fn stuck(setting: &Setting<'_>, kernel: &str, why: &str) -> Problem {
    let problem =
        Problem::new(format!("kernel {kernel}"), format!("everything waits: {why}")).of(&setting.binding.name);
    problem.hint("give the elements more registers, the edges longer queues, or let the waiting Einsum run elsewhere")
}

fn kernel_run(setup: &Setup<'_>, counts: Counts, offsets: &[i64]) -> KernelRun {
    let chip = setup.setting.chip;
    let kernel = &setup.setting.binding.kernels[setup.kernel];
    let mut traces = counts.trace.into_iter();
    let mut arrays = vec![];
    for ((array, of), (registers, offset)) in
        counts.arrays.into_iter().zip(&chip.arrays).zip(counts.registers.iter().zip(offsets))
    {
        let mut stalls = array.stalls;
        let idle = counts.cycles.saturating_sub(array.busy + stalls.values().sum::<u64>());
        if idle > 0 {
            *stalls.entry(Cause::End).or_default() += idle;
        }
        arrays.push(ArrayRun {
            name: of.name.clone(),
            busy: array.busy,
            elements: array.used / counts.cycles.max(1) as f64,
            cycles_per_tile: array.steady.cycles_per_group().map(|c| c * kernel.phases.len() as f64),
            stalls,
            profile: array.profile,
            registers: *registers,
            offset: *offset,
            trace: traces.next().unwrap_or_default(),
        });
    }
    let queue = |part: &Part<'_>| {
        let own = counts.queues.iter().filter(|((name, _), _)| *name == part.einsum.name);
        own.map(|q| *q.1).max().unwrap_or(0)
    };
    let einsums = setup.parts.iter().zip(&counts.busy).map(|(part, busy)| EinsumRun {
        name: part.einsum.name.clone(),
        array: chip.arrays[part.array].name.clone(),
        busy: *busy,
        lag: part.lag,
        queue: queue(part),
    });
    KernelRun {
        name: kernel.name.clone(),
        cycles: counts.cycles,
        tiles: setup.nest.tiles() * setup.options.instances,
        einsums: einsums.collect(),
        arrays,
        dram_busy: counts.dram_busy,
        traffic_bytes: counts.dram_words * chip.word.0,
        buffer_bytes: counts.buffer_peak,
    }
}
