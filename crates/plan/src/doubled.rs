//! What twice of each resource would buy: the program planned again for a machine that has it.

use crate::{Form, Options, PlanError, choose};
use einloom_cascade::Bound;
use einloom_machine::{LevelKind, Machine, Work};

/// A machine with twice of one resource, and what the best plan for it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubled {
    /// The resource, such as `L2 bandwidth`; of a latency half as much.
    pub resource: String,
    /// Predicted time of all kernels of the plan taken, less what the fastest plan for that machine saves of the fastest one for the machine as
    /// it is. Of equally fast plans either may be taken: those that are taken differ by more than the resource buys.
    pub seconds: f64,
}

/// The plans that twice of each resource would allow, the fastest first; of equally fast ones in the machine's order.
///
/// # Errors
/// Those of [`choose`], which more of a resource does not bring about.
pub fn doubled(
    forms: &[Form<'_>],
    bound: &Bound,
    machine: &Machine,
    options: &Options,
) -> Result<Vec<Doubled>, PlanError> {
    let (_, own) = choose(forms, bound, machine, options)?;
    let mut out = vec![];
    for (resource, machine) in machines(machine) {
        let (_, plan) = choose(forms, bound, &machine, options)?;
        // Whoever has more can do as before.
        let left = (plan.fastest() / own.fastest()).min(1.0);
        out.push(Doubled { resource, seconds: if left.is_nan() { own.seconds } else { own.seconds * left } });
    }
    out.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(out)
}

/// The machine with twice of each of its resources in turn, by the names of [`Doubled::resource`].
pub fn machines(machine: &Machine) -> Vec<(String, Machine)> {
    let mut out = vec![];
    let mut with = |name: String, change: &dyn Fn(&mut Machine)| {
        let mut changed = machine.clone();
        change(&mut changed);
        out.push((name, changed));
    };
    for (k, level) in machine.levels.iter().enumerate() {
        // The root holds everything already.
        if level.capacity.is_some() && level.parent.is_some() && level.kind != LevelKind::Exchange {
            with(format!("{} capacity", level.name), &|m| {
                m.levels[k].capacity.iter_mut().for_each(|c| c.0 = c.0.saturating_mul(2));
            });
        }
        if level.bandwidth.0.is_finite() && level.kind == LevelKind::Memory {
            with(format!("{} bandwidth", level.name), &|m| m.levels[k].bandwidth.0 *= 2.0);
        }
    }
    for (k, pipe) in machine.pipes.iter().enumerate() {
        with(format!("{} rate", pipe.name), &|m| {
            m.pipes[k].rates.values_mut().for_each(|r| r.0 *= 2.0);
            // Lanes are the same pipes, told per core.
            match (pipe.work, &mut m.lanes) {
                (Work::Arithmetic, Some(lanes)) => lanes.arithmetic *= 2,
                (Work::Special, Some(lanes)) => lanes.special *= 2,
                _ => {}
            }
        });
    }
    if machine.lanes.is_some() {
        with("half the latency".to_string(), &|m| m.lanes.iter_mut().for_each(|l| l.latency.0 /= 2.0));
    }
    out
}
