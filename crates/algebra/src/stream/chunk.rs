//! Recurrences that advance chunk by chunk.

use super::{Cut, Domain, Places, Point, Run};
use crate::{Def, NodeId, Recurrence};
use einloom_cascade::{IndexExpr, IndexId};

/// Positions `start..end` of the indices in `within`.
pub(super) struct Window {
    within: Vec<IndexId>,
    start: usize,
    end: usize,
}

impl Window {
    /// Of positions of these indices leaves those that lie in the chunk.
    pub(super) fn restrict(&self, indices: &[IndexId], places: &mut Places) {
        for (d, _) in indices.iter().enumerate().filter(|(_, i)| self.within.contains(i)) {
            places.within(d, self.start..self.end);
        }
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
        let window = self.window.as_ref()?;
        let end = window.end;
        let mut places = Places::of(&self.shapes[m.0 as usize]);
        let mut last = None;
        match &node.def {
            // Once, for the slice at the end.
            Def::Iterative { dim, .. } => {
                places.within(*dim, window.start..window.start + 1);
                last = Some(*dim);
            }
            _ => window.restrict(&node.axes, &mut places),
        }
        while let Some(at) = places.next() {
            let point = Point::new(&node.axes, at);
            let value = match &node.def {
                Def::Map(t) | Def::Iterative { step: t, .. } => self.term(t, &point)?,
                Def::Reduce(r) => self.reduce(r, &point)?,
                Def::Input => continue,
            };
            let value = node.dtype.map_or(value.clone(), |d| self.domain.round(d, value));
            let place = at.iter().enumerate().map(|(d, &p)| if last == Some(d) { end as i64 } else { p as i64 });
            let offset = self.offset(m, place.map(Some))?;
            self.values[m.0 as usize][offset] = value;
        }
        Some(())
    }

    /// An iterative member at the start of the chunk.
    pub(super) fn at_start(&self, n: NodeId, at: &[IndexExpr], point: &Point<D::Value>) -> Option<D::Value> {
        let Def::Iterative { dim, .. } = &self.graph[n].def else { return None };
        let start = self.window.as_ref()?.start as i64;
        let place = |(d, e): (usize, &IndexExpr)| if d == *dim { Some(start) } else { self.index(e, point) };
        self.values[n.0 as usize].get(self.offset(n, at.iter().enumerate().map(place))?).cloned()
    }
}
