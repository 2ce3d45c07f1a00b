//! Which way round tiles lie: as their elements lie in memory, as far as tensors agree.

use crate::cone::Cone;
use crate::expr::{Coordinate, Expr, Exprs};
use crate::problem::Problem;
use crate::tiling::Tiling;
use einloom_cascade::IndexId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Preferences between indices.
pub(super) struct Orientation {
    /// How often the first stands before the second.
    before: BTreeMap<(IndexId, IndexId), i32>,
    /// How often an index stands last, less how often it does not.
    last: BTreeMap<IndexId, i32>,
}

impl Orientation {
    pub(super) fn new(p: &Problem, x: &Exprs, cone: &Cone, tiling: &Tiling) -> Self {
        let mut out = Self { before: BTreeMap::new(), last: BTreeMap::new() };
        for (n, _) in &cone.roots {
            out.count(&p[*n].axes, 3, tiling);
        }
        for (n, fold) in &cone.folds {
            let list: Vec<IndexId> = p[*n].axes.iter().chain(&fold.over).copied().collect();
            out.count(&list, 2, tiling);
        }
        let mut seen = BTreeSet::new();
        let mut lists = vec![];
        for e in cone.tops() {
            x.reads(e, &mut seen, &mut |_, at| lists.push(dims(at)));
        }
        for list in lists {
            out.count(&list, 1, tiling);
        }
        out
    }

    fn count(&mut self, list: &[IndexId], weight: i32, tiling: &Tiling) {
        let list: Vec<IndexId> = list.iter().copied().filter(|&i| tiling.tiled(i)).collect();
        for (k, &i) in list.iter().enumerate() {
            for &j in &list[k + 1..] {
                *self.before.entry((i, j)).or_default() += weight;
            }
            if list.len() > 1 {
                *self.last.entry(i).or_default() += if k + 1 == list.len() { weight } else { -weight };
            }
        }
    }

    /// Two indices as rows and columns.
    pub(super) fn pair(&self, a: IndexId, b: IndexId) -> (IndexId, IndexId) {
        let votes = |x, y| self.before.get(&(x, y)).copied().unwrap_or(0);
        match votes(a, b).cmp(&votes(b, a)) {
            Ordering::Less => (b, a),
            _ => (a, b),
        }
    }

    /// Whether a tile of this one index lies across.
    pub(super) fn across(&self, a: IndexId) -> bool {
        self.last.get(&a).copied().unwrap_or(1) > 0
    }
}

/// The indices of a read in the order of its dimensions, each where it stands last.
pub(super) fn dims(at: &[Coordinate]) -> Vec<IndexId> {
    let mut out: Vec<IndexId> = vec![];
    for c in at {
        Exprs::coordinate_indices(
            c,
            &mut |i| {
                out.retain(|&o| o != i);
                out.push(i);
            },
            &mut |_| {},
        );
    }
    out
}

/// The dimensions of every element that an expression reads, for messages about too many axes.
pub(super) fn leaves(p: &Problem, x: &Exprs, e: crate::expr::ExprId) -> Vec<Vec<IndexId>> {
    let mut out = vec![];
    x.reads(e, &mut BTreeSet::new(), &mut |n, at| {
        out.push(if at.is_empty() { p[n].axes.clone() } else { dims(at) });
    });
    if let Expr::Read(_, at) = x.get(e) {
        out = vec![dims(at)];
    }
    out
}
