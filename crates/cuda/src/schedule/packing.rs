//! Pass 9: packing. A tile of 16-bit numbers that a product takes as its left operand from registers is kept as that
//! operand from the start: two neighbours in one register, rounded together by one instruction. A tile of 16-bit numbers
//! that comes from memory in vectors stays as it came.

use super::access::{adjacent, affine};
use super::facts::{Facts, Use, each_op};
use super::frames::Frames;
use super::product::Product;
use super::{Arrangement, Frame, Side};
use einloom_cascade::DType;
use einloom_tile::{Coord, Op, TensorId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The packed tiles.
pub(crate) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    in_place: &BTreeMap<ValueId, ValueId>,
) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    each_op(&facts.kernel.body, &mut |op| {
        let dst = match op {
            Op::Map { dst, .. } => dst,
            Op::Load { dst, tensor, at, fill: None } => {
                if in_vectors(facts, frames, *dst, *tensor, at) && only_elements(facts, frames, *dst) {
                    out.insert(*dst);
                }
                return;
            }
            _ => return,
        };
        let narrow = matches!(facts.dtype(*dst), DType::Bf16 | DType::F16);
        let operand = products.values().any(|p| p.left_in_registers && p.left == *dst);
        let fragment = frames.of.get(dst).is_some_and(|f| Frame::is_fragment(&frames.frames[f.0]));
        if narrow && operand && fragment && !in_place.contains_key(dst) {
            out.insert(*dst);
        }
    });
    out
}

/// Whether a load moves several neighbours of a thread at once: see `Emitter::load_registers`.
pub(super) fn in_vectors(facts: &Facts<'_>, frames: &Frames, v: ValueId, tensor: TensorId, at: &[Coord]) -> bool {
    let narrow = matches!(facts.dtype(v), DType::Bf16 | DType::F16);
    if !narrow || facts.program.tensor(tensor).dtype != facts.dtype(v) || !affine(facts, at, &facts.axes(v)) {
        return false;
    }
    let Some(frame) = frames.of.get(&v).map(|f| &frames.frames[f.0]) else { return false };
    let Arrangement::Blocked { vector, .. } = frame.arrangement else { return false };
    let across = facts.axes(v).into_iter().find(|a| frame.sides.get(a) == Some(&Side::Across));
    vector > 1 && across.is_some_and(|a| adjacent(facts, tensor, at, a).is_multiple_of(vector))
}

/// Whether the tile is read in its own frame only, element by element.
fn only_elements(facts: &Facts<'_>, frames: &Frames, v: ValueId) -> bool {
    let own = frames.of.get(&v);
    facts.uses[v.at()].iter().all(|u| match u {
        Use::Leaf(d) => frames.of.get(d) == own,
        Use::Reduced(_) | Use::Stored(_) => true,
        _ => false,
    })
}
