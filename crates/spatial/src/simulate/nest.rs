//! Tiles of a kernel in the order in which the newest one is started.

use crate::evaluate::KernelLayout;
use crate::{Problem, Program};
use einloom_cascade::{Bound, RankId};

/// More tiles than this are not simulated one by one.
const MOST_TILES: usize = 1 << 22;

/// A rank that is cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub rank: RankId,
    /// Positions of a tile; the last one may have fewer.
    pub tile: usize,
    pub pieces: usize,
    /// Elements of the rank.
    pub size: usize,
}

/// The tiles of one kernel.
#[derive(Debug)]
pub(super) struct Nest {
    pub cuts: Vec<Cut>,
    /// Coordinates of each tile of one instance, one after the other.
    coordinates: Vec<u32>,
    /// Tile by coordinates, row-major over `cuts`.
    numbers: Vec<u32>,
    /// Which cut is made of blocks, and tiles of a block.
    block: Option<(usize, usize)>,
}

impl Nest {
    /// Blocks are outermost; then the ranks that the outputs carry, in the order of the program, then all others, so
    /// that sums are completed early; the tiles of a block are innermost, as what a block does not carry is used for
    /// all of them.
    pub fn new(program: &Program, bound: &Bound, layout: &KernelLayout<'_>) -> Result<Self, Vec<Problem>> {
        let cuts: Vec<Cut> = layout
            .tiles
            .iter()
            .map(|(&rank, &tile)| {
                let size = bound.size(rank);
                let tile = tile.clamp(1, size.max(1));
                Cut { rank, tile, pieces: size.div_ceil(tile), size }
            })
            .collect();
        let total = cuts.iter().try_fold(1usize, |n, c| n.checked_mul(c.pieces)).filter(|&n| n <= MOST_TILES);
        let Some(total) = total else {
            let message = format!("more than {MOST_TILES} tiles are too many to simulate");
            let problem =
                Problem::new("size", message).hint("simulate smaller sizes: the arrays settle within few tiles");
            return Err(vec![problem]);
        };
        let blocked = layout.dataflow.block.as_ref().and_then(|b| program.graph.cascade.rank(b.rank()));
        let block = cuts.iter().position(|c| Some(c.rank) == blocked).map(|at| (at, layout.block_tiles.max(1)));
        let outputs = &program.graph.outputs;
        let is_output = |r: RankId| outputs.iter().any(|&o| program.dims(o).contains(&r));
        let mut middle: Vec<usize> = (0..cuts.len()).filter(|&c| block.is_none_or(|b| b.0 != c)).collect();
        middle.sort_by_key(|&c| (!is_output(cuts[c].rank), cuts[c].rank));
        let mut nest =
            Self { coordinates: Vec::with_capacity(total * cuts.len()), numbers: vec![0; total], cuts, block };
        let mut at = vec![0u32; nest.cuts.len()];
        let blocks = block.map_or(1, |(c, n)| nest.cuts[c].pieces.div_ceil(n));
        for b in 0..blocks {
            nest.walk(&middle, b, &mut at);
        }
        for tile in 0..nest.tiles() {
            let number = nest.place(nest.at(tile));
            nest.numbers[number] = tile as u32;
        }
        Ok(nest)
    }

    /// Appends the tiles of block `b` for which the cuts outside `middle` are set.
    fn walk(&mut self, middle: &[usize], b: usize, at: &mut Vec<u32>) {
        if let [cut, inner @ ..] = middle {
            for piece in 0..self.cuts[*cut].pieces {
                at[*cut] = piece as u32;
                self.walk(inner, b, at);
            }
            return;
        }
        match self.block {
            None => self.coordinates.extend_from_slice(at),
            Some((cut, tiles)) => {
                for piece in b * tiles..((b + 1) * tiles).min(self.cuts[cut].pieces) {
                    at[cut] = piece as u32;
                    self.coordinates.extend_from_slice(at);
                }
            }
        }
    }

    fn place(&self, at: &[u32]) -> usize {
        self.cuts.iter().zip(at).fold(0, |n, (c, &x)| n * c.pieces + x as usize)
    }

    /// Tiles of one instance.
    pub fn tiles(&self) -> usize {
        self.numbers.len()
    }

    /// A tile's coordinates.
    pub fn at(&self, tile: usize) -> &[u32] {
        &self.coordinates[tile * self.cuts.len()..][..self.cuts.len()]
    }

    /// The tile with these coordinates.
    pub fn number(&self, at: &[u32]) -> usize {
        self.numbers[self.place(at)] as usize
    }

    /// The block that a tile belongs to.
    pub fn block(&self, tile: usize) -> usize {
        self.block.map_or(0, |(cut, tiles)| self.at(tile)[cut] as usize / tiles)
    }

    /// Which cut a rank has.
    pub fn cut(&self, rank: RankId) -> Option<usize> {
        self.cuts.iter().position(|c| c.rank == rank)
    }

    /// First position and number of positions of a rank in a tile.
    pub fn range(&self, cut: usize, piece: u32) -> (usize, usize) {
        let c = &self.cuts[cut];
        let start = piece as usize * c.tile;
        (start, c.tile.min(c.size - start.min(c.size)))
    }
}
