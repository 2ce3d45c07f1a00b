//! Anchors that lag behind: `state · exp(old - new)` costs a multiplication per element of the state and chunk, and is
//! almost always one by 1 if the anchor only moves when it has to.
//!
//! States that are kept relative to a running maximum `M` may be kept relative to any other anchor `A`, and be moved to
//! `M` by the same repair after the stream: that repairs compose, `ρ(a→b)·ρ(b→c) = ρ(a→c)`, is what makes them repairs.
//! `A` follows `M` when `ρ(A→M) = exp(A - M)` falls below 2⁻⁸, so that what is summed stays within 2⁸ of what it would be: exponents
//! of f32, bf16 and f16 have room for that, and relative rounding is the same.
//!
//! Conditions, for a maximum `M` among the reductions of one traversal:
//! - it has no anchor of its own;
//! - whatever reads its running value is a sum that is repaired for it alone, by one multiplication with the same
//!   `exp(old - new)` in all of them;
//! - one of these states has more axes than `M`: else there is nothing to save.
//!
//! The anchor is always finite: before anything was seen it is the least number there is, from which every other is far.
//! All that depends on whether it moved reads one condition, so that a backend can leave that out where no row of a group
//! of threads moves.
//!
//! FlashAttention-4 rescales its softmax so, by hand; here it is a property of repairs, whatever is summed.

use super::{Emitter, Fail, Lagging};
use crate::expr::{Expr, ExprId};
use crate::problem::FoldMonoid;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Init, Op, Scalar, State, ValueId};

/// How far the anchor may lag: the smallest repair that is put off.
const LEAST: f64 = 1.0 / 256.0;

/// An anchor that may lag, and the repair of the states that are kept relative to it.
#[derive(Clone, Copy)]
pub(super) struct Lag {
    pub anchor: NodeId,
    /// Its value made finite, as the states are relative to it.
    pub finite: ExprId,
    pub factor: ExprId,
}

impl Emitter<'_> {
    /// The maxima among the members of a traversal whose readers can do with an older value.
    pub(super) fn lags(&mut self, members: &[NodeId]) -> Vec<Lag> {
        if !self.lag {
            return vec![];
        }
        members.iter().filter_map(|&m| self.lags_behind(m, members)).collect()
    }

    fn lags_behind(&mut self, anchor: NodeId, members: &[NodeId]) -> Option<Lag> {
        let max = &self.l.folds[&anchor];
        if max.monoid != FoldMonoid::Max || !max.anchors.is_empty() || max.repair.is_some() {
            return None;
        }
        let axes = self.tiled(&max.state).len();
        let mut found: Option<ExprId> = None;
        let mut larger = false;
        for n in members.iter().filter(|n| **n != anchor) {
            let f = &self.l.folds[n];
            let read = self.x.plain(*n, &self.p[*n].axes);
            if !self.l.facts.of(self.p, self.x, read).reach.contains(&anchor) {
                continue;
            }
            let repair = f.repair.as_ref()?;
            let alone = f.anchors == [anchor] && f.monoid == FoldMonoid::Sum;
            let simple = repair.combine == BinaryOp::Mul && repair.plus.is_none() && repair.keep_if.is_none();
            if !alone || !simple || found.is_some_and(|f| f != repair.factor) {
                return None;
            }
            found = Some(repair.factor);
            larger |= self.tiled(&f.state).len() > axes;
        }
        let factor = found.filter(|_| larger)?;
        let &Expr::Unary(UnaryOp::Exp, moved) = self.x.get(factor) else { return None };
        let &Expr::Binary(BinaryOp::Sub, old, finite) = self.x.get(moved) else { return None };
        (*self.x.get(old) == Expr::Old(anchor)).then_some(Lag { anchor, finite, factor })
    }

    /// The anchor after the chunk: still the old one, unless the states must move.
    pub(super) fn follow(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        let depth = self.scopes.len() - 1;
        let latest = self.latest(n)?;
        let Some(Lagging { old, of, .. }) = self.scopes[depth].running.get(&n).and_then(|r| r.lag) else {
            return Ok(latest);
        };
        let name = self.p[n].name.to_lowercase();
        let tile = |v| Box::new(Scalar::Tile(v));
        let distance = Scalar::Binary(BinaryOp::Sub, tile(old), tile(latest));
        let expr = Scalar::Binary(BinaryOp::Lt, Box::new(distance), Box::new(Scalar::Const(LEAST.ln())));
        let far = self.like(latest, format!("{name}.far"), DType::B1, expr);
        let choice = |a: ValueId, b: Scalar| Scalar::Select(tile(far), tile(a), Box::new(b));
        // The repair, and what the states become relative to, if the anchor moved all the way.
        let before = self.scopes[depth].memo.clone();
        self.set_lagging(depth, n, Some(latest));
        let whole = self.tile(of.factor)?;
        let finite = self.tile(of.finite)?;
        self.scopes[depth].memo = before;
        let dtype = self.kernel.value(latest).dtype;
        let taken = self.like(whole, format!("{name}.moved"), dtype, choice(whole, Scalar::Const(1.0)));
        let anchor = self.like(finite, format!("{name}.anchor"), dtype, choice(finite, Scalar::Tile(old)));
        for (e, v) in [(of.factor, taken), (of.finite, anchor)] {
            let decl = self.kernel.value(v);
            let sides = (decl.rows, decl.cols);
            self.scopes[depth].memo.insert((e, sides), v);
        }
        self.set_lagging(depth, n, Some(anchor));
        Ok(anchor)
    }

    /// Places a map with the shape of another tile.
    fn like(&mut self, v: ValueId, name: String, dtype: DType, expr: Scalar) -> ValueId {
        let decl = self.kernel.value(v);
        let sides = (decl.rows, decl.cols);
        let dst = self.new_value(name, sides, dtype);
        self.push(Op::Map { dst, expr });
        dst
    }

    fn set_lagging(&mut self, depth: usize, n: NodeId, new: Option<ValueId>) {
        if let Some(lag) = self.scopes[depth].running.get_mut(&n).and_then(|r| r.lag.as_mut()) {
            lag.new = new;
        }
    }

    /// A state of one level of a traversal for every lagging anchor.
    pub(super) fn lag_states(&mut self, lags: &[Lag]) -> Result<Vec<ValueId>, Fail> {
        let state = |s: &mut Self, l: &Lag| -> Result<ValueId, Fail> {
            let v = s.new_state(l.anchor)?;
            if let Some(decl) = s.kernel.values.last_mut() {
                decl.name += ".anchor";
            }
            Ok(v)
        };
        lags.iter().map(|l| state(self, l)).collect()
    }

    /// They begin with the least finite number.
    pub(super) fn lagging_states(&self, values: &[ValueId], outer: Option<&[ValueId]>, next: &[ValueId]) -> Vec<State> {
        let least = |v: ValueId| match self.kernel.value(v).dtype {
            DType::F64 => f64::MIN,
            _ => f64::from(f32::MIN),
        };
        let init = |at: usize, v| outer.map_or(Init::Const(least(v)), |o| Init::Value(o[at]));
        let all = values.iter().zip(next).enumerate();
        all.map(|(at, (&value, &next))| State { value, init: init(at, value), next }).collect()
    }

    /// After the stream: moves the states that are kept relative to `at` to the maximum itself.
    pub(super) fn catch_up(&mut self, lag: &Lag, at: ValueId, states: &mut [(NodeId, ValueId)]) -> Result<(), Fail> {
        let depth = self.scopes.len() - 1;
        let before = self.scopes[depth].memo.clone();
        self.behind.insert(lag.anchor, at);
        let factor = self.tile(lag.factor);
        self.behind.remove(&lag.anchor);
        self.scopes[depth].memo = before;
        let factor = factor?;
        for (n, v) in states {
            if self.l.folds[n].anchors != [lag.anchor] {
                continue;
            }
            let decl = self.kernel.value(*v).clone();
            let dst = self.new_value(self.p[*n].name.to_lowercase(), (decl.rows, decl.cols), decl.dtype);
            let product = Scalar::Binary(BinaryOp::Mul, Box::new(Scalar::Tile(*v)), Box::new(Scalar::Tile(factor)));
            self.push(Op::Map { dst, expr: product });
            *v = dst;
        }
        Ok(())
    }
}
