//! Distinct elements: how much of a tensor an access touches while its outer loops stand still.

use crate::count::{Factor, Group, Sum, Union};
use crate::nest::{Access, Loop, Nest, coord_axes, tiles};
use einloom_tile::{AxisId, Coord, CoordAtom, Kernel, Program, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which way to lean where the number of distinct elements is not known exactly: gathers, and sums of steps that
/// neither tile nor nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lean {
    High,
    Low,
}

/// Distinct elements per iteration of an access's first `depth` loops, summed over those iterations: the factors of that.
pub(crate) fn touched(
    program: &Program,
    kernel: &Kernel,
    nest: &Nest,
    k: usize,
    depth: usize,
    lean: Lean,
) -> Vec<Arc<Group>> {
    touched_in(program, kernel, nest, k, lean, nest.accesses[k].loops.split_at(depth.min(nest.accesses[k].loops.len())))
}

/// The same for an access that is in other loops: per iteration of the outer ones.
pub(crate) fn touched_in(
    program: &Program,
    kernel: &Kernel,
    nest: &Nest,
    k: usize,
    lean: Lean,
    (outer, inner): (&[Loop], &[Loop]),
) -> Vec<Arc<Group>> {
    let access = &nest.accesses[k];
    let factors = nest.counts.factors(k, lean, || factors(program, kernel, nest, access, lean));
    let apart = if lean == Lean::High { BTreeSet::new() } else { apart(access) };
    let union = if lean == Lean::High { Union::Hull } else { Union::Least(&apart) };
    Sum { kernel, outer, inner, factors: &factors, additive: false, largest: false, union }.groups(&nest.counts)
}

/// The most distinct elements in any iteration of an access's first `depth` loops: the factors of that.
pub(crate) fn largest(program: &Program, kernel: &Kernel, nest: &Nest, k: usize, depth: usize) -> Vec<Arc<Group>> {
    let (access, lean) = (&nest.accesses[k], Lean::High);
    let factors = nest.counts.factors(k, lean, || factors(program, kernel, nest, access, lean));
    let (outer, inner) = access.loops.split_at(depth.min(access.loops.len()));
    let sum = Sum { kernel, outer, inner, factors: &factors, additive: false, largest: true, union: Union::Hull };
    sum.groups(&nest.counts)
}

/// What it touches in a region, whatever the region's depth.
fn factors(program: &Program, kernel: &Kernel, nest: &Nest, access: &Access, lean: Lean) -> Vec<Arc<Factor>> {
    let dims = &program.tensor(access.tensor).dims;
    let factor = |group: Vec<Dimension>| {
        let axes: BTreeSet<AxisId> = group.iter().flat_map(|c| c.axes.iter().copied()).collect();
        let placed = group.iter().flat_map(|c| placed(&c.coord, c.clipped)).collect();
        let all = axes.clone();
        let mut mark = vec![1, u64::from(lean == Lean::High), group.len() as u64];
        group.iter().for_each(|d| d.mark(&mut mark));
        let lengths = matches!(group.as_slice(), [d] if d.is_length(kernel));
        let group = Arc::new(group);
        let linear = group.iter().all(Dimension::is_linear);
        let inside = group.clone();
        let steady = move |w: &[Window], axis: AxisId| steady(&inside, lean, w, axis);
        let steady = linear.then(|| Box::new(steady) as _);
        let size = Box::new(move |w: &[Window]| distinct(&group, &all, lean, w));
        Arc::new(Factor { axes, placed, size, steady, mark, lengths })
    };
    groups(kernel, nest, access, dims).into_iter().map(factor).collect()
}

/// The axes of which different positions always mean different elements: those that are a coordinate by themselves.
fn apart(access: &Access) -> BTreeSet<AxisId> {
    let alone = |coord: &Coord| match coord.terms.as_slice() {
        [(_, CoordAtom::Axis(axis))] => Some(*axis),
        _ => None,
    };
    access.at.iter().filter_map(alone).collect()
}

/// A coordinate with what it depends on.
struct Dimension {
    coord: Coord,
    extent: usize,
    axes: BTreeSet<AxisId>,
    /// The axes that the gathered part depends on.
    gathered: Option<BTreeSet<AxisId>>,
    /// Positions outside the tensor are not touched.
    clipped: bool,
}

impl Dimension {
    /// All that says how many elements it has over given windows.
    fn mark(&self, out: &mut Vec<u64>) {
        out.extend([self.extent as u64, u64::from(self.clipped)]);
        match &self.gathered {
            None => out.push(0),
            Some(axes) => {
                out.push(1 + axes.len() as u64);
                out.extend(axes.iter().map(|a| u64::from(a.0)));
            }
        }
        mark(&self.coord, out);
    }

    /// Whether it touches as many elements as the window of its one axis is long.
    fn is_length(&self, kernel: &Kernel) -> bool {
        let own = !self.clipped && self.gathered.is_none();
        own && matches!(self.coord.terms.as_slice(),
            [(_, CoordAtom::Axis(a))] if kernel.axis(*a).extent <= self.extent)
    }

    /// Whether it moves with its axes, by so many positions for each of theirs.
    fn is_linear(&self) -> bool {
        self.gathered.is_none() && self.coord.terms.iter().all(|(_, atom)| matches!(atom, CoordAtom::Axis(_)))
    }

    /// What one axis touches here by itself, if neither data nor the tensor's ends have a say in it: the same in whichever
    /// way one leans, and without any detour.
    fn plain(&self, windows: &[Window]) -> Option<u64> {
        if self.clipped || self.gathered.is_some() {
            return None;
        }
        let count = match self.coord.terms.as_slice() {
            [] => 1,
            [(_, CoordAtom::Axis(a))] => windows[a.at()].len as u64,
            [(_, CoordAtom::Floor(inner, d))] => {
                let [(1, CoordAtom::Axis(a))] = inner.terms.as_slice() else { return None };
                let Window { base, len } = windows[a.at()];
                if len == 0 {
                    return Some(0);
                }
                let first = inner.offset + base as i64;
                ((first + len as i64 - 1).div_euclid(*d) - first.div_euclid(*d) + 1) as u64
            }
            _ => return None,
        };
        Some(count.min(self.extent as u64))
    }
}

/// The coordinates, those that share axes together.
fn groups(kernel: &Kernel, nest: &Nest, access: &Access, dims: &[usize]) -> Vec<Vec<Dimension>> {
    let mut groups: Vec<Vec<Dimension>> = vec![];
    let whole = |filled: bool| -> Vec<Window> {
        let axes = kernel.axes.iter().filter(|_| filled);
        axes.map(|a| Window { base: 0, len: a.extent }).collect()
    };
    let whole = whole(access.filled);
    for (coord, &extent) in access.at.iter().zip(dims) {
        let ids = tiles(coord);
        let gathered: BTreeSet<AxisId> = ids.iter().flat_map(|v| nest.depends[v.at()].iter().copied()).collect();
        let axes: BTreeSet<AxisId> = coord_axes(coord).union(&gathered).copied().collect();
        let gathered = (!ids.is_empty()).then_some(gathered);
        let clipped = access.filled && (gathered.is_some() || !stays_inside(coord, extent, &whole));
        let new = Dimension { coord: coord.clone(), extent, axes, gathered, clipped };
        let shares = |g: &Vec<Dimension>| g.iter().any(|d| !d.axes.is_disjoint(&new.axes));
        let (joined, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        groups = apart;
        groups.push(joined.into_iter().flatten().chain([new]).collect());
    }
    groups
}

/// A coordinate in numbers.
pub(crate) fn mark(coord: &Coord, out: &mut Vec<u64>) {
    out.extend([coord.offset as u64, coord.terms.len() as u64]);
    for (c, atom) in &coord.terms {
        out.push(*c as u64);
        match atom {
            CoordAtom::Axis(a) => out.extend([0, u64::from(a.0)]),
            CoordAtom::Tile(v) => out.extend([1, u64::from(v.0)]),
            CoordAtom::Floor(inner, d) => {
                out.extend([2, *d as u64]);
                mark(inner, out);
            }
        }
    }
}

/// Whether a coordinate is in its dimension wherever its axes stand: then it makes no difference that others may not be.
pub(crate) fn stays_inside(coord: &Coord, extent: usize, whole: &[Window]) -> bool {
    let reach = reach(coord, Lean::High, whole);
    reach.low >= 0 && reach.high < extent as i128
}

/// The axes of which it matters where their windows stand: those that are divided, and all if the tensor may end.
fn placed(coord: &Coord, clipped: bool) -> BTreeSet<AxisId> {
    if clipped {
        return coord_axes(coord);
    }
    let each = |(_, atom): &(i64, CoordAtom)| match atom {
        CoordAtom::Floor(numerator, _) => coord_axes(numerator),
        _ => BTreeSet::new(),
    };
    coord.terms.iter().flat_map(each).collect()
}

fn distinct(group: &[Dimension], axes: &BTreeSet<AxisId>, lean: Lean, windows: &[Window]) -> u64 {
    if let [d] = group
        && let Some(count) = d.plain(windows)
    {
        return count;
    }
    let each = group.iter().map(|d| dimension(d, lean, windows));
    let shared = group.iter().map(|d| d.axes.len()).sum::<usize>() > axes.len();
    match lean {
        // Coordinates that move together make no box; where one is inside, another may be outside.
        Lean::Low if shared && group.iter().any(|d| d.clipped) => 0,
        Lean::Low if shared => each.max().unwrap_or(1),
        _ => {
            let points = axes.iter().map(|a| windows[a.at()].len as u64).fold(1, u64::saturating_mul);
            each.fold(1, u64::saturating_mul).min(points)
        }
    }
}

/// Where an axis's window may begin for all of these to be inside their tensor: wherever that is, as many elements are touched. They are linear.
fn steady(group: &[Dimension], lean: Lean, windows: &[Window], axis: AxisId) -> (i128, i128) {
    let base = windows[axis.at()].base as i128;
    let (mut from, mut to) = (i128::MIN, i128::MAX);
    for d in group.iter().filter(|d| d.clipped) {
        let terms = d.coord.terms.iter().filter(|(_, atom)| matches!(atom, CoordAtom::Axis(a) if *a == axis));
        let c: i128 = terms.map(|(c, _)| i128::from(*c)).sum();
        let reach = reach(&d.coord, lean, windows);
        // By so much the lowest may fall, and the highest rise.
        let (fall, rise) = (reach.low, d.extent as i128 - 1 - reach.high);
        let (down, up) = match c {
            0 if fall < 0 || rise < 0 => return (0, -1),
            0 => continue,
            1.. => (fall.div_euclid(c), rise.div_euclid(c)),
            _ => (rise.div_euclid(-c), fall.div_euclid(-c)),
        };
        (from, to) = (from.max(base - down), to.min(base + up));
    }
    (from, to)
}

fn dimension(d: &Dimension, lean: Lean, windows: &[Window]) -> u64 {
    let reach = reach(&d.coord, lean, windows);
    let Some(gathered) = &d.gathered else {
        if d.clipped {
            return clipped(&reach, d.extent as i128, lean);
        }
        return reach.count.min(d.extent as u64);
    };
    let gathered = gathered.iter().map(|a| windows[a.at()].len as u64).fold(1, u64::saturating_mul);
    match lean {
        Lean::Low => u64::from(gathered > 0),
        Lean::High => gathered.saturating_mul(reach.count).min(d.extent as u64),
    }
}

/// How many of the values lie in `0..extent`.
fn clipped(reach: &Reach, extent: i128, lean: Lean) -> u64 {
    let (low, high) = (reach.low.max(0), reach.high.min(extent - 1));
    if reach.count == 0 || low > high {
        return 0;
    }
    if reach.step > 0 {
        // Evenly spaced from `reach.low`: the first not below `low`, the last not above `high`.
        let first = (low - reach.low + reach.step - 1).div_euclid(reach.step);
        let last = (high - reach.low).div_euclid(reach.step);
        return (last - first + 1).max(0) as u64;
    }
    let outside = (low - reach.low) + (reach.high - high);
    match lean {
        Lean::High => reach.count.min((high - low + 1) as u64),
        // Each position outside may take one value away.
        Lean::Low => reach.count.saturating_sub(u64::try_from(outside).unwrap_or(u64::MAX)),
    }
}

/// The values that a coordinate takes: from `low` to `high`, `count` of them; every `step`-th if `step` is not 0.
struct Reach {
    low: i128,
    high: i128,
    count: u64,
    step: i128,
}

fn reach(coord: &Coord, lean: Lean, windows: &[Window]) -> Reach {
    let offset = i128::from(coord.offset);
    let mut parts = coord.terms.iter().filter_map(|(c, atom)| part(*c, atom, lean, windows));
    if coord.terms.len() <= 1 {
        // Nothing to put in order.
        let start = Reach { low: offset, high: offset, count: 1, step: 0 };
        return parts.next().map_or(start, |p| Reach { low: p.low + offset, high: p.high + offset, ..p });
    }
    let mut parts: Vec<Reach> = parts.collect();
    parts.retain(|p| p.count != 1 || p.low != 0);
    parts.sort_by_key(|p| p.step);
    let mut sum = Reach { low: offset, high: offset, count: 1, step: 0 };
    for part in parts {
        sum = plus(&sum, &part, lean);
    }
    sum
}

fn part(c: i64, atom: &CoordAtom, lean: Lean, windows: &[Window]) -> Option<Reach> {
    let c = i128::from(c);
    let inner = match atom {
        CoordAtom::Axis(a) => {
            let w = windows[a.at()];
            let low = w.base as i128;
            Reach { low, high: low + w.len as i128 - 1, count: w.len as u64, step: 1 }
        }
        CoordAtom::Floor(numerator, d) => {
            let d = i128::from(*d);
            let n = reach(numerator, lean, windows);
            let (low, high) = (n.low.div_euclid(d), n.high.div_euclid(d));
            let dense = n.step != 0 && n.step <= d;
            let count = if n.count == 0 { 0 } else { (high - low + 1).max(0) as u64 };
            Reach { low, high, count: if dense { count } else { count.min(n.count) }, step: i128::from(dense) }
        }
        // Counted apart.
        CoordAtom::Tile(_) => return None,
    };
    let (low, high) = (c * inner.low, c * inner.high);
    Some(Reach { low: low.min(high), high: low.max(high), count: inner.count, step: c.abs() * inner.step })
}

/// The values of a sum. Exact if one part's values are evenly spaced and the other's step fits them.
fn plus(a: &Reach, b: &Reach, lean: Lean) -> Reach {
    let (low, high) = (a.low + b.low, a.high + b.high);
    if a.count == 0 || b.count == 0 {
        return Reach { low, high, count: 0, step: 0 };
    }
    if a.count == 1 || b.count == 1 {
        let other = if a.count == 1 { b } else { a };
        return Reach { low, high, count: other.count, step: other.step };
    }
    let span = a.high - a.low;
    let product = a.count.saturating_mul(b.count);
    if b.step > span {
        // Copies of `a` that do not meet.
        let step = if a.step != 0 && b.step == span + a.step { a.step } else { 0 };
        return Reach { low, high, count: product, step };
    }
    if a.step != 0 && b.step != 0 && b.step % a.step == 0 {
        // Copies that overlap or touch: no gaps.
        return Reach { low, high, count: ((high - low) / a.step + 1) as u64, step: a.step };
    }
    let count = match lean {
        Lean::High => product.min((high - low + 1) as u64),
        Lean::Low => a.count.max(b.count),
    };
    Reach { low, high, count, step: 0 }
}
