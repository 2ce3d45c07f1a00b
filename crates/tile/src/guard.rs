//! Guards: conditions of a stream's chunk that are decided by intervals, before anything of the chunk is loaded.
//!
//! Where a reduction's body makes every element neutral at which a condition fails, a chunk in which it can hold nowhere
//! need not be visited, and one in which it must hold everywhere need not test it. Both are told from the smallest and
//! largest value of every part of the condition over the current windows: interval arithmetic (Moore, 1966). What it
//! tells is always right and not always all: a chunk that it does not rule out may still hold no element.
//!
//! # When it is right
//! * The functions are monotone in each operand, or made of such ones: sums, differences, products, quotients by
//!   constants, extremes, magnitudes, floors, comparisons, logic.
//! * Elements are integers: no comparison meets a NaN.
//! * What an element is computed to may differ from its exact value by roundings. Where exactness is not certain
//!   (a multiple of a power of two below 2^24 of it, 2^53 of integers that are computed in f64), [`Guard::Around`] widens the
//!   interval by more than any rounding. [`Guard::rounded`] puts it there, and refuses constants with which results could
//!   be so small or large that their roundings are no part of them.

use crate::{Affine, AxisId, Coord, CoordAtom, Kernel, Op, Predicate, Program, Scalar, TensorId, ValueId};
use einloom_cascade::{BinaryOp, DType, UnaryOp};

/// An expression of which the smallest and largest value over the windows are known. As a condition it is one that the
/// stream's body tests at every element, or is implied by one.
#[derive(Clone, Debug, PartialEq)]
pub enum Guard {
    /// A constant.
    Const(f64),
    /// The positions of an axis's window.
    Position(AxisId),
    /// Whether the predicate holds.
    Within(Predicate),
    /// Elements of an integer tensor.
    Element(Extremes),
    /// The value, give or take 2^-22 of it.
    Around(Box<Guard>),
    /// [`UnaryOp::Neg`], `Abs`, `Floor`, `Round`, `Sign` or `Not`.
    Unary(UnaryOp, Box<Guard>),
    /// Arithmetic, extremes, comparisons or logic; a divisor is a constant.
    Binary(BinaryOp, Box<Guard>, Box<Guard>),
    /// `condition ? then : otherwise`.
    Select(Box<Guard>, Box<Guard>, Box<Guard>),
}

/// The smallest and the largest of the elements of a tensor over the windows.
#[derive(Clone, Debug, PartialEq)]
pub struct Extremes {
    /// The elements' tensor.
    pub of: TensorId,
    /// Where its elements are, as a load says it.
    pub at: Vec<Coord>,
    /// Holds the smallest ones: `of` itself if there is one element only.
    pub low: TensorId,
    /// Holds the largest ones.
    pub high: TensorId,
    /// Where they are in `low` and `high`, at the first positions of the windows.
    pub places: Vec<Coord>,
}

/// What a guard is without what elements are: how a value lies between integers.
#[derive(Clone, Copy)]
struct Grain {
    /// A power of two of which every value is a multiple; 0 if none is known.
    step: f64,
    /// No value is larger in magnitude.
    most: f64,
    /// It is computed in integers alone, in f64 where it asks for that; else rounded to f32.
    whole: bool,
}

/// Below this every multiple of 1 is an f32, or an f64.
const EXACT: [f64; 2] = [16_777_216.0, 9_007_199_254_740_992.0];

impl Guard {
    /// The guard with [`Guard::Around`] where what an element is computed to may be rounded.
    ///
    /// # Errors
    /// Which condition of the module's fails.
    pub fn rounded(self, program: impl Fn(TensorId) -> DType, kernel: &Kernel) -> Result<Self, String> {
        let mut wide = false;
        self.visit(&mut |g| match g {
            Self::Position(a) => wide |= kernel.axis(*a).extent as f64 > EXACT[0],
            Self::Element(e) => wide |= matches!(program(e.of), DType::I32),
            _ => {}
        });
        let checker = Checker { dtype: &program, kernel, limit: EXACT[usize::from(wide)] };
        Ok(checker.check(self)?.0)
    }

    /// Calls `f` with this and every part of it.
    pub fn visit(&self, f: &mut dyn FnMut(&Self)) {
        f(self);
        match self {
            Self::Const(_) | Self::Position(_) | Self::Within(_) | Self::Element(_) => {}
            Self::Around(x) | Self::Unary(_, x) => x.visit(f),
            Self::Binary(_, x, y) => [x, y].into_iter().for_each(|g| g.visit(f)),
            Self::Select(c, x, y) => [c, x, y].into_iter().for_each(|g| g.visit(f)),
        }
    }

    /// Calls `f` with every element's description.
    pub fn elements_mut<'a>(&'a mut self, f: &mut dyn FnMut(&'a mut Extremes)) {
        match self {
            Self::Const(_) | Self::Position(_) | Self::Within(_) => {}
            Self::Element(e) => f(e),
            Self::Around(x) | Self::Unary(_, x) => x.elements_mut(f),
            Self::Binary(_, x, y) => {
                x.elements_mut(f);
                y.elements_mut(f);
            }
            Self::Select(c, x, y) => {
                c.elements_mut(f);
                x.elements_mut(f);
                y.elements_mut(f);
            }
        }
    }

    /// The tensors that it reads when it is tested, each once, in order.
    pub fn tensors(&self) -> Vec<TensorId> {
        let mut out = vec![];
        self.visit(&mut |g| {
            if let Self::Element(e) = g {
                for t in [e.low, e.high] {
                    if !out.contains(&t) {
                        out.push(t);
                    }
                }
            }
        });
        out
    }

    /// Whether it reads no tensor, so that the chunks that it leaves are known beforehand.
    pub fn is_static(&self) -> bool {
        self.tensors().is_empty()
    }

    /// The axes that it depends on, each once.
    pub fn axes(&self) -> Vec<AxisId> {
        let mut out = vec![];
        let mut add = |a: AxisId| {
            if !out.contains(&a) {
                out.push(a);
            }
        };
        self.visit(&mut |g| match g {
            Self::Position(a) => add(*a),
            Self::Within(p) => p.all.iter().flat_map(|e| &e.terms).for_each(|t| add(t.1)),
            Self::Element(e) => e.at.iter().for_each(|c| axes_of(c, &mut add)),
            _ => {}
        });
        out
    }

    /// Whether the condition that a body tests is this one. `made` is the operation that makes a tile.
    pub fn is_tested_by<'a>(&self, scalar: &Scalar, made: &dyn Fn(ValueId) -> Option<&'a Op>) -> bool {
        if let Self::Around(x) = self {
            return x.is_tested_by(scalar, made);
        }
        if let Scalar::Tile(v) = scalar {
            return match (made(*v), self) {
                (Some(Op::Map { expr, .. }), _) => self.is_tested_by(expr, made),
                (Some(Op::Load { tensor, at, .. }), Self::Element(e)) => *tensor == e.of && *at == e.at,
                _ => false,
            };
        }
        match (self, scalar) {
            (Self::Const(x), Scalar::Const(y)) => x == y,
            (Self::Position(a), Scalar::Position(b)) => a == b,
            (Self::Within(p), Scalar::Within(q)) => p == q,
            (Self::Unary(f, x), Scalar::Unary(g, y)) => f == g && x.is_tested_by(y, made),
            (Self::Binary(f, x, y), Scalar::Binary(g, a, b)) => {
                f == g && x.is_tested_by(a, made) && y.is_tested_by(b, made)
            }
            (Self::Select(c, x, y), Scalar::Select(d, a, b)) => {
                [(c, d), (x, a), (y, b)].into_iter().all(|(g, s)| g.is_tested_by(s, made))
            }
            _ => false,
        }
    }

    /// Whether every value is exact in f32, so that a machine may compute the intervals in it.
    pub fn fits_f32(&self, program: &Program, kernel: &Kernel) -> bool {
        let mut fits = true;
        self.visit(&mut |g| match g {
            Self::Around(_) => fits = false,
            Self::Const(x) => fits &= f64::from(*x as f32) == *x,
            Self::Position(a) => fits &= kernel.axis(*a).extent as f64 <= EXACT[0],
            Self::Element(e) => fits &= program.tensor(e.of).dtype != DType::I32,
            _ => {}
        });
        fits
    }
}

/// Calls `f` with every axis of a coordinate.
fn axes_of(coord: &Coord, f: &mut dyn FnMut(AxisId)) {
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(a) => f(*a),
            CoordAtom::Floor(inner, _) => axes_of(inner, f),
            CoordAtom::Tile(_) => {}
        }
    }
}

struct Checker<'a> {
    dtype: &'a dyn Fn(TensorId) -> DType,
    kernel: &'a Kernel,
    limit: f64,
}

const TRUTH: Grain = Grain { step: 1.0, most: 1.0, whole: true };

impl Checker<'_> {
    fn check(&self, guard: Guard) -> Result<(Guard, Grain), String> {
        Ok(match guard {
            Guard::Const(x) if x == 0.0 || (1e-9..1e30).contains(&x.abs()) => {
                let whole = x.fract() == 0.0 && x.abs() <= f64::from(i32::MAX);
                (Guard::Const(x), Grain { step: power_below(x), most: x.abs(), whole })
            }
            Guard::Const(x) => return Err(format!("{x} is no number to count with")),
            Guard::Position(a) => (guard, Grain { step: 1.0, most: self.kernel.axis(a).extent as f64, whole: true }),
            Guard::Within(ref p) if p.all.iter().all(|a| self.counts(a)) => (guard, TRUTH),
            Guard::Within(_) => return Err("positions are too large to count with".to_string()),
            Guard::Element(ref e) => {
                let dtype = (self.dtype)(e.of);
                let Some((low, high)) = integers(dtype) else {
                    return Err(format!("elements of {dtype} are no integers of whole bytes"));
                };
                (guard, Grain { step: 1.0, most: high.max(-low), whole: true })
            }
            Guard::Around(x) => self.check(*x)?,
            Guard::Unary(op, x) => {
                let (x, grain) = self.check(*x)?;
                let grain = match op {
                    UnaryOp::Neg | UnaryOp::Abs => grain,
                    UnaryOp::Floor | UnaryOp::Round => {
                        Grain { step: grain.step.max(1.0), most: grain.most + 1.0, whole: true }
                    }
                    UnaryOp::Sign | UnaryOp::Not => TRUTH,
                    _ => return Err(format!("{} is not followed over intervals", op.name())),
                };
                (Guard::Unary(op, Box::new(x)), grain)
            }
            Guard::Binary(op, x, y) => {
                let ((x, a), (y, b)) = (self.check(*x)?, self.check(*y)?);
                let made = |x, y| Guard::Binary(op, Box::new(x), Box::new(y));
                let whole = a.whole && b.whole;
                match op {
                    BinaryOp::Add | BinaryOp::Sub => {
                        self.result(made(x, y), Grain { step: a.step.min(b.step), most: a.most + b.most, whole })?
                    }
                    BinaryOp::Mul => {
                        self.result(made(x, y), Grain { step: a.step * b.step, most: a.most * b.most, whole })?
                    }
                    BinaryOp::Div => match y {
                        Guard::Const(c) if c != 0.0 => {
                            let exact = power_below(c) == c.abs();
                            let step = if exact { a.step / c.abs() } else { 0.0 };
                            self.result(made(x, y), Grain { step, most: a.most / c.abs(), whole: false })?
                        }
                        _ => return Err("a divisor varies".to_string()),
                    },
                    BinaryOp::Min | BinaryOp::Max => {
                        (made(x, y), Grain { step: a.step.min(b.step), most: a.most.max(b.most), whole })
                    }
                    BinaryOp::Pow => return Err("powers are not followed over intervals".to_string()),
                    _ => (made(x, y), TRUTH),
                }
            }
            Guard::Select(c, x, y) => {
                let ((c, _), (x, a), (y, b)) = (self.check(*c)?, self.check(*x)?, self.check(*y)?);
                let whole = a.whole && b.whole;
                let grain = Grain { step: a.step.min(b.step), most: a.most.max(b.most), whole };
                (Guard::Select(Box::new(c), Box::new(x), Box::new(y)), grain)
            }
        })
    }

    /// An arithmetic operation's result, widened if it may be rounded.
    fn result(&self, guard: Guard, grain: Grain) -> Result<(Guard, Grain), String> {
        if !grain.most.is_finite() || grain.most > f64::from(f32::MAX) / 4.0 {
            return Err("values may be too large to count with".to_string());
        }
        // Products of steps below what numbers resolve are no steps.
        let limit = if grain.whole { self.limit } else { EXACT[0] };
        if grain.step > 1e-30 && grain.most / grain.step <= limit {
            return Ok((guard, grain));
        }
        Ok((Guard::Around(Box::new(guard)), Grain { step: 0.0, ..grain }))
    }

    /// Whether an affine expression's values are far from overflow.
    fn counts(&self, affine: &Affine) -> bool {
        let each = affine.terms.iter().map(|&(c, a)| c.unsigned_abs() as f64 * self.kernel.axis(a).extent as f64);
        affine.constant.unsigned_abs() as f64 + each.sum::<f64>() < (1u64 << 62) as f64
    }
}

/// The largest power of two of which a finite number is a multiple; a large one for 0, which is one of all.
fn power_below(x: f64) -> f64 {
    if x == 0.0 {
        return 2f64.powi(60);
    }
    let mut step = 2f64.powi(60);
    while step > 2f64.powi(-60) && (x / step).fract() != 0.0 {
        step /= 2.0;
    }
    if (x / step).fract() == 0.0 { step } else { 0.0 }
}

/// The smallest and largest of an integer type whose elements guards read: whole bytes.
pub fn integers(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::I16 => (-32768.0, 32767.0),
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        _ => return None,
    })
}
