//! Accesses to memory, seen from the threads: which neighbours in a tile are neighbours in memory.

use super::facts::{Facts, each_op, gathers};
use super::frame::{FrameId, Side};
use super::frames::Frames;
use einloom_tile::{AxisId, Coord, CoordAtom, Op, TensorId};

/// Most elements that one load or store of a thread may take along `axis`: they are adjacent in memory and every
/// group of them starts at a multiple of its size. A power of two, of at most 16 bytes.
pub(crate) fn adjacent(facts: &Facts<'_>, tensor: TensorId, at: &[Coord], axis: AxisId) -> usize {
    if at.iter().any(gathers) || facts.stride(tensor, at, axis) != Some(1) {
        return 1;
    }
    let bytes = facts.program.tensor(tensor).dtype.bytes();
    let aligned = facts.alignment(tensor, at, axis);
    let most = 16 / bytes;
    let aligned = if aligned == 0 { most } else { 1 << aligned.trailing_zeros().min(4) };
    most.min(aligned)
}

/// Whether addresses are affine in the tile's positions: no coordinate is a quotient or an element of a tile.
pub(crate) fn affine(facts: &Facts<'_>, at: &[Coord], axes: &[AxisId]) -> bool {
    !at.iter().any(gathers) && axes.iter().all(|&axis| !at.iter().any(|c| bends(facts, c, axis)))
}

fn bends(facts: &Facts<'_>, coord: &Coord, axis: AxisId) -> bool {
    coord.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Floor(inner, _) => mentions(inner, axis),
        CoordAtom::Tile(v) => facts.axes(*v).contains(&axis),
        CoordAtom::Axis(_) => false,
    })
}

fn mentions(coord: &Coord, axis: AxisId) -> bool {
    coord.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Axis(a) => *a == axis,
        CoordAtom::Floor(inner, _) => mentions(inner, axis),
        CoordAtom::Tile(_) => false,
    })
}

/// Elements that a thread of a blocked frame should hold side by side: what the widest tiles can move at once.
pub(super) fn vector(facts: &Facts<'_>, frames: &Frames, f: FrameId) -> usize {
    let sides = &frames.frames[f.0].sides;
    let mut widest: Option<(usize, usize)> = None;
    each_op(&facts.kernel.body, &mut |op| {
        let (v, tensor, at) = match op {
            Op::Load { dst, tensor, at, .. } => (*dst, *tensor, at),
            Op::Store { src, tensor, at } => (*src, *tensor, at),
            _ => return,
        };
        if frames.of.get(&v) != Some(&f) {
            return;
        }
        let elements: usize = facts.axes(v).iter().map(|&a| facts.size(a)).product();
        for axis in facts.axes(v).into_iter().filter(|a| sides.get(a) == Some(&Side::Across)) {
            let n = adjacent(facts, tensor, at, axis);
            widest = Some(match widest {
                Some((most, least)) if most > elements => (most, least),
                Some((most, least)) if most == elements => (most, least.min(n)),
                _ => (elements, n),
            });
        }
    });
    widest.map_or(1, |w| w.1)
}
