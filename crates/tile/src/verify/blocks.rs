//! Blocks: sides that tiles and blocks inside them fill, along axes whose order is free.

use super::Defect;
use crate::{AxisKind, Block, Kernel};
use std::collections::BTreeMap;

pub(super) fn check(kernel: &Kernel, defects: &mut Vec<Defect>) {
    let mut fault = |message| defects.push(Defect { kernel: kernel.name.clone(), op: vec![], message });
    let stream = kernel.outer_stream();
    // Of the block outside.
    let mut outer: BTreeMap<usize, usize> = BTreeMap::new();
    for Block { memory, sides } in &kernel.blocks {
        let mut own = BTreeMap::new();
        for &(id, side) in sides {
            let Some(axis) = kernel.axes.get(id.at()) else {
                fault(format!("the block in `{memory}` names axis {}, which is not declared", id.0));
                continue;
            };
            let name = &axis.name;
            let within = outer.get(&id.at()).copied().unwrap_or(axis.extent);
            if axis.kind != AxisKind::Grid && stream != Some(id) {
                fault(format!(
                    "the block in `{memory}` has a side along `{name}`, which is neither of the grid nor of the kernel's only stream"
                ));
            } else if side == 0 || (side < axis.extent && side % axis.tile.max(1) != 0) {
                fault(format!(
                    "the block in `{memory}` has {side} of `{name}`; it has whole tiles of {}, or all {}",
                    axis.tile, axis.extent
                ));
            } else if side < axis.extent && (side > within || within < axis.extent && within % side != 0) {
                fault(format!(
                    "the block in `{memory}` has {side} of `{name}`, which do not fill the {within} of the block outside it"
                ));
            } else if side >= axis.extent && within < axis.extent {
                fault(format!("the block in `{memory}` has all of `{name}`, the block outside it {within}"));
            }
            if own.insert(id.at(), side.min(axis.extent)).is_some() {
                fault(format!("the block in `{memory}` names `{name}` twice"));
            }
        }
        own.iter().for_each(|(&axis, &side)| _ = outer.insert(axis, side));
    }
}
