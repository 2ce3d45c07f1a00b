//! Running extrema and products: over all positions `n <= m + c` they are the one before and one more element, as sums are ([`prefix`]).
//!
//! Condition: what is reduced carries m, if at all, in addends of an extremum: `max(n) (f(n) + a(m)) = a(m) + max(n) f(n)`. An addend that
//! moves with the position, as in `f(n) - c·(m - n)`, is taken relative to the latest position: the state moves by a difference per step, and
//! stays as large as what is written.
//!
//! [`prefix`]: super::prefix

use super::Rewriting;
use super::build::{Join, State, rename_placeholders};
use super::first::Equal;
use super::insert::insert;
use super::prefix::{Prefix, Why, mentions_position};
use super::site::{Site, open_maps};
use super::weights::{canonical, moved};
use crate::derive::filter;
use crate::product::{self, Sum};
use crate::{Def, Graph, Node, NodeId, Refusal, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, SizeExpr};
use std::rc::Rc;

/// How two values of the monoid are joined, and what it is over nothing; `None` if nothing is made of it here.
fn joined(graph: &Graph, monoid: Monoid) -> Option<(Joined, f64)> {
    match monoid {
        Monoid::Prod => Some((Joined::Op(BinaryOp::Mul), 1.0)),
        Monoid::Max => Some((Joined::Op(BinaryOp::Max), f64::NEG_INFINITY)),
        Monoid::Min => Some((Joined::Op(BinaryOp::Min), f64::INFINITY)),
        Monoid::Custom(id) => {
            let combine = crate::flatten::argument_term(&graph.cascade[id].combine)?;
            Some((Joined::Of(combine), graph.cascade[id].identity))
        }
        Monoid::Sum | Monoid::ArgMax | Monoid::ArgMin => None,
    }
}

enum Joined {
    Op(BinaryOp),
    /// Of two arguments.
    Of(Term),
}

/// A user's monoid at two values.
fn combined(combine: &Term, old: &Term, new: &Term) -> Term {
    match combine {
        Term::Argument(0) => old.clone(),
        Term::Argument(_) => new.clone(),
        t => t.map_children(&mut |c| combined(c, old, new)),
    }
}

/// The graph with the running extremum or product at `id` as a recurrence. Nothing if it is none.
///
/// # Errors
/// What is no prefix in the range that another index bounds.
pub(super) fn rewrite(shared: &Rc<Graph>, id: NodeId, equal: Equal) -> Result<Option<Rewriting>, Refusal> {
    let graph: &Graph = shared;
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return Ok(None) };
    let member = graph.recurrences.iter().any(|r| r.members.contains(&id));
    let position = matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin);
    let joined = joined(graph, r.monoid);
    if member || !position && (joined.is_none() || node.dtype == Some(DType::I32)) {
        return Ok(None);
    }
    let (body, filter) = match joined {
        Some((Joined::Op(_), identity)) => filter::stripped(graph, r, identity),
        // An element that equals what it is over nothing is one of them all the same.
        _ => (r.body.clone(), r.filter.clone()),
    };
    let tie = |f: &Term| f.mentions(&r.over) && f.mentions(&node.axes) && !reads(f);
    let (tying, others): (Vec<Term>, Vec<Term>) = filter.into_iter().partition(tie);
    if tying.is_empty() {
        return Ok(None);
    }
    let body = open_maps(graph, &body, &r.over, false);
    let site = Site { graph: shared.clone(), id, node: node.clone(), over: r.over.clone() };
    let parts = match Prefix::of(graph, &tying, &r.over) {
        Ok(p) if position => {
            let done = site.first(&p, &body, &others, r.monoid, equal);
            return done.map_err(|why| refusal(graph, node, &r.over, why));
        }
        Ok(p) => Parts::of(graph, r.monoid, &body, p),
        // Only where the rest would do.
        Err(_) if body.mentions(&node.axes) => return Ok(None),
        Err(_) if tying.len() > 1 => {
            let all = tying.iter().map(|t| show::term(graph, t)).collect::<Vec<_>>().join(" and ");
            let reason = format!("{all} is a window, and what leaves it cannot be taken out of {} again", node.name);
            return Err(refusal(graph, node, &r.over, (reason, None)));
        }
        Err(why) => return Err(refusal(graph, node, &r.over, why)),
    };
    let Some(parts) = parts.filter(|parts| !others.iter().any(|f| f.mentions(&[parts.prefix.up_to]))) else {
        return Ok(None);
    };
    site.running(parts, others, r.monoid).map_err(|why| refusal(graph, node, &r.over, why))
}

fn reads(t: &Term) -> bool {
    t.any_read(&|_| true)
}

fn refusal(graph: &Graph, node: &Node, over: &[IndexId], (reason, hint): Why) -> Refusal {
    let ranks = over.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect();
    let (rule, statement) = (Rule::Prefix, node.statement.unwrap_or(0));
    Refusal { rule, statement, node: node.name.clone(), ranks, reason, hint, span: node.span }
}

/// What is reduced, in parts.
struct Parts {
    prefix: Prefix,
    /// What the state takes in.
    inside: Term,
    /// What is added to the state at every step.
    moves: Option<Term>,
    /// What is added where it is read.
    outside: Option<Term>,
}

impl Parts {
    /// Nothing if some part carries both indices.
    fn of(graph: &Graph, monoid: Monoid, body: &Term, prefix: Prefix) -> Option<Self> {
        let (n, m) = (prefix.of, prefix.up_to);
        if !body.mentions(&[m]) {
            return Some(Self { prefix, inside: body.clone(), moves: None, outside: None });
        }
        if !matches!(monoid, Monoid::Max | Monoid::Min) {
            return None;
        }
        let (inner, outer): (Sum, Sum) = product::sum(body).into_iter().partition(|(_, t)| t.mentions(&[n]));
        if inner.is_empty() || inner.iter().any(|(_, t)| t.mentions(&[m])) {
            return None;
        }
        // Data is read where the result is, and may be infinite there.
        if outer.iter().any(|(_, t)| reads(t)) {
            return None;
        }
        let (moving, data): (Sum, Sum) = inner.into_iter().partition(|(_, t)| mentions_position(t, n) && !reads(t));
        if data.iter().any(|(_, t)| mentions_position(t, n)) {
            return None;
        }
        let at = |k: i64| {
            let mut e = IndexExpr::var(m);
            e.offset = SizeExpr::constant(k);
            moved(&moving, n, &e, graph)
        };
        let mut outside = outer;
        product::append(&mut outside, at(prefix.offset)?, 1.0);
        let mut moves = at(prefix.taken() - 1)?;
        product::append(&mut moves, at(prefix.taken())?, -1.0);
        let [outside, moves] = [outside, moves].map(|s| canonical(s, graph));
        let term = |s: &Sum| (!s.is_empty()).then(|| product::sum_term(s));
        Some(Self { prefix, inside: product::sum_term(&data), moves: term(&moves), outside: term(&outside) })
    }
}

impl Site {
    fn running(&self, parts: Parts, filters: Vec<Term>, monoid: Monoid) -> Result<Option<Rewriting>, Why> {
        let Parts { prefix, inside, moves, outside } = parts;
        let Some((joined, identity)) = joined(&self.graph, monoid) else { return Ok(None) };
        let by = |old: Term, new: Term| match &joined {
            Joined::Op(op) => Term::Binary(*op, Box::new(old), Box::new(new)),
            Joined::Of(combine) => combined(combine, &old, &new),
        };
        let join = match &joined {
            Joined::Op(op) => Join::Op(*op),
            Joined::Of(_) => Join::By(&by),
        };
        let mut g = (*self.graph).clone();
        let kept = |old: Term| match &moves {
            Some(by) => Term::Binary(BinaryOp::Add, Box::new(old), Box::new(by.clone())),
            None => old,
        };
        let uses: Vec<&Term> = moves.iter().collect();
        let state = State { inside: &inside, filters: &filters, kept: &kept, uses: &uses, join, identity };
        let (node, read) = self.state_node(&prefix, state, &[], g.recurrences.len())?;
        let value = match outside {
            Some(by) => Term::Binary(BinaryOp::Add, Box::new(read), Box::new(by)),
            None => read,
        };
        let Def::Reduce(written) = &self.graph[self.id].def else { return Ok(None) };
        let shown = self.with(std::slice::from_ref(&node));
        let def = rename_placeholders(&node.def, self.graph.nodes.len());
        let [n, m] = [prefix.of, prefix.up_to].map(|i| self.graph.cascade[i].name.clone());
        let relative = match &moves {
            Some(by) => format!(
                "; relative to the latest position all earlier ones move by {} a step",
                show::term(&self.graph, by)
            ),
            None => String::new(),
        };
        let step = Step {
            rule: Rule::Prefix,
            statement: self.node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: vec![self.graph.cascade[self.graph.cascade[prefix.up_to].rank].name.clone()],
            why: format!("the positions {n} that {m} sees are those that {m} - 1 sees and one more{relative}"),
            before: show::reduction(&self.graph, written),
            after: format!("{} = {}", self.next_slice(&node, &m), show::def(&shown, &def)),
        };
        let made = insert(&mut g, self.id, vec![node], Node { def: Def::Map(value), ..self.node.clone() });
        let rank = g.cascade[prefix.up_to].rank;
        g.recurrences.push(crate::Recurrence { rank, index: prefix.up_to, members: made, within: vec![] });
        Ok(Some(Rewriting { graph: g, steps: vec![step] }))
    }
}
