//! Streams of which positions alone tell the chunks that are visited.
//!
//! A stream's guards that read no tensor leave out the same chunks in every run, so that counts know them. Each chunk is decided
//! as executors decide it, by [`verdict`] on its windows. What holds nowhere in a hull of windows holds nowhere in any of them,
//! and what holds everywhere holds everywhere: intervals only shrink with the windows. So runs of chunks are decided at
//! once where they can be, and halved where they cannot.

use einloom_tile::{AxisId, AxisKind, Coverage, Guard, Interval, Kernel, Op, Window, initial_windows, verdict};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Chunks at all positions of what guards depend on that are told apart for one tiling however guards leave them, at most.
const MOST: usize = 1 << 17;
/// Decisions for one tiling, at most, where there are more chunks and runs of them are decided at once.
const MOST_DECIDED: usize = 1 << 16;
/// Positions of what guards depend on besides of which decisions are numbered, to tell how many all take.
const SAMPLES: usize = 8;

/// The guards that positions alone decide.
pub(crate) fn known(guards: &[Guard]) -> Arc<[Guard]> {
    guards.iter().filter(|g| g.is_static()).cloned().collect()
}

/// The axes that these depend on.
pub(crate) fn axes(guards: &[Guard]) -> BTreeSet<AxisId> {
    guards.iter().flat_map(Guard::axes).collect()
}

/// Whether counts take the chunks of a stream that its guards leave, and not all: positions alone decide some guard, and there are
/// not too many chunks to tell apart with the kernel's tiles.
pub fn counts_what_guards_leave(kernel: &Kernel, axis: AxisId, guards: &[Guard]) -> bool {
    let known = known(guards);
    !known.is_empty() && are_few(kernel, axis, &known)
}

/// Whether there are not too many chunks to tell apart.
pub(crate) fn are_few(kernel: &Kernel, axis: AxisId, guards: &[Guard]) -> bool {
    let tile = |a: AxisId| kernel.axis(a).tile.max(1);
    let steps = |a: AxisId| kernel.axis(a).extent.div_ceil(tile(a));
    let stepped = |a: &AxisId| kernel.axis(*a).kind != AxisKind::Whole;
    let others: Vec<AxisId> = axes(guards).into_iter().filter(|a| *a != axis && stepped(a)).collect();
    let positions = others.iter().map(|&a| steps(a)).try_fold(1usize, usize::checked_mul);
    let chunks = if stepped(&axis) { steps(axis) } else { 1 };
    match positions {
        Some(n) if n.checked_mul(chunks).is_some_and(|all| all <= MOST) => true,
        Some(n) => are_decided_soon(kernel, (axis, guards), &others, n),
        None => false,
    }
}

/// Whether few decisions are enough at all positions of the other axes, by those at some of them.
fn are_decided_soon(kernel: &Kernel, (axis, guards): (AxisId, &[Guard]), others: &[AxisId], positions: usize) -> bool {
    let most = MOST_DECIDED / positions.max(1) * SAMPLES;
    let all = Window { base: 0, len: kernel.axis(axis).extent };
    let mut windows = initial_windows(kernel);
    let mut decided = 0;
    for k in 0..SAMPLES {
        let mut at = positions.saturating_sub(1) / (SAMPLES - 1) * k;
        for &a in others {
            let (extent, tile) = (kernel.axis(a).extent, kernel.axis(a).tile.max(1));
            let steps = extent.div_ceil(tile).max(1);
            let base = at % steps * tile;
            windows[a.at()] = Window { base, len: tile.min(extent.saturating_sub(base)) };
            at /= steps;
        }
        let mut left = Left { runs: vec![], tile: kernel.axis(axis).tile.max(1) };
        let budget = most.saturating_sub(decided);
        decided += left.add(guards, axis, all, &mut windows, budget);
        if decided >= most {
            return false;
        }
    }
    true
}

/// Whether some stream has guards that counts go by.
pub(crate) fn has_guards(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Stream { guards, body, .. } => guards.iter().any(Guard::is_static) || has_guards(body),
        _ => false,
    })
}

/// What guards leave of a stream's chunks: runs of chunks that follow each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    runs: Vec<Window>,
    tile: usize,
}

impl Left {
    /// Of the chunks of an axis that make up a window, where the windows of others stand.
    pub fn of(guards: &[Guard], (axis, tile): (AxisId, usize), all: Window, windows: &mut [Window]) -> Self {
        let mut out = Self { runs: vec![], tile };
        let before = windows[axis.at()];
        out.add(guards, axis, all, windows, usize::MAX);
        windows[axis.at()] = before;
        out
    }

    /// How many decisions it took, if that is less than `most`; else that many of them were made.
    fn add(&mut self, guards: &[Guard], axis: AxisId, part: Window, windows: &mut [Window], most: usize) -> usize {
        if part.len == 0 || most == 0 {
            return 0;
        }
        windows[axis.at()] = part;
        let count = part.len.div_ceil(self.tile);
        let mut decided = 1;
        match verdict(guards, windows, &|_| Interval::ANY) {
            Coverage::Empty => {}
            Coverage::Partial if count > 1 => {
                let half = count / 2 * self.tile;
                for half in
                    [Window { base: part.base, len: half }, Window { base: part.base + half, len: part.len - half }]
                {
                    decided += self.add(guards, axis, half, windows, most - decided);
                }
            }
            _ => match self.runs.last_mut().filter(|r| r.base + r.len == part.base) {
                Some(run) => run.len += part.len,
                None => self.runs.push(part),
            },
        }
        decided
    }

    /// From the first to the last chunk.
    pub fn hull(&self) -> Window {
        match (self.runs.first(), self.runs.last()) {
            (Some(first), Some(last)) => Window { base: first.base, len: last.base + last.len - first.base },
            _ => Window::default(),
        }
    }

    /// As long as all of them.
    pub fn joined(&self) -> Window {
        Window { base: self.hull().base, len: self.runs.iter().map(|r| r.len).sum() }
    }

    /// The chunks one by one.
    pub fn chunks(&self) -> impl Iterator<Item = Window> + Clone + use<'_> {
        let tile = self.tile;
        self.runs.iter().flat_map(move |run| {
            let end = run.base + run.len;
            (run.base..end).step_by(tile).map(move |base| Window { base, len: tile.min(end - base) })
        })
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|r| r.len.div_ceil(self.tile)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::{BinaryOp, UnaryOp};
    use einloom_tile::{Affine, Builder, Predicate, initial_windows, unknown, visited};

    /// Windows with sinks, strides and parities, of whatever tiles: the chunks that executors visit.
    #[test]
    fn what_guards_leave_is_what_executors_visit() {
        let mut random = numbers();
        let (mut some, mut all) = (0, 0);
        for case in 0..3000 {
            let mut axes = None;
            let mut builder = Builder::new("guarded");
            let sizes = [random(1, 60), random(1, 9), random(1, 60), random(1, 9)].map(|x| x as usize);
            builder.kernel("guarded", |k| {
                let m = k.grid("m", sizes[0], sizes[1]);
                let n = k.stream_axis("n", sizes[2], sizes[3]);
                k.stream(n, Predicate::default(), [], |_, []| []);
                axes = Some((m, n));
            });
            let (program, (m, n)) = (builder.finish().expect("well-formed"), axes.expect("two axes"));
            let kernel = &program.kernels[0];
            let position = |a| Guard::Position(a);
            let two = |op, x, y| Guard::Binary(op, Box::new(x), Box::new(y));
            let period = random(2, 7) as f64;
            let rest = |x: Guard| {
                let floor = Guard::Unary(UnaryOp::Floor, Box::new(two(BinaryOp::Div, x.clone(), Guard::Const(period))));
                two(BinaryOp::Sub, x, two(BinaryOp::Mul, floor, Guard::Const(period)))
            };
            let guard = match random(0, 3) {
                0 => {
                    let near = Affine::from(0) + n - m + random(0, 20);
                    let near = Guard::Within(Predicate { all: vec![near] });
                    two(BinaryOp::Or, near, two(BinaryOp::Lt, position(n), Guard::Const(random(1, 9) as f64)))
                }
                1 => two(BinaryOp::Eq, rest(position(n)), rest(position(m))),
                2 => two(BinaryOp::Eq, rest(two(BinaryOp::Add, position(n), position(m))), Guard::Const(0.0)),
                _ => two(BinaryOp::Lt, rest(position(n)), position(m)),
            };
            let within = Predicate { all: vec![Affine::from(random(-5, 30)) - n + m * random(-1, 1)] };
            let mut windows = initial_windows(kernel);
            let base = random(0, sizes[0].div_ceil(sizes[1]) as i64 - 1) as usize * sizes[1];
            windows[m.at()] = Window { base, len: sizes[1].min(sizes[0] - base) };
            let guards = [guard];
            let expected: Vec<Window> = visited(kernel, (n, &within, &guards), &windows, &unknown).collect();
            let (low, high) = einloom_tile::stream_range(sizes[2], n, &within, &windows);
            let base = low - low % sizes[3];
            let range = Window { base, len: high.saturating_sub(base) };
            let left = Left::of(&guards, (n, sizes[3]), range, &mut windows);
            let found: Vec<Window> = left.chunks().collect();
            assert_eq!(found, expected, "case {case}: {guards:?} {kernel:?}");
            assert_eq!(left.count(), expected.len(), "case {case}");
            assert_eq!(left.joined().len, expected.iter().map(|w| w.len).sum::<usize>(), "case {case}");
            some += usize::from(!expected.is_empty());
            all += usize::from(expected.len() == range.len.div_ceil(sizes[3]));
        }
        assert!(some > 1000 && all < 2800, "{some} {all}");
    }

    /// A window with sinks is decided in few steps however many chunks there are; chunks that are left out one by one are not.
    #[test]
    fn many_chunks_are_told_apart_where_runs_of_them_are_decided_at_once() {
        for (length, few) in [(1 << 13, true), (1 << 16, true), (1 << 20, false)] {
            let mut axes = None;
            let mut builder = Builder::new("guarded");
            builder.kernel("guarded", |k| {
                let (m, n) = (k.grid("m", length, 128), k.stream_axis("n", length, 64));
                k.stream(n, Predicate::default(), [], |_, []| []);
                axes = Some((m, n));
            });
            let (program, (m, n)) = (builder.finish().expect("well-formed"), axes.expect("two axes"));
            let kernel = &program.kernels[0];
            let two = |op, x, y| Guard::Binary(op, Box::new(x), Box::new(y));
            let near = Guard::Within(Predicate { all: vec![Affine::from(127) + n - m] });
            let first = two(BinaryOp::Lt, Guard::Position(n), Guard::Const(4.0));
            assert_eq!(are_few(kernel, n, &[two(BinaryOp::Or, near, first)]), few, "a window in {length}");
            // Every other chunk.
            let pair =
                Guard::Unary(UnaryOp::Floor, Box::new(two(BinaryOp::Div, Guard::Position(n), Guard::Const(128.0))));
            let rest = two(BinaryOp::Sub, Guard::Position(n), two(BinaryOp::Mul, pair, Guard::Const(128.0)));
            let apart = two(
                BinaryOp::Lt,
                two(BinaryOp::Add, rest, two(BinaryOp::Mul, Guard::Position(m), Guard::Const(0.0))),
                Guard::Const(64.0),
            );
            assert_eq!(are_few(kernel, n, &[apart]), length == 1 << 13, "every other chunk of {length}");
        }
    }

    fn numbers() -> impl FnMut(i64, i64) -> i64 {
        let mut seed = 1u64;
        move |from, to| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + ((seed >> 33) % (to - from + 1) as u64) as i64
        }
    }
}
