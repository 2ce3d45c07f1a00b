//! What must be read and written whatever the tiles.

use super::compulsory;
use super::needed::under;
use crate::counts::What;
use crate::levels::{Reuse, Traffic};
use crate::nest::Loop;
use crate::region::{Lean, touched_in};
use einloom_tile::{AxisId, Kernel};
use std::collections::BTreeSet;

/// Positions of axes that steer others by conditions, at most, of which each is looked at by itself.
const POSITIONS: usize = 1 << 20;

/// Elements that must be read and written with any tiles, per tensor: what a tile loads beside what a condition leaves of it is the plan's.
pub(crate) fn compulsory_in_any_tiles(reuse: &Reuse<'_>) -> Traffic {
    let mut traffic = compulsory(reuse);
    let accesses = || reuse.nest.body.all.iter().copied();
    let mut read: Vec<(_, u64)> = vec![];
    for k in accesses().filter(|&k| !reuse.nest.accesses[k].store) {
        let (tensor, needed) = (reuse.nest.accesses[k].tensor, needed(reuse, k));
        match read.iter_mut().find(|r| r.0 == tensor) {
            Some((_, most)) => *most = needed.max(*most),
            None => read.push((tensor, needed)),
        }
    }
    for (tensor, needed) in read {
        let (read, _) = traffic.of(tensor);
        *read = needed.min(*read);
    }
    traffic
}

/// Elements of a load that anything needs.
fn needed(reuse: &Reuse<'_>, k: usize) -> u64 {
    let (access, kernel) = (&reuse.nest.accesses[k], reuse.kernel);
    let conditions = reuse.nest.needed.of(access.tile);
    let guarded = access.loops.iter().any(|l| !l.guards.is_empty());
    if conditions.is_empty() && !guarded && access.loops.iter().all(|l| l.conditions().is_empty()) {
        return u64::MAX;
    }
    if guarded {
        return reuse.nest.read_in_any_tiles(kernel, k);
    }
    let loops = under(access.loops.clone(), conditions);
    let Some(single) = in_single_steps(kernel, &loops) else { return u64::MAX };
    let parts = || touched_in(reuse.program, &single, reuse.nest, k, Lean::Low, (&[], &loops));
    reuse.nest.counts.of(&single, What::Needed(k), parts)
}

/// The kernel's axes with tiles of one position where conditions of loops mention them. `None` where those that steer other loops have too many positions.
fn in_single_steps(kernel: &Kernel, loops: &[Loop]) -> Option<Kernel> {
    let (mut axes, mut steering) = (BTreeSet::new(), BTreeSet::<AxisId>::new());
    for l in loops {
        for &(_, other) in l.conditions().iter().flat_map(|c| &c.terms) {
            axes.extend([l.axis, other]);
            steering.extend(Some(other).filter(|&o| o != l.axis));
        }
    }
    let positions = steering.iter().map(|&a| kernel.axis(a).extent).try_fold(1usize, usize::checked_mul);
    positions.filter(|&n| n <= POSITIONS)?;
    let mut single = Kernel { axes: kernel.axes.clone(), grid: kernel.grid.clone(), ..Kernel::default() };
    axes.iter().for_each(|a| single.axes[a.at()].tile = 1);
    Some(single)
}
