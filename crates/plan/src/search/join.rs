//! Which kernels of a division are one: those that compute or read the same things, where the joint kernel is predicted to be faster.

use super::{Search, time};
use crate::build::{BuildError, Built};
use crate::drawn::Draw;
use crate::frame::Memory;
use einloom_algebra::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Times what two kernels take apart: a joint kernel that seems slower than that is not looked at in all ways. Of five plans of a layer three were predicted to take 1 to 28 % longer
/// with 1.1, two with 1.15 (1 and 24 %), and none with 1.3, nor any of 450 others.
const NEARLY: f64 = 1.3;

/// Of so many kernels at most pairs that gain are also compared before one is joined: of more each joins the first with which it gains. A plan of a layer with
/// all pairs compared wrote 60 % more kernels down, and was predicted to take 0.9 % longer.
const MOST_COMPARED: usize = 4;

impl Search<'_> {
    /// Joins kernels that compute or read the same things, where the joint kernel is predicted to be faster; of a few in two orders.
    pub(super) fn merge(
        &mut self,
        kernels: &mut Vec<Arc<Built>>,
        memory: &BTreeSet<NodeId>,
        notes: &mut BTreeMap<NodeId, Vec<String>>,
    ) {
        let few = self.looks_at_few() && (3..=MOST_COMPARED).contains(&kernels.len());
        let mut other = few.then(|| (kernels.clone(), notes.clone()));
        self.merge_first(kernels, memory, notes, false);
        if let Some((others, told)) = &mut other {
            self.merge_first(others, memory, told, true);
            let seconds = |all: &[Arc<Built>]| all.iter().map(|k| k.cost.seconds).sum::<f64>();
            if seconds(others) < seconds(kernels) {
                (*kernels, *notes) = (std::mem::take(others), std::mem::take(told));
            }
        }
    }

    /// The same in one order: first pairs that gain `most` of those that share a kernel, or as they come.
    fn merge_first(
        &mut self,
        kernels: &mut Vec<Arc<Built>>,
        memory: &BTreeSet<NodeId>,
        notes: &mut BTreeMap<NodeId, Vec<String>>,
        most: bool,
    ) {
        let mut refused: BTreeSet<BTreeSet<Vec<NodeId>>> = BTreeSet::new();
        let pair = |a: &Built, b: &Built| BTreeSet::from([a.roots.clone(), b.roots.clone()]);
        let mut memory = memory.clone();
        while self.left > 0 {
            let pairs = (0..kernels.len()).flat_map(|a| (a + 1..kernels.len()).map(move |b| (a, b)));
            let pairs: Vec<(usize, usize)> = pairs.collect();
            let mut joined: Option<(usize, usize, Arc<Built>)> = None;
            let mut gain = 0.0;
            for (a, b) in pairs {
                // Of two pairs that gain and share a kernel only one can be joined.
                let rivals = |j: &(usize, usize, Arc<Built>)| [j.0, j.1].iter().any(|k| *k == a || *k == b);
                let key = pair(&kernels[a], &kernels[b]);
                if !joined.as_ref().is_none_or(rivals)
                    || refused.contains(&key)
                    || !related(&kernels[a], &kernels[b])
                    || indirect(kernels, a, b)
                {
                    continue;
                }
                match self.join(kernels, a, b, &memory) {
                    Ok(k) => {
                        let gains = kernels[a].cost.seconds + kernels[b].cost.seconds - k.cost.seconds;
                        if joined.is_none() || gains > gain {
                            (joined, gain) = (Some((a, b, k)), gains);
                        }
                        if !most {
                            break;
                        }
                    }
                    Err(why) => {
                        if let Some(why) = why {
                            notes.entry(kernels[b].roots[0]).or_default().push(why);
                        }
                        refused.insert(key);
                    }
                }
            }
            let Some((a, b, kernel)) = joined else { break };
            // What the joint kernel no longer stores is in memory for nobody.
            let before = [kernels.remove(b), kernels[a].clone()];
            for n in before.iter().flat_map(|k| &k.roots).filter(|n| !kernel.roots.contains(n)) {
                memory.remove(n);
            }
            // Of two that do not read each other the joint kernel saves what both compute or read. What gained so with neither of the two does
            // not with both.
            for (_, other) in kernels.iter().enumerate().filter(|(k, _)| *k != a) {
                let refused_by = |k: &Arc<Built>| refused.contains(&pair(k, other));
                if before.iter().all(refused_by) && !reads(&kernel, other) && !reads(other, &kernel) {
                    refused.insert(pair(&kernel, other));
                }
            }
            kernels[a] = kernel;
        }
        // Joint kernels were looked at in some ways only.
        for kernel in kernels.iter_mut() {
            if !self.looks_at_few() {
                break;
            }
            let better = self.build(&kernel.roots, &memory, kernel.cost.seconds, &[]);
            if let Ok(better) = better
                && better.cost.seconds < kernel.cost.seconds
            {
                *kernel = better;
            }
        }
    }

    /// Whether joint kernels are first looked at in a few ways: where tiles are searched for each.
    fn looks_at_few(&self) -> bool {
        self.shop.machine.lanes.is_none() && Memory::of(self.shop.machine).is_some()
    }

    /// The joint kernel if it is faster than the two; else why not, where that is worth telling.
    fn join(
        &mut self,
        kernels: &[Arc<Built>],
        a: usize,
        b: usize,
        memory: &BTreeSet<NodeId>,
    ) -> Result<Arc<Built>, Option<String>> {
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
        if let Some(draw) = Draw::of(self.shop.options) {
            let joined =
                if draw.joins(&one, &other) { self.build(&roots, &inside, f64::INFINITY, &[]).ok() } else { None };
            return joined.ok_or(None);
        }
        let apart = kernels[a].cost.seconds + kernels[b].cost.seconds;
        let like = [&kernels[a].kernel, &kernels[b].kernel];
        let near = |k: &Arc<Built>| k.cost.seconds >= apart && k.cost.seconds < NEARLY * apart;
        let joint = match self.looks_at_few() {
            true => match self.build(&roots, &inside, NEARLY * apart, &like) {
                Ok(k) if near(&k) => self.build(&roots, &inside, apart, &[]),
                seen => seen,
            },
            false => self.build(&roots, &inside, apart, &[]),
        };
        let joint = match joint {
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
pub(super) fn reads(a: &Built, b: &Built) -> bool {
    b.roots.iter().any(|r| a.cone.loads.contains(r))
}

/// Whether one of the two needs the other through a third.
fn indirect(kernels: &[Arc<Built>], a: usize, b: usize) -> bool {
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
