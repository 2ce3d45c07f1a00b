//! Conditions of reductions as guards of their loop: see [`einloom_tile::guard`] for what they tell and when.
//!
//! A condition that every reduction of the loop is filtered by may become a guard if
//! * it is made of positions, constants and elements of integer tensors in memory by functions that intervals follow;
//! * each element's coordinates are constants and positions, and at most one of them moves within a chunk, being just
//!   the position along one axis: its extremes are then those of a tile of the tensor, which a kernel before this one
//!   finds (see [`crate::summaries`]).
//!
//! What fails this is tested element by element where it can be, and the plan says why.

use super::{Emitter, Fail};
use crate::expr::{Atom, Coordinate, Expr, ExprId};
use einloom_cascade::{DType, IndexId};
use einloom_tile::{Extremes, Guard, TensorId};
use std::collections::BTreeMap;

impl Emitter<'_> {
    /// The condition as a guard, or why it cannot be one.
    pub(super) fn guard(&mut self, e: ExprId) -> Result<Result<Guard, String>, Fail> {
        let guard = match self.bound(e)? {
            Ok(guard) => guard,
            Err(why) => return Ok(Err(why)),
        };
        let mut types: BTreeMap<TensorId, DType> = BTreeMap::new();
        guard.visit(&mut |g| {
            if let Guard::Element(e) = g {
                let dtype = self.p.storage(einloom_algebra::NodeId(e.of.0), self.types, self.x);
                types.insert(e.of, dtype);
            }
        });
        Ok(guard.rounded(|t| types.get(&t).copied().unwrap_or(DType::F64), &self.kernel))
    }

    /// Says why a condition leaves chunks out only after it is evaluated, or not at all.
    pub(super) fn refuse(&mut self, e: ExprId, why: &str) {
        let names: Vec<&str> =
            self.l.facts.of(self.p, self.x, e).free.iter().map(|&i| self.p[i].name.as_str()).collect();
        let note = format!("the condition over {} is no loop bound: {why}", names.join(", "));
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn bound(&mut self, e: ExprId) -> Result<Result<Guard, String>, Fail> {
        macro_rules! part {
            ($e:expr) => {
                match self.bound($e)? {
                    Ok(guard) => Box::new(guard),
                    Err(why) => return Ok(Err(why)),
                }
            };
        }
        Ok(Ok(match self.x.get(e).clone() {
            Expr::Const(_) => Guard::Const(self.x.as_const(e).unwrap_or(0.0)),
            Expr::Position(i) => Guard::Position(self.axis_of(i)?),
            Expr::Within(all) => Guard::Within(self.predicate(&all)?),
            Expr::Unary(op, a) => Guard::Unary(op, part!(a)),
            Expr::Binary(op, a, b) => Guard::Binary(op, part!(a), part!(b)),
            Expr::Select(c, a, b) => Guard::Select(part!(c), part!(a), part!(b)),
            Expr::Read(n, at) if self.cone.loads.contains(&n) => {
                if let Err(why) = self.moves_once(&at) {
                    return Ok(Err(format!("{}: {why}", self.p[n].name)));
                }
                let at = at.iter().map(|c| self.coord(c)).collect::<Result<Vec<_>, _>>()?;
                let of = TensorId(n.0);
                Guard::Element(Extremes { of, low: of, high: of, places: at.clone(), at })
            }
            Expr::Read(n, _) | Expr::Old(n) => {
                return Ok(Err(format!("{} is computed in the same kernel", self.p[n].name)));
            }
            Expr::Argument(_) | Expr::Round(..) => return Ok(Err("a value is rounded to a narrower type".into())),
        }))
    }

    /// Whether the coordinates are constants and positions, of which one at most moves within a chunk, by itself.
    fn moves_once(&self, at: &[Coordinate]) -> Result<(), String> {
        let mut moving = 0;
        for c in at {
            let mut indices = vec![];
            if !positions(c, &mut indices) {
                return Err("where it is read depends on data".into());
            }
            if indices.iter().any(|&i| self.tiling.tiled(i)) {
                if c.as_index().is_none() {
                    return Err("it is read in steps, or at an offset".into());
                }
                moving += 1;
            }
        }
        match moving {
            0 | 1 => Ok(()),
            _ => Err("a block of it lies along two axes".into()),
        }
    }
}

/// Adds the indices of a coordinate; false if it gathers.
fn positions(c: &Coordinate, out: &mut Vec<IndexId>) -> bool {
    c.terms.keys().all(|atom| match atom {
        Atom::Index(i) => {
            out.push(*i);
            true
        }
        Atom::Floor(inner, _) => positions(inner, out),
        Atom::Value(_) => false,
    })
}
