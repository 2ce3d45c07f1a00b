//! Anchors: running maxima of a stream that are there for the range of the numbers only, so that any finite number would do in
//! their place.
//!
//! Two runs of a kernel that differ in a reduction's results `a` are compared, value by value: each is the same in both, or the
//! same but for `c·a` that is added to it, or but for a factor of `exp(c·a)`. If what is stored is the same, the reduction's
//! results do not matter: proved for real numbers, by induction over the stream's chunks. Numbers of a type with the exponents
//! of f32 are scaled without loss, so that what is computed differs by roundings only, as long as nothing overflows.
//!
//! So is the larger one of the anchor and another number, of which a denominator may have a share (a sink): it is a second number
//! that may be any finite one.
//!
//! Refused: reductions other than maxima that go on from a state of their own stream; values of another dependence (such as a
//! sine of a shifted number, or a sum over rows) that a store, a coordinate, a guard or a [`Op::SkipUnless`] needs.

use crate::{AxisId, Coord, CoordAtom, Guard, Init, Kernel, Op, Scalar, State, TileMonoid, ValueId};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use std::collections::BTreeSet;
use std::f64::consts::LN_2;

/// Reductions whose results may be any finite numbers, row by row and chunk by chunk, without a change of what the kernel
/// stores, but for roundings.
pub fn anchors(kernel: &Kernel) -> BTreeSet<ValueId> {
    let mut found = vec![];
    candidates(&kernel.body, &mut found);
    let free = |(state, reduced): &(ValueId, ValueId)| {
        let (before, after) = (Change::anchor([1.0, 0.0, 0.0]), Change::anchor([0.0, 1.0, 0.0]));
        let changes = vec![None; kernel.values.len()];
        let mut compare = Compare { kernel, anchor: (*state, *reduced), changes, other: None, depth: 0 };
        compare.changes[state.at()] = Some(before);
        compare.changes[reduced.at()] = Some(after);
        compare.body(&kernel.body).is_some()
    };
    found.into_iter().filter(free).map(|(_, reduced)| reduced).collect()
}

/// Maxima that go on from a state of the stream in whose body they are, and are its next value: state and maximum.
fn candidates(body: &[Op], found: &mut Vec<(ValueId, ValueId)>) {
    for op in body {
        let Op::Stream { states, body, .. } = op else { continue };
        candidates(body, found);
        for op in body {
            if let Op::Reduce { dst, monoid: TileMonoid::Max, acc: Some(acc), .. } = op
                && states.iter().filter(|s| s.value == *acc || s.next == *dst).count() == 1
                && states.iter().any(|s| s.value == *acc && s.next == *dst)
            {
                found.push((*acc, *dst));
            }
        }
    }
}

/// How much of what two runs differ in: the anchor before the chunk, the one after it, and a number of a row that stands for no
/// more than its range either, chosen after the stream.
type Amount = [f64; 3];

/// In what two runs differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// This number in both.
    Constant(f64),
    /// So much is added; `itself`: it is the anchor.
    Shifted { by: Amount, itself: bool },
    /// The exponential of so much is a factor.
    Scaled(Amount),
    /// Whatever is needed: of a state, until it is known.
    Any,
}

const NONE: Amount = [0.0; 3];
const SAME: Change = Change::Scaled(NONE);

fn near(x: Amount, y: Amount) -> bool {
    (0..NONE.len()).all(|i| (x[i] - y[i]).abs() < 1e-12)
}

fn times(x: Amount, factor: f64) -> Amount {
    x.map(|x| x * factor)
}

fn plus(x: Amount, y: Amount) -> Amount {
    std::array::from_fn(|i| x[i] + y[i])
}

impl Change {
    fn anchor(by: Amount) -> Self {
        Self::Shifted { by, itself: true }
    }

    fn shifted(by: Amount) -> Self {
        Self::Shifted { by, itself: false }
    }

    fn is_same(self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Shifted { by, .. } | Self::Scaled(by) => near(by, NONE),
            Self::Any => false,
        }
    }

    /// Of a stream's state, the change before a chunk if this is the one after it. In the anchor's own stream, the next
    /// chunk's anchor before it is this one's after it.
    fn before(self, own: bool) -> Self {
        let turned = |by: Amount| if own { [by[1], 0.0, by[2]] } else { by };
        match self {
            Self::Scaled(by) => Self::Scaled(turned(by)),
            Self::Shifted { by, .. } => Self::shifted(turned(by)),
            Self::Constant(_) | Self::Any => SAME,
        }
    }

    /// Whether it does not depend on the anchor before the chunk.
    fn knows_after_only(self) -> bool {
        match self {
            Self::Scaled(by) | Self::Shifted { by, .. } => near([by[0], 0.0, 0.0], NONE),
            Self::Constant(_) => true,
            Self::Any => false,
        }
    }

    /// As something that is added.
    fn shift(self) -> Option<Amount> {
        match self {
            Self::Shifted { by, .. } => Some(by),
            same => same.is_same().then_some(NONE),
        }
    }

    /// As a factor.
    fn scale(self) -> Option<Amount> {
        match self {
            Self::Scaled(by) => Some(by),
            same => same.is_same().then_some(NONE),
        }
    }

    /// Of two of which one is taken, or that are compared or added: the same of both.
    fn common(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, x) | (x, Self::Any) => return Some(x),
            // 0 and infinities are themselves times anything that is positive.
            (Self::Constant(c), x @ Self::Scaled(_)) | (x @ Self::Scaled(_), Self::Constant(c))
                if c == 0.0 || c.is_infinite() =>
            {
                return Some(x);
            }
            (Self::Constant(c), x @ Self::Shifted { .. }) | (x @ Self::Shifted { .. }, Self::Constant(c))
                if c.is_infinite() =>
            {
                return Some(x);
            }
            (Self::Constant(x), Self::Constant(y)) if x == y => return Some(self),
            _ => {}
        }
        if let (Some(x), Some(y)) = (self.scale(), other.scale())
            && near(x, y)
        {
            return Some(Self::Scaled(x));
        }
        let (x, y) = (self.shift()?, other.shift()?);
        near(x, y).then_some(Self::shifted(x))
    }

    /// Rounded to a number type.
    fn rounded(self, to: DType) -> Option<Self> {
        let fits = match self {
            Self::Shifted { .. } if !self.is_same() => matches!(to, DType::F32 | DType::F64),
            Self::Scaled(_) if !self.is_same() => matches!(to, DType::F32 | DType::F64 | DType::Tf32 | DType::Bf16),
            _ => true,
        };
        fits.then_some(self)
    }

    fn unary(self, op: UnaryOp) -> Option<Self> {
        if let (Self::Constant(_), false) = (self, op == UnaryOp::Neg) {
            return Some(SAME);
        }
        let scaled = |x: Self, factor: f64| Some(Self::Scaled(times(x.shift()?, factor)));
        match (op, self) {
            (_, Self::Any) => Some(Self::Any),
            (UnaryOp::Neg, Self::Constant(c)) => Some(Self::Constant(-c)),
            (UnaryOp::Neg, Self::Shifted { by, .. }) => Some(Self::shifted(times(by, -1.0))),
            (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu, Self::Scaled(by)) => Some(Self::Scaled(by)),
            (UnaryOp::Sqrt, Self::Scaled(by)) => Some(Self::Scaled(times(by, 0.5))),
            (UnaryOp::Rsqrt, Self::Scaled(by)) => Some(Self::Scaled(times(by, -0.5))),
            (UnaryOp::Sign, Self::Scaled(_)) => Some(SAME),
            (UnaryOp::Exp, x @ Self::Shifted { .. }) => scaled(x, 1.0),
            (UnaryOp::Exp2, x @ Self::Shifted { .. }) => scaled(x, LN_2),
            (UnaryOp::Log, Self::Scaled(by)) => Some(Self::shifted(by)),
            (UnaryOp::Log2, Self::Scaled(by)) => Some(Self::shifted(times(by, 1.0 / LN_2))),
            (_, x) => x.is_same().then_some(SAME),
        }
    }

    fn binary(self, op: BinaryOp, other: Self) -> Option<Self> {
        use BinaryOp::{Add, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Sub};
        match op {
            Add | Sub => {
                if let Some(common) = self.common(other)
                    && common.scale().is_some()
                {
                    return Some(common);
                }
                let (x, y) = match (self, other) {
                    (Self::Any, _) | (_, Self::Any) => return Some(Self::Any),
                    _ => (self.shift()?, other.shift()?),
                };
                Some(Self::shifted(plus(x, times(y, if op == Sub { -1.0 } else { 1.0 }))))
            }
            Mul | Div => match (self, other) {
                (Self::Any, _) | (_, Self::Any) => Some(Self::Any),
                (Self::Shifted { by, .. }, Self::Constant(c)) => {
                    Some(Self::shifted(times(by, if op == Mul { c } else { 1.0 / c })))
                }
                (Self::Constant(c), Self::Shifted { by, .. }) if op == Mul => Some(Self::shifted(times(by, c))),
                _ => {
                    let (x, y) = (self.scale()?, other.scale()?);
                    Some(Self::Scaled(plus(x, times(y, if op == Div { -1.0 } else { 1.0 }))))
                }
            },
            Max | Min => self.common(other),
            Lt | Le | Gt | Ge | Eq | Ne => self.common(other).map(|x| if x == Self::Any { x } else { SAME }),
            _ => match (self, other) {
                (Self::Any, _) | (_, Self::Any) => Some(Self::Any),
                _ => (self.is_same() && other.is_same()).then_some(SAME),
            },
        }
    }
}

struct Compare<'a> {
    kernel: &'a Kernel,
    /// State and maximum.
    anchor: (ValueId, ValueId),
    /// `None`: in some other way.
    changes: Vec<Option<Change>>,
    /// What is chosen after the stream.
    other: Option<ValueId>,
    /// Streams around what is looked at.
    depth: usize,
}

impl Compare<'_> {
    fn of(&self, v: ValueId) -> Option<Change> {
        self.changes[v.at()]
    }

    fn same(&self, v: ValueId) -> bool {
        self.of(v).is_some_and(|c| c.is_same() || c == Change::Any)
    }

    fn set(&mut self, v: ValueId, change: Option<Change>) {
        self.changes[v.at()] = change.and_then(|c| c.rounded(self.kernel.value(v).dtype));
    }

    /// `None` if something differs that must not.
    fn body(&mut self, body: &[Op]) -> Option<()> {
        for op in body {
            match op {
                Op::Load { dst, at, .. } => {
                    at.iter().all(|c| self.coordinate(c)).then_some(())?;
                    self.set(*dst, Some(SAME));
                }
                Op::Store { at, src, .. } => {
                    (at.iter().all(|c| self.coordinate(c)) && self.same(*src)).then_some(())?;
                }
                Op::Map { dst, expr } => {
                    let change = self.scalar(expr).or_else(|| self.chosen(*dst, expr));
                    self.set(*dst, change);
                }
                Op::Mma { dst, a, b, acc } => {
                    let [a, b] = [*a, *b].map(|v| self.summed(v, *dst));
                    let product = a.zip(b).and_then(|(a, b)| a.binary(BinaryOp::Mul, b));
                    // A sum of what is shifted is shifted by as much as there are terms.
                    let product = product.filter(|p| *p == Change::Any || p.scale().is_some());
                    let change = self.onto(product, *acc, BinaryOp::Add);
                    self.set(*dst, change);
                }
                Op::Reduce { dst, .. } if *dst == self.anchor.1 => {}
                Op::Reduce { dst, src, monoid, acc, .. } => {
                    let src = self.summed(*src, *dst);
                    let change = match monoid {
                        TileMonoid::Sum => {
                            let terms = src.filter(|c| *c == Change::Any || c.scale().is_some());
                            self.onto(terms, *acc, BinaryOp::Add)
                        }
                        TileMonoid::Max | TileMonoid::Min => self.onto(src, *acc, BinaryOp::Max),
                        TileMonoid::Prod | TileMonoid::Custom { .. } => {
                            let one = src.filter(|c| c.is_same());
                            one.filter(|_| acc.is_none_or(|acc| self.same(acc))).map(|_| SAME)
                        }
                    };
                    self.set(*dst, change);
                }
                Op::Pick { dst, src, at, .. } => {
                    // Elsewhere the change may be another one, and what fills the rest does not change.
                    let same = self.same(*src) && self.coordinate(at);
                    self.set(*dst, same.then_some(SAME));
                }
                Op::SkipUnless { any } => self.same(*any).then_some(())?,
                Op::Stream { states, body, guards, .. } => {
                    guards.iter().all(|guard| self.guard(guard)).then_some(())?;
                    self.stream(states, body)?;
                }
            }
        }
        Some(())
    }

    fn axes(&self, v: ValueId) -> impl Iterator<Item = AxisId> + use<> {
        let value = self.kernel.value(v);
        value.rows.into_iter().chain(value.cols)
    }

    fn has(&self, v: ValueId, axis: AxisId) -> bool {
        self.axes(v).any(|a| a == axis)
    }

    /// The change of what is reduced to a result: rows differ by other amounts, so that of several rows it must be the same.
    fn summed(&self, src: ValueId, dst: ValueId) -> Option<Change> {
        let rows = self.axes(src).any(|axis| self.has(self.anchor.1, axis) && !self.has(dst, axis));
        self.of(src).filter(|change| !rows || change.is_same() || *change == Change::Any)
    }

    /// That of a map outside of streams to the larger one of two numbers, one for each row, that differ by other amounts: it is
    /// finite or not in both runs, and one such map may differ by whatever it does, which is given a name.
    fn chosen(&mut self, dst: ValueId, expr: &Scalar) -> Option<Change> {
        let Scalar::Binary(BinaryOp::Max, x, y) = expr else { return None };
        let rows = self.axes(dst).all(|axis| self.has(self.anchor.1, axis));
        let shifted = self.scalar(x)?.shift().is_some() && self.scalar(y)?.shift().is_some();
        if self.depth > 0 || self.other.is_some_and(|v| v != dst) || !rows || !shifted {
            return None;
        }
        self.other = Some(dst);
        Some(Change::shifted([0.0, 0.0, 1.0]))
    }

    fn onto(&self, change: Option<Change>, acc: Option<ValueId>, op: BinaryOp) -> Option<Change> {
        match acc {
            None => change,
            Some(acc) => change?.binary(op, self.of(acc)?),
        }
    }

    fn coordinate(&self, coord: &Coord) -> bool {
        coord.terms.iter().all(|(_, atom)| match atom {
            CoordAtom::Axis(_) => true,
            CoordAtom::Floor(inner, _) => self.coordinate(inner),
            CoordAtom::Tile(v) => self.same(*v),
        })
    }

    /// Whether a guard, which may read tensors at places, decides the same in both runs.
    fn guard(&self, guard: &Guard) -> bool {
        let mut same = true;
        guard.visit(&mut |part| {
            if let Guard::Element(e) = part {
                same &= e.at.iter().chain(&e.places).all(|c| self.coordinate(c));
            }
        });
        same
    }

    fn stream(&mut self, states: &[State], body: &[Op]) -> Option<()> {
        self.depth += 1;
        let done = self.in_stream(states, body);
        self.depth -= 1;
        done
    }

    fn in_stream(&mut self, states: &[State], body: &[Op]) -> Option<()> {
        let own = states.iter().any(|s| s.value == self.anchor.0);
        let mut around = false;
        inside(body, &mut |op| around |= matches!(op, Op::Reduce { dst, .. } if *dst == self.anchor.1));
        let others: Vec<&State> = states.iter().filter(|s| s.value != self.anchor.0).collect();
        // What a state is, is found by a first walk that takes it for whatever fits, and proved by a second one.
        others.iter().for_each(|s| self.changes[s.value.at()] = Some(Change::Any));
        self.body(body)?;
        for state in &others {
            let before = self.of(state.next).map(|next| next.before(own));
            self.changes[state.value.at()] = before;
        }
        self.body(body)?;
        for state in &others {
            let (value, next) = (self.of(state.value)?, self.of(state.next)?);
            let holds = value.common(next.before(own)) == Some(value) && (!own || next.knows_after_only());
            // Around the anchor's own stream no state may know of it.
            let apart = own || !around || value.is_same();
            // The first chunk finds the same in both runs: its anchor is not chosen.
            let begins = own
                || match state.init {
                    Init::Const(c) => Change::Constant(c).common(value).is_some(),
                    Init::Value(v) => self.of(v)?.common(value).is_some(),
                };
            (holds && apart && begins).then_some(())?;
        }
        Some(())
    }

    fn scalar(&self, expr: &Scalar) -> Option<Change> {
        match expr {
            Scalar::Const(c) => Some(Change::Constant(*c)),
            Scalar::Tile(v) => self.of(*v),
            Scalar::Position(_) | Scalar::Within(_) => Some(SAME),
            Scalar::Argument(_) => None,
            Scalar::Round(to, x) => self.scalar(x)?.rounded(*to),
            Scalar::Unary(op, x) => self.scalar(x)?.unary(*op),
            Scalar::Binary(BinaryOp::Lt, x, y) if self.is_anchor(x) && **y == Scalar::Const(f64::INFINITY) => {
                // It is finite in both runs.
                Some(Change::Constant(1.0))
            }
            Scalar::Binary(op, x, y) => self.scalar(x)?.binary(*op, self.scalar(y)?),
            Scalar::Select(c, x, y) => match self.scalar(c)? {
                Change::Constant(c) => self.scalar(if c == 0.0 { y } else { x }),
                Change::Any => Some(Change::Any),
                c if c.is_same() => self.scalar(x)?.common(self.scalar(y)?),
                _ => None,
            },
        }
    }

    /// Whether it is the magnitude of the anchor itself.
    fn is_anchor(&self, expr: &Scalar) -> bool {
        let Scalar::Unary(UnaryOp::Abs, x) = expr else { return false };
        matches!(self.scalar(x), Some(Change::Shifted { itself: true, .. }))
    }
}

/// Every operation, those of streams included.
fn inside(body: &[Op], f: &mut impl FnMut(&Op)) {
    for op in body {
        f(op);
        if let Op::Stream { body, .. } = op {
            inside(body, f);
        }
    }
}
