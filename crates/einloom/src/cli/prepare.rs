//! From arguments to a planned program.

use super::args::{Backend, Sizing, Stage, Target};
use super::failure::Failure;
use super::ui::Ui;
use super::units;
use super::values::{Assignment, Count};
use einloom::{Derived, Error, Finding, PlanOptions, Planned};
use einloom_cascade::{Cascade, Given, bind};
use einloom_cuda::Arch;
use einloom_machine::Machine;
use einloom_plan::PlanError;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Sizes and parameters from the command line, shapes from files.
pub(crate) fn given(sizing: &Sizing, shapes: BTreeMap<String, Vec<usize>>) -> Result<Given, Failure> {
    let mut given = Given { shapes, ..Given::default() };
    let mut conflicts = vec![];
    for a in &sizing.sizes {
        match given.sizes.entry(a.rank.clone()) {
            Entry::Occupied(e) if *e.get() != a.size => {
                let message = format!("{} is {} by one --size, but {} by another", a.rank, e.get(), a.size);
                conflicts.push(Finding::error("contradictory-size", message));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(e) => {
                e.insert(a.size);
            }
        }
    }
    for p in &sizing.params {
        if let Some(before) = given.params.insert(p.name.clone(), p.value)
            && before.to_bits() != p.value.to_bits()
        {
            let message = format!("{} is {before} by one --param, but {} by another", p.name, p.value);
            conflicts.push(Finding::error("contradictory-param", message));
        }
    }
    match conflicts.into_iter().next() {
        None => Ok(given),
        Some(conflict) => Err(Error::Input(conflict.hint(Some("give it once"))).into()),
    }
}

/// Refuses sizes of 0, over which there is nothing to plan, and sizes that leave no output an element; a program can be run over them.
pub(crate) fn not_empty(cascade: &Cascade, sizing: &Sizing, given: &Given) -> Result<(), Failure> {
    let refused =
        |message: String, hint: &str| Err(Error::Input(Finding::error("empty-size", message).hint(Some(hint))).into());
    if let Some(a) = sizing.sizes.iter().find(|a| a.size == 0) {
        let message = format!("{} is 0: nothing moves and nothing is computed", a.rank);
        return refused(message, "a size to plan for is at least 1");
    }
    // What does not bind is told with more words than these.
    let Ok(bound) = bind(cascade, given) else { return Ok(()) };
    if cascade.outputs.iter().any(|&t| !bound.shape(cascade, t).contains(&0)) {
        return Ok(());
    }
    let zero =
        cascade.ranks.iter().zip(bound.sizes()).filter(|(_, size)| **size == 0).map(|(rank, _)| rank.name.as_str());
    let message = match zero.collect::<Vec<_>>().as_slice() {
        [] => "the outputs have no elements: nothing is computed".to_string(),
        ranks => format!("{} is 0, by the sizes that it depends on: the outputs have no elements", ranks.join(", ")),
    };
    refused(message, "other sizes leave something to plan for")
}

/// Plans for the machine that the arguments name, or for the backend's own; for GPUs, with the matrix units that code for
/// `arch` can use.
pub(crate) fn planned(
    derived: &Derived,
    given: &Given,
    sizing: &Sizing,
    target: &Target,
    backend: Backend,
    arch: Option<Arch>,
) -> Result<Planned, Failure> {
    let machine = machine(target, backend, arch)?;
    Ok(derived.plan(given, &machine, &options(sizing, &machine)?)?)
}

/// What the arguments ask of the planner.
pub(crate) fn options(sizing: &Sizing, machine: &Machine) -> Result<PlanOptions, Failure> {
    // Matrix units multiply narrow types: the one liberty of the language, unless forbidden.
    let narrow_contractions = einloom::machines::rounds_wider_factors(machine) && !sizing.exact;
    let tiles = by_index(&sizing.tiles, "sizes are given for tiles", "contradictory-tile")?;
    let shares = by_index(&sizing.shares, "numbers are given for shares", "contradictory-shares")?;
    let shares = Some(shares).filter(|s| !s.is_empty());
    Ok(PlanOptions { exact: sizing.exact, narrow_contractions, tiles, shares, ..PlanOptions::default() })
}

fn by_index(given: &[Assignment], what: &str, code: &'static str) -> Result<BTreeMap<String, usize>, Failure> {
    let mut out: BTreeMap<String, usize> = BTreeMap::new();
    for one in given {
        if out.insert(one.rank.clone(), one.size).is_some_and(|before| before != one.size) {
            let message = format!("two {what} of {}", one.rank);
            return Err(Error::Input(Finding::error(code, message).hint(Some("give it once"))).into());
        }
    }
    Ok(out)
}

/// The backend whose plans a machine takes: matrix units are a GPU's.
pub(crate) fn backend_of(machine: &Machine) -> Backend {
    if machine.matrix.is_empty() { Backend::Cpu } else { Backend::Cuda }
}

/// An abstract machine with this many elements in its innermost memory.
pub(crate) fn with_capacity(machine: Machine, capacity: Option<Count>) -> Result<Machine, Failure> {
    let Some(Count(elements)) = capacity else { return Ok(machine) };
    let hint = match machine.element {
        Some(_) => "--capacity counts elements; 4096 and 4Ki are the same",
        None => "--capacity is for machines that count elements, such as two-level",
    };
    machine.with_capacity(elements).map_err(|why| Failure::usage(why, hint))
}

/// Refuses tensors that the machine's outermost memory does not hold, in words for people.
pub(crate) fn fits(planned: &Planned) -> Result<(), PlanError> {
    let Some((root, capacity)) = planned.machine().trunk().next().and_then(|l| Some((&l.name, l.capacity?.0))) else {
        return Ok(());
    };
    let bytes = tensor_bytes(planned);
    if bytes <= u128::from(capacity) {
        return Ok(());
    }
    let [need, have] = [bytes as f64, capacity as f64].map(units::bytes);
    let (name, machine) = (&planned.cascade().name, &planned.machine().name);
    let reason = format!(
        "its tensors take {need}, and the {root} of {machine} holds {have}: tensors {:.1} times smaller would fit",
        (bytes as f64 / capacity as f64 * 10.0).ceil() / 10.0
    );
    Err(PlanError { subject: name.clone(), reason, needed: None, hint: None })
}

fn tensor_bytes(planned: &Planned) -> u128 {
    let product = |dims: &[usize]| dims.iter().map(|&d| d as u128).fold(1, u128::saturating_mul);
    let tensors = planned.program().tensors.iter();
    tensors.map(|t| product(&t.dims).saturating_mul(t.dtype.bytes() as u128)).fold(0, u128::saturating_add)
}

/// The machine that the arguments name, or the backend's own, without the matrix units that `arch` has no instructions
/// for.
pub(crate) fn machine(target: &Target, backend: Backend, arch: Option<Arch>) -> Result<Machine, Failure> {
    let own = match backend {
        Backend::Cpu => "host",
        Backend::Cuda => einloom::machines::card(),
    };
    let machine = einloom::machines::find(target.machine.as_deref().unwrap_or(own))?;
    let mut machine = with_capacity(machine, target.capacity)?;
    if arch == Some(Arch::Sm80) {
        machine.matrix.retain(|unit| !unit.asynchronous);
    }
    Ok(match target.threads.filter(|_| is_processor(&machine)) {
        Some(threads) => einloom::machines::with_cores(machine, threads as usize),
        None => machine,
    })
}

/// Refuses a number of threads for a machine whose cores are what its description says.
pub(crate) fn threads_fit(target: &Target, machine: &Machine) -> Result<(), Failure> {
    if target.threads.is_none() || is_processor(machine) {
        return Ok(());
    }
    let hint = "--threads is for processors; a description of your own has any number of cores";
    Err(Failure::usage(format!("{} has no threads to choose", machine.name), hint))
}

fn is_processor(machine: &Machine) -> bool {
    machine.lanes.is_none() && machine.element.is_none()
}

/// Prints the box that `--dump` asks for. Whether it did.
pub(crate) fn dumped(ui: &Ui, derived: &Derived, planned: &Planned) -> Result<bool, Failure> {
    let text = match ui.global.dump {
        None => return Ok(false),
        Some(Stage::Cascade | Stage::Derivation) => return super::dumped(ui, derived),
        Some(Stage::Plan) => super::plan::text(derived, planned),
        // The processor runs the tile program itself: there is no other source.
        Some(Stage::Tile | Stage::Kernel) => einloom_tile::print(planned.program()),
    };
    ui.text(&text).map(|()| true)
}

/// Refuses what this computer has no memory for, before anything is read or computed.
pub(crate) fn memory(planned: &Planned, for_meaning: bool) -> Result<(), Failure> {
    let mut bytes = tensor_bytes(planned);
    if for_meaning {
        // Everything in f64, and outputs and inputs once more to compare.
        let cascade = planned.cascade();
        let shapes = cascade.tensors.iter().map(|t| t.extents.iter().map(|e| planned.bound().extent(e).max(0) as u128));
        bytes += shapes.map(|s| s.product::<u128>() * 16).sum::<u128>();
    }
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    match einloom::host::available_memory() {
        Some(available) if bytes > available => {
            let what = format!("the tensors of {}", planned.cascade().name);
            Err(Error::Memory { what, bytes: Some(bytes), available: Some(available) }.into())
        }
        _ => Ok(()),
    }
}
