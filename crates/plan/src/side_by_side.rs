//! Chunks of a recurrence side by side: states at the starts of all chunks go through memory, and what reads them is computed
//! for every chunk by itself.
//!
//! A recurrence by chunks ([`crate::chunks`]) is one loop over the chunks of `t`; its grid has the other indices alone, and cores are
//! idle where these are few. With two indices for one, `t = t_chunk·C + t_within`, what a chunk adds to a state, `H.added[t_chunk, …]`, is a
//! reduction like any other; the states, `H[t_chunk+1] = decay[t_chunk]·H[t_chunk] + H.added[t_chunk]`, are a
//! recurrence that goes position by position over the chunks and does little; and all else reads `H[t_chunk]` from memory, with the
//! chunks on its grid: three kernels, as Dao and Gu (2024, section 6) have for Mamba-2. It moves the states twice and may compute parts of a chunk again, so it is
//! planned beside the loop, and the faster one by prediction is taken.
//!
//! Conditions, without which chunks follow each other: a chunk's length divides the extents of all that has the index, or is read by
//! an index that shares an array's dimension with it; these dimensions are read along such indices alone, in either direction and by whole chunks, or at a fixed position, and a state at
//! its first or last; no other recurrence goes along one of them; none is read at pairs of positions of one chunk, unless it is computed for these.

mod conditions;
mod narrow;

use crate::assembled::Stored;
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs, Linear};
use crate::problem::{Fold, FoldMonoid, Index, ItemDef, Loop, Problem};
use crate::quotients::Split;
use crate::types::Types;
use conditions::{Found, along, halves};
use einloom_algebra::NodeId;
use einloom_cascade::{IndexId, Role};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// An index that becomes two.
#[derive(Clone, Copy, Debug)]
struct Two {
    /// Which chunk. The indices within a recurrence's chunk share its own.
    chunk: IndexId,
    /// Where in the chunk.
    within: IndexId,
}

impl Problem {
    /// Puts the chunks of all recurrences that go by chunks side by side, as many positions each as the problem has. Says which indices are two.
    ///
    /// With `liberty` to round, states go through memory in the type in which they are multiplied.
    ///
    /// # Errors
    /// The condition that fails; nothing is changed then.
    pub(crate) fn side_by_side(
        &mut self,
        x: &mut Exprs,
        types: &mut Types,
        liberty: bool,
    ) -> Result<Vec<Split>, String> {
        let by = self.chunk;
        let found = self.in_chunks(x)?;
        self.conditions_hold(&found, by, x)?;
        let mut two: BTreeMap<IndexId, Two> = BTreeMap::new();
        let mut splits = vec![];
        for &i in &found.group {
            let written = self[i].clone();
            let name = |end: &str| self.fresh_name(&format!("{}_{end}", written.name));
            let split = Split { index: written.name.clone(), outer: name("chunk"), inner: name("within"), by };
            let within = IndexId(self.indices.len() as u32);
            self.indices.push(Index { name: split.inner.clone(), extent: by });
            let chunk = found.tied.get(&i).copied().unwrap_or(i);
            two.insert(i, Two { chunk, within });
            if chunk == i {
                self.indices[i.0 as usize] = Index { name: split.outer.clone(), extent: written.extent / by };
                splits.push(split);
            }
        }
        let mut apart = Apart { by: by as i64, p: self, found: &found, two: &two, x, memo: FxHashMap::default() };
        let defs: Vec<ItemDef> = apart.p.items.iter().map(|i| i.def.clone()).collect();
        let defs: Vec<ItemDef> = defs.into_iter().map(|d| apart.def(d)).collect();
        for (k, def) in defs.into_iter().enumerate() {
            self.items[k].def = def;
            self.split_item(NodeId(k as u32), &found, &two, by);
        }
        let chunked = |l: &Loop| !l.within.is_empty();
        for k in (0..self.loops.len()).filter(|&k| chunked(&self.loops[k])).collect::<Vec<_>>() {
            let members = std::mem::take(&mut self.loops[k].members);
            let (states, others): (Vec<NodeId>, Vec<NodeId>) =
                members.into_iter().partition(|m| found.states.contains_key(m));
            for &m in &others {
                let item = &mut self.items[m.0 as usize];
                (item.internal, item.recurrence) = (false, None);
            }
            self.loops[k].within.clear();
            for (level, states) in self.levels(&states, x).into_iter().enumerate() {
                let own = if level == 0 { k } else { self.loops.len() };
                if level > 0 {
                    self.loops.push(Loop { index: self.loops[k].index, members: vec![], within: vec![] });
                }
                for &h in &states {
                    let item = &mut self.items[h.0 as usize];
                    // They go through memory: else chunks would follow each other again.
                    (item.internal, item.stored, item.recurrence) = (false, true, Some(own));
                }
                self.loops[own].members = states;
            }
        }
        // What the states are made of as well: its chunks are what runs side by side.
        for &h in found.states.keys() {
            for n in self.needs(h, x) {
                let item = &mut self.items[n.0 as usize];
                item.stored |= found.each.contains_key(&n) && matches!(item.def, ItemDef::Fold(_));
            }
        }
        for &h in found.states.keys().filter(|_| liberty) {
            self.narrow(h, x, types);
        }
        self.order = self.topological(x);
        Ok(splits)
    }

    /// States of one recurrence in sets that follow each other: what a chunk adds to one may be made of another's at the starts of
    /// all chunks, which then are to be known before. Those that need each other stay together.
    fn levels(&self, states: &[NodeId], x: &Exprs) -> Vec<Vec<NodeId>> {
        let below = |h: NodeId| {
            let (mut todo, mut seen) = (vec![h], BTreeSet::new());
            while let Some(n) = todo.pop() {
                todo.extend(self.needs(n, x).into_iter().filter(|&m| seen.insert(m)));
            }
            seen
        };
        let below: Vec<BTreeSet<NodeId>> = states.iter().map(|&h| below(h)).collect();
        let needs = |h: usize, of: usize| below[h].contains(&states[of]);
        let mut levels = vec![0; states.len()];
        // As many times as the longest chain has states.
        for _ in states {
            for h in 0..states.len() {
                let all = (0..states.len()).filter(|&o| needs(h, o));
                let level = all.map(|o| levels[o] + usize::from(!needs(o, h))).max();
                levels[h] = level.unwrap_or(0).max(levels[h]);
            }
        }
        let mut out = vec![vec![]; levels.iter().max().map_or(0, |most| most + 1)];
        for (h, &level) in levels.iter().enumerate() {
            out[level].push(states[h]);
        }
        out
    }

    /// Its axes and extents, two for one.
    fn split_item(&mut self, n: NodeId, found: &Found, two: &BTreeMap<IndexId, Two>, by: usize) {
        let count = |p: &Self, t: IndexId| p[t].extent;
        let (axes, extents) = (self[n].axes.clone(), self[n].extents.clone());
        let (mut new_axes, mut new_extents) = (vec![], vec![]);
        // In front, so that what was contiguous is.
        if let Some(&t) = found.each.get(&n) {
            new_axes.push(t);
            new_extents.push(count(self, t));
        }
        let mut shared = false;
        for (d, &extent) in extents.iter().enumerate() {
            let axis = axes.get(d).copied();
            if !found.dims.contains(&(n, d)) {
                new_axes.extend(axis);
                new_extents.push(extent);
                continue;
            }
            if found.states.get(&n) == Some(&d) {
                new_axes.extend(axis);
                new_extents.push((extent - 1) / by + 1);
                continue;
            }
            let tied = axis.is_some_and(|i| found.tied.contains_key(&i));
            if !(tied && shared) {
                new_axes.extend(axis.and_then(|i| two.get(&i)).map(|t| t.chunk));
                new_extents.push(extent / by);
            }
            shared |= tied;
            new_axes.extend(axis.and_then(|i| two.get(&i)).map(|t| t.within));
            new_extents.push(by);
        }
        let item = &mut self.items[n.0 as usize];
        match &mut item.at {
            // Its tensor stays as it is.
            Some(Stored::Later(later)) => later.by = found.dims.contains(&(n, later.dim)).then_some(by),
            _ if item.role != Role::Intermediate && new_extents.len() > extents.len() => {
                item.shape.get_or_insert(extents);
            }
            _ => {}
        }
        (item.axes, item.extents) = (new_axes, new_extents);
    }
}

/// Expressions with two indices for one.
struct Apart<'a> {
    by: i64,
    p: &'a Problem,
    found: &'a Found,
    two: &'a BTreeMap<IndexId, Two>,
    x: &'a mut Exprs,
    memo: FxHashMap<ExprId, ExprId>,
}

impl Apart<'_> {
    fn def(&mut self, mut def: ItemDef) -> ItemDef {
        def.map(&mut |e| self.expr(e));
        if let ItemDef::Fold(fold) = &mut def {
            let parts = |i: &IndexId| match self.two.get(i) {
                None => vec![*i],
                Some(t) if self.p.is_within(*i) => vec![t.within],
                Some(t) => vec![t.chunk, t.within],
            };
            fold.over = fold.over.iter().flat_map(parts).collect();
            fold.filter.retain(|&f| self.x.as_const(f).is_none_or(|c| c == 0.0));
            if let Some(end) = self.end(fold) {
                return ItemDef::Map(end);
            }
        }
        def
    }

    /// An extremum of positions of a chunk, such as its first one: known where the chunk is.
    fn end(&mut self, fold: &Fold) -> Option<ExprId> {
        let [over] = fold.over[..] else { return None };
        let (form, _) = self.x.affine(fold.body).filter(|_| fold.filter.is_empty() && fold.anchors.is_empty())?;
        let up = *form.terms.get(&over)? > 0;
        let first = match fold.monoid {
            FoldMonoid::Min => up,
            FoldMonoid::Max => !up,
            _ => return None,
        };
        let within = self.two.values().any(|t| t.within == over);
        let at = Coordinate::fixed(if first { 0 } else { self.by - 1 });
        within.then(|| self.x.substitute(fold.body, &[(over, at)].into()))
    }

    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&done) = self.memo.get(&e) {
            return done;
        }
        let out = match self.x.get(e).clone() {
            Expr::Position(_) | Expr::Within(_) => {
                let position = |(&i, t): (&IndexId, &Two)| {
                    let mut at = Coordinate::default();
                    at.push(self.by, Atom::Index(t.chunk));
                    at.push(1, Atom::Index(t.within));
                    (i, at)
                };
                let all = self.two.iter().map(position).collect();
                let made = self.x.substitute(e, &all);
                self.without_truths(made)
            }
            // At the start of the chunk: where the recurrence over chunks is.
            Expr::Old(n) if self.found.states.contains_key(&n) => self.x.plain(n, &self.p[n].axes),
            Expr::Read(n, at) => {
                let at = self.places(n, &at);
                self.x.intern(Expr::Read(n, at))
            }
            _ => {
                let done: BTreeMap<ExprId, ExprId> =
                    self.x.children(e).into_iter().map(|c| (c, self.expr(c))).collect();
                self.x.rebuild(e, &mut |_, c| done[&c])
            }
        };
        self.memo.insert(e, out);
        out
    }

    /// A condition without what holds wherever its indices are: chunks end where the array does.
    fn without_truths(&mut self, e: ExprId) -> ExprId {
        let Expr::Within(all) = self.x.get(e) else { return e };
        let least = |form: &Linear| {
            let most = |i: IndexId| self.p[i].extent as i64 - 1;
            form.terms.iter().map(|(&i, &c)| c.min(0) * most(i)).sum::<i64>() + form.constant
        };
        let open: Vec<Linear> = all.iter().filter(|form| least(form) < 0).cloned().collect();
        if open.is_empty() { self.x.constant(1.0) } else { self.x.intern(Expr::Within(open)) }
    }

    /// Where a node is read, with a chunk and a place in it for a position.
    fn places(&mut self, n: NodeId, at: &[Coordinate]) -> Vec<Coordinate> {
        let mut out: Vec<Coordinate> = self.found.each.get(&n).map(|&t| Coordinate::index(t)).into_iter().collect();
        let mut shared = false;
        for (d, c) in at.iter().enumerate() {
            if !self.found.dims.contains(&(n, d)) {
                out.push(self.coordinate(c));
                continue;
            }
            let two = along(c).and_then(|(i, back, offset)| {
                let t = self.two.get(&i)?;
                halves(t.chunk, t.within, back, offset, self.by)
            });
            let (chunk, within) = match two {
                Some(two) => two,
                // The conditions leave fixed positions alone.
                None => {
                    let at = c.as_fixed().unwrap_or_default();
                    (Coordinate::fixed(at.div_euclid(self.by)), Coordinate::fixed(at.rem_euclid(self.by)))
                }
            };
            if self.found.states.get(&n) == Some(&d) {
                out.push(chunk);
                continue;
            }
            let tied = self.p[n].axes.get(d).is_some_and(|i| self.found.tied.contains_key(i));
            if !(tied && shared) {
                out.push(chunk);
            }
            shared |= tied;
            out.push(within);
        }
        out
    }

    fn coordinate(&mut self, c: &Coordinate) -> Coordinate {
        let mut values = vec![];
        Exprs::coordinate_values(c, &mut |v| values.push(v));
        let done: BTreeMap<ExprId, ExprId> = values.into_iter().map(|v| (v, self.expr(v))).collect();
        self.x.map_values(c, &mut |_, v| done[&v])
    }
}
