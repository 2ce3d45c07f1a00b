//! A derivation as text that a person can follow: passes, steps with their reasons, the streaming form, refusals.

use crate::{Derivation, Passes, Step, form, show};
use std::fmt::Write;

/// The whole explanation.
pub fn explain(d: &Derivation) -> String {
    let mut out = String::new();
    let g = &d.derived;
    _ = writeln!(out, "{}", g.cascade.name);
    out += &passes_text(&d.passes);
    out += "\nsteps\n";
    if d.steps.is_empty() {
        out += "  none: the program streams as it is written\n";
    }
    out += &steps_text(&d.steps, 0);
    for f in form::streaming_forms(g) {
        let over: Vec<&str> = f.over.iter().map(|&i| g.cascade[i].name.as_str()).collect();
        let again = if f.level > 0 { format!(", traversal {}", f.level + 1) } else { String::new() };
        _ = writeln!(out, "\nstream over {}{again}", over.join(", "));
        let mut part = |name: &str, text: String| {
            for (k, line) in text.lines().enumerate() {
                _ = writeln!(out, "  {:<7} {line}", if k == 0 { name } else { "" });
            }
        };
        part("init", f.init(g));
        part("step", f.step(g));
        if f.is_anchored(g) {
            part("merge", f.merge(g));
        }
        part("finish", f.finish(g));
    }
    let state_lines = state_sizes(d);
    if !state_lines.is_empty() {
        out += "\nstate\n";
        out += &state_lines;
    }
    if form::streaming_forms(g).iter().any(|f| f.is_anchored(g)) {
        out += "  not shown: an anchor that is not finite counts as 0, a reduction over nothing keeps its identity\n";
    }
    out += &alternatives_text(d);
    out += "\nrefusals\n";
    if d.refusals.is_empty() {
        out += "  none\n";
    }
    for r in &d.refusals {
        _ = writeln!(out, "  {} {} over {}", r.rule.name(), r.node, r.ranks.join(", "));
        out += &wrapped("      because ", &r.reason);
        if let Some(hint) = &r.hint {
            out += &wrapped("      hint    ", hint);
        }
    }
    out
}

/// How often each input is read, and by what.
fn passes_text(all: &Passes) -> String {
    let mut out = String::new();
    let mut often: Vec<&str> = vec![];
    for rank in &all.ranks {
        for t in rank.tensors.iter().filter(|t| t.written > 1 || t.derived > 1) {
            often.push(&t.tensor);
            let live = if t.derived > 1 { format!("; a fibre of {} stays live", t.footprint) } else { String::new() };
            let (written, derived) = (passes(t.written), t.derived);
            _ = writeln!(
                out,
                "  {} is read in {written} over {} as written, {derived} as derived{live}",
                t.tensor, rank.rank
            );
            let by = |out: &mut String, what: &str, by: &[Vec<String>]| {
                let passes: Vec<String> =
                    by.iter().enumerate().map(|(k, names)| format!("{} {}", k + 1, names.join(", "))).collect();
                _ = writeln!(out, "      {what}  {}", passes.join(" | "));
            };
            by(&mut out, "written", &t.written_by);
            if t.derived > 1 {
                by(&mut out, "derived", &t.derived_by);
            }
        }
    }
    let mut once: Vec<&str> = vec![];
    for t in all.ranks.iter().flat_map(|r| &r.tensors) {
        if !often.contains(&t.tensor.as_str()) && !once.contains(&t.tensor.as_str()) {
            once.push(&t.tensor);
        }
    }
    if !once.is_empty() {
        _ = writeln!(out, "  {} in 1 pass", once.join(", "));
    }
    out
}

/// Steps with their rules' conditions, each condition where it is met first; numbers start after `before`.
fn steps_text(steps: &[Step], before: usize) -> String {
    let mut out = String::new();
    for (k, s) in steps.iter().enumerate() {
        let over = if s.ranks.is_empty() { String::new() } else { format!(" over {}", s.ranks.join(", ")) };
        _ = writeln!(out, "  {} {:<10} {}{over}", before + k + 1, s.rule.name(), s.node);
        match steps[..k].iter().position(|other| other.rule == s.rule) {
            None => out += &wrapped("      rule    ", s.rule.condition()),
            Some(first) => _ = writeln!(out, "      rule    as in step {}", before + first + 1),
        }
        out += &wrapped("      here    ", &s.why);
        _ = writeln!(out, "      before  {}", s.before);
        _ = writeln!(out, "      after   {}", s.after);
    }
    out
}

/// Prose, broken at this column.
const WIDTH: usize = 120;

/// Prose after a label, its further lines under its first.
fn wrapped(label: &str, text: &str) -> String {
    let indent = " ".repeat(label.chars().count());
    let mut out = String::new();
    let mut line = label.to_string();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out += &line;
            out.push('\n');
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    out + &line + "\n"
}

/// Other forms of the same program: what is different, and the steps that the main form does not take.
fn alternatives_text(d: &Derivation) -> String {
    let mut out = String::new();
    for (k, a) in d.alternatives.iter().enumerate() {
        let heading = if k == 0 { "\nalternatives, of which a plan takes the fastest for its sizes\n" } else { "" };
        _ = writeln!(out, "{heading}  {}", a.name);
        out += &other_passes(&d.passes, &a.passes);
        let known = |s: &&Step| !d.steps.contains(s) && !d.alternatives[..k].iter().any(|b| b.steps.contains(s));
        let own: Vec<Step> = a.steps.iter().filter(known).cloned().collect();
        out += &steps_text(&own, 0).replace("\n  ", "\n    ").replacen("  ", "    ", 1);
    }
    out
}

/// What another form reads in another number of passes.
fn other_passes(main: &Passes, other: &Passes) -> String {
    let mut out = String::new();
    for rank in &other.ranks {
        let same = main.ranks.iter().filter(|r| r.rank == rank.rank).flat_map(|r| &r.tensors);
        for t in &rank.tensors {
            let here = same.clone().find(|m| m.tensor == t.tensor).map(|m| m.derived);
            if let Some(n) = here.filter(|n| *n != t.derived) {
                _ = writeln!(
                    out,
                    "    {} is read in {} over {}, and not in {n}",
                    t.tensor,
                    passes(t.derived),
                    rank.rank
                );
            }
        }
    }
    out
}

fn passes(n: usize) -> String {
    if n == 1 { "1 pass".into() } else { format!("{n} passes") }
}

/// What a stream carries, per state: its axes.
fn state_sizes(d: &Derivation) -> String {
    let g = &d.derived;
    let mut out = String::new();
    for f in form::streaming_forms(g).iter().filter(|f| f.is_anchored(g)) {
        let states: Vec<String> = f.states.iter().map(|&s| show::place(g, &g[s])).collect();
        let over: Vec<&str> = f.over.iter().map(|&i| g.cascade[i].name.as_str()).collect();
        _ = writeln!(out, "  over {}: {}", over.join(", "), states.join(", "));
    }
    out
}
