//! Which tiles may be off by a relative 2^-20: those of which nothing is seen but what is rounded to 11 bits or fewer.
//! Their exponentials and quotients can be short sequences of instructions.
//!
//! A relative error passes through products, quotients, roots and selections, through sums of terms that are never
//! negative, and through maxima. It may end in a rounding to, or a store as, a narrow type. Anything else (a
//! difference, a comparison, a coordinate) asks for the full precision of f32.
//!
//! A sum of `n` terms that are never negative is off by up to `(n - 1) * 2^-24` by its own roundings (Higham, "Accuracy and
//! Stability of Numerical Algorithms", section 4.2): from 64 on its terms may be off, whatever becomes of the sum.

use super::facts::{Facts, Use, each_op};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Init, Op, Scalar, TileMonoid, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether numbers of this type have at most 11 bits.
pub(crate) fn narrow(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::F16 | DType::E4m3 | DType::E5m2)
}

/// The tiles that may be off.
pub(super) fn loose(facts: &Facts<'_>) -> BTreeSet<ValueId> {
    let positive = never_negative(facts);
    let mut maps = BTreeMap::new();
    let mut sums = BTreeMap::new();
    each_op(&facts.kernel.body, &mut |op| match op {
        Op::Map { dst, expr } => {
            maps.insert(*dst, expr);
        }
        Op::Reduce { dst, monoid, axis, .. } => {
            sums.insert(*dst, (monoid, facts.kernel.axis(*axis).extent));
        }
        _ => {}
    });
    let mut out: BTreeSet<ValueId> =
        (0..facts.kernel.values.len() as u32).map(ValueId).filter(|v| facts.dtype(*v) == DType::F32).collect();
    loop {
        let bears = |v: ValueId, u: &Use| match u {
            Use::Leaf(d) => {
                let ends = narrow(facts.dtype(*d));
                maps.get(d).is_some_and(|e| passes(e, v, ends || out.contains(d)))
            }
            Use::Reduced(d) | Use::Onto(d) => match sums.get(d) {
                Some((TileMonoid::Sum, n)) => {
                    positive.contains(d) && (out.contains(d) || *n >= 64 && *u == Use::Reduced(*d))
                }
                Some((TileMonoid::Max | TileMonoid::Min, _)) => out.contains(d),
                _ => false,
            },
            Use::Stored(t) => narrow(facts.program.tensor(*t).dtype),
            Use::Start(s) | Use::Next(s) => out.contains(s),
            Use::Factor(_) | Use::Gather(_) | Use::Picked(_) | Use::Tested => false,
        };
        let strict: Vec<ValueId> =
            out.iter().copied().filter(|v| !facts.uses[v.at()].iter().all(|u| bears(*v, u))).collect();
        if strict.is_empty() {
            return out;
        }
        strict.iter().for_each(|v| {
            out.remove(v);
        });
    }
}

/// Whether a relative error of `v` becomes no more than a few of the expression's, or ends in it. `open`: whether the
/// expression's own may be as large.
fn passes(expr: &Scalar, v: ValueId, open: bool) -> bool {
    match expr {
        Scalar::Tile(x) => *x != v || open,
        Scalar::Const(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => true,
        Scalar::Round(d, x) => passes(x, v, open || narrow(*d)),
        Scalar::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Rsqrt, x) => passes(x, v, open),
        Scalar::Unary(_, x) => passes(x, v, false),
        Scalar::Binary(BinaryOp::Mul | BinaryOp::Div, x, y) => passes(x, v, open) && passes(y, v, open),
        Scalar::Binary(_, x, y) => passes(x, v, false) && passes(y, v, false),
        Scalar::Select(c, x, y) => passes(c, v, false) && passes(x, v, open) && passes(y, v, open),
    }
}

/// Tiles with no element below 0 (NaN aside).
fn never_negative(facts: &Facts<'_>) -> BTreeSet<ValueId> {
    // Begins with all and takes away what may be negative: a state is negative only if its start or a step makes it so.
    let mut out: BTreeSet<ValueId> = (0..facts.kernel.values.len() as u32).map(ValueId).collect();
    loop {
        let mut negative = BTreeSet::new();
        each_op(&facts.kernel.body, &mut |op| match op {
            Op::Load { dst, .. } | Op::Mma { dst, .. } | Op::Pick { dst, .. } => {
                negative.insert(*dst);
            }
            Op::Map { dst, expr } => {
                if !positive(expr, &out) {
                    negative.insert(*dst);
                }
            }
            Op::Reduce { dst, src, monoid, acc, .. } => {
                let all = out.contains(src) && acc.is_none_or(|a| out.contains(&a));
                if !all || !matches!(monoid, TileMonoid::Sum | TileMonoid::Prod) {
                    negative.insert(*dst);
                }
            }
            Op::Stream { states, .. } => {
                for s in states {
                    let start = match s.init {
                        Init::Const(x) => x >= 0.0,
                        Init::Value(v) => out.contains(&v),
                    };
                    if !start || !out.contains(&s.next) {
                        negative.insert(s.value);
                    }
                }
            }
            Op::Store { .. } | Op::SkipUnless { .. } => {}
        });
        let before = out.len();
        out.retain(|v| !negative.contains(v));
        if out.len() == before {
            return out;
        }
    }
}

fn positive(expr: &Scalar, known: &BTreeSet<ValueId>) -> bool {
    match expr {
        Scalar::Const(x) => *x >= 0.0,
        Scalar::Tile(v) => known.contains(v),
        Scalar::Within(_) => true,
        Scalar::Position(_) | Scalar::Argument(_) => false,
        Scalar::Round(_, x) => positive(x, known),
        Scalar::Unary(op, x) => match op {
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Sigmoid => true,
            UnaryOp::Relu | UnaryOp::Not => true,
            _ => positive(x, known) && matches!(op, UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::Round | UnaryOp::Floor),
        },
        Scalar::Binary(op, x, y) => {
            let both = positive(x, known) && positive(y, known);
            match op {
                BinaryOp::Mul => both || x == y,
                BinaryOp::Add | BinaryOp::Div | BinaryOp::Min | BinaryOp::Pow => both,
                BinaryOp::Max => positive(x, known) || positive(y, known),
                _ => op.is_predicate(),
            }
        }
        Scalar::Select(_, x, y) => positive(x, known) && positive(y, known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_tile::{Builder, Program, TileMonoid::Sum};

    /// The names of the tiles that may be off.
    fn loose_in(program: &Program) -> Vec<String> {
        let facts = Facts::new(program, &program.kernels[0]);
        facts.loose.iter().map(|v| facts.name(*v)).collect()
    }

    /// `e / z`, where `z` sums `e`; or what `change` makes of it.
    fn softmax(n: usize, out: DType, change: impl FnOnce(Scalar) -> Scalar) -> Program {
        let mut p = Builder::new("softmax");
        let x = p.input("X", &[8, n], DType::Bf16);
        let y = p.output("Y", &[8, n], out);
        p.kernel("softmax", |g| {
            let (m, n) = (g.grid("m", 8, 1), g.whole("n", n));
            let x = g.load("x", x, [m, n]);
            let top = g.reduce("top", TileMonoid::Max, x, n);
            let e = g.map("e", (x - top).exp());
            let z = g.reduce("z", Sum, e, n);
            let y_ = g.map("y", change(e / z));
            g.store(y, [m, n], y_);
        });
        p.finish().expect("well-formed")
    }

    #[test]
    fn what_ends_in_a_narrow_number_may_be_off() {
        assert_eq!(loose_in(&softmax(48, DType::Bf16, |y| y)), ["e", "z", "y"]);
        assert_eq!(loose_in(&softmax(48, DType::F16, |y| y.sqrt() * 3.0)), ["e", "z", "y"]);
    }

    #[test]
    fn what_is_seen_in_full_or_cancels_may_not() {
        let none = Vec::<String>::new();
        assert_eq!(loose_in(&softmax(48, DType::F32, |y| y)), none);
        // 1 - y loses the bits that y has right.
        assert_eq!(loose_in(&softmax(48, DType::Bf16, |y| 1.0 - y)), ["y"]);
        assert_eq!(loose_in(&softmax(48, DType::Bf16, |y| y.log())), ["y"]);
    }

    #[test]
    fn a_long_sum_is_off_by_more_than_its_terms() {
        let sums = |n| {
            let mut p = Builder::new("sums");
            let x = p.input("X", &[8, n], DType::Bf16);
            let y = p.output("Y", &[8], DType::F32);
            p.kernel("sums", |g| {
                let (m, n) = (g.grid("m", 8, 1), g.whole("n", n));
                let x = g.load("x", x, [m, n]);
                let e = g.map("e", x.exp());
                let z = g.reduce("z", Sum, e, n);
                g.store(y, [m], z);
            });
            p.finish().expect("well-formed")
        };
        assert_eq!(loose_in(&sums(64)), ["e"]);
        assert_eq!(loose_in(&sums(63)), Vec::<String>::new());
    }
}
