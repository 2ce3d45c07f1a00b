//! Pass 1: warpgroups over rows. `wgmma` gives each warp of a warpgroup 16 of 64 rows and all columns, in the same
//! fragments as `mma.sync`. Consumers share one axis of the tiles, 64 positions each, and hold everything else whole, so
//! that nothing has to pass from warp to warp.

use super::Reason;
use crate::schedule::facts::{Facts, each_op};
use crate::schedule::frames::Frames;
use crate::schedule::{Arrangement, FrameId, Instruction, Operand, Product, Side};
use einloom_tile::{AxisId, Op, ValueId};
use std::collections::BTreeMap;

/// Rows of one warpgroup. PTX ISA, wgmma: M is 64.
pub(super) const ROWS: usize = 64;
/// Most consumers that leave a consumer registers enough for anything.
const MOST_CONSUMERS: usize = 3;
/// PTX ISA, wgmma: N is at most 256.
const MOST_COLUMNS: usize = 256;

/// The axis that consumers share, and how many of them there are. Sets the frame's arrangement.
pub(super) fn share(
    facts: &Facts<'_>,
    frames: &mut Frames,
    products: &BTreeMap<ValueId, Product>,
) -> Result<(AxisId, usize), Reason> {
    for (dst, p) in products {
        if !matches!(p.instruction, Instruction::TensorCore(Operand::Bf16 | Operand::F16)) {
            return Err(Reason::new(mma(facts, *dst), "only products of bf16 or f16 have a wgmma here"));
        }
    }
    let Some(frame) = products.values().map(|p| p.frame).next() else {
        return Err(Reason::new("the kernel", "it has no product for the tensor cores"));
    };
    structure(facts, frames, frame)?;
    let sides = frames.frames[frame.0].sides.clone();
    let used = |side: Side| {
        let axes = frames.of.keys().flat_map(|&v| facts.axes(v)).filter(|a| sides.get(a) == Some(&side));
        axes.collect::<std::collections::BTreeSet<_>>()
    };
    let down: Vec<AxisId> = used(Side::Down).into_iter().collect();
    let [rows] = down.as_slice() else {
        let names: Vec<&str> = down.iter().map(|&a| facts.kernel.axis(a).name.as_str()).collect();
        return Err(Reason::new(
            format!("axes {}", names.join(", ")),
            "consumers share the rows of one axis; here tiles have rows of several",
        ));
    };
    let size = facts.size(*rows);
    let consumers = size.div_ceil(ROWS);
    if consumers > MOST_CONSUMERS {
        return Err(Reason::new(
            format!("axis {}", facts.kernel.axis(*rows).name),
            format!("{size} rows are more than {MOST_CONSUMERS} warpgroups of {ROWS} hold"),
        ));
    }
    frames.frames[frame.0].arrangement = Arrangement::Fragment { warps: [4 * consumers, 1] };
    for axis in used(Side::Across) {
        let cover = frames.frames[frame.0].span(Side::Across, facts.size(axis)).cover;
        let multiplied = products.iter().any(|(dst, _)| facts.axes(*dst).contains(&axis));
        if multiplied && cover > MOST_COLUMNS {
            let name = &facts.kernel.axis(axis).name;
            return Err(Reason::new(
                format!("axis {name}"),
                format!("{cover} columns are more than the {MOST_COLUMNS} of one wgmma"),
            ));
        }
    }
    Ok((*rows, consumers))
}

/// One frame for everything, no reduction along rows, no streams in streams, no chunk skipped by its values.
fn structure(facts: &Facts<'_>, frames: &Frames, frame: FrameId) -> Result<(), Reason> {
    if let Some((v, _)) = frames.of.iter().find(|(_, f)| **f != frame) {
        return Err(Reason::new(
            format!("tile {}", facts.name(*v)),
            "it lies another way round in registers than the products do, and would have to pass through shared memory",
        ));
    }
    let mut problem = None;
    each_op(&facts.kernel.body, &mut |op| match op {
        Op::Reduce { dst, axis, .. } if frames.frames[frame.0].sides.get(axis) == Some(&Side::Down) => {
            problem = Some(Reason::new(
                format!("{} = reduction", facts.name(*dst)),
                "it runs over the rows, which are spread over warps",
            ));
        }
        Op::SkipUnless { any } => {
            problem = Some(Reason::new(
                format!("skip unless {}", facts.name(*any)),
                "the producer copies chunks before their values are known",
            ));
        }
        Op::Stream { axis, body, .. } if body.iter().any(|o| matches!(o, Op::Stream { .. })) => {
            problem =
                Some(Reason::new(format!("stream over {}", facts.kernel.axis(*axis).name), "a stream inside a stream"));
        }
        _ => {}
    });
    problem.map_or(Ok(()), Err)
}

/// The product as people see it.
pub(super) fn mma(facts: &Facts<'_>, dst: ValueId) -> String {
    format!("{} = mma", facts.name(dst))
}
