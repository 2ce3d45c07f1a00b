//! Traversals: one loop over the reduced indices that computes all reductions that can share it.

use super::{Emitter, Fail, Lagging, Running, Scope, orient};
use crate::PlanError;
use crate::expr::{Expr, ExprId, Linear};
use crate::lower::{How, Lowered};
use einloom_algebra::NodeId;
use einloom_cascade::{DType, IndexId};
use einloom_tile::{AxisId, AxisKind, Guard, Init, Op, Predicate, State, ValueId};
use std::collections::BTreeSet;

/// One of the nested streams of a traversal.
struct Level {
    axis: AxisId,
    within: Predicate,
    guards: Vec<Guard>,
    /// One per member.
    states: Vec<ValueId>,
    /// One per anchor that lags.
    lagging: Vec<ValueId>,
}

impl Emitter<'_> {
    /// The value of a reduction: in the body of its own traversal the running one, elsewhere the complete one.
    pub(super) fn fold_value(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        let running = self.scopes.iter().rposition(|s| s.running.contains_key(&n));
        match running {
            Some(k) => match &self.scopes[k].running[&n] {
                Running { complete: Some(v), .. } => Ok(*v),
                Running { lag: Some(Lagging { new: Some(v), .. }), .. } => Ok(*v),
                Running { lag: Some(_), .. } => self.at_depth(k, |s| s.follow(n)),
                _ => self.at_depth(k, |s| s.latest(n)),
            },
            None => self.traverse(n),
        }
    }

    /// A state before the chunk.
    pub(super) fn old_value(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        match self.scopes.iter().rev().find_map(|s| s.running.get(&n)) {
            Some(r) => Ok(r.lag.map_or(r.old, |l| l.old)),
            None if self.behind.contains_key(&n) => Ok(self.behind[&n]),
            None => {
                let read = self.x.plain(n, &self.p[n].axes);
                self.tile(read)
            }
        }
    }

    /// The reduction of all chunks up to this one.
    pub(super) fn latest(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        let depth = self.scopes.len() - 1;
        let Running { old, new, .. } = self.scopes[depth].running[&n];
        if let Some(known) = new {
            return Ok(known);
        }
        let new = self.update(n, Some(old))?;
        if let Some(r) = self.scopes[depth].running.get_mut(&n) {
            r.new = Some(new);
        }
        Ok(new)
    }

    /// Whether a condition that bounds no loop may leave chunks out.
    fn leaves_out(&self, condition: ExprId) -> bool {
        !matches!(self.x.get(condition), Expr::Within(_)) && !self.p.tested.contains(&condition)
    }

    /// Computes a reduction completely, and with it all others that its loop can compute.
    fn traverse(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        if let Some(picking) = self.picking(n) {
            return self.pick(n, picking);
        }
        let mut streamed: Vec<IndexId> = self.l.folds[&n].over.clone();
        streamed.retain(|&i| self.tiling.kind(i) == AxisKind::Stream);
        if streamed.is_empty() {
            return self.update(n, None);
        }
        // Indices that are visited one by one outside, so that the innermost loop runs over the large tiles.
        streamed.sort_by_key(|&i| self.tiling.tiled(i));
        let depth = self.scopes.len() - 1;
        let members = self.members(n, depth)?;
        let waiting = self.pending.len();
        self.pending.extend(&members);
        let complete = members.iter().map(|&m| self.wanted_complete(m, &members)).collect::<Result<Vec<_>, _>>()?;
        let common = self.common_filter(&members);
        let lags = self.lags(&members);
        let mut levels: Vec<Level> = vec![];
        for (k, &i) in streamed.iter().enumerate() {
            let axis = self.stream_axis(i);
            let states = members.iter().map(|&m| self.new_state(m)).collect::<Result<Vec<_>, _>>()?;
            let lagging = self.lag_states(&lags)?;
            self.scopes.push(Scope { bindings: [(i, axis)].into(), ..Scope::default() });
            let within = self.bounds(&common, &streamed, k)?;
            levels.push(Level { axis, within, guards: vec![], states, lagging });
        }
        if let (Some(scope), Some(level)) = (self.scopes.last_mut(), levels.last()) {
            for ((&m, &old), complete) in members.iter().zip(&level.states).zip(complete) {
                let lag = lags.iter().position(|l| l.anchor == m);
                let lag = lag.map(|k| Lagging { old: level.lagging[k], new: None, of: lags[k] });
                scope.running.insert(m, Running { old, new: None, lag, complete });
            }
        }
        for &f in common.iter().filter(|&&f| self.leaves_out(f)).collect::<Vec<_>>() {
            match self.guard(f)? {
                Ok(guard) => {
                    let known = guard.is_static();
                    levels.last_mut().into_iter().for_each(|l| l.guards.push(guard.clone()));
                    // Where a chunk is copied before it is known to be needed, intervals alone decide.
                    if self.lag || known {
                        continue;
                    }
                }
                Err(why) => self.refuse(f, &why),
            }
            let any = self.tile(f)?;
            if self.kernel.value(any).dtype == DType::B1 {
                self.push(Op::SkipUnless { any });
            }
        }
        let (mut next, mut next_lagging) = (vec![], vec![]);
        for l in &lags {
            next_lagging.push(self.fold_value(l.anchor)?);
        }
        let innermost = self.scopes.len() - 1;
        for &m in &members {
            next.push(self.at_depth(innermost, |s| s.latest(m))?);
        }
        for k in (0..levels.len()).rev() {
            let body = self.scopes.pop().map(|s| s.ops).unwrap_or_default();
            let mut states = vec![];
            for (at, &m) in members.iter().enumerate() {
                let init = match k {
                    0 => Init::Const(self.p.identity(self.l.folds[&m].monoid)),
                    _ => Init::Value(levels[k - 1].states[at]),
                };
                states.push(State { value: levels[k].states[at], init, next: next[at] });
            }
            let outer = k.checked_sub(1).map(|o| levels[o].lagging.as_slice());
            states.extend(self.lagging_states(&levels[k].lagging, outer, &next_lagging));
            next = levels[k].states.clone();
            next_lagging = levels[k].lagging.clone();
            let (axis, within) = (levels[k].axis, levels[k].within.clone());
            let guards = std::mem::take(&mut levels[k].guards);
            self.push(Op::Stream { axis, within, guards, states, body });
        }
        self.pending.truncate(waiting);
        let mut values: Vec<(NodeId, ValueId)> = members.iter().copied().zip(next).collect();
        for (l, &at) in lags.iter().zip(&next_lagging) {
            self.remember(l.anchor, values.iter().find(|v| v.0 == l.anchor).map_or(at, |v| v.1), depth);
            self.catch_up(l, at, &mut values)?;
        }
        for &(m, v) in &values {
            self.remember(m, v, depth);
        }
        Ok(values.iter().find(|v| v.0 == n).unwrap_or(&values[0]).1)
    }

    /// The dimensions of what a reduction reads from memory, also through others, for messages about too many axes.
    pub(super) fn operands(&self, n: NodeId) -> Vec<Vec<IndexId>> {
        let (mut out, mut seen, mut todo) = (vec![], BTreeSet::new(), vec![n]);
        while let Some(n) = todo.pop() {
            let Some(fold) = self.l.folds.get(&n).filter(|_| seen.insert(n)) else { continue };
            let parts = match fold.how {
                How::Contract(a, b) => vec![a, b],
                How::Fold(e) => vec![e],
            };
            for e in parts {
                self.x.reads(e, &mut BTreeSet::new(), &mut |m, at| match self.l.folds.contains_key(&m) {
                    true => todo.push(m),
                    false => out.push(if at.is_empty() { self.p[m].axes.clone() } else { orient::dims(at) }),
                });
            }
        }
        out
    }

    /// The complete value of a reduction is known here.
    fn remember(&mut self, m: NodeId, v: ValueId, depth: usize) {
        let read = self.x.plain(m, &self.p[m].axes);
        let decl = self.kernel.value(v);
        let sides = (decl.rows, decl.cols);
        self.scopes[depth].memo.insert((read, sides), v);
    }

    pub(super) fn new_state(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        let f = &self.l.folds[&n];
        let (state, dtype) = (self.tiled(&f.state), f.dtype);
        let sides = self.sides_or(&state, || self.operands(n))?;
        let name = &self.p[n].name;
        let mut letters = name.chars();
        let name = letters.next().map_or(String::new(), |c| c.to_uppercase().chain(letters).collect());
        Ok(self.new_value(name, sides, dtype))
    }

    /// The reductions that one loop computes together with `n`: the same indices, the same level, and none needs the
    /// complete value of another.
    fn members(&mut self, n: NodeId, depth: usize) -> Result<Vec<NodeId>, Fail> {
        let (over, level) = {
            let f = &self.l.folds[&n];
            (f.over.iter().copied().collect::<BTreeSet<_>>(), f.level)
        };
        let mut out = vec![n];
        for m in self.l.order.clone() {
            // What picks needs no loop.
            if self.picking(m).is_some() {
                continue;
            }
            let f = &self.l.folds[&m];
            // A loop is bounded by what all its reductions are filtered by.
            let spans =
                |f: &Lowered| f.filter.iter().copied().filter(|&e| self.p.span(e).is_some()).collect::<Vec<_>>();
            if m == n
                || f.level != level
                || spans(f) != spans(&self.l.folds[&n])
                || f.over.iter().copied().collect::<BTreeSet<_>>() != over
            {
                continue;
            }
            let read = self.x.plain(m, &self.p[m].axes);
            // Loops that wait for each other would have no order.
            if self.pending.clone().into_iter().any(|p| self.needs_complete(m, p)) {
                continue;
            }
            let bound = self.l.facts.of(self.p, self.x, read).free.iter().all(|&i| self.binding(i).is_ok());
            if !bound || self.depth(read)? != depth || self.is_running(m) || self.is_complete(read, depth) {
                continue;
            }
            if out.iter().all(|&o| !self.needs_complete(m, o) && !self.needs_complete(o, m)) {
                out.push(m);
            }
        }
        // The states of a vector move together, wherever else each could be computed.
        let mut k = 0;
        while let Some(m) = out.get(k).copied() {
            let f = &self.l.folds[&m];
            let joint = f.repair.as_ref().is_some_and(|r| r.plus.is_some());
            for a in f.anchors.clone().into_iter().filter(|_| joint) {
                if self.l.folds.contains_key(&a) && !out.contains(&a) {
                    out.push(a);
                }
            }
            k += 1;
        }
        let place = |m: &NodeId| self.l.order.iter().position(|o| o == m);
        out.sort_by_key(place);
        Ok(out)
    }

    /// The complete value of a reduction that a loop computes once more, for the sake of the states that its running value
    /// moves, where another of the loop's reductions needs it: an earlier loop has it. Refused where running and complete
    /// value are both read, and not told apart.
    fn wanted_complete(&mut self, n: NodeId, members: &[NodeId]) -> Result<Option<ValueId>, Fail> {
        let needing: Vec<NodeId> = members.iter().copied().filter(|&o| self.needs_complete(o, n)).collect();
        if needing.is_empty() {
            return Ok(None);
        }
        for o in members.iter().filter(|o| !needing.contains(o) && **o != n) {
            let f = &self.l.folds[o];
            let parts = match f.how {
                How::Contract(a, b) => vec![a, b],
                How::Fold(e) => vec![e],
            };
            let repair = f.repair.as_ref().map(|r| [Some(r.factor), r.plus, r.keep_if]).into_iter().flatten().flatten();
            if parts.into_iter().chain(repair).any(|e| self.reads_latest(e, n)) {
                let reason = "its complete value and its running one are wanted in one loop";
                return Err(PlanError::unsupported(&self.p[n].name, reason).into());
            }
        }
        let read = self.x.plain(n, &self.p[n].axes);
        let known = self.scopes.iter().rev().find_map(|s| s.memo.iter().find(|(key, _)| key.0 == read));
        match known.map(|(_, v)| *v) {
            Some(v) => Ok(Some(v)),
            None => {
                let reason = "its complete value is wanted in the loop that computes it";
                Err(PlanError::unsupported(&self.p[n].name, reason).into())
            }
        }
    }

    /// Whether an expression reads a reduction, other than its value before the chunk.
    fn reads_latest(&self, e: ExprId, n: NodeId) -> bool {
        match self.x.get(e) {
            Expr::Old(_) => false,
            Expr::Read(..) => {
                let mut found = false;
                self.x.reads(e, &mut BTreeSet::new(), &mut |m, _| found |= m == n);
                found
            }
            _ => self.x.children(e).into_iter().any(|e| self.reads_latest(e, n)),
        }
    }

    fn is_running(&self, n: NodeId) -> bool {
        self.scopes.iter().any(|s| s.running.contains_key(&n))
    }

    fn is_complete(&self, read: ExprId, depth: usize) -> bool {
        self.scopes[depth].memo.keys().any(|k| k.0 == read)
    }

    /// Whether `a` needs the value of `b` after the whole loop.
    fn needs_complete(&mut self, a: NodeId, b: NodeId) -> bool {
        let read = self.x.plain(a, &self.p[a].axes);
        let reach = self.l.facts.of(self.p, self.x, read);
        if a == b || !reach.reach.contains(&b) {
            return false;
        }
        let mut anchors: Vec<NodeId> = self.l.folds[&a].anchors.clone();
        let mut seen = BTreeSet::new();
        while let Some(m) = anchors.pop() {
            if m == b {
                return false;
            }
            if seen.insert(m)
                && let Some(f) = self.l.folds.get(&m)
            {
                anchors.extend(&f.anchors);
            }
        }
        true
    }

    /// The conjuncts that every member is filtered by: where one fails, no state changes. Affine ones one by one.
    fn common_filter(&mut self, members: &[NodeId]) -> Vec<ExprId> {
        let lists: Vec<Vec<ExprId>> = members.iter().map(|m| self.conjuncts(&self.l.folds[m].clone())).collect();
        let Some((first, rest)) = lists.split_first() else { return vec![] };
        first.iter().copied().filter(|f| rest.iter().all(|l| l.contains(f))).collect()
    }

    fn conjuncts(&mut self, f: &Lowered) -> Vec<ExprId> {
        let mut out = vec![];
        for &e in &f.filter {
            match self.x.get(e).clone() {
                Expr::Within(all) => out.extend(all.into_iter().map(|l| self.x.intern(Expr::Within(vec![l])))),
                _ => out.push(e),
            }
        }
        out
    }

    /// The affine conjuncts that bound stream `k` where it opens, those after it still closed: a window that
    /// one of them has in an outer loop is another one's. What moves with none of them keeps the first from being entered.
    fn bounds(&self, common: &[ExprId], streamed: &[IndexId], k: usize) -> Result<Predicate, Fail> {
        let (i, later) = (streamed[k], &streamed[k + 1..]);
        let mut all: Vec<Linear> = vec![];
        for &f in common {
            if let Expr::Within(forms) = self.x.get(f) {
                let open = |j: &IndexId| !later.contains(j) && self.binding(*j).is_ok();
                let moves = |l: &Linear, by: &[IndexId]| by.iter().any(|j| l.terms.contains_key(j));
                let here = |l: &&Linear| (moves(l, &[i]) || k == 0 && !moves(l, streamed)) && l.terms.keys().all(open);
                all.extend(forms.iter().filter(here).cloned());
            }
        }
        // Over the positions of the chunk at hand: both windows are then the same.
        if let Some(t) = self.p.chunk_of(i) {
            let difference = |a, b| Linear { terms: [(a, 1), (b, -1)].into(), constant: 0 };
            all.extend([difference(t, i), difference(i, t)]);
        }
        self.predicate(&all)
    }
}
