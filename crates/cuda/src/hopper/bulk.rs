//! Pass 2: factors in shared memory. What a product does not take from registers is copied there by the bulk copy engine
//! (TMA), panel by panel, in the swizzled form that `wgmma` reads. PTX ISA, "Tensors" and "Shared memory matrix layout".

use super::rows::{ROWS, mma};
use super::{OpAt, Reason, RingTile, SwizzleBytes};
use crate::schedule::facts::{Facts, gathers};
use crate::schedule::frames::{Frames, only_a_factor};
use crate::schedule::{FrameId, Product, Side};
use einloom_tile::{ALIGNMENT, AxisId, Coord, CoordAtom, Op, TensorId, ValueId};
use std::collections::BTreeMap;

/// Most dimensions of a bulk copy.
const MOST_DIMS: usize = 5;
/// Most positions of a bulk copy along a dimension.
const MOST_ROWS: usize = 256;
/// Bytes that strides of a bulk copy are multiples of.
const STRIDE_UNIT: i64 = 16;

/// A tile that is copied, and where its load stands.
pub(super) struct Copied {
    pub op: OpAt,
    pub tile: RingTile,
    /// The frame in which its elements are also needed in registers.
    pub read: Option<FrameId>,
}

/// Every factor that comes from shared memory.
pub(super) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    consumers: usize,
) -> Result<BTreeMap<ValueId, Copied>, Reason> {
    let loads = loads(facts);
    let mut out = BTreeMap::new();
    for (&dst, p) in products {
        let left = (!p.left_in_registers).then_some((p.left, true));
        for (v, is_left) in left.into_iter().chain([(p.right, false)]) {
            let Some(&(op, tensor, at, fill)) = loads.get(&v) else {
                return Err(Reason::new(
                    mma(facts, dst),
                    format!("its factor {} is computed, and would have to pass through shared memory", facts.name(v)),
                ));
            };
            zeros_beyond(facts, p, v, tensor, at)?;
            if out.contains_key(&v) {
                continue;
            }
            let kept = facts.axes(v).into_iter().find(|a| *a != p.sum);
            let reach = |axis: AxisId| match (Some(axis) == kept, is_left) {
                (true, true) => ROWS * consumers,
                (true, false) => frames.frames[p.frame.0].span(Side::Across, facts.size(axis)).cover,
                (false, _) => facts.size(axis).next_multiple_of(16),
            };
            if fill.is_some() {
                return Err(Reason::new(load(facts, v), "elements outside the tensor are filled in"));
            }
            let tile = tile(facts, v, tensor, at, &reach)?;
            let read = (!only_a_factor(facts, v)).then_some(p.frame);
            out.insert(v, Copied { op, tile, read });
        }
    }
    Ok(out)
}

type Access<'a> = (OpAt, TensorId, &'a [Coord], Option<f64>);

fn loads<'a>(facts: &Facts<'a>) -> BTreeMap<ValueId, Access<'a>> {
    let mut out = BTreeMap::new();
    let mut add = |op: &'a Op, place: OpAt| {
        if let Op::Load { dst, tensor, at, fill } = op {
            out.insert(*dst, (place, *tensor, at.as_slice(), *fill));
        }
    };
    for (k, op) in facts.kernel.body.iter().enumerate() {
        add(op, OpAt { stream: None, op: k });
        if let Op::Stream { body, .. } = op {
            body.iter().enumerate().for_each(|(i, op)| add(op, OpAt { stream: Some(k), op: i }));
        }
    }
    out
}

fn load(facts: &Facts<'_>, v: ValueId) -> String {
    format!("{} = load", facts.name(v))
}

/// Sums must not see elements beyond the window. The copy engine makes them 0 only beyond the tensor's end.
fn zeros_beyond(facts: &Facts<'_>, p: &Product, v: ValueId, tensor: TensorId, at: &[Coord]) -> Result<(), Reason> {
    let axis = facts.kernel.axis(p.sum);
    let both_copied = !p.left_in_registers;
    let clipped = facts.kernel.body.iter().any(|op| match op {
        Op::Stream { axis, within, .. } => {
            *axis == p.sum && within.all.iter().any(|f| f.terms.iter().any(|t| t.1 == *axis))
        }
        _ => false,
    });
    let divides = axis.extent.is_multiple_of(axis.tile.min(axis.extent).max(1)) && facts.size(p.sum).is_multiple_of(16);
    let ends = |(coord, &dim): (&Coord, &usize)| {
        coord.terms == [(1, CoordAtom::Axis(p.sum))] && coord.offset == 0 && dim == axis.extent
    };
    let at_the_end = at.iter().zip(&facts.program.tensor(tensor).dims).any(ends);
    if both_copied && clipped {
        return Err(Reason::new(
            load(facts, v),
            format!(
                "chunks along {} end inside the tensor, and the copy engine would bring what lies beyond",
                axis.name
            ),
        ));
    }
    if divides || at_the_end {
        return Ok(());
    }
    Err(Reason::new(
        load(facts, v),
        format!("the last tile along {} is partial and does not end where the tensor ends", axis.name),
    ))
}

/// The tile in shared memory, if the copy engine can bring it.
fn tile(
    facts: &Facts<'_>,
    v: ValueId,
    tensor: TensorId,
    at: &[Coord],
    reach: &dyn Fn(AxisId) -> usize,
) -> Result<RingTile, Reason> {
    let refuse = |why: String| Err(Reason::new(load(facts, v), why));
    let decl = facts.program.tensor(tensor);
    if at.iter().any(gathers) {
        return refuse("its rows are gathered".to_string());
    }
    if facts.dtype(v) != decl.dtype || decl.dtype.bytes() != 2 {
        return refuse(format!("{} in memory is not the {} that is multiplied", decl.dtype, facts.dtype(v)));
    }
    let axes = facts.axes(v);
    let [first, second] = axes.as_slice() else {
        return refuse("it has fewer than two axes".to_string());
    };
    let mut dims = vec![];
    for &axis in &axes {
        match along(at, axis) {
            Some(d) => dims.push(d),
            None => {
                let name = &facts.kernel.axis(axis).name;
                return refuse(format!("{name} does not move along exactly one dimension in steps of one element"));
            }
        }
    }
    let stride = |k: usize| facts.strides(tensor)[dims[k]];
    let (outer, inner) = match (stride(0), stride(1)) {
        (_, 1) => (0, 1),
        (1, _) => (1, 0),
        _ => return refuse("elements that are adjacent in memory belong to different tiles".to_string()),
    };
    let element = decl.dtype.bytes() as i64;
    let moving = |d: &usize| decl.dims[*d] > 1;
    let count = (0..decl.dims.len()).filter(moving).count();
    if count > MOST_DIMS {
        return refuse(format!("{count} dimensions; the copy engine has {MOST_DIMS}"));
    }
    if decl.alignment() < ALIGNMENT {
        let (name, bytes) = (&decl.name, decl.alignment());
        return refuse(format!("{name} begins at a multiple of {bytes} bytes; the copy engine needs multiples of 16"));
    }
    for d in (0..decl.dims.len()).filter(moving).filter(|d| *d != dims[inner]) {
        let bytes = facts.strides(tensor)[d].saturating_mul(element);
        if bytes % STRIDE_UNIT != 0 || bytes == 0 {
            return refuse(format!(
                "neighbours in dimension {d} of {} are {bytes} bytes apart; the copy engine needs multiples of 16",
                decl.name
            ));
        }
    }
    if !begins_on_a_unit(facts, &at[dims[inner]], element) {
        let d = dims[inner];
        return refuse(format!(
            "tiles of {} begin at positions of dimension {d} that are no multiples of {STRIDE_UNIT} bytes; the copy engine needs them",
            decl.name
        ));
    }
    let axis = [*first, *second];
    let wanted = reach(axis[inner]);
    let swizzle = SwizzleBytes::for_row(wanted * decl.dtype.bytes());
    let columns = wanted.next_multiple_of(swizzle.bytes() / decl.dtype.bytes());
    let rows = reach(axis[outer]).next_multiple_of(16);
    if rows > MOST_ROWS {
        return refuse(format!("{rows} rows; one bulk copy has {MOST_ROWS}"));
    }
    Ok(RingTile {
        value: v,
        tensor,
        at: at.to_vec(),
        element: decl.dtype,
        outer: axis[outer],
        inner: axis[inner],
        dims: [dims[outer], dims[inner]],
        rows,
        columns,
        swizzle,
        offset: 0,
        shared: None,
    })
}

/// Whether every tile begins at a multiple of [`STRIDE_UNIT`] bytes along the dimension whose neighbours are adjacent.
/// Measured on an H100: any other innermost coordinate, swizzled or not, inside the tensor or beyond its end, is an illegal
/// instruction; the documentation of `cp.async.bulk.tensor` does not name it.
fn begins_on_a_unit(facts: &Facts<'_>, at: &Coord, element: i64) -> bool {
    let whole = |elements: i64| elements.wrapping_mul(element) % STRIDE_UNIT == 0;
    at.terms.iter().all(|(c, atom)| match atom {
        CoordAtom::Axis(a) => {
            let axis = facts.kernel.axis(*a);
            // Tiles begin at multiples of their extent, one tile at 0.
            axis.tile >= axis.extent || whole(c.wrapping_mul(axis.tile as i64))
        }
        CoordAtom::Floor(..) | CoordAtom::Tile(_) => whole(*c),
    }) && whole(at.offset)
}

/// The one dimension along which the axis moves, if it moves one element a step and nowhere else.
fn along(at: &[Coord], axis: AxisId) -> Option<usize> {
    let mut found = None;
    for (d, coord) in at.iter().enumerate() {
        for (c, atom) in &coord.terms {
            match atom {
                CoordAtom::Axis(a) if *a == axis && *c == 1 && found.is_none() => found = Some(d),
                atom if mentions(atom, axis) => return None,
                _ => {}
            }
        }
    }
    found
}

fn mentions(atom: &CoordAtom, axis: AxisId) -> bool {
    match atom {
        CoordAtom::Axis(a) => *a == axis,
        CoordAtom::Floor(inner, _) => inner.terms.iter().any(|(_, a)| mentions(a, axis)),
        CoordAtom::Tile(_) => false,
    }
}
