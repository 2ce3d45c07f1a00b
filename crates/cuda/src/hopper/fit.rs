//! Pass 4: rings in shared memory, and registers: what fits, known before anything is compiled.

use super::bulk::Copied;
use super::overlap::Overlap;
use super::{OpAt, Reason, Registers, Ring};
use crate::schedule::Product;
use crate::schedule::facts::Facts;
use einloom_tile::{Op, ValueId};
use std::collections::BTreeMap;

/// Bytes at the start of shared memory for barriers.
const BARRIER_BYTES: usize = 1024;
/// Bytes of one barrier.
pub(crate) const BARRIER: usize = 8;
/// More stages than this have never paid.
const MOST_STAGES: usize = 8;

/// Groups copied tiles into rings: tiles of one stream that the early products read arrive together, so do those of its
/// deferred products; every other tile has a ring of its own.
pub(super) fn rings(
    facts: &Facts<'_>,
    copied: &BTreeMap<ValueId, Copied>,
    products: &BTreeMap<ValueId, Product>,
    overlaps: &BTreeMap<usize, Overlap>,
    consumers: usize,
) -> Vec<Ring> {
    let mut groups: Vec<((Option<usize>, usize), Ring)> = vec![];
    let mut order: Vec<(&ValueId, &Copied)> = copied.iter().collect();
    order.sort_by_key(|(_, c)| (c.op.stream.unwrap_or(c.op.op), c.op.stream.map_or(0, |_| c.op.op + 1)));
    for (&v, c) in order {
        let class = class(facts, c, v, products, overlaps);
        let key = (c.op.stream, class);
        let k = match groups.iter().position(|g| g.0 == key) {
            Some(k) => k,
            None => {
                let ring = Ring {
                    name: String::new(),
                    tiles: vec![],
                    stages: 1,
                    offset: 0,
                    stage_bytes: 0,
                    readers: consumers,
                    bytes: 0,
                };
                groups.push((key, ring));
                groups.len() - 1
            }
        };
        let ring = &mut groups[k].1;
        let mut tile = c.tile.clone();
        tile.offset = ring.stage_bytes;
        ring.bytes += tile.bytes();
        ring.stage_bytes = (ring.stage_bytes + tile.bytes()).next_multiple_of(1024);
        ring.tiles.push(tile);
    }
    for (_, ring) in &mut groups {
        let names: Vec<String> = ring.tiles.iter().map(|t| facts.name(t.value)).collect();
        ring.name = names.join("_");
    }
    groups.into_iter().map(|g| g.1).collect()
}

/// Tiles of the same class and stream share a ring.
fn class(
    facts: &Facts<'_>,
    c: &Copied,
    v: ValueId,
    products: &BTreeMap<ValueId, Product>,
    overlaps: &BTreeMap<usize, Overlap>,
) -> usize {
    const EARLY: usize = 0;
    const DEFERRED: usize = 1;
    const OWN: usize = 2;
    let Some(Op::Stream { body, .. }) = c.op.stream.and_then(|k| facts.kernel.body.get(k)) else {
        return OWN + c.op.op;
    };
    let Some(overlap) = c.op.stream.and_then(|k| overlaps.get(&k)) else { return OWN + c.op.op };
    let reads = |list: &[OpAt]| {
        list.iter().any(|at| match &body[at.op] {
            Op::Mma { dst, .. } => products.get(dst).is_some_and(|p| p.left == v || p.right == v),
            _ => false,
        })
    };
    if reads(&overlap.early) {
        EARLY
    } else if reads(&overlap.deferred) {
        DEFERRED
    } else {
        OWN + c.op.op
    }
}

/// Gives streams' rings as many stages as `wanted` or else as fit, two at least, and places everything. The bytes of it all.
pub(super) fn place(
    rings: &mut [Ring],
    copied: &BTreeMap<ValueId, Copied>,
    limit: usize,
    kernel: &str,
    wanted: Option<usize>,
) -> Result<usize, Reason> {
    let streamed = |r: &Ring| r.tiles.iter().any(|t| copied.get(&t.value).is_some_and(|c| c.op.stream.is_some()));
    let total = |f: &dyn Fn(&Ring) -> bool| rings.iter().filter(|r| f(r)).map(|r| r.stage_bytes).sum::<usize>();
    let (fixed, each) = (total(&|r| !streamed(r)), total(&streamed));
    let room = limit.saturating_sub(BARRIER_BYTES + fixed);
    let most = wanted.map_or(MOST_STAGES, |n| n.clamp(2, MOST_STAGES));
    let stages = room.checked_div(each).map_or(1, |n| n.min(most));
    if stages < 2 && each > 0 || fixed + BARRIER_BYTES > limit {
        let needed = BARRIER_BYTES + fixed + 2 * each;
        return Err(Reason::new(
            format!("kernel {kernel}"),
            format!("its tiles need {needed} bytes of shared memory with two stages, of {limit}"),
        ));
    }
    let mut end = BARRIER_BYTES;
    for ring in rings.iter_mut() {
        ring.stages = if streamed(ring) { stages } else { 1 };
        ring.offset = end;
        end += ring.stages * ring.stage_bytes;
    }
    let barriers: usize = rings.iter().map(|r| 2 * r.stages * BARRIER).sum();
    if barriers > BARRIER_BYTES {
        return Err(Reason::new(format!("kernel {kernel}"), "more barriers than their part of shared memory holds"));
    }
    Ok(end)
}

/// The split of registers for this many consumers: multiples of 8 that fit the 65,536 of a multiprocessor and what the
/// kernel starts with (the reference figures of FlashAttention-3 and ThunderKittens).
pub(super) fn registers(consumers: usize) -> Registers {
    match consumers {
        1 => Registers { producer: 56, consumer: 240 },
        2 => Registers { producer: 24, consumer: 240 },
        _ => Registers { producer: 32, consumer: 160 },
    }
}

/// Registers of a thread when the kernel starts: every thread has as many, and no instruction may take more, whatever
/// consumers have later.
pub(super) fn at_start(consumers: usize) -> usize {
    (64 << 10) / (128 * (consumers + 1)) / 8 * 8
}

/// Registers that one `wgmma` with this many columns takes of a thread: its sums, and what it is given beside them. ptxas of
/// CUDA 13.0 asks for as many: 154 for 256 columns, 138 for 224, 130 for 208.
pub(super) fn of_instruction(columns: usize) -> usize {
    columns.next_multiple_of(16) / 2 + 26
}
