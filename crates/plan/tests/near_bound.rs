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

#[test]
fn attention_loses_no_more_than_a_group() {
    let (n, d) = (1024usize, 32usize);
    for capacity in [2048u64, 3000, 4096, 6000, 8192, 12_000] {
        let found = ratio(ATTENTION, &format!("M={n}, N={n}, D={d}, E={d}"), capacity);
        // Rows of queries and sums, beside one key's and one value's row and a few numbers of each query's own.
        let rows = (capacity as f64 - 2.0 * d as f64) / (2.0 * d as f64 + 5.0);
        let groups = 2.0 * (n * d) as f64 / capacity as f64;
        let whole = ((n as f64 / rows).ceil() + 1.0) / (groups + 1.0);
        assert!((1.0..whole + 0.005).contains(&found), "{capacity}: {found}, {groups} groups, {whole} if whole");
    }
}
