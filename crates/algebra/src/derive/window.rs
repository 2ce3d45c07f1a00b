//! Windows of a few positions: a reduction over those between two fixed distances of a position, `max(s: t-2 <= s <= t+2) x[s]`, is its
//! elements one after the other, each where it exists. A band of a few diagonals is then no matrix of which all but a few elements are masked.
//!
//! Conditions: it is a sum or an extremum, every index that it is over is bounded on both sides at a fixed distance from an axis, all
//! together they leave [`MOST`] elements at most, and what is read at them is read where indices say and is no value of every pair of
//! positions unless it is given (it would be read at other pairs than it is computed at).

use super::bound;
use crate::{Def, Graph, Node, NodeId, Reduction, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeMap;

/// Elements of a window at most: each is an operation and a load of its own.
const MOST: i64 = 16;

/// An index that is bounded at fixed distances from another.
struct Window {
    over: IndexId,
    from: IndexId,
    /// The first distance and the last.
    low: i64,
    high: i64,
}

/// The graph with its small windows written out, and what was done.
pub(super) fn unrolled(graph: &Graph) -> (Graph, Vec<Step>) {
    let (mut out, mut steps) = (graph.clone(), vec![]);
    for id in graph.ids() {
        let node = &graph[id];
        let Def::Reduce(r) = &node.def else { continue };
        if graph.recurrences.iter().any(|loops| loops.members.contains(&id)) {
            continue;
        }
        let Some(value) = elements(graph, node, r) else { continue };
        let names: Vec<&str> = r.over.iter().map(|&i| graph.cascade[i].name.as_str()).collect();
        steps.push(Step {
            rule: Rule::Window,
            statement: node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: r.over.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect(),
            why: format!("{} stays within a few fixed distances, and what is read there is given", names.join(", ")),
            before: show::reduction(graph, r),
            after: show::term(graph, &value),
        });
        out.nodes[id.0 as usize].def = Def::Map(value);
    }
    (out, steps)
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// The reduction as a term of its elements.
fn elements(graph: &Graph, node: &Node, r: &Reduction) -> Option<Term> {
    let (op, identity) = match r.monoid {
        Monoid::Sum => (BinaryOp::Add, 0.0),
        Monoid::Max => (BinaryOp::Max, f64::NEG_INFINITY),
        Monoid::Min => (BinaryOp::Min, f64::INFINITY),
        _ => return None,
    };
    let truth = matches!(&r.body, Term::Binary(op, ..) if op.is_predicate());
    if truth || node.dtype == Some(DType::B1) {
        return None;
    }
    let (windows, rest) = windows(node, r)?;
    if !reads_no_pairs(graph, r, &windows) {
        return None;
    }
    let count = windows.iter().map(|w| (w.high - w.low).saturating_add(1)).try_fold(1i64, i64::checked_mul)?;
    if !(1..=MOST).contains(&count) {
        return None;
    }
    let mut all: Option<Term> = None;
    for number in 0..count {
        let (mut left, mut at) = (number, BTreeMap::new());
        let mut conditions = vec![];
        for w in &windows {
            let width = w.high - w.low + 1;
            let distance = w.low + left % width;
            left /= width;
            let position = IndexExpr::var(w.from).add(&IndexExpr::fixed(SizeExpr::constant(distance)));
            let value = Term::Position(w.over).substitute(&|i| (i == w.over).then(|| position.clone()))?;
            if distance < 0 {
                conditions.push(binary(BinaryOp::Ge, Term::Position(w.from), Term::Number(-distance as f64)));
            }
            let [over, from] = [w.over, w.from].map(|i| graph.cascade[i].rank);
            if distance > 0 || over != from {
                conditions.push(binary(BinaryOp::Lt, value, Term::Size(SizeExpr::rank(over))));
            }
            at.insert(w.over, position);
        }
        let moved = |t: &Term| t.substitute(&|i| at.get(&i).cloned());
        let others = rest.iter().map(moved).collect::<Option<Vec<Term>>>()?;
        let mut element = moved(&r.body)?;
        // Where there is nothing to read, conditions on data have nothing to read either: whether it is there stands outside.
        for all in [others, conditions] {
            if let Some(condition) = all.into_iter().reduce(|a, b| binary(BinaryOp::And, a, b)) {
                element = Term::Select(Box::new(condition), Box::new(element), Box::new(Term::Number(identity)));
            }
        }
        all = Some(all.map_or(element.clone(), |all| binary(op, all, element)));
    }
    all
}

/// The window of each index that is reduced, and the other conditions.
fn windows(node: &Node, r: &Reduction) -> Option<(Vec<Window>, Vec<Term>)> {
    let mut windows = vec![];
    let mut rest: Vec<Term> = r.filter.clone();
    for &over in &r.over {
        // Of several axes the first that bounds it on both sides.
        let window = node.axes.iter().find_map(|&from| {
            let bounds = rest.iter().filter_map(|f| bound(f, over));
            let own = bounds.filter_map(|(upper, at)| at.filter(|at| at.0 == from).map(|at| (upper, at.1)));
            let (mut low, mut high) = (None, None);
            for (upper, distance) in own {
                if upper {
                    high = Some(high.map_or(distance, |h: i64| h.min(distance)));
                } else {
                    low = Some(low.map_or(distance, |l: i64| l.max(distance)));
                }
            }
            Some(Window { over, from, low: low?, high: high? })
        })?;
        rest.retain(|f| !matches!(bound(f, over), Some((_, Some((from, _)))) if from == window.from));
        windows.push(window);
    }
    Some((windows, rest))
}

/// Whether all that is read at what is reduced is read at positions that indices tell, and is given or the same from wherever the window is
/// looked at.
fn reads_no_pairs(graph: &Graph, r: &Reduction, windows: &[Window]) -> bool {
    let mentions = |e: &IndexExpr, test: &dyn Fn(IndexId) -> bool| {
        let mut found = false;
        e.visit_indices(&mut |i| found |= test(i));
        found
    };
    let fits = |n: NodeId, at: &[IndexExpr]| {
        let plain = |e: &IndexExpr| e.terms.iter().all(|(_, atom)| matches!(atom, IndexAtom::Var(_)));
        let pair = || at.iter().any(|e| mentions(e, &|i| windows.iter().any(|w| w.from == i)));
        at.iter().all(plain) && (matches!(graph[n].def, Def::Input) || !pair())
    };
    let mut all = true;
    for t in r.filter.iter().chain([&r.body]) {
        t.visit(&mut |t| match t {
            Term::Read(n, at) | Term::Old(n, at) => {
                all &= !at.iter().any(|e| mentions(e, &|i| r.over.contains(&i))) || fits(*n, at);
            }
            _ => {}
        });
    }
    all
}
