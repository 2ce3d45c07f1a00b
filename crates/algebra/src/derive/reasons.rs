//! What is said about sums: steps, and refusals with what would make the rule fire.

use super::Deriver;
use super::polynomial::NotFinite;
use crate::{Node, NodeId, Product, Reduction, Rule, Term, show};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};

impl Deriver<'_> {
    #[allow(clippy::too_many_arguments)] // The parts of one explanation.
    pub(super) fn explain_sum(
        &mut self,
        node: &Node,
        over: &[IndexId],
        before: &str,
        inner: &Reduction,
        factor: &Product,
        anchored: bool,
        stabilised: bool,
        value: &Term,
    ) {
        let names = self.index_names(over);
        let state = self.state_text(inner);
        let value = show::term(&self.out, &show::unguarded(value));
        if !factor.is_one() {
            let why = format!("{} does not carry {names}", show::term(&self.out, &factor.term()));
            self.step(Rule::Defer, node, over, why, before.into(), value.clone());
        }
        if anchored {
            let why = match &inner.streaming.repair {
                Some(r) => {
                    let maxima = self.maxima(&inner.streaming.anchors);
                    let (names, factor) = (self.names(&maxima), show::term(&self.out, &show::unguarded(&r.factor)));
                    match maxima.len() {
                        0 | 1 => format!(
                            "the anchor is {names}, the maximum so far; it only grows, so the factor {factor} is at most 1"
                        ),
                        _ => format!(
                            "the anchors are {names}, each the maximum so far of an exponential of its own; they only grow, so the factor {factor} is at most 1"
                        ),
                    }
                }
                None => "the anchor is complete before this traversal starts, so nothing need be repaired".to_string(),
            };
            let rule = if stabilised { Rule::Stabilise } else { Rule::Separate };
            let leaves = factor.is_one() && !inner_is(&self.out, inner, &value);
            let after = if leaves { format!("{state}; {} = {value}", node.name) } else { state };
            self.step(rule, node, over, why, before.into(), after);
        }
    }

    /// Those that are maxima: the others are states of the same vector.
    fn maxima(&self, anchors: &[NodeId]) -> Vec<NodeId> {
        let is = |n: &NodeId| matches!(&self.out[*n].def, crate::Def::Reduce(r) if r.monoid == Monoid::Max);
        anchors.iter().copied().filter(is).collect()
    }

    /// A state with its name, without guards.
    pub(super) fn state_text(&self, state: &Reduction) -> String {
        let bare = Reduction { body: show::unguarded(&state.body), ..state.clone() };
        let text = show::reduction(&self.out, &bare);
        let name = self.out.nodes.iter().rev().find(|n| matches!(&n.def, crate::Def::Reduce(r) if r == state));
        name.map_or(text.clone(), |n| format!("{} = {text}", n.name))
    }

    /// Which condition failed, in the user's terms, and what would make the rule fire.
    pub(super) fn why_not(&self, why: &NotFinite, over: &[IndexId], floor: usize) -> (String, Option<String>) {
        let index = self.index_names(over);
        let waiting = |t: &Term| {
            let all = self.barriers(t, over);
            let late: Vec<_> = all.into_iter().filter(|&b| self.levels.of(b) >= floor).collect();
            self.names(&late)
        };
        let (culprit, needs) = match why {
            NotFinite::Large => {
                let reason = "multiplied out it needs more states than one traversal should carry".to_string();
                return (reason, Some("a lower power, or fewer factors, would need fewer states".into()));
            }
            NotFinite::Cancels { base, exponentials } => {
                let relative = if *exponentials { ", each relative to a maximum of its own" } else { "" };
                let reason = format!(
                    "{} multiplied out is a sum of products that separate{relative}, but what cancels in it would no longer cancel before it is multiplied",
                    self.shown(base)
                );
                let hint = "it would be multiplied out if none of its addends could be negative; so would the products themselves, written as sums of their own";
                return (reason, Some(hint.into()));
            }
            NotFinite::Power(base, power) => {
                let needs = waiting(base);
                let shown = self.shown(base);
                let reason = format!(
                    "({shown}) ^ {power} is no finite sum of products of a function of {index} and a function of {needs}"
                );
                let hint = self.nested(base, over).unwrap_or("whole powers from 1 to 8 are: they multiply out".into());
                return (reason, Some(hint));
            }
            NotFinite::Exponent(t) => {
                let needs = waiting(t);
                let shown = self.shown(t);
                let reason =
                    format!("exp({shown}) is not a product of a function of {index} and a function of {needs}");
                let hint = format!(
                    "in an exponent only what adds separates, exp(x + c) = exp(x)·exp(c); this addend joins {index} and {needs} otherwise"
                );
                return (reason, Some(hint));
            }
            NotFinite::Mixes(t) => (t, waiting(t)),
        };
        let shown = self.shown(culprit);
        let reason = format!("{shown} is not a product of a function of {index} and a function of {needs}");
        let hint = self.nested(culprit, over).or_else(|| self.hint(culprit, over, floor, &needs));
        (reason, hint)
    }

    /// A term for a reader, without guards.
    fn shown(&self, t: &Term) -> String {
        show::term(&self.out, &show::unguarded(t))
    }

    /// Of a factor of a sum over several indices that does not carry all of them: as a sum in a sum it would leave the
    /// inner one.
    fn nested(&self, factor: &Term, over: &[IndexId]) -> Option<String> {
        let (outer, inner): (Vec<IndexId>, Vec<IndexId>) = over.iter().partition(|i| factor.mentions(&[**i]));
        if outer.is_empty() || inner.is_empty() {
            return None;
        }
        let (outer, inner) = (self.index_names(&outer), self.index_names(&inner));
        Some(format!(
            "it does not carry {inner}: as a sum over {inner} inside a sum over {outer} it would leave the inner one"
        ))
    }

    fn is_product(&self, x: &Term) -> bool {
        let p = Product::of(x, &self.out);
        p.factors.len() + usize::from(!p.exponent.is_empty()) > 1
    }

    /// Whether it is a product of which at most one factor can be negative, and none joins what is summed over and what
    /// that waits for.
    fn splits_in_log(&self, x: &Term, over: &[IndexId], floor: usize) -> bool {
        let signed = |(base, _): &&(Term, f64)| !crate::sign::nonnegative(base, &self.out);
        let joins = |(base, _): &(Term, f64)| base.mentions(over) && self.waits(base, over, floor);
        let factors = Product::of(x, &self.out).factors;
        self.is_product(x) && factors.iter().filter(signed).count() <= 1 && !factors.iter().any(joins)
    }

    fn hint(&self, culprit: &Term, over: &[IndexId], floor: usize, needs: &str) -> Option<String> {
        let index = self.index_names(over);
        // Of what the reader sees: no guard is a branch.
        Some(match &show::unguarded(culprit) {
            Term::Read(n, _) if super::inline::rounds(&self.out[*n]) => format!(
                "{} is rounded to {}, and rounding does not commute with a later change of {needs}",
                self.out[*n].name,
                self.out[*n].dtype.map_or("", |d| d.name())
            ),
            Term::Unary(UnaryOp::Relu, x) if self.is_product(x) => {
                "relu(x·r) would be r·relu(x) if r were known not to be negative, as a root or a sum of squares is".into()
            }
            Term::Unary(UnaryOp::Sign, x) if self.is_product(x) => {
                "sign(x·r) would be sign(x) if r were known to be positive, as the root of squares and a positive number is".into()
            }
            Term::Unary(op @ (UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Round), x) => {
                let inner = self.shown(x);
                format!(
                    "{} has pieces, and each element changes its piece as {needs} moves; whole powers of {inner} and its exponential would separate",
                    op.name()
                )
            }
            Term::Binary(op @ (BinaryOp::Max | BinaryOp::Min), ..) => {
                format!("{} has pieces, and each element changes its piece as {needs} moves", op.symbol())
            }
            Term::Select(..) => format!(
                "which branch is taken depends on {needs}, or a branch mixes; conditions that do not could be a filter"
            ),
            Term::Unary(op @ (UnaryOp::Sin | UnaryOp::Cos), _) => format!(
                "{}(a + b) is a product of two vectors of two, but this rule turns no such vector, and without a centre large arguments would lose their digits",
                op.name()
            ),
            Term::Unary(op @ (UnaryOp::Log | UnaryOp::Log2), x) if self.splits_in_log(x, over, floor) => format!(
                "{}(a·b) would be a sum of what separates, but it is kept together for where there is nothing to reduce or an anchor is infinite",
                op.name()
            ),
            Term::Unary(op @ (UnaryOp::Log | UnaryOp::Log2), x) if self.is_product(x) => format!(
                "{}(a·b) would be a sum if none but one of the factors could be negative and none of them joined {index} and {needs}; abs(a) cannot be",
                op.name()
            ),
            Term::Unary(op, _) => {
                format!("{}(a + b) is no finite sum of products of functions of a and of b", op.name())
            }
            Term::Binary(BinaryOp::Pow, base, _) if self.is_product(base) => {
                "whole powers from 1 to 8 are: they multiply out; so is any power of a product of which no factor can be negative".into()
            }
            Term::Binary(BinaryOp::Pow, ..) => "whole powers from 1 to 8 are: they multiply out".into(),
            Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => format!(
                "in a sum of its own for each addend, those that are products of a function of {index} and one of {needs} would separate"
            ),
            _ => format!(
                "as a product of a function of {index} and one of {needs}, or a sum of such products, it would separate"
            ),
        })
    }
}

/// Whether a value, as text, is just the state.
fn inner_is(graph: &crate::Graph, state: &Reduction, value: &str) -> bool {
    let is = |n: &crate::NodeId| matches!(&graph[*n].def, crate::Def::Reduce(r) if r == state);
    graph.ids().filter(is).any(|n| show::term(graph, &graph.read(n)) == value)
}
