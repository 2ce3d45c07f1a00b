//! Arrays that are read by the quotient of an index: which indices become two, that this changes nothing, and what it saves.

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_model::transfers;
use einloom_plan::{Options, Plan};
use support::{check, planned, planned_on, read, sized};

const GROUPED: &str = "input Q[h,m,d]: f32, K[j,n,d]: f32, V[j,n,e]: f32\noutput O: f32\nrank G = H / J\n\
    S[h,m,n] = sum(d) Q[h,m,d] * K[h / G,n,d]\n\
    P[h,m,n] = exp(S[h,m,n] - max(n) S[h,m,n])\n\
    O[h,m,e] = sum(n) P[h,m,n] / (sum(n) P[h,m,n]) * V[h / G,n,e]\n";

/// The plan with such a tile of an index's remainder, which it then has.
fn with_tile(text: &str, sizes: &str, inner: &str, tile: usize) -> Plan {
    let cascade = read(text);
    let options = Options { tiles: [(inner.to_string(), tile)].into(), ..Options::default() };
    check(text, &cascade, &sized(&cascade, sizes), &options, tile as u64);
    planned(&cascade, &sized(&cascade, sizes), true, &options)
}

/// The indices that become two, as `h = 2 x 4`.
fn splits(text: &str, sizes: &str) -> Vec<String> {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    // No other plan has such a name.
    let with = |name: &str| {
        let options = Options { tiles: [(name.to_string(), 1)].into(), ..Options::default() };
        einloom_plan::plan(&derive(&cascade).derived, &bound, &support::machine(), &options)
    };
    let names: Vec<&str> = cascade.indices.iter().map(|i| i.name.as_str()).collect();
    let found = names.iter().find_map(|name| with(&format!("{name}_inner")).ok());
    let told = |s: &einloom_plan::Split| format!("{} by {}", s.index, s.by);
    found.map_or(vec![], |p| p.splits.iter().map(told).collect())
}

#[test]
fn what_shares_is_one_tile() {
    for (sizes, tile) in [("H=8, J=2, M=1, N=9, D=3, E=5", 4), ("H=6, J=2, M=4, N=7, D=3, E=2", 2)] {
        let plan = with_tile(GROUPED, sizes, "h_inner", tile);
        let q = plan.program.tensors.iter().find(|t| t.name == "Q").expect("an input");
        let [heads, shared] = if tile == 4 { [8, 4] } else { [6, 3] };
        assert_eq!((q.shape()[0], &q.dims[..2]), (heads, &[2, shared][..]), "as declared, and in two");
    }
}

#[test]
fn positions_are_those_of_the_whole_index() {
    // As a number, in a condition, and in an extremum's position.
    let text = "input X[h,m]: f32, K[j]: f32\noutput Y: f32, A: i32\nrank G = H / J\n\
                Y[h,m] = where(h <= m, X[h,m] * K[h / G] + h, 0.5 * h)\nA[h] = argmax(m) (X[h,m] * K[h / G] - h * m)";
    with_tile(text, "H=6, J=2, M=7", "h_inner", 2);
    // Along a recurrence that heads share the inputs of.
    let text = "input X[h,t]: f32, B[j,t]: f32, D[h]: f32\noutput Y: f32\nrank G = H / J\nS[h,0] = D[h]\n\
                S[h,t+1] = S[h,t] * 0.5 + B[h / G,t] * X[h,t]\nY[h,t] = S[h,t+1] + S[h,t]";
    with_tile(text, "H=6, J=2, T=5", "h_inner", 3);
    // Gathered by what is itself read so.
    let text = "input X[h,p]: f32, W[v]: f32, I[j]: i32\noutput Y: f32\nrank G = V / J\n\
                Y[h,p] = X[h,p] * W[I[h / G]] + W[h]\nindex h in V";
    assert_eq!(splits(text, "V=4, J=2, P=3"), [""; 0], "`W` is read by `h` and gathered from");
}

#[test]
fn quotients_of_quotients_are_split_again() {
    let text = "input X[h,p]: f32, A[i]: f32, B[j]: f32\noutput Y: f32\nrank I = H / 2\nrank J = H / 6\n\
                Y[h,p] = X[h,p] * A[h / 2] + B[h / 6]";
    assert_eq!(splits(text, "H=12, P=3"), ["h by 2", "h_outer by 3"]);
    with_tile(text, "H=12, P=3", "h_inner", 2);
}

#[test]
fn other_indices_stay_in_one_piece() {
    for (why, text, sizes) in [
        ("5 is no multiple of 2", "input X[h]: f32, K[j]: f32\noutput Y: f32\nY[h] = X[h] * K[h / 2]", "H=5, J=3"),
        (
            "3 is no multiple of 2",
            "input X[h]: f32, K[j]: f32, L[i]: f32\noutput Y: f32\nY[h] = X[h] * K[h / 2] + L[h / 3]",
            "H=12, J=6, I=4",
        ),
        ("a sum is over it", "input X[h]: f32, K[j]: f32\noutput Y: f32\nY[] = sum(h) X[h] * K[h / 2]", "H=6, J=3"),
        (
            "its neighbour is read",
            "input X[h]: f32, K[j]: f32\noutput Y: f32\nY[h] = X[h] * K[h / 2] + (where(h > 0, X[h - 1], 0))",
            "H=6, J=3",
        ),
        (
            "a recurrence is along it",
            "input X[t]: f32, K[j]: f32\noutput Y: f32\nS[0] = 0\nS[t+1] = S[t] + X[t] * K[t / 2]\n\
            Y[t] = S[t+1]",
            "T=6, J=3",
        ),
        ("all share", "input X[h]: f32, K[j]: f32\noutput Y: f32\nY[h] = X[h] * K[h / 1]", "H=6, J=6"),
    ] {
        assert_eq!(splits(text, sizes), [""; 0], "{why}");
        let cascade = read(text);
        check(text, &cascade, &sized(&cascade, sizes), &Options::default(), 1);
    }
}

/// One query per head: that heads share keys is all the reuse there is.
#[test]
fn decoding_reads_keys_once() {
    for (sizes, capacity) in [
        ("H=8, J=2, M=1, N=4096, D=128, E=128", 8192),
        ("H=32, J=4, M=1, N=2048, D=64, E=64", 4096),
        ("H=12, J=4, M=1, N=1000, D=80, E=48", 3000),
    ] {
        let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let cascade = read(GROUPED);
        let plan = planned_on(&machine, &cascade, &sized(&cascade, sizes), true, &Options::default());
        let all = transfers(&plan.program, &machine);
        let sum =
            |f: fn(&einloom_model::LevelTransfers) -> u64| all.iter().map(|k| f(&k.levels[0])).sum::<u64>() as f64;
        let ratio = sum(|l| l.bytes) / sum(|l| l.bound_bytes);
        assert!((1.0..1.02).contains(&ratio), "{sizes} at {capacity}: {ratio}");
        // With heads in one piece tiles of those that share keys do as well, one key at a time.
        assert!(!plan.splits.is_empty() || plan.lost.iter().any(|l| l.what.starts_with("h as h_outer and h_inner")));
    }
}

/// Where both plans fail, the one is told of that has the tile's index.
#[test]
fn a_tile_of_a_remainder_is_no_mistake() {
    let cascade = read(GROUPED);
    let bound = sized(&cascade, "H=8, J=2, M=1, N=9, D=3, E=5");
    let tiles = [("h_inner".to_string(), 2), ("q".to_string(), 1)].into();
    let options = Options { tiles, ..Options::default() };
    let error = einloom_plan::plan(&derive(&cascade).derived, &bound, &support::machine(), &options);
    assert_eq!(error.expect_err("no index q").to_string(), "cannot plan `q`: the program has no such index");
}
