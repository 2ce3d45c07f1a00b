//! Differences that are none: what each of them excuses is counted and told.

use einloom_cascade::{Cascade, Expr, ExprKind};

/// Takes the meaning's word where it is not finite: an overflow of the program as it is written, which a derivation may
/// remove, or an infinity in the inputs, of which no two ways to compute make the same (`0 * inf` is a NaN only where
/// it is computed). Whether some element of the derived program is finite there.
pub(super) fn forgive(found: &mut [f64], expected: &[f64]) -> bool {
    let mut finite = false;
    for (f, &e) in found.iter_mut().zip(expected).filter(|(_, e)| !e.is_finite()) {
        finite |= f.is_finite();
        *f = e;
    }
    finite
}

/// Takes the meaning's word where the derived program has a NaN: a tile of products is filtered by a factor 0, and
/// `0 * inf` is a NaN. Whether there was one.
pub(super) fn forgive_masked(found: &mut [f64], expected: &[f64]) -> bool {
    let mut masked = false;
    for (f, &e) in found.iter_mut().zip(expected).filter(|(f, e)| f.is_nan() && e.is_finite()) {
        *f = e;
        masked = true;
    }
    masked
}

/// Whether some value of the program is computed only under a condition.
pub(super) fn has_filter(cascade: &Cascade) -> bool {
    fn filters(e: &Expr) -> bool {
        let mut any = matches!(e.kind, ExprKind::Reduce { filter: Some(_), .. } | ExprKind::Select(..));
        e.for_each_child(&mut |child| any |= filters(child));
        any
    }
    cascade.statements.iter().any(|s| filters(&s.value))
}
