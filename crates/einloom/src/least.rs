//! What passes the outermost memory in every plan of a derivation, wherever it is cut into kernels.

use crate::road::Planned;
use einloom_model::{KernelTransfers, TensorTransfer};
use einloom_plan::Part;
use einloom_tile::{Coord, CoordAtom, Kernel, Op, TensorId, TensorRole};
use std::collections::BTreeMap;

impl Planned {
    /// Bytes that pass the outermost memory in every plan of this derivation, wherever it is cut into kernels: each element of
    /// an input that some kernel reads once in, each output once out. What one kernel writes for another could stay inside.
    pub fn least_bytes(&self, transfers: &[KernelTransfers]) -> u64 {
        let tensors = self.program().tensors.iter().enumerate();
        let outside = tensors.filter(|(_, t)| t.role != TensorRole::Temporary);
        let of = |(at, t): (usize, &einloom_tile::TensorDecl)| {
            let bytes = |t: &TensorTransfer, out: bool| if out { t.stored_bytes } else { t.loaded_bytes };
            self.most(transfers, TensorId(at as u32), &|one| bytes(one, t.role == TensorRole::Output))
        };
        outside.map(of).sum()
    }

    /// The most that a kernel moves of a tensor, where the parts of one are one.
    fn most(&self, transfers: &[KernelTransfers], tensor: TensorId, of: &dyn Fn(&TensorTransfer) -> u64) -> u64 {
        let (mut most, mut parts) = (0, Parts::new());
        let kernels = self.plan.kernels.iter().zip(&self.program().kernels);
        for ((planned, kernel), moved) in kernels.zip(transfers) {
            let bytes = moved.least.iter().filter(|t| t.tensor == tensor).map(of).max().unwrap_or(0);
            let key = match &planned.part {
                Some(part) if part.place[0] > 0 => section(kernel, part, tensor),
                Some(part) => {
                    parts.clear();
                    section(kernel, part, tensor)
                }
                None => {
                    parts.clear();
                    [None; 2]
                }
            };
            let part = parts.entry(key).or_insert(0);
            *part = bytes.max(*part);
            most = most.max(parts.values().sum());
        }
        most
    }
}

/// What the parts of a kernel move of a tensor, by where they begin along the indices that it has.
type Parts = BTreeMap<[Option<usize>; 2], u64>;

/// Where a part begins in a tensor, along each index that is cut and that the tensor has by itself: parts that begin elsewhere have other elements.
fn section(kernel: &Kernel, part: &Part, tensor: TensorId) -> [Option<usize>; 2] {
    let has = |index: &str| {
        let mut places = vec![];
        accesses(&kernel.body, tensor, &mut places);
        let alone =
            |c: &Coord| matches!(c.terms.as_slice(), [(1, CoordAtom::Axis(a))] if kernel.axes[a.at()].name == index);
        let dims = places.first().map_or(0, |at| at.len());
        (0..dims).any(|d| places.iter().all(|at| at.get(d).is_some_and(alone)))
    };
    let across = part.across.as_ref().filter(|(index, ..)| has(index)).map(|(_, first, _)| *first);
    [Some(part.from).filter(|_| has(&part.index)), across]
}

/// Where these operations read or write a tensor.
fn accesses<'k>(ops: &'k [Op], tensor: TensorId, out: &mut Vec<&'k [Coord]>) {
    for op in ops {
        match op {
            Op::Load { tensor: t, at, .. } | Op::Store { tensor: t, at, .. } if *t == tensor => out.push(at),
            Op::Stream { body, .. } => accesses(body, tensor, out),
            _ => {}
        }
    }
}
