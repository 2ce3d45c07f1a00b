//! Tiles that points have in common. Points that differ along the last axis of the grid only follow each other (in which order it
//! has its axes is the planner's choice), so that tiles which do not depend on it are the same at all of them, and are copied,
//! converted and rearranged once.

use super::{Access, Carrier, Contract, Keep, Product, Step, Tile, Viewable, each_step, reads};
use einloom_tile::{AxisId, CoordAtom, Kernel, Program, TensorId, ValueId, grid_steps};

/// Marks the loads whose tiles are worth keeping along the axis of the grid along which one point follows the other: the last one
/// that has several windows.
pub(super) fn keep(program: &Program, kernel: &Kernel, tiles: &[Tile], steps: &mut [Step]) {
    let several = |a: &&AxisId| grid_steps(kernel.axis(**a)) > 1;
    let Some(&fastest) = kernel.grid.iter().rev().find(several) else { return };
    if moves(program, steps, fastest) {
        let right = only_right(tiles, steps);
        mark(program, &right, steps, fastest);
    }
}

/// Whether tiles that do not depend on `axis` are moved at all.
fn moves(program: &Program, steps: &[Step], axis: AxisId) -> bool {
    steps.iter().any(|step| match step {
        Step::Load { tensor, access, view, .. } => is_kept(program, access, axis, *tensor, *view),
        Step::Stream { body, .. } => moves(program, body, axis),
        _ => false,
    })
}

fn mark(program: &Program, right: &[bool], steps: &mut [Step], axis: AxisId) {
    for step in steps {
        match step {
            Step::Load { dst, tensor, access, view, kept, .. } if is_same(access, axis) => {
                *kept = match (stays(program, access, *tensor, *view), right[dst.at()]) {
                    (true, true) => Keep::Unpacked,
                    (true, false) => Keep::No,
                    (false, true) => Keep::Panels,
                    (false, false) => Keep::Rows,
                };
            }
            Step::Stream { body, .. } => mark(program, right, body, axis),
            _ => {}
        }
    }
}

/// Lets tiles stay where they are whose rows contractions broadcast element after element, and that nothing else reads.
pub(super) fn leave_terms(tiles: &[Tile], steps: &mut [Step]) {
    let terms = only_terms(tiles, steps);
    fn allow(terms: &[bool], steps: &mut [Step]) {
        for step in steps {
            match step {
                Step::Load { dst, view: view @ Viewable::Near, .. } if terms[dst.at()] => *view = Viewable::Terms,
                Step::Stream { body, .. } => allow(terms, body),
                _ => {}
            }
        }
    }
    allow(&terms, steps);
}

/// Which tiles of f32 are read by nothing but contractions, each as rows of terms of its left factor.
pub(super) fn only_terms(tiles: &[Tile], steps: &[Step]) -> Vec<bool> {
    only(tiles, steps, |c| Some(c.left).filter(|v| tiles[v.at()].inner == Some(c.sum)))
}

/// Which tiles of f32 are read by nothing but contractions as their right factor.
fn only_right(tiles: &[Tile], steps: &[Step]) -> Vec<bool> {
    only(tiles, steps, |c| Some(c.right))
}

/// Which tiles of f32 with two sides are read by nothing but contractions of broadcast elements, as the operand that
/// `which` gives.
fn only(tiles: &[Tile], steps: &[Step], which: impl Fn(&Contract) -> Option<ValueId>) -> Vec<bool> {
    let mut out: Vec<bool> = tiles.iter().map(|t| t.carrier == Carrier::F32 && t.outer.is_some()).collect();
    each_step(steps, &mut |step| {
        let operand = match step {
            Step::Contract(c) if c.product == Product::Broadcast => {
                let first = [Some(c.left), Some(c.right), c.start, c.scale.map(|(v, _)| v)].into_iter().flatten();
                let all: Vec<ValueId> = first.chain(c.sides().map(|s| s.of)).collect();
                which(c).filter(|v| all.iter().filter(|x| *x == v).count() == 1)
            }
            _ => None,
        };
        reads(step).iter().filter(|v| Some(**v) != operand).for_each(|v| out[v.at()] = false);
        if let Step::Stream { states, .. } = step {
            states.iter().for_each(|s| [s.value, s.next].iter().for_each(|v| out[v.at()] = false));
        }
    });
    out
}

/// Leaves tiles where they are that would only have been kept for the processor's matrix unit.
pub(super) fn leave_unpacked(steps: &mut [Step]) {
    for step in steps {
        match step {
            Step::Load { kept: kept @ Keep::Unpacked, .. } => *kept = Keep::No,
            Step::Stream { body, .. } => leave_unpacked(body),
            _ => {}
        }
    }
}

/// Whether the tile does not depend on `axis`, and has to be moved wherever it is loaded.
fn is_kept(program: &Program, access: &Access, axis: AxisId, tensor: TensorId, view: Viewable) -> bool {
    is_same(access, axis) && !stays(program, access, tensor, view)
}

/// Whether the tile does not depend on `axis`.
fn is_same(access: &Access, axis: AxisId) -> bool {
    access.tiles.is_empty()
        && access
            .dimensions
            .iter()
            .all(|d| d.axes.iter().all(|(_, a)| *a != axis) && d.irregular.iter().all(|(_, atom)| !depends(atom, axis)))
}

/// Whether the tile may be read where it is.
fn stays(program: &Program, access: &Access, tensor: TensorId, view: Viewable) -> bool {
    let bytes = program.tensor(tensor).dtype.bytes() as i64;
    match view {
        Viewable::No | Viewable::Left(_) => false,
        Viewable::Near => access.is_adjacent() && !access.competes(bytes),
        Viewable::Rows | Viewable::Terms | Viewable::Encoded | Viewable::Once | Viewable::Added | Viewable::Bits => {
            access.is_adjacent()
        }
    }
}

fn depends(atom: &CoordAtom, axis: AxisId) -> bool {
    match atom {
        CoordAtom::Axis(a) => *a == axis,
        CoordAtom::Floor(inner, _) => inner.terms.iter().any(|(_, atom)| depends(atom, axis)),
        CoordAtom::Tile(_) => true,
    }
}
