//! Pass 7: pipelines. The asynchronous copies at the top of a stream's body are issued several chunks ahead, as many as
//! the plan supposes and shared memory allows; else as many as leave room for two blocks on a multiprocessor, or one chunk
//! ahead even if only one block fits.

use super::Home;
use super::facts::Facts;
use super::placement::Copy;
use einloom_tile::{Op, ValueId};
use std::collections::BTreeMap;

/// More chunks under way than this have never paid.
const MOST_STAGES: usize = 4;

/// The chunks of a stream in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Chunks in shared memory together; 1 if copies are waited for where they are issued.
    pub stages: usize,
    /// Loads that are issued ahead.
    pub loads: Vec<ValueId>,
}

/// One per stream, outer ones first, in program order. Sets the stages of the tiles and lays out shared memory;
/// `scratch` bytes are kept free at its start. The bytes of it all.
pub(super) fn choose(
    facts: &Facts<'_>,
    homes: &mut [Home],
    copies: &BTreeMap<ValueId, Copy>,
    scratch: usize,
    limit: usize,
    wanted: Option<usize>,
) -> (Vec<Pipeline>, usize) {
    let mut loads = vec![];
    streams(&facts.kernel.body, copies, &mut loads);
    let mut chosen = None;
    let wanted = wanted.map(|stages| (stages.clamp(1, MOST_STAGES), limit));
    let usual = [(4, limit / 2), (3, limit / 2), (2, limit), (1, usize::MAX)];
    for (stages, most) in wanted.into_iter().chain(usual) {
        for list in &loads {
            for v in list {
                if let Some(tile) = &mut homes[v.at()].shared {
                    tile.stages = stages;
                }
            }
        }
        let bytes = lay_out(homes, scratch);
        if bytes <= most {
            chosen = Some((stages, bytes));
            break;
        }
    }
    let (stages, bytes) = chosen.unwrap_or((1, lay_out(homes, scratch)));
    let pipeline = |loads: Vec<ValueId>| Pipeline { stages: if loads.is_empty() { 1 } else { stages }, loads };
    (loads.into_iter().map(pipeline).collect(), bytes)
}

fn streams(ops: &[Op], copies: &BTreeMap<ValueId, Copy>, out: &mut Vec<Vec<ValueId>>) {
    for op in ops {
        if let Op::Stream { body, .. } = op {
            let loads = body.iter().filter_map(|op| match op {
                Op::Load { dst, .. } if matches!(copies.get(dst), Some(Copy::Async { .. })) => Some(*dst),
                _ => None,
            });
            out.push(loads.collect());
            streams(body, copies, out);
        }
    }
}

fn lay_out(homes: &mut [Home], scratch: usize) -> usize {
    let mut end = scratch.next_multiple_of(128);
    for tile in homes.iter_mut().filter_map(|h| h.shared.as_mut()) {
        tile.offset = end;
        end += tile.bytes();
    }
    end
}
