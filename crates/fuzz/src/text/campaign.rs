//! Many texts.

use super::{Attempt, Depth, attempt, text};
use einloom_machine::Machine;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign<'a> {
    /// Texts.
    pub count: u64,
    /// The first one's seed.
    pub seed: u64,
    /// Threads.
    pub jobs: usize,
    /// The texts that are damaged.
    pub corpus: &'a [String],
    /// Of the texts that check one in this many is derived, and one in eight times as many planned.
    pub derive_share: u64,
    /// Seconds after which a stage counts as too slow.
    pub slow: f64,
}

/// A text that should not be.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its seed.
    pub seed: u64,
    /// What happened.
    pub what: String,
    /// The text.
    pub text: String,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Texts.
    pub texts: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Those that check.
    pub checks: u64,
    /// Diagnostics in the others.
    pub diagnostics: u64,
    /// Those derived, and those planned.
    pub derived: u64,
    /// Planned, and refused a plan.
    pub planned: [u64; 2],
    /// The slowest seconds and their seeds: language, derivation, plan.
    pub slowest: [(f64, u64); 3],
    /// Panics, wrong answers, slow ones.
    pub findings: Vec<Finding>,
}

/// Seeds that a thread takes at a time.
const BATCH: u64 = 256;

/// What a thread is at, for who watches it.
pub type Watch = Mutex<Option<(Instant, u64)>>;

impl Campaign<'_> {
    /// Runs it. `watch` has an element for each thread, in which the text under way and its start can be seen; `progress`
    /// is told the tally now and then.
    pub fn run(&self, machine: &Machine, watch: &[Watch], progress: &(dyn Fn(&Tally) + Sync)) -> Tally {
        let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        std::thread::scope(|scope| {
            for k in 0..self.jobs.max(1) {
                let (next, tally) = (&next, &tally);
                let work = move || {
                    loop {
                        let first = next.fetch_add(BATCH, Ordering::Relaxed);
                        let here = first..(first + BATCH).min(self.count);
                        if here.is_empty() {
                            break;
                        }
                        let mut part = Tally::default();
                        for seed in here.map(|k| self.seed.wrapping_add(k)) {
                            let set = |at| watch.get(k).and_then(|w| w.lock().ok()).map(|mut w| *w = at);
                            set(Some((Instant::now(), seed)));
                            self.one(seed, machine, &mut part);
                            set(None);
                        }
                        let Ok(mut all) = tally.lock() else { break };
                        all.add(part);
                        progress(&all);
                    }
                };
                // The stack of a main thread: what is too deep for it is too deep.
                let started = std::thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, work);
                debug_assert!(started.is_ok());
            }
        });
        tally.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn one(&self, seed: u64, machine: &Machine, tally: &mut Tally) {
        let text = text(seed, self.corpus);
        tally.texts += 1;
        tally.bytes += text.len() as u64;
        let depth = match seed {
            s if self.derive_share > 0 && s.is_multiple_of(8 * self.derive_share) => Depth::Plan,
            s if self.derive_share > 0 && s.is_multiple_of(self.derive_share) => Depth::Derive,
            _ => Depth::Print,
        };
        match catch_unwind(AssertUnwindSafe(|| attempt(&text, depth, machine))) {
            Ok(mut done) => {
                // Again, if something else may have taken the time.
                for _ in 0..3 {
                    if done.slowest() > self.slow {
                        done = attempt(&text, depth, machine);
                    }
                }
                self.count(seed, text, &done, depth, tally);
            }
            Err(panic) => {
                let told = panic.downcast_ref::<String>().map(String::as_str);
                let told = told.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?");
                tally.findings.push(Finding { seed, what: format!("panics: {told}"), text });
            }
        }
    }

    fn count(&self, seed: u64, text: String, done: &Attempt, depth: Depth, tally: &mut Tally) {
        tally.checks += u64::from(done.checks);
        tally.diagnostics += done.diagnostics as u64;
        tally.derived += u64::from(done.checks && depth != Depth::Print);
        if let Some((_, planned)) = done.plan {
            tally.planned[usize::from(!planned)] += 1;
        }
        let seconds = done.seconds();
        for (slowest, seconds) in tally.slowest.iter_mut().zip(seconds) {
            if seconds > slowest.0 {
                *slowest = (seconds, seed);
            }
        }
        let what = match (&done.wrong, seconds.iter().position(|&s| s > self.slow)) {
            (Some(wrong), _) => wrong.clone(),
            (None, Some(stage)) => {
                let name = ["the language", "the derivation", "the plan"][stage];
                format!("{name} takes {:.2} s", seconds[stage])
            }
            _ => return,
        };
        tally.findings.push(Finding { seed, what, text });
    }
}

impl Tally {
    fn add(&mut self, part: Tally) {
        self.texts += part.texts;
        self.bytes += part.bytes;
        self.checks += part.checks;
        self.diagnostics += part.diagnostics;
        self.derived += part.derived;
        self.planned[0] += part.planned[0];
        self.planned[1] += part.planned[1];
        for (all, one) in self.slowest.iter_mut().zip(part.slowest) {
            if one.0 > all.0 {
                *all = one;
            }
        }
        self.findings.extend(part.findings);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "texts         {} ({:.1} MB)", self.texts, self.bytes as f64 / 1e6)?;
        writeln!(f, "programs      {} check, {} diagnostics in all", self.checks, self.diagnostics)?;
        let [planned, refused] = self.planned;
        writeln!(f, "further       {} derived, {planned} planned, {refused} refused a plan", self.derived)?;
        for (name, (seconds, seed)) in ["language", "derivation", "plan"].iter().zip(self.slowest) {
            writeln!(f, "slowest {name:<11} {:.1} ms, seed {seed}", seconds * 1e3)?;
        }
        write!(f, "findings      {}", self.findings.len())
    }
}
