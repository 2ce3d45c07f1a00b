//! Cascade to canonical text. [`parse`](crate::parse) makes the same cascade of it again, up to spans.

mod expression;
mod index;

use crate::resolve::implied_rank;
use crate::{Cascade, IndexId, RankId, Tensor};
use std::collections::BTreeSet;

/// Lists that would be longer than this go on in the next line.
const WIDTH: usize = 100;

/// The cascade as text: declarations in a fixed order, then the statements, with everything that is not implied.
///
/// ```
/// let text = "input X[n]: f32\noutput Y: f32\nY[n] = softmax(n) X[n]";
/// let printed = einloom_cascade::print(&einloom_cascade::parse(text).cascade);
/// assert!(printed.ends_with("Y[n] = exp(X[n] - max(n) X[n]) / (sum(n) exp(X[n] - max(n) X[n]))\n"));
/// ```
pub fn print(cascade: &Cascade) -> String {
    let mut out = format!("cascade {}\n", cascade.name);
    let (dims, made) = dimension_names(cascade);
    let inputs: Vec<_> = cascade.inputs().map(|id| input(&cascade[id], &dims)).collect();
    list("input", &inputs, &mut out);
    let outputs: Vec<_> = cascade.outputs.iter().map(|&id| typed(&cascade[id], String::new())).collect();
    list("output", &outputs, &mut out);
    ranks(cascade, &mut out);
    indices(cascade, &made, &mut out);
    for param in &cascade.params {
        match param.default {
            Some(value) => out.push_str(&format!("param {} = {}\n", param.name, expression::number(value))),
            None => out.push_str(&format!("param {}\n", param.name)),
        }
    }
    for monoid in &cascade.monoids {
        let [a, b] = &monoid.arguments;
        let combine = expression::expression(&monoid.combine, cascade, Some(&monoid.arguments));
        let identity = expression::number(monoid.identity);
        out.push_str(&format!("monoid {}({a}, {b}) = {combine} identity {identity}\n", monoid.name));
    }
    out.push('\n');
    statements(cascade, &mut out);
    out
}

fn statements(cascade: &Cascade, out: &mut String) {
    let mut annotated = BTreeSet::new();
    for statement in &cascade.statements {
        let target = &cascade[statement.target];
        let mut left = format!("{}{}", target.name, index::brackets(&statement.at, cascade));
        // An output's type stands with the outputs, and a recurrence says its type once.
        if target.role == crate::Role::Intermediate && annotated.insert(statement.target) {
            left = typed(target, left);
        }
        out.push_str(&format!("{left} = {}\n", expression::expression(&statement.value, cascade, None)));
    }
}

/// `X: bf16`, or just `X` where the type is not declared; `left` stands for the name if it is not empty.
fn typed(tensor: &Tensor, left: String) -> String {
    let left = if left.is_empty() { tensor.name.clone() } else { left };
    match tensor.dtype {
        Some(dtype) => format!("{left}: {dtype}"),
        None => left,
    }
}

fn input(tensor: &Tensor, dims: &[String]) -> String {
    let at: Vec<_> = tensor.ranks.iter().map(|r| dims[r.0 as usize].as_str()).collect();
    let at = if at.is_empty() { String::new() } else { format!("[{}]", at.join(",")) };
    typed(tensor, format!("{}{at}", tensor.name))
}

/// `keyword a, b, c`, over several lines if need be.
fn list(keyword: &str, items: &[String], out: &mut String) {
    if items.is_empty() {
        return;
    }
    out.push_str(keyword);
    let mut width = keyword.len();
    for (k, item) in items.iter().enumerate() {
        let end = if k + 1 < items.len() { "," } else { "\n" };
        if k > 0 && width + item.len() > WIDTH {
            out.push_str("\n     ");
            width = 5;
        }
        out.push_str(&format!(" {item}{end}"));
        width += item.len() + 2;
    }
}

/// A name for every rank's index in the inputs' dimensions, and which of them had to be made up for it.
fn dimension_names(cascade: &Cascade) -> (Vec<String>, Vec<(String, RankId)>) {
    let mut taken: BTreeSet<String> = cascade.indices.iter().map(|i| i.name.clone()).collect();
    taken.extend(cascade.params.iter().map(|p| p.name.clone()));
    taken.extend(cascade.tensors.iter().filter(|t| t.ranks.is_empty()).map(|t| t.name.clone()));
    let mut names: Vec<Option<String>> = vec![None; cascade.ranks.len()];
    for index in cascade.indices.iter().rev() {
        names[index.rank.0 as usize] = Some(index.name.clone());
    }
    let mut made = vec![];
    for (k, name) in names.iter_mut().enumerate().filter(|(_, n)| n.is_none()) {
        let rank = &cascade.ranks[k].name;
        let plain = rank.to_ascii_lowercase();
        let mut fresh = plain.clone();
        let mut count = 0;
        while taken.contains(&fresh) || crate::syntax::is_reserved(&fresh) {
            count += 1;
            fresh = format!("{plain}_{count}");
        }
        taken.insert(fresh.clone());
        if implied_rank(&fresh) != *rank {
            made.push((fresh.clone(), RankId(k as u32)));
        }
        *name = Some(fresh);
    }
    // Only the inputs' dimensions need these.
    let dims: BTreeSet<RankId> = cascade.inputs().flat_map(|id| cascade[id].ranks.iter().copied()).collect();
    made.retain(|(_, rank)| dims.contains(rank));
    (names.into_iter().map(Option::unwrap_or_default).collect(), made)
}

/// Ranks with a default, and sizes that no index makes known.
fn ranks(cascade: &Cascade, out: &mut String) {
    let mut known: BTreeSet<RankId> = cascade.indices.iter().map(|i| i.rank).collect();
    known.extend(cascade.tensors.iter().flat_map(|t| t.ranks.iter().copied()));
    for (k, rank) in cascade.ranks.iter().enumerate() {
        match &rank.default {
            Some(default) => {
                let (mut size, by) =
                    (index::size(&default.numerator, cascade), index::size(&default.denominator, cascade));
                if by != "1" {
                    size = format!("{} / {}", index::bracketed(&size), index::bracketed(&by));
                }
                out.push_str(&format!("rank {} = {size}\n", rank.name));
            }
            None if !known.contains(&RankId(k as u32)) => out.push_str(&format!("rank {}\n", rank.name)),
            None => {}
        }
    }
}

/// Indices whose rank does not follow from their name.
fn indices(cascade: &Cascade, made: &[(String, RankId)], out: &mut String) {
    let named = |k: u32| &cascade[IndexId(k)];
    let all = (0..cascade.indices.len() as u32).map(|k| (named(k).name.as_str(), named(k).rank));
    let declared = all.chain(made.iter().map(|(name, rank)| (name.as_str(), *rank)));
    let mut by_rank: Vec<Vec<&str>> = vec![vec![]; cascade.ranks.len()];
    for (name, rank) in declared {
        if implied_rank(name) != cascade[rank].name {
            by_rank[rank.0 as usize].push(name);
        }
    }
    for (rank, names) in cascade.ranks.iter().zip(by_rank).filter(|(_, names)| !names.is_empty()) {
        out.push_str(&format!("index {} in {}\n", names.join(", "), rank.name));
    }
}
