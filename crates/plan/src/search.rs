//! Which nodes go to memory, and which of them share a kernel.

use crate::build::{BuildError, Built, Workshop, time};
use crate::cone::ConeError;
use crate::cuts::is_contraction;
use crate::facts::Facts;
use crate::frame::Memory;
use crate::gpu::KEPT;
use crate::lost::{self, Cost, Lost};
use crate::problem::{ItemDef, Problem};
use crate::{Fusion, PlanError};
use einloom_algebra::NodeId;
use einloom_machine::Machine;
use einloom_tile::grid_points;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Kernels of a plan that are looked at once more: the one that takes longest.
const AGAIN: usize = 1;
/// Kernels that are built while looking for better divisions, at most, per node of the graph.
const TRIES: usize = 16;

/// Tilings that are looked at before the search for better divisions ends: about a second's work on large kernels.
const TILINGS: usize = 3000;
/// The same where only what moves is counted.
const TILINGS_BY_CAPACITY: usize = 6000;
/// The same for processors, whose kernels are emitted anew for most of the few tilings that each is looked at in.
const TILINGS_ON_PROCESSORS: usize = 2200;

/// Tilings that are looked at before the search for better divisions ends.
pub(crate) fn most_tilings(machine: &Machine) -> usize {
    match (Memory::of(machine), machine.lanes) {
        (Some(_), _) => TILINGS_BY_CAPACITY,
        (None, Some(_)) => TILINGS,
        (None, None) => TILINGS_ON_PROCESSORS,
    }
}

/// Plans that are only compared look at so many times fewer.
const HURRY: usize = 4;

/// Roots, what is read from memory, what is computed: together they determine a kernel.
type Key = (Vec<NodeId>, BTreeSet<NodeId>, BTreeSet<NodeId>);

/// A division of the program into kernels, in an order in which each needs only earlier ones.
#[derive(Clone)]
pub(crate) struct Division {
    pub kernels: Vec<Rc<Built>>,
    pub seconds: f64,
    pub notes: BTreeMap<NodeId, Vec<String>>,
}

impl Division {
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
    built: BTreeMap<Key, Result<Rc<Built>, BuildError>>,
    left: usize,
    /// Nodes that must be in memory, with the reason.
    forced: BTreeMap<NodeId, String>,
    /// Sets of which those nodes that are in memory begin in one kernel.
    together: Vec<BTreeSet<NodeId>>,
    /// Divisions that were worked out, the best so far among them.
    seen: Vec<(String, Division)>,
}

/// A cut must save more than the model may err.
///
/// With half of what it must save, 0.95, 1 of 66 plans drawn changed, to 7.5 % less predicted time in three kernels for one; with twice of it, 0.8, 3 of 105, which were predicted to take 14 to
/// 22 % longer. None of these was run.
const WORTH_A_CUT: f64 = 0.9;

impl<'a> Search<'a> {
    pub(crate) fn new(shop: Workshop<'a>) -> Self {
        let p = shop.p;
        let (built, forced) = (BTreeMap::new(), BTreeMap::new());
        Self { shop, p, built, left: TRIES * p.items.len(), forced, together: vec![], seen: vec![] }
    }

    /// The best division found, its kernels in the best number types.
    pub(crate) fn run(&mut self) -> Result<Division, PlanError> {
        let mut best = self.cut()?;
        for kernel in best.kernels.iter_mut().filter(|k| !k.mixed.is_empty()) {
            *kernel = Rc::new(self.shop.in_best_types(kernel));
        }
        // The others could not change as much, and a plan is to be found soon.
        let mut longest: Vec<&mut Rc<Built>> = best.kernels.iter_mut().collect();
        longest.sort_by(|a, b| b.cost.seconds.total_cmp(&a.cost.seconds));
        for kernel in longest.into_iter().take(AGAIN) {
            if let Some(better) = self.shop.looked_at_again(kernel) {
                *kernel = Rc::new(better);
            }
        }
        let parts = |k: Rc<Built>| match self.shop.in_parts(&k) {
            Some(parts) => parts.into_iter().map(Rc::new).collect(),
            None => vec![k],
        };
        best.kernels = best.kernels.into_iter().flat_map(parts).collect();
        best.seconds = best.kernels.iter().map(|k| k.cost.seconds).sum();
        Ok(best)
    }

    fn cut(&mut self) -> Result<Division, PlanError> {
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
        if self.shop.options.fuse == Fusion::None {
            return self.divide(&memory);
        }
        let mut best = match self.start(&mut memory)? {
            Ok(division) => division,
            Err(unfused) => return Ok(unfused),
        };
        // Cut where it pays, one node at a time.
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
        Ok(best)
    }

    /// The division in which reductions go through memory whose results are no larger than what they read, contractions
    /// among them, with what is in memory then. Those that need the same contraction which is larger begin in one kernel, and
    /// so do states of one vector. `None` if no contraction is small enough, or one has no kernel.
    ///
    /// Where contractions follow each other none gains by a cut of its own before its neighbours are cut too, so that
    /// cutting one at a time does not arrive here.
    fn at_contractions(&mut self, memory: &BTreeSet<NodeId>) -> Option<(BTreeSet<NodeId>, Division)> {
        let (budget, mut spent) = self.room(memory);
        let mut facts = Facts::default();
        // The contractions that are computed where they are read, and that a node needs.
        let mut waits: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut cut = memory.clone();
        // Contractions that go through memory, and whether another contraction is made from one of them.
        let (mut small, mut follows): (BTreeSet<NodeId>, bool) = (BTreeSet::new(), false);
        let mut made: BTreeSet<NodeId> = BTreeSet::new();
        self.together.clear();
        for &n in &self.p.order {
            let needs = self.p.needs(n, self.shop.x);
            let mut waiting: BTreeSet<NodeId> = needs.iter().filter_map(|m| waits.get(m)).flatten().copied().collect();
            let fold = match &self.p[n].def {
                ItemDef::Fold(fold) if self.p[n].recurrence.is_none() => Some(fold),
                _ => None,
            };
            let contracts = fold.is_some_and(|f| is_contraction(self.p, self.shop.x, &mut facts, n, f));
            let from_small = needs.iter().any(|m| made.contains(m));
            made.extend(Some(n).filter(|_| from_small));
            follows |= contracts && from_small;
            let read: usize = needs.iter().map(|&m| self.elements(m)).fold(0, usize::saturating_add);
            let after = spent.saturating_add(self.elements(n));
            let stored = memory.contains(&n) || fold.is_some() && self.elements(n) <= read && after <= budget;
            if !stored {
                waiting.extend(Some(n).filter(|_| contracts));
                waits.insert(n, waiting);
                continue;
            }
            // States of one vector, and what is made of the same values, belong to one loop.
            if !contracts || !waiting.is_empty() {
                waiting.extend(fold.iter().flat_map(|f| &f.anchors).filter(|_| !contracts));
                waiting.insert(n);
                self.begin_together(waiting);
            }
            if cut.insert(n) {
                spent = after;
                small.extend(Some(n).filter(|_| contracts));
                made.extend(Some(n).filter(|_| contracts));
            }
        }
        self.store_what_is_multiplied(&small, &mut cut);
        let below = self.shop.known.hurries.unwrap_or(f64::INFINITY);
        let division = if follows { self.divide_below(&cut, below).ok().flatten() } else { None };
        self.together.clear();
        let division = division?;
        let stored: BTreeSet<NodeId> = division.kernels.iter().flat_map(|k| k.roots.iter().copied()).collect();
        Some((memory.union(&cut.intersection(&stored).copied().collect()).copied().collect(), division))
    }

    /// Where an elementwise function of contractions is all that anybody reads of them, and a contraction multiplies it, it goes
    /// through memory in their place: it is read once for every tile of the products, and is one array.
    fn store_what_is_multiplied(&self, small: &BTreeSet<NodeId>, cut: &mut BTreeSet<NodeId>) {
        let readers =
            |n: NodeId| self.p.order.iter().copied().filter(move |&m| self.p.needs(m, self.shop.x).contains(&n));
        for &n in self.p.order.iter().filter(|n| matches!(self.p[**n].def, ItemDef::Map(_))) {
            if cut.contains(&n) || !readers(n).all(|m| matches!(self.p[m].def, ItemDef::Fold(_))) {
                continue;
            }
            // All pointwise nodes between the contractions and this one, and the contractions with its axes.
            let (mut inside, mut replaced) = (BTreeSet::from([n]), BTreeSet::new());
            let mut todo = vec![n];
            while let Some(k) = todo.pop() {
                for m in self.p.needs(k, self.shop.x) {
                    if small.contains(&m) && self.p[m].axes == self.p[n].axes {
                        replaced.insert(m);
                    } else if !cut.contains(&m) && matches!(self.p[m].def, ItemDef::Map(_)) && inside.insert(m) {
                        todo.push(m);
                    }
                }
            }
            let alone = |k: NodeId| readers(k).all(|m| inside.contains(&m));
            if !replaced.is_empty() && replaced.iter().chain(&inside).all(|&k| k == n || alone(k)) {
                cut.retain(|k| !replaced.contains(k));
                cut.insert(n);
            }
        }
    }

    /// Notes that the last of these nodes begins in one kernel with all that shares one of them.
    fn begin_together(&mut self, mut nodes: BTreeSet<NodeId>) {
        let (joined, apart) = self.together.drain(..).partition(|g: &BTreeSet<NodeId>| !g.is_disjoint(&nodes));
        self.together = apart;
        nodes.extend(joined.into_iter().flatten());
        self.together.push(nodes);
    }

    /// Elements that may go through memory by choice, and those that do.
    fn room(&self, memory: &BTreeSet<NodeId>) -> (usize, usize) {
        let given = |n: &NodeId| matches!(self.p[*n].def, ItemDef::Input) || self.p.outputs.contains(n);
        let sum = |a: usize, &n: &NodeId| a.saturating_add(self.elements(n));
        let budget = self.p.order.iter().filter(|n| given(n)).fold(0, sum);
        (budget, memory.iter().filter(|n| !given(n)).fold(0, sum))
    }

    /// The division from which cutting starts: with nothing in memory that need not be, or with contractions there, which
    /// are added to `memory`. An error that is a division if neither can be: that without shared kernels.
    fn start(&mut self, memory: &mut BTreeSet<NodeId>) -> Result<Result<Division, Division>, PlanError> {
        const APART: &str = "small reductions through memory";
        const TOGETHER: &str = "nothing through memory that need not be";
        let apart = self.at_contractions(memory);
        let below = self.shop.known.hurries;
        let limit =
            apart.as_ref().map_or(f64::INFINITY, |a| a.1.seconds / WORTH_A_CUT).min(below.unwrap_or(f64::INFINITY));
        // After so much work a division is not begun whose kernels are the largest that there are.
        let ended = apart.is_some() && self.is_over();
        let together = if ended { Ok(None) } else { self.divide_below(memory, limit) };
        let (cut, apart) = match (together, apart) {
            (Ok(Some(together)), apart) if apart.is_none() || together.seconds <= limit => {
                self.seen.extend(apart.map(|a| (APART.to_string(), a.1)));
                self.seen.push((TOGETHER.to_string(), together.clone()));
                return Ok(Ok(together));
            }
            (together, Some((cut, mut apart))) => {
                let with = time(apart.seconds);
                let without = match together {
                    Ok(Some(together)) => {
                        let seconds = time(together.seconds);
                        self.seen.push((TOGETHER.to_string(), together));
                        seconds
                    }
                    Ok(None) if ended => "not looked at".to_string(),
                    Ok(None) => format!("more than {}", time(limit)),
                    Err(e) => e.to_string(),
                };
                apart
                    .note(&format!("small reductions go through memory: predicted {with} in all, {without} otherwise"));
                (cut, apart)
            }
            (Ok(_), None) => {
                let slower = |seconds| format!("it takes more than the {} of another form", time(seconds));
                let reason = below.map_or_else(|| "a kernel takes for ever".to_string(), slower);
                return Err(PlanError::unsupported(&self.p.name, reason));
            }
            (Err(e), None) => return self.unfused(&e).map(Err),
        };
        self.seen.push((APART.to_string(), apart.clone()));
        *memory = cut;
        Ok(Ok(apart))
    }

    /// Whether no more divisions are tried. It depends on what was looked at, not on a clock: plans are the same every time.
    fn is_over(&self) -> bool {
        let hurry = if self.shop.known.hurries.is_some() { HURRY } else { 1 };
        self.left == 0 || self.shop.work.tilings >= most_tilings(self.shop.machine) / hurry
    }

    /// What lost to this division: its kernels with other tiles, and other divisions.
    pub(crate) fn lost(&self, best: &Division) -> Vec<Lost> {
        let mut out = vec![];
        let chosen = Cost::of_all(best.kernels.iter().map(Rc::as_ref));
        // What lost to a kernel in parts lost to all of them, and the first tells it.
        let first = |k: &&Rc<Built>| k.part.as_ref().is_none_or(|p| p.place[0] == 0);
        for kernel in best.kernels.iter().filter(first) {
            let parts = best.kernels.iter().filter(|k| k.part.is_some() && k.roots == kernel.roots);
            let own = match kernel.part {
                Some(_) => Cost::of_all(parts.map(Rc::as_ref)),
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
            let cost = Cost::of_all(division.kernels.iter().map(Rc::as_ref));
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
        // A cut gains no more than the kernels take that compute the node.
        let worth = (1.0 - WORTH_A_CUT) * division.seconds;
        let gain = |n: &NodeId| -> f64 {
            division.kernels.iter().filter(|k| k.cone.computed.contains(n)).map(|k| k.cost.seconds).sum()
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

    fn elements(&self, n: NodeId) -> usize {
        self.p[n].extents.iter().fold(1usize, |a, &b| a.saturating_mul(b.max(1)))
    }

    /// The best kernel for these roots, if it takes less than `limit` seconds.
    fn build(&mut self, roots: &[NodeId], memory: &BTreeSet<NodeId>, limit: f64) -> Result<Rc<Built>, BuildError> {
        let cone = self.shop.cone(roots, memory).map_err(BuildError::Cone)?;
        let key = (roots.to_vec(), cone.loads.clone(), cone.computed.clone());
        match self.built.get(&key) {
            Some(Err(BuildError::Slower(least))) if *least < limit => {}
            Some(done) => return done.clone(),
            None => {}
        }
        self.left = self.left.saturating_sub(1);
        let result = self.shop.build(roots, cone, limit).map(Rc::new);
        self.built.insert(key, result.clone());
        result
    }

    /// Divides into kernels, given which nodes are in memory at least.
    fn divide(&mut self, memory: &BTreeSet<NodeId>) -> Result<Division, PlanError> {
        let found = self.divide_below(memory, f64::INFINITY)?;
        found.ok_or_else(|| PlanError::unsupported(&self.p.name, "a kernel takes for ever"))
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
        for nodes in self.together.iter().chain(&self.p.together).cloned().collect::<Vec<_>>() {
            let alone = |d: &&Vec<NodeId>| d.len() == 1 && nodes.contains(&d[0]);
            let roots: Vec<NodeId> = drafts.iter().filter(alone).flatten().copied().collect();
            // Where they cannot share a kernel they have one each.
            if roots.len() > 1
                && let Ok(kernel) = self.build(&roots, memory, limit)
            {
                drafts.retain(|d| !roots.contains(&d[0]));
                kernels.push(kernel);
            }
        }
        for d in &drafts {
            kernels.push(self.build(d, memory, limit)?);
        }
        let mut notes: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        for (&n, why) in &self.forced {
            notes.entry(n).or_default().push(why.clone());
        }
        if self.shop.options.fuse == Fusion::Auto {
            self.merge(&mut kernels, memory, &mut notes);
        }
        let kernels = ordered(kernels);
        let seconds = kernels.iter().map(|k| k.cost.seconds).sum();
        Ok(Division { kernels, seconds, notes })
    }

    /// Joins kernels that compute or read the same things, where the joint kernel is predicted to be faster.
    fn merge(
        &mut self,
        kernels: &mut Vec<Rc<Built>>,
        memory: &BTreeSet<NodeId>,
        notes: &mut BTreeMap<NodeId, Vec<String>>,
    ) {
        let mut refused: BTreeSet<(Vec<NodeId>, Vec<NodeId>)> = BTreeSet::new();
        let mut memory = memory.clone();
        while self.left > 0 {
            let mut joined = None;
            'pairs: for a in 0..kernels.len() {
                for b in a + 1..kernels.len() {
                    let key = (kernels[a].roots.clone(), kernels[b].roots.clone());
                    if refused.contains(&key) || !related(&kernels[a], &kernels[b]) || indirect(kernels, a, b) {
                        continue;
                    }
                    match self.join(kernels, a, b, &memory) {
                        Ok(k) => {
                            joined = Some((a, b, k));
                            break 'pairs;
                        }
                        Err(why) => {
                            if let Some(why) = why {
                                notes.entry(kernels[b].roots[0]).or_default().push(why);
                            }
                            refused.insert(key);
                        }
                    }
                }
            }
            let Some((a, b, kernel)) = joined else { return };
            // What the joint kernel no longer stores is in memory for nobody.
            let before = [kernels.remove(b), kernels[a].clone()];
            for n in before.iter().flat_map(|k| &k.roots).filter(|n| !kernel.roots.contains(n)) {
                memory.remove(n);
            }
            kernels[a] = kernel;
        }
    }

    /// The joint kernel if it is faster than the two; else why not, where that is worth telling.
    fn join(
        &mut self,
        kernels: &[Rc<Built>],
        a: usize,
        b: usize,
        memory: &BTreeSet<NodeId>,
    ) -> Result<Rc<Built>, Option<String>> {
        let mut roots: Vec<NodeId> = kernels[a].roots.iter().chain(&kernels[b].roots).copied().collect();
        // What nobody else reads need not be stored.
        let wanted = |n: &NodeId| {
            self.p.outputs.contains(n)
                || kernels.iter().enumerate().any(|(k, o)| k != a && k != b && o.cone.loads.contains(n))
        };
        let (kept, dropped): (Vec<NodeId>, Vec<NodeId>) = roots.iter().copied().partition(wanted);
        // Shares in one kernel with what joins them are no shares.
        if dropped.iter().any(|&n| self.p[n].stored) {
            return Err(None);
        }
        let inside: BTreeSet<NodeId> = match kept.is_empty() {
            true => memory.clone(),
            false => {
                roots = kept;
                memory.iter().copied().filter(|n| !dropped.contains(n)).collect()
            }
        };
        let names =
            |k: &Built| -> String { k.roots.iter().map(|&n| self.p[n].name.as_str()).collect::<Vec<_>>().join(", ") };
        let (one, other) = (names(&kernels[a]), names(&kernels[b]));
        let apart = kernels[a].cost.seconds + kernels[b].cost.seconds;
        let joint = match self.build(&roots, &inside, apart) {
            Ok(k) => k,
            Err(BuildError::Cone(_)) => return Err(None),
            Err(BuildError::Slower(least)) if least > apart => {
                let times = format!("predicted more than {} together, {} apart", time(least), time(apart));
                return Err(Some(format!("{one} and {other} stay apart: {times}")));
            }
            Err(BuildError::Slower(_)) => {
                let times = format!("{} apart, no less together as predicted", time(apart));
                return Err(Some(format!("{one} and {other} stay apart: {times}")));
            }
            Err(BuildError::Plan(e)) => {
                return Err(Some(format!("{one} and {other} stay apart: {}", e.reason)));
            }
        };
        if joint.cost.seconds < apart {
            return Ok(joint);
        }
        let times = format!("predicted {} together, {} apart", time(joint.cost.seconds), time(apart));
        Err(Some(format!("{one} and {other} stay apart: {times}")))
    }
}

/// Two kernels that compute a reduction both, or of which one reads what the other writes.
fn related(a: &Built, b: &Built) -> bool {
    let same = a.cone.folds.keys().any(|n| b.cone.folds.contains_key(n));
    same || reads(a, b) || reads(b, a)
}

/// Whether `a` reads what `b` writes.
fn reads(a: &Built, b: &Built) -> bool {
    b.roots.iter().any(|r| a.cone.loads.contains(r))
}

/// Whether one of the two needs the other through a third.
fn indirect(kernels: &[Rc<Built>], a: usize, b: usize) -> bool {
    let through = |from: usize, to: usize| {
        let mut todo: Vec<usize> =
            (0..kernels.len()).filter(|&k| k != from && k != to && reads(&kernels[k], &kernels[from])).collect();
        let mut seen = BTreeSet::new();
        while let Some(k) = todo.pop() {
            if reads(&kernels[to], &kernels[k]) {
                return true;
            }
            if seen.insert(k) {
                todo.extend((0..kernels.len()).filter(|&o| o != to && o != k && reads(&kernels[o], &kernels[k])));
            }
        }
        false
    };
    through(a, b) || through(b, a)
}

/// Kernels so that each reads only what earlier ones write.
fn ordered(mut left: Vec<Rc<Built>>) -> Vec<Rc<Built>> {
    let mut out: Vec<Rc<Built>> = vec![];
    while !left.is_empty() {
        let ready = left.iter().position(|k| !left.iter().any(|o| !Rc::ptr_eq(o, k) && reads(k, o)));
        out.push(left.remove(ready.unwrap_or(0)));
    }
    out
}
