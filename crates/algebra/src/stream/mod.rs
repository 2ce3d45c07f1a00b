//! Executes a graph the way its streaming forms say: chunk by chunk, and merged from parts, over f64 or over any other
//! [`Domain`].
//!
//! This is no backend: it is how a derivation is tried against the meaning, form by form, before anything is planned.

mod chunk;
mod domain;
mod places;

use crate::{Def, Graph, NodeId, Reduction, Repair, Term};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{BinaryOp, Bound, IndexAtom, IndexExpr, IndexId, Monoid};
use std::collections::{BTreeMap, BTreeSet};

use domain::choose;
pub use domain::{Domain, Followed, Made, Reals, apply, combine};
use places::{Places, Standing};

/// How every reduction's index space is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One chunk.
    Whole,
    /// Chunks of this many positions, one after the other: `init`, `step`…
    Chunks(usize),
    /// Parts of this many positions, each from `init`, then put together pairwise: `merge`.
    Parts(usize),
}

/// Shape and elements of each output.
pub type Outputs<V> = Vec<(Vec<usize>, Vec<V>)>;

/// The outputs of a graph in f64, by name. `None` where an index expression leaves its tensor or an input is missing.
pub fn evaluate(graph: &Graph, bound: &Bound, inputs: &Arrays, cut: Cut) -> Option<Arrays> {
    let outputs = evaluate_in(&Reals { graph, bound, inputs }, graph, bound, cut)?;
    let array = |(shape, values)| Array { shape, values };
    let named = graph.outputs.iter().zip(outputs).map(|(&o, output)| (graph[o].name.clone(), array(output)));
    Some(named.collect())
}

/// The outputs of a graph over a domain, in order: shape and values each.
pub fn evaluate_in<D: Domain>(domain: &D, graph: &Graph, bound: &Bound, cut: Cut) -> Option<Outputs<D::Value>> {
    let mut run =
        Run { domain, graph, bound, cut, values: vec![vec![]; graph.nodes.len()], shapes: vec![], window: None };
    run.shapes =
        graph.nodes.iter().map(|n| n.extents.iter().map(|e| bound.extent(e).max(0) as usize).collect()).collect();
    for id in graph.ids() {
        let count = run.shapes[id.0 as usize].iter().product();
        run.values[id.0 as usize] = match &graph[id].def {
            // An input that nothing reads need not be given.
            Def::Input => domain.input(id, count).unwrap_or_default(),
            _ => vec![domain.number(f64::NAN); count],
        };
    }
    let mut done = vec![false; graph.recurrences.len()];
    let wanted = run.wanted();
    for id in graph.ids().filter(|id| wanted.contains(id)) {
        match graph.recurrences.iter().position(|r| r.members.contains(&id)) {
            Some(r) if !std::mem::replace(&mut done[r], true) => run.recurrence(r)?,
            Some(_) => {}
            None => run.node(id, None)?,
        }
    }
    Some(graph.outputs.iter().map(|o| (run.shapes[o.0 as usize].clone(), run.values[o.0 as usize].clone())).collect())
}

struct Run<'a, D: Domain> {
    domain: &'a D,
    graph: &'a Graph,
    bound: &'a Bound,
    cut: Cut,
    values: Vec<Vec<D::Value>>,
    shapes: Vec<Vec<usize>>,
    /// The chunk of a recurrence that is at work.
    window: Option<chunk::Window>,
}

/// Where every index stands, and the running values of anchors.
#[derive(Clone)]
struct Point<V> {
    at: Standing,
    new: BTreeMap<NodeId, V>,
    old: BTreeMap<NodeId, V>,
}

impl<V> Point<V> {
    fn new(axes: &[IndexId], at: &[usize]) -> Self {
        Self { at: Standing::new(axes, at), new: BTreeMap::new(), old: BTreeMap::new() }
    }
}

impl<D: Domain> Run<'_, D> {
    /// What some element of an output needs. Where a tensor is empty, nothing is read for it, not even what does not carry
    /// the empty axis.
    fn wanted(&self) -> BTreeSet<NodeId> {
        let empty = |n: NodeId| self.shapes[n.0 as usize].contains(&0);
        let mut wanted = BTreeSet::new();
        let mut todo = self.graph.outputs.clone();
        while let Some(n) = todo.pop() {
            if empty(n) || !wanted.insert(n) {
                continue;
            }
            todo.extend(self.graph.operands(n).iter().map(|o| o.node));
            let own = self.graph.recurrences.iter().filter(|r| r.members.contains(&n));
            todo.extend(own.flat_map(|r| r.members.iter().copied()));
        }
        wanted
    }

    /// Computes a node, or the slice of it where one index stands still.
    fn node(&mut self, id: NodeId, fixed: Option<(IndexId, usize)>) -> Option<()> {
        let node = &self.graph[id];
        if node.def == Def::Input {
            return Some(());
        }
        let mut places = Places::of(&self.shapes[id.0 as usize]);
        // Of a step nothing else is visited: there are as many steps as slices.
        let fixed = fixed.and_then(|(index, t)| Some((node.axes.iter().position(|&a| a == index)?, t)));
        let next = matches!(node.def, Def::Iterative { .. });
        let ahead = fixed.filter(|_| next).map(|(d, _)| d);
        if let Some((d, t)) = fixed {
            places.within(d, t..t + 1);
        }
        while let Some(at) = places.next() {
            let point = Point::new(&node.axes, at);
            let value = match &node.def {
                Def::Map(t) => self.term(t, &point)?,
                Def::Iterative { step, .. } => self.term(step, &point)?,
                Def::Reduce(r) => self.reduce(r, &point)?,
                Def::Input => continue,
            };
            let value = node.dtype.map_or(value.clone(), |d| self.domain.round(d, value));
            let slice = node.tensor.is_some() && matches!(node.def, Def::Iterative { .. });
            let value = if slice { self.domain.slice(value) } else { value };
            let place = at.iter().enumerate().map(|(d, &p)| p as i64 + i64::from(ahead == Some(d)));
            let offset = self.offset(id, place.map(Some))?;
            self.values[id.0 as usize][offset] = value;
        }
        Some(())
    }

    fn recurrence(&mut self, r: usize) -> Option<()> {
        let r = &self.graph.recurrences[r];
        for &m in &r.members {
            let node = &self.graph[m];
            let Def::Iterative { dim, initial, .. } = &node.def else { continue };
            for (position, term) in initial {
                let position = self.bound.extent(position);
                let mut places = Places::of(&self.shapes[m.0 as usize]);
                // None, where it lies outside.
                let position = usize::try_from(position).unwrap_or(usize::MAX);
                places.within(*dim, position..position.saturating_add(1));
                while let Some(at) = places.next() {
                    let value = self.term(term, &Point::new(&node.axes, at))?;
                    let offset = self.offset(m, at.iter().map(|&p| Some(p as i64)))?;
                    self.values[m.0 as usize][offset] =
                        node.dtype.map_or(value.clone(), |d| self.domain.round(d, value));
                }
            }
        }
        if !r.within.is_empty() {
            return self.by_chunks(r);
        }
        for t in 0..self.bound.size(r.rank) {
            for &m in &r.members {
                self.node(m, Some((r.index, t)))?;
            }
        }
        Some(())
    }

    fn reduce(&self, r: &Reduction, point: &Point<D::Value>) -> Option<D::Value> {
        let sizes: Vec<usize> = r.over.iter().map(|&i| self.bound.size(self.graph.cascade[i].rank)).collect();
        let all: Vec<usize> = match &self.window {
            None => (0..sizes.iter().product()).collect(),
            Some(w) => {
                let mut places = Places::of(&sizes);
                w.restrict(&r.over, &mut places);
                places.numbers(&sizes)
            }
        };
        let group = self.group(r);
        let init = || State {
            anchors: group.iter().map(|&a| (a, self.domain.identity(self.reduction(a).monoid))).collect(),
            value: self.domain.identity(r.monoid),
            best: None,
        };
        let state = match self.cut {
            Cut::Whole => self.step(r, init(), &all, point)?,
            Cut::Chunks(n) => {
                let mut state = init();
                for chunk in all.chunks(n.max(1)) {
                    state = self.step(r, state, chunk, point)?;
                }
                state
            }
            Cut::Parts(n) => {
                let mut parts: Vec<State<D::Value>> =
                    all.chunks(n.max(1)).map(|c| self.step(r, init(), c, point)).collect::<Option<_>>()?;
                while parts.len() > 1 {
                    parts = parts
                        .chunks(2)
                        .map(|p| if p.len() == 2 { self.merge(r, &p[0], &p[1], point) } else { Some(p[0].clone()) })
                        .collect::<Option<_>>()?;
                }
                parts.pop().unwrap_or_else(init)
            }
        };
        Some(state.value)
    }

    /// One more chunk: anchors first, then the state, repaired.
    fn step(
        &self,
        r: &Reduction,
        state: State<D::Value>,
        chunk: &[usize],
        point: &Point<D::Value>,
    ) -> Option<State<D::Value>> {
        let mut moved = Point { old: state.anchors.clone(), new: BTreeMap::new(), ..point.clone() };
        for (&a, old) in &state.anchors {
            let anchor = self.reduction(a);
            let start = self.repaired(anchor, old.clone(), &moved)?;
            let new = self.fold(anchor, start, &mut None, chunk, &moved, &r.over)?;
            moved.new.insert(a, new);
        }
        let start = self.repaired(r, state.value, &moved)?;
        let mut best = state.best;
        let value = self.fold(r, start, &mut best, chunk, &moved, &r.over)?;
        Some(State { anchors: moved.new, value, best })
    }

    fn merge(
        &self,
        r: &Reduction,
        a: &State<D::Value>,
        b: &State<D::Value>,
        point: &Point<D::Value>,
    ) -> Option<State<D::Value>> {
        if matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) {
            return Some(match (&a.best, &b.best) {
                (Some(p), Some(q)) => {
                    let (later, value) = self.domain.extremum(r.monoid, [p, q], [a.value.clone(), b.value.clone()]);
                    State { value, ..if later { b.clone() } else { a.clone() } }
                }
                (None, _) => b.clone(),
                (_, None) => a.clone(),
            });
        }
        let mut anchors = BTreeMap::new();
        for &n in a.anchors.keys() {
            let reduction = self.reduction(n);
            let side = |s: &State<D::Value>| {
                let moved = Point { old: s.anchors.clone(), new: anchors.clone(), ..point.clone() };
                self.repaired(reduction, s.anchors[&n].clone(), &moved)
            };
            let value = self.domain.combine(reduction.monoid, &side(a)?, &side(b)?)?;
            anchors.insert(n, value);
        }
        let side = |s: &State<D::Value>| {
            let moved = Point { old: s.anchors.clone(), new: anchors.clone(), ..point.clone() };
            self.repaired(r, s.value.clone(), &moved)
        };
        let value = self.domain.combine(r.monoid, &side(a)?, &side(b)?)?;
        Some(State { anchors, value, best: None })
    }

    fn repaired(&self, r: &Reduction, value: D::Value, point: &Point<D::Value>) -> Option<D::Value> {
        let Some(Repair { combine, factor, plus, keep_if }) = &r.streaming.repair else { return Some(value) };
        if let Some(keep) = keep_if
            && !self.domain.holds(&self.term(keep, point)?)
        {
            return Some(self.domain.identity(r.monoid));
        }
        let moved = self.domain.binary(*combine, &value, &self.term(factor, point)?);
        Some(match plus {
            Some(plus) => self.domain.binary(BinaryOp::Add, &moved, &self.term(plus, point)?),
            None => moved,
        })
    }

    /// `start ⊕ ⊕ chunk`, of positions as they are counted row-major. For arg-extrema `best` is the extremum so far.
    fn fold(
        &self,
        r: &Reduction,
        start: D::Value,
        best: &mut Option<D::Value>,
        chunk: &[usize],
        point: &Point<D::Value>,
        over: &[IndexId],
    ) -> Option<D::Value> {
        let mut acc = start;
        let mut inner = point.clone();
        let sizes: Vec<usize> = over.iter().map(|&i| self.bound.size(self.graph.cascade[i].rank)).collect();
        for &number in chunk {
            let mut rest = number;
            for (&i, &size) in over.iter().zip(&sizes).rev() {
                inner.at.set(i, (rest % size) as i64);
                rest /= size;
            }
            let position = matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin);
            let (mut holds, mut doubt) = (true, None);
            // In order: a condition on data may be one that only the conditions before it let be asked.
            for f in &r.filter {
                if !holds {
                    break;
                }
                let truth = self.term(f, &inner)?;
                match self.domain.in_doubt(&truth).filter(|_| !position) {
                    Some(first) => doubt = Some(first && doubt.unwrap_or(true)),
                    None => holds = self.domain.holds(&truth),
                }
            }
            if !holds {
                continue;
            }
            let v = self.term(&r.body, &inner)?;
            if position {
                let here = self.domain.integer(number as i64);
                let (later, position) = match best {
                    Some(best) => self.domain.extremum(r.monoid, [best, &v], [acc, here]),
                    None => (true, here),
                };
                acc = position;
                if later {
                    *best = Some(v);
                }
            } else {
                let more = self.domain.combine(r.monoid, &acc, &self.domain.single(r.monoid, v))?;
                acc = match doubt {
                    None => more,
                    Some(true) => self.domain.either(more, acc),
                    Some(false) => self.domain.either(acc, more),
                };
            }
        }
        Some(acc)
    }

    /// The anchors of a reduction and theirs: what must run beside it, each after those it is anchored at.
    fn group(&self, r: &Reduction) -> BTreeSet<NodeId> {
        let mut out = BTreeSet::new();
        let mut todo = r.streaming.anchors.clone();
        while let Some(a) = todo.pop() {
            if out.insert(a) {
                todo.extend(&self.reduction(a).streaming.anchors);
            }
        }
        out
    }

    fn reduction(&self, n: NodeId) -> &Reduction {
        match &self.graph[n].def {
            Def::Reduce(r) => r,
            _ => unreachable!("anchors are reductions"),
        }
    }

    fn term(&self, t: &Term, point: &Point<D::Value>) -> Option<D::Value> {
        Some(match t {
            Term::Number(v) => self.domain.number(*v),
            Term::Param(p) => self.domain.param(*p),
            Term::Size(s) => self.domain.integer(self.bound.extent(s)),
            Term::Position(i) => self.domain.integer(point.at.get(*i)?),
            Term::Old(n, at) => match point.old.get(n) {
                Some(v) => v.clone(),
                None => self.at_start(*n, at, point)?,
            },
            Term::Read(n, at) => match point.new.get(n) {
                Some(v) => v.clone(),
                None => {
                    let offset = self.offset(*n, at.iter().map(|e| self.index(e, point)))?;
                    self.values[n.0 as usize].get(offset)?.clone()
                }
            },
            Term::Argument(_) => return None,
            Term::Unary(op, x) => self.domain.unary(*op, &self.term(x, point)?),
            Term::Binary(op, a, b) => self.domain.binary(*op, &self.term(a, point)?, &self.term(b, point)?),
            Term::Select(c, a, b) => {
                let holds = self.term(c, point)?;
                choose(self.domain, &holds, [&|| self.term(a, point), &|| self.term(b, point)])?
            }
        })
    }

    fn index(&self, e: &IndexExpr, point: &Point<D::Value>) -> Option<i64> {
        let mut sum = self.bound.extent(&e.offset);
        for (c, atom) in &e.terms {
            let v = match atom {
                IndexAtom::Var(i) => point.at.get(*i)?,
                IndexAtom::Floor { numerator, denominator } => {
                    self.index(numerator, point)?.div_euclid(self.bound.extent(denominator))
                }
                IndexAtom::Gather { tensor, at } => {
                    let n = self.graph.node_of(*tensor)?;
                    let offset = self.offset(n, at.iter().map(|e| self.index(e, point)))?;
                    self.domain.position(self.values[n.0 as usize].get(offset)?)?
                }
            };
            sum += self.bound.extent(c) * v;
        }
        Some(sum)
    }

    fn offset(&self, n: NodeId, at: impl Iterator<Item = Option<i64>>) -> Option<usize> {
        let mut offset = 0;
        for (p, &extent) in at.zip(&self.shapes[n.0 as usize]) {
            let p = usize::try_from(p?).ok().filter(|&p| p < extent)?;
            offset = offset * extent + p;
        }
        Some(offset)
    }
}

/// What one reduction carries while streaming.
#[derive(Clone)]
struct State<V> {
    /// The running values of its anchors and of theirs.
    anchors: BTreeMap<NodeId, V>,
    value: V,
    /// For arg-extrema: the extremum.
    best: Option<V>,
}
