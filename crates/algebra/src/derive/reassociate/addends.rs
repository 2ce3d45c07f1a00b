//! Sums of products over a prefix: `Σ_{n <= m} (a(m)·b(n) + c(m)·d(n))·f(n) = a(m)·Σ b·f + c(m)·Σ d·f`, each of which is a recurrence.
//!
//! Conditions: the sum is over a prefix of positions; one factor of its body carries both n and m and is a sum; no addend of that has
//! a factor that carries both; every sum over one addend is carried from position to position then; and what would cancel between the
//! addends of one element has been rounded there as well. That is so where each addend is a product of two values at least, which
//! as written is rounded before it is added, or where no addend can be negative. `x[m] - x[n]` has no such addends: it may be exact,
//! and small where `x[m]·Σ f` and `Σ x·f` are large.

use super::insert::{insert, placeholder};
use super::prefix::Prefix;
use super::weights::Body;
use super::{Rewriting, rewrite};
use crate::derive::polynomial::flat;
use crate::derive::{filter, inline};
use crate::{Def, Graph, Node, NodeId, Product, Reduction, Rule, Step, Term, product, show, sign};
use einloom_cascade::{DType, IndexExpr, IndexId, Monoid};
use std::rc::Rc;

/// More addends than this are not made.
const MOST: usize = 4;

/// The graph with the sum at `id` as one sum per addend, all carried from position to position. Nothing where that cannot be.
pub(super) fn apart(shared: &Rc<Graph>, id: NodeId) -> Option<Rewriting> {
    let graph: &Graph = shared;
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let rounds = inline::rounds(node) && node.tensor.is_none() || node.dtype == Some(DType::I32);
    if r.monoid != Monoid::Sum || rounds || graph.recurrences.iter().any(|r| r.members.contains(&id)) {
        return None;
    }
    let (body, filter) = filter::stripped(graph, r, 0.0);
    let body = super::site::open_maps(graph, &body, &r.over, false);
    let tying: Vec<Term> = filter.iter().filter(|f| f.mentions(&r.over) && f.mentions(&node.axes)).cloned().collect();
    let p = Prefix::of(graph, &tying, &r.over).ok()?;
    let both = |t: &Term| t.mentions(&[p.of]) && t.mentions(&[p.up_to]);
    let mut rest = Body::of(&body, graph);
    let mut mixed: Vec<usize> = (0..rest.factors.len()).filter(|&k| both(&rest.factors[k].0)).collect();
    let (k, None) = (mixed.pop()?, mixed.pop()) else { return None };
    let (sum, power) = rest.factors.remove(k);
    let addends = addends(&sum, graph, &both).filter(|_| power == 1.0)?;
    let whole = rest.term();
    let at: Vec<IndexExpr> = node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
    let (mut parts, mut value): (Vec<Node>, product::Sum) = (vec![], vec![]);
    for (k, (number, addend)) in addends.into_iter().enumerate() {
        let body = Product::of(&whole, graph).times(&addend).term();
        let name = crate::flatten::fresh_name(&graph.nodes, &format!("{}.addend{}", node.name, k + 1));
        let def = Def::Reduce(Reduction { body, filter: filter.clone(), ..r.clone() });
        parts.push(Node { name, def, tensor: None, dtype: None, ..node.clone() });
        value.push((number, Term::Read(placeholder(k), at.clone())));
    }
    let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
    let [n, m] = [p.of, p.up_to].map(|i: IndexId| graph.cascade[i].name.as_str());
    let step = Step {
        rule: Rule::Reassociate,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: vec![graph.cascade[graph.cascade[p.of].rank].name.clone()],
        why: format!(
            "each addend of {} is a product of a function of {m} and one of {n}, so the sum is one of a sum for each",
            show::term(graph, &sum)
        ),
        before: show::reduction(graph, r),
        after: names.join(" + "),
    };
    let mut steps = vec![];
    let mut g = graph.clone();
    let made = insert(&mut g, id, parts, Node { def: Def::Map(product::sum_term(&value)), ..node.clone() });
    // The later one first: the earlier keeps its number.
    for part in made.into_iter().rev() {
        let done = rewrite(&Rc::new(g), part).ok()??;
        g = done.graph;
        steps.splice(0..0, done.steps);
    }
    steps.insert(0, step);
    Some(Rewriting { exchanged: vec![], graph: g, steps })
}

/// The addends of a factor, each with its number; nothing if one joins both positions, or could cancel too late.
fn addends(sum: &Term, graph: &Graph, both: &impl Fn(&Term) -> bool) -> Option<Vec<(f64, Product)>> {
    let mut parts = vec![];
    flat(sum, 1.0, &mut parts);
    if !(2..=MOST).contains(&parts.len()) {
        return None;
    }
    let positive = parts.iter().all(|(number, t)| *number > 0.0 && sign::nonnegative(t, graph));
    let read = |(number, t): (f64, &Term)| {
        let p = Product::of(t, graph);
        let apart = p.exponent.is_empty() && p.exponent2.is_empty() && !p.factors.iter().any(|(t, _)| both(t));
        let rounded = p.factors.iter().filter(|(t, _)| !is_exact(t)).count() >= 2;
        (apart && (positive || rounded)).then_some((number, p))
    };
    parts.into_iter().map(read).collect()
}

/// Whether products with it are exact for all that is known: a number, a size or a position.
fn is_exact(t: &Term) -> bool {
    matches!(t, Term::Number(_) | Term::Size(_) | Term::Position(_))
}
