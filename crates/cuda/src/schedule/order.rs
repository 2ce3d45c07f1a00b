//! Pass 10: in which order the points of the grid are visited. Blocks start in the order of their numbers, so that this
//! order decides which tiles are in the cache together and whether the long work is started early.
//!
//! Three rules, each about the loads inside streams, which move most of the bytes:
//!
//! * Axes that no streamed load depends on are visited innermost: points along them read the same tiles.
//! * If each streamed load lacks some axis but none lacks the same (a product of two matrices), points are visited in
//!   sections of the one side, as many as make the tiles that run together nearly a square.
//! * If how long a stream is depends on an axis, the points with long streams come first, over as many of the other
//!   points as the cache has room for together: what is left for the end is short.

use super::facts::{Facts, each_op};
use super::target::Target;
use einloom_tile::{AxisId, AxisKind, Coord, CoordAtom, Op, Predicate, grid_steps};
use std::collections::BTreeSet;

/// An axis of the grid on its way through an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The axis.
    pub axis: AxisId,
    /// Windows it has; where a cluster takes several at a time, how often it does.
    pub steps: usize,
    /// Whether the last window comes first.
    pub backwards: bool,
    /// Neighbouring windows that the blocks of a cluster take at the same time, one each, in the order of their numbers.
    pub together: usize,
}

/// The order of a grid's points: for each section of `section` positions of `outer`, for each point of `inner`, for each
/// position of the section. The last axis of a list moves fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The axes that are cut into sections.
    pub outer: Vec<Turn>,
    /// Positions of `outer` in a section; the last one may have fewer.
    pub section: usize,
    /// The axes that are gone through once per section.
    pub inner: Vec<Turn>,
}

impl Order {
    /// The points of the grid; of clusters, how many points their first blocks take.
    pub fn points(&self) -> usize {
        count(&self.outer) * count(&self.inner)
    }

    /// Blocks that take points together.
    pub fn cluster(&self) -> usize {
        self.outer.iter().chain(&self.inner).map(|t| t.together).product()
    }

    /// The same order for clusters of `size` blocks that take neighbouring windows of an axis, whose windows have to be a
    /// multiple of it.
    pub(crate) fn in_clusters(mut self, axis: AxisId, size: usize) -> Self {
        if self.outer.iter().any(|t| t.axis == axis) {
            self.section = (self.section / size).max(1);
        }
        for t in self.outer.iter_mut().chain(&mut self.inner).filter(|t| t.axis == axis) {
            (t.steps, t.together) = (t.steps / size, size);
        }
        self
    }

    /// Whether the points simply are the digits of their number, `outer`'s before `inner`'s.
    pub fn is_plain(&self) -> bool {
        self.section == 1 || self.inner.is_empty()
    }

    /// The window's number of every axis at place `task < points()` of the order.
    pub fn windows(&self, task: usize) -> Vec<(AxisId, usize)> {
        self.windows_of(task, 0)
    }

    /// As [`Self::windows`], for block `block < cluster()` of a cluster.
    pub fn windows_of(&self, task: usize, block: usize) -> Vec<(AxisId, usize)> {
        let (outer, inner) = (count(&self.outer), count(&self.inner));
        let section = task / (self.section * inner);
        let within = task - section * self.section * inner;
        let size = self.section.min(outer - section * self.section);
        let mut out = digits(&self.outer, section * self.section + within % size, block);
        out.extend(digits(&self.inner, within / size, block));
        out
    }

    /// For kernels whose blocks stay and take one task after the other: the task that `block` of `blocks` takes in
    /// `round`. Rounds go forwards and backwards in turn, so that in a descending order nobody gets the longer task of
    /// every round.
    pub fn snake(round: usize, block: usize, blocks: usize) -> usize {
        round * blocks + if round % 2 == 1 { blocks - 1 - block } else { block }
    }
}

fn count(turns: &[Turn]) -> usize {
    turns.iter().map(|t| t.steps).product()
}

fn digits(turns: &[Turn], mut number: usize, block: usize) -> Vec<(AxisId, usize)> {
    let mut out = vec![];
    for t in turns.iter().rev() {
        let step = number % t.steps;
        let first = if t.backwards { t.steps - 1 - step } else { step } * t.together;
        out.push((t.axis, first + block % t.together));
        number /= t.steps;
    }
    out.reverse();
    out
}

/// A load inside a stream.
struct Streamed {
    /// The grid's axes that its address depends on.
    on: BTreeSet<AxisId>,
    /// Bytes of one chunk.
    chunk: usize,
    /// Bytes of all chunks of its stream.
    all: usize,
}

/// Chooses the order of a kernel's grid, of which a multiprocessor works on `resident` blocks at a time.
pub(crate) fn choose(facts: &Facts<'_>, target: &Target, resident: usize) -> Order {
    let kernel = facts.kernel;
    let (loads, longer) = streamed(facts);
    let turn = |&axis: &AxisId| Turn {
        axis,
        steps: grid_steps(kernel.axis(axis)).max(1),
        backwards: longer.get(axis.at()).is_some_and(|&l| l > 0),
        together: 1,
    };
    let turns: Vec<Turn> = kernel.grid.iter().map(turn).collect();
    let split = |inside: &dyn Fn(AxisId) -> bool| -> (Vec<Turn>, Vec<Turn>) {
        turns.iter().copied().partition(|t| !inside(t.axis))
    };
    let plain = Order { outer: turns.clone(), section: 1, inner: vec![] };
    if loads.is_empty() {
        return plain;
    }
    let (outer, inner) = split(&|a| loads.iter().all(|l| !l.on.contains(&a)));
    let uneven = |t: &Turn| t.steps > 1 && longer[t.axis.at()] != 0;
    if count(&inner) > 1 {
        let together = if inner.iter().any(uneven) {
            let bytes: usize = loads.iter().map(|l| l.all).sum();
            // Outputs and what is read once pass through the cache as well.
            (target.cache_bytes() / 3 * 2 / bytes.max(1)).max(1)
        } else {
            1
        };
        let section = together.min(count(&outer).max(1));
        return Order { outer, section, inner };
    }
    // No axis is free of all loads: the largest one decides which points share it.
    let Some(most) = loads.iter().filter(|l| l.on.len() < turns.len()).max_by_key(|l| l.chunk) else { return plain };
    let (outer, inner) = split(&|a| !most.on.contains(&a));
    let others: usize = loads.iter().filter(|l| l.on != most.on).map(|l| l.chunk).sum();
    if count(&inner) < 2 || count(&outer) < 2 || others == 0 {
        return plain;
    }
    // `g` positions of `outer` by `blocks / g` of `inner` read `g * most + blocks / g * others` bytes a chunk.
    let blocks = resident.max(1) * target.multiprocessors();
    let best = ((blocks * others) as f64 / most.chunk.max(1) as f64).sqrt();
    let section = (1usize << (best.max(1.0).log2().round() as u32)).min(count(&outer));
    Order { outer, section, inner }
}

/// The loads inside streams; and per axis whether streams are longer (positive) or shorter at its later windows.
fn streamed(facts: &Facts<'_>) -> (Vec<Streamed>, Vec<i64>) {
    let kernel = facts.kernel;
    let mut loads = vec![];
    let mut longer = vec![0i64; kernel.axes.len()];
    each_op(&kernel.body, &mut |op| {
        let Op::Stream { axis, within, body, .. } = op else { return };
        lengths(*axis, within, &mut longer);
        for op in body {
            let Op::Load { dst, tensor, at, .. } = op else { continue };
            let mut on = BTreeSet::new();
            at.iter().for_each(|c| mentioned(c, &mut on));
            let moves = on.contains(axis);
            on.retain(|a| kernel.axis(*a).kind == AxisKind::Grid);
            let elements: usize = facts.axes(*dst).iter().map(|&a| facts.size(a)).product();
            let chunk = elements * facts.program.tensor(*tensor).dtype.bytes();
            let decl = kernel.axis(*axis);
            let chunks = if moves { decl.extent.div_ceil(decl.tile).max(1) } else { 1 };
            loads.push(Streamed { on, chunk, all: chunk * chunks });
        }
    });
    (loads, longer)
}

/// Both bounds of a stream's range are affine in the other axes: the upper one grows with those whose coefficient is
/// positive, and the lower one falls.
fn lengths(axis: AxisId, within: &Predicate, longer: &mut [i64]) {
    for affine in &within.all {
        if affine.terms.iter().any(|t| t.1 == axis) {
            for &(c, other) in affine.terms.iter().filter(|t| t.1 != axis) {
                longer[other.at()] += c.signum();
            }
        }
    }
}

fn mentioned(coord: &Coord, out: &mut BTreeSet<AxisId>) {
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(a) => {
                out.insert(*a);
            }
            CoordAtom::Floor(inner, _) => mentioned(inner, out),
            CoordAtom::Tile(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::DType::Bf16;
    use einloom_tile::Program;
    use einloom_tile::by_hand::{AttentionSizes, attention, matmul};

    fn order(program: &Program) -> Order {
        choose(&Facts::new(program, &program.kernels[0]), &Target::SM_90A, 1)
    }

    fn attend(heads: usize, m: usize, causal: bool) -> Order {
        let sizes = AttentionSizes { b: 2, h: heads, m, n: m, d: 128, e: 128 };
        order(&attention(sizes, [128, 64], causal, Bf16).expect("well-formed"))
    }

    #[test]
    fn queries_of_one_head_are_neighbours() {
        let o = attend(16, 4096, false);
        assert_eq!((o.outer.len(), o.section, o.inner.len()), (2, 1, 1));
        assert!(o.is_plain() && !o.inner[0].backwards);
    }

    #[test]
    fn long_rows_come_first_over_as_many_heads_as_the_cache_holds() {
        // Keys and values of a head are 2 MiB; of 16384 positions 8 MiB.
        let o = attend(16, 4096, true);
        assert_eq!((o.section, o.inner[0].backwards), (16, true));
        assert_eq!(attend(16, 16384, true).section, 4);
        let tasks: Vec<_> = (0..o.points()).map(|t| o.windows(t)).collect();
        assert_eq!(tasks[0].iter().map(|w| w.1).collect::<Vec<_>>(), [0, 0, 31]);
        assert_eq!(tasks[1].iter().map(|w| w.1).collect::<Vec<_>>(), [0, 1, 31]);
        assert_eq!(tasks[16].iter().map(|w| w.1).collect::<Vec<_>>(), [0, 0, 30]);
    }

    #[test]
    fn products_are_visited_in_bands_that_are_nearly_square() {
        let o = order(&matmul([8192; 3], [128, 256, 64], Bf16).expect("well-formed"));
        assert_eq!((o.outer.len(), o.inner.len()), (1, 1));
        let across = Target::SM_90A.multiprocessors() / o.section;
        // The larger tile's side has fewer positions.
        assert!(o.section == 8 && (16..=17).contains(&across), "{o:?}");
    }

    #[test]
    fn every_point_is_visited_once() {
        let turn = |axis, steps, backwards| Turn { axis: AxisId(axis), steps, backwards, together: 1 };
        for section in 1..8 {
            let o = Order {
                outer: vec![turn(0, 3, false), turn(1, 5, true)],
                section,
                inner: vec![turn(2, 4, true), turn(3, 2, false)],
            };
            let all: BTreeSet<_> = (0..o.points()).map(|t| o.windows(t)).collect();
            assert_eq!((all.len(), o.points()), (120, 120));
            for axis in [2, 3] {
                let pairs = o.clone().in_clusters(AxisId(axis), 2);
                let all: BTreeSet<_> =
                    (0..pairs.points()).flat_map(|t| [pairs.windows(t), pairs.windows_of(t, 1)]).collect();
                assert_eq!((all.len(), pairs.points(), pairs.cluster()), (120, 60, 2));
            }
        }
        for blocks in 1..6 {
            let tasks: BTreeSet<usize> =
                (0..4).flat_map(|r| (0..blocks).map(move |b| Order::snake(r, b, blocks))).collect();
            assert_eq!(tasks, (0..4 * blocks).collect());
        }
    }
}
