//! Sums and extrema that wait as they are written, as a form of its own.
//!
//! What leaves a reduction (`Σ_d x[m,d]·r[m]·w[d,n] = r[m]·Σ_d x[m,d]·w[d,n]`) saves a traversal of what is reduced, and is
//! met again at every element of the result. Where that has indices which what leaves has not, such as the columns of a product
//! of matrices behind a normalisation, it may take less to complete `r`, store what is multiplied, and multiply that. Which
//! does depends on sizes, so both are forms.
//!
//! Conditions: the reduction waits for a factor or addend that lacks an index of its result. It has neither exponentials nor logarithms and
//! nothing in it cancels, for these are what a derived form may be finite with where the text overflows; and
//! all exponentials elsewhere have the anchors that they have in the main form.

use super::Deriver;
use crate::{Node, Reduction, Term};
use einloom_cascade::{BinaryOp, IndexId, UnaryOp};

/// What the form is called.
pub(super) const NAME: &str = "sums that wait as written";

impl Deriver<'_> {
    /// Whether a reduction whose body is `body`, with what it waits for in place of its reads, stays as it is.
    pub(super) fn stays_waiting(&self, node: &Node, r: &Reduction, body: &Term) -> bool {
        self.waiting && self.lacks_an_index(node, body, &r.over) && !has_exponents(body)
    }

    /// Whether it waits for something that does not carry what is reduced, nor all indices of the result.
    fn lacks_an_index(&self, node: &Node, body: &Term, over: &[IndexId]) -> bool {
        let mut found = false;
        body.visit(&mut |t| {
            let lacks = || node.axes.iter().any(|&a| !t.mentions(&[a]));
            found |= matches!(t, Term::Read(..)) && !t.mentions(over) && self.waits(t, over, 0) && lacks();
        });
        found
    }
}

/// Whether any part of it grows or falls faster than its numbers.
fn has_exponents(t: &Term) -> bool {
    let mut found = false;
    t.visit(&mut |t| {
        found |= match t {
            Term::Unary(op, _) => {
                matches!(op, UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p)
            }
            Term::Binary(BinaryOp::Pow, _, power) => !matches!(**power, Term::Number(_)),
            _ => false,
        }
    });
    found
}
