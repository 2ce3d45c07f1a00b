//! Questions about terms and rewriting of terms.

use crate::{Def, Graph, NodeId, Term};
use einloom_cascade::{BinaryOp, Bound, IndexAtom, IndexExpr, IndexId, UnaryOp};
use std::collections::BTreeSet;

/// One place at which a node reads another.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand<'a> {
    /// Read.
    pub node: NodeId,
    /// At.
    pub at: &'a [IndexExpr],
}

impl Graph {
    /// Every read in a node's definition, with those inside index expressions (gathers).
    pub fn operands(&self, id: NodeId) -> Vec<Operand<'_>> {
        let mut out = vec![];
        let mut term = |t| self.reads(t, &mut out);
        match &self[id].def {
            Def::Input => {}
            Def::Map(t) => term(t),
            Def::Reduce(r) => {
                r.filter.iter().for_each(&mut term);
                term(&r.body);
                if let Some(repair) = &r.streaming.repair {
                    term(&repair.factor);
                    repair.plus.iter().for_each(&mut term);
                    repair.keep_if.iter().for_each(&mut term);
                }
            }
            Def::Iterative { initial, step, .. } => {
                initial.iter().for_each(|(_, t)| term(t));
                term(step);
            }
        }
        out
    }

    /// Appends every read in `term`, with those inside index expressions.
    pub fn reads<'a>(&self, term: &'a Term, out: &mut Vec<Operand<'a>>) {
        term.visit(&mut |t| {
            if let Term::Read(node, at) | Term::Old(node, at) = t {
                out.push(Operand { node: *node, at });
                at.iter().for_each(|e| self.gathers(e, out));
            }
        });
    }

    fn gathers<'a>(&self, e: &'a IndexExpr, out: &mut Vec<Operand<'a>>) {
        for (_, atom) in &e.terms {
            match atom {
                IndexAtom::Var(_) => {}
                IndexAtom::Floor { numerator, .. } => self.gathers(numerator, out),
                IndexAtom::Gather { tensor, at } => {
                    out.extend(self.node_of(*tensor).map(|node| Operand { node, at }));
                    at.iter().for_each(|e| self.gathers(e, out));
                }
            }
        }
    }

    /// Whether `node` read at `at` is the node's own value at its own axes.
    pub fn is_plain(&self, node: NodeId, at: &[IndexExpr]) -> bool {
        let axes = &self[node].axes;
        axes.len() == at.len() && axes.iter().zip(at).all(|(a, e)| e.as_var() == Some(*a))
    }

    /// A read of a node at its own axes.
    pub fn read(&self, node: NodeId) -> Term {
        Term::Read(node, self[node].axes.iter().map(|&i| IndexExpr::var(i)).collect())
    }
}

impl Term {
    /// Whether it is made of literals, parameters and sizes.
    pub(crate) fn is_of_numbers(&self) -> bool {
        let mut all = true;
        self.visit(&mut |t| {
            all &= !matches!(t, Self::Read(..) | Self::Old(..) | Self::Argument(_) | Self::Position(_));
        });
        all
    }

    /// Its value, if it is made of literals, parameters and sizes.
    pub fn number(&self, bound: &Bound) -> Option<f64> {
        let go = |t: &Self| t.number(bound);
        match self {
            Self::Number(v) => Some(*v),
            Self::Param(p) => Some(bound.param(*p)),
            Self::Size(s) => s.eval(|r| bound.size(r) as i64).map(|n| n as f64),
            Self::Unary(op, x) => Some(op.apply(go(x)?)),
            Self::Binary(op, a, b) => Some(op.apply(go(a)?, go(b)?)),
            Self::Select(c, a, b) => go(if go(c)? != 0.0 { a } else { b }),
            _ => None,
        }
    }

    /// Adds every index that occurs.
    pub fn indices(&self, out: &mut BTreeSet<IndexId>) {
        self.visit(&mut |t| match t {
            Term::Position(i) => drop(out.insert(*i)),
            Term::Read(_, at) | Term::Old(_, at) => {
                at.iter().for_each(|e| e.visit_indices(&mut |i| _ = out.insert(i)));
            }
            _ => {}
        });
    }

    /// Whether any of `indices` occurs.
    pub fn mentions(&self, indices: &[IndexId]) -> bool {
        let mut found = BTreeSet::new();
        self.indices(&mut found);
        indices.iter().any(|i| found.contains(i))
    }

    /// Whether some read satisfies `test`.
    pub fn any_read(&self, test: &impl Fn(NodeId) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |t| {
            if let Term::Read(n, _) | Term::Old(n, _) = t {
                found |= test(*n);
            }
        });
        found
    }

    /// The same term with every read replaced where `f` gives something.
    pub fn replace_reads(&self, f: &mut impl FnMut(NodeId, &[IndexExpr]) -> Option<Term>) -> Term {
        fn go(t: &Term, f: &mut dyn FnMut(NodeId, &[IndexExpr]) -> Option<Term>) -> Term {
            match t {
                Term::Read(n, at) => f(*n, at).unwrap_or_else(|| t.clone()),
                other => other.map_children(&mut |c| go(c, f)),
            }
        }
        go(self, f)
    }

    /// The same term with nodes renamed (also in [`Term::Old`]).
    pub fn rename_nodes(&self, f: &impl Fn(NodeId) -> NodeId) -> Term {
        match self {
            Term::Read(n, at) => Term::Read(f(*n), at.clone()),
            Term::Old(n, at) => Term::Old(f(*n), at.clone()),
            other => other.map_children(&mut |c| c.rename_nodes(f)),
        }
    }

    /// The same term with indices replaced by index expressions, or `None` where a position used as a value would
    /// have to become a gather.
    pub fn substitute(&self, map: &impl Fn(IndexId) -> Option<IndexExpr>) -> Option<Term> {
        Some(match self {
            Term::Position(i) => match map(*i) {
                None => self.clone(),
                Some(e) => position_value(&e)?,
            },
            Term::Read(n, at) => Term::Read(*n, at.iter().map(|e| substitute_index(e, map)).collect()),
            Term::Old(n, at) => Term::Old(*n, at.iter().map(|e| substitute_index(e, map)).collect()),
            other => {
                let mut ok = true;
                let out = other.map_children(&mut |c| {
                    c.substitute(map).unwrap_or_else(|| {
                        ok = false;
                        Term::Number(f64::NAN)
                    })
                });
                return ok.then_some(out);
            }
        })
    }

    /// Its value if it is a literal.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Term::Number(v) => Some(*v),
            Term::Unary(UnaryOp::Neg, x) => x.as_number().map(|v| -v),
            _ => None,
        }
    }
}

/// An index expression as a value: `Σ coefficient · position + offset`.
fn position_value(e: &IndexExpr) -> Option<Term> {
    let mut sum: Option<Term> = None;
    let mut push = |t: Term| {
        sum = Some(match sum.take() {
            None => t,
            Some(s) => Term::Binary(BinaryOp::Add, Box::new(s), Box::new(t)),
        });
    };
    for (c, atom) in &e.terms {
        let IndexAtom::Var(i) = atom else { return None };
        push(match c.as_constant() {
            Some(1) => Term::Position(*i),
            _ => Term::Binary(BinaryOp::Mul, Box::new(size_value(c)), Box::new(Term::Position(*i))),
        });
    }
    if e.offset.as_constant() != Some(0) || e.terms.is_empty() {
        push(size_value(&e.offset));
    }
    sum
}

fn size_value(s: &einloom_cascade::SizeExpr) -> Term {
    s.as_constant().map_or_else(|| Term::Size(s.clone()), |c| Term::Number(c as f64))
}

fn substitute_index(e: &IndexExpr, map: &impl Fn(IndexId) -> Option<IndexExpr>) -> IndexExpr {
    let mut out = IndexExpr::fixed(e.offset.clone());
    for (c, atom) in &e.terms {
        match atom {
            IndexAtom::Var(i) => match map(*i) {
                Some(new) => out = out.add(&new.scale(c)),
                None => out.push(c.clone(), atom.clone()),
            },
            IndexAtom::Floor { numerator, denominator } => out.push(
                c.clone(),
                IndexAtom::Floor {
                    numerator: Box::new(substitute_index(numerator, map)),
                    denominator: denominator.clone(),
                },
            ),
            IndexAtom::Gather { tensor, at } => {
                let at = at.iter().map(|e| substitute_index(e, map)).collect();
                out.push(c.clone(), IndexAtom::Gather { tensor: *tensor, at });
            }
        }
    }
    out
}
