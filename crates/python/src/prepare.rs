//! From a signature to a planned program.

use crate::failure::Failure;
use crate::signature::{Place, Signature};
use einloom::{Derived, PlanOptions, Planned};
use einloom_cascade::{Cascade, DType, Given};
use einloom_machine::Machine;
use einloom_model::KernelTransfers;
use einloom_plan::PlannedKernel;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What the caller chose when the program was compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// No liberties with rounding.
    pub exact: bool,
    /// Whether floating-point arrays may replace declared number types.
    pub follow: bool,
    /// Threads on the processor; all of them if `None`.
    pub threads: Option<usize>,
    /// Sizes by rank, for ranks that no input has.
    pub sizes: BTreeMap<String, usize>,
    /// Parameters.
    pub params: BTreeMap<String, f64>,
    /// A machine to plan for in place of the one at hand.
    pub machine: Option<String>,
    /// Tile sizes by index, in place of the planner's.
    pub tiles: BTreeMap<String, usize>,
}

impl Choices {
    /// Threads on the processor.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(crate::pool::most).max(1)
    }
}

/// Values of parameters and sizes that belong to one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub sizes: BTreeMap<String, usize>,
    pub params: BTreeMap<String, f64>,
}

/// The program with declared number types replaced.
pub(crate) fn retyped(cascade: &Cascade, follows: &BTreeMap<DType, DType>) -> Cascade {
    let mut out = cascade.clone();
    for tensor in &mut out.tensors {
        tensor.dtype = tensor.dtype.map(|d| follows.get(&d).copied().unwrap_or(d));
    }
    out
}

/// The derived program with declared number types replaced.
pub(crate) fn derived(cascade: &Cascade, follows: &BTreeMap<DType, DType>) -> Derived {
    Derived::from_derivation(einloom_algebra::derive(&retyped(cascade, follows)))
}

/// The sizes and parameters of a call: those of its arrays, its own, the program's.
pub(crate) fn given(choices: &Choices, extra: &Extra, shapes: BTreeMap<String, Vec<usize>>) -> Given {
    let mut out = Given { sizes: choices.sizes.clone(), params: choices.params.clone(), shapes };
    out.sizes.extend(extra.sizes.clone());
    out.params.extend(extra.params.clone());
    out
}

/// Plans for a machine, with the liberties that its backend takes.
pub(crate) fn planned(
    derived: &Derived,
    given: &Given,
    choices: &Choices,
    machine: &Machine,
    options: PlanOptions,
) -> Result<Planned, Failure> {
    // Matrix units multiply narrow types: the one liberty of the language, unless forbidden.
    let narrow_contractions = einloom::machines::rounds_wider_factors(machine) && !choices.exact;
    let options = PlanOptions { exact: choices.exact, narrow_contractions, ..options };
    Ok(derived.plan(given, machine, &options)?)
}

/// The machine to plan for at a place.
pub(crate) fn machine(choices: &Choices, place: Place) -> Result<Machine, Failure> {
    if let Some(name) = &choices.machine {
        return Ok(einloom::machines::find(name)?);
    }
    match place {
        Place::Cpu => Ok(einloom::machines::with_cores(host().clone(), choices.threads())),
        Place::Cuda(number) => crate::gpu::machine(number),
    }
}

/// This computer, looked at once.
pub(crate) fn host() -> &'static Machine {
    static HOST: OnceLock<Machine> = OnceLock::new();
    HOST.get_or_init(einloom::host::machine)
}

/// The predicted time of all kernels, in seconds.
pub(crate) fn seconds(planned: &Planned) -> f64 {
    // A core's model knows more than bytes and operations.
    let one = |(k, t): (&PlannedKernel, &KernelTransfers)| k.gpu.as_ref().map_or(t.seconds, |g| g.seconds);
    planned.kernels().iter().zip(planned.transfers()).map(one).sum()
}

/// The tile of every index that is tiled alike in all kernels, shares apart: how many there are is planned for the sizes at hand.
pub(crate) fn tiles(planned: &Planned) -> BTreeMap<String, usize> {
    let mut out: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (name, tile) in planned.kernels().iter().flat_map(|k| k.group.iter().chain(&k.stream)) {
        out.entry(name.clone()).and_modify(|t| *t = t.filter(|t| t == tile)).or_insert(Some(*tile));
    }
    planned.shares().iter().flat_map(|s| &s.called).for_each(|own| _ = out.remove(own));
    out.into_iter().filter_map(|(name, tile)| Some((name, tile?))).collect()
}

/// How many shares reductions over each index have.
pub(crate) fn shares(planned: &Planned) -> BTreeMap<String, usize> {
    planned.shares().iter().map(|s| (s.index.clone(), s.count)).collect()
}

/// A signature's plan.
pub(crate) fn plan_for(
    cascade: &Cascade,
    signature: &Signature,
    choices: &Choices,
    extra: &Extra,
    options: PlanOptions,
) -> Result<Planned, Failure> {
    let derived = derived(cascade, &signature.follows);
    let given = given(choices, extra, signature.shapes.clone());
    planned(&derived, &given, choices, &machine(choices, signature.place)?, options)
}
