//! Bounds that hold in any order, against orders that were found by hand and by trying.

#![allow(clippy::disallowed_methods)] // shipped programs are files

mod support;

use einloom_algebra::derive;
use einloom_machine::built_in;
use einloom_model::transfers;
use einloom_plan::{Form, Options, choose};
use support::memory::{Element, Use, moved, nest};
use support::{read, sized};

/// Bytes planned, and bound in any order, of a program that is one kernel.
fn tried(text: &str, sizes: &str, capacity: u64) -> Option<(u64, u64)> {
    let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
    let cascade = read(text);
    let derivation = derive(&cascade);
    let forms = Form::all(&derivation);
    // In the order written: sums by parts move less, in more kernels.
    let plan = choose(&forms[..1], &sized(&cascade, sizes), &machine, &Options::default()).ok()?.1;
    let found = transfers(&plan.program, &machine);
    let [kernel] = &found[..] else { return None };
    Some((kernel.levels[0].bytes, kernel.levels[0].any_order_bytes))
}

const CHAIN: &str = "input A[m,k], B[k,n], E[n,l]: f32\noutput D: f32\n\
    C[m,n] = sum(k) A[m,k] * B[k,n]\nD[m,l] = sum(n) C[m,n] * E[n,l]\n";
const CHAIN_EXP: &str = "input A[m,k], B[k,n], E[n,l]: f32\noutput D: f32\n\
    C[m,n] = sum(k) A[m,k] * B[k,n]\nD[m,l] = sum(n) exp(C[m,n]) * E[n,l]\n";
const CHAIN_RELU: &str = "input A[m,k], B[k,n], E[n,l]: f32\noutput D: f32\n\
    C[m,n] = sum(k) A[m,k] * B[k,n]\nD[m,l] = sum(n) max(C[m,n], 0) * E[n,l]\n";

const GRADIENT: &str = include_str!("../../../cascades/attention_gradient.ein");

/// Of each program what some order moves, in bytes, if its memory holds so many elements.
#[test]
fn no_order_is_below_the_bound_for_any() {
    for (text, sizes, capacity, bytes) in [
        // Sums of the first product stay, everything else comes in or goes out once.
        (CHAIN, "M=64, K=512, N=8, L=512", 1024, 294_912),
        (CHAIN_EXP, "M=64, K=512, N=8, L=512", 1024, 294_912),
        (CHAIN_RELU, "M=64, K=512, N=8, L=512", 1024, 294_912),
        (CHAIN, "M=37, N=2, K=119, L=425", 348, 4 * (37 * 119 + 119 * 2 + 2 * 425 + 37 * 425)),
        // 25 rows with their two sums at a time, for which B and E come in again.
        (CHAIN, "M=426, N=2, K=88, L=190", 55, 4 * (426 * 88 + 18 * (2 * 88 + 2 * 190) + 426 * 190)),
        // Scores of all pairs stay while Q and K pass; then K passes once more, and the result goes out.
        (GRADIENT, "M=20, N=2, D=2049, E=1", 1000, 4 * (20 * 2049 + 2 * (2 * 2049) + 2 + 20 + 20 * 2049)),
        // One sum of everything: 61 elements of A stay, B passes.
        ("input A[m], B[n]: f32\noutput T: f32\nT = sum(m,n) exp(A[m] * B[n])\n", "M=4096, N=4096", 64, 1_130_500),
        // All of it fits.
        (
            "input R[i], S[k], T[j]: f32\noutput Z: f32\nZ = sum(i,j,k) abs(R[i] - S[k] - T[j])\n",
            "I=60, J=68, K=121",
            1231,
            1000,
        ),
        (
            "input R[i], S[l], T[k]: f32\noutput Z: f32\nZ = sum(i,k,l) exp(R[i] * S[l] * T[k])\n",
            "I=324, K=6, L=3",
            25,
            1336,
        ),
        // 30 of A and 30 of B stay, C passes: 81 times.
        (
            "input A[i], B[j], C[k]: f32\noutput Z: f32\nZ = sum(i,j,k) exp(A[i] + B[j] * C[k])\n",
            "I=256, J=256, K=256",
            64,
            4 * (256 + 9 * 256 + 81 * 256 + 1),
        ),
        // 14 columns of the result at a time.
        (
            "input R[i,j], S[j,l]: f32\noutput Z: f32\nZ[l] = sum(i,j) R[i,j] * S[j,l]\n",
            "I=26, J=113, L=49",
            37,
            69_352,
        ),
        (
            "input R[i,j], S[j,k]: f32\noutput Z: f32\nZ = sum(i,j,k) exp(R[i,j] * S[j,k])\n",
            "I=23, J=258, K=111",
            37,
            138_292,
        ),
        (
            "input R[i,j], S[j,k]: f32\noutput Z: f32\nZ = sum(i,j,k) abs(R[i,j] - S[j,k])\n",
            "I=16, J=259, K=172",
            75,
            194_772,
        ),
        (
            "input R[i,l], S[j,k,l], T[i,j,l]: f32\noutput Z: f32\nZ[k] = sum(i,j,l) abs(R[i,l] - S[j,k,l] - T[i,j,l])\n",
            "I=5, J=55, K=339, L=18",
            76,
            1_585_716,
        ),
        // Results stay, keys and values of two columns with them, and queries pass.
        (
            "input Q[m,d], K[n,d], V[n,e]: f32\noutput L: f32\nS[m,n] = sum(d) Q[m,d] * K[n,d]\n\
             L[e] = sum(m,n) exp(S[m,n]) * V[n,e]\n",
            "M=1024, N=1024, D=2, E=64",
            256,
            4 * (512 * 2048 + 66 * 1024 + 64),
        ),
        ("input A[m], B[n]: f32\noutput T: f32\nT[m] = sum(n) exp(A[m] * B[n])\n", "M=4096, N=4096", 64, 2_300_000),
    ] {
        let Some((planned, bound)) = tried(text, sizes, capacity) else {
            panic!("{text}{sizes}: no plan of one kernel")
        };
        assert!(bound <= bytes && bound <= planned, "{text}{sizes} at {capacity}: {bound} of {bytes} and {planned}");
    }
}

/// Plans of shipped programs of which bounds were above what they move once: axes of which only a part is read, sums that a condition makes
/// short, products that are kept for several rows, regions of which some are empty, cores with a memory each.
#[test]
fn no_plan_moves_less_than_its_bounds_or_holds_more_than_there_is() {
    for (name, machine, capacity, sizes) in [
        ("linear_attention", "two-level", 10000, "B=7, D=2, E=2049, H=7, M=2049, N=64"),
        ("attention_twice", "three-level", 100, "B=7, M=7, D=127, N=255, L=2, E=3"),
        ("attention_padding", "three-level", 100, "B=255, D=255, E=3, H=2049, M=127, N=2049"),
        ("attention_alibi", "two-level-cluster", 300, "B=1, H=20, M=20, D=2049, N=1024, E=1024"),
        ("linear_attention", "two-level-cluster", 100, "B=300, D=3, E=128, H=3, M=20, N=64"),
        ("logsumexp", "two-level-cluster", 100, "M=255, N=300"),
        ("rmsnorm_matmul", "two-level-cluster", 1000, "D=20, M=64, N=1024"),
        ("shortest_paths", "two-level-cluster", 64, "V=20"),
        ("swiglu", "two-level-cluster", 10000, "D=3, E=127, F=2049, M=2049"),
    ] {
        let machine = built_in(machine).and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let path = format!("{}/../../cascades/{name}.ein", env!("CARGO_MANIFEST_DIR"));
        let cascade = read(&std::fs::read_to_string(path).expect("a shipped program"));
        let derivation = derive(&cascade);
        let bound = sized(&cascade, sizes);
        let (_, plan) = choose(&Form::all(&derivation), &bound, &machine, &Options::default()).expect("a plan");
        for kernel in transfers(&plan.program, &machine) {
            for level in &kernel.levels {
                let what = format!("{name} on {}: {} at {}", machine.name, kernel.name, level.level);
                assert!(level.any_order_bytes <= level.bytes, "{what}: {} of {}", level.bytes, level.any_order_bytes);
                let held = level.resident_bytes;
                assert!(level.capacity.is_none_or(|c| held <= c), "{what}: {held} of {:?}", level.capacity);
            }
        }
    }
}

/// A form is not dismissed for what it would move if the slices of its recurrence went through memory.
#[test]
fn more_memory_moves_no_more() {
    let cascade = read(include_str!("../../../cascades/linear_attention.ein"));
    let derivation = derive(&cascade);
    let bound = sized(&cascade, "B=1, H=1, M=400, N=400, D=32, E=32");
    let mut before = u64::MAX;
    for capacity in [1100, 1400, 1494, 3000, 5253] {
        let machine = built_in("two-level").and_then(|m| m.with_capacity(capacity).ok()).expect("room for elements");
        let (_, plan) = choose(&Form::all(&derivation), &bound, &machine, &Options::default()).expect("a plan");
        let bytes = transfers(&plan.program, &machine).iter().map(|k| k.levels[0].bytes).sum::<u64>();
        assert!(bytes <= before, "{bytes} bytes where {capacity} elements fit, {before} with fewer");
        before = bytes;
    }
}

/// How the sums of a program are written in tiles is no part of its bound.
#[test]
fn tiles_do_not_change_the_bound_for_any_order() {
    let text = "input R[i,j], S[j,l]: f32\noutput Z: f32\nZ[l] = sum(i,j) R[i,j] * S[j,l]\n";
    let machine = built_in("two-level").and_then(|m| m.with_capacity(37).ok()).expect("room for elements");
    let cascade = read(text);
    let derivation = derive(&cascade);
    let forms = Form::all(&derivation);
    let mut bounds = vec![];
    for tiles in [vec![], vec![("l", 14)], vec![("i", 1), ("j", 1), ("l", 14)], vec![("i", 4), ("j", 2), ("l", 3)]] {
        let tiles = tiles.iter().map(|&(i, t): &(&str, usize)| (i.to_string(), t)).collect();
        let options = Options { tiles, ..Options::default() };
        let Ok((_, plan)) = choose(&forms, &sized(&cascade, "I=26, J=113, L=49"), &machine, &options) else { continue };
        bounds.push(transfers(&plan.program, &machine).iter().map(|k| k.levels[0].any_order_bytes).sum::<u64>());
    }
    assert!(bounds.len() > 1 && bounds.iter().all(|b| *b == bounds[0]), "{bounds:?}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut out: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|k| out.swap(k, self.below(k + 1)));
        out
    }

    fn subset(&mut self, n: usize) -> Vec<usize> {
        (0..n).filter(|_| self.below(2) == 0).collect()
    }
}

const NAMES: [&str; 4] = ["i", "j", "k", "l"];

fn indexed(name: &str, over: &[usize]) -> String {
    let over: Vec<&str> = over.iter().map(|&i| NAMES[i]).collect();
    if over.is_empty() { name.to_string() } else { format!("{name}[{}]", over.join(",")) }
}

fn at(over: &[usize], point: &[usize]) -> Vec<usize> {
    over.iter().map(|&i| point[i]).collect()
}

/// Sums of whatever of two or three arrays: the best of many loop nests.
#[test]
fn no_loop_nest_of_a_sum_is_below_the_bound_for_any() {
    let (mut random, mut tried_all, mut more) = (Random(7), 0, 0);
    while tried_all < 60 {
        let n = 2 + random.below(3);
        let arrays: Vec<Vec<usize>> = (0..2 + random.below(2)).map(|_| random.subset(n)).collect();
        if arrays.iter().any(Vec::is_empty) || (0..n).any(|i| !arrays.iter().any(|a| a.contains(&i))) {
            continue;
        }
        let result: Vec<usize> = random.subset(n).into_iter().take(2).collect();
        let summed: Vec<&str> = (0..n).filter(|i| !result.contains(i)).map(|i| NAMES[i]).collect();
        if summed.is_empty() {
            continue;
        }
        let sizes: Vec<usize> = (0..n).map(|_| 2 + random.below([0, 0, 60, 18, 7][n])).collect();
        let capacity = arrays.len() + 3 + random.below(8);
        let names = ["A", "B", "C"];
        let read: Vec<String> = arrays.iter().zip(names).map(|(a, name)| indexed(name, a)).collect();
        let text = format!(
            "input {}: f32\noutput Z: f32\n{} = sum({}) abs({})\n",
            read.join(", "),
            indexed("Z", &result),
            summed.join(","),
            read.join(" - ")
        );
        let bound_sizes: Vec<String> =
            sizes.iter().zip(NAMES).map(|(s, name)| format!("{}={s}", name.to_uppercase())).collect();
        let Some((planned, bound)) = tried(&text, &bound_sizes.join(", "), capacity as u64) else { continue };
        // A number is there besides while it is made.
        let room = capacity - 1;
        let mut least = usize::MAX;
        for _ in 0..60 {
            let tiles: Vec<usize> = sizes.iter().map(|&s| [1, s, 1 + random.below(s)][random.below(3)]).collect();
            let points = nest(&sizes, &tiles, &random.shuffled(n), &random.shuffled(n));
            let step = |p: &Vec<usize>| {
                let reads = arrays.iter().enumerate().map(|(k, a)| ((k, at(a, p)), Use::Input));
                reads.chain([((9, at(&result, p)), Use::Result)]).collect()
            };
            let steps: Vec<Vec<(Element, Use)>> = points.iter().map(step).collect();
            least = least.min(moved(&steps, room));
        }
        let case = format!("{text}{sizes:?} at {capacity}: {bound} of {} and {planned}", 4 * least);
        assert!(bound <= 4 * least as u64 && bound <= planned, "{case}");
        let once: usize = arrays.iter().chain([&result]).map(|a| a.iter().map(|&i| sizes[i]).product::<usize>()).sum();
        (tried_all, more) = (tried_all + 1, more + usize::from(bound > 4 * once as u64));
    }
    assert!(more > 3, "{more} of {tried_all} are above everything once");
}

/// Two products, what is between them kept, put aside, or made again for parts of the results.
#[test]
fn no_order_of_a_chain_is_below_the_bound_for_any() {
    let (mut random, mut all, mut more) = (Random(11), 0, 0);
    while all < 40 {
        let [m, n, k, l] = std::array::from_fn(|_| 1 + random.below(12));
        let capacity = 6 + random.below(30);
        let sizes = format!("M={m}, N={n}, K={k}, L={l}");
        let text = [CHAIN, CHAIN_EXP, CHAIN_RELU][random.below(3)];
        let Some((planned, bound)) = tried(text, &sizes, capacity as u64) else { continue };
        let mut least = usize::MAX;
        for _ in 0..80 {
            let tile = |random: &mut Random, s: usize| [1, s, 1 + random.below(s)][random.below(3)];
            let tiles: Vec<usize> = [m, n, l].iter().map(|&s| tile(&mut random, s)).collect();
            let part = tile(&mut random, l);
            // Of tiles of weights, for some of the results, first the weights and then what they are for.
            let bases = nest(
                &[m.div_ceil(tiles[0]), n.div_ceil(tiles[1]), l.div_ceil(part)],
                &[1; 3],
                &random.shuffled(3),
                &[0, 1, 2],
            );
            let [one, other] = [random.shuffled(3), random.shuffled(3)];
            let mut steps: Vec<Vec<(Element, Use)>> = vec![];
            for b in bases {
                let (m0, n0, l0) = (b[0] * tiles[0], b[1] * tiles[1], b[2] * part);
                let own = [tiles[0].min(m - m0), tiles[1].min(n - n0), part.min(l - l0)];
                for p in nest(&[own[0], own[1], k], &[own[0], own[1], k], &[0, 1, 2], &one) {
                    let (i, j) = (m0 + p[0], n0 + p[1]);
                    steps.push(vec![
                        ((0, vec![i, p[2]]), Use::Input),
                        ((1, vec![p[2], j]), Use::Input),
                        ((2, vec![i, j, b[2]]), Use::Made),
                    ]);
                }
                for p in nest(&own, &[own[0], own[1], tiles[2]], &[0, 1, 2], &other) {
                    let (i, j, e) = (m0 + p[0], n0 + p[1], l0 + p[2]);
                    steps.push(vec![
                        ((2, vec![i, j, b[2]]), Use::Made),
                        ((3, vec![j, e]), Use::Input),
                        ((4, vec![i, e]), Use::Result),
                    ]);
                }
            }
            least = least.min(moved(&steps, capacity));
        }
        let case = format!("{text}{sizes} at {capacity}: {bound} of {} and {planned}", 4 * least);
        assert!(bound <= 4 * least as u64 && bound <= planned, "{case}");
        let once = m * k + k * n + n * l + m * l;
        (all, more) = (all + 1, more + usize::from(bound > 4 * once as u64));
    }
    assert!(more > 2, "{more} of {all} are above everything once");
}
