//! One reduction at which sums may change places.

use super::Rewriting;
use super::between::Ratio;
use super::insert::fresh_index;
use super::prefix::Why;
use super::weights::{Body, Weight};
use crate::derive::{filter, inline};
use crate::{Def, Graph, Node, NodeId, Refusal, Rule, Term, show};
use einloom_cascade::{DType, IndexExpr, IndexId, Monoid};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The graph with the sum at `id` taken in another order. Nothing where no other order is cheaper at any size.
///
/// # Errors
/// The condition that failed, where a sum stands inside another and could otherwise change places with it, or where the
/// sum is over a range that another index bounds.
pub(in crate::derive) fn rewrite(shared: &Rc<Graph>, id: NodeId) -> Result<Option<Rewriting>, Refusal> {
    let graph: &Graph = shared;
    let node = &graph[id];
    let Def::Reduce(r) = &node.def else { return Ok(None) };
    let member = graph.recurrences.iter().any(|r| r.members.contains(&id));
    if r.monoid != Monoid::Sum || member {
        return Ok(None);
    }
    if node.dtype == Some(DType::I32) {
        return super::running::integers(graph, id).map_or(Ok(None), Err);
    }
    let (body, filter) = filter::stripped(graph, r, 0.0);
    let body = open_maps(graph, &body, &r.over, false);
    let mut site = Site { graph: shared.clone(), id, node: node.clone(), over: r.over.clone(), spans: vec![] };
    let factors = Body::of(&body, graph);
    let mut parts = Parts { factors, filter, inner: vec![], query: BTreeSet::new(), ratios: vec![] };
    site.open_between(&mut parts);
    let mut refused: Option<(Rule, Why)> = None;
    for k in 0..parts.factors.factors.len() {
        let mut site = site.clone();
        let Some(opened) = site.open(&parts, k) else { continue };
        match site.exchange(opened.clone()) {
            Ok(Some(done)) => return Ok(Some(done)),
            Ok(None) => {}
            Err(why) => match site.anchored(&opened) {
                Some(done) => return Ok(Some(done)),
                None => _ = refused.get_or_insert(why),
            },
        }
    }
    if refused.is_none() {
        match site.recurrence(parts.clone()) {
            Ok(Some(done)) => return Ok(Some(done)),
            Ok(None) => refused = site.between(&parts).map(|why| (Rule::Reassociate, why)),
            Err(why) => refused = Some(why),
        }
    }
    let Some((rule, (reason, hint))) = refused else { return Ok(None) };
    let rank = |&i: &IndexId| graph.cascade[graph.cascade[i].rank].name.clone();
    Err(Refusal {
        rule,
        statement: node.statement.unwrap_or(0),
        node: node.name.clone(),
        ranks: r.over.iter().map(rank).collect(),
        reason,
        hint,
        span: node.span,
    })
}

/// Puts pointwise definitions in place of reads that carry the reduced indices, where these hide a sum or a position;
/// with `rounded` also those that round.
pub(super) fn open_maps(graph: &Graph, term: &Term, over: &[IndexId], rounded: bool) -> Term {
    term.replace_reads(&mut |n, at| {
        let node = &graph[n];
        let Def::Map(def) = &node.def else { return None };
        let moves = at.iter().any(|e| {
            let mut found = false;
            e.visit_indices(&mut |i| found |= over.contains(&i));
            found
        });
        if (inline::rounds(node) && !rounded) || !moves || !(positions(def) || sums(graph, def)) {
            return None;
        }
        let inlined = def.substitute(&|i| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone()))?;
        Some(open_maps(graph, &inlined, over, rounded))
    })
}

/// Whether a position is used as a value.
pub(super) fn positions(t: &Term) -> bool {
    let mut found = false;
    t.visit(&mut |t| found |= matches!(t, Term::Position(_)));
    found
}

fn sums(graph: &Graph, t: &Term) -> bool {
    inline::completed(graph, t).iter().any(|&n| matches!(&graph[n].def, Def::Reduce(r) if r.monoid == Monoid::Sum))
}

/// The body of one sum, or of two taken together.
#[derive(Clone)]
pub(super) struct Parts {
    pub factors: Body,
    pub filter: Vec<Term>,
    /// The indices of the inner sum; none if there is none.
    pub inner: Vec<IndexId>,
    /// The result's indices that the state is to be free of.
    pub query: BTreeSet<IndexId>,
    /// Factors that are products over the positions between two.
    pub ratios: Vec<Ratio>,
}

/// A sum that may change places with one inside it.
#[derive(Clone)]
pub(super) struct Site {
    /// Shared until an index is added.
    pub graph: Rc<Graph>,
    pub id: NodeId,
    pub node: Node,
    pub over: Vec<IndexId>,
    /// Sums over all positions up to one that are written down so that differences of them decay, and read by nothing in the end.
    pub spans: Vec<NodeId>,
}

impl Site {
    /// The body with its `k`-th factor, if that is a sum, taken apart. Nothing if no index would leave the state.
    pub(super) fn open(&mut self, parts: &Parts, k: usize) -> Option<Parts> {
        let (Term::Read(n, at), power) = parts.factors.factors[k].clone() else { return None };
        let node = self.graph[n].clone();
        let Def::Reduce(r) = &node.def else { return None };
        let member = self.graph.recurrences.iter().any(|r| r.members.contains(&n));
        if power != 1.0 || r.monoid != Monoid::Sum || member || inline::rounds(&node) || r.over.is_empty() {
            return None;
        }
        let carries = |t: &Term| t.mentions(&self.over);
        if !carries(&parts.factors.factors[k].0) {
            return None;
        }
        let mut rest = parts.factors.clone();
        rest.factors.remove(k);
        // The inner sum's indices keep their names unless these mean something outside it.
        let mut taken: BTreeSet<IndexId> = self.node.axes.iter().chain(&self.over).copied().collect();
        rest.term().indices(&mut taken);
        parts.filter.iter().for_each(|t| t.indices(&mut taken));
        let inner: Vec<IndexId> = r
            .over
            .iter()
            .map(|&i| if taken.contains(&i) { fresh_index(Rc::make_mut(&mut self.graph), i) } else { i })
            .collect();
        let place = |i: IndexId| match r.over.iter().position(|&o| o == i) {
            Some(k) => Some(IndexExpr::var(inner[k])),
            None => node.axes.iter().position(|&a| a == i).map(|k| at[k].clone()),
        };
        let body = open_maps(&self.graph, &r.body, &r.over, false).substitute(&place)?;
        let (filter, none) = (parts.filter.clone(), BTreeSet::new());
        let own = Body::of(&body, &self.graph);
        let mut own = Parts { factors: own, filter, inner: vec![], query: none, ratios: vec![] };
        self.open_between(&mut own);
        let Parts { factors: own, ratios, .. } = own;
        let own_filter = r.filter.iter().map(|t| t.substitute(&place)).collect::<Option<Vec<_>>>()?;
        // Query indices: those that only what does not carry the reduced index brings in.
        let (mut asked, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let terms: Vec<Term> = own.factors.iter().map(|f| f.0.clone()).chain(own_filter.iter().cloned()).collect();
        for t in &terms {
            t.indices(if t.mentions(&self.over) { &mut kept } else { &mut asked });
        }
        for w in &own.weights {
            for (_, t) in &w.exponent {
                t.indices(if t.mentions(&self.over) { &mut kept } else { &mut asked });
            }
        }
        let query: BTreeSet<IndexId> =
            self.node.axes.iter().copied().filter(|i| asked.contains(i) && !kept.contains(i)).collect();
        // Of these the state keeps what another factor brings in, if any is left then: else that factor is the reason.
        let mut beside = BTreeSet::new();
        let exponents = rest.weights.iter().flat_map(|w| &w.exponent).map(|(_, t)| t);
        let terms = rest.factors.iter().map(|(t, _)| t).chain(exponents);
        terms.filter(|t| t.mentions(&self.over)).for_each(|t| t.indices(&mut beside));
        let left: BTreeSet<IndexId> = query.difference(&beside).copied().collect();
        let query = if left.is_empty() { query } else { left };
        let factors = own.times(rest);
        let filter = parts.filter.iter().cloned().chain(own_filter).collect();
        let ratios = parts.ratios.iter().cloned().chain(ratios).collect();
        (!query.is_empty()).then_some(Parts { factors, filter, inner, query, ratios })
    }

    /// The type of a state of what reads integers, of which f32 does not have all.
    pub(super) fn exact_for(&self, t: &Term) -> Option<DType> {
        let integer = |n: NodeId| self.graph[n].dtype.is_some_and(DType::is_integer);
        t.any_read(&integer).then_some(DType::F64)
    }

    fn index_names(&self, list: &[IndexId]) -> String {
        list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn exchange(&self, parts: Parts) -> Result<Option<Rewriting>, (Rule, Why)> {
        let inner = parts.inner.clone();
        let sides = self.sides(parts).map_err(|why| (Rule::Reassociate, why))?;
        self.build(sides, inner).map_err(|why| (Rule::Reassociate, why))
    }

    /// The sum alone as a recurrence, if one index bounds its range and its summands do not otherwise carry that.
    fn recurrence(&self, mut parts: Parts) -> Result<Option<Rewriting>, (Rule, Why)> {
        let mut tied: BTreeSet<IndexId> = BTreeSet::new();
        for f in parts.filter.iter().filter(|f| f.mentions(&self.over)) {
            f.indices(&mut tied);
        }
        tied.retain(|i| !self.over.contains(i) && self.node.axes.contains(i));
        let asks: Vec<IndexId> = tied.iter().copied().collect();
        let carries_both = |t: &Term| t.mentions(&self.over) && t.mentions(&asks);
        if tied.is_empty() {
            return Ok(None);
        }
        // Without a bound by a position it is not meant as a prefix.
        let bounds = |f: &Term| self.over.len() > 1 || super::bound(f, self.over[0]).is_some();
        if !parts.filter.iter().any(bounds) {
            return Ok(None);
        }
        let mut factors = parts.factors.factors.iter().map(|f| &f.0);
        if let Some(t) = factors.find(|t| carries_both(t) && reads_both(t, &self.over, &asks)) {
            // Other data that carries both is what a sum per position is for; no rule is missed.
            return self.of_distance(t, &asks).map_or(Ok(None), |why| Err((Rule::Prefix, why)));
        }
        let data = |w: &Weight| w.exponent.iter().any(|(_, t)| reads_both(t, &self.over, &asks));
        if parts.factors.weights.iter().any(data) {
            return Ok(None);
        }
        let by_value = |f: &&Term| f.mentions(&self.over) && f.mentions(&self.node.axes) && f.any_read(&|_| true);
        if let Some(f) = parts.filter.iter().find(by_value) {
            if self.over.len() > 1 {
                return Ok(None);
            }
            let [n, m] = [&self.over, &asks].map(|list| self.index_names(list));
            let reason = format!(
                "{} is asked of every {n} anew at each {m}, so what a later {m} sees is not what an earlier one saw and more",
                show::term(&self.graph, f)
            );
            let hint = format!("a condition on {n} alone beside the bound by a position would do");
            return Err((Rule::Prefix, (reason, Some(hint))));
        }
        parts.query = tied;
        let sides = match self.sides(parts.clone()) {
            Ok(sides) => sides,
            Err(why) => {
                let other = self.anchored(&parts).map(Ok).or_else(|| self.centred(&parts)).unwrap_or(Err(why));
                return other.map(Some).map_err(|why| (Rule::Prefix, why));
            }
        };
        self.build(sides, vec![]).map_err(|why| (Rule::Prefix, why))
    }
}

/// Whether one read carries both.
pub(super) fn reads_both(t: &Term, a: &[IndexId], b: &[IndexId]) -> bool {
    let mut found = false;
    t.visit(&mut |t| {
        if let Term::Read(..) = t {
            found |= t.mentions(a) && t.mentions(b);
        }
    });
    found
}
