//! Which elements of a program have something infinite among what the text computes them from.
//!
//! A rule that takes sums in another order promises no number there and nowhere else: `q · (a·h + u)` multiplied out is
//! `q·a·h + q·u`, and with `q` infinite and `h` 0 only the first of the two is a number.

use super::Subject;
use einloom_algebra::stream::{Cut, Domain, Reals, apply, evaluate_in};
use einloom_algebra::{Graph, NodeId, argument_term};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, DType, Monoid, ParamId, UnaryOp};

/// A value, and whether it or something that it was computed from is no finite number.
type Marked = (f64, bool);

struct Marks<'a> {
    reals: Reals<'a>,
}

fn marked(value: f64, before: bool) -> Marked {
    (value, before || !value.is_finite())
}

impl Domain for Marks<'_> {
    type Value = Marked;

    fn input(&self, node: NodeId, count: usize) -> Option<Vec<Marked>> {
        Some(self.reals.input(node, count)?.into_iter().map(|v| marked(v, false)).collect())
    }

    fn number(&self, v: f64) -> Marked {
        marked(v, false)
    }

    fn integer(&self, v: i64) -> Marked {
        (v as f64, false)
    }

    fn param(&self, p: ParamId) -> Marked {
        marked(self.reals.param(p), false)
    }

    fn unary(&self, op: UnaryOp, x: &Marked) -> Marked {
        marked(op.apply(x.0), x.1)
    }

    fn binary(&self, op: BinaryOp, a: &Marked, b: &Marked) -> Marked {
        marked(op.apply(a.0, b.0), a.1 || b.1)
    }

    fn holds(&self, v: &Marked) -> bool {
        self.reals.holds(&v.0)
    }

    fn position(&self, v: &Marked) -> Option<i64> {
        self.reals.position(&v.0)
    }

    fn round(&self, dtype: DType, v: Marked) -> Marked {
        marked(self.reals.round(dtype, v.0), v.1)
    }

    /// Of a maximum it is -inf, which is nothing that went into it.
    fn identity(&self, m: Monoid) -> Marked {
        (self.reals.identity(m), false)
    }

    fn single(&self, _m: Monoid, v: Marked) -> Marked {
        v
    }

    fn combine(&self, m: Monoid, a: &Marked, b: &Marked) -> Option<Marked> {
        Some(match m {
            Monoid::Custom(id) => apply(self, &argument_term(&self.reals.graph.cascade[id].combine)?, [a, b])?,
            _ => (self.reals.combine(m, &a.0, &b.0)?, a.1 || b.1),
        })
    }

    fn beats(&self, m: Monoid, a: &Marked, b: &Marked) -> bool {
        self.reals.beats(m, &a.0, &b.0)
    }
}

impl Subject {
    /// For each element of an output (by its number), whether something that is not finite reaches it in the text; `None`
    /// if that has no value.
    pub(super) fn reached(&self, written: &Graph, inputs: &Arrays, output: usize) -> Option<Vec<bool>> {
        let domain = Marks { reals: Reals { graph: written, bound: &self.bound, inputs } };
        let (_, values) = evaluate_in(&domain, written, &self.bound, Cut::Whole)?.swap_remove(output);
        Some(values.into_iter().map(|v| v.1).collect())
    }
}
