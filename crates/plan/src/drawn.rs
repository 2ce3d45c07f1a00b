//! Plans that are drawn and not searched for.
//!
//! Whatever makes a program of a plan and runs it is to be right for every plan, not for the fastest alone. So tests ask for any
//! of them: a number decides in place of predicted times, and within the same conditions, which form it is, how many
//! positions chunks have, whether indices are two or one, which reductions are in shares, what goes through memory, which kernels
//! are joined, how large each tile is, which index gives way, and in which order the grid is visited. Nothing is predicted, and no two plans are
//! compared, so that it takes a small part of a search.
//!
//! What is decided of an index, a node or a form follows from the number and the name alone: most of it stays as it is where the
//! rest of the program becomes smaller.

use crate::build::{Built, Tried, Workshop};
use crate::chunks::Chunk;
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::frame::Memory;
use crate::grid_order::orders;
use crate::in_caches::{blocks, shared_cache};
use crate::indices::Indices;
use crate::problem::Problem;
use crate::ways::WHATEVER;
use crate::{Chunks, Merging, Options, Plan, PlanError};
use einloom_cascade::IndexId;
use einloom_machine::Machine;
use einloom_tile::grid_steps;
use std::collections::BTreeSet;

/// The number that decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(u64);

/// How the tiles of one plan are drawn.
#[derive(Clone, Copy)]
enum Tiles {
    /// One position each.
    Ones,
    /// No index is divided.
    Whole,
    /// Of every index another size.
    Any,
}

impl Draw {
    /// The number, if plans are to be drawn.
    pub(crate) fn of(options: &Options) -> Option<Self> {
        options.drawn.map(Self)
    }

    /// Refuses machines whose kernels must be looked for: most of those that are drawn would not fit a core.
    pub(crate) fn fits(machine: &Machine) -> Result<(), PlanError> {
        let reason = "plans are drawn for processors alone: tiles have to fit a core of this machine";
        match machine.lanes.is_some() || Memory::of(machine).is_some() {
            true => Err(PlanError::unsupported(&machine.name, reason)),
            false => Ok(()),
        }
    }

    /// Uniform in `0..sides`, the same for the same question about the same thing.
    fn roll(self, what: &str, of: &str, sides: usize) -> usize {
        // FNV-1a, then the finaliser of SplitMix64.
        let bytes = what.bytes().chain([0xff]).chain(of.bytes());
        let mut z = bytes.fold(0xcbf2_9ce4_8422_2325 ^ self.0, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * sides as u128) >> 64) as usize
    }

    /// Whether it comes to so many in a hundred.
    fn chance(self, what: &str, of: &str, percent: usize) -> bool {
        self.roll(what, of, 100) < percent
    }

    fn pick<T: Copy>(self, what: &str, of: &str, from: &[T]) -> T {
        from[self.roll(what, of, from.len())]
    }

    /// One of several forms, by name: the one whose name draws most.
    pub(crate) fn form<'n>(self, names: impl Iterator<Item = (usize, &'n str)>) -> Option<usize> {
        names.max_by_key(|(_, name)| self.roll("form", name, 1 << 20)).map(|n| n.0)
    }

    /// Positions per chunk of recurrences along an index with so many.
    pub(crate) fn chunk(self, longest: usize, chunks: Chunks) -> Chunk {
        let side_by_side = match chunks {
            Chunks::Auto => self.chance("side by side", "", 50),
            Chunks::InOrder => false,
            Chunks::SideBySide => true,
        };
        let dividing: Vec<usize> = (2..longest).filter(|&each| longest.is_multiple_of(each)).collect();
        match side_by_side && !dividing.is_empty() {
            true => Chunk { positions: self.pick("chunk", "", &dividing), side_by_side },
            false => Chunk { positions: 1 + self.roll("chunk", "", longest.max(1)), side_by_side: false },
        }
    }

    /// The plan with other indices, or with those that are written where there are no others.
    pub(crate) fn indices(
        self,
        merge: Merging,
        plan: &mut dyn FnMut(Indices) -> Result<Option<Plan>, PlanError>,
    ) -> Result<Plan, PlanError> {
        let all = [Indices::AsWritten, Indices::Split, Indices::Merged];
        let drawn = match merge {
            Merging::Auto => self.pick("indices", "", &all),
            Merging::Never => self.pick("indices", "", &all[..2]),
            Merging::Always => Indices::Merged,
        };
        let found = match plan(drawn)? {
            None if drawn != Indices::AsWritten => plan(Indices::AsWritten)?,
            found => found,
        };
        found.ok_or_else(|| PlanError::unsupported("program", "it has no plan"))
    }

    /// In how many shares a set of reductions over an index is, if it is.
    pub(crate) fn shares(self, index: &str) -> Option<usize> {
        let some = self.chance("shares", "", 30) && self.chance("shares of", index, 60);
        some.then(|| self.pick("count of shares", index, &[2, 3, 5]))
    }

    /// Positions of a tile of an index with so many.
    pub(crate) fn tile(self, index: &str, extent: usize) -> usize {
        let how = self.pick("tiles", "", &[Tiles::Ones, Tiles::Whole, Tiles::Any, Tiles::Any, Tiles::Any, Tiles::Any]);
        match how {
            Tiles::Ones => 1,
            Tiles::Any if !self.chance("whole", index, 20) => 1 + self.roll("tile", index, extent.clamp(1, MOST)),
            Tiles::Whole | Tiles::Any => extent.max(1),
        }
    }

    /// Whether a node goes through memory though it need not.
    pub(crate) fn is_stored(self, node: &str, reduces: bool) -> bool {
        let (what, rates) = match reduces {
            true => ("reductions through memory", [0, 0, 30, 100]),
            false => ("maps through memory", [0, 0, 20, 60]),
        };
        self.chance(what, node, self.pick(what, "", &rates))
    }

    /// Whether two kernels are joined that may be.
    pub(crate) fn joins(self, one: &str, other: &str) -> bool {
        self.chance(one, other, self.pick("joins", "", &[0, 50, 100]))
    }

    /// What tiles do not say: an index that gives way, and that none is made rounder.
    fn style(self, kernel: &str) -> Style {
        let parallel_first = self.chance("gives way", kernel, 50);
        Style { even: false, parallel_first, open: false, ..WHATEVER }
    }
}

/// Positions of a tile that is drawn and not whole, at most.
const MOST: usize = 64;

impl Problem {
    /// Gives every index a tile that has none but those of recurrences, which go by chunks.
    pub(crate) fn draw_tiles(&self, draw: Draw, options: &mut Options) {
        let chunked = self.loops.iter().filter(|l| !l.within.is_empty());
        let in_chunks: BTreeSet<IndexId> = chunked.flat_map(|l| l.within.iter().chain([&l.index])).copied().collect();
        for (k, index) in self.indices.iter().enumerate() {
            if !in_chunks.contains(&IndexId(k as u32)) {
                let tile = || draw.tile(&index.name, index.extent);
                options.tiles.entry(index.name.clone()).or_insert_with(tile);
            }
        }
    }
}

impl Workshop<'_> {
    /// The kernel in the tiles that were given to all indices.
    pub(crate) fn tried_as_drawn(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        draw: Draw,
    ) -> (Vec<Tried>, Option<PlanError>) {
        match self.emit(cone, roles, &draw.style(name), name) {
            Ok(tried) => (vec![tried], None),
            Err(error) => (vec![], Some(error)),
        }
    }

    /// The kernel with its grid in an order that is drawn, and some of them in blocks.
    pub(crate) fn ordered_as_drawn(&self, built: &Built, draw: Draw) -> Built {
        let mut out = built.clone();
        let name = &built.kernel.name;
        let all = orders(&built.kernel);
        out.kernel.grid.clone_from(&all[draw.roll("order", name, all.len())]);
        let moving = built.kernel.grid.iter().filter(|&&a| grid_steps(built.kernel.axis(a)) > 1).count();
        if moving > 1
            && draw.chance("blocks", name, 30)
            && let Some(cache) = shared_cache(self.machine)
        {
            let all = blocks(&out.kernel, &cache);
            out.kernel.blocks = vec![all[draw.roll("block", name, all.len())].clone()];
        }
        out
    }
}
