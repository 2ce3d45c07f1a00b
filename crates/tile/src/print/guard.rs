//! Spelling of guards: as the conditions that they stand for.

use super::expr::{AND, ATOM, COMPARISON, NEGATION, NOT, Names, POWER, binding, number};
use crate::{Extremes, Guard};
use einloom_cascade::{BinaryOp, UnaryOp};

impl Names<'_> {
    /// The condition, elements as `element` spells them.
    pub(super) fn guard(&self, guard: &Guard, element: &dyn Fn(&Extremes) -> String) -> String {
        self.bound(guard, element).0
    }

    /// The text and how tightly it binds.
    fn bound(&self, guard: &Guard, element: &dyn Fn(&Extremes) -> String) -> (String, u8) {
        let bare = |g: &Guard| self.bound(g, element).0;
        let tight = |g: &Guard, at_least: u8| match self.bound(g, element) {
            (text, binds) if binds >= at_least => text,
            (text, _) => format!("({text})"),
        };
        match guard {
            Guard::Const(v) => (number(*v), if *v < 0.0 { NEGATION } else { ATOM }),
            Guard::Position(a) => (self.axis(*a).to_string(), ATOM),
            Guard::Within(p) => (self.predicate(p), if p.all.len() > 1 { AND } else { COMPARISON }),
            Guard::Element(e) => (element(e), ATOM),
            Guard::Around(x) => (format!("about({})", bare(x)), ATOM),
            Guard::Unary(UnaryOp::Neg, x) => (format!("-{}", tight(x, POWER)), NEGATION),
            Guard::Unary(UnaryOp::Not, x) => (format!("not {}", tight(x, COMPARISON)), NOT),
            Guard::Unary(op, x) => (format!("{}({})", op.name(), bare(x)), ATOM),
            Guard::Binary(op @ (BinaryOp::Min | BinaryOp::Max), x, y) => {
                (format!("{}({}, {})", op.symbol(), bare(x), bare(y)), ATOM)
            }
            Guard::Binary(op, x, y) => {
                let own = binding(*op);
                let left = if op.is_comparison() { own + 1 } else { own };
                (format!("{} {} {}", tight(x, left), op.symbol(), tight(y, own + 1)), own)
            }
            Guard::Select(c, x, y) => (format!("where({}, {}, {})", bare(c), bare(x), bare(y)), ATOM),
        }
    }
}
