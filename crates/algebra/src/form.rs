//! Streaming forms: the four parts of one algorithm (`init`, `step`, `merge`, `finish`), all read off the same states
//! and repairs.

use crate::{Def, Graph, NodeId, Reduction, Term, show};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};
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
        let mut lines = vec![];
        let (old, new) = (|n: NodeId| graph[n].name.clone(), |n: NodeId| format!("{}'", graph[n].name));
        for &s in &self.states {
            let r = reduction(graph, s);
            let chunk = primed(graph, r);
            let name = &graph[s].name;
            let kept = self.repaired(graph, s, name, &old, &new);
            lines.push(format!("{name}' = {}", combine(graph, r.monoid, &kept, &chunk)));
        }
        self.name_shared(graph, &mut lines, "", &old, &new);
        text_of(&lines)
    }

    /// Two states of disjoint parts, put together.
    pub fn merge(&self, graph: &Graph) -> String {
        let mut lines = vec![];
        let (a, b) = (|n: NodeId| format!("a.{}", graph[n].name), |n: NodeId| format!("b.{}", graph[n].name));
        let new = |n: NodeId| graph[n].name.clone();
        for &s in &self.states {
            let side = |old: &dyn Fn(NodeId) -> String| self.repaired(graph, s, &old(s), old, &new);
            let both = combine(graph, reduction(graph, s).monoid, &side(&a), &side(&b));
            lines.push(format!("{} = {both}", graph[s].name));
        }
        self.name_shared(graph, &mut lines, "a.", &a, &new);
        self.name_shared(graph, &mut lines, "b.", &b, &new);
        text_of(&lines)
    }

    /// Gives names to what several states are repaired with: `r` to exponentials, `d` to differences.
    fn name_shared(
        &self,
        graph: &Graph,
        lines: &mut Vec<String>,
        side: &str,
        old: &dyn Fn(NodeId) -> String,
        new: &dyn Fn(NodeId) -> String,
    ) {
        let (mut ratios, mut differences) = (vec![], vec![]);
        for repair in self.states.iter().filter_map(|&s| reduction(graph, s).streaming.repair.as_ref()) {
            for t in repair.plus.iter().chain([&repair.factor]) {
                show::unguarded(t).visit(&mut |t| match t {
                    Term::Unary(UnaryOp::Exp, _) => ratios.push(named(graph, t, old, new)),
                    Term::Binary(BinaryOp::Sub, ..) => differences.push(format!("({})", named(graph, t, old, new))),
                    _ => {}
                });
            }
        }
        for (stem, texts) in [("r", ratios), ("d", differences)] {
            for text in texts {
                if lines.iter().map(|l| places(l, &text).len()).sum::<usize>() < 2 {
                    continue;
                }
                let taken = |name: &str| {
                    let defined = format!("{name} = ");
                    graph.nodes.iter().any(|n| n.name == name) || lines.iter().any(|l| l.starts_with(&defined))
                };
                let numbered = |k: usize| if k == 1 { format!("{side}{stem}") } else { format!("{side}{stem}{k}") };
                let Some(name) = (1..).map(numbered).find(|n| !taken(n)) else { continue };
                let first = lines.iter().position(|l| !places(l, &text).is_empty()).unwrap_or(0);
                for line in lines.iter_mut() {
                    for at in places(line, &text).into_iter().rev() {
                        line.replace_range(at..at + text.len(), &name);
                    }
                }
                let bare = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(&text);
                lines.insert(first, format!("{name} = {bare}"));
            }
        }
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
        let moved = match repair.combine {
            BinaryOp::Mul if repair.factor == Term::Number(1.0) => name.to_string(),
            BinaryOp::Add if repair.factor == Term::Number(0.0) => name.to_string(),
            BinaryOp::Mul => format!("{name} * {}", text(&repair.factor)),
            BinaryOp::Max | BinaryOp::Min => format!("{}({name}, {})", repair.combine.symbol(), text(&repair.factor)),
            _ => format!("{name} + {}", text(&repair.factor)),
        };
        let moved = match repair.plus.as_ref().filter(|p| p.as_number() != Some(0.0)) {
            Some(plus) => format!("{moved} + {}", text(plus)),
            None => moved,
        };
        match &repair.keep_if {
            Some(keep) => {
                let identity = show::number(identity(graph, reduction(graph, state).monoid));
                format!("where({}, {moved}, {identity})", text(keep))
            }
            None => moved,
        }
    }
}

/// One text of lines.
fn text_of(lines: &[String]) -> String {
    lines.iter().flat_map(|l| [l.as_str(), "\n"]).collect()
}

/// Where a closed expression stands in a line: neither behind the name of a function nor as part of a longer name.
fn places(line: &str, text: &str) -> Vec<usize> {
    let name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let whole = |at: &usize| !line[..*at].ends_with(name);
    line.match_indices(text).map(|m| m.0).filter(whole).collect()
}

fn reduction(graph: &Graph, state: NodeId) -> &Reduction {
    match &graph[state].def {
        Def::Reduce(r) => r,
        _ => unreachable!("states are reductions by construction"),
    }
}

/// What a reduction over nothing is.
pub(crate) fn identity(graph: &Graph, m: Monoid) -> f64 {
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
