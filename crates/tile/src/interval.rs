//! Intervals over the current windows: what a [`Guard`] tells of a chunk.

use crate::{AxisId, Coord, CoordAtom, Coverage, Extremes, Guard, Kernel, Predicate, Window, chunks, coverage};
use einloom_cascade::{BinaryOp, UnaryOp};

/// All values of an expression lie from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// No value is less.
    pub low: f64,
    /// No value is greater.
    pub high: f64,
}

/// [`Guard::Around`] widens by this, in parts of the value: four roundings of f32.
pub const AROUND: f64 = 1.0 / (1 << 22) as f64;

impl Interval {
    /// Any value.
    pub const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
    /// True or false.
    const EITHER: Self = Self { low: 0.0, high: 1.0 };

    /// Just this value.
    pub fn only(x: f64) -> Self {
        Self { low: x, high: x }
    }

    fn truth(may: bool, must: bool) -> Self {
        Self { low: f64::from(u8::from(must)), high: f64::from(u8::from(may)) }
    }

    /// Whether some value may be true.
    fn may(self) -> bool {
        self.low != 0.0 || self.high != 0.0
    }

    /// Whether every value is true.
    fn must(self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { low: f(self.low), high: f(self.high) }
    }

    fn hull(values: [f64; 4]) -> Self {
        // 0 times infinity is 0 here: a bound that is not known times nothing.
        let values = values.map(|x| if x.is_nan() { 0.0 } else { x });
        Self {
            low: values.into_iter().fold(f64::INFINITY, f64::min),
            high: values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn coverage(self) -> Coverage {
        match (self.may(), self.must()) {
            (false, _) => Coverage::Empty,
            (true, true) => Coverage::Full,
            (true, false) => Coverage::Partial,
        }
    }
}

/// Whether every guard holds everywhere, or some holds nowhere, in the windows. `element` tells the extremes that the
/// tensors hold; [`Interval::ANY`] if they are not known.
pub fn verdict(guards: &[Guard], windows: &[Window], element: &dyn Fn(&Extremes) -> Interval) -> Coverage {
    let mut all = Coverage::Full;
    for guard in guards {
        match interval(guard, windows, element).coverage() {
            Coverage::Empty => return Coverage::Empty,
            Coverage::Partial => all = Coverage::Partial,
            Coverage::Full => {}
        }
    }
    all
}

/// The chunks of a stream, as [`chunks`] lists them, less those in which a guard can hold nowhere.
pub fn visited<'a>(
    kernel: &'a Kernel,
    (axis, within, guards): (AxisId, &Predicate, &'a [Guard]),
    windows: &[Window],
    element: &'a dyn Fn(&Extremes, &[Window]) -> Interval,
) -> impl Iterator<Item = Window> + use<'a> {
    let list = chunks(kernel, axis, within, windows);
    let mut windows = if guards.is_empty() { vec![] } else { windows.to_vec() };
    list.filter(move |&chunk| {
        if guards.is_empty() {
            return true;
        }
        windows[axis.at()] = chunk;
        verdict(guards, &windows, &|e| element(e, &windows)) != Coverage::Empty
    })
}

/// What is known of elements before anything has run: see [`visited`].
pub fn unknown(_: &Extremes, _: &[Window]) -> Interval {
    Interval::ANY
}

/// A coordinate at the windows' first positions; nothing if it gathers.
pub fn first_position(coord: &Coord, windows: &[Window]) -> Option<i64> {
    let mut sum = coord.offset;
    for (c, atom) in &coord.terms {
        let value = match atom {
            CoordAtom::Axis(a) => windows[a.at()].base as i64,
            CoordAtom::Floor(inner, d) if *d > 0 => first_position(inner, windows)?.div_euclid(*d),
            CoordAtom::Floor(..) | CoordAtom::Tile(_) => return None,
        };
        sum = sum.checked_add(c.checked_mul(value)?)?;
    }
    Some(sum)
}

/// The smallest and largest value of an expression over the windows.
pub fn interval(guard: &Guard, windows: &[Window], element: &dyn Fn(&Extremes) -> Interval) -> Interval {
    let of = |g: &Guard| interval(g, windows, element);
    match guard {
        Guard::Const(x) => Interval::only(*x),
        Guard::Position(a) => {
            let w = windows[a.at()];
            Interval { low: w.base as f64, high: (w.base + w.len).saturating_sub(1) as f64 }
        }
        Guard::Within(p) => match coverage(p, windows) {
            Coverage::Full => Interval::only(1.0),
            Coverage::Partial => Interval::EITHER,
            Coverage::Empty => Interval::only(0.0),
        },
        Guard::Element(e) => element(e),
        Guard::Around(x) => {
            let x = of(x);
            Interval { low: x.low - x.low.abs() * AROUND, high: x.high + x.high.abs() * AROUND }
        }
        Guard::Unary(op, x) => unary(*op, of(x)),
        Guard::Binary(op, x, y) => binary(*op, of(x), of(y)),
        Guard::Select(c, x, y) => {
            let c = of(c);
            match (c.may(), c.must()) {
                (_, true) => of(x),
                (false, _) => of(y),
                _ => {
                    let (x, y) = (of(x), of(y));
                    Interval { low: x.low.min(y.low), high: x.high.max(y.high) }
                }
            }
        }
    }
}

fn unary(op: UnaryOp, x: Interval) -> Interval {
    match op {
        UnaryOp::Neg => Interval { low: -x.high, high: -x.low },
        UnaryOp::Abs => {
            let low = x.low.max(-x.high).max(0.0);
            Interval { low, high: x.high.max(-x.low) }
        }
        UnaryOp::Floor => x.map(f64::floor),
        UnaryOp::Round => x.map(f64::round_ties_even),
        UnaryOp::Sign => x.map(|x| if x == 0.0 { 0.0 } else { x.signum() }),
        UnaryOp::Not => Interval::truth(!x.must(), !x.may()),
        _ => Interval::ANY,
    }
}

fn binary(op: BinaryOp, x: Interval, y: Interval) -> Interval {
    let truth = Interval::truth;
    match op {
        BinaryOp::Add => Interval { low: x.low + y.low, high: x.high + y.high },
        BinaryOp::Sub => Interval { low: x.low - y.high, high: x.high - y.low },
        BinaryOp::Mul => Interval::hull([x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high]),
        BinaryOp::Div if y.must() => Interval::hull([x.low / y.low, x.low / y.high, x.high / y.low, x.high / y.high]),
        BinaryOp::Min => Interval { low: x.low.min(y.low), high: x.high.min(y.high) },
        BinaryOp::Max => Interval { low: x.low.max(y.low), high: x.high.max(y.high) },
        BinaryOp::Lt => truth(x.low < y.high, x.high < y.low),
        BinaryOp::Le => truth(x.low <= y.high, x.high <= y.low),
        BinaryOp::Gt => truth(x.high > y.low, x.low > y.high),
        BinaryOp::Ge => truth(x.high >= y.low, x.low >= y.high),
        BinaryOp::Eq => truth(x.low <= y.high && y.low <= x.high, x.low == x.high && y.low == y.high && x.low == y.low),
        BinaryOp::Ne => {
            let equal = binary(BinaryOp::Eq, x, y);
            truth(!equal.must(), !equal.may())
        }
        BinaryOp::And => truth(x.may() && y.may(), x.must() && y.must()),
        BinaryOp::Or => truth(x.may() || y.may(), x.must() || y.must()),
        BinaryOp::Div | BinaryOp::Pow => Interval::ANY,
    }
}
