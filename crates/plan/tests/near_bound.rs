//! Plans on two levels against their bounds, over a grid of capacities.

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_model::{LevelTransfers, transfers};
use einloom_plan::{Form, Options, choose};
use support::{read, sized};

const MATMUL: &str = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
const ATTENTION: &str = "input Q[m,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\n\
    S[m,n] = sum(d) Q[m,d] * K[n,d]\n\
    P[m,n] = exp(S[m,n] - max(n) S[m,n])\n\
    O[m,e] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]\n";

/// Bytes planned over bytes bound.
fn ratio(text: &str, sizes: &str, capacity: u64) -> f64 {
    let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
    let cascade = read(text);
    let derivation = derive(&cascade);
    let forms = Form::all(&derivation);
    let plan = choose(&forms, &sized(&cascade, sizes), &machine, &Options::default()).expect("a plan").1;
    let found = transfers(&plan.program, &machine);
    let sum = |f: &dyn Fn(&LevelTransfers) -> u64| found.iter().map(|k| f(&k.levels[0])).sum::<u64>() as f64;
    sum(&|l| l.bytes) / sum(&|l| l.bound_bytes)
}

/// Tiles are whole in number, and the bound's need not be: with `n` tiles along each side of the result, of which a
/// plan may need one more, no more than this is lost. Where `n` is large it is the vectors of factors beside the tile.
#[test]
fn matmul_loses_no_more_than_a_tile_a_side() {
    for capacity in [1024u64, 1500, 4096, 10_000, 16384, 50_000] {
        for n in [256usize, 500] {
            let tiles = n as f64 / (capacity as f64).sqrt();
            if tiles < 2.0 {
                continue;
            }
            let found = ratio(MATMUL, &format!("M={n}, N={n}, K={n}"), capacity);
            // `2 n + 1` is the bound in units of the result, `n + (n + 1) + 1` with one more tile along one side.
            let whole = (2.0 * tiles.ceil() + 2.0) / (2.0 * tiles + 1.0);
            assert!((1.0..whole.max(1.05) + 0.03).contains(&found), "{n} at {capacity}: {found}, {tiles} tiles a side");
        }
    }
}

/// From two tiles of `D x D` elements on, and where fewer than half of the rows fit, plans are within 5 % of the bound in whole
/// groups. A plan holds three numbers of each row more than the bound (what it computes with, beside maximum and sum): where
/// that makes one group more, it moves no more than that group does.
#[test]
fn attention_is_within_five_percent_of_the_bound_in_whole_groups() {
    let (mut within, mut all) = (0, 0);
    for (n, d) in [(1024usize, 32usize), (1000, 32), (777, 40)] {
        for capacity in [2048u64, 3000, 3333, 4096, 6000, 8192, 12_000, 16384, 20_000] {
            let groups = |beside: usize, room: usize| n.div_ceil(room / (2 * d + beside));
            let (most, least) = (groups(5, capacity as usize - 2 * d), groups(2, capacity as usize - 1));
            if (capacity as usize) < 2 * d * d || least < 3 {
                continue;
            }
            let found = ratio(ATTENTION, &format!("M={n}, N={n}, D={d}, E={d}"), capacity);
            let more = (most - least) as f64 / (least + 1) as f64;
            assert!(
                (1.0..=1.05 + more).contains(&found),
                "{n} of {d} at {capacity}: {found}, {most} groups, {least} needed"
            );
            (within, all) = (within + usize::from(found <= 1.05), all + 1);
        }
    }
    assert!(3 * within >= 2 * all, "{within} of {all} within 5 %");
}
