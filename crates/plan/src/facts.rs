//! Which indices and which running reductions an expression depends on.

use crate::expr::{Expr, ExprId, Exprs};
use crate::problem::{ItemDef, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId, UnaryOp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an expression depends on.
#[derive(Debug, Default)]
pub(crate) struct Fact {
    /// Indices whose position it depends on.
    pub free: BTreeSet<IndexId>,
    /// Reductions it needs, directly or through others.
    pub reach: BTreeSet<NodeId>,
    /// It reads some element of some node.
    pub reads: bool,
    /// It applies a function, divides or takes a power: what costs more than a few additions and products.
    pub computes: bool,
}

/// Facts found so far for one kernel.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    exprs: FxHashMap<ExprId, Arc<Fact>>,
    folds: BTreeMap<NodeId, Arc<Fact>>,
    /// What the next slice of an iterative tensor is made of.
    steps: BTreeMap<NodeId, ExprId>,
}

impl Facts {
    /// No facts yet, for a kernel with these iterative tensors.
    pub(crate) fn with_steps(steps: BTreeMap<NodeId, ExprId>) -> Self {
        Self { steps, ..Self::default() }
    }

    /// Tells what a reduction's value depends on. Until then its axes stand for it.
    pub(crate) fn define(&mut self, p: &Problem, x: &Exprs, n: NodeId, parts: &[ExprId], over: &[IndexId]) {
        let mut fact = Fact { reads: true, ..Fact::default() };
        fact.reach.insert(n);
        for &e in parts {
            let part = self.of(p, x, e);
            fact.free.extend(&part.free);
            fact.reach.extend(&part.reach);
        }
        over.iter().for_each(|i| {
            fact.free.remove(i);
        });
        // What a chunk gives belongs inside the loop over chunks, whatever it reads.
        for l in p.loops.iter().filter(|l| l.within.iter().any(|i| over.contains(i) || fact.free.contains(i))) {
            fact.reach.extend(l.members.iter().filter(|&&m| matches!(p[m].def, ItemDef::Iterative(_))));
        }
        self.folds.insert(n, Arc::new(fact));
    }

    pub(crate) fn of(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> Arc<Fact> {
        if let Some(f) = self.exprs.get(&e) {
            return f.clone();
        }
        let mut fact = Fact::default();
        match x.get(e) {
            Expr::Const(_) | Expr::Argument(_) => {}
            Expr::Position(i) => {
                fact.free.insert(*i);
            }
            Expr::Within(all) => all.iter().for_each(|l| fact.free.extend(l.terms.keys())),
            Expr::Old(n) => match &p[*n].def {
                // A state at the start of the chunk: it does not move with the position.
                ItemDef::Iterative(iteration) => {
                    fact.reads = true;
                    fact.reach.insert(*n);
                    let axes = p[*n].axes.iter().enumerate();
                    fact.free.extend(axes.filter(|(k, _)| *k != iteration.dim).map(|(_, i)| *i));
                }
                _ => self.fold(p, *n, &mut fact),
            },
            Expr::Read(n, at) => {
                fact.reads = true;
                if self.folds.contains_key(n) {
                    self.fold(p, *n, &mut fact);
                } else {
                    let mut values = vec![];
                    for c in at {
                        Exprs::coordinate_indices(
                            c,
                            &mut |i| {
                                fact.free.insert(i);
                            },
                            &mut |v| values.push(v),
                        );
                    }
                    for v in values {
                        self.merge(p, x, v, &mut fact);
                    }
                    // The slice at t + 1 needs what its step needs at t.
                    let later = at.iter().any(|c| c.as_shifted().is_some_and(|s| s.1 == 1));
                    if let (true, Some(&step)) = (later, self.steps.get(n)) {
                        let step = self.of(p, x, step);
                        fact.reach.extend(&step.reach);
                    }
                }
            }
            other => {
                fact.computes = match other {
                    Expr::Unary(op, _) => !matches!(op, UnaryOp::Neg | UnaryOp::Not | UnaryOp::Abs),
                    Expr::Binary(op, ..) => matches!(op, BinaryOp::Div | BinaryOp::Pow),
                    _ => false,
                };
                for c in x.children(e) {
                    self.merge(p, x, c, &mut fact);
                }
            }
        }
        let fact = Arc::new(fact);
        self.exprs.insert(e, fact.clone());
        fact
    }

    fn fold(&mut self, p: &Problem, n: NodeId, into: &mut Fact) {
        into.reads = true;
        match self.folds.get(&n) {
            Some(f) => {
                into.free.extend(&f.free);
                into.reach.extend(&f.reach);
            }
            None => {
                into.free.extend(&p[n].axes);
                into.reach.insert(n);
            }
        }
    }

    fn merge(&mut self, p: &Problem, x: &Exprs, e: ExprId, into: &mut Fact) {
        let f = self.of(p, x, e);
        into.free.extend(&f.free);
        into.reach.extend(&f.reach);
        into.reads |= f.reads;
        into.computes |= f.computes;
    }
}
