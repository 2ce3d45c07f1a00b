//! Running extrema and products: over all positions `n <= m + c` they are the one before and one more element, as sums are ([`prefix`]).
//!
//! Condition: what is reduced carries m, if at all, in addends of an extremum, or in factors of it that cannot be negative:
//! `max(n) (f(n) + a(m)) = a(m) + max(n) f(n)`. An addend that
//! moves with the position, as in `f(n) - c·(m - n)` for any c that is the same at every n, or is a cumulative sum, as in `f(n) + c[m] - c[n]`, is
//! taken relative to the latest position: the state moves by a difference per step, and stays as large as what is written.
//!
//! [`prefix`]: super::prefix

use super::Rewriting;
use super::build::{Join, State, rename_placeholders};
use super::first::Equal;
use super::insert::insert;
use super::prefix::{Prefix, Why, mentions_position, reads_at, telescoped};
use super::site::{Site, open_maps, reads_both};
use super::weights::{canonical, moved};
use crate::derive::{filter, guard};
use crate::product::{self, Sum};
use crate::{Def, Graph, Node, NodeId, Product, Refusal, Rule, Step, Term, show, sign};
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
    if member || !position && joined.is_none() {
        return Ok(None);
    }
    if node.dtype == Some(DType::I32) && !position {
        return integers(graph, id).map_or(Ok(None), Err);
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
    let site = Site { graph: shared.clone(), id, node: node.clone(), over: r.over.clone(), spans: vec![] };
    let parts = match Prefix::of(graph, &tying, &r.over) {
        Ok(p) if position => {
            let done = site.first(&p, &body, &others, r.monoid, equal);
            return done.map_err(|why| refusal(graph, node, &r.over, why));
        }
        Ok(p) => Parts::of(graph, r.monoid, &body, p).map_err(|why| refusal(graph, node, &r.over, why))?,
        // Only where the rest would do.
        Err(_) if body.mentions(&node.axes) => return Ok(None),
        Err(_) if tying.len() > 1 => {
            let all = tying.iter().map(|t| show::term(graph, t)).collect::<Vec<_>>().join(" and ");
            let reason = format!("{all} is a window, and what leaves it cannot be taken out of {} again", node.name);
            let hint = "one of the bounds alone makes a prefix or a suffix; blocks of positions would need an index of their own";
            return Err(refusal(graph, node, &r.over, (reason, Some(hint.into()))));
        }
        Err(why) => return Err(refusal(graph, node, &r.over, why)),
    };
    let Some(parts) = parts.filter(|parts| !others.iter().any(|f| f.mentions(&[parts.prefix.up_to]))) else {
        return Ok(None);
    };
    site.running(parts, others, r.monoid).map_err(|why| refusal(graph, node, &r.over, why))
}

/// What is said of a prefix of integers.
pub(super) fn integers(graph: &Graph, id: NodeId) -> Option<Refusal> {
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let tie = |f: &Term| f.mentions(&r.over) && f.mentions(&node.axes) && !reads(f);
    let tying: Vec<Term> = r.filter.iter().filter(|f| tie(f)).cloned().collect();
    let prefix = Prefix::of(graph, &tying, &r.over).ok()?;
    if r.body.mentions(&[prefix.up_to]) {
        return None;
    }
    let reason =
        format!("{} is of integers, which are exact in i32, and what is carried is computed in floats", node.name);
    Some(refusal(graph, node, &r.over, (reason, Some(format!("{} in f32 or f64 would be carried", node.name)))))
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
    /// What it is multiplied with where it is read, and is not negative.
    factor: Option<Product>,
    /// What is then added.
    outside: Option<Term>,
}

impl Parts {
    /// Nothing where data carry both indices.
    ///
    /// # Errors
    /// What keeps the two together.
    fn of(graph: &Graph, monoid: Monoid, body: &Term, prefix: Prefix) -> Result<Option<Self>, Why> {
        let (n, m) = (prefix.of, prefix.up_to);
        if !body.mentions(&[m]) {
            return Ok(Some(Self { prefix, inside: body.clone(), moves: None, outside: None, factor: None }));
        }
        if reads_both(body, &[n], &[m]) {
            return Ok(None);
        }
        let name = |i: IndexId| &graph.cascade[i].name;
        if !matches!(monoid, Monoid::Max | Monoid::Min) {
            let kind = monoid.name(&graph.cascade);
            let reason =
                format!("{} carries {}, and nothing is known to leave {kind}", show::term(graph, body), name(m));
            let hint = format!("what carries {} alone would be carried from position to position", name(n));
            return Err((reason, Some(hint)));
        }
        let together = |t: &Term| {
            let reason = format!("{} depends on {} and {} together", show::term(graph, t), name(m), name(n));
            let hint = format!(
                "an addend, or a factor that cannot be negative, of {} alone would leave beside what carries {} alone",
                name(m),
                name(n)
            );
            (reason, Some(hint))
        };
        let (mut inner, outer): (Sum, Sum) = product::sum(body).into_iter().partition(|(_, t)| t.mentions(&[n]));
        let mut factor = None;
        if let [(_, t)] = inner.as_mut_slice()
            && t.mentions(&[m])
            && !mentions_position(t, n)
        {
            let (mut keep, mut leave) = Product::of(t, graph).partition(|t| t.mentions(&[n]));
            keep.coefficient = std::mem::replace(&mut leave.coefficient, 1.0);
            let exponential = !leave.exponent.is_empty() || !leave.exponent2.is_empty();
            if exponential || !leave.factors.iter().all(|(f, _)| sign::nonnegative(f, graph)) {
                return Err(together(t));
            }
            *t = keep.term();
            factor = Some(leave).filter(|l| !l.is_one());
        }
        if inner.is_empty() {
            return Ok(None);
        }
        if let Some((_, t)) = inner.iter().find(|(_, t)| t.mentions(&[m])) {
            return Err(together(t));
        }
        // What is multiplied with a factor of m is no addend any more: it stays where it is.
        let whole = factor.is_none();
        let moving = |t: &Term| mentions_position(t, n) && !reads_at(t, n) || whole && prefix.accumulates(t, graph);
        let (moving, data): (Sum, Sum) = inner.into_iter().partition(|(_, t)| moving(t));
        let at = |k: i64| {
            let mut e = IndexExpr::var(m);
            e.offset = SizeExpr::constant(k);
            moved(&moving, n, &e, graph)
        };
        let shifts = (at(prefix.offset), at(prefix.taken() - 1), at(prefix.taken()));
        let (Some(latest), Some(mut moves), Some(now)) = shifts else { return Ok(None) };
        let mut outside = outer;
        product::append(&mut outside, latest, 1.0);
        product::append(&mut moves, now, -1.0);
        let [outside, moves] = [outside, moves].map(|s| telescoped(canonical(s, graph), graph));
        let term = |s: &Sum| (!s.is_empty()).then(|| product::sum_term(s));
        let (moves, outside) = (term(&moves), term(&outside));
        Ok(Some(Self { prefix, inside: product::sum_term(&data), moves, outside, factor }))
    }
}

impl Site {
    fn running(&self, parts: Parts, filters: Vec<Term>, monoid: Monoid) -> Result<Option<Rewriting>, Why> {
        let Parts { prefix, inside, moves, factor, outside } = parts;
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
        let plus = |old: Term, by: Term| Term::Binary(BinaryOp::Add, Box::new(old), Box::new(by));
        let ranks = [prefix.of, prefix.up_to].map(|i| self.graph.cascade[i].rank);
        let some = prefix.offset == 0 && filters.is_empty() && ranks[0] == ranks[1];
        // Data may be infinite, and nothing stays nothing.
        let kept = |old: Term| match &moves {
            Some(by) if !some && reads(by) => guard::unless_identity(&old, identity, |old| plus(old, by.clone())),
            Some(by) => plus(old, by.clone()),
            None => old,
        };
        let uses: Vec<&Term> = moves.iter().collect();
        let state = State { inside: &inside, filters: &filters, kept: &kept, uses: &uses, join, identity };
        let (mut node, read) = self.state_node(&prefix, state, &[], g.recurrences.len())?;
        if let Joined::Of(_) = joined {
            node.dtype = self.exact_for(&inside);
        }
        let leaves = factor.is_some() || outside.as_ref().is_some_and(reads);
        let put = |read: Term| {
            let times = |mut f: Product| {
                f.factors.insert(0, (read.clone(), 1.0));
                f.term()
            };
            let value = factor.map_or(read.clone(), times);
            outside.map_or(value.clone(), |by| plus(value, by))
        };
        // Over nothing it is the identity, whatever is made of it.
        let value = if leaves && !some { guard::unless_identity(&read, identity, put) } else { put(read) };
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
        Ok(Some(Rewriting { exchanged: vec![], graph: g, steps: vec![step] }))
    }
}
