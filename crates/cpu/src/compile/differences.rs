//! Parts of expressions that depend on where an element is only by the difference of its two positions, as a bias that falls with the
//! distance does: all elements on a diagonal have the same one, so that it is computed once for each diagonal of a tile.

use crate::kernels::strip::Step;
use einloom_cascade::BinaryOp;
use einloom_tile::{AxisId, Scalar};

/// A part of an expression with one value per diagonal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Differences {
    /// The part.
    pub of: Scalar,
    pub difference: Difference,
    /// Computes it from the differences. Other leaves are those of the whole expression.
    pub steps: Vec<Step>,
    /// Scratch registers, register 0 included.
    pub registers: usize,
}

impl Differences {
    /// The leaf that is the difference itself, among those that the steps read.
    pub(crate) const OWN: u16 = u16::MAX;
}

/// The position along one axis less that along the other, and a constant: a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The outer position less the inner one, or the other way round.
    pub outer_first: bool,
    pub more: i64,
}

impl Difference {
    /// Those of a tile's diagonals, which has so many rows and columns and begins at these positions: the last row's first, from
    /// where each is the next column's or the row's before.
    pub(crate) fn all(self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> impl Iterator<Item = i64> {
        let sign = if self.outer_first { 1 } else { -1 };
        let first = sign * ((row + rows).saturating_sub(1) as i64 - column as i64) + self.more;
        (0..(rows + columns).saturating_sub(1) as i64).map(move |i| first - sign * i)
    }
}

/// The difference of which an expression is a function, and of what `alike` holds for: numbers that all elements have in common.
/// `None` if it is none, or a number in common itself.
pub(super) fn difference(
    expr: &Scalar,
    [outer, inner]: [AxisId; 2],
    alike: &dyn Fn(&Scalar) -> bool,
) -> Option<Difference> {
    fn collect(
        expr: &Scalar,
        axes: [AxisId; 2],
        alike: &dyn Fn(&Scalar) -> bool,
        found: &mut Option<Difference>,
    ) -> bool {
        if let Some(this) = itself(expr, axes) {
            return *found.get_or_insert(this) == this;
        }
        match expr {
            Scalar::Round(_, x) | Scalar::Unary(_, x) => collect(x, axes, alike, found),
            Scalar::Binary(_, x, y) => [x, y].into_iter().all(|e| collect(e, axes, alike, found)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().all(|e| collect(e, axes, alike, found)),
            _ => alike(expr),
        }
    }
    let mut found = None;
    collect(expr, [outer, inner], alike, &mut found).then_some(found)?
}

/// The difference that an expression is.
pub(super) fn itself(expr: &Scalar, [outer, inner]: [AxisId; 2]) -> Option<Difference> {
    // Whole numbers of this size are exact in every order of the sums.
    const MOST: f64 = 65536.0;
    fn sum(expr: &Scalar, axes: [AxisId; 2], sign: i64, into: &mut [i64; 3]) -> bool {
        match expr {
            Scalar::Const(x) if x.fract() == 0.0 && x.abs() <= MOST => into[2] += sign * *x as i64,
            Scalar::Position(axis) if *axis == axes[0] => into[0] += sign,
            Scalar::Position(axis) if *axis == axes[1] => into[1] += sign,
            Scalar::Binary(BinaryOp::Add, x, y) => return sum(x, axes, sign, into) && sum(y, axes, sign, into),
            Scalar::Binary(BinaryOp::Sub, x, y) => return sum(x, axes, sign, into) && sum(y, axes, -sign, into),
            _ => return false,
        }
        true
    }
    let mut terms = [0; 3];
    match (sum(expr, [outer, inner], 1, &mut terms), terms) {
        (true, [1, -1, more]) => Some(Difference { outer_first: true, more }),
        (true, [-1, 1, more]) => Some(Difference { outer_first: false, more }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::UnaryOp;

    fn position(axis: u32) -> Scalar {
        Scalar::Position(AxisId(axis))
    }

    fn binary(op: BinaryOp, x: Scalar, y: Scalar) -> Scalar {
        Scalar::Binary(op, Box::new(x), Box::new(y))
    }

    #[test]
    fn functions_of_a_difference_are_found_and_others_are_not() {
        let alike = |e: &Scalar| matches!(e, Scalar::Const(_) | Scalar::Tile(_));
        let of = |e: &Scalar| difference(e, [AxisId(0), AxisId(1)], &alike);
        let (m, n) = (position(0), position(1));
        let less = binary(BinaryOp::Sub, m.clone(), n.clone());
        let falls = Some(Difference { outer_first: true, more: 0 });
        assert_eq!(of(&less), falls);
        assert_eq!(of(&binary(BinaryOp::Mul, Scalar::Tile(einloom_tile::ValueId(3)), less.clone())), falls);
        let later = binary(BinaryOp::Sub, n.clone(), binary(BinaryOp::Sub, m.clone(), Scalar::Const(3.0)));
        assert_eq!(of(&later), Some(Difference { outer_first: false, more: 3 }));
        let size = Scalar::Unary(UnaryOp::Abs, Box::new(less.clone()));
        assert_eq!(of(&size), falls);
        for none in [
            binary(BinaryOp::Add, m.clone(), n.clone()),
            binary(BinaryOp::Mul, less.clone(), n.clone()),
            binary(BinaryOp::Add, less.clone(), later),
            binary(BinaryOp::Mul, less, position(2)),
            Scalar::Const(1.0),
            binary(BinaryOp::Sub, m.clone(), binary(BinaryOp::Mul, Scalar::Const(2.0), n)),
        ] {
            assert_eq!(of(&none), None, "{none:?}");
        }
    }

    #[test]
    fn diagonals_are_in_the_order_of_the_last_row_and_then_upwards() {
        let [first, other] = [true, false].map(|outer_first| Difference { outer_first, more: 10 });
        // Rows 5, 6 and 7 of columns 2 and 3.
        assert_eq!(first.all([5, 2], [3, 2]).collect::<Vec<_>>(), [15, 14, 13, 12]);
        assert_eq!(other.all([5, 2], [3, 2]).collect::<Vec<_>>(), [5, 6, 7, 8]);
        for (r, c) in [(0, 0), (1, 1), (2, 0), (0, 1)] {
            let found = first.all([5, 2], [3, 2]).nth(2 - r + c);
            assert_eq!(found, Some((5 + r) as i64 - (2 + c) as i64 + 10));
        }
    }
}
