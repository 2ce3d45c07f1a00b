//! How factors in f32 that lanes multiply lie in shared memory, as they do in memory, and what that asks of reads and copies.
//!
//! A thread has rows of the result by themselves, and columns in groups of as many neighbours as can be stored at once. Of a
//! factor that lies along the sum it reads four terms at once; of a right factor that lies along the columns, four columns, where it
//! has four next to each other; of all others one element. Copies are of as many bytes as addresses are multiples of, up to 16.

use crate::nest::sides;
use einloom_tile::{AxisId, Coord, CoordAtom, Kernel, Op, Program, TensorId, ValueId};

/// Reads of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Four elements at a constant distance from those before.
    Wide,
    /// Four terms, of rows that the lanes have in groups: each read has an address of its own.
    Along,
    /// One element at a constant distance from the one before.
    Single,
    /// One element, across the rows of the copy.
    Across,
    /// One element of another type.
    Converted,
}

/// How a factor lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lying {
    pub read: Read,
    /// Bytes of one copy.
    pub copied: f64,
    /// Copies are at constant distances, and none is tested.
    pub constant: bool,
}

impl Lying {
    /// What is known of a factor that is converted.
    pub fn singly() -> Self {
        Self { read: Read::Converted, copied: 16.0, constant: true }
    }
}

/// Elements of 16 bytes.
const WIDE: usize = 4;

/// A factor of the product `dst`, both factors being f32.
pub(super) fn lying(program: &Program, kernel: &Kernel, dst: ValueId, factor: ValueId) -> Lying {
    let unknown = Lying { read: Read::Wide, copied: 16.0, constant: true };
    let Some((tensor, at)) = access(&kernel.body, &|op| match op {
        Op::Load { dst, tensor, at, .. } if *dst == factor => Some((*tensor, at)),
        _ => None,
    }) else {
        return unknown;
    };
    let Some(inner) = innermost(at) else { return unknown };
    let own = sides(kernel, dst);
    let across = kernel.value(dst).cols;
    let right = across.is_some_and(|c| sides(kernel, factor).contains(&c));
    // Neighbouring columns of a thread: those that its stores can take at once.
    let stored = access(&kernel.body, &|op| match op {
        Op::Store { tensor, at, src } if sides(kernel, *src) == own => Some((*tensor, at)),
        _ => None,
    });
    let fours = stored.is_some_and(|(t, at)| innermost(at) == across && adjacent(program, kernel, t, at) == WIDE);
    let read = match (own.contains(&inner), right) {
        (false, true) if fours => Read::Along,
        (false, _) => Read::Wide,
        (true, true) if fours => Read::Wide,
        (true, true) => Read::Single,
        (true, false) => Read::Across,
    };
    let whole = |axis: &AxisId| kernel.axis(*axis).extent.is_multiple_of(kernel.axis(*axis).tile.max(1));
    Lying {
        read,
        copied: 4.0 * adjacent(program, kernel, tensor, at) as f64,
        constant: read != Read::Along && sides(kernel, factor).iter().all(whole),
    }
}

/// The first access of this kind.
fn access<'k>(
    ops: &'k [Op],
    of: &dyn Fn(&'k Op) -> Option<(TensorId, &'k Vec<Coord>)>,
) -> Option<(TensorId, &'k Vec<Coord>)> {
    ops.iter().find_map(|op| match op {
        Op::Stream { body, .. } => access(body, of),
        op => of(op),
    })
}

/// The axis along which neighbours are neighbours in memory, if it is one.
fn innermost(at: &[Coord]) -> Option<AxisId> {
    match at.last()?.terms.as_slice() {
        [(1, CoordAtom::Axis(axis))] => Some(*axis),
        _ => None,
    }
}

/// Elements along the innermost axis that can be moved at once: 4, 2 or 1, of which every row, every tile and the first begin at a
/// multiple.
fn adjacent(program: &Program, kernel: &Kernel, tensor: TensorId, at: &[Coord]) -> usize {
    let (dims, Some(axis), Some(last)) = (&program.tensor(tensor).dims, innermost(at), at.last()) else { return 1 };
    let row = dims.last().copied().unwrap_or(1);
    let tile = kernel.axis(axis).tile.min(kernel.axis(axis).extent);
    let first = last.offset.unsigned_abs() as usize;
    [WIDE, WIDE / 2].into_iter().find(|n| [row, tile, first].iter().all(|x| x.is_multiple_of(*n))).unwrap_or(1)
}
