//! Iterative tensors of which no slice needs another, such as an output that a recurrence by chunks leaves to others to put together:
//! `y[b,0] = 0`, `y[b,t+1] = z[b,t]`. They are no recurrences: all slices but the first are computed like any other array, and stored one
//! position later; the first one by itself.
//!
//! Conditions: the tensor starts from one slice, at position 0, and nothing reads it but the program's caller.

use crate::expr::Exprs;
use crate::problem::{Item, ItemDef, Iteration, Problem};
use einloom_algebra::NodeId;

/// Where an item's elements are stored, if not at its own places in a tensor of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// One position later along this dimension.
    Later(usize),
    /// As the first slice along this dimension of that tensor.
    First(NodeId, usize),
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
        (whole.def, whole.recurrence, whole.at) = (ItemDef::Map(step), None, Some(Stored::Later(dim)));
        self.items.push(first);
        self.outputs.push(NodeId(self.items.len() as u32 - 1));
    }
}
