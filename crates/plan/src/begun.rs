//! One plan: what is asked of it, what is begun, and how it is finished.
//!
//! A plan that is only compared with others need not be worked out to the end. It is begun, and its search has a first division into
//! kernels; those that are far from the best of them are described as they are, and the others searched on.

use crate::build::{Built, Workshop};
use crate::chunks::Chunk;
use crate::drawn::Draw;
use crate::expr::Exprs;
use crate::indices::{Indices, Roots, unknown};
use crate::known::Known;
use crate::merged::Merge;
use crate::problem::Problem;
use crate::program::program_of;
use crate::quotients::Split;
use crate::search::{Division, Paused, Search};
use crate::shares::{Idle, Shares};
use crate::types::Types;
use crate::{Options, Plan, PlanError, PlannedKernel, summaries};
use einloom_algebra::Graph;
use einloom_cascade::Bound;
use einloom_machine::Machine;
use einloom_model::of_each;
use einloom_tile::{AxisKind, Kernel};
use std::collections::BTreeSet;

/// Makes plans that are compared with one another.
pub(crate) struct Maker<'a> {
    pub graph: &'a Graph,
    pub bound: &'a Bound,
    pub machine: &'a Machine,
    pub options: &'a Options,
    /// How recurrences advance.
    pub chunk: Chunk,
    /// Whether plans are not worked out to the end where most of their time is that of idle cores.
    pub hasty: bool,
    pub known: &'a mut Known,
}

/// How much is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Depth<'a> {
    /// All.
    Whole,
    /// Kernels that store this.
    Into(&'a Roots),
    /// Kernels that store this, in the number types that they have at first, if each takes less than so many seconds: to be compared.
    Glance(&'a Roots, f64),
    /// All, with kernels that store this to begin with.
    From(&'a Roots),
}

/// A plan with the first division that its search found.
pub(crate) struct Begun {
    problem: Problem,
    exprs: Exprs,
    types: Types,
    options: Options,
    indices: Indices,
    splits: Vec<Split>,
    merges: Vec<Merge>,
    shares: Vec<Shares>,
    search: Paused,
}

impl Begun {
    /// The time of its first division.
    pub(crate) fn seconds(&self) -> f64 {
        self.search.first.division.seconds
    }
}

impl Maker<'_> {
    /// What `make` makes of each of these, in their order. On GPUs on all cores: what is known of kernels there is shared; machines that count
    /// elements know most of it from one search to the next.
    pub(crate) fn each<I: Sync, T: Send>(
        &mut self,
        all: &[I],
        make: impl Fn(&mut Maker<'_>, &I) -> T + Sync,
    ) -> Vec<T> {
        if self.machine.lanes.is_none() {
            return all.iter().map(|one| make(self, one)).collect();
        }
        let Self { graph, bound, machine, options, chunk, hasty, .. } = *self;
        let before = &*self.known;
        let made = of_each(all, |one| {
            let mut known = before.beside();
            let mut maker = Maker { graph, bound, machine, options, chunk, hasty, known: &mut known };
            let made = make(&mut maker, one);
            (made, known.spent)
        });
        let of_one = |(made, spent)| {
            self.known.spent += spent;
            made
        };
        made.into_iter().map(of_one).collect()
    }

    /// A plan with these indices and shares. None if no index can be other than it is written.
    pub(crate) fn plan(
        &mut self,
        indices: Indices,
        shares: &[Shares],
        depth: Depth<'_>,
    ) -> Result<Option<Plan>, PlanError> {
        let (roots, cut, refined, limit) = match depth {
            Depth::Whole => (None, true, true, f64::INFINITY),
            Depth::From(roots) => (Some(roots), true, true, f64::INFINITY),
            Depth::Into(roots) => (Some(roots), false, true, f64::INFINITY),
            Depth::Glance(roots, limit) => (Some(roots), false, false, limit),
        };
        self.begin(indices, shares, (roots, cut, limit))?.map(|begun| self.finish(begun, cut, refined)).transpose()
    }

    /// The same where there is work left to spend and no refusal.
    pub(crate) fn open_plan(&mut self, indices: Indices, shares: &[Shares], depth: Depth<'_>) -> Option<Plan> {
        if self.known.is_spent() { None } else { self.plan(indices, shares, depth).ok().flatten() }
    }

    /// The beginning of such a plan, divided into kernels that store `roots`, if these are given: into these as they are, if it is not to be `cut`. Of
    /// these none may take as long as `limit`.
    pub(crate) fn begin(
        &mut self,
        indices: Indices,
        shares: &[Shares],
        (roots, cut, limit): (Option<&Roots>, bool, f64),
    ) -> Result<Option<Begun>, PlanError> {
        let Self { graph, bound, machine, options, .. } = *self;
        if options.drawn.is_some() {
            Draw::fits(machine)?;
        }
        let mut exprs = Exprs::default();
        let mut types = Types::default();
        let mut problem = Problem::new(graph, bound, &mut exprs)?;
        problem.chunk = self.chunk.positions;
        problem.assemble(&exprs);
        let liberty = options.narrow_contractions && !options.exact;
        let (mut splits, mut merges, mut chunks) = (vec![], vec![], vec![]);
        if self.chunk.side_by_side {
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
        for (name, &tile) in &options.tiles {
            if tile == 0 || !problem.indices.iter().any(|i| i.name == *name) {
                return Err(match tile {
                    0 => PlanError::unsupported(name, "a tile has at least one position")
                        .hint("give a size of 1 or more, or none for the planner's choice"),
                    _ => unknown(&problem, name),
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
        let shop = Workshop::new(&problem, &mut exprs, &mut types, machine, &options, self.known);
        let search = Search::new(shop).begin(roots, cut, limit)?;
        Ok(Some(Begun { problem, exprs, types, options, indices, splits, merges, shares: shared, search }))
    }

    /// The plan that was begun, after a search for better cuts if it is to be `cut`, and for better number types and orders if these are to be `refined`.
    pub(crate) fn finish(&mut self, begun: Begun, cut: bool, refined: bool) -> Result<Plan, PlanError> {
        let machine = self.machine;
        let Begun { problem, mut exprs, mut types, options, indices, splits, merges, shares, search } = begun;
        let options = &options;
        let drawn = Draw::of(options);
        let shop = Workshop::new(&problem, &mut exprs, &mut types, machine, options, self.known);
        let (mut search, first) = Search::resume(shop, search);
        let unfinished = cut && self.hasty && drawn.is_none() && options.shares.is_none() && search.is_idle(&first);
        let division = search.finish(first, cut && !unfinished, refined && !unfinished);
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
        let mut program = program_of(&problem, &exprs, &mut types, kernels);
        summaries::add(&mut program, &mut planned, machine);
        // Kernels that find extremes count too.
        let seconds: f64 = planned.iter().map(|k| k.seconds).sum();
        let extremes = seconds - division.kernels.iter().map(|k| k.cost.seconds).sum::<f64>();
        lost.iter_mut().for_each(|l| l.seconds += extremes);
        let least_seconds = seconds - division.kernels.iter().map(|k| k.cost.seconds - k.fastest()).sum::<f64>();
        // A division that lost may win in shares, if they save what it takes longer.
        let longer = |d: &Division| (d.seconds - division.seconds).max(0.0);
        let idle = |d: &Division| -> Vec<Idle> {
            let idle = d.kernels.iter().filter_map(|k| Idle::of(&problem, &exprs, k, machine));
            idle.map(|i| i.in_division(longer(d), d.roots())).collect()
        };
        let looked_at = std::iter::once(&division).chain(seen.iter().map(|s| &s.1));
        let idle =
            if options.shares.is_none() && drawn.is_none() { looked_at.flat_map(idle).collect() } else { vec![] };
        let divided = vec![(indices, division.roots())];
        let kernels = planned;
        Ok(Plan {
            program,
            kernels,
            seconds,
            least_seconds,
            splits,
            merges,
            shares,
            divided,
            idle,
            unfinished,
            work,
            lost,
        })
    }
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

fn describe(p: &Problem, kernel: &Kernel, built: &Built, notes: Vec<String>) -> PlannedKernel {
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
