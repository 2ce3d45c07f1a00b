//! Energy: how often each unit, register, buffer row and byte of DRAM is used, times what that takes.

use super::Energy;
use super::cycles::KernelCycles;
use super::dataflow::Flow;
use super::setup::Setup;
use crate::{Array, Einsum, Operation};
use einloom_algebra::NodeId;
use einloom_cascade::RankId;
use std::collections::BTreeSet;

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
    let per_row = chip.buffer.row.0 as f64 / chip.word.0 as f64;
    let (mut reads, mut writes) = (flow.words_out, flow.words_in);
    let buffered = buffered(setup, k, flow);
    for e in &cost.einsums {
        for &operand in &e.einsum.operands {
            if buffered.contains(&operand) || buffered.contains(&setup.setting.program.root(operand)) {
                reads += words_read(setup, k, e.einsum, operand);
            }
        }
        if buffered.contains(&e.einsum.node) {
            writes += words(setup, &setup.setting.program.dims(e.einsum.node), &e.einsum.ranks);
        }
    }
    out.sum.buffer = (reads * chip.buffer.read.0 + writes * chip.buffer.write.0) / per_row;
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

/// What goes through the buffer: what comes from outside the kernel, what is held, what goes through by the binding.
fn buffered(setup: &Setup<'_>, k: usize, flow: &Flow<'_>) -> BTreeSet<NodeId> {
    let program = setup.setting.program;
    let kernel = &setup.setting.binding.kernels[k];
    let named = kernel.through.iter().chain(&flow.dataflow.holds).chain(&flow.dataflow.whole);
    let mut out: BTreeSet<NodeId> = named.filter_map(|n| program.node(n)).collect();
    for einsum in &program.einsums {
        let here = setup.kernel_of.get(&einsum.node) == Some(&k);
        for &operand in &einsum.operands {
            let root = program.root(operand);
            // Crosses the kernel's border in one direction or the other.
            if here != (setup.kernel_of.get(&root) == Some(&k)) {
                out.insert(root);
            }
        }
        if here && program.graph.outputs.contains(&einsum.node) {
            out.insert(einsum.node);
        }
    }
    out
}

/// Words of an operand that an Einsum reads from the buffer: what a tile needs, for every tile.
fn words_read(setup: &Setup<'_>, k: usize, einsum: &Einsum, operand: NodeId) -> f64 {
    let dims = setup.setting.program.dims(operand);
    let tiles = &setup.tiles[k];
    let again = einsum.ranks.iter().filter(|r| !dims.contains(r));
    let times: f64 = again.filter_map(|r| tiles.get(r).map(|&n| setup.pieces(*r, n) as f64)).product();
    words(setup, &dims, &einsum.ranks) * times
}

/// Elements of a tensor as seen from an iteration space: of a rank that it does not have, one position is read.
fn words(setup: &Setup<'_>, dims: &[RankId], space: &[RankId]) -> f64 {
    let sizes = dims.iter().filter(|r| space.contains(r)).map(|r| setup.bound.size(*r) as f64);
    sizes.product::<f64>() * setup.setting.instances
}
