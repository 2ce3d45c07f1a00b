//! Evaluation at one random point of the tower of fields.

use super::field::{self, COUNT, PRIMES, hash, hash_of};
use super::value::{Degree, Lead, Special, Value};
use crate::stream::Domain;
use crate::{Graph, NodeId};
use einloom_cascade::{BinaryOp, Bound, DType, Monoid, ParamId, UnaryOp};
use std::cell::RefCell;
use std::collections::HashMap;

/// Whole powers up to this are powers, as a decay over a long chunk has them; higher ones are random functions.
const HIGHEST_POWER: i128 = 65_536;

/// How values are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// A maximum is the last of its elements in a random order of values, in place of a function of their set.
    pub selects: bool,
    /// A user's monoid is what its text says.
    pub spelled: bool,
    /// The square of a root is what the root was taken of, in place of the square of a random function.
    pub squares: bool,
    /// Of which values the logarithm is no random function.
    pub logs: Logs,
    /// The logarithm of a sum of exponentials moves with its exponents where all of them do.
    pub leads: bool,
    /// A slice of a state is a random function of what its step made, so that each step is tested by itself.
    pub by_steps: bool,
}

/// Of which values the logarithm is known. Each is true of logarithms of positive numbers; they differ in which forms of one value
/// are seen to have one logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logs {
    /// Exponentials.
    Exponentials,
    /// Products with one too: the sum of the factors' logarithms.
    WithExponentials,
    /// All products.
    Products,
}

/// One random point.
pub(super) struct Fields<'a> {
    pub graph: &'a Graph,
    pub bound: &'a Bound,
    pub seed: u64,
    pub view: View,
    /// Constants that are no integers, by their bits.
    constants: RefCell<HashMap<u64, Value>>,
    /// Reciprocals and roots, which are high powers: all elements of a row have the same divisor.
    reciprocals: RefCell<HashMap<[u64; COUNT], Option<[u64; COUNT]>>>,
    roots: RefCell<HashMap<[u64; COUNT], [u64; COUNT]>>,
}

impl<'a> Fields<'a> {
    pub fn new(graph: &'a Graph, bound: &'a Bound, seed: u64, view: View) -> Self {
        Self {
            graph,
            bound,
            seed,
            view,
            constants: RefCell::default(),
            reciprocals: RefCell::default(),
            roots: RefCell::default(),
        }
    }

    /// A random element for a name, the same in both graphs.
    fn random(&self, words: &[u64]) -> Value {
        let h = hash_of(std::iter::once(self.seed).chain(words.iter().copied()));
        Value::finite(std::array::from_fn(|k| hash(&[h, k as u64]) % PRIMES[k]), Degree::ONE)
    }

    /// A random function, in each field on its own: what two forms agree on in one field stays agreed there.
    fn function(&self, name: u64, arguments: &[&Value]) -> Value {
        let in_field = |k: usize| {
            let of = arguments.iter().flat_map(|a| [a.fields[k], a.special_code()]);
            hash_of([self.seed, name, k as u64].into_iter().chain(of)) % PRIMES[k]
        };
        let degree = arguments.iter().fold(Degree::ZERO, |d, a| d.times(a.degree));
        Value::finite(std::array::from_fn(in_field), degree.of_function())
    }

    /// A random function with `f(x·y) = f(x)·f(y)` and `f(-x) = f(x)`: a power with a random even exponent.
    fn magnitude(&self, x: &Value) -> Value {
        let power = |k: usize| field::pow(x.fields[k], hash(&[self.seed, 6, k as u64]) % (PRIMES[k] / 2) * 2, k);
        Value::finite(std::array::from_fn(power), x.degree.of_function())
    }

    /// A random homomorphism from the sums of each field to the products of the next.
    fn exponential(&self, x: &Value) -> Value {
        let mut fields = [0; COUNT];
        for k in 0..COUNT - 1 {
            let unit = 1 + hash(&[self.seed, 3, k as u64]) % (PRIMES[k] - 1);
            fields[k + 1] = field::pow_of_generator(field::mul(unit, x.fields[k], k), k);
        }
        // Below the first field there is none: a random function of the value.
        fields[0] = hash(&[self.seed, 4, fields[1]]) % PRIMES[0];
        let lead = Lead { count: [1; COUNT], sum: x.fields, scale: [1; COUNT], log: [0; COUNT] };
        let lead = self.view.leads.then_some(lead);
        Value { log: Some(x.fields), lead, ..Value::finite(fields, x.degree.of_function()) }
    }

    /// The logarithm: the inverse of `exp` where that made the value. Of any other it is a random function, or what leads it and a
    /// random function of the rest, `log y = l - log z + log(y·z·exp(-l))`.
    fn logarithm(&self, x: &Value) -> [u64; COUNT] {
        let random = |v: &Value| self.function(16 + UnaryOp::Log as u64, &[v]).fields;
        match (x.log, x.lead.and_then(|lead| Some((mean(lead)?, lead)))) {
            (Some(log), _) => log,
            _ if x.int == Some(1) => [0; COUNT],
            (None, None) => random(x),
            (None, Some((mean, lead))) => {
                let rest = match mean == [0; COUNT] {
                    true => [1; COUNT],
                    false => self.exponential(&Value::finite(each(|k| field::negate(mean[k], k)), x.degree)).fields,
                };
                let rest = each(|k| field::mul(field::mul(x.fields[k], lead.scale[k], k), rest[k], k));
                let rest = random(&Value { fields: rest, ..*x });
                each(|k| field::add(field::add(rest[k], mean[k], k), field::negate(lead.log[k], k), k))
            }
        }
    }

    /// What leads a value that two others make.
    fn lead(&self, op: BinaryOp, a: &Value, b: &Value) -> Option<Lead> {
        let divides = op == BinaryOp::Div && self.view.leads && b.degree != Degree::ZERO;
        if !divides {
            a.lead.or(b.lead)?;
        }
        let of =
            |v: &Value| v.lead.unwrap_or(Lead { count: v.fields, sum: [0; COUNT], scale: [1; COUNT], log: [0; COUNT] });
        let (x, y) = (of(a), of(b));
        let (add, mul) = (field::add, field::mul);
        let signed = |v: u64, k: usize| if op == BinaryOp::Sub { field::negate(v, k) } else { v };
        Some(match op {
            BinaryOp::Add | BinaryOp::Sub => {
                // 0 is divided by anything.
                let (scale, log) = match (a.int, b.int) {
                    (Some(0), _) => (y.scale, y.log),
                    (_, Some(0)) => (x.scale, x.log),
                    _ if x.scale == y.scale => (x.scale, x.log),
                    _ => ([1; COUNT], [0; COUNT]),
                };
                let count = each(|k| add(x.count[k], signed(y.count[k], k), k));
                Lead { count, sum: each(|k| add(x.sum[k], signed(y.sum[k], k), k)), scale, log }
            }
            BinaryOp::Mul => Lead {
                count: each(|k| mul(x.count[k], y.count[k], k)),
                sum: each(|k| add(mul(x.sum[k], y.count[k], k), mul(y.sum[k], x.count[k], k), k)),
                scale: each(|k| mul(x.scale[k], y.scale[k], k)),
                log: each(|k| add(x.log[k], y.log[k], k)),
            },
            BinaryOp::Div if divides => {
                let log = self.logarithm(b);
                Lead { scale: each(|k| mul(x.scale[k], b.fields[k], k)), log: each(|k| add(x.log[k], log[k], k)), ..x }
            }
            BinaryOp::Div => x,
            _ => return None,
        })
    }

    /// What leads a power: the power of what leads its base.
    fn lead_of_power(&self, x: &Value, times: impl Fn(u64, usize) -> u64) -> Option<Lead> {
        let lead = x.lead.and_then(mean)?;
        Some(Lead { count: [1; COUNT], sum: each(|k| times(lead[k], k)), scale: [1; COUNT], log: [0; COUNT] })
    }

    /// Its logarithm times a number, if it is known.
    fn log_of_power(&self, x: &Value, times: impl Fn(u64, usize) -> u64) -> Option<[u64; COUNT]> {
        let log = if self.view.logs == Logs::Products { Some(self.logarithm(x)) } else { x.log };
        log.map(|l| std::array::from_fn(|k| times(l[k], k)))
    }

    /// `log(x·y)`, or `log(x/y)`, in every field, if that of one of the two is known, or of any two.
    fn log_of_product(&self, x: &Value, y: &Value, subtracted: bool) -> Option<[u64; COUNT]> {
        match self.view.logs {
            Logs::Exponentials => return None,
            Logs::WithExponentials => _ = x.log.or(y.log)?,
            Logs::Products => {}
        }
        let (x, y) = (self.logarithm(x), self.logarithm(y));
        Some(std::array::from_fn(|k| {
            let other = if subtracted { field::negate(y[k], k) } else { y[k] };
            field::add(x[k], other, k)
        }))
    }

    /// The square of `x·y` in every field, if that of one of the two is known.
    fn square_of_product(&self, x: &Value, y: &Value) -> Option<[u64; COUNT]> {
        x.square.or(y.square)?;
        let square = |v: &Value, k: usize| v.square.map_or_else(|| field::mul(v.fields[k], v.fields[k], k), |s| s[k]);
        Some(std::array::from_fn(|k| field::mul(square(x, k), square(y, k), k)))
    }

    /// A number that is no integer: the quotient that it stands for, or the root of one, times π or by it, as a form has it where it
    /// multiplied `1/√2` or `√(2π)` out; else a constant of its own.
    fn fraction(&self, v: f64) -> Value {
        let constant = |v: f64| Value::finite(std::array::from_fn(|k| field::from_f64(v, k)), Degree::ZERO);
        let whole = |(over, under): (u64, u64)| (i128::from(over), i128::from(under));
        let pi = std::f64::consts::PI;
        let root = || {
            // Of the quotient, times π or by it.
            let found =
                [1.0, pi, 1.0 / pi].into_iter().find_map(|by| Some((by, field::quotient(v * v / by).map(whole)?)));
            let (by, (over, under)) = found?;
            let quotient = self.binary(BinaryOp::Div, &Value::integer(over), &Value::integer(under));
            let square = match by {
                1.0 => quotient,
                _ if by == pi => self.binary(BinaryOp::Mul, &quotient, &constant(pi)),
                _ => self.binary(BinaryOp::Div, &quotient, &constant(pi)),
            };
            let root = self.sqrt(&square);
            Some(if v < 0.0 { self.unary(UnaryOp::Neg, &root) } else { root })
        };
        match field::quotient(v.abs()).map(whole) {
            Some((over, under)) => constant(v).with_quotient(Some((if v < 0.0 { -over } else { over }, under))),
            None => root().unwrap_or_else(|| constant(v)),
        }
    }

    fn sqrt(&self, x: &Value) -> Value {
        match x.special {
            Special::Finite => {
                let log = self.log_of_power(x, |l, k| field::mul(l, PRIMES[k].div_ceil(2), k));
                let roots = || std::array::from_fn(|k| self.root(k, x));
                let fields = *self.roots.borrow_mut().entry(x.fields).or_insert_with(roots);
                let square = self.view.squares.then_some(x.fields);
                let lead = self.lead_of_power(x, |l, k| field::mul(l, PRIMES[k].div_ceil(2), k));
                Value { log, lead, square, ..Value::finite(fields, x.degree.of_function()) }
            }
            Special::Infinite(true) => Value::infinite(true),
            _ => Value::undefined(),
        }
    }

    /// A square root in field `k`: a power, so that `√(x·y) = √x·√y`, and an odd one, so that `√-x` is `-√x`. What exp makes
    /// has the order of the field before, which is odd, so that it has one root that exp makes too, `√exp(x) = exp(x/2)`; what
    /// is left of the exponent is random.
    fn root(&self, k: usize, x: &Value) -> u64 {
        let random = hash(&[self.seed, 5, k as u64]);
        let exponent = match k.checked_sub(1) {
            None => (random % (PRIMES[k] / 2)) * 2 + 1,
            Some(before) => {
                let (order, half) = (PRIMES[before], PRIMES[before].div_ceil(2));
                let cofactor = (PRIMES[k] - 1) / order;
                half + ((random % (cofactor / 2)) * 2 + (1 - half % 2)) * order
            }
        };
        field::pow(x.fields[k], exponent, k)
    }

    fn power(&self, x: &Value, n: i128) -> Value {
        let exact = if n >= 0 { x.int.and_then(|x| x.checked_pow(n as u32)) } else { None };
        let magnitude = n.unsigned_abs() as u64;
        // Of what has a known square the powers are those of that, and once itself where they are odd.
        let fields = match x.square {
            Some(square) if magnitude > 0 => std::array::from_fn(|k| {
                let even = field::pow(square[k], magnitude / 2, k);
                if magnitude % 2 == 1 { field::mul(even, x.fields[k], k) } else { even }
            }),
            _ => x.in_fields(|v, k| field::pow(v, magnitude, k)),
        };
        let square =
            x.square.filter(|_| magnitude % 2 == 1).map(|s| std::array::from_fn(|k| field::pow(s[k], magnitude, k)));
        let log = self.log_of_power(x, |l, k| field::mul(l, magnitude % PRIMES[k], k));
        let degree = x.degree.power(magnitude);
        let lead = self.lead_of_power(x, |l, k| field::mul(l, magnitude % PRIMES[k], k));
        let raised = Value { degree, int: exact, log, lead, square, ..Value::finite(fields, Degree::ZERO) };
        if n >= 0 { raised } else { self.binary(BinaryOp::Div, &Value::integer(1), &raised) }
    }

    /// `x^p` for a p that is known in the fields only: as the field before has it for what exp makes there, `exp(a)^p =
    /// exp(p·a)`, and the same of what is left of x to 1. So `(x·y)^p = x^p·y^p` and `x^(p + q) = x^p·x^q`.
    fn raised(&self, x: &Value, p: &Value) -> Value {
        let exponent = |k: usize| match k.checked_sub(1) {
            None => hash(&[self.seed, 8, p.fields[0]]) % PRIMES[0],
            Some(before) => {
                let cofactor = (PRIMES[k] - 1) / PRIMES[before];
                let part = field::invert(cofactor, before).unwrap_or(1);
                cofactor * field::mul(p.fields[before], part, before)
            }
        };
        let fields = x.in_fields(|v, k| field::pow(v, exponent(k), k));
        let log = self.log_of_power(x, |l, k| field::mul(l, p.fields[k], k));
        let lead = self.lead_of_power(x, |l, k| field::mul(l, p.fields[k], k));
        Value { log, lead, ..Value::finite(fields, x.degree.times(p.degree).of_function()) }
    }

    /// The extremum of one value, or the value itself if it is that of a set already: an extremum of two values is that of both sets.
    fn of_set(&self, largest: bool, v: Value) -> Value {
        let m = if largest { Monoid::Max } else { Monoid::Min };
        if v.largest == Some(largest) { v } else { self.single(m, v) }
    }

    fn arithmetic(&self, a: &Value, b: &Value, f: impl Fn(u64, u64, usize) -> u64, exact: Option<i128>) -> Value {
        let fields = std::array::from_fn(|k| f(a.fields[k], b.fields[k], k));
        Value { int: exact, ..Value::finite(fields, Degree::ZERO) }
    }

    /// The reciprocal in every field; `None` if the value is 0 in one of them.
    fn reciprocal(&self, x: &Value) -> Option<[u64; COUNT]> {
        *self.reciprocals.borrow_mut().entry(x.fields).or_insert_with(|| x.reciprocal())
    }

    fn compare(&self, op: BinaryOp, a: &Value, b: &Value) -> bool {
        use Special::{Finite, Infinite, Undefined};
        let ordering = match (a.special, b.special) {
            (Undefined, _) | (_, Undefined) => return op == BinaryOp::Ne,
            (Finite, Infinite(positive)) => {
                if positive {
                    -1
                } else {
                    1
                }
            }
            (Infinite(positive), Finite) => {
                if positive {
                    1
                } else {
                    -1
                }
            }
            (Infinite(x), Infinite(y)) => i32::from(x) - i32::from(y),
            (Finite, Finite) => match (a.quotient(), b.quotient()) {
                (Some(x), Some(y)) => x.0.saturating_mul(y.1).cmp(&y.0.saturating_mul(x.1)) as i32,
                _ if a.last() == b.last() => 0,
                // Some total order: the same on both sides is all that matters.
                _ => {
                    if a.order() > b.order() {
                        1
                    } else {
                        -1
                    }
                }
            },
        };
        match op {
            BinaryOp::Lt => ordering < 0,
            BinaryOp::Le => ordering <= 0,
            BinaryOp::Gt => ordering > 0,
            BinaryOp::Ge => ordering >= 0,
            BinaryOp::Eq => ordering == 0,
            _ => ordering != 0,
        }
    }

    /// Sums and products with an infinity.
    fn special(&self, op: BinaryOp, a: &Value, b: &Value) -> Option<Value> {
        use Special::{Finite, Infinite, Undefined};
        let sign = |v: &Value| v.quotient().filter(|q| q.0 != 0).map(|q| q.0 > 0);
        match (op, a.special, b.special) {
            (_, Finite, Finite) => None,
            (_, Undefined, _) | (_, _, Undefined) => Some(Value::undefined()),
            (BinaryOp::Add, Infinite(s), Finite) | (BinaryOp::Add, Finite, Infinite(s)) => Some(Value::infinite(s)),
            (BinaryOp::Sub, Infinite(s), Finite) => Some(Value::infinite(s)),
            (BinaryOp::Sub, Finite, Infinite(s)) => Some(Value::infinite(!s)),
            (BinaryOp::Add, Infinite(s), Infinite(t)) if s == t => Some(Value::infinite(s)),
            (BinaryOp::Sub, Infinite(s), Infinite(t)) if s != t => Some(Value::infinite(s)),
            (BinaryOp::Div, Finite, Infinite(_)) => Some(Value::integer(0)),
            // A product with a known number has a sign, and none with 0; fields have no order for others.
            (BinaryOp::Mul, Infinite(s), Finite) if sign(b).is_some() => {
                sign(b).map(|positive| Value::infinite(s == positive))
            }
            (BinaryOp::Mul, Finite, Infinite(s)) if sign(a).is_some() => {
                sign(a).map(|positive| Value::infinite(s == positive))
            }
            (BinaryOp::Mul | BinaryOp::Div, Infinite(s), Finite) if b.int.is_none() => Some(Value::infinite(s)),
            (BinaryOp::Max | BinaryOp::Min, _, _) => {
                let larger = if self.compare(BinaryOp::Gt, a, b) { a } else { b };
                let smaller = if self.compare(BinaryOp::Gt, a, b) { b } else { a };
                let one = *if op == BinaryOp::Max { larger } else { smaller };
                Some(if one.special == Finite { self.of_set(op == BinaryOp::Max, one) } else { one })
            }
            _ => Some(Value::undefined()),
        }
    }
}

impl Domain for Fields<'_> {
    type Value = Value;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Value>> {
        let tensor = self.graph[node].tensor?;
        let integer = self.graph[node].dtype.is_some_and(|d| d.is_integer() || d == DType::B1);
        let element = |k: usize| match self.random(&[1, u64::from(tensor.0), k as u64]) {
            // Small, so that gathers have a chance to stay inside.
            v if integer => Value::integer(i128::from(v.last() % 2)),
            v => v,
        };
        Some((0..count).map(element).collect())
    }

    fn number(&self, v: f64) -> Value {
        if v.is_nan() {
            Value::undefined()
        } else if v.is_infinite() {
            Value::infinite(v > 0.0)
        } else if v.fract() == 0.0 && v.abs() < 1e30 {
            Value::integer(v as i128)
        } else {
            if let Some(known) = self.constants.borrow().get(&v.to_bits()) {
                return *known;
            }
            let value = self.fraction(v);
            self.constants.borrow_mut().insert(v.to_bits(), value);
            value
        }
    }

    fn integer(&self, v: i64) -> Value {
        Value::integer(i128::from(v))
    }

    fn param(&self, p: ParamId) -> Value {
        // Free, unless filters need to know it.
        match self.bound.param(p) {
            v if v.fract() == 0.0 => self.number(v),
            _ => self.random(&[2, u64::from(p.0)]),
        }
    }

    fn unary(&self, op: UnaryOp, x: &Value) -> Value {
        match (op, x.special) {
            (_, Special::Undefined) => *x,
            (UnaryOp::Neg, Special::Infinite(s)) => Value::infinite(!s),
            (UnaryOp::Abs, Special::Infinite(_)) => Value::infinite(true),
            (UnaryOp::Exp, Special::Infinite(s)) => {
                if s {
                    Value::infinite(true)
                } else {
                    Value::integer(0)
                }
            }
            (UnaryOp::Neg, _) => {
                let (int, part) = (x.int.map(|v| -v), x.part.map(|(v, under)| (-v, under)));
                Value {
                    fields: x.in_fields(field::negate),
                    int,
                    part,
                    log: None,
                    lead: self.lead(BinaryOp::Sub, &Value::integer(0), x),
                    largest: None,
                    ..*x
                }
            }
            (UnaryOp::Not, _) => Value::integer(i128::from(!self.holds(x))),
            (UnaryOp::Exp, _) => self.exponential(x),
            (UnaryOp::Exp2, _) => {
                let ln2 = self.number(std::f64::consts::LN_2);
                self.unary(UnaryOp::Exp, &self.binary(BinaryOp::Mul, x, &ln2))
            }
            (UnaryOp::Log | UnaryOp::Log2, _) if x.int == Some(0) => Value::infinite(false),
            (UnaryOp::Log, Special::Finite) => Value::finite(self.logarithm(x), x.degree.of_function()),
            (UnaryOp::Log2, Special::Finite) => {
                let log2e = self.number(std::f64::consts::LOG2_E);
                self.binary(BinaryOp::Mul, &self.unary(UnaryOp::Log, x), &log2e)
            }
            (UnaryOp::Rsqrt, _) => {
                let root = self.sqrt(x);
                self.binary(BinaryOp::Div, &Value::integer(1), &root)
            }
            (UnaryOp::Sqrt, _) => self.sqrt(x),
            (UnaryOp::Abs, _) => {
                let int = x.int.and_then(i128::checked_abs);
                int.map_or_else(|| self.magnitude(x), Value::integer)
            }
            (UnaryOp::Floor | UnaryOp::Round | UnaryOp::Sign, Special::Finite) if x.quotient().is_some() => {
                let (over, under) = x.quotient().unwrap_or((0, 1));
                Value::integer(op.apply(over as f64 / under as f64) as i128)
            }
            (op, _) => self.function(16 + op as u64, &[x]),
        }
    }

    fn binary(&self, op: BinaryOp, a: &Value, b: &Value) -> Value {
        if op.is_comparison() {
            return Value::integer(i128::from(self.compare(op, a, b)));
        }
        match op {
            BinaryOp::And => return Value::integer(i128::from(self.holds(a) && self.holds(b))),
            BinaryOp::Or => return Value::integer(i128::from(self.holds(a) || self.holds(b))),
            _ => {}
        }
        // A known zero keeps its product known; with an infinity it has none.
        let zero = |v: &Value| v.int == Some(0);
        if op == BinaryOp::Mul
            && (zero(a) || zero(b))
            && a.special != Special::Undefined
            && b.special != Special::Undefined
        {
            let infinite = |v: &Value| matches!(v.special, Special::Infinite(_));
            return if infinite(a) || infinite(b) { Value::undefined() } else { Value::integer(0) };
        }
        if let Some(v) = self.special(op, a, b) {
            return v;
        }
        let both = a.int.zip(b.int);
        let lead = self.lead(op, a, b);
        match op {
            BinaryOp::Add => {
                let sum = self.arithmetic(a, b, field::add, both.and_then(|(x, y)| x.checked_add(y)));
                Value { degree: a.degree.plus(b.degree), lead, ..sum }.known_as(op, a, b)
            }
            BinaryOp::Sub => {
                let sub = |x, y, k| field::add(x, field::negate(y, k), k);
                let difference = self.arithmetic(a, b, sub, both.and_then(|(x, y)| x.checked_sub(y)));
                Value { degree: a.degree.plus(b.degree), lead, ..difference }.known_as(op, a, b)
            }
            BinaryOp::Mul if a.square.is_some() && a.fields == b.fields => self.power(a, 2),
            BinaryOp::Mul => {
                let square = self.square_of_product(a, b);
                let product = self.arithmetic(a, b, field::mul, both.and_then(|(x, y)| x.checked_mul(y)));
                let log = self.log_of_product(a, b, false);
                Value { degree: a.degree.times(b.degree), log, lead, square, ..product }.known_as(op, a, b)
            }
            BinaryOp::Div => match self.reciprocal(b) {
                // A known zero stays known: number types round it to itself.
                Some(_) if zero(a) => Value::integer(0),
                Some(fields) => {
                    let exact = both.and_then(|(x, y)| (x % y == 0).then_some(x / y));
                    let quotient = self.arithmetic(a, &Value { fields, ..*b }, field::mul, exact);
                    let log = self.log_of_product(a, b, true);
                    let inverse = b.square.and_then(|s| Value::finite(s, Degree::ZERO).reciprocal());
                    let square = self.square_of_product(a, &Value { fields, square: inverse, ..*b });
                    Value { degree: a.degree.times(b.degree.inverse()), log, lead, square, ..quotient }
                        .known_as(op, a, b)
                }
                None => Value::undefined(),
            },
            BinaryOp::Pow => match (b.int, halves(b)) {
                (Some(n), _) if n.abs() <= HIGHEST_POWER => self.power(a, n),
                (_, Some(n)) => self.power(&self.sqrt(a), n),
                // c^x = exp(x·log c)
                _ if a.degree == Degree::ZERO => {
                    self.unary(UnaryOp::Exp, &self.binary(BinaryOp::Mul, b, &self.unary(UnaryOp::Log, a)))
                }
                _ => self.raised(a, b),
            },
            BinaryOp::Max | BinaryOp::Min => {
                let largest = op == BinaryOp::Max;
                let m = if largest { Monoid::Max } else { Monoid::Min };
                self.combine(m, &self.of_set(largest, *a), &self.of_set(largest, *b)).unwrap_or_else(Value::undefined)
            }
            // Symmetric in its arguments.
            _ => {
                let (x, y) = if a.order() <= b.order() { (a, b) } else { (b, a) };
                self.function(op as u64, &[x, y])
            }
        }
    }

    fn holds(&self, v: &Value) -> bool {
        match v.int {
            Some(k) => k != 0,
            None => v.last() != 0,
        }
    }

    fn position(&self, v: &Value) -> Option<i64> {
        v.int.and_then(|k| i64::try_from(k).ok())
    }

    fn round(&self, dtype: DType, v: Value) -> Value {
        match dtype {
            DType::F64 | DType::F32 => v,
            _ if v.int.is_some() || v.special != Special::Finite => v,
            d => self.function(64 + d as u64, &[&v]),
        }
    }

    fn slice(&self, v: Value) -> Value {
        match v.special {
            // Of the field in which values are compared: what two forms agree on there they agree on in all from here on.
            Special::Finite if self.view.by_steps && v.int.is_none() => {
                let h = hash_of([self.seed, 131, v.last()].into_iter());
                Value::finite(std::array::from_fn(|k| hash(&[h, k as u64]) % PRIMES[k]), v.degree.of_function())
            }
            _ => v,
        }
    }

    fn identity(&self, m: Monoid) -> Value {
        match m {
            Monoid::Sum => Value::integer(0),
            Monoid::Prod => Value::integer(1),
            Monoid::Max => Value::infinite(false),
            Monoid::Min => Value::infinite(true),
            Monoid::ArgMax | Monoid::ArgMin => Value::integer(-1),
            Monoid::Custom(id) => self.number(self.graph.cascade[id].identity),
        }
    }

    fn single(&self, m: Monoid, v: Value) -> Value {
        match m {
            Monoid::Sum | Monoid::Prod => v,
            // The identity stays what it is, integers have an order, and what has no value leaves a set without one.
            _ if v == self.identity(m) || v.int.is_some() || v.special == Special::Undefined => v,
            Monoid::Max | Monoid::Min | Monoid::ArgMax | Monoid::ArgMin if self.view.selects => v,
            Monoid::Custom(_) if self.view.spelled => v,
            Monoid::Max | Monoid::Min => {
                let largest = Some(m == Monoid::Max);
                Value { largest, ..self.function(128 + u64::from(m == Monoid::Min), &[&v]) }
            }
            _ => self.function(130, &[&v]),
        }
    }

    /// A maximum is the sum of the hashes of its elements: a function of the set, put together in any order.
    fn combine(&self, m: Monoid, a: &Value, b: &Value) -> Option<Value> {
        Some(match m {
            Monoid::Sum => self.binary(BinaryOp::Add, a, b),
            Monoid::Prod => self.binary(BinaryOp::Mul, a, b),
            Monoid::ArgMax | Monoid::ArgMin => return None,
            Monoid::Custom(_) if self.view.spelled => return crate::stream::combine(self, self.graph, m, [a, b]),
            _ if *a == self.identity(m) => *b,
            _ if *b == self.identity(m) => *a,
            _ if a.special == Special::Undefined || b.special == Special::Undefined => Value::undefined(),
            Monoid::Max | Monoid::Min if self.view.selects || a.int.is_some() && b.int.is_some() => {
                let larger = self.compare(BinaryOp::Ge, a, b);
                if larger == (m == Monoid::Max) { *a } else { *b }
            }
            // Of a set of functions' values: how often two sets look equal does not grow with their sizes.
            _ => {
                let largest = matches!(m, Monoid::Max | Monoid::Min).then_some(m == Monoid::Max);
                Value { degree: a.degree.plus(b.degree), largest, ..self.arithmetic(a, b, field::add, None) }
            }
        })
    }

    fn beats(&self, m: Monoid, a: &Value, b: &Value) -> bool {
        match self.view.selects {
            true => self.compare(if m == Monoid::ArgMin { BinaryOp::Lt } else { BinaryOp::Gt }, a, b),
            false => a.order() > b.order(),
        }
    }
}

fn each(f: impl Fn(usize) -> u64) -> [u64; COUNT] {
    std::array::from_fn(f)
}

/// The mean that a value's lead is; `None` if it has none.
fn mean(lead: Lead) -> Option<[u64; COUNT]> {
    let under = Value::finite(lead.count, Degree::ZERO).reciprocal()?;
    Some(std::array::from_fn(|k| field::mul(lead.sum[k], under[k], k)))
}

/// Twice the value, if that is a small odd number.
fn halves(v: &Value) -> Option<i128> {
    let m = PRIMES[COUNT - 1];
    let twice = i128::from(field::add(v.last(), v.last(), COUNT - 1));
    let n = if twice > i128::from(m / 2) { twice - i128::from(m) } else { twice };
    (v.special == Special::Finite && v.degree == Degree::ZERO && n.abs() <= 64).then_some(n)
}
