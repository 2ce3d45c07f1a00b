//! One chunk of one reduction: `next = repaired state ⊕ chunk`.

use super::{Emitter, Fail};
use crate::PlanError;
use crate::expr::{Expr, ExprId};
use crate::lower::{How, Lowered};
use crate::problem::FoldMonoid;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId};
use einloom_tile::{Op, Scalar, TileMonoid, ValueId, is_wide_type};
use std::collections::BTreeSet;

impl Emitter<'_> {
    /// The reduction over the current windows, combined with `old` if given. Always a value of its own.
    pub(super) fn update(&mut self, n: NodeId, old: Option<ValueId>) -> Result<ValueId, Fail> {
        self.within_itself(n, |s| s.made(n, old))
    }

    /// Makes a reduction's value, which cannot be part of itself.
    pub(super) fn within_itself(
        &mut self,
        n: NodeId,
        make: impl FnOnce(&mut Self) -> Result<ValueId, Fail>,
    ) -> Result<ValueId, Fail> {
        if self.updating.contains(&n) {
            let reason = "its own recurrence reads it at positions of another index";
            return Err(PlanError::unsupported(&self.p[n].name, reason).into());
        }
        self.updating.push(n);
        let made = make(self);
        self.updating.pop();
        made
    }

    fn made(&mut self, n: NodeId, old: Option<ValueId>) -> Result<ValueId, Fail> {
        *self.updates.entry(n).or_default() += 1;
        let f = self.l.folds[&n].clone();
        let state = self.tiled(&f.state);
        let sides = self.sides_or(&state, || self.operands(n))?;
        let moved = old.map(|v| self.repaired(&f, v, &state)).transpose()?;
        let name = self.p[n].name.to_lowercase();
        let reduced: Vec<IndexId> = f.over.iter().copied().filter(|&i| self.tiling.tiled(i)).collect();
        match f.how {
            How::Contract(a, b) => {
                let (a, b) = (self.tile(a)?, self.tile(b)?);
                let acc = self.accumulator(&f, moved, sides, &name);
                let dst = self.new_value(name, sides, f.dtype);
                self.push(Op::Mma { dst, a, b, acc });
                Ok(dst)
            }
            How::Fold(src) if reduced.is_empty() => {
                let chunk = self.number(src, &state, is_wide_type(f.dtype))?;
                let expr = match moved.or_else(|| self.custom_start(f.monoid)) {
                    None => chunk,
                    Some(m) => self.combined(f.monoid, m, chunk),
                };
                let dst = self.new_value(name, sides, f.dtype);
                self.push(Op::Map { dst, expr });
                Ok(dst)
            }
            How::Fold(src) => {
                let wanted: BTreeSet<IndexId> = state.iter().chain(&reduced).copied().collect();
                let mut value = self.tile_over(src, &wanted)?;
                let mut acc = self.accumulator(&f, moved, sides, &name);
                for (k, &i) in reduced.iter().enumerate() {
                    let last = k + 1 == reduced.len();
                    let rest: BTreeSet<IndexId> = state.iter().chain(&reduced[k + 1..]).copied().collect();
                    let sides = self.sides_or(&rest, || self.operands(n))?;
                    let dst = self.new_value(name.clone(), sides, f.dtype);
                    let monoid = self.tile_monoid(f.monoid);
                    let acc = if last { acc.take() } else { None };
                    self.push(Op::Reduce { dst, src: value, axis: self.axis_of(i)?, monoid, acc });
                    value = dst;
                }
                if let (None, Some(start)) = (&old, self.custom_start(f.monoid)) {
                    let expr = self.combined(f.monoid, start, Scalar::Tile(value));
                    value = self.new_value(name, sides, f.dtype);
                    self.push(Op::Map { dst: value, expr });
                }
                Ok(value)
            }
        }
    }

    /// A state after its anchors have moved.
    fn repaired(&mut self, f: &Lowered, old: ValueId, tiled: &BTreeSet<IndexId>) -> Result<Scalar, Fail> {
        let state = Scalar::Tile(old);
        let moves = f.anchors.iter().any(|a| self.scopes.iter().any(|s| s.running.contains_key(a)));
        let Some(repair) = f.repair.as_ref().filter(|_| moves) else { return Ok(state) };
        let neutral = matches!(
            (repair.combine, self.x.as_const(repair.factor)),
            (BinaryOp::Add, Some(0.0)) | (BinaryOp::Mul, Some(1.0))
        );
        let moved = match neutral {
            true => state,
            false => {
                let factor = self.scalar(repair.factor, tiled)?;
                Scalar::Binary(repair.combine, Box::new(state), Box::new(factor))
            }
        };
        let moved = match repair.plus {
            Some(plus) => {
                let plus = self.scalar(plus, tiled)?;
                Scalar::Binary(BinaryOp::Add, Box::new(moved), Box::new(plus))
            }
            None => moved,
        };
        let Some(keep) = repair.keep_if else { return Ok(moved) };
        let identity = Scalar::Const(self.p.identity(f.monoid));
        Ok(match self.x.as_const(keep) {
            Some(k) => {
                if k != 0.0 {
                    moved
                } else {
                    identity
                }
            }
            None => Scalar::Select(Box::new(self.scalar(keep, tiled)?), Box::new(moved), Box::new(identity)),
        })
    }

    fn accumulator(&mut self, f: &Lowered, moved: Option<Scalar>, sides: super::Sides, name: &str) -> Option<ValueId> {
        match moved? {
            Scalar::Tile(v) => Some(v),
            expr => {
                let dst = self.new_value(format!("{name}.kept"), sides, f.dtype);
                self.push(Op::Map { dst, expr });
                Some(dst)
            }
        }
    }

    /// What a reduction by a user's monoid starts from: its identity changes an element for which it is none.
    fn custom_start(&self, monoid: FoldMonoid) -> Option<Scalar> {
        matches!(monoid, FoldMonoid::Custom(_)).then(|| Scalar::Const(self.p.identity(monoid)))
    }

    fn combined(&mut self, monoid: FoldMonoid, a: Scalar, b: Scalar) -> Scalar {
        let op = match monoid {
            FoldMonoid::Sum => BinaryOp::Add,
            FoldMonoid::Prod => BinaryOp::Mul,
            FoldMonoid::Max => BinaryOp::Max,
            FoldMonoid::Min => BinaryOp::Min,
            FoldMonoid::Custom(id) => return self.custom(self.p.monoids[id.0 as usize].combine, &[a, b]),
        };
        Scalar::Binary(op, Box::new(a), Box::new(b))
    }

    fn tile_monoid(&self, monoid: FoldMonoid) -> TileMonoid {
        match monoid {
            FoldMonoid::Sum => TileMonoid::Sum,
            FoldMonoid::Prod => TileMonoid::Prod,
            FoldMonoid::Max => TileMonoid::Max,
            FoldMonoid::Min => TileMonoid::Min,
            FoldMonoid::Custom(id) => {
                let m = &self.p.monoids[id.0 as usize];
                let combine = self.custom(m.combine, &[Scalar::Argument(0), Scalar::Argument(1)]);
                TileMonoid::Custom { name: m.name.clone(), combine: Box::new(combine), identity: m.identity }
            }
        }
    }

    /// A user monoid's expression over two scalars.
    fn custom(&self, e: ExprId, arguments: &[Scalar; 2]) -> Scalar {
        let go = |e: ExprId| Box::new(self.custom(e, arguments));
        match *self.x.get(e) {
            Expr::Argument(k) => arguments[usize::from(k.min(1))].clone(),
            Expr::Round(d, a) => Scalar::Round(d, go(a)),
            Expr::Unary(op, a) => Scalar::Unary(op, go(a)),
            Expr::Binary(op, a, b) => Scalar::Binary(op, go(a), go(b)),
            Expr::Select(c, a, b) => Scalar::Select(go(c), go(a), go(b)),
            _ => Scalar::Const(self.x.as_const(e).unwrap_or(0.0)),
        }
    }
}
