//! Chunks and coverage, against every position.

use einloom_tile::*;

const TILES: [usize; 3] = [1, 4, 7];

/// A grid axis `m` of 30 by 8 and a stream axis `n` of 40; every condition `a*m + b*n + c >= 0` with small numbers.
fn each(check: impl Fn(&Kernel, &Predicate, &mut Vec<Window>, &dyn Fn(usize, usize) -> bool)) {
    let axis = |name: &str, extent, tile, kind| Axis { name: name.into(), extent, tile, kind };
    for tile in TILES {
        let axes = vec![axis("m", 30, 8, AxisKind::Grid), axis("n", 40, tile, AxisKind::Stream)];
        let kernel = Kernel { axes, grid: vec![AxisId(0)], ..Kernel::default() };
        for a in -2..=2 {
            for b in -2..=2 {
                for c in [-50, -7, -1, 0, 1, 9, 50] {
                    let terms = [(a, AxisId(0)), (b, AxisId(1))].into_iter().filter(|t| t.0 != 0).collect();
                    let predicate = Predicate { all: vec![Affine { terms, constant: c }] };
                    let holds = |m: usize, n: usize| a * m as i64 + b * n as i64 + c >= 0;
                    for point in 0..grid_points(&kernel) {
                        let mut windows = initial_windows(&kernel);
                        set_grid_point(&kernel, point, &mut windows);
                        check(&kernel, &predicate, &mut windows, &holds);
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_are_where_a_condition_can_hold() {
    each(|kernel, within, windows, holds| {
        let m = windows[0];
        let somewhere = |n: usize| (m.base..m.base + m.len).any(|m| holds(m, n));
        let list: Vec<Window> = chunks(kernel, AxisId(1), within, windows).collect();
        let tile = kernel.axis(AxisId(1)).tile;
        for n in 0..40 {
            let visited = list.iter().filter(|w| (w.base..w.base + w.len).contains(&n)).count();
            assert!(visited <= 1);
            assert!(visited == 1 || !somewhere(n), "{n} is missing from {list:?} of {within:?}");
        }
        for w in &list {
            assert!(w.base % tile == 0 && (1..=tile).contains(&w.len));
            assert!((w.base..w.base + w.len).any(somewhere), "{w:?} is empty under {within:?}");
        }
        assert!(list.is_sorted_by(|a, b| a.base + a.len == b.base), "adjacent and ascending");
    });
}

/// Only the last may end before, and does if the condition holds nowhere in the rest of it.
#[test]
fn chunks_that_a_condition_ends_are_not_whole() {
    let mut ended = 0;
    each(|kernel, within, windows, holds| {
        let (m, axis) = (windows[0], kernel.axis(AxisId(1)));
        let somewhere = |n: usize| (m.base..m.base + m.len).any(|m| holds(m, n));
        let list: Vec<Window> = chunks(kernel, AxisId(1), within, windows).collect();
        for (k, w) in list.iter().enumerate() {
            let rest = w.base + w.len..axis.extent.min(w.base + axis.tile);
            assert_eq!(is_whole(axis, *w), rest.is_empty(), "{w:?}");
            assert!(rest.is_empty() || k + 1 == list.len() && !rest.clone().any(somewhere), "{w:?} of {within:?}");
        }
    });
    let within = Predicate { all: vec![Affine { terms: vec![(1, AxisId(0)), (-1, AxisId(1))], constant: 0 }] };
    let axis = |name: &str, extent, tile, kind| Axis { name: name.into(), extent, tile, kind };
    let axes = vec![axis("m", 30, 8, AxisKind::Grid), axis("n", 30, 16, AxisKind::Stream)];
    let kernel = Kernel { axes, grid: vec![AxisId(0)], ..Kernel::default() };
    for point in 0..grid_points(&kernel) {
        let mut windows = initial_windows(&kernel);
        set_grid_point(&kernel, point, &mut windows);
        let chunks = chunks(&kernel, AxisId(1), &within, &windows);
        ended += chunks.filter(|w| !is_whole(kernel.axis(AxisId(1)), *w)).count();
    }
    assert_eq!(ended, 2, "positions below the diagonal: the first and the third eight rows end within a chunk");
}

#[test]
fn coverage_tells_full_and_empty_tiles() {
    each(|kernel, predicate, windows, holds| {
        let always = Predicate::always();
        for chunk in chunks(kernel, AxisId(1), &always, windows) {
            windows[1] = chunk;
            let (m, n) = (windows[0], windows[1]);
            let elements = (m.base..m.base + m.len).flat_map(|m| (n.base..n.base + n.len).map(move |n| (m, n)));
            let held = elements.filter(|&(m, n)| holds(m, n)).count();
            let expected = match held {
                0 => Coverage::Empty,
                all if all == m.len * n.len => Coverage::Full,
                _ => Coverage::Partial,
            };
            assert_eq!(coverage(predicate, windows), expected, "{predicate:?} over {m:?} {n:?}");
        }
    });
}

#[test]
fn grids_without_axes_have_one_point_and_empty_axes_none() {
    assert_eq!(grid_points(&Kernel::default()), 1);
    let empty = Axis { name: "m".into(), extent: 0, tile: 8, kind: AxisKind::Grid };
    assert_eq!(grid_points(&Kernel { axes: vec![empty], grid: vec![AxisId(0)], ..Kernel::default() }), 0);
}
