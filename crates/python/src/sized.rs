//! Kernels for many sizes: on a GPU they share code where their sources differ in sizes only.

use crate::failure::Failure;
use crate::prepare::{self, Choices, Extra};
use crate::signature::{Place, Signature};
use einloom::{PlanOptions, Planned};
use einloom_cascade::Cascade;
use einloom_cuda::runtime::Family;
use einloom_plan::Merging;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Tiles by index, and numbers of shares; none for the planner's choice.
type Class = (BTreeMap<String, usize>, Option<BTreeMap<String, usize>>);

/// What kernels of one program, number types and place share.
#[derive(Debug, Default)]
pub(crate) struct Sized {
    /// Their code on a GPU.
    pub family: Mutex<Family>,
    /// Tiles of the size classes so far, and numbers of shares, newest first.
    classes: Mutex<VecDeque<Class>>,
}

/// As much slower than the planner's best, by its own prediction, may a plan be that needs no new code.
const SLOWER: f64 = 1.15;
/// Classes whose tiles are tried.
const TRIED: usize = 4;

impl Sized {
    /// A plan: the planner's best, or one with the tiles of a size class that is there, where that is predicted to take
    /// little longer. Only for GPUs, where code is compiled.
    pub fn plan(
        &self,
        cascade: &Cascade,
        signature: &Signature,
        choices: &Choices,
        extra: &Extra,
        merge: Merging,
    ) -> Result<Planned, Failure> {
        let plan = |(tiles, shares): &Class| {
            let (tiles, shares) = (tiles.clone(), shares.clone());
            let options = PlanOptions { tiles, shares, merge, ..PlanOptions::default() };
            prepare::plan_for(cascade, signature, choices, extra, options)
        };
        let best = plan(&Class::default())?;
        if signature.place == Place::Cpu {
            return Ok(best);
        }
        let own = (prepare::tiles(&best), Some(prepare::shares(&best)));
        let known: Vec<_> = {
            let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
            classes.iter().take(TRIED).cloned().collect()
        };
        if !known.contains(&own) {
            let most = prepare::seconds(&best) * SLOWER;
            for class in known {
                if let Ok(planned) = plan(&class)
                    && prepare::seconds(&planned) <= most
                {
                    return Ok(planned);
                }
            }
            self.classes.lock().unwrap_or_else(PoisonError::into_inner).push_front(own);
        }
        Ok(best)
    }
}
