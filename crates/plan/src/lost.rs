//! Plans that were worked out and not taken, each with the resource that loses it the race.

use crate::Plan;
use crate::build::{Built, time};
use crate::gpu::KEPT;
use einloom_model::{Depth, OnGpu};

/// A plan that was worked out and not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// How it differs from the one taken: other tiles, other kernels, another form of the program.
    pub what: String,
    /// Predicted time of all its kernels, launches included.
    pub seconds: f64,
    /// What bounds the kernel in which it differs, or the longest of several.
    pub bound_by: String,
    /// Which resource is busy for longer than in the plan taken, and by how much.
    pub reason: String,
}

/// What a kernel's predicted time is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub seconds: f64,
    pub bound_by: String,
    /// How long each resource is busy.
    pub parts: Vec<(String, f64)>,
}

impl Cost {
    /// Whether nothing was counted of the kernel but its arithmetic, which takes too long.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.seconds == f64::INFINITY && self.parts.is_empty()
    }

    /// The costs of kernels that run one after the other.
    pub(crate) fn of_all<'a>(all: impl Iterator<Item = &'a Built>) -> Self {
        let (mut sum, mut longest) = (Self::default(), 0.0);
        for built in all {
            let cost = &built.cost;
            sum.seconds += cost.seconds;
            for (name, seconds) in &cost.parts {
                match sum.parts.iter_mut().find(|p| p.0 == *name) {
                    Some(part) => part.1 += seconds,
                    None => sum.parts.push((name.clone(), *seconds)),
                }
            }
            if cost.seconds > longest {
                (longest, sum.bound_by) = (cost.seconds, cost.bound_by.clone());
            }
        }
        sum
    }

    /// Why something of this cost loses to something of that one.
    pub(crate) fn reason(&self, chosen: &Cost) -> String {
        let more = |(name, seconds): &(String, f64)| {
            let own = chosen.parts.iter().find(|p| p.0 == *name).map_or(0.0, |p| p.1);
            (seconds - own, name.clone(), *seconds, own)
        };
        let most = self.parts.iter().map(more).reduce(|a, b| if b.0 > a.0 { b } else { a });
        let slower = (self.seconds / chosen.seconds - 1.0) * 100.0;
        let by = if slower >= 10.0 { format!("{slower:.0} %") } else { format!("{slower:.1} %") };
        match most {
            _ if slower <= 0.0 => {
                "as fast as the model can tell: the one taken has fewer streams or rounder tiles".to_string()
            }
            Some((difference, name, seconds, own)) if difference > 0.0 => {
                format!("{by} slower: {name} is busy for {}, as chosen {}", time(seconds), time(own))
            }
            _ => format!("{by} slower: no resource has more to do, but less overlaps"),
        }
    }
}

impl Lost {
    /// A plan in which one kernel has other tiles. `total` is the time of the plan taken.
    pub(crate) fn tiles(total: f64, kernel: &str, chosen: &Cost, tiles: &str, other: &Cost) -> Self {
        Self {
            what: format!("{kernel} with tiles {tiles}"),
            seconds: total - chosen.seconds + other.seconds,
            bound_by: other.bound_by.clone(),
            reason: other.reason(chosen),
        }
    }
}

/// The depths of a kernel's pipelines that were worked out: those that take longer as plans that lost, and all as a note.
/// `total` is the time of the plan taken, `chosen` that of the kernel.
pub(crate) fn depths(total: f64, kernel: &str, chosen: &OnGpu) -> Vec<Lost> {
    let slower = |d: &&Depth| d.seconds > chosen.seconds * (1.0 + 1e-9);
    let one = |d: &Depth| {
        let by = (d.seconds / chosen.seconds - 1.0) * 100.0;
        let why = match d.blocks < chosen.blocks {
            true => format!("its stages leave room for {} blocks a core, as chosen {}", d.blocks, chosen.blocks),
            false => "fewer chunks are under way, and what is waited for shows".to_string(),
        };
        Lost {
            what: format!("{kernel} in {}", stages(d.stages)),
            seconds: total - chosen.seconds + d.seconds,
            bound_by: "latency".to_string(),
            reason: format!("{by:.1} % slower: {why}"),
        }
    };
    chosen.depths.iter().filter(slower).map(one).collect()
}

/// What each depth takes, for people; nothing where there is no choice.
pub(crate) fn depths_note(chosen: &OnGpu) -> Option<String> {
    let one = |d: &Depth| match d.seconds > chosen.seconds * (1.0 + 1e-9) {
        true => format!("{} {}", d.stages, time(d.seconds)),
        false => format!("{} as fast", d.stages),
    };
    let others: Vec<String> = chosen.depths.iter().map(one).collect();
    let taken = || format!("{}: {}", stages(chosen.stages), time(chosen.seconds));
    (!others.is_empty()).then(|| format!("depth {}; {}", taken(), others.join(", ")))
}

fn stages(count: usize) -> String {
    format!("{count} stage{}", if count == 1 { "" } else { "s" })
}

/// Sorted, each once, no more than `count`.
pub(crate) fn best(mut all: Vec<Lost>, count: usize) -> Vec<Lost> {
    all.retain(|l| l.seconds.is_finite());
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then_with(|| a.what.cmp(&b.what)));
    all.dedup_by(|a, b| a.what == b.what);
    all.truncate(count);
    all
}

impl Plan {
    /// This plan as one that lost.
    pub(crate) fn as_lost(&self, what: String) -> Lost {
        let longest = self.kernels.iter().reduce(|a, b| if b.seconds > a.seconds { b } else { a });
        let bound_by = longest.map_or_else(String::new, |k| k.bound_by.clone());
        Lost { what, seconds: self.seconds, bound_by, reason: String::new() }
    }

    /// Adds plans that lost to this one. Where they do not tell why, the longest kernels are what differs.
    pub(crate) fn lose(&mut self, others: impl IntoIterator<Item = Lost>) {
        let slower = |l: &Lost| {
            let by = (l.seconds / self.seconds - 1.0) * 100.0;
            if by < 10.0 { format!("{by:.1} % slower") } else { format!("{by:.0} % slower") }
        };
        let told = |l: Lost| match l.reason.is_empty() {
            true => Lost { reason: format!("{}, its longest kernel being bound by {}", slower(&l), l.bound_by), ..l },
            false => l,
        };
        let told: Vec<Lost> = others.into_iter().map(told).collect();
        self.lost.extend(told);
        self.lost = best(std::mem::take(&mut self.lost), KEPT);
    }
}
