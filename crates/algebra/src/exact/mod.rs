//! The exact proof: written and derived graph are evaluated at random points of finite fields and must agree.
//!
//! `exp` is a random homomorphism from (F_p, +) to (F_q*, ·), so every identity that follows from `exp(a + b) =
//! exp(a)·exp(b)` and the field axioms holds, and one that does not fails at a random point except with the
//! probability of Schwartz and Zippel's lemma. A maximum is a random function of the *set* of elements it is taken
//! over, so an anchor's running values are free values. Every other function is a random function: equal arguments,
//! equal values. An identity that needs more than this (`log(x·exp(u)) = log(x) + u`, the order of reals) is
//! therefore *not certified*, which is not the same as wrong.

mod field;

use crate::stream::{Cut, Domain, evaluate_in};
use crate::{Derivation, Graph, NodeId};
use einloom_cascade::{BinaryOp, Bound, DType, Monoid, ParamId, UnaryOp};
use field::{P, Q, hash};

/// What exact identity testing found.
#[derive(Clone, Debug, PartialEq)]
pub enum Certificate {
    /// Agreed at every point.
    Certified {
        /// Random points tried, each with several cuts.
        points: usize,
        /// The probability that a wrong identity passed is below `2^-bits`.
        bits: u32,
    },
    /// Did not agree; the identity needs a property that the fields do not have, or is wrong. The numeric proof tells.
    NotCertified {
        /// The output that differs first.
        output: String,
    },
    /// Says nothing: a gather leaves its tensor, or no element of an output has a value (there is none, or all divide by
    /// zero).
    NotEvaluated,
}

const CUTS: [Cut; 3] = [Cut::Whole, Cut::Chunks(2), Cut::Parts(2)];

/// Tests a derivation at `points` random points, at the given (small) sizes.
pub fn certify(d: &Derivation, bound: &Bound, points: usize) -> Certificate {
    for seed in 0..points as u64 {
        let domain = |graph| Fields { graph, bound, seed };
        let Some(expected) = evaluate_in(&domain(&d.written), &d.written, bound, Cut::Whole) else {
            return Certificate::NotEvaluated;
        };
        // Undefined elements agree with anything, so without others agreement would be empty.
        let told = |(_, values): &(Vec<usize>, Vec<Value>)| values.iter().any(|v| v.special != Special::Undefined);
        if !expected.iter().all(told) {
            return Certificate::NotEvaluated;
        }
        for cut in CUTS {
            let Some(got) = evaluate_in(&domain(&d.derived), &d.derived, bound, cut) else {
                return Certificate::NotEvaluated;
            };
            for (k, (e, g)) in expected.iter().zip(&got).enumerate() {
                if e.1.iter().zip(&g.1).any(|(a, b)| !a.agrees(b)) {
                    return Certificate::NotCertified { output: d.written[d.written.outputs[k]].name.clone() };
                }
            }
        }
    }
    // The degree of what is compared is at most the number of scalar operations in it; a factor for both sides.
    let operations = 2.0 * einloom_cascade::meaning::work(&d.written.cascade, bound).max(1.0) * 4.0;
    let per_point = (P as f64).log2() - operations.log2();
    Certificate::Certified { points, bits: (per_point.max(0.0) * points as f64) as u32 }
}

/// A value seen as an exponent (in F_p) and as a factor (in F_q), with what must be known exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    p: u64,
    q: u64,
    /// Its value where it is an integer that positions, sizes and literals make.
    int: Option<i128>,
    special: Special,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Special {
    Finite,
    /// ±infinity.
    Infinite(bool),
    /// Divided by zero, or an infinity met another.
    Undefined,
}

impl Value {
    fn finite(p: u64, q: u64) -> Self {
        Self { p, q, int: None, special: Special::Finite }
    }

    fn infinite(positive: bool) -> Self {
        Self { p: u64::from(positive), q: u64::from(positive), int: None, special: Special::Infinite(positive) }
    }

    fn undefined() -> Self {
        Self { p: 0, q: 0, int: None, special: Special::Undefined }
    }

    fn integer(v: i128) -> Self {
        let reduce = |m: u64| v.rem_euclid(i128::from(m)) as u64;
        Self { p: reduce(P), q: reduce(Q), int: Some(v), special: Special::Finite }
    }

    /// Equal as values; what the written form leaves undefined may be anything.
    fn agrees(&self, other: &Self) -> bool {
        self.special == Special::Undefined || (self.special == other.special && self.q == other.q)
    }

    fn special_code(&self) -> u64 {
        match self.special {
            Special::Finite => 0,
            Special::Infinite(s) => 1 + u64::from(s),
            Special::Undefined => 3,
        }
    }

    /// Some total order of values, for what has no order in a field.
    fn order(&self) -> u64 {
        hash(&[self.q, self.special_code()])
    }
}

struct Fields<'a> {
    graph: &'a Graph,
    bound: &'a Bound,
    seed: u64,
}

impl Fields<'_> {
    /// A random element for a name, the same in both graphs.
    fn random(&self, words: &[u64]) -> Value {
        let h = hash(&[&[self.seed], words].concat());
        Value::finite(hash(&[h, 1]) % P, hash(&[h, 2]) % Q)
    }

    /// A random function, in each field on its own: what two forms agree on in one field stays agreed there.
    fn function(&self, name: u64, arguments: &[&Value]) -> Value {
        let in_field = |which: u64, part: &dyn Fn(&Value) -> u64| {
            let mut words = vec![self.seed, name, which];
            arguments.iter().for_each(|a| words.extend([part(a), a.special_code()]));
            hash(&words)
        };
        Value::finite(in_field(0, &|v| v.p) % P, in_field(1, &|v| v.q) % Q)
    }

    fn arithmetic(&self, a: &Value, b: &Value, f: impl Fn(u64, u64, u64) -> u64, exact: Option<i128>) -> Value {
        Value { p: f(a.p, b.p, P), q: f(a.q, b.q, Q), int: exact, special: Special::Finite }
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
            (Finite, Finite) => match (a.int, b.int) {
                (Some(x), Some(y)) => (x > y) as i32 - (x < y) as i32,
                _ if a.q == b.q => 0,
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
        match (op, a.special, b.special) {
            (_, Finite, Finite) => None,
            (_, Undefined, _) | (_, _, Undefined) => Some(Value::undefined()),
            (BinaryOp::Add, Infinite(s), Finite) | (BinaryOp::Add, Finite, Infinite(s)) => Some(Value::infinite(s)),
            (BinaryOp::Sub, Infinite(s), Finite) => Some(Value::infinite(s)),
            (BinaryOp::Sub, Finite, Infinite(s)) => Some(Value::infinite(!s)),
            (BinaryOp::Add, Infinite(s), Infinite(t)) if s == t => Some(Value::infinite(s)),
            (BinaryOp::Sub, Infinite(s), Infinite(t)) if s != t => Some(Value::infinite(s)),
            (BinaryOp::Div, Finite, Infinite(_)) => Some(Value::integer(0)),
            // A product with a known positive number keeps the sign; fields have no order for others.
            (BinaryOp::Mul, Infinite(s), Finite) if b.int.is_some_and(|v| v > 0) => Some(Value::infinite(s)),
            (BinaryOp::Mul, Finite, Infinite(s)) if a.int.is_some_and(|v| v > 0) => Some(Value::infinite(s)),
            (BinaryOp::Mul | BinaryOp::Div, Infinite(s), Finite) if b.int.is_none() => Some(Value::infinite(s)),
            (BinaryOp::Max | BinaryOp::Min, _, _) => {
                let larger = if self.compare(BinaryOp::Gt, a, b) { a } else { b };
                let smaller = if self.compare(BinaryOp::Gt, a, b) { b } else { a };
                Some(*if op == BinaryOp::Max { larger } else { smaller })
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
            v if integer => Value::integer(i128::from(v.q % 2)),
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
            Value::finite(field::from_f64(v, P), field::from_f64(v, Q))
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
                Value { p: field::negate(x.p, P), q: field::negate(x.q, Q), int: x.int.map(|v| -v), special: x.special }
            }
            (UnaryOp::Not, _) => Value::integer(i128::from(!self.holds(x))),
            (UnaryOp::Exp, _) => {
                let q = field::pow(field::GENERATOR, x.p, Q);
                // As an exponent itself it is a random function of its value.
                Value::finite(hash(&[self.seed, 3, q]) % P, q)
            }
            (UnaryOp::Exp2, _) => {
                let ln2 = self.number(std::f64::consts::LN_2);
                self.unary(UnaryOp::Exp, &self.binary(BinaryOp::Mul, x, &ln2))
            }
            (UnaryOp::Rsqrt, _) => {
                let root = self.unary(UnaryOp::Sqrt, x);
                self.binary(BinaryOp::Div, &Value::integer(1), &root)
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
        match op {
            BinaryOp::Add => self.arithmetic(a, b, field::add, both.and_then(|(x, y)| x.checked_add(y))),
            BinaryOp::Sub => {
                let sub = |x, y, m| field::add(x, field::negate(y, m), m);
                self.arithmetic(a, b, sub, both.and_then(|(x, y)| x.checked_sub(y)))
            }
            BinaryOp::Mul => self.arithmetic(a, b, field::mul, both.and_then(|(x, y)| x.checked_mul(y))),
            BinaryOp::Div => match (field::invert(b.p, P), field::invert(b.q, Q)) {
                (Some(p), Some(q)) => {
                    let exact = both.and_then(|(x, y)| (x % y == 0).then_some(x / y));
                    Value { p: field::mul(a.p, p, P), q: field::mul(a.q, q, Q), int: exact, special: Special::Finite }
                }
                _ => Value::undefined(),
            },
            BinaryOp::Pow => match b.int {
                Some(n) if (0..=64).contains(&n) => {
                    let exact = a.int.and_then(|x| x.checked_pow(n as u32));
                    let power = |x, m| field::pow(x, n as u64, m);
                    Value { p: power(a.p, P), q: power(a.q, Q), int: exact, special: Special::Finite }
                }
                _ => self.function(8, &[a, b]),
            },
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
            None => v.q != 0,
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
            // The identity stays what it is, and integers have an order.
            _ if v == self.identity(m) || v.int.is_some() => v,
            Monoid::Max | Monoid::Min => self.function(128 + u64::from(m == Monoid::Min), &[&v]),
            _ => self.function(130, &[&v]),
        }
    }

    /// A maximum is the sum of the hashes of its elements: a function of the set, put together in any order.
    fn combine(&self, m: Monoid, a: &Value, b: &Value) -> Option<Value> {
        Some(match m {
            Monoid::Sum => self.binary(BinaryOp::Add, a, b),
            Monoid::Prod => self.binary(BinaryOp::Mul, a, b),
            Monoid::ArgMax | Monoid::ArgMin => return None,
            _ if *a == self.identity(m) => *b,
            _ if *b == self.identity(m) => *a,
            Monoid::Max | Monoid::Min if a.int.is_some() && b.int.is_some() => {
                let larger = self.compare(BinaryOp::Ge, a, b);
                if larger == (m == Monoid::Max) { *a } else { *b }
            }
            _ => self.arithmetic(a, b, field::add, None),
        })
    }

    fn beats(&self, _m: Monoid, a: &Value, b: &Value) -> bool {
        a.order() > b.order()
    }
}
