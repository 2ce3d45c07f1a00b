//! Writes of the kernel's roots, with loops over the indices that no grid and no whole axis gives.

use super::{Emitter, Fail, Scope};
use crate::assembled::Stored;
use crate::expr::ExprId;
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use einloom_tile::{AxisId, Coord, Op, Predicate, TensorId};
use std::collections::{BTreeMap, BTreeSet};

impl Emitter<'_> {
    /// Stores every root that the recurrence has not stored; those that need the same loops share them.
    pub(super) fn store_roots(&mut self) -> Result<(), Fail> {
        let mut groups: BTreeMap<Vec<IndexId>, Vec<(NodeId, ExprId)>> = BTreeMap::new();
        let recurrence = self.cone.recurrence;
        for &(n, e) in &self.l.roots {
            let axes = &self.p[n].axes;
            if recurrence.is_none_or(|t| !axes.contains(&t)) {
                let open = axes.iter().copied().filter(|&i| self.binding(i).is_err()).collect();
                groups.entry(open).or_default().push((n, e));
            }
        }
        for (open, roots) in groups {
            self.store_within(&open, &roots)?;
        }
        Ok(())
    }

    /// Stores these roots inside loops over `open`, in the scope at hand.
    pub(super) fn store_within(&mut self, open: &[IndexId], roots: &[(NodeId, ExprId)]) -> Result<(), Fail> {
        let mut axes: Vec<AxisId> = vec![];
        for &i in open {
            let axis = self.stream_axis(i);
            self.scopes.push(Scope { bindings: [(i, axis)].into(), ..Scope::default() });
            axes.push(axis);
        }
        for &(n, e) in roots {
            self.store(n, e)?;
        }
        for &axis in axes.iter().rev() {
            let body = self.scopes.pop().map(|s| s.ops).unwrap_or_default();
            self.push(Op::Stream { axis, within: Predicate::default(), guards: vec![], states: vec![], body });
        }
        Ok(())
    }

    fn store(&mut self, n: NodeId, e: ExprId) -> Result<(), Fail> {
        let axes = self.p[n].axes.clone();
        let all: BTreeSet<IndexId> = axes.iter().copied().collect();
        let src = self.tile_over(e, &all)?;
        let places = axes.iter().map(|&i| Ok(Coord::axis(self.axis_of(i)?))).collect::<Result<_, Fail>>()?;
        let (tensor, at) = Stored::place(self.p[n].at.as_ref(), n, places);
        self.push(Op::Store { tensor: TensorId(tensor.0), at, src });
        Ok(())
    }
}
