//! Between which numbers a value lies, whatever the inputs hold, and whether finite inputs make it finite.
//!
//! Intervals follow the expressions and the definitions of what they read; a number type that is declared bounds what is
//! stored in it. Two facts about reductions are used besides, each where the reduction covers the element:
//! `x - max(n) x ≤ 0`, and `x / sum(n) x` lies in `[0, 1]` if no `x` is negative. It does where its conditions are among
//! those that hold, and its terms are the same expression.
//!
//! An anchor that lags ([`crate::emit`]) lets `x - max(n) x` be as much as 8 binary exponents: every type has room for that.
//! Rounding is not followed: a bound may be exceeded by a few units in the last place. Nor is overflow of the program's own
//! numbers: it is what the text says.

use super::Lowering;
use crate::expr::{Expr, ExprId, Linear};
use crate::problem::{Fold, FoldMonoid, ItemDef};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use rustc_hash::FxHashMap;

/// What is known of a value that is a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub low: f64,
    pub high: f64,
    /// It is finite if the inputs are, unless it overflows.
    pub finite: bool,
}

/// Definitions that are looked through one inside the other, at most: beyond that nothing is known.
const DEEPEST: usize = 64;

/// Pairs of expressions that are compared for one fact.
const STEPS: usize = 256;

impl Range {
    const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY, finite: false };
    const TRUTH: Self = Self { low: 0.0, high: 1.0, finite: true };

    fn new(low: f64, high: f64, finite: bool) -> Self {
        // Nothing is known of what is no number.
        let low = if low.is_nan() { f64::NEG_INFINITY } else { low };
        Self { low, high: if high.is_nan() { f64::INFINITY } else { high }, finite }
    }

    /// The largest magnitude.
    pub(super) fn most(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    fn hull(self, other: Self) -> Self {
        Self::new(self.low.min(other.low), self.high.max(other.high), self.finite && other.finite)
    }

    fn within(self, other: Self) -> Self {
        Self { low: self.low.max(other.low), high: self.high.min(other.high), ..self }
    }

    fn mapped(self, finite: bool, f: impl Fn(f64) -> f64) -> Self {
        Self::new(f(self.low), f(self.high), finite)
    }

    /// The hull of an operation, monotone in each operand, over the corners.
    fn corners(self, other: Self, finite: bool, f: impl Fn(f64, f64) -> f64) -> Self {
        let all = [(self.low, other.low), (self.low, other.high), (self.high, other.low), (self.high, other.high)];
        let all = all.map(|(a, b)| f(a, b));
        if all.iter().any(|v| v.is_nan()) {
            return Self { finite, ..Self::ANY };
        }
        Self::new(
            all.into_iter().fold(f64::INFINITY, f64::min),
            all.into_iter().fold(f64::NEG_INFINITY, f64::max),
            finite,
        )
    }

    /// What a number type can hold.
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::B1 => Self::TRUTH,
            d if d.is_float() => match largest(d) {
                Some(most) => Self { low: -most, high: most, finite: true },
                None => Self { finite: true, ..Self::ANY },
            },
            DType::U4 => Self { low: 0.0, high: 15.0, finite: true },
            DType::U8 => Self { low: 0.0, high: 255.0, finite: true },
            DType::I4 => Self { low: -8.0, high: 7.0, finite: true },
            DType::I8 => Self { low: -128.0, high: 127.0, finite: true },
            DType::I16 => Self { low: -32768.0, high: 32767.0, finite: true },
            _ => Self { finite: true, low: f64::from(i32::MIN), high: f64::from(i32::MAX) },
        }
    }
}

/// The largest finite number of a type that has less range than f32.
pub(super) fn largest(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F16 => Some(65504.0),
        DType::E4m3 => Some(448.0),
        DType::E5m2 => Some(57344.0),
        _ => None,
    }
}

impl Lowering<'_> {
    /// The range of an expression where all of `holds` hold.
    pub(super) fn range(&self, e: ExprId, holds: &[ExprId]) -> Range {
        Ranges { l: self, memo: FxHashMap::default(), depth: 0 }.of(e, holds)
    }

    /// Whether a condition holds wherever another does.
    pub(super) fn implies(&self, h: ExprId, f: ExprId) -> bool {
        let forms = |e: ExprId| -> Option<&Vec<Linear>> {
            if let Expr::Within(all) = self.x.get(e) { Some(all) } else { None }
        };
        match (self.x.get(h), forms(h), forms(f)) {
            _ if h == f => true,
            (_, Some(all), Some(wanted)) => wanted.iter().all(|form| all.contains(form)),
            (Expr::Binary(BinaryOp::And, a, b), ..) => self.implies(*a, f) || self.implies(*b, f),
            _ => false,
        }
    }

    /// Whether two expressions are the same, once what they read is replaced by its definition. What takes too long to
    /// tell is not.
    fn same(&self, a: ExprId, b: ExprId, steps: &mut usize) -> bool {
        if a == b || self.replace.get(&b) == Some(&a) {
            return true;
        }
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        let inside = |e: ExprId| {
            let Expr::Read(n, at) = self.x.get(e) else { return None };
            let item = &self.p[*n];
            let plain = at.iter().zip(&item.axes).all(|(c, &i)| c.as_index() == Some(i));
            let exact = item.dtype.is_none() || item.dtype == Some(DType::F32);
            match item.def {
                ItemDef::Map(e) if plain && exact && item.recurrence.is_none() => Some(e),
                _ => None,
            }
        };
        match (inside(a), inside(b)) {
            (Some(a), _) => return self.same(a, b, steps),
            (_, Some(b)) => return self.same(a, b, steps),
            _ => {}
        }
        match (self.x.get(a), self.x.get(b)) {
            (Expr::Round(d, a), Expr::Round(e, b)) => d == e && self.same(*a, *b, steps),
            (Expr::Unary(f, a), Expr::Unary(g, b)) => f == g && self.same(*a, *b, steps),
            (Expr::Binary(f, a, c), Expr::Binary(g, b, d)) => {
                f == g && self.same(*a, *b, steps) && self.same(*c, *d, steps)
            }
            (Expr::Select(c, a, b), Expr::Select(d, e, f)) => {
                self.same(*c, *d, steps) && self.same(*a, *e, steps) && self.same(*b, *f, steps)
            }
            _ => false,
        }
    }
}

struct Ranges<'r, 'a> {
    l: &'r Lowering<'a>,
    memo: FxHashMap<(ExprId, Vec<ExprId>), Range>,
    depth: usize,
}

impl Ranges<'_, '_> {
    fn of(&mut self, e: ExprId, holds: &[ExprId]) -> Range {
        let key = (e, holds.to_vec());
        if let Some(&known) = self.memo.get(&key) {
            return known;
        }
        if self.depth >= DEEPEST {
            return Range::ANY;
        }
        self.depth += 1;
        let found = self.find(e, holds);
        self.depth -= 1;
        self.memo.insert(key, found);
        found
    }

    fn find(&mut self, e: ExprId, holds: &[ExprId]) -> Range {
        match *self.l.x.get(e) {
            Expr::Const(_) => match self.l.x.as_const(e) {
                Some(v) => Range::new(v, v, v.is_finite()),
                None => Range::ANY,
            },
            Expr::Position(i) => Range::new(0.0, self.l.p[i].extent as f64, true),
            Expr::Within(_) => Range::TRUTH,
            Expr::Argument(_) => Range::ANY,
            // What left the sum is written beside it where it is read.
            Expr::Read(n, _) | Expr::Old(n) if self.l.replace.contains_key(&e) => {
                Range { finite: self.node(n).finite, ..Range::ANY }
            }
            Expr::Read(n, _) | Expr::Old(n) => self.node(n),
            Expr::Round(d, a) => {
                let a = self.of(a, holds);
                let bounds = Range::of(d);
                a.within(bounds)
            }
            Expr::Unary(op, a) => unary(op, self.of(a, holds)),
            Expr::Binary(op, a, b) => self.binary(op, a, b, holds),
            Expr::Select(c, a, b) => {
                let mut inside = holds.to_vec();
                inside.push(c);
                self.of(a, &inside).hull(self.of(b, holds))
            }
        }
    }

    /// The range of a node's elements, anywhere.
    fn node(&mut self, n: NodeId) -> Range {
        let item = &self.l.p[n];
        let declared = item.dtype.map_or(Range { finite: true, ..Range::ANY }, Range::of);
        let own = match &item.def {
            ItemDef::Input => return declared,
            ItemDef::Map(e) if item.recurrence.is_none() => self.of(*e, &[]),
            ItemDef::Fold(fold) if item.recurrence.is_none() => self.fold(fold),
            _ => Range::ANY,
        };
        own.within(declared)
    }

    fn fold(&mut self, fold: &Fold) -> Range {
        let body = self.of(fold.body, &fold.filter);
        let extents = fold.over.iter().map(|&i| self.l.p[i].extent as f64);
        let count: f64 = extents.product();
        let empty = !fold.filter.is_empty() || count == 0.0;
        match fold.monoid {
            FoldMonoid::Sum => {
                let end = |v: f64| if v == 0.0 { 0.0 } else { v * count };
                // Some terms may be left out.
                Range::new(end(body.low).min(0.0), end(body.high).max(0.0), body.finite)
            }
            FoldMonoid::Max if empty => Range::new(f64::NEG_INFINITY, body.high, false),
            FoldMonoid::Min if empty => Range::new(body.low, f64::INFINITY, false),
            FoldMonoid::Max | FoldMonoid::Min => body,
            FoldMonoid::Prod => Range { finite: body.finite, ..Range::ANY },
            FoldMonoid::Custom(_) => Range::ANY,
        }
    }

    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId, holds: &[ExprId]) -> Range {
        if op.is_predicate() {
            return Range::TRUTH;
        }
        let (x, y) = (self.of(a, holds), self.of(b, holds));
        let finite = x.finite && y.finite;
        match op {
            BinaryOp::Add => Range::new(x.low + y.low, x.high + y.high, finite),
            BinaryOp::Sub => {
                let high = if self.covered(a, b, FoldMonoid::Max, holds) { 0.0 } else { x.high - y.low };
                Range::new(x.low - y.high, high, finite)
            }
            BinaryOp::Mul => x.corners(y, finite, |a, b| if a == 0.0 || b == 0.0 { 0.0 } else { a * b }),
            BinaryOp::Div if x.low >= 0.0 && self.covered(a, b, FoldMonoid::Sum, holds) => {
                Range { finite: false, ..Range::TRUTH }
            }
            BinaryOp::Div if y.low > 0.0 || y.high < 0.0 => {
                // What is infinite divides to 0.
                x.corners(y, finite, |a, b| if a == 0.0 || b.is_infinite() { 0.0 } else { a / b })
            }
            BinaryOp::Pow => match self.l.x.as_const(b) {
                Some(p) if p >= 0.0 && p.fract() == 0.0 => {
                    let most = x.most().powf(p);
                    let low = if p % 2.0 == 0.0 { 0.0 } else { -most };
                    Range::new(low, most, x.finite)
                }
                _ => Range::ANY,
            },
            BinaryOp::Min => Range::new(x.low.min(y.low), x.high.min(y.high), finite),
            BinaryOp::Max => Range::new(x.low.max(y.low), x.high.max(y.high), finite),
            _ => Range::ANY,
        }
    }

    /// Whether `b` is a reduction, by `monoid`, of which `a` is one term where all of `holds` hold; a maximum may be made
    /// finite by a choice of 0, which is then no less than any term.
    fn covered(&self, a: ExprId, b: ExprId, monoid: FoldMonoid, holds: &[ExprId]) -> bool {
        let x = &self.l.x;
        match *x.get(b) {
            Expr::Select(c, m, zero) if monoid == FoldMonoid::Max && x.as_const(zero) == Some(0.0) => {
                let Expr::Binary(BinaryOp::Lt, magnitude, limit) = *x.get(c) else { return false };
                let infinite = x.as_const(limit) == Some(f64::INFINITY);
                infinite && *x.get(magnitude) == Expr::Unary(UnaryOp::Abs, m) && self.covered(a, m, monoid, holds)
            }
            Expr::Read(n, ref at) => {
                let item = &self.l.p[n];
                let plain = at.iter().zip(&item.axes).all(|(c, &i)| c.as_index() == Some(i));
                let ItemDef::Fold(own) = &item.def else { return false };
                let fold = self.l.cone.folds.get(&n).unwrap_or(own);
                let implied = |f: &ExprId| holds.iter().any(|&h| self.l.implies(h, *f));
                plain
                    && fold.monoid == monoid
                    && self.l.same(a, fold.body, &mut { STEPS })
                    && fold.filter.iter().all(implied)
            }
            _ => false,
        }
    }
}

fn unary(op: UnaryOp, x: Range) -> Range {
    let ends = |low: f64, high: f64| Range::new(low, high, x.finite);
    match op {
        UnaryOp::Neg => ends(-x.high, -x.low),
        UnaryOp::Not => Range::TRUTH,
        UnaryOp::Abs if x.low >= 0.0 => x,
        UnaryOp::Abs => ends(0.0, x.most()),
        UnaryOp::Exp => x.mapped(x.finite, f64::exp),
        UnaryOp::Exp2 => x.mapped(x.finite, f64::exp2),
        UnaryOp::Log => x.mapped(x.finite && x.low > 0.0, f64::ln),
        UnaryOp::Log2 => x.mapped(x.finite && x.low > 0.0, f64::log2),
        UnaryOp::Log1p => x.mapped(x.finite && x.low > -1.0, f64::ln_1p),
        UnaryOp::Sqrt => x.mapped(x.finite && x.low >= 0.0, f64::sqrt),
        UnaryOp::Rsqrt if x.low > 0.0 => Range::new(1.0 / x.high.sqrt(), 1.0 / x.low.sqrt(), x.finite),
        UnaryOp::Rsqrt => Range::new(0.0, f64::INFINITY, false),
        UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Sign => ends(-1.0, 1.0),
        UnaryOp::Sigmoid => ends(0.0, 1.0),
        UnaryOp::Floor | UnaryOp::Round => ends(x.low.floor(), x.high.ceil()),
        UnaryOp::Relu => ends(x.low.max(0.0), x.high.max(0.0)),
        // Both are above -1 everywhere.
        UnaryOp::Silu | UnaryOp::Gelu => ends(-1.0, x.high.max(0.0)),
    }
}
