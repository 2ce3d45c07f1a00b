//! Reductions in the forms that tiles compute: contractions of two factors, and plain reductions of one value.

mod contract;
mod outside;
mod range;

pub(crate) use contract::exact;

use crate::cone::Cone;
use crate::expr::{Expr, ExprId, Exprs};
use crate::facts::Facts;
use crate::problem::{Fold, FoldMonoid, FoldRepair, Problem};
use crate::products::Multiplied;
use crate::tiling::Tiling;
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp};
use einloom_tile::AxisKind;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// A reduction as one chunk computes it.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub monoid: FoldMonoid,
    pub over: Vec<IndexId>,
    pub filter: Vec<ExprId>,
    /// What is reduced where the filter holds.
    pub body: ExprId,
    /// Which traversal of its indices computes it, counted anew: what left a sum may have been all that made it wait.
    pub level: usize,
    pub anchors: Vec<NodeId>,
    pub repair: Option<FoldRepair>,
    pub how: How,
    pub dtype: DType,
    /// The indices its state carries.
    pub state: BTreeSet<IndexId>,
}

impl Lowered {
    fn parts(&self) -> Vec<ExprId> {
        let mut out = self.filter.clone();
        match self.how {
            How::Contract(a, b) => out.extend([a, b]),
            How::Fold(e) => out.push(e),
        }
        out.extend(self.repair.iter().flat_map(FoldRepair::parts));
        out
    }
}

/// How a chunk is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    /// The product of two factors that share the one tiled reduced index.
    Contract(ExprId, ExprId),
    /// This value, masked where the filter does not hold, reduced along the tiled reduced indices.
    Fold(ExprId),
}

/// A cone with its reductions lowered. What leaves a sum is in its readers.
#[derive(Clone)]
pub(crate) struct LoweredCone {
    pub roots: Vec<(NodeId, ExprId)>,
    pub folds: BTreeMap<NodeId, Lowered>,
    pub order: Vec<NodeId>,
    /// Per iterative tensor its first slice, if given, and its step.
    pub iterations: BTreeMap<NodeId, (Option<ExprId>, ExprId)>,
    pub facts: Facts,
    /// How many readers each expression has.
    pub uses: FxHashMap<ExprId, usize>,
    pub notes: Vec<String>,
    /// Number types of the factors of products that have two, the wider one first.
    pub mixed: BTreeSet<(DType, DType)>,
}

/// Lowers every reduction of a cone for a tiling.
pub(crate) fn lower(
    p: &Problem,
    x: &mut Exprs,
    types: &mut Types,
    cone: &Cone,
    tiling: &Tiling,
    products: Multiplied,
) -> LoweredCone {
    let needs = outside::needs(p, x, cone, tiling);
    let mut l = Lowering {
        p,
        x,
        types,
        cone,
        tiling,
        products,
        mixed: BTreeSet::new(),
        facts: Facts::default(),
        replace: FxHashMap::default(),
        folds: BTreeMap::new(),
        notes: vec![],
        needs,
    };
    for &n in &cone.order {
        l.fold(n);
    }
    let roots = cone.roots.iter().map(|&(n, e)| (n, l.rewrite(e))).collect();
    let iterations = cone
        .iterations
        .iter()
        .map(|(&n, i)| {
            let first = i.initial.iter().find(|x| x.0 == 0).map(|x| l.rewrite(x.1));
            (n, (first, l.rewrite(i.step)))
        })
        .collect::<BTreeMap<_, _>>();
    let steps = iterations.iter().map(|(&n, i): (&NodeId, &(_, ExprId))| (n, i.1)).collect();
    l.levels(steps);
    let (facts, folds, notes, mixed) = (l.facts, l.folds, l.notes, l.mixed);
    let (order, uses) = (cone.order.clone(), FxHashMap::default());
    let mut out = LoweredCone { roots, folds, order, iterations, facts, uses, notes, mixed };
    out.count_uses(x);
    out
}

impl LoweredCone {
    fn count_uses(&mut self, x: &Exprs) {
        let mut tops: Vec<ExprId> = self.roots.iter().map(|r| r.1).collect();
        tops.extend(self.iterations.values().flat_map(|i| i.0.into_iter().chain([i.1])));
        for f in self.folds.values() {
            tops.extend(f.parts().into_iter().filter(|e| !f.filter.contains(e)));
        }
        let mut seen = BTreeSet::new();
        while let Some(e) = tops.pop() {
            *self.uses.entry(e).or_default() += 1;
            if !seen.insert(e) {
                continue;
            }
            tops.extend(x.children(e));
            if let Expr::Read(_, at) = x.get(e) {
                at.iter().for_each(|c| Exprs::coordinate_values(c, &mut |v| tops.push(v)));
            }
        }
    }
}

struct Lowering<'a> {
    p: &'a Problem,
    x: &'a mut Exprs,
    types: &'a mut Types,
    cone: &'a Cone,
    tiling: &'a Tiling,
    products: Multiplied,
    mixed: BTreeSet<(DType, DType)>,
    facts: Facts,
    /// Reads of reductions from which factors were moved out, with these factors.
    replace: FxHashMap<ExprId, ExprId>,
    folds: BTreeMap<NodeId, Lowered>,
    notes: Vec<String>,
    /// Conditions without which no reader wants a reduction's value.
    needs: BTreeMap<NodeId, BTreeSet<ExprId>>,
}

/// A product: constant, factors, divisors.
#[derive(Default)]
struct Product {
    constant: Option<f64>,
    factors: Vec<ExprId>,
    divisors: Vec<ExprId>,
}

impl Lowering<'_> {
    fn rewrite(&mut self, e: ExprId) -> ExprId {
        if self.replace.is_empty() {
            return e;
        }
        let table = std::mem::take(&mut self.replace);
        let out = rewrite(self.x, e, &table, &mut FxHashMap::default());
        self.replace = table;
        out
    }

    fn free(&mut self, e: ExprId) -> BTreeSet<IndexId> {
        self.facts.of(self.p, self.x, e).free.clone()
    }

    fn fold(&mut self, n: NodeId) {
        let fold = &self.cone.folds[&n];
        let mut filter: Vec<ExprId> = fold.filter.iter().map(|&f| self.rewrite(f)).collect();
        let mut body = self.rewrite(fold.body);
        // Over nothing no element is ever asked for, and a gather may have nowhere to go.
        if fold.over.iter().any(|&i| self.p[i].extent == 0) {
            (body, filter) = (self.x.constant(self.p.identity(fold.monoid)), vec![]);
        }
        let repair = fold.repair.as_ref().map(|r| FoldRepair {
            combine: r.combine,
            factor: self.rewrite(r.factor),
            plus: r.plus.map(|k| self.rewrite(k)),
            keep_if: r.keep_if.map(|k| self.rewrite(k)),
        });
        let outside = self.take_outside(n, &Fold { body, ..fold.clone() }, &mut filter);
        let mut moved = None;
        // What a repair adds is in the units of the whole sum: no factor may leave it then.
        let adds = repair.as_ref().is_some_and(|r| r.plus.is_some() || r.combine != BinaryOp::Mul);
        if fold.monoid == FoldMonoid::Sum && !adds {
            let filtered = Fold { filter: filter.clone(), ..fold.clone() };
            (body, moved) = self.move_out(&filtered, body);
        }
        let inner = Fold { body, filter: filter.clone(), repair: repair.clone(), ..fold.clone() };
        let dtype = self.types.of_fold(self.p, self.x, &inner, self.p[n].dtype);
        let read = self.x.plain(n, &self.p[n].axes);
        let mut state: BTreeSet<IndexId> = inner.parts().into_iter().flat_map(|e| self.free(e)).collect();
        state.retain(|i| !fold.over.contains(i));
        let how = self.contraction(n, &inner, &state).unwrap_or_else(|| How::Fold(self.masked(&inner, body)));
        if moved.is_some() || !outside.is_empty() {
            let identity = self.x.constant(self.p.identity(fold.monoid));
            for leaf in [read, self.x.intern(Expr::Old(n))] {
                let value = moved.as_ref().map_or(leaf, |product| self.product(Some(leaf), product));
                let value = outside.iter().fold(value, |v, &c| self.x.select(c, v, identity));
                self.replace.insert(leaf, value);
            }
        }
        // Where its value is wanted nowhere its loop has nothing to do.
        let wanted = self.needs.remove(&n).unwrap_or_default();
        for c in outside.into_iter().chain(wanted) {
            if self.free(c).is_subset(&state) && !filter.contains(&c) {
                filter.push(c);
            }
        }
        let mut lowered = Lowered {
            monoid: fold.monoid,
            over: fold.over.clone(),
            filter,
            body,
            level: 0,
            anchors: fold.anchors.clone(),
            repair: repair.filter(|r| !self.is_neutral(r)),
            how,
            dtype,
            state: BTreeSet::new(),
        };
        // Where a filter never holds, the body and the indices that it carries are gone.
        self.facts.define(self.p, self.x, n, &lowered.parts(), &fold.over);
        lowered.state = self.free(read);
        self.folds.insert(n, lowered);
    }

    /// A repair that changes nothing.
    fn is_neutral(&self, r: &FoldRepair) -> bool {
        let neutral = match r.combine {
            BinaryOp::Add => 0.0,
            BinaryOp::Mul => 1.0,
            _ => return false,
        };
        r.keep_if.is_none() && r.plus.is_none() && self.x.as_const(r.factor) == Some(neutral)
    }

    /// Sets every reduction's level: one more than that of any over a shared index whose complete value it needs.
    fn levels(&mut self, steps: BTreeMap<NodeId, ExprId>) {
        self.facts = Facts::with_steps(steps);
        for &n in &self.cone.order {
            let f = &self.folds[&n];
            self.facts.define(self.p, self.x, n, &f.parts(), &f.over);
            let read = self.x.plain(n, &self.p[n].axes);
            let reach = self.facts.of(self.p, self.x, read);
            let anchors = self.anchors(&self.cone.folds[&n]);
            let over: BTreeSet<IndexId> = self.folds[&n].over.iter().copied().collect();
            let after = |c: &NodeId| {
                let other = self.folds.get(c).filter(|o| *c != n && o.over.iter().any(|i| over.contains(i)))?;
                Some(other.level + usize::from(!anchors.contains(c)))
            };
            let level = reach.reach.iter().filter_map(after).max().unwrap_or(0);
            if let Some(f) = self.folds.get_mut(&n) {
                f.level = level;
            }
        }
    }

    /// Splits a sum's body into what stays and the factors that leave the sum: those that carry no reduced index and
    /// need no running value. A sum over nothing is 0 whatever its factors are, so under a filter (and over an empty
    /// index) only constants leave.
    fn move_out(&mut self, fold: &Fold, body: ExprId) -> (ExprId, Option<Product>) {
        let mut all = Product::default();
        self.factorise(body, false, &mut all);
        let empty =
            fold.filter.iter().any(|&f| self.p.span(f).is_none()) || fold.over.iter().any(|&i| self.p[i].extent == 0);
        let anchors = self.anchors(fold);
        let stays = |s: &mut Self, e: &ExprId| {
            let fact = s.facts.of(s.p, s.x, *e);
            empty || fold.over.iter().any(|i| fact.free.contains(i)) || !fact.reach.is_disjoint(&anchors)
        };
        let (factors, out_factors): (Vec<_>, Vec<_>) = all.factors.iter().partition(|e| stays(self, e));
        let (divisors, out_divisors): (Vec<_>, Vec<_>) = all.divisors.iter().partition(|e| stays(self, e));
        let constant = all.constant.filter(|c| c.is_finite() && *c != 0.0);
        if constant.is_none() && out_factors.is_empty() && out_divisors.is_empty() {
            return (body, None);
        }
        let inside = Product { constant: if constant.is_none() { all.constant } else { None }, factors, divisors };
        let outside = Product { constant, factors: out_factors, divisors: out_divisors };
        (self.product(None, &inside), Some(outside))
    }

    /// The anchors of a reduction and theirs.
    fn anchors(&self, fold: &Fold) -> BTreeSet<NodeId> {
        let mut out = BTreeSet::new();
        let mut todo = fold.anchors.clone();
        while let Some(a) = todo.pop() {
            if out.insert(a)
                && let Some(f) = self.cone.folds.get(&a)
            {
                todo.extend(&f.anchors);
            }
        }
        out
    }

    fn factorise(&self, e: ExprId, divide: bool, out: &mut Product) {
        match *self.x.get(e) {
            Expr::Binary(BinaryOp::Mul, a, b) => {
                self.factorise(a, divide, out);
                self.factorise(b, divide, out);
            }
            Expr::Binary(BinaryOp::Div, a, b) => {
                self.factorise(a, divide, out);
                self.factorise(b, !divide, out);
            }
            Expr::Unary(UnaryOp::Neg, a) => {
                out.constant = Some(-out.constant.unwrap_or(1.0));
                self.factorise(a, divide, out);
            }
            Expr::Const(_) => {
                let v = self.x.as_const(e).unwrap_or(1.0);
                let c = out.constant.unwrap_or(1.0);
                out.constant = Some(if divide { c / v } else { c * v });
            }
            _ if divide => out.divisors.push(e),
            _ => out.factors.push(e),
        }
    }

    fn product(&mut self, first: Option<ExprId>, product: &Product) -> ExprId {
        let mut out = first;
        for &f in &product.factors {
            out = Some(out.map_or(f, |o| self.x.binary(BinaryOp::Mul, o, f)));
        }
        if let Some(c) = product.constant {
            let c = self.x.constant(c);
            out = Some(out.map_or(c, |o| self.x.binary(BinaryOp::Mul, o, c)));
        }
        let mut out = out.unwrap_or_else(|| self.x.constant(1.0));
        for &d in &product.divisors {
            out = self.x.binary(BinaryOp::Div, out, d);
        }
        out
    }

    /// The filter's affine part and its data-dependent part, without what loops see to.
    fn masks(&mut self, filter: &[ExprId]) -> [Option<ExprId>; 2] {
        let mut parts = [None, None];
        for &f in filter {
            if self.is_bound(f) {
                continue;
            }
            let part = &mut parts[usize::from(!matches!(self.x.get(f), Expr::Within(_)))];
            *part = Some(part.map_or(f, |before| self.x.binary(BinaryOp::And, before, f)));
        }
        parts
    }

    fn masked(&mut self, fold: &Fold, value: ExprId) -> ExprId {
        let identity = self.p.identity(fold.monoid);
        let identity = self.x.constant(identity);
        let [affine, data] = self.masks(&fold.filter);
        // The affine test outside, where a tile that lies within may leave it out.
        [data, affine].into_iter().flatten().fold(value, |v, mask| self.x.select(mask, v, identity))
    }

    /// Whether the bounds of a loop see to a condition. An index whose positions are all there is in no loop.
    fn is_bound(&self, condition: ExprId) -> bool {
        self.p.span(condition).is_some_and(|over| self.tiling.kind(over) == AxisKind::Stream)
    }

    fn tiled(&mut self, e: ExprId) -> BTreeSet<IndexId> {
        self.free(e).into_iter().filter(|&i| self.tiling.tiled(i)).collect()
    }
}

fn rewrite(
    x: &mut Exprs,
    e: ExprId,
    table: &FxHashMap<ExprId, ExprId>,
    memo: &mut FxHashMap<ExprId, ExprId>,
) -> ExprId {
    if let Some(&new) = table.get(&e).or_else(|| memo.get(&e)) {
        return new;
    }
    let new = match x.get(e).clone() {
        Expr::Read(n, at) => {
            let at = at.iter().map(|c| x.map_values(c, &mut |x, v| rewrite(x, v, table, memo))).collect();
            x.intern(Expr::Read(n, at))
        }
        _ => x.rebuild(e, &mut |x, c| rewrite(x, c, table, memo)),
    };
    memo.insert(e, new);
    new
}
