//! What was found for kernels, kept for all plans that are compared with one another.
//!
//! Forms of a program, and sizes of its chunks, have most kernels in common. The best tiles of a kernel follow from its text
//! and the machine, so that they are looked for once; on machines that count elements whatever its names are, for layers repeat
//! each other's kernels. (What GPUs refuse is told with names.) What is found again counts as work again: a plan is the same whatever
//! was planned before it.

use crate::Work;
use crate::lost::Cost;
use crate::parts::Cut;
use einloom_model::{Below, ByLanes, Held, KnownBounds, Misfit, Structure};
use einloom_tile::{AxisId, Kernel, Program, alike};
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans that are looked at as long as one may be in search of better divisions, at most: small programs do not come near it, and one
/// of thirty statements, in several forms and shares, is to be planned in two seconds.
const DIVISIONS: usize = 3;
/// Those that shares have in any case, whatever other forms took.
const IN_SHARES: usize = 1;

/// See the module's text. All of it is for one machine and one set of options.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// For machines that count elements: by a kernel with free tiles, whether there was a limit, and how thorough the search was.
    pub searches: FxHashMap<SearchKey, Searches>,
    /// What kernels that are looked at side by side have in common.
    pub shared: Arc<Shared>,
    /// The work of all plans so far: [`Work::done`].
    pub spent: usize,
    /// How much there may be, if that is more than what any program has.
    more: usize,
    /// The seconds that the next plan must be below if it is only to be compared: its search ends early, and indices stay apart.
    pub hurries: Option<f64>,
    /// The seconds of the best plan of another form, if there is one.
    pub so_far: Option<f64>,
}

/// What is found in any order.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// By a kernel with its tiles: the best place to cut it in two, and what it took to find it.
    pub cuts: Mutex<FxHashMap<String, (Option<Cut>, Work)>>,
    /// What bounds the traffic of kernels.
    pub bounds: KnownBounds,
    /// Kernels without tiles, by their place in which they have numbers, by their names and the units they are for.
    kernels: Mutex<Numbers>,
    /// What tiles do not change, by the kernel's number.
    structures: Mutex<FxHashMap<usize, Arc<Structure>>>,
    /// What they take of a core whose lanes multiply, by their numbers and tiles.
    by_lanes: Mutex<FxHashMap<InTiles, Option<ByLanes>>>,
    /// How kernels run on a GPU's core.
    on_cores: Mutex<FxHashMap<OnCore, OnACore>>,
}

/// A kernel with free tiles, whether there was a limit, and how thorough the search was.
pub(crate) type SearchKey = (String, bool, bool);

/// The numbers of kernels.
#[derive(Debug, Default)]
struct Numbers {
    next: usize,
    of: FxHashMap<Named, Vec<(Program, usize)>>,
}

/// A kernel's name, and the unit that it is for.
type Named = (String, Option<String>);

/// A kernel's number, and its tiles.
type InTiles = (usize, Vec<usize>);

/// A kernel's number, its tiles, and the limit of its time as bits.
type OnCore = (usize, Vec<usize>, u64);

/// How it runs there, or why it does not.
type OnACore = Result<Below, Vec<Misfit>>;

/// Searches for the tiles of one kernel.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    /// What the kernel holds, whatever its tiles.
    pub held: Option<Arc<Held>>,
    /// Bytes that tiles of one size move.
    pub glance: Option<u64>,
    /// Bytes that the first look came to, after which a search ends that is far above its limit.
    pub first: Option<u64>,
    /// What such a search found.
    pub ended: Option<Searched>,
    /// What the others found.
    pub whole: Option<Searched>,
}

/// What a search for tiles found.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    /// The best tiles with best first; how many elements the smallest take if none fit.
    pub tiles: Result<Vec<Tiles>, u64>,
    /// What it took to find them.
    pub work: Work,
}

/// Tiles that were found, of each free index one.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    pub sizes: Vec<usize>,
    pub cost: Cost,
    /// Seconds of their arithmetic, of those that move least.
    pub computing: Option<f64>,
}

impl Searches {
    /// What a search with this limit would find, if that is known.
    pub(crate) fn below(&self, hopeless: f64) -> Option<&Searched> {
        match self.first {
            Some(bytes) if bytes as f64 > hopeless => self.ended.as_ref(),
            _ => self.whole.as_ref(),
        }
    }
}

impl Known {
    /// Nothing yet, beside what is shared.
    pub(crate) fn sharing(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), ..Self::default() }
    }

    /// Whether no more plans are begun that a first one is compared with. It depends on what was looked at, not on a clock.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= self.more.max(DIVISIONS * crate::search::MOST_WORK)
    }

    /// Leaves enough for shares.
    pub(crate) fn turn_to_shares(&mut self) {
        self.more = self.spent + IN_SHARES * crate::search::MOST_WORK;
    }

    /// The same for a plan that is made beside others.
    pub(crate) fn beside(&self) -> Self {
        Self { hurries: self.hurries, so_far: self.so_far, ..Self::sharing(&self.shared) }
    }
}

impl Shared {
    /// The number of a kernel whatever its tiles, for a matrix unit or none.
    pub(crate) fn number(&self, program: &mut Program, unit: Option<&str>) -> usize {
        let all: Vec<AxisId> = (0..program.kernels[0].axes.len() as u32).map(AxisId).collect();
        let key = (program.kernels[0].name.clone(), unit.map(str::to_string));
        without_tiles(program, &all, |program| {
            let Numbers { next, of } = &mut *lock(&self.kernels);
            let of = of.entry(key).or_default();
            let same = |p: &Program| p.kernels == program.kernels && p.tensors == program.tensors;
            if let Some((_, number)) = of.iter().find(|(p, _)| same(p)) {
                return *number;
            }
            *next += 1;
            of.push((program.clone(), *next));
            *next
        })
    }

    /// What tiles do not change of the kernel of this number.
    pub(crate) fn structure(&self, number: usize, kernel: &Kernel) -> Arc<Structure> {
        found(&self.structures, number, || Arc::new(Structure::of(kernel)))
    }

    /// What a kernel with these tiles takes of a core whose lanes multiply.
    pub(crate) fn by_lanes(
        &self,
        number: usize,
        tiles: Vec<usize>,
        of: impl FnOnce() -> Option<ByLanes>,
    ) -> Option<ByLanes> {
        found(&self.by_lanes, (number, tiles), of)
    }

    /// How a kernel with these tiles runs on a GPU's core, if it takes less than so many seconds.
    pub(crate) fn on_core(
        &self,
        number: usize,
        tiles: Vec<usize>,
        limit: f64,
        of: impl FnOnce() -> OnACore,
    ) -> OnACore {
        found(&self.on_cores, (number, tiles, limit.to_bits()), of)
    }
}

/// What is known by this key, worked out by the first who asks, and by others who ask before it is there: it comes to the same.
fn found<K: Eq + Hash, V: Clone>(known: &Mutex<FxHashMap<K, V>>, key: K, of: impl FnOnce() -> V) -> V {
    if let Some(found) = lock(known).get(&key) {
        return found.clone();
    }
    let found = of();
    lock(known).insert(key, found.clone());
    found
}

/// Maps are whole after a panic elsewhere too.
fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program of one kernel as text, whatever its names and the tiles of the free axes, with the axes that each free index has.
pub(crate) fn unnamed(program: &mut Program, free: &[Vec<AxisId>]) -> String {
    without_tiles(program, &free.concat(), |program| format!("{} {free:?}", alike(program, &program.kernels[0])))
}

fn without_tiles<T>(program: &mut Program, free: &[AxisId], f: impl FnOnce(&Program) -> T) -> T {
    let before: Vec<usize> = free.iter().map(|&a| program.kernels[0].axis(a).tile).collect();
    free.iter().for_each(|a| program.kernels[0].axes[a.at()].tile = 0);
    let found = f(program);
    free.iter().zip(before).for_each(|(a, tile)| program.kernels[0].axes[a.at()].tile = tile);
    found
}
