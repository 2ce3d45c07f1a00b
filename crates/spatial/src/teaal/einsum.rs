//! `einsum`: declarations and expressions, as the text of a cascade.

use super::reader::Reader;
use super::yaml::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What the other sections need to know.
#[derive(Debug, Default)]
pub(super) struct Einsums {
    pub text: String,
    /// Ranks by tensor.
    pub declared: BTreeMap<String, Vec<String>>,
    /// Tensors that are defined, in order.
    pub defined: Vec<String>,
    /// Line and column of what each line of the text was made from.
    pub places: Vec<(usize, usize)>,
}

pub(super) fn read(r: &mut Reader<'_>, root: &Node, name: &str) -> Einsums {
    let mut out = Einsums::default();
    let Some(at) = root.get("einsum") else {
        r.problem(root, "einsum", "is missing", "");
        return out;
    };
    r.keys(at, "einsum", &["declaration", "expressions"]);
    match at.get("declaration") {
        None => r.problem(at, "einsum", "declaration is missing", ""),
        Some(all) => {
            for (tensor, ranks) in r.entries(all, "declaration") {
                let ranks = r.texts(ranks, "declaration").into_iter().map(|(_, t)| t.to_owned()).collect();
                out.declared.insert(tensor.scalar().unwrap_or_default().to_owned(), ranks);
            }
        }
    }
    let mut statements = vec![];
    let mut places = vec![];
    let mut read_by: BTreeSet<String> = BTreeSet::new();
    let mut scalars: BTreeSet<String> = BTreeSet::new();
    match at.get("expressions") {
        None => r.problem(at, "einsum", "expressions is missing", ""),
        Some(all) => {
            for (node, text) in r.texts(all, "expressions") {
                if let Some((target, statement, reads)) = expression(r, node, text, &out.declared) {
                    let (tensors, others): (Vec<String>, Vec<String>) =
                        reads.into_iter().partition(|name| out.declared.contains_key(name));
                    read_by.extend(tensors);
                    scalars.extend(others);
                    out.defined.push(target);
                    statements.push(statement);
                    places.push((node.line, node.column));
                }
            }
        }
    }
    let inputs: Vec<String> = out
        .declared
        .iter()
        .filter(|(t, _)| !out.defined.contains(t))
        .map(|(t, ranks)| format!("{t}{}: f32", indices(ranks)))
        .collect();
    let outputs: Vec<String> =
        out.defined.iter().filter(|t| !read_by.contains(*t)).map(|t| format!("{t}: f32")).collect();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let _ = writeln!(out.text, "cascade {name}");
    if !inputs.is_empty() {
        let _ = writeln!(out.text, "input  {}", inputs.join(", "));
    }
    for scalar in scalars {
        let _ = writeln!(out.text, "param  {scalar} = 1 # the caller's: no cost depends on it");
    }
    let _ = writeln!(out.text, "output {}\n", outputs.join(", "));
    out.places = vec![(at.line, at.column); out.text.lines().count()];
    out.places.extend(places);
    out.text += &statements.join("\n");
    out.text.push('\n');
    out
}

fn indices(ranks: &[String]) -> String {
    if ranks.is_empty() { String::new() } else { format!("[{}]", ranks.join(",").to_lowercase()) }
}

/// Target, statement, and tensors and scalars read: a name in small letters is a scalar of the caller's. Every term is
/// summed over the indices that the target does not have.
fn expression(
    r: &mut Reader<'_>,
    node: &Node,
    text: &str,
    declared: &BTreeMap<String, Vec<String>>,
) -> Option<(String, String, Vec<String>)> {
    let fail = |r: &mut Reader<'_>, message: String, hint: &str| {
        r.problem(node, "expressions", &message, hint);
        None
    };
    let Some((left, right)) = text.split_once('=') else {
        return fail(r, format!("`{text}` is not an Einsum"), "write Z[m, n] = A[k, m] * B[k, n]");
    };
    let target = left.trim().split('[').next().unwrap_or_default().trim().to_owned();
    if !declared.contains_key(&target) {
        return fail(r, format!("{target} is not declared"), "add it to declaration");
    }
    let outer = names(left);
    let mut reads = vec![];
    for (called, is_call) in words(right) {
        if is_call {
            let hint = "+, -, *, / and reductions by sum are supported";
            return fail(r, format!("`{called}(…)` is not supported"), hint);
        }
        if called.chars().next().is_some_and(char::is_uppercase) && !declared.contains_key(&called) {
            return fail(r, format!("{called} is not declared"), "add it to declaration");
        }
        reads.push(called);
    }
    let mut statement = format!("{} = ", left.trim());
    for (sign, term) in terms(right) {
        let mut over: Vec<String> = vec![];
        for i in names(&term) {
            if !outer.contains(&i) && !over.contains(&i) {
                over.push(i);
            }
        }
        statement += sign;
        if !over.is_empty() {
            let _ = write!(statement, "sum({}) ", over.join(", "));
        }
        statement += term.trim();
    }
    Some((target, statement, reads))
}

/// Terms of a sum, outside brackets, with what stands before them.
fn terms(text: &str) -> Vec<(&'static str, String)> {
    let mut out = vec![("", String::new())];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        let started = out.last().is_some_and(|t| !t.1.trim().is_empty());
        match c {
            '+' if depth == 0 && started => out.push((" + ", String::new())),
            '-' if depth == 0 && started => out.push((" - ", String::new())),
            c => out.last_mut().map_or((), |t| t.1.push(c)),
        }
    }
    out
}

/// Names inside square brackets: indices.
fn names(text: &str) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for part in text.split('[').skip(1) {
        let inside = part.split(']').next().unwrap_or_default();
        for word in inside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.chars().next().is_some_and(char::is_alphabetic) && !out.iter().any(|w| w == word) {
                out.push(word.to_owned());
            }
        }
    }
    out
}

/// Names outside square brackets, and whether an opening bracket follows.
fn words(text: &str) -> Vec<(String, bool)> {
    let mut out = vec![];
    let mut word = String::new();
    let mut depth = 0;
    for c in text.chars().chain(" ".chars()) {
        if depth == 0 && (c.is_ascii_alphanumeric() || c == '_') {
            word.push(c);
            continue;
        }
        if word.chars().next().is_some_and(char::is_alphabetic) {
            out.push((std::mem::take(&mut word), c == '('));
        }
        word.clear();
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
    }
    out
}
