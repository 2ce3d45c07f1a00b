//! How often tiles move again, where the memory that is close does not hold them.

use crate::gpu::uses::{each, fused, reads};
use einloom_tile::{Kernel, Op, ValueId};
use std::collections::BTreeMap;

/// How often the elements of each tile pass between its operations, beside what loads and stores move, if tiles are gone
/// through element by element: written once and read once for each operation behind it, of which a stream's next chunk is one
/// where they are its state. Nothing passes where elements are made where they are read; what is loaded is there for its first
/// reader; a reduction of what a map makes takes it in passing. Tiles that nothing passes of are not named.
pub fn passed_again(kernel: &Kernel) -> BTreeMap<ValueId, usize> {
    let made_there = fused(kernel);
    let mut readers: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        for v in reads(op) {
            let (reductions, others) = readers.entry(v).or_default();
            *if matches!(op, Op::Reduce { .. }) { reductions } else { others } += 1;
        }
        if let Op::Stream { states, .. } = op {
            for state in states {
                readers.entry(state.next).or_default().1 += 1;
            }
        }
    });
    let mut out = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        let (dst, times) = match op {
            Op::Load { dst, .. } => {
                let (reductions, others) = readers.get(dst).copied().unwrap_or_default();
                (dst, (reductions + others).saturating_sub(1))
            }
            Op::Map { dst, .. } | Op::Reduce { dst, .. } if !made_there.contains_key(dst) => {
                let (_, others) = readers.get(dst).copied().unwrap_or_default();
                (dst, if others > 0 { 1 + others } else { 0 })
            }
            _ => return,
        };
        if times > 0 {
            out.insert(*dst, times);
        }
    });
    out
}
