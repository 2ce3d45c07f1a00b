//! Factors that are made of narrower numbers than they are multiplied in, such as `W[n,k] * s[n,k / 128]` of 8-bit weights, as values of
//! their own.
//!
//! A product of matrices makes such a factor again for every tile of what it has not, and a matrix unit waits meanwhile. As a map it may go
//! through memory like any other value: one kernel makes it once, in the type in which it is multiplied, and the product loads it. The
//! search for divisions finds which is faster; with few rows of the other factor it is the former.
//!
//! Conditions: a sum of products without anchors, outside of recurrences; the factor is all that carries the same indices of the result, is made
//! of the program's inputs, and lacks an index of the result; some element of it is narrower than the other factor, which has 16 bits;
//! and it is exact in that type, or may be rounded to it ([`Options::narrow_contractions`](crate::Options::narrow_contractions)).
//!
//! So may a factor of 32 bits that waits for the result of a reduction with fewer indices than it, as normalised rows do, beside one in bf16, which has
//! its range. It is complete only after all that it is made of was read, so that the search begins with it in memory.

use crate::expr::{Expr, ExprId, Exprs};
use crate::facts::Facts;
use crate::lower::exact;
use crate::problem::{FoldMonoid, Item, ItemDef, Problem};
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, IndexId, Role};
use std::collections::{BTreeMap, BTreeSet};

impl Problem {
    /// Makes values of all such factors.
    pub(crate) fn part_factors(&mut self, x: &mut Exprs, types: &mut Types, liberty: bool) {
        for n in (0..self.items.len() as u32).map(NodeId) {
            while let Some((body, item)) = self.part_factor(n, x, types, liberty) {
                let made = NodeId(self.items.len() as u32);
                self.factors.insert(made);
                if matches!(item.def, ItemDef::Map(value) if self.waits_for_less(x, value)) {
                    self.completed.insert(made);
                }
                self.items.push(item);
                if let ItemDef::Fold(fold) = &mut self.items[n.0 as usize].def {
                    fold.body = body;
                }
            }
        }
        if !self.factors.is_empty() {
            self.order = self.topological(x);
        }
    }

    /// A reduction's body with one such factor in a value, and the value.
    fn part_factor(&self, n: NodeId, x: &mut Exprs, types: &mut Types, liberty: bool) -> Option<(ExprId, Item)> {
        let item = &self[n];
        let ItemDef::Fold(fold) = &item.def else { return None };
        let moves = !fold.anchors.is_empty() || fold.repair.is_some();
        if fold.monoid != FoldMonoid::Sum || moves || item.recurrence.is_some() {
            return None;
        }
        let mut factors = vec![];
        factors_of(x, fold.body, &mut factors);
        let mut facts = Facts::default();
        let mut groups: BTreeMap<BTreeSet<IndexId>, Vec<ExprId>> = BTreeMap::new();
        for &e in &factors {
            let free = &facts.of(self, x, e).free;
            groups.entry(item.axes.iter().copied().filter(|i| free.contains(i)).collect()).or_default().push(e);
        }
        for (own, group) in groups {
            let others: Vec<ExprId> = factors.iter().copied().filter(|e| !group.contains(e)).collect();
            let again = item.axes.iter().filter(|i| !own.contains(i)).any(|&i| self[i].extent > 1);
            let (Some(value), Some(other)) = (product(x, &group), product(x, &others)) else { continue };
            if own.is_empty() || !again {
                continue;
            }
            let to = types.of(self, x, other);
            let Some(dtype) = self.made_in(value, to, x, types, liberty) else { continue };
            let axes = self.axes_of(x, value, &facts.of(self, x, value).free);
            let made = Item {
                name: format!("{}.{dtype}", self.widest(x, value)?.name),
                extents: axes.iter().map(|&i| self[i].extent).collect(),
                shape: None,
                def: ItemDef::Map(value),
                dtype: Some(dtype),
                role: Role::Intermediate,
                stored: false,
                at: None,
                axes,
                ..item.clone()
            };
            let read = x.plain(NodeId(self.items.len() as u32), &made.axes);
            return Some((x.binary(BinaryOp::Mul, other, read), made));
        }
        None
    }

    /// The type in which a factor is made beside another of this type, if the conditions hold.
    fn made_in(&self, value: ExprId, to: DType, x: &Exprs, types: &mut Types, liberty: bool) -> Option<DType> {
        if !to.is_float() || to.bytes() != 2 {
            return None;
        }
        let (mut given, mut narrower) = (true, false);
        x.reads(value, &mut BTreeSet::new(), &mut |n, _| {
            given &= matches!(self[n].def, ItemDef::Input);
            narrower |= self[n].dtype.is_some_and(|d| d.bytes() < to.bytes() && d != DType::B1);
        });
        let own = types.of(self, x, value);
        let held = match x.get(value) {
            Expr::Read(..) if own.is_integer() => exact(own, to) == to,
            Expr::Read(..) => own.is_float() && own.bytes() == 1,
            _ => own.is_float() && own != DType::F64 && liberty,
        };
        let completed = to == DType::Bf16 && own == DType::F32 && liberty && self.waits_for_less(x, value);
        (given && narrower && held || completed).then_some(to)
    }

    /// Whether an expression is made of the result of a reduction that has fewer indices than it, and of nothing in a recurrence.
    fn waits_for_less(&self, x: &Exprs, value: ExprId) -> bool {
        let indices = Facts::default().of(self, x, value).free.len();
        let (mut todo, mut seen) = (vec![value], BTreeSet::new());
        let (mut less, mut moves) = (false, false);
        while let Some(e) = todo.pop() {
            x.reads(e, &mut BTreeSet::new(), &mut |n, _| {
                let item = &self[n];
                moves |= item.recurrence.is_some();
                match item.def {
                    ItemDef::Map(inside) if seen.insert(n) => todo.push(inside),
                    ItemDef::Fold(_) => less |= item.axes.len() < indices,
                    _ => {}
                }
            });
        }
        less && !moves
    }

    /// The array of most elements that an expression reads.
    fn widest(&self, x: &Exprs, e: ExprId) -> Option<&Item> {
        let mut all = vec![];
        x.reads(e, &mut BTreeSet::new(), &mut |n, _| all.push(n));
        all.into_iter().map(|n| &self[n]).max_by_key(|i| i.extents.iter().product::<usize>())
    }

    /// Its indices, in the order of the dimensions of what it reads, the largest array first.
    fn axes_of(&self, x: &Exprs, e: ExprId, free: &BTreeSet<IndexId>) -> Vec<IndexId> {
        let mut reads = vec![];
        x.reads(e, &mut BTreeSet::new(), &mut |n, at| reads.push((n, at.to_vec())));
        reads.sort_by_key(|(n, _)| std::cmp::Reverse(self[*n].extents.iter().product::<usize>()));
        let read = reads.iter().flat_map(|(_, at)| at.iter().filter_map(|c| c.as_index()));
        let mut axes: Vec<IndexId> = vec![];
        for i in read.chain(free.iter().copied()) {
            if free.contains(&i) && !axes.contains(&i) {
                axes.push(i);
            }
        }
        axes
    }
}

/// The factors of a product.
pub(crate) fn factors_of(x: &Exprs, e: ExprId, out: &mut Vec<ExprId>) {
    match *x.get(e) {
        Expr::Binary(BinaryOp::Mul, a, b) => {
            factors_of(x, a, out);
            factors_of(x, b, out);
        }
        _ => out.push(e),
    }
}

/// The product of factors, if there are some.
pub(crate) fn product(x: &mut Exprs, factors: &[ExprId]) -> Option<ExprId> {
    factors.iter().copied().reduce(|a, b| x.binary(BinaryOp::Mul, a, b))
}
