//! Tiles for a machine whose innermost memory counts elements: those that move fewest bytes among all that fit it.
//!
//! Such a machine has no lanes and no caches to guess at: a kernel's tiles must fit, and its time is that of what its
//! loads and stores move.

use crate::build::{Built, Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::frame::{CLOSE, FAR, Frame, HOPELESS, Memory, NEAR};
use crate::gpu::KEPT;
use crate::grid_order::orders;
use crate::known::{SearchKey, Searched, Tiles, unnamed};
use crate::program::program_of;
use crate::template::shape;
use crate::written::Attempts;
use crate::{PlanError, Work};
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use einloom_machine::{Bytes, Machine};
use einloom_model::{Held, compute_seconds, of_each};
use einloom_tile::{AxisId, AxisKind, Kernel, Program};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Indices of loops that are each taken whole or streamed, at most: a kernel is written for every choice.
const MOST_CHOICES: usize = 4;
/// Reduced indices of a kernel, at most, of which each is tried in the place of an index of the grid that gave way.
const MOST_CROWDED: usize = 2;
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
        let (mut found, mut least) = (vec![], u64::MAX);
        let (frames, mut failed) = self.frames(cone, roles, name);
        self.work.emitted += frames.len();
        let most = if self.thorough { usize::MAX } else { 1 };
        let ways = frames.into_iter().flat_map(|(tried, free)| {
            let grids = orders(&tried.kernel).into_iter().take(most);
            grids.map(move |grid| {
                let kernel = Kernel { grid, ..tried.kernel.clone() };
                (Tried { kernel, ..tried.clone() }, free.clone())
            })
        });
        let ways: Vec<(Tried, Vec<IndexId>)> = ways.collect();
        for (k, searched) in self.best_tiles(&ways, memory, limit).into_iter().enumerate() {
            self.work += searched.work;
            match searched.tiles {
                Ok(tiles) => found.extend(tiles.into_iter().map(|tiles| (k, tiles))),
                Err(elements) => least = least.min(elements),
            }
        }
        found.sort_by(|a, b| a.1.cost.seconds.total_cmp(&b.1.cost.seconds));
        // Of what moves as much, that which computes least.
        let computing = |(k, tiles): &(usize, Tiles)| {
            let found = || compute_seconds(&self.with_tiles(&ways[*k], tiles).kernel, self.machine);
            Seconds(tiles.computing.unwrap_or_else(found), 0.0)
        };
        let mut equal = found.chunk_by_mut(|a, b| a.1.cost.seconds == b.1.cost.seconds);
        let mut sorted = 0;
        while let Some(equal) = equal.next().filter(|_| sorted < KEPT) {
            sorted += equal.len();
            equal.sort_by_cached_key(computing);
        }
        found.truncate(KEPT);
        let found: Vec<Tried> = found.iter().map(|(k, tiles)| self.with_tiles(&ways[*k], tiles)).collect();
        if found.is_empty() && least < u64::MAX {
            let reason =
                format!("its smallest tiles hold {least} elements at once, more than the {} that fit", memory.capacity);
            failed = Some(PlanError { needed: Some(least), ..PlanError::unsupported(name, reason) });
        }
        let failed = failed.filter(|_| found.is_empty());
        (found, failed)
    }

    /// The ways to write a kernel, each with the indices whose tiles are to be found, and why one cannot be written.
    fn frames(&mut self, cone: &Cone, roles: &Roles, name: &str) -> (Vec<(Tried, Vec<IndexId>)>, Option<PlanError>) {
        let (mut frames, mut failed) = (vec![], None);
        let mut shapes: BTreeSet<(Vec<IndexId>, Vec<IndexId>)> = BTreeSet::new();
        let (mut wishes, mut attempts) = (BTreeSet::new(), Attempts::default());
        let mut ways = VecDeque::from(self.wholes(roles));
        while let Some(tiles) = ways.pop_front() {
            // Some indices are cut in the same way whatever is asked for.
            if !wishes.insert(shape(false, &roles.tiling(self.p, &WHATEVER, &BTreeSet::new(), &tiles))) {
                continue;
            }
            for parallel_first in [false, true] {
                let style = Style { parallel_first, ..WHATEVER };
                let (tried, is_new) = match self.emit_once(cone, roles, (&style, &tiles), name, &mut attempts, true) {
                    Ok(found) => found,
                    Err(e) => {
                        failed.get_or_insert(e);
                        continue;
                    }
                };
                ways.extend(self.others_one_by_one(roles, &tried, &tiles));
                let (free, only) = (self.free(roles, &tried), !tried.choice);
                let cuts = tried.tiling.cuts.iter().filter(|c| c.1.kind == AxisKind::Whole).map(|c| *c.0);
                if is_new && shapes.insert((free.clone(), cuts.collect())) {
                    frames.push((tried, free));
                }
                // The other index would be the same one.
                if only {
                    break;
                }
            }
        }
        (frames, failed)
    }

    /// Where a reduced index is visited one by one, for tiles have two axes: the same with each of the others in its place; and with each of all where an
    /// index of the grid is, which a reduced one may take the place of. Which of them should be depends on what is read again, which only the search
    /// for tiles knows.
    fn others_one_by_one(
        &self,
        roles: &Roles,
        tried: &Tried,
        tiles: &BTreeMap<String, usize>,
    ) -> Vec<BTreeMap<String, usize>> {
        let crowded = tried.crowded && roles.inner.len() <= MOST_CROWDED;
        if !crowded && !tried.demoted.iter().any(|i| roles.inner.contains(i)) {
            return vec![];
        }
        let open = |i: &&IndexId| {
            let (name, extent) = (&self.p[**i].name, self.p[**i].extent);
            let gave_way = tried.demoted.contains(i) && !crowded;
            extent > 1 && !gave_way && !roles.state.contains(i) && !tiles.contains_key(name)
        };
        let one = |&i: &IndexId| {
            let with = [(self.p[i].name.clone(), 1)];
            tiles.clone().into_iter().chain(with).collect()
        };
        roles.inner.iter().filter(open).map(one).collect()
    }

    /// The ways to write a chosen kernel.
    pub(crate) fn written(&mut self, roots: &[NodeId], cone: &Cone) -> Vec<Kernel> {
        let roles = Roles::new(self.p, self.x, cone);
        let name = self.kernel_name(roots);
        self.frames(cone, &roles, &name).0.into_iter().map(|(tried, _)| tried.kernel).collect()
    }

    /// A chosen kernel with tiles, or in an order of its grid, that take longer to find, where it moves more than it has to in any order and
    /// less moves then.
    pub(crate) fn looked_at_again(&mut self, built: &Built) -> Option<Built> {
        Memory::of(self.machine)?;
        let program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let found = self.known.shared.bounds.transfers(&program, self.machine)?;
        let level = found.levels.iter().rev().nth(1)?;
        if level.bytes as f64 <= NEAR * level.any_order_bytes as f64 {
            return None;
        }
        self.thorough = true;
        // What is in the best number types stays in them.
        let again = self.in_its_types(built, |shop| shop.build(&built.roots, built.cone.clone(), built.cost.seconds));
        self.thorough = false;
        let better = again.ok().filter(|b| b.cost.seconds < built.cost.seconds)?;
        Some(Built { types: built.types.clone(), types_note: built.types_note.clone(), ..better })
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

    /// The best tilings of each of these emitted kernels with the indices whose tiles are free; if none fits, how many elements its
    /// smallest tiles take.
    fn best_tiles(&mut self, ways: &[(Tried, Vec<IndexId>)], memory: Memory<'_>, limit: f64) -> Vec<Searched> {
        let (limit, thorough) = (limit * memory.bandwidth(), self.thorough);
        let mut keys: Vec<SearchKey> = vec![];
        let mut unknown: Vec<Unknown<'_>> = vec![];
        let of = |(tried, free): &(Tried, Vec<IndexId>)| {
            let program = program_of(self.p, self.x, self.types, vec![tried.kernel.clone()]);
            let axes: Vec<Vec<AxisId>> = free.iter().map(|&i| axes_of(&tried.kernel, &self.p[i].name)).collect();
            (program, axes)
        };
        let mut programs: Vec<(Program, Vec<Vec<AxisId>>)> = ways.iter().map(of).collect();
        for (program, axes) in &mut programs {
            keys.push((unnamed(program, axes), limit.is_finite(), thorough));
        }
        for (key, (program, axes)) in keys.iter().zip(programs) {
            let open = self.known.searches.get(key).is_none_or(|s| s.whole.is_none());
            if open && unknown.iter().all(|u| u.key != key) {
                let held = self.known.searches.get(key).and_then(|s| s.held.clone());
                unknown.push(Unknown { key, program, axes, held, frame: Mutex::default(), looked: None });
            }
        }
        // With one size of tiles each, then with a few, before any is searched to the end: what moves far more than the best is not.
        let new: Vec<&Unknown<'_>> =
            unknown.iter().filter(|u| self.known.searches.get(u.key).is_none_or(|s| s.glance.is_none())).collect();
        let glances = of_each(&new, |u| u.look(|frame| (frame.glance(memory), frame.held.clone())));
        let new: Vec<SearchKey> = new.into_iter().map(|u| u.key.clone()).collect();
        for (key, (glance, held)) in new.into_iter().zip(glances) {
            let searches = self.known.searches.entry(key).or_default();
            searches.held = Some(held);
            match glance {
                Ok(bytes) => searches.glance = Some(bytes),
                Err(elements) => searches.whole = Some(Searched { tiles: Err(elements), work: Work::default() }),
            }
        }
        let glance = |key: &SearchKey| self.known.searches.get(key).and_then(|s| s.glance);
        let near = keys.iter().filter_map(glance).min().map_or(u64::MAX, |bytes| bytes.saturating_mul(FAR));
        let far: Vec<bool> = keys.iter().map(|key| glance(key).is_some_and(|bytes| bytes > near)).collect();
        unknown.retain(|u| glance(u.key).is_some_and(|bytes| bytes <= near));
        let new: Vec<&Unknown<'_>> =
            unknown.iter().filter(|u| self.known.searches.get(u.key).is_none_or(|s| s.first.is_none())).collect();
        let looks = of_each(&new, |u| u.look(|frame| frame.look(memory, thorough)));
        let new: Vec<SearchKey> = new.into_iter().map(|u| u.key.clone()).collect();
        for (key, look) in new.iter().zip(looks) {
            let searches = self.known.searches.entry(key.clone()).or_default();
            match look {
                Ok(looked) => {
                    searches.first = Some(looked.bytes);
                    unknown.iter_mut().filter(|u| u.key == key).for_each(|u| u.looked = Some(looked.work));
                }
                Err(elements) => searches.whole = Some(Searched { tiles: Err(elements), work: Work::default() }),
            }
        }
        let first = |key: &SearchKey| self.known.searches.get(key).and_then(|s| s.first);
        let beside = keys.iter().zip(&far).filter(|k| !k.1).map(|k| k.0);
        let best = beside.filter_map(first).min().map_or(f64::INFINITY, |bytes| CLOSE * bytes as f64);
        let hopeless = best.min(HOPELESS * limit);
        unknown.retain(|u| self.known.searches.get(u.key).is_none_or(|s| s.below(hopeless).is_none()));
        let ends = |u: &Unknown<'_>| first(u.key).is_some_and(|bytes| bytes as f64 > hopeless);
        let found = of_each(&unknown, |u| u.look(|frame| search(frame, memory, ends(u), thorough, u.looked)));
        let found: Vec<(SearchKey, bool, Searched)> =
            unknown.iter().zip(found).map(|(u, found)| (u.key.clone(), ends(u), found)).collect();
        for (key, ended, found) in found {
            let searches = self.known.searches.entry(key).or_default();
            if ended { searches.ended = Some(found) } else { searches.whole = Some(found) }
        }
        let nothing = || Searched { tiles: Ok(vec![]), work: Work::default() };
        let of = |(key, far): (&SearchKey, &bool)| match far {
            true => Some(nothing()),
            false => self.known.searches.get(key)?.below(hopeless).cloned(),
        };
        keys.iter().zip(&far).filter_map(of).collect()
    }

    /// An emitted kernel with tiles that were found for it.
    fn with_tiles(&self, (tried, free): &(Tried, Vec<IndexId>), tiles: &Tiles) -> Tried {
        let (mut tiling, mut kernel) = (tried.tiling.clone(), tried.kernel.clone());
        for (&i, &tile) in free.iter().zip(&tiles.sizes) {
            tiling.cuts.entry(i).and_modify(|c| c.tile = tile);
            axes_of(&tried.kernel, &self.p[i].name).iter().for_each(|a| kernel.axes[a.at()].tile = tile);
        }
        Tried { kernel, tiling, cost: tiles.cost.clone(), ..tried.clone() }
    }
}

/// A kernel whose tiles are to be found.
struct Unknown<'a> {
    key: &'a SearchKey,
    program: Program,
    axes: Vec<Vec<AxisId>>,
    /// What it holds, if that is known.
    held: Option<Arc<Held>>,
    /// What is counted of it is kept from one look to the next.
    frame: Mutex<Option<Frame>>,
    /// The work of a first look at it in this search.
    looked: Option<Work>,
}

impl Unknown<'_> {
    fn look<T>(&self, look: impl FnOnce(&mut Frame) -> T) -> T {
        let new = || {
            let (program, axes) = (self.program.clone(), self.axes.clone());
            match &self.held {
                Some(held) => Frame::with(program, axes, held.clone()),
                None => Frame::new(program, axes),
            }
        };
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        look(frame.get_or_insert_with(new))
    }
}

/// The best tiles. Nothing beyond a first look is done if the search `ends` with it.
fn search(frame: &mut Frame, memory: Memory<'_>, ends: bool, thorough: bool, looked: Option<Work>) -> Searched {
    let first = looked.map_or_else(|| frame.look(memory, thorough).map(|looked| looked.work), Ok);
    let mut work = match first {
        Ok(work) => work,
        Err(elements) => return Searched { tiles: Err(elements), work: Work::default() },
    };
    if ends {
        work.pruned += 1;
    } else if let Err(elements) = frame.descend(memory, thorough, &mut work) {
        return Searched { tiles: Err(elements), work };
    }
    let known = std::mem::take(&mut frame.known);
    let least = known.values().min().copied().unwrap_or(0);
    let mut all: Vec<(u64, Seconds, Vec<usize>)> = vec![];
    for (sizes, bytes) in known {
        // What moves more is not chosen for what it computes.
        let computing = match bytes == least {
            true => {
                frame.put(&sizes);
                frame.computing(memory.machine)
            }
            false => 0.0,
        };
        all.push((bytes, Seconds(computing, 0.0), sizes));
    }
    all.sort();
    all.truncate(KEPT);
    let found = |(bytes, computing, sizes): (u64, Seconds, Vec<usize>)| {
        frame.put(&sizes);
        let cost = frame.outside(memory.machine);
        Tiles { sizes, cost, computing: (bytes == least).then_some(computing.0) }
    };
    Searched { tiles: Ok(all.into_iter().map(found).collect()), work }
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
        let element = machine.element?.0.max(1);
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
        e.reason += &format!("; a capacity of {enough} would do");
    }
    e
}
