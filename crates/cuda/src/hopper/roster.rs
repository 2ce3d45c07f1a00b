//! Who takes which grid point, where points differ in length.
//!
//! Blocks stay on their multiprocessor and take one point after the other. If all points take equally long, block `b`
//! takes `b`, `b + blocks`, and so on. If streams differ in length, points go to the block that has the least to do so
//! far, in the schedule's order, which begins with the long ones: what a shared counter would do at run time, without
//! the counter.

use super::walk::windows;
use crate::schedule::Order;
use einloom_tile::{Kernel, Op, unknown, visited};

/// What a point costs beside its chunks (first copies, the last products, stores), in half chunks.
const FIXED: usize = 3;
/// With more points than this the blocks even out by themselves.
const MOST_POINTS: usize = 1 << 18;

/// The points of every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// Blocks that are started.
    pub blocks: usize,
    /// At `round * blocks + block`: the place in the schedule's order, or [`Roster::NONE`]. The last round is empty.
    pub points: Vec<u32>,
}

impl Roster {
    /// Nothing more to do.
    pub const NONE: u32 = u32::MAX;

    /// The points of one block, in order.
    pub fn of(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        let rounds = self.points.len() / self.blocks.max(1);
        let all = (0..rounds).map(move |r| self.points[r * self.blocks + block]);
        all.take_while(|&p| p != Self::NONE).map(|p| p as usize)
    }
}

/// The roster of a kernel for so many blocks, or for as many whole clusters as there are among them, whose blocks take the
/// same places; `None` if its points are equally long, or all start at once.
pub fn roster(kernel: &Kernel, order: &Order, blocks: usize) -> Option<Roster> {
    let (points, cluster) = (order.points(), order.cluster());
    let clusters = blocks / cluster;
    if points <= clusters || points > MOST_POINTS || clusters == 0 {
        return None;
    }
    let lengths: Vec<usize> = (0..points).map(|p| length(kernel, order, p)).collect();
    if lengths.iter().all(|l| *l == lengths[0]) {
        return None;
    }
    let mut lists: Vec<Vec<u32>> = vec![vec![]; clusters];
    let mut load = std::collections::BinaryHeap::from_iter((0..clusters).map(|b| std::cmp::Reverse((0usize, b))));
    for (p, length) in lengths.iter().enumerate() {
        let std::cmp::Reverse((busy, b)) = load.pop()?;
        lists[b].push(p as u32);
        load.push(std::cmp::Reverse((busy + length, b)));
    }
    let (rounds, blocks) = (lists.iter().map(Vec::len).max().unwrap_or(0) + 1, clusters * cluster);
    let entry = |k: usize| lists[k % blocks / cluster].get(k / blocks).copied().unwrap_or(Roster::NONE);
    Some(Roster { blocks, points: (0..rounds * blocks).map(entry).collect() })
}

/// How long a point takes, in half chunks.
fn length(kernel: &Kernel, order: &Order, point: usize) -> usize {
    let windows = windows(kernel, order, point, 0);
    let count = |op: &Op| match op {
        // As far as positions alone tell: where data decides, every chunk counts.
        Op::Stream { axis, within, guards, .. } => visited(kernel, (*axis, within, guards), &windows, &unknown).count(),
        _ => 0,
    };
    2 * kernel.body.iter().map(count).sum::<usize>() + FIXED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Facts, order};
    use einloom_cascade::DType::Bf16;
    use einloom_tile::by_hand::{AttentionSizes, attention};

    fn table(causal: bool, m: usize) -> (Kernel, Order, Option<Roster>) {
        let sizes = AttentionSizes { b: 1, h: 16, m, n: m, d: 128, e: 128 };
        let mut program = attention(sizes, [128, 128], causal, Bf16).expect("well-formed");
        // The longest of all heads first.
        program.kernels[0].grid.rotate_right(1);
        let order = order::choose(&Facts::new(&program, &program.kernels[0]));
        let roster = roster(&program.kernels[0], &order, 132);
        (program.kernels[0].clone(), order, roster)
    }

    #[test]
    fn equal_points_need_no_roster() {
        assert_eq!(table(false, 4096).2, None);
    }

    #[test]
    fn every_point_is_taken_once_and_blocks_finish_together() {
        for m in [2048, 4096, 16384] {
            let (kernel, order, roster) = table(true, m);
            let roster = roster.expect("points differ");
            let mut seen = vec![0; order.points()];
            let mut loads = vec![];
            for b in 0..roster.blocks {
                roster.of(b).for_each(|p| seen[p] += 1);
                loads.push(roster.of(b).map(|p| length(&kernel, &order, p)).sum::<usize>());
            }
            assert!(seen.iter().all(|&n| n == 1));
            let (most, mean) = (*loads.iter().max().expect("blocks"), loads.iter().sum::<usize>() / loads.len());
            assert!(most * 100 <= mean * 110, "{m}: {most} of {mean}");
        }
    }
}
