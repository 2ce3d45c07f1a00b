//! The planner: a normalised cascade, sizes and a machine become a tile program.
//!
//! Whether nodes share a kernel, which indices are parallel, which are streamed and in which tiles is decided by what
//! the model predicts; how a kernel then looks follows from the algebra alone. This crate recognises no operators and
//! knows no backend.
//!
//! The way of a graph through it: `problem` fills in sizes and puts every node into one of four forms; `quotients` makes two of
//! an index that arrays are read by a quotient of, `merged` one of indices that always go together, where that is faster
//! (`indices`, which `begun` plans to begin and those near the best to the end); `assembled` makes arrays of iterative tensors of which no slice needs another; `shares` reduces in shares where cores would be idle; `search` decides which nodes are in memory; `cone` inlines everything else into the kernels that read it; `cuts` gives
//! every index of a kernel its kind and tile, in a few styles or, on a GPU, in all that fit a core (`gpu`; `shrink`
//! where no matrix unit multiplies); `lower` finds contractions and what can leave a sum; `emit` writes the kernel, once for
//! all sizes of tiles (`template`).
//! For tests a number can decide in place of predicted times (`drawn`).
//! Where a tile would need a third axis, emission fails, one index is cut smaller and it starts again: with every index
//! visited one by one any kernel can be written, so this ends.

mod assembled;
mod begun;
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
pub use doubled::{Doubled, doubled, machines as with_twice};
pub use lost::Lost;
pub use merged::Merge;
pub use options::{Chunks, Fusion, Merging, Options, Plan, PlanError, PlannedKernel, Work};
pub use parts::Part;
pub use quotients::Split;
pub use shares::Shares;
pub use too_large::{Room, TooLarge};

use begun::{Depth, Maker};
use chunks::Chunk;
use drawn::Draw;
use einloom_algebra::Graph;
use einloom_cascade::Bound;
use einloom_machine::Machine;

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
    let (chunk, plan) = in_one_piece(graph, bound, machine, options, true, known)?;
    Ok(in_shares(graph, bound, machine, options, (chunk, plan), known))
}

/// The best plan with all reductions in one piece, and how many positions its recurrences take at a time. If `hasty`, it is not worked out to
/// the end where it is slow because cores are idle: [`in_shares`] sees to that.
fn in_one_piece(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    hasty: bool,
    known: &mut known::Known,
) -> Result<(Chunk, Plan), PlanError> {
    let merge = if known.hurries.is_some() { Merging::Never } else { options.merge };
    let so_far = known.so_far.unwrap_or(f64::INFINITY);
    chunks::best(graph, bound, (machine, options, so_far), &mut |chunk| {
        let mut maker = Maker { graph, bound, machine, options, chunk, hasty, known: &mut *known };
        match Draw::of(options) {
            Some(draw) => draw.indices(merge, &mut |indices| maker.plan(indices, &[], Depth::Whole)),
            None => indices::best(merge, &mut maker),
        }
    })
}

/// The plan with reductions in shares where that is faster, as long as there is work left to spend.
fn in_shares(
    graph: &Graph,
    bound: &Bound,
    machine: &Machine,
    options: &Options,
    plan: (Chunk, Plan),
    known: &mut known::Known,
) -> Plan {
    let best = |(chunk, plan), known: &mut known::Known| {
        shares::best(plan, &mut Maker { graph, bound, machine, options, chunk, hasty: false, known })
    };
    let plan = best(plan, known);
    if !plan.unfinished {
        return plan;
    }
    // Shares are no help, and other divisions may be.
    match in_one_piece(graph, bound, machine, options, false, known) {
        Ok(whole) => best(whole, known),
        Err(_) => plan,
    }
}
