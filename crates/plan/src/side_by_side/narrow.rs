//! States in memory in the type in which they are multiplied.

use crate::cuts::is_contraction;
use crate::expr::{Expr, ExprId, Exprs};
use crate::factors::{factors_of, product};
use crate::facts::Facts;
use crate::problem::{FoldMonoid, Item, ItemDef, Iteration, Problem};
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, Role};
use std::collections::BTreeSet;

impl Problem {
    /// Where all that reads a state outside its recurrence is products with factors of one type of 16 bits, to which they round it, what goes
    /// through memory is the state in that type, at the start of every chunk.
    pub(super) fn narrow(&mut self, h: NodeId, x: &mut Exprs, types: &mut Types) -> Option<()> {
        let mut facts = Facts::default();
        let (mut readers, mut to): (Vec<(NodeId, ExprId)>, Option<DType>) = (vec![], None);
        for n in (0..self.items.len() as u32).map(NodeId) {
            if self[n].recurrence == self[h].recurrence || !self.needs(n, x).contains(&h) {
                continue;
            }
            let ItemDef::Fold(fold) = &self[n].def else { return None };
            let (mut factors, mut seen) = (vec![], BTreeSet::new());
            factors_of(x, fold.body, &mut factors);
            let (own, others): (Vec<ExprId>, Vec<ExprId>) =
                factors.iter().partition(|&&e| matches!(x.get(e), Expr::Read(m, _) if *m == h));
            let mut elsewhere = false;
            for &e in others.iter().chain(&fold.filter) {
                x.reads(e, &mut seen, &mut |m, _| elsewhere |= m == h);
            }
            let plain = fold.monoid == FoldMonoid::Sum && fold.anchors.is_empty() && self[n].recurrence.is_none();
            if own.len() != 1 || elsewhere || !plain || !is_contraction(self, x, &mut facts, n, fold) {
                return None;
            }
            let other = product(x, &others)?;
            let dtype = types.of(self, x, other);
            if !dtype.is_float() || dtype.bytes() != 2 || to.is_some_and(|to| to != dtype) {
                return None;
            }
            to = Some(dtype);
            readers.push((n, own[0]));
        }
        let (dtype, own) = (to?, self[h].recurrence?);
        let start = NodeId(self.items.len() as u32);
        let ItemDef::Iterative(Iteration { dim, .. }) = self[h].def else { return None };
        let mut item = Item {
            name: format!("{}.{dtype}", self[h].name),
            def: ItemDef::Map(x.plain(h, &self[h].axes)),
            dtype: Some(dtype),
            role: Role::Intermediate,
            shape: None,
            ..self[h].clone()
        };
        item.extents[dim] -= 1;
        self.items.push(item);
        self.loops[own].members.push(start);
        let state = &mut self.items[h.0 as usize];
        (state.stored, state.internal) = (false, true);
        for (n, read) in readers {
            let Expr::Read(_, at) = x.get(read).clone() else { continue };
            let by = x.intern(Expr::Read(start, at));
            if let ItemDef::Fold(fold) = &mut self.items[n.0 as usize].def {
                fold.body = replaced(x, fold.body, read, by);
            }
        }
        Some(())
    }
}

/// A product with another factor for one of its own.
fn replaced(x: &mut Exprs, e: ExprId, factor: ExprId, by: ExprId) -> ExprId {
    match *x.get(e) {
        _ if e == factor => by,
        Expr::Binary(BinaryOp::Mul, a, b) => {
            let (a, b) = (replaced(x, a, factor, by), replaced(x, b, factor, by));
            x.binary(BinaryOp::Mul, a, b)
        }
        _ => e,
    }
}
