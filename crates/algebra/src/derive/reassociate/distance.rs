//! Weights that grow with the distance: `Σ_{n <= m} (m - n)·g(n) = Σ_{u < m} Σ_{n <= u} g(n)`, for each n is seen by as many u as
//! it is away, and `C(m - n, k)` is k such sums. So a polynomial of the distance is a sum of prefixes of prefixes, and no large numbers
//! are subtracted from each other as in `m·Σ g - Σ n·g`.
//!
//! Conditions: the sum is over a prefix `n <= m` or `n < m` of one rank; some factors are polynomials of the distance with numbers for
//! coefficients, of a degree up to 3 together; no other factor carries both; and what decays besides, `w(m, n)`, splits at every position
//! between, `w(m, n) = w(m, u)·w(u, n)`, as a power whose exponent is a difference `h(m) - h(n)` does. All these sums are
//! recurrences then.

use super::insert::{fresh_index, insert, placeholder};
use super::prefix::Prefix;
use super::weights::{Body, Weight, canonical, moved};
use super::{Rewriting, rewrite};
use crate::derive::{filter, inline};
use crate::product;
use crate::{Def, Graph, Node, NodeId, Product, Reduction, Rule, Step, Streaming, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, UnaryOp};
use std::rc::Rc;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// The highest power of the distance that is taken apart.
const HIGHEST: usize = 3;

/// The value of a polynomial of two positions there, and a bound on its degree; nothing if it is none.
fn at(t: &Term, m: (IndexId, f64), n: (IndexId, f64)) -> Option<(f64, usize)> {
    let go = |t: &Term| at(t, m, n);
    Some(match t {
        Term::Number(v) => (*v, 0),
        Term::Position(i) if *i == m.0 => (m.1, 1),
        Term::Position(i) if *i == n.0 => (n.1, 1),
        Term::Unary(UnaryOp::Neg, x) => go(x).map(|(v, d)| (-v, d))?,
        Term::Binary(op, a, b) => {
            let ((x, d), (y, e)) = (go(a)?, go(b)?);
            match op {
                BinaryOp::Add => (x + y, d.max(e)),
                BinaryOp::Sub => (x - y, d.max(e)),
                BinaryOp::Mul => (x * y, d + e),
                BinaryOp::Div if e == 0 && y != 0.0 => (x / y, d),
                BinaryOp::Pow if e == 0 && y.fract() == 0.0 && (0.0..=HIGHEST as f64).contains(&y) => {
                    (x.powf(y), d * y as usize)
                }
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// The values of a polynomial of the distance `m - n` at 0, 1, … `HIGHEST + 1`; nothing if it is none, or of too high a degree.
fn of_distance(t: &Term, m: IndexId, n: IndexId) -> Option<Vec<f64>> {
    let value = |x: usize, y: usize| at(t, (m, x as f64), (n, y as f64)).map(|v| v.0);
    if !(1..=HIGHEST).contains(&at(t, (m, 0.0), (n, 0.0))?.1) {
        return None;
    }
    // A polynomial of such a degree that is the same along the diagonal on this grid is so everywhere.
    let grid = 0..=HIGHEST + 1;
    let same = |x: usize, y: usize| Some((value(x, y)? - value(x + 1, y + 1)?).abs() < 1e-9);
    let all = grid.clone().flat_map(|x| (0..=HIGHEST + 1).map(move |y| (x, y))).all(|(x, y)| same(x, y) == Some(true));
    if all { grid.map(|d| value(d, 0)).collect() } else { None }
}

/// The coefficients `b_k` of `p(d) = Σ b_k·C(d, k)`, from the values at 0, 1, …: its differences at 0.
fn binomial(mut values: Vec<f64>) -> Vec<f64> {
    let mut out = vec![];
    while let Some(&first) = values.first() {
        out.push(first);
        values = values.windows(2).map(|w| w[1] - w[0]).collect();
    }
    while out.last().is_some_and(|b| b.abs() < 1e-9) {
        out.pop();
    }
    out
}

/// The graph with the sum at `id` as sums over prefixes, carried from position to position. Nothing where that cannot be.
pub(super) fn distance(shared: &Rc<Graph>, id: NodeId) -> Option<Rewriting> {
    let graph: &Graph = shared;
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let rounds = inline::rounds(node) && node.tensor.is_none() || node.dtype == Some(DType::I32);
    if r.monoid != Monoid::Sum || rounds || graph.recurrences.iter().any(|r| r.members.contains(&id)) {
        return None;
    }
    let (body, filter) = filter::stripped(graph, r, 0.0);
    let body = super::site::open_maps(graph, &body, &r.over, false);
    let tie = |f: &Term| f.mentions(&r.over) && f.mentions(&node.axes);
    let (tying, others): (Vec<Term>, Vec<Term>) = filter.into_iter().partition(tie);
    let p = Prefix::of(graph, &tying, &r.over).ok().filter(|p| matches!(p.offset, 0 | -1))?;
    let (n, m) = (p.of, p.up_to);
    if graph.cascade[m].rank != graph.cascade[n].rank || !node.axes.contains(&m) {
        return None;
    }
    let mut whole = Body::of(&body, graph);
    let mut shown = vec![];
    let mut values = vec![1.0; HIGHEST + 2];
    whole.factors.retain(|(t, power)| {
        let whole = power.fract() == 0.0 && *power > 0.0;
        let Some(own) = of_distance(t, m, n).filter(|_| whole) else { return true };
        values.iter_mut().zip(own).for_each(|(v, own)| *v *= own.powf(*power));
        shown.push((t.clone(), *power));
        false
    });
    // Of what is strictly before each position sees those that are one less away.
    if p.offset == -1 {
        values.remove(0);
    } else {
        values.pop();
    }
    let powers: f64 =
        shown.iter().map(|(t, power)| power * at(t, (m, 0.0), (n, 0.0)).map_or(0.0, |d| d.1 as f64)).sum();
    if shown.is_empty() || powers > HIGHEST as f64 {
        return None;
    }
    let coefficients = binomial(values);
    let both = |t: &Term| t.mentions(&[m]) && t.mentions(&[n]);
    if whole.factors.iter().any(|(t, _)| both(t)) || others.iter().any(|t| t.mentions(&[m])) {
        return None;
    }
    let (inside, outside): (Vec<_>, Vec<_>) = whole.factors.into_iter().partition(|(t, _)| t.mentions(&[n]));
    let splits = |w: &Weight| {
        let here = moved(&w.exponent, n, &IndexExpr::var(m), graph).map(|s| canonical(s, graph));
        !w.exponent.iter().any(|(_, t)| both(t)) && here.is_some_and(|s| s.is_empty())
    };
    let (decays, rest): (Vec<Weight>, Vec<Weight>) =
        whole.weights.into_iter().partition(|w| w.exponent.iter().any(|(_, t)| t.mentions(&[m])));
    if !decays.iter().all(splits) {
        return None;
    }
    let mut g = graph.clone();
    let u = fresh_index(&mut g, m);
    let part = |what: &str, over: IndexId, tied: Vec<Term>, body: Term| {
        let name = crate::flatten::fresh_name(&graph.nodes, &format!("{}.{what}", node.name));
        let streaming = Streaming::default();
        let def = Def::Reduce(Reduction { monoid: Monoid::Sum, over: vec![over], filter: tied, body, streaming });
        Node { name, def, tensor: None, dtype: None, ..node.clone() }
    };
    let weighed = |weights: Vec<Weight>, factors: Vec<(Term, f64)>| Body { coefficient: 1.0, factors, weights }.term();
    let sum = part(
        "near",
        n,
        tying.iter().cloned().chain(others).collect(),
        weighed(decays.iter().cloned().chain(rest).collect(), inside),
    );
    let read_at = |k: usize, i: IndexId| {
        Term::Read(placeholder(k), node.axes.iter().map(|&a| IndexExpr::var(if a == m { i } else { a })).collect())
    };
    let of_u = |w: &Weight| {
        let exponent = moved(&w.exponent, n, &IndexExpr::var(u), &g)?;
        Some(Weight { base: w.base.clone(), exponent })
    };
    let decays = decays.iter().map(of_u).collect::<Option<Vec<_>>>()?;
    let mut parts = vec![sum];
    let mut value = vec![(coefficients[0] * whole.coefficient, read_at(0, m))];
    for (k, b) in coefficients.iter().enumerate().skip(1) {
        let before = binary(BinaryOp::Lt, Term::Position(u), Term::Position(m));
        let what = if k == 1 { "far".to_string() } else { format!("far{k}") };
        parts.push(part(&what, u, vec![before], weighed(decays.clone(), vec![(read_at(k - 1, u), 1.0)])));
        value.push((b * whole.coefficient, read_at(k, m)));
    }
    value.retain(|(b, _)| *b != 0.0);
    let mut value = product::sum_term(&value);
    if !outside.is_empty() {
        value = binary(BinaryOp::Mul, value, weighed(vec![], outside));
    }
    let [name_n, name_m] = [n, m].map(|i| &graph.cascade[i].name);
    let factor = Product { factors: shown, ..Product::one() }.term();
    let mut steps = vec![Step {
        rule: Rule::Prefix,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: vec![graph.cascade[graph.cascade[n].rank].name.clone()],
        why: format!(
            "{} is a polynomial of the distance: each {name_n} is seen from as many positions up to {name_m} as it is away, and each pair of these as often as there are pairs",
            show::term(graph, &factor)
        ),
        before: show::reduction(graph, r),
        after: show::term(
            &Graph { nodes: shown_nodes(graph, &parts), ..graph.clone() },
            &named(&value, graph.nodes.len()),
        ),
    }];
    let made = insert(&mut g, id, parts, Node { def: Def::Map(value), ..node.clone() });
    // The later one first: the earlier keeps its number.
    for part in made.into_iter().rev() {
        let done = rewrite(&Rc::new(g), part).ok().flatten()?;
        g = done.graph;
        steps.extend(done.steps);
    }
    Some(Rewriting { exchanged: vec![], graph: g, steps })
}

/// The nodes of a graph and new ones after them.
fn shown_nodes(graph: &Graph, new: &[Node]) -> Vec<Node> {
    graph.nodes.iter().chain(new).cloned().collect()
}

/// The term with new nodes by their numbers there.
fn named(t: &Term, first: usize) -> Term {
    t.rename_nodes(&|n| match u32::MAX - n.0 {
        k if (k as usize) <= HIGHEST => NodeId(first as u32 + k),
        _ => n,
    })
}
