//! The rules for guards: what they mention has windows, and what they read tells the extremes over these.

use super::body::Walk;
use super::scalars::single;
use crate::{AxisId, Coord, CoordAtom, Extremes, Guard, guard::integers};
use einloom_cascade::BinaryOp;

impl Walk<'_> {
    pub(super) fn guard(&mut self, guard: &Guard) {
        let mut axes = guard.axes();
        axes.retain(|&a| !self.open(a));
        if !axes.is_empty() {
            return;
        }
        guard.visit(&mut |g| match g {
            Guard::Within(p) => self.predicate(p, |_, _| true),
            Guard::Element(e) => self.extremes(e),
            Guard::Binary(BinaryOp::Div, _, by) if !matches!(**by, Guard::Const(c) if c != 0.0) => {
                self.fault("a guard divides by what may be 0".to_string());
            }
            _ => {}
        });
    }

    fn extremes(&mut self, e: &Extremes) {
        let program = self.program;
        for (tensor, at) in [(e.of, &e.at), (e.low, &e.places), (e.high, &e.places)] {
            let Some(decl) = program.tensors.get(tensor.at()) else {
                return self.fault(format!("tensor {} is not declared", tensor.0));
            };
            if at.len() != decl.dims.len() {
                return self.fault(format!("`{}` has {} dimensions, not {}", decl.name, decl.dims.len(), at.len()));
            }
            if integers(decl.dtype).is_none() {
                return self.fault(format!("a guard reads `{}`, which holds no integers", decl.name));
            }
            if at.iter().any(gathers) {
                return self.fault(format!("a guard reads `{}` where data says", decl.name));
            }
        }
        let kernel = self.kernel;
        let moves = |a: &AxisId| !single(kernel, *a);
        let axes = Guard::Element(e.clone()).axes();
        if (e.low == e.of || e.high == e.of)
            && let Some(a) = axes.into_iter().find(moves)
        {
            let (name, axis) = (&program.tensor(e.of).name, self.axis_name(a));
            self.fault(format!("a guard takes one element of `{name}` for all along `{axis}`"));
        }
    }
}

fn gathers(coord: &Coord) -> bool {
    coord.terms.iter().any(|(_, atom)| match atom {
        CoordAtom::Axis(_) => false,
        CoordAtom::Floor(inner, _) => gathers(inner),
        CoordAtom::Tile(_) => true,
    })
}
