//! What a kernel's tiles do not change: found once for all that are tried.

use super::fit::loaded;
use super::left::Left;
use super::registers::Moments;
use super::uses::{each, fused, placed, rare};
use crate::counts::Counts;
use einloom_tile::{AxisId, Kernel, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of a kernel whatever the sizes of its tiles.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Tiles that are loaded as they are.
    pub(super) loaded: BTreeSet<ValueId>,
    /// Tiles that some product multiplies.
    pub(super) factors: BTreeSet<ValueId>,
    /// Tiles that elements are picked from: they pass through shared memory, as any thread may hold an element.
    pub(super) picked: BTreeSet<ValueId>,
    /// Tiles that are loaded outside all streams.
    pub(super) resident: BTreeSet<ValueId>,
    /// Tiles whose elements are made where they are read, with what is then read instead.
    pub(super) fused: BTreeMap<ValueId, Vec<ValueId>>,
    /// Axes of which it matters where their windows stand.
    pub(super) placed: BTreeSet<AxisId>,
    /// Tiles that are another one wherever a condition per row does not hold: warps leave them out where it holds in no
    /// row of theirs, which is almost always.
    pub(super) rare: BTreeSet<ValueId>,
    /// Which tiles are alive together, a result in the place of one that dies.
    pub(super) moments: Moments,
    /// The factor that threads compute for a unit that they feed.
    pub(super) left: Option<Left>,
    /// What was counted of it.
    counts: Arc<Counts>,
}

impl Structure {
    /// Of this kernel, and of all that differ from it by the sizes of tiles alone.
    pub fn of(kernel: &Kernel) -> Self {
        let (mut factors, mut picked) = (BTreeSet::new(), BTreeSet::new());
        each(&kernel.body, &mut |op| match op {
            Op::Mma { a, b, .. } => factors.extend([*a, *b]),
            Op::Pick { src, .. } => _ = picked.insert(*src),
            _ => {}
        });
        let load = |op: &Op| match op {
            Op::Load { dst, .. } => Some(*dst),
            _ => None,
        };
        let fused = fused(kernel);
        let loaded = loaded(kernel);
        Self {
            left: Left::of(kernel, &loaded),
            loaded,
            factors,
            picked,
            resident: kernel.body.iter().filter_map(load).collect(),
            placed: placed(kernel),
            rare: rare(kernel),
            moments: Moments::new(kernel, &fused, &|_, _| true),
            fused,
            counts: Arc::default(),
        }
    }

    /// What was counted of these kernels.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}
