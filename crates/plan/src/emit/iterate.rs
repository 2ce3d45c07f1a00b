//! Recurrences: a loop over positions whose states are the slices of the iterative tensors.

use super::{Emitter, Fail, Running, Scope};
use crate::PlanError;
use crate::expr::{Coordinate, ExprId};
use crate::problem::ItemDef;
use einloom_algebra::NodeId;
use einloom_cascade::{DType, IndexId};
use einloom_tile::{Coord, Init, Op, Predicate, State, TensorId, ValueId};
use std::collections::BTreeSet;

impl Emitter<'_> {
    /// Runs the kernel's recurrence, if it has one, and stores what is known position by position.
    pub(super) fn iterate(&mut self) -> Result<(), Fail> {
        let Some(t) = self.cone.recurrence else { return Ok(()) };
        let members: Vec<NodeId> = self.l.iterations.keys().copied().collect();
        let roots: Vec<_> = self.l.roots.iter().copied().filter(|(n, _)| self.p[*n].axes.contains(&t)).collect();
        let (slices, stored): (Vec<_>, Vec<_>) = roots.into_iter().partition(|(n, _)| members.contains(n));
        let mut starts = vec![];
        for &n in &members {
            let (Some(first), _) = self.l.iterations[&n] else {
                return Err(self.unsupported(n, "it has no slice at position 0 to start from"));
            };
            let stored = slices.iter().any(|s| s.0 == n);
            let start = self.start(n, first, stored)?;
            if let (true, Init::Value(src)) = (stored, &start) {
                let (src, at) = (*src, self.slice_coords(n, Coord::fixed(0))?);
                self.push(Op::Store { tensor: TensorId(n.0), at, src });
            }
            starts.push(start);
        }
        let axis = self.stream_axis(t);
        let mut states = vec![];
        for &n in &members {
            states.push(self.new_slice(n, true)?);
        }
        let mut scope = Scope { bindings: [(t, axis)].into(), ..Scope::default() };
        for (&n, &old) in members.iter().zip(&states) {
            scope.running.insert(n, Running { old, new: None, lag: None, complete: None });
        }
        self.scopes.push(scope);
        let mut next = vec![];
        for &n in &members {
            let value = self.next_slice(n)?;
            next.push(value);
            if slices.iter().any(|s| s.0 == n) {
                let mut later = Coord::axis(axis);
                later.offset = 1;
                let at = self.slice_coords(n, later)?;
                self.push(Op::Store { tensor: TensorId(n.0), at, src: value });
            }
        }
        for root in stored {
            let open: Vec<IndexId> =
                self.p[root.0].axes.iter().copied().filter(|&i| self.binding(i).is_err()).collect();
            self.store_within(&open, &[root])?;
        }
        let body = self.scopes.pop().map(|s| s.ops).unwrap_or_default();
        let list =
            (states.iter().zip(starts).zip(&next)).map(|((&value, init), &next)| State { value, init, next }).collect();
        self.push(Op::Stream { axis, within: Predicate::default(), guards: vec![], states: list, body });
        self.finals = members.into_iter().zip(states).collect();
        Ok(())
    }

    /// The slice at position 0, with the axes and the number type of the state; a constant where no tile is needed.
    fn start(&mut self, n: NodeId, first: ExprId, tile: bool) -> Result<Init, Fail> {
        if let (Some(v), false) = (self.x.as_const(first), tile) {
            return Ok(Init::Const(v));
        }
        let axes = self.slice_axes(n);
        let dtype = self.slice_type(n);
        let expr = self.declared(first, &self.tiled(&axes), dtype)?;
        let dst = self.new_slice(n, false)?;
        self.push(Op::Map { dst, expr });
        Ok(Init::Value(dst))
    }

    /// A slice of an iterative tensor: at the loop's position, after it, at the start, or at the end.
    pub(super) fn iterative_value(&mut self, n: NodeId, at: &[Coordinate]) -> Result<ValueId, Fail> {
        let ItemDef::Iterative(iteration) = &self.p[n].def else {
            return Err(self.unsupported(n, "nothing computes it in this kernel"));
        };
        let dim = iteration.dim;
        let axes = &self.p[n].axes;
        let plain = at.iter().zip(axes).enumerate().all(|(k, (c, &i))| k == dim || c.as_index() == Some(i));
        if !plain {
            return Err(self.unsupported(n, "its own recurrence reads it at positions of another index"));
        }
        let last = self.p[n].extents[dim] as i64 - 1;
        let running = self.scopes.iter().rposition(|s| s.running.contains_key(&n));
        if let (Some(k), Some((i, _))) = (running, at[dim].as_shifted())
            && i == axes[dim]
        {
            self.in_own_loop(n, k)?;
        }
        match (at[dim].as_shifted(), at[dim].as_fixed(), running) {
            (Some((i, 0)), _, Some(k)) if i == axes[dim] => Ok(self.scopes[k].running[&n].old),
            (Some((i, 1)), _, Some(k)) if i == axes[dim] => self.at_depth(k, |s| s.next_slice(n)),
            (_, Some(0), _) => match self.l.iterations[&n].0 {
                Some(first) => {
                    let axes = self.slice_axes(n);
                    self.tile_over(first, &axes)
                }
                None => Err(self.unsupported(n, "it has no slice at position 0 to start from")),
            },
            (_, Some(position), None) if position == last && self.finals.contains_key(&n) => Ok(self.finals[&n]),
            (Some((i, 0 | 1)), _, None) if i == axes[dim] => {
                Err(self.unsupported(n, "another loop reads its slices, and only its own has them as they are made"))
            }
            _ => Err(self.unsupported(n, "it is read at a position that is neither t, t + 1, 0 nor the last")),
        }
    }

    /// A reduction over the recurrence's index has a loop of its own in that of this scope, and what runs is not at its positions.
    pub(super) fn in_own_loop(&self, n: NodeId, scope: usize) -> Result<(), Fail> {
        let ItemDef::Iterative(iteration) = &self.p[n].def else { return Ok(()) };
        match self.binding(self.p[n].axes[iteration.dim])?.0 == scope {
            true => Ok(()),
            false => Err(self.unsupported(n, "its own recurrence reads it at positions of another loop")),
        }
    }

    /// The slice at `t + 1`, always a value of its own.
    fn next_slice(&mut self, n: NodeId) -> Result<ValueId, Fail> {
        let depth = self.scopes.len() - 1;
        if let Some(v) = self.scopes[depth].running.get(&n).and_then(|r| r.new) {
            return Ok(v);
        }
        let axes = self.slice_axes(n);
        let step = self.l.iterations[&n].1;
        let dtype = self.slice_type(n);
        let expr = self.declared(step, &self.tiled(&axes), dtype)?;
        let dst = self.new_slice(n, false)?;
        self.push(Op::Map { dst, expr });
        if let Some(r) = self.scopes[depth].running.get_mut(&n) {
            r.new = Some(dst);
        }
        Ok(dst)
    }

    fn new_slice(&mut self, n: NodeId, state: bool) -> Result<ValueId, Fail> {
        let axes = self.slice_axes(n);
        let order: Vec<IndexId> = self.p[n].axes.iter().copied().filter(|i| axes.contains(i)).collect();
        let sides = self.sides_or(&self.tiled(&axes), || vec![order.clone()])?;
        let dtype = self.slice_type(n);
        let name = &self.p[n].name;
        let name = if state { name.clone() } else { name.to_lowercase() };
        Ok(self.new_value(name, sides, dtype))
    }

    fn slice_type(&mut self, n: NodeId) -> DType {
        self.p.storage(n, self.types, self.x)
    }

    /// The dimensions of an iterative tensor other than the iterative one.
    fn slice_axes(&self, n: NodeId) -> BTreeSet<IndexId> {
        let ItemDef::Iterative(i) = &self.p[n].def else { return BTreeSet::new() };
        self.p[n].axes.iter().enumerate().filter(|(k, _)| *k != i.dim).map(|(_, &i)| i).collect()
    }

    fn slice_coords(&self, n: NodeId, position: Coord) -> Result<Vec<Coord>, Fail> {
        let ItemDef::Iterative(iteration) = &self.p[n].def else { return Ok(vec![]) };
        let axes = self.p[n].axes.iter().enumerate();
        axes.map(|(k, &i)| if k == iteration.dim { Ok(position.clone()) } else { Ok(Coord::axis(self.axis_of(i)?)) })
            .collect()
    }

    pub(super) fn unsupported(&self, n: NodeId, reason: &str) -> Fail {
        PlanError::unsupported(&self.p[n].name, reason).into()
    }
}
