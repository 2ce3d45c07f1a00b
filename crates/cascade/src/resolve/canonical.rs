//! Numbers ranks and indices by where they first appear in the cascade itself (inputs, then statements, then
//! declarations), so that the numbering survives printing and parsing.

use crate::{Cascade, Expr, ExprKind, Index, IndexAtom, IndexExpr, IndexId, Rank, RankDefault, RankId, SizeExpr};
use std::collections::BTreeMap;

/// The same cascade with its ranks and indices in canonical order. Indices that nothing uses are dropped.
pub(super) fn canonical(mut cascade: Cascade) -> Cascade {
    let mut order = Order { cascade: &cascade, ranks: Numbering::default(), indices: Numbering::default() };
    for tensor in &cascade.tensors {
        if tensor.role == crate::Role::Input {
            tensor.ranks.iter().for_each(|&r| order.rank(r));
        }
    }
    for statement in &cascade.statements {
        statement.at.iter().for_each(|e| order.index_expr(e));
        order.expr(&statement.value);
    }
    for tensor in &cascade.tensors {
        tensor.ranks.iter().for_each(|&r| order.rank(r));
    }
    cascade.monoids.iter().for_each(|m| order.expr(&m.combine));
    order.declared();
    let (ranks, indices) = (order.ranks, order.indices);
    let renumber = Renumber { ranks: ranks.new, indices: indices.new };

    cascade.ranks = ranks.old.iter().map(|&r| renumber.rank_entry(&cascade[r])).collect();
    cascade.indices = indices.old.iter().map(|&i| renumber.index_entry(&cascade[i])).collect();
    for tensor in &mut cascade.tensors {
        tensor.ranks.iter_mut().for_each(|r| *r = renumber.ranks[r]);
        tensor.extents.iter_mut().for_each(|e| *e = renumber.size(e));
    }
    for statement in &mut cascade.statements {
        statement.at.iter_mut().for_each(|e| *e = renumber.index_expr(e));
        renumber.expr(&mut statement.value);
    }
    cascade.monoids.iter_mut().for_each(|m| renumber.expr(&mut m.combine));
    for step in &mut cascade.order {
        if let crate::Step::Iterate { rank, .. } = step {
            *rank = renumber.ranks[rank];
        }
    }
    cascade
}

/// New numbers in the order of first sight.
struct Numbering<Id> {
    old: Vec<Id>,
    new: BTreeMap<Id, Id>,
}

impl<Id> Default for Numbering<Id> {
    fn default() -> Self {
        Self { old: vec![], new: BTreeMap::new() }
    }
}

impl<Id: Copy + Ord> Numbering<Id> {
    fn see(&mut self, id: Id, make: impl Fn(u32) -> Id) {
        let next = self.old.len() as u32;
        let old = &mut self.old;
        self.new.entry(id).or_insert_with(|| {
            old.push(id);
            make(next)
        });
    }
}

struct Order<'c> {
    cascade: &'c Cascade,
    ranks: Numbering<RankId>,
    indices: Numbering<IndexId>,
}

impl Order<'_> {
    fn rank(&mut self, rank: RankId) {
        self.ranks.see(rank, RankId);
    }

    fn index(&mut self, index: IndexId) {
        self.indices.see(index, IndexId);
        self.rank(self.cascade[index].rank);
    }

    /// New ranks of one size by name: the order of its terms follows from the numbers, so it cannot decide them.
    fn size(&mut self, size: &SizeExpr) {
        let mut ranks: Vec<_> = size.ranks().collect();
        ranks.sort_by(|a, b| self.cascade[*a].name.cmp(&self.cascade[*b].name));
        ranks.into_iter().for_each(|r| self.rank(r));
    }

    fn index_expr(&mut self, e: &IndexExpr) {
        for (coefficient, atom) in &e.terms {
            self.size(coefficient);
            match atom {
                IndexAtom::Var(i) => self.index(*i),
                IndexAtom::Floor { numerator, denominator } => {
                    self.index_expr(numerator);
                    self.size(denominator);
                }
                IndexAtom::Gather { at, .. } => at.iter().for_each(|e| self.index_expr(e)),
            }
        }
        self.size(&e.offset);
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Size(size) => self.size(size),
            ExprKind::Position(i) => self.index(*i),
            ExprKind::Read { at, .. } => at.iter().for_each(|e| self.index_expr(e)),
            ExprKind::Reduce { over, .. } => over.iter().for_each(|&i| self.index(i)),
            _ => {}
        }
        e.for_each_child(&mut |child| self.expr(child));
    }

    /// Ranks that only declarations mention: those with a default, what these need, and bare sizes.
    fn declared(&mut self) {
        let mut done = 0;
        self.defaults(&mut done);
        for (k, rank) in self.cascade.ranks.iter().enumerate() {
            if rank.default.is_some() {
                self.rank(RankId(k as u32));
                self.defaults(&mut done);
            }
        }
    }

    fn defaults(&mut self, done: &mut usize) {
        while let Some(&rank) = self.ranks.old.get(*done) {
            *done += 1;
            if let Some(default) = &self.cascade[rank].default {
                self.size(&default.numerator);
                self.size(&default.denominator);
            }
        }
    }
}

struct Renumber {
    ranks: BTreeMap<RankId, RankId>,
    indices: BTreeMap<IndexId, IndexId>,
}

impl Renumber {
    fn rank_entry(&self, rank: &Rank) -> Rank {
        let default = rank
            .default
            .as_ref()
            .map(|d| RankDefault { numerator: self.size(&d.numerator), denominator: self.size(&d.denominator) });
        Rank { name: rank.name.clone(), default, span: rank.span }
    }

    fn index_entry(&self, index: &Index) -> Index {
        Index { name: index.name.clone(), rank: self.ranks[&index.rank] }
    }

    fn size(&self, size: &SizeExpr) -> SizeExpr {
        let term = |(ranks, c): &(Vec<RankId>, i64)| {
            ranks.iter().fold(SizeExpr::constant(*c), |product, r| product.mul(&SizeExpr::rank(self.ranks[r])))
        };
        size.terms().iter().map(term).fold(SizeExpr::default(), |sum, t| sum.add(&t))
    }

    fn index_expr(&self, e: &IndexExpr) -> IndexExpr {
        let mut out = IndexExpr::fixed(self.size(&e.offset));
        for (coefficient, atom) in &e.terms {
            let atom = match atom {
                IndexAtom::Var(i) => IndexAtom::Var(self.indices[i]),
                IndexAtom::Floor { numerator, denominator } => IndexAtom::Floor {
                    numerator: Box::new(self.index_expr(numerator)),
                    denominator: self.size(denominator),
                },
                IndexAtom::Gather { tensor, at } => {
                    IndexAtom::Gather { tensor: *tensor, at: at.iter().map(|e| self.index_expr(e)).collect() }
                }
            };
            out.push(self.size(coefficient), atom);
        }
        out
    }

    fn expr(&self, e: &mut Expr) {
        match &mut e.kind {
            ExprKind::Size(size) => *size = self.size(size),
            ExprKind::Position(i) => *i = self.indices[i],
            ExprKind::Read { at, .. } => at.iter_mut().for_each(|e| *e = self.index_expr(e)),
            ExprKind::Unary(_, x) => self.expr(x),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Select(c, a, b) => {
                self.expr(c);
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Reduce { over, filter, body, .. } => {
                over.iter_mut().for_each(|i| *i = self.indices[i]);
                if let Some(filter) = filter {
                    self.expr(filter);
                }
                self.expr(body);
            }
            ExprKind::Number(_) | ExprKind::Param(_) | ExprKind::Argument(_) => {}
        }
    }
}
