//! Tiles and scalar expressions over them.

use super::{Emitter, Fail, Sides, orient};
use crate::expr::{Expr, ExprId, Linear};
use einloom_cascade::{DType, IndexId, UnaryOp};
use einloom_tile::{Affine, Op, Predicate, Scalar, ValueId};
use std::collections::BTreeSet;

impl Emitter<'_> {
    /// The tile of an expression, with the axes it has.
    pub(super) fn tile(&mut self, e: ExprId) -> Result<ValueId, Fail> {
        self.tile_over(e, &BTreeSet::new())
    }

    /// The tile of an expression, broadcast along further indices.
    pub(super) fn tile_over(&mut self, e: ExprId, extra: &BTreeSet<IndexId>) -> Result<ValueId, Fail> {
        let mut indices = self.l.facts.of(self.p, self.x, e).free.clone();
        let mut depth = self.depth(e)?;
        let own = self.tiled(&indices);
        for &i in extra {
            if self.tiling.tiled(i) {
                depth = depth.max(self.binding(i)?.0);
                indices.insert(i);
            }
        }
        let all = self.tiled(&indices);
        self.at_depth(depth, |s| {
            let sides = s.sides(e, &all)?;
            let key = (e, sides);
            if let Some(&v) = s.scopes[depth].memo.get(&key) {
                return Ok(v);
            }
            let v = match s.x.get(e).clone() {
                Expr::Read(..) | Expr::Old(_) if all != own => {
                    let v = s.tile(e)?;
                    let dtype = s.kernel.value(v).dtype;
                    s.map(e, sides, dtype, Scalar::Tile(v))
                }
                Expr::Read(n, at) if s.cone.loads.contains(&n) => s.load(e, n, &at, sides)?,
                Expr::Read(n, _) if s.l.folds.contains_key(&n) => s.fold_value(n)?,
                Expr::Read(n, at) => s.iterative_value(n, &at)?,
                Expr::Old(n) => s.old_value(n)?,
                Expr::Round(dtype, inner) => {
                    let expr = s.declared(inner, &all, dtype)?;
                    s.map(e, sides, dtype, expr)
                }
                _ => {
                    let dtype = s.types.of(s.p, s.x, e);
                    let expr = s.operation(e, &all)?;
                    s.map(e, sides, dtype, expr)
                }
            };
            s.scopes[depth].memo.insert(key, v);
            Ok(v)
        })
    }

    /// Places a map here.
    fn map(&mut self, e: ExprId, sides: Sides, dtype: DType, expr: Scalar) -> ValueId {
        let name = self.name(e);
        let dst = self.new_value(name, sides, dtype);
        self.push(Op::Map { dst, expr });
        dst
    }

    /// Rows and columns for these tiled indices.
    pub(super) fn sides(&mut self, e: ExprId, tiled: &BTreeSet<IndexId>) -> Result<Sides, Fail> {
        // What is loaded lies as it does in memory.
        if let Expr::Read(n, at) = self.x.get(e)
            && self.cone.loads.contains(n)
        {
            let order: Vec<IndexId> = orient::dims(at).into_iter().filter(|i| tiled.contains(i)).collect();
            if let ([a, b], 2) = (order.as_slice(), tiled.len()) {
                return Ok((Some(self.axis_of(*a)?), Some(self.axis_of(*b)?)));
            }
        }
        let fail = || match self.x.get(e) {
            Expr::Read(n, _) if self.l.folds.contains_key(n) => self.operands(*n),
            Expr::Read(..) => orient::leaves(self.p, self.x, e),
            _ => {
                let mut out = vec![];
                self.x.reads(e, &mut BTreeSet::new(), &mut |n, at| match self.l.folds.contains_key(&n) {
                    true => out.extend(self.operands(n)),
                    false => out.push(if at.is_empty() { self.p[n].axes.clone() } else { orient::dims(at) }),
                });
                out
            }
        };
        self.sides_or(tiled, fail)
    }

    /// Rows and columns for these tiled indices, or the reason why there are none.
    pub(super) fn sides_or(
        &self,
        tiled: &BTreeSet<IndexId>,
        leaves: impl Fn() -> Vec<Vec<IndexId>>,
    ) -> Result<Sides, Fail> {
        let list: Vec<IndexId> = tiled.iter().copied().collect();
        match list.as_slice() {
            [] => Ok((None, None)),
            [a] => {
                let axis = Some(self.axis_of(*a)?);
                Ok(if self.orient.across(*a) { (None, axis) } else { (axis, None) })
            }
            [a, b] => {
                let (a, b) = self.orient.pair(*a, *b);
                Ok((Some(self.axis_of(a)?), Some(self.axis_of(b)?)))
            }
            _ => Err(Fail::TooManyAxes { indices: tiled.clone(), leaves: leaves() }),
        }
    }

    /// The expression as part of a map over `tiled`: parts that belong to an outer loop, that have fewer axes or that
    /// others need as well become tiles of their own.
    pub(super) fn scalar(&mut self, e: ExprId, tiled: &BTreeSet<IndexId>) -> Result<Scalar, Fail> {
        match self.x.get(e) {
            Expr::Const(_) | Expr::Position(_) | Expr::Within(_) | Expr::Argument(_) => {
                return self.operation(e, tiled);
            }
            Expr::Read(..) | Expr::Old(_) => return Ok(Scalar::Tile(self.tile(e)?)),
            _ => {}
        }
        let fact = self.l.facts.of(self.p, self.x, e);
        // Of positions alone, where that is more than counting.
        if !fact.reads && fact.computes && self.tiled(&fact.free).len() < tiled.len() {
            return Ok(Scalar::Tile(self.tile(e)?));
        }
        if fact.reads {
            let own = self.tiled(&fact.free);
            let outer = self.depth(e)? + 1 < self.scopes.len();
            let shared = self.l.uses.get(&e).is_some_and(|&n| n > 1);
            if outer || shared || own.len() < tiled.len() || self.exists(e)? {
                return Ok(Scalar::Tile(self.tile(e)?));
            }
        }
        self.operation(e, tiled)
    }

    /// Whether the tile of the expression exists already.
    fn exists(&mut self, e: ExprId) -> Result<bool, Fail> {
        let depth = self.depth(e)?;
        let free = self.l.facts.of(self.p, self.x, e).free.clone();
        let tiled = self.tiled(&free);
        let Ok(sides) = self.sides(e, &tiled) else { return Ok(false) };
        Ok(self.scopes[depth].memo.contains_key(&(e, sides)))
    }

    /// The expression's outermost operation.
    fn operation(&mut self, e: ExprId, tiled: &BTreeSet<IndexId>) -> Result<Scalar, Fail> {
        Ok(match self.x.get(e).clone() {
            Expr::Const(_) => Scalar::Const(self.x.as_const(e).unwrap_or(0.0)),
            Expr::Position(i) => Scalar::Position(self.axis_of(i)?),
            Expr::Within(all) => Scalar::Within(self.predicate(&all)?),
            Expr::Argument(k) => Scalar::Argument(k),
            Expr::Read(..) | Expr::Old(_) => Scalar::Tile(self.tile(e)?),
            Expr::Round(d, a) => Scalar::Round(d, Box::new(self.declared(a, tiled, d)?)),
            // A quotient of integers is rounded down as it is, not as the f32 beside it.
            Expr::Unary(op @ (UnaryOp::Floor | UnaryOp::Round), a) if self.types.is_ratio(self.p, self.x, a) => {
                Scalar::Unary(op, Box::new(self.scalar(a, tiled)?))
            }
            Expr::Unary(op, a) => {
                let [a] = self.numbers([a], tiled)?;
                Scalar::Unary(op, a)
            }
            Expr::Binary(op, a, b) => {
                let [a, b] = self.numbers([a, b], tiled)?;
                Scalar::Binary(op, a, b)
            }
            Expr::Select(c, a, b) => {
                let [c] = self.numbers([c], tiled)?;
                let [a, b] = self.numbers([a, b], tiled)?;
                Scalar::Select(c, a, b)
            }
        })
    }

    pub(super) fn predicate(&self, all: &[Linear]) -> Result<Predicate, Fail> {
        Ok(Predicate { all: all.iter().map(|l| self.affine(l)).collect::<Result<_, _>>()? })
    }

    pub(super) fn affine(&self, form: &Linear) -> Result<Affine, Fail> {
        let term = |(&i, &c): (&IndexId, &i64)| Ok((c, self.axis_of(i)?));
        Ok(Affine { terms: form.terms.iter().map(term).collect::<Result<_, Fail>>()?, constant: form.constant })
    }

    /// A readable name for the value of an expression.
    fn name(&self, e: ExprId) -> String {
        if let Some(name) = self.cone.names.get(&e) {
            return name.clone();
        }
        match self.x.get(e) {
            Expr::Read(n, _) | Expr::Old(n) => self.p[*n].name.to_lowercase(),
            Expr::Round(_, inner) => self.name(*inner),
            Expr::Unary(UnaryOp::Neg, _) => "neg".to_string(),
            Expr::Unary(op, _) => op.name().to_string(),
            Expr::Select(_, inner, _) => self.name(*inner),
            Expr::Within(_) => "within".to_string(),
            Expr::Binary(op, ..) if op.is_predicate() => "mask".to_string(),
            _ => "t".to_string(),
        }
    }
}
