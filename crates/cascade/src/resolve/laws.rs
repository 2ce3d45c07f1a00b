//! The laws of a monoid, tried on a few numbers: `a ∘ (b ∘ c) = (a ∘ b) ∘ c`, `a ∘ b = b ∘ a`, and the identity is neutral.
//!
//! A reduction takes its elements in any order and puts partial results together, each of which starts from the identity, so
//! the text means nothing without these laws. What no numbers obey is an error, and so is what commutes for 0 and 1 alone:
//! the first of several elements is no reduction. What some numbers obey is a warning, for there are such monoids,
//! `min(a + b, 10)` of numbers from 0 to 10: whether data are of that kind only the author knows.

use super::Resolver;
use crate::{Diagnostic, Expr, ExprKind, MonoidDef};

/// Kinds of numbers; a law may hold on one of them only.
const KINDS: [&[f64]; 4] = [&[0.0, 1.0], &[1.0, 2.0, 5.0], &[0.25, 0.5, 0.875], &[-1.5, 0.5, -3.0, 1.5]];

/// Larger combinations are not tried: a text is checked in a time that grows with its length.
const LARGEST: usize = 200;
/// So many of the numbers in a combination are looked around.
const CONSTANTS: usize = 8;
/// Of these magnitudes: near others rounding says more than the laws.
const MAGNITUDES: std::ops::RangeInclusive<f64> = 1e-4..=1e6;
/// Relative difference that rounding may make.
const CLOSE: f64 = 1e-9;

/// A law: numbers of a kind that do not obey it, told.
type Law = fn(&MonoidDef, &[f64]) -> Option<String>;

impl Resolver<'_> {
    /// Reports monoids that are none.
    pub(super) fn laws(&mut self) {
        if self.report.has_errors() {
            return;
        }
        for m in self.cascade.monoids.iter().filter(|m| operations(&m.combine) <= LARGEST) {
            let laws: [Law; 3] = [associative, commutative, neutral];
            let failures = laws.map(|law| KINDS.map(|kind| law(m, kind)));
            let commutes = failures[1][1..].iter().any(Option::is_none);
            let failed = failures.iter().find(|f| f.iter().all(Option::is_some));
            let failed = failed.or((!commutes).then_some(&failures[1]));
            if let Some(Some(told)) = failed.map(|f| f[1].clone()) {
                let message = format!("`{}` is no monoid: {told}", m.name);
                let hint = "a reduction takes its elements in any order, in parts that each start from the identity";
                self.report.add(Diagnostic::error("not-a-monoid", m.span, message).hint(hint));
                continue;
            }
            let some = failures.iter().flatten().flatten().next().cloned();
            let near = around(m);
            let some = some.or_else(|| laws.iter().find_map(|law| near.iter().find_map(|kind| law(m, kind))));
            if let Some(told) = some.or_else(|| twice_nothing(m)) {
                let message = format!("`{}` is a monoid for some numbers only: {told}", m.name);
                let hint = "for others the result depends on the order in which the elements are taken";
                self.report.add(Diagnostic::warning("monoid-of-some-numbers", m.span, message).hint(hint));
            }
        }
    }
}

/// Numbers around each one that the combination mentions, without and with negative ones: bounds of saturation and of ranges are
/// among them, beyond which all may be different.
fn around(m: &MonoidDef) -> Vec<Vec<f64>> {
    let mut constants = vec![];
    numbers(&m.combine, &mut constants);
    let near = |c: &f64| vec![c / 2.0, 0.75 * c, *c, c + 1.0, 2.0 * c];
    let positive: Vec<_> = constants.iter().map(near).collect();
    let signed = positive.iter().map(|kind| kind.iter().flat_map(|&v| [v, -v]).collect());
    positive.iter().cloned().chain(signed).collect()
}

fn numbers(e: &Expr, out: &mut Vec<f64>) {
    if let ExprKind::Number(v) = e.kind
        && MAGNITUDES.contains(&v.abs())
        && !out.contains(&v.abs())
        && out.len() < CONSTANTS
    {
        out.push(v.abs());
    }
    e.for_each_child(&mut |c| numbers(c, out));
}

fn associative(m: &MonoidDef, kind: &[f64]) -> Option<String> {
    let f = |a, b| value(&m.combine, a, b);
    triples(kind).find_map(|[a, b, c]| {
        let (ab, bc) = (f(a, b)?, f(b, c)?);
        let (left, right) = (f(ab, c)?, f(a, bc)?);
        let name = &m.name;
        // What is lost when large numbers cancel out is rounding.
        let scale = [a, b, c, ab, bc].into_iter().filter(|v| v.is_finite()).fold(1.0, |s: f64, v| s.max(v.abs()));
        (differ(left, right) && differ(left / scale, right / scale)).then(|| {
            let (l, r) = both(left, right);
            format!("{name}({name}({a}, {b}), {c}) is {l}, and {name}({a}, {name}({b}, {c})) is {r}")
        })
    })
}

fn commutative(m: &MonoidDef, kind: &[f64]) -> Option<String> {
    pairs(kind).find_map(|[a, b]| {
        let (left, right) = (value(&m.combine, a, b)?, value(&m.combine, b, a)?);
        let name = &m.name;
        differ(left, right).then(|| {
            let (l, r) = both(left, right);
            format!("{name}({a}, {b}) is {l}, and {name}({b}, {a}) is {r}")
        })
    })
}

fn neutral(m: &MonoidDef, kind: &[f64]) -> Option<String> {
    kind.iter().find_map(|&a| {
        let with = value(&m.combine, m.identity, a)?;
        let (name, identity) = (&m.name, m.identity);
        differ(with, a).then(|| format!("{name}({identity}, {a}) is {}, where {identity} is its identity", short(with)))
    })
}

/// Two parts over nothing put together.
fn twice_nothing(m: &MonoidDef) -> Option<String> {
    let both = value(&m.combine, m.identity, m.identity)?;
    let (name, identity) = (&m.name, m.identity);
    let same = both == identity || !differ(both, identity);
    (!same).then(|| format!("{name}({identity}, {identity}) is {}, where {identity} is its identity", short(both)))
}

fn pairs(kind: &[f64]) -> impl Iterator<Item = [f64; 2]> + '_ {
    kind.iter().flat_map(move |&a| kind.iter().map(move |&b| [a, b]))
}

fn triples(kind: &[f64]) -> impl Iterator<Item = [f64; 3]> + '_ {
    pairs(kind).flat_map(move |[a, b]| kind.iter().map(move |&c| [a, b, c]))
}

fn differ(a: f64, b: f64) -> bool {
    !(a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= CLOSE * a.abs().max(b.abs()).max(1.0))
}

fn short(v: f64) -> String {
    if v == v.round() || !v.is_finite() { format!("{v}") } else { format!("{v:.4}") }
}

/// Two numbers that differ, so that it is seen.
fn both(left: f64, right: f64) -> (String, String) {
    let (l, r) = (short(left), short(right));
    if l == r { (left.to_string(), right.to_string()) } else { (l, r) }
}

fn operations(e: &Expr) -> usize {
    let mut count = 1;
    e.for_each_child(&mut |c| count += operations(c));
    count
}

/// The value of a combination; nothing where it reads a parameter or a size, which are not known yet.
fn value(e: &Expr, a: f64, b: f64) -> Option<f64> {
    Some(match &e.kind {
        ExprKind::Number(v) => *v,
        ExprKind::Argument(k) => [a, b][usize::from(*k).min(1)],
        ExprKind::Unary(op, x) => op.apply(value(x, a, b)?),
        ExprKind::Binary(op, x, y) => op.apply(value(x, a, b)?, value(y, a, b)?),
        ExprKind::Select(c, x, y) => value(if value(c, a, b)? != 0.0 { x } else { y }, a, b)?,
        _ => return None,
    })
}
