//! The planner: a normalised cascade, sizes and a machine become a tile program.
//!
//! Whether nodes share a kernel, which indices are parallel, which are streamed and in which tiles is decided by what
//! the model predicts; how a kernel then looks follows from the algebra alone. This crate recognises no operators and
//! knows no backend.
//!
//! The way of a graph through it: `problem` fills in sizes and puts every node into one of four forms; `quotients` makes two of
//! an index that arrays are read by a quotient of, `merged` one of indices that always go together, where that is faster
//! (`indices`); `assembled` makes arrays of iterative tensors of which no slice needs another; `shares` reduces in shares where cores would be idle; `search` decides which nodes are in memory; `cone` inlines everything else into the kernels that read it; `cuts` gives
//! every index of a kernel its kind and tile, in a few styles or, on a GPU, in all that fit a core (`gpu`; `shrink`
//! where no matrix unit multiplies); `lower` finds contractions and what can leave a sum; `emit` writes the kernel, once for
//! all sizes of tiles (`template`).
//! For tests a number can decide in place of predicted times (`drawn`).
//! Where a tile would need a third axis, emission fails, one index is cut smaller and it starts again: with every index
//! visited one by one any kernel can be written, so this ends.

mod assembled;
mod blocks;
mod build;
mod capacity;
mod choose;
mod chunks;
mod cone;
mod cuts;
mod doubled;
mod drawn;
mod emit;
mod expr;
mod factors;
mod facts;
mod frame;
mod gpu;
mod grid_order;
mod in_caches;
mod indices;
mod known;
mod lost;
mod lower;
mod merged;
mod options;
mod overhead;
mod parts;
mod plane;
mod problem;
mod products;
mod program;
mod quotients;
mod reader;
mod round_about;
mod search;
mod sections;
mod shares;
mod shrink;
mod side_by_side;
mod sought;
mod straighten;
mod substitute;
mod summaries;
mod template;
mod tiling;
mod too_large;
mod types;
mod visits;
mod ways;
mod written;

pub use choose::{Form, choose};
pub use doubled::{Doubled, doubled};
pub use lost::Lost;
pub use merged::Merge;
pub use options::{Chunks, Fusion, Merging, Options, Plan, PlanError, PlannedKernel, Work};
pub use parts::Part;
pub use quotients::Split;
pub use shares::Shares;
pub use too_large::{Room, TooLarge};

use chunks::Chunk;
use drawn::Draw;
use einloom_algebra::Graph;
use einloom_cascade::Bound;
use einloom_machine::Machine;
use einloom_tile::{AxisKind, Kernel};
use indices::{Indices, Roots};
use std::collections::BTreeSet;

/// A tile program that computes the outputs of `graph`, as written or as derived, for the sizes in `bound`.
///
/// # Errors
/// What no arrangement of tiles can compute, in the user's terms: see [`PlanError`].
///
/// ```
/// use einloom_cascade::{Given, bind, parse};
/// let text = "input X[m,n]: f32\noutput L: f32\nL[m] = log(sum(n) exp(X[m,n]))\n";
/// let cascade = parse(text).cascade;
/// let sizes = [("M".to_string(), 512), ("N".to_string(), 4_000_000)];
/// let bound = bind(&cascade, &Given { sizes: sizes.into(), ..Given::default() }).expect("sizes that fit");
/// let machine = einloom_machine::built_in("cpu-generic").expect("built in");
/// let graph = einloom_algebra::flatten(&cascade);
/// let plan = einloom_plan::plan(&graph, &bound, &machine, &Default::default()).expect("a plan");
/// assert_eq!(plan.kernels.len(), 1);
/// assert_eq!(plan.kernels[0].group[0].0, "m");
/// assert_eq!(plan.kernels[0].stream[0].0, "n");
/// assert!(einloom_tile::verify(&plan.program).is_empty());
/// ```
pub fn plan(graph: &Graph, bound: &Bound, machine: &Machine, options: &Options) -> Result<Plan, PlanError> {
    let on = |machine: &Machine| plan_knowing(graph, bound, machine, options, &mut known::Known::default());
    on(machine).map_err(|e| capacity::with_enough(e, machine, on))
}

/// The same with what was found for other plans of this machine and these options.
fn plan_knowing(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    known: &mut known::Known,
) -> Result<Plan, PlanError> {
    let (chunk, plan) = in_one_piece(graph, bound, machine, options, known)?;
    Ok(in_shares(graph, bound, machine, options, (chunk, plan), known))
}

/// The best plan with all reductions in one piece, and how many positions its recurrences take at a time.
fn in_one_piece(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    known: &mut known::Known,
) -> Result<(Chunk, Plan), PlanError> {
    let merge = if known.hurries.is_some() { Merging::Never } else { options.merge };
    let so_far = known.so_far.unwrap_or(f64::INFINITY);
    chunks::best(graph, bound, (machine, options, so_far), &mut |chunk| {
        let mut by = |indices| plan_by(graph, bound, machine, options, (chunk, indices, &[], None), known);
        match Draw::of(options) {
            Some(draw) => draw.indices(merge, &mut by),
            None => indices::best(merge, &mut by),
        }
    })
}

/// The plan with reductions in shares where that is faster, as long as there is work left to spend.
fn in_shares(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    (chunk, plan): (Chunk, Plan),
    known: &mut known::Known,
) -> Plan {
    shares::best(machine, plan, &mut |indices, shares, roots| {
        if known.is_spent() {
            return None;
        }
        // With what is refused the others go on.
        Some(plan_by(graph, bound, machine, options, (chunk, indices, shares, roots), known).ok().flatten())
    })
}

/// A plan in which recurrences that advance by chunks take this many positions at a time, with these indices, divided into kernels that store
/// this, if that is given. None if no index can be other than it is written.
fn plan_by(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    (chunk, indices, shares, roots): (Chunk, Indices, &[Shares], Option<&Roots>),
    known: &mut known::Known,
) -> Result<Option<Plan>, PlanError> {
    if options.drawn.is_some() {
        Draw::fits(machine)?;
    }
    let mut exprs = expr::Exprs::default();
    let mut types = types::Types::default();
    let mut problem = problem::Problem::new(graph, bound, &mut exprs)?;
    problem.chunk = chunk.positions;
    problem.assemble(&exprs);
    let liberty = options.narrow_contractions && !options.exact;
    let (mut splits, mut merges, mut chunks) = (vec![], vec![], vec![]);
    if chunk.side_by_side {
        let refused = |why: String| PlanError::unsupported(&graph.cascade.name, why);
        chunks = problem.side_by_side(&mut exprs, &mut types, liberty).map_err(refused)?;
    }
    if indices != Indices::AsWritten {
        splits = problem.split_quotients(&mut exprs);
    }
    if indices == Indices::Merged {
        merges = problem.merge_indices(&mut exprs);
    }
    let changed = match indices {
        Indices::AsWritten => true,
        Indices::Split => !splits.is_empty(),
        Indices::Merged => !merges.is_empty(),
    };
    if !changed {
        return Ok(None);
    }
    problem.part_factors(&mut exprs, &mut types, liberty);
    splits.splice(0..0, chunks);
    let mut options = options.in_parts(&splits).in_one(&merges);
    let mut shared = vec![];
    let drawn = Draw::of(&options);
    let asked = match (&options.shares, drawn) {
        (Some(all), _) => problem.asked(all, &exprs)?,
        (None, Some(draw)) => problem.drawn_shares(draw, &exprs),
        (None, None) => vec![],
    };
    for one in shares.iter().chain(&asked) {
        if !problem.has(one) {
            return Ok(None);
        }
        let one = problem.share(one, &mut exprs);
        // A point of the grid for every share.
        options.tiles.insert(one.called[0].clone(), 1);
        shared.push(one);
    }
    if let Some(draw) = drawn {
        problem.draw_tiles(draw, &mut options);
    }
    problem.settle(&exprs);
    let options = &options;
    for (name, &tile) in &options.tiles {
        if tile == 0 || !problem.indices.iter().any(|i| i.name == *name) {
            return Err(match tile {
                0 => PlanError::unsupported(name, "a tile has at least one position")
                    .hint("give a size of 1 or more, or none for the planner's choice"),
                _ => indices::unknown(&problem, name),
            });
        }
    }
    if let Some(unit) = &options.matrix
        && !machine.matrix.iter().any(|u| u.name == *unit)
    {
        let names: Vec<&str> = machine.matrix.iter().map(|u| u.name.as_str()).collect();
        let has = if names.is_empty() { "it has none".to_string() } else { format!("it has {}", names.join(", ")) };
        return Err(PlanError::unsupported(unit, format!("{} has no such matrix unit; {has}", machine.name)));
    }
    let work = Work::default();
    let shop = build::Workshop {
        p: &problem,
        x: &mut exprs,
        types: &mut types,
        machine,
        options,
        products: Default::default(),
        thorough: false,
        emitted: Default::default(),
        known,
        work,
    };
    let mut search = search::Search::new(shop);
    let division = search.run(roots)?;
    let work = search.shop.work;
    search.shop.known.spent += work.done(problem.items.len());
    let mut lost = search.lost(&division);
    let seen = search.seen;
    let mut names = BTreeSet::new();
    let mut kernels = vec![];
    let mut planned = vec![];
    for built in &division.kernels {
        let mut kernel = built.kernel.clone();
        kernel.name = unique(&kernel.name, &mut names);
        let mut notes = built.notes.clone();
        notes.extend(built.types_note.clone());
        for n in &built.cone.computed {
            notes.extend(division.notes.get(n).into_iter().flatten().cloned());
        }
        planned.push(describe(&problem, &kernel, built, notes));
        kernels.push(kernel);
    }
    let mut program = program::program_of(&problem, &exprs, &mut types, kernels);
    summaries::add(&mut program, &mut planned, machine);
    // Kernels that find extremes count too.
    let seconds: f64 = planned.iter().map(|k| k.seconds).sum();
    let extremes = seconds - division.kernels.iter().map(|k| k.cost.seconds).sum::<f64>();
    lost.iter_mut().for_each(|l| l.seconds += extremes);
    let least_seconds = seconds - division.kernels.iter().map(|k| k.cost.seconds - k.fastest()).sum::<f64>();
    // A division that lost may win in shares, if they save what it takes longer.
    let longer = |d: &search::Division| (d.seconds - division.seconds).max(0.0);
    let idle = |d: &search::Division| -> Vec<shares::Idle> {
        let idle = d.kernels.iter().filter_map(|k| shares::Idle::of(&problem, &exprs, k, machine));
        idle.map(|i| i.in_division(longer(d), d.roots())).collect()
    };
    let looked_at = std::iter::once(&division).chain(seen.iter().map(|s| &s.1));
    let idle = if options.shares.is_none() && drawn.is_none() { looked_at.flat_map(idle).collect() } else { vec![] };
    let shares = shared;
    let divided = vec![(indices, division.roots())];
    let kernels = planned;
    Ok(Some(Plan { program, kernels, seconds, least_seconds, splits, merges, shares, divided, idle, work, lost }))
}

fn unique(wanted: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name = wanted.to_string();
    let mut k = 2;
    while !taken.insert(name.clone()) {
        name = format!("{wanted}_{k}");
        k += 1;
    }
    name
}

fn describe(p: &problem::Problem, kernel: &Kernel, built: &build::Built, notes: Vec<String>) -> PlannedKernel {
    let axes = |kind: AxisKind| {
        let chosen = kernel.axes.iter().filter(|a| a.kind == kind);
        chosen.map(|a| (a.name.clone(), a.tile)).collect::<Vec<_>>()
    };
    let mut stream = axes(AxisKind::Stream);
    stream.dedup();
    let statements: BTreeSet<usize> = built.cone.computed.iter().filter_map(|&n| p[n].statement).collect();
    PlannedKernel {
        name: kernel.name.clone(),
        statements: statements.into_iter().collect(),
        group: axes(AxisKind::Grid),
        stream,
        materialised: built.roots.iter().map(|&n| p[n].name.clone()).collect(),
        notes,
        seconds: built.cost.seconds,
        bound_by: built.cost.bound_by.clone(),
        parts: built.cost.parts.clone(),
        gpu: built.gpu.clone(),
        part: built.part.clone(),
    }
}
