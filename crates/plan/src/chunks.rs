//! How many positions a recurrence takes at a time, where it can take several, and whether its chunks follow each other or are
//! computed side by side ([`crate::side_by_side`]): what is predicted to be fastest.

use crate::build::time;
use crate::drawn::Draw;
use crate::options::Chunks;
use crate::overhead::multiplies;
use crate::{Lost, Options, Plan, PlanError, Work};
use einloom_algebra::Graph;
use einloom_cascade::Bound;
use einloom_machine::Machine;
use einloom_tile::grid_points;

/// Tried in turn. Fewer positions make too small matrices, more compute too much that is masked.
const SIZES: [usize; 4] = [32, 64, 128, 256];

/// Predictions that differ by less do not decide: then the longest chunk is taken. It needs the fewest operations per
/// position, whose fixed costs are what the model knows least about.
///
/// Half the margin, 1.1, changed none of 102 plans drawn of recurrences by chunks (a processor, an H200 and a machine of two levels); twice of it, 1.4, changed 2 of 99, which
/// were predicted to take 13 % and 26 % longer. None of these was run.
///
/// Of chunks side by side the fastest is taken: several lengths of five programs were measured, and the fastest by prediction was that, or within 6 % (one
/// H200; docs/gpu-log.md, "Chunks side by side").
const CLOSE: f64 = 1.2;

/// So many times another form's time, longer chunks are not looked at where nothing multiplies: what pairs of positions take grows with a chunk's
/// length. Products of short chunks are no measure of long ones (retention, 32 heads of 8192 positions on an H200: 2.3 ms by 128 and 0.5 by 256).
const FAR: f64 = 4.0;

/// Points of the grid for each core, below which chunks side by side are looked at.
const FEW: usize = 2;

/// How a recurrence goes by chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Positions of a chunk.
    pub positions: usize,
    /// Whether chunks are computed side by side.
    pub side_by_side: bool,
}

impl Chunk {
    fn told(self, name: &str) -> String {
        let how = if self.side_by_side { ", side by side" } else { "" };
        format!("{name} by chunks of {}{how}", self.positions)
    }

    fn short(self) -> String {
        let how = if self.side_by_side { " side by side" } else { "" };
        format!("by {}{how}", self.positions)
    }
}

/// The best of the plans that `plan` makes for a number of positions per chunk, with that number; the only one where nothing is chunked,
/// those of one number where the caller has chosen a tile for the recurrence's index.
pub(crate) fn best(
    graph: &Graph,
    bound: &Bound,
    (machine, options, so_far): (&Machine, &Options, f64),
    plan: &mut dyn FnMut(Chunk) -> Result<Plan, PlanError>,
) -> Result<(Chunk, Plan), PlanError> {
    let chunked = || graph.recurrences.iter().filter(|r| !r.within.is_empty());
    let longest = chunked().map(|r| bound.size(r.rank)).max().unwrap_or(0);
    let name = chunked().map(|r| graph.cascade[r.index].name.as_str()).next().unwrap_or_default();
    if longest == 0 {
        let one = Chunk { positions: 1, side_by_side: false };
        return plan(one).map(|p| (one, p));
    }
    if let Some(draw) = Draw::of(options) {
        let chunk = match options.tiles.get(name) {
            Some(&asked) => Chunk { positions: asked.max(1), side_by_side: false },
            None => draw.chunk(longest, options.chunks),
        };
        let in_order = Chunk { side_by_side: false, ..chunk };
        return match plan(chunk) {
            Err(_) if chunk.side_by_side => plan(in_order).map(|p| (in_order, p)),
            found => found.map(|p| (chunk, p)),
        };
    }
    // One size that holds all positions is as good as any larger one.
    let enough = SIZES.iter().position(|&s| s >= longest).map_or(SIZES.len(), |k| k + 1);
    let (lengths, dividing) = match options.tiles.get(name) {
        Some(&asked) => (vec![asked.max(1)], vec![asked.max(1)]),
        None => (SIZES[..enough].to_vec(), SIZES[..enough].iter().filter_map(|&s| dividing(longest, s)).collect()),
    };
    let (mut found, failed) = tried(&lengths, false, so_far, plan);
    let idle = |p: &Plan| p.program.kernels.iter().any(|k| grid_points(k) < FEW * machine.cores);
    let may = match options.chunks {
        Chunks::InOrder => false,
        Chunks::SideBySide => true,
        // States in memory only move more where bytes are all that is counted. Processors have few cores: on two, one head of retention and an
        // average took 1.6 and 1.8 times as long, predicted to take 0.8 and 0.9, and one head of Mamba-2 half.
        Chunks::Auto => machine.lanes.is_some() && found.first().is_none_or(|f| idle(&f.1)),
    };
    let mut refused = None;
    if may {
        let (beside, why) = tried(&dividing, true, so_far, plan);
        refused = why.filter(|_| beside.is_empty()).map(|e| e.reason);
        let limit = match (options.chunks, found.first()) {
            // No margin: of two that are predicted alike (450 and 480 µs) chunks in order took 606 and side by side 399.
            (Chunks::Auto, Some(f)) => f.1.seconds,
            _ => f64::INFINITY,
        };
        let at = if beside.first().is_some_and(|b| b.1.seconds < limit) { 0 } else { found.len() };
        found.splice(at..at, beside);
    }
    let mut others: Vec<String> =
        found.iter().skip(1).map(|(chunk, p)| format!("{}: {}", chunk.short(), time(p.seconds))).collect();
    others.extend(refused.map(|why| format!("not side by side: {why}")));
    let lost: Vec<Lost> = found.iter().skip(1).map(|(chunk, p)| p.as_lost(chunk.told(name))).collect();
    let mut work = Work::default();
    found.iter().for_each(|(_, p)| work += p.work);
    let Some((chunk, mut best)) = found.into_iter().next() else {
        return Err(failed.unwrap_or_else(|| PlanError::unsupported(name, "no size of chunks was tried")));
    };
    best.work = work;
    best.lose(lost);
    let mut note = format!("{}: predicted {} in all", chunk.told(name), time(best.seconds));
    if !others.is_empty() {
        note += &format!("; {}", others.join(", "));
    }
    let streamed = best.kernels.iter().position(|k| k.stream.iter().any(|(i, _)| i == name));
    if let Some(kernel) = best.kernels.get_mut(streamed.unwrap_or(0)) {
        kernel.notes.push(note);
    }
    Ok((chunk, best))
}

/// The plans with chunks of each length as long as they are not far from another form's time, the one to take first, and why the last one that has none has none.
fn tried(
    lengths: &[usize],
    side_by_side: bool,
    so_far: f64,
    plan: &mut dyn FnMut(Chunk) -> Result<Plan, PlanError>,
) -> (Vec<(Chunk, Plan)>, Option<PlanError>) {
    let (mut found, mut failed): (Vec<(Chunk, Plan)>, _) = (vec![], None);
    for &positions in lengths {
        let chunk = Chunk { positions, side_by_side };
        match plan(chunk) {
            Ok(p) => found.push((chunk, p)),
            Err(e) => failed = Some(e),
        }
        let far = |p: &Plan| p.seconds > FAR * so_far && !p.program.kernels.iter().any(|k| multiplies(&k.body));
        if found.last().is_some_and(|f| far(&f.1)) {
            break;
        }
    }
    found.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    let limit = found.first().map_or(0.0, |f| f.1.seconds * CLOSE);
    let close = (0..found.len()).filter(|&k| !side_by_side && found[k].1.seconds <= limit);
    if let Some(k) = close.max_by_key(|&k| found[k].0.positions) {
        found.swap(0, k);
    }
    (found, failed)
}

/// The largest number of positions that divides all of them, no more than `most` and no less than half of it.
fn dividing(all: usize, most: usize) -> Option<usize> {
    (most / 2..=most).rev().find(|&each| each > 1 && all.is_multiple_of(each) && each < all)
}
