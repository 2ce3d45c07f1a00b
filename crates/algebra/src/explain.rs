//! A derivation as text that a person can follow: passes, steps with their reasons, the streaming form, refusals.

use crate::{Derivation, form, show};
use std::fmt::Write;

/// The whole explanation.
pub fn explain(d: &Derivation) -> String {
    let mut out = String::new();
    let g = &d.derived;
    _ = writeln!(out, "{}", g.cascade.name);
    let mut once: Vec<&str> = vec![];
    for rank in &d.passes.ranks {
        for t in &rank.tensors {
            if t.written > 1 {
                let (written, derived) = (passes(t.written), t.derived);
                let live = if derived > 1 { format!("; a fibre of {} stays live", t.footprint) } else { String::new() };
                _ = writeln!(
                    out,
                    "  {} is read in {written} over {} as written, {derived} as derived{live}",
                    t.tensor, rank.rank
                );
            }
        }
    }
    let all = d.passes.ranks.iter().flat_map(|r| &r.tensors);
    for t in all {
        let again = d.passes.ranks.iter().flat_map(|r| &r.tensors).any(|o| o.tensor == t.tensor && o.written > 1);
        if !again && !once.contains(&t.tensor.as_str()) {
            once.push(&t.tensor);
        }
    }
    if !once.is_empty() {
        _ = writeln!(out, "  {} in 1 pass", once.join(", "));
    }
    out += "\nsteps\n";
    if d.steps.is_empty() {
        out += "  none: the program streams as it is written\n";
    }
    for (k, s) in d.steps.iter().enumerate() {
        let over = if s.ranks.is_empty() { String::new() } else { format!(" over {}", s.ranks.join(", ")) };
        _ = writeln!(out, "  {} {:<10} {}{over}", k + 1, s.rule.name(), s.node);
        _ = writeln!(out, "      because {}", s.why);
        _ = writeln!(out, "      before  {}", s.before);
        _ = writeln!(out, "      after   {}", s.after);
    }
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
    out += "\nrefusals\n";
    if d.refusals.is_empty() {
        out += "  none\n";
    }
    for r in &d.refusals {
        _ = writeln!(out, "  {} {} over {}: {}", r.rule.name(), r.node, r.ranks.join(", "), r.reason);
        if let Some(hint) = &r.hint {
            _ = writeln!(out, "      {hint}");
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
