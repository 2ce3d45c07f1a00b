//! Recurrences that advance chunk by chunk.

use super::{Cut, Domain, Point, Run, for_each};
use crate::{Def, NodeId, Recurrence};
use einloom_cascade::{IndexExpr, IndexId};

/// Positions `start..end` of the indices in `within`.
pub(super) struct Window {
    within: Vec<IndexId>,
    start: usize,
    end: usize,
}

impl Window {
    /// Whether a position of these indices lies in the chunk.
    pub(super) fn holds(&self, indices: &[IndexId], at: &[usize]) -> bool {
        indices.iter().zip(at).all(|(i, p)| !self.within.contains(i) || (self.start..self.end).contains(p))
    }
}

impl<D: Domain> Run<'_, D> {
    /// All chunks of a recurrence, in order: as long as those that reductions are cut into.
    pub(super) fn by_chunks(&mut self, r: &Recurrence) -> Option<()> {
        let size = self.bound.size(r.rank);
        let length = match self.cut {
            Cut::Whole => size,
            Cut::Chunks(n) | Cut::Parts(n) => n,
        };
        for start in (0..size).step_by(length.max(1)) {
            let end = size.min(start + length);
            let within = r.within.iter().copied().chain([r.index]).collect();
            self.window = Some(Window { within, start, end });
            for &m in &r.members {
                self.member(m)?;
            }
        }
        self.window = None;
        Some(())
    }

    /// The elements of one member that belong to the chunk.
    fn member(&mut self, m: NodeId) -> Option<()> {
        let node = &self.graph[m];
        let (start, end) = self.window.as_ref().map(|w| (w.start, w.end))?;
        let mut points = vec![];
        for_each(&self.shapes[m.0 as usize], &mut |at| points.push(at.to_vec()));
        for at in points {
            let mut place: Vec<i64> = at.iter().map(|&p| p as i64).collect();
            match &node.def {
                // Once, for the slice at the end.
                Def::Iterative { dim, .. } if at[*dim] != start => continue,
                Def::Iterative { dim, .. } => place[*dim] = end as i64,
                _ if !self.window.as_ref()?.holds(&node.axes, &at) => continue,
                _ => {}
            }
            let at = node.axes.iter().copied().zip(at.iter().map(|&p| p as i64)).collect();
            let point = Point { at, ..Point::new() };
            let value = match &node.def {
                Def::Map(t) | Def::Iterative { step: t, .. } => self.term(t, &point)?,
                Def::Reduce(r) => self.reduce(r, &point)?,
                Def::Input => continue,
            };
            let value = node.dtype.map_or(value.clone(), |d| self.domain.round(d, value));
            let offset = self.offset(m, &place)?;
            self.values[m.0 as usize][offset] = value;
        }
        Some(())
    }

    /// An iterative member at the start of the chunk.
    pub(super) fn at_start(&self, n: NodeId, at: &[IndexExpr], point: &Point<D::Value>) -> Option<D::Value> {
        let Def::Iterative { dim, .. } = &self.graph[n].def else { return None };
        let start = self.window.as_ref()?.start as i64;
        let place = |(d, e): (usize, &IndexExpr)| if d == *dim { Some(start) } else { self.index(e, point) };
        let at = at.iter().enumerate().map(place).collect::<Option<Vec<_>>>()?;
        self.values[n.0 as usize].get(self.offset(n, &at)?).cloned()
    }
}
