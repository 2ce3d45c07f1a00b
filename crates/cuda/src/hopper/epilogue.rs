//! The way out: how a tile in accumulator fragments gets to memory.

use crate::schedule::facts::Facts;
use crate::schedule::{Made, Schedule, Side, adjacent, affine};
use einloom_cascade::DType;
use einloom_tile::{Coord, TensorId, ValueId};

/// Elements of 16 bits in 16 bytes.
pub(crate) const WIDE: usize = 8;

/// How the elements of a tile are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// 16 bytes per lane: the four lanes of a quad exchange their columns first. For 16-bit elements in fragments of
    /// whole groups of 32 columns, adjacent in memory across and aligned to 16 bytes.
    Quads,
    /// As the lanes hold them: pairs where two are adjacent, else single elements.
    Lanes,
}

/// The widest way whose conditions the store meets.
pub(crate) fn choose(facts: &Facts<'_>, layout: &Schedule, tensor: TensorId, at: &[Coord], src: ValueId) -> Epilogue {
    let dtype = facts.program.tensor(tensor).dtype;
    let Made::Registers(f) = layout.home(src).made else { return Epilogue::Lanes };
    let frame = layout.frame(f);
    let along = |side: Side| facts.axes(src).into_iter().find(|a| frame.sides.get(a) == Some(&side));
    let (Some(_), Some(across)) = (along(Side::Down), along(Side::Across)) else { return Epilogue::Lanes };
    let whole = frame.is_fragment() && frame.span(Side::Across, facts.size(across)).count.is_multiple_of(WIDE);
    let wide = affine(facts, at, &facts.axes(src)) && adjacent(facts, tensor, at, across).is_multiple_of(WIDE);
    let plain = matches!(dtype, DType::Bf16 | DType::F16) && !layout.packed.contains(&src);
    if whole && wide && plain { Epilogue::Quads } else { Epilogue::Lanes }
}
