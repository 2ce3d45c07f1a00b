//! Index expressions in the words of the program, for messages.

use crate::{Cascade, IndexAtom, IndexExpr, SizeExpr, TensorId};
use std::fmt::Write;

/// A read, such as `X[i + r, 2]`.
pub(crate) fn read(cascade: &Cascade, tensor: TensorId, at: &[IndexExpr]) -> String {
    let at: Vec<_> = at.iter().map(|e| index(cascade, e)).collect();
    format!("{}[{}]", cascade[tensor].name, at.join(", "))
}

/// An index expression, such as `m1*M0 + m0`.
pub(crate) fn index(cascade: &Cascade, expr: &IndexExpr) -> String {
    let mut out = String::new();
    for (coefficient, atom) in &expr.terms {
        let atom = match atom {
            IndexAtom::Var(i) => cascade[*i].name.clone(),
            IndexAtom::Floor { numerator, denominator } => {
                let n = index(cascade, numerator);
                let n = if n.contains(' ') { format!("({n})") } else { n };
                format!("{n} / {}", factor(cascade, denominator))
            }
            IndexAtom::Gather { tensor, at } => read(cascade, *tensor, at),
        };
        let (negative, text) = match coefficient.as_constant() {
            Some(1) => (false, atom),
            Some(-1) => (true, atom),
            Some(c) => (c < 0, format!("{}*{atom}", c.unsigned_abs())),
            None => (false, format!("{atom}*{}", factor(cascade, coefficient))),
        };
        append(&mut out, negative, &text);
    }
    match expr.offset.as_constant() {
        Some(0) if !out.is_empty() => {}
        Some(c) => append(&mut out, c < 0, &c.unsigned_abs().to_string()),
        None => {
            let text = size(cascade, &expr.offset);
            match text.strip_prefix('-') {
                Some(rest) => append(&mut out, true, rest),
                None => append(&mut out, false, &text),
            }
        }
    }
    out
}

/// A size, such as `M1*M0 + 1`.
pub(crate) fn size(cascade: &Cascade, expr: &SizeExpr) -> String {
    expr.display(|r| &cascade[r].name).to_string()
}

fn factor(cascade: &Cascade, expr: &SizeExpr) -> String {
    let text = size(cascade, expr);
    if text.contains(' ') { format!("({text})") } else { text }
}

fn append(out: &mut String, negative: bool, text: &str) {
    let sign = match (out.is_empty(), negative) {
        (true, true) => "-",
        (true, false) => "",
        (false, true) => " - ",
        (false, false) => " + ",
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "{sign}{text}");
}
