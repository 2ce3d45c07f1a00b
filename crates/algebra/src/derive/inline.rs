//! Putting definitions in place of reads.

use super::{Deriver, Scaled, guard};
use crate::{Def, Graph, Node, NodeId, Product, Reduction, Rule, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexExpr, IndexId, Monoid, UnaryOp};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The reductions that a term needs, through pointwise nodes and through other reductions.
pub(super) fn completed(graph: &Graph, term: &Term) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut operands = vec![];
    graph.reads(term, &mut operands);
    let mut todo: Vec<NodeId> = operands.iter().map(|o| o.node).collect();
    while let Some(n) = todo.pop() {
        if seen.insert(n) {
            if matches!(graph[n].def, Def::Reduce(_)) {
                found.insert(n);
            }
            todo.extend(needs(graph, n));
        }
    }
    found
}

/// What a node reads. Of a state that is what is there before its recurrence: what its own steps reduce is complete at each of them.
fn needs(graph: &Graph, n: NodeId) -> impl Iterator<Item = NodeId> {
    let state = matches!(graph[n].def, Def::Iterative { .. });
    graph.operands(n).into_iter().map(|o| o.node).filter(move |&o| !state || o < n)
}

/// Whether the node's declared type may lose precision: its rounding is part of the meaning.
pub(super) fn rounds(node: &Node) -> bool {
    !matches!(node.dtype, None | Some(DType::F64 | DType::F32))
}

/// A term after cancelling.
pub(super) struct Cancelled {
    pub value: Term,
    /// The exponentials that readers must still cancel.
    pub rest: Option<Scaled>,
    /// Anchors whose exponentials stay in divisors only, where they are harmless: see [`super::quotient`].
    pub divided: BTreeSet<NodeId>,
}

impl Deriver<'_> {
    /// The reductions over exactly these indices that `term` needs complete.
    pub(super) fn barriers(&self, term: &Term, over: &[IndexId]) -> Vec<NodeId> {
        let mut operands = vec![];
        self.out.reads(term, &mut operands);
        let mut found = BTreeSet::new();
        operands.iter().for_each(|o| found.extend(self.needed(o.node).iter().copied()));
        found.into_iter().filter(|&n| self.is_over(n, over)).collect()
    }

    /// Whether a node is a reduction over one of these indices.
    pub(super) fn is_over(&self, node: NodeId, over: &[IndexId]) -> bool {
        matches!(&self.out[node].def, Def::Reduce(r) if r.over.iter().any(|i| over.contains(i)))
    }

    /// The reductions that a node is or needs, found once for each node.
    pub(super) fn needed(&self, node: NodeId) -> Rc<BTreeSet<NodeId>> {
        let known = |n: NodeId| self.needed.borrow().get(&n).cloned();
        if let Some(known) = known(node) {
            return known;
        }
        let (mut found, mut seen, mut todo) = (BTreeSet::new(), BTreeSet::new(), vec![node]);
        while let Some(n) = todo.pop() {
            if let Some(known) = known(n) {
                found.extend(known.iter().copied());
            } else if seen.insert(n) {
                if matches!(self.out[n].def, Def::Reduce(_)) {
                    found.insert(n);
                }
                todo.extend(needs(&self.out, n));
            }
        }
        let found = Rc::new(found);
        self.needed.borrow_mut().insert(node, found.clone());
        found
    }

    /// Inlines pointwise nodes that are read at other places than their own axes (another index, a gather): only the
    /// wanted elements are then computed.
    pub(super) fn inline_displaced(&mut self, term: &Term, into: &Node) -> Term {
        let mut names = vec![];
        let result = replace_displaced(term, &self.out, &mut names, 0, &mut { LARGEST });
        for (name, before) in names {
            let why = format!("{name} is pointwise, so only the elements that {} reads need be computed", into.name);
            let after = show::term(&self.out, &show::unguarded(&result));
            self.step(Rule::Inline, into, &[], why, before, after);
        }
        result
    }

    /// Inlines pointwise nodes that carry a reduced index and depend on a reduction over it, those from which a reduction over
    /// the same rank leaves, as it does not carry the index, and those that are exponentials, so that the rules see what they are made of. Condition: all of it stays below [`LARGEST`]. Each
    /// definition that reads the one before twice doubles it.
    pub(super) fn inline_barriers(&mut self, term: &Term, over: &[IndexId]) -> Term {
        let mut left = LARGEST;
        let mut too_large = None;
        let inlined = self.with_barriers(term, over, &mut left, &mut too_large);
        let Some(n) = too_large else { return inlined };
        let node = self.out[n].clone();
        let reason = format!(
            "{} is read where it is computed from what a sum or extremum over {} makes, and with all definitions put in place of their reads that would be more than {LARGEST} operations",
            node.name,
            self.index_names(over)
        );
        let hint = "a definition that reads the one before only once does not double it".to_string();
        if !self.refusals.iter().any(|r| r.rule == Rule::Inline && r.node == node.name) {
            self.refuse(Rule::Inline, &node, over, reason, Some(hint));
        }
        term.clone()
    }

    /// The same, unless it is too large.
    pub(super) fn with_definitions(&self, term: &Term, over: &[IndexId]) -> Option<Term> {
        let (mut left, mut too_large) = (LARGEST, None);
        let inlined = self.with_barriers(term, over, &mut left, &mut too_large);
        too_large.is_none().then_some(inlined)
    }

    /// As far as `left` operations last; then names a node that was not inlined.
    fn with_barriers(&self, term: &Term, over: &[IndexId], left: &mut usize, too_large: &mut Option<NodeId>) -> Term {
        term.replace_reads(&mut |n, at| {
            let node = &self.out[n];
            let Def::Map(def) = &node.def else { return None };
            if too_large.is_some() || rounds(node) || !at.iter().any(|e| moves(e, over)) {
                return None;
            }
            if !self.waits(def, over, 0) && !is_exponential(def) && !self.has_sum_beside(def, n, at, over) {
                return None;
            }
            *left = left.saturating_sub(operations(def));
            if *left == 0 {
                *too_large = Some(n);
                return None;
            }
            let map = |i: IndexId| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone());
            let inlined = if self.out.is_plain(n, at) { def.clone() } else { def.substitute(&map)? };
            let inlined = self.where_positions(inlined, over);
            Some(self.with_barriers(&inlined, over, left, too_large))
        })
    }

    /// Whether the definition of a node that is read there has a factor that is a reduction over the rank of one of the indices and carries none.
    fn has_sum_beside(&self, def: &Term, n: NodeId, at: &[IndexExpr], over: &[IndexId]) -> bool {
        let ranks: Vec<_> = over.iter().map(|&i| self.out.cascade[i].rank).collect();
        let moving: Vec<IndexId> =
            self.out[n].axes.iter().zip(at).filter(|(_, e)| moves(e, over)).map(|(&axis, _)| axis).collect();
        let is_one = |t: &Term| match t {
            Term::Read(m, at) => {
                let over_rank = |r: &Reduction| r.over.iter().any(|&i| ranks.contains(&self.out.cascade[i].rank));
                matches!(&self.out[*m].def, Def::Reduce(r) if r.monoid == Monoid::Sum && over_rank(r))
                    && !at.iter().any(|e| moves(e, &moving))
            }
            _ => false,
        };
        let def = self.where_positions(def.clone(), over);
        Product::of(&def, &self.out).factors.iter().any(|(t, _)| is_one(t))
    }

    /// A term where these indices have positions: whether their ranks are empty is no question there.
    fn where_positions(&self, term: Term, over: &[IndexId]) -> Term {
        let known = |c: &Term| match c {
            Term::Binary(BinaryOp::Gt, size, zero) => match (&**size, zero.as_number()) {
                (Term::Size(s), Some(0.0)) => {
                    let cascade = &self.out.cascade;
                    s.terms().iter().all(|(_, c)| *c > 0)
                        && s.ranks().all(|r| over.iter().any(|&i| cascade[i].rank == r))
                }
                _ => false,
            },
            _ => false,
        };
        match term {
            Term::Select(c, x, _) if known(&c) => *x,
            term => term,
        }
    }

    /// A term in which exponentials that stabilisation introduced have been cancelled, and what of them remains.
    pub(super) fn cancel(&mut self, term: &Term) -> Cancelled {
        let cancelled = |value| Cancelled { value, rest: None, divided: BTreeSet::new() };
        if self.scaled.is_empty() || !term.any_read(&|n| self.scaled.contains_key(&n)) {
            return cancelled(term.clone());
        }
        let mut anchors = BTreeSet::new();
        let mut origins = BTreeSet::new();
        let expanded = term.replace_reads(&mut |n, at| {
            let s = self.scaled.get(&n)?;
            if !self.out.is_plain(n, at) {
                self.failed.extend(&s.origins);
                return None;
            }
            anchors.extend(&s.anchors);
            origins.extend(&s.origins);
            Some(s.term.clone())
        });
        let mut simple = absorb(&expanded, &self.out);
        if exponential_of(&simple, &anchors) {
            // Anchors that are multiples of one another may cancel as multiples of one.
            let multiples = absorb(&multiples_of_anchors(&expanded), &self.out);
            if !exponential_of(&multiples, &anchors) {
                simple = multiples;
            }
        }
        if exponential_of(&simple, &anchors) {
            if let Some(value) = super::quotient::divided(&simple, &anchors, &self.out) {
                return Cancelled { divided: anchors, ..cancelled(value) };
            }
            return Cancelled { rest: Some(Scaled { origins, term: simple, anchors }), ..cancelled(term.clone()) };
        }
        cancelled(simple)
    }

    /// Adds a pointwise node. One in which an exponential remains may still be cancelled by its readers, unless it is
    /// itself wanted or rounded.
    pub(super) fn push_map(&mut self, node: Node, rest: Option<Scaled>) -> NodeId {
        let rounded = rounds(&node);
        let made = self.push(node);
        if let Some(rest) = rest {
            if rounded {
                self.failed.extend(&rest.origins);
            }
            self.scaled.insert(made, rest);
        }
        made
    }

    /// For a reduction with definitions in place of its reads: what of them is relative to an anchor must not stand in the
    /// body that it has now, for that is relative to none.
    pub(super) fn must_have_cancelled(&mut self, r: &Reduction, body: &Term) {
        let mut operands = vec![];
        r.filter.iter().chain([&r.body]).for_each(|t| self.out.reads(t, &mut operands));
        for n in operands.into_iter().map(|o| o.node) {
            if self.scaled.get(&n).is_some_and(|s| exponential_of(body, &s.anchors)) {
                self.must_not_be_scaled(n);
            }
        }
    }

    pub(super) fn must_not_be_scaled(&mut self, n: NodeId) {
        if let Some(s) = self.scaled.get(&n) {
            self.failed.extend(&s.origins);
        }
    }
}

/// Whether the term is a product with an exponential.
fn is_exponential(t: &Term) -> bool {
    match t {
        Term::Unary(UnaryOp::Exp | UnaryOp::Exp2, _) => true,
        Term::Unary(UnaryOp::Neg, x) => is_exponential(x),
        Term::Binary(BinaryOp::Mul | BinaryOp::Div, a, b) => is_exponential(a) || is_exponential(b),
        _ => false,
    }
}

fn moves(e: &IndexExpr, over: &[IndexId]) -> bool {
    let mut found = false;
    e.visit_indices(&mut |i| found |= over.contains(&i));
    found
}

/// Definitions are followed this far; deeper chains stay as reads.
const DEPTH: usize = 32;

/// Operations that may come to stand in place of the reads of one term; what is beyond stays as reads.
const LARGEST: usize = 4096;

pub(super) fn operations(term: &Term) -> usize {
    let mut count = 0;
    term.visit(&mut |_| count += 1);
    count
}

fn replace_displaced(
    term: &Term,
    graph: &Graph,
    names: &mut Vec<(String, String)>,
    depth: usize,
    left: &mut usize,
) -> Term {
    term.replace_reads(&mut |n, at| {
        let node = &graph[n];
        let (Def::Map(def), axes) = (&node.def, &node.axes) else { return None };
        if rounds(node) || depth == DEPTH || *left == 0 || graph.is_plain(n, at) || axes.len() != at.len() {
            return None;
        }
        let map = |i: IndexId| axes.iter().position(|&a| a == i).map(|k| at[k].clone());
        let inlined = def.substitute(&map)?;
        if backwards(&inlined, graph) {
            return None;
        }
        *left = left.saturating_sub(operations(def));
        names.push((graph[n].name.clone(), show::term(graph, &show::unguarded(term))));
        Some(replace_displaced(&inlined, graph, names, depth + 1, left))
    })
}

/// Whether it reads a recurrence at positions that go down as an index goes up. What is made of a state at the position at hand is
/// read so instead: then its recurrence may go by chunks, which have no other position.
fn backwards(term: &Term, graph: &Graph) -> bool {
    let mut found = false;
    term.visit(&mut |t| {
        if let Term::Read(n, at) = t
            && let Def::Iterative { dim, .. } = &graph[*n].def
        {
            found |= at[*dim].terms.iter().any(|(c, _)| c.as_constant().is_some_and(|c| c < 0));
        }
    });
    found
}

/// The term with `k` times a finite anchor where the anchor is `k` times something, for a number `k`.
fn multiples_of_anchors(term: &Term) -> Term {
    let term = term.map_children(&mut multiples_of_anchors);
    let Term::Select(_, x, _) = &term else { return term };
    if term != guard::finite(x) {
        return term;
    }
    match &**x {
        Term::Binary(BinaryOp::Mul, a, k) if k.as_number().is_some_and(|k| k > 0.0) => {
            Term::Binary(BinaryOp::Mul, Box::new(guard::finite(a)), k.clone())
        }
        _ => term,
    }
}

/// Rewrites products and logarithms so that exponentials meet and cancel.
fn absorb(term: &Term, graph: &Graph) -> Term {
    let term = term.map_children(&mut |t| absorb(t, graph));
    match &term {
        Term::Binary(BinaryOp::Mul | BinaryOp::Div, ..) => Product::of(&term, graph).term(),
        // log(r·exp(u)) = log(r) + u
        Term::Unary(UnaryOp::Log, x) => {
            let mut p = Product::of(x, graph);
            if p.exponent.is_empty() {
                return term;
            }
            let exponent = std::mem::take(&mut p.exponent);
            let rest = Term::Unary(UnaryOp::Log, Box::new(p.term()));
            Term::Binary(BinaryOp::Add, Box::new(rest), Box::new(crate::product::sum_term(&exponent)))
        }
        _ => term,
    }
}

pub(super) fn exponential_of(term: &Term, anchors: &BTreeSet<NodeId>) -> bool {
    let mut found = false;
    term.visit(&mut |t| {
        if let Term::Unary(UnaryOp::Exp | UnaryOp::Exp2, x) = t {
            found |= x.any_read(&|n| anchors.contains(&n));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `Y[n] = text` becomes, over `X`, `Z` and `C` and the size `N`.
    fn absorbed(text: &str) -> String {
        let head = "input X[n]: f64, Z[n]: f64, C: f64\noutput Y: f64";
        let parsed = einloom_cascade::parse(&format!("{head}\nY[n] = {text}\n"));
        assert!(parsed.diagnostics.iter().all(|d| !d.is_error()), "{text}: {:?}", parsed.diagnostics);
        let graph = crate::flatten(&parsed.cascade);
        let Def::Map(term) = &graph[graph.outputs[0]].def else { panic!("{text} is no map") };
        show::term(&graph, &absorb(term, &graph))
    }

    #[test]
    fn exponentials_meet_in_products_and_logarithms_and_nowhere_else() {
        for (text, expected) in [
            // One product has one exponential, and what stands in it twice cancels.
            ("exp(X[n] - C) * exp(C - Z[n])", "exp(X[n] - Z[n])"),
            ("Z[n] * exp(X[n]) / exp(C)", "exp(X[n] - C) * Z[n]"),
            ("exp(X[n]) / exp(X[n])", "1"),
            ("exp2(X[n]) * exp2(C)", "exp2(X[n] + C)"),
            // Of another base it is another one.
            ("exp2(X[n]) * exp(C)", "exp(C) * exp2(X[n])"),
            // Whole powers and roots of products that cannot be negative.
            ("(Z[n] * exp(X[n]))^2 / exp(C)", "exp(2 * X[n] - C) * Z[n] ^ 2"),
            ("sqrt(exp(X[n])) * exp(C)", "exp(0.5 * X[n] + C)"),
            ("sqrt(abs(Z[n]) * exp(X[n])) / exp(C)", "exp(0.5 * X[n] - C) * sqrt(abs(Z[n]))"),
            // The root of what may be negative stays whole, and so does that of a square, which is no x but |x|.
            ("sqrt(Z[n] * exp(X[n])) / exp(C)", "exp(-C) * sqrt(exp(X[n]) * Z[n])"),
            ("sqrt(Z[n]^2) * exp(C)", "exp(C) * sqrt(Z[n] ^ 2)"),
            // x / x is no number where x is 0.
            ("exp(X[n]) * Z[n] / Z[n]", "exp(X[n]) * Z[n] / Z[n]"),
            // The logarithm of a product with an exponential opens; of any other product, or of a sum, it does not.
            ("log(Z[n] * exp(X[n] - C))", "log(Z[n]) + (X[n] - C)"),
            ("log(exp(X[n]) / Z[n])", "log(1 / Z[n]) + X[n]"),
            ("log(Z[n] * C)", "log(Z[n] * C)"),
            ("log(Z[n] + exp(X[n]))", "log(Z[n] + exp(X[n]))"),
            // Inside of what is neither, parts are rewritten by themselves.
            ("tanh(exp(X[n]) / exp(C)) + exp(C)", "tanh(exp(X[n] - C)) + exp(C)"),
            ("exp(X[n]) + exp(C)", "exp(X[n]) + exp(C)"),
        ] {
            assert_eq!(absorbed(text), expected, "{text}");
        }
    }
}
