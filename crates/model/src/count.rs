//! Sums over a kernel's iterations that enumerate no more than they must.
//!
//! What is summed is a product of factors, each a function of some axes' windows. Axes that no stream's condition and
//! no factor connects are independent: the sum over all of them is the product of the sums over each connected group.
//! Within a group, only axes that steer another loop (through the condition of a stream) are enumerated.

use crate::nest::Loop;
use einloom_tile::{AxisId, AxisKind, Kernel, Window, initial_windows, stream_range};
use std::collections::BTreeSet;

/// A function of the windows.
type Size<'a> = Box<dyn Fn(&[Window]) -> u64 + 'a>;

/// A factor of the summand.
pub(crate) struct Factor<'a> {
    /// The axes whose windows it depends on.
    pub axes: BTreeSet<AxisId>,
    /// The axes of which it needs to know where their windows stand, not only how long they are.
    pub placed: BTreeSet<AxisId>,
    /// Its value.
    pub size: Size<'a>,
}

impl<'a> Factor<'a> {
    /// The length of an axis's window.
    pub fn length(axis: AxisId) -> Self {
        let axes = BTreeSet::from([axis]);
        Self { axes, placed: BTreeSet::new(), size: Box::new(move |w| w[axis.at()].len as u64) }
    }
}

/// What to sum over.
pub(crate) struct Sum<'s, 'a> {
    pub kernel: &'a Kernel,
    /// Iterated.
    pub outer: &'s [Loop<'a>],
    /// Inside those; their axes stand wherever any of their iterations does.
    pub inner: &'s [Loop<'a>],
    pub factors: &'s [Factor<'s>],
    /// The factors' product over several windows is that over their union, as with numbers of elements.
    pub additive: bool,
    /// How to count the inner loops that steer others; see there.
    pub union: Union<'s>,
}

/// What the iterations of inner loops touch together. Loops that steer no other one run over all they can, so their
/// windows' union says it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Union<'s> {
    /// At most this: as if those that steer could stand anywhere independently of those that they steer.
    Hull,
    /// At least this: those that steer are enumerated. Iterations of the given axes touch different elements and
    /// add up; of others only the largest counts.
    Least(&'s BTreeSet<AxisId>),
}

impl Sum<'_, '_> {
    /// The sum.
    pub fn total(&self) -> u64 {
        let mut windows = initial_windows(self.kernel);
        let mut total = 1u64;
        for group in self.groups() {
            let loops = self.loops().filter(|l| group.contains(&l.0.axis)).collect::<Vec<_>>();
            let factors: Vec<_> = self.factors.iter().filter(|f| f.axes.iter().any(|a| group.contains(a))).collect();
            total = total.saturating_mul(self.walk(&loops, &factors, &mut windows));
        }
        // Factors of whole axes alone.
        let moves = |a: &AxisId| self.loops().any(|l| l.0.axis == *a);
        for factor in self.factors.iter().filter(|f| !f.axes.iter().any(moves)) {
            total = total.saturating_mul((factor.size)(&windows));
        }
        total
    }

    /// The loops, and whether each is an outer one.
    fn loops(&self) -> impl Iterator<Item = (&Loop<'_>, bool)> {
        self.outer.iter().map(|l| (l, true)).chain(self.inner.iter().map(|l| (l, false)))
    }

    /// The loops' axes in connected groups.
    fn groups(&self) -> Vec<BTreeSet<AxisId>> {
        let moving: BTreeSet<AxisId> = self.loops().map(|l| l.0.axis).collect();
        let mut groups: Vec<BTreeSet<AxisId>> = moving.iter().map(|&a| BTreeSet::from([a])).collect();
        let mut connect = |axes: BTreeSet<AxisId>| {
            let (mut joined, apart): (Vec<_>, Vec<_>) = groups.drain(..).partition(|g| !g.is_disjoint(&axes));
            groups = apart;
            if let Some(mut group) = joined.pop() {
                joined.into_iter().for_each(|g| group.extend(g));
                groups.push(group);
            }
        };
        for (l, _) in self.loops() {
            connect(conditions(l).chain([l.axis]).collect());
        }
        self.factors.iter().for_each(|f| connect(f.axes.clone()));
        groups
    }

    fn walk(&self, loops: &[(&Loop<'_>, bool)], factors: &[&Factor<'_>], windows: &mut [Window]) -> u64 {
        let Some((&(first, outer), rest)) = loops.split_first() else {
            return factors.iter().fold(1, |product, f| product.saturating_mul((f.size)(windows)));
        };
        let axis = first.axis;
        let decl = self.kernel.axis(axis);
        let (low, high) = match first.within {
            None => (0, decl.extent),
            Some(within) => stream_range(decl.extent, axis, within, windows),
        };
        if low >= high {
            return 0;
        }
        let base = low - low % decl.tile;
        let union = Window { base, len: high - base };
        let steps = union.len.div_ceil(decl.tile);
        let mut at = |window| {
            windows[axis.at()] = window;
            self.walk(rest, factors, windows)
        };
        let relevant = factors.iter().any(|f| f.axes.contains(&axis));
        let placed = !self.additive && factors.iter().any(|f| f.placed.contains(&axis));
        let steers = rest.iter().any(|l| conditions(l.0).any(|a| a == axis));
        let each = (base..high).step_by(decl.tile).map(|base| Window { base, len: decl.tile.min(high - base) });
        let total = if !outer {
            match self.union {
                Union::Least(apart) if steers && apart.contains(&axis) => {
                    each.map(&mut at).fold(0, u64::saturating_add)
                }
                Union::Least(_) if steers => each.map(&mut at).max().unwrap_or(0),
                _ => at(union),
            }
        } else if steers || placed {
            each.map(&mut at).fold(0, u64::saturating_add)
        } else if !relevant {
            (steps as u64).saturating_mul(at(union))
        } else if self.additive {
            at(union)
        } else {
            // Chunks of equal length count alike: all but the last, and the last.
            let last = base + (steps - 1) * decl.tile;
            let full = if steps > 1 { at(Window { base, len: decl.tile }) } else { 0 };
            (steps as u64 - 1).saturating_mul(full).saturating_add(at(Window { base: last, len: high - last }))
        };
        // Closed again: nothing outside a stream may see its window.
        windows[axis.at()] = Window::default();
        total
    }
}

/// The other axes that a loop's range depends on.
fn conditions<'l>(l: &'l Loop<'_>) -> impl Iterator<Item = AxisId> + use<'l> {
    let terms = l.within.into_iter().flat_map(|w| &w.all).flat_map(|e| &e.terms);
    terms.map(|t| t.1).filter(move |&a| a != l.axis)
}

/// Number of iterations of these loops together.
pub(crate) fn iterations(kernel: &Kernel, loops: &[Loop<'_>]) -> u64 {
    Sum { kernel, outer: loops, inner: &[], factors: &[], additive: true, union: Union::Hull }.total()
}

/// Number of elements over these axes, each iteration of `loops` counted: whole axes once per iteration.
pub(crate) fn elements(kernel: &Kernel, loops: &[Loop<'_>], axes: &BTreeSet<AxisId>) -> u64 {
    let factors: Vec<_> = axes.iter().map(|&a| Factor::length(a)).collect();
    debug_assert!(axes.iter().all(|&a| kernel.axis(a).kind != AxisKind::Stream || loops.iter().any(|l| l.axis == a)));
    Sum { kernel, outer: loops, inner: &[], factors: &factors, additive: true, union: Union::Hull }.total()
}
