//! Streaming forms: the four parts of one algorithm (`init`, `step`, `merge`, `finish`), all read off the same states
//! and repairs.

use crate::{Def, Graph, NodeId, Reduction, Term, show};
use einloom_cascade::{BinaryOp, IndexId, Monoid};
use std::fmt::Write;

/// The reductions that share one traversal, and what is made of them afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamingForm {
    /// The traversed indices.
    pub over: Vec<IndexId>,
    /// Which traversal of these indices it is, from 0.
    pub level: usize,
    /// The states, anchors before what they anchor.
    pub states: Vec<NodeId>,
    /// Pointwise nodes that are computed from the finished states.
    pub finish: Vec<NodeId>,
}

/// Every traversal of a graph, in order of first use.
pub fn streaming_forms(graph: &Graph) -> Vec<StreamingForm> {
    let mut forms: Vec<StreamingForm> = vec![];
    for id in graph.ids() {
        let Def::Reduce(r) = &graph[id].def else { continue };
        let same = |f: &StreamingForm| f.over == r.over && f.level == r.streaming.level;
        match forms.iter_mut().find(|f| same(f)) {
            Some(f) => f.states.push(id),
            None => {
                let form =
                    StreamingForm { over: r.over.clone(), level: r.streaming.level, states: vec![id], finish: vec![] };
                forms.push(form);
            }
        }
    }
    for id in graph.ids() {
        let Def::Map(_) = &graph[id].def else { continue };
        let operands: Vec<NodeId> = graph.operands(id).iter().map(|o| o.node).collect();
        for f in &mut forms {
            let direct = operands.iter().any(|o| f.states.contains(o) || f.finish.contains(o));
            if direct && !f.over.iter().any(|i| graph[id].axes.contains(i)) {
                f.finish.push(id);
            }
        }
    }
    forms
}

impl StreamingForm {
    /// Whether some state depends on another's running value: the form is more than a plain accumulation.
    pub fn is_anchored(&self, graph: &Graph) -> bool {
        self.states.iter().any(|&s| !reduction(graph, s).streaming.anchors.is_empty())
    }

    /// The state before anything is read.
    pub fn init(&self, graph: &Graph) -> String {
        let mut out = String::new();
        for &s in &self.states {
            _ = writeln!(out, "{} = {}", graph[s].name, show::number(identity(graph, reduction(graph, s).monoid)));
        }
        out
    }

    /// The state after one more chunk; a primed name is the value after the chunk.
    pub fn step(&self, graph: &Graph) -> String {
        let mut out = String::new();
        for &s in &self.states {
            let r = reduction(graph, s);
            let chunk = primed(graph, r);
            let name = &graph[s].name;
            let old = self.repaired(graph, s, name, &|n| graph[n].name.clone(), &|n| format!("{}'", graph[n].name));
            _ = writeln!(out, "{name}' = {}", combine(graph, r.monoid, &old, &chunk));
        }
        out
    }

    /// Two states of disjoint parts, put together.
    pub fn merge(&self, graph: &Graph) -> String {
        let mut out = String::new();
        for &s in &self.states {
            let r = reduction(graph, s);
            let side = |k: &str| {
                let name = format!("{k}.{}", graph[s].name);
                self.repaired(graph, s, &name, &|n| format!("{k}.{}", graph[n].name), &|n| graph[n].name.clone())
            };
            _ = writeln!(out, "{} = {}", graph[s].name, combine(graph, r.monoid, &side("a"), &side("b")));
        }
        out
    }

    /// What is made of the final state.
    pub fn finish(&self, graph: &Graph) -> String {
        let mut out = String::new();
        for &f in &self.finish {
            let Def::Map(t) = &graph[f].def else { continue };
            _ = writeln!(out, "{} = {}", graph[f].name, show::term(graph, &show::unguarded(t)));
        }
        out
    }

    /// A state moved to new anchors, as text.
    fn repaired(
        &self,
        graph: &Graph,
        state: NodeId,
        name: &str,
        old: &dyn Fn(NodeId) -> String,
        new: &dyn Fn(NodeId) -> String,
    ) -> String {
        let Some(repair) = &reduction(graph, state).streaming.repair else { return name.to_string() };
        let text = |t: &Term| named(graph, t, old, new);
        if let Some(keep) = &repair.keep_if {
            let identity = show::number(identity(graph, reduction(graph, state).monoid));
            return format!("where({}, {name}, {identity})", text(keep));
        }
        let moved = match repair.combine {
            BinaryOp::Mul if repair.factor == Term::Number(1.0) => name.to_string(),
            BinaryOp::Mul => format!("{name} * {}", text(&repair.factor)),
            _ => format!("{name} + {}", text(&repair.factor)),
        };
        match &repair.plus {
            Some(plus) => format!("{moved} + {}", text(plus)),
            None => moved,
        }
    }
}

fn reduction(graph: &Graph, state: NodeId) -> &Reduction {
    match &graph[state].def {
        Def::Reduce(r) => r,
        _ => unreachable!("states are reductions by construction"),
    }
}

fn identity(graph: &Graph, m: Monoid) -> f64 {
    match m {
        Monoid::Sum => 0.0,
        Monoid::Prod => 1.0,
        Monoid::Max => f64::NEG_INFINITY,
        Monoid::Min => f64::INFINITY,
        Monoid::ArgMax | Monoid::ArgMin => -1.0,
        Monoid::Custom(id) => graph.cascade[id].identity,
    }
}

fn combine(graph: &Graph, m: Monoid, a: &str, b: &str) -> String {
    match m {
        Monoid::Sum => format!("{a} + {b}"),
        Monoid::Prod => format!("{a} * {b}"),
        _ => format!("{}({a}, {b})", m.name(&graph.cascade)),
    }
}

/// A chunk's reduction, with the names of its anchors primed.
fn primed(graph: &Graph, r: &Reduction) -> String {
    let mut copy = graph.clone();
    for &a in &r.streaming.anchors {
        copy.nodes[a.0 as usize].name.push('\'');
    }
    show::reduction(&copy, &Reduction { body: show::unguarded(&r.body), ..r.clone() })
}

/// A repair's term with its anchors under the given names.
fn named(graph: &Graph, t: &Term, old: &dyn Fn(NodeId) -> String, new: &dyn Fn(NodeId) -> String) -> String {
    let mut copy = graph.clone();
    let mut rename = |t: &Term| match t {
        Term::Old(n, _) => {
            copy.nodes.push(crate::Node { name: old(*n), ..graph[*n].clone() });
            Some(Term::Read(NodeId(copy.nodes.len() as u32 - 1), vec![]))
        }
        Term::Read(n, _) => {
            copy.nodes.push(crate::Node { name: new(*n), ..graph[*n].clone() });
            Some(Term::Read(NodeId(copy.nodes.len() as u32 - 1), vec![]))
        }
        _ => None,
    };
    fn go(t: &Term, f: &mut dyn FnMut(&Term) -> Option<Term>) -> Term {
        f(t).unwrap_or_else(|| t.map_children(&mut |c| go(c, f)))
    }
    let t = go(&show::unguarded(t), &mut rename);
    show::term(&copy, &t)
}
