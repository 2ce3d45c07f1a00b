//! The numeric proof of a derivation: derived, planned and run, it agrees with the reference meaning on random,
//! adversarial and degenerate inputs.
//!
//! Sizes are run twice: with all floating-point tensors in f64, where hardly an error is a rounding error,
//! and as declared. Tiles are small, so that small sizes make many chunks; some sets use the planner's own, and some one
//! kernel per reduction.

mod bounds;
mod exact;
mod forgive;
mod gathered;
mod given;
mod inputs;
mod parallel;
#[cfg(test)]
mod planted;
mod positions;
mod range;
mod reads;
mod report;
mod sensitivity;
mod sizes;
mod twice;
pub mod wide;

pub use bounds::{beyond_bounds, rounding_bounds};
pub use exact::{ExactProof, prove_exactly};
pub use inputs::{Kind, inputs};
pub use reads::in_reads;
pub use report::{Disagreement, Proof};
pub use sensitivity::{Moved, moved, sensitivity};
pub(crate) use sizes::is_free;

use crate::compare::{Precision, distance, in_f64, unit_roundoff};
use crate::road::{Compiled, Derived, PlanOptions, RunOptions};
use crate::{Error, Tensor};
use einloom_algebra::exact::{Certificate, in_fields};
use einloom_algebra::stream::Cut;
use einloom_algebra::{Derivation, flatten};
use einloom_cascade::meaning::{Arrays, MeaningError};
use einloom_cascade::{Bound, Cascade, DType, TensorId};
use einloom_machine::Machine;
use einloom_plan::Fusion;
use forgive::{forgive, forgive_masked, has_filter};
use given::Given;
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
    let at = |k: usize| {
        let kinds = (0..effort.kinds).map(|j| Kind::ALL[(k * effort.kinds + j) % Kind::ALL.len()]);
        let seeds = (k * Kind::ALL.len()..).map(|number| seed.wrapping_add(number as u64));
        let tried: Vec<_> = kinds.zip(seeds).collect();
        let mut prover = Prover { proof: Proof::default() };
        prover.set(forms, &bindings[k], k, &tried, machine, exact, effort.both).map(|()| prover.proof)
    };
    let enough = |done: &mut dyn Iterator<Item = &Result<Proof, Error>>| {
        let wrong = done.map(|proof| proof.as_ref().map_or(ENOUGH, |proof| proof.disagreements.len()));
        wrong.sum::<usize>() >= ENOUGH
    };
    let mut proof = Proof { sizes: bindings.len(), missing, ..Proof::default() };
    for part in parallel::in_order(bindings.len(), at, enough, progress) {
        proof.add(part?);
        if proof.disagreements.len() >= ENOUGH {
            proof.disagreements.truncate(ENOUGH);
            break;
        }
    }
    progress(1.0);
    Ok(proof)
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

struct Prover {
    proof: Proof,
}

impl Prover {
    /// Every form that set number `k` tries, on inputs of these kinds and seeds. Stops where enough is wrong.
    #[allow(clippy::too_many_arguments)] // All there is to know of a set.
    fn set(
        &mut self,
        forms: &[Form],
        bound: &Bound,
        k: usize,
        tried: &[(Kind, u64)],
        machine: &Machine,
        exact: bool,
        both: bool,
    ) -> Result<(), Error> {
        let in_turn = (forms.len() > 1).then(|| &forms[1 + k % (forms.len() - 1)]);
        // Both forms are compared with the same meaning.
        let mut given: BTreeMap<(bool, usize), Given> = BTreeMap::new();
        for (number, form) in forms.first().into_iter().chain(in_turn).enumerate() {
            for (in_f64, derived) in [(true, &form.wide), (false, &form.declared)] {
                if !both && in_f64 != k.is_multiple_of(2) {
                    continue;
                }
                let fuse = if k % 5 == 4 { Fusion::None } else { Fusion::Auto };
                let tiles = tiles(derived.cascade(), k);
                let options = PlanOptions { exact, tiles, fuse, ..PlanOptions::default() };
                let planned = match derived.plan_bound(bound.clone(), machine, &options) {
                    // Another form need not have a plan: then none runs it.
                    Err(Error::Plan(e)) if number > 0 => {
                        let form = 1 + k % (forms.len() - 1);
                        self.proof.unplanned.entry(form).or_insert_with(|| e.to_string());
                        continue;
                    }
                    planned => planned?,
                };
                let compiled = planned.compile()?;
                for (j, &(kind, seed)) in tried.iter().enumerate() {
                    // The cascade is that of every form.
                    let cascade = if in_f64 { forms[0].wide.cascade() } else { forms[0].declared.cascade() };
                    let given = given.entry((in_f64, j)).or_insert_with(|| Given::new(cascade, bound, kind, seed));
                    self.compare(&compiled, derived.derivation(), given, Run { in_f64, reordered: number > 0 })?;
                    if self.proof.disagreements.len() >= ENOUGH {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, compiled: &Compiled, form: &Derivation, given: &mut Given, run: Run) -> Result<(), Error> {
        let Run { in_f64, reordered } = run;
        let planned = compiled.planned();
        let cascade = planned.cascade();
        let bound = planned.bound();
        let kind = given.kind;
        self.proof.inputs += 1;
        let place = Disagreement {
            sizes: cascade.ranks.iter().map(|r| r.name.clone()).zip(bound.sizes().iter().copied()).collect(),
            kind,
            seed: given.seed,
            in_f64,
            output: String::new(),
            position: 0,
            expected: 0.0,
            found: 0.0,
            error: f64::INFINITY,
            tolerance: 0.0,
            stopped: None,
        };
        // The results do not depend on the number of threads, and other sets of sizes have the other cores.
        let options = RunOptions { threads: Some(1), ..RunOptions::default() };
        let found = compiled.run(&given.tensors, &options);
        let (found, expected) = match (found, given.expected.clone()) {
            (Ok(found), Ok(expected)) => (found.outputs, expected),
            (Err(Error::Run(_)), Err(MeaningError::OutOfRange { .. })) => {
                self.proof.undefined += 1;
                return Ok(());
            }
            (Ok(_), Err(MeaningError::OutOfRange { span, .. })) if gathered::under_condition(cascade, span) => {
                self.proof.undefined += 1;
                return Ok(());
            }
            // What nothing is made of need not be read where there is nothing.
            (Ok(_), Err(MeaningError::OutOfRange { elements: 0, .. })) => {
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
        let (mut masked, mut sensitive, mut less_precise) = (false, false, false);
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
            if dtype.is_integer() {
                overflowed |=
                    self.forgive_positions(cascade, bound, &given.arrays, output, &mut found, &expected.values);
            }
            let error = distance(&found, &expected.values, row, floor);
            let mut tolerance = precision.tolerance(dtype);
            if reordered {
                tolerance.arithmetic *= REORDERED;
            }
            let wrong = error.scaled > tolerance.total();
            let lost = match error.scaled.is_infinite() {
                true => !in_f64 && given.leaves_f32()?,
                false => !in_f64 && wrong && given.operations_leave_f32(),
            };
            if lost {
                out_of_range = true;
                continue;
            }
            if error.scaled > tolerance.total() && dtype.is_float() {
                let step = tolerance.arithmetic + tolerance.rounding;
                tolerance.sensitivity = match given.underflows()? {
                    true => f64::INFINITY,
                    false => given.sensitivity(output, step, false)?,
                };
                if error.scaled > tolerance.total() {
                    // exp(x - c) as exp(x - M)·exp(M - c): each exponent loses the last digits of its own addends, where the
                    // text's difference may lose none.
                    let moved = given.sensitivity(output, step, true)?;
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
            // Positions and other integers too: rounding may exchange the two largest.
            if error.scaled > tolerance.total() {
                let unit = unit_roundoff(precision.arithmetic) + precision.rounding;
                let (left, excused) =
                    self.undetermined(cascade, bound, &given.arrays, output, unit, &found, &expected.values);
                if excused > 0 {
                    error = distance(&left, &expected.values, row, floor);
                }
                if error.scaled <= tolerance.total() {
                    self.proof.undetermined += excused;
                    sensitive = true;
                    continue;
                }
                // Equal in exact arithmetic, and as far off as the form's own rounding may take it: as where moments cancel in
                // the residual of a near fit. Its step says that digits are lost there.
                let left = self.unstable(form, bound, &given.arrays, (cascade, output), unit, &found, &expected.values);
                if left.is_some_and(|left| distance(&left, &expected.values, row, floor).scaled <= tolerance.total()) {
                    less_precise = true;
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
        self.proof.less_precise += usize::from(less_precise);
        Ok(())
    }
}

impl Prover {
    /// Takes the meaning's word for positions among elements that are no numbers as written. Whether there were others.
    fn forgive_positions(
        &self,
        cascade: &Cascade,
        bound: &Bound,
        inputs: &Arrays,
        output: TensorId,
        found: &mut [f64],
        expected: &[f64],
    ) -> bool {
        let graph = flatten(cascade);
        let node = cascade.outputs.iter().position(|o| *o == output).map(|k| graph.outputs[k]);
        let Some(among) = node.and_then(|n| positions::among_no_numbers(&graph, bound, inputs, n)) else {
            return false;
        };
        let mut forgiven = false;
        for ((f, &e), _) in found.iter_mut().zip(expected).zip(among).filter(|((f, e), among)| *among && **f != **e) {
            *f = e;
            forgiven = true;
        }
        forgiven
    }

    /// What is found, without what the text's own rounding does not determine in arithmetic of this unit roundoff; and of how
    /// many elements that is said. A condition that hangs on rounding leaves its elements both values; nothing is said where a
    /// position does, or a value that only one side of such a condition has: that excuses no element by itself.
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

    /// What is found, without what finite bounds on the rounding errors of this form explain; nothing if the form is not
    /// certified equal in exact arithmetic, at these very sizes, or a condition hangs on rounding.
    #[allow(clippy::too_many_arguments)] // All there is to know of an output.
    fn unstable(
        &self,
        form: &Derivation,
        bound: &Bound,
        inputs: &Arrays,
        (cascade, output): (&Cascade, TensorId),
        unit: f64,
        found: &[f64],
        expected: &[f64],
    ) -> Option<Vec<f64>> {
        let number = cascade.outputs.iter().position(|o| *o == output)?;
        let (mut bounds, doubt) = rounding_bounds(&form.derived, bound, inputs, number, unit, Cut::Whole)?;
        bounds.iter_mut().filter(|b| !b.is_finite()).for_each(|b| *b = 0.0);
        let certified = !doubt && matches!(in_fields(form, bound, 1), Certificate::Certified { .. });
        certified.then(|| beyond_bounds(found, expected, &bounds).0)
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

    /// The text's residual is a sum of squares. Multiplied out it is equal, and its digits cancel where the fit is near.
    #[test]
    fn a_form_that_loses_digits_is_less_precise_and_not_wrong() {
        let with = |residual: &str| {
            let text = format!(
                "input X[n]: f32, Y[n]: f32\noutput R: f32\nmx = mean(n) X[n]\nmy = mean(n) Y[n]\n\
                 sxx = sum(n) (X[n] - mx)^2\nsxy = sum(n) (X[n] - mx) * (Y[n] - my)\n\
                 syy = sum(n) (Y[n] - my)^2\nb = sxy / (sxx + 0.1)\nR = {residual}\n"
            );
            einloom_cascade::parse(&text).cascade
        };
        let (text, multiplied) =
            (with("sum(n) (Y[n] - my - b * (X[n] - mx))^2"), with("syy - 2 * b * sxy + b^2 * sxx"));
        let form = |text: &Cascade, multiplied: &Cascade| {
            Derived::from_derivation(Derivation { written: derive(text).written, ..derive(multiplied) })
        };
        let wide = form(&in_f64(&text), &in_f64(&multiplied));
        let forms = [Form { wide, declared: form(&text, &multiplied) }];
        let machine = einloom_machine::built_in("cpu-generic").expect("built in");
        let proof = prove_forms(&text, &forms, &machine, false, 0, Effort::FULL, &mut |_| {}).expect("a plan");
        assert_eq!(proof.disagreements, []);
        assert!(proof.less_precise > 0 && proof.less_precise < proof.inputs / 10, "{proof:?}");
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
