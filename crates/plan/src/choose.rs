//! Which of several equal forms of a program to run: the one that is predicted to be fastest at these sizes.

use crate::build::time;
use crate::capacity::with_enough;
use crate::chunks::Chunk;
use crate::drawn::Draw;
use crate::known::Known;
use crate::overhead;
use crate::shares::gains;
use crate::{Lost, Options, Plan, PlanError, Work, in_one_piece, in_shares};
use einloom_algebra::{Alternative, Derivation, Graph, Rule, Term};
use einloom_cascade::{Bound, RankId, SizeExpr};
use einloom_machine::Machine;
use std::collections::BTreeSet;

/// One form of a program.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// What distinguishes it, in a few words.
    pub name: &'a str,
    /// What it computes.
    pub graph: &'a Graph,
    /// What it costs, if it is one of several orders of the same reductions.
    pub cost: Option<&'a SizeExpr>,
    /// How many reductions are in another order than written.
    pub changes: usize,
    /// Numbers that must lie between -1 and 1.
    pub within_one: &'a [Term],
}

impl<'a> Form<'a> {
    /// The forms of a derivation: the one in the order written, then its alternatives.
    pub fn all(derivation: &'a Derivation) -> Vec<Self> {
        let mut forms = vec![Self {
            name: "in the order written",
            graph: &derivation.derived,
            cost: None,
            changes: 0,
            within_one: &[],
        }];
        let changes = |a: &Alternative| a.steps.iter().filter(|s| s.rule == Rule::Reassociate).count();
        let other = |a: &'a Alternative| {
            let (name, graph) = (a.name.as_str(), &a.derived);
            Self { name, graph, cost: a.cost.as_ref(), changes: changes(a), within_one: &a.within_one }
        };
        forms.extend(derivation.alternatives.iter().map(other));
        forms
    }

    /// Whether a recurrence of it advances by chunks.
    fn is_in_chunks(&self) -> bool {
        self.graph.recurrences.iter().any(|r| !r.within.is_empty())
    }

    /// Why it is not to be run for these parameters and sizes, if it is not.
    fn overflows(&self, bound: &Bound) -> Option<String> {
        let large = |t: &Term| t.number(bound).filter(|v| v.is_nan() || v.abs() > 1.0);
        let decay = self.within_one.iter().find_map(large)?;
        Some(format!(
            "a decay of {decay} overflows over a chunk where a state is 0 or small, and step by step it does not"
        ))
    }
}

/// Of several orders of the same reductions so many are planned, those that cost least at these sizes.
const ORDERS: usize = 2;

/// Those that cost more times what the cheapest does are not.
const CLOSE: f64 = 1.5;

/// Why a form of a large program is not tried.
const ENDED: &str = "not looked at: the search ended before";

/// Why another order is not tried.
const DEAR: &str = "another order of its reductions takes fewer operations";

/// Which forms are not tried because other orders of their reductions cost less.
fn dear(forms: &[Form<'_>], bound: &Bound) -> Vec<bool> {
    let cost = |c: &SizeExpr| -> f64 {
        let size = |ranks: &[RankId]| ranks.iter().map(|&r| bound.size(r) as f64).product::<f64>();
        c.terms().iter().map(|(ranks, c)| *c as f64 * size(ranks)).sum()
    };
    // Of one cost are those that differ elsewhere.
    let of: Vec<Option<f64>> = forms.iter().map(|f| f.cost.map(cost)).collect();
    let mut costs: Vec<f64> = of.iter().copied().flatten().collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    let least = costs.first().copied().unwrap_or(0.0);
    costs.truncate(ORDERS);
    of.into_iter().map(|c| c.is_some_and(|c| c > least * CLOSE || !costs.contains(&c))).collect()
}

/// How much faster another form than the first must be predicted to be on a machine with lanes. Forms may run on
/// different matrix units, between which the model errs by more than within one: a sum over rows scaled by their L2
/// norms, in another order on `mma.sync`, was predicted 0.9 times the time of the order written on `wgmma` and took 2.5
/// times (H200, 64 heads of 4096 rows of 128).
pub(crate) const SURE_WITH_LANES: f64 = 1.5;

/// The same for a form whose reductions are in the order written and whose products run on the same units, within which the model errs by no
/// more (`docs/model-against-measured.md`). A product of rows over their root mean square was predicted 279 µs normalised inside it, and
/// 214 µs by rows that are normalised before; these took 565 and 198 µs (H200, 4096 cubed).
const SURE_WITHIN_UNITS: f64 = 1.2;

/// The same on a processor for a form that sums in another order than written, which rounds in another way: it is to save more than the model may err. A block of a transformer
/// of five positions, predicted 4 % faster with its products in another order, had six times the rounding error.
const SURE_IN_ANOTHER_ORDER: f64 = 1.1;

/// The same for a form by chunks without products, on any machine but those that count nothing beside bytes and operations: pairs of positions of a chunk are compared element by element, which the model
/// knows less well than products and passes. A running maximum of 65536 positions of 1024 channels was predicted 3.05 ms so and 5.70 step by
/// step, and took 6.66 and 4.09 (H200); of 64 channels 16384 positions 39 and 716 µs, and took 43 and 845.
const SURE_OF_PAIRS: f64 = 2.0;

/// The plan of the form that is predicted to be fastest, with its place in the list. Of several forms the first kernel's
/// notes tell all predictions, and why a form has none.
///
/// # Errors
/// The first form's, if no form has a plan.
pub fn choose(
    forms: &[Form<'_>],
    bound: &Bound,
    machine: &Machine,
    options: &Options,
) -> Result<(usize, Plan), PlanError> {
    let on = |machine: &Machine| chosen(forms, bound, machine, options);
    on(machine).map_err(|e| with_enough(e, machine, on))
}

/// How much faster than the first form's plan that of another must be predicted to be.
fn sure(first: Option<&Plan>, form: &Form<'_>, other: &Plan, machine: &Machine) -> f64 {
    let units = |p: &Plan| -> BTreeSet<String> {
        p.kernels.iter().filter_map(|k| k.gpu.as_ref().and_then(|g| g.unit.clone())).collect()
    };
    let pairs = form.is_in_chunks() && units(other).is_empty() && !multiplies(other);
    match first {
        _ if pairs && machine.overhead.operation.0 > 0.0 => SURE_OF_PAIRS,
        _ if machine.lanes.is_none() && machine.element.is_none() && form.changes > 0 => SURE_IN_ANOTHER_ORDER,
        _ if machine.lanes.is_none() => 1.0,
        Some(first) if form.changes == 0 && !units(first).is_empty() && units(first) == units(other) => {
            SURE_WITHIN_UNITS
        }
        _ => SURE_WITH_LANES,
    }
}

/// Whether a kernel of a plan multiplies tiles.
fn multiplies(plan: &Plan) -> bool {
    plan.program.kernels.iter().any(|k| overhead::multiplies(&k.body))
}

/// The place of the plan to take, as [`choose`] does.
fn fastest(forms: &[Form<'_>], plans: &[Result<(Chunk, Plan), PlanError>], machine: &Machine) -> Option<usize> {
    let first = plans.first().and_then(|p| p.as_ref().ok()).map(|p| &p.1);
    let margin = |k: usize, plan: &Plan| if k == 0 { 1.0 } else { sure(first, &forms[k], plan, machine) };
    let seconds = |k: usize| plans[k].as_ref().ok().map(|p| p.1.seconds * margin(k, &p.1));
    (0..plans.len()).filter_map(|k| Some((k, seconds(k)?))).min_by(|a, b| a.1.total_cmp(&b.1)).map(|b| b.0)
}

fn chosen(forms: &[Form<'_>], bound: &Bound, machine: &Machine, options: &Options) -> Result<(usize, Plan), PlanError> {
    let mut known = Known::default();
    if let Some(draw) = Draw::of(options) {
        // What overflows is no form of the program for these parameters.
        let fit = forms.iter().enumerate().filter(|(_, f)| f.overflows(bound).is_none());
        let k = draw.form(fit.map(|(k, f)| (k, f.name))).unwrap_or(0);
        return in_one_piece(forms[k].graph, bound, machine, options, false, &mut known).map(|(_, plan)| (k, plan));
    }
    let dear = dear(forms, bound);
    // All in one piece first: that a form is better shows there, and shares of one would use up the work that others need.
    let mut plans: Vec<Result<(Chunk, Plan), PlanError>> =
        forms.iter().map(|f| Err(PlanError::unsupported(&f.graph.cascade.name, ENDED))).collect();
    // Those that differ least from what is written come first: of a large program not all are looked at.
    let mut turns: Vec<usize> = (0..forms.len()).collect();
    turns.sort_by_key(|&k| (k > 0, forms[k].changes));
    for k in turns {
        let f = &forms[k];
        // Forms of a large program are compared by their first divisions.
        let so_far = plans.iter().flatten().map(|p| p.1.seconds).fold(f64::INFINITY, f64::min);
        known.so_far = Some(so_far);
        known.hurries = (known.spent >= crate::search::MOST_WORK).then_some(so_far).filter(|_| k > 0);
        let refuse = |reason: &str| Err(PlanError::unsupported(&f.graph.cascade.name, reason));
        let unfit = f.overflows(bound).or_else(|| dear[k].then(|| DEAR.to_string()));
        plans[k] = match unfit {
            Some(reason) => refuse(&reason),
            None if k > 0 && known.is_spent() => continue,
            None => in_one_piece(f.graph, bound, machine, options, true, &mut known),
        };
    }
    if known.hurries.take().is_some()
        && let Some(k) = fastest(forms, &plans, machine).filter(|&k| k > 0)
        && let Ok(found) = in_one_piece(forms[k].graph, bound, machine, options, true, &mut known)
        && plans[k].as_ref().is_ok_and(|p| found.1.seconds < p.1.seconds)
    {
        plans[k] = Ok(found);
    }
    known.turn_to_shares();
    let mut order: Vec<usize> = (0..forms.len()).filter(|&k| plans[k].is_ok()).collect();
    let seconds = |k: usize| plans[k].as_ref().map_or(f64::INFINITY, |p| p.1.seconds);
    order.sort_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
    let mut least = f64::INFINITY;
    for k in order {
        if let Ok((chunk, plan)) = &mut plans[k] {
            // Shares save no more than what idle cores take.
            if plan.unfinished || plan.seconds - gains(&plan.idle) < least {
                let whole = (*chunk, plan.clone());
                *plan = in_shares(forms[k].graph, bound, machine, options, whole, &mut known);
            }
            least = least.min(plan.seconds);
        }
    }
    let plans: Vec<Result<Plan, PlanError>> = plans.into_iter().map(|p| p.map(|p| p.1)).collect();
    let told: Vec<String> = forms
        .iter()
        .zip(&plans)
        .zip(&dear)
        .filter(|(_, dear)| !**dear)
        .map(|((form, plan), _)| match plan {
            Ok(p) => format!("{}: predicted {}", form.name, time(p.seconds)),
            Err(e) => format!("{}: {e}", form.name),
        })
        .collect();
    let mut work = Work::default();
    plans.iter().flatten().for_each(|p| work += p.work);
    let lost: Vec<(usize, Lost)> = plans
        .iter()
        .enumerate()
        .filter_map(|(k, p)| Some((k, p.as_ref().ok()?.as_lost(forms[k].name.to_string()))))
        .collect();
    let mut best: Option<(usize, Plan)> = None;
    let mut first = None;
    for (k, plan) in plans.into_iter().enumerate() {
        let margin = |best: &(usize, Plan), p: &Plan| match best.0 {
            0 => sure(Some(&best.1), &forms[k], p, machine),
            _ => 1.0,
        };
        match plan {
            Ok(p) if best.as_ref().is_none_or(|b| p.seconds * margin(b, &p) < b.1.seconds) => best = Some((k, p)),
            Ok(_) => {}
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    let Some((k, mut plan)) = best else {
        return Err(first.unwrap_or_else(|| PlanError::unsupported("program", "it has no form")));
    };
    plan.work = work;
    plan.lose(lost.into_iter().filter(|l| l.0 != k).map(|l| l.1));
    if forms.len() > 1
        && let Some(kernel) = plan.kernels.first_mut()
    {
        kernel.notes.insert(0, format!("chosen of {}: {}", told.len(), told.join("; ")));
    }
    Ok((k, plan))
}
