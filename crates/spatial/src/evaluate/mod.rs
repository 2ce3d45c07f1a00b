//! What a cascade costs on a chip under a binding: cycles per Einsum and array, DRAM traffic, energy.
//!
//! The arrays' time is the published model's: Einsums of a phase run at the same time on different arrays and one after
//! the other on the same array, and every array is as busy as its iterations say. Filling, draining and latency are
//! counted only where the binding says that they are waited for.

mod access;
mod cycles;
mod dataflow;
mod energy;
mod layout;
mod setup;

pub(crate) use layout::{KernelLayout, layout};
pub(crate) use setup::fill_up;
pub use setup::{check, filled_up};

use crate::{Binding, Chip, Problem, Program};
use einloom_machine::Joules;
use std::collections::{BTreeMap, BTreeSet};

/// What is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The Einsums.
    pub program: &'a Program,
    /// What they run on.
    pub chip: &'a Chip,
    /// How.
    pub binding: &'a Binding,
    /// Sizes by rank; names that the cascade does not have are left out.
    pub sizes: &'a BTreeMap<String, usize>,
    /// How many instances of the cascade there are, such as batch times heads.
    pub instances: f64,
    /// Names of the faults that are kept.
    pub faults: &'a BTreeSet<String>,
}

/// What it costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// From the first operation to the last.
    pub seconds: f64,
    /// Between DRAM and the buffer, both directions.
    pub traffic_bytes: f64,
    /// All energy.
    pub energy: Energy,
    /// By array: the part of the time in which it computes.
    pub utilisation: BTreeMap<String, f64>,
    /// In the order in which they run.
    pub kernels: Vec<KernelCost>,
    /// In the order of the binding.
    pub einsums: Vec<EinsumCost>,
    /// What the reader should know about these figures.
    pub notes: Vec<String>,
}

/// Energy by where it is spent, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    /// Functional units.
    pub compute: f64,
    /// DRAM.
    pub dram: f64,
    /// The shared buffer.
    pub buffer: f64,
    /// Registers of the elements.
    pub registers: f64,
}

/// What one kernel costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCost {
    /// Its name.
    pub name: String,
    /// The longer of arrays and DRAM.
    pub seconds: f64,
    /// Of the arrays.
    pub compute_seconds: f64,
    /// Of DRAM.
    pub dram_seconds: f64,
    /// Cycles of the arrays.
    pub cycles: f64,
    /// Tiles of all instances.
    pub tiles: f64,
    /// Between DRAM and the buffer, both directions.
    pub traffic_bytes: f64,
    /// How many blocks the outermost rank is cut into; 1 if it is not cut.
    pub blocks: usize,
    /// Tiles of a block along that rank.
    pub block_tiles: usize,
    /// What the buffer holds at the most, in bytes.
    pub held_bytes: f64,
}

/// What one Einsum costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EinsumCost {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub array: String,
    /// For which the array computes it, in all.
    pub cycles: f64,
    /// The part of the whole time in which the array computes it.
    pub utilisation: f64,
    /// Of its operations.
    pub energy: Joules,
}

impl Energy {
    /// The sum, in joules.
    pub fn total(&self) -> f64 {
        self.compute + self.dram + self.buffer + self.registers
    }
}

/// Evaluates the published model on these inputs.
///
/// # Errors
/// Every reason why the inputs do not fit together.
pub fn evaluate(setting: &Setting<'_>) -> Result<Evaluation, Vec<Problem>> {
    let setup = setup::setup(setting)?;
    let mut out = Evaluation { notes: setup.notes.clone(), ..Evaluation::default() };
    let mut problems = vec![];
    let mut busy: BTreeMap<&str, f64> = BTreeMap::new();
    for (k, kernel) in setting.binding.kernels.iter().enumerate() {
        let cost = cycles::kernel(&setup, kernel);
        let flow = match dataflow::choose(&setup, k, &cost) {
            Ok(flow) => flow,
            Err(found) => {
                problems.extend(found);
                continue;
            }
        };
        out.traffic_bytes += flow.traffic_bytes;
        let compute_seconds = cost.cycles / setting.chip.clock.0;
        let seconds = compute_seconds.max(flow.seconds);
        out.seconds += seconds;
        for e in &cost.einsums {
            *busy.entry(e.array).or_default() += e.cycles;
        }
        let energy = energy::kernel(&setup, k, &cost, &flow);
        out.energy.add(&energy.sum);
        out.einsums.extend(cost.einsums.iter().zip(energy.einsums).map(|(e, joules)| EinsumCost {
            name: e.einsum.name.clone(),
            array: e.array.to_owned(),
            cycles: e.cycles,
            utilisation: 0.0,
            energy: Joules(joules),
        }));
        out.kernels.push(KernelCost {
            name: kernel.name.clone(),
            seconds,
            compute_seconds,
            dram_seconds: flow.seconds,
            cycles: cost.cycles,
            tiles: cost.tiles,
            traffic_bytes: flow.traffic_bytes,
            blocks: flow.blocks,
            block_tiles: flow.block_tiles,
            held_bytes: flow.held_bytes,
        });
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let cycles = setting.chip.clock.0 * out.seconds;
    let part = |busy: f64| if cycles > 0.0 { busy / cycles } else { 0.0 };
    for e in &mut out.einsums {
        e.utilisation = part(e.cycles);
    }
    let of = |name: &str| part(busy.get(name).copied().unwrap_or(0.0));
    out.utilisation = setting.chip.arrays.iter().map(|a| (a.name.clone(), of(&a.name))).collect();
    Ok(out)
}

impl Energy {
    fn add(&mut self, other: &Self) {
        self.compute += other.compute;
        self.dram += other.dram;
        self.buffer += other.buffer;
        self.registers += other.registers;
    }
}
