//! Reductions that pick: `max(i: i == w) x[i]` is `x` at position `w`, which costs as much as the result has elements, and not
//! as much as `x` has.
//!
//! Conditions: the reduction is a maximum or a minimum, which of one element is that element; its filter is one equation for
//! each reduced index, whose other side is a whole number and does not move with any of them; every reduced index has all its
//! positions in one tile, and what is reduced carries it. Where it picks from what another one picks under a mere new name
//! of the index (`x'[k] = max(i: i == k) x[i]`, `k` with as many positions as `i`), it picks from `x` itself. Positions that
//! the index does not have are the reduction over nothing. Any other reduction is computed as it is written.

use super::{Emitter, Fail};
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::problem::FoldMonoid;
use einloom_algebra::NodeId;
use einloom_cascade::numeric::round;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp};
use einloom_tile::{AxisKind, Op, Scalar, ValueId};
use std::collections::BTreeSet;

/// What a reduction picks.
pub(super) struct Picking {
    /// From this expression.
    source: ExprId,
    /// Along each of these indices, one after the other, at this position.
    at: Vec<(IndexId, Coordinate)>,
}

impl Emitter<'_> {
    /// What a reduction picks, if it does nothing else.
    pub(super) fn picking(&mut self, n: NodeId) -> Option<Picking> {
        let all_there = |s: &Self, i: IndexId| s.tiling.kind(i) == AxisKind::Whole && s.tiling.tiled(i);
        let picking = self.equations(n)?;
        let at = self.in_order(picking.at)?;
        let free = self.l.facts.of(self.p, self.x, picking.source).free.clone();
        at.iter().all(|(i, _)| all_there(self, *i) && free.contains(i)).then_some(Picking { at, ..picking })
    }

    /// The same wherever its indices are.
    fn equations(&mut self, n: NodeId) -> Option<Picking> {
        let f = self.l.folds.get(&n)?;
        let extreme = matches!(f.monoid, FoldMonoid::Max | FoldMonoid::Min);
        if !extreme || !f.anchors.is_empty() || f.repair.is_some() || f.over.len() != f.filter.len() {
            return None;
        }
        let (monoid, over, filter, body) = (f.monoid, f.over.clone(), f.filter.clone(), f.body);
        let mut at = vec![];
        for &i in &over {
            let wanted = filter.iter().find_map(|&e| self.wanted(i, e))?;
            if self.indices_of(&wanted).iter().any(|j| over.contains(j)) {
                return None;
            }
            at.push((i, wanted));
        }
        self.renamed(monoid, body, &at).or(Some(Picking { source: body, at }))
    }

    /// The position that an index has where a condition holds, if it is the only one.
    fn wanted(&mut self, i: IndexId, condition: ExprId) -> Option<Coordinate> {
        match self.x.get(condition).clone() {
            Expr::Within(all) => {
                let [one, other] = all.as_slice() else { return None };
                let opposite = one.constant == other.constant.checked_neg()?
                    && one.terms.len() == other.terms.len()
                    && one.terms.iter().all(|(k, c)| other.terms.get(k).copied() == c.checked_neg());
                let form = if one.terms.get(&i) == Some(&-1) { one } else { other };
                if !opposite || form.terms.get(&i) != Some(&-1) {
                    return None;
                }
                let mut wanted = Coordinate::fixed(form.constant);
                form.terms.iter().filter(|t| *t.0 != i).for_each(|(&k, &c)| wanted.push(c, Atom::Index(k)));
                Some(wanted)
            }
            Expr::Binary(BinaryOp::Eq, a, b) => {
                let position = self.x.position(i);
                let e = if a == position { b } else { Some(a).filter(|_| b == position)? };
                self.is_whole(e).then_some(())?;
                let integer = self.types.of(self.p, self.x, e).is_integer();
                let e = if integer { e } else { self.x.round(DType::I32, e) };
                let mut wanted = Coordinate::default();
                wanted.push(1, Atom::Value(e));
                Some(wanted)
            }
            _ => None,
        }
    }

    /// Whether it is a whole number, whatever is read: then it is an integer as well, or further away than any position is.
    fn is_whole(&mut self, e: ExprId) -> bool {
        match *self.x.get(e) {
            Expr::Const(_) => self.x.as_const(e).is_some_and(|v| v.fract() == 0.0),
            Expr::Position(_) => true,
            Expr::Round(d, _) => d.is_integer(),
            Expr::Read(n, _) => self.p[n].dtype.is_some_and(DType::is_integer),
            Expr::Unary(UnaryOp::Floor | UnaryOp::Round, a) => match *self.x.get(a) {
                Expr::Binary(BinaryOp::Mul | BinaryOp::Div, a, by) => {
                    self.x.as_const(by).is_some_and(f64::is_normal) && self.is_whole(a)
                }
                _ => self.is_whole(a),
            },
            Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) => self.is_whole(a),
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min, a, b) => {
                self.is_whole(a) && self.is_whole(b)
            }
            Expr::Select(_, a, b) => self.is_whole(a) && self.is_whole(b),
            _ => false,
        }
    }

    /// The indices that a coordinate moves with, also through what it gathers by.
    fn indices_of(&mut self, c: &Coordinate) -> BTreeSet<IndexId> {
        let (mut out, mut values) = (BTreeSet::new(), vec![]);
        Exprs::coordinate_indices(c, &mut |i| _ = out.insert(i), &mut |v| values.push(v));
        for v in values {
            out.extend(&self.l.facts.of(self.p, self.x, v).free);
        }
        out
    }

    /// What is picked at these positions from another reduction that picks under new names of indices, over nothing the same
    /// as this one.
    fn renamed(&mut self, monoid: FoldMonoid, body: ExprId, at: &[(IndexId, Coordinate)]) -> Option<Picking> {
        let &Expr::Read(other, ref plain) = self.x.get(body) else { return None };
        let axes = &self.p[other].axes;
        let is_plain = plain.iter().zip(axes).all(|(c, &i)| c.as_index() == Some(i));
        if !is_plain || self.l.folds.get(&other).is_none_or(|f| f.monoid != monoid) {
            return None;
        }
        let mut out = self.equations(other)?;
        for (name, wanted) in at {
            let here = out.at.iter().position(|(_, c)| c.as_index() == Some(*name))?;
            let elsewhere =
                (0..out.at.len()).any(|k| k != here && self.indices_of(&out.at[k].1.clone()).contains(name));
            if elsewhere || self.p[*name].extent != self.p[out.at[here].0].extent {
                return None;
            }
            // Names are given one by one: none is taken for a new one.
            out.at[here].1 = wanted.clone();
        }
        let unnamed = at.iter().all(|(name, _)| !self.l.facts.of(self.p, self.x, out.source).free.contains(name));
        unnamed.then_some(out)
    }

    /// The indices in an order in which no position is told by an index that is still to be picked along.
    fn in_order(&mut self, mut at: Vec<(IndexId, Coordinate)>) -> Option<Vec<(IndexId, Coordinate)>> {
        let mut out = vec![];
        while !at.is_empty() {
            let free = |s: &mut Self, k: usize| {
                let moves = s.indices_of(&at[k].1);
                at.iter().enumerate().all(|(o, (i, _))| o == k || !moves.contains(i))
            };
            let next = (0..at.len()).find(|&k| free(self, k))?;
            out.push(at.remove(next));
        }
        Some(out)
    }

    /// Picks.
    pub(super) fn pick(&mut self, n: NodeId, picking: Picking) -> Result<ValueId, Fail> {
        self.within_itself(n, |s| s.picked(n, picking))
    }

    fn picked(&mut self, n: NodeId, Picking { source, at }: Picking) -> Result<ValueId, Fail> {
        let f = &self.l.folds[&n];
        let (fill, dtype) = (self.p.identity(f.monoid), f.dtype);
        let name = self.p[n].name.to_lowercase();
        let mut indices = self.l.facts.of(self.p, self.x, source).free.clone();
        let mut value = self.tile(source)?;
        // No element there is the monoid's identity, which integers and small floats may not have.
        if round(self.kernel.value(value).dtype, fill) != fill {
            value = self.as_type(value, &name, dtype);
        }
        for (i, wanted) in at {
            let moves = self.indices_of(&wanted);
            indices.remove(&i);
            indices.extend(moves);
            let tiled = self.tiled(&indices);
            let sides = self.sides_or(&tiled, || self.operands(n))?;
            let dst = self.new_value(name.clone(), sides, self.kernel.value(value).dtype);
            let (axis, at) = (self.axis_of(i)?, self.coord(&wanted)?);
            self.push(Op::Pick { dst, src: value, axis, at, fill });
            value = dst;
        }
        Ok(self.as_type(value, &name, dtype))
    }

    fn as_type(&mut self, value: ValueId, name: &str, dtype: DType) -> ValueId {
        let decl = self.kernel.value(value);
        if decl.dtype == dtype {
            return value;
        }
        let dst = self.new_value(name.to_owned(), (decl.rows, decl.cols), dtype);
        self.push(Op::Map { dst, expr: Scalar::Tile(value) });
        dst
    }
}
