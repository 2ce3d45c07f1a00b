//! Executes a graph in f64 the way its streaming forms say: chunk by chunk, and merged from parts.
//!
//! This is no backend: it is how a derivation is tried against the meaning, form by form, before anything is planned.

use crate::{Def, Graph, NodeId, Reduction, Repair, Term};
use einloom_cascade::{BinaryOp, Bound, IndexAtom, IndexExpr, IndexId, Monoid, meaning::Array, meaning::Arrays, numeric};
use std::collections::BTreeMap;

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

/// The outputs of a graph, by name. `None` where an index expression leaves its tensor or an input is missing.
pub fn evaluate(graph: &Graph, bound: &Bound, inputs: &Arrays, cut: Cut) -> Option<Arrays> {
    let mut run = Run { graph, bound, cut, values: vec![vec![]; graph.nodes.len()], shapes: vec![] };
    run.shapes = graph.nodes.iter().map(|n| n.extents.iter().map(|e| bound.extent(e).max(0) as usize).collect()).collect();
    for id in graph.ids() {
        match &graph[id].def {
            Def::Input => {
                let dtype = graph[id].dtype;
                let given = inputs.get(&graph[id].name);
                // An input that nothing reads need not be given.
                run.values[id.0 as usize] = given.map_or(vec![], |a| round_all(&a.values, dtype));
            }
            _ => run.values[id.0 as usize] = vec![f64::NAN; run.shapes[id.0 as usize].iter().product()],
        }
    }
    let mut done = vec![false; graph.recurrences.len()];
    for id in graph.ids() {
        match graph.recurrences.iter().position(|r| r.members.contains(&id)) {
            Some(r) if !std::mem::replace(&mut done[r], true) => run.recurrence(r)?,
            Some(_) => {}
            None => run.node(id, None)?,
        }
    }
    let output = |&o: &NodeId| {
        let array = Array { shape: run.shapes[o.0 as usize].clone(), values: run.values[o.0 as usize].clone() };
        (graph[o].name.clone(), array)
    };
    Some(graph.outputs.iter().map(output).collect())
}

fn round_all(values: &[f64], dtype: Option<einloom_cascade::DType>) -> Vec<f64> {
    values.iter().map(|&v| dtype.map_or(v, |d| numeric::round(d, v))).collect()
}

struct Run<'a> {
    graph: &'a Graph,
    bound: &'a Bound,
    cut: Cut,
    values: Vec<Vec<f64>>,
    shapes: Vec<Vec<usize>>,
}

/// Where every index stands, and the running values of anchors.
#[derive(Clone, Default)]
struct Point {
    at: BTreeMap<IndexId, i64>,
    new: BTreeMap<NodeId, f64>,
    old: BTreeMap<NodeId, f64>,
}

impl Run<'_> {
    /// Computes a node, or the slice of it where one index stands still.
    fn node(&mut self, id: NodeId, fixed: Option<(IndexId, i64)>) -> Option<()> {
        let node = &self.graph[id];
        if node.def == Def::Input {
            return Some(());
        }
        let shape = self.shapes[id.0 as usize].clone();
        let mut points = vec![];
        for_each(&shape, &mut |at| points.push(at.to_vec()));
        for at in points {
            let mut point = Point::default();
            let mut place = at.clone();
            for (axis, &p) in node.axes.iter().zip(&at) {
                point.at.insert(*axis, p as i64);
            }
            if let Some((index, t)) = fixed
                && let Some(d) = node.axes.iter().position(|&a| a == index)
            {
                let last = matches!(node.def, Def::Iterative { .. });
                if at[d] as i64 != t {
                    continue;
                }
                place[d] += usize::from(last);
            }
            let value = match &node.def {
                Def::Map(t) => self.term(t, &point)?,
                Def::Iterative { step, .. } => self.term(step, &point)?,
                Def::Reduce(r) => self.reduce(r, &point)?,
                Def::Input => continue,
            };
            let value = node.dtype.map_or(value, |d| numeric::round(d, value));
            let offset = self.offset(id, &place.iter().map(|&p| p as i64).collect::<Vec<_>>())?;
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
                let shape = self.shapes[m.0 as usize].clone();
                let mut points = vec![];
                for_each(&shape, &mut |at| points.push(at.to_vec()));
                for at in points.into_iter().filter(|at| at[*dim] as i64 == position) {
                    let at: Vec<i64> = at.iter().map(|&p| p as i64).collect();
                    let point = Point { at: node.axes.iter().copied().zip(at.iter().copied()).collect(), ..Point::default() };
                    let value = self.term(term, &point)?;
                    let offset = self.offset(m, &at)?;
                    self.values[m.0 as usize][offset] = node.dtype.map_or(value, |d| numeric::round(d, value));
                }
            }
        }
        for t in 0..self.bound.size(r.rank) as i64 {
            for &m in &r.members {
                self.node(m, Some((r.index, t)))?;
            }
        }
        Some(())
    }

    fn reduce(&self, r: &Reduction, point: &Point) -> Option<f64> {
        let sizes: Vec<usize> = r.over.iter().map(|&i| self.bound.size(self.graph.cascade[i].rank)).collect();
        let mut all = vec![];
        for_each(&sizes, &mut |at| all.push(at.to_vec()));
        let anchors: Vec<NodeId> = r.streaming.anchors.clone();
        let init = || State {
            anchors: anchors.iter().map(|&a| (a, self.identity(self.reduction(a).monoid))).collect(),
            value: self.identity(r.monoid),
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
                let mut parts: Vec<State> =
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
    fn step(&self, r: &Reduction, state: State, chunk: &[Vec<usize>], point: &Point) -> Option<State> {
        let mut next = State { anchors: BTreeMap::new(), value: 0.0, best: None };
        for (&a, &old) in &state.anchors {
            let reduction = self.reduction(a);
            let own = self.fold(reduction, old, &mut None, chunk, point, &r.over)?;
            next.anchors.insert(a, own);
        }
        let moved = Point { old: state.anchors.clone(), new: next.anchors.clone(), ..point.clone() };
        let start = self.repaired(r, state.value, &moved)?;
        next.best = state.best;
        next.value = self.fold(r, start, &mut next.best, chunk, &moved, &r.over)?;
        Some(next)
    }

    fn merge(&self, r: &Reduction, a: &State, b: &State, point: &Point) -> Option<State> {
        let mut anchors = BTreeMap::new();
        for (&n, &v) in &a.anchors {
            anchors.insert(n, self.combine(self.reduction(n).monoid, v, b.anchors[&n])?);
        }
        let side = |s: &State| {
            let moved = Point { old: s.anchors.clone(), new: anchors.clone(), ..point.clone() };
            self.repaired(r, s.value, &moved)
        };
        let (x, y) = (side(a)?, side(b)?);
        if matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) {
            let later = match (a.best, b.best) {
                (Some(p), Some(q)) => if r.monoid == Monoid::ArgMax { q > p } else { q < p },
                (None, _) => true,
                (_, None) => false,
            };
            return Some(if later { b.clone() } else { a.clone() });
        }
        Some(State { anchors: anchors.clone(), value: self.combine(r.monoid, x, y)?, best: None })
    }

    fn repaired(&self, r: &Reduction, value: f64, point: &Point) -> Option<f64> {
        let Some(Repair { combine, factor, keep_if }) = &r.streaming.repair else { return Some(value) };
        if let Some(keep) = keep_if {
            return Some(if self.term(keep, point)? != 0.0 { value } else { self.identity(r.monoid) });
        }
        Some(combine.apply(value, self.term(factor, point)?))
    }

    /// `start ⊕ ⊕ chunk`. For arg-extrema `best` is the extremum so far.
    fn fold(
        &self,
        r: &Reduction,
        start: f64,
        best: &mut Option<f64>,
        chunk: &[Vec<usize>],
        point: &Point,
        over: &[IndexId],
    ) -> Option<f64> {
        let mut acc = start;
        let mut inner = point.clone();
        for at in chunk {
            for (i, &p) in over.iter().zip(at) {
                inner.at.insert(*i, p as i64);
            }
            let mut holds = true;
            for f in &r.filter {
                holds &= self.term(f, &inner)? != 0.0;
            }
            if !holds {
                continue;
            }
            let v = self.term(&r.body, &inner)?;
            if matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) {
                let better = best.is_none_or(|b| if r.monoid == Monoid::ArgMax { v > b } else { v < b });
                if better {
                    *best = Some(v);
                    let sizes = over.iter().map(|&i| self.bound.size(self.graph.cascade[i].rank));
                    acc = sizes.zip(at).fold(0, |acc, (size, &p)| acc * size + p) as f64;
                }
            } else {
                acc = self.combine(r.monoid, acc, v)?;
            }
        }
        Some(acc)
    }

    fn combine(&self, m: Monoid, a: f64, b: f64) -> Option<f64> {
        Some(match m {
            Monoid::Sum => a + b,
            Monoid::Prod => a * b,
            Monoid::Max => BinaryOp::Max.apply(a, b),
            Monoid::Min => BinaryOp::Min.apply(a, b),
            Monoid::ArgMax | Monoid::ArgMin => return None,
            Monoid::Custom(id) => {
                let def = &self.graph.cascade[id];
                crate::flatten::argument_term(&def.combine).and_then(|t| self.with_arguments(&t, a, b))?
            }
        })
    }

    fn with_arguments(&self, t: &Term, a: f64, b: f64) -> Option<f64> {
        fn fill(t: &Term, a: f64, b: f64) -> Term {
            match t {
                Term::Argument(0) => Term::Number(a),
                Term::Argument(_) => Term::Number(b),
                other => other.map_children(&mut |c| fill(c, a, b)),
            }
        }
        self.term(&fill(t, a, b), &Point::default())
    }

    fn identity(&self, m: Monoid) -> f64 {
        match m {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
            Monoid::ArgMax | Monoid::ArgMin => -1.0,
            Monoid::Custom(id) => self.graph.cascade[id].identity,
        }
    }

    fn reduction(&self, n: NodeId) -> &Reduction {
        match &self.graph[n].def {
            Def::Reduce(r) => r,
            _ => unreachable!("anchors are reductions"),
        }
    }

    fn term(&self, t: &Term, point: &Point) -> Option<f64> {
        Some(match t {
            Term::Number(v) => *v,
            Term::Param(p) => self.bound.param(*p),
            Term::Size(s) => self.bound.extent(s) as f64,
            Term::Position(i) => *point.at.get(i)? as f64,
            Term::Old(n, _) => *point.old.get(n)?,
            Term::Read(n, at) => match point.new.get(n) {
                Some(v) => *v,
                None => {
                    let at = at.iter().map(|e| self.index(e, point)).collect::<Option<Vec<_>>>()?;
                    *self.values[n.0 as usize].get(self.offset(*n, &at)?)?
                }
            },
            Term::Argument(_) => return None,
            Term::Unary(op, x) => op.apply(self.term(x, point)?),
            Term::Binary(op, a, b) => op.apply(self.term(a, point)?, self.term(b, point)?),
            Term::Select(c, a, b) => {
                if self.term(c, point)? != 0.0 {
                    self.term(a, point)?
                } else {
                    self.term(b, point)?
                }
            }
        })
    }

    fn index(&self, e: &IndexExpr, point: &Point) -> Option<i64> {
        let mut sum = self.bound.extent(&e.offset);
        for (c, atom) in &e.terms {
            let v = match atom {
                IndexAtom::Var(i) => *point.at.get(i)?,
                IndexAtom::Floor { numerator, denominator } => {
                    self.index(numerator, point)?.div_euclid(self.bound.extent(denominator))
                }
                IndexAtom::Gather { tensor, at } => {
                    let at = at.iter().map(|e| self.index(e, point)).collect::<Option<Vec<_>>>()?;
                    let n = self.graph.node_of(*tensor)?;
                    *self.values[n.0 as usize].get(self.offset(n, &at)?)? as i64
                }
            };
            sum += self.bound.extent(c) * v;
        }
        Some(sum)
    }

    fn offset(&self, n: NodeId, at: &[i64]) -> Option<usize> {
        let mut offset = 0;
        for (&p, &extent) in at.iter().zip(&self.shapes[n.0 as usize]) {
            if p < 0 || p as usize >= extent {
                return None;
            }
            offset = offset * extent + p as usize;
        }
        Some(offset)
    }
}

/// What one reduction carries while streaming.
#[derive(Clone)]
struct State {
    anchors: BTreeMap<NodeId, f64>,
    value: f64,
    /// For arg-extrema: the extremum.
    best: Option<f64>,
}

/// Calls `f` on every position of a shape, row-major.
fn for_each(shape: &[usize], f: &mut dyn FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut at = vec![0; shape.len()];
    loop {
        f(&at);
        let mut d = shape.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            at[d] += 1;
            if at[d] < shape[d] {
                break;
            }
            at[d] = 0;
        }
    }
}
