//! Recurrences whose step reads a slice at positions of another index, such as `sum(j) W[i,j] * H[t,j]` in the step
//! of `H[t+1,i]`, or an earlier slice, such as `H[t-1,i]`.
//!
//! A slice lives in tiles over the tensor's own indices, so the element `H[t,j]` is written as a selection,
//! `max(i: i == j) H[t,i]`, which is exact and is picked where all of `i` is there ([`crate::emit`]). An earlier slice is
//! kept by one more state per step back. No memory is needed inside the loop.

use crate::expr::{Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Fold, FoldMonoid, Index, Item, ItemDef, Iteration, Problem};
use crate::substitute::Substitution;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId, Role};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

impl Problem {
    /// Makes every read of a recurrence's member by another one plain, up to the recurrence's own index.
    pub(crate) fn straighten(&mut self, exprs: &mut Exprs) {
        for r in (0..self.loops.len()).filter(|&r| self.loops[r].within.is_empty()).collect::<Vec<_>>() {
            for m in self.loops[r].members.clone() {
                let mut s = Straightener { p: self, x: exprs, r, reader: m, memo: FxHashMap::default() };
                let def = match s.p[m].def.clone() {
                    ItemDef::Input => ItemDef::Input,
                    ItemDef::Map(e) => ItemDef::Map(s.expr(e)),
                    ItemDef::Fold(mut f) => {
                        f.body = s.expr(f.body);
                        f.filter = f.filter.iter().map(|&e| s.expr(e)).collect();
                        ItemDef::Fold(f)
                    }
                    ItemDef::Iterative(mut i) => {
                        i.step = s.expr(i.step);
                        ItemDef::Iterative(i)
                    }
                };
                self.items[m.0 as usize].def = def;
            }
        }
    }
}

impl Problem {
    /// Whether a recurrence needs this member in its loop: it is a state or a part of one, or another member reads it at other
    /// positions than those it is computed at. Any other one may be stored position by position, and read anywhere outside.
    pub(crate) fn stays_in_its_loop(&self, n: NodeId, exprs: &Exprs) -> bool {
        let item = &self[n];
        let Some(r) = item.recurrence.filter(|_| !matches!(item.def, ItemDef::Map(_))) else { return false };
        let mut elsewhere = item.internal || matches!(item.def, ItemDef::Iterative(_));
        let mut seen = BTreeSet::new();
        for e in self.loops[r].members.iter().flat_map(|&m| self.parts(m)) {
            exprs.reads(e, &mut seen, &mut |read, at| {
                let plain = at.iter().zip(&item.axes).all(|(c, &i)| c.as_index() == Some(i));
                elsewhere |= read == n && !plain;
            });
        }
        elsewhere
    }
}

struct Straightener<'a> {
    p: &'a mut Problem,
    x: &'a mut Exprs,
    r: usize,
    /// The member whose expression is rewritten.
    reader: NodeId,
    memo: FxHashMap<ExprId, ExprId>,
}

impl Straightener<'_> {
    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&done) = self.memo.get(&e) {
            return done;
        }
        let out = match self.x.get(e).clone() {
            Expr::Read(n, at) => {
                // What a read gathers by may be a member too.
                let at: Vec<Coordinate> = at.iter().map(|c| self.coordinate(c)).collect();
                let e = self.x.intern(Expr::Read(n, at.clone()));
                self.read(e, n, &at)
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

    fn coordinate(&mut self, c: &Coordinate) -> Coordinate {
        let mut values = vec![];
        Exprs::coordinate_values(c, &mut |v| values.push(v));
        let done: BTreeMap<ExprId, ExprId> = values.into_iter().map(|v| (v, self.expr(v))).collect();
        self.x.map_values(c, &mut |_, v| done[&v])
    }

    fn read(&mut self, e: ExprId, n: NodeId, at: &[Coordinate]) -> ExprId {
        let item = self.p[n].clone();
        if item.recurrence != Some(self.r) {
            return e;
        }
        let t = self.p.loops[self.r].index;
        let iterative = if let ItemDef::Iterative(i) = &item.def { Some(i.dim) } else { None };
        if let Some(dim) = iterative.or_else(|| item.axes.iter().position(|&i| i == t))
            && !matches!(item.def, ItemDef::Map(_))
            && let Some((i, back @ ..0)) = at[dim].as_shifted()
            && i == t
        {
            let kept = self.earlier(n, dim, back.unsigned_abs());
            let mut now = at.to_vec();
            now[dim] = Coordinate::index(t);
            let e = self.x.intern(Expr::Read(kept, now.clone()));
            return self.read(e, kept, &now);
        }
        let elsewhere: Vec<usize> =
            (0..at.len()).filter(|&k| Some(k) != iterative && at[k].as_index() != item.axes.get(k).copied()).collect();
        if elsewhere.is_empty() {
            return e;
        }
        if let ItemDef::Map(body) = item.def {
            let by: Substitution = item.axes.iter().copied().zip(at.iter().cloned()).collect();
            let value = self.x.substitute(body, &by);
            let value = item.dtype.map_or(value, |d| self.x.round(d, value));
            return self.expr(value);
        }
        // The member at its own positions, apart from the recurrence's index.
        if elsewhere.iter().any(|&k| item.axes[k] == t) {
            return e;
        }
        let own = |k: usize| if elsewhere.contains(&k) { Coordinate::index(item.axes[k]) } else { at[k].clone() };
        let plain: Vec<Coordinate> = (0..at.len()).map(own).collect();
        let mut value = self.x.intern(Expr::Read(n, plain));
        let mut from: Vec<IndexId> = elsewhere.iter().map(|&k| item.axes[k]).collect();
        // With those that stand in what is gathered by: `at[c]` is told in terms of c.
        let mut mentioned = BTreeSet::new();
        at.iter().for_each(|c| self.x.free_of_coordinate(c, &mut mentioned));
        // The wanted positions are told in terms of the very indices that the selection runs over: go by way of others.
        if from.iter().any(|i| mentioned.contains(i)) {
            let fresh: Vec<IndexId> = from.iter().map(|&i| self.fresh(i)).collect();
            let wanted: Vec<Coordinate> = fresh.iter().map(|&i| Coordinate::index(i)).collect();
            value = self.select(&item.name, value, &from, &wanted);
            from = fresh;
        }
        let wanted: Vec<Coordinate> = elsewhere.iter().map(|&k| at[k].clone()).collect();
        self.select(&item.name, value, &from, &wanted)
    }

    /// The member whose slice at `t` is that of `n` at `t - back`, and 0 before the start, where nothing may read it.
    fn earlier(&mut self, n: NodeId, dim: usize, back: u64) -> NodeId {
        let mut kept = n;
        for _ in 0..back {
            let step = self.x.plain(kept, &self.p[kept].axes);
            let zero = self.x.constant(0.0);
            let def = ItemDef::Iterative(Iteration { dim, initial: vec![(0, zero)], step });
            let same = |o: &Item| matches!((&o.def, &def), (ItemDef::Iterative(a), ItemDef::Iterative(b)) if a == b);
            kept = match self.p.items.iter().position(same) {
                Some(k) => NodeId(k as u32),
                None => {
                    let base = self.p[kept].clone();
                    let mut extents = base.extents.clone();
                    if !matches!(base.def, ItemDef::Iterative(_)) {
                        extents[dim] += 1;
                    }
                    let name = format!("{}.before", base.name);
                    self.member(Item { name, extents, def, role: Role::Intermediate, internal: true, ..base })
                }
            };
        }
        kept
    }

    /// A new member of the recurrence, computed before the one that reads it.
    fn member(&mut self, item: Item) -> NodeId {
        let id = NodeId(self.p.items.len() as u32);
        self.p.items.push(item);
        let members = &mut self.p.loops[self.r].members;
        let place = members.iter().position(|&m| m == self.reader).unwrap_or(members.len());
        members.insert(place, id);
        id
    }

    fn fresh(&mut self, like: IndexId) -> IndexId {
        let index = Index { name: format!("{}'", self.p[like].name), extent: self.p[like].extent };
        self.p.indices.push(index);
        IndexId(self.p.indices.len() as u32 - 1)
    }

    /// `max(from: from == wanted) value` as a new member of the recurrence, read at its own axes.
    fn select(&mut self, name: &str, value: ExprId, from: &[IndexId], wanted: &[Coordinate]) -> ExprId {
        let mut filter = vec![];
        for (&i, at) in from.iter().zip(wanted) {
            let (i, at) = (self.x.position(i), self.x.value_of(at));
            filter.push(self.x.binary(BinaryOp::Eq, i, at));
        }
        let mut free = BTreeSet::new();
        for &e in filter.iter().chain([&value]) {
            self.x.free_of_nodes(e, &mut free);
        }
        from.iter().for_each(|i| {
            free.remove(i);
        });
        let axes: Vec<IndexId> = free.into_iter().collect();
        let fold =
            Fold { monoid: FoldMonoid::Max, over: from.to_vec(), filter, body: value, anchors: vec![], repair: None };
        let item = Item {
            name: format!("{name}.at"),
            extents: axes.iter().map(|&i| self.p[i].extent).collect(),
            axes: axes.clone(),
            shape: None,
            def: ItemDef::Fold(fold),
            dtype: None,
            role: Role::Intermediate,
            statement: self.p[self.reader].statement,
            recurrence: Some(self.r),
            internal: true,
            stored: false,
            at: None,
        };
        let same = |o: &Item| {
            o.axes == item.axes && matches!((&o.def, &item.def), (ItemDef::Fold(a), ItemDef::Fold(b)) if a == b)
        };
        let known = self.p.items.iter().position(same);
        let id = known.map(|k| NodeId(k as u32)).unwrap_or_else(|| self.member(item));
        self.x.plain(id, &axes)
    }
}

impl Exprs {
    /// The indices that stand in an expression itself.
    fn free_of_nodes(&self, e: ExprId, out: &mut BTreeSet<IndexId>) {
        match self.get(e) {
            Expr::Position(i) => {
                out.insert(*i);
            }
            Expr::Within(all) => all.iter().for_each(|l| out.extend(l.terms.keys())),
            Expr::Read(_, at) => at.iter().for_each(|c| self.free_of_coordinate(c, out)),
            _ => self.children(e).into_iter().for_each(|c| self.free_of_nodes(c, out)),
        }
    }

    /// The indices that stand in a coordinate, also in what it gathers by.
    fn free_of_coordinate(&self, c: &Coordinate, out: &mut BTreeSet<IndexId>) {
        let mut values = vec![];
        Self::coordinate_indices(c, &mut |i| _ = out.insert(i), &mut |v| values.push(v));
        values.into_iter().for_each(|v| self.free_of_nodes(v, out));
    }
}
