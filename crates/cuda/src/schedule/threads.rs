//! Pass 4: how many warps, and how each frame arranges them.
//!
//! For fragments, warps share the down axis (and the across axis where no row of the tile has to be whole within a warp).
//! Among the splits whose tiles fit in registers, the one that reads the fewest bytes of shared memory per product wins:
//! on these GPUs `mma.sync` is fed from shared memory at 128 bytes per cycle, and a warp that owns `16·a` rows and
//! `8·b` columns reads `512·a + 256·b` bytes for `a·b` instructions.

use super::facts::{Facts, Use, each_op};
use super::frame::{Arrangement, Frame, FrameId, Side};
use super::frames::Frames;
use super::product::{Instruction, Product};
use super::registers::pressure_without;
use super::{Made, Schedule, access, ahead, packing};
use einloom_cascade::DType;
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Registers that addresses, operands in flight and loop counters take beside the tiles.
pub(super) const OVERHEAD: usize = 40;

/// What earlier passes decided about tiles.
pub(super) struct Tiles<'a> {
    pub in_place: &'a BTreeMap<ValueId, ValueId>,
    pub inlined: &'a BTreeSet<ValueId>,
}

/// Arranges the threads of every frame; the number of warps.
pub(super) fn arrange(
    facts: &Facts<'_>,
    frames: &mut Frames,
    products: &BTreeMap<ValueId, Product>,
    tiles: &Tiles<'_>,
    limit: usize,
) -> usize {
    let fragments: Vec<FrameId> = (0..frames.frames.len()).map(FrameId).filter(|&f| multiplies(products, f)).collect();
    let mut warps = 0;
    for &f in &fragments {
        let given = (warps > 0).then_some(warps);
        let split = fragment(facts, frames, products, tiles, (f, &fragments), limit, given);
        warps = split[0] * split[1];
        frames.frames[f.0].arrangement = Arrangement::Fragment { warps: split };
    }
    let others: Vec<FrameId> = (0..frames.frames.len()).map(FrameId).filter(|f| !fragments.contains(f)).collect();
    let arrange = |frames: &mut Frames, warps: usize| {
        for &f in &others {
            frames.frames[f.0].arrangement = blocked(facts, frames, products, f, 32 * warps);
        }
    };
    if warps == 0 {
        warps = blocked_warps(facts, frames, tiles.inlined);
        let area = products.keys().filter(|v| facts.axes(**v).len() == 2).map(|v| area(facts, *v)).max();
        // The larger a thread's block of a product, the fewer factors it reads for each multiplication.
        for (block, least) in BLOCKS {
            let fewer = (area.unwrap_or(0) / block / 32).next_power_of_two().max(1);
            if area.is_none() || fewer >= warps || fewer < least {
                continue;
            }
            arrange(frames, fewer);
            let packed = packing::choose(facts, frames, products, tiles.in_place);
            let pressure = pressure_without(facts, frames, &packed, tiles.inlined);
            let beside = if pressure <= block { 0 } else { BESIDE };
            if pressure + OVERHEAD + FACTORS + beside <= limit {
                warps = fewer;
                break;
            }
        }
    }
    arrange(frames, warps);
    warps
}

/// Elements of a product that a thread may have, the most first, and the warps that a block has at least then. With as many
/// registers as 128 take, two warps of each of the four schedulers run together: smaller blocks leave some with one or none.
const BLOCKS: [(usize, usize); 3] = [(128, 4), (64, 1), (32, 1)];

/// Registers for four terms of the factors of a block of eight by eight, or of eight by sixteen with those of one term across.
const FACTORS: usize = 64;

fn area(facts: &Facts<'_>, v: ValueId) -> usize {
    facts.axes(v).iter().map(|&a| facts.size(a)).product()
}

fn multiplies(products: &BTreeMap<ValueId, Product>, f: FrameId) -> bool {
    products.values().any(|p| p.frame == f && matches!(p.instruction, Instruction::TensorCore(_)))
}

/// The largest extents of the frame's tiles down and across.
fn extents(facts: &Facts<'_>, frame: &Frame) -> [usize; 2] {
    let most = |side| frame.sides.iter().filter(|s| *s.1 == side).map(|s| facts.size(*s.0)).max().unwrap_or(1);
    [most(Side::Down), most(Side::Across)]
}

/// How bad a split is: tiles in memory; warps without rows; registers, or warps that are missing; bytes read.
type Key = (bool, bool, usize, usize);

/// Warps down and across of a frame of fragments, one of several.
fn fragment(
    facts: &Facts<'_>,
    frames: &mut Frames,
    products: &BTreeMap<ValueId, Product>,
    tiles: &Tiles<'_>,
    (f, fragments): (FrameId, &[FrameId]),
    limit: usize,
    given: Option<usize>,
) -> [usize; 2] {
    let [down, across] = extents(facts, &frames.frames[f.0]);
    let whole_rows = products.values().any(|p| p.frame == f && p.left_in_registers) || reduces_across(facts, frames, f);
    let mut best: Option<(Key, [usize; 2])> = None;
    let others: Vec<FrameId> = (0..frames.frames.len()).map(FrameId).filter(|o| !fragments.contains(o)).collect();
    for total in [4usize, 8, 2, 1, 16] {
        if given.is_some_and(|g| g != total) {
            continue;
        }
        for &o in &others {
            frames.frames[o.0].arrangement = blocked(facts, frames, products, o, 32 * total);
        }
        for rows in (0..5).map(|e| 1 << e).filter(|r| total % r == 0) {
            let split = [rows, total / rows];
            let fits = 16 * (split[0] - 1) < down && 16 * (split[1] - 1) < across;
            // Warps without rows of products hold their part of the other frames' tiles: better than to keep those in
            // memory, if a thread then still has all the registers that it can have.
            let idle = !fits && given.is_none();
            if whole_rows && split[1] > 1 || idle && (others.is_empty() || total > 8) {
                continue;
            }
            frames.frames[f.0].arrangement = Arrangement::Fragment { warps: split };
            let packed = packing::choose(facts, frames, products, tiles.in_place);
            let registers = pressure_without(facts, frames, &packed, tiles.inlined) + OVERHEAD;
            let (a, b) = (down.div_ceil(16 * split[0]), across.div_ceil(8 * split[1]).max(2));
            // Bytes per instruction, in 1/64; four warps feed a multiprocessor's four schedulers.
            let bytes = (512 * a + 256 * b) * 64 / (a * b);
            let few = if total < 4 { 4 / total } else { 1 };
            let spills = registers > limit;
            let key = (spills, idle && !spills, if spills { registers } else { few }, bytes * (total.max(4)) / 4);
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

/// Registers of a thread that one row's elements may take, in a kernel that keeps whole rows.
const ROW: usize = 32;

/// Warps of a kernel without fragments: as many as leave a thread few elements of the largest tile. Where rows have to
/// be whole until they are reduced, that is as many as it takes to keep a row in registers; elsewhere about 16, so that
/// there are many threads to wait for memory.
fn blocked_warps(facts: &Facts<'_>, frames: &Frames, inlined: &BTreeSet<ValueId>) -> usize {
    let elements = |v: &ValueId| area(facts, *v);
    let rows = (0..frames.frames.len()).any(|f| reduces_across(facts, frames, FrameId(f)));
    let words = |v: &ValueId| if rows { words(facts, frames, *v) } else { elements(v) };
    let per = if rows { ROW } else { 16 };
    // A tile that is reduced as it is made takes no registers, but its loops are unrolled: where it is made of positions
    // or of vectors, no tile that is held has its axes.
    let held = || frames.of.keys().filter(|v| !inlined.contains(v));
    let unrolled = frames.of.keys().filter(|v| {
        let covers = |h: &ValueId| facts.axes(**v).iter().all(|a| facts.axes(*h).contains(a));
        facts.uses[v.at()].iter().any(|u| matches!(u, Use::Reduced(..))) && !held().any(covers)
    });
    let largest = held().chain(unrolled).map(words).max().unwrap_or(1);
    let summed = (0..facts.kernel.values.len() as u32)
        .map(ValueId)
        .filter(|v| facts.uses[v.at()].iter().any(|u| matches!(u, Use::Factor(_))));
    let largest = largest.max(summed.map(|v| elements(&v)).max().unwrap_or(1) / 4);
    // A warp for every row, unless rows are few vectors long.
    let most = if rows { 32 } else { 16 };
    let wide = (0..frames.frames.len()).map(|f| row(facts, frames, FrameId(f))).max().unwrap_or(1);
    largest.div_ceil(per * 32).next_power_of_two().max(wide.min(16)).clamp(1, most)
}

/// Blocks of a kernel without fragments that a multiprocessor should hold: the compiler is told to keep to the registers
/// that this leaves beside the largest tile's. Memory is kept busy by some blocks while others wait for each other.
pub(crate) fn resident(facts: &Facts<'_>, schedule: &Schedule) -> Option<usize> {
    let needs = schedule.frames.iter().enumerate().map(|(k, frame)| {
        let Arrangement::Blocked { warps, lanes, .. } = frame.arrangement else { return None };
        let wide = warps[1] * lanes[1];
        let held = (0..facts.kernel.values.len() as u32)
            .map(ValueId)
            .filter(|v| !schedule.inlined.contains(v) && schedule.home(*v).made == Made::Registers(FrameId(k)));
        let registers = held.map(|v| {
            let along = |side| facts.axes(v).into_iter().find(|a| frame.sides.get(a) == Some(&side));
            let size = |side| along(side).map(|a| facts.size(a));
            let all = frame.registers(size(Side::Down), size(Side::Across), facts.carrier(v));
            match schedule.packed.contains(&v) {
                // With no barrier between its uses the compiler unpacks the whole row at once.
                true if wide <= 32 => all.div_ceil(2) + all.max(BESIDE),
                true => all.div_ceil(2) + BESIDE,
                false => all + BESIDE,
            }
        });
        Some(registers.max().unwrap_or(BESIDE))
    });
    let needed = needs.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    let multiplies = schedule.products.keys().any(|v| facts.axes(*v).len() == 2);
    let needed = if multiplies { needed.max(schedule.registers + FACTORS) } else { needed };
    let ahead = ahead::registers(facts, schedule);
    let most = |needed: usize| {
        let enough = |blocks: &usize| {
            let warps = (schedule.warps * blocks).div_ceil(4);
            PARTITION / (32 * warps) / 8 * 8 >= needed + ahead
        };
        (1..=32).take_while(enough).last()
    };
    let largest = most(needed)?;
    // Several tiles may be held at once. One block alone would wait for itself at every barrier.
    let all = most(needed.max((SPARED * schedule.registers as f64) as usize)).unwrap_or(1);
    Some(all.max(largest.min(2)))
}

/// The part of the registers that are counted which the compiler needs at least to keep all of them: it computes some values again. Of 20 row kernels that
/// were timed with 2 to 16 blocks (H200, f32; docs/gpu-log.md, "Row kernels of several tiles") the number that this leaves room for was within 6 % of the
/// best for 17 and within 13 % for the others. With as many blocks as the largest tile alone leaves room for, kernels spilled and took up to 6.9 times as long.
const SPARED: f64 = 0.85;

/// Registers beside the largest tile's: addresses, reductions, elements on their way.
const BESIDE: usize = 32;

/// Registers of a quarter of a multiprocessor, shared by the warps of one scheduler. CUDA C++ Programming Guide, "Compute
/// Capabilities".
const PARTITION: usize = 16 * 1024;

/// Warps that the rows of the frame's largest tile occupy if each row has a warp of its own; 1 if rows are too short.
fn row(facts: &Facts<'_>, frames: &Frames, f: FrameId) -> usize {
    let [down, across] = extents(facts, &frames.frames[f.0]);
    let long = across >= 32 * access::vector(facts, frames, f);
    if long && reduces_across(facts, frames, f) { down.next_power_of_two() } else { 1 }
}

/// Registers of the tile's elements, all threads together: half as many where pairs stay as they come from memory.
fn words(facts: &Facts<'_>, frames: &Frames, v: ValueId) -> usize {
    let elements = area(facts, v);
    let vectors = frames.of.get(&v).is_some_and(|&f| access::vector(facts, frames, f) > 1);
    let mut pairs = false;
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Load { dst, tensor, .. } = op {
            let memory = facts.program.tensor(*tensor).dtype;
            pairs |= *dst == v && vectors && memory == facts.dtype(v) && matches!(memory, DType::Bf16 | DType::F16);
        }
    });
    if pairs { elements.div_ceil(2) } else { elements * facts.carrier(v).words() }
}

fn blocked(
    facts: &Facts<'_>,
    frames: &Frames,
    products: &BTreeMap<ValueId, Product>,
    f: FrameId,
    threads: usize,
) -> Arrangement {
    let frame = &frames.frames[f.0];
    let [down, across] = extents(facts, frame);
    let vector = access::vector(facts, frames, f).min(across.next_power_of_two());
    let wanted = across.div_ceil(vector).next_power_of_two().min(threads);
    let product = products.iter().any(|(v, p)| p.frame == f && facts.axes(*v).len() == 2);
    let each = down * across / threads;
    let wanted = if product && each >= 16 {
        // Blocks about as wide as they are high have the least factors; at least four wide, as they are read.
        let wide = (1usize << (each.ilog2().div_ceil(2))).max(4);
        (across / wide).next_power_of_two().clamp(1, wanted.min(32))
    } else if reduces_across(facts, frames, f) {
        // The fewer threads share a row, the less they exchange: lanes of a warp by shuffles, warps by shared memory.
        wanted.min((threads / down.next_power_of_two()).max(32))
    } else if down >= threads / 32 {
        wanted.min(32)
    } else {
        wanted
    };
    let rows = (threads / wanted).min(down.next_power_of_two());
    let apart = [rows, threads / rows];
    match product && each >= 16 {
        true => in_squares(apart, [down, across], vector),
        false => Arrangement::blocked(apart, vector),
    }
}

/// Threads of a product's result of `size` elements. What a warp reads of both factors for a term is as little as can be:
/// its lanes' elements lie in a square, or nearly. Of lanes 4 n to 4 n + 3 each pair reads the same of either factor, which
/// takes half as many wavefronts of 16-byte reads as otherwise (`docs/gpu-log.md`).
fn in_squares(threads: [usize; 2], size: [usize; 2], vector: usize) -> Arrangement {
    let each = [0, 1].map(|s| size[s].div_ceil(threads[s]));
    let splits =
        (0..=5).rev().map(|e| [32 >> e, 1 << e]).filter(|l: &[usize; 2]| l[0] <= threads[0] && l[1] <= threads[1]);
    let read = |lanes: &[usize; 2]| lanes[0] * each[0] + lanes[1] * each[1];
    match splits.min_by_key(read) {
        Some(lanes) => {
            let below = if lanes.contains(&1) { 1 } else { 2 };
            Arrangement::Blocked { warps: [threads[0] / lanes[0], threads[1] / lanes[1]], lanes, below, vector }
        }
        None => Arrangement::blocked(threads, vector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements of both factors that a warp reads for a term, each counted once.
    fn read(arrangement: Arrangement, size: [usize; 2]) -> usize {
        let frame = Frame { arrangement, sides: BTreeMap::new() };
        let along = |side, size| {
            let span = frame.span(side, size);
            let positions = (0..32).flat_map(|t| (0..span.count).map(move |k| (t, k)));
            positions.map(|(t, k)| span.position(t, k)).collect::<BTreeSet<_>>().len()
        };
        along(Side::Down, size[0]) + along(Side::Across, size[1])
    }

    #[test]
    fn a_warp_reads_as_little_as_a_square_of_its_elements_needs() {
        // 2048 elements of a warp: 32 by 64. In rows of the tile it would read 8 + 256.
        assert_eq!(read(in_squares([16, 32], [128, 256], 4), [128, 256]), 96);
        assert_eq!(read(Arrangement::blocked([16, 32], 4), [128, 256]), 264);
        assert_eq!(read(in_squares([16, 16], [128, 128], 4), [128, 128]), 96);
        let shared = |side: Side, by: usize| {
            let frame = Frame { arrangement: in_squares([16, 16], [128, 256], 4), sides: BTreeMap::new() };
            let span = frame.span(side, 128);
            (0..32).all(|t| span.start_of(t) == span.start_of(t ^ by))
        };
        assert!(shared(Side::Across, 1) && shared(Side::Down, 2));
        // Where threads down or across are few, as square as they allow.
        assert_eq!(read(in_squares([64, 1], [64, 16], 4), [64, 16]), 48);
        assert_eq!(read(in_squares([2, 64], [16, 512], 4), [16, 512]), 16 + 128);
    }
}
