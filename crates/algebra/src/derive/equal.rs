//! Places that an equation tells: under `ids[e] == n` what stands at `ids[e]` is what stands at `n`, so `mean[ids[e]]` is `mean[n]`.
//! Read there it no longer moves with what is reduced, and leaves, separates or is repaired as if the text had said `n`.
//!
//! Conditions: the equation is a filter of a reduction, or one outside which its body is neutral; one side is an element of an
//! integer tensor, or a rounded quotient, that moves with a reduced index; the other is an index which is not reduced, and then what is
//! read has that index's rank there, or an element of an integer tensor that moves with none. Pointwise definitions in which such
//! places are read are put in place of their reads, unless they round. No member of a recurrence is changed.

use super::{filter, inline};
use crate::form::identity;
use crate::{Def, Graph, NodeId, Reduction, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, DType, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr, UnaryOp};

/// Definitions are followed this far.
const DEPTH: usize = 8;

/// Operations that may come to stand in place of the reads of one reduction.
const LARGEST: usize = 1024;

/// The graph with what is read at such places read at the other ones, and what was done.
pub(super) fn placed(graph: &Graph) -> (Graph, Vec<Step>) {
    let (mut out, mut steps) = (graph.clone(), vec![]);
    for id in graph.ids().filter(|id| !graph.recurrences.iter().any(|r| r.members.contains(id))) {
        let node = &graph[id];
        let Def::Reduce(written) = &node.def else { continue };
        let (body, filter) = match written.monoid {
            Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min => {
                filter::stripped(graph, written, identity(graph, written.monoid))
            }
            // An element that equals what is there of none is one of them all the same.
            _ => (written.body.clone(), written.filter.clone()),
        };
        let mut r = Reduction { body, filter, ..written.clone() };
        let mut told = vec![];
        for k in 0..r.filter.len() {
            let Some((moving, still)) = equation(graph, &r, k) else { continue };
            let e = Equation { graph, moving, still };
            let mut left = LARGEST;
            let mut replaced = |t: &Term| e.replaced(t, 0, &mut left);
            let body = replaced(&r.body);
            let filter: Vec<Term> =
                r.filter.iter().enumerate().map(|(j, f)| if j == k { f.clone() } else { replaced(f) }).collect();
            if left > 0 && (body != r.body || filter != r.filter) {
                told.push(format!(
                    "where {} what is read at the one is read at the other",
                    show::term(graph, &r.filter[k])
                ));
                (r.body, r.filter) = (body, filter);
            }
        }
        if told.is_empty() {
            continue;
        }
        steps.push(Step {
            rule: Rule::Place,
            statement: node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: r.over.iter().map(|&i| graph.cascade[graph.cascade[i].rank].name.clone()).collect(),
            why: told.join(", and "),
            before: show::reduction(graph, written),
            after: show::reduction(graph, &r),
        });
        out.nodes[id.0 as usize].def = Def::Reduce(r);
    }
    if !steps.is_empty() {
        super::rebuild::prune(&mut out);
        crate::level::assign(&mut out);
    }
    (out, steps)
}

/// The side of a condition that moves with what is reduced, and the side that does not, if it is an equation of two places.
fn equation(graph: &Graph, r: &Reduction, k: usize) -> Option<(IndexAtom, IndexAtom)> {
    let Term::Binary(BinaryOp::Eq, a, b) = &r.filter[k] else { return None };
    let sides = |moving: &Term, still: &Term| {
        let index = match still {
            Term::Position(i) => Some(IndexAtom::Var(*i)),
            _ => gather(graph, still),
        };
        let reduced = moving.mentions(&r.over) && !still.mentions(&r.over);
        Some((gather(graph, moving).or_else(|| quotient(moving))?, index?)).filter(|_| reduced)
    };
    sides(a, b).or_else(|| sides(b, a))
}

/// An element of an integer tensor as a place.
fn gather(graph: &Graph, t: &Term) -> Option<IndexAtom> {
    let Term::Read(n, at) = t else { return None };
    graph[*n].dtype.filter(|d| d.is_integer() && *d != DType::B1)?;
    Some(IndexAtom::Gather { tensor: graph[*n].tensor?, at: at.clone() })
}

/// A position divided by a size and rounded down, as a place.
fn quotient(t: &Term) -> Option<IndexAtom> {
    let Term::Unary(UnaryOp::Floor, x) = t else { return None };
    let Term::Binary(BinaryOp::Div, x, d) = &**x else { return None };
    let Term::Position(i) = **x else { return None };
    let denominator = match &**d {
        Term::Size(s) => s.clone(),
        Term::Number(v) if v.fract() == 0.0 && (1.0..1e9).contains(v) => SizeExpr::constant(*v as i64),
        _ => return None,
    };
    Some(IndexAtom::Floor { numerator: Box::new(IndexExpr::var(i)), denominator })
}

/// Two places that are one.
struct Equation<'a> {
    graph: &'a Graph,
    moving: IndexAtom,
    still: IndexAtom,
}

impl Equation<'_> {
    /// The term with what is read at the one place read at the other.
    fn replaced(&self, t: &Term, depth: usize, left: &mut usize) -> Term {
        let graph = self.graph;
        t.replace_reads(&mut |n, at| {
            let node = &graph[n];
            let new = self.places(n, at);
            if let Def::Map(def) = &node.def
                && !inline::rounds(node)
                && depth < DEPTH
                && *left > 0
                && let Some(inlined) =
                    def.substitute(&|i: IndexId| Some(new.get(node.axes.iter().position(|&a| a == i)?)?.clone()))
            {
                *left = left.saturating_sub(inline::operations(def));
                let replaced = self.replaced(&inlined, depth + 1, left);
                if replaced != inlined {
                    return Some(replaced);
                }
            }
            (new != at).then_some(Term::Read(n, new))
        })
    }

    /// The places at which a node is read, with the one in place of the other.
    fn places(&self, n: NodeId, at: &[IndexExpr]) -> Vec<IndexExpr> {
        at.iter().zip(&self.graph[n].extents).map(|(e, extent)| self.place(e, extent)).collect()
    }

    fn place(&self, e: &IndexExpr, extent: &SizeExpr) -> IndexExpr {
        let one = |c: &SizeExpr| c.as_constant() == Some(1);
        if let [(c, atom)] = e.terms.as_slice()
            && *atom == self.moving
            && one(c)
            && e.offset.as_constant() == Some(0)
        {
            let fits = match self.still {
                IndexAtom::Var(i) => extent.as_rank() == Some(self.graph.cascade[i].rank),
                _ => true,
            };
            if fits {
                return IndexExpr { terms: vec![(c.clone(), self.still.clone())], offset: e.offset.clone() };
            }
        }
        let terms = e.terms.iter().map(|(c, atom)| {
            let atom = match atom {
                IndexAtom::Gather { tensor, at } => match self.graph.node_of(*tensor) {
                    Some(n) => IndexAtom::Gather { tensor: *tensor, at: self.places(n, at) },
                    None => atom.clone(),
                },
                _ => atom.clone(),
            };
            (c.clone(), atom)
        });
        IndexExpr { terms: terms.collect(), offset: e.offset.clone() }
    }
}
