//! Kernels for many sizes: on a GPU they share code where their sources differ in sizes only.

use crate::failure::Failure;
use crate::prepare::{self, Choices, Extra};
use crate::signature::{Place, Signature};
use einloom::{PlanOptions, Planned};
use einloom_cascade::Cascade;
use einloom_cuda::runtime::Family;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// What kernels of one program, number types and place share.
#[derive(Debug, Default)]
pub(crate) struct Sized {
    /// Their code on a GPU.
    pub family: Mutex<Family>,
    /// Tiles of the size classes so far, newest first.
    tiles: Mutex<VecDeque<BTreeMap<String, usize>>>,
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
    ) -> Result<Planned, Failure> {
        let plan = |tiles: &BTreeMap<String, usize>| {
            let options = PlanOptions { tiles: tiles.clone(), ..PlanOptions::default() };
            prepare::plan_for(cascade, signature, choices, extra, options)
        };
        let best = plan(&BTreeMap::new())?;
        if signature.place == Place::Cpu {
            return Ok(best);
        }
        let own = prepare::tiles(&best);
        let known: Vec<_> = {
            let tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
            tiles.iter().take(TRIED).cloned().collect()
        };
        if !known.contains(&own) {
            let most = prepare::seconds(&best) * SLOWER;
            for tiles in known {
                if let Ok(planned) = plan(&tiles)
                    && prepare::seconds(&planned) <= most
                {
                    return Ok(planned);
                }
            }
            self.tiles.lock().unwrap_or_else(PoisonError::into_inner).push_front(own);
        }
        Ok(best)
    }
}
