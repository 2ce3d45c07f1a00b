//! Which nodes go to memory, and which of them share a kernel.

use crate::blocks;
use crate::build::{BuildError, Built, Workshop, time};
use crate::cone::ConeError;
use crate::drawn::Draw;
use crate::frame::Memory;
use crate::gpu::KEPT;
use crate::indices::Roots;
use crate::lost::{self, Cost, Lost};
use crate::problem::{ItemDef, Problem};
use crate::shares::Idle;
use crate::template::Emitted;
use crate::{Fusion, PlanError, Work};
use einloom_algebra::NodeId;
use einloom_tile::{Kernel, grid_points};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod join;
mod start;

use join::reads;

/// Kernels of a plan that are looked at once more: the one that takes longest.
const AGAIN: usize = 1;
/// Divisions that are polished beside the best.
const RIVALS: usize = 2;
/// Kernels that are built while looking for better divisions, at most, per node of the graph.
const TRIES: usize = 16;

/// Work, in tilings of a large program, that is done before the search for better divisions ends.
pub(crate) const MOST_WORK: usize = 3000;

/// Plans that are only compared look at so many times fewer.
const HURRY: usize = 4;

/// Roots, what is read from memory, what is computed: together they determine a kernel. Last, whether it was looked at in all ways, or in those of the kernels that
/// it joins.
type Key = (Vec<NodeId>, BTreeSet<NodeId>, BTreeSet<NodeId>, bool);

/// A division of the program into kernels, in an order in which each needs only earlier ones.
#[derive(Clone)]
pub(crate) struct Division {
    pub kernels: Vec<Arc<Built>>,
    pub seconds: f64,
    pub notes: BTreeMap<NodeId, Vec<String>>,
}

impl Division {
    /// What its kernels store.
    pub(crate) fn roots(&self) -> Roots {
        // Parts of one kernel follow each other.
        let mut all: Roots = self.kernels.iter().map(|k| k.roots.clone()).collect();
        all.dedup();
        all
    }

    /// Tells something about all kernels, with the first of them.
    fn note(&mut self, text: &str) {
        if let Some(&root) = self.kernels.first().and_then(|k| k.roots.first()) {
            self.notes.entry(root).or_default().push(text.to_string());
        }
    }
}

pub(crate) struct Search<'a> {
    pub(crate) shop: Workshop<'a>,
    p: &'a Problem,
    built: BTreeMap<Key, Result<Arc<Built>, BuildError>>,
    left: usize,
    /// Nodes that must be in memory, with the reason.
    forced: BTreeMap<NodeId, String>,
    /// Sets of which those nodes that are in memory begin in one kernel.
    together: Vec<BTreeSet<NodeId>>,
    /// Partial states that begin in one kernel for no other reason.
    placed: BTreeSet<NodeId>,
    /// Whether kernels are joined where they are faster together.
    joins: bool,
    /// Times what inputs and outputs hold: so many elements may go through memory by choice.
    room: usize,
    /// Divisions that were worked out, the best so far among them.
    pub(crate) seen: Vec<(String, Division)>,
}

/// The first division that a search finds.
pub(crate) struct First {
    pub(crate) division: Division,
    /// What is in memory, if that may be more.
    memory: Option<BTreeSet<NodeId>>,
}

/// A search that has its first division and can go on.
pub(crate) struct Paused {
    built: BTreeMap<Key, Result<Arc<Built>, BuildError>>,
    left: usize,
    forced: BTreeMap<NodeId, String>,
    together: Vec<BTreeSet<NodeId>>,
    placed: BTreeSet<NodeId>,
    joins: bool,
    room: usize,
    seen: Vec<(String, Division)>,
    emitted: Emitted,
    work: Work,
    pub(crate) first: First,
}

/// A cut must save more than the model may err.
///
/// With half of what it must save, 0.95, 1 of 66 plans drawn changed, to 7.5 % less predicted time in three kernels for one; with twice of it, 0.8, 3 of 105, which were predicted to take 14 to
/// 22 % longer. None of these was run.
const WORTH_A_CUT: f64 = 0.9;

/// What shares could save of a division's time, beyond which cuts are looked at after shares.
const MOSTLY_IDLE: f64 = 0.45;

impl<'a> Search<'a> {
    pub(crate) fn new(shop: Workshop<'a>) -> Self {
        let p = shop.p;
        let (built, forced) = (BTreeMap::new(), BTreeMap::new());
        let (left, joins) = (TRIES * p.items.len(), shop.options.fuse == Fusion::Auto);
        let (together, placed, seen, room) = (vec![], BTreeSet::new(), vec![], 1);
        Self { shop, p, built, left, forced, together, placed, joins, room, seen }
    }

    /// The search with its first division, which is into kernels that store `roots`, if these are given: into these as they are, if it is not to be `cut`. Of
    /// these none may take as long as `limit`.
    pub(crate) fn begin(mut self, roots: Option<&Roots>, cut: bool, limit: f64) -> Result<Paused, PlanError> {
        let mut memory = self.in_memory();
        let (division, open) = match roots {
            Some(roots) => {
                memory.extend(roots.iter().flatten());
                self.begin_like(roots);
                self.joins &= cut;
                (self.divide_into(&memory, limit)?, cut)
            }
            None if self.shop.options.fuse == Fusion::None => {
                (self.divide(&memory).or_else(|why| self.unfused(&why))?, false)
            }
            None => match Draw::of(self.shop.options) {
                Some(draw) => (self.divide_as_drawn(memory.clone(), draw)?, false),
                None => {
                    self.begin_with_completed(&mut memory);
                    match self.start(&mut memory)? {
                        Ok(division) => (division, true),
                        Err(unfused) => (unfused, false),
                    }
                }
            },
        };
        let Self { built, left, forced, together, placed, joins, room, seen, .. } = self;
        let (emitted, work) = (self.shop.emitted, self.shop.work);
        let first = First { division, memory: open.then_some(memory) };
        Ok(Paused { built, left, forced, together, placed, joins, room, seen, emitted, work, first })
    }

    /// A search that goes on from what it found.
    pub(crate) fn resume(mut shop: Workshop<'a>, paused: Paused) -> (Self, First) {
        let Paused { built, left, forced, together, placed, joins, room, seen, emitted, work, first } = paused;
        (shop.emitted, shop.work) = (emitted, work);
        (Self { p: shop.p, shop, built, left, forced, together, placed, joins, room, seen }, first)
    }

    /// The best division found, with better cuts than the first if that is to be `cut`, its kernels in the best number types if these are to be `refined`.
    pub(crate) fn finish(&mut self, first: First, cut: bool, refined: bool) -> Division {
        let mut best = match first.memory {
            Some(memory) if cut => self.cut(first.division, memory),
            _ => first.division,
        };
        if let Some(draw) = Draw::of(self.shop.options) {
            for kernel in &mut best.kernels {
                *kernel = Arc::new(self.shop.ordered_as_drawn(kernel, draw));
            }
            return best;
        }
        if !refined {
            return best;
        }
        let best = self.polished(best);
        let mut best = self.better_polished(best);
        for kernel in &mut best.kernels {
            if let Some(ordered) = self.shop.in_order(kernel).or_else(|| self.shop.in_caches(kernel)) {
                *kernel = Arc::new(ordered);
            }
        }
        best.seconds = best.kernels.iter().map(|k| k.cost.seconds).sum();
        best
    }

    /// A division whose kernels have number types, tiles, orders and blocks that take longer to find.
    fn polished(&mut self, mut best: Division) -> Division {
        for kernel in best.kernels.iter_mut().filter(|k| !k.mixed.is_empty()) {
            *kernel = Arc::new(self.shop.in_best_types(kernel));
        }
        // The others could not change as much, and a plan is to be found soon.
        let mut longest: Vec<&mut Arc<Built>> = best.kernels.iter_mut().collect();
        longest.sort_by(|a, b| b.cost.seconds.total_cmp(&a.cost.seconds));
        for kernel in longest.into_iter().take(AGAIN) {
            if let Some(better) = self.shop.looked_at_again(kernel) {
                *kernel = Arc::new(better);
            }
        }
        if Memory::of(self.shop.machine).is_some() {
            // What takes longest has most to look at: begun last it would keep one core busy alone.
            let mut kernels: Vec<(usize, &Built)> = best.kernels.iter().map(Arc::as_ref).enumerate().collect();
            kernels.sort_by(|a, b| b.1.cost.seconds.total_cmp(&a.1.cost.seconds));
            let found = self.shop.side_by_side(&kernels, |shop, &(_, kernel)| {
                let whole = vec![shop.in_blocks(kernel).unwrap_or_else(|| kernel.clone())];
                let Some(parts) = shop.in_parts(kernel) else { return whole };
                let parts: Vec<Built> = parts.into_iter().map(|p| shop.in_blocks(&p).unwrap_or(p)).collect();
                // What parts save at the innermost memory they may cost at those outside it.
                let price = |kernels: &[Built]| kernels.iter().map(|k| blocks::price(&k.cost)).sum::<f64>();
                if price(&parts) < price(&whole) { parts } else { whole }
            });
            let mut found: Vec<(usize, Vec<Built>)> = kernels.iter().map(|k| k.0).zip(found).collect();
            found.sort_by_key(|f| f.0);
            best.kernels = found.into_iter().flat_map(|f| f.1).map(Arc::new).collect();
        }
        best.seconds = best.kernels.iter().map(|k| k.cost.seconds).sum();
        best
    }

    /// The division, or another one that was seen and takes less than a cut must save once it is polished as well: divisions are compared in one order of
    /// their points, in which memories further out may move what in others they keep.
    fn better_polished(&mut self, mut best: Division) -> Division {
        if Memory::of(self.shop.machine).is_none() {
            return best;
        }
        // What passes the innermost memory is what no order and no block changes much.
        let least = |d: &Division| d.kernels.iter().filter_map(|k| k.cost.parts.last()).map(|p| p.1).sum::<f64>();
        let known = best.roots();
        let mut rivals: Vec<usize> = (0..self.seen.len()).filter(|&k| self.seen[k].1.roots() != known).collect();
        rivals.sort_by(|&a, &b| least(&self.seen[a].1).total_cmp(&least(&self.seen[b].1)));
        rivals.dedup_by_key(|k| self.seen[*k].1.roots());
        for k in rivals.into_iter().take(RIVALS) {
            let rival = &self.seen[k].1;
            // In one order it would have been taken.
            if least(rival) >= WORTH_A_CUT * best.seconds || rival.seconds < WORTH_A_CUT * best.seconds {
                continue;
            }
            let rival = self.polished(rival.clone());
            if rival.seconds < WORTH_A_CUT * best.seconds {
                let what = std::mem::replace(&mut self.seen[k].0, "by what moves in one order".to_string());
                self.seen[k].1 = std::mem::replace(&mut best, rival);
                best.note(&format!(
                    "{what}: predicted {} in all, {} otherwise",
                    time(best.seconds),
                    time(self.seen[k].1.seconds)
                ));
            }
        }
        best
    }

    /// Begins with kernels that store this. Partial states share kernels as do the reductions that they are of.
    fn begin_like(&mut self, roots: &Roots) {
        let partial = |of: &Vec<NodeId>| -> Vec<NodeId> {
            let parts = self.p.partial_of.iter().filter(|(_, n)| of.contains(n));
            parts.map(|(&part, _)| part).collect()
        };
        let partial: Vec<Vec<NodeId>> = roots.iter().map(partial).collect();
        let sets = roots.iter().chain(&partial).filter(|set| set.len() > 1);
        self.together = sets.map(|set| set.iter().copied().collect()).collect();
        self.placed = partial.into_iter().flatten().collect();
    }

    /// What is in memory however the program is divided.
    fn in_memory(&self) -> BTreeSet<NodeId> {
        let mut memory: BTreeSet<NodeId> = self.p.outputs.iter().copied().collect();
        for &n in &self.p.order {
            let item = &self.p[n];
            let fold = matches!(item.def, ItemDef::Fold(_)) && item.recurrence.is_none();
            if item.stored
                || matches!(item.def, ItemDef::Iterative(_)) && !item.internal
                || fold && self.shop.options.fuse == Fusion::None
            {
                memory.insert(n);
            }
        }
        memory
    }

    /// A division that is cut where it pays, one node at a time.
    fn cut(&mut self, mut best: Division, mut memory: BTreeSet<NodeId>) -> Division {
        while !self.is_over() {
            let mut better: Option<(NodeId, Division)> = None;
            let mut refused: Option<(NodeId, f64)> = None;
            let base: BTreeSet<NodeId> = memory.iter().chain(self.forced.keys()).copied().collect();
            for n in self.candidates(&best, &base) {
                let mut cut = base.clone();
                cut.insert(n);
                // What takes much longer is of no interest, not even to the report.
                let Ok(Some(division)) = self.divide_below(&cut, 1.1 * best.seconds) else { continue };
                self.seen.push((format!("{} through memory", self.p[n].name), division.clone()));
                let limit = better.as_ref().map_or(best.seconds * WORTH_A_CUT, |b| b.1.seconds);
                if division.seconds < limit {
                    better = Some((n, division));
                } else if refused.is_none_or(|r| division.seconds < r.1) {
                    refused = Some((n, division.seconds));
                }
                if self.is_over() {
                    break;
                }
            }
            // What is multiplied is stored by all its factors or by none: one alone leaves the others to be computed again.
            let points = self.points(&best, &base);
            if better.is_none()
                && points.len() > 1
                && !self.is_over()
                && let Ok(Some(mut division)) =
                    self.divide_below(&base.union(&points).copied().collect(), WORTH_A_CUT * best.seconds)
                && division.seconds < WORTH_A_CUT * best.seconds
            {
                let names: Vec<&str> = points.iter().map(|&n| self.p[n].name.as_str()).collect();
                let [with, without] = [division.seconds, best.seconds].map(time);
                let why =
                    format!("{} go through memory: predicted {with} in all, {without} otherwise", names.join(", "));
                division.notes = best.notes.clone();
                division.note(&why);
                memory.extend(points);
                best = division;
                continue;
            }
            let Some((n, mut division)) = better else {
                if let Some((n, seconds)) = refused {
                    self.explain_no_cut(&mut best, n, seconds);
                }
                break;
            };
            let why = format!(
                "{} goes through memory: predicted {} in all, {} without the cut",
                self.p[n].name,
                time(division.seconds),
                time(best.seconds)
            );
            division.notes = best.notes.clone();
            division.notes.entry(n).or_default().push(why);
            memory.insert(n);
            best = division;
        }
        if self.is_over() {
            best.note(&format!("the search for better cuts stopped after {} kernels", self.built.len()));
        }
        best
    }

    /// Whether shares could save most of the time, and no cut gives cores more to do: then cuts are looked at with shares.
    pub(crate) fn is_idle(&self, first: &First) -> bool {
        let First { division, memory: Some(memory) } = first else { return false };
        let idle = division.kernels.iter().filter_map(|k| Idle::of(self.p, self.shop.x, k, self.shop.machine));
        let idle = idle.max_by(|a, b| a.gain.total_cmp(&b.gain));
        // Reductions in loops of their own are better parted first.
        let idle = idle.is_some_and(|i| i.all && i.gain > MOSTLY_IDLE * division.seconds);
        let most = |nodes: &mut dyn Iterator<Item = NodeId>| nodes.map(|n| self.elements(n)).max().unwrap_or(0);
        let stored = |d: &Division| d.kernels.iter().flat_map(|k| k.roots.clone()).collect::<BTreeSet<_>>();
        // What went through memory in a division that lost is known to gain nothing, and so is what is as large.
        let seen: BTreeSet<usize> = self.seen.iter().flat_map(|s| stored(&s.1)).map(|n| self.elements(n)).collect();
        let cuts = || self.candidates(division, memory).into_iter().filter(|&n| !seen.contains(&self.elements(n)));
        // What is computed again in every block is better stored first.
        idle && most(&mut cuts()) <= most(&mut stored(division).into_iter()) && self.points(division, memory).len() < 2
    }

    /// The division with more in memory than need be.
    fn divide_as_drawn(&mut self, mut memory: BTreeSet<NodeId>, draw: Draw) -> Result<Division, PlanError> {
        for &n in &self.p.order {
            let item = &self.p[n];
            let computed = !matches!(item.def, ItemDef::Input) && item.recurrence.is_none();
            if computed && draw.is_stored(&item.name, matches!(item.def, ItemDef::Fold(_))) {
                memory.insert(n);
            }
        }
        self.divide(&memory).or_else(|why| self.unfused(&why))
    }

    /// Whether no more divisions are tried. It depends on what was looked at, not on a clock: plans are the same every time.
    fn is_over(&self) -> bool {
        self.has_done(1)
    }

    /// Whether so many times the work was done after which no more divisions are tried.
    fn has_done(&self, times: usize) -> bool {
        let hurry = if self.shop.known.hurries.is_some() { HURRY } else { 1 };
        self.left == 0 || self.shop.work.done(self.p.items.len()) >= times * MOST_WORK / hurry
    }

    /// What lost to this division: its kernels with other tiles, and other divisions.
    pub(crate) fn lost(&self, best: &Division) -> Vec<Lost> {
        let mut out = vec![];
        let chosen = Cost::of_all(best.kernels.iter().map(Arc::as_ref));
        // What lost to a kernel in parts lost to all of them, and the first tells it.
        let first = |k: &&Arc<Built>| k.part.as_ref().is_none_or(|p| p.place[0] == 0);
        for kernel in best.kernels.iter().filter(first) {
            let parts = best.kernels.iter().filter(|k| k.part.is_some() && k.roots == kernel.roots);
            let own = match kernel.part {
                Some(_) => Cost::of_all(parts.map(Arc::as_ref)),
                None => kernel.cost.clone(),
            };
            let name = &kernel.kernel.name;
            let piece = if kernel.part.is_some() { " in one piece" } else { "" };
            let tiles = |(tiles, other): &(String, Cost)| {
                Lost::kernel(&chosen, format!("{name}{piece} with tiles {tiles}"), &own, other)
            };
            out.extend(kernel.others.iter().map(tiles));
            out.extend(kernel.types.iter().map(|t| t.lost(&chosen, &own)));
            out.extend(kernel.gpu.iter().flat_map(|g| lost::depths(best.seconds, name, g)));
        }
        let same = |other: &Division| {
            let roots = |d: &Division| d.kernels.iter().map(|k| k.roots.clone()).collect::<BTreeSet<_>>();
            roots(other) == roots(best)
        };
        for (what, division) in self.seen.iter().filter(|(_, d)| !same(d)) {
            let cost = Cost::of_all(division.kernels.iter().map(Arc::as_ref));
            let count = division.kernels.len();
            out.push(Lost {
                what: format!("{what}: {count} kernel{}", if count == 1 { "" } else { "s" }),
                seconds: division.seconds,
                reason: cost.reason(&chosen),
                bound_by: cost.bound_by,
            });
        }
        lost::best(out, KEPT)
    }

    /// Says why what may be computed again does not go through memory, if that makes a difference.
    fn explain_no_cut(&self, best: &mut Division, n: NodeId, seconds: f64) {
        let (name, without, with) = (&self.p[n].name, time(best.seconds), time(seconds));
        if seconds > 1.01 * best.seconds {
            best.note(&format!(
                "{name} is computed again where it is needed: predicted {without} in all, {with} through memory"
            ));
        } else if seconds < 0.99 * best.seconds {
            best.note(&format!(
                "{name} is computed again where it is needed: through memory the plan would take {with} and not {without}, which is within the model's error"
            ));
        }
    }

    /// One kernel per node: what remains when nodes cannot share one.
    fn unfused(&mut self, why: &PlanError) -> Result<Division, PlanError> {
        let computed = |n: &&NodeId| !matches!(self.p[**n].def, ItemDef::Input) && self.p[**n].recurrence.is_none();
        let mut memory: BTreeSet<NodeId> = self.p.order.iter().filter(computed).copied().collect();
        memory.extend(&self.p.outputs);
        memory.extend(
            self.p.order.iter().filter(|n| matches!(self.p[**n].def, ItemDef::Iterative(_)) && !self.p[**n].internal),
        );
        let mut division = self.divide(&memory)?;
        division.note(&format!("no node shares a kernel with another: {why}"));
        Ok(division)
    }

    /// Nodes inside kernels that compute more than each value once: a cut may save what is computed again. What goes
    /// through memory by choice stays within the size of the inputs and outputs, so that a program that can stream
    /// never needs the square of its input.
    fn candidates(&self, division: &Division, memory: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let mut out = vec![];
        let (budget, spent) = self.room(memory);
        // A cut gains no more than the kernels take that compute the node, less what it takes to start them and one more.
        let worth = (1.0 - WORTH_A_CUT) * division.seconds;
        let start = self.shop.machine.overhead.kernel.0;
        let gain = |n: &NodeId| -> f64 {
            let with = division.kernels.iter().filter(|k| k.cone.computed.contains(n));
            with.map(|k| k.cost.seconds - start).sum::<f64>() - start
        };
        for k in &division.kernels {
            // What is computed more often than once gains by a cut, and what leaves cores idle: the part that goes through
            // memory has a grid of its own.
            let all = k.repeats || grid_points(&k.kernel) < self.shop.machine.cores;
            let may = |n: &&NodeId| (all || self.p.factors.contains(n)) && gain(n) > worth;
            for &n in k.cone.computed.iter().filter(may) {
                let fits = spent.saturating_add(self.elements(n)) <= budget;
                if fits && !memory.contains(&n) && self.p[n].recurrence.is_none() && !out.contains(&n) {
                    out.push(n);
                }
            }
        }
        // The ones with the fewest elements cost the least traffic; the slowest kernels are worth most.
        out.sort_by_key(|&n| (self.elements(n), n));
        out.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        out.truncate(16);
        out
    }

    /// Of the candidates those that are computed more often than once and pointwise, of what is in memory, as far as there is room.
    fn points(&self, division: &Division, memory: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let (budget, mut spent) = self.room(memory);
        let mut out = BTreeSet::new();
        let again = |n: NodeId| division.kernels.iter().any(|k| k.repeats && k.cone.computed.contains(&n));
        for n in self.candidates(division, memory) {
            let after = spent.saturating_add(self.elements(n));
            if again(n) && after <= budget && self.is_pointwise(n, memory) {
                out.insert(n);
                spent = after;
            }
        }
        out
    }

    /// Whether it is made of what is in memory without a reduction.
    fn is_pointwise(&self, n: NodeId, memory: &BTreeSet<NodeId>) -> bool {
        let (mut todo, mut seen) = (vec![n], BTreeSet::new());
        while let Some(n) = todo.pop() {
            match self.p[n].def {
                ItemDef::Map(_) => todo.extend(
                    self.p.needed(n).iter().copied().filter(|m| !memory.contains(m)).filter(|m| seen.insert(*m)),
                ),
                ItemDef::Input => {}
                _ => return false,
            }
        }
        true
    }

    fn elements(&self, n: NodeId) -> usize {
        self.p[n].extents.iter().fold(1usize, |a, &b| a.saturating_mul(b.max(1)))
    }

    /// The best kernel for these roots, if it takes less than `limit` seconds. If it is to be `like` some, only in the ways in which they are written.
    fn build(
        &mut self,
        roots: &[NodeId],
        memory: &BTreeSet<NodeId>,
        limit: f64,
        like: &[&Kernel],
    ) -> Result<Arc<Built>, BuildError> {
        let cone = self.shop.cone(roots, memory).map_err(BuildError::Cone)?;
        let key = |all: bool| -> Key { (roots.to_vec(), cone.loads.clone(), cone.computed.clone(), all) };
        let all = like.is_empty();
        for known in if all { vec![true] } else { vec![true, false] } {
            match self.built.get(&key(known)) {
                Some(Err(BuildError::Slower(least))) if *least < limit => {}
                Some(done) => return done.clone(),
                None => {}
            }
        }
        let key = key(all);
        self.left = self.left.saturating_sub(1);
        let result = self.shop.build(roots, cone, limit, like).map(Arc::new);
        self.built.insert(key, result.clone());
        result
    }

    /// Divides into kernels, given which nodes are in memory at least.
    fn divide(&mut self, memory: &BTreeSet<NodeId>) -> Result<Division, PlanError> {
        self.divide_into(memory, f64::INFINITY)
    }

    /// The same, refused if some kernel alone takes as long as `limit`.
    fn divide_into(&mut self, memory: &BTreeSet<NodeId>, limit: f64) -> Result<Division, PlanError> {
        let found = self.divide_below(memory, limit)?;
        found.ok_or_else(|| PlanError::unsupported(&self.p.name, format!("a kernel takes more than {}", time(limit))))
    }

    /// The same; `None` if some kernel alone takes as long as `limit`.
    fn divide_below(&mut self, memory: &BTreeSet<NodeId>, limit: f64) -> Result<Option<Division>, PlanError> {
        let mut memory: BTreeSet<NodeId> = memory.iter().chain(self.forced.keys()).copied().collect();
        loop {
            match self.attempt(&memory, limit) {
                Ok(division) => return Ok(Some(division)),
                Err(BuildError::Cone(e)) => {
                    let (n, why) = match e {
                        ConeError::NotPlain(n) => (n, "is read at other positions than it is computed at"),
                        ConeError::TooDeep(n) => (n, "ends a long chain of expressions"),
                    };
                    let fixed = self.p.stays_in_its_loop(n, self.shop.x);
                    if fixed || !memory.insert(n) {
                        let reason = "its own recurrence reads it at positions of another index";
                        return Err(PlanError::unsupported(&self.p[n].name, reason));
                    }
                    self.forced.insert(n, format!("{} {why}, so it goes through memory", self.p[n].name));
                }
                Err(BuildError::Plan(e)) => return Err(e),
                Err(BuildError::Slower(_)) => return Ok(None),
            }
        }
    }

    fn attempt(&mut self, memory: &BTreeSet<NodeId>, limit: f64) -> Result<Division, BuildError> {
        let mut drafts: Vec<Vec<NodeId>> = vec![];
        let mut loops: BTreeMap<usize, usize> = BTreeMap::new();
        for &n in self.p.order.iter().filter(|n| memory.contains(n)) {
            match self.p[n].recurrence {
                Some(r) => match loops.get(&r) {
                    Some(&k) => drafts[k].push(n),
                    None => {
                        loops.insert(r, drafts.len());
                        drafts.push(vec![n]);
                    }
                },
                None => drafts.push(vec![n]),
            }
        }
        let mut kernels = vec![];
        let partial = self.p.together.iter().map(|set| set.difference(&self.placed).copied().collect());
        for nodes in self.together.iter().cloned().chain(partial).collect::<Vec<BTreeSet<NodeId>>>() {
            let alone = |d: &&Vec<NodeId>| d.len() == 1 && nodes.contains(&d[0]);
            let roots: Vec<NodeId> = drafts.iter().filter(alone).flatten().copied().collect();
            for roots in self.levels(&roots, memory) {
                // Where they cannot share a kernel they have one each.
                if roots.len() > 1
                    && let Ok(kernel) = self.build(&roots, memory, limit, &[])
                {
                    drafts.retain(|d| !roots.contains(&d[0]));
                    kernels.push(kernel);
                }
            }
        }
        for d in &drafts {
            // The slices of a recurrence go through memory only where they are not read in the kernel that computes them.
            let p = self.p;
            let slices = |n: &NodeId| p[*n].recurrence.is_some();
            let joins = limit.is_finite()
                && (d.iter().any(slices) || self.shop.cone(d, memory).is_ok_and(|c| c.loads.iter().any(slices)));
            let alone = if joins { f64::INFINITY } else { limit };
            kernels.push(self.build(d, memory, alone, &[])?);
        }
        let mut notes: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        for (&n, why) in &self.forced {
            notes.entry(n).or_default().push(why.clone());
        }
        if self.joins {
            self.merge(&mut kernels, memory, &mut notes);
        }
        let kernels = ordered(kernels);
        let seconds = kernels.iter().map(|k| k.cost.seconds).sum();
        Ok(Division { kernels, seconds, notes })
    }

    /// Nodes in sets of which none needs another's result by way of one that is in memory; they are in the problem's order.
    fn levels(&self, nodes: &[NodeId], memory: &BTreeSet<NodeId>) -> Vec<Vec<NodeId>> {
        let mut level_of: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut levels: Vec<Vec<NodeId>> = vec![];
        for &node in nodes {
            let (mut todo, mut seen) = (vec![(node, false)], BTreeSet::new());
            let mut level = 0;
            while let Some((at, passed)) = todo.pop() {
                for &n in self.p.needed(at) {
                    if let Some(below) = level_of.get(&n).filter(|_| passed) {
                        level = level.max(below + 1);
                    }
                    let passed = passed || memory.contains(&n) && !nodes.contains(&n);
                    if seen.insert((n, passed)) {
                        todo.push((n, passed));
                    }
                }
            }
            level_of.insert(node, level);
            levels.resize(levels.len().max(level + 1), vec![]);
            levels[level].push(node);
        }
        levels
    }
}

/// Kernels so that each reads only what earlier ones write.
fn ordered(mut left: Vec<Arc<Built>>) -> Vec<Arc<Built>> {
    let mut out: Vec<Arc<Built>> = vec![];
    while !left.is_empty() {
        let ready = left.iter().position(|k| !left.iter().any(|o| !Arc::ptr_eq(o, k) && reads(k, o)));
        out.push(left.remove(ready.unwrap_or(0)));
    }
    out
}
