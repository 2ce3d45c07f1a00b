//! Reductions over one position: `sum(v: v == y[t]) z[t,v]` is `z[t, y[t]]`, where that is a position of `v`, and else the reduction over
//! nothing. Such a position is read, and the others are gone past.
//!
//! Conditions: it is a sum, a product or an extremum; one of its filters is an equation of an index that it is over with a whole number
//! which does not move with that index: positions, constants, sizes, and an element of an integer tensor once, which no reduction over the
//! same rank has made (what attains an extremum goes along with it: [`super::attained`]). It is no member of a recurrence, whose slices
//! are in no memory to be read from.

use super::{filter, inline};
use crate::{Def, Graph, Node, NodeId, Reduction, Refusal, Rule, Step, Term, product, show};
use einloom_cascade::{BinaryOp, DType, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};

/// The position that an equation leaves.
struct Place {
    /// To read at.
    at: IndexExpr,
    /// The same as a value.
    value: Term,
    /// What must hold for it to be a position of the index.
    within: Vec<Term>,
}

/// The graph with equations solved, what was done, and what was not.
pub(super) fn picked(graph: &Graph) -> (Graph, Vec<Step>, Vec<Refusal>) {
    let (mut out, mut steps, mut refusals) = (graph.clone(), vec![], vec![]);
    for id in graph.ids().filter(|id| !graph.recurrences.iter().any(|r| r.members.contains(id))) {
        let node = &graph[id];
        let Def::Reduce(written) = &node.def else { continue };
        let Some((def, why)) = solved(graph, node, written) else {
            refusals.extend(between(graph, node, written));
            continue;
        };
        steps.push(Step {
            rule: Rule::Pick,
            statement: node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: written.over.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect(),
            why,
            before: show::reduction(graph, written),
            after: match &def {
                Def::Reduce(r) => show::reduction(graph, r),
                Def::Map(t) => show::term(graph, t),
                _ => String::new(),
            },
        });
        out.nodes[id.0 as usize].def = def;
    }
    (out, steps, refusals)
}

/// What is said of an equation of a position with numbers that need not be whole.
fn between(graph: &Graph, node: &Node, r: &Reduction) -> Option<Refusal> {
    let of = |f: &Term| {
        let Term::Binary(BinaryOp::Eq, a, b) = f else { return None };
        let (i, other) = match (&**a, &**b) {
            (Term::Position(i), other) | (other, Term::Position(i)) => (*i, other),
            _ => return None,
        };
        let Term::Read(n, _) = other else { return None };
        let real = graph[*n].def == Def::Input && graph[*n].dtype.is_none_or(DType::is_float);
        (real && r.over.contains(&i) && !other.mentions(&[i])).then(|| (i, *n, show::term(graph, other)))
    };
    let (i, n, number) = r.filter.iter().find_map(of)?;
    let name = &graph.cascade[i].name;
    Some(Refusal {
        rule: Rule::Pick,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: vec![graph.cascade[graph.cascade[i].rank].name.clone()],
        reason: format!("{number} need be no whole number, so it is compared with every position of {name}"),
        hint: Some(format!("declared as integers, such as `{}: i32`, it would be read at one position", graph[n].name)),
        span: node.span,
    })
}

/// The reduction without the indices that equations leave one position of, and which these are.
fn solved(graph: &Graph, node: &Node, written: &Reduction) -> Option<(Def, String)> {
    let neutral = match written.monoid {
        Monoid::Sum => 0.0,
        Monoid::Prod => 1.0,
        Monoid::Max => f64::NEG_INFINITY,
        Monoid::Min => f64::INFINITY,
        Monoid::ArgMax | Monoid::ArgMin | Monoid::Custom(_) => return None,
    };
    // A sum of truths is a count, which its element is not.
    if node.dtype == Some(DType::B1) || is_truth(graph, &written.body) {
        return None;
    }
    let (body, filter) = filter::stripped(graph, written, neutral);
    let mut r = Reduction { body, filter, ..written.clone() };
    let mut told = vec![];
    while let Some((i, equation, place)) = equation(graph, &r) {
        let name = |i: IndexId| graph.cascade[i].name.clone();
        told.push(format!("{} leaves {} one position, if it is one", show::term(graph, &r.filter[equation]), name(i)));
        r.filter.remove(equation);
        r.over.retain(|&o| o != i);
        // Asked first: what reads at the position may be asked only where it is one. Conditions that do become a choice.
        let (mut filter, mut rest) = (place.within.clone(), vec![]);
        for f in r.filter.drain(..) {
            if f.mentions(&[i]) { rest.push(placed(&f, i, &place)?) } else { filter.push(f) }
        }
        r.filter = filter;
        r.body = chosen(rest, placed(&r.body, i, &place)?, neutral);
    }
    if told.is_empty() {
        return None;
    }
    let why = told.join(", and ");
    Some(match r.over.is_empty() {
        true => (Def::Map(chosen(r.filter, r.body, neutral)), why),
        false => (Def::Reduce(r), why),
    })
}

/// The body where all conditions hold, and else what is neutral.
fn chosen(conditions: Vec<Term>, body: Term, neutral: f64) -> Term {
    match conditions.into_iter().reduce(|a, b| binary(BinaryOp::And, a, b)) {
        Some(c) => Term::Select(Box::new(c), Box::new(body), Box::new(Term::Number(neutral))),
        None => body,
    }
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// The term at the position.
fn placed(t: &Term, i: IndexId, place: &Place) -> Option<Term> {
    fn values(t: &Term, i: IndexId, value: &Term) -> Term {
        if *t == Term::Position(i) { value.clone() } else { t.map_children(&mut |t| values(t, i, value)) }
    }
    values(t, i, &place.value).substitute(&|o| (o == i).then(|| place.at.clone()))
}

/// The first index that an equation solves for, the equation's place among the filters, and the position.
fn equation(graph: &Graph, r: &Reduction) -> Option<(IndexId, usize, Place)> {
    r.over.iter().find_map(|&i| {
        let solve = |(k, f): (usize, &Term)| match f {
            Term::Binary(BinaryOp::Eq, a, b) => Some((i, k, place(graph, i, a, b)?)),
            _ => None,
        };
        r.filter.iter().enumerate().find_map(solve)
    })
}

/// Where `a == b` has index `i`.
fn place(graph: &Graph, i: IndexId, a: &Term, b: &Term) -> Option<Place> {
    let mut difference = product::sum(a);
    product::append(&mut difference, product::sum(b), -1.0);
    let (own, _) = difference.remove(difference.iter().position(|(_, t)| *t == Term::Position(i))?);
    if own.abs() != 1.0 || difference.iter().any(|(_, t)| t.mentions(&[i])) {
        return None;
    }
    difference.iter_mut().for_each(|(c, _)| *c *= -own);
    let (mut at, mut elements) = (IndexExpr::fixed(SizeExpr::default()), 0);
    let mut from_zero = true;
    for (c, t) in &difference {
        let whole = (c.fract() == 0.0 && c.abs() < WIDEST).then_some(*c as i64)?;
        let coefficient = SizeExpr::constant(whole);
        from_zero &= whole > 0;
        match t {
            // `product::sum` counts in ones.
            Term::Number(v) if *v == 1.0 => at.offset = at.offset.add(&coefficient),
            Term::Size(s) => at.offset = at.offset.add(&s.mul(&coefficient)),
            Term::Position(j) => at.push(coefficient, IndexAtom::Var(*j)),
            Term::Read(n, places) => {
                let node = &graph[*n];
                let dtype = node.dtype.filter(|d| d.is_integer() && *d != DType::B1)?;
                from_zero &= matches!(dtype, DType::U4 | DType::U8);
                elements += 1;
                if elements > 1 || whole.abs() != 1 || goes_along(graph, i, t) {
                    return None;
                }
                at.push(coefficient, IndexAtom::Gather { tensor: node.tensor?, at: places.clone() });
            }
            _ => return None,
        }
    }
    let rank = graph.cascade[i].rank;
    let value = [a, b].into_iter().zip([b, a]).find(|(x, _)| **x == Term::Position(i)).map(|(_, y)| y.clone());
    let value = value.unwrap_or_else(|| product::sum_term(&difference));
    let mut within = vec![];
    // A position of the same rank is one.
    if at.as_var().is_none_or(|j| graph.cascade[j].rank != rank) {
        if !from_zero {
            within.push(binary(BinaryOp::Ge, value.clone(), Term::Number(0.0)));
        }
        within.push(binary(BinaryOp::Lt, value.clone(), Term::Size(SizeExpr::rank(rank))));
    }
    Some(Place { at, value, within })
}

/// Numbers below this and their sums with positions are exact.
const WIDEST: f64 = 1_048_576.0;

/// Whether a reduction over the rank of an index tells the position.
fn goes_along(graph: &Graph, i: IndexId, t: &Term) -> bool {
    let rank = graph.cascade[i].rank;
    let over_it =
        |n: NodeId| matches!(&graph[n].def, Def::Reduce(r) if r.over.iter().any(|&o| graph.cascade[o].rank == rank));
    inline::completed(graph, t).into_iter().any(over_it)
}

fn is_truth(graph: &Graph, t: &Term) -> bool {
    match t {
        Term::Binary(op, ..) => op.is_predicate(),
        Term::Unary(op, _) => *op == einloom_cascade::UnaryOp::Not,
        Term::Read(n, _) => graph[*n].dtype == Some(DType::B1),
        _ => false,
    }
}
