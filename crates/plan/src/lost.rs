//! Plans that were worked out and not taken, each with the resource that loses it the race.

use crate::Plan;
use crate::build::{Built, time};
use crate::gpu::KEPT;
use einloom_model::{Depth, OnGpu};

/// Parts of a time that sums of times differ by without meaning it.
const ROUNDING: f64 = 1e-9;

/// A plan that was worked out and not taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// How it differs from the one taken: other tiles, other kernels, another form of the program.
    pub what: String,
    /// Predicted time of all its kernels, launches included.
    pub seconds: f64,
    /// What bounds the kernel in which it differs, or the longest of several.
    pub bound_by: String,
    /// Which resource is busy for longer than in the plan taken, and by how much: of all kernels, as the time is.
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

    /// The same with something of `other` in place of something of `own`.
    pub(crate) fn with(&self, own: &Cost, other: &Cost) -> Self {
        let mut parts = self.parts.clone();
        for (name, seconds) in &other.parts {
            if parts.iter().all(|p| p.0 != *name) && *seconds > 0.0 {
                parts.push((name.clone(), 0.0));
            }
        }
        for (name, seconds) in &mut parts {
            let of = |cost: &Cost| cost.parts.iter().find(|p| p.0 == *name).map_or(0.0, |p| p.1);
            *seconds += of(other) - of(own);
        }
        Self { seconds: self.seconds - own.seconds + other.seconds, bound_by: other.bound_by.clone(), parts }
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
            _ if slower <= ROUNDING => {
                "as fast as the model can tell: the one taken has fewer streams or rounder tiles".to_string()
            }
            Some((difference, name, seconds, own)) if difference > ROUNDING * own => {
                format!("{by} slower: {name} is busy for {}, as chosen {}", time(seconds), time(own))
            }
            _ => format!("{by} slower: no resource has more to do, but less overlaps"),
        }
    }
}

impl Lost {
    /// A plan in which one kernel, of `own` cost in the plan taken, costs something else. `taken` is what the plan taken costs in all.
    pub(crate) fn kernel(taken: &Cost, what: String, own: &Cost, other: &Cost) -> Self {
        let whole = taken.with(own, other);
        Self { what, seconds: whole.seconds, reason: whole.reason(taken), bound_by: whole.bound_by }
    }
}

/// The depths of a kernel's pipelines that were worked out: those that take longer as plans that lost, and all as a note.
/// `total` is the time of the plan taken, launches included, `chosen` that of the kernel.
pub(crate) fn depths(total: f64, kernel: &str, chosen: &OnGpu) -> Vec<Lost> {
    let slower = |d: &&Depth| d.seconds > chosen.seconds * (1.0 + 1e-9);
    let one = |d: &Depth| {
        let seconds = total - chosen.seconds + d.seconds;
        let by = (seconds / total - 1.0) * 100.0;
        let why = match d.blocks < chosen.blocks {
            true => format!("its stages leave room for {} blocks a core, as chosen {}", d.blocks, chosen.blocks),
            false => "fewer chunks are under way, and what is waited for shows".to_string(),
        };
        Lost {
            what: format!("{kernel} in {}", stages(d.stages)),
            seconds,
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

impl Built {
    /// Its time if of tiles that are about as fast it had the fastest.
    pub(crate) fn fastest(&self) -> f64 {
        // The others of a part are of the whole.
        let others = self.others.iter().filter(|_| self.part.is_none());
        others.map(|o| o.1.seconds).fold(self.cost.seconds, f64::min)
    }
}

impl Plan {
    /// The least time of a plan that was worked out, this one or one that lost to it for another reason than its time.
    pub(crate) fn fastest(&self) -> f64 {
        self.lost.iter().map(|l| l.seconds).fold(self.least_seconds, f64::min)
    }

    /// This plan as one that lost.
    pub(crate) fn as_lost(&self, what: String) -> Lost {
        let longest = self.kernels.iter().reduce(|a, b| if b.seconds > a.seconds { b } else { a });
        let bound_by = longest.map_or_else(String::new, |k| k.bound_by.clone());
        Lost { what, seconds: self.seconds, bound_by, reason: String::new() }
    }

    /// Adds plans that lost to this one. Where they do not tell why, the longest kernels are what differs.
    pub(crate) fn lose(&mut self, others: impl IntoIterator<Item = Lost>) {
        let by = |l: &Lost| (l.seconds / self.seconds - 1.0) * 100.0;
        let told = |l: Lost| {
            let why = match by(&l) {
                _ if !l.reason.is_empty() => return l,
                by if by.abs() < 0.05 => "as fast as predicted".to_string(),
                by if by < 0.0 => format!("predicted {:.1} % faster, less than makes the model sure", -by),
                by if by < 10.0 => format!("{by:.1} % slower"),
                by => format!("{by:.0} % slower"),
            };
            Lost { reason: format!("{why}, its longest kernel being bound by {}", l.bound_by), ..l }
        };
        let told: Vec<Lost> = others.into_iter().map(told).collect();
        self.lost.extend(told);
        self.lost = best(std::mem::take(&mut self.lost), KEPT);
    }
}
