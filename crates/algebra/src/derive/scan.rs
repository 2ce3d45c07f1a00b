//! Recurrences: what a step is of the step before, which decides whether steps can be put together before they are
//! applied.
//!
//! Steps `h ← f_t(h)` compose into few numbers if every `f_t` is affine in `h`, element by element:
//! `(a, b) ∘ (a', b') = (a·a', a·b' + b)`. Then positions may be taken in chunks. If a step mixes the elements of `h`
//! linearly, composing steps means multiplying matrices, which costs more than applying them one after the other; if it
//! is not linear, no shorter form of their composition is known here. In all cases the recurrence is computed position by
//! position here, and this says why.

use super::Deriver;
use crate::{Def, Graph, NodeId, Recurrence, Rule, Term, show};
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};
use std::collections::BTreeSet;

/// How a value depends on the slices before.
#[derive(Clone, Debug, PartialEq)]
enum Dependence {
    /// Not at all.
    None,
    /// Affine, each element on the element at its own place.
    Elementwise,
    /// Affine over sum and product, on elements at other places.
    Matrix,
    /// An extremum with it, element by element.
    Extremum,
    /// Affine over an extremum and sum, on elements at other places.
    Tropical,
    /// This term is not affine in them.
    NotAffine(Term),
}

impl Dependence {
    /// Of a sum.
    fn and(self, other: Self) -> Self {
        use Dependence::{Elementwise, Extremum, Matrix, None, NotAffine, Tropical};
        match (self, other) {
            (NotAffine(t), _) | (_, NotAffine(t)) => NotAffine(t),
            (None, x) | (x, None) => x,
            (Extremum, Extremum | Elementwise) | (Elementwise, Extremum) => Extremum,
            (Extremum | Tropical, _) | (_, Extremum) | (_, Tropical) => Tropical,
            (Matrix, _) | (_, Matrix) => Matrix,
            (Elementwise, Elementwise) => Elementwise,
        }
    }
}

impl Deriver<'_> {
    /// Says why a recurrence of `old` is computed position by position.
    pub(super) fn explain_recurrence(&mut self, r: &Recurrence) {
        let steps: Vec<(NodeId, Term)> = r
            .members
            .iter()
            .filter_map(|&m| match &self.old[m].def {
                Def::Iterative { step, .. } => Some((m, step.clone())),
                _ => None,
            })
            .collect();
        let Some(&(first, _)) = steps.first() else { return };
        let walk = Walk { graph: self.old, members: r.members.iter().copied().collect() };
        let mut whole = Dependence::None;
        for (m, step) in &steps {
            let mut seen = BTreeSet::new();
            whole = whole.and(walk.of(*m, step, &mut seen));
        }
        let names: Vec<&str> = steps.iter().map(|(m, _)| self.old[*m].name.as_str()).collect();
        let names = names.join(", ");
        let (reason, hint) = match whole {
            Dependence::None => return,
            // Such steps compose: whether by chunks is another rule's question, which also says why not.
            Dependence::Elementwise => return,
            Dependence::Extremum => {
                let hint = match steps.iter().map(|(_, step)| walk.scale(step)).max().unwrap_or(Scale::One) {
                    Scale::One => return,
                    Scale::Nonnegative => "such steps compose, max(a'·max(a·h + b, c) + b', c') = max(a'·a·h + (a'·b + b'), max(a'·c + b', c')) for a' >= 0, which is not done here; with an addend in place of the factor it is",
                    Scale::Unknown => "a factor whose sign is not known makes a minimum of a maximum, so such steps compose only with a bound on either side, which is not done here; with an addend in place of the factor they do",
                };
                (format!("steps of {names} are extrema of multiples of the slice before"), hint.into())
            }
            Dependence::Matrix => (
                format!("a step of {names} multiplies the slice before with a matrix"),
                "such steps compose as products of matrices, which cost more than the steps; where each matrix is the identity and a product of two vectors, their product has a shorter form (WY), which is not made here; a factor per element instead of a matrix would compose".into(),
            ),
            Dependence::Tropical => (
                format!("a step of {names} multiplies the slice before with a matrix, over an extremum and +"),
                "such steps compose only as products of matrices, which cost more than the steps; an addend per element instead of a matrix would compose".into(),
            ),
            Dependence::NotAffine(t) => (
                format!("{} is not affine in the slice before, and no other form of several steps is known to this rule", show::term(self.old, &t)),
                format!("{names} would compose if every step were a·h + b with a and b from elsewhere"),
            ),
        };
        let node = self.old[first].clone();
        let rank = self.old.cascade[r.rank].name.clone();
        self.refusals.push(crate::Refusal {
            rule: Rule::Scan,
            statement: node.statement.unwrap_or(0),
            node: node.name,
            ranks: vec![rank],
            reason,
            hint: Some(hint),
            span: node.span,
        });
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    members: BTreeSet<NodeId>,
}

/// What slices are multiplied with inside a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scale {
    /// Nothing.
    One,
    /// What cannot be negative.
    Nonnegative,
    /// Something else.
    Unknown,
}

impl Walk<'_> {
    fn scale(&self, step: &Term) -> Scale {
        let reads = |t: &Term| t.any_read(&|n| self.members.contains(&n));
        let mut found = Scale::One;
        step.visit(&mut |t| {
            let factor = match t {
                Term::Binary(BinaryOp::Mul, a, b) if reads(a) => b,
                Term::Binary(BinaryOp::Mul, a, b) if reads(b) => a,
                Term::Binary(BinaryOp::Div, a, b) if reads(a) => b,
                _ => return,
            };
            let sign = if crate::sign::nonnegative(factor, self.graph) { Scale::Nonnegative } else { Scale::Unknown };
            found = found.max(sign);
        });
        found
    }

    /// In what a maximum is taken of, a minimum of two slices, or the other way about: over max and min that is their
    /// product.
    fn joined(&self, monoid: Monoid, body: &Term) -> Option<Term> {
        let other = if monoid == Monoid::Max { BinaryOp::Min } else { BinaryOp::Max };
        let reads = |t: &Term| t.any_read(&|n| self.members.contains(&n));
        let mut found = None;
        body.visit(&mut |t| match t {
            Term::Binary(op, a, b) if *op == other && reads(a) && reads(b) => found = Some(t.clone()),
            _ => {}
        });
        found
    }

    /// How `term`, part of the definition of `at`, depends on the slices of the recurrence.
    fn of(&self, at: NodeId, term: &Term, seen: &mut BTreeSet<NodeId>) -> Dependence {
        use Dependence::{Elementwise, Extremum, Matrix, None, NotAffine, Tropical};
        let mut go = |t: &Term| self.of(at, t, seen);
        match term {
            Term::Read(n, place) if self.members.contains(n) => match &self.graph[*n].def {
                Def::Iterative { dim, step, .. } => {
                    // The slice of this very position is made by a step itself.
                    let later = place.get(*dim).is_some_and(|e| e.as_shifted_var().is_some_and(|s| s.1 == 1));
                    if later && *n != at && seen.insert(*n) {
                        let inner = self.of(*n, step, seen);
                        seen.remove(n);
                        return inner;
                    }
                    let own: BTreeSet<_> = self.graph[at].axes.iter().collect();
                    let elsewhere = place
                        .iter()
                        .enumerate()
                        .any(|(d, e)| d != *dim && e.as_var().is_none_or(|i| !own.contains(&i)));
                    if elsewhere { Matrix } else { Elementwise }
                }
                Def::Map(t) => self.of(at, t, seen),
                Def::Reduce(r) => match (r.monoid, self.of(*n, &r.body, seen)) {
                    (_, None) => None,
                    (Monoid::Max | Monoid::Min, x) if !matches!(x, NotAffine(_)) => {
                        match self.joined(r.monoid, &r.body) {
                            Some(product) => NotAffine(product),
                            Option::None => Tropical,
                        }
                    }
                    (Monoid::Sum, Elementwise | Matrix) => Matrix,
                    (_, NotAffine(t)) => NotAffine(t),
                    _ => NotAffine(term.clone()),
                },
                Def::Input => None,
            },
            Term::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => go(a).and(go(b)),
            Term::Binary(BinaryOp::Mul, a, b) => match (go(a), go(b)) {
                (None, x) | (x, None) if !matches!(x, Extremum | Tropical) => x,
                (NotAffine(t), _) | (_, NotAffine(t)) => NotAffine(t),
                _ => NotAffine(term.clone()),
            },
            Term::Binary(BinaryOp::Div, a, b) => match (go(a), go(b)) {
                (x, None) if !matches!(x, Extremum | Tropical) => x,
                (NotAffine(t), _) | (_, NotAffine(t)) => NotAffine(t),
                _ => NotAffine(term.clone()),
            },
            Term::Binary(BinaryOp::Max | BinaryOp::Min, a, b) => match (go(a), go(b)) {
                (None, None) => None,
                (NotAffine(t), _) | (_, NotAffine(t)) => NotAffine(t),
                (Matrix | Tropical, _) | (_, Matrix | Tropical) => Tropical,
                _ => Extremum,
            },
            Term::Unary(UnaryOp::Relu, x) => match go(x) {
                Elementwise => Extremum,
                Matrix => Tropical,
                x => x,
            },
            Term::Unary(UnaryOp::Neg, x) => match go(x) {
                Extremum | Tropical => NotAffine(term.clone()),
                x => x,
            },
            Term::Select(c, a, b) => match go(c) {
                None => go(a).and(go(b)),
                _ => NotAffine(term.clone()),
            },
            Term::Number(_) | Term::Param(_) | Term::Size(_) | Term::Position(_) | Term::Argument(_) => None,
            Term::Read(..) | Term::Old(..) => None,
            other => {
                let mut inside = None;
                other.for_each_child(&mut |t| {
                    let own = self.of(at, t, seen);
                    inside = std::mem::replace(&mut inside, None).and(own);
                });
                match inside {
                    None => None,
                    NotAffine(t) => NotAffine(t),
                    _ => NotAffine(other.clone()),
                }
            }
        }
    }
}
