//! Which contractions the processor's matrix unit computes. It multiplies numbers of bf16; a factor of another type is the
//! sum of several ([`crate::kernels::contract::parts`]), and each of them costs a multiplication.

use super::{Carrier, Contract, ElementKind, Keep, Leaf, Passing, Product, Step, Tile, Viewable, kept, reads, writes};
use crate::kernels::contract::{UnitRates, parts};
use crate::kernels::fold::Monoid;
use crate::kernels::strip::{self, Operand};
use crate::kernels::unit::products;
use einloom_cascade::DType;
use einloom_tile::{AxisId, Kernel, Program, ValueId};
use std::collections::BTreeMap;

/// What multiplies packed squares, as plans know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Measured rates, by which it computes that for which it is faster than multiply-adds. Without them it computes all
    /// that it can.
    pub rates: Option<Rates>,
}

/// Measured rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Operations of multiply-adds in f32 per second.
    pub widened: f64,
    pub unit: UnitRates,
}

impl Unit {
    /// Whether it may be the faster way for factors of so many parts, packing left aside.
    pub(super) fn may(self, parts: [usize; 2]) -> bool {
        let faster = |rates: Rates| rates.unit.seconds(parts, products(parts)) * GAIN < 1.0 / rates.widened;
        self.rates.is_none_or(faster)
    }
}

/// Rows, columns and terms of the unit's squares: edges are filled up with zeros.
const SQUARE: [usize; 3] = [32, 32, 32];

/// Operations of multiply-adds in f32 that take as long as packing an element: of one part, and of each further one.
/// (Measured with three parts: 2.3 ns for 16 elements, beside 170 operations a nanosecond.)
const PACKING: [f64; 2] = [8.0, 10.0];
/// The same of elements that are in registers. (Counted: no loads, and no range to find.)
const PACKING_IN_PASSING: [f64; 2] = [2.0, 6.0];

/// What makes the unit worth its while.
const GAIN: f64 = 1.15;

/// Lets the unit compute the contractions for which it is faster than multiply-adds.
pub(super) fn choose(
    program: &Program,
    (kernel, tiles): (&Kernel, &[Tile]),
    body: &mut Vec<Step>,
    Unit { rates }: Unit,
) {
    let mut way = vec![Reads::Nothing; tiles.len()];
    let mut kept = vec![false; tiles.len()];
    super::each_step(body, &mut |step| {
        if let Step::Load { dst, kept: Keep::Panels | Keep::Unpacked, .. } = step {
            kept[dst.at()] = true;
        }
    });
    let mut depth = vec![None; tiles.len()];
    made(body, 0, &mut depth);
    let faster = |c: &Contract, of, at| {
        let left = match depth[c.left.at()] {
            Some((deep, _)) if deep < at => None,
            Some((_, true)) => Some(PACKING_IN_PASSING),
            _ => Some(PACKING),
        };
        rates.is_none_or(|rates| pays((kernel, tiles), c, of, (left, kept[c.right.at()]), rates))
    };
    contractions(tiles, (body, 0), &faster, &mut way);
    let mut wanted = vec![];
    super::each_step(body, &mut |step| {
        if let Step::Contract(c) = step
            && let Some([_, right]) = c.parts
        {
            wanted.push((c.right, right as u8));
        }
    });
    loads(body, &way, &wanted);
    round_in_passing(tiles, body);
    let uses = super::uses(tiles, body);
    pack_in_passing(tiles, body, &uses);
    reduce_in_passing(tiles, body);
    let uses = super::uses(tiles, body);
    multiply_later(body, &uses);
    make_in_passing(body);
    let uses = super::uses(tiles, body);
    leave_out(body, &uses);
    let mut packed = kept::only_terms(tiles, body);
    super::each_step(body, &mut |step| {
        if let Step::Contract(c) = step {
            packed[c.left.at()] &= c.parts.is_some();
        }
    });
    leave(program, tiles, body, &packed);
}

/// Whether contractions of inner streams read the tile.
fn many_times(steps: &[Step], v: ValueId) -> bool {
    let mut inside = false;
    for step in steps {
        if let Step::Stream { body, .. } = step {
            super::each_step(body, &mut |s| inside |= matches!(s, Step::Contract(c) if c.left == v));
        }
    }
    inside
}

/// Lets the tiles that are only packed, as rows of terms, stay where they are; or has them packed, if that is done again
/// and again.
fn leave(program: &Program, tiles: &[Tile], steps: &mut [Step], packed: &[bool]) {
    for at in 0..steps.len() {
        let (before, after) = steps.split_at_mut(at + 1);
        match &mut before[at] {
            Step::Load { dst, tensor, access, view, .. } if packed[dst.at()] => {
                let (from, to) = (program.tensor(*tensor).dtype, tiles[dst.at()].dtype);
                if access.is_adjacent() && from == to && matches!(from, DType::F32 | DType::Bf16) {
                    *view = if many_times(after, *dst) { Viewable::Left(parts(to)) } else { Viewable::Once };
                }
            }
            Step::Stream { body, .. } => leave(program, tiles, body, packed),
            _ => {}
        }
    }
}

/// What reads a value as a right factor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Unit,
    Others,
}

/// Whether the unit can compute it.
fn can(tiles: &[Tile], contract: &Contract) -> bool {
    contract.sides.is_none()
        && contract.product == Product::Broadcast
        && tiles[contract.dst.at()].carrier == Carrier::F32
}

/// In how many streams each tile is made that is loaded or, by a map, computed.
fn made(steps: &[Step], depth: usize, out: &mut [Option<(usize, bool)>]) {
    for step in steps {
        match step {
            Step::Load { dst, .. } => out[dst.at()] = Some((depth, false)),
            Step::Map { dst, .. } => out[dst.at()] = Some((depth, true)),
            Step::Stream { body, .. } => made(body, depth + 1, out),
            _ => {}
        }
    }
}

fn contractions(
    tiles: &[Tile],
    (steps, depth): (&mut [Step], usize),
    faster: &impl Fn(&Contract, [usize; 2], usize) -> bool,
    way: &mut [Reads],
) {
    for step in steps {
        match step {
            Step::Stream { body, .. } => contractions(tiles, (body, depth + 1), faster, way),
            Step::Contract(c) if can(tiles, c) => {
                let of = [c.left, c.right].map(|v| parts(tiles[v.at()].dtype));
                if faster(c, of, depth) {
                    c.parts = Some(of);
                }
                let reads = if c.parts.is_some() { Reads::Unit } else { Reads::Others };
                let before = &mut way[c.right.at()];
                *before = if *before == Reads::Nothing || *before == reads { reads } else { Reads::Others };
            }
            Step::Contract(c) => way[c.right.at()] = Reads::Others,
            _ => {}
        }
    }
}

/// Whether the unit is the faster way for factors of so many parts. What packing an element of the left one takes is
/// given, if it is done for this contraction alone; the right one is packed once for many contractions if it is kept.
fn pays(
    (kernel, tiles): (&Kernel, &[Tile]),
    c: &Contract,
    of: [usize; 2],
    (packs, kept): (Option<[f64; 2]>, bool),
    rates: Rates,
) -> bool {
    let (dst, left) = (tiles[c.dst.at()], tiles[c.left.at()]);
    let length = |axis: Option<AxisId>| {
        axis.map_or(1, |a| {
            let axis = kernel.axis(a);
            axis.tile.min(axis.extent)
        })
    };
    debug_assert!(left.inner == Some(c.sum) || left.outer == Some(c.sum));
    let lengths = [length(dst.outer), length(dst.inner), length(Some(c.sum))];
    let operations = |[m, n, k]: [usize; 3]| 2.0 * m as f64 * n as f64 * k as f64;
    let filled: [usize; 3] = std::array::from_fn(|i| lengths[i].next_multiple_of(SQUARE[i]));
    let [m, n, k] = lengths.map(|x| x as f64);
    let pack = |[first, further]: [f64; 2], parts: usize| first + further * (parts - 1) as f64;
    let of_left = packs.map_or(0.0, |cost| m * k * pack(cost, of[0]));
    let packing = of_left + if kept { 0.0 } else { k * n * pack(PACKING, of[1]) };
    let by_unit = operations(filled) * rates.unit.seconds(of, products(of)) + packing / rates.widened;
    by_unit * GAIN < operations(lengths) / rates.widened
}

/// Right factors that are kept are kept as the unit wants them, if nothing else reads them; and loads of tiles that it
/// multiplies are not left to multiply-adds to copy in passing. `wanted`: the right factors that the unit multiplies, in whatever stream.
fn loads(steps: &mut [Step], way: &[Reads], wanted: &[(ValueId, u8)]) {
    let unit = steps.iter().any(|s| matches!(s, Step::Contract(c) if c.parts.is_some()));
    for step in steps {
        match step {
            Step::Load { dst, ahead, kept, .. } => {
                *ahead &= !unit;
                if matches!(kept, Keep::Panels | Keep::Unpacked) && way[dst.at()] != Reads::Others {
                    let parts = wanted.iter().find(|(v, _)| v == dst).map(|w| w.1);
                    *kept = parts.map_or(*kept, Keep::Packed);
                } else if *kept == Keep::Panels && wanted.iter().any(|(v, _)| v == dst) {
                    *kept = Keep::Rows;
                }
            }
            Step::Stream { body, .. } => loads(body, way, wanted),
            _ => {}
        }
    }
}

/// A left factor that is rounded to bf16 and read by nothing else need not be rounded before: packing it rounds.
fn round_in_passing(tiles: &[Tile], steps: &mut Vec<Step>) {
    let mut at = 0;
    while at < steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            round_in_passing(tiles, body);
        }
        match rounding(tiles, &steps[at]) {
            Some((dst, of)) if hand_over(&mut steps[at + 1..], dst, of) => {
                steps.remove(at);
            }
            _ => at += 1,
        }
    }
}

/// `dst = of`, rounded to bf16 and no more.
fn rounding(tiles: &[Tile], step: &Step) -> Option<(ValueId, ValueId)> {
    let Step::Map { dst, plan, ends } = step else { return None };
    let [strips] = plan.variants.as_slice() else { return None };
    let [strip::Step::Copy { d: 0, from: Operand::Leaf(leaf) }, strip::Step::Round { d: 0, dtype: DType::Bf16 }] =
        strips.steps.as_slice()
    else {
        return None;
    };
    let Some(Leaf::Tile(of, ElementKind::Full)) = strips.leaves.get(usize::from(*leaf)) else { return None };
    let (to, from) = (tiles[dst.at()], tiles[of.at()]);
    let same = (to.outer, to.inner) == (from.outer, from.inner) && from.carrier == Carrier::F32;
    (same && !plan.wide && ends.is_empty()).then_some((*dst, *of))
}

/// Lets the only reader of `dst` among the steps read `of`, if it is a contraction on the unit that has it as its left
/// factor, of one part as the right one: what has several may be computed again, without the unit and its rounding. What no
/// later step of the same body reads, no other body reads: a state's next value is left alone.
fn hand_over(steps: &mut [Step], dst: ValueId, of: ValueId) -> bool {
    let count = |step: &Step| reads(step).iter().filter(|v| **v == dst).count();
    let mut own = 0;
    for step in steps.iter() {
        match step {
            Step::Stream { states, body, .. } => {
                let mut inside = states.iter().any(|s| s.next == dst) || count(step) > 0;
                super::each_step(body, &mut |s| inside |= count(s) > 0);
                if inside {
                    return false;
                }
            }
            _ => own += count(step),
        }
    }
    let left = steps.iter_mut().find_map(|s| match s {
        Step::Contract(c) if c.left == dst && c.parts == Some([1, 1]) => Some(&mut c.left),
        _ => None,
    });
    match left {
        Some(left) if own == 1 => {
            *left = of;
            true
        }
        _ => false,
    }
}

/// Maps whose results are left factors of one contraction, of the same body or of a stream in it, and nothing else, pack them.
fn pack_in_passing(tiles: &[Tile], steps: &mut [Step], uses: &[usize]) {
    let mut lefts = BTreeMap::new();
    super::each_step(steps, &mut |step| {
        if let Step::Contract(Contract { left, sum, parts: Some([parts, _]), .. }) = step
            && uses[left.at()] == 1
        {
            lefts.insert(*left, (*sum, *parts));
        }
    });
    pack_those(tiles, steps, &lefts);
}

fn pack_those(tiles: &[Tile], steps: &mut [Step], lefts: &BTreeMap<ValueId, (AxisId, usize)>) {
    for step in steps {
        match step {
            Step::Stream { body, .. } => pack_those(tiles, body, lefts),
            Step::Map { dst, plan, ends } => {
                let tile = tiles[dst.at()];
                let fits = !plan.wide && tile.carrier == Carrier::F32 && tile.outer.is_some();
                if let Some(&(_, parts)) = lefts.get(dst).filter(|(sum, _)| fits && tile.inner == Some(*sum)) {
                    ends.packed = Some(parts);
                }
            }
            _ => {}
        }
    }
}

/// Lets contractions follow the maps that make their left factors, so that one can be done with the other.
fn make_in_passing(steps: &mut [Step]) {
    for at in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(at);
        let c = match &mut rest[0] {
            Step::Stream { body, .. } => {
                make_in_passing(body);
                continue;
            }
            Step::Contract(c) => c,
            _ => continue,
        };
        let makes = |s: &Step| match s {
            Step::Map { dst, plan, ends } => *dst == c.left && ends.packed.is_some() && plan.exponentiates(),
            _ => false,
        };
        let Some(map) = before.iter().position(makes) else { continue };
        let made = writes(&before[map]);
        // Nothing in between is there to see what it makes, or to leave it out.
        let apart = |s: &Step| {
            let moves = matches!(s, Step::SkipUnless { .. } | Step::Stream { .. });
            !moves && reads(s).iter().all(|v| !made.contains(v))
        };
        if before[map + 1..].iter().all(apart) {
            c.made = true;
            before[map..].rotate_left(1);
        }
    }
}

/// The extremes of a result's rows, where their reduction follows at once, see the sums before they are in memory.
fn reduce_in_passing(tiles: &[Tile], steps: &mut Vec<Step>) {
    let mut at = 0;
    while at < steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            reduce_in_passing(tiles, body);
        }
        let next = steps.get(at + 1).and_then(|s| super::sweep::fold(tiles, s));
        if let (Step::Contract(c), Some((src, fold))) = (&mut steps[at], next)
            && src == c.dst
            && c.parts.is_some()
            && c.fold.is_none()
            && matches!(fold.monoid, Monoid::Max | Monoid::Min)
            && fold.start != Some(src)
        {
            c.fold = Some(Passing { fold, times: 1.0, unless: None, only: false });
            steps.remove(at + 1);
        } else {
            reduce_unless_mapped(steps, at);
        }
        at += 1;
    }
}

/// The same where a map follows that is wanted for its extremes only, and that changes nothing in some of its variants.
fn reduce_unless_mapped(steps: &mut [Step], at: usize) {
    let (before, rest) = steps.split_at_mut(at + 1);
    let (Step::Contract(c), Some(Step::Map { plan, ends, .. })) = (&mut before[at], rest.first_mut()) else { return };
    let [fold] = ends.folds.as_slice() else { return };
    let extreme = matches!(fold.monoid, Monoid::Max | Monoid::Min) && !fold.across && fold.start != Some(c.dst);
    let only = ends.dropped && ends.store.is_none() && plan.variants.iter().any(|s| s.copies(c.dst));
    if extreme && only && c.parts.is_some() && c.fold.is_none() && plan.reads_first(c.dst) {
        c.fold = Some(Passing { fold: fold.clone(), times: 1.0, unless: Some(plan.clone()), only: false });
        ends.passed = Some(c.dst);
    }
}

/// Where a map between a result and its reduction makes a number of elements that no other reader wants either, they need
/// not be computed.
fn leave_out(steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(at + 1);
        let c = match &mut before[at] {
            Step::Stream { body, .. } => {
                leave_out(body, uses);
                continue;
            }
            Step::Contract(c) => c,
            _ => continue,
        };
        let (dst, Some(passing)) = (c.dst, &mut c.fold) else { continue };
        let Some([predicate]) = passing.unless.as_ref().map(|plan| plan.predicates.as_slice()) else { continue };
        let only = |step: &Step| match step {
            Step::Map { plan, ends, .. } => {
                plan.reads_only_where(predicate, dst) && ends.folds.iter().all(|f| f.start != Some(dst))
            }
            _ => false,
        };
        let mut readers = rest.iter().filter(|s| reads(s).contains(&dst));
        let (mut count, mut all) = (0, true);
        readers.by_ref().for_each(|s| (count, all) = (count + 1, all && only(s)));
        passing.only = all && count == uses[dst.at()];
    }
}

/// Results that are multiplied by a number, and of which nothing is wanted but exponentials and extremes, are multiplied
/// there: the unit stores them where they belong. Rounds the exponentials' arguments once less.
fn multiply_later(steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(at + 1);
        let c = match &mut before[at] {
            Step::Stream { body, .. } => {
                multiply_later(body, uses);
                continue;
            }
            Step::Contract(c) => c,
            _ => continue,
        };
        if c.parts.is_none() || c.start.is_some() || c.times == 1.0 || !(c.times > 0.0 && c.times.is_finite()) {
            continue;
        }
        let only = |step: &Step| match step {
            Step::Map { plan, ends, .. } => {
                let known = ends.passed.is_some() || plan.exponentiates();
                known && plan.reads_first(c.dst) && ends.folds.iter().all(|f| f.start != Some(c.dst))
            }
            _ => false,
        };
        let mut readers: Vec<&mut Step> = rest.iter_mut().filter(|s| reads(s).contains(&c.dst)).collect();
        if !readers.iter().all(|s| only(s)) || readers.len() != uses[c.dst.at()] {
            continue;
        }
        for step in &mut readers {
            if let Step::Map { plan, ends, .. } = step {
                plan.multiply_first(c.dst, f64::from(c.times), ends.passed.is_some());
            }
        }
        if let Some(passing) = &mut c.fold {
            passing.times = c.times;
        }
        c.times = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::products;

    #[test]
    fn products_of_parts_that_are_less_than_a_rounding_are_not_counted() {
        assert_eq!([[1, 1], [3, 1], [1, 3], [2, 2], [3, 3]].map(products), [1, 3, 3, 4, 6]);
    }
}
