//! Pass 4: how many warps, and how each frame arranges them.
//!
//! For fragments, warps share the down axis (and the across axis where no row of the tile has to be whole within a warp).
//! Among the splits whose tiles fit in registers, the one that reads the fewest bytes of shared memory per product wins:
//! on these GPUs `mma.sync` is fed from shared memory at 128 bytes per cycle, and a warp that owns `16·a` rows and
//! `8·b` columns reads `512·a + 256·b` bytes for `a·b` instructions.

use super::access::vector;
use super::facts::{Facts, Use, each_op};
use super::frame::{Arrangement, Frame, FrameId, Side};
use super::frames::Frames;
use super::product::{Instruction, Product};
use super::registers::pressure;
use einloom_tile::{Op, ValueId};
use std::collections::BTreeMap;

/// Registers that addresses, operands in flight and loop counters take beside the tiles.
pub(super) const OVERHEAD: usize = 48;

/// Arranges the threads of every frame; the number of warps.
pub(super) fn arrange(
    facts: &Facts<'_>,
    frames: &mut Frames,
    products: &BTreeMap<ValueId, Product>,
    limit: usize,
) -> usize {
    let fragments: Vec<FrameId> = (0..frames.frames.len()).map(FrameId).filter(|&f| multiplies(products, f)).collect();
    let mut warps = 0;
    for &f in &fragments {
        let split = fragment(facts, frames, products, f, limit, (warps > 0).then_some(warps));
        warps = split[0] * split[1];
        frames.frames[f.0].arrangement = Arrangement::Fragment { warps: split };
    }
    if warps == 0 {
        warps = blocked_warps(facts, frames);
    }
    for f in (0..frames.frames.len()).map(FrameId).filter(|f| !fragments.contains(f)) {
        frames.frames[f.0].arrangement = blocked(facts, frames, f, 32 * warps);
    }
    warps
}

fn multiplies(products: &BTreeMap<ValueId, Product>, f: FrameId) -> bool {
    products.values().any(|p| p.frame == f && matches!(p.instruction, Instruction::TensorCore(_)))
}

/// The largest extents of the frame's tiles down and across.
fn extents(facts: &Facts<'_>, frame: &Frame) -> [usize; 2] {
    let most = |side| frame.sides.iter().filter(|s| *s.1 == side).map(|s| facts.size(*s.0)).max().unwrap_or(1);
    [most(Side::Down), most(Side::Across)]
}

/// Warps down and across of a frame of fragments.
fn fragment(
    facts: &Facts<'_>,
    frames: &mut Frames,
    products: &BTreeMap<ValueId, Product>,
    f: FrameId,
    limit: usize,
    given: Option<usize>,
) -> [usize; 2] {
    let [down, across] = extents(facts, &frames.frames[f.0]);
    let whole_rows = products.values().any(|p| p.frame == f && p.left_in_registers) || reduces_across(facts, frames, f);
    let mut best: Option<((bool, usize, usize), [usize; 2])> = None;
    for total in [4usize, 8, 2, 1, 16] {
        if given.is_some_and(|g| g != total) {
            continue;
        }
        for rows in (0..5).map(|e| 1 << e).filter(|r| total % r == 0) {
            let split = [rows, total / rows];
            let fits = 16 * (split[0] - 1) < down && 16 * (split[1] - 1) < across;
            if whole_rows && split[1] > 1 || !fits && given.is_none() {
                continue;
            }
            frames.frames[f.0].arrangement = Arrangement::Fragment { warps: split };
            let registers = pressure(facts, frames, &Default::default()) + OVERHEAD;
            let (a, b) = (down.div_ceil(16 * split[0]), across.div_ceil(8 * split[1]).max(2));
            // Bytes per instruction, in 1/64; four warps feed a multiprocessor's four schedulers.
            let bytes = (512 * a + 256 * b) * 64 / (a * b);
            let few = if total < 4 { 4 / total } else { 1 };
            let spills = registers > limit;
            let key = (spills, if spills { registers } else { few }, bytes * (total.max(4)) / 4);
            if best.as_ref().is_none_or(|b| key < b.0) {
                best = Some((key, split));
            }
        }
    }
    best.map_or([given.unwrap_or(4), 1], |b| b.1)
}

fn reduces_across(facts: &Facts<'_>, frames: &Frames, f: FrameId) -> bool {
    let mut found = false;
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Reduce { src, axis, .. } = op {
            let here = frames.of.get(src) == Some(&f);
            found |= here && frames.frames[f.0].sides.get(axis) == Some(&Side::Across);
        }
    });
    found
}

/// Warps of a kernel without fragments: enough that a thread holds about 16 elements of the largest tile.
fn blocked_warps(facts: &Facts<'_>, frames: &Frames) -> usize {
    let elements = |v: &ValueId| facts.axes(*v).iter().map(|&a| facts.size(a)).product::<usize>();
    let largest = frames.of.keys().map(elements).max().unwrap_or(1);
    let summed = (0..facts.kernel.values.len() as u32)
        .map(ValueId)
        .filter(|v| facts.uses[v.at()].iter().any(|u| matches!(u, Use::Factor(_))));
    let largest = largest.max(summed.map(|v| elements(&v)).max().unwrap_or(1) / 4);
    (largest.div_ceil(16 * 32)).next_power_of_two().clamp(1, 16)
}

fn blocked(facts: &Facts<'_>, frames: &Frames, f: FrameId, threads: usize) -> Arrangement {
    let frame = &frames.frames[f.0];
    let [down, across] = extents(facts, frame);
    let vector = vector(facts, frames, f).min(across.next_power_of_two());
    let wanted = across.div_ceil(vector).next_power_of_two().min(threads);
    // Rows within a warp reduce by shuffles alone, if there are rows enough for all warps.
    let wanted = if down >= threads / 32 { wanted.min(32) } else { wanted };
    let rows = (threads / wanted).min(down.next_power_of_two());
    Arrangement::Blocked { threads: [rows, threads / rows], vector }
}
