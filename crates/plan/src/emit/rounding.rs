//! Numbers are the same wherever they are computed.
//!
//! An operation has a number type of its own ([`crate::types`]), which does not depend on what becomes of it: f32 beside an
//! i32 gives an f32. Its value is rounded to that type where it has a tile, and where it is part of a larger expression
//! that is computed in f64 it is rounded as well. So a value that one kernel keeps equals the same value computed again in
//! another one: the maximum of products equals one of these.

use super::{Emitter, Fail};
use crate::expr::ExprId;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp, numeric};
use einloom_tile::{Scalar, is_wide_type};
use std::collections::BTreeSet;

impl Emitter<'_> {
    /// Expressions that are computed beside each other as parts of one operation.
    pub(super) fn numbers<const N: usize>(
        &mut self,
        parts: [ExprId; N],
        tiled: &BTreeSet<IndexId>,
    ) -> Result<[Box<Scalar>; N], Fail> {
        let mut out = vec![];
        for e in parts {
            let expr = self.scalar(e, tiled)?;
            out.push(self.typed(e, expr));
        }
        let wide = out.iter().any(|expr| self.kernel.is_wide(expr));
        let mut at = 0;
        Ok(parts.map(|e| {
            let expr = std::mem::replace(&mut out[at], Scalar::Const(0.0));
            at += 1;
            Box::new(if wide { self.beside_wide(e, expr) } else { expr })
        }))
    }

    /// An expression as part of what is computed in f64 or not.
    pub(super) fn number(&mut self, e: ExprId, tiled: &BTreeSet<IndexId>, wide: bool) -> Result<Scalar, Fail> {
        let expr = self.scalar(e, tiled)?;
        let expr = self.typed(e, expr);
        Ok(if wide { self.beside_wide(e, expr) } else { expr })
    }

    /// An expression that is rounded to the number type that the program declares for it. What it declares as f64 is
    /// computed in f64.
    pub(super) fn declared(&mut self, e: ExprId, tiled: &BTreeSet<IndexId>, dtype: DType) -> Result<Scalar, Fail> {
        match dtype {
            DType::F32 | DType::F64 => self.scalar(e, tiled),
            _ => self.number(e, tiled, is_wide_type(dtype)),
        }
    }

    /// The expression with the width of its number type.
    fn typed(&mut self, e: ExprId, expr: Scalar) -> Scalar {
        if !is_operation(&expr) {
            return expr;
        }
        let dtype = self.types.of(self.p, self.x, e);
        match self.kernel.is_wide(&expr) {
            true if !is_wide_type(dtype) && dtype != DType::B1 => Scalar::Round(DType::F32, Box::new(expr)),
            false if is_wide_type(dtype) && self.types.outgrows_f32(self.p, self.x, e) => {
                Scalar::Round(dtype, Box::new(expr))
            }
            _ => expr,
        }
    }

    /// The expression as part of a wider one: what is computed in f32 stays so.
    fn beside_wide(&mut self, e: ExprId, expr: Scalar) -> Scalar {
        let narrow = !self.kernel.is_wide(&expr) && !is_wide_type(self.types.of(self.p, self.x, e));
        if narrow && is_operation(&expr) && !is_exact(&expr) { Scalar::Round(DType::F32, Box::new(expr)) } else { expr }
    }
}

fn is_operation(expr: &Scalar) -> bool {
    matches!(expr, Scalar::Unary(..) | Scalar::Binary(..) | Scalar::Select(..))
}

/// Whether the numbers are those of f32 if they are computed in f64: nothing is rounded on the way.
fn is_exact(expr: &Scalar) -> bool {
    use UnaryOp::{Abs, Floor, Neg, Relu, Round, Sign};
    match expr {
        Scalar::Const(c) => numeric::round(DType::F32, *c) == *c,
        Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) | Scalar::Round(..) => true,
        Scalar::Unary(UnaryOp::Not, _) => true,
        Scalar::Unary(op, x) => matches!(op, Neg | Abs | Sign | Relu | Floor | Round) && is_exact(x),
        Scalar::Binary(BinaryOp::Min | BinaryOp::Max, x, y) | Scalar::Select(_, x, y) => is_exact(x) && is_exact(y),
        Scalar::Binary(op, ..) => op.is_predicate(),
    }
}
