//! The states themselves: moments about the centres, each with its row of the linear map that a move of them is.

use super::centre::{Centre, lifted};
use super::{Key, Moments, binary};
use crate::derive::polynomial::Monomial;
use crate::derive::scale::times_power;
use crate::derive::separate::to_old;
use crate::derive::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Streaming, Term};
use einloom_cascade::BinaryOp;
use std::collections::BTreeSet;

impl Deriver<'_> {
    /// One monomial as a term, and the state that it reads. `None` where the state is 0.
    pub(super) fn monomial(
        &mut self,
        m: &mut Moments,
        monomial: &Monomial,
        offsets: &[(Term, bool)],
    ) -> Option<(NodeId, Term)> {
        let rest = match m.rests.iter().position(|r| r.same_as(&monomial.rest)) {
            Some(k) => k,
            None => {
                m.rests.push(monomial.rest.clone());
                m.rests.len() - 1
            }
        };
        let state = self.moment(m, &(rest, monomial.powers.clone()), true)?;
        let mut term = self.out.read(state);
        for (&power, (offset, _)) in monomial.offsets.iter().zip(offsets) {
            if power > 0 {
                term = binary(BinaryOp::Mul, term, raise(offset, power));
            }
        }
        let mut outer =
            m.centres.iter().zip(&monomial.powers).fold(monomial.outer.clone(), |o, (c, &k)| lifted(&o, c, k));
        // What is relative to a range is put back before it is raised: beside what divides it, where that is there.
        for (k, (centre, &power)) in m.centres.iter().zip(&monomial.powers).enumerate() {
            let Some(range) = centre.range.as_ref().filter(|_| power > 0) else { continue };
            let range = Product { factors: vec![(range.clone(), 1.0)], ..Product::one() };
            let unit = m.slopes[k].as_ref().filter(|slope| has(&outer, slope, power));
            let unit = match unit {
                Some(slope) => {
                    outer = (0..power).fold(outer, |o, _| o.without(slope));
                    range.times(slope)
                }
                None => range,
            };
            term = times_power(term, &unit.term(), &Term::Number(f64::from(power)));
        }
        if !outer.is_one() {
            term = binary(BinaryOp::Mul, term, outer.term());
        }
        Some((state, term))
    }

    /// The state of these powers, with all that its repair needs. `None` where it is 0: a first moment about the mean that
    /// runs with it, or, once it is complete, about the mean of everything.
    fn moment(&mut self, m: &mut Moments, key: &Key, complete: bool) -> Option<NodeId> {
        let (rest, powers) = key;
        let degree: u32 = powers.iter().sum();
        let about_mean = |c: &Centre| c.stood.is_none() && (complete || c.moved.is_some());
        let first = || powers.iter().position(|&p| p == 1).is_some_and(|k| about_mean(&m.centres[k]));
        if *rest == 0 && degree == 1 && m.weighted && first() {
            return None;
        }
        if let Some(&state) = m.states.get(key) {
            return Some(state);
        }
        let mut inside = m.weight.times(&m.rests[*rest]);
        for (centre, &power) in m.centres.iter().zip(powers) {
            if power > 0 {
                inside.factors.push((centre.difference.clone(), f64::from(power)));
            }
        }
        let shrinks: Vec<Option<(Term, Vec<NodeId>)>> = m.centres.iter().map(|c| c.shrinks.clone()).collect();
        let mut reduction = shrunk(m.anchor.reduction(m.r, inside), &shrinks, powers);
        let mut anchors: BTreeSet<NodeId> = reduction.streaming.anchors.iter().copied().collect();
        let mut plus: Option<Term> = None;
        for below in below(powers) {
            let Some(factor) = m.moves(powers, &below) else { continue };
            let Some(state) = self.moment(m, &(*rest, below.clone()), false) else { continue };
            anchors.insert(state);
            let old = to_old(&self.out.read(state));
            let old = below.iter().zip(&shrinks).fold(old, |old, (&k, s)| match s {
                Some((r, _)) if k > 0 => binary(BinaryOp::Mul, old, raise(r, k)),
                _ => old,
            });
            let mut term = binary(BinaryOp::Mul, old, factor);
            let moved = m.centres.iter().zip(powers.iter().zip(&below)).filter(|(_, (a, b))| a != b);
            for stood in moved.filter_map(|(c, _)| c.stood.as_ref()) {
                term = guard::where_some(stood.clone(), term, 0.0);
            }
            plus = Some(plus.map_or(term.clone(), |p| binary(BinaryOp::Add, p, term)));
        }
        for (centre, &power) in m.centres.iter().zip(powers) {
            if power > 0 {
                anchors.extend(&centre.anchors);
            }
        }
        let what = name_of(*rest, powers);
        if let Some(plus) = plus {
            let plus = match &m.anchor.factor {
                Some(factor) => binary(BinaryOp::Mul, plus, factor.clone()),
                None => plus,
            };
            let factor = reduction.streaming.repair.map_or(Term::Number(1.0), |r| r.factor);
            let repair = Repair { combine: BinaryOp::Mul, factor, plus: Some(plus), keep_if: None };
            reduction.streaming = Streaming { level: 0, anchors: self.with_theirs(anchors), repair: Some(repair) };
        }
        let state = self.state_node(m.node, &what, reduction, m.floor);
        m.states.insert(key.clone(), state);
        Some(state)
    }

    /// The anchors and what they are anchored at themselves, in order.
    fn with_theirs(&self, mut anchors: BTreeSet<NodeId>) -> Vec<NodeId> {
        let mut todo: Vec<NodeId> = anchors.iter().copied().collect();
        while let Some(a) = todo.pop() {
            if let Def::Reduce(r) = &self.out[a].def {
                todo.extend(r.streaming.anchors.iter().filter(|&&b| anchors.insert(b)));
            }
        }
        anchors.into_iter().collect()
    }

    /// A state that runs in the traversal `floor`: an equal one of an earlier traversal would be complete.
    pub(super) fn state_node(&mut self, node: &Node, what: &str, reduction: Reduction, floor: usize) -> NodeId {
        if floor == 0 {
            return self.reduction_node(node, what, reduction);
        }
        let runs = |n: NodeId| self.levels.of(n) >= floor || self.pinned.get(&n) == Some(&floor);
        if let Some(n) = self.find_equal(&reduction, runs) {
            return n;
        }
        let state = self.new_reduction(node, what, reduction);
        if self.levels.of(state) < floor {
            self.pinned.insert(state, floor);
        }
        state
    }
}

/// Whether a product has all factors of another, to this power.
fn has(product: &Product, other: &Product, power: u32) -> bool {
    other.factors.iter().all(|(base, p)| {
        let enough = |q: f64| q.signum() == p.signum() && q.abs() >= p.abs() * f64::from(power);
        product.factors.iter().any(|(b, q)| b == base && enough(*q))
    })
}

/// A state with exponentials to these powers in it, whose repair shrinks it as they shrink.
pub(super) fn shrunk(mut r: Reduction, shrinks: &[Option<(Term, Vec<NodeId>)>], powers: &[u32]) -> Reduction {
    for (shrink, &power) in shrinks.iter().zip(powers) {
        let Some((by, states)) = shrink.as_ref().filter(|_| power > 0) else { continue };
        let by = raise(by, power);
        let factor = match r.streaming.repair.take() {
            Some(repair) => binary(BinaryOp::Mul, repair.factor, by),
            None => by,
        };
        r.streaming.repair = Some(Repair { combine: BinaryOp::Mul, factor, plus: None, keep_if: None });
        r.streaming.anchors.extend(states);
        r.streaming.anchors.sort();
        r.streaming.anchors.dedup();
    }
    r
}

impl Moments<'_> {
    /// `Π binomial(α, γ)·d^(α - γ)`; `None` if a mean in it does not move.
    fn moves(&self, powers: &[u32], lower: &[u32]) -> Option<Term> {
        let mut number = 1.0;
        let mut out: Option<Term> = None;
        for ((&a, &g), centre) in powers.iter().zip(lower).zip(&self.centres) {
            if a == g {
                continue;
            }
            number *= (0..a - g).fold(1.0, |b, k| b * f64::from(a - k) / f64::from(k + 1));
            let term = raise(centre.moved.as_ref()?, a - g);
            out = Some(out.map_or(term.clone(), |o| binary(BinaryOp::Mul, o, term)));
        }
        let out = out?;
        Some(if number == 1.0 { out } else { binary(BinaryOp::Mul, Term::Number(number), out) })
    }
}

pub(super) fn raise(t: &Term, power: u32) -> Term {
    if power == 1 { t.clone() } else { binary(BinaryOp::Pow, t.clone(), Term::Number(f64::from(power))) }
}

/// All powers that are nowhere larger and somewhere smaller, highest first.
fn below(powers: &[u32]) -> Vec<Vec<u32>> {
    let mut out = vec![vec![]];
    for &p in powers {
        out =
            out.into_iter().flat_map(|v: Vec<u32>| (0..=p).rev().map(move |k| [v.clone(), vec![k]].concat())).collect();
    }
    out.retain(|v| v != powers);
    out
}

/// `moment2`, `moment11`; of a further factor, `acc`.
fn name_of(rest: usize, powers: &[u32]) -> String {
    let digits: String = powers.iter().map(u32::to_string).collect();
    match (rest, powers.iter().all(|&p| p == 0)) {
        (_, true) => "acc".into(),
        _ => format!("moment{digits}"),
    }
}
