//! Chunked scans: a recurrence `h[t+1] = rho_t·h[t] + u_t` over chunks of positions instead of one by one.
//!
//! Steps that are affine element by element compose, so the state need be kept at the ends of chunks only. Within a
//! chunk that starts at position s, what is read of the state is what it was at s, decayed, and what the chunk has added:
//! `h[t+1] = (rho_s ⋯ rho_t)·h[s] + Σ(n: s <= n <= t) (rho_{n+1} ⋯ rho_t)·u_n`. A read that sums over indices of the
//! state, `Σ_d q[t,d]·h[t+1,d,e]` with `u_n = k[n,d]·v[n,e]`, sums them first, `Σ_d q[t,d]·k[n,d]`, and becomes products of
//! matrices. All decays are over stretches inside one chunk, so none is larger than what the recurrence itself makes.
//!
//! Extrema of what is added to the state, `h[t+1] = max(h[t] + a_t, b_t)`, go by chunks in the same way ([`extrema`]).
//!
//! Where the decay carries all indices of the state, and of extrema, nothing multiplies as a matrix: a chunk looks at pairs of its positions, which is more
//! work than its steps, and all chunks may be looked at at once. Which is faster is for the planner to say.
//!
//! Conditions: each step is affine in the slice before, element by element, in every branch of a condition that does not
//! depend on it (`where(c, a·h, b)` is `where(c, a, 0)·h + where(c, 0, b)`); states are not rounded, and those that are wanted
//! start from one slice ([`wanted`]); a decay that carries
//! an index that a read sums over is a power of e (it stays inside that sum as `exp` of a difference between two
//! positions, since relative to one position it would overflow, and the sum is then no product of matrices); no decay is
//! larger than 1 in size, as its form shows or, if it is made of parameters and sizes, as their values show when they are known
//! (larger ones overflow over a chunk where a state is 0 or small, and step by step they would not; relative to a maximum that runs beside the
//! state it is at most 1 wherever that is finite, and elsewhere the state is 0 or no finite number); each summand
//! splits between what is summed over and what is kept; and no condition of the text asks for what is read inside a chunk. Chunks may have any size, the last one may be shorter: which size is best
//! depends on the machine, and with one position a chunk it is the recurrence as it was.
//!
//! Read so, an element is what it was as written if all that the text computes it from is finite. Else it may be no number
//! where it was one: `q·(a·h + u)` is read as `q·a·h + q·u`, which has `inf · 0` where `q` is infinite and `h` is 0. What is
//! not finite in one element never reaches another one that does not depend on it: what lies later in a chunk is left out,
//! not multiplied by 0. What a condition discards, `where(c, 0, h)`, is multiplied by 0, so an infinite state is no number after it. (A backend that masks products of matrices by a factor 0 says so itself.)

mod addends;
mod extrema;
mod positions;
mod read;
mod sort;
mod step;
mod stretch;
mod wanted;

use super::reassociate::{Base, Weight, fresh_index};
use crate::derive::guard;
use crate::{Def, Graph, Node, NodeId, Refusal, Rule, Step, Term, show, size};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr, UnaryOp};
pub(super) use sort::sorted;
use std::collections::{BTreeMap, BTreeSet};
use step::Affine;

/// Graphs whose recurrences advance chunk by chunk where they can, and what is said about all of them.
pub(super) struct Chunked {
    /// With the steps so far, and the numbers that must lie between -1 and 1. First that whose extrema advance step by step, if some do: their chunks
    /// multiply nothing, and where there is enough else to do at once their steps are cheaper.
    pub graphs: Vec<(Graph, Vec<Step>, Vec<Term>)>,
    pub refusals: Vec<Refusal>,
}

/// A reason, and what would help.
type Why = (String, Option<String>);

/// Chunks every recurrence of `graph` that can be.
/// Those in `sequential`, by the name of a member, cannot: another rule has said why.
pub(super) fn chunked(graph: &Graph, sequential: &[&str]) -> Chunked {
    let mut out = Chunked { graphs: vec![], refusals: vec![] };
    let (mut steps, mut within_one, mut others) = (vec![], vec![], 0);
    let mut current = graph.clone();
    let (mut within, mut decays) = (BTreeMap::new(), BTreeSet::new());
    // What is relative to a maximum is known to be at most 1 as long as that advances step by step.
    let mut order: Vec<usize> = (0..graph.recurrences.len()).collect();
    order.sort_by_key(|&r| takes_extrema(graph, r));
    for (k, &r) in order.iter().enumerate() {
        let members = &current.recurrences[r].members;
        let Some(first) = members.iter().copied().find(|&m| matches!(current[m].def, Def::Iterative { .. })) else {
            continue;
        };
        let node = current[first].clone();
        if members.iter().any(|&m| sequential.contains(&current[m].name.as_str())) {
            continue;
        }
        let rank = current.cascade[current.recurrences[r].rank].name.clone();
        // With an earlier one over the same index, if neither needs the other: what both need is then one.
        let index = current.recurrences[r].index;
        let alike = |other: usize| {
            let other_one = &current.recurrences[other];
            other_one.index == index
                && !other_one.within.is_empty()
                && takes_extrema(graph, other) == takes_extrema(graph, r)
        };
        let earlier = order[..k].iter().copied().find(|&other| alike(other));
        // Whether its states are wanted is no matter to its steps.
        let apart = wanted::apart(&current, r);
        let base = apart.as_ref().unwrap_or(&current);
        let mut attempt = |beside| Rewriter::new(base, r, beside, &mut within, &mut decays).run();
        let made = match earlier {
            Some(k) => attempt(Some(k)).or_else(|_| attempt(None)),
            None => attempt(None),
        };
        match made {
            Ok((next, own, numbers)) => {
                steps.extend(own);
                within_one.extend(numbers);
                current = next;
                // All others come before the first extremum.
                out.graphs.truncate(if takes_extrema(graph, r) { others } else { 0 });
                others = if takes_extrema(graph, r) { others } else { 1 };
                out.graphs.push((current.clone(), steps.clone(), within_one.clone()));
            }
            Err((reason, hint)) => out.refusals.push(Refusal {
                rule: Rule::Scan,
                statement: node.statement.unwrap_or(0),
                node: node.name,
                ranks: vec![rank],
                reason: if apart.is_some() { wanted::told(&reason) } else { reason },
                hint: if apart.is_some() { hint.as_deref().map(wanted::told) } else { hint },
                span: node.span,
            }),
        }
    }
    for (graph, ..) in &mut out.graphs {
        // Those that have joined another are empty.
        super::rebuild::prune(graph);
    }
    out
}

/// Whether the steps of a recurrence are extrema.
fn takes_extrema(graph: &Graph, r: usize) -> bool {
    let is_state = |n: &NodeId| matches!(graph[*n].def, Def::Iterative { .. });
    let recurrence = &graph.recurrences[r];
    let states: Vec<NodeId> = recurrence.members.iter().copied().filter(is_state).collect();
    let of = |&h: &NodeId| Affine::of(graph, recurrence.index, h, &states);
    states.iter().map(of).any(|a| a.is_ok_and(|a| a.over != Monoid::Sum))
}

/// The rewriting of one recurrence.
struct Rewriter<'a> {
    graph: Graph,
    r: usize,
    /// An earlier recurrence that it joins.
    beside: Option<usize>,
    /// The recurrence's index.
    t: IndexId,
    /// Positions inside a chunk: of summands, and of factors of a decay.
    n: IndexId,
    s: IndexId,
    within: &'a mut BTreeMap<IndexId, (IndexId, IndexId)>,
    /// The names of nodes that decays are made of, of all recurrences.
    decays: &'a mut BTreeSet<String>,
    /// Nodes that are computed chunk by chunk, in order.
    members: Vec<NodeId>,
    steps: Vec<Step>,
    /// Decays whose size is known when parameters and sizes are.
    within_one: Vec<Term>,
}

impl<'a> Rewriter<'a> {
    fn new(
        graph: &Graph,
        r: usize,
        beside: Option<usize>,
        within: &'a mut BTreeMap<IndexId, (IndexId, IndexId)>,
        decays: &'a mut BTreeSet<String>,
    ) -> Self {
        let mut graph = graph.clone();
        let t = graph.recurrences[r].index;
        let (n, s) = match within.get(&t) {
            Some(&known) => known,
            None => (fresh_index(&mut graph, t), fresh_index(&mut graph, t)),
        };
        let members = beside.map_or_else(Vec::new, |k| graph.recurrences[k].members.clone());
        Self { graph, r, beside, t, n, s, within, decays, members, steps: vec![], within_one: vec![] }
    }

    /// The graph with the recurrence in chunks, or the condition that failed.
    fn run(mut self) -> Result<(Graph, Vec<Step>, Vec<Term>), Why> {
        let all = self.graph.recurrences[self.r].members.clone();
        let states: Vec<NodeId> =
            all.iter().copied().filter(|&m| matches!(self.graph[m].def, Def::Iterative { .. })).collect();
        let affine =
            states.iter().map(|&h| Affine::of(&self.graph, self.t, h, &states)).collect::<Result<Vec<_>, _>>()?;
        // What the steps need that does not depend on them is computed before.
        let cyclic = |m: &NodeId| !states.contains(m) && self.reaches(*m, &states);
        if let Some(&m) = all.iter().find(|m| cyclic(m)) {
            let (name, part) = (self.graph[states[0]].name.clone(), &self.graph[m].name);
            let hint = Some("its definition in place of it would do".to_string());
            return Err((
                format!("a step of {name} goes by way of {part}, which is computed position by position"),
                hint,
            ));
        }
        for a in &affine {
            self.check(a)?;
            self.check_size(a)?;
        }
        // An extremum without addends is the same however its elements are taken together.
        if !affine.iter().all(|a| a.over != Monoid::Sum && a.is_bare()) {
            self.check_conditions(&states)?;
        }
        self.take_slices_out(&states);
        self.lend_slices(&affine);
        self.take_apart(&states);
        let readers: Vec<NodeId> =
            self.graph.ids().filter(|n| !states.contains(n) && self.reads_any(*n, &states)).collect();
        for &reader in &readers {
            for a in &affine {
                if self.reads_any(reader, &[a.state]) {
                    self.read(a, reader)?;
                }
            }
        }
        for a in &affine {
            self.advance(a)?;
        }
        if let Some(n) = self.graph.ids().find(|&n| self.reads_any(n, &states)) {
            let reason = format!("{} reads several states in one product", self.graph[n].name);
            return Err((reason, Some("a sum of products with one state each would do".to_string())));
        }
        let made = &mut self.graph.recurrences[self.beside.unwrap_or(self.r)];
        made.members = std::mem::take(&mut self.members);
        made.within = vec![self.n, self.s];
        if let Some(k) = self.beside {
            self.graph.recurrences[self.r].members.clear();
            for &h in &states {
                if let Def::Iterative { recurrence, .. } = &mut self.graph.nodes[h.0 as usize].def {
                    *recurrence = k;
                }
            }
        }
        self.check_windows()?;
        self.check_places()?;
        let sorted = sorted(&self.graph).ok_or_else(|| {
            let name = &self.graph[states[0]].name;
            let reason = format!("one value that reads {name} is needed before another that reads it");
            (reason, Some("reads that do not need one another would do".to_string()))
        })?;
        // Only now: what was refused leaves no index behind.
        self.within.insert(self.t, (self.n, self.s));
        Ok((sorted, self.steps, self.within_one))
    }

    /// What a chunk reads of a state may be no number where it is one as written, something infinite being left out of it; then what depends
    /// on it is no number either, but a condition of the text that asks for it would choose otherwise.
    fn check_conditions(&self, states: &[NodeId]) -> Result<(), Why> {
        let mut read: BTreeSet<NodeId> =
            self.graph.ids().filter(|n| !states.contains(n) && self.reads_any(*n, states)).collect();
        let mut known = 0;
        while known < read.len() {
            known = read.len();
            let more: Vec<NodeId> =
                self.graph.ids().filter(|&n| self.graph.operands(n).iter().any(|o| read.contains(&o.node))).collect();
            read.extend(more);
        }
        for n in self.graph.ids().filter(|n| !states.contains(n) && read.contains(n)) {
            let mut found = None;
            let asks = |t: &Term| {
                matches!(t, Term::Binary(op, ..) if op.is_comparison())
                    && !self.asks_of_decay(n, t)
                    && t.any_read(&|n| states.contains(&n) || read.contains(&n))
            };
            self.terms(n, &mut |t| {
                show::unguarded(t).visit(&mut |t| {
                    if found.is_none() && asks(t) {
                        found = Some(t.clone());
                    }
                });
            });
            if let Some(condition) = found {
                let (name, state) = (&self.graph[n].name, &self.graph[states[0]].name);
                let shown = show::term(&self.graph, &condition);
                let reason = format!(
                    "{name} asks {shown}, and where something infinite is left out of a chunk what it reads of {state} may be no number"
                );
                let hint = "a function of the state in place of the condition, such as relu or sigmoid, would do";
                return Err((reason, Some(hint.into())));
            }
        }
        Ok(())
    }

    /// Whether it is a decay that a comparison asks for, which is no number where what it decays is none.
    fn asks_of_decay(&self, n: NodeId, t: &Term) -> bool {
        let made = |n: NodeId| self.decays.contains(&self.graph[n].name);
        match t {
            Term::Binary(BinaryOp::Eq | BinaryOp::Ne, a, _) => made(n) && matches!(**a, Term::Unary(UnaryOp::Exp, _)),
            Term::Binary(BinaryOp::Lt | BinaryOp::Le, a, _) => matches!(**a, Term::Read(o, _) if made(o)),
            _ => false,
        }
    }

    /// What another recurrence has for the chunk at hand is there in its own loop only.
    fn check_windows(&self) -> Result<(), Why> {
        for (k, own) in self.graph.recurrences.iter().enumerate().filter(|(_, r)| !r.within.is_empty()) {
            for (_, other) in self.graph.recurrences.iter().enumerate().filter(|(j, r)| *j != k && !r.within.is_empty())
            {
                let local = |t: &Term| match t {
                    Term::Old(n, _) if other.members.contains(n) => Some(*n),
                    Term::Read(n, _) if other.members.contains(n) && !self.graph[*n].axes.contains(&other.index) => {
                        Some(*n)
                    }
                    _ => None,
                };
                let mut found = None;
                for &m in &own.members {
                    self.terms(m, &mut |t| t.visit(&mut |t| found = found.or_else(|| local(t))));
                }
                if let Some(n) = found {
                    let name = &self.graph[n].name;
                    return Err((
                        format!("its steps need {name}, which another loop over chunks has for its own chunk only"),
                        Some("what it reads as a tensor of its own, in another statement, would do".to_string()),
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a loop computes for the chunk at hand is there for the positions of that chunk only: not for those that some
    /// other index of the same rank goes through.
    fn check_places(&self) -> Result<(), Why> {
        for own in self.graph.recurrences.iter().filter(|r| !r.within.is_empty()) {
            let local = |i: &IndexId| *i == own.index || own.within.contains(i);
            let elsewhere = |t: &Term| {
                let Term::Read(n, at) = t else { return None };
                let node = &self.graph[*n];
                let inside = own.members.contains(n) && !matches!(node.def, Def::Iterative { .. });
                let mut places = node.axes.iter().zip(at).filter(|(axis, _)| local(axis));
                let away = places.any(|(_, at)| at.as_var().is_none_or(|i| !local(&i)));
                (inside && away).then_some(*n)
            };
            let mut found = None;
            for &m in &own.members {
                self.terms(m, &mut |t| t.visit(&mut |t| found = found.or_else(|| elsewhere(t))));
            }
            if let Some(n) = found {
                let name = &self.graph[n].name;
                return Err((
                    format!("{name} is read at positions of other chunks than the one that it is computed in"),
                    Some("reads of it at the position at hand would do".to_string()),
                ));
            }
        }
        Ok(())
    }

    /// Whether a node's definition needs one of `states`, through any others.
    fn reaches(&self, n: NodeId, states: &[NodeId]) -> bool {
        let mut seen = BTreeSet::new();
        let mut todo = vec![n];
        while let Some(n) = todo.pop() {
            if seen.insert(n) {
                let operands: Vec<NodeId> = self.graph.operands(n).iter().map(|o| o.node).collect();
                if operands.iter().any(|o| states.contains(o)) {
                    return true;
                }
                todo.extend(operands);
            }
        }
        false
    }

    /// Whether a node reads one of `states` at a position that moves, other than at the start of a chunk.
    fn reads_any(&self, n: NodeId, states: &[NodeId]) -> bool {
        let moving = |t: &Term| {
            let Term::Read(o, at) = t else { return false };
            let Def::Iterative { dim, .. } = &self.graph[*o].def else { return false };
            states.contains(o) && !at[*dim].terms.is_empty()
        };
        let mut found = false;
        self.terms(n, &mut |t| t.visit(&mut |t| found |= moving(t)));
        found
    }

    /// The terms of a node's definition.
    fn terms(&self, n: NodeId, look: &mut dyn FnMut(&Term)) {
        match &self.graph[n].def {
            Def::Input => {}
            Def::Map(t) => look(t),
            Def::Reduce(r) => r.filter.iter().chain([&r.body]).for_each(look),
            Def::Iterative { initial, step, .. } => initial.iter().map(|i| &i.1).chain([step]).for_each(look),
        }
    }

    /// The conditions on a state that hold wherever it is read.
    fn check(&self, a: &Affine) -> Result<(), Why> {
        let node = &self.graph[a.state];
        let name = &node.name;
        if super::inline::rounds(node) {
            let reason =
                format!("{name} is rounded at every step, and rounding does not commute with the steps after it");
            return Err((reason, Some("an undeclared number type, or f32, would do".into())));
        }
        let weight = Weight { base: Base::E, exponent: a.exponent.clone() };
        // What is added to both sides of an extremum makes neither larger than step by step.
        if a.over == Monoid::Sum && !weight.at_most_one(&a.exponent, &self.graph) {
            let finite: crate::product::Sum = a.exponent.iter().map(|(c, t)| (*c, guard::as_if_finite(t))).collect();
            let anchored = finite != a.exponent;
            // Where such a maximum is not finite the state is 0 or no number: see [`super::reassociate`].
            let known = anchored && Weight { exponent: finite.clone(), ..weight }.at_most_one(&finite, &self.graph);
            if known {
                return self.check_slices(a);
            }
            let exponent = show::term(&self.graph, &crate::product::sum_term(&a.exponent));
            let reason = format!(
                "the sign of {exponent} is not known: over a chunk its exponential may overflow where a state of {name} is 0 or small, and step by step it would not"
            );
            let hint =
                "an exponent that cannot be positive would do, such as -abs(a), log(sigmoid(a)) or -log(1 + exp(a))";
            return Err((reason, Some(hint.to_string())));
        }
        self.check_slices(a)
    }

    /// The conditions on a state's first slice, and on the indices that its decay carries.
    fn check_slices(&self, a: &Affine) -> Result<(), Why> {
        let node = &self.graph[a.state];
        let name = &node.name;
        let Def::Iterative { initial, .. } = &node.def else { return Ok(()) };
        if !matches!(initial.as_slice(), [(at, _)] if at.as_constant() == Some(0)) {
            let hint = "one first slice, at position 0, would do".to_string();
            return Err((format!("{name} starts from several slices"), Some(hint)));
        }
        Ok(())
    }

    /// No decay is larger than 1, as its form or, later, the values of parameters show.
    fn check_size(&mut self, a: &Affine) -> Result<(), Why> {
        if a.over != Monoid::Sum {
            return Ok(());
        }
        let mut factors: Vec<&Term> = a.constant.iter().chain(&a.factor).collect();
        while let Some(decay) = factors.pop() {
            if size::within_one(decay, &self.graph) {
                continue;
            }
            if let Term::Binary(BinaryOp::Mul, one, other) = decay {
                factors.extend([&**one, &**other]);
                continue;
            }
            if !decay.is_of_numbers() {
                let (name, decay) = (&self.graph[a.state].name, show::term(&self.graph, decay));
                let reason = format!(
                    "the size of {decay} is not known: over a chunk its powers may overflow where a state of {name} is 0 or small, and step by step it would not"
                );
                let hint = format!(
                    "a decay between -1 and 1 by its form would do, such as sigmoid(a), tanh(a), exp(-abs(a)) or min(max(a, -1), 1) in place of {decay}"
                );
                return Err((reason, Some(hint)));
            }
            self.within_one.push(decay.clone());
        }
        Ok(())
    }

    /// The state's step from one end of a chunk to the next.
    fn advance(&mut self, a: &Affine) -> Result<(), Why> {
        let node = self.graph[a.state].clone();
        let before = format!("{} = {}", self.later(&node), show::def(&self.graph, &node.def));
        let at: Vec<IndexExpr> = node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
        let total = self.stretch(a, None, None);
        let mut step = a.decayed(total, Term::Old(a.state, at));
        for (k, u) in a.summands.iter().enumerate() {
            let decay = self.stretch(a, Some(self.n), None);
            let (body, filter) = u.at(self.t, self.n)?;
            let what = if k == 0 { "added".to_string() } else { format!("added{}", k + 1) };
            let all = self.local(a.over, &node, &what, &[self.n], filter, a.decayed(decay, body));
            step = match a.over {
                Monoid::Sum => Term::Binary(BinaryOp::Add, Box::new(step), Box::new(all)),
                over => extrema::joined(over, step, all),
            };
        }
        let Def::Iterative { step: own, .. } = &mut self.graph.nodes[a.state.0 as usize].def else { return Ok(()) };
        *own = step;
        self.members.push(a.state);
        let after = format!("{} = {}", self.later(&node), show::def(&self.graph, &self.graph[a.state].def));
        let index = self.graph.cascade[self.t].name.clone();
        let compose = match a.over {
            Monoid::Sum => "a·h + b compose, (a, b) ∘ (a', b') = (a·a', a·b' + b)",
            Monoid::Min => "min(h + a, b) compose, (a, b) ∘ (a', b') = (a + a', min(b' + a, b))",
            _ => "max(h + a, b) compose, (a, b) ∘ (a', b') = (a + a', max(b' + a, b))",
        };
        let why = format!(
            "steps {compose}: {index} goes from the start of a chunk to its end, and {}, {} run over the chunk",
            self.graph.cascade[self.n].name, self.graph.cascade[self.s].name
        ) + &self.told_sizes(a);
        self.tell(&node, why, before, after);
        Ok(())
    }

    /// What is told of decays whose size is not known yet.
    fn told_sizes(&self, a: &Affine) -> String {
        let is_open = |d: &&Term| a.constant.iter().chain(&a.factor).any(|all| holds(all, d));
        let open: Vec<String> = self.within_one.iter().filter(is_open).map(|d| show::term(&self.graph, d)).collect();
        if open.is_empty() {
            String::new()
        } else {
            format!("; only where {} turns out to be between -1 and 1", open.join(" and "))
        }
    }

    fn later(&self, node: &Node) -> String {
        let name = |i: &IndexId| self.graph.cascade[*i].name.clone();
        let axes = node.axes.iter().map(|i| if *i == self.t { format!("{}+1", name(i)) } else { name(i) });
        format!("{}[{}]", node.name, axes.collect::<Vec<_>>().join(","))
    }

    fn tell(&mut self, node: &Node, why: String, before: String, after: String) {
        let rank = self.graph.cascade[self.graph.recurrences[self.r].rank].name.clone();
        let statement = node.statement.unwrap_or(0);
        self.steps.push(Step {
            rule: Rule::Scan,
            statement,
            node: node.name.clone(),
            ranks: vec![rank],
            why,
            before,
            after,
        });
    }

    /// A member, or the equal one that exists, read at its own axes. Its axes are the indices that it carries, in the
    /// order of `like`.
    fn member(&mut self, like: &Node, what: &str, def: Def) -> Term {
        if let Some(&same) = self.members.iter().find(|&&m| self.graph[m].def == def) {
            return self.graph.read(same);
        }
        let mut free = BTreeSet::new();
        match &def {
            Def::Reduce(r) => {
                r.body.indices(&mut free);
                r.filter.iter().for_each(|t| t.indices(&mut free));
                r.over.iter().for_each(|i| _ = free.remove(i));
            }
            Def::Map(t) => t.indices(&mut free),
            _ => {}
        }
        // The state at the start of the chunk does not move with the position.
        let mut axes: Vec<IndexId> = like.axes.iter().copied().filter(|i| free.remove(i)).collect();
        let place = axes.iter().position(|&i| i == self.t).map_or(axes.len(), |k| k + 1);
        axes.splice(place..place, free);
        let node = Node {
            name: crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.{what}", like.name)),
            extents: axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect(),
            axes,
            def,
            dtype: None,
            tensor: None,
            statement: like.statement,
            span: like.span,
        };
        if what == DECAY {
            self.decays.insert(node.name.clone());
        }
        self.graph.nodes.push(node);
        let id = NodeId(self.graph.nodes.len() as u32 - 1);
        self.members.push(id);
        self.graph.read(id)
    }

    /// A sum over positions inside the chunk, or over indices of the state.
    fn local_sum(&mut self, like: &Node, what: &str, over: &[IndexId], filter: Vec<Term>, body: Term) -> Term {
        self.local(Monoid::Sum, like, what, over, filter, body)
    }

    fn local(
        &mut self,
        monoid: Monoid,
        like: &Node,
        what: &str,
        over: &[IndexId],
        filter: Vec<Term>,
        body: Term,
    ) -> Term {
        let streaming = crate::Streaming::default();
        self.member(like, what, Def::Reduce(crate::Reduction { monoid, over: over.to_vec(), filter, body, streaming }))
    }
}

/// What nodes are called that decays are made of.
const DECAY: &str = "decay";

/// Whether a product has such a factor.
fn holds(product: &Term, factor: &Term) -> bool {
    match product {
        Term::Binary(BinaryOp::Mul, a, b) => holds(a, factor) || holds(b, factor),
        _ => product == factor,
    }
}

/// `factor · term`, for a factor that may be nothing.
fn times(factor: Option<Term>, term: Term) -> Term {
    match factor {
        None => term,
        Some(f) if term == Term::Number(1.0) => f,
        Some(f) => Term::Binary(BinaryOp::Mul, Box::new(f), Box::new(term)),
    }
}
