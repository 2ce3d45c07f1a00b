//! Pass 6: homes. Every tile is made either in registers or in shared memory (a load that products read from there);
//! what products read from shared memory, what elements are picked from, and what is read in another frame, gets a copy in shared memory as well.

use super::Fallback;
use super::access::{adjacent, affine};
use super::facts::{Carrier, Facts, Use, each_op, gathers};
use super::frame::{FrameId, Side};
use super::frames::{Frames, only_a_factor};
use super::product::{Instruction, Operand, Product};
use super::shared::{SharedTile, Swizzle};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Coord, Op, TensorId, ValueId};
use std::collections::BTreeMap;

/// Where a tile comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It has no axis: every thread holds its element.
    Everywhere,
    /// In registers.
    Registers(FrameId),
    /// In shared memory.
    Shared,
}

/// Where a tile lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Home {
    /// Where it is made.
    pub made: Made,
    /// Its copy in shared memory, which is also how it gets from one frame to another.
    pub shared: Option<SharedTile>,
    /// Frames in which it is read back from there into registers.
    pub read_back: Vec<FrameId>,
}

/// How a load gets into shared memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Copy {
    /// `cp.async` of this many bytes at a time; what lies outside the tile's windows becomes 0.
    Async {
        /// 16, 8 or 4.
        bytes: usize,
    },
    /// Through registers, element by element.
    Elementwise {
        /// Why.
        reason: String,
    },
}

/// The homes of all tiles, and the copies of those made in shared memory.
pub(super) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    fallbacks: &mut Vec<Fallback>,
) -> (Vec<Home>, BTreeMap<ValueId, Copy>) {
    let mut copies = BTreeMap::new();
    let mut homes = vec![];
    let loads = loads(facts);
    for v in (0..facts.kernel.values.len() as u32).map(ValueId) {
        if facts.axes(v).is_empty() {
            homes.push(Home { made: Made::Everywhere, shared: None, read_back: vec![] });
            continue;
        }
        let own = frames.of.get(&v).copied();
        let mut readers = readers(facts, frames, v);
        let operand = operand(facts, products, v);
        let multiplied = facts.uses[v.at()].iter().any(|u| match u {
            Use::Factor(d) => products.get(d).is_some_and(|p| !(p.left_in_registers && p.left == v)),
            _ => false,
        });
        let elsewhere = readers.iter().any(|f| Some(*f) != own);
        // A thread picks what another one may hold.
        let picked = facts.uses[v.at()].iter().any(|u| matches!(u, Use::Picked(_)));
        if !multiplied && !elsewhere && !picked {
            let made = own.map_or(Made::Everywhere, Made::Registers);
            homes.push(Home { made, shared: None, read_back: vec![] });
            continue;
        }
        let load = loads.get(&v).copied();
        let (mut tile, copy) = shape(facts, frames, products, v, operand, load);
        let by_copy = match &copy {
            Some(Copy::Async { .. }) => true,
            Some(Copy::Elementwise { .. }) => only_a_factor(facts, v),
            None => false,
        };
        match (own, by_copy) {
            (_, true) => {
                if let Some(apart) = chunks(facts, frames, products, v, tile.inner).filter(|_| operand.is_none()) {
                    tile.swizzle = Swizzle::for_chunks(tile.columns * tile.element.bytes(), apart);
                }
                if let Some(Copy::Elementwise { reason }) = &copy {
                    fallbacks.push(Fallback { op: format!("{} = load", facts.name(v)), reason: reason.clone() });
                }
                copies.extend(copy.map(|c| (v, c)));
                homes.push(Home { made: Made::Shared, shared: Some(tile), read_back: readers });
            }
            (Some(f), false) => {
                if operand.is_none() {
                    tile.element = of_carrier(facts.carrier(v));
                    tile.swizzle = Swizzle::for_rows(tile.columns * tile.element.bytes());
                }
                readers.retain(|r| *r != f);
                homes.push(Home { made: Made::Registers(f), shared: Some(tile), read_back: readers });
            }
            (None, false) => homes.push(Home { made: Made::Shared, shared: Some(tile), read_back: readers }),
        }
    }
    (homes, copies)
}

fn of_carrier(carrier: Carrier) -> DType {
    match carrier {
        Carrier::F32 => DType::F32,
        Carrier::F64 => DType::F64,
        Carrier::I32 => DType::I32,
    }
}

type Access<'a> = (TensorId, &'a [Coord], Option<f64>);

fn loads<'a>(facts: &Facts<'a>) -> BTreeMap<ValueId, Access<'a>> {
    let mut out = BTreeMap::new();
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Load { dst, tensor, at, fill } = op {
            out.insert(*dst, (*tensor, at.as_slice(), *fill));
        }
    });
    out
}

/// The frames in which the tile's elements are read from registers.
fn readers(facts: &Facts<'_>, frames: &Frames, v: ValueId) -> Vec<FrameId> {
    let mut out = vec![];
    for u in &facts.uses[v.at()] {
        let frame = match u {
            Use::Leaf(d) | Use::Onto(d) | Use::Gather(d) | Use::Start(d) | Use::Next(d) => frames.of.get(d),
            Use::Reduced(_) | Use::Stored(_) | Use::Tested => frames.of.get(&v),
            Use::Factor(_) | Use::Picked(_) => None,
        };
        if let Some(&f) = frame
            && !out.contains(&f)
        {
            out.push(f);
        }
    }
    out.sort_unstable();
    out
}

/// The tensor-core operand that the tile is read as from shared memory. Every product that multiplies a tile reads it
/// as the same type, because that type follows from the tile's own or both are exact.
fn operand(facts: &Facts<'_>, products: &BTreeMap<ValueId, Product>, v: ValueId) -> Option<(Operand, DType)> {
    facts.uses[v.at()].iter().find_map(|u| {
        let Use::Factor(d) = u else { return None };
        let Instruction::TensorCore(operand) = products.get(d)?.instruction else { return None };
        let element = match (operand, facts.dtype(v)) {
            (Operand::Bf16, _) => DType::Bf16,
            (Operand::F16, _) => DType::F16,
            (Operand::Bytes(_), DType::I8 | DType::I4) => DType::I8,
            (Operand::Bytes(_), _) => DType::U8,
        };
        Some((operand, element))
    })
}

/// For a tile that lanes only multiply: how far apart the rows are of which neighbouring lanes read the same chunk, 0 if they
/// read along rows.
fn chunks(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    v: ValueId,
    inner: AxisId,
) -> Option<usize> {
    let apart = |u: &Use| {
        let Use::Factor(d) = u else { return None };
        let p = products.get(d).filter(|p| matches!(p.instruction, Instruction::Fma(_)))?;
        let kept = facts.axes(v).into_iter().find(|a| *a != p.sum);
        let frame = &frames.frames[p.frame.0];
        let vector = kept.and_then(|a| frame.sides.get(&a).map(|&side| frame.span(side, facts.size(a)).vector));
        Some(if inner == p.sum { vector.unwrap_or(0) } else { 0 })
    };
    let all: Option<Vec<usize>> = facts.uses[v.at()].iter().map(apart).collect();
    all?.into_iter().max()
}

/// The tile in shared memory, and how a load gets there.
fn shape(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    v: ValueId,
    operand: Option<(Operand, DType)>,
    load: Option<Access<'_>>,
) -> (SharedTile, Option<Copy>) {
    let axes = facts.axes(v);
    let summed = |axis: &AxisId| {
        facts.uses[v.at()]
            .iter()
            .any(|u| matches!(u, Use::Factor(d) if products.get(d).is_some_and(|p| p.sum == *axis)))
    };
    let adjacent_in_memory =
        load.and_then(|(t, at, _)| axes.iter().copied().find(|&a| facts.stride(t, at, a) == Some(1)));
    let across = frames
        .of
        .get(&v)
        .and_then(|f| axes.iter().copied().find(|a| frames.frames[f.0].sides.get(a) == Some(&Side::Across)));
    let bytes = matches!(operand, Some((Operand::Bytes(_), _)));
    let by_sum = if bytes { axes.iter().copied().find(|a| summed(a)) } else { None };
    let last = axes[axes.len() - 1];
    let inner = by_sum.or(adjacent_in_memory).or(across).unwrap_or(last);
    let outer = axes.iter().copied().find(|&a| a != inner);
    let memory = load.map(|l| facts.program.tensor(l.0).dtype);
    let copy = load.map(|(tensor, at, fill)| copy(facts, v, tensor, at, fill, inner, operand.map(|o| o.1)));
    let element = match (operand, &copy) {
        (Some((_, element)), _) => element,
        (None, Some(Copy::Async { .. })) => memory.unwrap_or(DType::F32),
        _ => of_carrier(facts.carrier(v)),
    };
    let depth = operand.map_or(1, |o| o.0.depth());
    let padded = |axis: AxisId| {
        let size = facts.size(axis);
        if operand.is_none() {
            return size;
        }
        // As far as instructions reach: whole fragments along kept axes, whole depths along summed ones.
        let fragments = frames.frames.iter().filter(|f| f.is_fragment());
        let reach = fragments.filter_map(|f| f.sides.get(&axis).map(|&s| f.span(s, size).cover)).max().unwrap_or(0);
        size.next_multiple_of(depth).max(reach)
    };
    let (rows, columns) = (outer.map_or(1, padded), padded(inner));
    let swizzle = Swizzle::for_rows(columns * element.bytes());
    (SharedTile { element, outer, inner, rows, columns, swizzle, stages: 1, offset: 0 }, copy)
}

fn copy(
    facts: &Facts<'_>,
    v: ValueId,
    tensor: TensorId,
    at: &[Coord],
    fill: Option<f64>,
    inner: AxisId,
    operand: Option<DType>,
) -> Copy {
    let decl = facts.program.tensor(tensor);
    let stored = operand.unwrap_or(decl.dtype);
    let elementwise = |reason: String| Copy::Elementwise { reason };
    let bytes = adjacent(facts, tensor, at, inner) * decl.dtype.bytes();
    let plain = matches!(decl.dtype, DType::I4 | DType::U4 | DType::B1 | DType::Tf32);
    if at.iter().any(gathers) {
        elementwise("its rows are gathered".to_string())
    } else if fill.is_some() {
        elementwise("elements outside the tensor are filled in".to_string())
    } else if stored != decl.dtype || facts.dtype(v) != decl.dtype {
        elementwise(format!("{} in memory is {stored} in shared memory", decl.dtype))
    } else if plain {
        elementwise(format!("bytes that are no {} count as the nearest one", decl.dtype))
    } else if !affine(facts, at, &facts.axes(v)) {
        elementwise("its addresses are not affine in the tile's positions".to_string())
    } else if facts.stride(tensor, at, inner) != Some(1) {
        let axis = &facts.kernel.axis(inner).name;
        elementwise(format!("elements along {axis}, which has to be adjacent in shared memory, are apart in memory"))
    } else if bytes < 4 {
        elementwise(format!("rows of {} begin at multiples of {bytes} bytes only; cp.async needs 4", decl.name))
    } else {
        Copy::Async { bytes }
    }
}
