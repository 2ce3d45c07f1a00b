//! The nodes that take the place of a sum.

use super::insert::{insert, placeholder};
use super::prefix::{GATHERED, Prefix, Why};
use super::sides::Sides;
use super::site::Site;
use super::{Exchange, Rewriting};
use crate::derive::guard;
use crate::{Def, Graph, Node, NodeId, Reduction, Streaming, Term, show, sign};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

/// More new nodes than a rewriting makes.
const NEW: usize = 8;

/// What a state carried from position to position is made of.
pub(super) struct State<'a> {
    /// What it takes in, at the reduced index.
    pub inside: &'a Term,
    /// Where there is something to take in.
    pub filters: &'a [Term],
    /// What becomes of it at a step.
    pub kept: &'a dyn Fn(Term) -> Term,
    /// What that needs.
    pub uses: &'a [&'a Term],
    /// What joins both.
    pub join: Join<'a>,
    /// What the state is before anything joined.
    pub identity: f64,
}

/// How a state and what it takes in are joined.
#[derive(Clone, Copy)]
pub(super) enum Join<'a> {
    /// The state before anything joined leaves no trace.
    Op(BinaryOp),
    /// Where there is nothing to take in the state stays as it is.
    By(&'a dyn Fn(Term, Term) -> Term),
}

impl Site {
    /// `Σ_inner outside · state`, where the state is the sum over the site's own indices or its recurrence.
    pub(super) fn build(&self, sides: Sides, inner: Vec<IndexId>) -> Result<Option<Rewriting>, Why> {
        let divides = sides.outside.factors.iter().any(|(t, p)| *p < 0.0 && !sign::positive_constant(t))
            || !sides.outside.weights.is_empty();
        // Without a prefix only factors that need not be numbers count: nothing times them is no 0.
        let multiplies = sides.outside.factors.iter().any(|(t, _)| match sides.prefix {
            Some(_) => !sign::positive_constant(t) || !sign::finite(t, &self.graph),
            None => !sign::finite(t, &self.graph),
        }) || !sides.outside.coefficient.is_finite();
        // Over nothing the sum is 0, whatever it is then multiplied with or divided by.
        if divides && sides.prefix.is_some() && !sides.inside_filter.is_empty() {
            let reason =
                "a condition on data decides whether there is anything to sum, and a division follows".to_string();
            return Err((reason, Some("without the condition, or dividing by what cannot be 0, it would".into())));
        }
        let infinite = |(t, _): &&(Term, f64)| !sign::finite(t, &self.graph);
        let factor = sides.outside.factors.iter().find(infinite).filter(|_| inner.is_empty());
        if let Some((factor, _)) = factor.filter(|_| multiplies && !sides.inside_filter.is_empty()) {
            let n = &self.graph.cascade[self.over[0]].name;
            let factor = show::term(&self.graph, factor);
            let reason =
                format!("a condition on {n} decides whether there is anything to sum, and {factor} may be infinite");
            return Err((reason, Some("without the condition, or times what is finite, it would".into())));
        }
        let mut g = (*self.graph).clone();
        let (state, read) = match &sides.prefix {
            Some(p) => self.prefix_node(p, &sides, &inner, g.recurrences.len())?,
            None if inner.is_empty() => return Ok(None),
            None => self.inner_node(&sides, &inner),
        };
        let mut whole = sides.outside.clone();
        whole.factors.push((read, 1.0));
        let mut new = vec![state];
        let value = whole.term();
        // Whether there is anything to sum may depend on the inner sum's indices.
        let mut outside_filter = sides.outside_filter.clone();
        let mut guards: Vec<Term> = vec![];
        if inner.is_empty() {
            guards.extend(sides.outside_filter.iter().cloned());
        }
        // A size may be 0 where there is nothing to sum.
        let sizes = sides.outside.factors.iter().any(|(t, p)| *p < 0.0 && has_size(t));
        // A filter may leave nothing, and then the text does not even look at the factors: an input may be infinite.
        let filtered = sides.prefix.is_none()
            && !sides.inside_filter.is_empty()
            && !sides.outside.factors.iter().all(|(t, _)| sign::positive_constant(t));
        if divides || multiplies || sizes || filtered {
            let rank = |i: IndexId| self.graph.cascade[i].rank;
            match sides.prefix {
                // Where there is a position there is an element, if both are of one rank.
                Some(p) if rank(p.up_to) == rank(p.of) => {}
                Some(_) => guards.push(guard::some_positions(&self.graph.cascade, &self.over)),
                None => {
                    let (term, any) = self.seen(&sides.inside_filter, new.len());
                    if term.mentions(&inner) { &mut outside_filter } else { &mut guards }.push(term);
                    new.extend(any);
                }
            }
            if let Some(p) = sides.prefix.filter(|p| p.offset < 0) {
                guards.push(compare(BinaryOp::Ge, Term::Position(p.up_to), Term::Number(-p.offset as f64)));
            }
        }
        let mut def = match inner.as_slice() {
            [] => Def::Map(value.clone()),
            _ => Def::Reduce(Reduction {
                monoid: Monoid::Sum,
                over: inner.clone(),
                filter: outside_filter,
                body: value.clone(),
                streaming: Streaming::default(),
            }),
        };
        let after = self.after(&new, &def);
        if let Some(guard) = guards.into_iter().reduce(|a, b| compare(BinaryOp::And, a, b)) {
            let inside = match def {
                Def::Map(t) => t,
                reduce => {
                    let axes = self.node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
                    let name = crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.whole", self.node.name));
                    new.push(Node { name, def: reduce, dtype: None, tensor: None, ..self.node.clone() });
                    Term::Read(placeholder(new.len() - 1), axes)
                }
            };
            def = Def::Map(Term::Select(Box::new(guard), Box::new(inside), Box::new(Term::Number(0.0))));
        }
        let steps = self.steps(&sides, &inner, &new[0], after);
        let made = insert(&mut g, self.id, new, Node { def, ..self.node.clone() });
        if let Some(p) = &sides.prefix {
            let rank = g.cascade[p.up_to].rank;
            g.recurrences.push(crate::Recurrence { rank, index: p.up_to, members: vec![made[0]], within: vec![] });
        }
        let ranks = |list: &[IndexId]| list.iter().map(|&i| self.graph.cascade[i].rank).collect();
        let exchanged = Exchange { statement: self.node.statement, outer: ranks(&self.over), inner: ranks(&inner) };
        Ok(Some(Rewriting { exchanged: vec![exchanged], graph: g, steps }))
    }

    /// `Σ_n inside`, over all indices that it carries besides.
    fn inner_node(&self, sides: &Sides, inner: &[IndexId]) -> (Node, Term) {
        let body = sides.inside.term();
        let mut free = BTreeSet::new();
        body.indices(&mut free);
        sides.inside_filter.iter().for_each(|t| t.indices(&mut free));
        self.over.iter().for_each(|i| _ = free.remove(i));
        let axes = self.order(&free, inner, None);
        let reduction = Reduction {
            monoid: Monoid::Sum,
            over: self.over.clone(),
            filter: sides.inside_filter.clone(),
            body,
            streaming: Streaming::default(),
        };
        let node = self.part("inner", axes.clone(), Def::Reduce(reduction));
        (node, Term::Read(placeholder(0), axes.iter().map(|&i| IndexExpr::var(i)).collect()))
    }

    /// `state[m+1] = rho·state[m] + inside[n: m + taken]`.
    fn prefix_node(
        &self,
        p: &Prefix,
        sides: &Sides,
        inner: &[IndexId],
        recurrence: usize,
    ) -> Result<(Node, Term), Why> {
        let kept = |old: Term| sides.rho.iter().rev().fold(old, |kept, rho| compare(BinaryOp::Mul, rho.clone(), kept));
        let (inside, filters) = (&sides.inside.term(), &sides.inside_filter[..]);
        let uses: Vec<&Term> = sides.rho.iter().collect();
        let state = State { inside, filters, kept: &kept, uses: &uses, join: Join::Op(BinaryOp::Add), identity: 0.0 };
        self.state_node(p, state, inner, recurrence)
    }

    /// `state[m+1] = join(kept(state[m]), inside[n: m + taken])`.
    pub(super) fn state_node(
        &self,
        p: &Prefix,
        state: State<'_>,
        inner: &[IndexId],
        recurrence: usize,
    ) -> Result<(Node, Term), Why> {
        let State { inside, filters, kept, uses, join, identity } = state;
        let (m, n) = (p.up_to, p.of);
        let mut here = IndexExpr::var(m);
        here.offset = SizeExpr::constant(p.taken());
        let at = |t: &Term| {
            let gather = || ("its summands gather by a position".to_string(), Some(GATHERED.to_string()));
            t.substitute(&|i| (i == n).then(|| here.clone())).ok_or_else(gather)
        };
        let guards = filters.iter().map(at).collect::<Result<Vec<_>, _>>()?;
        // Where there is nothing to read, conditions on data have nothing to read either: these stand outside.
        let mut ranges = vec![];
        if p.taken() < 0 {
            ranges.push(compare(BinaryOp::Ge, Term::Position(m), Term::Number(-p.taken() as f64)));
        }
        let (own, other) = (self.graph.cascade[m].rank, self.graph.cascade[n].rank);
        if own != other {
            let mut position = Term::Position(m);
            if p.taken() < 0 {
                position = compare(BinaryOp::Add, position, Term::Number(p.taken() as f64));
            }
            ranges.push(compare(BinaryOp::Lt, position, Term::Size(SizeExpr::rank(other))));
            let reads = |t: &Term| t.mentions(&[m]);
            if let Some(t) = uses.iter().find(|t| reads(t)) {
                let reason =
                    format!("{} is read for every position of another rank than it has", show::term(&self.graph, t));
                return Err((reason, Some("both indices over one rank would do".into())));
            }
        }
        let mut summand = at(inside)?;
        let mut conditions = [guards, ranges].map(|all| all.into_iter().reduce(|a, b| compare(BinaryOp::And, a, b)));
        let under = |guards: [Option<Term>; 2], term: Term, otherwise: &Term| {
            guards
                .into_iter()
                .flatten()
                .fold(term, |term, guard| Term::Select(Box::new(guard), Box::new(term), Box::new(otherwise.clone())))
        };
        if let Join::Op(_) = join {
            summand = under(std::mem::take(&mut conditions), summand, &Term::Number(identity));
        }
        let mut free = BTreeSet::from([m]);
        summand.indices(&mut free);
        conditions.iter().flatten().for_each(|t| t.indices(&mut free));
        uses.iter().for_each(|t| t.indices(&mut free));
        let axes = self.order(&free, inner, Some(m));
        let place = |offset: i64| -> Vec<IndexExpr> {
            let mut at: Vec<IndexExpr> = axes.iter().map(|&i| IndexExpr::var(i)).collect();
            if let Some(k) = axes.iter().position(|&i| i == m) {
                at[k].offset = SizeExpr::constant(offset);
            }
            at
        };
        let old = kept(Term::Read(placeholder(0), place(0)));
        let step = match join {
            Join::Op(op) => compare(op, old, summand),
            Join::By(f) => under(conditions, f(old.clone(), summand), &old),
        };
        let dim = axes.iter().position(|&i| i == m).unwrap_or(0);
        let initial = vec![(SizeExpr::constant(0), Term::Number(identity))];
        let mut node = self.part("state", axes.clone(), Def::Iterative { recurrence, dim, initial, step });
        node.extents[dim] = node.extents[dim].add(&SizeExpr::constant(1));
        Ok((node, Term::Read(placeholder(0), place(p.read()))))
    }

    /// These indices in the result's order, the inner sum's where the query side's were.
    pub(super) fn order(&self, free: &BTreeSet<IndexId>, inner: &[IndexId], kept: Option<IndexId>) -> Vec<IndexId> {
        let mut axes: Vec<IndexId> = vec![];
        let mut todo: Vec<IndexId> = inner.iter().copied().filter(|i| free.contains(i)).collect();
        for &i in &self.node.axes {
            if free.contains(&i) {
                axes.push(i);
            }
            if !free.contains(&i) || kept == Some(i) {
                axes.append(&mut todo);
            }
        }
        axes.append(&mut todo);
        axes.extend(free.iter().copied().filter(|i| !axes.contains(i)).collect::<Vec<_>>());
        axes
    }

    pub(super) fn part(&self, what: &str, axes: Vec<IndexId>, def: Def) -> Node {
        Node {
            name: crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.{what}", self.node.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect(),
            axes,
            def,
            dtype: None,
            tensor: None,
            ..self.node.clone()
        }
    }

    /// Whether there is anything to sum, and the reduction that tells it where positions alone do not: the `place`-th new
    /// node.
    fn seen(&self, filter: &[Term], place: usize) -> (Term, Option<Node>) {
        if let Some(known) = guard::by_positions(&self.graph.cascade, &self.over, filter) {
            return (known, None);
        }
        let mut free = BTreeSet::new();
        filter.iter().for_each(|t| t.indices(&mut free));
        self.over.iter().for_each(|i| _ = free.remove(i));
        let axes = self.order(&free, &[], None);
        let read = Term::Read(placeholder(place), axes.iter().map(|&i| IndexExpr::var(i)).collect());
        let any = self.part("any", axes, Def::Reduce(guard::any_of(&self.over, filter)));
        (compare(BinaryOp::Gt, read, Term::Number(0.0)), Some(any))
    }

    /// The definition with the new node's name in it.
    fn after(&self, new: &[Node], def: &Def) -> String {
        show::def(&self.with(new), &rename_placeholders(def, self.graph.nodes.len()))
    }

    /// The graph with new nodes at its end, for printing.
    pub(super) fn with(&self, new: &[Node]) -> Graph {
        let mut shown = (*self.graph).clone();
        shown.nodes.extend(new.iter().cloned());
        shown
    }
}

fn compare(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// A definition with the new nodes' numbers in it, `first` being that of the first.
pub(super) fn rename_placeholders(def: &Def, first: usize) -> Def {
    let mut def = def.clone();
    let to = |n: NodeId| if n < placeholder(NEW) { n } else { NodeId(first as u32 + (u32::MAX - n.0)) };
    crate::derive::rebuild::renumber(&mut def, &to);
    def
}

fn has_size(t: &Term) -> bool {
    let mut found = false;
    t.visit(&mut |t| found |= matches!(t, Term::Size(_)));
    found
}
