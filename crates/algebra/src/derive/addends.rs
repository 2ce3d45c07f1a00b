//! Sums of sums: `Σ (f + g)·h = Σ f·h + Σ g·h`, where the body does not separate as a whole but each addend may, relative to
//! an anchor of its own.
//!
//! Products with one sum are always taken apart. Whole powers of sums, and products of several, only where no addend of any
//! of them can be negative: `(f - g)²` may be small where `f²`, `2fg` and `g²` are not, and what cancels in the difference
//! would cancel after it has been rounded.
//!
//! Products of several such sums are also taken apart where they would separate as a whole, about means: `Σ (f - f̄)·(g - ḡ)` may cancel with
//! `N·f̄·ḡ` nearly all of it, where as written nothing is subtracted.

use super::Deriver;
use super::inline::Cancelled;
use super::polynomial::flat;
use super::separate::Separated;
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, product, show, sign};
use einloom_cascade::{BinaryOp, IndexId, Monoid};

/// More addends than this are not made.
const MOST_ADDENDS: usize = 8;

impl Deriver<'_> {
    /// `Σ (f + g) = Σ f + Σ g` and `Σ (f + g)·h = Σ f·h + Σ g·h`, for a body that does not separate as a whole: each
    /// addend may, relative to an anchor of its own.
    pub(super) fn sum_of_sums(&mut self, id: NodeId, node: Node, r: Reduction, before: String) -> NodeId {
        let mut value: product::Sum = vec![];
        for (sign, body) in self.addends(&r.body) {
            let part = Node {
                name: crate::flatten::fresh_name(&self.out.nodes, &format!("{}.part", node.name)),
                tensor: None,
                dtype: None,
                ..node.clone()
            };
            let made = self.sum(id, part, Reduction { body, ..r.clone() });
            product::append(&mut value, vec![(sign, self.out.read(made))], 1.0);
        }
        let value = product::sum_term(&value);
        let after = show::term(&self.out, &value);
        let over = r.over.clone();
        let why =
            "the addends' sums separate one by one, and a sum of sums is the sum of its addends' sums".to_string();
        self.step(Rule::Separate, &node, &over, why, before, after);
        let Cancelled { value, rest, .. } = self.cancel(&value);
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }

    /// Whether the second body separates where the first does not.
    pub(super) fn separates_better(&self, body: &Term, other: &Term, over: &[IndexId]) -> bool {
        let separates = |t: &Term| self.split(t, over, 0).is_ok() || self.addends_split(t, over);
        !separates(body) && separates(other)
    }

    /// Whether the body is a sum of several addends that separate one by one, as one sum or as one inside another.
    pub(super) fn addends_split(&self, body: &Term, over: &[IndexId]) -> bool {
        let addends = self.addends(body);
        let separates = |t: &Term| self.split(t, over, 0).is_ok() || self.inner_of(Monoid::Sum, over, t).is_some();
        (2..=MOST_ADDENDS).contains(&addends.len()) && addends.iter().all(|(_, t)| separates(t))
    }

    /// Whether a body is a product of several sums without negative addends, which would be moments of several variables.
    pub(super) fn only_adds(&self, body: &Term, parts: &Separated, over: &[IndexId]) -> bool {
        let several = parts.mixed.as_ref().is_some_and(|p| p.variables.len() > 1);
        several && addends(body).len() == 1 && self.addends_split(body, over)
    }

    /// The addends of a body with their signs. Whole powers and products of sums are multiplied out if no addend of any of
    /// them can be negative: else what cancels in such a sum would cancel too late.
    fn addends(&self, body: &Term) -> Vec<(f64, Term)> {
        let plain = addends(&put_together(body));
        if plain.len() > 1 {
            return plain;
        }
        let p = Product::of(body, &self.out);
        let mut out = vec![Product { factors: vec![], ..p.clone() }];
        for (base, power) in &p.factors {
            let mut parts = vec![];
            flat(base, 1.0, &mut parts);
            let sum = parts.len() > 1 && parts.iter().all(|(s, t)| *s > 0.0 && sign::nonnegative(t, &self.out));
            let whole = power.fract() == 0.0 && (1.0..MOST_ADDENDS as f64).contains(power);
            let (parts, times): (Vec<Product>, usize) = match sum && whole {
                true => (parts.into_iter().map(|(_, t)| Product::of(t, &self.out)).collect(), *power as usize),
                false => (vec![Product { factors: vec![(base.clone(), *power)], ..Product::one() }], 1),
            };
            for _ in 0..times {
                let mut next: Vec<Product> = vec![];
                for product in out.iter().flat_map(|a| parts.iter().map(|b| a.times(b))) {
                    let bare = Product { coefficient: 1.0, ..product.clone() };
                    match next.iter_mut().find(|n| bare.same_as(&Product { coefficient: 1.0, ..(*n).clone() })) {
                        Some(same) => same.coefficient += product.coefficient,
                        None => next.push(product),
                    }
                }
                if next.len() > MOST_ADDENDS {
                    return plain;
                }
                out = next;
            }
        }
        if out.len() < 2 { plain } else { out.into_iter().map(|p| (1.0, p.term())).collect() }
    }
}

/// The addends of a body with their signs; a product with one sum is a sum of products.
fn addends(body: &Term) -> Vec<(f64, Term)> {
    let times = |op: BinaryOp, a: Term, b: &Term| Term::Binary(op, Box::new(a), Box::new(b.clone()));
    let mut flattened = vec![];
    flat(body, 1.0, &mut flattened);
    if let [(sign, Term::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), a, b))] = flattened.as_slice() {
        let left = addends(a);
        let right = if *op == BinaryOp::Mul { addends(b) } else { vec![] };
        let of = |list: Vec<(f64, Term)>, make: &dyn Fn(Term) -> Term| {
            list.into_iter().map(|(s, t)| (sign * s, make(t))).collect::<Vec<_>>()
        };
        match (left.len(), right.len()) {
            (2..=MOST_ADDENDS, 0 | 1) => return of(left, &|t| times(*op, t, b)),
            (1, 2..=MOST_ADDENDS) => return of(right, &|t| times(*op, (**a).clone(), &t)),
            _ => {}
        }
    }
    flattened.into_iter().map(|(sign, t)| (sign, t.clone())).collect()
}

/// A body with equal addends of a sum in it put together, if any are.
fn put_together(body: &Term) -> Term {
    match body {
        Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => {
            let mut all = vec![];
            flat(body, 1.0, &mut all);
            let sum = product::sum(body);
            if sum.len() < all.len() { product::sum_term(&sum) } else { body.clone() }
        }
        Term::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), a, b) => {
            Term::Binary(*op, Box::new(put_together(a)), Box::new(put_together(b)))
        }
        other => other.clone(),
    }
}
