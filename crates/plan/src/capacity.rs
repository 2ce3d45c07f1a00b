//! Tiles for a machine whose innermost memory counts elements: those that move fewest bytes among all that fit it.
//!
//! Such a machine has no lanes and no caches to guess at: a kernel's tiles must fit, and its time is that of what its
//! loads and stores move.

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::frame::{Frame, Memory};
use crate::gpu::KEPT;
use crate::program::program_of;
use crate::tiling::Tiling;
use einloom_cascade::IndexId;
use einloom_model::compute_seconds;
use einloom_tile::{AxisId, AxisKind, Kernel};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Indices of loops that are each taken whole or streamed, at most: a kernel is written for every choice.
const MOST_CHOICES: usize = 4;
/// A style in which only tiles that are asked for matter.
const WHATEVER: Style =
    Style { rows: 2, cols: 2, stream: 2, whole: 1, whole_stored: 1, steps: [1, 1], parallel_first: false };

impl Workshop<'_> {
    /// The best kernels that fit, best first; else why none does. What takes far longer than `limit` seconds is not searched to
    /// the end.
    pub(crate) fn tried_in_capacity(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        memory: Memory<'_>,
        limit: f64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        let (mut found, mut failed, mut least) = (vec![], None, u64::MAX);
        let mut shapes: BTreeSet<(Vec<IndexId>, Vec<IndexId>)> = BTreeSet::new();
        for tiles in self.wholes(roles) {
            for parallel_first in [false, true] {
                let style = Style { parallel_first, ..WHATEVER };
                let tried = match self.emit_with(cone, roles, &style, &tiles, name) {
                    Ok(tried) => tried,
                    Err(e) => {
                        failed.get_or_insert(e);
                        continue;
                    }
                };
                let free = self.free(roles, &tried);
                let cuts = tried.tiling.cuts.iter().filter(|c| c.1.kind == AxisKind::Whole).map(|c| *c.0);
                if shapes.insert((free.clone(), cuts.collect())) {
                    self.work.emitted += 1;
                    match self.best_tiles(&tried, &free, memory, limit) {
                        Ok(tried) => found.extend(tried),
                        Err(elements) => least = least.min(elements),
                    }
                }
            }
        }
        // Of what moves as much, that which computes least.
        let computing = |t: &Tried| compute_seconds(&t.kernel, self.machine);
        found.sort_by_cached_key(|t| Seconds(t.cost.seconds, computing(t)));
        found.truncate(KEPT);
        if found.is_empty() && least < u64::MAX {
            let reason =
                format!("its smallest tiles hold {least} elements at once, more than the {} that fit", memory.capacity);
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

    /// The indices whose tiles are to be found.
    fn free(&self, roles: &Roles, tried: &Tried) -> Vec<IndexId> {
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
        tried.tiling.cuts.keys().copied().filter(open).collect()
    }

    /// The best tilings of an emitted kernel; if none fits, how many elements its smallest tiles take.
    fn best_tiles(
        &mut self,
        tried: &Tried,
        free: &[IndexId],
        memory: Memory<'_>,
        limit: f64,
    ) -> Result<Vec<Tried>, u64> {
        let program = program_of(self.p, self.x, self.types, vec![tried.kernel.clone()]);
        let axes = free.iter().map(|&i| axes_of(&tried.kernel, &self.p[i].name)).collect();
        let mut frame = Frame::new(program, axes);
        frame.descend(memory, limit * memory.bandwidth(), &mut self.work)?;
        let known = std::mem::take(&mut frame.known);
        let least = known.values().min().copied().unwrap_or(0);
        let mut all: Vec<(u64, Seconds, Vec<usize>)> = vec![];
        for (sizes, bytes) in known {
            // What moves more is not chosen for what it computes.
            let computing = match bytes == least {
                true => {
                    frame.put(&sizes);
                    compute_seconds(frame.kernel(), self.machine)
                }
                false => 0.0,
            };
            all.push((bytes, Seconds(computing, 0.0), sizes));
        }
        all.sort();
        all.truncate(KEPT);
        let mut found = vec![];
        for (_, _, sizes) in all {
            frame.put(&sizes);
            let mut tiling: Tiling = tried.tiling.clone();
            for (i, &tile) in free.iter().zip(&sizes) {
                tiling.cuts.entry(*i).and_modify(|c| c.tile = tile);
            }
            let mut kernel = tried.kernel.clone();
            kernel.axes.clone_from(&frame.kernel().axes);
            let cost = frame.outside(self.machine);
            found.push(Tried { kernel, tiling, cost, ..tried.clone() });
        }
        Ok(found)
    }
}

/// Times, of which the second counts where the first are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds(f64, f64);

impl Eq for Seconds {}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The axes that loop over an index.
fn axes_of(kernel: &Kernel, index: &str) -> Vec<AxisId> {
    let all = kernel.axes.iter().enumerate().filter(|(_, a)| a.name == index);
    all.map(|(k, _)| AxisId(k as u32)).collect()
}
