//! How many positions a recurrence takes at a time, where it can take several: the number that is predicted to be fastest.

use crate::build::time;
use crate::{Lost, Options, Plan, PlanError, Work};
use einloom_algebra::Graph;
use einloom_cascade::Bound;

/// Tried in turn. Fewer positions make too small matrices, more compute too much that is masked.
const SIZES: [usize; 4] = [32, 64, 128, 256];

/// Predictions that differ by less do not decide: then the longest chunk is taken. It needs the fewest operations per
/// position, whose fixed costs are what the model knows least about.
///
/// Half the margin, 1.1, changed none of 102 plans drawn of recurrences by chunks (a processor, an H200 and a machine of two levels); twice of it, 1.4, changed 2 of 99, which
/// were predicted to take 13 % and 26 % longer. None of these was run.
const CLOSE: f64 = 1.2;

/// The best of the plans that `plan` makes for a number of positions per chunk, with that number; the only one where nothing is chunked
/// or the caller has chosen a tile for the recurrence's index.
pub(crate) fn best(
    graph: &Graph,
    bound: &Bound,
    options: &Options,
    plan: &mut dyn FnMut(usize) -> Result<Plan, PlanError>,
) -> Result<(usize, Plan), PlanError> {
    let chunked = || graph.recurrences.iter().filter(|r| !r.within.is_empty());
    let longest = chunked().map(|r| bound.size(r.rank)).max().unwrap_or(0);
    let name = chunked().map(|r| graph.cascade[r.index].name.as_str()).next().unwrap_or_default();
    if longest == 0 || options.tiles.contains_key(name) {
        return plan(1).map(|p| (1, p));
    }
    // One size that holds all positions is as good as any larger one.
    let enough = SIZES.iter().position(|&s| s >= longest).map_or(SIZES.len(), |k| k + 1);
    let mut found: Vec<(usize, Plan)> = vec![];
    let mut failed = None;
    for &size in &SIZES[..enough] {
        match plan(size) {
            Ok(p) => found.push((size, p)),
            Err(e) => failed = Some(e),
        }
    }
    found.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    if let Some(limit) = found.first().map(|f| f.1.seconds * CLOSE)
        && let Some(k) = (0..found.len()).filter(|&k| found[k].1.seconds <= limit).max_by_key(|&k| found[k].0)
    {
        found.swap(0, k);
    }
    let lost: Vec<Lost> =
        found.iter().skip(1).map(|(size, p)| p.as_lost(format!("{name} by chunks of {size}"))).collect();
    let others = found.iter().skip(1).map(|(size, p)| format!("by {size}: {}", time(p.seconds))).collect::<Vec<_>>();
    let mut work = Work::default();
    found.iter().for_each(|(_, p)| work += p.work);
    let Some((size, mut best)) = found.into_iter().next() else {
        return Err(failed.unwrap_or_else(|| PlanError::unsupported(name, "no size of chunks was tried")));
    };
    best.work = work;
    best.lose(lost);
    let mut note = format!("{name} by chunks of {size}: predicted {} in all", time(best.seconds));
    if !others.is_empty() {
        note += &format!("; {}", others.join(", "));
    }
    if let Some(kernel) = best.kernels.iter_mut().find(|k| k.stream.iter().any(|(i, _)| i == name)) {
        kernel.notes.push(note);
    }
    Ok((size, best))
}
