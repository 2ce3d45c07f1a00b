//! A size for every rank.

use super::{BindError, Bound, Given, one_of};
use crate::{Cascade, RankId, SizeExpr, Span, TensorId, spell};

/// What is known of one rank.
#[derive(Clone)]
enum Size {
    Unknown,
    /// Its value, and who says so.
    Known(i64, String),
    /// Reported already.
    Failed,
}

struct Solver<'a> {
    cascade: &'a Cascade,
    sizes: Vec<Size>,
    /// Ranks whose sizes would have come from a shape that is wrong altogether.
    excused: Vec<RankId>,
    errors: &'a mut Vec<BindError>,
}

/// The size of every rank, by id. Meaningless once it has pushed an error.
pub(super) fn solve(cascade: &Cascade, given: &Given, errors: &mut Vec<BindError>) -> Vec<usize> {
    let mut solver = Solver { cascade, sizes: vec![Size::Unknown; cascade.ranks.len()], excused: vec![], errors };
    solver.explicit(given);
    let dims = solver.shapes(given);
    loop {
        let progress = dims.iter().any(|d| solver.solve_equation(&d.extent, &SizeExpr::constant(d.given), &d.source()))
            || solver.forward_default()
            || solver.backward_default();
        if !progress {
            break;
        }
    }
    for dim in &dims {
        solver.check(dim);
    }
    solver.report_missing();
    solver.sizes.iter().map(|s| if let Size::Known(v, _) = s { *v as usize } else { 0 }).collect()
}

/// A dimension of a given shape.
struct Dim<'a> {
    tensor: &'a str,
    /// From 0.
    number: usize,
    extent: SizeExpr,
    given: i64,
    span: Span,
}

impl Dim<'_> {
    fn source(&self) -> String {
        format!("dimension {} of {}", self.number + 1, self.tensor)
    }
}

impl<'a> Solver<'a> {
    fn name(&self, rank: RankId) -> &'a str {
        &self.cascade[rank].name
    }

    fn known(&self, rank: RankId) -> Option<i64> {
        if let Size::Known(value, _) = self.sizes[rank.0 as usize] { Some(value) } else { None }
    }

    fn ids(&self) -> impl Iterator<Item = RankId> + use<> {
        (0..self.sizes.len() as u32).map(RankId)
    }

    fn fail(&mut self, rank: RankId, error: BindError) {
        self.sizes[rank.0 as usize] = Size::Failed;
        self.errors.push(error);
    }

    fn set(&mut self, rank: RankId, value: i64, source: String) {
        self.sizes[rank.0 as usize] = Size::Known(value, source);
    }

    fn explicit(&mut self, given: &Given) {
        for (name, &size) in &given.sizes {
            let Some(rank) = self.cascade.rank(name) else {
                let all = self.cascade.ranks.iter().map(|r| r.name.as_str());
                let error = BindError::new("unknown-rank", name, format!("there is no rank {name}"));
                self.errors.push(error.hint(one_of("ranks", all)));
                continue;
            };
            match i64::try_from(size) {
                Ok(size) => self.set(rank, size, "its given size".to_owned()),
                Err(_) => {
                    let message = format!("the size {size} of {name} is too large");
                    self.fail(rank, BindError::new("size-overflow", name, message));
                }
            }
        }
    }

    /// Takes sizes from shapes: those dimensions that are one rank settle it, and all are returned for a later check.
    fn shapes(&mut self, given: &Given) -> Vec<Dim<'a>> {
        let cascade = self.cascade;
        for name in given.shapes.keys() {
            if !cascade.inputs().any(|t| cascade[t].name == *name) {
                let all = cascade.inputs().map(|t| cascade[t].name.as_str());
                let error = BindError::new("unknown-tensor", name, format!("there is no input {name}"));
                self.errors.push(error.hint(one_of("inputs", all)));
            }
        }
        let mut dims = vec![];
        for id in cascade.inputs() {
            let tensor = &cascade[id];
            let Some(shape) = given.shapes.get(&tensor.name) else { continue };
            if shape.len() != tensor.extents.len() {
                let message = format!(
                    "{} has {} dimensions ({}), but was given {} ({})",
                    tensor.name,
                    tensor.extents.len(),
                    tensor.extents.iter().map(|e| spell::size(cascade, e)).collect::<Vec<_>>().join(" × "),
                    shape.len(),
                    shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" × "),
                );
                self.errors.push(BindError::new("wrong-dimensions", &tensor.name, message).at(tensor.span));
                self.excused.extend(tensor.extents.iter().flat_map(SizeExpr::ranks));
                continue;
            }
            for (number, (extent, &size)) in tensor.extents.iter().zip(shape).enumerate() {
                let Ok(size) = i64::try_from(size) else {
                    let message = format!("dimension {} of {} is too large: {size}", number + 1, tensor.name);
                    self.errors.push(BindError::new("size-overflow", &tensor.name, message).at(tensor.span));
                    continue;
                };
                let dim = Dim { tensor: &tensor.name, number, extent: extent.clone(), given: size, span: tensor.span };
                if let Some(rank) = extent.as_rank().filter(|r| matches!(self.sizes[r.0 as usize], Size::Unknown)) {
                    self.set(rank, size, dim.source());
                }
                dims.push(dim);
            }
        }
        dims
    }

    /// Gives one rank its default, if there is one whose default is known.
    fn forward_default(&mut self) -> bool {
        for rank in self.ids() {
            let (Size::Unknown, Some(default)) = (&self.sizes[rank.0 as usize], &self.cascade[rank].default) else {
                continue;
            };
            if !default.numerator.ranks().chain(default.denominator.ranks()).all(|r| self.known(r).is_some()) {
                continue;
            }
            let value = |e: &SizeExpr| e.eval(|r| self.known(r).unwrap_or(0));
            let quotient = value(&default.numerator).zip(value(&default.denominator));
            let text = spell_default(self.cascade, rank);
            let name = self.name(rank);
            let error = match quotient {
                Some((n, d)) if d != 0 && n.checked_rem(d) == Some(0) && n / d >= 0 => {
                    self.set(rank, n / d, format!("its default {text}"));
                    return true;
                }
                Some((n, 1)) => {
                    BindError::new("negative-size", name, format!("{name} = {text} is {n}, and a size is at least 0"))
                }
                Some((n, d)) => BindError::new(
                    "inexact-size",
                    name,
                    format!("{name} = {text} is {n} / {d}, which is not a whole number from 0 on"),
                ),
                None => BindError::new("size-overflow", name, format!("{name} = {text} is too large")),
            };
            let span = self.cascade[rank].span;
            self.fail(
                rank,
                error.hint(format!("give `--size {name}=…`, or other sizes for what it depends on")).at(span),
            );
            return true;
        }
        false
    }

    /// Reads one default backwards: its rank is known, and it leaves a single other rank unknown.
    fn backward_default(&mut self) -> bool {
        for rank in self.ids() {
            let (Some(_), Some(default)) = (self.known(rank), &self.cascade[rank].default) else { continue };
            let product = default.denominator.mul(&SizeExpr::rank(rank));
            let source = format!("{} = {}", self.name(rank), spell_default(self.cascade, rank));
            if self.solve_equation(&product, &default.numerator, &source) {
                return true;
            }
        }
        false
    }

    /// Settles the only rank unknown in `left = right`, if it occurs in no product with itself. Whether it did.
    fn solve_equation(&mut self, left: &SizeExpr, right: &SizeExpr, source: &str) -> bool {
        let difference = left.add(&right.scale(-1));
        let mut unknown = None;
        let (mut slope, mut rest) = (0i64, 0i64);
        for (ranks, coefficient) in difference.terms() {
            let mut product = *coefficient;
            let mut here = None;
            for &rank in ranks {
                match &self.sizes[rank.0 as usize] {
                    Size::Known(value, _) => match product.checked_mul(*value) {
                        Some(p) => product = p,
                        None => return false,
                    },
                    Size::Unknown if here.is_none() && unknown.is_none_or(|u| u == rank) => here = Some(rank),
                    _ => return false,
                }
            }
            let sum = if here.is_some() { &mut slope } else { &mut rest };
            let Some(total) = sum.checked_add(product) else { return false };
            *sum = total;
            unknown = unknown.or(here);
        }
        let (Some(rank), true) = (unknown, slope != 0) else { return false };
        match rest.checked_rem(slope).zip(rest.checked_div(slope)) {
            Some((0, quotient)) if quotient <= 0 && quotient != i64::MIN => {
                self.set(rank, -quotient, source.to_owned());
            }
            _ => {
                let name = self.name(rank);
                let knowns: Vec<_> = difference.ranks().filter_map(|r| Some((r, self.known(r)?))).collect();
                let mut message = format!("no whole number {name} makes {source} hold");
                for (k, (r, value)) in knowns.iter().enumerate() {
                    message += &format!("{} {} = {value}", if k == 0 { " with" } else { "," }, self.name(*r));
                }
                let span = self.cascade[rank].span;
                self.fail(rank, BindError::new("inexact-size", name, message).at(span));
            }
        }
        true
    }

    /// Compares a given dimension with what its extent came to.
    fn check(&mut self, dim: &Dim) {
        if dim.extent.ranks().any(|r| self.known(r).is_none()) {
            return;
        }
        let value = dim.extent.eval(|r| self.known(r).unwrap_or(0));
        if value == Some(dim.given) {
            return;
        }
        let source = dim.source();
        let error = match dim.extent.as_rank().map(|r| (r, &self.sizes[r.0 as usize])) {
            Some((rank, Size::Known(value, other))) => {
                let name = self.name(rank);
                BindError::new(
                    "contradictory-size",
                    name,
                    format!("{name} is {value} by {other}, but {} by {source}", dim.given),
                )
            }
            _ => {
                let extent = spell::size(self.cascade, &dim.extent);
                let value = value.map_or("too large".to_owned(), |v| v.to_string());
                let message = format!("{source} has {} elements, but {extent} is {value}", dim.given);
                BindError::new("contradictory-size", dim.tensor, message)
            }
        };
        self.errors.push(error.at(dim.span));
    }

    fn report_missing(&mut self) {
        let unknown: Vec<_> = self.ids().filter(|r| matches!(self.sizes[r.0 as usize], Size::Unknown)).collect();
        // A rank whose default waits for another one is that one's error; only defaults in a circle are their own.
        let without_default = |r: &&RankId| self.cascade[**r].default.is_none();
        let waits = self.sizes.iter().any(|s| matches!(s, Size::Failed)) || unknown.iter().any(|r| without_default(&r));
        for &rank in unknown.iter().filter(|r| !self.excused.contains(r)) {
            let name = self.name(rank);
            let error = match &self.cascade[rank].default {
                Some(_) if waits => continue,
                Some(_) => BindError::new(
                    "missing-size",
                    name,
                    format!("the default {} of {name} depends on itself", spell_default(self.cascade, rank)),
                ),
                None => BindError::new("missing-size", name, format!("{name} has no size")),
            };
            let input = self.cascade.inputs().find(|&t| self.cascade[t].extents.contains(&SizeExpr::rank(rank)));
            let or = input.map_or(String::new(), |t| format!(", or an input {}", self.cascade[t].name));
            self.errors.push(error.hint(format!("give `--size {name}=…`{or}")).at(self.cascade[rank].span));
        }
    }
}

fn spell_default(cascade: &Cascade, rank: RankId) -> String {
    let Some(default) = &cascade[rank].default else { return String::new() };
    let (n, d) = (spell::size(cascade, &default.numerator), spell::size(cascade, &default.denominator));
    if d == "1" { n } else { format!("{n} / {d}") }
}

/// Every tensor's extents are at least 0, and its elements, as f64, fit the address space.
pub(super) fn check_extents(cascade: &Cascade, bound: &Bound, errors: &mut Vec<BindError>) {
    let mut all_bytes = Some(0usize);
    for id in (0..cascade.tensors.len() as u32).map(TensorId) {
        let tensor = &cascade[id];
        let name = &tensor.name;
        // Empty dimensions count as one element: strides are products of the others.
        let mut bytes = Some(size_of::<f64>());
        for (number, extent) in tensor.extents.iter().enumerate() {
            let value = bound.try_extent(extent);
            if let Some(negative @ ..0) = value {
                let message = format!(
                    "dimension {} of {name} would have {} = {negative} elements",
                    number + 1,
                    spell::size(cascade, extent)
                );
                errors.push(BindError::new("negative-extent", name, message).at(tensor.span));
                return;
            }
            bytes = bytes.zip(value).and_then(|(b, v)| b.checked_mul(usize::try_from(v.max(1)).ok()?));
        }
        all_bytes = all_bytes.zip(bytes).and_then(|(a, b)| a.checked_add(b)).filter(|&b| isize::try_from(b).is_ok());
        if all_bytes.is_none() {
            let shape: Vec<_> = tensor.extents.iter().map(|e| bound.extent(e).to_string()).collect();
            let message = format!("{name} with {} elements does not fit the address space", shape.join(" × "));
            errors.push(BindError::new("size-overflow", name, message).at(tensor.span));
            return;
        }
    }
}
