//! `H*`: the least transfers for a capacity, by geometric programming.
//!
//! `H` is a posynomial in the groups, `M ≤ M^max` a monomial constraint once batches are short and lower orders
//! dropped. The dual of such a program (Duffin, Peterson and Zener, 1967) has one point where there are as many terms
//! as groups, and more: then the optimum is `Π (α_t / λ_t)^λ_t · (κ / M)^β` in closed form.

use super::diagram::{Diagram, NoFormula};
use super::linear::solve;
use super::{Monomial, Partition, Poly, Product, Symbol, SymbolKind};
use num_rational::Ratio;
use std::collections::BTreeSet;
use std::fmt;

/// `alpha · M^-beta`.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimumTerm {
    /// What it is at a capacity of one value.
    pub alpha: Product,
    /// How fast it falls with the capacity; 0 for what moves once.
    pub beta: Ratio<i64>,
}

/// `H*(a, M) = Σ_t α_t(a) · M^-β_t`: the normal form of published results.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// By falling `beta`.
    pub terms: Vec<OptimumTerm>,
    /// The groups at which it is reached, where they are determined: `formula · M^power`.
    pub groups: Vec<(Symbol, Product, Ratio<i64>)>,
}

impl Optimum {
    /// Values moved at this capacity, in values.
    pub fn eval(&self, capacity: f64, size: impl Fn(&Symbol) -> f64) -> f64 {
        self.terms.iter().map(|t| t.alpha.eval(&size) * power(capacity, -t.beta)).sum()
    }

    /// The positions of a group at this capacity; `None` if they are not determined.
    pub fn group(&self, symbol: &Symbol, capacity: f64, size: impl Fn(&Symbol) -> f64) -> Option<f64> {
        let (_, formula, e) = self.groups.iter().find(|g| g.0 == *symbol)?;
        Some(formula.eval(size) * power(capacity, *e))
    }
}

pub(super) fn power(base: f64, exponent: Ratio<i64>) -> f64 {
    if exponent == Ratio::default() { 1.0 } else { base.powf(super::product::real(exponent)) }
}

/// The capacity prints as `M`, or as `C` or `capacity` where ranks have those names.
impl fmt::Display for Optimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let formulas = self.terms.iter().map(|t| &t.alpha).chain(self.groups.iter().map(|g| &g.1));
        let names: BTreeSet<String> = formulas.flat_map(Product::symbols).map(ToString::to_string).collect();
        let m = ["M", "C"].into_iter().find(|n| !names.contains(*n)).unwrap_or("capacity");
        let term = |t: &OptimumTerm| match t.beta {
            b if b == Ratio::default() => t.alpha.to_string(),
            b if b == Ratio::from(1) => format!("{}/{m}", wrapped(&t.alpha)),
            b if b.is_integer() => format!("{}/{m}^{b}", wrapped(&t.alpha)),
            b => format!("{}·{m}^(-{b})", wrapped(&t.alpha)),
        };
        let texts: Vec<String> = self.terms.iter().map(term).collect();
        write!(f, "H* = {}", texts.join(" + "))?;
        for (k, (symbol, formula, e)) in self.groups.iter().enumerate() {
            let lead = if k == 0 { " at " } else { ", " };
            let capacity = if *e == Ratio::from(1) { m.to_string() } else { format!("{m}^({e})") };
            match formula.to_string().as_str() {
                "1" => write!(f, "{lead}{symbol} = {capacity}")?,
                text => write!(f, "{lead}{symbol} = {text}·{capacity}")?,
            }
        }
        let matters = self.terms.iter().any(|t| t.beta != Ratio::default());
        if m == "M" || !matters { Ok(()) } else { write!(f, " for a capacity {m}") }
    }
}

/// In brackets if it is a sum.
fn wrapped(product: &Product) -> String {
    let text = product.to_string();
    let top = text.chars().fold((0i32, false), |(depth, sum), c| match c {
        '(' => (depth + 1, sum),
        ')' => (depth - 1, sum),
        '+' if depth == 0 => (depth, true),
        _ => (depth, sum),
    });
    if top.1 { format!("({text})") } else { text }
}

impl Diagram {
    /// The least transfers for a capacity `M`, the groups of a partition being free: leading order in sizes, batches
    /// as short as can be, groups that need not divide sizes.
    ///
    /// # Errors
    /// A partition that does not fit; a capacity that several columns, or several groups by themselves, limit; a group
    /// that nothing limits, or more groups than transfers depend on: then only numbers tell.
    pub fn optimum(&self, partition: &Partition) -> Result<Optimum, NoFormula> {
        let transfers = self.transfers(partition)?.total().leading();
        let memory = self.memory(partition)?.leading().short_batches();
        let [column] = memory.columns.as_slice() else {
            return Err(NoFormula { reason: format!("several columns limit the capacity: {memory}") });
        };
        minimise(&transfers, &column.values)
    }
}

fn is_group(symbol: &Symbol) -> bool {
    symbol.kind == SymbolKind::Group
}

/// By what stands with each product of groups.
fn by_groups(poly: &Poly) -> Vec<(Monomial, Poly)> {
    let mut out: Vec<(Monomial, Poly)> = vec![];
    for (monomial, c) in poly.terms() {
        let (groups, rest) = (monomial.only(is_group), monomial.only(|s| !is_group(s)));
        let rest = Poly::from_terms([(rest, c)]);
        match out.iter_mut().find(|(g, _)| *g == groups) {
            Some((_, sum)) => *sum = sum.plus(&rest),
            None => out.push((groups, rest)),
        }
    }
    out
}

fn minimise(transfers: &Poly, capacity: &Poly) -> Result<Optimum, NoFormula> {
    let fail = |reason: String| Err(NoFormula { reason });
    let once = Monomial::default();
    let (fixed, moving): (Vec<_>, Vec<_>) = by_groups(transfers).into_iter().partition(|t| t.0 == once);
    let fixed = fixed.into_iter().fold(Poly::default(), |sum, t| sum.plus(&t.1));
    let mut terms = vec![];
    let mut groups = vec![];
    if !moving.is_empty() {
        let limits = by_groups(capacity);
        let [(limit, kappa)] = limits.as_slice() else {
            return fail(format!("the capacity is no single product of groups: M ≥ {capacity}"));
        };
        let symbols: BTreeSet<&Symbol> =
            transfers.symbols().chain(capacity.symbols()).filter(|s| is_group(s)).collect();
        let symbols: Vec<&Symbol> = symbols.into_iter().collect();
        if let Some(free) = symbols.iter().find(|s| limit.exponent(s) == Ratio::default()) {
            return fail(format!("{free} is not limited by the capacity: M ≥ {capacity}"));
        }
        // Σ λ = 1; for each group Σ λ_t e_t + β γ = 0.
        let one = Ratio::from(1);
        let mut rows = vec![moving.iter().map(|_| one).chain([Ratio::default()]).collect::<Vec<_>>()];
        let mut right = vec![one];
        for s in &symbols {
            rows.push(moving.iter().map(|t| t.0.exponent(s)).chain([limit.exponent(s)]).collect());
            right.push(Ratio::default());
        }
        let Some((dual, true)) = solve(&rows, &right) else {
            return fail(format!("no balance of transfers and capacity is the only one: H = {transfers}"));
        };
        let (weights, beta) = (&dual[..moving.len()], dual[moving.len()]);
        if beta <= Ratio::default() || weights.iter().any(|w| *w <= Ratio::default()) {
            return fail(format!("a larger capacity does not help: H = {transfers}"));
        }
        let mut alpha = Product::one().times(kappa, beta);
        for ((_, a), &w) in moving.iter().zip(weights) {
            alpha = alpha.and(&Product::of(a.clone()).scaled(1.0 / super::product::real(w)).power(w));
        }
        // At the optimum a term is λ of the whole, and the capacity is used up.
        let mut equations: Vec<(&Monomial, Product, Ratio<i64>)> = vec![];
        for ((g, a), &w) in moving.iter().zip(weights) {
            let share = alpha.clone().scaled(super::product::real(w)).times(a, -one);
            equations.push((g, share, -beta));
        }
        equations.push((limit, Product::one().times(kappa, -one), one));
        for (k, symbol) in symbols.iter().enumerate() {
            let rows: Vec<Vec<_>> =
                symbols.iter().map(|s| equations.iter().map(|e| e.0.exponent(s)).collect()).collect();
            let unit: Vec<_> = (0..symbols.len()).map(|i| if i == k { one } else { Ratio::default() }).collect();
            let Some((mix, _)) = solve(&rows, &unit) else { continue };
            let (mut formula, mut power) = (Product::one(), Ratio::default());
            for ((_, share, e), y) in equations.iter().zip(&mix) {
                formula = formula.and(&share.power(*y));
                power += *e * y;
            }
            groups.push(((*symbol).clone(), formula, power));
        }
        terms.push(OptimumTerm { alpha, beta });
    }
    if !fixed.is_zero() {
        terms.push(OptimumTerm { alpha: Product::of(fixed), beta: Ratio::default() });
    }
    Ok(Optimum { terms, groups })
}
