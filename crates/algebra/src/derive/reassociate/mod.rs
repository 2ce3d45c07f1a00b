//! Reassociation: `Σ_n (Σ_d q(m,d)·k(n,d))·v(n,e) = Σ_d q(m,d)·(Σ_n k(n,d)·v(n,e))`.
//!
//! Condition: the inner sum is a factor of the outer sum's body (nothing that is not linear stands between them), and
//! once both are one product, the factors that carry the outer index n do not carry the indices of the query side (m
//! above), which are the result's indices that only factors without n bring in: one that a factor with n brings in as well stays with the state. Then · distributes over both sums and
//! they change places. A condition that ties n to m as a prefix, and weights of the distance between them, are taken
//! care of by [`prefix`], those whose size is not known by [`anchored`]; one that ties it as a suffix by [`reverse`]. What is no sum but runs over a prefix is a recurrence by [`running`],
//! the position of an extremum by [`first`], powers of differences by [`centred`]; extrema in extrema change places by [`tropical`]; weights that grow
//! with the distance are by [`distance`], those made of all positions between two by [`between`], sums of products by [`addends`], and what depends on which of two positions is the larger by [`halves`]. Which order is better depends on sizes, so this makes an alternative and no replacement.

mod addends;
mod anchored;
mod between;
mod build;
mod centred;
mod distance;
mod first;
mod halves;
mod insert;
mod prefix;
mod reverse;
mod running;
mod sides;
mod site;
mod tell;
mod tropical;
mod weights;

pub(super) use insert::{fresh_index, insert, placeholder};
pub(super) use prefix::GATHERED;
pub(crate) use prefix::bound;
pub(super) use weights::{Base, Body, Weight};

use super::guard;
use crate::{Def, Graph, Node, NodeId, Product, Refusal, Rule, Step, Term};
use einloom_cascade::{BinaryOp, Monoid, RankId};
use first::Equal;
use reverse::{Reversed, reversed};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// A graph in which some sums have changed places, and how it came about.
#[derive(Clone)]
pub(super) struct Rewriting {
    pub graph: Graph,
    pub steps: Vec<Step>,
    /// Sums that have changed places on the way.
    pub exchanged: Vec<Exchange>,
}

/// Sums of one statement that have changed places: the ranks of what was the outer one, and of what was inside.
#[derive(Clone, PartialEq)]
pub(super) struct Exchange {
    statement: Option<usize>,
    outer: BTreeSet<RankId>,
    inner: BTreeSet<RankId>,
}

impl Rewriting {
    /// Whether it takes back what has led to another.
    fn takes_back(&self, before: &Self) -> bool {
        let back = |e: &Exchange| Exchange { statement: e.statement, outer: e.inner.clone(), inner: e.outer.clone() };
        self.exchanged.iter().any(|e| before.exchanged.contains(&back(e)))
    }
}

/// More orders than this are not tried.
const MAX_ALTERNATIVES: usize = 6;

/// Every order of summation that the rule leads to, and why it leads to no more.
pub(super) fn alternatives(written: &Graph) -> (Vec<Rewriting>, Vec<Refusal>) {
    let mut found: Vec<Rewriting> = vec![];
    let mut refusals = vec![];
    let mut seen = BTreeSet::from([shape(written)]);
    let mut todo = vec![Rewriting { graph: written.clone(), steps: vec![], exchanged: vec![] }];
    while let Some(base) = todo.pop() {
        let mut sites = vec![];
        let shared = Rc::new(base.graph.clone());
        for id in base.graph.ids() {
            match rewrite(&shared, id) {
                Ok(None) => {}
                Ok(Some(r)) if r.takes_back(&base) => {}
                Ok(Some(r)) => sites.push((base.graph[id].name.clone(), r.steps.len() == 1)),
                Err(refusal) if base.steps.is_empty() => refusals.push(refusal),
                Err(_) => {}
            }
        }
        // All at once; where several have a choice, each of those alone as well.
        let mut moves: Vec<Vec<&str>> = vec![sites.iter().map(|s| s.0.as_str()).collect()];
        if sites.iter().filter(|s| s.1).count() > 1 {
            moves.extend(sites.iter().filter(|s| s.1).map(|s| vec![s.0.as_str()]));
        }
        for names in moves.into_iter().filter(|m| !m.is_empty()) {
            let mut next = base.clone();
            // Later sums first: what they no longer read is not rewritten any more.
            for name in names.into_iter().rev() {
                let Some(id) = next.graph.ids().find(|&n| next.graph[n].name == name) else { continue };
                if let Ok(Some(r)) = rewrite(&Rc::new(next.graph.clone()), id) {
                    next.graph = r.graph;
                    next.steps.extend(r.steps);
                    next.exchanged.extend(r.exchanged);
                    crate::derive::rebuild::prune(&mut next.graph);
                }
            }
            crate::derive::alike::merge(&mut next.graph);
            if found.len() < MAX_ALTERNATIVES && seen.insert(shape(&next.graph)) {
                todo.push(next.clone());
                found.push(next);
            }
        }
    }
    // A prefix that some form does not compute any more need not be carried.
    let computed = |r: &Refusal| found.iter().all(|f| f.graph.nodes.iter().any(|n| n.name == r.node));
    refusals.retain(|r| r.rule != Rule::Prefix || computed(r));
    (found, refusals)
}

/// The graph with the reduction at `id` taken in another order, or as a recurrence. Nothing where neither is cheaper at any size.
///
/// # Errors
/// The condition that failed, where it could otherwise be.
fn rewrite(graph: &Rc<Graph>, id: NodeId) -> Result<Option<Rewriting>, Refusal> {
    let mut why = None;
    match in_one(graph, id) {
        Ok(None) => {}
        Err(refusal) => why = Some(refusal),
        done => return done,
    }
    if let Some(done) = distance::distance(graph, id) {
        return Ok(Some(done));
    }
    if let Some(done) = addends::apart(graph, id) {
        return Ok(Some(done));
    }
    match halves::halves(graph, id) {
        Ok(None) => why.map_or(Ok(None), Err),
        done => done,
    }
}

/// As one recurrence, or in another order.
fn in_one(graph: &Rc<Graph>, id: NodeId) -> Result<Option<Rewriting>, Refusal> {
    if let Some(done) = tropical::exchanged(graph, id) {
        return Ok(Some(done));
    }
    let forwards = |graph: &Rc<Graph>, id: NodeId| match running::rewrite(graph, id, Equal::First)? {
        None => site::rewrite(graph, id),
        done => Ok(done),
    };
    if let Some(Reversed { graph: other, id: counted, step }) = reversed(graph, id) {
        let other = Rc::new(other);
        let done = match is_position(graph, id) {
            // The last of equal ones, counted from the end, is the first.
            true => running::rewrite(&other, counted, Equal::Last),
            false => rewrite(&other, counted),
        };
        match done {
            Ok(Some(mut done)) => {
                done.steps.insert(0, step);
                return Ok(Some(done));
            }
            Ok(None) => {}
            Err(refusal) => return Err(Refusal { node: graph[id].name.clone(), ..refusal }),
        }
    }
    forwards(graph, id)
}

fn is_position(graph: &Graph, id: NodeId) -> bool {
    matches!(&graph[id].def, Def::Reduce(r) if matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin))
}

/// Whether the term reads nothing and stands nowhere.
fn is_constant(term: &Term) -> bool {
    match term {
        Term::Number(_) | Term::Param(_) | Term::Size(_) => true,
        Term::Unary(_, x) => is_constant(x),
        Term::Binary(_, x, y) => is_constant(x) && is_constant(y),
        Term::Select(c, x, y) => [c, x, y].into_iter().all(|t| is_constant(t)),
        Term::Position(_) | Term::Read(..) | Term::Old(..) | Term::Argument(_) => false,
    }
}

/// Whether a condition says no more than that a sum is over something: see [`guard`].
fn is_guard(graph: &Graph, c: &Term) -> bool {
    let any = |n: &NodeId| matches!(&graph[*n].def, Def::Reduce(r) if *r == guard::any_of(&r.over, &r.filter));
    let (mut made, mut else_read) = (false, false);
    c.visit(&mut |t| match t {
        Term::Read(n, _) if any(n) => made = true,
        Term::Read(..) => else_read = true,
        Term::Binary(BinaryOp::Gt, a, b) if matches!((&**a, b.as_number()), (Term::Size(_), Some(0.0))) => made = true,
        _ => {}
    });
    is_constant(c) || made && !else_read
}

/// The node whose elements a node has unless they are 0 because a sum is over nothing: what stays of a sum that left
/// another which may be.
fn guarded(graph: &Graph, node: &Node) -> Option<NodeId> {
    let Def::Map(Term::Select(c, x, zero)) = &node.def else { return None };
    let (Term::Read(n, at), Term::Number(0.0)) = (&**x, &**zero) else { return None };
    let same = graph[*n].axes == node.axes && at.iter().zip(&node.axes).all(|(e, i)| e.as_var() == Some(*i));
    (is_guard(graph, c) && same).then_some(*n)
}

/// A number that graphs share if their outputs are computed alike, whatever their nodes are called and wherever constant
/// factors stand.
fn shape(graph: &Graph) -> u64 {
    let mut shapes: Vec<u64> = vec![0; graph.nodes.len()];
    for id in graph.ids() {
        let node = &graph[id];
        if let Some(n) = guarded(graph, node) {
            shapes[id.0 as usize] = shapes[n.0 as usize];
            continue;
        }
        let known = |n: NodeId| NodeId(shapes[n.0 as usize] as u32);
        let mut parts = vec![format!("{:?}", node.axes)];
        // Factors have no order.
        let mut term = |t: &Term| {
            let p = Product::of(t, graph);
            let mut factors: Vec<String> = p
                .factors
                .iter()
                .filter(|f| !is_constant(&f.0))
                .map(|(f, power)| format!("{:?} {power}", f.rename_nodes(&known)))
                .collect();
            let exponents = p.exponent.iter().chain(&p.exponent2);
            factors.extend(exponents.map(|(c, e)| format!("exp {c} {:?}", e.rename_nodes(&known))));
            factors.sort();
            parts.push(format!("{factors:?}"));
        };
        match &node.def {
            Def::Input => parts.push(node.name.clone()),
            Def::Map(t) => term(t),
            Def::Reduce(r) => {
                term(&r.body);
                r.filter.iter().filter(|t| !is_guard(graph, t)).for_each(&mut term);
                parts.push(format!("{:?} {:?}", r.monoid, r.over));
            }
            Def::Iterative { initial, step, .. } => {
                initial.iter().for_each(|(_, t)| term(t));
                term(step);
            }
        }
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        shapes[id.0 as usize] = hasher.finish();
    }
    let mut hasher = DefaultHasher::new();
    graph.outputs.iter().for_each(|o| shapes[o.0 as usize].hash(&mut hasher));
    hasher.finish()
}
