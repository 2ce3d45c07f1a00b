//! The configuration for Hopper: from resources to clocks (section 5.6 and 5.7), and the check against FlashAttention-3.

use super::programs::*;
use einloom_cascade::DType;
use einloom_machine::{Machine, Work, built_in};
use einloom_model::calculus::{Diagram, Divisors, warpgroups};

/// Queries and keys in eight bits, weights and values in sixteen.
fn mixed() -> Diagram {
    derived(&ATTENTION.replace("Q[q,d]: f16, K[x,d]: f16", "Q[q,d]: e4m3, K[x,d]: e4m3"))
}

fn h100() -> Machine {
    built_in("h100").expect("built in")
}

/// Operations per query and batch of 64 keys, by box, with their cycles on one SM. What is done once per query is
/// spread over many batches.
fn cycles(d: &Diagram, wire: &str, work: Work) -> (f64, f64) {
    let batches = 4096.0;
    let at = [("Q", 1.0), ("X", 64.0 * batches), ("D", 128.0), ("s_x", 64.0)];
    let h100 = h100();
    let (mut operations, mut cycles) = (0.0, 0.0);
    for item in d.work(&flash()).expect("a formula").items {
        if item.work == work && (wire.is_empty() || item.wire == wire) {
            let count = item.count.eval(with(&at)) / batches;
            let pipe = h100.pipe(work, item.dtype).expect("a pipe");
            let rate = pipe.rates.get(&item.dtype).or_else(|| pipe.rates.get(&DType::F32)).expect("a rate").0;
            operations += count;
            cycles += count / (rate / (h100.cores as f64 * h100.clock.0));
        }
    }
    (operations, cycles)
}

#[track_caller]
fn about(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 5e-4, "{found} is not about {expected}");
}

#[test]
fn resources_allow_three_warpgroups() {
    let (q, x, d) = (128.0, 64.0, 128.0);
    let kib = 1024.0;
    // A block double-buffers keys of one byte and values of two; a warpgroup has queries of one and results of two.
    let block = 2.0 * (x * d * 1.0 + x * d * 2.0);
    let each = q * d * 1.0 + q * d * 2.0;
    assert_eq!((block, each), (48.0 * kib, 48.0 * kib));
    let shared = h100().level("shared memory").and_then(|l| l.capacity).expect("a capacity").0 as f64;
    let registers = h100().registers().expect("registers").0 as f64;
    let by_shared = warpgroups(shared, block, each);
    // The 74.75 KiB of registers are quoted; what they consist of is not published.
    let by_registers = warpgroups(registers, 0.0, 74.75 * kib);
    about(by_shared, 3.729);
    about(by_registers, 3.425);
    let rows = Divisors::default().and(128, "threads of a warpgroup").and(64, "rows of wgmma");
    let queries = by_shared.min(by_registers) as u64 * 128;
    assert_eq!((queries, rows.at_most(queries)), (384, Some(384)));
}

#[test]
fn registers_of_a_thread_limit_warps() {
    let registers = h100().registers().expect("registers").0 as f64;
    for (each, warps) in [(146.0, 14), (147.0, 13), (157.0, 13), (158.0, 12), (255.0, 8)] {
        assert_eq!(warpgroups(registers, 0.0, 32.0 * 4.0 * each) as u64, warps, "{each} registers a thread");
    }
}

#[test]
fn clocks_per_query_and_batch() {
    let d = mixed();
    about(cycles(&d, "S", Work::Products).0, 16384.0);
    about(cycles(&d, "S", Work::Products).1, 2.0);
    about(cycles(&d, "O.acc", Work::Products).1, 4.0);
    // An exponential per key, and one that moves the anchor.
    about(cycles(&d, "", Work::Special).0, 65.0);
    about(cycles(&d, "", Work::Special).1, 4.0625);
    // Moving and adding to each element of the result: 256 operations.
    assert_eq!(cycles(&d, "O.acc", Work::Arithmetic).0, 256.0);
}

#[test]
fn compute_hides_transfers_from_295_queries_on() {
    let d = mixed();
    let per_query = cycles(&d, "S", Work::Products).1 + cycles(&d, "O.acc", Work::Products).1;
    about(per_query, 6.0);
    let h100 = h100();
    let hertz = h100.clock.0;
    about(hertz, 1.82994e9);
    let compute = |queries: f64| per_query * queries / hertz;
    // Per batch: 64 keys of one byte and 64 values of two, for each of 132 SMs.
    let bytes = 64.0 * 128.0 * (1.0 + 2.0);
    let transfer = bytes * h100.cores as f64 / h100.trunk().next().expect("device memory").bandwidth.0;
    about(transfer, 0.96837e-6);
    about(compute(384.0), 1.2591e-6);
    about(compute(256.0), 0.8394e-6);
    assert!(compute(256.0) < transfer && transfer < compute(384.0));
    about(transfer / compute(1.0), 295.34);
    let operations = cycles(&d, "", Work::Products).0 * 384.0 * h100.cores as f64;
    about(operations / compute(384.0), 1.3192e15);
    about(operations / compute(384.0) / h100.rate(DType::E4m3).0, 2.0 / 3.0);
}

#[test]
fn flash_attention_3_reaches_what_its_softmax_leaves() {
    // Measured: 740 of 989 TFLOP/s in f16, 1.2 of 1.98 PFLOP/s in e4m3. One figure is fitted to both: what softmax
    // takes beyond its exponentials, two thirds.
    let softmax = 64.0 / 16.0 * (5.0 / 3.0);
    let products = |text: &str| cycles(&derived(text), "", Work::Products).1;
    let wide = products(ATTENTION);
    let half = wide / 2.0;
    about(wide, 8.0);
    // In f16 the second product runs after the softmax of its batch, the first under it.
    assert!((wide / (half + softmax) - 0.75).abs() < 0.005);
    let narrow = products(&ATTENTION.replace("f16", "e4m3"));
    about(narrow, 4.0);
    // In e4m3 both hide under it.
    assert!((narrow / narrow.max(softmax) - 0.60).abs() < 0.005);
}
