//! What a stream loads for a contraction and for maps besides is two tiles: contractions want it packed or in panels, and the same for the
//! next points of the grid; maps read it where it is.
//!
//! Conditions: floating-point numbers, which maps read where they are; places that no tile tells; in the same body contractions, maps and
//! reductions are all that reads it. The second tile is of the same elements: it is not counted as loaded again.

use super::reuse::map;
use einloom_cascade::DType;
use einloom_tile::{Coord, CoordAtom, Kernel, Op, Program, Scalar, State, TensorId, ValueId};
use std::collections::BTreeSet;

/// Rewrites the kernel; the loads that it added.
pub(super) fn split(program: &Program, kernel: &mut Kernel) -> BTreeSet<ValueId> {
    let (mut ops, mut added) = (std::mem::take(&mut kernel.body), BTreeSet::new());
    body((program, kernel), &mut ops, None, &mut added);
    kernel.body = ops;
    added
}

/// Of a stream that has these states, if of one.
fn body(
    (program, kernel): (&Program, &mut Kernel),
    ops: &mut Vec<Op>,
    states: Option<&[State]>,
    added: &mut BTreeSet<ValueId>,
) {
    let mut at = 0;
    while at < ops.len() {
        if let Op::Stream { body: inner, states, .. } = &mut ops[at] {
            body((program, kernel), inner, Some(states), added);
        }
        if states.is_some_and(|states| is_for_both(program, &ops[at..], states)) {
            let (dst, tensor, coordinates, fill) = match &ops[at] {
                Op::Load { dst, tensor, at, fill } => (*dst, *tensor, at.clone(), *fill),
                _ => unreachable!("a load"),
            };
            let other = ValueId(kernel.values.len() as u32);
            kernel.values.push(kernel.value(dst).clone());
            ops[at + 1..].iter_mut().for_each(|op| read_other(op, dst, other));
            ops.insert(at + 1, Op::Load { dst: other, tensor, at: coordinates, fill });
            added.insert(other);
            at += 1;
        }
        at += 1;
    }
}

/// Whether the first of these operations loads what contractions and others read.
fn is_for_both(program: &Program, ops: &[Op], states: &[State]) -> bool {
    let Some(Op::Load { dst, tensor, at, .. }) = ops.first() else { return false };
    let places = at.iter().flat_map(|c| &c.terms).all(|(_, atom)| matches!(atom, CoordAtom::Axis(_)));
    let own = states.iter().all(|s| s.next != *dst);
    let (mut contractions, mut others, mut only) = (0, 0, own && places && is_read_as_it_lies(program, *tensor));
    for op in &ops[1..] {
        match op {
            Op::Mma { a, b, acc, .. } => {
                contractions += usize::from(a == dst || b == dst);
                only &= *acc != Some(*dst);
            }
            Op::Map { expr, .. } => others += usize::from(mentions(expr, *dst)),
            Op::Reduce { src, acc, .. } => {
                others += usize::from(src == dst);
                only &= *acc != Some(*dst);
            }
            Op::Load { at, .. } => only &= !at.iter().any(|c| leads_by(c, *dst)),
            Op::Store { at, src, .. } => only &= src != dst && !at.iter().any(|c| leads_by(c, *dst)),
            Op::Pick { src, at, .. } => only &= src != dst && !leads_by(at, *dst),
            Op::SkipUnless { any } => only &= any != dst,
            Op::Stream { .. } => only = false,
        }
    }
    only && contractions > 0 && others > 0
}

fn is_read_as_it_lies(program: &Program, tensor: TensorId) -> bool {
    matches!(program.tensor(tensor).dtype, DType::F32 | DType::Bf16 | DType::F16)
}

fn leads_by(coordinate: &Coord, v: ValueId) -> bool {
    coordinate.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Axis(_) => false,
        CoordAtom::Floor(inner, _) => leads_by(inner, v),
        CoordAtom::Tile(of) => *of == v,
    })
}

fn mentions(expr: &Scalar, v: ValueId) -> bool {
    super::reuse::any(expr, &|e| *e == Scalar::Tile(v))
}

fn read_other(op: &mut Op, v: ValueId, other: ValueId) {
    match op {
        Op::Map { expr, .. } => *expr = with_other(expr, v, other),
        Op::Reduce { src, .. } if *src == v => *src = other,
        _ => {}
    }
}

fn with_other(expr: &Scalar, v: ValueId, other: ValueId) -> Scalar {
    if *expr == Scalar::Tile(v) { Scalar::Tile(other) } else { map(expr, &|e| with_other(e, v, other)) }
}
