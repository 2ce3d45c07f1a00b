//! Logarithms of products: `log(exp(x - c) / z) = x - c - log(z)`.
//!
//! A logarithm of what waits for another reduction is no finite sum of products of functions of the element and of that
//! reduction, but that of a product is a sum, whose addends may separate.
//!
//! Conditions: at most one of the factors may be negative, so that both sides are defined for the same numbers; and the body separates
//! with the logarithms opened, and not without.

use super::Deriver;
use crate::{Node, Product, Rule, Term, product, show, sign};
use einloom_cascade::{IndexId, UnaryOp};

impl Deriver<'_> {
    /// The body of a sum with such logarithms opened, if that makes it separate.
    pub(super) fn with_logarithms_opened(&mut self, node: &Node, body: Term, over: &[IndexId]) -> Term {
        let mut opened = vec![];
        let better = self.opened(&body, over, &mut opened);
        if opened.is_empty() || !self.separates_better(&body, &better, over) {
            return body;
        }
        for (before, after) in opened {
            let why =
                "the logarithm of a product is the sum of its factors' logarithms, and that of exp is its exponent";
            let (before, after) = (show::term(&self.out, &before), show::term(&self.out, &after));
            self.step(Rule::Separate, node, over, why.into(), before, after);
        }
        better
    }

    /// The body with such logarithms opened, whether or not it separates then.
    pub(super) fn opened(&self, term: &Term, over: &[IndexId], steps: &mut Vec<(Term, Term)>) -> Term {
        if let Term::Unary(op @ (UnaryOp::Log | UnaryOp::Log2), x) = term
            && self.waits(x, over, 0)
            && x.mentions(over)
            && let Some(sum) = self.logarithm(x)
        {
            // To the base 2 it is log2(e) times that.
            let scale = if *op == UnaryOp::Log { 1.0 } else { std::f64::consts::LOG2_E };
            let mut scaled = vec![];
            product::append(&mut scaled, sum, scale);
            let sum = product::sum_term(&scaled);
            if !steps.iter().any(|(before, _)| before == term) {
                steps.push((term.clone(), sum.clone()));
            }
            return sum;
        }
        term.map_children(&mut |t| self.opened(t, over, steps))
    }

    /// `log x` as a sum.
    fn logarithm(&self, x: &Term) -> Option<product::Sum> {
        let p = Product::of(x, &self.out);
        let signed = p.factors.iter().filter(|(base, _)| !sign::nonnegative(base, &self.out));
        // Of an even power no sign is known.
        let even = |power: f64| power.fract() == 0.0 && (power / 2.0).fract() == 0.0;
        let odd_powers = signed.clone().all(|(_, power)| !even(*power));
        let parts = p.factors.len() + usize::from(!p.exponent.is_empty()) + usize::from(!p.exponent2.is_empty());
        if p.coefficient <= 0.0 || signed.count() > 1 || !odd_powers || parts < 2 && p.exponent.is_empty() {
            return None;
        }
        let mut out = p.exponent.clone();
        product::append(&mut out, p.exponent2.clone(), std::f64::consts::LN_2);
        let log = |t: &Term| Term::Unary(UnaryOp::Log, Box::new(t.clone()));
        product::append(&mut out, p.factors.iter().map(|(base, power)| (*power, log(base))).collect(), 1.0);
        if p.coefficient != 1.0 {
            product::append(&mut out, vec![(p.coefficient.ln(), Term::Number(1.0))], 1.0);
        }
        Some(out)
    }
}
