//! Cycles: iterations over what an array computes at once, times what the operations take.

use super::setup::Setup;
use crate::{Einsum, Kernel};
use einloom_cascade::RankId;

/// Cycles of one kernel.
pub(super) struct KernelCycles<'a> {
    /// From its first phase of the first tile to its last phase of the last.
    pub cycles: f64,
    /// Tiles of all instances.
    pub tiles: f64,
    /// What ran where, in the binding's order.
    pub einsums: Vec<EinsumCycles<'a>>,
}

/// Cycles of one Einsum.
pub(super) struct EinsumCycles<'a> {
    pub einsum: &'a Einsum,
    pub array: &'a str,
    /// Which phase of the kernel it runs in.
    pub phase: usize,
    /// All instances together.
    pub cycles: f64,
}

/// A phase lasts as long as its busiest array over the whole run: what comes once in many tiles is spread over them.
pub(super) fn kernel<'a>(setup: &Setup<'a>, kernel: &'a Kernel) -> KernelCycles<'a> {
    let tiles = tiles(setup, kernel);
    let mut out = KernelCycles { cycles: 0.0, tiles, einsums: vec![] };
    for (at, phase) in kernel.phases.iter().enumerate() {
        if let Some(array) = phase.drains.as_ref().and_then(|a| setup.setting.chip.array(a)) {
            out.cycles += tiles * array.rows as f64;
        }
        let mut longest: f64 = 0.0;
        for (array, names) in &phase.runs {
            let mut sum = 0.0;
            for einsum in names.iter().filter_map(|n| setup.setting.program.einsum(n)) {
                let cycles = einsum_cycles(setup, einsum, array);
                sum += cycles;
                out.einsums.push(EinsumCycles { einsum, array, phase: at, cycles });
            }
            longest = longest.max(sum);
        }
        out.cycles += longest;
    }
    out
}

fn tiles(setup: &Setup<'_>, kernel: &Kernel) -> f64 {
    let cascade = &setup.setting.program.graph.cascade;
    let chip = setup.setting.chip;
    let pieces = kernel
        .tile
        .iter()
        .filter_map(|(rank, extent)| Some(setup.pieces(cascade.rank(rank)?, extent.on(chip)?) as f64));
    pieces.product::<f64>() * setup.setting.instances
}

fn einsum_cycles(setup: &Setup<'_>, einsum: &Einsum, array: &str) -> f64 {
    einsum_cycles_at(setup, einsum, array, &|r| setup.bound.size(r))
}

fn einsum_cycles_at(setup: &Setup<'_>, einsum: &Einsum, array: &str, size: &dyn Fn(RankId) -> usize) -> f64 {
    let Some(on) = setup.setting.chip.array(array) else { return 0.0 };
    let at_once = setup.space.get(array);
    let mut sum = 0.0;
    for work in &einsum.work {
        let Some(cost) = on.cost(&work.operation, setup.is_split(&work.operation)) else { continue };
        let steps = work.ranks.iter().map(|r| {
            let n = at_once.and_then(|s| s.get(r)).copied().unwrap_or(1);
            size(*r).div_ceil(n.max(1)) as f64
        });
        sum += steps.product::<f64>() * cost.cycles;
    }
    sum * setup.setting.instances
}

/// Cycles of one array's Einsums in a kernel, one after the other, with ranks of these sizes.
pub(super) fn array_cycles(setup: &Setup<'_>, kernel: &Kernel, array: &str, size: &dyn Fn(RankId) -> usize) -> f64 {
    let names = kernel.phases.iter().filter_map(|p| p.runs.get(array)).flatten();
    let einsums = names.filter_map(|n| setup.setting.program.einsum(n));
    einsums.map(|e| einsum_cycles_at(setup, e, array, size)).sum()
}
