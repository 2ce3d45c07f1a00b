//! A tile kernel, operation by operation: the plain loop that everything is compared with.

use super::Arrays;
use super::evaluate::{Effect, Fault, Scope, Values, rounded};
use einloom_tile::{
    Init, Kernel, Op, Program, TensorId, ValueId, Window, grid_points, initial_windows, set_grid_point, unknown,
    visited,
};

/// Runs a well-formed kernel, one grid point after the other.
///
/// # Errors
/// If it loads an element that nothing has written.
pub fn interpret(program: &Program, kernel: &Kernel, memory: &mut Arrays) -> Result<(), Fault> {
    let mut windows = initial_windows(kernel);
    for point in 0..grid_points(kernel) {
        set_grid_point(kernel, point, &mut windows);
        let tiles = vec![vec![]; kernel.values.len()];
        let mut run = Run { program, kernel, windows: windows.clone(), state: State { memory, tiles } };
        run.ops(&kernel.body)?;
    }
    Ok(())
}

struct Run<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    windows: Vec<Window>,
    state: State<'a>,
}

struct State<'a> {
    memory: &'a mut Arrays,
    tiles: Vec<Vec<f64>>,
}

impl Values for State<'_> {
    fn tile(&self, v: ValueId) -> &[f64] {
        &self.tiles[v.at()]
    }

    fn element(&self, tensor: TensorId, place: usize) -> Option<f64> {
        self.memory.element(tensor, place)
    }
}

impl Run<'_> {
    /// False if the chunk is skipped.
    fn ops(&mut self, ops: &[Op]) -> Result<bool, Fault> {
        for op in ops {
            if let Op::Stream { .. } = op {
                self.stream(op)?;
                continue;
            }
            let scope = Scope { program: self.program, kernel: self.kernel, windows: &self.windows };
            match scope.evaluate(&self.state, op)? {
                Effect::Tile(dst, elements) => self.state.tiles[dst.at()] = elements,
                Effect::Stored(tensor, elements) => {
                    elements.into_iter().for_each(|(place, x)| self.state.memory.put(tensor, place, x));
                }
                Effect::Tested(false) => return Ok(false),
                Effect::Tested(true) => {}
            }
        }
        Ok(true)
    }

    fn stream(&mut self, op: &Op) -> Result<(), Fault> {
        let Op::Stream { axis, within, guards, states, body } = op else { return Err(Fault::NotSingle) };
        for s in states {
            let scope = Scope { program: self.program, kernel: self.kernel, windows: &self.windows };
            let size = scope.sides(s.value).iter().map(|w| w.len).product();
            let start = match s.init {
                Init::Const(x) => vec![x; size],
                Init::Value(v) => self.state.tiles[v.at()].clone(),
            };
            self.state.tiles[s.value.at()] = rounded(self.kernel.value(s.value).dtype, start);
        }
        for window in visited(self.kernel, (*axis, within, guards), &self.windows, &unknown).collect::<Vec<_>>() {
            self.windows[axis.at()] = window;
            if self.ops(body)? {
                let next: Vec<_> = states.iter().map(|s| self.state.tiles[s.next.at()].clone()).collect();
                for (s, x) in states.iter().zip(next) {
                    self.state.tiles[s.value.at()] = x;
                }
            }
        }
        Ok(())
    }
}
