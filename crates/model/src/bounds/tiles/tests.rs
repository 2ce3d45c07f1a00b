//! Bounds of products against every tiling of small ones.

use super::super::{NestArray, ProjectiveNest};
use super::{Product, most_beside};
use std::collections::BTreeSet;

/// The fewest elements with which `r` and `s` of them meet, each with each and each brought in once, by trying all orders of
/// the products: what has met something and not all is there, and the two that meet.
fn fewest(r: usize, s: usize) -> usize {
    let all = (1usize << (r * s)) - 1;
    let one = |i: usize, done: usize| (0..s).filter(|j| done >> (i * s + j) & 1 == 1).count();
    let other = |j: usize, done: usize| (0..r).filter(|i| done >> (i * s + j) & 1 == 1).count();
    let mut peaks = vec![usize::MAX; all + 1];
    peaks[0] = 0;
    for done in 0..all {
        for (i, j) in (0..r).flat_map(|i| (0..s).map(move |j| (i, j))) {
            let next = done | 1 << (i * s + j);
            if next == done {
                continue;
            }
            let rows = (0..r).filter(|&k| k == i || (1..s).contains(&one(k, done))).count();
            let columns = (0..s).filter(|&k| k == j || (1..r).contains(&other(k, done))).count();
            peaks[next] = peaks[next].min(peaks[done].max(rows + columns));
        }
    }
    peaks[all]
}

#[test]
fn one_more_than_the_fewer_is_there() {
    for (r, s) in (1..=4).flat_map(|r| (1..=4).map(move |s| (r, s))) {
        let fewest = fewest(r, s);
        assert_eq!(fewest, r.min(s) + 1, "{r} and {s}");
        let fits = |memory: usize| most_beside(r as f64, memory as f64) >= s as f64;
        assert!(fits(r * s + fewest) && !fits(r * s + fewest - 1), "{r} and {s}");
    }
}

/// All ways to cut what is left of a grid, by which cells are taken, into rectangles that `fit`.
pub(in super::super) fn cuts(
    taken: u64,
    [rows, columns]: [usize; 2],
    fits: &dyn Fn(usize, usize) -> bool,
    tiles: &mut Vec<[usize; 4]>,
    found: &mut dyn FnMut(&[[usize; 4]]),
) {
    let Some(first) = (0..rows * columns).find(|c| taken >> c & 1 == 0) else { return found(tiles) };
    let (top, left) = (first / columns, first % columns);
    for (r, s) in (1..=rows - top).flat_map(|r| (1..=columns - left).map(move |s| (r, s))).filter(|t| fits(t.0, t.1)) {
        let cells = (0..r).flat_map(|i| (0..s).map(move |j| (top + i) * columns + left + j));
        let own = cells.fold(0u64, |set, c| set | 1 << c);
        if own & taken == 0 {
            tiles.push([top, left, r, s]);
            cuts(taken | own, [rows, columns], fits, tiles, found);
            tiles.pop();
        }
    }
}

/// What comes in for tiles in the best order of them: of what two in a row both need as much stays as there is room for.
fn in_best_order(tiles: &[[usize; 4]], steps: usize, memory: usize, last: Option<[usize; 4]>) -> usize {
    let overlap = |a: usize, m: usize, b: usize, n: usize| (a + m).min(b + n).saturating_sub(a.max(b));
    let next = (0..tiles.len()).map(|k| {
        let [top, left, r, s] = tiles[k];
        let stays = last.map_or(0, |[i, j, p, o]| {
            let shared = steps * (overlap(top, r, i, p) + overlap(left, s, j, o));
            shared.min(memory - (r * s).max(p * o))
        });
        let rest: Vec<_> = tiles.iter().enumerate().filter(|t| t.0 != k).map(|t| *t.1).collect();
        (r + s) * steps - stays + in_best_order(&rest, steps, memory, Some(tiles[k]))
    });
    next.min().unwrap_or(0)
}

#[test]
fn no_tiles_take_less() {
    let (mut tried, mut near) = (0, 0);
    for (sides, memory) in
        [[3, 4], [4, 4], [2, 6], [5, 3], [4, 5]].into_iter().flat_map(|s| (5..14).map(move |m| (s, m)))
    {
        for steps in [4, 6, 9, 20] {
            let [rows, columns] = sides;
            let fits = |r: usize, s: usize| r * s + r.min(s) < memory && (r + s) * steps >= 2 * memory;
            let mut least = usize::MAX;
            cuts(0, sides, &fits, &mut vec![], &mut |tiles| {
                if tiles.len() <= 6 {
                    least = least.min(in_best_order(tiles, steps, memory, None));
                }
            });
            let product = Product { sides: [rows as f64, columns as f64], steps: steps as f64, memory: memory as f64 };
            let found = product.tiles();
            assert!(
                found <= least as f64 + 1e-6 || least == usize::MAX,
                "{rows} x {columns} x {steps} in {memory}: {found} of {least}"
            );
            if least < usize::MAX {
                (tried, near) = (tried + 1, near + usize::from(found > 0.95 * least as f64));
            }
        }
    }
    assert!(tried > 60 && 3 * near > tried, "{near} of {tried}");
}

/// What rests of a group, a tile, or all of a factor for its rows or columns; and what comes in besides.
type Group = ([usize; 4], usize, usize);

/// What comes in for tiles and groups of rows in the best order of them.
fn together(groups: &[Group], steps: usize, memory: usize, last: Option<Group>) -> usize {
    let overlap = |a: usize, m: usize, b: usize, n: usize| (a + m).min(b + n).saturating_sub(a.max(b));
    let next = (0..groups.len()).map(|k| {
        let ([top, left, r, s], rests, again) = groups[k];
        let stays = last.map_or(0, |([i, j, p, o], other, _)| {
            let shared = steps * (overlap(top, r, i, p) + overlap(left, s, j, o));
            shared.min(memory - rests.max(other))
        });
        let rest: Vec<_> = groups.iter().enumerate().filter(|t| t.0 != k).map(|t| *t.1).collect();
        (r + s) * steps + again - stays + together(&rest, steps, memory, Some(groups[k]))
    });
    next.min().unwrap_or(0)
}

#[test]
fn no_tiles_and_groups_of_rows_take_less() {
    let (mut tried, mut mixed, mut near) = (0, 0, 0);
    for (sides, memory) in [[3, 4], [4, 3], [2, 6], [5, 3]].into_iter().flat_map(|s| (7..16).map(move |m| (s, m))) {
        for steps in [3, 4, 5, 9] {
            let [q, n] = sides;
            let beside = |piece: usize, count: usize| piece * count + piece.min(count) < memory;
            let ways = |r: usize, s: usize| -> Vec<(usize, usize)> {
                let tile = (beside(r, s) && (r + s) * steps >= 2 * memory).then_some((r * s, 0));
                let whole = |all: bool, row: usize, count: usize, passing: usize| {
                    (all && beside(row, count) && passing * steps > memory).then_some((row * count, 0))
                };
                // More than fits, of which some stays and the rest comes in for each that passes.
                let crowded = |all: bool, count: usize, passing: usize| {
                    let stays = memory.checked_sub(count.min(steps) + 1)?;
                    let is_it = all && !beside(steps, count) && passing * steps > memory;
                    is_it.then(|| (stays, (passing - 1) * (count * steps - stays)))
                };
                let rows = [whole(s == n, steps, r, n), whole(s == n, n, r, n), crowded(s == n, r, n)];
                let columns = [whole(r == q, steps, s, q), whole(r == q, q, s, q), crowded(r == q, s, q)];
                tile.into_iter().chain(rows.into_iter().chain(columns).flatten()).collect()
            };
            let (mut least, mut of_mixed) = (usize::MAX, false);
            cuts(0, sides, &|r, s| !ways(r, s).is_empty(), &mut vec![], &mut |tiles| {
                if tiles.len() > 4 {
                    return;
                }
                let choices = tiles.iter().fold(vec![vec![]], |all: Vec<Vec<Group>>, &t| {
                    let with = |a: &Vec<Group>| -> Vec<Vec<Group>> {
                        ways(t[2], t[3])
                            .into_iter()
                            .map(|(rests, again)| [&a[..], &[(t, rests, again)]].concat())
                            .collect()
                    };
                    all.iter().flat_map(with).collect()
                });
                for groups in choices {
                    let found = together(&groups, steps, memory, None);
                    if found < least {
                        let tiles = groups.iter().filter(|g| g.0[2] * g.0[3] == g.1).count();
                        (least, of_mixed) = (found, tiles > 0 && tiles < groups.len());
                    }
                }
            });
            let product = Product { sides: [q as f64, n as f64], steps: steps as f64, memory: memory as f64 };
            for (found, by) in [(product.tiles(), "prices"), (product.by_elements(), "elements")] {
                let case = format!("{q} x {n} x {steps} in {memory}: {found} of {least} by {by}");
                assert!(found <= least as f64 + 1e-6 || least == usize::MAX, "{case}");
            }
            if least < usize::MAX {
                (tried, mixed) = (tried + 1, mixed + usize::from(of_mixed));
                near += usize::from(product.tiles() > 0.9 * least as f64);
            }
        }
    }
    assert!(tried > 60 && mixed > 5 && 3 * near > tried, "{near} of {tried}, {mixed} of both kinds");
}

/// The least over all ways to put rows in groups, in any order of their sizes.
fn in_groups(rows: usize, most: usize, before: Option<usize>, [passing, memory, row]: [usize; 3]) -> usize {
    if rows == 0 {
        return 0;
    }
    let group = |p: usize| {
        let stays = before.map_or(0, |b| passing.min(memory - row * b.max(p)));
        passing - stays + in_groups(rows - p, most, Some(p), [passing, memory, row])
    };
    (1..=most.min(rows)).map(group).min().unwrap_or(0)
}

#[test]
fn no_groups_take_less() {
    let (mut tried, mut near) = (0, 0);
    for (rows, row, passing) in (3..9).flat_map(|q| [(q, 2, 9), (q, 3, 7), (q, 4, 20)]) {
        for memory in row + 3..rows * row {
            let product = Product { sides: [1.0, 1.0], steps: 1.0, memory: memory as f64 };
            let most = most_beside(row as f64, memory as f64) as usize;
            let least = in_groups(rows, most, None, [passing, memory, row]);
            let found = product.groups(rows as f64, row as f64, passing as f64);
            assert!(found <= least as f64 + 1e-6, "{rows} of {row}, {passing}, {memory}: {found} of {least}");
            (tried, near) = (tried + 1, near + usize::from(found > 0.9 * least as f64));
        }
    }
    assert!(2 * near > tried, "{near} of {tried}");
}

fn product([q, n, k]: [u64; 3]) -> ProjectiveNest {
    let factor = |name: &str, over: [usize; 2], sum: bool| NestArray {
        name: name.to_string(),
        over: BTreeSet::from(over),
        bytes: 4.0,
        read_bytes: if sum { 0.0 } else { 4.0 },
        again_bytes: 4.0,
        sum,
    };
    let arrays = vec![factor("A", [0, 2], false), factor("B", [2, 1], false), factor("C", [0, 1], true)];
    ProjectiveNest { extents: vec![q, n, k], points: (q * n * k) as f64, arrays, ..ProjectiveNest::default() }
}

#[test]
fn what_rests_is_found() {
    let all = |sizes: [u64; 3], memory: u64| {
        product(sizes).incoming_in_tiles(4.0 * memory as f64).map(|i| (i.all() / 4.0).round())
    };
    // 256 squared fits but for the vector beside it: in two groups one factor comes in twice, but for half of it.
    assert_eq!(all([256, 256, 256], 65536), Some(3.0 * 65536.0 - 32768.0));
    assert_eq!(all([256, 256, 256], 65536 + 257), None);
    // Columns of B of 118 elements rest, 41 of them, with as many sums and an element that passes; 42 would without the sums.
    let (a, b) = (634.0f64 * 118.0, 118.0f64 * 502.0);
    let groups = (13.0 * a + b - 12.0 * (4971.0 - b / 13.0)).min(16.0 * b + a - 15.0 * (4971.0 - a / 16.0));
    // Tiles may take the place of some of them.
    let found = all([634, 502, 118], 4971).expect("a bound");
    assert!(found <= groups && found > 0.95 * groups, "{found} of {groups}");
    // Three squares and a little more, of long sums: four tiles, of which none need be larger than what they come to on average.
    let four = all([685, 480, 848], 106622).expect("a bound");
    assert!(four > 1.07 * 2.0 * (685.0 * 480.0 * 848.0) / 106622f64.sqrt(), "{four}");
    // No product: a factor that moves with nothing that is summed up.
    let mut other = product([64, 64, 64]);
    other.arrays[0].over = BTreeSet::from([0]);
    assert_eq!(other.incoming_in_tiles(4.0 * 256.0), None);
}
