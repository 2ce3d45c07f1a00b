//! The numeric proof of a derivation: derived, planned and run, it agrees with the reference meaning on random,
//! adversarial and degenerate inputs.
//!
//! Sizes are run twice: with all floating-point tensors in f64, where hardly an error is a rounding error,
//! and as declared. Tiles are small, so that small sizes make many chunks; some sets use the planner's own, and some one
//! kernel per reduction.

mod bounds;
mod exact;
mod forgive;
mod inputs;
#[cfg(test)]
mod planted;
mod range;
mod reads;
mod report;
mod sensitivity;
mod sizes;

pub use bounds::{beyond_bounds, rounding_bounds};
pub use exact::{ExactProof, prove_exactly};
pub use inputs::{Kind, inputs};
pub use reads::in_reads;
pub use report::{Disagreement, Proof};
pub use sensitivity::sensitivity;
pub(crate) use sizes::is_free;

use crate::compare::{Precision, distance, in_f64, unit_roundoff};
use crate::road::{Derived, PlanOptions, Planned, RunOptions};
use crate::{Error, Tensor};
use einloom_algebra::stream::Cut;
use einloom_algebra::{Derivation, flatten};
use einloom_cascade::meaning::{self, Arrays, MeaningError};
use einloom_cascade::{Bound, Cascade, DType, TensorId};
use einloom_machine::Machine;
use einloom_plan::Fusion;
use forgive::{forgive, forgive_masked, has_filter, leaves_f32, underflows};
use std::collections::BTreeMap;

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Sets of random sizes, besides the degenerate ones.
    pub sizes: usize,
    /// Kinds of inputs per set of sizes; over all sets every kind has its turn.
    pub kinds: usize,
    /// Largest number of scalar operations of one evaluation of the meaning.
    pub work: f64,
    /// Each set of sizes in f64 and as declared, or in turns the one or the other.
    pub both: bool,
}

impl Effort {
    /// What `derive --prove` does: a few hundred inputs.
    pub const FULL: Self = Self { sizes: 6, kinds: Kind::ALL.len(), work: 2e5, both: true };
    /// For tests: a few dozen.
    pub const QUICK: Self = Self { sizes: 4, kinds: 4, work: 6e4, both: false };
}

/// More disagreements of one program say nothing new.
const ENOUGH: usize = 8;

/// Compares the meaning of a cascade with its derived form. `progress` is told how much is done, from 0 to 1.
///
/// # Errors
/// Only for what is not a disagreement: a plan that cannot be made, or memory.
pub fn prove(
    cascade: &Cascade,
    machine: &Machine,
    exact: bool,
    seed: u64,
    effort: Effort,
    progress: &mut dyn FnMut(f64),
) -> Result<Proof, Error> {
    let (wide, declared) = (each_form(&Derived::of(&in_f64(cascade))), each_form(&Derived::of(cascade)));
    let forms: Vec<Form> = wide.into_iter().zip(declared).map(|(wide, declared)| Form { wide, declared }).collect();
    prove_forms(cascade, &forms, machine, exact, seed, effort, progress)
}

/// The forms that a plan may choose from, each alone, with what is different in it; the first is the main one.
fn named_forms(derived: &Derived) -> Vec<(Option<String>, Derived)> {
    let d = derived.derivation();
    let main = Derivation { alternatives: vec![], ..d.clone() };
    let others =
        (0..d.alternatives.len()).filter_map(|k| Some((Some(d.alternatives[k].name.clone()), d.of_alternative(k)?)));
    std::iter::once((None, main)).chain(others).map(|(name, d)| (name, Derived::from_derivation(d))).collect()
}

fn each_form(derived: &Derived) -> Vec<Derived> {
    named_forms(derived).into_iter().map(|(_, form)| form).collect()
}

/// One derived form, with everything in f64 and as declared.
struct Form {
    wide: Derived,
    declared: Derived,
}

/// As [`prove`], for the given forms: the first at every set of sizes, the others in turn.
fn prove_forms(
    cascade: &Cascade,
    forms: &[Form],
    machine: &Machine,
    exact: bool,
    seed: u64,
    effort: Effort,
    progress: &mut dyn FnMut(f64),
) -> Result<Proof, Error> {
    let (bindings, missing) = sizes::bindings(cascade, seed, effort.sizes, effort.work);
    let mut prover =
        Prover { proof: Proof { sizes: bindings.len(), missing, ..Proof::default() }, kinds: Kind::ALL.iter().cycle() };
    for (k, bound) in bindings.iter().enumerate() {
        progress(k as f64 / bindings.len() as f64);
        let kinds: Vec<Kind> = prover.kinds.by_ref().take(effort.kinds).copied().collect();
        let in_turn = (forms.len() > 1).then(|| &forms[1 + k % (forms.len() - 1)]);
        let mut tried = vec![];
        for (number, form) in forms.first().into_iter().chain(in_turn).enumerate() {
            let run = |in_f64| Run { in_f64, reordered: number > 0 };
            tried.extend((effort.both || k % 2 == 0).then_some((run(true), &form.wide)));
            tried.extend((effort.both || k % 2 == 1).then_some((run(false), &form.declared)));
        }
        for (run, derived) in tried {
            let fuse = if k % 5 == 4 { Fusion::None } else { Fusion::Auto };
            let options = PlanOptions { exact, tiles: tiles(cascade, k), fuse, ..PlanOptions::default() };
            let planned = derived.plan_bound(bound.clone(), machine, &options)?;
            for (j, &kind) in kinds.iter().enumerate() {
                let seed = seed.wrapping_add((k * Kind::ALL.len() + j) as u64);
                prover.compare(&planned, kind, seed, run)?;
                if prover.proof.disagreements.len() >= ENOUGH {
                    return Ok(prover.proof);
                }
            }
        }
    }
    progress(1.0);
    Ok(prover.proof)
}

/// Tile sizes for set number `k`: small ones that seldom divide, and every fourth time the planner's choice.
fn tiles(cascade: &Cascade, k: usize) -> BTreeMap<String, usize> {
    let tile = match k % 4 {
        0 => 4,
        1 => 3,
        2 => 8,
        _ => return BTreeMap::new(),
    };
    cascade.indices.iter().map(|i| (i.name.clone(), tile)).collect()
}

/// How one form is run.
#[derive(Clone, Copy)]
struct Run {
    /// Everything in f64, or as declared.
    in_f64: bool,
    /// An alternative: sums in another order, or steps of a recurrence taken together.
    reordered: bool,
}

/// In another order of sums what cancelled exactly, as a factor of numerator and denominator, no longer does: up to
/// eight bits may go where the text loses none. An identity that is wrong is off by far more in f64.
const REORDERED: f64 = 256.0;

struct Prover<'a> {
    proof: Proof,
    kinds: std::iter::Cycle<std::slice::Iter<'a, Kind>>,
}

impl Prover<'_> {
    fn compare(&mut self, planned: &Planned, kind: Kind, seed: u64, run: Run) -> Result<(), Error> {
        let Run { in_f64, reordered } = run;
        let cascade = planned.cascade();
        let bound = planned.bound();
        let inputs = inputs(cascade, bound, kind, seed);
        self.proof.inputs += 1;
        let place = Disagreement {
            sizes: cascade.ranks.iter().map(|r| r.name.clone()).zip(bound.sizes().iter().copied()).collect(),
            kind,
            seed,
            in_f64,
            output: String::new(),
            position: 0,
            expected: 0.0,
            found: 0.0,
            error: f64::INFINITY,
            tolerance: 0.0,
            stopped: None,
        };
        let found = planned.run(&tensors(cascade, &inputs), &RunOptions::default());
        let expected = meaning::evaluate(cascade, bound, &inputs);
        let (found, expected) = match (found, expected) {
            (Ok(found), Ok(expected)) => (found.outputs, expected),
            (Err(Error::Run(_)), Err(MeaningError::OutOfRange { .. })) => {
                self.proof.undefined += 1;
                return Ok(());
            }
            (Err(Error::Run(e)), Ok(_)) => {
                let stopped = Some(format!("the derived program stops, the meaning does not: {e}"));
                self.proof.disagreements.push(Disagreement { stopped, ..place });
                return Ok(());
            }
            (Ok(_), Err(e)) => {
                let stopped = Some(format!("the meaning stops, the derived program does not: {e}"));
                self.proof.disagreements.push(Disagreement { stopped, ..place });
                return Ok(());
            }
            (_, Err(e)) => return Err(e.into()),
            (Err(e), _) => return Err(e),
        };
        let precision = Precision::of(cascade, bound, planned.program());
        let (mut overflowed, mut out_of_range) = (false, false);
        let (mut masked, mut sensitive) = (false, false);
        for &output in &cascade.outputs {
            let name = &cascade[output].name;
            let (Some(found), Some(expected)) = (found.get(name), expected.get(name)) else { continue };
            let dtype = planned.dtype(output);
            let row = expected.shape.last().copied().unwrap_or(1);
            let floor = precision.floor(dtype);
            let mut found = found.values();
            let forgiven = forgive(&mut found, &expected.values);
            overflowed |= forgiven && !kind.is_infinite();
            // What a chunk or another order multiplies by 0 the text may never have met.
            if kind.is_infinite() && (reordered || has_filter(cascade)) {
                masked |= forgive_masked(&mut found, &expected.values);
            }
            let error = distance(&found, &expected.values, row, floor);
            let mut tolerance = precision.tolerance(dtype);
            if reordered {
                tolerance.arithmetic *= REORDERED;
            }
            let wrong = error.scaled > tolerance.total();
            let lost = match error.scaled.is_infinite() {
                true => !in_f64 && leaves_f32(cascade, bound, &inputs)?,
                false => !in_f64 && wrong && range::leaves_f32(cascade, bound, &inputs),
            };
            if lost {
                out_of_range = true;
                continue;
            }
            if error.scaled > tolerance.total() && dtype.is_float() {
                let step = tolerance.arithmetic + tolerance.rounding;
                tolerance.sensitivity = match underflows(cascade, bound, &inputs)? {
                    true => f64::INFINITY,
                    false => sensitivity(cascade, bound, &inputs, output, step, seed)?,
                };
                if error.scaled > tolerance.total() {
                    // exp(x - c) as exp(x - M)·exp(M - c): each exponent loses the last digits of its own addends, where the
                    // text's difference may lose none.
                    let (apart, extra) = in_reads(cascade);
                    let more: Arrays = inputs.clone().into_iter().chain(extra).collect();
                    let moved = sensitivity(&apart, bound, &more, output, step, seed)?;
                    tolerance.sensitivity = tolerance.sensitivity.max(moved);
                }
                sensitive |= tolerance.sensitivity > 0.01;
            }
            // Where the meaning cannot decide on a digit, not being finite is no worse than being far off.
            if tolerance.sensitivity > 0.5 {
                continue;
            }
            // Noise that is drawn misses what happens to few values, such as a divisor that rounding makes 0. What bounds on the
            // text's own rounding errors do not determine is excused element by element, and counted.
            let mut error = error;
            if error.scaled > tolerance.total() && dtype.is_float() {
                let unit = unit_roundoff(precision.arithmetic) + tolerance.rounding;
                let (left, excused) =
                    self.undetermined(cascade, bound, &inputs, output, unit, &found, &expected.values);
                if excused > 0 {
                    error = distance(&left, &expected.values, row, floor);
                }
                if error.scaled <= tolerance.total() {
                    self.proof.undetermined += excused;
                    sensitive = true;
                    continue;
                }
            }
            if error.scaled > tolerance.total() {
                self.proof.disagreements.push(Disagreement {
                    output: name.clone(),
                    position: error.worst,
                    expected: expected.values.get(error.worst).copied().unwrap_or(f64::NAN),
                    found: found.get(error.worst).copied().unwrap_or(f64::NAN),
                    error: error.scaled,
                    tolerance: tolerance.total(),
                    ..place
                });
                return Ok(());
            }
            let all = if in_f64 { &mut self.proof.worst } else { &mut self.proof.worst_declared };
            let worst = all.entry(name.clone()).or_insert(0.0);
            if tolerance.sensitivity == 0.0 {
                *worst = worst.max(error.scaled);
            }
        }
        self.proof.overflowed += usize::from(overflowed);
        self.proof.out_of_range += usize::from(out_of_range);
        self.proof.masked += usize::from(masked);
        self.proof.sensitive += usize::from(sensitive);
        Ok(())
    }
}

impl Prover<'_> {
    /// What is found, without what the text's own rounding does not determine in arithmetic of this unit roundoff; and of how
    /// many elements that is said. Nothing is where a condition or a position hangs on rounding: that excuses no element
    /// by itself.
    #[allow(clippy::too_many_arguments)] // All there is to know of an output.
    fn undetermined(
        &self,
        cascade: &Cascade,
        bound: &Bound,
        inputs: &Arrays,
        output: TensorId,
        unit: f64,
        found: &[f64],
        expected: &[f64],
    ) -> (Vec<f64>, usize) {
        let graph = flatten(cascade);
        let number = cascade.outputs.iter().position(|o| *o == output);
        let bounds = number.and_then(|k| rounding_bounds(&graph, bound, inputs, k, unit, Cut::Whole));
        match bounds {
            Some((bounds, false)) => beyond_bounds(found, expected, &bounds),
            _ => (found.to_vec(), 0),
        }
    }
}

/// The arrays in the inputs' number types.
pub fn tensors(cascade: &Cascade, arrays: &Arrays) -> BTreeMap<String, Tensor> {
    let one = |id: TensorId| {
        let name = &cascade[id].name;
        let array = arrays.get(name)?;
        let dtype = cascade[id].dtype.unwrap_or(DType::F32);
        Some((name.clone(), Tensor::from_values(dtype, &array.shape, &array.values)?))
    };
    cascade.inputs().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_algebra::{Def, Reduction, derive};

    const SOFTMAX: &str = "input X[m,n]: f32\noutput Y: f32\n\
        P[m,n] = exp(X[m,n] - max(n) X[m,n])\nY[m,n] = P[m,n] / sum(n) P[m,n]\n";

    /// The proof of softmax with a mistake made in every reduction of its derived form.
    fn with_mistake(mistake: impl Fn(&mut Reduction)) -> Proof {
        let cascade = einloom_cascade::parse(SOFTMAX).cascade;
        let tampered = |cascade: &Cascade| {
            let mut d: Derivation = derive(cascade);
            for node in &mut d.derived.nodes {
                if let Def::Reduce(r) = &mut node.def {
                    mistake(r);
                }
            }
            Derived::from_derivation(d)
        };
        let forms = [Form { wide: tampered(&in_f64(&cascade)), declared: tampered(&cascade) }];
        let machine = einloom_machine::built_in("cpu-generic").expect("built in");
        prove_forms(&cascade, &forms, &machine, false, 0, Effort::QUICK, &mut |_| {}).expect("a plan")
    }

    #[test]
    fn what_is_right_is_proved() {
        let proof = with_mistake(|_| {});
        assert_eq!(proof.disagreements, []);
        assert!(proof.inputs > 30 && proof.worst["Y"] < 1e-14 && proof.worst_declared["Y"] < 1e-6, "{proof:?}");
    }

    #[test]
    fn a_forgotten_repair_is_found() {
        assert_ne!(with_mistake(|r| r.streaming.repair = None).disagreements, []);
    }

    #[test]
    fn an_anchor_that_moves_the_wrong_way_is_found() {
        use einloom_cascade::Monoid;
        let min_for_max = |r: &mut Reduction| r.monoid = if r.monoid == Monoid::Max { Monoid::Min } else { r.monoid };
        assert_ne!(with_mistake(min_for_max).disagreements, []);
    }
}
