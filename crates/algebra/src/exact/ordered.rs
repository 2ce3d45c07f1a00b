//! Evaluation at one random point of the fields beside one random real point, which says which of two values is larger.
//!
//! All comparisons of a program, and what follows from them (which element is the largest, the sign of what `abs` is taken
//! of, which integer `floor` gives), come out alike in a region around almost every real point. In that region a program is
//! what is left without them, and that is seen in the fields. The real values are enclosed, not rounded: where that leaves
//! open which value is larger, the point is not used.

use super::field::{hash, hash_of};
use super::fields::Fields;
use super::interval::Interval;
use super::value::{Special, Value};
use crate::NodeId;
use crate::stream::{self, Domain};
use einloom_cascade::{BinaryOp, DType, Monoid, ParamId, UnaryOp};
use std::cell::Cell;
use std::cmp::Ordering;

/// A value in the fields, and where it is among the reals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub value: Value,
    pub real: Interval,
}

impl Placed {
    /// Equal as values, and not apart as reals; what the written form leaves undefined may be anything.
    pub fn agrees(&self, other: &Self) -> bool {
        let undefined = self.value.special == Special::Undefined;
        undefined || self.value.agrees(&other.value) && self.real.meets(other.real)
    }
}

/// One random point of both.
pub(super) struct Ordered<'a> {
    fields: Fields<'a>,
    /// A hash of the sizes: points of different sizes have nothing in common.
    sizes: u64,
    undecided: Cell<bool>,
}

/// Real inputs lie between this and its negative.
const LARGEST: f64 = 2.0;
/// One in this many points has positive inputs alone, for programs that have no value elsewhere.
const POSITIVE: u64 = 3;

impl<'a> Ordered<'a> {
    /// At the point of these fields.
    pub fn new(fields: Fields<'a>) -> Self {
        let sizes = hash_of(fields.bound.sizes().iter().map(|&size| size as u64));
        Self { fields, sizes, undecided: Cell::new(false) }
    }

    /// Whether some comparison could not be decided.
    pub fn is_undecided(&self) -> bool {
        self.undecided.get()
    }

    /// What is known exactly is so among the reals too.
    fn place(value: Value, real: Interval) -> Placed {
        let real = match (value.special, value.int) {
            (Special::Infinite(positive), _) if positive => Interval::point(f64::INFINITY),
            (Special::Infinite(_), _) => Interval::point(f64::NEG_INFINITY),
            (Special::Undefined, _) => Interval::ENTIRE,
            (_, Some(v)) => Interval::integer(v),
            _ if value.last() == 0 => Interval::point(0.0),
            _ => real,
        };
        Placed { value, real }
    }

    fn known(v: i128) -> Placed {
        Self::place(Value::integer(v), Interval::ENTIRE)
    }

    /// Which of two is larger; `None` if one of them has no value.
    fn ordering(&self, a: &Placed, b: &Placed) -> Option<Ordering> {
        let (x, y) = (&a.value, &b.value);
        if x.special == Special::Undefined || y.special == Special::Undefined {
            return None;
        }
        Some(if x.special == y.special && x.last() == y.last() {
            Ordering::Equal
        } else if a.real.hi < b.real.lo {
            Ordering::Less
        } else if a.real.lo > b.real.hi {
            Ordering::Greater
        } else {
            self.undecided.set(true);
            Ordering::Equal
        })
    }

    fn sign(&self, x: &Placed) -> Option<Ordering> {
        self.ordering(x, &Self::known(0))
    }

    /// A function that is one integer wherever its argument can be.
    fn step(&self, x: &Placed, f: impl Fn(f64) -> f64) -> Placed {
        let (lo, hi) = (f(x.real.lo), f(x.real.hi));
        if lo != hi || lo.abs() > 1e15 {
            self.undecided.set(true);
        }
        Self::known(lo as i128)
    }

    /// Products and quotients with an infinity, whose sign is that of both.
    fn infinite(&self, op: BinaryOp, a: &Placed, b: &Placed) -> Option<Placed> {
        let is = |v: &Placed| matches!(v.value.special, Special::Infinite(_));
        let product = op == BinaryOp::Mul && (is(a) || is(b)) || op == BinaryOp::Div && is(a) && !is(b);
        if !product {
            return None;
        }
        let value = match (self.sign(a), self.sign(b)) {
            (None | Some(Ordering::Equal), _) | (_, None | Some(Ordering::Equal)) => Value::undefined(),
            (x, y) => Value::infinite(x == y),
        };
        Some(Self::place(value, Interval::ENTIRE))
    }
}

impl Domain for Ordered<'_> {
    type Value = Placed;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Placed>> {
        let tensor = self.fields.graph[node].tensor?;
        let real = |k: usize| {
            let bits = hash(&[self.fields.seed, self.sizes, u64::from(tensor.0), k as u64]) >> 11;
            let v = LARGEST * bits as f64 / (1u64 << 53) as f64;
            if self.fields.seed.is_multiple_of(POSITIVE) { v } else { 2.0 * v - LARGEST }
        };
        let values = self.fields.input(node, count)?;
        Some(values.into_iter().enumerate().map(|(k, v)| Self::place(v, Interval::point(real(k)))).collect())
    }

    fn number(&self, v: f64) -> Placed {
        Self::place(self.fields.number(v), Interval::around(v))
    }

    fn integer(&self, v: i64) -> Placed {
        Self::known(i128::from(v))
    }

    fn param(&self, p: ParamId) -> Placed {
        Self::place(self.fields.param(p), Interval::point(self.fields.bound.param(p)))
    }

    fn unary(&self, op: UnaryOp, x: &Placed) -> Placed {
        match op {
            _ if x.value.special == Special::Undefined => *x,
            UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Sign => match (op, self.sign(x)) {
                (_, Some(Ordering::Equal)) => Self::known(0),
                (UnaryOp::Sign, sign) => Self::known(if sign == Some(Ordering::Less) { -1 } else { 1 }),
                (UnaryOp::Abs, Some(Ordering::Less)) => self.unary(UnaryOp::Neg, x),
                (UnaryOp::Relu, Some(Ordering::Less)) => Self::known(0),
                _ => *x,
            },
            UnaryOp::Floor | UnaryOp::Round if x.value.special == Special::Finite && x.value.quotient().is_none() => {
                self.step(x, |v| op.apply(v))
            }
            _ => Self::place(self.fields.unary(op, &x.value), x.real.unary(op)),
        }
    }

    fn binary(&self, op: BinaryOp, a: &Placed, b: &Placed) -> Placed {
        use BinaryOp::{Eq, Ge, Gt, Le, Lt, Max, Min};
        if op.is_comparison() {
            let ordering = self.ordering(a, b);
            let holds = match (op, ordering) {
                (_, None) => op == BinaryOp::Ne,
                (Lt, Some(o)) => o.is_lt(),
                (Le, Some(o)) => o.is_le(),
                (Gt, Some(o)) => o.is_gt(),
                (Ge, Some(o)) => o.is_ge(),
                (Eq, Some(o)) => o.is_eq(),
                (_, Some(o)) => o.is_ne(),
            };
            return Self::known(i128::from(holds));
        }
        if let Max | Min = op {
            return match self.ordering(a, b) {
                None => Self::place(Value::undefined(), Interval::ENTIRE),
                Some(o) => *if o.is_ge() == (op == Max) { a } else { b },
            };
        }
        self.infinite(op, a, b)
            .unwrap_or_else(|| Self::place(self.fields.binary(op, &a.value, &b.value), a.real.binary(op, b.real)))
    }

    fn holds(&self, v: &Placed) -> bool {
        self.fields.holds(&v.value)
    }

    fn position(&self, v: &Placed) -> Option<i64> {
        self.fields.position(&v.value)
    }

    fn slice(&self, v: Placed) -> Placed {
        Self::place(self.fields.slice(v.value), v.real)
    }

    fn round(&self, dtype: DType, v: Placed) -> Placed {
        match dtype {
            DType::F64 | DType::F32 => v,
            _ if v.value.special != Special::Finite => v,
            DType::B1 => Self::known(i128::from(v.value.last() != 0)),
            d if d.is_integer() => self.step(&v, |x| einloom_cascade::numeric::round(d, x)),
            d => Self::place(self.fields.round(d, v.value), v.real.round(d)),
        }
    }

    fn identity(&self, m: Monoid) -> Placed {
        let real = match m {
            Monoid::Custom(id) => Interval::around(self.fields.graph.cascade[id].identity),
            _ => Interval::ENTIRE,
        };
        Self::place(self.fields.identity(m), real)
    }

    fn single(&self, m: Monoid, v: Placed) -> Placed {
        match m {
            Monoid::Custom(_) => Self::place(self.fields.single(m, v.value), v.real),
            _ => v,
        }
    }

    fn combine(&self, m: Monoid, a: &Placed, b: &Placed) -> Option<Placed> {
        let spelled = || stream::combine(self, self.fields.graph, m, [a, b]);
        match m {
            // What the text says has a place among the reals, also where a function of the set stands for it.
            Monoid::Custom(_) if !self.fields.view.spelled => {
                let real = spelled()?.real;
                Some(Self::place(self.fields.combine(m, &a.value, &b.value)?, real))
            }
            _ => spelled(),
        }
    }

    fn beats(&self, m: Monoid, a: &Placed, b: &Placed) -> bool {
        let wanted = if m == Monoid::ArgMin { Ordering::Less } else { Ordering::Greater };
        self.ordering(a, b) == Some(wanted)
    }
}
