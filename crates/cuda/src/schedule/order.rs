//! Pass 10: in which order the points of the grid are visited. Blocks of threads start in the order of their numbers, so that this
//! order decides which tiles are in the cache together and whether the long work is started early.
//!
//! It is the plan's: block by block of the cache, and in a block in the order of the grid's axes ([`visits`]). Axes along which
//! streams are longer at later windows are gone through from the last window on: what is left for the end is short.

use super::facts::Facts;
use einloom_tile::{AxisId, lengthens, visits};

/// An axis of the grid on its way through an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The axis.
    pub axis: AxisId,
    /// Windows it has; where a cluster takes several at a time, how often it does.
    pub steps: usize,
    /// How many of them a block of the cache has; the last block may have fewer.
    pub side: usize,
    /// Whether the last window comes first.
    pub backwards: bool,
    /// Neighbouring windows that the blocks of a cluster take at the same time, one each, in the order of their numbers.
    pub together: usize,
}

impl Turn {
    /// Whether a block of the cache has some windows of the axis: neither all of them nor one.
    pub fn is_cut(&self) -> bool {
        self.side > 1 && self.side < self.steps
    }
}

/// The order of a grid's points: block by block, and in each of them point by point. The last axis moves fastest, of blocks and of
/// points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The axes of the grid.
    pub turns: Vec<Turn>,
}

impl Order {
    /// The points of the grid; of clusters, how many points their first blocks take.
    pub fn points(&self) -> usize {
        self.turns.iter().map(|t| t.steps).product()
    }

    /// Blocks that take points together.
    pub fn cluster(&self) -> usize {
        self.turns.iter().map(|t| t.together).product()
    }

    /// The same order for clusters of `size` blocks that take neighbouring windows of an axis, whose windows have to be a
    /// multiple of it.
    pub(crate) fn in_clusters(mut self, axis: AxisId, size: usize) -> Self {
        for t in self.turns.iter_mut().filter(|t| t.axis == axis) {
            (t.steps, t.side, t.together) = (t.steps / size, (t.side / size).max(1), size);
        }
        self
    }

    /// The axes whose windows are the digits of a point's number, the last one's the lowest, if that is all there is to it.
    pub fn digits(&self) -> Option<Vec<Turn>> {
        let cut = self.turns.iter().any(Turn::is_cut);
        let (outside, inside): (Vec<Turn>, Vec<Turn>) = self.turns.iter().partition(|t| t.side < t.steps);
        (!cut).then(|| [outside, inside].concat())
    }

    /// The window's number of every axis at place `task < points()` of the order.
    pub fn windows(&self, task: usize) -> Vec<(AxisId, usize)> {
        self.windows_of(task, 0)
    }

    /// As [`Self::windows`], for block `block < cluster()` of a cluster.
    pub fn windows_of(&self, mut task: usize, block: usize) -> Vec<(AxisId, usize)> {
        // The first window of the block along each axis, and how many it has.
        let (mut firsts, mut sizes) = (vec![], vec![]);
        for (k, t) in self.turns.iter().enumerate() {
            let unit = sizes.iter().product::<usize>() * self.turns[k + 1..].iter().map(|t| t.steps).product::<usize>();
            let first = task / (t.side * unit) * t.side;
            task -= first * unit;
            firsts.push(first);
            sizes.push(t.side.min(t.steps - first));
        }
        let mut out = vec![];
        for ((t, first), size) in self.turns.iter().zip(firsts).zip(sizes).rev() {
            let step = first + task % size;
            task /= size;
            let step = if t.backwards { t.steps - 1 - step } else { step };
            out.push((t.axis, step * t.together + block % t.together));
        }
        out.reverse();
        out
    }

    /// For kernels whose blocks stay and take one task after the other: the task that `block` of `blocks` takes in
    /// `round`. Rounds go forwards and backwards in turn, so that in a descending order nobody gets the longer task of
    /// every round.
    pub fn snake(round: usize, block: usize, blocks: usize) -> usize {
        round * blocks + if round % 2 == 1 { blocks - 1 - block } else { block }
    }
}

/// The order of a kernel's grid.
pub(crate) fn choose(facts: &Facts<'_>) -> Order {
    let longer = lengthens(facts.kernel);
    let turn = |v: einloom_tile::Visit| Turn {
        axis: v.axis,
        steps: v.steps.max(1),
        side: v.side,
        backwards: longer[v.axis.at()] > 0,
        together: 1,
    };
    Order { turns: visits(facts.kernel).into_iter().map(turn).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn turn(axis: u32, steps: usize, side: usize, backwards: bool) -> Turn {
        Turn { axis: AxisId(axis), steps, side, backwards, together: 1 }
    }

    #[test]
    fn blocks_come_one_after_the_other() {
        let order = Order { turns: vec![turn(0, 3, 3, true), turn(1, 3, 2, false)] };
        let visited: Vec<[usize; 2]> =
            (0..order.points()).map(|t| order.windows(t)).map(|w| [w[0].1, w[1].1]).collect();
        let block = [[2, 0], [2, 1], [1, 0], [1, 1], [0, 0], [0, 1]];
        let last = [[2, 2], [1, 2], [0, 2]];
        assert_eq!(visited, [&block[..], &last].concat());
        assert_eq!(order.digits(), None);
    }

    #[test]
    fn whole_sides_come_inside_single_windows() {
        let turns = vec![turn(0, 4, 4, false), turn(1, 5, 1, false), turn(2, 2, 2, false)];
        let order = Order { turns: turns.clone() };
        assert_eq!(order.digits(), Some(vec![turns[1], turns[0], turns[2]]));
        let number = |t: usize| order.windows(t).into_iter().map(|w| w.1).collect::<Vec<_>>();
        assert_eq!([number(0), number(1), number(2), number(8)], [[0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]);
    }

    #[test]
    fn every_point_is_visited_once() {
        for sides in [[1, 1, 1, 1], [3, 2, 4, 2], [2, 5, 3, 1], [2, 3, 3, 2], [1, 4, 4, 1]] {
            let all = [turn(0, 3, sides[0], false), turn(1, 5, sides[1], true)];
            let more = [turn(2, 4, sides[2], true), turn(3, 2, sides[3], false)];
            let o = Order { turns: [all, more].concat() };
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
