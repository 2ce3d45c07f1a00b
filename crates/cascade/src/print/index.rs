//! Index and size expressions as text.

use crate::{Cascade, IndexAtom, IndexExpr, SizeExpr};

/// `[m,n + 1]`, or nothing for a tensor without dimensions.
pub(super) fn brackets(at: &[IndexExpr], cascade: &Cascade) -> String {
    if at.is_empty() {
        return String::new();
    }
    let at: Vec<_> = at.iter().map(|e| index(e, cascade)).collect();
    format!("[{}]", at.join(","))
}

/// A size.
pub(super) fn size(size: &SizeExpr, cascade: &Cascade) -> String {
    size.display(|rank| &cascade[rank].name).to_string()
}

/// In parentheses unless it is one name or number.
pub(super) fn bracketed(text: &str) -> String {
    let atom = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if atom { text.to_owned() } else { format!("({text})") }
}

fn index(e: &IndexExpr, cascade: &Cascade) -> String {
    let mut out = String::new();
    for (coefficient, atom) in &e.terms {
        append(&mut out, &term(coefficient, atom, cascade));
    }
    if e.terms.is_empty() || e.offset.as_constant() != Some(0) {
        append(&mut out, &size(&e.offset, cascade));
    }
    out
}

/// Adds a summand, with its sign as the operator.
fn append(out: &mut String, summand: &str) {
    if out.is_empty() {
        out.push_str(summand);
    } else if let Some(magnitude) = summand.strip_prefix('-') {
        out.push_str(&format!(" - {magnitude}"));
    } else {
        out.push_str(&format!(" + {summand}"));
    }
}

fn term(coefficient: &SizeExpr, atom: &IndexAtom, cascade: &Cascade) -> String {
    let shown = match atom {
        IndexAtom::Var(i) => cascade[*i].name.clone(),
        IndexAtom::Gather { tensor, at } => format!("{}{}", cascade[*tensor].name, brackets(at, cascade)),
        IndexAtom::Floor { numerator, denominator } => {
            let (n, d) = (index(numerator, cascade), size(denominator, cascade));
            // `a + b / c` divides b alone, and `-a / b` negates first.
            let simple = !n.contains([' ', '-']) || is_floor(numerator);
            let n = if simple { n } else { format!("({n})") };
            let floor = format!("{n} / {}", bracketed(&d));
            if coefficient.as_constant() == Some(1) { floor } else { format!("({floor})") }
        }
    };
    let product = coefficient.terms().len() == 1;
    match coefficient.as_constant() {
        Some(1) => shown,
        Some(-1) => format!("-{shown}"),
        _ if product => format!("{}*{shown}", size(coefficient, cascade)),
        _ => format!("({})*{shown}", size(coefficient, cascade)),
    }
}

/// Whether it is one floor division: `h / G / R` groups to the left.
fn is_floor(e: &IndexExpr) -> bool {
    matches!(&e.terms[..], [(c, IndexAtom::Floor { .. })] if c.as_constant() == Some(1))
        && e.offset.as_constant() == Some(0)
}
