//! Functions with pieces, of what moves without changing its piece: `relu(x·r) = r·relu(x)` and
//! `max(x·r, y·r) = r·max(x, y)` for `r >= 0`, `sign(x·r) = sign(x)` for `r > 0`, `max(x - a, y - a) = max(x, y) - a`, and
//! `|x - max x| = max x - x`.
//!
//! Conditions: what leaves waits for another reduction over the indices; a factor cannot be negative, or is positive where
//! its being 0 would be seen; a whole argument is known not to be negative, or not to be positive. And the body separates with
//! the pieces opened, and not without.
//!
//! In the base of a broken power a maximum over the very indices of what cannot be negative is no maximum over nothing:
//! some element is summed there. As `max(m, 0)` its sign is known.

use super::{Deriver, inline};
use crate::{Def, Node, Product, Rule, Term, product, show, sign};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// Terms without a factor and an addend that all of them have.
struct Common {
    factor: Product,
    addend: product::Sum,
    rest: Vec<Term>,
}

impl Deriver<'_> {
    /// The body with such functions opened, if `better` says that this is better.
    pub(super) fn with_pieces_opened(
        &mut self,
        node: &Node,
        body: Term,
        over: &[IndexId],
        better: impl Fn(&Self, &Term, &Term) -> bool,
    ) -> Term {
        let mut opened = vec![];
        let other = self.pieced(&body, over, &mut opened);
        if opened.is_empty() || !better(self, &body, &other) {
            return body;
        }
        for (before, after) in opened {
            let why = "what leaves changes no element's piece";
            let (before, after) = (self.plain_text(&before), self.plain_text(&after));
            self.step(Rule::Separate, node, over, why.into(), before, after);
        }
        other
    }

    fn plain_text(&self, t: &Term) -> String {
        show::term(&self.out, &show::unguarded(t))
    }

    fn pieced(&self, term: &Term, over: &[IndexId], steps: &mut Vec<(Term, Term)>) -> Term {
        let term = term.map_children(&mut |t| self.pieced(t, over, steps));
        if !term.mentions(over) || !self.waits(&term, over, 0) {
            return term;
        }
        let Some(opened) = self.opened_piece(&term, over) else { return term };
        if !steps.iter().any(|(before, _)| *before == term) {
            steps.push((term, opened.clone()));
        }
        opened
    }

    fn opened_piece(&self, term: &Term, over: &[IndexId]) -> Option<Term> {
        let zero = || Term::Number(0.0);
        let nonnegative = |t: &Term| sign::nonnegative(t, &self.out);
        let negated = |t: &Term| product::sum_term(&product::sum(&Term::Unary(UnaryOp::Neg, Box::new(t.clone()))));
        match term {
            Term::Unary(UnaryOp::Relu, x) => {
                if nonnegative(x) || nonnegative(&negated(x)) {
                    return Some(if nonnegative(x) { (**x).clone() } else { zero() });
                }
                let common = self.common(&[x], over, &nonnegative, false)?;
                let rest = Term::Unary(UnaryOp::Relu, Box::new(common.rest[0].clone()));
                Some(binary(BinaryOp::Mul, common.factor.term(), rest))
            }
            Term::Unary(UnaryOp::Abs, x) if nonnegative(x) => Some((**x).clone()),
            Term::Unary(UnaryOp::Abs, x) if nonnegative(&negated(x)) => Some(negated(x)),
            Term::Unary(UnaryOp::Sign, x) => {
                let positive = |t: &Term| sign::positive(t, &self.out);
                let common = self.common(&[x], over, &positive, false)?;
                Some(Term::Unary(UnaryOp::Sign, Box::new(common.rest[0].clone())))
            }
            Term::Binary(op @ (BinaryOp::Max | BinaryOp::Min), a, b) => {
                let difference = binary(BinaryOp::Sub, (**a).clone(), (**b).clone());
                let (above, below) = (nonnegative(&difference), nonnegative(&negated(&difference)));
                if above || below {
                    return Some(if above == (*op == BinaryOp::Max) { (**a).clone() } else { (**b).clone() });
                }
                let common = self.common(&[a, b], over, &nonnegative, true)?;
                let mut value = binary(*op, common.rest[0].clone(), common.rest[1].clone());
                if !common.factor.is_one() {
                    value = binary(BinaryOp::Mul, common.factor.term(), value);
                }
                if !common.addend.is_empty() {
                    value = binary(BinaryOp::Add, value, product::sum_term(&common.addend));
                }
                Some(value)
            }
            Term::Binary(op, a, b) if compares(*op) => {
                let positive = |t: &Term| sign::positive(t, &self.out);
                let common = self.common(&[a, b], over, &positive, true)?;
                Some(binary(*op, common.rest[0].clone(), common.rest[1].clone()))
            }
            Term::Select(c, a, b) if !self.waits(c, over, 0) => {
                let common = self.common(&[a, b], over, &|_| true, true)?;
                let [a, b] = [0, 1].map(|k| Box::new(common.rest[k].clone()));
                let choice = |a, b| Term::Select(c.clone(), a, b);
                let mut factor = common.factor.term();
                // Where one is 0 the factor need not be a number: it counts there only where the other one is.
                if !common.factor.is_one() && !c.mentions(over) {
                    let one = Box::new(Term::Number(1.0));
                    factor = match [&a, &b].map(|t| t.as_number() == Some(0.0)) {
                        [false, true] => choice(Box::new(factor), one),
                        [true, false] => choice(one, Box::new(factor)),
                        _ => factor,
                    };
                }
                let mut value = choice(a, b);
                if !common.factor.is_one() {
                    value = binary(BinaryOp::Mul, factor, value);
                }
                if !common.addend.is_empty() {
                    value = binary(BinaryOp::Add, value, product::sum_term(&common.addend));
                }
                Some(value)
            }
            Term::Binary(BinaryOp::Pow, base, p) if p.as_number().is_none_or(|p| p.fract() != 0.0) => {
                let met = base.replace_reads(&mut |n, at| {
                    let node = &self.out[n];
                    let Def::Reduce(r) = &node.def else { return None };
                    let some =
                        r.monoid == Monoid::Max && r.filter.is_empty() && r.over.iter().all(|i| over.contains(i));
                    (some && self.out.is_plain(n, at) && !inline::rounds(node) && nonnegative(&r.body))
                        .then(|| binary(BinaryOp::Max, Term::Read(n, at.to_vec()), zero()))
                });
                (met != **base).then(|| binary(BinaryOp::Pow, met, (**p).clone()))
            }
            _ => None,
        }
    }

    /// What waits, does not carry the indices and is common to all terms: a factor, each of whose bases passes a test, and
    /// an addend if that may leave. Nothing if there is neither.
    fn common(&self, terms: &[&Term], over: &[IndexId], test: &dyn Fn(&Term) -> bool, addends: bool) -> Option<Common> {
        let leaves = |t: &Term| !t.mentions(over) && self.waits(t, over, 0);
        let nonzero = |t: &&Term| product::sum(t).into_iter().filter(|(c, _)| *c != 0.0).collect();
        let mut sums: Vec<product::Sum> = terms.iter().map(nonzero).collect();
        let mut addend: product::Sum = vec![];
        if addends {
            addend = sums[0].iter().filter(|a| leaves(&a.1) && sums.iter().all(|s| s.contains(a))).cloned().collect();
            sums.iter_mut().for_each(|s| s.retain(|a| !addend.contains(a)));
        }
        // 0 has every factor.
        let of = |(_, t): &(f64, Term)| Product::of(t, &self.out);
        let products: Vec<Product> = sums.iter().flatten().map(of).collect();
        let mut factor = Product::one();
        if let Some(first) = products.first() {
            let all = |f: &&(Term, f64)| leaves(&f.0) && test(&f.0) && products.iter().all(|p| p.factors.contains(f));
            factor.factors = first.factors.iter().filter(all).cloned().collect();
        }
        if factor.is_one() && addend.is_empty() {
            return None;
        }
        let without = |(c, t): &(f64, Term)| (*c, Product::of(t, &self.out).without(&factor).term());
        let rest = sums.iter().map(|s| product::sum_term(&s.iter().map(without).collect())).collect();
        Some(Common { factor, addend, rest })
    }
}

fn compares(op: BinaryOp) -> bool {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Lt | Le | Gt | Ge | Eq | Ne)
}
