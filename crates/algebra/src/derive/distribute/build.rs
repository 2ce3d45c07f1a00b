//! The nodes of nested reductions.

use super::factors::{self, Joined};
use super::order::{Order, Set};
use super::{Site, guarded};
use crate::derive::reassociate::{insert, placeholder};
use crate::{Def, Graph, Node, NodeId, Reduction, Rule, Step, Streaming, Term, flatten::fresh_name, show};
use einloom_cascade::{DType, IndexExpr, IndexId, Monoid, SizeExpr};

impl Site {
    /// Nests the reduction in `graph`, and tells how, and in what order.
    pub(super) fn build(&self, graph: &mut Graph, order: &Order) -> (Vec<Step>, String) {
        let node = graph[self.id].clone();
        let Def::Reduce(written) = &node.def else { return (vec![], String::new()) };
        let wide = node.dtype == Some(DType::F64)
            || self.factors.iter().any(|f| factors::made_of(f, graph, &|d| d == DType::F64));
        let part = Node { dtype: wide.then_some(DType::F64), tensor: None, ..node.clone() };
        let reduce = |over: Vec<IndexId>, filter: Vec<Term>, factors: &[Term]| Reduction {
            monoid: written.monoid,
            over,
            filter,
            body: self.joined.term(factors),
            streaming: Streaming::default(),
        };
        // New nodes stand at the end while they are made, so that they can be shown.
        let mut shown = graph.clone();
        let (first, mut left): (usize, Vec<(usize, Term)>) =
            (shown.nodes.len(), self.factors.iter().cloned().enumerate().collect());
        let (mut steps, mut made, mut over) = (vec![], vec![], written.over.clone());
        let mut before = show::reduction(graph, written);
        for inner in &order.inner {
            let place = left.iter().position(|(k, _)| inner.joins.contains(k)).unwrap_or(0);
            let (joins, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(k, _)| inner.joins.contains(k));
            left = rest;
            let joins: Vec<Term> = joins.into_iter().map(|f| f.1).collect();
            let here = self.named(inner.over, &written.over);
            over.retain(|i| !here.contains(i));
            let axes: Vec<IndexId> = in_order(&joins).into_iter().filter(|i| !here.contains(i)).collect();
            let new = Node {
                name: fresh_name(&shown.nodes, &format!("{}.inner", node.name)),
                extents: axes.iter().map(|&i| SizeExpr::rank(graph.cascade[i].rank)).collect(),
                axes: axes.clone(),
                def: Def::Reduce(reduce(here.clone(), vec![], &joins)),
                ..part.clone()
            };
            let read = Term::Read(NodeId(shown.nodes.len() as u32), axes.into_iter().map(IndexExpr::var).collect());
            shown.nodes.push(new.clone());
            left.insert(place.min(left.len()), (self.factors.len() + made.len(), read));
            let rest: Vec<Term> = left.iter().map(|f| f.1.clone()).collect();
            let after = show::reduction(&shown, &reduce(over.clone(), self.filter.clone(), &rest));
            let definition = format!(", where {} = {}", show::place(&shown, &new), show::def(&shown, &new.def));
            let why = self.why(&shown, written.monoid, &here, &rest, made.len());
            steps.push(Step {
                rule: Rule::Distribute,
                statement: node.statement.unwrap_or(0),
                node: node.name.clone(),
                ranks: here.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect(),
                why,
                before,
                after: format!("{after}{definition}"),
            });
            before = after;
            made.push((here, new));
        }
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(" and ")
        };
        let sequence: Vec<String> = made.iter().map(|m| names(&m.0)).chain([names(&over)]).collect();
        let name = format!("{} over {}", node.name, sequence.join(", then "));
        let rest: Vec<Term> = left.into_iter().map(|f| f.1).collect();
        let last = Def::Reduce(reduce(over, self.filter.clone(), &rest));
        let inner: Vec<IndexId> = made.iter().flat_map(|m| m.0.iter().copied()).collect();
        let mut new: Vec<Node> = made.into_iter().map(|m| m.1).collect();
        let replaced = if self.joined.keeps_nothing(written.monoid, &self.factors, graph) {
            Node { def: last, ..node.clone() }
        } else {
            let name = fresh_name(&shown.nodes, &format!("{}.whole", node.name));
            let at = node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
            let read = Term::Read(NodeId((first + new.len()) as u32), at);
            new.push(Node { name, def: last, ..part });
            let identity = match written.monoid {
                Monoid::Sum => 0.0,
                Monoid::Max => f64::NEG_INFINITY,
                _ => f64::INFINITY,
            };
            Node { def: Def::Map(guarded(graph, &inner, read, identity)), ..node.clone() }
        };
        let to = |n: NodeId| if (n.0 as usize) < first { n } else { placeholder(n.0 as usize - first) };
        let placed = |mut n: Node| {
            crate::derive::rebuild::renumber(&mut n.def, &to);
            n
        };
        insert(graph, self.id, new.into_iter().map(placed).collect(), placed(replaced));
        (steps, name)
    }

    /// The indices of a set, in the order written.
    fn named(&self, set: Set, order: &[IndexId]) -> Vec<IndexId> {
        let is = |i: &IndexId| self.indices.iter().position(|o| o == i).is_some_and(|k| set & (1 << k) != 0);
        order.iter().copied().filter(is).collect()
    }

    fn why(&self, shown: &Graph, monoid: Monoid, here: &[IndexId], rest: &[Term], made: usize) -> String {
        let index = here.iter().map(|&i| shown.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ");
        let name = monoid.name(&shown.cascade);
        let new = NodeId((shown.nodes.len() - 1) as u32);
        let outside: Vec<String> =
            rest.iter().filter(|t| !matches!(t, Term::Read(n, _) if *n == new)).map(|t| show::term(shown, t)).collect();
        let (count, outside) = (outside.len(), outside.join(", "));
        let does = if count == 1 { "does" } else { "do" };
        let by = match (self.joined, monoid) {
            (Joined::Times, Monoid::Sum) => format!(", and · distributes over {name}"),
            (Joined::Times, _) => format!(" and cannot be negative, and · with such factors distributes over {name}"),
            (Joined::Plus, _) => format!(", and + distributes over {name}"),
            (Joined::Extreme(op), _) => format!(", and {} distributes over {name}", op.symbol()),
        };
        let place = if made == 0 { "first" } else { "next" };
        format!("{outside} {does} not carry {index}{by}: the {name} over {index} comes {place}")
    }
}

/// The indices of these factors as they are met: those of an intermediate lie as its factors do.
fn in_order(factors: &[Term]) -> Vec<IndexId> {
    let mut out: Vec<IndexId> = vec![];
    let mut meet = |i: IndexId| {
        if !out.contains(&i) {
            out.push(i);
        }
    };
    for f in factors {
        f.visit(&mut |t| match t {
            Term::Position(i) => meet(*i),
            Term::Read(_, at) => at.iter().for_each(|e| e.visit_indices(&mut meet)),
            _ => {}
        });
    }
    out
}
