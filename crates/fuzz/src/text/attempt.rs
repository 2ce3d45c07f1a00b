//! One text through the language, and what comes after it.

use einloom_algebra::derive;
use einloom_cascade::{Cascade, Given, bind, erase_spans, parse, print};
use einloom_machine::Machine;
use std::time::Instant;

/// How far a text that checks is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Printed and read again.
    Print,
    /// Also derived, passes included.
    Derive,
    /// Also planned.
    Plan,
}

/// What became of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    /// Whether it is a program.
    pub checks: bool,
    /// Diagnostics.
    pub diagnostics: usize,
    /// Seconds that lexer, parser, checker and printer took together.
    pub language: f64,
    /// Seconds that the derivation took.
    pub derive: f64,
    /// Seconds that planning took, and whether there is a plan.
    pub plan: Option<(f64, bool)>,
    /// What is wrong: a place outside the text, or a program that does not survive printing.
    pub wrong: Option<String>,
}

impl Attempt {
    /// Seconds in the language, the derivation and the plan.
    pub fn seconds(&self) -> [f64; 3] {
        [self.language, self.derive, self.plan.map_or(0.0, |p| p.0)]
    }

    /// The longest of them.
    pub fn slowest(&self) -> f64 {
        self.seconds().into_iter().fold(0.0, f64::max)
    }
}

/// Takes a text through the language. Panics where some part of it does.
pub fn attempt(text: &str, depth: Depth, machine: &Machine) -> Attempt {
    let start = Instant::now();
    let parsed = parse(text);
    let mut out = Attempt { checks: !parsed.has_errors(), diagnostics: parsed.diagnostics.len(), ..Attempt::default() };
    if let Some(d) = parsed.diagnostics.iter().find(|d| text.get(d.span.range()).is_none()) {
        out.wrong = Some(format!("`{}` is at {:?}, which is no place in the text", d.message, d.span));
    }
    if out.checks {
        out.wrong = out.wrong.or_else(|| survives(&parsed.cascade));
    }
    out.language = start.elapsed().as_secs_f64();
    if out.checks && depth != Depth::Print {
        let start = Instant::now();
        let derivation = derive(&parsed.cascade);
        out.derive = start.elapsed().as_secs_f64();
        if depth == Depth::Plan {
            let start = Instant::now();
            // Small sizes, the same for every rank, so that most relations between them hold.
            let sizes = parsed.cascade.ranks.iter().filter(|r| r.default.is_none()).map(|r| (r.name.clone(), 4));
            let given = Given { sizes: sizes.collect(), ..Given::default() };
            if let Ok(bound) = bind(&parsed.cascade, &given) {
                let planned = einloom_plan::plan(&derivation.derived, &bound, machine, &Default::default());
                out.plan = Some((start.elapsed().as_secs_f64(), planned.is_ok()));
            }
        }
    }
    out
}

/// What is wrong with the printed form of a program that checks.
fn survives(cascade: &Cascade) -> Option<String> {
    let printed = print(cascade);
    let again = parse(&printed);
    if let Some(d) = again.diagnostics.iter().find(|d| d.is_error()) {
        return Some(format!("its printed form gets {}: {}\n{printed}", d.code, d.message));
    }
    // A NaN cannot be written, so equality is that of the values.
    if erase_spans(cascade) != erase_spans(&again.cascade) {
        return Some(format!("its printed form reads as another program\n{printed}"));
    }
    (print(&again.cascade) != printed).then(|| format!("it prints in two ways\n{printed}"))
}
