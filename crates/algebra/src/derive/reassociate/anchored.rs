//! Weighted sums over a prefix, relative to their largest weight: `S[m] = Σ_{n <= m} f(n)·exp(g(n) + h(m))`, whatever g and h are.
//!
//! With the maximum so far, `K[m] = max(n: n <= m) g(n)`, the state is `Σ f(n)·exp(g(n) - K[m])`. When a position joins, it is
//! multiplied with `exp(K[m-1] - K[m]) <= 1`, so nothing overflows that does not as written, and `exp(K[m] + h(m))`, the largest
//! weight, is multiplied where the state is read; under the maximum that the text subtracts itself that is 1. Both are recurrences.
//! What is not finite in place of K counts as 0, as for any anchor: see [`crate::derive::separate`].
//!
//! A part of g that moves with the position, as in `exp(k[n] - w·(m - n))`, is taken relative to the latest position, as in
//! [`super::running`]: the maximum moves by its difference `d` from step to step, and the factor is `exp(K[m-1] + d - K[m])`. A multiple of
//! the distance from the start would lose the digits that one of the distance between two positions has, and so would a cumulative sum, as in
//! `exp(c[m] - c[n])`, whose differences are its summands.
//!
//! An inner sum changes places with the outer one as in [`super`]: `Σ_n (Σ_d q(m,d)·k(n,d))·f(n)·exp(..) = Σ_d q(m,d)·S[m,d]`, with
//! `k·f` in the state, and the largest weight is multiplied with that sum.
//!
//! Conditions: the weight is a power of e or of 2 whose exponent splits into g and h; what moves in g reads nothing at
//! the position but cumulative sums; both indices are over one rank; no condition but the prefix; no index of an inner sum in the exponent.

use super::Rewriting;
use super::between::since;
use super::build::{Join, State, rename_placeholders};
use super::insert::{insert, placeholder};
use super::prefix::{Prefix, mentions_position, reads_at, reads_before_start, telescoped};
use super::site::{Parts, Site};
use super::weights::{Base, Body, canonical, moved};
use crate::derive::guard;
use crate::derive::inline::rounds;
use crate::derive::rebuild::renumber;
use crate::derive::separate::shifted;
use crate::product::{self, Sum};
use crate::{Def, Node, NodeId, Recurrence, Reduction, Rule, Step, Streaming, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr, UnaryOp};
use std::collections::BTreeSet;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn exp(exponent: Term) -> Term {
    Term::Unary(UnaryOp::Exp, Box::new(exponent))
}

/// What the sum is made of.
struct Split {
    prefix: Prefix,
    /// f.
    inside: Body,
    /// What an inner sum multiplies the state with.
    query: Body,
    /// What carries no reduced index.
    outside: Body,
    /// g.
    inner: Sum,
    /// g less what moves with the position.
    data: Sum,
    /// What moves in it, at the latest position.
    latest: Sum,
    /// By how much that differs from the position before to the one that joins.
    moves: Option<Term>,
    /// h.
    outer: Sum,
    /// The conditions that make the prefix.
    tying: Vec<Term>,
}

impl Site {
    /// The sum as two recurrences. Nothing where a condition fails.
    pub(super) fn anchored(&self, parts: &Parts) -> Option<Rewriting> {
        let split = self.split(parts)?;
        let p = &split.prefix;
        let mut g = (*self.graph).clone();
        let largest = product::sum_term(&split.data);
        let first = g.recurrences.len();
        // The maximum so far: new node 0.
        let moved = |old: Term| match &split.moves {
            Some(by) => binary(BinaryOp::Add, old, by.clone()),
            None => old,
        };
        let moves: Vec<&Term> = split.moves.iter().collect();
        let state = State {
            inside: &largest,
            filters: &[],
            kept: &moved,
            uses: &moves,
            join: Join::Op(BinaryOp::Max),
            identity: f64::NEG_INFINITY,
        };
        let (mut top, top_read) = self.state_node(p, state, &[], first).ok()?;
        top.name = crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.max", self.node.name));
        let Term::Read(_, axes) = &top_read else { return None };
        let Def::Iterative { dim, .. } = &top.def else { return None };
        let (dim, axes) = (*dim, axes.clone());
        // While the sum's state is made it is node 0, and the maximum another one.
        let other = placeholder(2);
        let slice = |node: NodeId, k: i64| {
            let mut at = axes.clone();
            at[dim] = IndexExpr::var(p.up_to);
            at[dim].offset = SizeExpr::constant(k);
            Term::Read(node, at)
        };
        let new_anchor = guard::finite(&slice(other, 1));
        let rho = exp(binary(BinaryOp::Sub, moved(slice(other, 0)), new_anchor.clone()));
        let mut relative = split.data.clone();
        product::append(&mut relative, vec![(-1.0, new_anchor)], 1.0);
        let mut inside = split.inside.clone();
        inside.factors.push((exp(product::sum_term(&relative)), 1.0));
        let inside = inside.term();
        let kept = |old: Term| binary(BinaryOp::Mul, rho.clone(), old);
        let uses = [&rho];
        let state = State {
            inside: &inside,
            filters: &[],
            kept: &kept,
            uses: &uses,
            join: Join::Op(BinaryOp::Add),
            identity: 0.0,
        };
        let (mut sum, sum_read) = self.state_node(p, state, &parts.inner, first + 1).ok()?;
        let place = |n: NodeId| match n {
            n if n == placeholder(0) => placeholder(1),
            n if n == other => placeholder(0),
            n => n,
        };
        renumber(&mut sum.def, &place);
        let sum_read = sum_read.rename_nodes(&place);
        let mut new = vec![top, sum];
        let summed = match parts.inner.as_slice() {
            [] => sum_read,
            inner => self.summed(&split.query, inner, sum_read, &mut new),
        };
        let value = self.weighted(&split, summed, top_read)?;
        let mut whole = split.outside.clone();
        whole.factors.push((value, 1.0));
        let mut value = whole.term();
        if p.offset < 0 {
            let seen = binary(BinaryOp::Ge, Term::Position(p.up_to), Term::Number(-p.offset as f64));
            value = guard::where_some(seen, value, 0.0);
        }
        let steps = self.tell_anchored(&split, &parts.inner, &new);
        let made = insert(&mut g, self.id, new, Node { def: Def::Map(value), ..self.node.clone() });
        let rank = g.cascade[p.up_to].rank;
        g.recurrences.extend(made.into_iter().take(2).map(|n| Recurrence {
            rank,
            index: p.up_to,
            members: vec![n],
            within: vec![],
        }));
        Some(Rewriting { exchanged: vec![], graph: g, steps })
    }

    /// `Σ_inner query · state`, as a new node, read at its own axes.
    fn summed(&self, query: &Body, inner: &[IndexId], state: Term, new: &mut Vec<Node>) -> Term {
        let mut body = query.clone();
        body.factors.push((state, 1.0));
        let body = body.term();
        let mut free = BTreeSet::new();
        body.indices(&mut free);
        inner.iter().for_each(|i| _ = free.remove(i));
        let axes = self.order(&free, &[], None);
        let at = axes.iter().map(|&i| IndexExpr::var(i)).collect();
        let (over, streaming) = (inner.to_vec(), Streaming::default());
        let def = Def::Reduce(Reduction { monoid: Monoid::Sum, over, filter: vec![], body, streaming });
        new.push(self.part("relative", axes, def));
        Term::Read(placeholder(new.len() - 1), at)
    }

    /// What is read of the state, times the largest weight.
    fn weighted(&self, split: &Split, state: Term, top: Term) -> Option<Term> {
        let mut shift = split.outer.clone();
        product::append(&mut shift, split.latest.clone(), 1.0);
        let own = split.outer.iter().filter(|(c, _)| *c == -1.0);
        let own = own.clone().find_map(|(_, t)| Some((t.clone(), self.beyond_largest(t, split)?)));
        let telescope = |sum: Sum| telescoped(canonical(sum, &self.graph), &self.graph);
        let spans = |sum: &Sum| sum.iter().any(|(_, t)| self.reads_span(t));
        let known = telescope(shift.clone());
        if spans(&known) || split.moves.iter().any(|t| self.reads_span(t)) {
            return None;
        }
        // The maximum that the text has leaves nothing to multiply with.
        let Some((own, beyond)) = own else { return Some(shifted(state, &top, &known, false)) };
        if beyond.is_empty() && split.moves.is_none() {
            return Some(shifted(state, &own, &known, false));
        }
        // It is the one here, moved to the latest position, and what is beyond.
        let mut left: Sum = split.outer.iter().filter(|(c, t)| !(*c == -1.0 && *t == own)).cloned().collect();
        product::append(&mut left, beyond, -1.0);
        let left = telescope(left);
        let finite = match left.as_slice() {
            [] => state.clone(),
            left => binary(BinaryOp::Mul, state.clone(), exp(product::sum_term(&left.to_vec()))),
        };
        let mut met = vec![(1.0, top.clone())];
        met.extend(known);
        let otherwise = binary(BinaryOp::Mul, state, exp(product::sum_term(&met)));
        Some(Term::Select(Box::new(guard::is_finite(&top)), Box::new(finite), Box::new(otherwise)))
    }

    fn split(&self, parts: &Parts) -> Option<Split> {
        let query: Vec<_> = parts.query.iter().copied().collect();
        let (carries, asks) = (|t: &Term| t.mentions(&self.over), |t: &Term| t.mentions(&query));
        let (tying, others): (Vec<Term>, Vec<Term>) = parts.filter.iter().cloned().partition(|f| carries(f) && asks(f));
        let prefix = Prefix::of(&self.graph, &tying, &self.over).ok().filter(|_| others.is_empty())?;
        let [of, up_to] = [prefix.of, prefix.up_to].map(|i| self.graph.cascade[i].rank);
        let (inside, outside): (Vec<_>, Vec<_>) = parts.factors.factors.iter().cloned().partition(|(t, _)| carries(t));
        if of != up_to || inside.iter().any(|(t, _)| asks(t)) {
            return None;
        }
        let mut exponent = vec![];
        for w in &parts.factors.weights {
            let unit = match w.base {
                Base::E => 1.0,
                Base::Two => std::f64::consts::LN_2,
                Base::Of(_) => return None,
            };
            product::append(&mut exponent, w.exponent.clone(), unit);
        }
        let (inner, outer): (Sum, Sum) = exponent.into_iter().partition(|(_, t)| carries(t));
        if inner.is_empty() || inner.iter().any(|(_, t)| asks(t)) {
            return None;
        }
        let n = prefix.of;
        let place = |k: i64| {
            let mut e = IndexExpr::var(prefix.up_to);
            e.offset = SizeExpr::constant(k);
            e
        };
        let accumulates = |t: &Term| prefix.accumulates(t, &self.graph);
        let moves = |t: &Term| mentions_position(t, n) || self.reads_span(t) || accumulates(t);
        let (moving, data): (Sum, Sum) = inner.iter().cloned().partition(|(_, t)| moves(t));
        let unknown = |(_, t): &(f64, Term)| reads_at(t, n) && !self.reads_span(t) && !accumulates(t);
        if !parts.ratios.is_empty() || moving.iter().any(unknown) {
            return None;
        }
        let at = |k: i64| moved(&moving, n, &place(k), &self.graph);
        let latest = at(prefix.offset)?;
        let mut moves = at(prefix.taken() - 1)?;
        product::append(&mut moves, at(prefix.taken())?, -1.0);
        let moves = telescoped(canonical(moves, &self.graph), &self.graph);
        let early = moves.iter().any(|(_, t)| reads_before_start(&self.graph, t, prefix.up_to));
        let back = if early { -1 } else { 0 };
        let moves = (!moves.is_empty()).then(|| since(back, prefix.up_to, product::sum_term(&moves), 0.0));
        // What an inner sum is over is summed when the state is read, and its largest weight is multiplied after that.
        let asked = |t: &Term| t.mentions(&parts.inner);
        if inner.iter().chain(&outer).any(|(_, t)| asked(t)) {
            return None;
        }
        let (query, outside): (Vec<_>, Vec<_>) = outside.into_iter().partition(|(t, _)| asked(t));
        let body = |coefficient, factors| Body { coefficient, factors, weights: vec![] };
        let (inside, query) = (body(1.0, inside), body(1.0, query));
        let outside = body(parts.factors.coefficient, outside);
        Some(Split { prefix, inside, query, outside, inner, data, latest, moves, outer, tying })
    }

    /// What a term adds to the largest exponent, if it is the maximum over the same positions of the exponents and of what does not carry the
    /// reduced index.
    fn beyond_largest(&self, t: &Term, split: &Split) -> Option<Sum> {
        let Term::Read(n, at) = t else { return None };
        let node = &self.graph[*n];
        let Def::Reduce(r) = &node.def else { return None };
        let over = r.monoid == Monoid::Max && r.over == self.over && r.filter == split.tying;
        if !over || !self.graph.is_plain(*n, at) || rounds(node) {
            return None;
        }
        let mut left = canonical(product::sum(&r.body), &self.graph);
        product::append(&mut left, canonical(split.inner.clone(), &self.graph), -1.0);
        left.iter().all(|(_, t)| !t.mentions(&self.over)).then_some(left)
    }

    fn tell_anchored(&self, split: &Split, inner: &[IndexId], new: &[Node]) -> Vec<Step> {
        let (p, largest, [top, sum]) = (&split.prefix, product::sum_term(&split.data), [&new[0], &new[1]]);
        let relative = match &split.moves {
            Some(by) => format!(", moved by {} a step", show::term(&self.graph, by)),
            None => String::new(),
        };
        let largest = match split.data.as_slice() {
            [] => "exponent".to_string(),
            _ => show::term(&self.graph, &largest),
        };
        let shown = self.with(new);
        let rename = |def: &Def| rename_placeholders(def, self.graph.nodes.len());
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let [n, m] = [p.of, p.up_to].map(|i| names(&[i]));
        let before = match &self.graph[self.id].def {
            Def::Reduce(written) => show::reduction(&self.graph, written),
            _ => String::new(),
        };
        let after = match rename(&sum.def) {
            Def::Iterative { step, .. } => show::term(&shown, &show::unguarded(&step)),
            def => show::def(&shown, &def),
        };
        let mut step = Step {
            rule: Rule::Prefix,
            statement: self.node.statement.unwrap_or(0),
            node: sum.name.clone(),
            ranks: vec![self.graph.cascade[self.graph.cascade[p.up_to].rank].name.clone()],
            why: format!(
                "the positions {n} that {m} sees are those that {m} - 1 sees and one more; the state is relative to {}, the largest {} so far{relative}, so at a step all earlier weights are multiplied with at most 1",
                top.name, largest,
            ),
            before,
            after: format!("{} = {after}", self.next_slice(sum, &m)),
        };
        let Some(relative) = new.get(2) else { return vec![step] };
        let exchange = Step {
            rule: Rule::Reassociate,
            node: self.node.name.clone(),
            why: format!(
                "{} does not carry {n}, and · distributes over the sums over {n} and {}, which change places",
                show::term(&self.graph, &split.query.term()),
                names(inner)
            ),
            after: format!("{} = {}", show::place(&shown, relative), show::def(&shown, &rename(&relative.def))),
            ..step.clone()
        };
        step.before = show::def(&shown, &rename(&relative.def));
        vec![exchange, step]
    }
}
