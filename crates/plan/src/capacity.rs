//! Tiles for a machine whose innermost memory counts elements: those that move fewest bytes among all that fit it.
//!
//! Such a machine has no lanes and no caches to guess at: a kernel's tiles must fit, and its time is that of what its
//! loads and stores move. Useful tiles cut an index evenly, so an index of `N` positions has about `2 sqrt(N)` of them.
//! Two indices at a time are searched: every tile of the one with the largest of the other that fits beside it.

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::gpu::KEPT;
use crate::lost::Cost;
use crate::program::program_of;
use crate::tiling::Tiling;
use einloom_cascade::IndexId;
use einloom_model::{held_elements, kernel_transfers, moved_bytes};
use einloom_tile::{AxisKind, Program};
use std::collections::{BTreeMap, BTreeSet};

/// Tiles of one index that are tried at first, at most; then those near the best.
const MOST_TILES: usize = 96;
/// Passes over all pairs of indices, at most.
const ROUNDS: usize = 3;

/// Indices of loops that are each taken whole or streamed, at most: a kernel is written for every choice.
const MOST_CHOICES: usize = 4;
/// A style in which only tiles that are asked for matter.
const WHATEVER: Style =
    Style { rows: 2, cols: 2, stream: 2, whole: 1, whole_stored: 1, steps: [1, 1], parallel_first: false };

/// An emitted kernel whose free tile sizes are to be found.
struct Frame {
    tried: Tried,
    program: Program,
    free: Vec<IndexId>,
    /// By the free indices' tiles: the bytes that those that fit move.
    known: BTreeMap<Vec<usize>, u64>,
}

impl Workshop<'_> {
    /// Elements that the innermost memory of a machine that counts elements holds.
    pub(crate) fn capacity(&self) -> Option<u64> {
        let element = self.machine.element?.0.max(1);
        let inner = self.machine.trunk().next_back()?;
        Some(inner.capacity.map_or(u64::MAX, |c| c.0 / element))
    }

    /// The best kernels that fit, best first; else why none does.
    pub(crate) fn tried_in_capacity(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        capacity: u64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        let (mut found, mut failed, mut least) = (vec![], None, u64::MAX);
        let mut shapes: BTreeSet<(Vec<IndexId>, Vec<IndexId>)> = BTreeSet::new();
        for tiles in self.wholes(roles) {
            for parallel_first in [false, true] {
                let style = Style { parallel_first, ..WHATEVER };
                let frame = match self.emit_with(cone, roles, &style, &tiles, name) {
                    Ok(tried) => self.frame(roles, tried),
                    Err(e) => {
                        failed.get_or_insert(e);
                        continue;
                    }
                };
                let cuts = frame.tried.tiling.cuts.iter().filter(|c| c.1.kind == AxisKind::Whole).map(|c| *c.0);
                if shapes.insert((frame.free.clone(), cuts.collect())) {
                    self.work.emitted += 1;
                    match self.descend_frame(frame, capacity) {
                        Ok(tried) => found.extend(tried),
                        Err(elements) => least = least.min(elements),
                    }
                }
            }
        }
        found.sort_by(|a, b| a.cost.seconds.total_cmp(&b.cost.seconds));
        found.truncate(KEPT);
        if found.is_empty() && least < u64::MAX {
            let reason = format!("its smallest tiles hold {least} elements at once, more than the {capacity} that fit");
            failed = Some(PlanError::unsupported(name, format!("{reason}; a capacity of {least} would do")));
        }
        let failed = failed.filter(|_| found.is_empty());
        (found, failed)
    }

    /// The ways to take some indices of loops whole, and to stream the others, as tiles by name.
    fn wholes(&self, roles: &Roles) -> Vec<BTreeMap<String, usize>> {
        let given = &self.options.tiles;
        let open = |i: &&IndexId| !given.contains_key(&self.p[**i].name) && self.p[**i].extent > 1;
        let open: Vec<IndexId> = roles.inner.iter().filter(open).take(MOST_CHOICES).copied().collect();
        let chosen = |set: usize| {
            let whole = (0..open.len()).filter(move |k| set >> k & 1 == 1);
            let tiles = whole.map(|k| (self.p[open[k]].name.clone(), self.p[open[k]].extent));
            given.clone().into_iter().chain(tiles).collect()
        };
        (0..1 << open.len()).map(chosen).collect()
    }

    fn frame(&mut self, roles: &Roles, tried: Tried) -> Frame {
        let program = program_of(self.p, self.x, self.types, vec![tried.kernel.clone()]);
        let fixed = |i: IndexId| {
            roles.state.contains(&i)
                || tried.demoted.contains(&i)
                || roles.within.contains(&i)
                || roles.recurrence == Some(i)
                || self.options.tiles.contains_key(&self.p[i].name)
        };
        let open = |i: &IndexId| {
            let cut = tried.tiling.cuts[i];
            // A whole reduced index stays whole: that is another frame.
            cut.extent > 1 && cut.tile > 1 && cut.kind != AxisKind::Whole && !fixed(*i)
        };
        let free = tried.tiling.cuts.keys().copied().filter(open).collect();
        Frame { tried, program, free, known: BTreeMap::new() }
    }

    /// The best tilings of a frame; if none fits, how many elements its smallest tiles take.
    fn descend_frame(&mut self, mut frame: Frame, capacity: u64) -> Result<Vec<Tried>, u64> {
        let tiles: Vec<Vec<usize>> = frame.free.iter().map(|&i| even_tiles(self.p[i].extent)).collect();
        let mut at: Vec<usize> = tiles.iter().map(|_| 0).collect();
        let sizes = |at: &[usize]| -> Vec<usize> { at.iter().zip(&tiles).map(|(&k, t)| t[k]).collect() };
        if !self.fits(&mut frame, &sizes(&at), capacity) {
            return Err(held_elements(&frame.program.kernels[0]));
        }
        let mut best = self.moved(&mut frame, &sizes(&at));
        for round in 0..ROUNDS {
            let before = at.clone();
            for (one, other) in pairs(frame.free.len()) {
                // Far apart at first, then every tile near the best one.
                let step = tiles[one].len().div_ceil(MOST_TILES);
                let (low, high) = (at[one].saturating_sub(step), (at[one] + step + 1).min(tiles[one].len()));
                let places: Vec<usize> = match round {
                    0 => (0..tiles[one].len()).step_by(step).collect(),
                    _ => (low..high).collect(),
                };
                for k in places {
                    let mut next = at.clone();
                    next[one] = k;
                    next[other] = if one == other { k } else { 0 };
                    if !self.fits(&mut frame, &sizes(&next), capacity) {
                        break;
                    }
                    if one != other {
                        next[other] = self.largest(&mut frame, &tiles, next.clone(), other, capacity);
                    }
                    let bytes = self.moved(&mut frame, &sizes(&next));
                    if bytes < best {
                        (best, at) = (bytes, next);
                    }
                }
            }
            if at == before && round > 0 {
                break;
            }
        }
        let mut all: Vec<(u64, Vec<usize>)> =
            std::mem::take(&mut frame.known).into_iter().map(|(k, b)| (b, k)).collect();
        all.sort();
        all.truncate(KEPT);
        let mut tried = vec![];
        for (_, sizes) in all {
            put(&mut frame, self.p, &sizes);
            let mut tiling: Tiling = frame.tried.tiling.clone();
            for (i, &tile) in frame.free.iter().zip(&sizes) {
                tiling.cuts.entry(*i).and_modify(|c| c.tile = tile);
            }
            let mut kernel = frame.tried.kernel.clone();
            kernel.axes.clone_from(&frame.program.kernels[0].axes);
            let cost = self.outside(&frame);
            tried.push(Tried { kernel, tiling, cost, ..frame.tried.clone() });
        }
        Ok(tried)
    }

    /// The place of the largest tile of one index that fits, the others given. What fits with a tile fits with a smaller.
    fn largest(
        &mut self,
        frame: &mut Frame,
        tiles: &[Vec<usize>],
        mut at: Vec<usize>,
        index: usize,
        capacity: u64,
    ) -> usize {
        let (mut low, mut high) = (0, tiles[index].len());
        while high - low > 1 {
            let middle = (low + high) / 2;
            at[index] = middle;
            let sizes: Vec<usize> = at.iter().zip(tiles).map(|(&k, t)| t[k]).collect();
            if self.fits(frame, &sizes, capacity) { low = middle } else { high = middle }
        }
        low
    }

    fn fits(&self, frame: &mut Frame, sizes: &[usize], capacity: u64) -> bool {
        put(frame, self.p, sizes);
        held_elements(&frame.program.kernels[0]) <= capacity
    }

    /// Bytes that tiles which fit move between the memories: what stays from one point of the grid to the next moves once.
    fn moved(&mut self, frame: &mut Frame, sizes: &[usize]) -> u64 {
        if let Some(known) = frame.known.get(sizes) {
            return *known;
        }
        put(frame, self.p, sizes);
        self.work.tilings += 1;
        let Some(inner) = self.machine.trunk().next_back() else { return 0 };
        let bytes = moved_bytes(&frame.program, &frame.program.kernels[0], self.machine, inner);
        frame.known.insert(sizes.to_vec(), bytes);
        bytes
    }

    /// The time of what passes the memories outside the innermost one.
    fn outside(&self, frame: &Frame) -> Cost {
        let transfers = kernel_transfers(&frame.program, &frame.program.kernels[0], self.machine);
        let levels = transfers.levels.iter().take(transfers.levels.len().saturating_sub(1).max(1));
        let parts: Vec<(String, f64)> = levels.map(|l| (l.level.clone(), l.seconds)).collect();
        let longest = parts.iter().cloned().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let (bound_by, seconds) = longest.unwrap_or_default();
        Cost { seconds, bound_by, parts }
    }
}

/// Tile sizes of the free indices into the kernel.
fn put(frame: &mut Frame, p: &crate::problem::Problem, sizes: &[usize]) {
    for (&index, &tile) in frame.free.iter().zip(sizes) {
        let axes = frame.program.kernels.iter_mut().flat_map(|k| &mut k.axes);
        axes.filter(|a| a.name == p[index].name).for_each(|a| a.tile = tile);
    }
}

/// Ordered pairs of different places; the one place with itself if there is only one.
fn pairs(count: usize) -> Vec<(usize, usize)> {
    if count == 1 {
        return vec![(0, 0)];
    }
    (0..count).flat_map(|a| (0..count).filter(move |b| *b != a).map(move |b| (a, b))).collect()
}

/// Tiles that cut an extent into so many parts with the least left over, ascending.
fn even_tiles(extent: usize) -> Vec<usize> {
    let mut tiles: Vec<usize> = vec![];
    let mut tile = 1;
    while tile < extent {
        // The smallest tile that makes as few parts as this one.
        let parts = extent.div_ceil(tile);
        let least = extent.div_ceil(parts);
        if tiles.last() != Some(&least) {
            tiles.push(least);
        }
        tile = if parts > 1 { extent.div_ceil(parts - 1).max(tile + 1) } else { extent };
    }
    tiles.push(extent);
    tiles.dedup();
    tiles
}

#[cfg(test)]
mod tests {
    use super::even_tiles;

    #[test]
    fn tiles_leave_as_little_over_as_they_can() {
        assert_eq!(even_tiles(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(even_tiles(13), [1, 2, 3, 4, 5, 7, 13]);
        assert_eq!(even_tiles(2), [1, 2]);
        assert_eq!(even_tiles(1 << 20).len(), 2 * 1024 - 1);
    }
}
