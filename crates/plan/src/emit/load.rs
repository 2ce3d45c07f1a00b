//! Reads from memory.

use super::{Emitter, Fail, Sides};
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::lower::{How, LoweredCone};
use einloom_algebra::NodeId;
use einloom_tile::{Coord, CoordAtom, Op, TensorId, ValueId};
use std::collections::BTreeSet;

impl Emitter<'_> {
    pub(super) fn load(&mut self, e: ExprId, n: NodeId, at: &[Coordinate], sides: Sides) -> Result<ValueId, Fail> {
        let coords = at.iter().map(|c| self.coord(c)).collect::<Result<Vec<_>, _>>()?;
        let extents = &self.p[n].extents;
        let gathers = at.iter().any(gathers);
        let leaves = at.iter().zip(extents).any(|(c, &extent)| {
            let (low, high) = self.range(c);
            !self::gathers(c) && (low < 0 || high >= extent as i128)
        });
        // What conditions keep from being used may lie outside; everything else must not.
        let fill = (leaves || gathers && !self.unguarded.contains(&e)).then_some(0.0);
        let dtype = self.p.storage(n, self.types, self.x);
        let dst = self.new_value(self.p[n].name.to_lowercase(), sides, dtype);
        self.push(Op::Load { dst, tensor: TensorId(n.0), at: coords, fill });
        Ok(dst)
    }

    pub(super) fn coord(&mut self, at: &Coordinate) -> Result<Coord, Fail> {
        let mut out = Coord::fixed(at.offset);
        for (atom, &c) in &at.terms {
            let atom = match atom {
                Atom::Index(i) => CoordAtom::Axis(self.axis_of(*i)?),
                Atom::Floor(n, d) => CoordAtom::Floor(Box::new(self.coord(n)?), *d),
                Atom::Value(e) => CoordAtom::Tile(self.tile(*e)?),
            };
            out.terms.push((c, atom));
        }
        Ok(out)
    }

    /// The smallest and largest position a coordinate can have; gathered values count as 0.
    fn range(&self, at: &Coordinate) -> (i128, i128) {
        let (mut low, mut high) = (i128::from(at.offset), i128::from(at.offset));
        for (atom, &c) in &at.terms {
            let (first, last) = match atom {
                Atom::Index(i) => (0, (self.p[*i].extent as i128 - 1).max(0)),
                Atom::Floor(n, d) => {
                    let (first, last) = self.range(n);
                    (first.div_euclid(i128::from(*d)), last.div_euclid(i128::from(*d)))
                }
                Atom::Value(_) => (0, 0),
            };
            let (a, b) = (i128::from(c) * first, i128::from(c) * last);
            low += a.min(b);
            high += a.max(b);
        }
        (low, high)
    }
}

fn gathers(at: &Coordinate) -> bool {
    let mut found = false;
    Exprs::coordinate_values(at, &mut |_| found = true);
    found
}

/// The reads that no filter and no `where` stands before.
pub(super) fn unguarded(x: &Exprs, l: &LoweredCone) -> BTreeSet<ExprId> {
    let mut todo: Vec<ExprId> = l.roots.iter().map(|r| r.1).collect();
    todo.extend(l.iterations.values().flat_map(|i| i.0.into_iter().chain([i.1])));
    for f in l.folds.values() {
        todo.extend(&f.filter);
        if f.filter.is_empty() {
            match f.how {
                How::Contract(a, b) => todo.extend([a, b]),
                How::Fold(e) => todo.push(e),
            }
        }
    }
    let mut out = BTreeSet::new();
    while let Some(e) = todo.pop() {
        if !out.insert(e) {
            continue;
        }
        match x.get(e) {
            Expr::Select(c, ..) => todo.push(*c),
            Expr::Read(_, at) => at.iter().for_each(|c| Exprs::coordinate_values(c, &mut |v| todo.push(v))),
            _ => todo.extend(x.children(e)),
        }
    }
    out
}
