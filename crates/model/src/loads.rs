//! What points of a grid load, by the axes that move it.

use crate::nest::{Access, Loop, Nest, coord_axes};
use einloom_tile::{Axis, AxisId, Kernel, Op, Program, TensorId, ValueId, Window, grid_steps, stream_range, visits};
use std::collections::BTreeSet;

/// What a kernel loads of a tensor at places that the same axes of the grid move.
pub(crate) struct Load {
    pub tensor: TensorId,
    pub axes: BTreeSet<AxisId>,
    pub elements: u64,
}

/// What `which` says of what is loaded, an array that is read at several places once for each of them.
pub(crate) fn loads(program: &Program, kernel: &Kernel, nest: &Nest, which: impl Fn(&Access) -> bool) -> Vec<Load> {
    let mut out: Vec<Load> = vec![];
    for (k, access) in nest.accesses.iter().enumerate().filter(|(_, a)| !a.store && which(a)) {
        let mut axes: BTreeSet<AxisId> = nest.depends[access.tile.at()].iter().copied().collect();
        access.at.iter().for_each(|c| axes.extend(coord_axes(c)));
        // A stream's range moves with the axes of its condition. What it reads is the same, unless no range meets the next.
        axes.extend(kernel.grid.iter().filter(|&&a| access.loops.iter().any(|l| parts(kernel, l, a))));
        axes.retain(|a| kernel.grid.contains(a));
        let elements = nest.moved(program, kernel, k);
        match out.iter_mut().find(|l| l.tensor == access.tensor && l.axes == axes) {
            Some(known) => known.elements = known.elements.saturating_add(elements),
            None => out.push(Load { tensor: access.tensor, axes, elements }),
        }
    }
    out
}

/// Whether a stream's ranges at two windows of an axis of the grid that follow each other have nothing in common.
fn parts(kernel: &Kernel, stream: &Loop, grid: AxisId) -> bool {
    let Some(within) = stream.within.as_ref().filter(|w| w.all.iter().any(|e| e.terms.iter().any(|t| t.1 == grid)))
    else {
        return false;
    };
    let axis = kernel.axis(grid);
    if grid_steps(axis) < 2 {
        return false;
    }
    let all = |a: &Axis| Window { base: 0, len: a.extent };
    let mut windows: Vec<Window> = kernel.axes.iter().map(all).collect();
    let mut range = |step: usize| {
        let base = step * axis.tile;
        windows[grid.at()] = Window { base, len: axis.tile.min(axis.extent - base) };
        stream_range(kernel.axis(stream.axis).extent, stream.axis, within, &windows)
    };
    let [(from, to), (next, last)] = [range(0), range(1)];
    to <= next || last <= from
}

/// Bytes of factors that a processor brings into the order in which products take them, left ones for a quarter. What points have in common that differ along
/// the last axis of the grid, and follow each other, is brought there once.
#[derive(Clone, Debug)]
pub struct Factors(Vec<(BTreeSet<AxisId>, u64)>);

/// Bytes of left factors that take as long as one of right ones: those are multiplied row by row as they lie, or copied as such, these go into panels. Products of
/// 512 to 2048 with the right factor at rest took 0.82 to 0.87 of the time that they took with the left one (f32, tiles of 128 by 128, one core of a Zen 3), and one of 256
/// by 1024, where the left one comes four times as often, 0.93.
const LEFT: u64 = 4;

impl Factors {
    /// Of a kernel of the program, in any order of its grid.
    pub fn new(program: &Program, kernel: &Kernel) -> Self {
        fn multiplied(ops: &[Op], [left, right]: [&mut BTreeSet<ValueId>; 2]) {
            for op in ops {
                match op {
                    Op::Mma { a, b, .. } => {
                        left.insert(*a);
                        right.insert(*b);
                    }
                    Op::Stream { body, .. } => multiplied(body, [left, right]),
                    _ => {}
                }
            }
        }
        let [mut left, mut right] = [BTreeSet::new(), BTreeSet::new()];
        multiplied(&kernel.body, [&mut left, &mut right]);
        left.retain(|v| !right.contains(v));
        let nest = Nest::new(kernel);
        let of = |factors: &BTreeSet<ValueId>, times: u64| -> Vec<_> {
            let bytes = |l: Load| l.elements.saturating_mul(program.tensor(l.tensor).dtype.bytes() as u64) / times;
            let all = loads(program, kernel, &nest, |a| factors.contains(&a.tile));
            all.into_iter().map(|l| (l.axes.clone(), bytes(l))).collect()
        };
        Self([of(&left, LEFT), of(&right, 1)].concat())
    }

    /// The bytes in the order of this kernel.
    pub fn moved(&self, kernel: &Kernel) -> u64 {
        let last = visits(kernel).into_iter().rev().find(|v| v.steps > 1);
        let one = |(axes, bytes): &(BTreeSet<AxisId>, u64)| match last {
            Some(v) if !axes.contains(&v.axis) => {
                let lines = v.steps.div_ceil(v.side) as u64;
                (u128::from(*bytes) * u128::from(lines) / v.steps as u128) as u64
            }
            _ => *bytes,
        };
        self.0.iter().map(one).fold(0, u64::saturating_add)
    }
}
