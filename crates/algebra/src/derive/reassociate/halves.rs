//! Two halves: a reduction over all positions whose elements depend on which of two positions is the larger, as in `|m - n|` or `min(m, n)`,
//! is one over the positions up to one and one over those beyond it. In each the larger is known, so each may be a recurrence.
//!
//! Conditions: the reduction is over one index n of the rank of an axis m, no condition ties them yet, its body asks for nothing
//! of the two but which is the larger, and both halves are recurrences then. Joining both is what the monoid does.

use super::insert::{insert, placeholder};
use super::{Rewriting, rewrite};
use crate::derive::{filter, inline};
use crate::product;
use crate::{Def, Graph, Node, NodeId, Reduction, Refusal, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, UnaryOp};
use std::rc::Rc;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// The graph with the reduction at `id` in two halves, both carried from position to position. Nothing where there are none.
///
/// # Errors
/// Why one of them is not.
pub(super) fn halves(shared: &Rc<Graph>, id: NodeId) -> Result<Option<Rewriting>, Refusal> {
    let graph: &Graph = shared;
    let Some(Split { parts, op, step }) = split(graph, id) else { return Ok(None) };
    let node = &graph[id];
    let at: Vec<IndexExpr> = node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
    let [beyond, up_to] = [0, 1].map(|k| Term::Read(placeholder(k), at.clone()));
    let mut steps = vec![step];
    let mut g = graph.clone();
    let made = insert(&mut g, id, parts, Node { def: Def::Map(binary(op, up_to, beyond)), ..node.clone() });
    // The later one first: the earlier keeps its number.
    for half in made.into_iter().rev() {
        match rewrite(&Rc::new(g), half) {
            Ok(Some(done)) => {
                g = done.graph;
                steps.extend(done.steps);
            }
            Ok(None) => return Ok(None),
            Err(why) => return Err(Refusal { node: node.name.clone(), ..why }),
        }
    }
    Ok(Some(Rewriting { exchanged: vec![], graph: g, steps }))
}

/// Two halves of a reduction, and what joins them.
struct Split {
    parts: Vec<Node>,
    op: BinaryOp,
    step: Step,
}

fn split(graph: &Graph, id: NodeId) -> Option<Split> {
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let (op, identity) = match r.monoid {
        Monoid::Sum => (BinaryOp::Add, 0.0),
        Monoid::Max => (BinaryOp::Max, f64::NEG_INFINITY),
        Monoid::Min => (BinaryOp::Min, f64::INFINITY),
        _ => return None,
    };
    let &[n] = r.over.as_slice() else { return None };
    let rounds = inline::rounds(node) && node.tensor.is_none() || node.dtype == Some(DType::I32);
    if rounds || graph.recurrences.iter().any(|r| r.members.contains(&id)) {
        return None;
    }
    let (body, conditions) = filter::stripped(graph, r, identity);
    let body = super::site::open_maps(graph, &body, &r.over, false);
    let m = node.axes.iter().copied().find(|&m| {
        let tied = |t: &Term| t.mentions(&[m]) && t.mentions(&[n]);
        let same = graph.cascade[m].rank == graph.cascade[n].rank;
        same && !conditions.iter().any(tied) && decided(&body, m, n, true) != body
    })?;
    let part = |up_to: bool| {
        let tied = binary(if up_to { BinaryOp::Le } else { BinaryOp::Gt }, Term::Position(n), Term::Position(m));
        let filter = conditions.iter().cloned().chain([tied]).collect();
        let name = format!("{}.{}", node.name, if up_to { "up_to" } else { "beyond" });
        let name = crate::flatten::fresh_name(&graph.nodes, &name);
        let def = Def::Reduce(Reduction { body: decided(&body, m, n, up_to), filter, ..r.clone() });
        Node { name, def, tensor: None, dtype: None, ..node.clone() }
    };
    let parts = vec![part(false), part(true)];
    let [name_n, name_m] = [n, m].map(|i| &graph.cascade[i].name);
    let step = Step {
        rule: Rule::Halves,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: vec![graph.cascade[graph.cascade[n].rank].name.clone()],
        why: format!("up to {name_m} it is the larger of {name_m} and {name_n}, and beyond it the smaller"),
        before: show::reduction(graph, r),
        after: format!("{} {} {}", parts[1].name, op.symbol(), parts[0].name),
    };
    Some(Split { parts, op, step })
}

/// The term where `n <= m`, or else where `n > m`.
fn decided(t: &Term, m: IndexId, n: IndexId, up_to: bool) -> Term {
    let t = t.map_children(&mut |c| decided(c, m, n, up_to));
    let position = |t: &Term| match t {
        Term::Position(i) if *i == m => Some(true),
        Term::Position(i) if *i == n => Some(false),
        _ => None,
    };
    // c·(m - n), and whether that is negative where n <= m.
    let distance = |t: &Term| match product::sum(t).as_slice() {
        [(c, x), (d, y)] if *c == -*d && *c != 0.0 => match (position(x), position(y)) {
            (Some(true), Some(false)) => Some(*c > 0.0),
            (Some(false), Some(true)) => Some(*d > 0.0),
            _ => None,
        },
        _ => None,
    };
    match &t {
        Term::Unary(UnaryOp::Abs, x) => match distance(x) {
            Some(forward) if forward == up_to => (**x).clone(),
            Some(_) => product::sum_term(&product::sum(&Term::Unary(UnaryOp::Neg, x.clone()))),
            None => t,
        },
        Term::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => match (position(a), position(b)) {
            (Some(x), Some(y)) if x != y => {
                let larger = if up_to { m } else { n };
                let smaller = if up_to { n } else { m };
                Term::Position(if *op == BinaryOp::Max { larger } else { smaller })
            }
            _ => t,
        },
        Term::Select(c, a, b) => match &**c {
            Term::Binary(op @ (BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Lt), x, y) => {
                // Only what is asked on this very side of m: n <= m, n > m, m >= n, m < n.
                let holds = match (position(x), position(y), op) {
                    (Some(false), Some(true), BinaryOp::Le) | (Some(true), Some(false), BinaryOp::Ge) => up_to,
                    (Some(false), Some(true), BinaryOp::Gt) | (Some(true), Some(false), BinaryOp::Lt) => !up_to,
                    _ => return t,
                };
                if holds { (**a).clone() } else { (**b).clone() }
            }
            _ => t,
        },
        _ => t,
    }
}
