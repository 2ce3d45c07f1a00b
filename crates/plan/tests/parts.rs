//! Kernels that are cut in two, each part with tiles of its own: both together compute what the one did.

mod support;

use einloom_machine::built_in;
use einloom_plan::Options;
use std::collections::BTreeSet;
use support::{check_on, planned_on, read, sized};

/// How many kernels of the plan are parts of another, after its results were compared with the meaning.
fn parts(text: &str, sizes: &str, capacity: u64) -> usize {
    let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    check_on(&machine, sizes, &cascade, &bound, &Options::default(), 7);
    let plan = planned_on(&machine, &cascade, &bound, true, &Options::default());
    let found: Vec<_> = plan.kernels.iter().filter_map(|k| k.part.as_ref()).collect();
    let mut left = &found[..];
    while let [first, ..] = left {
        let (parts, others) = left.split_at(first.place[1]);
        assert!(parts.iter().enumerate().all(|(k, p)| p.place == [k, parts.len()] && p.index == first.index));
        if let [one, other] = parts {
            assert_eq!((one.from, one.len), (0, other.from));
        }
        left = others;
    }
    found.len()
}

#[test]
fn both_parts_together_are_the_whole() {
    let product = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    let epilogue =
        "input A[m,k]: f32, B[k,n]: f32, R[m]: f32\noutput C: f32\nC[m,n] = exp(sum(k) A[m,k] * B[k,n]) * R[m]\n";
    let window = "input A[i]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m+k] * B[k,n]\n";
    let two = "input A[m,k]: f32, B[k,n]: f32, D[n,p]: f32\noutput E: f32\n\
        C[m,n] = sum(k) A[m,k] * B[k,n]\nT[m,n] = C[m,n] / max(n) C[m,n]\nE[m,p] = sum(n) T[m,n] * D[n,p]\n";
    let mut found = vec![];
    for capacity in [40, 50, 60, 70, 80, 90, 100, 120] {
        found.push(parts(product, "M=31, N=29, K=12", capacity));
        found.push(parts(epilogue, "M=27, N=33, K=9", capacity));
        found.push(parts(window, "I=36, M=28, N=25, K=9", capacity));
        found.push(parts(two, "M=23, N=27, K=11, P=25", capacity));
    }
    let cut = found.iter().filter(|&&n| n > 0).count();
    assert!(cut >= 8, "{found:?}");
}

/// Four tiles that just fail to hold a result: five parts lie round about the small one.
#[test]
fn five_parts_lie_round_about() {
    let product = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    let scaled =
        "input A[m,k]: f32, B[k,n]: f32, R[m]: f32\noutput C: f32\nC[m,n] = exp(sum(k) A[m,k] * B[k,n]) * R[m]\n";
    let found: Vec<usize> = [300, 310, 320, 330, 340, 350]
        .into_iter()
        .flat_map(|capacity| {
            [parts(product, "M=41, N=31, K=100", capacity), parts(scaled, "M=42, N=32, K=90", capacity)]
        })
        .collect();
    assert!(found.iter().filter(|&&n| n >= 4).count() >= 2, "{found:?}");
}

/// Parts along whole sides, in some of which a factor's rows stay and in others sums do: their kernels go through the grid in different orders or by other tiles.
#[test]
fn each_part_is_written_in_its_own_way() {
    let product = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    let two = "input A[m,k]: f32, B[k,n]: f32, D[n,p]: f32\noutput E: f32\n\
        C[m,n] = sum(k) A[m,k] * B[k,n]\nT[m,n] = C[m,n] / max(n) C[m,n]\nE[m,p] = sum(n) T[m,n] * D[n,p]\n";
    let mut different = 0;
    for capacity in (60..200).step_by(35) {
        for (text, sizes) in
            [(product, "M=47, N=33, K=7"), (product, "M=41, N=58, K=19"), (two, "M=37, N=21, K=11, P=33")]
        {
            if parts(text, sizes, capacity) < 3 {
                continue;
            }
            let machine =
                built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
            let cascade = read(text);
            let plan = planned_on(&machine, &cascade, &sized(&cascade, sizes), true, &Options::default());
            let ways: BTreeSet<Vec<String>> = (plan.program.kernels.iter().zip(&plan.kernels))
                .filter(|(_, planned)| planned.part.is_some())
                .map(|(kernel, _)| kernel.grid.iter().map(|&a| kernel.axis(a).name.clone()).collect())
                .collect();
            different += usize::from(ways.len() > 1);
        }
    }
    assert!(different >= 2, "{different}");
}

#[test]
fn what_reads_positions_stays_in_one_piece() {
    // Rows know their number: that of the row in its part is another.
    let numbered = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = (m + n) * sum(k) A[m,k] * B[k,n]\n";
    for capacity in [60, 90, 140] {
        assert_eq!(parts(numbered, "M=31, N=29, K=12", capacity), 0);
    }
    // A condition on positions moves with them.
    let masked = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k: k <= m) A[m,k] * B[k,n]\n";
    parts(masked, "M=31, N=29, K=31", 90);
}

#[test]
fn tiles_that_are_asked_for_are_taken() {
    let machine = built_in("two-level").and_then(|m| m.with_capacity(140).ok()).expect("room for elements");
    let cascade = read("input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n");
    let options = Options { tiles: [("m".to_string(), 5)].into(), ..Options::default() };
    let plan = planned_on(&machine, &cascade, &sized(&cascade, "M=31, N=29, K=12"), true, &options);
    assert_eq!(plan.kernels.len(), 1);
    assert_eq!(plan.kernels[0].group.iter().find(|g| g.0 == "m").map(|g| g.1), Some(5));
}

#[test]
fn a_reduced_index_may_give_way_for_one_of_the_grid() {
    // Tiles have two axes: with one channel at a time positions and outputs are those, and the window stays whole.
    let text = "input X[b,c,l]: f32, W[o,c,r]: f32\noutput Y: f32\nrank I = L - R + 1\n\
        Y[b,o,i] = sum(c, r) X[b,c,i + r] * W[o,c,r]\n";
    for (sizes, capacity) in
        [("B=3, C=11, L=22, O=6, R=5", 150), ("B=1, C=24, L=165, O=4, R=8", 150), ("B=4, C=31, L=177, O=9, R=8", 1000)]
    {
        let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let cascade = read(text);
        let bound = sized(&cascade, sizes);
        let one = Options { tiles: [("c".to_string(), 1)].into(), ..Options::default() };
        let [own, one] = [Options::default(), one].map(|o| planned_on(&machine, &cascade, &bound, true, &o).seconds);
        assert!(own <= 1.02 * one, "{sizes}: {own} s, {one} with one channel at a time");
        check_on(&machine, sizes, &cascade, &bound, &Options::default(), 7);
    }
}

#[test]
fn parts_are_judged_by_all_memories() {
    // A tile that is asked for keeps a kernel whole; k by 1 is the planner's own.
    let text = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    for (sizes, capacity) in [
        ("M=221, N=128, K=331", 4096),
        ("M=526, N=409, K=202", 20000),
        ("M=147, N=324, K=279", 8000),
        ("M=615, N=310, K=64", 2000),
    ] {
        let machine = built_in("three-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let cascade = read(text);
        let bound = sized(&cascade, sizes);
        let whole = Options { tiles: [("k".to_string(), 1)].into(), ..Options::default() };
        let [own, whole] =
            [Options::default(), whole].map(|o| planned_on(&machine, &cascade, &bound, true, &o).seconds * 1e6);
        assert!(own <= 1.02 * whole, "{sizes}: {own:.0} us, {whole:.0} in one piece");
    }
}
