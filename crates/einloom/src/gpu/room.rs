//! Plans that a GPU has room for: what the emitter refuses for want of registers or shared memory is planned again without.
//!
//! The planner goes by the model, which knows what most kernels take of a core; the emitter by what it allocates. Where they
//! differ the refused tiles are told to the planner ([`TooLarge`]), which chooses among the others.

use super::Gpu;
use crate::road::PlanOptions;
use einloom_cuda::{Refusal, Target};
use einloom_machine::Machine;
use einloom_plan::{Plan, PlanError, Room, TooLarge};
use einloom_tile::Program;

/// Plans that are refused for one program, at most. If this many are, the first one stays, and whoever emits it is told why it
/// cannot be.
const REFUSED: usize = 12;

/// The form that is chosen with some options, and its plan.
type Planned<'a> = dyn Fn(&PlanOptions) -> Result<(usize, Plan), PlanError> + 'a;

/// A plan that the machine's cores have room for, as far as one is found.
pub(crate) struct Fitting {
    /// The form of the derivation.
    pub form: usize,
    /// Its plan.
    pub plan: Plan,
    /// What was refused before it.
    pub too_large: Vec<TooLarge>,
}

/// The plan of the planner, or on a GPU the first one of which every kernel fits; its notes tell what did not.
pub(crate) fn fitting(machine: &Machine, options: &PlanOptions, plan: &Planned<'_>) -> Result<Fitting, PlanError> {
    let (form, first) = plan(options)?;
    let Some(target) = machine.lanes.as_ref().map(|_| Gpu::target_of(machine, Gpu::arch_of(machine))) else {
        return Ok(Fitting { form, plan: first, too_large: options.too_large.clone() });
    };
    let mut without = options.clone();
    let mut more = refused(&first.program, &target);
    let mut refusals = 0;
    // A kernel whose tiles nobody chooses is the same in every plan.
    while more.iter().any(|m| !without.too_large.contains(m)) && refusals < REFUSED {
        refusals += 1;
        without.too_large.extend(more);
        let Ok((form, mut next)) = plan(&without) else { break };
        more = refused(&next.program, &target);
        if more.is_empty() {
            tell(&mut next, &without.too_large);
            return Ok(Fitting { form, plan: next, too_large: without.too_large });
        }
    }
    Ok(Fitting { form, plan: first, too_large: options.too_large.clone() })
}

/// The kernels for which the target has no room.
fn refused(program: &Program, target: &Target) -> Vec<TooLarge> {
    let refusals = einloom_cuda::emit::refusals(program, target);
    let one = |refusal: Refusal| {
        let (kernel, room) = match &refusal {
            Refusal::SharedMemory { kernel, .. } => (kernel, Room::SharedMemory),
            Refusal::Registers { kernel, .. } => (kernel, Room::Registers),
            Refusal::Grid { .. } | Refusal::Extent { .. } => return None,
        };
        let own = program.kernels.iter().find(|k| k.name == *kernel)?;
        Some(TooLarge::new(program, own, room, refusal.to_string()))
    };
    refusals.into_iter().filter_map(one).collect()
}

/// Notes in the kernels that compute what was refused; in the first one if it is computed in other parts now.
fn tell(plan: &mut Plan, too_large: &[TooLarge]) {
    for refused in too_large {
        let own = plan.program.kernels.iter().position(|k| refused.is_of(&plan.program, k)).unwrap_or(0);
        if let Some(kernel) = plan.kernels.get_mut(own) {
            kernel.notes.push(refused.to_string());
        }
    }
}
