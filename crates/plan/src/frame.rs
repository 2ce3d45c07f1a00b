//! An emitted kernel whose tile sizes are to be found, for a machine whose innermost memory counts elements.
//!
//! Useful tiles cut an index evenly, so an index of `N` positions has about `2 sqrt(N)` of them. Two indices at a time are
//! searched: every tile of the one with the largest of the other that fits beside it.

use crate::Work;
use crate::lost::Cost;
use einloom_machine::{Level, Machine};
use einloom_model::{Counts, Held, compute_seconds_counted, level_transfers, moved_bytes};
use einloom_tile::{AxisId, Kernel, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tiles of one index that are tried at first, at most; then those near the best. Fewer where there are many pairs of indices.
const MOST_TILES: usize = 96;
const FEWEST_TILES: usize = 8;
/// Times what moves whatever the tiles: a search that comes so near does not begin elsewhere again.
pub(crate) const NEAR: f64 = 1.05;
/// Times a limit: what still moves so much after a first look is left alone.
pub(crate) const HOPELESS: f64 = 3.0;
/// Times what moves in the best of several ways to write a kernel with one size of tiles: others are not looked at.
pub(crate) const FAR: u64 = 4;
/// Times what moves in the best of several ways to write a kernel after a first look at each: others are left alone too.
pub(crate) const CLOSE: f64 = 2.0;
/// Passes over all pairs of indices, at most.
const ROUNDS: usize = 3;

/// What tiles must fit, and what is counted for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'a> {
    pub machine: &'a Machine,
    /// The innermost memory.
    pub level: &'a Level,
    /// Elements that it holds.
    pub capacity: u64,
}

impl<'a> Memory<'a> {
    /// The innermost memory of a machine that counts elements; `None` for others.
    pub(crate) fn of(machine: &'a Machine) -> Option<Self> {
        let element = machine.element?.0.max(1);
        let level = machine.trunk().next_back()?;
        Some(Self { machine, level, capacity: level.capacity.map_or(u64::MAX, |c| c.0 / element) })
    }
}

impl Memory<'_> {
    /// Bytes a second that come in from outside.
    pub(crate) fn bandwidth(&self) -> f64 {
        self.machine.trunk().rev().nth(1).map_or(f64::INFINITY, |l| l.bandwidth.0)
    }
}

/// What a search for tiles came to.
pub(crate) struct Descent {
    /// What moves with the best tiles.
    pub bytes: u64,
    pub sizes: Vec<usize>,
}

/// What a first look came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    /// What moves with the best tiles that it saw.
    pub bytes: u64,
    pub work: Work,
}

/// A program of one kernel, with what is known of its tiles.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub program: Program,
    /// Whose tiles are free, each with all axes that loop over the same index.
    pub free: Vec<Vec<AxisId>>,
    /// By the free tiles: the bytes that those that fit move.
    pub known: BTreeMap<Vec<usize>, u64>,
    pub held: Arc<Held>,
    /// What was counted for other tiles.
    counts: Arc<Counts>,
    /// Bytes that move whatever the tiles, once that was asked.
    least: Option<u64>,
}

impl Frame {
    pub(crate) fn new(program: Program, free: Vec<Vec<AxisId>>) -> Self {
        let held = Arc::new(Held::new(&program.kernels[0]));
        Self::with(program, free, held)
    }

    /// The same where it is known what the kernel holds.
    pub(crate) fn with(program: Program, free: Vec<Vec<AxisId>>, held: Arc<Held>) -> Self {
        Self { program, free, known: BTreeMap::new(), held, counts: Arc::default(), least: None }
    }

    /// The same program in other extents, with other offsets.
    pub(crate) fn like(&self, kernel: Kernel) -> Self {
        let mut program = self.program.clone();
        program.kernels[0] = kernel;
        let (free, held) = (self.free.clone(), self.held.clone());
        Self { program, free, known: BTreeMap::new(), held, counts: Arc::default(), least: None }
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.program.kernels[0]
    }

    /// Positions of each free index.
    pub(crate) fn extents(&self) -> Vec<usize> {
        let extent = |axes: &Vec<AxisId>| axes.iter().map(|&a| self.kernel().axis(a).extent).max().unwrap_or(1);
        self.free.iter().map(extent).collect()
    }

    /// Tile sizes into the kernel.
    pub(crate) fn put(&mut self, sizes: &[usize]) {
        for (axes, &tile) in self.free.iter().zip(sizes) {
            for axis in axes {
                self.program.kernels[0].axes[axis.at()].tile = tile;
            }
        }
    }

    pub(crate) fn fits(&mut self, sizes: &[usize], memory: Memory<'_>) -> bool {
        self.put(sizes);
        self.held.fits(self.kernel(), memory.capacity)
    }

    /// Bytes that tiles which fit move between the memories: what stays from one point of the grid to the next moves once.
    pub(crate) fn moved(&mut self, sizes: &[usize], memory: Memory<'_>, work: &mut Work) -> u64 {
        if let Some(known) = self.known.get(sizes) {
            return *known;
        }
        self.put(sizes);
        work.tilings += 1;
        let bytes = moved_bytes(&self.program, self.kernel(), memory.machine, memory.level, &self.held, &self.counts);
        self.known.insert(sizes.to_vec(), bytes);
        bytes
    }

    /// The time of what passes the memories outside the innermost one, with the tiles that were put.
    pub(crate) fn outside(&self, machine: &Machine) -> Cost {
        let levels = level_transfers(&self.program, self.kernel(), machine, &self.held, &self.counts);
        let parts: Vec<(String, f64)> =
            levels.iter().take(levels.len().saturating_sub(1).max(1)).map(|l| (l.level.clone(), l.seconds)).collect();
        let longest = parts.iter().cloned().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let (bound_by, seconds) = longest.unwrap_or_default();
        Cost { seconds, bound_by, parts }
    }

    /// The time of its arithmetic, with the tiles that were put.
    pub(crate) fn computing(&self, machine: &Machine) -> f64 {
        compute_seconds_counted(self.kernel(), machine, &self.counts)
    }

    /// Bytes that move between the memories whatever the tiles.
    pub(crate) fn least(&mut self, memory: Memory<'_>) -> u64 {
        if let Some(least) = self.least {
            return least;
        }
        let levels = level_transfers(&self.program, self.kernel(), memory.machine, &self.held, &self.counts);
        let least = levels.iter().rev().nth(1).map_or(0, |l| l.bound_bytes);
        self.least = Some(least);
        least
    }

    /// The tiles to choose from, at the smallest of each; if these do not fit, how many elements they take.
    fn smallest(&mut self, memory: Memory<'_>) -> Result<Way, u64> {
        let tiles: Arc<[Vec<usize>]> = self.extents().into_iter().map(even_tiles).collect();
        let way = Way { at: vec![0; tiles.len()], bytes: 0, tiles };
        if self.fits(&way.sizes(), memory) { Ok(way) } else { Err(self.held.elements(self.kernel())) }
    }

    /// Where a search begins: with the smallest tiles; if they do not fit, how many elements they take.
    fn start(&mut self, memory: Memory<'_>, work: &mut Work) -> Result<Way, u64> {
        let mut way = self.smallest(memory)?;
        way.bytes = self.moved(&way.sizes(), memory, work);
        Ok(way)
    }

    /// What tiles as long as each other, as far as indices are long, move where they are as large as fits; if none fits, how many elements the smallest
    /// take. It is no part of the search.
    pub(crate) fn glance(&mut self, memory: Memory<'_>) -> Result<u64, u64> {
        let way = self.smallest(memory)?;
        let sizes: Vec<usize> = self.equal(&way, memory).sizes();
        let known = std::mem::take(&mut self.known);
        let bytes = self.moved(&sizes, memory, &mut Work::default());
        self.known = known;
        Ok(bytes)
    }

    /// The largest tiles as long as each other, as far as indices are long, that fit.
    fn equal(&mut self, smallest: &Way, memory: Memory<'_>) -> Way {
        let longest = smallest.tiles.iter().filter_map(|t| t.last()).max().copied().unwrap_or(1);
        let of = |side: usize| -> Way {
            let at = |t: &Vec<usize>| t.partition_point(|&tile| tile <= side).saturating_sub(1);
            Way { at: smallest.tiles.iter().map(at).collect(), ..smallest.clone() }
        };
        let sides = longest.next_power_of_two().trailing_zeros() as usize + 1;
        of(1 << last(sides, |k| self.fits(&of(1 << k).sizes(), memory)))
    }

    /// The same, then each index in turn as long as still fits.
    fn largest(&mut self, smallest: &Way, memory: Memory<'_>) -> Way {
        let mut way = self.equal(smallest, memory);
        for index in 0..way.at.len() {
            let (mut sizes, at) = (way.sizes(), way.at[index]);
            way.at[index] += last(way.tiles[index].len() - at, |k| {
                sizes[index] = way.tiles[index][at + k];
                self.fits(&sizes, memory)
            });
        }
        way
    }

    /// What a few tiles, far apart, move; if none fits, how many elements the smallest take.
    pub(crate) fn look(&mut self, memory: Memory<'_>, thorough: bool) -> Result<Looked, u64> {
        let mut work = Work::default();
        let mut way = self.start(memory, &mut work)?;
        self.rounds(&mut way, [FEWEST_TILES, 1], thorough, memory, &mut work);
        Ok(Looked { bytes: way.bytes, work })
    }

    /// The best tiles that fit and the bytes that they move; if none fits, how many elements the smallest tiles take.
    pub(crate) fn descend(&mut self, memory: Memory<'_>, thorough: bool, work: &mut Work) -> Result<Descent, u64> {
        let mut way = self.start(memory, work)?;
        // Where large tiles move no more than must move, nothing is better, and they compute least.
        let mut largest = self.largest(&way, memory);
        largest.bytes = self.moved(&largest.sizes(), memory, work);
        if largest.bytes <= self.least(memory) {
            return Ok(Descent { bytes: largest.bytes, sizes: largest.sizes() });
        }
        let smallest = way.at.clone();
        let most = (6 * MOST_TILES / pairs(self.free.len()).len().max(1)).clamp(FEWEST_TILES, MOST_TILES);
        self.rounds(&mut way, [most, ROUNDS], thorough, memory, work);
        if self.free.len() > 2 && way.bytes as f64 > NEAR * self.least(memory) as f64 {
            // Where two indices at a time lead nowhere better, another way may: from each index as large as can be, and in a
            // thorough search as large as is best by itself.
            let mut better = false;
            for index in 0..smallest.len() {
                let mut other = Way { at: smallest.clone(), ..way.clone() };
                let mut sizes = other.sizes();
                let largest = last(other.tiles[index].len(), |k| {
                    sizes[index] = other.tiles[index][k];
                    self.fits(&sizes, memory)
                });
                let mut starts = BTreeSet::from([largest]);
                if thorough {
                    let by_itself = (0..=largest).step_by(largest.div_ceil(most).max(1)).map(|k| {
                        sizes[index] = other.tiles[index][k];
                        (self.moved(&sizes, memory, work), k)
                    });
                    starts.extend(by_itself.min().map(|b| b.1));
                }
                for k in starts {
                    other.at.clone_from(&smallest);
                    other.at[index] = k;
                    other.bytes = self.moved(&other.sizes(), memory, work);
                    self.rounds(&mut other, [FEWEST_TILES, 1], thorough, memory, work);
                    if other.bytes < way.bytes {
                        (way, better) = (other.clone(), true);
                    }
                }
            }
            if better {
                self.rounds(&mut way, [most, ROUNDS], thorough, memory, work);
            }
        }
        Ok(Descent { bytes: way.bytes, sizes: way.sizes() })
    }

    /// Looks at all pairs of indices so many `rounds`, at first at `most` tiles of one of them, then near the best.
    fn rounds(
        &mut self,
        way: &mut Way,
        [most, rounds]: [usize; 2],
        thorough: bool,
        memory: Memory<'_>,
        work: &mut Work,
    ) {
        for round in 0..rounds {
            let before = way.at.clone();
            for (one, other) in pairs(self.free.len()) {
                // Far apart at first, then every tile near the best one.
                let count = way.tiles[one].len();
                let step = count.div_ceil(most);
                let (low, high) = (way.at[one].saturating_sub(step), (way.at[one] + step + 1).min(count));
                let places: Vec<usize> = match round {
                    0 => (0..count).step_by(step).collect(),
                    _ => (low..high).collect(),
                };
                for k in places {
                    let mut next = way.clone();
                    next.at[one] = k;
                    next.at[other] = if one == other { k } else { 0 };
                    if !self.fits(&next.sizes(), memory) {
                        break;
                    }
                    if one != other {
                        // One position at a time leaves most room for what stays meanwhile.
                        if thorough {
                            let mut alone = next.clone();
                            alone.bytes = self.moved(&alone.sizes(), memory, work);
                            if alone.bytes < way.bytes {
                                *way = alone;
                            }
                        }
                        let mut sizes = next.sizes();
                        next.at[other] = last(next.tiles[other].len(), |k| {
                            sizes[other] = next.tiles[other][k];
                            self.fits(&sizes, memory)
                        });
                    }
                    next.bytes = self.moved(&next.sizes(), memory, work);
                    if next.bytes < way.bytes {
                        *way = next;
                    }
                }
            }
            if way.at == before && round > 0 {
                break;
            }
        }
    }
}

/// Where a search is.
#[derive(Clone, Debug)]
struct Way {
    /// Of each free index the tiles to choose from.
    tiles: Arc<[Vec<usize>]>,
    /// The places of those that are the best so far, and the bytes that they move.
    at: Vec<usize>,
    bytes: u64,
}

impl Way {
    fn sizes(&self) -> Vec<usize> {
        self.at.iter().zip(&*self.tiles).map(|(&k, t)| t[k]).collect()
    }
}

/// The last place that holds, if what holds at a place holds at all before it, as at the first.
pub(crate) fn last(count: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// Ordered pairs of different places; the one place with itself if there is only one.
pub(crate) fn pairs(count: usize) -> Vec<(usize, usize)> {
    if count == 1 {
        return vec![(0, 0)];
    }
    (0..count).flat_map(|a| (0..count).filter(move |b| *b != a).map(move |b| (a, b))).collect()
}

/// Extents up to here have all their even tiles looked at, some thousands; of longer ones those that differ by a part of [`CLOSER`].
const LONG: usize = 1 << 24;
const CLOSER: usize = 512;

/// Tiles that cut an extent into so many parts with the least left over, ascending.
pub(crate) fn even_tiles(extent: usize) -> Vec<usize> {
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
        if extent > LONG {
            tile = tile.max(least + least / CLOSER);
        }
    }
    tiles.push(extent);
    tiles.dedup();
    tiles
}

#[cfg(test)]
mod tests {
    use super::{even_tiles, last};

    #[test]
    fn tiles_leave_as_little_over_as_they_can() {
        assert_eq!(even_tiles(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(even_tiles(13), [1, 2, 3, 4, 5, 7, 13]);
        assert_eq!(even_tiles(2), [1, 2]);
        assert_eq!(even_tiles(1 << 20).len(), 2 * 1024 - 1);
        assert!(even_tiles((1 << 53) + 1).len() < 1 << 15);
        assert!(even_tiles((1 << 53) + 1).is_sorted());
    }

    #[test]
    fn the_last_place_that_holds_is_found() {
        for count in 1..20 {
            for end in 0..count {
                assert_eq!(last(count, |k| k <= end), end);
            }
        }
    }
}
