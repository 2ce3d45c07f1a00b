//! Sizes and parameters for one run: from what the caller gives to a size for every rank, or reasons why not.

mod reads;
mod region;
mod remainder;
mod sizes;

pub(crate) use region::Region;

use crate::{Cascade, ParamId, RankId, SizeExpr, Span, TensorId};
use std::collections::BTreeMap;
use std::fmt;

/// What the caller of a cascade knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// Sizes by rank name.
    pub sizes: BTreeMap<String, usize>,
    /// Values by parameter name.
    pub params: BTreeMap<String, f64>,
    /// Shapes by input name; an input without a shape has the one that the sizes give it.
    pub shapes: BTreeMap<String, Vec<usize>>,
}

/// A size for every rank and a value for every parameter of one cascade. Made by [`bind`] alone, so that every extent
/// is known to be at least zero and no tensor's bytes, as f64, leave `isize`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    sizes: Vec<usize>,
    params: Vec<f64>,
}

impl Bound {
    /// The size of a rank.
    pub fn size(&self, rank: RankId) -> usize {
        self.sizes[rank.0 as usize]
    }

    /// All sizes, by [`RankId`].
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The value of a size expression. It saturates, which no expression of the bound cascade does.
    pub fn extent(&self, expr: &SizeExpr) -> i64 {
        self.try_extent(expr).unwrap_or(i64::MAX)
    }

    /// The shape of a tensor: elements per dimension.
    pub fn shape(&self, cascade: &Cascade, tensor: TensorId) -> Vec<usize> {
        cascade[tensor].extents.iter().map(|e| self.extent(e).max(0) as usize).collect()
    }

    /// The value of a parameter.
    pub fn param(&self, param: ParamId) -> f64 {
        self.params[param.0 as usize]
    }

    /// All parameters' values, by [`ParamId`].
    pub fn params(&self) -> &[f64] {
        &self.params
    }

    /// The value of a size expression; `None` if it leaves `i64` or one of its coefficients had to saturate.
    fn try_extent(&self, expr: &SizeExpr) -> Option<i64> {
        let saturated = expr.terms().iter().any(|&(_, c)| c == i64::MAX || c == i64::MIN);
        // Sizes that do not fit i64 are refused when they are given.
        if saturated { None } else { expr.eval(|r| self.size(r) as i64) }
    }
}

/// Why sizes and parameters do not make the cascade runnable.
#[derive(Clone, Debug, PartialEq)]
pub struct BindError {
    /// A stable name in kebab case: `unknown-rank`, `unknown-param`, `unknown-tensor`, `wrong-dimensions`,
    /// `contradictory-size`, `inexact-size`, `negative-size`, `missing-size`, `missing-param`, `size-overflow`,
    /// `negative-extent`, `bad-divisor`, `out-of-range` or `undecided-range`.
    pub code: &'static str,
    /// The rank, tensor or parameter that it is about.
    pub subject: String,
    /// What is wrong, in the user's terms.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The place in the source, where there is one.
    pub span: Option<Span>,
}

impl BindError {
    fn new(code: &'static str, subject: &str, message: String) -> Self {
        Self { code, subject: subject.to_owned(), message, hint: None, span: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BindError {}

/// Finds a size for every rank and a value for every parameter.
///
/// A rank's size comes, in this order, from [`Given::sizes`], from the shapes of inputs, from its default, and from the
/// default of another rank that is known (`rank M = M1 * M0` with `M` and `M0` known gives `M1`). Size 0 is legal.
///
/// # Errors
/// All reasons at once: names the cascade does not have, ranks without a size or with two, divisions that leave a rest,
/// parameters without a value, tensors too large to address, and reads outside a tensor. Reads that gather, or that
/// stand under a filter or `where` this analysis cannot follow, are let through: see [`unproven_reads`].
pub fn bind(cascade: &Cascade, given: &Given) -> Result<Bound, Vec<BindError>> {
    let mut errors = vec![];
    let params = params(cascade, given, &mut errors);
    let sizes = sizes::solve(cascade, given, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let bound = Bound { sizes, params };
    sizes::check_extents(cascade, &bound, &mut errors);
    if errors.is_empty() {
        errors = reads::check(cascade, &bound).errors;
    }
    if errors.is_empty() { Ok(bound) } else { Err(errors) }
}

/// The reads of a bound cascade that are not proven to stay inside their tensor, in source order: whoever executes them
/// has to test each position.
pub fn unproven_reads(cascade: &Cascade, bound: &Bound) -> Vec<Span> {
    reads::check(cascade, bound).unproven
}

/// Those of the [`unproven_reads`] whose position does not come out of a gather, each as an error with a hint. A compiled
/// program reads whole tiles and cannot test each element, so it must refuse them.
pub fn undecided_reads(cascade: &Cascade, bound: &Bound) -> Vec<BindError> {
    reads::check(cascade, bound).undecided
}

fn params(cascade: &Cascade, given: &Given, errors: &mut Vec<BindError>) -> Vec<f64> {
    for name in given.params.keys() {
        if !cascade.params.iter().any(|p| p.name == *name) {
            let all = cascade.params.iter().map(|p| p.name.as_str());
            let error = BindError::new("unknown-param", name, format!("there is no parameter {name}"));
            errors.push(error.hint(one_of("parameters", all)));
        }
    }
    let value = |param: &crate::Param| {
        given.params.get(&param.name).copied().or(param.default).unwrap_or_else(|| {
            let name = &param.name;
            let error = BindError::new("missing-param", name, format!("the parameter {name} has no value"));
            errors.push(error.hint(format!("give `--param {name}=…`")).at(param.span));
            f64::NAN
        })
    };
    cascade.params.iter().map(value).collect()
}

/// A hint that lists what there is.
fn one_of<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { format!("the cascade has no {what}") } else { format!("its {what} are {}", names.join(", ")) }
}
