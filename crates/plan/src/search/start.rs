//! From which division the search for better ones begins.
//!
//! With nothing in memory that need not be, or with contractions there: where they follow each other none gains by a cut of its own before
//! its neighbours are cut too. What goes through memory by choice is limited, so that scores of attention, which are many and cheap to make
//! again, do not: to as many elements as inputs and outputs have, a contraction's to as many as it reads. Results of a wide layer on many rows are more
//! than that, and dear to make again; so the limits are tried [`ROOMIER`] times as wide as well, and kept so where that is predicted to gain what a
//! cut must.

use super::{Division, Search, WORTH_A_CUT, time};
use crate::PlanError;
use crate::cuts::is_contraction;
use crate::facts::Facts;
use crate::problem::ItemDef;
use einloom_algebra::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// How many times as wide limits are tried.
const ROOMIER: usize = 4;

/// How many times longer kernels are looked at that may leave cores idle: 16 points of 132 cores can gain as much in shares.
const IDLE: f64 = 8.0;

const SMALL: &str = "small reductions through memory";
const LARGE: &str = "larger reductions through memory as well";
const TOGETHER: &str = "nothing through memory that need not be";

/// What is asked to go through memory where contractions do, and the sets of which those that are there begin in one kernel.
struct Asked {
    cut: BTreeSet<NodeId>,
    together: Vec<BTreeSet<NodeId>>,
}

/// A division with contractions in memory.
struct Start {
    /// What is there.
    memory: BTreeSet<NodeId>,
    division: Division,
}

impl Search<'_> {
    /// Elements that may go through memory by choice, and those that do.
    pub(super) fn room(&self, memory: &BTreeSet<NodeId>) -> (usize, usize) {
        let given = |n: &NodeId| matches!(self.p[*n].def, ItemDef::Input) || self.p.outputs.contains(n);
        let sum = |a: usize, &n: &NodeId| a.saturating_add(self.elements(n));
        let budget = self.p.order.iter().filter(|n| given(n)).fold(0, sum);
        // What waits for its reader is a few at a time.
        let times = if self.room > 1 { 2 * self.room } else { 1 };
        // States of shares are not a choice of what is stored, nor is what is stored however the program is divided.
        let forced = |n: &NodeId| self.p[*n].stored || matches!(self.p[*n].def, ItemDef::Iterative(_));
        let chosen = |n: &&NodeId| !given(n) && !forced(n) && !self.p.partial_of.contains_key(n);
        (budget.saturating_mul(times), memory.iter().filter(chosen).fold(0, sum))
    }

    /// Adds to `memory` the factors that are completed before they are multiplied, as far as there is room. Kernels are joined
    /// where they are faster together.
    pub(super) fn begin_with_completed(&self, memory: &mut BTreeSet<NodeId>) {
        for &n in &self.p.completed {
            let (budget, spent) = self.room(memory);
            if spent.saturating_add(self.elements(n)) <= budget {
                memory.insert(n);
            }
        }
    }

    /// The division from which cutting starts, whose contractions in memory are added to `memory`. An error that is a division if there is none:
    /// that without shared kernels.
    pub(super) fn start(&mut self, memory: &mut BTreeSet<NodeId>) -> Result<Result<Division, Division>, PlanError> {
        let apart = self.apart(memory);
        let below = self.shop.known.hurries;
        let limit = apart
            .as_ref()
            .map_or(f64::INFINITY, |a| a.division.seconds / WORTH_A_CUT)
            .min(below.unwrap_or(f64::INFINITY));
        // After so much work a division is not begun whose kernels are the largest that there are.
        let ended = apart.is_some() && self.has_done(2);
        // What leaves cores idle may be the best in shares.
        let shares = self.shop.machine.lanes.is_some() && self.shop.options.shares.is_none() && below.is_none();
        let reach = if shares { IDLE * limit } else { limit };
        let together = if ended { Ok(None) } else { self.divide_below(memory, reach) };
        let what = if self.room > 1 { LARGE } else { SMALL };
        let (cut, apart) = match (together, apart) {
            (Ok(Some(together)), apart) if apart.is_none() || together.seconds <= limit => {
                self.room = 1;
                self.seen.extend(apart.map(|a| (what.to_string(), a.division)));
                self.seen.push((TOGETHER.to_string(), together.clone()));
                return Ok(Ok(together));
            }
            (together, Some(Start { memory, division: mut apart, .. })) => {
                let with = time(apart.seconds);
                let without = match together {
                    Ok(Some(together)) => {
                        let seconds = time(together.seconds);
                        self.seen.push((TOGETHER.to_string(), together));
                        seconds
                    }
                    Ok(None) if ended => "not looked at".to_string(),
                    Ok(None) => format!("more than {}", time(reach)),
                    Err(e) => e.to_string(),
                };
                let which = if self.room > 1 { "large" } else { "small" };
                apart.note(&format!(
                    "{which} reductions go through memory: predicted {with} in all, {without} otherwise"
                ));
                (memory, apart)
            }
            (Ok(_), None) => {
                let slower = |seconds| format!("it takes more than the {} of another form", time(seconds));
                let reason = below.map_or_else(|| "a kernel takes for ever".to_string(), slower);
                return Err(PlanError::unsupported(&self.p.name, reason));
            }
            (Err(e), None) => return self.unfused(&e).map(Err),
        };
        self.seen.push((what.to_string(), apart.clone()));
        *memory = cut;
        Ok(Ok(apart))
    }

    /// The better one of the divisions with contractions in memory: within the limits, or where that gains enough within wider ones. The wider
    /// ones are looked at first: what does not go through memory is computed again, in kernels that take longest to write, and of these no more
    /// is looked at than may win.
    fn apart(&mut self, memory: &BTreeSet<NodeId>) -> Option<Start> {
        let below = self.shop.known.hurries.unwrap_or(f64::INFINITY);
        let small = self.at_contractions(memory);
        self.room = ROOMIER;
        let large = self.at_contractions(memory).filter(|l| small.as_ref().is_none_or(|s| s.cut != l.cut));
        let large = large.and_then(|l| self.begin_at(memory, l, below));
        let limit = large.as_ref().map_or(below, |l| below.min(l.division.seconds / WORTH_A_CUT));
        let small = small.and_then(|s| self.begin_at(memory, s, limit));
        let limit = small.as_ref().map_or(f64::INFINITY, |s| WORTH_A_CUT * s.division.seconds);
        match large {
            Some(large) if large.division.seconds <= limit => {
                self.seen.extend(small.map(|s| (SMALL.to_string(), s.division)));
                Some(large)
            }
            large => {
                self.room = 1;
                self.seen.extend(large.map(|l| (LARGE.to_string(), l.division)));
                small
            }
        }
    }

    /// The reductions that go through memory whose results are no larger than what they read, or than as many times of it as there is
    /// room, contractions among them. Those that need the same contraction which is larger begin in one kernel, and
    /// so do states of one vector. `None` if no contraction is small enough.
    ///
    /// Where contractions follow each other none gains by a cut of its own before its neighbours are cut too, so that
    /// cutting one at a time does not arrive here.
    fn at_contractions(&mut self, memory: &BTreeSet<NodeId>) -> Option<Asked> {
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
            let needs = self.p.needed(n);
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
            let stored = memory.contains(&n)
                || fold.is_some() && self.elements(n) <= read.saturating_mul(self.room) && after <= budget;
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
        let together = std::mem::take(&mut self.together);
        follows.then_some(Asked { cut, together })
    }

    /// The division with this in memory, and with what is in memory then; `None` if one has no kernel, or some kernel alone takes as long as `limit`.
    fn begin_at(&mut self, memory: &BTreeSet<NodeId>, asked: Asked, limit: f64) -> Option<Start> {
        let Asked { cut, together } = asked;
        self.together = together;
        let division = self.divide_below(&cut, limit).ok().flatten();
        self.together.clear();
        let division = division?;
        let stored: BTreeSet<NodeId> = division.kernels.iter().flat_map(|k| k.roots.iter().copied()).collect();
        let memory = memory.union(&cut.intersection(&stored).copied().collect()).copied().collect();
        Some(Start { memory, division })
    }

    /// Where an elementwise function of contractions is all that anybody reads of them, and a contraction multiplies it, it goes
    /// through memory in their place: it is read once for every tile of the products, and is one array.
    fn store_what_is_multiplied(&self, small: &BTreeSet<NodeId>, cut: &mut BTreeSet<NodeId>) {
        let readers = |n: NodeId| self.p.order.iter().copied().filter(move |&m| self.p.needed(m).contains(&n));
        for &n in self.p.order.iter().filter(|n| matches!(self.p[**n].def, ItemDef::Map(_))) {
            if cut.contains(&n) || !readers(n).all(|m| matches!(self.p[m].def, ItemDef::Fold(_))) {
                continue;
            }
            // All pointwise nodes between the contractions and this one, and the contractions with its axes.
            let (mut inside, mut replaced) = (BTreeSet::from([n]), BTreeSet::new());
            let mut todo = vec![n];
            while let Some(k) = todo.pop() {
                for &m in self.p.needed(k) {
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
}
