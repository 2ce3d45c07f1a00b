//! Many cases of one program against its meaning: sizes and number types.

use super::{LeavesRange, Verified, compare, sizes};
use crate::compare::{Distance, Precision, distance};
use crate::gpu::{Gpu, Path};
use crate::random::random_values;
use crate::road::{Derived, Outcome, PlanOptions, Planned, RunOptions};
use crate::{Error, Tensor};
use einloom_algebra::Derivation;
use einloom_cascade::meaning::{Array, Arrays, MeaningError};
use einloom_cascade::{Bound, Cascade, DType, Role, meaning, numeric};
use einloom_cuda::Target;
use einloom_cuda::runtime::POISON;
use einloom_machine::Machine;
use einloom_plan::Fusion;
use einloom_tile::TensorRole;
use std::collections::BTreeMap;
use std::fmt;

/// The number types of a program's floating-point inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Those of its text.
    AsWritten,
    /// This one wherever the text has f32, bf16 or f16.
    All(DType),
}

impl Types {
    /// What every program is verified in.
    pub const ALL: [Self; 4] = [Self::AsWritten, Self::All(DType::Bf16), Self::All(DType::F16), Self::All(DType::F32)];

    /// The program in these types; `None` if that is the program as written.
    fn of(self, cascade: &Cascade) -> Option<Cascade> {
        let Self::All(dtype) = self else { return Some(cascade.clone()) };
        let mut out = cascade.clone();
        for tensor in out.tensors.iter_mut().filter(|t| t.role != Role::Intermediate) {
            if matches!(tensor.dtype, None | Some(DType::F32 | DType::Bf16 | DType::F16)) {
                tensor.dtype = Some(dtype);
            }
        }
        let types = |c: &Cascade| c.tensors.iter().map(|t| t.dtype).collect::<Vec<_>>();
        (types(&out) != types(cascade)).then_some(out)
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsWritten => f.write_str("as written"),
            Self::All(dtype) => write!(f, "{dtype}"),
        }
    }
}

/// A program in some number types, and the sizes to verify it at.
#[derive(Clone, Debug)]
pub struct Battery {
    /// The number types.
    pub types: Types,
    derived: Derived,
    sizes: Vec<Bound>,
}

/// How much to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// A few cases of a few elements: for memory checkers, which slow kernels down a hundredfold.
    pub small: bool,
    /// Largest number of scalar operations of one evaluation of the meaning.
    pub work: f64,
}

impl Effort {
    /// Tiles of the sizes that kernels have in use.
    pub const FULL: Self = Self { small: false, work: 5e7 };
    /// A few elements.
    pub const SMALL: Self = Self { small: true, work: 3e5 };
}

/// The cases of a program, in all number types that it can have, and a note for each kind of sizes of which none fits.
pub fn batteries(cascade: &Cascade, effort: Effort, seed: u64) -> (Vec<Battery>, Vec<String>) {
    let (sets, missing) = sizes::sets(cascade, effort.small, effort.work, seed);
    let mut out = vec![];
    for types in Types::ALL {
        let Some(cascade) = types.of(cascade) else { continue };
        let sizes = sets.iter().filter(|(always, _)| *always || types == Types::AsWritten).map(|(_, b)| b.clone());
        out.push(Battery { types, derived: Derived::of(&cascade), sizes: sizes.collect() });
    }
    (out, missing)
}

/// What runs the cases.
#[derive(Clone, Copy)]
pub enum Runner<'a> {
    /// This computer's processor.
    Cpu,
    /// A GPU, with kernels scheduled for this target.
    Cuda(&'a Gpu, Target),
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The way it took on a GPU.
    pub path: Option<Path>,
    /// Every output: its error, what it may be, and the error of a plain evaluation.
    pub outputs: Vec<Compared>,
    /// What the text reads outside a tensor with the inputs that were drawn: it has no meaning for them, and nothing was run.
    pub outside: Option<String>,
    /// Rows of outputs (fibres along the last dimension) that the meaning makes 0 or not finite, as those that all conditions
    /// mask are.
    pub empty_rows: usize,
}

/// An output of a case.
#[derive(Clone, Debug)]
pub struct Compared {
    /// How far the run is from the meaning, and how far it may be.
    pub run: Verified,
    /// Elements that hold what they held before the run: nobody wrote them. Counted in number types of 16 bits and more.
    pub unwritten: usize,
    /// How far a plain evaluation is from the meaning: the program as it is written, one kernel per reduction, every
    /// intermediate in memory in its number type, on the processor. `None` if there is none.
    pub plain: Option<Distance>,
}

impl Checked {
    /// Whether every output agrees with the meaning.
    pub fn agrees(&self) -> bool {
        self.outside.is_none() && self.outputs.iter().all(Compared::agrees)
    }

    /// Why outputs do not agree where that is the text's own doing alone: all others agree.
    pub fn leaves_range(&self) -> Option<&LeavesRange> {
        let explained = |o: &Compared| o.agrees() || o.unwritten == 0 && o.run.range.is_some();
        self.outputs.iter().filter(|_| self.outputs.iter().all(explained)).find_map(|o| o.run.range.as_ref())
    }
}

impl Compared {
    /// Whether all of the output was written, and agrees with the meaning.
    pub fn agrees(&self) -> bool {
        self.unwritten == 0 && self.run.agrees()
    }
}

impl Battery {
    /// Cases.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The sizes of a case, by rank.
    pub fn sizes(&self, case: usize) -> BTreeMap<String, usize> {
        let ranks = self.derived.cascade().ranks.iter().map(|r| r.name.clone());
        ranks.zip(self.sizes[case].sizes().iter().copied()).collect()
    }

    /// About how many scalar operations the meaning of a case takes.
    pub fn work(&self, case: usize) -> f64 {
        meaning::work(self.derived.cascade(), &self.sizes[case])
    }

    /// Plans, compiles and runs a case on random inputs, its outputs poisoned before, and compares it with the meaning.
    /// For a machine with a matrix unit, and with it in the plain evaluation, contractions round their wider operand unless
    /// `exact`.
    ///
    /// # Errors
    /// Whatever stops the road, or the meaning.
    pub fn check(
        &self,
        case: usize,
        runner: Runner<'_>,
        machine: &Machine,
        exact: bool,
        seed: u64,
    ) -> Result<Checked, Error> {
        let bound = &self.sizes[case];
        let narrow_contractions = crate::machines::rounds_wider_factors(machine) && !exact;
        let options = PlanOptions { exact, narrow_contractions, ..PlanOptions::default() };
        let planned = self.derived.plan_bound(bound.clone(), machine, &options)?;
        let inputs = self.inputs(bound, seed.wrapping_add(case as u64))?;
        let expected = match planned.meaning(&inputs, &mut |_| {}) {
            Err(Error::Meaning(outside @ MeaningError::OutOfRange { .. })) => {
                let outside = Some(outside.to_string());
                return Ok(Checked { path: None, outputs: vec![], outside, empty_rows: 0 });
            }
            expected => expected?,
        };
        let (outcome, path) = match runner {
            Runner::Cpu => (poisoned(&planned, &inputs)?, None),
            Runner::Cuda(gpu, target) => {
                let program = planned.compile_for_target(gpu, &target)?;
                (program.run(&inputs)?, Some(program.path()))
            }
        };
        let plain = self.plain(bound, &options, &inputs);
        let cascade = planned.cascade();
        let precision = Precision::of(cascade, bound, planned.program());
        let outputs = compare(&planned, &inputs, &outcome.outputs, &expected)?.into_iter().map(|run| {
            let plain = plain.as_ref().and_then(|p| {
                let (found, expected) = (p.get(&run.output)?, expected.get(&run.output)?);
                let row = expected.shape.last().copied().unwrap_or(1);
                Some(distance(&found.values(), &expected.values, row, precision.floor(found.dtype())))
            });
            let unwritten = outcome.outputs.get(&run.output).map_or(0, unwritten);
            Compared { run, unwritten, plain }
        });
        let floats = cascade.outputs.iter().filter(|&&o| planned.dtype(o).is_float());
        let empty_rows = floats.filter_map(|&o| expected.get(&cascade[o].name)).map(empty_rows).sum();
        Ok(Checked { path, outputs: outputs.collect(), outside: None, empty_rows })
    }

    /// Random inputs, as the number types hold them.
    fn inputs(&self, bound: &Bound, seed: u64) -> Result<BTreeMap<String, Tensor>, Error> {
        let cascade = self.derived.cascade();
        let arrays: Arrays = cascade
            .inputs()
            .map(|id| {
                let dtype = cascade[id].dtype.unwrap_or(DType::F32);
                let values = random_values(cascade, bound, id, seed);
                let values = values.into_iter().map(|v| numeric::round(dtype, v)).collect();
                (cascade[id].name.clone(), Array { shape: bound.shape(cascade, id), values })
            })
            .collect();
        Ok(crate::prove::tensors(cascade, &arrays))
    }

    /// The outputs of the plain evaluation, where the program as written can be planned and run.
    fn plain(
        &self,
        bound: &Bound,
        options: &PlanOptions,
        inputs: &BTreeMap<String, Tensor>,
    ) -> Option<BTreeMap<String, Tensor>> {
        let derivation = self.derived.derivation();
        let as_written = Derivation { derived: derivation.written.clone(), alternatives: vec![], ..derivation.clone() };
        let machine = einloom_machine::built_in("cpu-generic")?;
        let options = PlanOptions { fuse: Fusion::None, ..options.clone() };
        let planned = Derived::from_derivation(as_written).plan_bound(bound.clone(), &machine, &options).ok()?;
        planned.run(inputs, &RunOptions::default()).ok().map(|o| o.outputs)
    }
}

/// Elements that hold [`POISON`]. A NaN of the meaning is no excuse: arithmetic gives other bits.
fn unwritten(tensor: &Tensor) -> usize {
    let size = tensor.dtype().bytes();
    if size < 2 {
        return 0;
    }
    let poisoned = |element: &&[u8]| element.chunks(2).all(|word| word == POISON.to_ne_bytes());
    tensor.bytes().chunks(size).filter(poisoned).count()
}

fn empty_rows(array: &Array) -> usize {
    let row = array.shape.last().copied().unwrap_or(1).max(1);
    array.values.chunks(row).filter(|r| r.iter().all(|v| *v == 0.0 || !v.is_finite())).count()
}

/// A run on the processor into outputs that hold [`POISON`].
fn poisoned(planned: &Planned, inputs: &BTreeMap<String, Tensor>) -> Result<Outcome, Error> {
    let compiled = planned.compile()?;
    let mut outputs = compiled.outputs()?;
    for tensor in &mut outputs {
        let poison = POISON.to_ne_bytes();
        tensor.view_mut().bytes.chunks_mut(2).for_each(|word| word.copy_from_slice(&poison[..word.len()]));
    }
    let report = compiled.run_into(inputs, &mut outputs, &RunOptions::default())?;
    let names = planned.program().tensors.iter().filter(|t| t.role == TensorRole::Output).map(|t| t.name.clone());
    Ok(Outcome { outputs: names.zip(outputs).collect(), report })
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_algebra::Def;
    use einloom_cascade::Monoid;

    const SOFTMAX: &str = "input X[m,n]: bf16\noutput Y: f32\n\
        P[m,n] = exp(X[m,n] - max(n) X[m,n])\nY[m,n] = P[m,n] / sum(n) P[m,n]\n";

    fn run(battery: &Battery) -> Vec<Checked> {
        let machine = einloom_machine::built_in("cpu-generic").expect("built in");
        let all = (0..battery.len()).map(|k| battery.check(k, Runner::Cpu, &machine, false, 0));
        all.collect::<Result<_, _>>().expect("all run")
    }

    #[test]
    fn every_number_type_that_differs_is_tried_once() {
        let cascade = einloom_cascade::parse(SOFTMAX).cascade;
        let (all, missing) = batteries(&cascade, Effort::SMALL, 0);
        assert_eq!(missing, Vec::<String>::new());
        let types: Vec<Types> = all.iter().map(|b| b.types).collect();
        assert_eq!(types, Types::ALL);
        let one = einloom_cascade::parse("input X[m]: f32\noutput Y: f32\nY[m] = 2 * X[m]").cascade;
        assert_eq!(batteries(&one, Effort::SMALL, 0).0.len(), 3, "f32 is as written");
        for checked in all.iter().flat_map(run) {
            assert!(checked.agrees(), "{checked:?}");
            assert!(checked.outputs[0].plain.is_some_and(|p| p.scaled < 1e-2));
        }
    }

    #[test]
    fn a_wrong_derivation_disagrees() {
        let cascade = einloom_cascade::parse(SOFTMAX).cascade;
        let (mut all, _) = batteries(&cascade, Effort::SMALL, 0);
        let battery = &mut all[0];
        let mut derivation = battery.derived.derivation().clone();
        for node in &mut derivation.derived.nodes {
            if let Def::Reduce(r) = &mut node.def
                && r.monoid == Monoid::Sum
            {
                r.monoid = Monoid::Max;
            }
        }
        battery.derived = Derived::from_derivation(derivation);
        assert!(run(battery).iter().any(|c| !c.agrees()));
    }

    #[test]
    fn a_text_that_leaves_the_range_of_f32_is_told_from_a_wrong_kernel() {
        let text = "input X[t]: f32\noutput Y: f32\noutput W: f32\n\
            Y[t] = log(exp(X[t] - 300) + exp(X[t] - 301))\nW[t] = 2 * X[t]\n";
        let cascade = einloom_cascade::parse(text).cascade;
        let (all, _) = batteries(&cascade, Effort::SMALL, 0);
        let written = all.iter().find(|b| b.types == Types::AsWritten).expect("as written");
        for checked in run(written) {
            let finding = checked.leaves_range().expect("the text leaves the range").clone();
            assert!(!checked.agrees() && checked.outputs[1].agrees());
            assert_eq!((finding.statement.as_str(), finding.becomes), ("Y", f64::NEG_INFINITY));
            assert!(finding.value > 0.0 && finding.value < 1e-100 && finding.expected < -290.0, "{finding}");
        }
        // Nothing leaves it here: what is wrong stays wrong, and so it does beside what leaves it.
        for text in [SOFTMAX, text] {
            let (mut all, _) = batteries(&einloom_cascade::parse(text).cascade, Effort::SMALL, 0);
            let battery = &mut all[0];
            let mut derivation = battery.derived.derivation().clone();
            for node in &mut derivation.derived.nodes {
                match &mut node.def {
                    Def::Reduce(r) if r.monoid == Monoid::Sum => r.monoid = Monoid::Max,
                    Def::Map(term) if node.name == "W" => *term = einloom_algebra::Term::Number(0.25),
                    _ => {}
                }
            }
            battery.derived = Derived::from_derivation(derivation);
            let checked = run(battery);
            assert!(checked.iter().any(|c| !c.agrees()), "{text}");
            assert!(checked.iter().all(|c| c.agrees() || c.leaves_range().is_none()), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_too_small_are_the_texts_own_and_a_wrong_kernel_beside_them_is_not() {
        // The first divides by what is below the smallest normal number, and nothing else does.
        let text = "input X[t]: f32, V[t]: f32\noutput Y: f32\noutput W: f32\n\
            w[t] = exp(-90 - 5 * abs(X[t]))\nY[t] = w[t] * V[t] / w[t]\nW[t] = 2 * X[t]\n";
        for wrong in [false, true] {
            let (mut all, _) = batteries(&einloom_cascade::parse(text).cascade, Effort::SMALL, 0);
            let battery = &mut all[0];
            let mut derivation = battery.derived.derivation().clone();
            for node in derivation.derived.nodes.iter_mut().filter(|n| wrong && n.name == "W") {
                node.def = Def::Map(einloom_algebra::Term::Number(0.25));
            }
            battery.derived = Derived::from_derivation(derivation);
            for checked in run(battery) {
                assert!(!checked.outputs[0].agrees());
                assert_eq!((checked.outputs[1].agrees(), checked.leaves_range().is_some()), (!wrong, !wrong));
                let Some(finding) = checked.leaves_range() else { continue };
                assert!(["w", "Y"].contains(&finding.statement.as_str()), "{finding}");
                assert!((finding.value as f32).is_subnormal(), "{finding}");
            }
        }
    }

    #[test]
    fn what_overflows_in_some_order_is_the_texts_own_and_finite_numbers_beside_it_are_not() {
        // States grow without bounds: infinities meet in one order of a sum and not in another.
        let text = "input K[t,c]: f32, R[t,c]: f32, V[t,e]: f32\noutput O: f32\nS[0,e,c] = 0\n\
            p[t,e] = sum(c) S[t,e,c] * K[t,c]\nS[t+1,e,c] = S[t,e,c] - 9000 * p[t,e] * K[t,c] + V[t,e] * K[t,c]\n\
            O[t,e] = sum(c) S[t+1,e,c] * R[t,c]\n";
        let cascade = einloom_cascade::parse(text).cascade;
        let (mut all, _) = batteries(&cascade, Effort::SMALL, 0);
        let checked = run(&all[0]);
        assert!(checked.iter().any(|c| !c.agrees()), "some leave the range");
        assert!(checked.iter().all(|c| c.agrees() || c.leaves_range().is_some()), "{checked:?}");
        let mut derivation = all[0].derived.derivation().clone();
        for node in derivation.derived.nodes.iter_mut().filter(|n| n.name == "p") {
            let Def::Reduce(r) = &mut node.def else { continue };
            r.body = einloom_algebra::Term::Binary(
                einloom_cascade::BinaryOp::Mul,
                Box::new(r.body.clone()),
                Box::new(einloom_algebra::Term::Number(0.5)),
            );
        }
        all[0].derived = Derived::from_derivation(derivation);
        let wrong = run(&all[0]);
        assert!(wrong.iter().any(|c| !c.agrees() && c.leaves_range().is_none()), "half of p is seen");
    }

    #[test]
    fn positions_made_of_integers_stay_inside_or_the_case_is_not_tried() {
        let text =
            |at: &str| format!("input K[n,d]: f32, b[c]: i32\noutput O: f32\nat[c]: i32 = {at}\nO[c,d] = K[at[c],d]\n");
        let of = |at: &str| {
            let (all, _) = batteries(&einloom_cascade::parse(&text(at)).cascade, Effort::SMALL, 0);
            all.iter().flat_map(|b| (0..b.len()).map(|k| b.sizes(k)).zip(run(b))).collect::<Vec<_>>()
        };
        for (sizes, checked) in of("2 * b[c] + 1") {
            // Of one row there is no second.
            assert_eq!((checked.agrees(), checked.outside.is_some()), (sizes["N"] > 1, sizes["N"] == 1), "{checked:?}");
        }
        assert!(of("floor(b[c] / 3)").iter().all(|(_, checked)| checked.agrees()));
        assert!(of("b[c] - b[c] - 1").iter().all(|(_, c)| c.outside.is_some() && !c.agrees()));
    }

    #[test]
    fn what_nobody_wrote_is_seen_beside_a_nan() {
        let words = [0x7fff, POISON, 0xffff, POISON, POISON];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let narrow = Tensor::from_bytes(DType::Bf16, &[5], bytes.clone()).expect("five elements");
        assert_eq!(unwritten(&narrow), 3);
        assert!(narrow.values().iter().all(|v| v.is_nan()));
        let wide = Tensor::from_bytes(DType::F32, &[2], bytes[2..].to_vec()).expect("two elements");
        assert_eq!(unwritten(&wide), 1);
        assert!(wide.values()[1].is_nan());
    }

    #[test]
    fn a_meaning_that_leaves_the_range_of_f64_is_told_from_a_wrong_kernel() {
        let text = |less: &str| {
            format!(
                "input X[n]: f32, V[n]: f32\noutput Y: f32\n\
                 Q[n] = 0 - 900 - X[n] * X[n]\nE[n] = exp(Q[n]{less})\nY = (sum(n) E[n] * V[n]) / sum(n) E[n]\n"
            )
        };
        let checked = |text: &str| {
            let (all, _) = batteries(&einloom_cascade::parse(text).cascade, Effort::SMALL, 0);
            run(all.iter().find(|b| b.types == Types::AsWritten).expect("as written"))
        };
        let mut told = 0;
        for checked in checked(&text("")) {
            let Some(finding) = checked.leaves_range() else { continue };
            assert_eq!((finding.of, finding.statement.as_str()), (DType::F64, "Y"));
            assert!(finding.becomes.is_nan() && finding.expected.is_finite(), "{finding}");
            told += 1;
        }
        assert!(told > 0, "all exponentials are 0 in f64");
        assert!(checked(&text(" + 900")).iter().all(|c| c.agrees() && c.leaves_range().is_none()));
    }

    #[test]
    fn positions_that_rounding_exchanges_are_no_fault() {
        let text = "input X[n]: f32\noutput A: i32\nA = argmax(n) sigmoid(X[n] + 12)\n";
        let (all, _) = batteries(&einloom_cascade::parse(text).cascade, Effort::SMALL, 0);
        let checked: Vec<Checked> = all.iter().flat_map(run).collect();
        assert!(checked.iter().all(Checked::agrees), "{checked:?}");
    }

    #[test]
    fn rows_over_nothing_are_counted() {
        let text = "input X[m,n]: f32\noutput Y: f32\nY[m] = sum(n: n < m) X[m,n] / sum(n: n < m) 1";
        let (all, _) = batteries(&einloom_cascade::parse(text).cascade, Effort::SMALL, 0);
        assert!(run(&all[0]).iter().any(|c| c.empty_rows > 0));
    }
}
