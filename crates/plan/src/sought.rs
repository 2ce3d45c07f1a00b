//! Ways to write a kernel, and the search for their tiles: a glance at each, a first look at those that are not far behind, and a search
//! to the end of those that may be best. What is found is kept by the kernel's text.

use crate::Work;
use crate::build::Workshop;
use crate::frame::{CLOSE, FAR, Frame, HOPELESS, Memory};
use crate::gpu::KEPT;
use crate::known::{SearchKey, Searched, Searches, Tiles, unnamed};
use crate::program::program_of;
use crate::ways::Way;
use einloom_model::{Held, of_each};
use einloom_tile::{AxisId, Kernel, Program};
use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A way to write a kernel, whose tiles are to be found.
pub(crate) struct Sought {
    pub way: Way,
    key: SearchKey,
    /// Whether another with the same text is before it.
    again: bool,
    program: Program,
    axes: Vec<Vec<AxisId>>,
    /// What is counted of it is kept from one look to the next.
    frame: Mutex<Option<Frame>>,
    /// The work of a first look at it in this search.
    looked: Option<Work>,
}

impl Sought {
    fn look<T>(&self, held: Option<&Arc<Held>>, look: impl FnOnce(&mut Frame) -> T) -> T {
        let new = || {
            let (program, axes) = (self.program.clone(), self.axes.clone());
            match held {
                Some(held) => Frame::with(program, axes, held.clone()),
                None => Frame::new(program, axes),
            }
        };
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        look(frame.get_or_insert_with(new))
    }
}

impl Workshop<'_> {
    /// Adds ways to those whose tiles are sought, with a glance at each: with tiles of one size. Bytes that each of the new ones moves so, if it fits.
    pub(crate) fn glance_at(
        &mut self,
        sought: &mut Vec<Sought>,
        ways: Vec<Way>,
        memory: Memory<'_>,
        limit: f64,
    ) -> Vec<Option<u64>> {
        let before = sought.len();
        let programs: Vec<(Program, Vec<Vec<AxisId>>)> = ways
            .iter()
            .map(|(tried, free)| {
                let program = program_of(self.p, self.x, self.types, vec![tried.kernel.clone()]);
                (program, free.iter().map(|&i| axes_of(&tried.kernel, &self.p[i].name)).collect())
            })
            .collect();
        let keys = of_each(&programs, |(program, axes)| unnamed(&mut program.clone(), axes));
        for ((way, (program, axes)), text) in ways.into_iter().zip(programs).zip(keys) {
            let key = (text, limit.is_finite(), self.thorough);
            let again = sought.iter().any(|s| s.key == key);
            sought.push(Sought { way, key, again, program, axes, frame: Mutex::default(), looked: None });
        }
        let searches = |s: &Sought| self.known.searches.get(&s.key);
        let unknown = |s: &&Sought| !s.again && searches(s).is_none_or(|s| s.glance.is_none() && s.whole.is_none());
        let new: Vec<&Sought> = sought[before..].iter().filter(unknown).collect();
        let glances = of_each(&new, |s| s.look(None, |frame| (frame.glance(memory), frame.held.clone())));
        for (s, (glance, held)) in new.into_iter().zip(glances) {
            let searches = self.known.searches.entry(s.key.clone()).or_default();
            searches.held = Some(held);
            match glance {
                Ok(bytes) => searches.glance = Some(bytes),
                Err(elements) => searches.whole = Some(Searched { tiles: Err(elements), work: Work::default() }),
            }
        }
        sought[before..].iter().map(|s| self.searches(s)?.glance).collect()
    }

    fn searches(&self, sought: &Sought) -> Option<&Searches> {
        self.known.searches.get(&sought.key)
    }

    /// The best tilings of each way with the indices whose tiles are free, after a glance at each; if none fits, how many elements its
    /// smallest tiles take.
    pub(crate) fn best_tiles(&mut self, sought: &mut [Sought], memory: Memory<'_>, limit: f64) -> Vec<Searched> {
        let (limit, thorough) = (limit * memory.bandwidth(), self.thorough);
        let glance = |shop: &Self, s: &Sought| shop.searches(s).and_then(|s| s.glance);
        // What moves far more than the best at a glance is not looked at, and what does after a look not searched to the end.
        let near = sought.iter().filter_map(|s| glance(self, s)).min().map_or(u64::MAX, |b| b.saturating_mul(FAR));
        let far: Vec<bool> = sought.iter().map(|s| glance(self, s).is_some_and(|bytes| bytes > near)).collect();
        let open = |shop: &Self, s: &Sought, far: bool| {
            !s.again && !far && glance(shop, s).is_some() && shop.searches(s).is_some_and(|s| s.whole.is_none())
        };
        let unknown: Vec<usize> = (0..sought.len()).filter(|&k| open(self, &sought[k], far[k])).collect();
        let new = |&k: &usize| self.searches(&sought[k]).is_none_or(|s| s.first.is_none());
        let new: Vec<usize> = unknown.iter().copied().filter(new).collect();
        let held = |s: &Sought| self.searches(s).and_then(|s| s.held.as_ref());
        let looks = of_each(&new, |&k| sought[k].look(held(&sought[k]), |frame| frame.look(memory, thorough)));
        for (k, look) in new.into_iter().zip(looks) {
            let searches = self.known.searches.entry(sought[k].key.clone()).or_default();
            match look {
                Ok(looked) => {
                    searches.first = Some(looked.bytes);
                    sought[k].looked = Some(looked.work);
                }
                Err(elements) => searches.whole = Some(Searched { tiles: Err(elements), work: Work::default() }),
            }
        }
        let first = |k: usize| self.searches(&sought[k]).and_then(|s| s.first);
        let beside = (0..sought.len()).filter(|&k| !far[k]);
        let best = beside.filter_map(first).min().map_or(f64::INFINITY, |bytes| CLOSE * bytes as f64);
        let hopeless = best.min(HOPELESS * limit);
        let unknown: Vec<(usize, bool)> = unknown
            .into_iter()
            .filter(|&k| self.searches(&sought[k]).is_none_or(|s| s.below(hopeless).is_none()))
            .map(|k| (k, first(k).is_some_and(|bytes| bytes as f64 > hopeless)))
            .collect();
        let held = |s: &Sought| self.searches(s).and_then(|s| s.held.as_ref());
        let found = of_each(&unknown, |&(k, ends)| {
            let s = &sought[k];
            s.look(held(s), |frame| search(frame, memory, ends, thorough, s.looked))
        });
        for ((k, ends), found) in unknown.into_iter().zip(found) {
            let searches = self.known.searches.entry(sought[k].key.clone()).or_default();
            if ends { searches.ended = Some(found) } else { searches.whole = Some(found) }
        }
        let nothing = || Searched { tiles: Ok(vec![]), work: Work::default() };
        let found = |(s, far): (&Sought, &bool)| match far {
            true => nothing(),
            false => self.searches(s).and_then(|s| s.below(hopeless)).cloned().unwrap_or_else(nothing),
        };
        sought.iter().zip(&far).map(found).collect()
    }
}

/// The best tiles. Nothing beyond a first look is done if the search `ends` with it.
fn search(frame: &mut Frame, memory: Memory<'_>, ends: bool, thorough: bool, looked: Option<Work>) -> Searched {
    let first = looked.map_or_else(|| frame.look(memory, thorough).map(|looked| looked.work), Ok);
    let mut work = match first {
        Ok(work) => work,
        Err(elements) => return Searched { tiles: Err(elements), work: Work::default() },
    };
    if ends {
        work.pruned += 1;
    } else if let Err(elements) = frame.descend(memory, thorough, &mut work) {
        return Searched { tiles: Err(elements), work };
    }
    let known = std::mem::take(&mut frame.known);
    let least = known.values().min().copied().unwrap_or(0);
    let mut all: Vec<(u64, Seconds, Vec<usize>)> = vec![];
    for (sizes, bytes) in known {
        // What moves more is not chosen for what it computes.
        let computing = match bytes == least {
            true => {
                frame.put(&sizes);
                frame.computing(memory.machine)
            }
            false => 0.0,
        };
        all.push((bytes, Seconds(computing, 0.0), sizes));
    }
    all.sort();
    all.truncate(KEPT);
    let found = |(bytes, computing, sizes): (u64, Seconds, Vec<usize>)| {
        frame.put(&sizes);
        let cost = frame.outside(memory.machine);
        Tiles { sizes, cost, computing: (bytes == least).then_some(computing.0) }
    };
    Searched { tiles: Ok(all.into_iter().map(found).collect()), work }
}

/// Times, of which the second counts where the first are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seconds(pub f64, pub f64);

impl Eq for Seconds {}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The axes that loop over an index.
pub(crate) fn axes_of(kernel: &Kernel, index: &str) -> Vec<AxisId> {
    let all = kernel.axes.iter().enumerate().filter(|(_, a)| a.name == index);
    all.map(|(k, _)| AxisId(k as u32)).collect()
}
