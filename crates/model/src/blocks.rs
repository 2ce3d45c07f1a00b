//! Blocks: what passes into memories outside the innermost where a kernel's points and its stream are visited block by block.
//!
//! Each memory has tiles of its own: what passes into one that keeps blocks is what a kernel would move whose tiles are the
//! blocks (every level of a hierarchy is planned as if it were the only one: Abbott and Zardini, "FlashAttention on a Napkin",
//! equation 2). Only what one visit leaves for another has to be there: what is loaded, and the states of a stream of
//! which the block has a part. What is computed on the way lives further in.
//!
//! A part of a stream costs memories further in: at each part but the first of every point, states come in and what was loaded
//! before the stream comes again; at each but the last states leave. Where blocks change the order of the grid's points, loads further
//! in count as the text makes them, as if points had nothing in common: no more is known to stay of what one leaves.
//! Conditions that leave parts of a stream out make it less.

use crate::levels::{Into, KeptElements, Reuse, Traffic};
use crate::nest::{Nest, coord_axes, sides};
use einloom_machine::{Level, Machine};
use einloom_tile::{
    AxisId, AxisKind, Block, Coord, Kernel, Op, Program, TensorId, ValueId, grid_points, grid_steps, visits,
};
use std::collections::BTreeSet;

/// Elements that a memory holds while a block is visited: what is loaded and asked for again by another point, until the last one
/// has it, and what waits between parts of the stream. Points are visited in the order of the grid.
pub fn block_elements(program: &Program, kernel: &Kernel, block: &Block) -> u64 {
    elements(program, kernel, block, &Nest::new(kernel), &BTreeSet::new())
}

/// The same where all of what some tiles have in a block stays to its end.
fn elements(program: &Program, kernel: &Kernel, block: &Block, nest: &Nest, kept: &BTreeSet<ValueId>) -> u64 {
    let as_tiles = as_tiles(kernel, block);
    let steps = |a: AxisId| as_tiles.axis(a).tile.min(kernel.axis(a).extent).div_ceil(kernel.axis(a).tile.max(1));
    let several: Vec<AxisId> = kernel.grid.iter().copied().filter(|&a| steps(a) > 1).collect();
    let mut loads: Vec<(TensorId, &[Coord], u64)> = vec![];
    for access in nest.accesses.iter().filter(|a| !a.store) {
        let dims = program.tensor(access.tensor).dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        let axes: BTreeSet<AxisId> = access.at.iter().flat_map(coord_axes).collect();
        // The outermost axis along which points ask for the same: what is there for one of its sweeps is a tile along those outside it.
        let again = several.iter().position(|a| !axes.contains(a)).unwrap_or(several.len());
        let passes = |a: AxisId| several[..again].contains(&a) || again == several.len();
        let alone = |a: AxisId| passes(a) && !kept.contains(&access.tile);
        let side = |&a: &AxisId| if alone(a) { kernel.axis(a).tile } else { as_tiles.axis(a).tile };
        let sides = axes.iter().map(|a| side(a).min(kernel.axis(*a).extent) as u64);
        let held = if access.gathers { dims } else { sides.fold(1, u64::saturating_mul).min(dims) };
        match loads.iter_mut().find(|l| l.0 == access.tensor && l.1 == access.at) {
            Some(same) => same.2 = same.2.max(held),
            None => loads.push((access.tensor, &access.at, held)),
        }
    }
    let loaded = loads.iter().map(|l| l.2).fold(0, u64::saturating_add);
    match parts(kernel, block) {
        1 => loaded,
        _ => loaded.saturating_add(states(kernel, block)),
    }
}

/// The kernel whose tiles are the blocks: what comes into the memory that keeps them is what it moves.
pub(crate) fn as_tiles(kernel: &Kernel, block: &Block) -> Kernel {
    let mut out = Kernel { blocks: vec![], ..kernel.clone() };
    out.axes.iter_mut().filter(|a| a.kind == AxisKind::Stream).for_each(|a| a.tile = a.extent.max(1));
    for &(axis, side) in &block.sides {
        out.axes[axis.at()].tile = side;
    }
    out
}

/// What passes into a cache that keeps what blocks of it ask for, of which so many are under way at once: of what one of them asks for each
/// element comes once. Each also keeps so many bytes of tiles there, which may be where their tensors are. `None` where there is no room.
pub(crate) fn into_cache(
    program: &Program,
    kernel: &Kernel,
    block: &Block,
    cache: &Level,
    active: usize,
    (resident_bytes, in_place): (u64, bool),
) -> Option<Into> {
    let kernel = &as_tiles(kernel, block);
    let nest = &Nest::new(kernel);
    let reuse = Reuse { program, kernel, nest, resident_bytes, element: None, held: None, in_place };
    let active = active.clamp(1, grid_points(kernel).max(1));
    let share = cache.capacity.map_or(u64::MAX, |c| c.0 / active as u64);
    reuse.fits(&nest.body.all, kernel.grid.len(), share, resident_bytes)?;
    Some(reuse.traffic_into(&Level { shared_by: active, ..cache.clone() }))
}

/// What passes into one of a processor's caches where points are visited by blocks of the cache that all cores share: `None` if blocks have
/// nothing to do with it. `plain` is what passes in the order of the grid.
pub(crate) fn into_shared(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    cache: &Level,
    tiles: (u64, bool),
    innermost: &Traffic,
    plain: impl FnOnce() -> Into,
) -> Option<Into> {
    let block = kernel.blocks.first().filter(|_| machine.lanes.is_none() && machine.element.is_none())?;
    let plain = keeps_order(kernel, block).then(plain);
    let by_block = || {
        let points: usize = visits(kernel).iter().map(|v| v.side).product();
        let cores = machine.cores.min(grid_points(kernel)).max(1);
        let (bytes, in_place) = tiles;
        let tiles = (bytes.saturating_mul(points.min(cores) as u64), in_place);
        into_cache(program, kernel, block, cache, cores.div_ceil(points.max(1)), tiles)
    };
    let blocked = if cache.name == block.memory { by_block() } else { None };
    Some(match (blocked, plain) {
        (Some(mut blocked), Some(plain)) => {
            blocked.traffic = blocked.traffic.smaller(&plain.traffic);
            blocked.without = blocked.without.smaller(&plain.without);
            blocked
        }
        (Some(one), None) | (None, Some(one)) => one,
        // Of other memories no more is known to stay than what a point asks for.
        (None, None) => Into::as_asked(innermost.clone(), tiles.0),
    })
}

/// Into how many parts the block cuts the kernel's stream.
fn parts(kernel: &Kernel, block: &Block) -> u64 {
    let along = |&&(axis, _): &&(AxisId, usize)| kernel.axis(axis).kind == AxisKind::Stream;
    let parts = |&(axis, side): &(AxisId, usize)| kernel.axis(axis).extent.div_ceil(side.max(1)) as u64;
    block.sides.iter().find(along).map_or(1, parts).max(1)
}

/// Elements of the states of all points of a block.
fn states(kernel: &Kernel, block: &Block) -> u64 {
    let mut sizes = kernel.clone();
    let of_grid = |&&(axis, _): &&(AxisId, usize)| kernel.axis(axis).kind == AxisKind::Grid;
    for axis in &kernel.grid {
        let own = &mut sizes.axes[axis.at()];
        own.extent = own.extent.min(own.tile);
    }
    for &(axis, side) in block.sides.iter().filter(of_grid) {
        sizes.axes[axis.at()].extent = side.min(kernel.axis(axis).extent);
    }
    all_states(&sizes)
}

/// Elements of the states of all points, each once.
fn all_states(kernel: &Kernel) -> u64 {
    let states = kernel.body.iter().filter_map(|op| match op {
        Op::Stream { states, .. } => Some(states),
        _ => None,
    });
    let one = |v: ValueId| {
        let sides = sides(kernel, v);
        // Points along a side have parts of it; along any other axis each has its own.
        let along = sides.iter().map(|&a| kernel.axis(a).extent as u64);
        let points = kernel.grid.iter().filter(|a| !sides.contains(a)).map(|&a| grid_steps(kernel.axis(a)) as u64);
        along.chain(points).fold(1, u64::saturating_mul)
    };
    states.flatten().map(|s| one(s.value)).fold(0, u64::saturating_add)
}

/// The blocks of a kernel on a machine of which programs decide what its memories hold.
pub(crate) struct Blocks<'a> {
    kernel: &'a Kernel,
    /// By the trunk's memories.
    by_memory: Vec<Option<&'a Block>>,
    element: u64,
}

/// What parts of a stream add to the traffic of a level.
#[derive(Debug, Default)]
pub(crate) struct InParts {
    /// What is loaded before the stream, again.
    pub loaded: Traffic,
    /// Elements of states that leave and come back.
    pub states: u64,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(kernel: &'a Kernel, machine: &Machine, trunk: &[&Level]) -> Option<Self> {
        let element = machine.element.filter(|_| machine.cores <= 1)?.0.max(1);
        let of = |level: &&Level| kernel.blocks.iter().find(|b| b.memory == level.name);
        let by_memory: Vec<Option<&Block>> = trunk.iter().map(of).collect();
        by_memory.iter().any(Option::is_some).then_some(Self { kernel, by_memory, element })
    }

    /// The block of the memory outside the one at this place.
    fn outside(&self, place: usize) -> Option<&'a Block> {
        self.by_memory[place.checked_sub(1)?]
    }

    /// The kernel as the trunk's memory at this place sees it.
    fn seen_by(&self, place: usize) -> Option<Kernel> {
        self.by_memory.get(place).copied().flatten().map(|block| as_tiles(self.kernel, block))
    }

    /// What passes into the trunk's memory at this place, without what parts of a stream add: `None` where it is what passes
    /// without blocks.
    pub(crate) fn into(&self, program: &Program, place: usize, memory: &Level, innermost: &Traffic) -> Option<Into> {
        let other_order = self.outside(place).is_some_and(|outer| !keeps_order(self.kernel, outer));
        let Some((block, kernel)) = self.by_memory[place].zip(self.seen_by(place)) else {
            return other_order.then(|| Into::as_asked(innermost.clone(), 0));
        };
        let nest = Nest::new(&kernel);
        let resident_bytes = block_elements(program, self.kernel, block).saturating_mul(self.element);
        if other_order {
            return Some(Into::as_asked(crate::transfers::innermost(program, &kernel, &nest), resident_bytes));
        }
        let element = Some(self.element);
        let with = |kept: &BTreeSet<ValueId>| elements(program, self.kernel, block, &nest, kept);
        let held: Option<&KeptElements<'_>> = Some(&with);
        let kernel = &kernel;
        let reuse = Reuse { program, kernel, nest: &nest, resident_bytes, element, held, in_place: false };
        Some(reuse.traffic_into(memory))
    }

    /// What the parts of the stream add to what passes inwards from the trunk's memory at this place; nothing passes further in
    /// than into the last one.
    pub(crate) fn in_parts(&self, program: &Program, place: usize) -> InParts {
        let last = self.by_memory.len().saturating_sub(2);
        let Some(block) = self.by_memory[place.min(last)] else { return InParts::default() };
        let again = parts(self.kernel, block) - 1;
        if again == 0 {
            return InParts::default();
        }
        let seen = self.seen_by(place + 1);
        let kernel = seen.as_ref().unwrap_or(self.kernel);
        let nest = Nest::new(kernel);
        let mut loaded = Traffic::new();
        for &k in nest.body.accesses.iter().filter(|&&k| !nest.accesses[k].store) {
            let moved = nest.moved(program, kernel, k).saturating_mul(again);
            let read = &mut loaded.of(nest.accesses[k].tensor).0;
            *read = read.saturating_add(moved);
        }
        InParts { loaded, states: all_states(self.kernel).saturating_mul(2 * again) }
    }
}

/// Whether points are visited by these blocks in the order of the grid: one axis alone is in parts that are more than a tile, and
/// the stream is whole.
pub(crate) fn keeps_order(kernel: &Kernel, block: &Block) -> bool {
    let side = |a: AxisId| block.sides.iter().find(|s| s.0 == a).map_or(kernel.axis(a).tile, |s| s.1);
    let within = kernel.grid.iter().position(|&a| side(a) > kernel.axis(a).tile).unwrap_or(kernel.grid.len());
    let whole = |&a: &AxisId| side(a) >= kernel.axis(a).extent;
    parts(kernel, block) == 1 && kernel.grid.iter().skip(within + 1).all(whole)
}
