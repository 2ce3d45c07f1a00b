//! Which indices become two where chunks are side by side, and whether they can.

use crate::expr::{Atom, Coordinate, Expr, Exprs};
use crate::problem::{ItemDef, Loop, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use std::collections::{BTreeMap, BTreeSet};

/// Dimensions of arrays.
type Dims = BTreeSet<(NodeId, usize)>;

/// What is known before anything is changed.
pub(super) struct Found {
    /// The states, and along which dimension.
    pub states: BTreeMap<NodeId, usize>,
    /// Indices that follow a recurrence's chunk, with the recurrence's.
    pub tied: BTreeMap<IndexId, IndexId>,
    /// All indices that become two, these among them.
    pub group: BTreeSet<IndexId>,
    /// The dimensions that have one of them.
    pub dims: Dims,
    /// What has one value for each chunk, of which recurrence.
    pub each: BTreeMap<NodeId, IndexId>,
}

impl Problem {
    /// What becomes two, beginning with the indices of chunks.
    pub(super) fn in_chunks(&self, x: &Exprs) -> Result<Found, String> {
        let (mut states, mut tied) = (BTreeMap::new(), BTreeMap::new());
        for l in self.loops.iter().filter(|l| !l.within.is_empty()) {
            tied.extend(l.within.iter().chain([&l.index]).map(|&i| (i, l.index)));
            states.extend(l.members.iter().filter_map(|&m| match &self[m].def {
                ItemDef::Iterative(i) => Some((m, i.dim)),
                _ => None,
            }));
        }
        if states.is_empty() {
            return Err("no recurrence goes by chunks".to_string());
        }
        let mut group: BTreeSet<IndexId> = tied.keys().copied().collect();
        let mut dims = Dims::new();
        loop {
            let before = (group.len(), dims.len());
            for (k, item) in self.items.iter().enumerate() {
                for (d, i) in item.axes.iter().enumerate() {
                    let place = (NodeId(k as u32), d);
                    if group.contains(i) {
                        dims.insert(place);
                    } else if dims.contains(&place) {
                        group.insert(*i);
                    }
                }
            }
            self.each_read(x, &mut |n, at| {
                for (d, c) in at.iter().enumerate() {
                    match along(c).map(|a| a.0) {
                        Some(i) if group.contains(&i) => _ = dims.insert((n, d)),
                        Some(i) if dims.contains(&(n, d)) => _ = group.insert(i),
                        _ => {}
                    }
                }
            });
            if before == (group.len(), dims.len()) {
                break;
            }
        }
        let mut found = Found { states, tied, group, dims, each: BTreeMap::new() };
        found.each = self.one_each(&found, x)?;
        Ok(found)
    }

    /// What has one value for each chunk: reductions over the chunk at hand, and what is made of them, without a position in it.
    fn one_each(&self, found: &Found, x: &Exprs) -> Result<BTreeMap<NodeId, IndexId>, String> {
        let mut each: BTreeMap<NodeId, IndexId> = BTreeMap::new();
        loop {
            let before = each.len();
            for n in (0..self.items.len() as u32).map(NodeId) {
                let item = &self[n];
                let over = if let ItemDef::Fold(f) = &item.def { &f.over[..] } else { &[] };
                let bound = |i: &IndexId| found.tied.contains_key(i) && !self.is_within(*i);
                if found.states.contains_key(&n)
                    || item.axes.iter().any(|i| found.tied.contains_key(i))
                    || over.iter().any(bound)
                {
                    continue;
                }
                let mut of: BTreeSet<IndexId> = over.iter().filter_map(|i| found.tied.get(i)).copied().collect();
                let mut seen = BTreeSet::new();
                for e in self.parts(n) {
                    x.reads(e, &mut seen, &mut |m, _| of.extend(each.get(&m)));
                }
                of.extend(self.old_states(n, found, x));
                match of.len() {
                    0 => {}
                    1 => each.extend(of.into_iter().map(|t| (n, t))),
                    _ => return Err(format!("{} is made of chunks of two recurrences", item.name)),
                }
            }
            if before == each.len() {
                return Ok(each);
            }
        }
    }

    /// The recurrences whose states at the start of the chunk a node reads.
    fn old_states(&self, n: NodeId, found: &Found, x: &Exprs) -> BTreeSet<IndexId> {
        let (mut out, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut todo = self.parts(n);
        while let Some(e) = todo.pop() {
            if seen.insert(e) {
                if let Expr::Old(m) = x.get(e)
                    && let Some(&dim) = found.states.get(m)
                {
                    out.insert(self[*m].axes[dim]);
                }
                todo.extend(x.children(e));
            }
        }
        out
    }

    /// Whether an index runs over the chunk at hand.
    pub(super) fn is_within(&self, i: IndexId) -> bool {
        self.loops.iter().any(|l| l.within.contains(&i))
    }

    /// Why it cannot be as many positions each.
    pub(super) fn conditions_hold(&self, found: &Found, by: usize, x: &Exprs) -> Result<(), String> {
        let fits = |extent: usize| extent > 0 && extent.is_multiple_of(by);
        for &i in &found.group {
            let index = &self[i];
            if !fits(index.extent) || found.tied.contains_key(&i) && index.extent == by {
                return Err(format!("{} has {} positions, not some chunks of {by}", index.name, index.extent));
            }
        }
        for &(n, d) in &found.dims {
            let item = &self[n];
            let state = found.states.get(&n) == Some(&d);
            if !fits(item.extents[d] - usize::from(state)) {
                return Err(format!("{} has {} positions, not some chunks of {by}", item.name, item.extents[d]));
            }
            if matches!(item.def, ItemDef::Iterative(_)) && !state {
                return Err(format!("{} goes along it by its own recurrence", item.name));
            }
        }
        if let Some(n) = found.each.keys().find(|n| self.outputs.contains(n)) {
            return Err(format!("{} is wanted, of which every chunk has its own", self[*n].name));
        }
        let other = |l: &&Loop| l.within.is_empty() && !l.members.is_empty() && found.group.contains(&l.index);
        if let Some(l) = self.loops.iter().find(other) {
            return Err(format!("another recurrence goes along {}, position by position", self[l.index].name));
        }
        let mut refused = None;
        self.each_read(x, &mut |n, at| {
            if let Err(why) = self.may_read(n, at, found, by) {
                refused = refused.take().or(Some(format!("{} is read at {why}", self[n].name)));
            }
        });
        match refused {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn may_read(&self, n: NodeId, at: &[Coordinate], found: &Found, by: usize) -> Result<(), &'static str> {
        let item = &self[n];
        // The chunks that stand in the coordinates, once for dimensions of a node that share one.
        let (mut shared, mut chunks): (Option<Option<Coordinate>>, Vec<Coordinate>) = (None, vec![]);
        for (d, c) in at.iter().enumerate() {
            let mut inside = false;
            Exprs::coordinate_indices(c, &mut |i| inside |= found.group.contains(&i), &mut |_| {});
            if !found.dims.contains(&(n, d)) {
                if inside {
                    return Err("positions of several chunks");
                }
                continue;
            }
            let state = found.states.get(&n) == Some(&d);
            let ends = [0, item.extents[d] as i64 - 1];
            let chunk = match along(c).filter(|a| !state && found.group.contains(&a.0)) {
                Some((i, back, offset)) => {
                    let own = found.tied.get(&i).copied().unwrap_or(i);
                    Some(halves(own, own, back, offset, by as i64).ok_or("positions of several chunks")?.0)
                }
                None if c.as_fixed().is_some_and(|at| !state || ends.contains(&at)) => None,
                None => return Err("positions of several chunks"),
            };
            match item.axes.get(d).is_some_and(|i| found.tied.contains_key(i)) {
                false => chunks.extend(chunk),
                true => match &shared {
                    Some(other) if *other != chunk || chunk.is_none() => {
                        return Err("pairs of positions of different chunks");
                    }
                    Some(_) => {}
                    None => {
                        shared = Some(chunk.clone());
                        chunks.extend(chunk);
                    }
                },
            }
        }
        let distinct: BTreeSet<IndexId> = chunks.iter().filter_map(|c| Some(along(c)?.0)).collect();
        if distinct.len() < chunks.len() { Err("pairs of positions of one chunk") } else { Ok(()) }
    }
}

/// The index that a coordinate goes along, whether backwards, and where it begins.
pub(super) fn along(c: &Coordinate) -> Option<(IndexId, bool, i64)> {
    match c.terms.iter().next() {
        Some((Atom::Index(i), &by @ (1 | -1))) if c.terms.len() == 1 => Some((*i, by < 0, c.offset)),
        _ => None,
    }
}

/// Chunk and place of the positions that go along an index of two parts, if these begin and end with a chunk.
pub(super) fn halves(
    chunk: IndexId,
    within: IndexId,
    back: bool,
    offset: i64,
    by: i64,
) -> Option<(Coordinate, Coordinate)> {
    let (mut chunk, mut within) = (Coordinate::index(chunk), Coordinate::index(within));
    if back {
        [&mut chunk, &mut within].into_iter().flat_map(|c| c.terms.values_mut()).for_each(|factor| *factor = -1);
        within.offset = by - 1;
        chunk.offset = (offset + 1) / by - 1;
        return ((offset + 1) % by == 0).then_some((chunk, within));
    }
    chunk.offset = offset / by;
    (offset % by == 0).then_some((chunk, within))
}
