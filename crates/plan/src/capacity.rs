//! Tiles for a machine whose innermost memory counts elements: those that move fewest bytes among all that fit it.
//!
//! Such a machine has no lanes and no caches to guess at: a kernel's tiles must fit, and its time is that of what its
//! loads and stores move.

use crate::PlanError;
use crate::build::{Built, Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::Roles;
use crate::frame::{Memory, NEAR};
use crate::gpu::KEPT;
use crate::grid_order::orders;
use crate::known::Tiles;
use crate::program::program_of;
use crate::sought::{Seconds, axes_of};
use crate::ways::{Way, Writing};
use einloom_machine::{Bytes, Machine};
use einloom_model::compute_seconds;
use einloom_tile::Kernel;

/// Tilings that cost as much to count as a first glance at a kernel does.
const GLANCE: usize = 8;
/// A kernel of more tiles is not looked at again, which took 1.4 of 4.8 s in one plan of a layer: of 70 none is predicted to take longer without.
const LARGE: usize = 192;

impl Workshop<'_> {
    /// The best kernels that fit, best first; else why none does. What takes far longer than `limit` seconds is not searched to
    /// the end. If it is to be `like` some, only their ways are looked at.
    pub(crate) fn tried_in_capacity(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        (memory, like): (Memory<'_>, &[&Kernel]),
        limit: f64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        let (mut found, mut least) = (vec![], u64::MAX);
        let (mut wholes, mut sought, mut tiles) = (self.wholes(roles, like), vec![], 1);
        let known = self.with_templates(cone, |_, templates| templates.attempts.again());
        let mut writing = Writing::knowing(known);
        let most = if self.thorough { usize::MAX } else { 1 };
        let ordered = |(tried, free): Way| {
            let grids = orders(&tried.kernel).into_iter().take(most);
            let one = |grid| (Tried { kernel: Kernel { grid, ..tried.kernel.clone() }, ..tried.clone() }, free.clone());
            grids.map(one).collect::<Vec<_>>()
        };
        while !wholes.round().is_empty() {
            let ways = self.ways_of_each(cone, roles, name, &wholes, &mut writing);
            let written = ways.iter().map(Vec::len).sum::<usize>();
            self.work.emitted += written;
            self.work.tilings += GLANCE * written;
            let ways: Vec<Vec<Way>> = ways.into_iter().map(|w| w.into_iter().flat_map(ordered).collect()).collect();
            let counts: Vec<usize> = ways.iter().map(Vec::len).collect();
            tiles = ways.iter().flatten().map(|(tried, _)| tried.kernel.values.len()).fold(tiles, usize::max);
            let mut bytes =
                self.glance_at(&mut sought, ways.into_iter().flatten().collect(), memory, limit).into_iter();
            let least = |count: usize| bytes.by_ref().take(count).flatten().min().unwrap_or(u64::MAX);
            let moved: Vec<u64> = counts.into_iter().map(least).collect();
            wholes.go_on(&moved, tiles);
        }
        let Writing { attempts, mut failed, .. } = writing;
        self.with_templates(cone, |_, templates| templates.attempts = attempts);
        for (k, searched) in self.best_tiles(&mut sought, memory, limit).into_iter().enumerate() {
            self.work += searched.work;
            match searched.tiles {
                Ok(tiles) => found.extend(tiles.into_iter().map(|tiles| (k, tiles))),
                Err(elements) => least = least.min(elements),
            }
        }
        found.sort_by(|a, b| a.1.cost.seconds.total_cmp(&b.1.cost.seconds));
        // Of what moves as much, that which computes least.
        let computing = |(k, tiles): &(usize, Tiles)| {
            let found = || compute_seconds(&self.with_tiles(&sought[*k].way, tiles).kernel, self.machine);
            Seconds(tiles.computing.unwrap_or_else(found), 0.0)
        };
        let mut equal = found.chunk_by_mut(|a, b| a.1.cost.seconds == b.1.cost.seconds);
        let mut sorted = 0;
        while let Some(equal) = equal.next().filter(|_| sorted < KEPT) {
            sorted += equal.len();
            equal.sort_by_cached_key(computing);
        }
        found.truncate(KEPT);
        let found: Vec<Tried> = found.iter().map(|(k, tiles)| self.with_tiles(&sought[*k].way, tiles)).collect();
        if found.is_empty() && least < u64::MAX {
            let reason =
                format!("its smallest tiles hold {least} elements at once, more than the {} that fit", memory.capacity);
            failed = Some(PlanError { needed: Some(least), ..PlanError::unsupported(name, reason) });
        }
        let failed = failed.filter(|_| found.is_empty());
        (found, failed)
    }

    /// A chosen kernel with tiles, or in an order of its grid, that take longer to find, where it moves more than it has to in any order and
    /// less moves then.
    pub(crate) fn looked_at_again(&mut self, built: &Built) -> Option<Built> {
        Memory::of(self.machine).filter(|_| built.kernel.values.len() <= LARGE)?;
        let program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let found = self.known.shared.bounds.transfers(&program, self.machine)?;
        let level = found.levels.iter().rev().nth(1)?;
        if level.bytes as f64 <= NEAR * level.any_order_bytes as f64 {
            return None;
        }
        self.thorough = true;
        // What is in the best number types stays in them.
        let again =
            self.in_its_types(built, |shop| shop.build(&built.roots, built.cone.clone(), built.cost.seconds, &[]));
        self.thorough = false;
        let better = again.ok().filter(|b| b.cost.seconds < built.cost.seconds)?;
        Some(Built { types: built.types.clone(), types_note: built.types_note.clone(), ..better })
    }

    /// An emitted kernel with tiles that were found for it.
    fn with_tiles(&self, (tried, free): &Way, tiles: &Tiles) -> Tried {
        let (mut tiling, mut kernel) = (tried.tiling.clone(), tried.kernel.clone());
        for (&i, &tile) in free.iter().zip(&tiles.sizes) {
            tiling.cuts.entry(i).and_modify(|c| c.tile = tile);
            axes_of(&tried.kernel, &self.p[i].name).iter().for_each(|a| kernel.axes[a.at()].tile = tile);
        }
        Tried { kernel, tiling, cost: tiles.cost.clone(), ..tried.clone() }
    }
}

/// Capacities that are tried, each of which the one before said to be needed.
const CAPACITIES: usize = 16;

/// An error that tells a kernel not to fit, with a capacity of the innermost memory for which there is a plan, if one is found.
pub(crate) fn with_enough<T>(
    mut e: PlanError,
    machine: &Machine,
    plan: impl Fn(&Machine) -> Result<T, PlanError>,
) -> PlanError {
    let enough = || {
        let mut needed = e.needed?;
        let element = machine.element.map_or(1, |e| e.0.max(1));
        let innermost = machine.trunk().next_back()?.name.clone();
        let mut larger = machine.clone();
        for _ in 0..CAPACITIES {
            let level = larger.levels.iter_mut().find(|l| l.name == innermost)?;
            level.capacity = Some(Bytes(needed.checked_mul(element)?));
            match plan(&larger) {
                Ok(_) => return Some(needed),
                // Another kernel needs more.
                Err(e) => needed = e.needed.filter(|more| *more > needed)?,
            }
        }
        None
    };
    if let Some(enough) = enough() {
        e.reason += &match machine.element {
            Some(_) => format!("; a capacity of {enough} would do"),
            None => format!("; {} would do", Bytes(enough)),
        };
    }
    e
}
