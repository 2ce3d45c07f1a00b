//! Distribution: `Σ_{j,k,l} a(i,j)·b(j,k)·c(k,l)·x(l) = Σ_j a(i,j)·Σ_k b(j,k)·Σ_l c(k,l)·x(l)`.
//!
//! Condition: what joins the factors distributes over the reduction. · does over a sum; + does over a maximum and a minimum,
//! and so does · with factors that cannot be negative, and an extremum of two. Then the factors that do not carry an index
//! leave the reduction over it, which is made first, an intermediate of what else its factors carry. Over nothing
//! an inner reduction has the identity, which stays so under a finite factor or addend; where that is not known, sizes
//! guard the result. Indices of conditions are reduced last, all together and under these conditions, and so are those of
//! factors that are read only where they hold.
//!
//! Rounding: every partial sum of the nest is a sum of products like those of the flat one, of fewer terms each, so its
//! error has the same bound or a smaller one. Sums of integers stay as they are: they are exact, but those of parts may leave the type.
//!
//! Which order is best depends on sizes ([`order`]), so these are alternatives and no replacement.

mod build;
mod factors;
mod order;

use super::{apart, filter, guard};
use crate::{Def, Graph, NodeId, Reduction, Refusal, Rule, Step, Term, show};
use einloom_cascade::{DType, IndexId, Monoid, SizeExpr};
use factors::Joined;
use order::{Order, Problem, Set};
use std::collections::BTreeSet;

/// More forms than this are not offered.
const MAX_FORMS: usize = 8;

/// A graph in which reductions are nested, and how it came about.
pub(super) struct Nested {
    pub name: String,
    pub graph: Graph,
    pub steps: Vec<Step>,
    /// Operations of the reductions that may be nested, and elements of intermediates as operations.
    pub cost: SizeExpr,
}

/// Why not, and what would help.
type Why = (String, Option<String>);

/// A reduction that may be nested, and how.
struct Site {
    id: NodeId,
    joined: Joined,
    factors: Vec<Term>,
    filter: Vec<Term>,
    /// Per bit the index.
    indices: Vec<IndexId>,
    flat: SizeExpr,
    orders: Vec<Order>,
}

/// The forms in which reductions are nested, and why others are not.
pub(super) fn alternatives(written: &Graph) -> (Vec<Nested>, Vec<Refusal>) {
    let (mut sites, mut refusals) = (vec![], vec![]);
    for id in written.ids() {
        match site(written, id) {
            Ok(found) => sites.extend(found),
            Err(refusal) => refusals.push(*refusal),
        }
    }
    // All at once, in the first, second, … order of each; where there are several, each of them alone as well.
    let most = sites.iter().map(|s| s.orders.len()).max().unwrap_or(0);
    let mut choices: Vec<Vec<Option<usize>>> =
        (0..most).map(|k| sites.iter().map(|s| Some(k.min(s.orders.len() - 1))).collect()).collect();
    if sites.len() > 1 {
        choices.extend((0..sites.len()).map(|k| (0..sites.len()).map(|j| (j == k).then_some(0)).collect()));
    }
    choices.truncate(MAX_FORMS);
    (choices.iter().map(|choice| nested(written, &sites, choice)).collect(), refusals)
}

/// The graph with each site in the given one of its orders.
fn nested(written: &Graph, sites: &[Site], choice: &[Option<usize>]) -> Nested {
    let mut out = Nested { name: String::new(), graph: written.clone(), steps: vec![], cost: SizeExpr::constant(0) };
    let mut names = vec![];
    // Later ones first: numbers of earlier ones stay.
    for (site, k) in sites.iter().zip(choice).rev() {
        let Some(order) = k.map(|k| &site.orders[k]) else {
            out.cost = out.cost.add(&site.flat);
            continue;
        };
        out.cost = out.cost.add(&order.cost);
        let (steps, name) = site.build(&mut out.graph, order);
        out.steps.splice(0..0, steps);
        names.insert(0, name);
    }
    out.name = names.join("; ");
    out
}

/// The reduction at `id`, if it is cheaper nested. Nothing where it is not, whatever the sizes.
///
/// # Errors
/// The condition that failed, where it would otherwise be.
fn site(graph: &Graph, id: NodeId) -> Result<Option<Site>, Box<Refusal>> {
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return Ok(None) };
    let member = graph.recurrences.iter().any(|r| r.members.contains(&id));
    let ranks = node.axes.iter().zip(&node.extents).all(|(&i, e)| *e == SizeExpr::rank(graph.cascade[i].rank));
    if r.over.len() < 2 || member || !ranks || matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) {
        return Ok(None);
    }
    // Where each factor carries one index the sum is a product of sums in every form.
    let whole_sum = r.monoid == Monoid::Sum && node.dtype != Some(DType::I32);
    let groups = if whole_sum { apart::groups(r, &r.body).map_or(1, |g| g.len()) } else { 1 };
    if groups == r.over.len() {
        return Ok(None);
    }
    let neutral = match r.monoid {
        Monoid::Sum => 0.0,
        Monoid::Max => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let distributes = matches!(r.monoid, Monoid::Sum | Monoid::Max | Monoid::Min);
    let (body, conditions) = match &r.body {
        Term::Select(..) if distributes => filter::stripped(graph, r, neutral),
        _ => (r.body.clone(), r.filter.clone()),
    };
    let joined = Joined::of(r.monoid, &body);
    let whole = joined.factors(graph, &body, false);
    let found = |factors: &[Term], last: &BTreeSet<IndexId>, signed: bool| {
        problem(graph, id, r, joined, factors, last, signed).map(|(p, indices)| (p.orders(), p.flat(), indices))
    };
    let refused = |(reason, hint): Why| {
        if groups > 1 {
            return Ok(None);
        }
        let rank = |&i: &IndexId| graph.cascade[graph.cascade[i].rank].name.clone();
        Err(Box::new(Refusal {
            rule: Rule::Distribute,
            statement: node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: r.over.iter().map(rank).collect(),
            reason,
            hint,
            span: node.span,
        }))
    };
    let cheaper = |factors: &[Term], last: &BTreeSet<IndexId>, signed: bool| {
        found(factors, last, signed).is_some_and(|f| !f.0.is_empty())
    };
    let none = BTreeSet::new();
    let (last, why_last) = kept_last(graph, r, &whole, &conditions);
    if !cheaper(&whole, &none, false) {
        let split = joined.factors(graph, &body, true);
        let apart = split.len() > whole.len() && distributes && cheaper(&split, &none, false);
        return if apart { refused(exponents(graph, &whole, &split)) } else { Ok(None) };
    }
    if !distributes {
        let reason = format!("nothing is known to distribute over {}", r.monoid.name(&graph.cascade));
        return refused((reason, Some("sums do with products, and extrema with sums".into())));
    }
    if !whole.iter().all(|f| f.as_number().is_none_or(f64::is_finite)) {
        return Ok(None);
    }
    let integer = |t: &&Term| factors::made_of(t, graph, &|d| d.is_integer());
    if r.monoid == Monoid::Sum
        && joined == Joined::Times
        && (node.dtype == Some(DType::I32) || whole.iter().any(|t| integer(&t)))
    {
        let shown = whole.iter().find(integer).map_or(String::new(), |t| show::term(graph, t));
        let reason =
            format!("{shown} is an integer, and sums of integers are kept in 32 bits, which those of parts may leave");
        return refused((reason, Some("inputs of floating-point numbers would do".into())));
    }
    if let Some((orders, flat, indices)) = found(&whole, &last, true).filter(|f| !f.0.is_empty()) {
        return Ok(Some(Site { id, joined, factors: whole, filter: conditions, indices, flat, orders }));
    }
    if !cheaper(&whole, &last, false) {
        return refused(why_last);
    }
    let negative = whole.iter().find(|f| !joined.may_join(r.monoid, f, graph));
    let shown = negative.map_or(String::new(), |t| show::term(graph, t));
    let name = r.monoid.name(&graph.cascade);
    let reason = format!("{shown} may be negative, and · distributes over {name} only with what cannot be");
    refused((reason, Some(format!("abs, exp and squares cannot be; + distributes over {name} in any case"))))
}

/// The product as sets of indices; nothing where there are too many of these.
fn problem(
    graph: &Graph,
    id: NodeId,
    r: &Reduction,
    joined: Joined,
    factors: &[Term],
    last: &BTreeSet<IndexId>,
    signed: bool,
) -> Option<(Problem, Vec<IndexId>)> {
    let node = &graph[id];
    let mut all: BTreeSet<IndexId> = r.over.iter().chain(&node.axes).copied().collect();
    factors.iter().for_each(|f| f.indices(&mut all));
    let indices: Vec<IndexId> = all.into_iter().collect();
    if indices.len() > Set::BITS as usize || factors.len() < 2 {
        return None;
    }
    let bit = |i: &IndexId| indices.iter().position(|o| o == i).map_or(0, |k| 1 << k);
    let set = |list: &mut dyn Iterator<Item = IndexId>| list.fold(0, |all, i| all | bit(&i));
    let may = |f: &Term| !signed || joined.may_join(r.monoid, f, graph);
    let problem = Problem {
        factors: factors.iter().map(|f| (set(&mut factors::indices(f).into_iter()), may(f))).collect(),
        over: set(&mut r.over.iter().copied()),
        last: set(&mut last.iter().copied()),
        axes: set(&mut node.axes.iter().copied()),
        ranks: indices.iter().map(|&i| graph.cascade[i].rank).collect(),
    };
    Some((problem, indices))
}

/// The reduced indices that conditions tie together, and what is said about that.
fn kept_last(graph: &Graph, r: &Reduction, factors: &[Term], conditions: &[Term]) -> (BTreeSet<IndexId>, Why) {
    let mut tied = BTreeSet::new();
    conditions.iter().for_each(|c| c.indices(&mut tied));
    let mut last = tied.clone();
    for f in factors.iter().filter(|f| !conditions.is_empty() && !factors::reads_everywhere(f, graph)) {
        let own = factors::indices(f);
        // What a gather reads is a number under a condition, and may be none without.
        if factors::gathers(f) || own.iter().any(|i| tied.contains(i)) {
            last.extend(own);
        }
    }
    last.retain(|i| r.over.contains(i));
    let names = last.iter().map(|&i| graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ");
    let shown = conditions.iter().map(|c| show::term(graph, c)).collect::<Vec<_>>().join(" and ");
    let reason = format!("{shown} is a condition on what is reduced, so {names} are reduced together");
    (last, (reason, Some("sums in sums, each under the conditions on its own index, would be taken one by one".into())))
}

/// That an exponential is one factor.
fn exponents(graph: &Graph, whole: &[Term], split: &[Term]) -> Why {
    let shown = whole.iter().find(|t| !split.contains(t)).map_or(String::new(), |t| show::term(graph, t));
    let reason = format!("{shown} is one factor: a part of its exponent alone may overflow where the whole does not");
    (reason, Some("written as a product of exponentials it would be several".into()))
}

/// Where the result is what the inner reductions make, and where it is over nothing.
fn guarded(graph: &Graph, inner: &[IndexId], value: Term, identity: f64) -> Term {
    guard::where_some(guard::some_positions(&graph.cascade, inner), value, identity)
}
