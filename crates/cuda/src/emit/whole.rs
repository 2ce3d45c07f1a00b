//! Whole numbers made of positions, in integers: conversions, roundings and floors of floats have an eighth of the rate of
//! other operations (CUDA C++ Programming Guide, "Arithmetic Instructions", compute capability 9.0).
//!
//! An expression is one of these if it is made of positions and whole constants by functions that keep whole numbers
//! whole, or is the floor of one divided by a whole constant, and no value on the way leaves ±2^24: up to there f32 has all
//! whole numbers, so that both ways give the same number.

use super::element::Emitter;
use crate::schedule::FrameId;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::Scalar;

/// Whole numbers below this in magnitude are numbers of f32.
const LIMIT: i64 = 1 << 24;

/// An integer expression, with the range of its values.
pub(super) struct Whole {
    pub text: String,
    low: i64,
    high: i64,
}

impl Whole {
    fn new(text: String, ends: [i64; 4]) -> Option<Self> {
        let low = ends.into_iter().min()?;
        let high = ends.into_iter().max()?;
        (-LIMIT < low && high < LIMIT).then_some(Self { text, low, high })
    }

    /// Of a function that rises or falls throughout.
    fn map(self, text: String, f: impl Fn(i64) -> i64) -> Option<Self> {
        let [a, b] = [f(self.low), f(self.high)];
        Self::new(text, [a, b, a, b])
    }
}

impl Emitter<'_> {
    /// The expression in integers, if it may be.
    pub(super) fn whole(&self, expr: &Scalar, frame: Option<FrameId>) -> Option<Whole> {
        match expr {
            Scalar::Const(c) => {
                let c = constant(*c)?;
                Whole::new(if c < 0 { format!("({c})") } else { c.to_string() }, [c; 4])
            }
            Scalar::Position(axis) => {
                let a = self.facts.kernel.axis(*axis);
                // Elements beyond the window have positions too.
                let last = i64::try_from(a.extent.checked_add(self.facts.size(*axis))?).ok()?;
                let text = self.absolute(*axis, frame);
                Whole::new(if text.contains(' ') { format!("({text})") } else { text }, [0, last, 0, last])
            }
            Scalar::Unary(UnaryOp::Neg, x) => {
                let x = self.whole(x, frame)?;
                let text = format!("(-{})", x.text);
                x.map(text, |x| -x)
            }
            Scalar::Unary(UnaryOp::Abs, x) => {
                let Whole { text, low, high } = self.whole(x, frame)?;
                let most = low.abs().max(high.abs());
                let least = if low <= 0 && high >= 0 { 0 } else { low.abs().min(high.abs()) };
                Whole::new(format!("abs_int({})", super::scalar::bare(&text)), [least, most, least, most])
            }
            Scalar::Unary(UnaryOp::Floor, x) => match divided(x) {
                Some((x, by)) => {
                    let x = self.whole(x, frame)?;
                    let text = match by.is_positive() && by.count_ones() == 1 {
                        true => format!("({} >> {})", x.text, by.trailing_zeros()),
                        false if x.low >= 0 => format!("({} / {by})", x.text),
                        false => format!("floor_div_int({}, {by})", super::scalar::bare(&x.text)),
                    };
                    x.map(text, |x| x.div_euclid(by))
                }
                None => self.whole(x, frame),
            },
            Scalar::Binary(op, a, b) => {
                let (a, b) = (self.whole(a, frame)?, self.whole(b, frame)?);
                let both =
                    |f: fn(i64, i64) -> i64| [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
                let (x, y) = (&a.text, &b.text);
                let call = |name: &str| format!("{name}({}, {})", super::scalar::bare(x), super::scalar::bare(y));
                match op {
                    BinaryOp::Add => Whole::new(format!("({x} + {y})"), both(|x, y| x + y)),
                    BinaryOp::Sub => Whole::new(format!("({x} - {y})"), both(|x, y| x - y)),
                    BinaryOp::Mul => Whole::new(format!("({x} * {y})"), both(|x, y| x * y)),
                    BinaryOp::Min => Whole::new(call("min_int"), both(i64::min)),
                    BinaryOp::Max => Whole::new(call("max_int"), both(i64::max)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// The constant, if it is whole.
fn constant(c: f64) -> Option<i64> {
    (c.fract() == 0.0 && c.abs() < LIMIT as f64).then_some(c as i64)
}

/// `x` and `c` of `x / c` with a whole `c > 0`; a product with a power of two, which is exact, is one too.
fn divided(expr: &Scalar) -> Option<(&Scalar, i64)> {
    let (x, c) = match expr {
        Scalar::Binary(BinaryOp::Div, x, c) => (x, constant(number(c)?)?),
        Scalar::Binary(BinaryOp::Mul, x, c) => {
            let by = constant(1.0 / number(c)?)?;
            (x, if by > 0 && by.count_ones() == 1 { by } else { return None })
        }
        _ => return None,
    };
    (c > 0).then_some((&**x, c))
}

fn number(expr: &Scalar) -> Option<f64> {
    if let Scalar::Const(c) = expr { Some(*c) } else { None }
}
