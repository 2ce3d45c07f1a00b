//! In which number types products are multiplied, where the program leaves that open.
//!
//! A sum of products of which one factor is wider than the other can be computed in three ways. With both in the narrower
//! type, which is the language's one liberty with rounding ([`Options::narrow_contractions`]). Where the narrower one has
//! 8 bits, with both in 16: that rounds less, and an 8-bit factor not at all. And with both as they are, in the wider one.
//! Sums and states are f32 (i32, f64) in every case: nothing narrower is allowed. Each way is a plan of its own; the first
//! is planned, and then the others of each kernel of the best plan, as far as a bound on their time allows.
//!
//! Two factors of 8 bits that no matrix unit of the machine takes are multiplied in 16, in which they are exact.
//!
//! [`Options::narrow_contractions`]: crate::Options::narrow_contractions

use crate::Lost;
use crate::build::{BuildError, Built, Workshop, time};
use crate::choose::SURE_WITH_LANES;
use crate::cuts::contracts;
use crate::lost::Cost;
use einloom_cascade::DType;
use einloom_model::compute_seconds;
use std::collections::BTreeSet;

/// How factors of two number types are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Products {
    /// The wider one is rounded to the narrower one's type.
    #[default]
    Narrow,
    /// As [`Products::Narrow`], but in 16 bits where the narrower one has 8.
    Sixteen,
    /// Nothing is rounded.
    AsTheyAre,
}

/// What is open where factors are multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiplied {
    /// How, where they are of two types.
    pub products: Products,
    /// Whether wider ones may be rounded.
    pub liberty: bool,
    /// Whether there is a unit that wants them alike.
    pub unit: bool,
    /// The type that takes the place of 8-bit floats, if the units multiply that and not them.
    pub eights: Option<DType>,
}

/// A kernel in other number types that was worked out and not taken.
#[derive(Clone, Debug)]
pub(crate) struct OtherTypes {
    what: String,
    /// At least, if the bound was enough.
    seconds: f64,
    cost: Option<Cost>,
}

/// The factors' types, the wider one first, if they are floats of two widths of which one is at most 16 bits wide.
pub(crate) fn mixed([a, b]: [DType; 2]) -> Option<(DType, DType)> {
    let (wide, narrow) = if a.bytes() >= b.bytes() { (a, b) } else { (b, a) };
    let suits = |d: DType| d.is_float() && d != DType::F64;
    (suits(wide) && suits(narrow) && narrow.bytes() <= 2 && wide.bytes() > narrow.bytes()).then_some((wide, narrow))
}

impl Products {
    /// The type in which factors of these two are multiplied; `None` as they are. `liberty` to round; `unit`: the machine
    /// multiplies factors of one type only, so that widening is worth its instructions.
    pub(crate) fn to(self, (wide, narrow): (DType, DType), liberty: bool, unit: bool) -> Option<DType> {
        match self {
            Self::AsTheyAre => None,
            // An 8-bit factor is exact in any type of 16 bits.
            _ if wide.bytes() == 2 => unit.then_some(wide),
            _ if !liberty => None,
            Self::Sixteen if narrow.bytes() == 1 => Some(DType::Bf16),
            _ => Some(narrow),
        }
    }

    /// The ways that differ from [`Products::Narrow`] for kernels with these pairs.
    fn others(pairs: &BTreeSet<(DType, DType)>, liberty: bool, unit: bool) -> Vec<Self> {
        let all = |p: Self| pairs.iter().map(|&pair| p.to(pair, liberty, unit)).collect::<Vec<_>>();
        let mut seen = vec![all(Self::Narrow)];
        let new = |p: &Self| {
            let own = all(*p);
            let first = !seen.contains(&own);
            seen.push(own);
            first
        };
        [Self::Sixteen, Self::AsTheyAre].into_iter().filter(new).collect()
    }

    fn name(self, pairs: &BTreeSet<(DType, DType)>, liberty: bool, unit: bool) -> String {
        let types: BTreeSet<DType> = pairs.iter().map(|&pair| self.to(pair, liberty, unit).unwrap_or(pair.0)).collect();
        types.iter().map(DType::to_string).collect::<Vec<_>>().join(" and ")
    }
}

impl Workshop<'_> {
    /// What `find` gives where factors of two number types are multiplied as in a kernel that was built.
    pub(crate) fn in_its_types<T>(&mut self, built: &Built, find: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.products, built.products);
        let found = find(self);
        self.products = before;
        found
    }

    /// Whether wider factors may be rounded, and whether there is a unit that wants them alike.
    pub(crate) fn liberties(&self) -> (bool, bool) {
        (self.options.narrow_contractions && !self.options.exact, !self.machine.matrix.is_empty())
    }

    /// What is open for the products that are lowered now.
    pub(crate) fn multiplied(&self) -> Multiplied {
        let (liberty, unit) = self.liberties();
        Multiplied { products: self.products, liberty, unit, eights: self.machine.eights() }
    }

    /// The kernel with its products in the number types that are predicted to be fastest: of equally fast ones on one unit
    /// those that round least. Notes tell what the others take.
    pub(crate) fn in_best_types(&mut self, built: &Built) -> Built {
        let (liberty, unit) = self.liberties();
        let pairs = built.mixed.clone();
        let others = Products::others(&pairs, liberty, unit);
        if let Some(way) = self.by_rate(&pairs, &others).filter(|_| liberty && !unit) {
            return self.in_types(built, way);
        }
        let mut best = (Products::Narrow, built.clone());
        let mut lost: Vec<(Products, Result<Built, f64>)> = vec![];
        for way in others {
            self.products = way;
            match self.build_below(built, best.1.cost.seconds) {
                Some(Ok(other)) if surely(&other, &best.1) => {
                    let (way, before) = std::mem::replace(&mut best, (way, other));
                    lost.push((way, Ok(before)));
                }
                Some(other) => lost.push((way, other)),
                None => {}
            }
            self.products = Products::default();
        }
        let (way, mut out) = best;
        let name = |p: Products| p.name(&pairs, liberty, unit);
        let mut told = vec![format!("products in {}: {}", name(way), time(out.cost.seconds))];
        for (other, found) in lost {
            let what = format!("{} with products in {}", out.kernel.name, name(other));
            let (seconds, cost) = match found {
                Ok(built) => (built.cost.seconds, Some(built.cost)),
                Err(least) => (least, None),
            };
            let least = if cost.is_none() { "at least " } else { "" };
            told.push(format!("in {} {least}{}", name(other), time(seconds)));
            out.types.push(OtherTypes { what, seconds, cost });
        }
        if told.len() > 1 {
            out.types_note = Some(told.join("; "));
        }
        out
    }

    /// On a machine without matrix units of its own, the way whose products go at the highest rate, of equal ones the one
    /// that rounds least; `None` if the machine multiplies no type faster than f32. Times would decide otherwise for few
    /// and for many cores, and numbers do not depend on how many there are.
    fn by_rate(&self, pairs: &BTreeSet<(DType, DType)>, others: &[Products]) -> Option<Products> {
        let rate = |way: Products| {
            let one = |&pair: &(DType, DType)| {
                let both = match way.to(pair, true, false) {
                    Some(to) => [to, to],
                    None => [pair.0, pair.1],
                };
                both.map(|d| self.machine.rate(d).0).into_iter().fold(f64::INFINITY, f64::min)
            };
            pairs.iter().map(one).fold(f64::INFINITY, f64::min)
        };
        let mut best = Products::Narrow;
        // Later ones round less.
        for &way in others {
            if rate(way) >= rate(best) {
                best = way;
            }
        }
        let faster = |d: &DType| d.is_float() && self.machine.rate(*d).0 > self.machine.rate(DType::F32).0;
        DType::ALL.iter().any(faster).then_some(best)
    }

    /// The kernel with its products in these types; as it is if it cannot be built so.
    fn in_types(&mut self, built: &Built, way: Products) -> Built {
        let mut out = match way {
            Products::Narrow => built.clone(),
            other => {
                self.products = other;
                let found = self.build_below(built, f64::INFINITY);
                self.products = Products::default();
                match found {
                    Some(Ok(found)) => found,
                    _ => built.clone(),
                }
            }
        };
        let name = way.name(&built.mixed, true, false);
        out.types_note = Some(format!("products in {name}, which the machine multiplies fastest"));
        out
    }

    /// The best kernel in the types at hand; at least how long every one takes if none is below the limit.
    fn build_below(&mut self, built: &Built, limit: f64) -> Option<Result<Built, f64>> {
        // One tiling tells the arithmetic of all of them.
        let style = self.styles(&built.cone, contracts(self.p, self.x, &built.cone)).into_iter().next()?;
        let roles = crate::cuts::Roles::new(self.p, self.x, &built.cone);
        let one = self.emit(&built.cone, &roles, &style, &built.kernel.name).ok()?;
        let least = self.machine.overhead.kernel.0 + compute_seconds(&one.kernel, self.machine);
        if least > limit {
            self.work.pruned += 1;
            return Some(Err(least));
        }
        match self.build(&built.roots, built.cone.clone(), limit * (1.0 + 1e-12), &[&built.kernel]) {
            Ok(found) => Some(Ok(found)),
            Err(BuildError::Slower(least)) => Some(Err(least)),
            Err(BuildError::Cone(_) | BuildError::Plan(_)) => None,
        }
    }
}

/// Whether a kernel is no slower than another. Where it runs on another unit it has to be much faster: between units the
/// model errs by more than within one.
fn surely(other: &Built, than: &Built) -> bool {
    let unit = |b: &Built| b.gpu.as_ref().and_then(|g| g.unit.clone());
    let sure = if unit(other) == unit(than) { 1.0 } else { SURE_WITH_LANES };
    other.cost.seconds * sure <= than.cost.seconds
}

impl OtherTypes {
    /// As a plan that lost to one that costs `taken`, in which the kernel costs `own`.
    pub(crate) fn lost(&self, taken: &Cost, own: &Cost) -> Lost {
        if let Some(cost) = &self.cost {
            return Lost::kernel(taken, self.what.clone(), own, cost);
        }
        let seconds = taken.seconds - own.seconds + self.seconds;
        let slower = (seconds / taken.seconds - 1.0) * 100.0;
        let reason = format!("at least {slower:.0} % slower: its products alone take as long");
        Lost { what: self.what.clone(), seconds, bound_by: "arithmetic".to_string(), reason }
    }
}
