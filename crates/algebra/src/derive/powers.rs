//! Products of exponentials: `Π exp(x - c) = exp(Σ (x - c))`, where the sum may separate.
//!
//! Conditions: the body is an exponential and nothing else, so that no factor can be 0 or of another sign; and it waits. Partial products
//! may leave the range of the numbers where the whole does not, a sum of exponents does not.

use super::Deriver;
use super::inline::Cancelled;
use crate::{Def, Node, NodeId, Product, Reduction, Rule, Term, product, show};
use einloom_cascade::{DType, Monoid, UnaryOp};

impl Deriver<'_> {
    /// The product as the exponential of a sum, if it is one of exponentials.
    pub(super) fn product_of_exponentials(&mut self, id: NodeId, node: &Node, r: &Reduction) -> Option<NodeId> {
        let body = self.inline_barriers(&r.body, &r.over);
        let mut p = Product::of(&body, &self.out);
        let mut exponent = std::mem::take(&mut p.exponent);
        product::append(&mut exponent, std::mem::take(&mut p.exponent2), std::f64::consts::LN_2);
        let exponential = p.is_one() && !exponent.is_empty() && node.dtype != Some(DType::I32);
        if r.monoid != Monoid::Prod || !exponential || !self.waits(&body, &r.over, 0) {
            return None;
        }
        let before = show::reduction(&self.out, r);
        let part = Node {
            name: crate::flatten::fresh_name(&self.out.nodes, &format!("{}.exponent", node.name)),
            tensor: None,
            dtype: None,
            ..node.clone()
        };
        let sum = Reduction { monoid: Monoid::Sum, body: product::sum_term(&exponent), ..r.clone() };
        let made = self.sum(id, part, sum);
        let value = Term::Unary(UnaryOp::Exp, Box::new(self.out.read(made)));
        let after = show::term(&self.out, &value);
        let why = "a product of exponentials is the exponential of the sum of their exponents".to_string();
        self.step(Rule::Separate, node, &r.over, why, before, after);
        let Cancelled { value, rest, .. } = self.cancel(&value);
        Some(self.push_map(Node { def: Def::Map(value), ..node.clone() }, rest))
    }
}
