//! The innermost counts: elements that loads and stores move, exactly.

use crate::count::{Factor, Group, Sum, Union};
use crate::counts::Counts;
use crate::nest::{Access, coord_axes, sides, tiles};
use crate::region::{mark, stays_inside};
use einloom_tile::{AxisId, Coord, CoordAtom, Kernel, Program, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Elements that all executions of the access move together. Those that a filled load finds outside the tensor do
/// not count, unless that depends on data: then all do.
pub(crate) fn moved(program: &Program, kernel: &Kernel, access: &Access, counts: &Counts) -> Vec<Arc<Group>> {
    let dims = &program.tensor(access.tensor).dims;
    let mut free = sides(kernel, access.tile);
    let mut factors = vec![];
    if access.filled {
        let whole: Vec<Window> = kernel.axes.iter().map(|a| Window { base: 0, len: a.extent }).collect();
        for group in groups(access, dims) {
            let axes = group.iter().flat_map(|c| coord_axes(&c.0)).collect::<BTreeSet<_>>();
            free.retain(|a| !axes.contains(a));
            // What is in the tensor wherever its axes stand is counted by lengths alone.
            if group.iter().all(|(coord, dim)| stays_inside(coord, *dim, &whole)) {
                factors.extend(axes.into_iter().map(Factor::length));
                continue;
            }
            let list: Vec<AxisId> = axes.iter().copied().collect();
            let mut marks = vec![2, group.len() as u64];
            for (coord, dim) in &group {
                marks.push(*dim as u64);
                mark(coord, &mut marks);
            }
            let size = Box::new(move |w: &[Window]| inside(&group, &list, &mut w.to_vec()));
            let placed = axes.clone();
            factors.push(Arc::new(Factor { axes, placed, size, steady: None, mark: marks, lengths: false }));
        }
    }
    factors.extend(free.into_iter().map(Factor::length));
    let union = Union::Hull;
    Sum { kernel, outer: &access.loops, inner: &[], factors: &factors, additive: true, largest: false, union }
        .groups(counts)
}

/// The coordinates that can be checked, with their dimensions, those that share axes together.
fn groups(access: &Access, dims: &[usize]) -> Vec<Vec<(Coord, usize)>> {
    let mut groups: Vec<Vec<(Coord, usize)>> = vec![];
    for (coord, &dim) in access.at.iter().zip(dims) {
        if !tiles(coord).is_empty() {
            continue;
        }
        let axes = coord_axes(coord);
        let shares = |g: &Vec<(Coord, usize)>| g.iter().any(|c| !coord_axes(&c.0).is_disjoint(&axes));
        let (joined, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(shares);
        groups = apart;
        groups.push(joined.into_iter().flatten().chain([(coord.clone(), dim)]).collect());
    }
    groups
}

/// Number of positions of `axes` within the windows at which every coordinate is in its dimension.
/// `at` holds the windows; those of axes that are dealt with are one position long.
fn inside(coords: &[(Coord, usize)], axes: &[AxisId], at: &mut Vec<Window>) -> u64 {
    // The longest axis is counted as an interval, the others position by position.
    let Some(&longest) = axes.iter().max_by_key(|a| at[a.at()].len) else {
        return u64::from(coords.iter().all(|(c, dim)| (0..*dim as i64).contains(&value(c, at))));
    };
    let rest: Vec<AxisId> = axes.iter().copied().filter(|&a| a != longest).collect();
    let Some((&next, _)) = rest.split_first() else {
        return interval(coords, longest, at);
    };
    let window = at[next.at()];
    let mut remaining = rest[1..].to_vec();
    remaining.push(longest);
    let mut total = 0u64;
    for base in window.base..window.base + window.len {
        at[next.at()] = Window { base, len: 1 };
        total = total.saturating_add(inside(coords, &remaining, at));
    }
    at[next.at()] = window;
    total
}

/// As `inside` for one axis. Every coordinate is monotone in it where its terms agree in sign; where they do not,
/// positions are tried one by one.
fn interval(coords: &[(Coord, usize)], axis: AxisId, at: &mut [Window]) -> u64 {
    let window = at[axis.at()];
    let holds = |at: &mut [Window], k: usize, position: usize| {
        at[axis.at()] = Window { base: position, len: 1 };
        let (coord, dim) = &coords[k];
        let v = value(coord, at);
        (v >= 0, v < *dim as i64)
    };
    let end = window.base + window.len;
    let (mut low, mut high) = (window.base, end);
    let mut monotone = true;
    for (k, (coord, _)) in coords.iter().enumerate() {
        match direction(coord, axis) {
            None => monotone = false,
            Some(up) => {
                // Rising: first the lower bound comes to hold, then the upper one ceases to. Falling: the reverse.
                let enters = |at: &mut [Window], p| if up { holds(at, k, p).0 } else { holds(at, k, p).1 };
                let leaves = |at: &mut [Window], p| if up { !holds(at, k, p).1 } else { !holds(at, k, p).0 };
                low = low.max(first(window.base, end, |p| enters(at, p)));
                high = high.min(first(window.base, end, |p| leaves(at, p)));
            }
        }
    }
    let total = if monotone {
        high.saturating_sub(low) as u64
    } else {
        let all = |p: &usize| {
            (0..coords.len()).all(|k| {
                let (above, below) = holds(at, k, *p);
                above && below
            })
        };
        (low..high).filter(all).count() as u64
    };
    at[axis.at()] = window;
    total
}

/// The first position in `low..high` at which a condition holds that stays true once it is; `high` if none.
fn first(mut low: usize, mut high: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Whether the coordinate never falls (true) or never rises (false) along the axis; `None` if neither is sure.
fn direction(coord: &Coord, axis: AxisId) -> Option<bool> {
    let mut signs = BTreeSet::new();
    for (c, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(a) if *a == axis => {
                signs.insert(*c > 0);
            }
            CoordAtom::Floor(numerator, _) if coord_axes(numerator).contains(&axis) => {
                signs.insert(direction(numerator, axis)? == (*c > 0));
            }
            _ => {}
        }
    }
    match signs.len() {
        0 => Some(true),
        1 => signs.first().copied(),
        _ => None,
    }
}

/// The coordinate where every window's first position is.
fn value(coord: &Coord, at: &[Window]) -> i64 {
    let term = |(c, atom): &(i64, CoordAtom)| match atom {
        CoordAtom::Axis(a) => c * at[a.at()].base as i64,
        CoordAtom::Floor(numerator, d) => c * value(numerator, at).div_euclid(*d),
        CoordAtom::Tile(_) => 0,
    };
    coord.offset + coord.terms.iter().map(term).sum::<i64>()
}
