//! Indices that always go together: which become one, that this changes nothing, and what it saves.

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_model::transfers;
use einloom_plan::{Merging, Options, Plan};
use support::{check, planned, planned_on, read, sized};

const LINEAR: &str = "input X[b,m,k]: f32, W[k,n]: f32\noutput Y: f32\nY[b,m,n] = sum(k) X[b,m,k] * W[k,n]\n";
const GROUPED: &str = "input Q[h,m,d]: f32, K[j,n,d]: f32, V[j,n,e]: f32\noutput O: f32\nrank G = H / J\n\
    S[h,m,n] = sum(d) Q[h,m,d] * K[h / G,n,d]\n\
    P[h,m,n] = exp(S[h,m,n] - max(n) S[h,m,n])\n\
    O[h,m,e] = sum(n) P[h,m,n] / (sum(n) P[h,m,n]) * V[h / G,n,e]\n";

/// The plan with such a tile of two indices that are one, which it then has.
fn with_tile(text: &str, sizes: &str, index: &str, tile: usize) -> Plan {
    let cascade = read(text);
    let options = Options { tiles: [(index.to_string(), tile)].into(), ..Options::default() };
    check(text, &cascade, &sized(&cascade, sizes), &options, tile as u64);
    planned(&cascade, &sized(&cascade, sizes), true, &options)
}

/// Whether two indices can be one, called so.
fn merges(text: &str, sizes: &str, index: &str) -> bool {
    let cascade = read(text);
    let options = Options { tiles: [(index.to_string(), 1)].into(), ..Options::default() };
    match einloom_plan::plan(&derive(&cascade).derived, &sized(&cascade, sizes), &support::machine(), &options) {
        Ok(plan) => plan.merges.iter().any(|m| m.index == index),
        Err(e) => {
            assert_eq!(e.reason, "the program has no such index", "{text}");
            false
        }
    }
}

#[test]
fn rows_of_several_are_one_tile() {
    for tile in [1, 2, 3, 5, 7, 15] {
        let plan = with_tile(LINEAR, "B=3, M=5, K=4, N=6", "b_m", tile);
        let x = plan.program.tensors.iter().find(|t| t.name == "X").expect("an input");
        assert_eq!((x.shape(), &x.dims[..]), (&[3, 5, 4][..], &[15, 4][..]), "as declared, and in one");
    }
    for tile in [4, 6, 12] {
        let plan = with_tile(GROUPED, "H=8, J=2, M=3, N=9, D=3, E=5", "h_inner_m", tile);
        let q = plan.program.tensors.iter().find(|t| t.name == "Q").expect("an input");
        assert_eq!((q.shape(), &q.dims[..]), (&[8, 3, 3][..], &[2, 12, 3][..]));
    }
}

#[test]
fn more_than_two_are_one() {
    let text = "input X[a,b,m,k]: f32, W[k,n]: f32\noutput Y: f32\nY[a,b,m,n] = sum(k) X[a,b,m,k] * W[k,n]\n";
    let plan = with_tile(text, "A=2, B=3, M=5, K=4, N=6", "a_b_m", 7);
    assert_eq!(plan.merges.len(), 2);
}

#[test]
fn positions_are_those_of_both() {
    // As numbers, in a condition of an element and of a sum, and in what is gathered by.
    let text = "input X[b,m,k]: f32, W[k,n]: f32, I[b,m]: i32, T[v]: f32\noutput Y: f32, Z: f32\n\
                Y[b,m,n] = where(b <= m, sum(k) X[b,m,k] * W[k,n], 0.5 * b - m)\n\
                Z[b,m,n] = (sum(k: k <= m + b) X[b,m,k] * W[k,n]) * T[I[b,m]]";
    for tile in [1, 4, 15] {
        with_tile(text, "B=3, M=5, K=4, N=6, V=2", "b_m", tile);
    }
    // The latest queries of all keys.
    let text = GROUPED.replace("* K[h / G,n,d]\n", "* K[h / G,n,d] + (where(n <= m + N - M, 0, -inf))\n");
    for tile in [5, 12] {
        with_tile(&text, "H=8, J=2, M=3, N=9, D=3, E=5", "h_inner_m", tile);
    }
}

#[test]
fn other_indices_stay_apart() {
    for (why, text, sizes) in [
        (
            "they are not beside each other",
            "input X[b,k,m]: f32, W[k,n]: f32\noutput Y: f32\nY[b,m,n] = sum(k) X[b,k,m] * W[k,n]",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "the result has them in another order",
            "input X[b,m,k]: f32, W[k,n]: f32\noutput Y: f32\nY[m,b,n] = sum(k) X[b,m,k] * W[k,n]",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "a factor has one of them",
            "input X[b,m,k]: f32, W[b,k,n]: f32\noutput Y: f32\nY[b,m,n] = sum(k) X[b,m,k] * W[b,k,n]",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "so has what is added",
            "input X[b,m,k]: f32, W[k,n]: f32, Z[m]: f32\noutput Y: f32\nY[b,m,n] = (sum(k) X[b,m,k] * W[k,n]) + Z[m]",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "a maximum is over one",
            "input X[b,m,k]: f32, W[k,n]: f32\noutput Y: f32, Z: f32\nY[b,m,n] = sum(k) X[b,m,k] * W[k,n]\n\
             Z[b,n] = max(m) Y[b,m,n]",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "neighbours are read",
            "input X[b,m,k]: f32, W[k,n]: f32\noutput Y: f32\n\
             Y[b,m,n] = (sum(k) X[b,m,k] * W[k,n]) + (where(m > 0, X[b,m - 1,0], 0))",
            "B=3, M=5, K=4, N=6",
        ),
        (
            "nothing is shared",
            "input X[b,m,k]: f32\noutput Y: f32\nY[b,m] = sum(k) X[b,m,k] * X[b,m,k]",
            "B=3, M=5, K=4",
        ),
        ("one has one position", LINEAR, "B=1, M=5, K=4, N=6"),
        (
            "a condition would bound no loop",
            "input X[b,m,k]: f32, W[k,n]: f32\noutput Y: f32\nY[b,m,n] = sum(k: k <= m) X[b,m,k] * W[k,n]",
            "B=3, M=65, K=70, N=6",
        ),
    ] {
        assert!(!merges(text, sizes, "b_m"), "{why}");
        let cascade = read(text);
        check(text, &cascade, &sized(&cascade, sizes), &Options::default(), 1);
    }
    assert!(merges(LINEAR, "B=3, M=5, K=4, N=6", "b_m"));
}

/// In memory they are not one where arrays are not dense.
#[test]
fn arrays_laid_out_otherwise_keep_them_apart() {
    let machine = built_in("two-level").and_then(|m| m.with_capacity(4096).ok()).expect("room for elements");
    let cascade = read(LINEAR);
    let bound = sized(&cascade, "B=32, M=4, K=256, N=256");
    let of =
        |merge| planned_on(&machine, &cascade, &bound, true, &Options { merge, ..Options::default() }).merges.len();
    assert_eq!([Merging::Auto, Merging::Never, Merging::Always].map(of), [1, 0, 1]);
}

/// What rows of one index alone would read again for every other.
#[test]
fn what_is_shared_is_read_once() {
    for (text, sizes, capacity, least) in [
        (LINEAR, "B=16, M=4, K=1024, N=256", 8192, 2.0),
        (GROUPED, "H=8, J=2, M=4, N=4096, D=128, E=128", 8192, 3.5),
        (GROUPED, "H=12, J=4, M=5, N=1000, D=80, E=48", 6000, 2.5),
    ] {
        let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let cascade = read(text);
        let moved = |merge| {
            let options = Options { merge, ..Options::default() };
            let plan = planned_on(&machine, &cascade, &sized(&cascade, sizes), true, &options);
            let all = transfers(&plan.program, &machine);
            let sum = |f: fn(&einloom_model::LevelTransfers) -> u64| all.iter().map(|k| f(&k.levels[0])).sum::<u64>();
            (sum(|l| l.bytes) as f64, sum(|l| l.bound_bytes) as f64)
        };
        let ((one, bound), (apart, _)) = (moved(Merging::Auto), moved(Merging::Never));
        assert!((1.0..1.05).contains(&(one / bound)), "{sizes}: {one} of {bound}");
        assert!(apart > least * one, "{sizes}: {apart} apart, {one} in one");
    }
}

/// Conditions of both bound loops by what holds for some position, and leave no chunk out by themselves.
#[test]
fn conditions_bound_loops_over_others() {
    use einloom_tile::{Op, print};
    // The first keys only, and the latest queries of all keys.
    for (condition, sizes, bounded) in
        [("n <= m", "H=8, J=2, M=3, N=9, D=3, E=5", true), ("n <= m + N - M", "H=8, J=2, M=3, N=9, D=3, E=5", false)]
    {
        let masked = format!("* K[h / G,n,d] + (where({condition}, 0, -inf))\n");
        let text = GROUPED.replace("* K[h / G,n,d]\n", &masked);
        let cascade = read(&text);
        let tiles = [("n".to_string(), 2)].into();
        let options = Options { merge: Merging::Always, tiles, ..Options::default() };
        check(&text, &cascade, &sized(&cascade, sizes), &options, 1);
        let plan = planned(&cascade, &sized(&cascade, sizes), true, &options);
        let text = print(&plan.program);
        assert_eq!(
            (plan.merges.len(), text.contains("while n <= 2"), text.contains("where some")),
            (1, bounded, false),
            "{text}"
        );
        let streams = plan.program.kernels.iter().flat_map(|k| &k.body).any(|op| matches!(op, Op::Stream { .. }));
        assert!(streams, "{text}");
    }
}
