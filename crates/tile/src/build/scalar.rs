//! Arithmetic on elements: scalar expressions over tiles.

use crate::{AxisId, Predicate, Scalar, ValueId};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use std::ops::{Add, Div, Mul, Neg, Sub};

impl From<ValueId> for Scalar {
    fn from(value: ValueId) -> Self {
        Self::Tile(value)
    }
}

impl From<f64> for Scalar {
    fn from(constant: f64) -> Self {
        Self::Const(constant)
    }
}

/// The position along the axis.
impl From<AxisId> for Scalar {
    fn from(axis: AxisId) -> Self {
        Self::Position(axis)
    }
}

impl From<Predicate> for Scalar {
    fn from(predicate: Predicate) -> Self {
        Self::Within(predicate)
    }
}

/// `condition ? then : otherwise`, elementwise.
pub fn select(condition: impl Into<Scalar>, then: impl Into<Scalar>, otherwise: impl Into<Scalar>) -> Scalar {
    Scalar::Select(Box::new(condition.into()), Box::new(then.into()), Box::new(otherwise.into()))
}

fn unary(op: UnaryOp, x: impl Into<Scalar>) -> Scalar {
    Scalar::Unary(op, Box::new(x.into()))
}

fn binary(op: BinaryOp, x: impl Into<Scalar>, y: impl Into<Scalar>) -> Scalar {
    Scalar::Binary(op, Box::new(x.into()), Box::new(y.into()))
}

macro_rules! functions {
    ($type:ty) => {
        // Inherent, because both types would otherwise meet `Ord::max` and `f64`-like traits of callers.
        impl $type {
            /// Any function of one element.
            pub fn apply(self, op: UnaryOp) -> Scalar {
                unary(op, self)
            }

            /// Any function of two elements.
            pub fn with(self, op: BinaryOp, other: impl Into<Scalar>) -> Scalar {
                binary(op, self, other)
            }

            /// `e^x`.
            pub fn exp(self) -> Scalar {
                unary(UnaryOp::Exp, self)
            }

            /// Natural logarithm.
            pub fn log(self) -> Scalar {
                unary(UnaryOp::Log, self)
            }

            /// Square root.
            pub fn sqrt(self) -> Scalar {
                unary(UnaryOp::Sqrt, self)
            }

            /// `1 / sqrt(x)`.
            pub fn rsqrt(self) -> Scalar {
                unary(UnaryOp::Rsqrt, self)
            }

            /// The larger.
            pub fn max(self, other: impl Into<Scalar>) -> Scalar {
                binary(BinaryOp::Max, self, other)
            }

            /// The smaller.
            pub fn min(self, other: impl Into<Scalar>) -> Scalar {
                binary(BinaryOp::Min, self, other)
            }

            /// Rounded to a number type. As a whole right-hand side it gives the tile that type.
            pub fn round_to(self, dtype: DType) -> Scalar {
                Scalar::Round(dtype, Box::new(self.into()))
            }
        }
    };
}

functions!(Scalar);
functions!(ValueId);

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl<R: Into<Scalar>> $trait<R> for Scalar {
            type Output = Scalar;
            fn $method(self, other: R) -> Scalar {
                binary(BinaryOp::$op, self, other)
            }
        }
        impl<R: Into<Scalar>> $trait<R> for ValueId {
            type Output = Scalar;
            fn $method(self, other: R) -> Scalar {
                binary(BinaryOp::$op, self, other)
            }
        }
        impl $trait<Scalar> for f64 {
            type Output = Scalar;
            fn $method(self, other: Scalar) -> Scalar {
                binary(BinaryOp::$op, self, other)
            }
        }
        impl $trait<ValueId> for f64 {
            type Output = Scalar;
            fn $method(self, other: ValueId) -> Scalar {
                binary(BinaryOp::$op, self, other)
            }
        }
    )*};
}

operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl Neg for Scalar {
    type Output = Scalar;
    fn neg(self) -> Scalar {
        unary(UnaryOp::Neg, self)
    }
}

impl Neg for ValueId {
    type Output = Scalar;
    fn neg(self) -> Scalar {
        unary(UnaryOp::Neg, self)
    }
}
