//! A sum over several indices whose factors each carry their own: `Σ_ij f(i)·g(j) = (Σ_i f(i))·(Σ_j g(j))`.
//!
//! Condition: the factors, as they are written, and the conditions fall into groups that share no summed index, each index
//! has a factor or a condition that carries it, and there are at least two groups. Then what one group is made of leaves the
//! sum over the others. Factors stay whole: of `exp(x(i) - c)·exp(y(j) - d)` each keeps what it subtracts. Over nothing the
//! product is 0, whatever the other groups make.

use super::inline::Cancelled;
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Reduction, Rule, Term, show};
use einloom_cascade::{BinaryOp, IndexId};

/// Summed indices with the factors and conditions that carry them; the first has what carries none.
pub(super) struct Group {
    over: Vec<IndexId>,
    filter: Vec<Term>,
    factors: Vec<Term>,
}

/// The groups of a sum, if there are several.
pub(super) fn groups(r: &Reduction, body: &Term) -> Option<Vec<Group>> {
    if r.over.len() < 2 {
        return None;
    }
    let mut factors = vec![];
    flatten(body, &mut factors);
    let mut groups: Vec<Group> =
        r.over.iter().map(|&i| Group { over: vec![i], filter: vec![], factors: vec![] }).collect();
    let mut none = vec![];
    let parts = factors.into_iter().map(|f| (f, true)).chain(r.filter.iter().map(|f| (f.clone(), false)));
    for (part, factor) in parts {
        let (mut own, others): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(|g| part.mentions(&g.over));
        groups = others;
        let Some(mut group) = own.pop() else {
            // What carries none leaves by itself, or holds for all of them.
            if !factor {
                return None;
            }
            none.push(part);
            continue;
        };
        for g in own.into_iter().rev() {
            group.over.splice(0..0, g.over);
            group.filter.splice(0..0, g.filter);
            group.factors.splice(0..0, g.factors);
        }
        if factor { &mut group.factors } else { &mut group.filter }.push(part);
        groups.push(group);
    }
    let place = |g: &Group| r.over.iter().position(|i| g.over.contains(i));
    groups.sort_by_key(place);
    if groups.len() < 2 || groups.iter().any(|g| g.factors.is_empty()) {
        return None;
    }
    none.append(&mut groups[0].factors);
    groups[0].factors = none;
    Some(groups)
}

/// The factors of a term as it is written.
fn flatten(t: &Term, out: &mut Vec<Term>) {
    match t {
        Term::Binary(BinaryOp::Mul, a, b) => {
            flatten(a, out);
            flatten(b, out);
        }
        Term::Binary(BinaryOp::Div, a, b) => {
            flatten(a, out);
            out.push(Term::Binary(BinaryOp::Div, Box::new(Term::Number(1.0)), b.clone()));
        }
        Term::Number(1.0) => {}
        other => out.push(other.clone()),
    }
}

impl Deriver<'_> {
    /// The product of the groups' own sums.
    pub(super) fn product_of_sums(
        &mut self,
        id: NodeId,
        node: Node,
        r: Reduction,
        groups: Vec<Group>,
        before: String,
    ) -> NodeId {
        let times = |a: Term, b: Term| Term::Binary(BinaryOp::Mul, Box::new(a), Box::new(b));
        let names: Vec<String> = groups.iter().map(|g| self.index_names(&g.over)).collect();
        let (mut value, mut seen): (Option<Term>, Option<Term>) = (None, None);
        for Group { over, filter, factors } in groups {
            let part = Node {
                name: crate::flatten::fresh_name(&self.out.nodes, &format!("{}.part", node.name)),
                tensor: None,
                dtype: None,
                ..node.clone()
            };
            let some = self.seen(&part, &over, &filter);
            let body = factors.into_iter().reduce(times).unwrap_or(Term::Number(1.0));
            let made = self.sum(id, part, Reduction { over, filter, body, ..r.clone() });
            let read = self.out.read(made);
            value = Some(value.map_or(read.clone(), |v| times(v, read)));
            let both = |s: Term| Term::Binary(BinaryOp::And, Box::new(s), Box::new(some.clone()));
            seen = Some(seen.map_or(some.clone(), both));
        }
        let (Some(value), Some(seen)) = (value, seen) else { return self.barred(node, r, None) };
        let after = show::term(&self.out, &value);
        let over = r.over.clone();
        let why =
            format!("each factor carries one of {} alone: the sum is the product of their sums", names.join(" and "));
        self.step(Rule::Defer, &node, &over, why, before, after);
        let Cancelled { value, rest, .. } = self.cancel(&guard::where_some(seen, value, 0.0));
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }
}
