//! Many seeds: programs made, examined, counted; disagreements shrunk.

use crate::cases::Case;
use crate::examine::{Effort, Rejected, Report, Subject, Way};
use crate::{generate, shrink};
use einloom_algebra::Rule;
use einloom_algebra::exact::Certificate;
use einloom_machine::Machine;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Programs.
    pub count: u64,
    /// The first one's seed.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// One in this many programs runs on the processor too; 0 for none.
    pub cpu_share: u64,
    /// One in this many of these runs in the planner's plan, the others in one that is drawn; 0 for none.
    pub planner_share: u64,
    /// One in this many is tested over finite fields too; 0 for none.
    pub exact_share: u64,
    /// Disagreements after which it stops.
    pub enough: usize,
    /// Disagreements that are made small; the others are kept as they are.
    pub shrink: usize,
}

/// A disagreement, shrunk.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The program's seed.
    pub seed: u64,
    /// Which parts disagree; `None` if one panicked.
    pub way: Option<Way>,
    /// What was seen before it was shrunk.
    pub told: String,
    /// The smallest case found.
    pub case: Case,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs made.
    pub programs: u64,
    /// Those that were examined: they check, and their sizes fit.
    pub examined: u64,
    /// Statements in them.
    pub statements: u64,
    /// Those in which a rule changed what a reduction is: anything but inlining.
    pub changed: u64,
    /// Comparisons of a streamed form with the meaning.
    pub compared: u64,
    /// Runs on the processor compared with the meaning.
    pub ran: u64,
    /// Plans that were drawn for these.
    pub drawn: u64,
    /// Plans that were drawn and refused, by reason: the planner's took their place.
    pub undrawn: BTreeMap<String, u64>,
    /// Comparisons that rounding alone explains.
    pub sensitive: u64,
    /// Elements in them that bounds on the text's own rounding errors excuse, one by one.
    pub undetermined_elements: u64,
    /// Comparisons in which the text leaves the range of its numbers.
    pub range: u64,
    /// Comparisons in which the derived form is right and loses more digits than the text.
    pub unstable: u64,
    /// Inputs without a meaning.
    pub undefined: u64,
    /// Programs certified over finite fields, certified in the regions of real points, not certified, not evaluated.
    pub exact: [u64; 4],
    /// Programs in which each rule fired, and how often in all.
    pub rules: BTreeMap<Rule, (u64, u64)>,
    /// Programs in which each rule was refused.
    pub refusals: BTreeMap<Rule, u64>,
    /// Programs not examined, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Plans refused, by reason.
    pub unplanned: BTreeMap<String, u64>,
    /// Disagreements.
    pub found: Vec<Counterexample>,
}

/// Seeds that a thread takes at a time.
const BATCH: u64 = 64;

impl Campaign {
    /// Runs it. `progress` is told the tally now and then.
    pub fn run(&self, machine: &Machine, progress: &(dyn Fn(&Tally) + Sync)) -> Tally {
        let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let first = next.fetch_add(BATCH, Ordering::Relaxed);
                        let here = first..(first + BATCH).min(self.count);
                        if here.is_empty() {
                            break;
                        }
                        let mut part = Tally::default();
                        let found = tally.lock().map_or(0, |all| all.found.len());
                        let shrink = found < self.shrink;
                        here.for_each(|k| self.one(machine, self.seed.wrapping_add(k), shrink, &mut part));
                        let Ok(mut all) = tally.lock() else { break };
                        all.add(part);
                        progress(&all);
                        if all.found.len() >= self.enough {
                            break;
                        }
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn one(&self, machine: &Machine, seed: u64, shrink: bool, tally: &mut Tally) {
        tally.programs += 1;
        let program = generate::program(seed);
        let effort = Effort::sample(seed, self.cpu_share, self.planner_share, self.exact_share);
        let case = Case { text: program.text, sizes: program.sizes, ..Case::default() };
        let examined = catch_unwind(AssertUnwindSafe(|| {
            let subject = Subject::new(&case.text, &case.sizes)?;
            let report = subject.examine(machine, &effort, seed);
            Ok((subject, report))
        }));
        match examined {
            Ok(Ok((subject, report))) => {
                tally.examined += 1;
                tally.statements += subject.cascade.statements.len() as u64;
                for d in &report.disagreements {
                    let told = format!("{:?} {} on {:?}: {:?}", d.way, d.how, d.kind, d.difference);
                    let fails = |c: &Case| shrink::still(c, machine, Some(d.way));
                    let start = Case { plan: d.plan, ..shrink::case(&subject, &d.inputs) };
                    let case = if shrink && fails(&start) { shrink::shrink(start, &fails) } else { start };
                    tally.found.push(Counterexample { seed, way: Some(d.way), told, case });
                }
                tally.count(&report);
            }
            Ok(Err(reason)) => {
                let reason = match reason {
                    Rejected::Text(error) => format!("text: {}", error.lines().next().unwrap_or_default()),
                    Rejected::Sizes(_) => "sizes".to_owned(),
                    Rejected::Work => "work".to_owned(),
                };
                // Without the place, which differs every time.
                let reason = reason.split_once("error[").map_or(reason.clone(), |(_, r)| format!("error[{r}"));
                *tally.rejected.entry(reason.split(']').next().unwrap_or_default().to_owned()).or_default() += 1;
            }
            Err(_) => {
                let fails = |c: &Case| panics(c, machine);
                let case = Case { plan: effort.plan.filter(|_| effort.cpu), ..case };
                let case = if shrink && fails(&case) { shrink::shrink(case, &fails) } else { case };
                let told = "panics".to_owned();
                tally.found.push(Counterexample { seed, way: None, told, case });
            }
        }
    }
}

/// Whether some part panics on a case, with values of its own or with random ones.
fn panics(case: &Case, machine: &Machine) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        if let Ok(subject) = Subject::new(&case.text, &case.sizes) {
            subject.examine(
                machine,
                &Effort { kinds: Effort::full().kinds[..2].to_vec(), plan: case.plan, ..Effort::full() },
                0,
            );
        }
    }))
    .is_err()
}

impl Tally {
    fn count(&mut self, report: &Report) {
        self.compared += report.compared as u64;
        self.ran += report.ran as u64;
        self.drawn += report.drawn as u64;
        self.sensitive += report.sensitive as u64;
        self.undetermined_elements += report.undetermined_elements as u64;
        self.range += report.range as u64;
        self.undefined += report.undefined as u64;
        self.unstable += report.unstable.len() as u64;
        self.changed += u64::from(report.rules.keys().any(|r| *r != Rule::Inline));
        match &report.exact {
            Some(Certificate::Certified { .. }) => self.exact[0] += 1,
            Some(Certificate::InRegions { .. }) => self.exact[1] += 1,
            Some(Certificate::NotCertified { .. }) => self.exact[2] += 1,
            Some(Certificate::NotEvaluated) => self.exact[3] += 1,
            None => {}
        }
        for (&rule, &times) in &report.rules {
            let entry = self.rules.entry(rule).or_default();
            *entry = (entry.0 + 1, entry.1 + times as u64);
        }
        for &rule in report.refusals.keys() {
            *self.refusals.entry(rule).or_default() += 1;
        }
        for reason in &report.unplanned {
            *self.unplanned.entry(reason.clone()).or_default() += 1;
        }
        for reason in &report.undrawn {
            // Without the name of what it is about.
            let reason = reason.split_once("`: ").map_or(reason.as_str(), |(_, why)| why);
            *self.undrawn.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn add(&mut self, part: Tally) {
        self.programs += part.programs;
        self.examined += part.examined;
        self.statements += part.statements;
        self.changed += part.changed;
        self.compared += part.compared;
        self.ran += part.ran;
        self.drawn += part.drawn;
        self.sensitive += part.sensitive;
        self.undetermined_elements += part.undetermined_elements;
        self.range += part.range;
        self.undefined += part.undefined;
        self.unstable += part.unstable;
        for (all, one) in self.exact.iter_mut().zip(part.exact) {
            *all += one;
        }
        for (rule, (programs, times)) in part.rules {
            let entry = self.rules.entry(rule).or_default();
            *entry = (entry.0 + programs, entry.1 + times);
        }
        let merge = |all: &mut BTreeMap<String, u64>, part: BTreeMap<String, u64>| {
            part.into_iter().for_each(|(k, n)| *all.entry(k).or_default() += n);
        };
        part.refusals.into_iter().for_each(|(k, n)| *self.refusals.entry(k).or_default() += n);
        merge(&mut self.rejected, part.rejected);
        merge(&mut self.unplanned, part.unplanned);
        merge(&mut self.undrawn, part.undrawn);
        self.found.extend(part.found);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "programs      {} ({} examined, {} statements)", self.programs, self.examined, self.statements)?;
        for (reason, n) in &self.rejected {
            writeln!(f, "  not examined {n}: {reason}")?;
        }
        writeln!(f, "rules fired in {} programs", self.changed)?;
        for (rule, (programs, times)) in &self.rules {
            let refused = self.refusals.get(rule).copied().unwrap_or(0);
            writeln!(f, "  {:<12} in {programs} programs, {times} times; refused in {refused}", rule.name())?;
        }
        for (rule, n) in self.refusals.iter().filter(|(r, _)| !self.rules.contains_key(r)) {
            writeln!(f, "  {:<12} refused in {n} programs", rule.name())?;
        }
        writeln!(f, "compared      {} streamed, {} on the processor", self.compared, self.ran)?;
        writeln!(f, "excused       {} rounding, {} range; {} undefined", self.sensitive, self.range, self.undefined)?;
        writeln!(f, "  by bounds   {} elements, one by one", self.undetermined_elements)?;
        writeln!(f, "less precise  {} than the text as written, certified equal", self.unstable)?;
        let [certified, regions, not, unevaluated] = self.exact;
        writeln!(
            f,
            "exact proof   {certified} certified, {regions} in regions, {not} not, {unevaluated} not evaluated"
        )?;
        let refused: u64 = self.undrawn.values().sum();
        writeln!(f, "plans drawn   {}, {refused} refused and taken from the planner", self.drawn)?;
        for (reason, n) in &self.undrawn {
            writeln!(f, "  not drawn   {n}: {reason}")?;
        }
        for (reason, n) in &self.unplanned {
            writeln!(f, "not planned   {n}: {reason}")?;
        }
        write!(f, "disagreements {}", self.found.len())
    }
}
