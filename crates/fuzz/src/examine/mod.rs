//! One program, examined: what it means against its derived form, streamed and cut in several ways, against the planned
//! program on the processor, and the exact proof.
//!
//! A difference is a disagreement only if no rounding and no overflow of the text explains it: the meaning's own
//! sensitivity is measured ([`prove::sensitivity`]), and both forms are evaluated again over numbers whose exponents
//! never run out. What was excused is counted.

mod bounds;
mod compare;
mod cpu;
mod propagated;
mod ranged;
mod reached;
mod settled;

use einloom::Derived;
use einloom::compare::in_f64;
use einloom::prove::{self, Kind};
use einloom::random::Random;
use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::stream::{self, Cut};
use einloom_algebra::{Derivation, Rule, Step, derive};
use einloom_cascade::meaning::{self, Arrays, MeaningError};
use einloom_cascade::{Bound, Cascade, Given, bind};
use einloom_machine::Machine;
use std::collections::BTreeMap;

pub use compare::Difference;
use compare::Verdict;

/// What to try on a program.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Kinds of inputs.
    pub kinds: Vec<Kind>,
    /// The ways in which streams are cut.
    pub cuts: Vec<Cut>,
    /// Plan and run it on the processor too.
    pub cpu: bool,
    /// Test the derivation over finite fields too.
    pub exact: bool,
    /// The number that plans for the processor are drawn from; `None` for those of the planner.
    pub plan: Option<u64>,
}

impl Effort {
    /// Everything, for cases that are kept.
    pub fn full() -> Self {
        let cuts = vec![Cut::Whole, Cut::Chunks(1), Cut::Chunks(2), Cut::Chunks(3), Cut::Parts(1), Cut::Parts(2)];
        Self { kinds: Kind::ALL.to_vec(), cuts, cpu: true, exact: true, plan: None }
    }

    /// A little, chosen by a seed: one in `cpu_share` programs runs on the processor, one in `planner_share` of them in the
    /// planner's plan and the others in one that is drawn; one in `exact_share` is tested over finite fields.
    pub fn sample(seed: u64, cpu_share: u64, planner_share: u64, exact_share: u64) -> Self {
        let mut random = Random::new(seed, "effort");
        // Half of the inputs are ordinary ones, which prove the most.
        let kind = if random.unit() < 0.4 { Kind::Normal } else { random.pick(&Kind::ALL) };
        let cut =
            random.pick(&[Cut::Chunks(1), Cut::Chunks(2), Cut::Chunks(3), Cut::Parts(1), Cut::Parts(2), Cut::Whole]);
        let one_in = |random: &mut Random, share: u64| share > 0 && random.bits().is_multiple_of(share);
        let (cpu, exact) = (one_in(&mut random, cpu_share), one_in(&mut random, exact_share));
        let plan = (!one_in(&mut random, planner_share)).then(|| random.bits());
        Self { kinds: vec![kind], cuts: vec![cut], cpu, exact, plan }
    }
}

/// What was compared with the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The streaming form, evaluated in f64.
    Stream,
    /// The planned program, in f64.
    CpuWide,
    /// The planned program, as declared.
    Cpu,
}

/// Where two parts disagree.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Which was compared with the meaning.
    pub way: Way,
    /// How it was cut, or tiled, for a reader.
    pub how: String,
    /// The inputs.
    pub inputs: Arrays,
    /// What they look like; `None` if they were given.
    pub kind: Option<Kind>,
    /// The number that its plan was drawn from, if it was.
    pub plan: Option<u64>,
    /// The difference.
    pub difference: Difference,
}

/// What came of examining one program.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How often each rule fired.
    pub rules: BTreeMap<Rule, usize>,
    /// How often each rule was refused.
    pub refusals: BTreeMap<Rule, usize>,
    /// Inputs on which the forms were compared.
    pub compared: usize,
    /// Inputs on which neither form has a value, such as a gather that leaves its tensor.
    pub undefined: usize,
    /// Comparisons that rounding alone may have moved.
    pub sensitive: usize,
    /// Elements among these that bounds on the text's own rounding errors excuse, one by one.
    pub undetermined_elements: usize,
    /// Comparisons in which the text as written over- or underflows.
    pub range: usize,
    /// Comparisons in which rounding errors grow more than in the text as written, the algebra being right: the worst
    /// error of each.
    pub unstable: Vec<f64>,
    /// Runs on the processor.
    pub ran: usize,
    /// Plans among them that were drawn.
    pub drawn: usize,
    /// Plans that were drawn and refused, with the reason: the planner's took their place.
    pub undrawn: Vec<String>,
    /// Plans that were refused, with the reason.
    pub unplanned: Vec<String>,
    /// What the exact proof said, if it was asked.
    pub exact: Option<Certificate>,
    /// Where parts disagree: at most one a way.
    pub disagreements: Vec<Disagreement>,
}

impl Report {
    /// A comparison in which the text does not determine these elements but for rounding.
    fn undetermined(&mut self, elements: usize) {
        self.sensitive += 1;
        self.undetermined_elements += elements;
    }
}

/// Why a program was not examined.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejected {
    /// It does not check: the first error.
    Text(String),
    /// Its sizes do not fit: the first error.
    Sizes(String),
    /// One evaluation would take too long.
    Work,
}

/// Scalar operations of one evaluation beyond which a program is not examined.
const MOST_WORK: f64 = 1e6;

/// A program with sizes, ready to be examined.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As written, with everything in f64.
    pub wide: Cascade,
    /// As written.
    pub cascade: Cascade,
    /// Sizes and parameters.
    pub bound: Bound,
    given: Given,
}

impl Subject {
    /// Reads a program.
    ///
    /// # Errors
    /// [`Rejected`].
    pub fn new(text: &str, sizes: &BTreeMap<String, usize>) -> Result<Self, Rejected> {
        let parsed = einloom_cascade::parse(text);
        if let Some(error) = parsed.diagnostics.iter().find(|d| d.is_error()) {
            return Err(Rejected::Text(einloom_cascade::render_plain(error, text)));
        }
        let cascade = parsed.cascade;
        let known = |name: &&String| cascade.rank(name).is_some();
        let sizes = sizes.keys().filter(known).map(|k| (k.clone(), sizes[k])).collect();
        let given = Given { sizes, ..Given::default() };
        let bound = bind(&cascade, &given).map_err(|errors| Rejected::Sizes(errors[0].to_string()))?;
        if meaning::work(&cascade, &bound) > MOST_WORK {
            return Err(Rejected::Work);
        }
        Ok(Self { wide: in_f64(&cascade), cascade, bound, given })
    }

    /// Its derivation, with everything in f64.
    pub fn derivation(&self) -> Derivation {
        derive(&self.wide)
    }

    /// Examines it on inputs of several kinds.
    pub fn examine(&self, machine: &Machine, effort: &Effort, seed: u64) -> Report {
        let derivation = self.derivation();
        let mut report = self.examine_derivation(&derivation, effort, seed);
        if effort.cpu {
            self.cpu(Derived::from_derivation(derivation), machine, effort, seed, &mut report);
        }
        report
    }

    /// Examines a derivation of it, which somebody may have tampered with, in all its forms.
    pub fn examine_derivation(&self, derivation: &Derivation, effort: &Effort, seed: u64) -> Report {
        let mut report = Report::default();
        let forms = forms(derivation);
        for (_, form) in &forms {
            // What a form shares with the first is counted once.
            let own = |s: &&Step| std::ptr::eq(form, &forms[0].1) || !derivation.steps.contains(s);
            for step in form.steps.iter().filter(own) {
                *report.rules.entry(step.rule).or_default() += 1;
            }
        }
        for refusal in &derivation.refusals {
            *report.refusals.entry(refusal.rule).or_default() += 1;
        }
        for (k, &kind) in effort.kinds.iter().enumerate() {
            let inputs = prove::inputs(&self.wide, &self.bound, kind, seed.wrapping_add(k as u64));
            self.stream(&forms, &inputs, Some(kind), &effort.cuts, &mut report);
        }
        if effort.exact {
            report.exact = Some(certify(derivation, &self.bound, 1));
        }
        report
    }

    /// Examines plans of a derivation of it, with everything in f64, which somebody may have tampered with.
    pub fn examine_planned(&self, derivation: Derivation, machine: &Machine, effort: &Effort, seed: u64) -> Report {
        let mut report = Report::default();
        self.cpu(Derived::from_derivation(derivation), machine, effort, seed, &mut report);
        report
    }

    /// Examines it on these inputs alone.
    pub fn examine_on(&self, machine: &Machine, inputs: &Arrays, effort: &Effort) -> Report {
        let mut report = Report::default();
        let derivation = self.derivation();
        self.stream(&forms(&derivation), inputs, None, &effort.cuts, &mut report);
        if effort.cpu {
            self.cpu_on(&Derived::from_derivation(derivation), machine, inputs, effort.plan, &mut report);
        }
        report
    }

    /// The derived forms, streamed, against the meaning.
    fn stream(
        &self,
        forms: &[(String, Derivation)],
        inputs: &Arrays,
        kind: Option<Kind>,
        cuts: &[Cut],
        report: &mut Report,
    ) {
        let expected = match meaning::evaluate(&self.wide, &self.bound, inputs) {
            Ok(expected) => Some(expected),
            Err(MeaningError::OutOfRange { .. }) => None,
            Err(_) => return,
        };
        for ((name, form), &cut) in forms.iter().flat_map(|f| cuts.iter().map(move |c| (f, c))) {
            let found = stream::evaluate(&form.derived, &self.bound, inputs, cut);
            let how = format!("{cut:?}, {name}");
            let (expected, found) = match (&expected, found) {
                (Some(expected), Some(found)) => (expected, found),
                // A derived form may skip an element that nothing needs, and so a position outside its tensor.
                (None, _) => {
                    report.undefined += 1;
                    continue;
                }
                // A position among values that are no numbers.
                (Some(_), None) if self.finds_nan(&self.wide, inputs) || self.skips_reads() => {
                    report.undefined += 1;
                    continue;
                }
                (Some(_), None) => {
                    self.disagree(report, Way::Stream, (how, None), inputs, kind, Difference::stopped());
                    continue;
                }
            };
            report.compared += 1;
            match self.compare_wide(form, inputs, expected, &found, cut) {
                Verdict::Agrees => {}
                Verdict::Sensitive => report.sensitive += 1,
                Verdict::Undetermined(elements) => report.undetermined(elements),
                Verdict::Range => report.range += 1,
                Verdict::Undefined => report.undefined += 1,
                Verdict::Unstable(difference) => report.unstable.push(difference.error),
                Verdict::Differs(difference) => {
                    self.disagree(report, Way::Stream, (how, None), inputs, kind, difference);
                }
            }
        }
    }

    fn disagree(
        &self,
        report: &mut Report,
        way: Way,
        (how, plan): (String, Option<u64>),
        inputs: &Arrays,
        kind: Option<Kind>,
        difference: Difference,
    ) {
        if report.disagreements.iter().all(|d| d.way != way) {
            report.disagreements.push(Disagreement { way, how, inputs: inputs.clone(), kind, plan, difference });
        }
    }
}

/// Every form that a derivation offers, by name.
fn forms(derivation: &Derivation) -> Vec<(String, Derivation)> {
    let others = derivation.alternatives.iter().enumerate();
    let others = others.filter_map(|(k, a)| Some((a.name.clone(), derivation.of_alternative(k)?)));
    std::iter::once(("as derived".to_owned(), derivation.clone())).chain(others).collect()
}
