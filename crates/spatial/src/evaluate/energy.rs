//! Energy: how often each unit, register, buffer row and byte of DRAM is used, times what that takes.

use super::Energy;
use super::access::accesses;
use super::cycles::KernelCycles;
use super::dataflow::Flow;
use super::setup::Setup;
use crate::{Array, Einsum, Operation};

/// Energy of one kernel, in joules.
pub(super) struct KernelEnergy {
    pub sum: Energy,
    /// Of each Einsum's operations, in the order of its cycles.
    pub einsums: Vec<f64>,
}

pub(super) fn kernel(setup: &Setup<'_>, k: usize, cost: &KernelCycles<'_>, flow: &Flow<'_>) -> KernelEnergy {
    let chip = setup.setting.chip;
    let mut out = KernelEnergy { sum: Energy::default(), einsums: vec![] };
    for e in &cost.einsums {
        let Some(array) = chip.array(e.array) else { continue };
        let joules = compute(setup, e.einsum, array);
        out.sum.compute += joules;
        out.einsums.push(joules);
        out.sum.registers += registers(setup, array, e.cycles);
    }
    out.sum.dram = flow.traffic_bytes * chip.dram.energy.0;
    let words = accesses(setup, k, cost, flow);
    let rows = chip.word.0 as f64 / chip.buffer.row.0 as f64;
    out.sum.buffer = ((words.read + words.again) * chip.buffer.read.0 + words.written * chip.buffer.write.0) * rows;
    out
}

fn compute(setup: &Setup<'_>, einsum: &Einsum, array: &Array) -> f64 {
    let chip = setup.setting.chip;
    let mut sum = 0.0;
    for work in &einsum.work {
        let points: f64 = work.ranks.iter().map(|r| setup.bound.size(*r) as f64).product();
        let parts: &[Operation] = match work.operation {
            Operation::SubtractExponential => &[Operation::Subtract, Operation::Exponential],
            _ => &[],
        };
        let joules = if parts.iter().any(|p| setup.is_uncharged(p)) {
            let charged = parts.iter().filter(|p| !setup.is_uncharged(p));
            charged.filter_map(|p| array.cost(p, false)).map(|c| chip.energy(&c).0).sum()
        } else if setup.is_uncharged(&work.operation) {
            0.0
        } else {
            array.cost(&work.operation, setup.is_split(&work.operation)).map_or(0.0, |c| chip.energy(&c).0)
        };
        sum += points * joules;
    }
    sum * setup.setting.instances
}

/// Registers of busy elements; those of one element where that fault is kept.
fn registers(setup: &Setup<'_>, array: &Array, cycles: f64) -> f64 {
    let Some(r) = array.element.registers else { return 0.0 };
    let faults = &setup.setting.chip.faults;
    let one = faults.iter().any(|(name, f)| f.registers_of_one_element && setup.setting.faults.contains(name));
    let elements = if one { 1.0 } else { array.elements() as f64 };
    cycles * elements * (r.reads_per_cycle * r.read.0 + r.writes_per_cycle * r.write.0)
}
