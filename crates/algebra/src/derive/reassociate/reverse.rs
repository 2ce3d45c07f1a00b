//! Suffixes: a reduction over all positions `n >= m + c` is one over all positions up to one, if both are counted from the end. What it
//! gives is read from the end again.

use super::fresh_index;
use super::insert::{insert, placeholder};
use super::prefix::bound;
use crate::product;
use crate::{Def, Graph, Node, NodeId, Reduction, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};

/// A graph in which the reduction at `id` is over a prefix.
pub(super) struct Reversed {
    pub graph: Graph,
    pub id: NodeId,
    pub step: Step,
}

/// The last position of an index's rank less that of another index of the same rank.
fn from_end(graph: &Graph, rank_of: IndexId, index: IndexId) -> IndexExpr {
    let last = SizeExpr::rank(graph.cascade[rank_of].rank).add(&SizeExpr::constant(-1));
    IndexExpr { terms: vec![(SizeExpr::constant(-1), IndexAtom::Var(index))], offset: last }
}

/// Counts the positions of a suffix from the end. `None` if the reduction is over none, or over one that begins before its position, or
/// where the two indices are of different ranks.
pub(super) fn reversed(graph: &Graph, id: NodeId) -> Option<Reversed> {
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return None };
    let &[n] = r.over.as_slice() else { return None };
    let tying = r.filter.iter().filter(|f| f.mentions(&[n]) && f.mentions(&node.axes) && !f.any_read(&|_| true));
    let [condition] = tying.collect::<Vec<_>>()[..] else { return None };
    let (false, Some((m, offset))) = bound(condition, n)? else { return None };
    if offset < 0 || !node.axes.contains(&m) || graph.cascade[m].rank != graph.cascade[n].rank {
        return None;
    }
    let mut g = graph.clone();
    let u = fresh_index(&mut g, m);
    let (of_n, of_m) = (from_end(&g, n, n), from_end(&g, m, u));
    let place = |i: IndexId| match i {
        i if i == n => Some(of_n.clone()),
        i if i == m => Some(of_m.clone()),
        _ => None,
    };
    let body = tidy(&r.body.substitute(&place)?);
    // n >= m + c, counted from the end.
    let mut up_to = Term::Position(u);
    if offset > 0 {
        up_to = Term::Binary(BinaryOp::Sub, Box::new(up_to), Box::new(Term::Number(offset as f64)));
    }
    let tied = Term::Binary(BinaryOp::Le, Box::new(Term::Position(n)), Box::new(up_to));
    let counted = |t: &Term| if t == condition { Some(tied.clone()) } else { t.substitute(&place) };
    let filter = r.filter.iter().map(counted).collect::<Option<Vec<_>>>()?;
    let reduction = Reduction { body, filter, ..r.clone() };
    let counted = Node {
        name: crate::flatten::fresh_name(&graph.nodes, &format!("{}.reversed", node.name)),
        axes: node.axes.iter().map(|&i| if i == m { u } else { i }).collect(),
        def: Def::Reduce(reduction.clone()),
        tensor: None,
        ..node.clone()
    };
    let back = from_end(&g, m, m);
    let at = node.axes.iter().map(|&i| if i == m { back.clone() } else { IndexExpr::var(i) }).collect();
    let mut value = Term::Read(placeholder(0), at);
    // A position is counted from the end itself.
    if matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) {
        let binary = |op, a: &Term, b: Term| Term::Binary(op, Box::new(a.clone()), Box::new(b));
        let last = SizeExpr::rank(graph.cascade[n].rank).add(&SizeExpr::constant(-1));
        let none = binary(BinaryOp::Lt, &value, Term::Number(0.0));
        let from_start = binary(BinaryOp::Sub, &Term::Size(last), value);
        value = Term::Select(Box::new(none), Box::new(Term::Number(-1.0)), Box::new(from_start));
    }
    let replaced = Node { def: Def::Map(value), ..node.clone() };
    let [shown_n, shown_m] = [n, m].map(|i| graph.cascade[i].name.clone());
    let step = Step {
        rule: Rule::Reverse,
        statement: node.statement.unwrap_or(0),
        node: counted.name.clone(),
        ranks: vec![graph.cascade[graph.cascade[n].rank].name.clone()],
        why: format!(
            "{} bounds {shown_n} from below by {shown_m}, and both are of one rank",
            show::term(graph, condition)
        ),
        before: show::reduction(graph, r),
        after: show::reduction(&g, &reduction),
    };
    let made = insert(&mut g, id, vec![counted], replaced);
    Some(Reversed { graph: g, id: made[0], step })
}

/// The term with sums of positions and sizes as short as they are.
fn tidy(term: &Term) -> Term {
    let known = |t: &Term| {
        let mut found = true;
        t.visit(&mut |t| {
            found &= matches!(t, Term::Number(_) | Term::Size(_) | Term::Position(_))
                || matches!(t, Term::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..))
        });
        found
    };
    let again = |t: &Term| Box::new(tidy(t));
    match term {
        Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) if known(term) => {
            // Sizes cancel as wholes.
            product::sum_term(&product::sum(term))
        }
        Term::Unary(op, x) => Term::Unary(*op, again(x)),
        Term::Binary(op, a, b) => Term::Binary(*op, again(a), again(b)),
        Term::Select(c, a, b) => Term::Select(again(c), again(a), again(b)),
        _ => term.clone(),
    }
}
