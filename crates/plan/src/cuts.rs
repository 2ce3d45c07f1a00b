//! From a kernel's expressions and a style to the cut of every index.

use crate::cone::Cone;
use crate::expr::{Expr, ExprId, Exprs};
use crate::facts::{Fact, Facts};
use crate::problem::{Fold, FoldMonoid, ItemDef, Problem};
use crate::tiling::{Cut, Tiling};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId, UnaryOp};
use einloom_tile::AxisKind;
use std::collections::{BTreeMap, BTreeSet};

/// Tile sizes to try together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Style {
    /// Of grid indices that are not contiguous in memory.
    pub rows: usize,
    /// Of the grid index that is.
    pub cols: usize,
    /// Of streams.
    pub stream: usize,
    /// A reduced index up to this extent is taken whole.
    pub whole: usize,
    /// The same for an index that a stored tensor carries too: streamed, it is read again for the store.
    pub whole_stored: usize,
    /// Of tiles of at least 16 positions on the grid: they are multiples of these, `rows` first, then `cols`.
    pub steps: [usize; 2],
    /// Whether tiles are made about as large as each other, and not the last one smaller.
    pub even: bool,
    /// Where a tile would have too many axes, a parallel index goes before a reduced one.
    pub parallel_first: bool,
    /// Tiles are to be found: no index is whole that has a choice, be it one of two.
    pub open: bool,
}

impl Style {
    /// Multiples of 16 keep vectors full.
    pub(crate) const VECTORS: [usize; 2] = [16, 16];

    /// The tile of at most `wish` positions that an index with so many is cut in.
    fn even(&self, extent: usize, wish: usize, step: usize) -> usize {
        if self.even { even(extent, wish, step) } else { wish.clamp(1, extent.max(1)) }
    }
}

/// What is known of a kernel's indices before they are cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    /// Parallel indices, outermost first.
    pub grid: Vec<IndexId>,
    /// Indices that loops inside the kernel visit.
    pub inner: BTreeSet<IndexId>,
    /// Those of them that a stored tensor carries.
    pub stored: BTreeSet<IndexId>,
    /// Those of them that a recurrence's state carries: they cannot be streamed.
    pub state: BTreeSet<IndexId>,
    /// The recurrence's index.
    pub recurrence: Option<IndexId>,
    /// Whether it advances by chunks.
    pub chunked: bool,
    /// Indices that run over the recurrence's chunk at hand.
    pub within: BTreeSet<IndexId>,
    /// Grid indices that are some stored tensor's last.
    pub contiguous: BTreeSet<IndexId>,
    /// Visited one by one from the start: a contraction has room for one tiled reduced index.
    pub single: BTreeSet<IndexId>,
}

impl Roles {
    pub(crate) fn new(p: &Problem, x: &Exprs, cone: &Cone) -> Self {
        let reduced = cone.reduced();
        let recurrence = cone.recurrence;
        let mut lists: Vec<Vec<IndexId>> = cone.roots.iter().map(|r| p[r.0].axes.clone()).collect();
        let mut state = BTreeSet::new();
        for &n in cone.iterations.keys() {
            if let ItemDef::Iterative(i) = &p[n].def {
                let slice: Vec<IndexId> =
                    p[n].axes.iter().enumerate().filter(|(k, _)| *k != i.dim).map(|(_, &i)| i).collect();
                state.extend(&slice);
                lists.push(slice);
            }
        }
        let everywhere = |i: &IndexId| lists.iter().all(|l| l.contains(i));
        let grid: Vec<IndexId> = (lists.first().into_iter().flatten().copied())
            .filter(|i| everywhere(i) && !reduced.contains(i) && recurrence != Some(*i))
            .collect();
        let mut inner: BTreeSet<IndexId> = reduced.clone();
        let mut stored = BTreeSet::new();
        for &i in lists.iter().flatten() {
            if !grid.contains(&i) && recurrence != Some(i) {
                inner.insert(i);
                stored.insert(i);
            }
        }
        let grid_set: BTreeSet<IndexId> = grid.iter().copied().collect();
        state.retain(|i| !grid_set.contains(i));
        let contiguous = cone.roots.iter().filter_map(|r| p[r.0].axes.last().copied()).collect();
        let single = single(p, x, cone);
        // A recurrence that goes position by position holds all that share its loop to that.
        let chunked = |n: &NodeId| p[*n].recurrence.is_some_and(|r| !p.loops[r].within.is_empty());
        let within: BTreeSet<IndexId> = reduced.iter().copied().filter(|&i| p.chunk_of(i).is_some()).collect();
        let chunked = !within.is_empty() && cone.iterations.keys().all(chunked);
        Self { grid, inner, stored, state, recurrence, chunked, within, contiguous, single }
    }

    /// The tiling in this style, with the indices in `demoted` visited one by one.
    pub(crate) fn tiling(
        &self,
        p: &Problem,
        style: &Style,
        demoted: &BTreeSet<IndexId>,
        given: &BTreeMap<String, usize>,
    ) -> Tiling {
        let mut out = Tiling { cuts: BTreeMap::new(), grid: self.grid.clone() };
        let asked = |i: IndexId| given.get(&p[i].name).copied().filter(|_| !demoted.contains(&i));
        for &i in &self.grid {
            let extent = p[i].extent;
            let [rows, cols] = style.steps;
            let (wish, step) = if self.contiguous.contains(&i) { (style.cols, cols) } else { (style.rows, rows) };
            let tile = if demoted.contains(&i) { 1 } else { asked(i).unwrap_or(wish) };
            let tile = style.even(extent, tile, step);
            // One tile needs no grid.
            let choice = style.open && asked(i).is_none();
            let kind = if extent > 1 && tile >= extent && !choice { AxisKind::Whole } else { AxisKind::Grid };
            out.cuts.insert(i, Cut { kind, tile, extent });
        }
        out.grid.retain(|i| out.cuts[i].kind == AxisKind::Grid);
        for &i in &self.inner {
            let extent = p[i].extent;
            let limit = if self.stored.contains(&i) { style.whole_stored } else { style.whole };
            let one = demoted.contains(&i) || self.single.contains(&i) && asked(i).is_none();
            let whole = match asked(i) {
                _ if p.is_shared(i) => false,
                Some(tile) => tile >= extent,
                None => extent <= limit.max(if style.open { 1 } else { style.stream }) && !one || extent == 1,
            };
            // An empty axis has no tile: a loop over nothing gives what a reduction over nothing is.
            let cut = if self.state.contains(&i) || whole && extent > 0 {
                // A state keeps an empty axis: its tile has no elements, not one.
                Cut { kind: AxisKind::Whole, tile: if extent == 0 { 2 } else { extent }, extent }
            } else {
                let tile = if one { 1 } else { style.even(extent, asked(i).unwrap_or(style.stream), 16) };
                let tile = p.dividing(i, tile);
                Cut { kind: AxisKind::Stream, tile, extent }
            };
            out.cuts.insert(i, cut);
        }
        if let Some(t) = self.recurrence {
            // What runs over the chunk at hand has no more positions than it.
            let many = self.chunked && !demoted.contains(&t);
            let tile = if many { asked(t).unwrap_or(p.chunk).clamp(1, p[t].extent.max(1)) } else { 1 };
            for &i in self.within.iter().chain([&t]) {
                let tile = if demoted.contains(&i) { 1 } else { tile };
                out.cuts.insert(i, Cut { kind: AxisKind::Stream, tile, extent: p[i].extent });
            }
        }
        out
    }

    /// The index to visit one by one when a value would have more than two tiled axes. First a parallel one that all large
    /// operands carry: then little is read more often. Then a parallel one that moves the same operands as
    /// another: the two are one index of the product of their positions, along which the other's tile does as well. Then
    /// any other parallel one if those go first; a reduced one; anything.
    pub(crate) fn demote(
        &self,
        p: &Problem,
        indices: &BTreeSet<IndexId>,
        leaves: &[Vec<IndexId>],
        parallel_first: bool,
    ) -> Option<IndexId> {
        let leaves = with_some(leaves, indices);
        let last: BTreeSet<IndexId> = leaves.iter().filter_map(|l| l.last().copied()).collect();
        let batch = |i: &IndexId| leaves.iter().all(|l| l.contains(i));
        let again = |i: &IndexId| again(p, &leaves, *i);
        let few = few(p, &leaves);
        let open = |i: &&IndexId| indices.contains(i) && !self.state.contains(i);
        let alike = |i: &IndexId, j: &IndexId| i != j && alike(&leaves, *i, *j);
        let grid = || self.grid.iter().filter(open);
        let inner = || self.inner.iter().filter(open);
        grid()
            .filter(|i| again(i) <= few)
            .min_by(|a, b| again(a).total_cmp(&again(b)))
            .or_else(|| grid().find(|i| !last.contains(i) && grid().any(|j| alike(i, j))))
            .or_else(|| grid().find(|i| parallel_first && !last.contains(i)))
            .or_else(|| inner().find(|i| !self.stored.contains(i) && !batch(i) && !last.contains(i)))
            .or_else(|| inner().find(|i| !self.stored.contains(i) && batch(i)))
            .or_else(|| grid().find(|i| !last.contains(i)))
            .or_else(|| inner().find(|i| !last.contains(i)))
            .or_else(|| inner().next())
            .or_else(|| grid().next())
            .copied()
    }

    /// Which indices could have given way where `i` of the grid did, so that other operands are read again: none if little is, nor those that
    /// move the same ones.
    pub(crate) fn rivals(
        &self,
        p: &Problem,
        i: IndexId,
        indices: &BTreeSet<IndexId>,
        leaves: &[Vec<IndexId>],
    ) -> Vec<IndexId> {
        let leaves = with_some(leaves, indices);
        if !self.grid.contains(&i) || again(p, &leaves, i) <= few(p, &leaves) {
            return vec![];
        }
        let open = |r: &&IndexId| **r != i && indices.contains(r) && !self.state.contains(r) && !alike(&leaves, i, **r);
        self.grid.iter().filter(open).copied().collect()
    }
}

/// The operands that carry some of these indices.
fn with_some<'a>(leaves: &'a [Vec<IndexId>], indices: &BTreeSet<IndexId>) -> Vec<&'a Vec<IndexId>> {
    leaves.iter().filter(|l| l.iter().any(|i| indices.contains(i))).collect()
}

/// Whether two indices move the same operands.
fn alike(leaves: &[&Vec<IndexId>], i: IndexId, j: IndexId) -> bool {
    leaves.iter().all(|l| l.contains(&i) == l.contains(&j))
}

fn size(p: &Problem, leaf: &[IndexId]) -> f64 {
    leaf.iter().map(|&i| p[i].extent as f64).product()
}

/// Elements that are read again, or one by one, if this index gives way.
fn again(p: &Problem, leaves: &[&Vec<IndexId>], i: IndexId) -> f64 {
    let of = |l: &&Vec<IndexId>| match l.contains(&i) {
        false => p[i].extent as f64 * size(p, l),
        true if l.last() == Some(&i) => ONE_BY_ONE * size(p, l),
        true => 0.0,
    };
    leaves.iter().map(of).sum()
}

/// Elements that may be read again.
fn few(p: &Problem, leaves: &[&Vec<IndexId>]) -> f64 {
    FEW * leaves.iter().map(|l| size(p, l)).sum::<f64>()
}

/// An index gives way without more ado if no more is read again than so many times all operands.
/// Nothing drawn tells it from half or twice of it: none of 69 plans changed with 2, and none of 114 with 8.
const FEW: f64 = 4.0;
/// An element that is read by itself costs as much as so many that are read in a row.
const ONE_BY_ONE: f64 = 16.0;

/// The largest tile of at most `wish` positions, made smaller where that leaves all tiles of a loop about equal.
fn even(extent: usize, wish: usize, step: usize) -> usize {
    let wish = wish.max(1);
    if extent <= wish {
        return extent.max(1);
    }
    let steps = extent.div_ceil(wish);
    let tile = extent.div_ceil(steps);
    if wish < 16 { tile } else { tile.next_multiple_of(step).min(wish) }
}

/// Of the indices that one sum of products reduces together all but the longest.
fn single(p: &Problem, x: &Exprs, cone: &Cone) -> BTreeSet<IndexId> {
    let mut out = BTreeSet::new();
    for fold in cone.folds.values() {
        if fold.monoid != FoldMonoid::Sum || fold.over.len() < 2 || factors_read(x, fold.body) < 2 {
            continue;
        }
        let longest = fold.over.iter().copied().max_by_key(|&i| p[i].extent);
        out.extend(fold.over.iter().copied().filter(|&i| Some(i) != longest));
    }
    out
}

/// Number of factors of a product that read something.
fn factors_read(x: &Exprs, e: ExprId) -> usize {
    match *x.get(e) {
        Expr::Binary(BinaryOp::Mul | BinaryOp::Div, a, b) => factors_read(x, a) + factors_read(x, b),
        Expr::Unary(UnaryOp::Neg, a) => factors_read(x, a),
        _ => {
            let mut reads = false;
            x.reads(e, &mut BTreeSet::new(), &mut |_, _| reads = true);
            usize::from(reads)
        }
    }
}

/// Whether some contraction of the cone wants large tiles: a sum of products over operands that share no further
/// index.
pub(crate) fn contracts(p: &Problem, x: &Exprs, cone: &Cone) -> bool {
    let mut facts = Facts::default();
    cone.folds.iter().any(|(&n, fold)| is_contraction(p, x, &mut facts, n, fold))
}

/// Whether some sum of the cone is one of products of two factors of which each has an index of the result that the other has not: a product of
/// matrices, if tiles are cut so. What [`contracts`] leaves out are weights that are made of positions alone.
pub(crate) fn multiplies(p: &Problem, x: &Exprs, cone: &Cone) -> bool {
    let mut facts = Facts::default();
    let mut of = |fold: &Fold| {
        let (mut factors, mut todo) = (vec![], vec![fold.body]);
        while let Some(e) = todo.pop() {
            match *x.get(e) {
                Expr::Binary(BinaryOp::Mul, a, b) => todo.extend([a, b]),
                Expr::Binary(BinaryOp::Div, a, _) | Expr::Unary(UnaryOp::Neg, a) => todo.push(a),
                _ => factors.push(facts.of(p, x, e)),
            }
        }
        let summed = |f: &Fact| fold.over.iter().any(|i| f.free.contains(i));
        factors.retain(|f| summed(f));
        let more = |a: &Fact, b: &Fact| a.free.iter().any(|i| !b.free.contains(i) && !fold.over.contains(i));
        factors.iter().any(|a| factors.iter().any(|b| more(a, b) && more(b, a)))
    };
    cone.folds.values().any(|fold| fold.monoid == FoldMonoid::Sum && of(fold))
}

/// Whether a reduction is a sum of products over operands that share no further index.
pub(crate) fn is_contraction(p: &Problem, x: &Exprs, facts: &mut Facts, n: NodeId, fold: &Fold) -> bool {
    fold.monoid == FoldMonoid::Sum && factors_read(x, fold.body) >= 2 && {
        let free = &facts.of(p, x, fold.body).free;
        // The number of a share is in its bounds, not in what it multiplies.
        let own = p[n].axes.iter().filter(|i| free.contains(i)).count();
        free.len() > own && own >= 1 && !fold.over.is_empty()
    }
}
