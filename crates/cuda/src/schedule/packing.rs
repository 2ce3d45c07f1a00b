//! Pass 9: packing. A tile of 16-bit numbers that a product takes as its left operand from registers is kept as that
//! operand from the start: two neighbours in one register, rounded together by one instruction.

use super::Frame;
use super::facts::{Facts, each_op};
use super::frames::Frames;
use super::product::Product;
use einloom_cascade::DType;
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The packed tiles.
pub(super) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    in_place: &BTreeMap<ValueId, ValueId>,
) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    each_op(&facts.kernel.body, &mut |op| {
        let Op::Map { dst, .. } = op else { return };
        let narrow = matches!(facts.dtype(*dst), DType::Bf16 | DType::F16);
        let operand = products.values().any(|p| p.left_in_registers && p.left == *dst);
        let fragment = frames.of.get(dst).is_some_and(|f| Frame::is_fragment(&frames.frames[f.0]));
        if narrow && operand && fragment && !in_place.contains_key(dst) {
            out.insert(*dst);
        }
    });
    out
}
