//! Pass 5: what neighbouring blocks share.
//!
//! Points of the grid that differ in one axis read the same tile of a tensor if its place does not depend on that axis.
//! The blocks of a cluster take such neighbours at the same time: each copies a part of the tile and the copy engine
//! brings it to all of them (multicast), so that every byte leaves the second-level cache once per cluster.
//!
//! Conditions, for an axis and a number of blocks:
//!
//! 1. The axis's windows fill whole clusters.
//! 2. The tile's place is the same for all windows of a cluster.
//! 3. All blocks fill its ring equally often: the bounds of its stream do not depend on the axis.
//! 4. The tile can be cut into equal parts that keep the swizzle's pattern: between panels, or between 8 rows.
//!
//! A cluster has its price: a stage is free only when the slowest consumer of all blocks has released it, so blocks
//! run in lockstep. [`pays`] weighs it.

use super::bulk::Copied;
use super::overlap::Known;
use super::{Cluster, Cut, Reason, Ring, RingTile, Share};
use crate::schedule::frames::Frames;
use crate::schedule::{Clusters, Order, Product, Side, Target};
use einloom_tile::{AxisId, Coord, CoordAtom, Op, TensorId, ValueId, grid_steps};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of a cluster. Every GPU with clusters can place 8, but each more has to wait for the slowest of all.
const SIZES: [usize; 2] = [2, 4];
/// Rows after which a panel's swizzle pattern begins again.
const PATTERN_ROWS: usize = 8;
/// The second-level cache's bytes per cycle and multiprocessor: 8e6 / 1.3e3 over 132, as DeepGEMM's heuristics have it
/// (`csrc/jit_kernels/heuristics/sm90.hpp`).
const CACHE_RATE: f64 = 8e6 / 1.3e3 / 132.0;
/// The memory's bytes per cycle and multiprocessor: what a copy moves on an H200 (4.27e12 a second) at 1.83e9 cycles.
const MEMORY_RATE: f64 = 4.27e12 / 1.83e9 / 132.0;
/// Terms that a multiprocessor's tensor cores multiply and add per cycle in bf16 and f16: `wgmma` m64n256k16 in 128 cycles.
const PRODUCT_RATE: f64 = 2048.0;
/// What lockstep costs: a hand-written matmul in pairs that could gain nothing by them ran at 0.66 to 0.79 of its speed
/// (`docs/gpu-log.md`). The worse figure, because nothing is lost by staying apart.
const LOCKSTEP: f64 = 1.0 / 0.66;

/// What the pass knows beside the kernel.
pub(super) struct Given<'a, 'b> {
    pub known: &'b Known<'a, 'b>,
    pub frames: &'b Frames,
    pub order: &'b Order,
    pub consumers: usize,
}

/// The cluster that the target asks for, whose tiles and rings are marked as shared.
///
/// # Errors
/// Why there is none: nothing was asked for, or the condition that fails.
pub(super) fn choose(given: &Given<'_, '_>, rings: &mut [Ring], target: &Target) -> Result<Cluster, Reason> {
    let (size, forced) = match target.clusters {
        Clusters::Of(size) => (size, true),
        // Larger ones leave multiprocessors idle: the 16 or 18 of a GPC are no multiple of 4 everywhere.
        Clusters::ByCost => (2, false),
    };
    let kernel = given.known.facts.kernel;
    if !SIZES.contains(&size) {
        let why = format!("clusters of {size}: there are pairs and fours");
        return Err(Reason::new(format!("kernel {}", kernel.name), why));
    }
    let (mut best, mut problem): (Option<Candidate>, Option<Reason>) = (None, None);
    for &axis in &kernel.grid {
        match candidate(given, rings, axis, size) {
            Ok(Some(c)) if best.as_ref().is_none_or(|b| b.saved < c.saved) => best = Some(c),
            Ok(_) => {}
            Err(reason) => problem = problem.or(Some(reason)),
        }
    }
    let Some(best) = best else {
        let none = || Reason::new(format!("kernel {}", kernel.name), "neighbours along no axis read the same tile");
        return Err(problem.unwrap_or_else(none));
    };
    if !forced {
        pays(given, rings, &best, target)?;
    }
    let mask = (1 << size) - 1;
    for ring in rings {
        for tile in &mut ring.tiles {
            tile.shared = best.cuts.get(&tile.value).map(|&cut| Share { cut, mask });
        }
        if ring.is_shared() {
            ring.readers = given.consumers * size;
        }
    }
    Ok(Cluster { axis: best.axis, size, meets_first: true, meets_last: true })
}

/// An axis along which blocks can share tiles.
struct Candidate {
    axis: AxisId,
    cuts: BTreeMap<ValueId, Cut>,
    /// Bytes that a block need not read from the cache at a point of the grid.
    saved: usize,
}

/// What can be shared along the axis; `Ok(None)` if neighbours read nothing together.
fn candidate(given: &Given<'_, '_>, rings: &[Ring], axis: AxisId, size: usize) -> Result<Option<Candidate>, Reason> {
    let Known { facts, copied, .. } = given.known;
    let decl = facts.kernel.axis(axis);
    let name = &decl.name;
    let same = |t: &&RingTile| t.at.iter().all(|c| is_same(c, axis, size * decl.tile));
    let tiles: Vec<&RingTile> = rings.iter().flat_map(|r| &r.tiles).filter(same).collect();
    if tiles.is_empty() {
        return Ok(None);
    }
    let steps = grid_steps(decl);
    if steps == 0 || !steps.is_multiple_of(size) {
        return Err(Reason::new(
            format!("axis {name}"),
            format!("its {steps} windows are no whole clusters of {size}"),
        ));
    }
    let mut out = Candidate { axis, cuts: BTreeMap::new(), saved: 0 };
    let mut problem = None;
    for tile in tiles {
        let stream = copied.get(&tile.value).and_then(|c| c.op.stream);
        let reason = if bounds_depend(given, stream, axis) {
            format!("it is copied in chunks whose number depends on {name}, and not equally often by neighbours")
        } else if let Some(cut) = cut(tile, size) {
            out.cuts.insert(tile.value, cut);
            out.saved += trips(given, stream) * (tile.bytes() - tile.bytes() / size);
            continue;
        } else {
            format!("its {} rows and {} columns cannot be cut into {size} parts", tile.rows, tile.columns)
        };
        problem = problem.or(Some(Reason::new(format!("{} = load", facts.name(tile.value)), reason)));
    }
    match (out.cuts.is_empty(), problem) {
        (true, Some(reason)) => Err(reason),
        _ => Ok(Some(out)),
    }
}

/// Whether a coordinate is the same for all windows of a cluster, which together have `span` positions of the axis.
fn is_same(coord: &Coord, axis: AxisId, span: usize) -> bool {
    coord.terms.iter().all(|(_, atom)| match atom {
        CoordAtom::Axis(a) => *a != axis,
        // Clusters begin at multiples of the span; a division by a multiple of it tells none of their positions apart.
        CoordAtom::Floor(inner, d) if inner.terms == [(1, CoordAtom::Axis(axis))] => {
            d.rem_euclid(span as i64) == 0 && inner.offset.rem_euclid(span as i64) == 0
        }
        CoordAtom::Floor(inner, _) => inner.terms.iter().all(|(_, a)| match a {
            CoordAtom::Axis(a) => *a != axis,
            CoordAtom::Floor(..) | CoordAtom::Tile(_) => false,
        }),
        CoordAtom::Tile(_) => false,
    })
}

fn bounds_depend(given: &Given<'_, '_>, stream: Option<usize>, axis: AxisId) -> bool {
    let op = stream.and_then(|k| given.known.facts.kernel.body.get(k));
    let Some(Op::Stream { within, guards, .. }) = op else { return false };
    let bounds = within.all.iter().any(|a| a.terms.iter().any(|t| t.1 == axis));
    bounds || guards.iter().any(|g| g.axes().contains(&axis))
}

/// Fewest copies first: whole panels, else some rows of each.
fn cut(tile: &RingTile, size: usize) -> Option<Cut> {
    if (tile.columns / tile.panel()).is_multiple_of(size) {
        Some(Cut::Panels)
    } else {
        tile.rows.is_multiple_of(PATTERN_ROWS * size).then_some(Cut::Rows)
    }
}

/// Chunks of a stream without a condition; 1 outside of streams.
fn trips(given: &Given<'_, '_>, stream: Option<usize>) -> usize {
    let kernel = given.known.facts.kernel;
    match stream.and_then(|k| kernel.body.get(k)) {
        Some(Op::Stream { axis, .. }) => grid_steps(kernel.axis(*axis)),
        _ => 1,
    }
}

/// The cost rule. At a point of the grid, products, copies from the second-level cache and the cache's own reads of memory
/// run under each other, so it takes as long as the slowest; a cluster shortens the copies alone and pays for lockstep.
/// With no more points than multiprocessors there is nothing to gain: cycles go into starting and ending.
fn pays(given: &Given<'_, '_>, rings: &[Ring], best: &Candidate, target: &Target) -> Result<(), Reason> {
    let (points, room) = (given.order.points(), target.multiprocessors());
    let subject = || format!("axis {}", given.known.facts.kernel.axis(best.axis).name);
    if points <= room {
        return Err(Reason::new(subject(), format!("{points} points are one for each of {room} multiprocessors")));
    }
    let Known { facts, copied, .. } = given.known;
    let bytes = |t: &RingTile| t.bytes() * trips(given, copied.get(&t.value).and_then(|c: &Copied| c.op.stream));
    let all: usize = rings.iter().flat_map(|r| &r.tiles).map(bytes).sum();
    let tensors: BTreeSet<TensorId> = rings.iter().flat_map(|r| &r.tiles).map(|t| t.tensor).collect();
    let size = |t: &TensorId| {
        let decl = facts.program.tensor(*t);
        decl.dims.iter().product::<usize>() * decl.dtype.bytes()
    };
    let read_once = tensors.iter().map(size).sum::<usize>() as f64 / points as f64;
    let others = (terms(given) as f64 / PRODUCT_RATE).max(read_once / MEMORY_RATE);
    let cycles = |bytes: usize| others.max(bytes as f64 / CACHE_RATE);
    let (apart, together) = (cycles(all), cycles(all - best.saved) * LOCKSTEP);
    if together < apart {
        return Ok(());
    }
    Err(Reason::new(
        subject(),
        format!("about {apart:.0} cycles a point, {together:.0} in pairs: what they share is not what takes the time"),
    ))
}

/// Terms that the tensor cores sum at a point of the grid, those beyond edges included.
fn terms(given: &Given<'_, '_>) -> usize {
    let Known { facts, products, .. } = given.known;
    let one = |dst: ValueId, p: &Product| {
        let frame = &given.frames.frames[p.frame.0];
        let across = facts.axes(dst).into_iter().find(|a| frame.sides.get(a) == Some(&Side::Across));
        let columns = across.map_or(1, |a| frame.span(Side::Across, facts.size(a)).cover);
        super::rows::ROWS * given.consumers * columns * facts.size(p.sum).next_multiple_of(16)
    };
    let body = |ops: &[Op]| -> usize {
        let made = ops.iter().filter_map(|op| match op {
            Op::Mma { dst, .. } => products.get(dst).map(|p| one(*dst, p)),
            _ => None,
        });
        made.sum()
    };
    let streams = facts.kernel.body.iter().enumerate().map(|(k, op)| match op {
        Op::Stream { body: ops, .. } => trips(given, Some(k)) * body(ops),
        _ => 0,
    });
    body(&facts.kernel.body) + streams.sum::<usize>()
}
