//! Remainders: `x - floor(x / d) * d` lies between 0 and `d - 1`, however large `x` is.

use crate::{IndexAtom, IndexExpr, SizeExpr};

/// An index expression as `rest + factor · (x mod divisor)`.
pub(super) struct Remainder {
    /// What the remainder is added to.
    pub rest: IndexExpr,
    /// Multiplies it; positive.
    pub factor: i64,
    /// The remainder is below it.
    pub divisor: SizeExpr,
}

/// Finds a remainder: a division by `d` with coefficient `-factor · d` beside `factor` times all that it divides, once
/// sizes are filled in.
pub(super) fn remainder(expr: &IndexExpr, size: impl Fn(&SizeExpr) -> Option<i64> + Copy) -> Option<Remainder> {
    expr.terms.iter().find_map(|(coefficient, atom)| {
        let IndexAtom::Floor { numerator, denominator } = atom else { return None };
        let (c, d) = (size(coefficient)?, size(denominator).filter(|d| *d > 0)?);
        let factor = Some(c.checked_neg()? / d).filter(|k| *k > 0 && k.checked_mul(d) == c.checked_neg())?;
        let (expr, numerator) = (filled(expr, size)?, filled(numerator, size)?);
        let mut rest = expr.add(&numerator.scale(&SizeExpr::constant(factor.checked_neg()?)));
        rest.terms.retain(|(_, a)| a != atom);
        // Nothing may be left of what is divided, or the rest moves with the remainder.
        let gone = numerator.terms.iter().all(|(_, a)| !rest.terms.iter().any(|(_, b)| a == b));
        gone.then(|| Remainder { rest, factor, divisor: denominator.clone() })
    })
}

/// With numbers for coefficients and the offset.
fn filled(expr: &IndexExpr, size: impl Fn(&SizeExpr) -> Option<i64>) -> Option<IndexExpr> {
    let mut out = IndexExpr::fixed(SizeExpr::constant(size(&expr.offset)?));
    for (coefficient, atom) in &expr.terms {
        out.push(SizeExpr::constant(size(coefficient)?), atom.clone());
    }
    Some(out)
}
