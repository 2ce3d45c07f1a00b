//! What reductions in shares compute: the expressions of one share, and where states before a chunk are read.

use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::problem::{ItemDef, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use std::collections::{BTreeMap, BTreeSet};

impl Exprs {
    /// The reductions whose value before the chunk an expression reads.
    pub(super) fn olds(&self, e: ExprId) -> BTreeSet<NodeId> {
        let (mut out, mut seen, mut todo) = (BTreeSet::new(), BTreeSet::new(), vec![e]);
        while let Some(e) = todo.pop() {
            if seen.insert(e) {
                out.extend(if let Expr::Old(n) = self.get(e) { Some(*n) } else { None });
                todo.extend(self.children(e));
            }
        }
        out
    }

    pub(super) fn replace_olds(&mut self, e: ExprId, by: &BTreeMap<NodeId, ExprId>) -> ExprId {
        match self.get(e) {
            Expr::Old(n) => by.get(n).copied().unwrap_or(e),
            _ => self.rebuild(e, &mut |x, e| x.replace_olds(e, by)),
        }
    }
}

/// Expressions of a reduction in shares: running values are those of its share.
pub(super) struct Partial<'a> {
    pub p: &'a Problem,
    pub x: &'a mut Exprs,
    pub partial: &'a BTreeMap<NodeId, NodeId>,
    /// The reductions that are read while they run.
    pub running: &'a [NodeId],
    pub share: IndexId,
}

impl Partial<'_> {
    pub(super) fn expr(&mut self, e: ExprId) -> ExprId {
        match self.x.get(e).clone() {
            Expr::Old(n) => match self.partial.get(&n) {
                Some(&n) => self.x.intern(Expr::Old(n)),
                None => e,
            },
            Expr::Read(n, at) => match self.partial.get(&n).filter(|_| self.running.contains(&n)) {
                Some(&part) => {
                    let at = at.iter().map(|c| self.coordinate(c)).collect::<Vec<_>>();
                    let at = [Coordinate::index(self.share)].into_iter().chain(at).collect();
                    self.x.intern(Expr::Read(part, at))
                }
                None => match self.p[n].def {
                    ItemDef::Map(inside) if self.reaches(n) => {
                        let at: Vec<Coordinate> = at.iter().map(|c| self.coordinate(c)).collect();
                        let by = self.p[n].axes.iter().copied().zip(at).collect();
                        let inside = self.x.substitute(inside, &by);
                        self.expr(inside)
                    }
                    _ => {
                        let at = at.iter().map(|c| self.coordinate(c)).collect();
                        self.x.intern(Expr::Read(n, at))
                    }
                },
            },
            _ => {
                let done: BTreeMap<ExprId, ExprId> =
                    self.x.children(e).into_iter().map(|c| (c, self.expr(c))).collect();
                self.x.rebuild(e, &mut |_, c| done[&c])
            }
        }
    }

    /// Whether a pointwise node is made of running values.
    fn reaches(&self, n: NodeId) -> bool {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![n]);
        while let Some(n) = todo.pop() {
            if self.running.contains(&n) {
                return true;
            }
            if seen.insert(n) && matches!(self.p[n].def, ItemDef::Map(_)) {
                todo.extend(self.p.needs(n, self.x));
            }
        }
        false
    }

    fn coordinate(&mut self, c: &Coordinate) -> Coordinate {
        let mut out = Coordinate::fixed(c.offset);
        for (atom, &factor) in &c.terms {
            let atom = match atom {
                Atom::Index(i) => Atom::Index(*i),
                Atom::Floor(n, by) => Atom::Floor(Box::new(self.coordinate(n)), *by),
                Atom::Value(e) => Atom::Value(self.expr(*e)),
            };
            out.push(factor, atom);
        }
        out
    }
}
