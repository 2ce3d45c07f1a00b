//! What a thread holds of a left factor that the kernel computes, where threads feed the matrix unit themselves.
//!
//! Such a factor is computed in the places from which the unit takes it: the sum runs along a warp's columns, and each row is whole
//! in one warp. So do the tiles of the same two axes lie that it is made of, from their load on. However many warps a block
//! has, only those that have rows share these tiles: of a factor of few rows and a long sum each thread holds much.

use super::uses::{each, reads};
use crate::nest::tiles;
use einloom_cascade::DType;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::BTreeSet;

/// Warps of a block that share rows, at most.
const MOST_WARPS: usize = 16;
/// Rows and columns of an operand.
const OPERAND: usize = 16;
/// Registers of a thread for one operand of elements that take a register each.
const OF_OPERAND: usize = 8;

/// The computed factor of a kernel's only product, whatever the sizes of tiles.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// The factor's axis that the result has, and the summed one.
    axes: [AxisId; 2],
    /// The result's other axis.
    beside: AxisId,
    /// Registers for an element of all tiles of these axes that are certainly held together.
    words: usize,
}

impl Left {
    /// Of a kernel with one product of a computed factor and one that is loaded for it alone; of others nothing is known here.
    pub fn of(kernel: &Kernel, loaded: &BTreeSet<ValueId>) -> Option<Self> {
        let (mut products, mut gathered, mut read) = (vec![], BTreeSet::new(), vec![]);
        each(&kernel.body, &mut |op| {
            match op {
                Op::Mma { dst, a, b, .. } => products.push((*dst, *a, *b)),
                Op::Load { dst, at, .. } if at.iter().any(|c| !tiles(c).is_empty()) => _ = gathered.insert(*dst),
                _ => {}
            }
            read.extend(reads(op));
        });
        let [(dst, a, b)] = products[..] else { return None };
        let alone =
            |v| loaded.contains(&v) && !gathered.contains(&v) && read.iter().filter(|other| **other == v).count() == 1;
        let (factor, other) = match [alone(a), alone(b)] {
            [false, true] => (a, b),
            [true, false] => (b, a),
            _ => return None,
        };
        let kind = kernel.value(factor).dtype;
        let packs = matches!(kind, DType::Bf16 | DType::F16) && kernel.value(other).dtype == kind;
        if loaded.contains(&factor) || !packs {
            return None;
        }
        let both = |v: ValueId| Some([kernel.value(v).rows?, kernel.value(v).cols?]);
        let (own, of_result) = (both(factor)?, both(dst)?);
        let kept = own.into_iter().find(|x| of_result.contains(x))?;
        let sum = own.into_iter().find(|x| !of_result.contains(x))?;
        let beside = of_result.into_iter().find(|x| *x != kept)?;
        let words = together(around(&kernel.body, factor)?, loaded, &|v| {
            both(v).is_some_and(|o| o.contains(&kept) && o.contains(&sum))
        })
        .into_iter()
        .map(|v| if kernel.value(v).dtype == DType::F64 { 2 } else { 1 })
        .sum();
        Some(Self { axes: [kept, sum], beside, words })
    }

    /// Registers of a thread for these tiles, at least. 0 where some side has a single position: then no unit multiplies.
    pub fn registers(&self, kernel: &Kernel) -> usize {
        let size = |axis: AxisId| kernel.axis(axis).tile.min(kernel.axis(axis).extent).max(1);
        let [rows, columns] = self.axes.map(size);
        if rows == 1 || columns == 1 || size(self.beside) == 1 {
            return 0;
        }
        let rows = rows.div_ceil(OPERAND);
        let warps = rows.next_power_of_two().min(MOST_WARPS);
        self.words * OF_OPERAND * rows.div_ceil(warps) * columns.div_ceil(OPERAND)
    }
}

/// The tiles of a body that are `like` the factor and loaded before anything reads one of them.
fn together(body: &[Op], loaded: &BTreeSet<ValueId>, like: &dyn Fn(ValueId) -> bool) -> BTreeSet<ValueId> {
    let mut held = BTreeSet::new();
    for op in body {
        match op {
            Op::Load { dst, .. } if loaded.contains(dst) && like(*dst) => _ = held.insert(*dst),
            op if reads(op).iter().any(|v| held.contains(v)) => break,
            _ => {}
        }
    }
    held.retain(|v| body.iter().any(|op| reads(op).contains(v)));
    held
}

/// The body in which a map makes this tile.
fn around(ops: &[Op], v: ValueId) -> Option<&[Op]> {
    ops.iter().find_map(|op| match op {
        Op::Map { dst, .. } if *dst == v => Some(ops),
        Op::Stream { body, .. } => around(body, v),
        _ => None,
    })
}
