//! Reductions in shares: that they change nothing, when they are taken, and when they are refused.

#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

mod support;

use einloom_algebra::{derive, flatten};
use einloom_cascade::Cascade;
use einloom_machine::built_in;
use einloom_plan::{Merging, Options, Plan, plan};
use support::{check, check_on, machine, planned, planned_on, read, sized};

const ATTENTION: &str = "input Q[m,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32, L: f32\n\
    S[m,n] = sum(d) Q[m,d] * K[n,d]\nP[m,n] = exp(S[m,n] - max(n) S[m,n])\n\
    L[m] = max(n) S[m,n] + log(sum(n) P[m,n])\nO[m,e] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]\n";

fn asked(index: &str, count: usize) -> Options {
    Options { shares: Some([(index.to_string(), count)].into()), ..Options::default() }
}

/// In so many shares, with such a tile.
fn in_shares(text: &str, sizes: &str, index: &str, count: usize, tile: usize) -> Plan {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let mut options = asked(index, count);
    options.tiles.insert(index.to_string(), tile);
    check(text, &cascade, &bound, &options, (count + tile) as u64);
    planned(&cascade, &bound, true, &options)
}

fn told(plan: &Plan) -> Vec<String> {
    plan.shares.iter().map(ToString::to_string).collect()
}

#[test]
fn partial_states_are_joined() {
    // Shares that do not divide the index, and tiles that do not divide shares.
    for (n, count, tile) in [(12, 3, 2), (13, 4, 3), (7, 7, 1), (9, 2, 4), (5, 8, 64)] {
        let plan = in_shares(ATTENTION, &format!("M=3, N={n}, D=2, E=2"), "n", count, tile);
        assert_eq!(plan.shares.len(), 1, "maximum, sum and product move together: {:?}", told(&plan));
        let each = n / count + usize::from(n % count > 0);
        assert_eq!((plan.shares[0].each, plan.shares[0].count), (each, n.div_ceil(each)));
        let partial = |k: &einloom_plan::PlannedKernel| k.group.iter().any(|g| g == &("n_share".to_string(), 1));
        assert_eq!(plan.kernels.iter().filter(|k| partial(k)).count(), 1, "one loop has all of them");
    }
}

#[test]
fn shares_wait_for_what_others_are_joined_to() {
    // The second reduction reads the first one's results at positions of `i`: its shares cannot be in the kernel of the first one's.
    let text = "input X[a,b,c]: f32\noutput Y: f32\nindex i in A\nindex j in B\n\
        D[a,b,c,i] = sum(j) X[a,j,c] * X[i,j,c]\nP[a,b,c,i] = exp(D[a,b,c,i])\nS[a,b,c] = 1 + sum(i) P[a,b,c,i]\n\
        Y[a,b,c] = (sum(i) P[a,b,c,i] * S[i,b,c]) / S[a,b,c]\n";
    let cascade = read(text);
    let bound = sized(&cascade, "A=5, B=3, C=2");
    for (count, tile) in [(2, None), (3, None), (2, Some(2)), (5, Some(2))] {
        let mut options = Options { merge: Merging::Always, ..asked("i", count) };
        options.tiles =
            tile.into_iter().flat_map(|tile| ["a", "b", "c", "i", "j"].map(|i| (i.to_string(), tile))).collect();
        check(text, &cascade, &bound, &options, count as u64);
        assert!(!planned(&cascade, &bound, true, &options).shares.is_empty());
    }
}

#[test]
fn states_of_every_kind_are_joined() {
    let cases = [
        ("input X[n]: f32\noutput Y: f32\nY = prod(n) X[n]", "N=7"),
        ("input X[m,n]: f32\noutput A: i32, M: f32\nA[m] = argmax(n) X[m,n]\nM[m] = min(n) X[m,n]", "M=2, N=9"),
        // A vector of states: the spread moves with the mean.
        (
            "input X[m,n]: f32\noutput V: f32\nA[m] = sum(n) X[m,n] / N\nV[m] = sum(n) (X[m,n] - A[m])^2 / N",
            "M=3, N=11",
        ),
        // A condition of its own, under which some shares have nothing.
        (
            "input X[m,n]: f32\noutput Y: f32\nE[m,n] = exp(X[m,n] - max(n: n <= m) X[m,n])\n\
             Y[m] = sum(n: n <= m) E[m,n] * X[m,n] / (sum(n: n <= m) E[m,n])",
            "M=6, N=8",
        ),
        // Over several indices, and what one reduction makes of another.
        ("input X[k,n]: f32\noutput Y: f32, Z: f32\nY = sum(k,n) X[k,n]\nZ[k] = sum(n) (X[k,n] - Y) * n", "K=3, N=5"),
        ("input X[n]: f32, I[n]: i32\noutput Y: f32\nY = sum(n) X[I[n]] * X[n]", "N=6"),
        // Of what a recurrence carries: all positions are there at once.
        (
            "input X[n]: f32\noutput Y: f32\nH[0,n] = X[n]\nH[t + 1,n] = H[t,n] * 0.5 + 1\nY[t] = sum(n) H[t + 1,n]",
            "N=9, T=3",
        ),
    ];
    for (text, sizes) in cases {
        for (count, tile) in [(2, 2), (3, 1), (4, 64)] {
            in_shares(text, sizes, "n", count, tile);
        }
    }
}

/// What would find that a partial state of one share is taken for that of all.
#[test]
fn shares_that_are_not_joined_are_found() {
    let cascade = read(ATTENTION);
    let bound = sized(&cascade, "M=3, N=12, D=2, E=2");
    let options = asked("n", 3);
    let mut plan = planned(&cascade, &bound, true, &options);
    let inputs = support::inputs(&cascade, &bound, 1);
    let expected = einloom_cascade::meaning::evaluate(&cascade, &bound, &inputs).expect("a meaning");
    let wrong = |plan: &Plan| {
        let found = support::interpret::interpret(&plan.program, &inputs).expect("it runs");
        // What was never written is no number.
        let far = |(w, g): (&f64, &f64)| (w - g).abs() > 1e-3 || g.is_nan();
        expected["O"].values.iter().zip(&found["O"].values).any(far)
    };
    assert!(!wrong(&plan));
    // The last share is never visited.
    for axis in plan.program.kernels.iter_mut().flat_map(|k| &mut k.axes).filter(|a| a.name == "n_share") {
        axis.extent -= 1;
    }
    assert!(wrong(&plan));
}

#[test]
fn few_rows_are_divided() {
    let h200 = built_in("h200").expect("built in");
    let options = Options { narrow_contractions: true, ..Options::default() };
    let on = |text: &str, sizes: &str| {
        let cascade = read(text);
        planned_on(&h200, &cascade, &sized(&cascade, sizes), true, &options)
    };
    let dot = "input X[n]: f32, Y[n]: f32\noutput L: f32\nL = sum(n) X[n] * Y[n]";
    let plan = on(dot, "N=100000000");
    assert!(plan.shares[0].count >= h200.cores * 9 / 10, "{:?}", told(&plan));
    let moved = einloom_model::transfers(&plan.program, &h200)[0].levels[0].bytes;
    assert!((800_000_000..800_100_000).contains(&moved), "all shares read different elements: {moved}");
    // A single query for a long sequence, in one piece where there are enough of them.
    let heads = ATTENTION.replace("[", "[b,").replace("L: f32", "L: f32\nrank B = 1");
    let heads = heads.replace("\nrank B = 1", "");
    assert_eq!(on(&heads, "B=16, M=16, N=65536, D=64, E=64").shares.len(), 1);
    assert!(on(&heads, "B=2048, M=16, N=4096, D=64, E=64").shares.is_empty());
    // What is over before a second kernel could start.
    assert!(on(dot, "N=1000").shares.is_empty());
    // One core has nobody to share with, and a machine that counts elements only moves more.
    let two = built_in("two-level").expect("built in");
    let cascade = read(dot);
    assert!(planned_on(&two, &cascade, &sized(&cascade, "N=1000000"), true, &options).shares.is_empty());
}

/// A sum over two indices goes in shares of the outer one, which are read in a row, and all sums of one loop do at once.
#[test]
fn a_reduction_over_two_indices_is_divided_along_either() {
    let h200 = built_in("h200").expect("built in");
    let on = |text: &str, sizes: &str| {
        let cascade = read(text);
        planned_on(&h200, &cascade, &sized(&cascade, sizes), true, &Options::default())
    };
    let whole = "input C[m,n]: f32, F[m]: f32, G[n]: f32\noutput L: f32\nL = sum(m,n) C[m,n] * exp(F[m] + G[n])";
    let plan = on(whole, "M=4096, N=4096");
    let [shares] = plan.shares.as_slice() else { panic!("{:?}", told(&plan)) };
    assert!(shares.index == "m" && shares.count > h200.cores, "{:?}", told(&plan));
    assert!(plan.seconds < 100e-6, "64 MiB are read once: {} s", plan.seconds);
    let pairs = "input X[n,d]: f32\noutput A: f32, B: f32\nindex m in N\nK[n,m] = exp(-(sum(d) (X[n,d] - X[m,d])^2))\n\
        A = sum(n,m) K[n,m]\nB = sum(n,m) K[n,m]^2";
    let plan = on(pairs, "N=4096, D=8");
    let partial = |name: &str| plan.kernels.iter().filter(|k| k.materialised.iter().any(|m| m.contains(name))).count();
    assert_eq!((plan.shares.len(), partial("_share")), (1, 1), "{:?}", told(&plan));
    // As written, whichever index is divided.
    for (index, count) in [("m", 5), ("n", 5), ("m", 12)] {
        in_shares(whole, "M=12, N=7", index, count, 3);
    }
}

/// Halves of the results' columns read the same keys, and long sequences leave L2 before both have.
#[test]
fn blocks_that_would_come_apart_share_nothing() {
    let h100 = built_in("h100").expect("built in");
    let options = Options { narrow_contractions: true, ..Options::default() };
    let cascade = read(include_str!("../../../cascades/attention_gqa.ein"));
    let on = |sizes: &str, options: &Options| planned_on(&h100, &cascade, &sized(&cascade, sizes), true, options);
    let long = "B=8, H=32, J=8, M=4, N=32768, D=128, E=128";
    let plan = on(long, &options);
    let again = |plan: &Plan| plan.kernels[0].gpu.as_ref().map_or(0.0, |g| g.again);
    assert_eq!(again(&plan), 0.0, "whole rows, or shares of them: {:?}", plan.kernels[0].notes);
    let tiles = [("e", 64), ("n", 128)].map(|(i, tile)| (i.to_string(), tile)).into();
    let halves = on(long, &Options { shares: Some([("n".to_string(), 1)].into()), tiles, ..options.clone() });
    let told = halves.kernels[0].gpu.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!((0.1..0.4).contains(&again(&halves)) && told.contains("read again"), "{told}");
    // 0.498 ms were measured, and 0.364 in shares.
    assert!((1.1..1.5).contains(&(halves.seconds / plan.seconds)), "{} {}", halves.seconds, plan.seconds);
    // What is short stays in step, and so does what computes.
    assert_eq!(again(&on("B=8, H=32, J=8, M=4, N=4096, D=128, E=128", &options)), 0.0);
    let product = read("input A[m,k]: bf16, B[k,n]: bf16\noutput C: bf16\nC[m,n] = sum(k) A[m,k] * B[k,n]");
    let bound = sized(&product, "M=2048, N=2048, K=65536");
    assert_eq!(again(&planned_on(&h100, &product, &bound, true, &options)), 0.0);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let refusal = |text: &str, sizes: &str, index: &str, count: usize| {
        let cascade: Cascade = read(text);
        let bound = sized(&cascade, sizes);
        let graph = if text.contains("t+1") { flatten(&cascade) } else { derive(&cascade).derived };
        plan(&graph, &bound, &machine(), &asked(index, count)).expect_err("a refusal").to_string()
    };
    let dot = "input X[m,n]: f32\noutput L: f32\nL[m] = sum(n) X[m,n]";
    assert_eq!(refusal(dot, "M=2, N=9", "q", 2), "cannot plan `q`: the program has no such index");
    assert_eq!(refusal(dot, "M=2, N=9", "m", 2), "cannot plan `m`: no reduction is over it");
    assert_eq!(refusal(dot, "M=2, N=9", "n", 0), "cannot plan `n`: there is at least one share");
    let scan = "input X[k,t]: f32, W[k,k]: f32\noutput S: f32\nrank T = 1\nS[k,0] = 0\n\
                S[k,t+1] = tanh(sum(j) W[k,j] * S[j,t]) + X[k,t]";
    let scan = scan.replace("W[k,k]", "W[k,j]").replace("rank T = 1\n", "index j in K\n");
    assert_eq!(refusal(&scan, "K=3, T=4", "j", 2), "cannot plan `j`: its reduction is part of a recurrence");
}

#[test]
fn one_share_is_none() {
    let cascade = read(ATTENTION);
    let bound = sized(&cascade, "M=3, N=5, D=2, E=2");
    let plan = planned(&cascade, &bound, true, &asked("n", 1));
    assert!(plan.shares.is_empty() && plan.kernels.len() == 1);
}

/// The tiles of a matrix unit begin with every share.
#[test]
fn on_a_gpu_no_element_is_tested() {
    let h200 = built_in("h200").expect("built in");
    let text =
        ATTENTION.replace("f32, K", "bf16, K").replace("f32, V", "bf16, V").replace("V[n,e]: f32", "V[n,e]: bf16");
    let cascade = read(&text);
    let bound = sized(&cascade, "M=64, N=4096, D=64, E=64");
    let options = Options { narrow_contractions: true, ..asked("n", 4) };
    let plan = planned_on(&h200, &cascade, &bound, true, &options);
    let printed = einloom_tile::print(&plan.program);
    assert!(printed.contains("while 1024*n_share <= n and n <= 1024*n_share + 1023"), "{printed}");
    assert!(!printed.contains("where(1024"), "{printed}");
    // Weights that are rounded to the type of what they multiply are compared by another test.
    let small = sized(&cascade, "M=5, N=37, D=4, E=4");
    check_on(&h200, &text, &cascade, &small, &asked("n", 5), 3);
}

/// The planner's own choice against each of these counts of shares, in predicted time: none saves what shares must save.
fn none_of_these_is_faster(file: &str, name: &str, sizes: &str, index: &str, counts: &[usize]) {
    let text = std::fs::read_to_string(format!("{}/../../cascades/{file}.ein", env!("CARGO_MANIFEST_DIR")))
        .expect("a program");
    let (cascade, machine) = (read(&text), built_in(name).expect("built in"));
    let bound = sized(&cascade, sizes);
    let graph = derive(&cascade).derived;
    let own = plan(&graph, &bound, &machine, &Options::default()).expect("planned");
    for &count in counts {
        let forced = plan(&graph, &bound, &machine, &asked(index, count)).expect("planned");
        let [own, forced] = [&own, &forced].map(|p| p.seconds * 1e6);
        assert!(own * 0.9 <= 1.01 * forced, "{file} on {name}, {sizes}: {own:.1} us, {forced:.1} in {count} shares");
    }
}

#[test]
fn shares_are_found_where_tiles_are_small_for_want_of_points() {
    none_of_these_is_faster("matmul", "h200", "M=500, N=300, K=700", "k", &[4, 8]);
    none_of_these_is_faster("matmul", "a100", "M=512, N=512, K=4096", "k", &[2, 4, 8, 32]);
    none_of_these_is_faster("matmul", "a100", "M=304, N=40, K=3808", "k", &[8, 32]);
    none_of_these_is_faster("matmul", "rtx-4090", "M=128, N=4096, K=4096", "k", &[4, 8]);
    none_of_these_is_faster("matmul", "rtx-4090", "M=48, N=1176, K=3960", "k", &[8, 16]);
    none_of_these_is_faster("attention_gqa", "h100", "B=1, H=8, J=4, M=304, N=6664, D=64, E=64", "n", &[4, 8, 16]);
}
