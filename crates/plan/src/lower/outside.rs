//! Conditions that say nothing of what is reduced.
//!
//! `sum(k: c) f` whose condition `c` depends on no reduced index is `where(c, sum(k) f, 0)`, and so for every monoid with its
//! identity: without a mask the reduction may be a product of matrices. The condition stays with the loop, which visits no chunk
//! where it holds nowhere. It stays a mask
//! * where the reduction has anchors or is one: a state moves with what its anchors are, not with what a reader makes of them;
//! * where the body gathers: the condition may be what keeps a position inside of its tensor.
//!
//! A reduction of which every reader wants a value only where a condition on the grid holds (`where(n <= m, S[m,n], 0)`) needs no
//! chunks elsewhere either. Of conditions on an index that streams this is left to the loops of the readers.

use super::Lowering;
use crate::cone::Cone;
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Fold, Problem};
use crate::tiling::Tiling;
use einloom_algebra::NodeId;
use std::collections::{BTreeMap, BTreeSet};

impl Lowering<'_> {
    /// Takes the conditions out of a filter that hold or fail for all that is reduced at once.
    pub(super) fn take_outside(&mut self, n: NodeId, fold: &Fold, filter: &mut Vec<ExprId>) -> Vec<ExprId> {
        let moves = !fold.anchors.is_empty() || fold.repair.is_some();
        let steers = self.cone.folds.values().any(|f| f.anchors.contains(&n));
        if moves || steers || !self.cone.iterations.is_empty() || gathers(self.x, fold.body) {
            return vec![];
        }
        let parts: Vec<ExprId> = filter.iter().flat_map(|&f| self.apart(f)).collect();
        let inside = |s: &mut Self, e: ExprId| s.p.span(e).is_some() || s.free(e).iter().any(|i| fold.over.contains(i));
        let (inside, outside): (Vec<_>, Vec<_>) = parts.into_iter().partition(|&e| inside(self, e));
        if !outside.is_empty() {
            *filter = inside;
        }
        outside
    }

    /// A condition's conjuncts, affine ones one by one.
    fn apart(&mut self, condition: ExprId) -> Vec<ExprId> {
        if self.p.span(condition).is_some() {
            return vec![condition];
        }
        let mut out = vec![];
        for e in self.x.conjuncts(condition) {
            match self.x.get(e).clone() {
                Expr::Within(all) => out.extend(all.into_iter().map(|l| self.x.intern(Expr::Within(vec![l])))),
                _ => out.push(e),
            }
        }
        out
    }
}

/// Whether a value is read at a position that is itself read.
fn gathers(x: &Exprs, e: ExprId) -> bool {
    let (mut todo, mut seen) = (vec![e], BTreeSet::new());
    while let Some(e) = todo.pop() {
        if !seen.insert(e) {
            continue;
        }
        if let Expr::Read(_, at) = x.get(e)
            && at.iter().any(is_gather)
        {
            return true;
        }
        todo.extend(x.children(e));
    }
    false
}

fn is_gather(at: &Coordinate) -> bool {
    at.terms.keys().any(|atom| match atom {
        Atom::Index(_) => false,
        Atom::Floor(inner, _) => is_gather(inner),
        Atom::Value(_) => true,
    })
}

/// The affine conditions on the grid without which no reader wants a reduction's value.
pub(super) fn needs(p: &Problem, x: &Exprs, cone: &Cone, tiling: &Tiling) -> BTreeMap<NodeId, BTreeSet<ExprId>> {
    let mut found: BTreeMap<NodeId, BTreeSet<ExprId>> = BTreeMap::new();
    if !cone.iterations.is_empty() {
        return found;
    }
    let none = BTreeSet::new();
    let roots = cone.roots.iter().map(|r| (r.1, none.clone())).collect();
    readers(p, x, cone, tiling, roots, &mut found);
    // Those that read a reduction come after it.
    for n in cone.order.iter().rev() {
        let wanted = found.get(n).unwrap_or(&none).clone();
        let parts = cone.folds[n].parts().into_iter().map(|e| (e, wanted.clone())).collect();
        readers(p, x, cone, tiling, parts, &mut found);
    }
    found.retain(|_, wanted| !wanted.is_empty());
    found
}

/// Adds what of reductions is wanted by these expressions, of which each is wanted under its conditions only.
fn readers(
    p: &Problem,
    x: &Exprs,
    cone: &Cone,
    tiling: &Tiling,
    mut todo: BTreeMap<ExprId, BTreeSet<ExprId>>,
    found: &mut BTreeMap<NodeId, BTreeSet<ExprId>>,
) {
    let on_grid = |e: &ExprId| match x.get(*e) {
        Expr::Within(all) => all.iter().all(|l| l.terms.keys().all(|i| tiling.grid.contains(i))),
        _ => false,
    };
    fn put(todo: &mut BTreeMap<ExprId, BTreeSet<ExprId>>, e: ExprId, wanted: &BTreeSet<ExprId>) {
        todo.entry(e).and_modify(|w| w.retain(|c| wanted.contains(c))).or_insert_with(|| wanted.clone());
    }
    // What an expression is made of has come into being before it.
    while let Some((e, wanted)) = todo.pop_last() {
        match x.get(e) {
            Expr::Select(c, then, otherwise) => {
                put(&mut todo, *c, &wanted);
                put(&mut todo, *otherwise, &wanted);
                let more = x.conjuncts(*c).into_iter().filter(on_grid);
                put(&mut todo, *then, &wanted.iter().copied().chain(more).collect());
            }
            Expr::Read(n, at) => {
                let plain =
                    at.len() == p[*n].axes.len() && at.iter().zip(&p[*n].axes).all(|(c, i)| c.as_index() == Some(*i));
                if cone.folds.contains_key(n) {
                    let wanted = if plain { wanted.clone() } else { BTreeSet::new() };
                    found.entry(*n).and_modify(|w| w.retain(|c| wanted.contains(c))).or_insert(wanted);
                }
                let mut values = vec![];
                at.iter().for_each(|c| Exprs::coordinate_values(c, &mut |v| values.push(v)));
                values.into_iter().for_each(|v| put(&mut todo, v, &wanted));
            }
            Expr::Old(n) => {
                found.entry(*n).or_default().clear();
            }
            _ => x.children(e).into_iter().for_each(|child| put(&mut todo, child, &wanted)),
        }
    }
}
