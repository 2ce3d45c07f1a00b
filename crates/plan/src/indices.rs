//! Which indices a plan has: those of the program, some of them as two ([`crate::quotients`]), or several as one
//! ([`crate::merged`]). Decided by what is predicted.

use crate::begun::{Begun, Depth, Maker};
use crate::build::time;
use crate::problem::Problem;
use crate::{Lost, Merge, Merging, Plan, PlanError, Split};
use einloom_algebra::NodeId;

/// Predictions that differ by less do not decide: then indices stay as they are written.
const CLOSE: f64 = 1.02;

/// Why a plan has no tile of an index.
pub(crate) const NO_INDEX: &str = "the program has no such index";

/// Refuses an index that is asked for and not there.
pub(crate) fn unknown(p: &Problem, name: &str) -> PlanError {
    const MOST: usize = 20;
    // Those that the planner made up for itself have names that nobody can write.
    let all = p.indices.iter().map(|i| i.name.as_str()).filter(|name| !name.contains('\''));
    let names: Vec<&str> = all.take(MOST).collect();
    PlanError::unsupported(name, NO_INDEX).hint(format!("its indices are {}", names.join(", ")))
}

/// What becomes of the program's indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indices {
    AsWritten,
    /// Those that arrays are read by a quotient of are two.
    Split,
    /// After that those that always go together are one.
    Merged,
}

/// What each kernel of a plan stores: with these indices it is divided so, whatever their extents.
pub(crate) type Roots = Vec<Vec<NodeId>>;

/// Times the best of the plans' first divisions, beyond which one is not cut: a cut that is taken gains a tenth.
const FAR: f64 = 1.1;

/// The best of the plans with other indices.
pub(crate) fn best(merge: Merging, maker: &mut Maker<'_>) -> Result<Plan, PlanError> {
    if merge == Merging::Always
        && let Ok(Some(merged)) = maker.plan(Indices::Merged, &[], Depth::Whole)
    {
        return Ok(merged);
    }
    let mut error: Option<PlanError> = None;
    let mut failed = |e: PlanError| {
        // A tile that only the plan of other indices has is no reason why that one failed.
        if error.as_ref().is_none_or(|before| before.reason == NO_INDEX) {
            error = Some(e);
        }
    };
    let all: &[Indices] = match merge {
        Merging::Auto => &[Indices::AsWritten, Indices::Split, Indices::Merged],
        Merging::Never | Merging::Always => &[Indices::AsWritten, Indices::Split],
    };
    let mut begun: Vec<Begun> = vec![];
    // Fewer indices leave more to look at: begun last they would keep one core busy alone.
    let turns: Vec<Indices> = all.iter().rev().copied().collect();
    let found = maker.each(&turns, |maker, &indices| maker.begin(indices, &[], (None, true, f64::INFINITY)));
    for found in found.into_iter().rev() {
        match found {
            Ok(found) => begun.extend(found),
            Err(e) => failed(e),
        }
    }
    let least = begun.iter().map(Begun::seconds).fold(f64::INFINITY, f64::min);
    let mut plans: Vec<Plan> = vec![];
    for one in begun {
        let near = one.seconds() <= FAR * least;
        match maker.finish(one, near, near) {
            Ok(plan) => plans.push(plan),
            Err(e) => failed(e),
        }
    }
    let mut others = plans.into_iter();
    let Some(mut best) = others.next() else {
        return Err(error.unwrap_or_else(|| PlanError::unsupported("program", "it has no plan")));
    };
    let mut lost = vec![];
    for other in others {
        let slower = if other.seconds * CLOSE < best.seconds { std::mem::replace(&mut best, other) } else { other };
        lost.push(slower);
    }
    if lost.is_empty() {
        return Ok(best);
    }
    let all = || lost.iter().chain([&best]);
    let every =
        Changes { splits: distinct(all().flat_map(|p| &p.splits)), merges: distinct(all().flat_map(|p| &p.merges)) };
    let what: Vec<String> = lost.iter().map(|p| every.of(p)).collect();
    let note = (!best.splits.is_empty() || !best.merges.is_empty()).then(|| {
        let told = what.iter().zip(&lost).map(|(what, p)| format!("; {what}: {}", time(p.seconds)));
        format!("{}: predicted {} in all{}", every.of(&best), time(best.seconds), told.collect::<String>())
    });
    lost.iter().for_each(|p| best.work += p.work);
    best.divided.extend(lost.iter().flat_map(|p| p.divided.clone()));
    let lost: Vec<Lost> = lost.into_iter().zip(what).map(|(p, what)| p.as_lost(what)).collect();
    best.lose(lost);
    if let Some(kernel) = best.kernels.first_mut() {
        kernel.notes.extend(note);
    }
    Ok(best)
}

/// What is done to indices in one of several plans.
struct Changes<'a> {
    splits: Vec<&'a Split>,
    merges: Vec<&'a Merge>,
}

impl Changes<'_> {
    /// What a plan does to the indices to which some plan does something.
    fn of(&self, plan: &Plan) -> String {
        let named = |s: &Split| format!("{} as {} and {} of {}", s.index, s.outer, s.inner, s.by);
        let mut out: Vec<String> = plan.splits.iter().map(named).collect();
        let indices: Vec<&str> = self.splits.iter().map(|s| s.index.as_str()).collect();
        if out.is_empty() && !indices.is_empty() {
            out.push(format!("{} in one piece", indices.join(", ")));
        }
        let apart = |m: &&Merge| {
            let is_there = |i: &String| self.splits.iter().all(|s| s.outer != *i && s.inner != *i);
            !plan.splits.is_empty() || m.of.iter().all(is_there)
        };
        match plan.merges.is_empty() {
            true => {
                out.extend(self.merges.iter().filter(|m| apart(m)).map(|m| format!("{} apart", m.of.join(" and "))))
            }
            false => out.extend(plan.merges.iter().map(|m| format!("{} as {}", m.of.join(" and "), m.index))),
        }
        out.join(", ")
    }
}

fn distinct<'a, T: PartialEq>(all: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut out: Vec<&T> = vec![];
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}
