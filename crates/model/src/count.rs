//! Sums over a kernel's iterations that enumerate no more than they must.
//!
//! What is summed is a product of factors, each a function of some axes' windows. Axes that no stream's condition and
//! no factor connects are independent: the sum over all of them is the product of the sums over each connected group.
//! Within a group, only axes that steer another loop (through the condition of a stream) are enumerated.

use crate::counts::{Counts, lock};
use crate::guarded::{Left, are_few, axes};
use crate::nest::Loop;
use crate::ranges::{Stretch, Windows, covered, stretches};
use einloom_tile::{AxisId, AxisKind, Guard, Kernel, Predicate, Window, initial_windows, stream_range};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use turn::in_turn;

mod turn;

/// A function of the windows.
type Size = Box<dyn Fn(&[Window]) -> u64 + Send + Sync>;

/// Where an axis's window may begin, the first and the last position, for one value of a factor. It depends on where the others stand, and on how long all are.
type Steady = Box<dyn Fn(&[Window], AxisId) -> (i128, i128) + Send + Sync>;

/// Windows of a loop that are as soon enumerated.
const MANY: usize = 8;

/// A factor of the summand.
pub(crate) struct Factor {
    /// The axes whose windows it depends on.
    pub axes: BTreeSet<AxisId>,
    /// The axes of which it needs to know where their windows stand, not only how long they are.
    pub placed: BTreeSet<AxisId>,
    /// Its value.
    pub size: Size,
    /// Where that is the same wherever the window of one of its placed axes stands, if that is known.
    pub steady: Option<Steady>,
    /// What its value follows from, beside the windows: two factors with the same mark are the same.
    pub mark: Vec<u64>,
    /// Whether it is the product of the lengths of its axes' windows, and nothing else.
    pub lengths: bool,
}

impl fmt::Debug for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factor").field("mark", &self.mark).finish_non_exhaustive()
    }
}

impl Factor {
    /// The length of an axis's window.
    pub fn length(axis: AxisId) -> Arc<Self> {
        let (axes, mark) = (BTreeSet::from([axis]), vec![0, u64::from(axis.0)]);
        let size = Box::new(move |w: &[Window]| w[axis.at()].len as u64);
        Arc::new(Self { axes, placed: BTreeSet::new(), size, steady: None, mark, lengths: true })
    }
}

/// What to sum over.
pub(crate) struct Sum<'s> {
    pub kernel: &'s Kernel,
    /// Iterated.
    pub outer: &'s [Loop],
    /// Inside those; their axes stand wherever any of their iterations does.
    pub inner: &'s [Loop],
    pub factors: &'s [Arc<Factor>],
    /// The factors' product over several windows is that over their union, as with numbers of elements.
    pub additive: bool,
    /// Of the outer loops' iterations not the sum, but the largest of all.
    pub largest: bool,
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

/// A loop of a connected group, with what the walk over its iterations asks of it again and again.
#[derive(Clone, Debug)]
struct Step {
    axis: AxisId,
    extent: usize,
    within: Option<Arc<Predicate>>,
    /// Those that leave chunks out.
    guards: Arc<[Guard]>,
    /// How the iterations count together.
    together: Together,
    /// Of iterations of which only the largest counts, the one that is: see [`Most`].
    most: Most,
}

/// Where a loop that moves on lets the ranges of all inside it grow, or shrink, as it does under a causal mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    /// The first window is the largest.
    First,
    /// The last one is, or the one before if the last is shorter.
    Last,
    /// Any may be.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// All their windows are one.
    Union,
    /// Each by itself, then added.
    Each,
    /// Only the largest.
    Largest,
    /// One full one, which no other is larger than.
    Full,
    /// As one, times how many there are.
    Alike,
    /// As one full one, times how many there are, and the last.
    FullAndLast,
}

/// The tiles of up to six loops, by which sums over them are remembered: numbers, for what is stored in parts is slow to read at once.
type Tiles = (u64, u64);

/// Loops that conditions and factors connect, and the factors.
pub(crate) struct Group {
    steps: Vec<Step>,
    /// The same without guards, for tiles with which there are too many chunks to tell apart; none if there are no guards.
    plain: Vec<Step>,
    factors: Vec<Arc<Factor>>,
    totals: Mutex<Totals>,
}

/// What was summed so far.
#[derive(Default)]
struct Totals {
    /// Windows of axes that no loop moves; those of others are open during a walk only.
    windows: Vec<Window>,
    /// Sums over several loops by their tiles: one by itself is as soon summed as found.
    known: FxHashMap<Tiles, u64>,
    /// The one that was asked for last: all that is counted of one tiling asks for the same.
    last: Option<(Tiles, u64)>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Group {
    /// The sum for these tiles.
    pub fn total(&self, kernel: &Kernel) -> u64 {
        let mut totals = lock(&self.totals);
        let Totals { windows, known, last } = &mut *totals;
        let mut make = || {
            let steps = if self.tells_apart(kernel) { &self.steps } else { &self.plain };
            self.walk(kernel, &in_turn(kernel, steps), windows)
        };
        let Some(tiles) = self.tiles(kernel) else { return make() };
        if let Some((_, total)) = last.filter(|l| l.0 == tiles) {
            return total;
        }
        let total = match self.steps.len() {
            0 | 1 => make(),
            _ => *known.entry(tiles).or_insert_with(make),
        };
        *last = Some((tiles, total));
        total
    }

    /// Whether the chunks that guards leave are told apart with these tiles.
    fn tells_apart(&self, kernel: &Kernel) -> bool {
        let few = |s: &Step| s.guards.is_empty() || are_few(kernel, s.axis, &s.guards);
        self.plain.is_empty() || self.steps.iter().all(few)
    }

    /// The tiles of all loops, two in a number or three; `None` if there are too many, or too large ones.
    fn tiles(&self, kernel: &Kernel) -> Option<Tiles> {
        let in_one = if self.steps.len() <= 4 { 2 } else { 3 };
        let mut out = [0; 2];
        for (k, step) in self.steps.iter().enumerate() {
            let tile = kernel.axis(step.axis).tile as u64;
            let fits = tile >> (64 / in_one) == 0;
            *out.get_mut(k / in_one).filter(|_| fits)? |= tile << (64 / in_one * (k % in_one));
        }
        Some((out[0], out[1]))
    }

    fn walk(&self, kernel: &Kernel, steps: &[Step], windows: &mut [Window]) -> u64 {
        let Some((step, rest)) = steps.split_first() else {
            return self.factors.iter().fold(1, |product, f| product.saturating_mul((f.size)(windows)));
        };
        let (axis, tile) = (step.axis, kernel.axis(step.axis).tile);
        let (low, high) = match &step.within {
            None => (0, step.extent),
            Some(within) => stream_range(step.extent, axis, within, windows),
        };
        if low >= high {
            return 0;
        }
        let base = low - low % tile;
        let all = Window { base, len: high - base };
        if !step.guards.is_empty() {
            return self.walk_left(kernel, (step, rest), all, windows);
        }
        let union = all;
        let count = union.len.div_ceil(tile);
        if let [inner] = rest
            && let Some(total) = self.together(kernel, (step, inner), union, windows)
        {
            return total;
        }
        let any = (step.together, step.most) == (Together::Largest, Most::Any);
        if rest.is_empty()
            && (any || step.together == Together::Each)
            && count >= MANY
            && let Some(total) = self.steadily((axis, tile), (base, high), any, windows)
        {
            return total;
        }
        let mut at = |window| {
            windows[axis.at()] = window;
            self.walk(kernel, rest, windows)
        };
        let window = |base: usize| Window { base, len: tile.min(high - base) };
        let each = (base..high).step_by(tile).map(window);
        let total = match step.together {
            Together::Union => at(union),
            Together::Each => each.map(&mut at).fold(0, u64::saturating_add),
            Together::Largest => match step.most {
                Most::First => at(window(base)),
                Most::Last => each.skip(count.saturating_sub(2)).map(&mut at).max().unwrap_or(0),
                Most::Any => each.map(&mut at).max().unwrap_or(0),
            },
            Together::Full => at(Window { base, len: union.len.min(tile) }),
            Together::Alike => (count as u64).saturating_mul(at(union)),
            Together::FullAndLast => {
                let last = base + (count - 1) * tile;
                let full = if count > 1 { at(Window { base, len: tile }) } else { 0 };
                (count as u64 - 1).saturating_mul(full).saturating_add(at(Window { base: last, len: high - last }))
            }
        };
        // Closed again: nothing outside a stream may see its window.
        windows[axis.at()] = Window::default();
        total
    }

    /// The sum over the chunks that a loop's guards leave of all.
    fn walk_left(&self, kernel: &Kernel, (step, rest): (&Step, &[Step]), all: Window, windows: &mut [Window]) -> u64 {
        let (axis, tile) = (step.axis, kernel.axis(step.axis).tile);
        let left = Left::of(&step.guards, (axis, tile), all, windows);
        if left.count() == 0 {
            return 0;
        }
        let mut at = |window| {
            windows[axis.at()] = window;
            self.walk(kernel, rest, windows)
        };
        // Only lengths add up over windows that are apart.
        let even = self.even(axis);
        let total = match step.together {
            Together::Union => at(if even { left.joined() } else { left.hull() }),
            Together::Each => left.chunks().map(&mut at).fold(0, u64::saturating_add),
            Together::Largest => left.chunks().map(&mut at).max().unwrap_or(0),
            Together::Full => at(Window { base: left.hull().base, len: left.joined().len.min(tile) }),
            Together::Alike => (left.count() as u64).saturating_mul(at(left.hull())),
            Together::FullAndLast => {
                let (mut full, mut others) = (0u64, 0);
                for window in left.chunks() {
                    if window.len == tile { full += 1 } else { others = at(window) }
                }
                let each = if full > 0 { at(Window { base: left.hull().base, len: tile }) } else { 0 };
                full.saturating_mul(each).saturating_add(others)
            }
        };
        windows[axis.at()] = Window::default();
        total
    }

    /// Whether an axis's window matters by its length alone, in proportion.
    fn even(&self, axis: AxisId) -> bool {
        self.factors.iter().all(|f| f.lengths || !f.axes.contains(&axis))
    }

    /// The sum over the windows of the last loop, from `base` to `high`, or the largest: one value for all of those that stand where it stays the
    /// same. `None` where that is not known.
    fn steadily(
        &self,
        (axis, tile): (AxisId, usize),
        (base, high): (usize, usize),
        largest: bool,
        windows: &mut [Window],
    ) -> Option<u64> {
        let at = |base: usize, windows: &mut [Window]| {
            windows[axis.at()] = Window { base, len: tile.min(high - base) };
            self.factors.iter().fold(1u64, |product, f| product.saturating_mul((f.size)(windows)))
        };
        windows[axis.at()] = Window { base, len: tile };
        let (mut from, mut to) = (base as i128, high as i128 - tile as i128);
        for f in self.factors.iter().filter(|f| f.placed.contains(&axis)) {
            let (first, last) = f.steady.as_ref()?(windows, axis);
            (from, to) = (from.max(first), to.min(last));
        }
        // As numbers of windows.
        let (base_at, tile_at) = (base as i128, tile as i128);
        let from = (from - base_at + tile_at - 1).div_euclid(tile_at).max(0);
        let to = (to - base_at).div_euclid(tile_at) + 1;
        let count = (high - base).div_ceil(tile);
        let (from, to) = match (usize::try_from(from), usize::try_from(to)) {
            (Ok(from), Ok(to)) if from < to => (from, to),
            _ => (count, count),
        };
        let times = if largest { 1 } else { (to - from) as u64 };
        let steady = if from < to { at(base + from * tile, windows).saturating_mul(times) } else { 0 };
        let others = (0..from).chain(to..count).map(|k| at(base + k * tile, windows));
        let total = others.fold(steady, if largest { u64::max } else { u64::saturating_add });
        windows[axis.at()] = Window::default();
        Some(total)
    }

    /// The same for the last two loops where the first is enumerated only because the range of the second depends on where it
    /// stands: ranges are summed in a few steps, and only the last window, which may be shorter, is taken by itself. `None` where
    /// values depend on more than lengths.
    fn together(
        &self,
        kernel: &Kernel,
        (outer, inner): (&Step, &Step),
        all: Window,
        windows: &mut [Window],
    ) -> Option<u64> {
        let within = inner.within.as_ref().filter(|_| inner.guards.is_empty())?;
        let inside = |f: &&Arc<Factor>| f.axes.contains(&inner.axis);
        if self.factors.iter().any(|f| f.placed.contains(&outer.axis))
            || self.factors.iter().filter(inside).any(|f| !f.lengths)
        {
            return None;
        }
        let (tile, own) = (kernel.axis(outer.axis).tile, kernel.axis(inner.axis).tile);
        let most = match (outer.together, inner.together) {
            (Together::Each, Together::Union | Together::Alike | Together::FullAndLast) => false,
            (Together::Largest, Together::Union) => true,
            _ => return None,
        };
        let value = |of: &Stretch| match (inner.together, self.factors.iter().filter(inside).count()) {
            (Together::Alike, 0) => Some(of.chunks(own)),
            (Together::Alike, _) => None,
            (Together::Union, 0) if most => Some(i128::from(of.count() > 0)),
            (Together::Union, 0) => Some(of.count()),
            (Together::Union, 1) if most => Some(of.longest(own)),
            (_, 1) => Some(of.lengths(own)),
            _ => None,
        };
        let full = all.len / tile;
        let first = Window { base: all.base, len: tile };
        let last = Window { base: all.base + full * tile, len: all.len % tile };
        let mut total = 0;
        // Windows of the outer loop that nothing else depends on touch together what their ranges cover.
        let covers = most
            && self.factors.iter().filter(inside).count() == 1
            && self.factors.iter().all(|f| !f.axes.contains(&outer.axis));
        let mut ranges = vec![];
        for run in
            [Windows { axis: outer.axis, first, count: full }, Windows { axis: outer.axis, first: last, count: 1 }]
        {
            if run.count == 0 || run.first.len == 0 {
                continue;
            }
            let found = stretches(inner.extent, inner.axis, within, run, windows)?;
            ranges.extend(found.iter().copied().filter(|_| covers));
            let values = found.iter().map(value).collect::<Option<Vec<i128>>>()?;
            let values = if most { values.into_iter().max().unwrap_or(0) } else { values.into_iter().sum() };
            windows[outer.axis.at()] = run.first;
            windows[inner.axis.at()] = Window { base: 0, len: 1 };
            let each = self.factors.iter().fold(1, |product, f| (f.size)(windows).saturating_mul(product));
            windows[outer.axis.at()] = Window::default();
            windows[inner.axis.at()] = Window::default();
            let values = u64::try_from(values).unwrap_or(u64::MAX).saturating_mul(each);
            total = if most { values.max(total) } else { values.saturating_add(total) };
        }
        if covers {
            windows[inner.axis.at()] = Window { base: 0, len: 1 };
            let each = self.factors.iter().fold(1, |product, f| (f.size)(windows).saturating_mul(product));
            windows[inner.axis.at()] = Window::default();
            total = total.max(u64::try_from(covered(&ranges, own)).unwrap_or(u64::MAX).saturating_mul(each));
        }
        Some(total)
    }
}

impl Sum<'_> {
    /// The groups whose sums' product is the sum.
    pub fn groups(&self, counts: &Counts) -> Vec<Arc<Group>> {
        let loops: Vec<(&Loop, bool)> =
            self.outer.iter().map(|l| (l, true)).chain(self.inner.iter().map(|l| (l, false))).collect();
        let connected = self.connected(&loops);
        let windows = initial_windows(self.kernel);
        let mut out = vec![];
        for group in 0..loops.len() {
            let own: Vec<(&Loop, bool)> =
                loops.iter().zip(&connected).filter(|(_, g)| **g == group).map(|(l, _)| *l).collect();
            if !own.is_empty() {
                let moves = |f: &&Arc<Factor>| own.iter().any(|l| f.axes.contains(&l.0.axis));
                let factors: Vec<Arc<Factor>> = self.factors.iter().filter(moves).cloned().collect();
                out.push(counts.group(self.key(&own, &factors), || self.group(&own, factors.clone(), &windows)));
            }
        }
        // Factors of whole axes alone.
        let moves = |a: &AxisId| loops.iter().any(|l| l.0.axis == *a);
        let alone: Vec<Arc<Factor>> = self.factors.iter().filter(|f| !f.axes.iter().any(moves)).cloned().collect();
        if !alone.is_empty() {
            out.push(counts.group(self.key(&[], &alone), || self.group(&[], alone.clone(), &windows)));
        }
        out
    }

    /// Of each loop, the first loop that a condition or a factor connects it with.
    fn connected(&self, loops: &[(&Loop, bool)]) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..loops.len()).collect();
        let mut connect = |a: usize, b: usize| {
            let (first, other) = (groups[a].min(groups[b]), groups[a].max(groups[b]));
            groups.iter_mut().filter(|g| **g == other).for_each(|g| *g = first);
        };
        for (k, (l, _)) in loops.iter().enumerate() {
            for axis in conditions(l) {
                (0..loops.len()).filter(|&o| loops[o].0.axis == axis).for_each(|o| connect(k, o));
            }
        }
        for f in self.factors {
            let mut of_factor = (0..loops.len()).filter(|&k| f.axes.contains(&loops[k].0.axis));
            if let Some(first) = of_factor.next() {
                of_factor.for_each(|k| connect(first, k));
            }
        }
        groups
    }

    /// All that the sum over a group of loops follows from, beside tiles.
    fn key(&self, loops: &[(&Loop, bool)], factors: &[Arc<Factor>]) -> Vec<u64> {
        let mut key = vec![u64::from(self.additive), u64::from(self.largest), loops.len() as u64];
        for (l, outer) in loops {
            let apart = match self.union {
                Union::Hull => 0,
                Union::Least(apart) => 1 + u64::from(apart.contains(&l.axis)),
            };
            key.extend([u64::from(l.axis.0), u64::from(*outer), apart]);
            let conditions = l.conditions();
            key.push(conditions.len() as u64);
            for affine in conditions {
                key.extend([affine.constant as u64, affine.terms.len() as u64]);
                key.extend(affine.terms.iter().flat_map(|t| [t.0 as u64, u64::from(t.1.0)]));
            }
            let guards = if l.guards.is_empty() { String::new() } else { format!("{:?}", l.guards) };
            key.push(guards.len() as u64);
            key.extend(guards.bytes().map(u64::from));
        }
        for f in factors {
            key.push(f.mark.len() as u64);
            key.extend(&f.mark);
        }
        key
    }

    fn group(&self, loops: &[(&Loop, bool)], factors: Vec<Arc<Factor>>, windows: &[Window]) -> Group {
        let steps = |loops: &[(&Loop, bool)]| (0..loops.len()).map(|k| self.step(loops, k, &factors)).collect();
        let guarded = loops.iter().any(|l| !l.0.guards.is_empty());
        // Where the windows of what guards depend on are not known, they leave all.
        let known = |a: AxisId| self.kernel.axis(a).kind == AxisKind::Whole || loops.iter().any(|l| l.0.axis == a);
        let placed = loops.iter().all(|l| axes(&l.0.guards).into_iter().all(known));
        let plain: Vec<Step> = match guarded {
            true => {
                let all: Vec<(Loop, bool)> =
                    loops.iter().map(|l| (Loop { guards: Arc::default(), ..l.0.clone() }, l.1)).collect();
                steps(&all.iter().map(|l| (&l.0, l.1)).collect::<Vec<_>>())
            }
            false => vec![],
        };
        let (steps, plain) = if guarded && !placed { (plain, vec![]) } else { (steps(loops), plain) };
        Group { steps, plain, factors, totals: Totals { windows: windows.to_vec(), ..Totals::default() }.into() }
    }

    fn step(&self, loops: &[(&Loop, bool)], k: usize, factors: &[Arc<Factor>]) -> Step {
        let (own, outer) = loops[k];
        let axis = own.axis;
        // A factor depends on its window, or needs to know where it stands; the range of a loop inside it depends on it.
        let relevant = factors.iter().any(|f| f.axes.contains(&axis));
        let placed = !self.additive && factors.iter().any(|f| f.placed.contains(&axis));
        let steers = loops[k + 1..].iter().any(|l| conditions(l.0).any(|a| a == axis));
        // Windows that are apart make no union but of lengths.
        let scattered = !own.guards.is_empty() && factors.iter().any(|f| f.axes.contains(&axis) && !f.lengths);
        let (steers, placed) = (steers || scattered, placed || scattered);
        let together = match (outer, self.union) {
            (false, Union::Least(apart)) if steers && apart.contains(&axis) => Together::Each,
            (false, Union::Least(_)) if steers => Together::Largest,
            (false, _) => Together::Union,
            (true, _) if self.largest && (steers || placed) => Together::Largest,
            (true, _) if self.largest && !relevant => Together::Union,
            (true, _) if self.largest => Together::Full,
            (true, _) if steers || placed => Together::Each,
            (true, _) if !relevant => Together::Alike,
            (true, _) if self.additive => Together::Union,
            // Chunks of equal length count alike: all but the last, and the last.
            (true, _) => Together::FullAndLast,
        };
        let extent = self.kernel.axis(axis).extent;
        let inside = loops[k + 1..].iter().flat_map(|l| l.0.conditions());
        let moves: Vec<i64> = inside.map(|affine| affine.coefficient(axis)).collect();
        let guarded = loops[k..].iter().any(|l| !l.0.guards.is_empty());
        let most = match factors.iter().all(|f| f.placed.is_empty()) && !guarded {
            true if moves.iter().all(|&c| c >= 0) => Most::Last,
            true if moves.iter().all(|&c| c <= 0) => Most::First,
            _ => Most::Any,
        };
        Step { axis, extent, within: own.within.clone(), guards: own.guards.clone(), together, most }
    }
}

/// The other axes that a loop's range depends on.
fn conditions(l: &Loop) -> impl Iterator<Item = AxisId> + use<'_> {
    l.steered_by().filter(move |&a| a != l.axis)
}

/// Iterations of these loops together.
pub(crate) fn iterations<'s>(kernel: &'s Kernel, loops: &'s [Loop]) -> Sum<'s> {
    Sum { kernel, outer: loops, inner: &[], factors: &[], additive: true, largest: false, union: Union::Hull }
}

/// Number of elements over these axes, each iteration of `loops` counted: whole axes once per iteration.
pub(crate) fn elements(kernel: &Kernel, loops: &[Loop], axes: &BTreeSet<AxisId>) -> u64 {
    let parts = parts_of_elements(kernel, loops, axes, &Counts::default());
    parts.iter().fold(1, |product, part| product.saturating_mul(part.total(kernel)))
}

/// The groups whose sums' product is that number.
pub(crate) fn parts_of_elements(
    kernel: &Kernel,
    loops: &[Loop],
    axes: &BTreeSet<AxisId>,
    counts: &Counts,
) -> Vec<Arc<Group>> {
    let factors: Vec<_> = axes.iter().map(|&a| Factor::length(a)).collect();
    debug_assert!(axes.iter().all(|&a| kernel.axis(a).kind != AxisKind::Stream || loops.iter().any(|l| l.axis == a)));
    Sum { kernel, outer: loops, inner: &[], factors: &factors, additive: true, largest: false, union: Union::Hull }
        .groups(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_tile::{Affine, Builder, Predicate, chunks, grid_points, set_grid_point};

    /// Streams under one and two conditions on an axis of the grid, of whatever tiles: the elements and chunks that a walk over
    /// all points finds.
    #[test]
    fn loops_that_steer_others_count_as_one_by_one() {
        let (mut seed, mut some) = (1u64, 0);
        let mut random = |from: i64, to: i64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + ((seed >> 33) % (to - from + 1) as u64) as i64
        };
        for case in 0..2000 {
            let mut within = Predicate::default();
            let mut axes = None;
            let mut builder = Builder::new("mask");
            builder.kernel("mask", |k| {
                let m = k.grid("m", random(1, 40) as usize, random(1, 9) as usize);
                let n = k.stream_axis("n", random(1, 40) as usize, random(1, 9) as usize);
                for _ in 0..random(1, 2) {
                    let side = [-1, 1][random(0, 1) as usize];
                    within.all.push(Affine::from(random(-9, 30)) + n * side + m * random(-2, 2));
                }
                k.stream(n, within.clone(), [], |_, []| []);
                axes = Some((m, n));
            });
            let (program, (m, n)) = (builder.finish().expect("well-formed"), axes.expect("two axes"));
            let kernel = &program.kernels[0];
            let mut windows = initial_windows(kernel);
            let (mut rows, mut elements_, mut visits) = (0, 0, 0);
            for point in 0..grid_points(kernel) {
                set_grid_point(kernel, point, &mut windows);
                let of_point = chunks(kernel, n, &within, &windows).map(|w| w.len as u64);
                visits += of_point.clone().count() as u64;
                rows += windows[m.at()].len as u64 * of_point.clone().count() as u64;
                elements_ += windows[m.at()].len as u64 * of_point.sum::<u64>();
            }
            let loops = [Loop::over(m), Loop::stream(n, &within, &[])];
            let count = |axes: &[AxisId]| elements(kernel, &loops, &axes.iter().copied().collect());
            assert_eq!(count(&[m, n]), elements_, "case {case}: {kernel:?}");
            assert_eq!(count(&[m]), rows, "case {case}: {kernel:?}");
            assert_eq!(count(&[]), visits, "case {case}: {kernel:?}");
            some += u64::from(elements_ > 0);
        }
        assert!(some > 1000, "{some}");
    }

    /// Causal masks over chunks of positions, of whatever tiles and lengths: added up, and the largest of them, as a walk over all windows
    /// in the order in which they are nested finds.
    #[test]
    fn loops_in_turn_count_as_nested() {
        let (mut seed, mut some, mut turned) = (7u64, 0, 0);
        let mut random = |from: i64, to: i64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + ((seed >> 33) % (to - from + 1) as u64) as i64
        };
        for case in 0..2000 {
            let (chunks_, within_, side) =
                (random(1, 40) as usize, random(1, 8) as usize, [-1, 1][random(0, 1) as usize]);
            let long = within_ as i64;
            let mut axes = None;
            let (mut own, mut mask) = (Predicate::default(), Predicate::default());
            let mut builder = Builder::new("mask");
            builder.kernel("mask", |k| {
                let t = k.grid("t_chunk", chunks_, random(-3, 4).max(1) as usize);
                let u = k.grid("t_within", within_, random(1, 4) as usize);
                let v = k.stream_axis("n_within", within_, random(1, 4) as usize);
                let n = k.stream_axis("n_chunk", chunks_, random(1, 4) as usize);
                let apart = (Affine::from(0) + t * long + u - (Affine::from(0) + n * long) - v) * side;
                mask.all.push(apart + random(-3, 3));
                if random(0, 1) == 1 {
                    // About points of the grid only.
                    let at = Affine::from(0) + t * long + u;
                    let to = if random(0, 1) == 1 { at + random(-30, 0) } else { at * -1 + random(0, 60) };
                    mask.all.push(to);
                }
                if random(0, 1) == 1 {
                    let c = random(-1, 1);
                    own.all.push(Affine::from(0) + t * random(-2, 2) + u + random(0, 9) - v * c);
                }
                k.stream(v, own.clone(), [], |k, []| {
                    k.stream(n, mask.clone(), [], |_, []| []);
                    []
                });
                axes = Some([t, u, v, n]);
            });
            let (program, [t, u, v, n]) = (builder.finish().expect("well-formed"), axes.expect("four axes"));
            let kernel = &program.kernels[0];
            let loops = [t, u].map(Loop::over);
            let loops: Vec<Loop> =
                loops.into_iter().chain([Loop::stream(v, &own, &[]), Loop::stream(n, &mask, &[])]).collect();
            let factors: Vec<Arc<Factor>> =
                [t, u, v, n].into_iter().filter(|_| random(0, 1) == 1).map(Factor::length).collect();
            let empty = BTreeSet::new();
            let union = if random(0, 1) == 1 { Union::Least(&empty) } else { Union::Hull };
            let (outer, inner) = loops.split_at(random(0, 4) as usize);
            let largest = random(0, 1) == 1;
            let sum = Sum { kernel, outer, inner, factors: &factors, additive: true, largest, union };
            for group in sum.groups(&Counts::default()) {
                let mut nested: Vec<Step> = group.steps.clone();
                nested.iter_mut().for_each(|s| s.most = Most::Any);
                let mut windows = initial_windows(kernel);
                let expected = group.walk(kernel, &nested, &mut windows);
                assert_eq!(group.total(kernel), expected, "case {case}: {group:?} {kernel:?}");
                some += u64::from(expected > 1);
                let turn = in_turn(kernel, &group.steps);
                turned += usize::from(turn.iter().zip(&group.steps).any(|(a, b)| a.axis != b.axis));
            }
        }
        assert!(some > 1000 && turned > 100, "{some} {turned}");
    }

    /// The largest window of a loop, and the sum of all, where a value stays the same between two places: as all windows one by one.
    #[test]
    fn windows_between_two_places_count_as_one_by_one() {
        let factor = |axis: AxisId, known: bool| {
            // Positions before 30 and from 70 on are not there.
            let inside = move |w: Window| (30..70).filter(|p| (w.base..w.base + w.len).contains(p)).count() as u64;
            let steady: Steady = Box::new(move |w: &[Window], _| (30, 70 - w[axis.at()].len as i128));
            let set = BTreeSet::from([axis]);
            Arc::new(Factor {
                axes: set.clone(),
                placed: set,
                size: Box::new(move |w| 1 + inside(w[axis.at()])),
                steady: known.then_some(steady),
                mark: vec![u64::from(known)],
                lengths: false,
            })
        };
        for tile in 1..12 {
            let mut axis = None;
            let mut builder = Builder::new("window");
            builder.kernel("window", |k| axis = Some(k.grid("n", 99, tile)));
            let (program, axis) = (builder.finish().expect("well-formed"), axis.expect("an axis"));
            let kernel = &program.kernels[0];
            let loops = [Loop::over(axis)];
            for largest in [false, true] {
                let total = |known: bool| {
                    let factors = [factor(axis, known)];
                    let (outer, union) = (&loops[..], Union::Hull);
                    let sum = Sum { kernel, outer, inner: &[], factors: &factors, additive: false, largest, union };
                    sum.groups(&Counts::default()).iter().map(|g| g.total(kernel)).product::<u64>()
                };
                assert_eq!(total(true), total(false), "tiles of {tile}, largest: {largest}");
            }
        }
    }
}
