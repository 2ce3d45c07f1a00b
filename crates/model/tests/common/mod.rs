//! The slow truth: a walk over every point of the grid, every chunk and, where a load may miss, every element.

use einloom_tile::*;
use std::collections::{BTreeMap, BTreeSet};

/// What a walk finds.
#[derive(Debug, Default)]
pub struct Walked {
    /// Bytes loaded and stored per tensor.
    pub moved: BTreeMap<TensorId, (u64, u64)>,
    /// Distinct bytes per tensor, loads and stores together.
    pub distinct: BTreeMap<TensorId, u64>,
}

/// Walks one kernel. Gathered coordinates count as inside.
pub fn walk(program: &Program, kernel: &Kernel) -> Walked {
    let mut walker = Walker { program, kernel, moved: BTreeMap::new(), touched: BTreeMap::new() };
    let mut windows = initial_windows(kernel);
    for point in 0..grid_points(kernel) {
        set_grid_point(kernel, point, &mut windows);
        walker.ops(&kernel.body, &mut windows);
    }
    let bytes = |t: &TensorId| program.tensor(*t).dtype.bytes() as u64;
    let distinct = walker.touched.iter().map(|(t, e)| (*t, e.len() as u64 * bytes(t))).collect();
    Walked { moved: walker.moved, distinct }
}

struct Walker<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    moved: BTreeMap<TensorId, (u64, u64)>,
    touched: BTreeMap<TensorId, BTreeSet<Vec<i64>>>,
}

impl Walker<'_> {
    fn ops(&mut self, ops: &[Op], windows: &mut Vec<Window>) {
        for op in ops {
            match op {
                Op::Load { dst, tensor, at, .. } => self.access(*dst, *tensor, at, false, windows),
                Op::Store { tensor, at, src } => self.access(*src, *tensor, at, true, windows),
                Op::Stream { axis, within, body, .. } => {
                    let list: Vec<Window> = chunks(self.kernel, *axis, within, windows).collect();
                    for chunk in list {
                        windows[axis.at()] = chunk;
                        self.ops(body, windows);
                    }
                    windows[axis.at()] = Window::default();
                }
                _ => {}
            }
        }
    }

    fn access(&mut self, tile: ValueId, tensor: TensorId, at: &[Coord], store: bool, windows: &[Window]) {
        let value = self.kernel.value(tile);
        let side = |axis: Option<AxisId>| axis.map_or(Window { base: 0, len: 1 }, |a| windows[a.at()]);
        let (rows, cols) = (side(value.rows), side(value.cols));
        let decl = self.program.tensor(tensor);
        for r in rows.base..rows.base + rows.len {
            for c in cols.base..cols.base + cols.len {
                let position = |axis: AxisId| match axis {
                    a if Some(a) == value.rows => r,
                    a if Some(a) == value.cols => c,
                    a => windows[a.at()].base,
                };
                let element: Vec<i64> = at.iter().map(|coord| evaluate(coord, &position)).collect();
                if element.iter().zip(&decl.dims).all(|(&e, &d)| (0..d as i64).contains(&e)) {
                    let entry = self.moved.entry(tensor).or_default();
                    *(if store { &mut entry.1 } else { &mut entry.0 }) += decl.dtype.bytes() as u64;
                    self.touched.entry(tensor).or_default().insert(element);
                }
            }
        }
    }
}

fn evaluate(coord: &Coord, position: &impl Fn(AxisId) -> usize) -> i64 {
    let term = |(c, atom): &(i64, CoordAtom)| match atom {
        CoordAtom::Axis(a) => c * position(*a) as i64,
        CoordAtom::Floor(numerator, d) => c * evaluate(numerator, position).div_euclid(*d),
        CoordAtom::Tile(_) => 0,
    };
    coord.offset + coord.terms.iter().map(term).sum::<i64>()
}
