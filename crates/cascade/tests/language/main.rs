//! The language as its users meet it: texts in, canonical texts and diagnostics out.
//!
//! The `.txt` files next to this one are the specification; `EINLOOM_BLESS=1 cargo test -p einloom-cascade` rewrites
//! what they expect, and the diff is what to review.

#![allow(clippy::disallowed_methods, reason = "tests read their cases and may rewrite them")]

mod cascades;
mod cases;
mod limits;
mod properties;

use cases::check;
use einloom_cascade::{Cascade, Step, parse, print, render_plain};

/// What a text gets told.
fn diagnostics(text: &str) -> String {
    let parsed = parse(text);
    parsed.diagnostics.iter().map(|d| render_plain(d, text)).collect()
}

/// The canonical text, which must mean the same.
fn printed(text: &str) -> String {
    let parsed = parse(text);
    if parsed.has_errors() {
        return diagnostics(text);
    }
    let printed = print(&parsed.cascade);
    cascades::survives_printing(text);
    printed
}

/// The order of execution, a step a line.
fn order(text: &str) -> String {
    let parsed = parse(text);
    if parsed.has_errors() {
        return diagnostics(text);
    }
    let target = |c: &Cascade, k: usize| c[c.statements[k].target].name.clone();
    let cascade = &parsed.cascade;
    let step = |step: &Step| match step {
        Step::Once(k) => format!("{}\n", target(cascade, *k)),
        Step::Iterate { rank, statements } => {
            let names: Vec<_> = statements.iter().map(|&k| target(cascade, k)).collect();
            format!("for each {}: {}\n", cascade[*rank].name, names.join(", "))
        }
    };
    cascade.order.iter().map(step).collect()
}

#[test]
fn mistakes_in_the_text() {
    check("syntax.txt", diagnostics);
}

#[test]
fn mistakes_with_names() {
    check("names.txt", diagnostics);
}

#[test]
fn mistakes_with_shapes_and_kinds() {
    check("shapes.txt", diagnostics);
}

#[test]
fn mistakes_in_recurrences() {
    check("recurrences.txt", diagnostics);
}

#[test]
fn expressions_print_with_the_fewest_parentheses() {
    check("expressions.txt", printed);
}

#[test]
fn sugar_and_ops_expand_in_plain_sight() {
    check("sugar.txt", printed);
}

#[test]
fn declarations_print_where_they_are_needed() {
    check("declarations.txt", printed);
}

#[test]
fn statements_are_put_in_order() {
    check("order.txt", order);
}
