//! Arithmetic on positions: affine expressions, predicates and coordinates.

use crate::{Affine, AxisId, Coord, CoordAtom, Predicate};
use std::ops::{Add, Mul, Sub};

impl From<AxisId> for Affine {
    fn from(axis: AxisId) -> Self {
        Self::axis(axis)
    }
}

impl From<i64> for Affine {
    fn from(constant: i64) -> Self {
        Self { terms: vec![], constant }
    }
}

impl From<AxisId> for Coord {
    fn from(axis: AxisId) -> Self {
        Self::axis(axis)
    }
}

impl From<i64> for Coord {
    fn from(offset: i64) -> Self {
        Self::fixed(offset)
    }
}

impl From<Affine> for Coord {
    fn from(affine: Affine) -> Self {
        let terms = affine.terms.into_iter().map(|(c, a)| (c, CoordAtom::Axis(a))).collect();
        Self { terms, offset: affine.constant }
    }
}

impl Affine {
    /// Where it is at most `other`.
    pub fn at_most(self, other: impl Into<Affine>) -> Predicate {
        Predicate { all: vec![other.into() - self] }
    }

    /// Where it is less than `other`.
    pub fn less_than(self, other: impl Into<Affine>) -> Predicate {
        (self + 1).at_most(other)
    }

    /// Where it is at least `other`.
    pub fn at_least(self, other: impl Into<Affine>) -> Predicate {
        Predicate { all: vec![self - other.into()] }
    }

    fn plus(mut self, sign: i64, other: Affine) -> Affine {
        for (c, axis) in other.terms {
            match self.terms.iter_mut().find(|t| t.1 == axis) {
                Some(term) => term.0 += sign * c,
                None => self.terms.push((sign * c, axis)),
            }
        }
        self.terms.retain(|t| t.0 != 0);
        self.constant += sign * other.constant;
        self
    }
}

impl AxisId {
    /// Where the position is at most `other`.
    pub fn at_most(self, other: impl Into<Affine>) -> Predicate {
        Affine::axis(self).at_most(other)
    }

    /// Where the position is less than `other`.
    pub fn less_than(self, other: impl Into<Affine>) -> Predicate {
        Affine::axis(self).less_than(other)
    }

    /// Where the position is at least `other`.
    pub fn at_least(self, other: impl Into<Affine>) -> Predicate {
        Affine::axis(self).at_least(other)
    }

    /// `floor(position / denominator)`, for the head of a group and the like.
    pub fn div_floor(self, denominator: i64) -> Coord {
        Coord::axis(self).div_floor(denominator)
    }
}

impl Coord {
    /// `floor(self / denominator)`.
    pub fn div_floor(self, denominator: i64) -> Coord {
        Coord { terms: vec![(1, CoordAtom::Floor(Box::new(self), denominator))], offset: 0 }
    }

    /// The elements of an integer tile.
    pub fn gather(ids: crate::ValueId) -> Coord {
        Coord { terms: vec![(1, CoordAtom::Tile(ids))], offset: 0 }
    }
}

impl Predicate {
    /// Always true.
    pub fn always() -> Self {
        Self::default()
    }

    /// Where both hold.
    pub fn and(mut self, other: Predicate) -> Self {
        self.all.extend(other.all);
        self
    }
}

macro_rules! affine_arithmetic {
    ($($left:ty),*) => {$(
        impl<R: Into<Affine>> Add<R> for $left {
            type Output = Affine;
            fn add(self, other: R) -> Affine {
                Affine::from(self).plus(1, other.into())
            }
        }
        impl<R: Into<Affine>> Sub<R> for $left {
            type Output = Affine;
            fn sub(self, other: R) -> Affine {
                Affine::from(self).plus(-1, other.into())
            }
        }
        impl Mul<i64> for $left {
            type Output = Affine;
            fn mul(self, by: i64) -> Affine {
                let mut out = Affine::from(self);
                out.terms.iter_mut().for_each(|t| t.0 *= by);
                out.terms.retain(|t| t.0 != 0);
                out.constant *= by;
                out
            }
        }
    )*};
}

affine_arithmetic!(Affine, AxisId);

impl<R: Into<Coord>> Add<R> for Coord {
    type Output = Coord;
    fn add(mut self, other: R) -> Coord {
        let other = other.into();
        self.terms.extend(other.terms);
        self.offset += other.offset;
        self
    }
}
