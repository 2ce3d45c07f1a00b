//! How a term moves with one value of the reduced indices, whatever it waits for: it rises, it falls, it does one of the two,
//! or it turns once.
//!
//! The value is what carries the indices and waits for nothing. Condition: it is the same everywhere in the term. Signs decide
//! what a factor does; a factor of unknown sign leaves what is monotone monotone, and nothing else.

use super::polynomial::flat;
use crate::{Graph, Term, product, sign};
use einloom_cascade::{BinaryOp, UnaryOp};

/// How a term moves with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not at all.
    Constant,
    /// Nowhere down.
    Rises,
    /// Nowhere up.
    Falls,
    /// One of the two: which, is not known.
    Monotone,
    /// Down and then up, or only one of them.
    Valley,
    /// Up and then down, or only one of them.
    Peak,
}

/// A term as a function of its value.
#[derive(Clone, Debug)]
pub(super) struct Shaped {
    pub shape: Shape,
    /// The term, with [`Term::Argument`] in place of the value.
    pub term: Term,
    /// Different values give different results on either side of its turn.
    pub strict: bool,
    /// Whether results that differ look equal where they are small, and where they are large: `exp` underflows.
    pub saturates: [bool; 2],
    /// Where one of these does not hold, all elements give the same result.
    pub unless: Vec<Term>,
    /// It is a number on one side of some value only: what it is of the smallest and of the largest tells whether it is one of all.
    pub bounded: bool,
}

/// A walk over a term.
pub(super) struct Shapes<'a> {
    pub graph: &'a Graph,
    pub carries: &'a dyn Fn(&Term) -> bool,
    pub waits: &'a dyn Fn(&Term) -> bool,
    /// The value, as far as one was met.
    pub value: Option<Term>,
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn flipped(shape: Shape) -> Shape {
    match shape {
        Shape::Rises => Shape::Falls,
        Shape::Falls => Shape::Rises,
        Shape::Valley => Shape::Peak,
        Shape::Peak => Shape::Valley,
        other => other,
    }
}

impl Shaped {
    fn constant(t: &Term) -> Self {
        let term = t.clone();
        Self { shape: Shape::Constant, term, strict: true, saturates: [false; 2], unless: vec![], bounded: false }
    }

    /// `f` of it, which rises.
    fn then(self, f: impl FnOnce(Term) -> Term) -> Self {
        Self { term: f(self.term), ..self }
    }

    fn down(self) -> Self {
        let [low, high] = self.saturates;
        Self { shape: flipped(self.shape), saturates: [high, low], ..self }
    }

    fn is_monotone(&self) -> bool {
        matches!(self.shape, Shape::Constant | Shape::Rises | Shape::Falls | Shape::Monotone)
    }

    /// What both together need.
    fn with(self, other: &Self) -> Self {
        let saturates = [self.saturates[0] || other.saturates[0], self.saturates[1] || other.saturates[1]];
        let mut unless = self.unless;
        unless.extend(other.unless.iter().filter(|t| !unless.contains(t)).cloned().collect::<Vec<_>>());
        Self { saturates, unless, strict: false, bounded: self.bounded || other.bounded, ..self }
    }
}

impl Shapes<'_> {
    /// The shape of a term; `None` if it is none of these, or of two values.
    pub fn of(&mut self, t: &Term) -> Option<Shaped> {
        if !(self.carries)(t) {
            return Some(Shaped::constant(t));
        }
        if !(self.waits)(t) {
            return self.own(t);
        }
        match t {
            Term::Unary(op, x) => {
                let x = self.of(x)?;
                self.unary(*op, x, t)
            }
            Term::Binary(op, a, b) if matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div) => {
                let sum = matches!(op, BinaryOp::Add | BinaryOp::Sub);
                let together = if sum { self.regrouped(t) } else { self.gathered(t) };
                let (t, a, b) = match together {
                    // What stands together is the value itself.
                    Some(Term::Binary(op, a, b)) => {
                        let own = self.own(&a)?;
                        let rest = self.of(&b)?;
                        (Term::Binary(op, a, b), own, rest)
                    }
                    _ => (t.clone(), self.of(a)?, self.of(b)?),
                };
                if sum { self.sum(&t, a, b) } else { self.product(&t, a, b) }
            }
            Term::Binary(BinaryOp::Pow, a, p) => self.power(a, p),
            Term::Binary(op @ (BinaryOp::Max | BinaryOp::Min), a, b) => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                Self::piece(*op, a, b)
            }
            Term::Binary(op @ (BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Lt | BinaryOp::Le), a, b) => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                let up = matches!(op, BinaryOp::Gt | BinaryOp::Ge);
                let shape = match (a.shape, b.shape) {
                    (shape, Shape::Constant) => shape,
                    (Shape::Constant, shape) => flipped(shape),
                    _ => return None,
                };
                let shape = if up { shape } else { flipped(shape) };
                let term = binary(*op, a.term.clone(), b.term.clone());
                Some(Shaped { shape, term, ..a.with(&b) })
            }
            Term::Select(c, a, b) => self.chosen(c, a, b),
            _ => None,
        }
    }

    /// The value itself, or a multiple of it.
    fn own(&mut self, t: &Term) -> Option<Shaped> {
        let (number, own) = match product::sum(t).as_slice() {
            [(c, u)] if *c != 0.0 => (*c, u.clone()),
            _ => (1.0, t.clone()),
        };
        match &self.value {
            Some(known) if *known != own && product::sum(known) != product::sum(&own) => return None,
            Some(_) => {}
            None => self.value = Some(own),
        }
        let term = match number {
            1.0 => Term::Argument(0),
            -1.0 => Term::Unary(UnaryOp::Neg, Box::new(Term::Argument(0))),
            c => binary(BinaryOp::Mul, Term::Number(c), Term::Argument(0)),
        };
        let shape = if number > 0.0 { Shape::Rises } else { Shape::Falls };
        Some(Shaped { shape, ..Shaped::constant(&term) })
    }

    /// A sum with several addends that carry the indices and wait for nothing: with these side by side they are one value.
    fn regrouped(&self, t: &Term) -> Option<Term> {
        let mut parts = vec![];
        flat(t, 1.0, &mut parts);
        let (own, rest): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|(c, t)| (c, t.clone())).partition(|(_, t)| (self.carries)(t) && !(self.waits)(t));
        (own.len() > 1).then(|| {
            let (own, rest) = (product::sum_term(&own), product::sum_term(&rest));
            binary(BinaryOp::Add, own, rest)
        })
    }

    /// The same of factors.
    fn gathered(&self, t: &Term) -> Option<Term> {
        let mut parts = vec![];
        factors(t, true, &mut parts);
        let own = |t: &Term| (self.carries)(t) && !(self.waits)(t);
        if parts.iter().filter(|(t, _)| own(t)).count() < 2 {
            return None;
        }
        let (own, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(t, _)| own(t));
        let put = |parts: Vec<(Term, bool)>| {
            let (over, under): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, over)| *over);
            let all =
                |list: Vec<(Term, bool)>| list.into_iter().map(|p| p.0).reduce(|a, b| binary(BinaryOp::Mul, a, b));
            (all(over), all(under))
        };
        let ((a, b), (c, d)) = (put(own), put(rest));
        let quotient = |a: Option<Term>, b: Option<Term>| {
            let over = a.unwrap_or(Term::Number(1.0));
            b.map_or(over.clone(), |b| binary(BinaryOp::Div, over, b))
        };
        let own = quotient(a, b);
        // What only divides stays what divides.
        Some(match (c, d) {
            (None, Some(d)) => binary(BinaryOp::Div, own, d),
            (c, d) => binary(BinaryOp::Mul, own, quotient(c, d)),
        })
    }

    fn sum(&self, t: &Term, a: Shaped, b: Shaped) -> Option<Shaped> {
        let Term::Binary(op, ..) = t else { return None };
        let term = binary(*op, a.term.clone(), b.term.clone());
        let b = if *op == BinaryOp::Sub { b.down() } else { b };
        let shape = match (a.shape, b.shape) {
            (shape, Shape::Constant) | (Shape::Constant, shape) => shape,
            (x, y) if x == y && matches!(x, Shape::Rises | Shape::Falls) => x,
            _ => return None,
        };
        // An addend takes the digits by which small results differ.
        let strict = a.strict && b.strict && (a.shape == Shape::Constant || b.shape == Shape::Constant);
        Some(Shaped { shape, term, strict, ..a.with(&b) })
    }

    fn product(&self, t: &Term, a: Shaped, b: Shaped) -> Option<Shaped> {
        let Term::Binary(op, x, y) = t else { return None };
        let term = binary(*op, a.term.clone(), b.term.clone());
        let nonnegative = |t: &Term| sign::nonnegative(t, self.graph);
        match (a.shape, b.shape) {
            (_, Shape::Constant) => self.scaled(a, y, term, *op == BinaryOp::Div),
            (Shape::Constant, _) if *op == BinaryOp::Mul => self.scaled(b, x, term, false),
            (Shape::Constant, _) if nonnegative(y) => self.scaled(b.down(), x, term, false),
            // x·x falls and rises with x as |x| does.
            _ if *op == BinaryOp::Mul && x == y && a.is_monotone() && !nonnegative(x) => {
                let [low, high] = a.saturates;
                Some(Shaped { shape: Shape::Valley, term, saturates: [false, low || high], ..a })
            }
            (shape @ (Shape::Rises | Shape::Falls), other) if nonnegative(x) && nonnegative(y) => {
                let b = if *op == BinaryOp::Div { b.down() } else { b };
                let other = if *op == BinaryOp::Div { flipped(other) } else { other };
                (shape == other).then(|| Shaped { shape, term, ..a.with(&b) })
            }
            (Shape::Valley, Shape::Valley) if *op == BinaryOp::Mul && x == y && nonnegative(x) => {
                Some(Shaped { shape: Shape::Valley, term, ..a.with(&b) })
            }
            _ => None,
        }
    }

    /// Multiplied with `factor`, or divided by it, which does not carry the indices.
    fn scaled(&self, x: Shaped, factor: &Term, term: Term, divides: bool) -> Option<Shaped> {
        let mut x = Shaped { term, ..x };
        if sign::positive_constant(factor) {
            return Some(x);
        }
        let met = binary(BinaryOp::Ne, factor.clone(), Term::Number(0.0));
        if !divides && !x.unless.contains(&met) {
            x.unless.push(met);
        }
        if sign::nonnegative(factor, self.graph) {
            return Some(x);
        }
        if sign::nonpositive(factor, self.graph) {
            return Some(x.down());
        }
        let [low, high] = x.saturates;
        // Divided by 0 all that differ in nothing but size look equal.
        let strict = x.strict && !divides;
        x.is_monotone().then_some(Shaped { shape: Shape::Monotone, saturates: [low || high; 2], strict, ..x })
    }

    fn unary(&self, op: UnaryOp, x: Shaped, t: &Term) -> Option<Shaped> {
        let Term::Unary(_, inner) = t else { return None };
        let nonnegative = sign::nonnegative(inner, self.graph);
        let made = |x: Shaped| x.then(|x| Term::Unary(op, Box::new(x)));
        // A number for what is not negative only: where it turns that must be known.
        let bounded = |x: Shaped| match x.shape {
            Shape::Valley if !nonnegative => None,
            _ => Some(Shaped { bounded: x.bounded || !nonnegative, ..made(x) }),
        };
        match op {
            UnaryOp::Neg | UnaryOp::Not => Some(made(x.down())),
            UnaryOp::Exp | UnaryOp::Exp2 => {
                let x = made(x);
                Some(Shaped { saturates: [true, x.saturates[1]], ..x })
            }
            UnaryOp::Tanh | UnaryOp::Sigmoid | UnaryOp::Erf => Some(Shaped { saturates: [true; 2], ..made(x) }),
            UnaryOp::Floor | UnaryOp::Round | UnaryOp::Sign | UnaryOp::Relu => {
                Some(Shaped { strict: false, ..made(x) })
            }
            UnaryOp::Sqrt | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p => bounded(x),
            UnaryOp::Rsqrt => bounded(x.down()).filter(|x| x.shape != Shape::Peak || nonnegative),
            UnaryOp::Abs if nonnegative => Some(made(x)),
            UnaryOp::Abs if x.is_monotone() => {
                let [low, high] = x.saturates;
                Some(Shaped { shape: Shape::Valley, saturates: [false, low || high], ..made(x) })
            }
            // Both fall to one lowest point and rise from there.
            UnaryOp::Silu | UnaryOp::Gelu if x.is_monotone() => {
                Some(Shaped { shape: Shape::Valley, strict: false, ..made(x) })
            }
            _ => None,
        }
    }

    fn power(&mut self, base: &Term, p: &Term) -> Option<Shaped> {
        let nonnegative = sign::nonnegative(base, self.graph);
        if let Some(c) = base.as_number() {
            let x = self.of(p)?;
            let x = Shaped { saturates: [true, x.saturates[1]], ..x };
            let x = x.then(|x| binary(BinaryOp::Pow, base.clone(), x));
            return match c {
                c if c > 1.0 => Some(x),
                c if c > 0.0 && c < 1.0 => Some(Shaped { saturates: [true, false], ..x.down() }),
                _ => None,
            };
        }
        let k = p.as_number()?;
        let x = self.of(base)?.then(|x| binary(BinaryOp::Pow, x, p.clone()));
        match k {
            k if k == 0.0 || !k.is_finite() => None,
            k if k < 0.0 => nonnegative.then(|| x.down()),
            k if nonnegative || k % 2.0 == 1.0 => Some(x),
            k if k % 2.0 == 0.0 => {
                let [low, high] = x.saturates;
                x.is_monotone().then_some(Shaped { shape: Shape::Valley, saturates: [false, low || high], ..x })
            }
            _ => (x.shape != Shape::Valley).then_some(Shaped { bounded: true, ..x }),
        }
    }

    /// The larger or the smaller of two.
    fn piece(op: BinaryOp, a: Shaped, b: Shaped) -> Option<Shaped> {
        let term = binary(op, a.term.clone(), b.term.clone());
        let turns = if op == BinaryOp::Max { Shape::Valley } else { Shape::Peak };
        let shape = match (a.shape, b.shape) {
            (shape, Shape::Constant) | (Shape::Constant, shape) => shape,
            (x, y) if x == y && matches!(x, Shape::Rises | Shape::Falls) => x,
            (x, y) if [x, y].iter().all(|s| *s != flipped(turns)) => turns,
            _ => return None,
        };
        Some(Shaped { shape, term, ..a.with(&b) })
    }

    /// `where(c, a, b)`.
    fn chosen(&mut self, c: &Term, a: &Term, b: &Term) -> Option<Shaped> {
        let (c, a, b) = (self.of(c)?, self.of(a)?, self.of(b)?);
        let term = Term::Select(Box::new(c.term.clone()), Box::new(a.term.clone()), Box::new(b.term.clone()));
        let shape = match (c.shape, a.shape, b.shape) {
            (Shape::Constant, x, y) if x == y => x,
            (Shape::Constant, Shape::Constant, x) | (Shape::Constant, x, Shape::Constant) => x,
            (Shape::Constant, ..) if a.is_monotone() && b.is_monotone() => Shape::Monotone,
            (Shape::Constant, x, y) if x != Shape::Peak && y != Shape::Peak => Shape::Valley,
            (Shape::Constant, x, y) if x != Shape::Valley && y != Shape::Valley => Shape::Peak,
            (_, Shape::Constant, Shape::Constant) if c.is_monotone() => Shape::Monotone,
            _ => return None,
        };
        // A condition that does not carry the indices chooses one for all elements.
        let strict = c.shape == Shape::Constant && a.shape != Shape::Constant && b.shape != Shape::Constant;
        let strict = strict && a.strict && b.strict && a.unless == b.unless;
        Some(Shaped { shape, term, strict, ..a.with(&b).with(&c) })
    }
}

/// The factors of a product as written; `false` for those that divide.
fn factors(t: &Term, over: bool, out: &mut Vec<(Term, bool)>) {
    match t {
        Term::Binary(BinaryOp::Mul, a, b) => {
            factors(a, over, out);
            factors(b, over, out);
        }
        Term::Binary(BinaryOp::Div, a, b) => {
            factors(a, over, out);
            factors(b, !over, out);
        }
        Term::Number(1.0) => {}
        other => out.push((other.clone(), over)),
    }
}
