//! The ways to write a kernel for a machine whose innermost memory counts elements: which reduced indices are whole in it and which
//! are streamed, and which are visited one by one where a tile would have too many sides.
//!
//! Every set of whole indices makes a kernel of its own, and to write kernels down is a large part of planning. So one more index is whole
//! only beside a set that gained by its last: see [`Wholes`].

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::frame::CLOSE;
use crate::template::{Shape, shape};
use crate::written::Attempts;
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use einloom_tile::{AxisKind, Kernel};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Indices of loops that are each taken whole or streamed, at most.
const MOST_CHOICES: usize = 4;
/// Sets of whole indices that are looked at, times the tiles of the kernel that is written for each, are about so many at most: of large kernels the sets that
/// extend those that move least. Of 70 plans of a layer and 450 others none is predicted to take longer by that.
const MOST_WRITTEN: usize = 3072;
/// Reduced indices of a kernel, at most, of which each is tried in the place of an index of the grid that gave way.
const MOST_CROWDED: usize = 2;
/// A style in which only tiles that are asked for matter.
pub(crate) const WHATEVER: Style = Style {
    rows: 2,
    cols: 2,
    stream: 2,
    whole: 1,
    whole_stored: 1,
    steps: [1, 1],
    even: true,
    parallel_first: false,
    open: true,
};

/// A kernel and the indices whose tiles are to be found.
pub(crate) type Way = (Tried, Vec<IndexId>);

/// What is known while the ways to write one kernel are gone through.
#[derive(Clone, Default)]
pub(crate) struct Writing {
    pub attempts: Attempts,
    /// How indices are cut by what was asked for: some are cut in the same way whatever that is.
    asked: BTreeSet<Shape>,
    /// The free indices of what was written, and those that are whole.
    written: BTreeSet<(Vec<IndexId>, Vec<IndexId>)>,
    /// Why one way cannot be written.
    pub failed: Option<PlanError>,
}

impl Writing {
    pub(crate) fn knowing(attempts: Attempts) -> Self {
        Self { attempts, ..Self::default() }
    }
}

/// Which sets of reduced indices are whole, in rounds.
///
/// A set with one more index than another is looked at if that one moves less, at a glance, than all that have one less, or is empty, and no more than
/// [`CLOSE`] times the best of its round: what an index gains by being whole it seldom needs two others for. Of 450 plans none was predicted to take
/// longer than with all sets; if only the best of a round was followed, two took 15 % longer.
#[derive(Debug)]
pub(crate) struct Wholes {
    /// Indices that may be whole.
    open: Vec<IndexId>,
    /// Bytes that sets move, by their members as bits.
    moved: BTreeMap<usize, u64>,
    round: Vec<usize>,
    /// Whether this is the last round.
    last: bool,
}

impl Wholes {
    fn new(open: Vec<IndexId>) -> Self {
        Self { open, moved: BTreeMap::new(), round: vec![0], last: false }
    }

    /// The sets to look at now; none at the end.
    pub(crate) fn round(&self) -> &[usize] {
        &self.round
    }

    /// Goes on to the next round, given what each set of this one moves, and how many tiles the kernels have.
    pub(crate) fn go_on(&mut self, moved: &[u64], tiles: usize) {
        let round = std::mem::take(&mut self.round);
        self.moved.extend(round.iter().copied().zip(moved.iter().copied()));
        if self.last {
            return;
        }
        let best = moved.iter().min().map_or(0.0, |&bytes| CLOSE * bytes as f64);
        let without =
            |set: usize| (0..self.open.len()).filter(move |k| set >> k & 1 == 1).map(move |k| set & !(1 << k));
        let gains = |&set: &usize| {
            let bytes = self.moved[&set];
            let before = without(set).filter_map(|less| self.moved.get(&less)).min();
            bytes as f64 <= best && before.is_none_or(|before| bytes < *before)
        };
        let more = |set: usize| (0..self.open.len()).map(move |k| set | 1 << k);
        let mut gained: Vec<usize> = round.into_iter().filter(gains).collect();
        gained.sort_by_key(|set| self.moved[set]);
        let mut next: Vec<usize> = vec![];
        for set in gained.into_iter().flat_map(more) {
            if !self.moved.contains_key(&set) && !next.contains(&set) {
                next.push(set);
            }
        }
        next.truncate((MOST_WRITTEN / tiles.max(1)).saturating_sub(self.moved.len()));
        next.sort_unstable();
        self.round = next;
    }

    /// All sets.
    fn all(&self) -> Vec<usize> {
        (0..1 << self.open.len()).collect()
    }
}

impl Workshop<'_> {
    /// The sets of indices that are whole in some of these kernels, and in any of them; of none, all that may be.
    pub(crate) fn wholes(&self, roles: &Roles, like: &[&Kernel]) -> Wholes {
        let mut wholes = self.all_wholes(roles);
        let set = |kernel: &&Kernel| {
            let whole =
                |i: &IndexId| kernel.axes.iter().any(|a| a.kind == AxisKind::Whole && a.name == self.p[*i].name);
            wholes.open.iter().enumerate().filter(|(_, i)| whole(i)).map(|(k, _)| 1 << k).sum()
        };
        let mut sets: BTreeSet<usize> = like.iter().map(set).collect();
        if !sets.is_empty() {
            sets.insert(sets.iter().fold(0, |all, set| all | set));
            (wholes.round, wholes.last) = (sets.into_iter().collect(), true);
        }
        wholes
    }

    fn all_wholes(&self, roles: &Roles) -> Wholes {
        let given = &self.options.tiles;
        let open = |i: &&IndexId| !given.contains_key(&self.p[**i].name) && self.p[**i].extent > 1;
        Wholes::new(roles.inner.iter().filter(open).take(MOST_CHOICES).copied().collect())
    }

    /// The ways to write a chosen kernel.
    pub(crate) fn written(&mut self, roots: &[NodeId], cone: &Cone) -> Vec<Kernel> {
        let roles = Roles::new(self.p, self.x, cone);
        let name = self.kernel_name(roots);
        let all = self.all_wholes(&roles).all();
        let ways = self.ways_with(cone, &roles, &name, &self.all_wholes(&roles), &all, &mut Writing::default());
        ways.into_iter().map(|(tried, _)| tried.kernel).collect()
    }

    /// The ways to write a kernel in which some of these sets of indices are whole, for each of them.
    pub(crate) fn ways_of_each(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        wholes: &Wholes,
        writing: &mut Writing,
    ) -> Vec<Vec<Way>> {
        // What the first lowers serves the others.
        let first = if wholes.round().len() == 1 || writing.attempts.is_empty() { 1 } else { 0 };
        let (alone, beside) = wholes.round().split_at(first);
        let mut out: Vec<Vec<Way>> =
            alone.iter().map(|&set| self.ways_with(cone, roles, name, wholes, &[set], writing)).collect();
        let before = &*writing;
        let found = self.side_by_side(beside, |shop, &set| {
            let mut writing = before.clone();
            (shop.ways_with(cone, roles, name, wholes, &[set], &mut writing), writing.failed)
        });
        let new = |(ways, failed): (Vec<Way>, Option<PlanError>)| {
            if writing.failed.is_none() {
                writing.failed = failed;
            }
            ways.into_iter().filter(|way| writing.written.insert(whole_and_free(way))).collect()
        };
        out.extend(found.into_iter().map(new));
        out
    }

    /// The ways to write a kernel in which one of these sets of indices is whole.
    pub(crate) fn ways_with(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        wholes: &Wholes,
        sets: &[usize],
        writing: &mut Writing,
    ) -> Vec<Way> {
        let mut ways = vec![];
        let mut asked: VecDeque<BTreeMap<String, usize>> = sets.iter().map(|&set| self.tiles_of(wholes, set)).collect();
        while let Some(tiles) = asked.pop_front() {
            if !writing.asked.insert(shape(false, &roles.tiling(self.p, &WHATEVER, &BTreeSet::new(), &tiles))) {
                continue;
            }
            for parallel_first in [false, true] {
                let style = Style { parallel_first, ..WHATEVER };
                let wish = (&style, &tiles);
                let (tried, is_new) = match self.emit_once(cone, roles, wish, name, &mut writing.attempts, true) {
                    Ok(found) => found,
                    Err(e) => {
                        writing.failed.get_or_insert(e);
                        continue;
                    }
                };
                asked.extend(self.others_one_by_one(roles, &tried, &tiles));
                let only = !tried.choice;
                let free = self.free(roles, &tried);
                let way = (tried, free);
                if is_new && writing.written.insert(whole_and_free(&way)) {
                    ways.push(way);
                }
                // The other index would be the same one.
                if only {
                    break;
                }
            }
        }
        ways
    }

    /// Where a reduced index is visited one by one, for tiles have two axes: the same with each of the others in its place; and with each of all where an
    /// index of the grid is, which a reduced one may take the place of; and with another of the grid. Which of them should be depends on what is read again, which only the search
    /// for tiles knows.
    fn others_one_by_one(
        &self,
        roles: &Roles,
        tried: &Tried,
        tiles: &BTreeMap<String, usize>,
    ) -> Vec<BTreeMap<String, usize>> {
        let given = |i: &IndexId| tiles.contains_key(&self.p[*i].name);
        let one = |&i: &IndexId| {
            let with = [(self.p[i].name.clone(), 1)];
            tiles.clone().into_iter().chain(with).collect()
        };
        // One of the grid is put in another's place once.
        let rivals = tried.rivals.iter().filter(|i| !roles.grid.iter().any(given) && self.p[**i].extent > 1);
        let rivals = rivals.map(one);
        let crowded = tried.crowded && roles.inner.len() <= MOST_CROWDED;
        if !crowded && !tried.demoted.iter().any(|i| roles.inner.contains(i)) {
            return rivals.collect();
        }
        let open = |i: &&IndexId| {
            let gave_way = tried.demoted.contains(i) && !crowded;
            self.p[**i].extent > 1 && !gave_way && !roles.state.contains(i) && !given(i)
        };
        roles.inner.iter().filter(open).map(one).chain(rivals).collect()
    }

    /// A set of whole indices as tiles by name, beside those that are given.
    fn tiles_of(&self, wholes: &Wholes, set: usize) -> BTreeMap<String, usize> {
        let whole = wholes.open.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1);
        let tiles = whole.map(|(_, &i)| (self.p[i].name.clone(), self.p[i].extent));
        self.options.tiles.clone().into_iter().chain(tiles).collect()
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
}

fn whole_and_free((tried, free): &Way) -> (Vec<IndexId>, Vec<IndexId>) {
    let whole = tried.tiling.cuts.iter().filter(|c| c.1.kind == AxisKind::Whole).map(|c| *c.0);
    (free.clone(), whole.collect())
}
