//! Iterative tensors of which no slice needs another, such as an output that a recurrence by chunks leaves to others to put together:
//! `y[b,0] = 0`, `y[b,t+1] = z[b,t]`. They are no recurrences: all slices but the first are computed like any other array, and stored one
//! position later; the first one by itself.
//!
//! Conditions: the tensor starts from one slice, at position 0, and nothing reads it but the program's caller.

use crate::expr::Exprs;
use crate::problem::{Item, ItemDef, Iteration, Problem};
use einloom_algebra::NodeId;
use einloom_tile::Coord;

/// Where an item's elements are stored, if not at its own places in a tensor of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// One position later along a dimension.
    Later(Later),
    /// As the first slice along this dimension of that tensor.
    First(NodeId, usize),
}

/// A tensor of which one position more is stored than an item computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Later {
    pub dim: usize,
    /// The extents of all that is stored.
    pub extents: Vec<usize>,
    /// So many positions are a chunk, if the item's index is two.
    pub by: Option<usize>,
}

impl Stored {
    /// The tensor of an item, and where in it what it computes at these places is stored.
    pub(crate) fn place(at: Option<&Self>, n: NodeId, mut places: Vec<Coord>) -> (NodeId, Vec<Coord>) {
        match at {
            Some(&Self::First(of, dim)) => {
                places.insert(dim, Coord::fixed(0));
                (of, places)
            }
            Some(Self::Later(Later { dim, by, .. })) => {
                if let Some(by) = by {
                    let within = places.remove(dim + 1);
                    let chunk = &mut places[*dim];
                    chunk.terms.iter_mut().for_each(|t| t.0 *= *by as i64);
                    chunk.terms.extend(within.terms);
                }
                places[*dim].offset += 1;
                (n, places)
            }
            None => (n, places),
        }
    }
}

impl Problem {
    /// Makes arrays of all such tensors.
    pub(crate) fn assemble(&mut self, x: &Exprs) {
        let mut changed = false;
        for r in 0..self.loops.len() {
            let members = self.loops[r].members.clone();
            if !members.is_empty() && members.iter().all(|&n| self.is_assembled(n, x)) {
                members.into_iter().for_each(|n| self.put_apart(n));
                self.loops[r].members.clear();
                changed = true;
            }
        }
        if changed {
            self.order = self.topological(x);
        }
    }

    fn is_assembled(&self, n: NodeId, x: &Exprs) -> bool {
        let ItemDef::Iterative(Iteration { initial, .. }) = &self[n].def else { return false };
        let mut items = (0..self.items.len() as u32).map(NodeId);
        matches!(initial.as_slice(), [(0, _)])
            && self.outputs.contains(&n)
            && self[n].shape.is_none()
            && !items.any(|other| self.needs(other, x).contains(&n))
    }

    fn put_apart(&mut self, n: NodeId) {
        let item = self[n].clone();
        let ItemDef::Iterative(Iteration { dim, initial, step }) = item.def else { return };
        let (mut axes, mut extents) = (item.axes.clone(), item.extents.clone());
        axes.remove(dim);
        extents.remove(dim);
        let first = Item {
            axes,
            extents,
            def: ItemDef::Map(initial[0].1),
            recurrence: None,
            at: Some(Stored::First(n, dim)),
            ..self[n].clone()
        };
        let whole = &mut self.items[n.0 as usize];
        let later = Later { dim, extents: item.extents, by: None };
        (whole.def, whole.recurrence, whole.at) = (ItemDef::Map(step), None, Some(Stored::Later(later)));
        whole.extents[dim] -= 1;
        self.items.push(first);
        self.outputs.push(NodeId(self.items.len() as u32 - 1));
    }
}
