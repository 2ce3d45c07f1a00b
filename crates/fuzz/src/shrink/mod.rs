//! Counter-examples made small: as long as the disagreement stays, statements go, expressions shrink, sizes shrink,
//! values become simple.

mod edit;
mod program;
mod values;

use crate::cases::Case;
use crate::examine::{Effort, Report, Subject, Way};
use einloom_cascade::meaning::Arrays;
use einloom_machine::Machine;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Candidates that are tried before the smallest so far has to do.
const MOST_TRIES: usize = 4000;

/// The smallest case found that still makes `fails` true. `case` must.
pub fn shrink(case: Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut best = case;
    let mut tries = 0;
    loop {
        let mut candidates = program::smaller(&best).chain(values::simpler(&best)).filter(|c| *c != best);
        let smaller = candidates.find(|candidate| {
            tries += 1;
            tries > MOST_TRIES || fails(candidate)
        });
        drop(candidates);
        match smaller {
            Some(smaller) if tries <= MOST_TRIES => best = smaller,
            _ => return best,
        }
    }
}

/// The case of a program and the inputs on which parts of it disagree.
pub fn case(subject: &Subject, inputs: &Arrays) -> Case {
    let cascade = &subject.cascade;
    let sizes = cascade.ranks.iter().map(|r| r.name.clone()).zip(subject.bound.sizes().iter().copied()).collect();
    let values = inputs.iter().map(|(name, a)| (name.clone(), a.values.clone())).collect();
    Case { text: einloom_cascade::print(cascade), sizes, values, ..Case::default() }
}

/// Examines a case on its own values, cut in every way, and on the processor if asked: in the plan that it names, or else in many. `None` if it is no program, or
/// has not a value for each input.
pub fn examine(case: &Case, machine: &Machine, cpu: bool) -> Option<Report> {
    let subject = Subject::new(&case.text, &case.sizes).ok()?;
    let inputs = inputs(case, &subject)?;
    let effort = Effort { kinds: vec![], cpu, exact: false, plan: case.plan, ..Effort::full() };
    Some(subject.examine_on(machine, &inputs, &effort))
}

/// The values of a case, in shape.
pub fn inputs(case: &Case, subject: &Subject) -> Option<Arrays> {
    let cascade = &subject.cascade;
    let names: Vec<String> = cascade.inputs().map(|t| cascade[t].name.clone()).collect();
    let shape = |name: &str| cascade.tensor(name).map(|t| subject.bound.shape(cascade, t)).unwrap_or_default();
    case.arrays(shape, &names)
}

/// Whether a case disagrees in this way, or panics if `way` is `None`.
pub fn still(case: &Case, machine: &Machine, way: Option<Way>) -> bool {
    let cpu = way != Some(Way::Stream);
    let examined = catch_unwind(AssertUnwindSafe(|| examine(case, machine, cpu)));
    match (examined, way) {
        (Err(_), None) => true,
        (Ok(Some(report)), Some(way)) => report.disagreements.iter().any(|d| d.way == way),
        _ => false,
    }
}
