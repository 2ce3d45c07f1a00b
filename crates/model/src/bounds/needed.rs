//! Where values are needed: under which conditions on positions anything reads them.
//!
//! What a tile has of elements beside those that a condition leaves is the plan's, and no bound may ask for it. So operations are gone
//! through from the last one back. A branch of a choice is needed where its condition says so; a factor, where the other one is not 0 by
//! a condition; an operand, where the result is. A value that several read is needed where either of them does: of their conditions
//! those are kept which all have, and of two that differ by a constant the weaker one.
//!
//! What a condition says that is no affine one of positions, or that two readers say in two ways, is left out, which
//! takes a value as needed where it may not be.

use crate::nest::{Loop, tiles};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{Affine, AxisId, Init, Kernel, Op, Predicate, Scalar, ValueId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of each value the conditions under which it is needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeededAt {
    /// `None` where nothing reads it.
    at: Vec<Option<Vec<Affine>>>,
    /// Outside of these it is 0.
    within: Vec<Vec<Affine>>,
}

impl NeededAt {
    pub fn new(kernel: &Kernel) -> Self {
        let mut out = Self { at: vec![None; kernel.values.len()], within: vec![vec![]; kernel.values.len()] };
        out.zeros(&kernel.body);
        out.operations(&kernel.body);
        out
    }

    /// Where a value is needed.
    pub fn of(&self, v: ValueId) -> &[Affine] {
        self.at[v.at()].as_deref().unwrap_or(&[])
    }

    /// Where the terms of a sum are needed that are the product of these, or one of them.
    pub fn terms(&self, factors: &[ValueId], sum: ValueId) -> Vec<Affine> {
        let mut out = self.of(sum).to_vec();
        factors.iter().for_each(|f| more(&mut out, &self.within[f.at()]));
        out
    }

    /// From the first operation to the last: outside of which conditions values are 0.
    fn zeros(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Map { dst, expr } => self.within[dst.at()] = self.zero(expr),
                Op::Stream { body, .. } => self.zeros(body),
                _ => {}
            }
        }
    }

    fn zero(&self, expr: &Scalar) -> Vec<Affine> {
        match expr {
            Scalar::Tile(v) => self.within[v.at()].clone(),
            Scalar::Round(_, x) | Scalar::Unary(UnaryOp::Neg, x) => self.zero(x),
            Scalar::Binary(BinaryOp::Mul, x, y) => {
                let mut out = self.zero(x);
                more(&mut out, &self.zero(y));
                out
            }
            Scalar::Binary(BinaryOp::Div, x, _) => self.zero(x),
            Scalar::Select(c, x, y) => match (is_zero(x), is_zero(y)) {
                (false, true) => {
                    let mut out = holds(c, true);
                    more(&mut out, &self.zero(x));
                    out
                }
                (true, false) => {
                    let mut out = holds(c, false);
                    more(&mut out, &self.zero(y));
                    out
                }
                _ => vec![],
            },
            _ => vec![],
        }
    }

    fn read(&mut self, v: ValueId, under: &[Affine]) {
        match &mut self.at[v.at()] {
            Some(known) => known.retain_mut(|k| {
                let same = under.iter().find(|u| u.terms == k.terms);
                k.constant = same.map_or(k.constant, |u| u.constant.max(k.constant));
                same.is_some()
            }),
            none => *none = Some(under.to_vec()),
        }
    }

    fn operations(&mut self, ops: &[Op]) {
        for op in ops.iter().rev() {
            match op {
                Op::Load { at, .. } => at.iter().flat_map(tiles).for_each(|v| self.read(v, &[])),
                Op::Store { at, src, .. } => at.iter().flat_map(tiles).chain([*src]).for_each(|v| self.read(v, &[])),
                Op::Map { dst, expr } => {
                    if let Some(under) = self.at[dst.at()].clone() {
                        self.scalar(expr, &under);
                    }
                }
                Op::Mma { dst, a, b, acc } => {
                    let under = self.of(*dst).to_vec();
                    acc.iter().for_each(|v| self.read(*v, &under));
                    for (own, other) in [(*a, *b), (*b, *a)] {
                        let mut both = under.clone();
                        more(&mut both, &self.within[other.at()].clone());
                        self.read(own, &both);
                    }
                }
                Op::Reduce { dst, src, acc, .. } => {
                    let under = self.of(*dst).to_vec();
                    [*src].iter().chain(acc).for_each(|v| self.read(*v, &under));
                }
                Op::Pick { src, at, .. } => tiles(at).into_iter().chain([*src]).for_each(|v| self.read(v, &[])),
                Op::Stream { states, body, .. } => {
                    for s in states {
                        self.read(s.next, &[]);
                        self.read(s.value, &[]);
                        if let Init::Value(v) = s.init {
                            self.read(v, &[]);
                        }
                    }
                    self.operations(body);
                }
                Op::SkipUnless { any } => self.read(*any, &[]),
            }
        }
    }

    fn scalar(&mut self, expr: &Scalar, under: &[Affine]) {
        let with = |more_of: &[Affine]| {
            let mut out = under.to_vec();
            more(&mut out, more_of);
            out
        };
        match expr {
            Scalar::Tile(v) => self.read(*v, under),
            Scalar::Const(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => {}
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.scalar(x, under),
            Scalar::Binary(BinaryOp::Mul, x, y) => {
                let (of_x, of_y) = (with(&self.zero(y)), with(&self.zero(x)));
                self.scalar(x, &of_x);
                self.scalar(y, &of_y);
            }
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.scalar(e, under)),
            Scalar::Select(c, x, y) => {
                self.scalar(c, under);
                self.scalar(x, &with(&holds(c, true)));
                self.scalar(y, &with(&holds(c, false)));
            }
        }
    }
}

/// What a condition says of positions if it holds, or if it does not.
fn holds(condition: &Scalar, whether: bool) -> Vec<Affine> {
    match (condition, whether) {
        (Scalar::Within(p), true) => p.all.clone(),
        (Scalar::Within(p), false) => match p.all.as_slice() {
            // Less than 0: no more than -1.
            [one] => {
                let terms = one.terms.iter().map(|&(c, a)| (-c, a)).collect();
                vec![Affine { terms, constant: -1 - one.constant }]
            }
            _ => vec![],
        },
        (Scalar::Unary(UnaryOp::Not, x), _) => holds(x, !whether),
        (Scalar::Binary(BinaryOp::And, x, y), true) | (Scalar::Binary(BinaryOp::Or, x, y), false) => {
            let mut out = holds(x, whether);
            more(&mut out, &holds(y, whether));
            out
        }
        _ => vec![],
    }
}

fn is_zero(x: &Scalar) -> bool {
    matches!(x, Scalar::Const(c) if *c == 0.0)
}

/// Both conditions.
fn more(all: &mut Vec<Affine>, others: &[Affine]) {
    for other in others.iter().filter(|o| !o.terms.is_empty() || o.constant < 0) {
        match all.iter_mut().find(|a| a.terms == other.terms) {
            Some(same) => same.constant = same.constant.min(other.constant),
            None => all.push(other.clone()),
        }
    }
}

/// The loops with one for each axis that conditions mention and none moves, inside them, and each condition at the innermost loop that it depends on.
pub(crate) fn under(mut loops: Vec<Loop>, conditions: &[Affine]) -> Vec<Loop> {
    let axes: BTreeSet<AxisId> = conditions.iter().flat_map(|c| &c.terms).map(|t| t.1).collect();
    let moved = |a: &AxisId, loops: &[Loop]| loops.iter().any(|l| l.axis == *a);
    let others: Vec<AxisId> = axes.into_iter().filter(|a| !moved(a, &loops)).collect();
    loops.extend(others.into_iter().map(Loop::over));
    if let Some(last) = loops.last_mut() {
        let mut all = last.conditions().to_vec();
        more(&mut all, conditions);
        last.within = Some(Arc::new(Predicate { all }));
    }
    settled(loops)
}

/// The same loops, each condition at the innermost of those that it depends on, once.
fn settled(mut loops: Vec<Loop>) -> Vec<Loop> {
    let mut all: Vec<Vec<Affine>> = vec![vec![]; loops.len()];
    for k in 0..loops.len() {
        let mentions = |form: &Affine, l: &Loop| form.terms.iter().any(|t| t.1 == l.axis);
        for form in loops[k].conditions() {
            let place = (0..=k).rev().find(|&o| mentions(form, &loops[o])).unwrap_or(k);
            more(&mut all[place], std::slice::from_ref(form));
        }
    }
    for (l, all) in loops.iter_mut().zip(all) {
        l.within = (!all.is_empty()).then(|| Arc::new(Predicate { all }));
    }
    loops
}
