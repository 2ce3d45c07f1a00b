//! Indices that always go together become one, such as `b` and `m` of `Y[b,m,n] = sum(k) X[b,m,k] * W[k,n]`.
//!
//! A tile has rows and columns, and rows of one index: with few positions `m` to each `b` they are few, and what has neither
//! index, `W`, is read again for each `b`. As one index `b_m` all that share it are rows. Queries of several heads that share
//! keys are the same, once the heads are two indices ([`crate::quotients`]).
//!
//! Conditions, without which two indices stay apart: every array that carries one of them carries both, whole and the second
//! right behind the first, and is read at their own positions; nothing else is read by them, no recurrence is along them and no
//! reduction over them; and a reduction reads an array with both and one with neither. Where a condition speaks of them
//! loops are bounded by what holds for some of their positions, and which they are is tested element by element: then the second has
//! few positions. And arrays of a caller are dense
//! ([`Merging::Never`](crate::Merging)): else the two are not one index of memory.

use crate::expr::{Coordinate, Expr, ExprId, Exprs, Linear};
use crate::problem::{Index, Item, ItemDef, Problem};
use crate::quotients::Carried;
use crate::substitute::Substitution;
use crate::{Merging, Options};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Positions of the second index up to which conditions are tested element by element: rows of a tile are as many by
/// themselves otherwise.
const FEW: usize = 64;
/// Positions of both at most, so that each is exact in f32 where a condition speaks of it.
const EXACT: usize = 1 << 24;

/// Two indices that are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The indices, such as `b` and `m`; one may itself be of two.
    pub of: [String; 2],
    /// What they are called, such as `b_m`.
    pub index: String,
    /// Positions of the second.
    pub by: usize,
}

impl Options {
    /// The same for a program in which these indices are one whatever is asked for: tiles of two are one of as many positions.
    pub(crate) fn in_one(&self, merges: &[Merge]) -> Self {
        let mut out = self.clone();
        for merge in merges.iter().filter(|_| self.merge == Merging::Always) {
            let tiles: Vec<usize> = merge.of.iter().filter_map(|i| out.tiles.remove(i)).collect();
            if !tiles.is_empty() {
                out.tiles
                    .entry(merge.index.clone())
                    .or_insert(tiles.iter().fold(1, |all, tile| all.saturating_mul(*tile)));
            }
        }
        out
    }
}

impl Problem {
    /// Makes one of every two indices for which the conditions hold; says which.
    pub(crate) fn merge_indices(&mut self, x: &mut Exprs) -> Vec<Merge> {
        let mut merges = vec![];
        while let Some(pair) = self.together(x) {
            merges.push(self.merge(pair, x));
        }
        if !merges.is_empty() {
            self.order = self.topological(x);
        }
        merges
    }

    fn together(&self, x: &Exprs) -> Option<[IndexId; 2]> {
        let carried = self.carried(x);
        let mut apart: BTreeSet<IndexId> = BTreeSet::new();
        for (k, item) in self.items.iter().enumerate() {
            for (d, &extent) in item.extents.iter().enumerate() {
                if let Some(&i) = carried.get(&(NodeId(k as u32), d))
                    && extent != self[i].extent
                {
                    apart.insert(i);
                }
            }
            if let ItemDef::Fold(fold) = &item.def {
                apart.extend(&fold.over);
            }
            apart.extend(item.axes.iter().filter(|_| item.at.is_some()));
        }
        for l in &self.loops {
            apart.extend(l.within.iter().chain([&l.index]));
        }
        self.each_read(x, &mut |n, at| {
            for (d, c) in at.iter().enumerate() {
                let own = carried.get(&(n, d)).copied();
                if own.is_none() || c.as_index() != own {
                    apart.extend(own);
                    Exprs::coordinate_indices(c, &mut |i| _ = apart.insert(i), &mut |_| {});
                }
            }
        });
        let several = |i: IndexId| self[i].extent > 1 && !apart.contains(&i);
        let mut followers: BTreeMap<IndexId, BTreeSet<Option<IndexId>>> = BTreeMap::new();
        for (&(n, d), &i) in &carried {
            followers.entry(i).or_default().insert(carried.get(&(n, d + 1)).copied());
        }
        // In as many places: where the second is, the first is before it.
        let places = |i: IndexId| carried.values().filter(|&&c| c == i).count();
        let conditions = self.conditions(x);
        followers.into_iter().find_map(|(first, next)| {
            let mut next = next.into_iter();
            let (Some(Some(second)), None) = (next.next(), next.next()) else { return None };
            let pair = [first, second];
            let positions = self[first].extent.checked_mul(self[second].extent)?;
            let few = self[second].extent <= FEW && positions <= EXACT;
            let fits = first != second
                && pair.into_iter().all(several)
                && places(first) == places(second)
                && (few || !pair.iter().any(|i| conditions.contains(i)))
                && self.is_shared_by(pair, &carried, x);
            fits.then_some(pair)
        })
    }

    /// The indices whose positions are read, or stand in a condition.
    fn conditions(&self, x: &Exprs) -> BTreeSet<IndexId> {
        let mut out = BTreeSet::new();
        let mut todo: Vec<ExprId> = (0..self.items.len() as u32).flat_map(|k| self.parts(NodeId(k))).collect();
        let mut seen = BTreeSet::new();
        while let Some(e) = todo.pop() {
            if !seen.insert(e) {
                continue;
            }
            match x.get(e) {
                Expr::Position(i) => _ = out.insert(*i),
                Expr::Within(all) => out.extend(all.iter().flat_map(|l: &Linear| l.terms.keys().copied())),
                Expr::Read(_, at) => {
                    at.iter().for_each(|c| Exprs::coordinate_values(c, &mut |v| todo.push(v)));
                }
                _ => todo.extend(x.children(e)),
            }
        }
        out
    }

    /// Whether a reduction reads an array with both indices and one with neither.
    fn is_shared_by(&self, pair: [IndexId; 2], carried: &Carried, x: &Exprs) -> bool {
        self.items.iter().any(|item| {
            let ItemDef::Fold(fold) = &item.def else { return false };
            let (mut with, mut without) = (false, false);
            x.reads(fold.body, &mut BTreeSet::new(), &mut |n, at| {
                let own: Vec<IndexId> = (0..at.len()).filter_map(|d| carried.get(&(n, d)).copied()).collect();
                with |= pair.iter().all(|i| own.contains(i));
                without |= own.iter().any(|i| fold.over.contains(i)) && !pair.iter().any(|i| own.contains(i));
            });
            with && without
        })
    }

    fn merge(&mut self, [first, second]: [IndexId; 2], x: &mut Exprs) -> Merge {
        let of = [first, second].map(|i| self[i].name.clone());
        let by = self[second].extent;
        let name = self.fresh_name(&of.join("_"));
        let merge = Merge { of, index: name.clone(), by };
        let extents = [first, second].map(|i| (i, self[i].extent)).into();
        let extent = self[first].extent * by;
        let carried = self.carried(x);
        // The first takes the place of both; nothing has the second any more.
        self.indices[first.0 as usize] = Index { name, extent };
        let (both, by) = (Coordinate::index(first), by as i64);
        let mut quotient = Coordinate::default();
        quotient.push(1, crate::expr::Atom::Floor(Box::new(both.clone()), by));
        let mut remainder = both;
        remainder.add_scaled(&quotient, -by);
        let positions: Substitution = [(first, quotient), (second, remainder)].into();
        let (tested, indices) = (BTreeSet::new(), self.indices.clone());
        let memo = FxHashMap::default();
        let mut one = One {
            second,
            carried: &carried,
            positions: &positions,
            extents: &extents,
            indices: &indices,
            tested,
            x,
            memo,
        };
        self.map(&mut |e| one.expr(e));
        let before: Vec<ExprId> = self.tested.iter().map(|&e| one.expr(e)).collect();
        let mut tested = one.tested;
        tested.extend(before);
        for item in &mut self.items {
            if let ItemDef::Fold(fold) = &mut item.def {
                fold.filter = fold.filter.iter().flat_map(|&f| x.conjuncts(f)).collect();
            }
        }
        self.tested = tested;
        for &(n, d) in carried.iter().rev().filter(|&(_, i)| *i == second).map(|(place, _)| place) {
            self.items[n.0 as usize].merge(d - 1);
        }
        merge
    }
}

impl Item {
    /// Makes one of a dimension and the next.
    fn merge(&mut self, d: usize) {
        self.shape.get_or_insert_with(|| self.extents.clone());
        self.extents[d] *= self.extents.remove(d + 1);
        if !self.axes.is_empty() {
            self.axes.remove(d + 1);
        }
        if let ItemDef::Iterative(i) = &mut self.def
            && i.dim > d
        {
            i.dim -= 1;
        }
    }
}

/// Expressions in which two indices are one.
struct One<'a> {
    second: IndexId,
    /// The dimensions that have an index.
    carried: &'a Carried,
    /// What the two are of the one.
    positions: &'a Substitution,
    indices: &'a [Index],
    /// How many each had.
    extents: &'a BTreeMap<IndexId, usize>,
    /// Conditions that bound no loop.
    tested: BTreeSet<ExprId>,
    x: &'a mut Exprs,
    memo: FxHashMap<ExprId, ExprId>,
}

impl One<'_> {
    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&done) = self.memo.get(&e) {
            return done;
        }
        let out = match self.x.get(e).clone() {
            Expr::Position(_) => self.x.substitute(e, self.positions),
            Expr::Within(all) => self.condition(&all),
            Expr::Read(n, at) => {
                let kept = at.iter().enumerate().filter(|(d, _)| self.carried.get(&(n, *d)) != Some(&self.second));
                let kept: Vec<Coordinate> = kept.map(|(_, c)| c.clone()).collect();
                let kept = kept.iter().map(|c| self.coordinate(c)).collect();
                self.x.intern(Expr::Read(n, kept))
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

    /// What holds for some position of the two bounds loops over others; which it is that holds for is tested beside that.
    fn condition(&mut self, all: &[Linear]) -> ExprId {
        let (of_them, mut bounds): (Vec<&Linear>, Vec<&Linear>) =
            all.iter().partition(|l| self.extents.keys().any(|i| l.terms.contains_key(i)));
        let somewhere: Vec<Linear> = of_them.iter().map(|l| self.somewhere(l)).collect();
        bounds.extend(somewhere.iter().filter(|l| !self.holds_everywhere(l)));
        let mut parts = vec![];
        if !bounds.is_empty() {
            parts.push(self.x.intern(Expr::Within(bounds.into_iter().cloned().collect())));
        }
        for &form in &of_them {
            let form = self.x.intern(Expr::Within(vec![form.clone()]));
            let one = self.x.substitute(form, self.positions);
            self.tested.insert(one);
            parts.push(one);
        }
        let mut out = parts.remove(0);
        for part in parts {
            out = self.x.binary(BinaryOp::And, out, part);
        }
        out
    }

    /// The condition for the positions of the two for which it asks least.
    fn somewhere(&self, form: &Linear) -> Linear {
        let mut out = form.clone();
        for (i, &extent) in self.extents {
            let factor = out.terms.remove(i).unwrap_or(0);
            out.constant = out.constant.saturating_add(factor.max(0).saturating_mul(extent as i64 - 1));
        }
        out
    }

    fn holds_everywhere(&self, form: &Linear) -> bool {
        let least = |(i, &factor): (&IndexId, &i64)| match self.indices.get(i.0 as usize) {
            Some(index) => factor.min(0).saturating_mul(index.extent as i64 - 1),
            None => i64::MIN,
        };
        form.terms.iter().map(least).fold(form.constant, i64::saturating_add) >= 0
    }

    /// Of the two only the first stands in one, where an array has both; what is gathered by may speak of them.
    fn coordinate(&mut self, c: &Coordinate) -> Coordinate {
        let mut values = vec![];
        Exprs::coordinate_values(c, &mut |v| values.push(v));
        let done: BTreeMap<ExprId, ExprId> = values.into_iter().map(|v| (v, self.expr(v))).collect();
        self.x.map_values(c, &mut |_, v| done[&v])
    }
}
