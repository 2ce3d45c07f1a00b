//! What must be read where guards leave chunks out.
//!
//! An element that stands where every guard and every condition holds is read with any tiles: its chunk is visited, for no guard
//! holds nowhere in it. Those are found by intervals, in windows in which all hold everywhere. Windows are looked
//! at as long as a budget lasts: whoever looks at fewer finds fewer, and a bound may be less.

use crate::guarded::axes;
use crate::nest::{Access, Loop, Nest, coord_axes, tiles};
use einloom_tile::{AxisId, Coord, CoordAtom, Coverage, Guard, Interval, Kernel, Predicate, Window, verdict};
use std::collections::BTreeSet;

/// Windows of all but the guarded axis, at most.
const PLACES: usize = 1 << 8;
/// Windows that are looked at, at most.
const BUDGET: usize = 1 << 16;

/// Elements of a load in a stream with guards that are read with any tiles, at least.
pub(crate) fn read_in_any_tiles(kernel: &Kernel, nest: &Nest, k: usize) -> u64 {
    let access = &nest.accesses[k];
    let Some(own) = guarded(access) else { return 0 };
    let mut conditions: Vec<Guard> = access.loops.iter().flat_map(|l| l.guards.iter().cloned()).collect();
    let all = access.loops.iter().flat_map(Loop::conditions).chain(nest.needed.of(access.tile)).cloned().collect();
    conditions.push(Guard::Within(Predicate { all }));
    let steering: BTreeSet<AxisId> = axes(&conditions).into_iter().filter(|&a| a != own).collect();
    let whole: Vec<Window> = kernel.axes.iter().map(|a| Window { base: 0, len: a.extent }).collect();
    let mut search = Search { conditions, own, windows: whole.clone(), left: BUDGET, found: vec![] };
    // About as many windows of each.
    let outer: Vec<AxisId> = access.loops.iter().map(|l| l.axis).filter(|a| steering.contains(a)).collect();
    let each = (PLACES as f64).powf(1.0 / outer.len().max(1) as f64).max(1.0) as usize;
    search.places(&outer, each);
    let covered = covered(search.found);
    // Others run over all of their axes wherever that one stands.
    let free = |c: &Coord| coord_axes(c).into_iter().all(|a| a != own && !steering.contains(&a));
    let others = access.at.iter().filter(|c| free(c)).filter_map(alone).collect::<BTreeSet<_>>();
    others.into_iter().map(|a| kernel.axis(a).extent as u64).fold(covered, u64::saturating_mul)
}

/// The innermost axis with guards whose positions are different elements.
fn guarded(access: &Access) -> Option<AxisId> {
    if access.filled || access.store {
        return None;
    }
    let axes: BTreeSet<AxisId> = access.at.iter().filter_map(alone).collect();
    access.loops.iter().rev().find(|l| !l.guards.is_empty() && axes.contains(&l.axis)).map(|l| l.axis)
}

/// The axis that is a coordinate by itself.
fn alone(coord: &Coord) -> Option<AxisId> {
    match coord.terms.as_slice() {
        [(_, CoordAtom::Axis(axis))] if tiles(coord).is_empty() => Some(*axis),
        _ => None,
    }
}

struct Search {
    conditions: Vec<Guard>,
    own: AxisId,
    windows: Vec<Window>,
    left: usize,
    found: Vec<Window>,
}

impl Search {
    /// For every window of these axes, of which each has so many at most.
    fn places(&mut self, outer: &[AxisId], each: usize) {
        let Some((&axis, rest)) = outer.split_first() else {
            let all = self.windows[self.own.at()];
            self.part(all);
            self.windows[self.own.at()] = all;
            return;
        };
        let all = self.windows[axis.at()];
        let step = all.len.div_ceil(each).max(1);
        for base in (0..all.len).step_by(step) {
            self.windows[axis.at()] = Window { base, len: step.min(all.len - base) };
            self.places(rest, each);
        }
        self.windows[axis.at()] = all;
    }

    fn part(&mut self, part: Window) {
        if part.len == 0 || self.left == 0 {
            return;
        }
        self.left -= 1;
        self.windows[self.own.at()] = part;
        match verdict(&self.conditions, &self.windows, &|_| Interval::ANY) {
            Coverage::Empty => {}
            Coverage::Full => self.found.push(part),
            Coverage::Partial if part.len == 1 => {}
            Coverage::Partial => {
                let half = part.len / 2;
                self.part(Window { base: part.base, len: half });
                self.part(Window { base: part.base + half, len: part.len - half });
            }
        }
    }
}

/// Positions in any of the windows.
fn covered(mut windows: Vec<Window>) -> u64 {
    windows.sort_by_key(|w| w.base);
    let (mut end, mut sum) = (0, 0);
    for w in windows {
        let (from, to) = (w.base.max(end), w.base + w.len);
        sum += to.saturating_sub(from);
        end = end.max(to);
    }
    sum as u64
}
