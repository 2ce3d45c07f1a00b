//! Bindings found: which ranks run along the sides of the arrays, which Einsum runs where, how far behind, and what the
//! buffer holds.
//!
//! All Einsums of a tile form one phase in which they take turns, each as many tiles behind the newest one as its
//! operands need to get there. So a tile takes what the busiest array takes, which no order of phases can beat; the
//! assignment that makes this the least is found by branch and bound. Each choice of ranks, tile, assignment and of
//! what the buffer holds is scored by [`evaluate`]: time first, then energy.

mod assign;
mod hold;
mod order;
mod split;
mod write;

pub use split::{Split, splits};

use crate::evaluate::fill_up;
use crate::simulate::lags;
use crate::{Binding, Chip, Evaluation, Extent, Kernel, Phase, Problem, Program, Setting, Space, evaluate};
use einloom_cascade::{Bound, RankId};
use std::collections::{BTreeMap, BTreeSet};

/// What a binding is sought for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The Einsums.
    pub program: &'a Program,
    /// What they run on.
    pub chip: &'a Chip,
    /// Sizes by rank; names that the cascade does not have are left out.
    pub sizes: &'a BTreeMap<String, usize>,
    /// How many instances of the cascade there are.
    pub instances: f64,
    /// Names of the chip's faults that are kept.
    pub faults: &'a BTreeSet<String>,
}

/// A binding that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// It.
    pub binding: Binding,
    /// Its cost.
    pub evaluation: Evaluation,
}

/// What a search came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// The best of every choice of ranks and of what is held, the best first.
    pub found: Vec<Found>,
    /// Bindings that were evaluated.
    pub tried: usize,
    /// Why others were not: one sentence for each reason.
    pub refused: BTreeSet<String>,
}

/// The ranks along the sides of the arrays, and how the cascade is cut.
struct Frame {
    rows: RankId,
    columns: RankId,
    /// Ranks whose size is the array's.
    sizes: BTreeMap<String, Extent>,
    bound: Bound,
}

/// Seeks bindings.
///
/// # Errors
/// Every reason why there is none.
pub fn search(wanted: &Wanted<'_>) -> Result<Search, Vec<Problem>> {
    let mut out = seek(wanted)?;
    out.found.iter_mut().take(LAGGED).for_each(|f| lag(wanted, f));
    Ok(out)
}

/// For how many of the best bindings lags are found: they change no closed form.
const LAGGED: usize = 3;

/// Sets each Einsum as far behind as its operands need to get there.
fn lag(wanted: &Wanted<'_>, found: &mut Found) {
    let tiles = found.evaluation.kernels.first().map_or(1.0, |k| k.cycles / k.tiles.max(1.0));
    if let Ok(lags) = lags(&setting(wanted, &found.binding), tiles)
        && let Some(kernel) = found.binding.kernels.first_mut()
    {
        kernel.lags = lags;
    }
}

/// All bindings, without lags.
fn seek(wanted: &Wanted<'_>) -> Result<Search, Vec<Problem>> {
    let missing = missing(wanted);
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut out = Search::default();
    for frame in frames(wanted, &mut out.refused) {
        for arrays in assignments(wanted, &frame) {
            try_frame(wanted, &frame, &arrays, &mut out);
        }
    }
    if out.found.is_empty() {
        let problem = |why: &String| Problem::new("search", why.clone());
        let mut problems: Vec<Problem> = out.refused.iter().map(problem).collect();
        if problems.is_empty() {
            let message = "no two ranks of a large Einsum can lie along the sides of an array";
            problems.push(Problem::new("search", message));
        }
        return Err(problems);
    }
    let key = |f: &Found| (f.evaluation.seconds, f.evaluation.energy.total());
    out.found.sort_by(|a, b| {
        let ((s, e), (t, f)) = (key(a), key(b));
        s.total_cmp(&t).then(e.total_cmp(&f))
    });
    out.found.dedup_by(|a, b| a.binding.kernels == b.binding.kernels && a.binding.space == b.binding.space);
    for (k, found) in out.found.iter_mut().enumerate() {
        found.binding.name = format!("found-{}", k + 1);
    }
    Ok(out)
}

/// Operations that no array of the chip can do: no binding helps there.
fn missing(wanted: &Wanted<'_>) -> Vec<Problem> {
    let chip = wanted.chip;
    let mut out = vec![];
    for einsum in &wanted.program.einsums {
        for operation in einsum.work.iter().map(|w| &w.operation) {
            if chip.arrays.iter().all(|a| a.cost(operation, false).is_none()) {
                let message = format!("no array of the chip {} has `{operation}`", chip.name);
                let hint =
                    format!("add it to [array.operation] of one, with its cycles: {operation} = {{ cycles = 1 }}");
                out.push(Problem::new(&einsum.name, message).hint(hint));
            }
        }
    }
    out
}

/// Pairs of ranks of results, with everything that has a size.
fn frames(wanted: &Wanted<'_>, refused: &mut BTreeSet<String>) -> Vec<Frame> {
    let program = wanted.program;
    let cascade = &program.graph.cascade;
    let Some(array) = wanted.chip.arrays.iter().max_by_key(|a| a.elements()) else { return vec![] };
    let mut pairs: Vec<(RankId, RankId)> = vec![];
    for einsum in &program.einsums {
        let dims = program.dims(einsum.node);
        for &rows in &einsum.ranks {
            for &columns in dims.iter().filter(|c| **c != rows) {
                if !pairs.contains(&(rows, columns)) {
                    pairs.push((rows, columns));
                }
            }
        }
    }
    let recurrent: BTreeSet<RankId> = program.graph.recurrences.iter().map(|r| r.rank).collect();
    pairs.retain(|(r, c)| !recurrent.contains(r) && !recurrent.contains(c));
    let mut out = vec![];
    for (rows, columns) in pairs {
        // A rank that the caller leaves open follows the array.
        let name = |r: RankId| cascade[r].name.clone();
        let mut sizes = wanted.sizes.clone();
        let mut open = BTreeMap::new();
        let sides = [
            (rows, Extent::Rows(array.name.clone()), array.rows),
            (columns, Extent::Columns(array.name.clone()), array.columns),
        ];
        let bound = match program.bind(&sizes) {
            Ok(bound) => Ok(bound),
            Err(_) => {
                let free = |r: RankId| !sizes.contains_key(&cascade[r].name);
                let follow: Vec<_> = sides.iter().filter(|s| free(s.0)).cloned().collect();
                for (rank, extent, n) in follow {
                    sizes.insert(name(rank), n);
                    open.insert(name(rank), extent);
                }
                fill_up(program, &open, &mut sizes);
                program.bind(&sizes)
            }
        };
        match bound {
            Ok(bound) => out.push(Frame { rows, columns, sizes: open, bound }),
            Err(problems) => {
                let why = problems.first().map_or(String::new(), |p| p.message.clone());
                refused.insert(format!("{} by {}: {why}", name(rows), name(columns)));
            }
        }
    }
    // The ranks that fill the array in the Einsums that do the most, first.
    let work = |f: &Frame| -> f64 {
        let both = program.einsums.iter().filter(|e| e.ranks.contains(&f.rows) && e.ranks.contains(&f.columns));
        both.map(|e| e.ranks.iter().map(|r| f.bound.size(*r) as f64).product::<f64>()).sum()
    };
    let most = out.iter().map(work).fold(0.0, f64::max);
    out.retain(|f| work(f) >= 0.5 * most);
    out
}

/// The balanced assignment, and the one in which each Einsum runs where it takes the fewest cycles.
fn assignments(wanted: &Wanted<'_>, frame: &Frame) -> Vec<Vec<usize>> {
    let chip = wanted.chip;
    let table: Vec<Vec<Option<f64>>> =
        wanted.program.einsums.iter().map(|e| chip.arrays.iter().map(|a| cycles(frame, e, a)).collect()).collect();
    let elements = |a: &usize| chip.arrays[*a].elements();
    let natural: Option<Vec<usize>> = table
        .iter()
        .map(|c| {
            let able = (0..c.len()).filter(|&a| c[a].is_some());
            able.min_by(|a, b| {
                c[*a].unwrap_or(0.0).total_cmp(&c[*b].unwrap_or(0.0)).then(elements(a).cmp(&elements(b)))
            })
        })
        .collect();
    let mut out: Vec<Vec<usize>> = assign::balance(&table).into_iter().collect();
    out.extend(natural);
    out.dedup();
    out
}

/// Cycles of one instance.
fn cycles(frame: &Frame, einsum: &crate::Einsum, array: &crate::Array) -> Option<f64> {
    let at_once = |r: RankId| {
        let rows = if r == frame.rows { array.rows } else { 1 };
        let columns = if r == frame.columns { array.columns } else { 1 };
        (rows * columns).max(1)
    };
    let mut sum = 0.0;
    for work in &einsum.work {
        let steps = work.ranks.iter().map(|r| frame.bound.size(*r).div_ceil(at_once(*r)) as f64);
        sum += steps.product::<f64>() * array.cost(&work.operation, false)?.cycles;
    }
    Some(sum)
}

fn try_frame(wanted: &Wanted<'_>, frame: &Frame, arrays: &[usize], out: &mut Search) {
    let (program, chip) = (wanted.program, wanted.chip);
    let cascade = &program.graph.cascade;
    let name = |r: RankId| cascade[r].name.clone();
    let Some(main) = chip.arrays.iter().max_by_key(|a| a.elements()) else { return };
    let mut tile = BTreeMap::from([
        (name(frame.rows), Extent::Rows(main.name.clone())),
        (name(frame.columns), Extent::Columns(main.name.clone())),
    ]);
    tile.extend(program.graph.recurrences.iter().map(|r| (name(r.rank), Extent::Size(1))));
    // A rank that is itself cut into parts of the array's rows is walked part by part.
    for rank in hold::outer_parts(program, frame.rows) {
        tile.entry(name(rank)).or_insert(Extent::Size(1));
    }
    let mut phase = Phase { in_turn: true, ..Phase::default() };
    for e in order::order(program) {
        let (einsum, array) = (&program.einsums[e], &chip.arrays[arrays[e]]);
        phase.runs.entry(array.name.clone()).or_default().push(einsum.name.clone());
    }
    let side = |rows: usize| (rows > 1).then(|| name(frame.rows));
    let space = chip.arrays.iter().map(|a| {
        let columns = (a.columns > 1).then(|| name(frame.columns));
        (a.name.clone(), Space { rows: side(a.rows), columns })
    });
    let mut binding = Binding {
        name: "found".to_owned(),
        description: format!("{} along rows, {} along columns", name(frame.rows), name(frame.columns)),
        sizes: frame.sizes.clone(),
        space: space.collect(),
        kernels: vec![],
        faults: BTreeMap::new(),
    };
    let cut: Vec<RankId> = tile.keys().filter_map(|r| cascade.rank(r)).collect();
    for dataflow in hold::dataflows(program, &cut, frame.columns) {
        let kernel = Kernel {
            name: cascade.name.clone(),
            tile: tile.clone(),
            phases: vec![phase.clone()],
            dataflows: vec![dataflow],
            ..Kernel::default()
        };
        binding.kernels = vec![kernel];
        out.tried += 1;
        let found = score(wanted, &binding).map(|evaluation| Found { binding: binding.clone(), evaluation });
        match found {
            Ok(found) => out.found.push(found),
            Err(problems) => out.refused.extend(problems.into_iter().map(|p| p.message)),
        }
    }
}

fn setting<'a>(wanted: &Wanted<'a>, binding: &'a Binding) -> Setting<'a> {
    let Wanted { program, chip, sizes, instances, faults } = *wanted;
    Setting { program, chip, binding, sizes, instances, faults }
}

fn score(wanted: &Wanted<'_>, binding: &Binding) -> Result<Evaluation, Vec<Problem>> {
    evaluate(&setting(wanted, binding))
}
